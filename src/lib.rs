//! Convoke: a Kafka-protocol-compatible group coordinator.

#[cfg(feature = "server")]
pub mod client;
#[cfg(feature = "server")]
pub mod config;
pub mod group;
pub mod wire;
