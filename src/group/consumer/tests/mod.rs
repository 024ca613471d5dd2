//! Consumer groups as a dialogue, and as random histories. Every record also goes through a second coordinator, and
//! both must know the same facts after each step.

mod histories;
mod migration;
mod patterns;
mod played;
mod stories;
pub(in crate::group) mod world;
