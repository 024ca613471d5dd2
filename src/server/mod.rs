//! The hall: sockets, shards and the way between them.

mod errors;
pub mod metrics;
