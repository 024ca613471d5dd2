//! One integration-test binary: linking is dear on two cores.

#![allow(
    clippy::unwrap_used,
    reason = "a test that meets the unexpected stops there"
)]

mod bench;
mod broker;
mod cases;
mod cli;
mod docs;
mod http;
mod layers;
mod log;
mod metrics;
mod server;
mod sim;
mod versions;
