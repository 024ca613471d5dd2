//! One integration-test binary: linking is dear on two cores.

mod cases;
mod docs;
mod layers;
mod server;
