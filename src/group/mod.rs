//! The core: a coordinator as a state machine. Pure: no sockets, no clock, no randomness of the system, no waiting.

mod actions;
pub mod record;
pub mod request;
pub mod subscription;
pub mod types;

pub use actions::{Actions, After, Answer};
