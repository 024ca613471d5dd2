//! A group as a test sees it: what an operator or an assign-mode client does with it from outside.

use convoke::client::{Client, Error};
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::Request;
use tokio::sync::OnceCell;

use super::member::Member;
use super::words::{ErrorCode, Outcome, code, s};
use super::world::{World, within};

/// A group and a connection that looks at it from outside.
pub(crate) struct Group<'w> {
    world: &'w World,
    id: String,
    client: OnceCell<Client>,
}

/// One partition of an OffsetFetch answer: topic, partition, offset, leader epoch, metadata, error.
pub(crate) type Fetched = (String, i32, i64, i32, Option<String>, ErrorCode);

/// One group's part of an OffsetFetch answer.
#[derive(Debug)]
pub(crate) struct FetchedGroup {
    pub(crate) error: ErrorCode,
    pub(crate) partitions: Vec<Fetched>,
}

/// Topics with their partitions.
pub(crate) type Topics<'a> = [(&'a str, &'a [i32])];

impl<'w> Group<'w> {
    pub(crate) fn new(world: &'w World, id: String) -> Self {
        Self {
            world,
            id,
            client: OnceCell::new(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// A consumer that has not joined yet, with a connection of its own.
    pub(crate) async fn member(&self, name: &str) -> Member {
        Member::new(self.world.connect_as(name).await, &self.id, None)
    }

    /// A static consumer that has not joined yet.
    pub(crate) async fn static_member(&self, instance_id: &str) -> Member {
        let client = self.world.connect_as(instance_id).await;
        Member::new(client, &self.id, Some(instance_id))
    }

    /// Several consumers, joined, synced and stable in one generation; the first leads.
    pub(crate) async fn stable<const N: usize>(&self, names: [&str; N]) -> [Member; N] {
        let mut members = Vec::new();
        for name in names {
            members.push(self.member(name).await);
        }
        self.settle(&members.iter().collect::<Vec<_>>()).await;
        members.try_into().ok().unwrap()
    }

    /// Brings new members of a group without others into one stable generation; the first leads.
    pub(crate) async fn settle(&self, members: &[&Member]) {
        self.join_all(members).await;
        self.sync(members).await;
    }

    /// Joins new members of a group without others; the first leads. The group is in CompletingRebalance.
    pub(crate) async fn join_all(&self, members: &[&Member]) {
        let [first, others @ ..] = members else {
            panic!("no members to join")
        };
        assert_eq!(first.join().await.error(), ErrorCode::None);
        if others.is_empty() {
            return;
        }
        let joining: Vec<_> = others.iter().map(|member| member.joining()).collect();
        self.until_members(members.len()).await;
        for join in joining.into_iter().chain([first.joining()]) {
            assert_eq!(join.reply().await.error(), ErrorCode::None);
        }
    }

    /// The leader rejoins and all others follow; then everybody syncs. They are stable in the next generation.
    pub(crate) async fn rebalance(&self, members: &[&Member]) {
        self.join_all_again(members).await;
        self.sync(members).await;
    }

    /// The leader rejoins and all others follow. The group is in CompletingRebalance.
    pub(crate) async fn join_all_again(&self, members: &[&Member]) {
        let leader = members.iter().find(|member| member.leads()).unwrap();
        let leading = leader.joining();
        if members.len() > 1 {
            self.until("PreparingRebalance").await;
        }
        let others = members.iter().filter(|member| member.id() != leader.id());
        let following: Vec<_> = others.map(|member| member.joining()).collect();
        for join in following.into_iter().chain([leading]) {
            assert_eq!(join.reply().await.error(), ErrorCode::None);
        }
    }

    /// Everybody syncs: the leader gives each member [`Member::share`].
    pub(crate) async fn sync(&self, members: &[&Member]) {
        let leader = members.iter().find(|member| member.leads()).unwrap();
        let shares: Vec<_> = members.iter().map(|m| (m.id(), m.share())).collect();
        assert_eq!(leader.assign(&shares).await.error(), ErrorCode::None);
        for member in members {
            let sync = member.sync().await;
            assert_eq!(sync.error(), ErrorCode::None);
            assert_eq!(sync.assignment, member.share());
        }
    }

    /// Sends a request on the group's own connection, in this version.
    pub(crate) async fn send<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Error> {
        let client = self.client.get_or_init(|| self.world.connect()).await;
        within("a reply", client.send_as(version, request)).await
    }

    /// FindCoordinator: the outcome.
    pub(crate) async fn find(&self) -> ErrorCode {
        let request = FindCoordinatorRequest::default().with_coordinator_keys(vec![s(&self.id)]);
        let reply = self.send(6, &request).await.unwrap();
        code(reply.coordinators[0].error_code)
    }

    /// DescribeGroups in this version.
    pub(crate) async fn describe_as(&self, version: i16) -> DescribedGroup {
        let request = DescribeGroupsRequest::default().with_groups(vec![GroupId(s(&self.id))]);
        let mut reply = self.send(version, &request).await.unwrap();
        assert_eq!(reply.groups.len(), 1);
        reply.groups.remove(0)
    }

    /// DescribeGroups.
    pub(crate) async fn describe(&self) -> DescribedGroup {
        self.describe_as(5).await
    }

    /// The group's state, as Kafka spells it.
    pub(crate) async fn state(&self) -> String {
        self.describe().await.group_state.to_string()
    }

    /// The ids of its members, sorted.
    pub(crate) async fn member_ids(&self) -> Vec<String> {
        let members = self.describe().await.members;
        let mut ids: Vec<_> = members.iter().map(|m| m.member_id.to_string()).collect();
        ids.sort();
        ids
    }

    /// Waits for a state.
    pub(crate) async fn until(&self, state: &str) {
        within(state, async { while self.state().await != state {} }).await;
    }

    /// Waits until the group has this many members.
    pub(crate) async fn until_members(&self, count: usize) {
        within(count, async {
            while self.describe().await.members.len() != count {}
        })
        .await;
    }

    /// A few round trips on another connection: what was sent before has most likely been seen by then. No outcome
    /// hangs on it; without it some cases would play an easier course than the one they are about.
    pub(crate) async fn look_around(&self) {
        for _ in 0..10 {
            self.describe().await;
        }
    }

    /// LeaveGroup for these (member id, instance id).
    pub(crate) async fn leave(&self, who: &[(&str, Option<&str>)]) -> LeaveGroupResponse {
        let entry = |(id, instance): &(&str, Option<&str>)| {
            MemberIdentity::default()
                .with_member_id(s(id))
                .with_group_instance_id(instance.map(s))
        };
        let request = LeaveGroupRequest::default()
            .with_group_id(GroupId(s(&self.id)))
            .with_members(who.iter().map(entry).collect());
        self.send(5, &request).await.unwrap()
    }

    /// An OffsetCommit without membership, as assign-mode clients and tools send it.
    pub(crate) fn commit_request(&self, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
        commit_request(&self.id, offsets)
    }

    /// Commits one offset without membership.
    pub(crate) async fn commit(&self, topic: &str, partition: i32, offset: i64) -> ErrorCode {
        let codes = self.commit_all(&[(topic, partition, offset)]).await;
        codes[0]
    }

    /// Commits offsets without membership; the outcome of each.
    pub(crate) async fn commit_all(&self, offsets: &[(&str, i32, i64)]) -> Vec<ErrorCode> {
        codes(&self.send(9, &self.commit_request(offsets)).await.unwrap())
    }

    /// OffsetFetch in this version; `None`: all topics.
    pub(crate) async fn fetch_as(&self, version: i16, topics: Option<&Topics<'_>>) -> FetchedGroup {
        let request = fetch_request(version, &[(&self.id, topics)]);
        let mut groups = fetched(version, self.send(version, &request).await.unwrap());
        assert_eq!(groups.len(), 1);
        groups.remove(0)
    }

    /// Everything that is committed, as (topic, partition, offset), sorted.
    pub(crate) async fn committed_all(&self) -> Vec<(String, i32, i64)> {
        let group = self.fetch_as(9, None).await;
        assert_eq!(group.error, ErrorCode::None);
        let mut all: Vec<_> = group
            .partitions
            .into_iter()
            .map(|(topic, partition, offset, _, _, error)| {
                assert_eq!(error, ErrorCode::None);
                (topic, partition, offset)
            })
            .collect();
        all.sort();
        all
    }

    /// The committed offset; −1 for none.
    pub(crate) async fn committed(&self, topic: &str, partition: i32) -> i64 {
        let group = self.fetch_as(9, Some(&[(topic, &[partition])])).await;
        assert_eq!(group.error, ErrorCode::None);
        assert_eq!(group.partitions[0].5, ErrorCode::None);
        group.partitions[0].2
    }

    /// DeleteGroups of this group.
    pub(crate) async fn delete(&self) -> ErrorCode {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(s(&self.id))]);
        code(self.send(2, &request).await.unwrap().results[0].error_code)
    }

    /// OffsetDelete.
    pub(crate) async fn delete_offsets(&self, topics: &Topics<'_>) -> OffsetDeleteResponse {
        let partition =
            |index: &i32| OffsetDeleteRequestPartition::default().with_partition_index(*index);
        let topic = |(name, partitions): &(&str, &[i32])| {
            OffsetDeleteRequestTopic::default()
                .with_name(TopicName(s(name)))
                .with_partitions(partitions.iter().map(partition).collect())
        };
        let request = OffsetDeleteRequest::default()
            .with_group_id(GroupId(s(&self.id)))
            .with_topics(topics.iter().map(topic).collect());
        self.send(0, &request).await.unwrap()
    }
}

/// An OffsetCommit without membership; offsets of one topic that follow each other share an entry.
pub(crate) fn commit_request(group_id: &str, offsets: &[(&str, i32, i64)]) -> OffsetCommitRequest {
    let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
    for (topic, partition, offset) in offsets {
        if topics.last().is_none_or(|last| *last.name != **topic) {
            topics.push(OffsetCommitRequestTopic::default().with_name(TopicName(s(topic))));
        }
        topics.last_mut().unwrap().partitions.push(
            OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_metadata(Some(s(""))),
        );
    }
    OffsetCommitRequest::default()
        .with_group_id(GroupId(s(group_id)))
        .with_topics(topics)
}

/// The outcomes of a commit, in the order of the answer.
pub(crate) fn codes(reply: &OffsetCommitResponse) -> Vec<ErrorCode> {
    let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| code(partition.error_code))
        .collect()
}

