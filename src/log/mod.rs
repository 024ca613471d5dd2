//! The storage room: the data folder, the door to the file system, and the group log. Payloads are opaque bytes here.
//!
//! Opening: [`Folder::open`] takes the folder, [`Recovery::run`] shows what is in the group log and opens it. Each shard
//! then works at its own [`ShardLog`]:
//!
//! ```
//! # use std::collections::VecDeque;
//! # use std::ops::ControlFlow;
//! # use std::sync::Arc;
//! # use bytes::Bytes;
//! # use convoke::log::fs::RealFs;
//! # use convoke::log::{Error, Folder, FolderOptions, LogOptions, Position, Recovery, ShardLog};
//! # use tokio::sync::{mpsc, oneshot};
//! struct Commit {
//!     record: Bytes,
//!     reply: oneshot::Sender<&'static str>,
//! }
//!
//! /// One shard, owner of partition 7.
//! async fn shard(mut log: ShardLog, mut mailbox: mpsc::Receiver<Commit>) -> Result<(), Error> {
//!     let mut state = Vec::new();
//!     let mut parked: VecDeque<(Position, oneshot::Sender<&'static str>)> = VecDeque::new();
//!     loop {
//!         tokio::select! {
//!             // First what is durable: replies leave in order.
//!             biased;
//!             durable = log.changed() => {
//!                 let durable = durable?;
//!                 let ready = parked.partition_point(|(position, _)| *position <= durable);
//!                 for (_, reply) in parked.drain(..ready) {
//!                     let _ = reply.send("done");
//!                 }
//!             }
//!             commit = mailbox.recv() => {
//!                 let Some(Commit { record, reply }) = commit else { return Ok(()) };
//!                 // Room before decisions: a full disk is answered with the state untouched.
//!                 if log.reserve(record.len() as u64).is_err() {
//!                     let _ = reply.send("coordinator not available");
//!                     continue;
//!                 }
//!                 state.push(record.clone());
//!                 parked.push_back((log.append(7, record)?, reply));
//!             }
//!         }
//!         if let Some(partition) = log.wants_snapshot() {
//!             let mut snapshot = log.snapshot(partition);
//!             state.iter().for_each(|record| snapshot.push(record.clone()));
//!             snapshot.finish();
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let data = tempfile::tempdir()?;
//! let options = FolderOptions { partition_count: 50, node_id: 1 };
//! let folder = Arc::new(Folder::open(RealFs::shared(), data.path(), options)?);
//! let log = Recovery::open(folder, LogOptions::default())?.run(&mut |_| ControlFlow::Continue(()), &mut |_| ())?;
//! let (sender, mailbox) = mpsc::channel(16);
//! let task = tokio::spawn(shard(log.shard([7]), mailbox));
//! let (reply, answer) = oneshot::channel();
//! sender.send(Commit { record: Bytes::from_static(b"group a commits 5"), reply }).await?;
//! assert_eq!(answer.await?, "done");
//! # drop(sender);
//! # task.await??;
//! # log.close()?;
//! # Ok(())
//! # }
//! ```
//! The server also waits for [`GroupLog::failed`], and stops the process when it comes.

#[doc(hidden)]
pub mod by_hand;
mod committer;
mod error;
#[doc(hidden)]
pub mod fault_fs;
pub mod folder;
mod frame;
pub mod fs;
mod group;
mod queue;
mod recovery;
mod segments;
mod snapshot;

pub use error::Error;
pub use folder::{Folder, FolderOptions, Identity};
pub use group::{
    GroupLog, LogOptions, OnSync, Position, Recovered, ShardLog, Stats, SyncMode, SyncSample,
};
pub use recovery::{Progress, Recovery};
pub use snapshot::SnapshotWriter;
