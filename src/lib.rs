//! Convoke: a Kafka-protocol-compatible group coordinator.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod broker;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod client;
#[cfg(feature = "server")]
pub mod config;
pub mod group;
#[cfg(feature = "server")]
pub mod log;
#[cfg(feature = "server")]
pub mod server;
pub mod wire;

#[cfg(feature = "server")]
pub use server::{BlockingServer, Server};