/// OffsetFetch in this version: one group before version 8, any number since.
pub(crate) fn fetch_request(
    version: i16,
    groups: &[(&str, Option<&Topics<'_>>)],
) -> OffsetFetchRequest {
    let request = OffsetFetchRequest::default();
    if version < 8 {
        let (id, topics) = groups[0];
        let topic = |(name, partitions): &(&str, &[i32])| {
            OffsetFetchRequestTopic::default()
                .with_name(TopicName(s(name)))
                .with_partition_indexes(partitions.to_vec())
        };
        return request
            .with_group_id(GroupId(s(id)))
            .with_topics(topics.map(|topics| topics.iter().map(topic).collect()));
    }
    let topic = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopics::default()
            .with_name(TopicName(s(name)))
            .with_partition_indexes(partitions.to_vec())
    };
    let group = |(id, topics): &(&str, Option<&Topics<'_>>)| {
        OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(s(id)))
            .with_member_id(None)
            .with_member_epoch(-1)
            .with_topics(topics.map(|topics| topics.iter().map(topic).collect()))
    };
    request.with_groups(groups.iter().map(group).collect())
}

/// The groups of an OffsetFetch answer of this version, in its order.
pub(crate) fn fetched(version: i16, reply: OffsetFetchResponse) -> Vec<FetchedGroup> {
    macro_rules! partitions {
        ($topics:expr) => {{
            let topics = $topics.iter();
            let each = topics.flat_map(|topic| {
                topic.partitions.iter().map(|p| {
                    (
                        topic.name.to_string(),
                        p.partition_index,
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.metadata.as_ref().map(ToString::to_string),
                        code(p.error_code),
                    )
                })
            });
            each.collect()
        }};
    }
    if version < 8 {
        return vec![FetchedGroup {
            error: code(reply.error_code),
            partitions: partitions!(reply.topics),
        }];
    }
    let groups = reply.groups.iter().map(|group| FetchedGroup {
        error: code(group.error_code),
        partitions: partitions!(group.topics),
    });
    groups.collect()
}
