//! Which partitions would move if members, topics or the assignor were others. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::group::Coordinator;
use crate::group::assign::{AssignMember, AssignTopic, Input, check};
use crate::group::operator::{MemberRef, NotDone, PartitionMove, Previewed, Supposition, Who};
use crate::group::reconcile::{tidy_ids, with_epoch};
use crate::group::record::AssignedPartitions;
use crate::group::request::IdPartitions;
use crate::group::subscription::Subscription;
use crate::group::types::{GroupId, MemberId, TopicId, TopicName};

/// The most members that may be supposed.
const SUPPOSED_MAX: u32 = 10_000;
/// The most partitions of a topic that may be supposed.
const PARTITIONS_MAX: i32 = 100_000;

/// A member as it is, or as it is supposed to be.
struct Supposed {
    member: MemberRef,
    rack_id: Option<Arc<str>>,
    topics: Vec<TopicName>,
    owned: IdPartitions,
    assigned: Vec<AssignedPartitions>,
}

impl Coordinator {
    /// What an assignor would do if something changed. Paused groups and drained members count as if they were not.
    pub(in crate::group) fn preview(
        &self,
        group_id: &GroupId,
        change: &Supposition,
    ) -> Result<Previewed, NotDone> {
        if !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        self.check_assignable(group_id)?;
        let mut members = self.members_now(group_id);
        let Some(first) = members.first() else {
            return Err(NotDone::conflict(format!(
                "Group {group_id} has no members: nobody knows what new ones would subscribe to."
            )));
        };
        let (wanted, rack_id) = (first.topics.clone(), first.rack_id.clone());
        let assignor = self.assignor_for(group_id, change.assignor.as_deref())?;
        for who in &change.members_removed {
            self.who(group_id, who)?;
            members.retain(|m| !is_meant(who, &m.member));
        }
        if change.members_added > SUPPOSED_MAX {
            return Err(NotDone::invalid(format!(
                "At most {SUPPOSED_MAX} members can be supposed."
            )));
        }
        for number in 1..=change.members_added {
            members.push(Supposed {
                member: MemberRef {
                    member_id: format!("new-{number}").into(),
                    ..MemberRef::default()
                },
                rack_id: rack_id.clone(),
                topics: wanted.clone(),
                owned: Vec::new(),
                assigned: Vec::new(),
            });
        }
        members.sort_unstable_by(|a, b| a.member.member_id.cmp(&b.member.member_id));
        let topics = self.topics_supposed(change, &members)?;
        let before = self.owners_now(group_id);
        let targets = run(&*self.config.assignors[assignor], &members, &topics)?;
        let names: BTreeMap<TopicId, &TopicName> = topics
            .iter()
            .map(|(name, topic)| (topic.id, name))
            .collect();

        let mut previewed = Previewed {
            assignor: self.config.assignors[assignor].name().into(),
            ..Previewed::default()
        };
        let mut after: BTreeMap<(TopicName, i32), MemberId> = BTreeMap::new();
        for (supposed, target) in members.into_iter().zip(targets) {
            let mut has = Vec::with_capacity(target.len());
            for (topic, partitions) in target {
                let Some(name) = names.get(&topic) else {
                    continue;
                };
                for partition in &partitions {
                    let owner = supposed.member.member_id.clone();
                    after.insert(((*name).clone(), *partition), owner);
                }
                has.push(((*name).clone(), partitions));
            }
            has.sort_unstable();
            previewed.members.push((supposed.member, has));
        }
        let all: BTreeSet<_> = before.keys().chain(after.keys()).collect();
        for partition in all {
            let (from, to) = (before.get(partition), after.get(partition));
            if from == to {
                previewed.stayed_count += 1;
            } else {
                previewed.moves.push(PartitionMove {
                    topic: partition.0.clone(),
                    partition: partition.1,
                    from: from.cloned(),
                    to: to.cloned(),
                });
            }
        }
        Ok(previewed)
    }

    fn owners_now(&self, group_id: &str) -> BTreeMap<(TopicName, i32), MemberId> {
        let mut owners = BTreeMap::new();
        for (member, owned) in self.owned(group_id) {
            for (topic, partitions) in owned {
                for partition in partitions {
                    owners.insert((topic.clone(), partition), member.member_id.clone());
                }
            }
        }
        owners
    }

    fn members_now(&self, group_id: &str) -> Vec<Supposed> {
        if let Some(group) = self.state.consumer(group_id) {
            let members = group.members().map(|(member_id, member)| {
                let told = member.told();
                let pattern = told.subscribed_topic_regex.as_deref();
                let resolved = pattern.and_then(|pattern| group.resolved(pattern));
                let names = told.subscribed_topic_names.iter();
                Supposed {
                    member: member.member_ref(member_id),
                    rack_id: told.rack_id.clone(),
                    topics: names
                        .chain(resolved.iter().flat_map(|regex| &regex.topics))
                        .cloned()
                        .collect(),
                    owned: member.target().clone(),
                    assigned: member.current().assigned.clone(),
                }
            });
            return members.collect();
        }
        let Some(group) = self.classic.get(group_id) else {
            return Vec::new();
        };
        let protocol = group.protocol().map_or("", |name| &**name);
        let owned: BTreeMap<MemberId, _> = self
            .owned(group_id)
            .into_iter()
            .map(|(member, owned)| (member.member_id, owned))
            .collect();
        let members = group.members().filter_map(|(member_id, member)| {
            // Before the first generation there is no protocol yet.
            let first = member.protocols().first()?;
            let metadata = match group.protocol() {
                Some(_) => member.metadata_for(protocol),
                None => first.metadata.clone(),
            };
            let told = Subscription::parse(&metadata)?;
            let named = owned.get(member_id)?;
            let mut ids = crate::group::consumer::ids_of(named, &self.topics);
            tidy_ids(&mut ids);
            Some(Supposed {
                member: group.member_ref(member_id),
                rack_id: told.rack_id,
                topics: told.topics,
                assigned: with_epoch(&ids, 0),
                owned: ids,
            })
        });
        members.collect()
    }

