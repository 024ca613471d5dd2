//! The answers to operators' questions about groups. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::book::Book;
use super::{JournalConfig, words};
use crate::group::classic::{self, Phase};
use crate::group::operator::{
    Commit, Inspect, Inspected, InspectedMember, MemberRef, NotDone, Summary, Toucher,
};
use crate::group::reconcile::without_epochs;
use crate::group::record::MemberState;
use crate::group::request::{IdPartitions, Reply, RequestId};
use crate::group::state::{ConsumerGroup, Entry, Touch};
use crate::group::subscription::{Assignment, NamePartitions, subscribed_topics};
use crate::group::types::{GroupId, MemberId, Millis, TopicId, TopicName};
use crate::group::{Actions, Coordinator};

/// Who owns a partition.
type Owners = BTreeMap<TopicName, BTreeMap<i32, MemberId>>;

impl Coordinator {
    /// An operator's question.
    pub(in crate::group) fn inspect(
        &self,
        now: Millis,
        id: RequestId,
        inspect: &Inspect,
        actions: &mut Actions,
    ) {
        let reply = match inspect {
            Inspect::Group(group_id) => {
                let inspected = self.inspected(now, group_id);
                Reply::Inspected(
                    inspected
                        .map(Box::new)
                        .ok_or_else(|| NotDone::no_group(group_id)),
                )
            }
            Inspect::Preview { group_id, change } => {
                Reply::Previewed(self.preview(group_id, change).map(Box::new))
            }
        };
        actions.reply(id, inspect.group_id(), reply);
    }

    /// Every group in short, by id. Walks all of them: for a page, not for a loop.
    #[must_use]
    pub fn summaries(&self, now: Millis) -> Vec<Summary> {
        let vacant = Entry::default();
        let mut ids = self.state.group_ids();
        // Those whose first members are still joining, of whom nothing is recorded yet.
        let joining = self.classic.keys();
        ids.extend(joining.filter(|id| self.state.group(id).is_none()).cloned());
        ids.sort_unstable();
        let summary = |group_id: &GroupId| {
            let entry = self.state.group(group_id).unwrap_or(&vacant);
            self.summary(now, group_id, entry)
        };
        ids.iter().map(summary).collect()
    }

    fn summary(&self, now: Millis, group_id: &GroupId, entry: &Entry) -> Summary {
        let offset_count = entry.offsets.topics().map(|(_, of_it)| of_it.len()).sum();
        let live = self.classic.get(&**group_id);
        let book = self.journal.books.get(&**group_id);
        let config = self.journal.config();
        let (kind, state, epoch, member_count) = match (&entry.consumer, live) {
            (Some(group), _) => {
                let state = group.phase().name();
                ("consumer", state, group.epoch(), group.member_count())
            }
            (None, Some(group)) => {
                let state = group.phase().name();
                ("classic", state, group.generation(), group.member_count())
            }
            (None, None) => {
                let recorded = entry.classic.as_ref();
                let had_members = recorded.is_some_and(|value| !value.protocol_type.is_empty());
                let kind = if had_members || offset_count == 0 {
                    "classic"
                } else {
                    "simple"
                };
                let generation = recorded.map_or(0, |value| value.generation);
                (kind, Phase::Empty.name(), generation, 0)
            }
        };
        Summary {
            group_id: group_id.clone(),
            kind,
            state,
            epoch,
            member_count,
            offset_count,
            rebalance_count: book.map_or(0, |book| book.number),
            rebalanced_at: book.and_then(|book| book.began_at()),
            is_stormy: book.is_some_and(|book| book.storm(now, config).is_some()),
            is_paused: self.is_paused(group_id),
            has_conflict: entry
                .offsets
                .iter()
                .any(|(_, _, slot)| rivals(now, slot.touch(), config.conflict_window_ms).is_some()),
        }
    }

