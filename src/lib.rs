//! Convoke: a Kafka-protocol-compatible group coordinator.

pub mod group;
pub mod wire;