    /// The place of the assignor among the server's.
    fn assignor_for(&self, group_id: &str, asked: Option<&str>) -> Result<usize, NotDone> {
        let assignors = &self.config.assignors;
        let place = |name: &str| {
            assignors
                .iter()
                .position(|assignor| assignor.name() == name)
        };
        let known = || {
            let names: Vec<_> = assignors.iter().map(|assignor| assignor.name()).collect();
            names.join(", ")
        };
        if let Some(name) = asked {
            return place(name).ok_or_else(|| {
                NotDone::invalid(format!(
                    "There is no assignor {name}; there are {}.",
                    known()
                ))
            });
        }
        if let Some(group) = self.state.consumer(group_id) {
            return Ok(self.assignor_place(Some(group)));
        }
        let protocol = self
            .classic
            .get(group_id)
            .and_then(|group| group.protocol());
        let name = protocol.map_or("", |name| &**name);
        // Kafka's range assigns as the server's does; what others do, only the members' leader knows.
        place(name).ok_or_else(|| {
            NotDone::conflict(format!(
                "The leader of group {group_id} assigns by {name:?}, which the server does not know. Name one of {} to see what that would do.",
                known()
            ))
        })
    }

    /// The topics in use, by name, as they are supposed to be.
    fn topics_supposed(
        &self,
        change: &Supposition,
        members: &[Supposed],
    ) -> Result<BTreeMap<TopicName, AssignTopic>, NotDone> {
        let wanted: BTreeSet<&TopicName> = members.iter().flat_map(|m| &m.topics).collect();
        let mut topics = BTreeMap::new();
        for name in wanted {
            if let Some(topic) = self.topics.get(name) {
                let topic = AssignTopic {
                    id: topic.id,
                    partitions: topic.partitions.max(0).unsigned_abs(),
                };
                topics.insert(name.clone(), topic);
            }
        }
        for (number, (name, partitions)) in change.topics.iter().enumerate() {
            if !(0..=PARTITIONS_MAX).contains(partitions) {
                return Err(NotDone::invalid(format!(
                    "Topic {name} cannot be supposed to have {partitions} partitions."
                )));
            }
            let there = self.topics.get(name);
            // An id for a topic that is not there: none that the data plane makes begins so.
            let mut id = [0xff; 16];
            id[8..].copy_from_slice(&(number as u64).to_be_bytes());
            topics.insert(
                name.clone(),
                AssignTopic {
                    id: there.map_or(TopicId(id), |topic| topic.id),
                    partitions: partitions.unsigned_abs(),
                },
            );
        }
        Ok(topics)
    }
}

fn is_meant(who: &Who, member: &MemberRef) -> bool {
    match who {
        Who::Member(id) => member.member_id == *id,
        Who::Instance(id) => member.instance_id.as_ref() == Some(id),
        Who::Client(id) => member.client_id == *id,
    }
}

fn run(
    assignor: &dyn crate::group::assign::Assignor,
    members: &[Supposed],
    topics: &BTreeMap<TopicName, AssignTopic>,
) -> Result<Vec<IdPartitions>, NotDone> {
    let wanted: BTreeSet<&TopicName> = members.iter().flat_map(|m| &m.topics).collect();
    let mut rows: Vec<AssignTopic> = topics
        .iter()
        .filter(|(name, _)| wanted.contains(*name))
        .map(|(_, topic)| *topic)
        .collect();
    rows.sort_unstable_by_key(|topic| topic.id);
    let place = |name: &TopicName| {
        let id = topics.get(name)?.id;
        let place = rows.binary_search_by_key(&id, |topic| topic.id).ok()?;
        u32::try_from(place).ok()
    };
    let lists: Vec<Vec<u32>> = members
        .iter()
        .map(|member| {
            let mut list: Vec<u32> = member.topics.iter().filter_map(place).collect();
            list.sort_unstable();
            list.dedup();
            list
        })
        .collect();
    let assign_members: Vec<AssignMember<'_>> = members
        .iter()
        .zip(&lists)
        .map(|(supposed, list)| AssignMember {
            member_id: &supposed.member.member_id,
            instance_id: supposed.member.instance_id.as_deref(),
            rack_id: supposed.rack_id.as_deref(),
            subscribed: list,
            target: &supposed.owned,
            assigned: &supposed.assigned,
        })
        .collect();
    let input = Input {
        topics: &rows,
        members: &assign_members,
    };
    let targets = assignor
        .assign(&input)
        .and_then(|targets| check(&input, &targets).map(|()| targets));
    targets.map_err(|why| NotDone::conflict(format!("The assignor failed: {why}.")))
}