    /// The number of the group's newest rebalance, and whether it is over. For simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn newest_rebalance(&self, group_id: &str) -> Option<(u64, bool)> {
        let book = self.journal.books.get(group_id)?;
        (book.number > 0).then_some((book.number, book.running.is_none()))
    }

    /// Everything about one group; `None` if there is no such group.
    #[must_use]
    pub fn inspected(&self, now: Millis, group_id: &GroupId) -> Option<Inspected> {
        let vacant = Entry::default();
        let entry = match self.state.group(group_id) {
            Some(entry) => entry,
            // Nothing is recorded of a group before its first members have an assignment.
            None if self.exists(group_id) => &vacant,
            None => return None,
        };
        let summary = self.summary(now, group_id, entry);
        let live = self.classic.get(&**group_id);
        let (assignor, members, subscribed) = match (&entry.consumer, live) {
            (Some(group), _) => {
                let subscribed = group
                    .names()
                    .chain(group.regexes().flat_map(|(_, r)| &r.topics));
                (
                    Arc::from(self.assignor(group).name()),
                    self.consumer_members(group_id, group),
                    subscribed.cloned().collect(),
                )
            }
            (None, Some(group)) => (
                group.protocol().cloned().unwrap_or_default(),
                classic_members(group),
                group.subscribed().cloned().collect(),
            ),
            (None, None) => (Arc::default(), Vec::new(), BTreeSet::new()),
        };
        let owners = owners_of(&members);
        let commits = commits(entry, &owners, &members);
        let config = self.journal.config();
        let conflicts = entry.offsets.iter().filter_map(|(topic, partition, slot)| {
            let rivals = rivals(now, slot.touch(), config.conflict_window_ms)?;
            Some((topic.clone(), partition, rivals))
        });
        let conflicts = conflicts.collect();
        let book = self.journal.books.get(&**group_id).map(|book| &**book);
        let flapping = book.map_or_else(Vec::new, |book| book.flapping(now, config));
        let gaps = self.gaps(&summary, subscribed, &commits, &owners);
        Some(Inspected {
            summary,
            assignor,
            members,
            commits,
            conflicts,
            gaps,
            rebalances: book.map_or_else(Vec::new, |book| book.rebalances(now)),
            storm: book.and_then(|book| storm(book, now, config, &flapping)),
            flapping,
            audit: book
                .map(|book| book.audit.iter().rev().cloned().collect())
                .unwrap_or_default(),
            settings: self.settings(group_id),
            banned: self.banned(now, group_id),
            operation: self.operation_sentence(group_id),
        })
    }

    fn consumer_members(&self, group_id: &str, group: &ConsumerGroup) -> Vec<InspectedMember> {
        let live = self.consumer.get(group_id);
        let members = group.members().map(|(member_id, member)| {
            let (told, current) = (member.told(), member.current());
            let session_timeout_ms = match &told.classic {
                Some(classic) => classic.session_timeout_ms,
                None => self.session_timeout_ms(group_id),
            };
            let deadline = live.and_then(|live| live.deadline(member_id));
            let held = [&current.assigned[..], &current.pending_revocation].concat();
            let regex = told.subscribed_topic_regex.clone();
            let resolved = regex.as_deref().and_then(|regex| group.resolved(regex));
            let mut subscribed = told.subscribed_topic_names.clone();
            subscribed.extend(
                resolved
                    .iter()
                    .flat_map(|regex| regex.topics.iter().cloned()),
            );
            subscribed.sort_unstable();
            subscribed.dedup();
            InspectedMember {
                member: member.member_ref(member_id),
                state: match current.state {
                    MemberState::Stable => "Stable",
                    MemberState::UnrevokedPartitions => "UnrevokedPartitions",
                    MemberState::UnreleasedPartitions => "UnreleasedPartitions",
                    MemberState::Unknown => "Unknown",
                },
                epoch: current.member_epoch,
                is_classic: told.classic.is_some(),
                is_leader: false,
                subscribed,
                subscribed_regex: regex,
                owned: self.named(without_epochs(&held)),
                target: self.named(member.target().clone()),
                seen_at: deadline.map(|deadline| before(deadline, session_timeout_ms.into())),
                session_timeout_ms: session_timeout_ms.into(),
            }
        });
        members.collect()
    }

    /// Partitions by topic name, in order, each once; topics that are gone are left out.
    pub(in crate::group) fn named(&self, partitions: IdPartitions) -> NamePartitions {
        by_name(partitions, |topic| self.topics.name_of(topic))
    }

    /// The same with topics that are gone since not so long.
    pub(in crate::group) fn named_with_gone(&self, partitions: IdPartitions) -> NamePartitions {
        by_name(partitions, |topic| {
            let name = self.topics.name_of(topic);
            name.or_else(|| self.journal.name_of_gone(topic))
        })
    }

    /// Partitions of topics in use that nobody consumes. A group that is down as a whole has none.
    fn gaps(
        &self,
        summary: &Summary,
        mut topics: BTreeSet<TopicName>,
        commits: &[Commit],
        owners: &Owners,
    ) -> Vec<(TopicName, i32)> {
        let is_simple = summary.kind == "simple";
        if summary.member_count == 0 && !is_simple {
            return Vec::new();
        }
        topics.extend(commits.iter().map(|commit| commit.topic.clone()));
        let mut gaps = Vec::new();
        for (name, topic) in topics.iter().filter_map(|name| self.topics.entry(name)) {
            let consumed: BTreeSet<i32> = if is_simple {
                let of_it = commits.iter().filter(|commit| commit.topic == *name);
                of_it.map(|commit| commit.partition).collect()
            } else {
                let of_it = owners.get(name).into_iter().flatten();
                of_it.map(|(partition, _)| *partition).collect()
            };
            let missing = (0..topic.partitions).filter(|index| !consumed.contains(index));
            gaps.extend(missing.map(|index| (name.clone(), index)));
        }
        gaps
    }
}

