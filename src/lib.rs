//! Convoke: a group coordinator that speaks the Kafka protocol.
//!
//! Stock Kafka clients join, rebalance, commit and resume against it as they do against a broker. It is a server of its
//! own (`convoke serve`), a library, and a test double: [`Server`] starts inside a program, on a free port, in memory.
//!
//! # The map of the house
//!
//! | room | what lives there |
//! |---|---|
//! | [`group`] | **The core**: a coordinator as a state machine. No sockets, no disk, no clock, no waiting; time and requests come in as arguments, records and replies go out as values. |
//! | [`wire`] | Bytes and words: the table of APIs, the guard in front of every decoder, each version's layout, the records of `__consumer_offsets`. |
//! | [`log`] | The disk: the data folder, the group log with its one sync for everybody, snapshots, recovery, and the segments that topic data lies in too. |
//! | [`broker`] | The data plane of a cluster of one: topics, Produce, Fetch, ListOffsets, configs. Batches stay opaque. |
//! | [`server`] | The hall: connections at the gate, routing, a desk (shard) for each coordinator, metrics. |
//! | [`desk`] | What is decided between connections, a coordinator and the log: which reply waits for which record, what happens when the log refuses, what time it is. Touches nothing itself. |
//! | [`config`] | Every setting once, under Kafka's name. |
//! | [`admin`] | The noticeboard and the counter: health, readiness and metrics; the API for operators, who may use it, lag, and the page. Over HTTP. |
//! | [`cli`] | The bell: the `convoke` command. |
//! | [`client`] | A small Kafka client, for tests and tools. |
//! | [`sim`] | The core under a glass dome: clients, disk, crashes and time, all from one seed. |
//!
//! Arrows between rooms go one way, from the bell by way of the hall down to the core; `tests/it/layers.rs` holds them.
//! [`group`], [`wire`] and [`desk`] build without the feature `server`, hence without tokio; so do [`sim`] and what of
//! [`broker`] it needs with the feature `sim`, but for the channels and locks of tokio that they are made with.
//!
//! # The life of a request
//!
//! A JoinGroup, from the socket and back:
//!
//! 1. `server::connection` reads a frame. It has one request in service at a time, so replies leave in order.
//! 2. [`wire::decode`] walks the frame's shape first, so that no count it claims can exceed its bytes, and then turns it
//!    into words: [`group::request::Request::Join`]. What a version *means* is a field with a name.
//! 3. `server::route` hashes the group id as Kafka does and puts the request into the mailbox of one of 50 shards. This
//!    is the only hop between tasks.
//! 4. `server::shard` drains its mailbox in batches and calls [`group::Coordinator::handle`] for each request. The core
//!    validates, then emits records, each of which changes its state at once; a join mostly emits none and is parked.
//! 5. When the last member has joined, or a deadline says so, the replies of *all* members come out together, as
//!    [`group::Actions`]: records to append, replies to send, and what must be durable before each may leave.
//! 6. The shard appends the records of its whole batch as one frame. [`log`] writes and syncs what all shards have queued
//!    with one `fdatasync`; then the replies leave. A reply waits for the records of its own group only, so a heartbeat
//!    never waits for somebody else's commit.
//! 7. The connection gets its reply through the pigeonhole that it owns, [`wire::encode`] writes it in the version that
//!    was asked, and it goes out.
//!
//! If a record cannot be kept, nothing is rolled back: the coordinator is dropped and loaded again from the log, and
//! whoever waited is told to try again.
//!
//! docs/architecture.md says why it is built like this.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "sim")]
pub mod broker;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "server")]
pub mod client;
#[cfg(feature = "server")]
pub mod config;
pub mod desk;
pub mod group;
#[cfg(feature = "sim")]
pub mod log;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod wire;

#[cfg(feature = "server")]
pub use server::{BlockingServer, Server};
