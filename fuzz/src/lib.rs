//! What the fuzz targets share. Each module drives one target; the files in `fuzz_targets` only hand bytes over.

#[cfg(feature = "server")]
pub mod batch;
#[cfg(feature = "server")]
pub mod batches;
#[cfg(feature = "server")]
pub mod clockwork;
#[cfg(feature = "server")]
pub mod dialogue;
pub mod frame;
pub mod group;
pub mod memory;
pub mod records;
#[cfg(feature = "server")]
pub mod segments;
