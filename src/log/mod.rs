//! The storage room: the data folder, the group log, and the segmented file that topic data is written in too.
//! Payloads are opaque bytes here.

mod error;
pub mod folder;
mod frame;
pub mod fs;
pub mod segments;

pub use error::Error;
pub use folder::{Folder, FolderOptions, Identity};