fn by_name<'a>(
    partitions: IdPartitions,
    name_of: impl Fn(TopicId) -> Option<&'a TopicName>,
) -> NamePartitions {
    let mut by_name: BTreeMap<TopicName, BTreeSet<i32>> = BTreeMap::new();
    for (topic, partitions) in partitions {
        if let Some(name) = name_of(topic) {
            by_name.entry(name.clone()).or_default().extend(partitions);
        }
    }
    let each = by_name.into_iter();
    each.map(|(name, of_it)| (name, of_it.into_iter().collect()))
        .collect()
}

fn before(moment: Millis, ms: i64) -> Millis {
    Millis(moment.0.saturating_sub(ms))
}

fn classic_members(group: &classic::Group) -> Vec<InspectedMember> {
    let protocol = group.protocol().map_or("", |protocol| &**protocol);
    let speaks = &**group.protocol_type() == "consumer";
    let gathers = group.phase() == Phase::PreparingRebalance;
    let members = group.members().map(|(member_id, member)| {
        let metadata = member.metadata_for(protocol);
        let assignment = speaks
            .then(|| Assignment::parse(member.assignment()))
            .flatten();
        let mut owned = assignment.map_or_else(Vec::new, |assignment| assignment.partitions);
        for (_, partitions) in &mut owned {
            partitions.sort_unstable();
        }
        owned.sort_unstable();
        let subscribed = speaks.then(|| subscribed_topics(&metadata)).flatten();
        InspectedMember {
            member: group.member_ref(member_id),
            state: if gathers && !member.has_joined() {
                "joining"
            } else {
                "joined"
            },
            epoch: group.generation(),
            is_classic: true,
            is_leader: group.is_leader(member_id),
            subscribed: subscribed.into_iter().flatten().collect(),
            subscribed_regex: None,
            target: owned.clone(),
            owned,
            seen_at: Some(member.seen_at()),
            session_timeout_ms: member.session_timeout_ms().into(),
        }
    });
    let pending = group
        .pending_ids()
        .into_iter()
        .map(|member_id| InspectedMember {
            member: group.member_ref(&member_id),
            state: "pending",
            epoch: -1,
            is_classic: true,
            is_leader: false,
            subscribed: Vec::new(),
            subscribed_regex: None,
            owned: Vec::new(),
            target: Vec::new(),
            seen_at: None,
            session_timeout_ms: 0,
        });
    members.chain(pending).collect()
}

