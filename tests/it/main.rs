//! One integration-test binary: linking is dear on two cores.

mod broker;
mod cases;
mod cli;
mod docs;
mod layers;
mod log;
mod metrics;
mod server;
mod versions;
