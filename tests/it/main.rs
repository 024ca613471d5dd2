//! One integration-test binary: linking is dear on two cores.

mod cases;
mod cli;
mod docs;
mod layers;
mod server;
mod versions;