fn owners_of(members: &[InspectedMember]) -> Owners {
    let mut owners = Owners::new();
    for member in members {
        for (topic, partitions) in &member.owned {
            let of_it = owners.entry(topic.clone()).or_default();
            let member_id = &member.member.member_id;
            of_it.extend(partitions.iter().map(|index| (*index, member_id.clone())));
        }
    }
    owners
}

/// What is wrong with how often a group rebalances, in a sentence.
fn storm(
    book: &Book,
    now: Millis,
    config: &JournalConfig,
    flapping: &[(MemberRef, u32)],
) -> Option<String> {
    let Some(causes) = book.storm(now, config) else {
        let some = !flapping.is_empty();
        return some.then(|| words::flapping(flapping.len(), config.storm_window_ms));
    };
    let late = book.done.iter().rev().take(causes.len());
    let triggers = late.flat_map(|entry| &entry.triggers);
    let details: Vec<&str> = triggers.filter_map(|t| t.detail.as_deref()).collect();
    Some(words::storm(&causes, &details, config.storm_window_ms))
}

/// The assign-mode clients that commit to one partition at the same time.
fn rivals(now: Millis, touch: &Touch, window_ms: i64) -> Option<Vec<Toucher>> {
    let (rival, at) = &**touch.rival.as_ref()?;
    let other = touch.committed_by.as_ref()?;
    let recent = now.since(*at) <= window_ms;
    recent.then(|| vec![(**other).clone(), (**rival).clone()])
}

fn commits(entry: &Entry, owners: &Owners, members: &[InspectedMember]) -> Vec<Commit> {
    let clients = clients(members);
    let each = entry.offsets.iter();
    each.map(|(topic, partition, slot)| {
        let touch = slot.touch();
        let of_topic = owners.get(topic);
        Commit {
            topic: topic.clone(),
            partition,
            offset: slot.offset,
            leader_epoch: slot.leader_epoch,
            metadata: slot.metadata.clone(),
            committed_at: slot.commit_timestamp,
            committed_by: touch.committed_by.as_ref().map(|by| (**by).clone()),
            fetched_by: touch.fetched_by.as_ref().map(|fetched| {
                let (by, at) = &**fetched;
                (as_member(by, &clients), *at)
            }),
            owner: of_topic.and_then(|of_it| of_it.get(&partition)).cloned(),
        }
    })
    .collect()
}

/// Members by client id and address; `None` where several have the same.
type Clients<'a> = BTreeMap<(&'a str, &'a str), Option<&'a MemberId>>;

fn clients(members: &[InspectedMember]) -> Clients<'_> {
    let mut clients = Clients::new();
    for InspectedMember { member, .. } in members {
        let client = (&*member.client_id, &*member.client_host);
        let known = clients.entry(client).or_insert(Some(&member.member_id));
        if *known != Some(&member.member_id) {
            *known = None;
        }
    }
    clients
}

/// Whoever fetches does mostly not say which member it is: but if just one member is this client, it is that.
fn as_member(by: &Toucher, clients: &Clients<'_>) -> Toucher {
    let mut toucher = by.clone();
    if by.member_id.is_none() {
        let member = clients.get(&(&*by.client_id, &*by.client_host)).copied();
        toucher.member_id = member.flatten().cloned();
    }
    toucher
}
