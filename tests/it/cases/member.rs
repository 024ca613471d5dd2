//! A classic member, driven call by call.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use convoke::client::{Client, Error};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::Request;
use tokio::task::JoinHandle;

use super::group::{codes, commit_request};
use super::words::{ErrorCode, Outcome, code, s, subscribes};
use super::world::within;

/// One member of a classic group on one connection. Clones are the same member.
#[derive(Clone)]
pub(crate) struct Member {
    client: Client,
    group_id: Arc<str>,
    state: Arc<Mutex<State>>,
}

/// What it says of itself, and what it was told.
#[derive(Clone)]
struct State {
    instance_id: Option<String>,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    protocol_type: String,
    protocols: Vec<(String, Bytes)>,
    join_version: i16,
    member_id: String,
    generation: i32,
    leader: String,
}

impl Member {
    pub(crate) fn new(client: Client, group_id: &str, instance_id: Option<&str>) -> Self {
        let state = State {
            instance_id: instance_id.map(str::to_owned),
            session_timeout_ms: 60_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), subscribes(&["t"]))],
            join_version: 9,
            member_id: String::new(),
            generation: -1,
            leader: String::new(),
        };
        Self {
            client,
            group_id: group_id.into(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn set(self, change: impl FnOnce(&mut State)) -> Self {
        change(&mut self.state());
        self
    }

    /// Joins with this session timeout from now on.
    pub(crate) fn session_ms(self, ms: i32) -> Self {
        self.set(|state| state.session_timeout_ms = ms)
    }

    /// Joins with this rebalance timeout from now on.
    pub(crate) fn rebalance_ms(self, ms: i32) -> Self {
        self.set(|state| state.rebalance_timeout_ms = ms)
    }

    /// Joins in this version from now on.
    pub(crate) fn join_version(self, version: i16) -> Self {
        self.set(|state| state.join_version = version)
    }

    /// Joins with this protocol type and these protocols from now on.
    pub(crate) fn follows(self, protocol_type: &str, protocols: &[(&str, &[u8])]) -> Self {
        let protocol = |(name, metadata): &(&str, &[u8])| {
            ((*name).to_owned(), Bytes::copy_from_slice(metadata))
        };
        self.set(|state| {
            state.protocol_type = protocol_type.to_owned();
            state.protocols = protocols.iter().map(protocol).collect();
        })
    }

    /// Subscribes to these topics from now on.
    pub(crate) fn subscribed(self, topics: &[&str]) -> Self {
        self.follows("consumer", &[("range", &subscribes(topics))])
    }

    /// Has this member id from now on.
    pub(crate) fn known_as(self, member_id: &str) -> Self {
        self.set(|state| state.member_id = member_id.to_owned())
    }

    /// Is of this generation from now on.
    pub(crate) fn of_generation(self, generation: i32) -> Self {
        self.set(|state| state.generation = generation)
    }

    /// The same process on another connection.
    pub(crate) fn on(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// Another process that starts with the same configuration and knows nothing yet.
    pub(crate) fn restarted(&self, client: Client) -> Self {
        let mut state = self.state().clone();
        state.member_id.clear();
        state.generation = -1;
        Self {
            client,
            group_id: self.group_id.clone(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Another member object with this one's ids and generation, which later joins of this one do not change.
    pub(crate) fn as_it_is(&self) -> Self {
        let state = self.state().clone();
        Self {
            state: Arc::new(Mutex::new(state)),
            ..self.clone()
        }
    }

    pub(crate) fn id(&self) -> String {
        self.state().member_id.clone()
    }

    pub(crate) fn generation(&self) -> i32 {
        self.state().generation
    }

    /// Whether it leads the generation that it joined last.
    pub(crate) fn leads(&self) -> bool {
        let state = self.state();
        state.leader == state.member_id
    }

    /// What [`Group::sync`](super::group::Group::sync) assigns to it.
    pub(crate) fn share(&self) -> Bytes {
        Bytes::from(format!("share of {}", self.id()))
    }

    /// Sends a request on its connection, in this version.
    pub(crate) async fn send<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Error> {
        within(&self.group_id, self.client.send_as(version, request)).await
    }

    /// The JoinGroup it would send now.
    pub(crate) fn join_request(&self) -> JoinGroupRequest {
        let state = self.state();
        let protocol = |(name, metadata): &(String, Bytes)| {
            JoinGroupRequestProtocol::default()
                .with_name(s(name))
                .with_metadata(metadata.clone())
        };
        let mut request = JoinGroupRequest::default()
            .with_group_id(GroupId(s(&self.group_id)))
            .with_session_timeout_ms(state.session_timeout_ms)
            .with_member_id(s(&state.member_id))
            .with_group_instance_id(state.instance_id.as_deref().map(s))
            .with_protocol_type(s(&state.protocol_type))
            .with_protocols(state.protocols.iter().map(protocol).collect());
        if state.join_version > 0 {
            request.rebalance_timeout_ms = state.rebalance_timeout_ms;
        }
        request
    }

    /// One JoinGroup, and what it answers. What it tells about the member is kept.
    pub(crate) async fn join_once(&self) -> JoinGroupResponse {
        let version = self.state().join_version;
        let reply = self.send(version, &self.join_request()).await.unwrap();
        let mut state = self.state();
        match reply.error() {
            ErrorCode::None => {
                state.member_id = reply.member_id.to_string();
                state.generation = reply.generation_id;
                state.leader = reply.leader.to_string();
            }
            ErrorCode::MemberIdRequired => state.member_id = reply.member_id.to_string(),
            _ => {}
        }
        reply
    }

    /// Joins as a stock client does: again with the id it is told, if it is told one (KIP-394).
    pub(crate) async fn join(&self) -> JoinGroupResponse {
        let reply = self.join_once().await;
        match reply.error() {
            ErrorCode::MemberIdRequired => self.join_once().await,
            _ => reply,
        }
    }

    /// Only the first step of joining: it has a reserved id afterwards.
    pub(crate) async fn knock(&self) {
        let reply = self.join_once().await;
        assert_eq!(reply.error(), ErrorCode::MemberIdRequired);
        assert!(!reply.member_id.is_empty());
        assert_eq!(reply.generation_id, -1);
    }

    /// [`join`](Self::join) that may be parked.
    pub(crate) fn joining(&self) -> Parked<JoinGroupResponse> {
        let member = self.clone();
        Parked(tokio::spawn(async move { member.join().await }))
    }

    /// The SyncGroup it would send now.
    pub(crate) fn sync_request(&self, shares: &[(String, Bytes)]) -> SyncGroupRequest {
        let state = self.state();
        let assignment = |(id, bytes): &(String, Bytes)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(s(id))
                .with_assignment(bytes.clone())
        };
        SyncGroupRequest::default()
            .with_group_id(GroupId(s(&self.group_id)))
            .with_generation_id(state.generation)
            .with_member_id(s(&state.member_id))
            .with_group_instance_id(state.instance_id.as_deref().map(s))
            .with_protocol_type(Some(s(&state.protocol_type)))
            .with_protocol_name(state.protocols.first().map(|(name, _)| s(name)))
            .with_assignments(shares.iter().map(assignment).collect())
    }

    /// SyncGroup of a leader.
    pub(crate) async fn assign(&self, shares: &[(String, Bytes)]) -> SyncGroupResponse {
        self.send(5, &self.sync_request(shares)).await.unwrap()
    }

    /// SyncGroup of a follower.
    pub(crate) async fn sync(&self) -> SyncGroupResponse {
        self.assign(&[]).await
    }

    /// [`sync`](Self::sync) that may be parked.
    pub(crate) fn syncing(&self) -> Parked<SyncGroupResponse> {
        let member = self.clone();
        Parked(tokio::spawn(async move { member.sync().await }))
    }

    /// Joins an empty group, syncs, and is stable alone.
    pub(crate) async fn settle(&self) {
        let join = self.join().await;
        assert_eq!(join.error(), ErrorCode::None);
        let sync = self.assign(&[(self.id(), self.share())]).await;
        assert_eq!(sync.error(), ErrorCode::None);
        assert_eq!(sync.assignment, self.share());
    }

    pub(crate) async fn heartbeat(&self) -> ErrorCode {
        let request = {
            let state = self.state();
            HeartbeatRequest::default()
                .with_group_id(GroupId(s(&self.group_id)))
                .with_generation_id(state.generation)
                .with_member_id(s(&state.member_id))
                .with_group_instance_id(state.instance_id.as_deref().map(s))
        };
        code(self.send(4, &request).await.unwrap().error_code)
    }

    /// Heartbeats until the answer is another than NONE.
    pub(crate) async fn notice(&self) -> ErrorCode {
        within("news by heartbeat", async {
            loop {
                match self.heartbeat().await {
                    ErrorCode::None => {}
                    news => return news,
                }
            }
        })
        .await
    }

    /// An OffsetCommit as a member.
    pub(crate) fn commit_request(&self, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
        let state = self.state();
        commit_request(&self.group_id, offsets)
            .with_member_id(s(&state.member_id))
            .with_generation_id_or_member_epoch(state.generation)
            .with_group_instance_id(state.instance_id.as_deref().map(s))
    }

    /// Commits one offset as a member.
    pub(crate) async fn commit(&self, topic: &str, partition: i32, offset: i64) -> ErrorCode {
        let request = self.commit_request(&[(topic, partition, offset)]);
        codes(&self.send(9, &request).await.unwrap())[0]
    }
}

/// A request that is on its way and may be parked at the server. Dropped, it keeps running; the connection stays.
pub(crate) struct Parked<T>(JoinHandle<T>);

impl<T> Parked<T> {
    /// The reply, which must come.
    pub(crate) async fn reply(self) -> T {
        within("a parked reply", self.0).await.unwrap()
    }

    /// Whether the reply is here.
    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }

    /// Gives up waiting and lets go of the connection.
    pub(crate) fn abandon(self) {
        self.0.abort();
    }
}
