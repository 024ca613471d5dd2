//! The rules of topics, told a second time: what each change must be answered with, what is announced of it, and what a
//! start finds.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use crate::broker::{OFFSETS_TOPIC, TopicSummary, TopicsChange, TopicsImage};
use crate::group::types::{TopicId, TopicName, TopicRef};
use crate::sim::frames::{TopicAnswer, TopicAsk, Wanted};

/// Kafka's codes.
const NONE: i16 = 0;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const INVALID_TOPIC: i16 = 17;
const TOPIC_ALREADY_EXISTS: i16 = 36;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICATION_FACTOR: i16 = 38;
const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const STORAGE_ERROR: i16 = 56;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// How many partitions a topic gets that says nothing.
const PARTITIONS: i32 = 1;
/// The one broker.
const NODE: i32 = 1;

/// A topic's id and how many partitions it has.
type Known = (TopicId, i32);

/// All topics as those know them who were told.
#[derive(Debug, Default)]
pub(in crate::sim) struct TopicRules {
    known: BTreeMap<TopicName, Known>,
    /// Names of which nobody can tell what a crash leaves: something was going on, or was refused for the disk's sake.
    in_doubt: BTreeSet<TopicName>,
}

/// What a change comes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delta {
    created: Vec<(TopicName, i32)>,
    grown: Vec<(TopicName, i32)>,
    deleted: Vec<TopicName>,
}

impl TopicRules {
    /// A process starts and finds these.
    ///
    /// # Errors
    /// A sentence, if that is not what clients were told.
    pub(in crate::sim) fn found(&mut self, image: &TopicsImage) -> Verdict {
        let found: BTreeMap<TopicName, Known> = image
            .iter()
            .map(|topic| (topic.name.clone(), known(topic)))
            .collect();
        let doubted = std::mem::take(&mut self.in_doubt);
        let names: BTreeSet<&TopicName> = found.keys().chain(self.known.keys()).collect();
        let wrong = names
            .into_iter()
            .find(|name| found.get(*name) != self.known.get(*name) && !doubted.contains(*name));
        if let Some(name) = wrong.filter(|_| !self.known.is_empty()) {
            return Err(format!(
                "topic {name} was {:?} and is {:?} after a start",
                self.known.get(name),
                found.get(name)
            ));
        }
        self.known = found;
        Ok(())
    }

    /// The process dies while this is going on.
    pub(in crate::sim) fn doubts(&mut self, ask: &TopicAsk) {
        let names: Vec<TopicName> = match ask {
            TopicAsk::Create(topics, _) => topics.iter().map(|t| t.name.clone()).collect(),
            TopicAsk::Grow(topics, _) => topics.iter().map(|(name, _)| name.clone()).collect(),
            TopicAsk::Delete(topics) => topics.iter().filter_map(|t| self.name_of(t)).collect(),
        };
        self.in_doubt.extend(names);
    }

    /// A change was answered, after this had been announced. `may_fail`: the disk is such that it may refuse.
    ///
    /// # Errors
    /// A sentence, if it must be answered otherwise.
    pub(in crate::sim) fn answered(
        &mut self,
        ask: &TopicAsk,
        answers: &[TopicAnswer],
        announced: &[TopicsChange],
        may_fail: bool,
    ) -> Verdict {
        let mut wanted = self.predict(ask);
        let (mut delta, told) = (
            Delta::default(),
            format!("{ask:?} is answered with {answers:?}"),
        );
        for answer in answers {
            let Some(place) = wanted
                .iter()
                .position(|(topic, _)| is_about(answer, topic, self))
            else {
                return Err(format!("{told}: nobody asked for one of these"));
            };
            let (topic, code) = wanted.swap_remove(place);
            if code == NONE && answer.code == STORAGE_ERROR && may_fail {
                self.in_doubt.extend(self.name_of(&topic));
                continue;
            }
            if answer.code != code {
                return Err(format!("{told}, but of {topic:?} that must be {code}"));
            }
            if code == NONE {
                self.apply(ask, &topic, &mut delta);
            }
        }
        if let Some((topic, _)) = wanted.first() {
            return Err(format!("{told}: nothing is said of {topic:?}"));
        }
        self.announced(&delta, announced)
            .map_err(|text| format!("{told}: {text}"))
    }

    /// What each topic that is asked about must be answered with. Asked about twice, a topic is refused, once.
    fn predict(&self, ask: &TopicAsk) -> Vec<(TopicRef, i16)> {
        let topics: Vec<(TopicRef, i16)> = match ask {
            TopicAsk::Create(topics, _) => topics
                .iter()
                .map(|topic| (TopicRef::Name(topic.name.clone()), self.creates(topic)))
                .collect(),
            TopicAsk::Grow(topics, _) => topics
                .iter()
                .map(|(name, count)| (TopicRef::Name(name.clone()), self.grows(name, *count)))
                .collect(),
            TopicAsk::Delete(topics) => topics
                .iter()
                .map(|topic| (topic.clone(), self.deletes(topic)))
                .collect(),
        };
        let mut predicted: Vec<(TopicRef, i16)> = Vec::new();
        for (topic, code) in topics {
            let name = self.name_of(&topic);
            let same = |(other, _): &&mut (TopicRef, i16)| {
                *other == topic || name.is_some() && self.name_of(other) == name
            };
            match predicted.iter_mut().find(same) {
                Some((_, code)) => *code = INVALID_REQUEST,
                None => predicted.push((topic, code)),
            }
        }
        predicted
    }

    fn creates(&self, topic: &Wanted) -> i16 {
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if topic.name.is_empty() || !topic.name.chars().all(legal) {
            return INVALID_TOPIC;
        }
        if self.known.contains_key(&topic.name) {
            return TOPIC_ALREADY_EXISTS;
        }
        let known =
            |(name, value): &(_, Option<_>)| *name == "retention.ms".into() && value.is_some();
        if !topic.configs.iter().all(known) {
            return INVALID_CONFIG;
        }
        if topic.placed.is_empty() {
            match (topic.partitions, topic.replicas) {
                (-1 | 1.., -1 | 1) => NONE,
                (-1 | 1.., _) => INVALID_REPLICATION_FACTOR,
                _ => INVALID_PARTITIONS,
            }
        } else if topic.placed.iter().all(|broker| *broker == NODE) {
            NONE
        } else {
            INVALID_REPLICA_ASSIGNMENT
        }
    }

    fn grows(&self, name: &TopicName, count: i32) -> i16 {
        match self.known.get(name) {
            None => UNKNOWN_TOPIC_OR_PARTITION,
            Some((_, present)) if &**name == OFFSETS_TOPIC || count <= *present => {
                INVALID_PARTITIONS
            }
            Some(_) => NONE,
        }
    }

    fn deletes(&self, topic: &TopicRef) -> i16 {
        match self
            .name_of(topic)
            .filter(|name| self.known.contains_key(name))
        {
            Some(name) if &*name == OFFSETS_TOPIC => INVALID_TOPIC,
            Some(_) => NONE,
            None if matches!(topic, TopicRef::Id(_)) => UNKNOWN_TOPIC_ID,
            None => UNKNOWN_TOPIC_OR_PARTITION,
        }
    }

    fn name_of(&self, topic: &TopicRef) -> Option<TopicName> {
        match topic {
            TopicRef::Name(name) => Some(name.clone()),
            TopicRef::Id(id) => {
                let mut known = self.known.iter();
                known.find_map(|(name, known)| (known.0 == *id).then(|| name.clone()))
            }
        }
    }

    /// What must be announced for a change that went well.
    fn apply(&self, ask: &TopicAsk, topic: &TopicRef, delta: &mut Delta) {
        let Some(name) = self.name_of(topic) else {
            return;
        };
        match ask {
            TopicAsk::Create(topics, false) => {
                let wanted = topics.iter().find(|topic| topic.name == name);
                let count = wanted.map_or(0, |topic| match topic.placed.len() {
                    0 if topic.partitions < 0 => PARTITIONS,
                    0 => topic.partitions,
                    placed => placed as i32,
                });
                delta.created.push((name, count));
            }
            TopicAsk::Grow(topics, false) => {
                let wanted = topics.iter().find(|(topic, _)| *topic == name);
                delta.grown.extend(wanted.cloned());
            }
            TopicAsk::Create(..) | TopicAsk::Grow(..) => {}
            TopicAsk::Delete(_) => delta.deleted.push(name),
        }
    }

    /// What was announced must be what was told, and is what there is now.
    fn announced(&mut self, delta: &Delta, announced: &[TopicsChange]) -> Verdict {
        let mut told = Delta::default();
        for change in announced {
            let counted = |topic: &TopicSummary| (topic.name.clone(), topic.partitions);
            told.created.extend(change.created.iter().map(counted));
            told.grown.extend(change.grown.iter().map(counted));
            for gone in &change.deleted {
                if self.known.remove(&gone.name) != Some(known(gone)) {
                    return Err(format!("{gone:?} is told to be gone"));
                }
                told.deleted.push(gone.name.clone());
            }
            for topic in change.created.iter().chain(&change.grown) {
                let before = self.known.insert(topic.name.clone(), known(topic));
                let kept = before.is_none_or(|(id, _)| id == known(topic).0);
                if !kept || before.is_some() == change.created.contains(topic) {
                    return Err(format!("{topic:?} is told to be new, or to have grown"));
                }
            }
            let image = change.image.iter();
            let image = image.map(|topic| (topic.name.clone(), known(topic)));
            if !image.eq(self
                .known
                .iter()
                .map(|(name, known)| (name.clone(), *known)))
            {
                return Err(format!("the topics are told to be {:?}", change.image));
            }
        }
        if told == *delta {
            Ok(())
        } else {
            Err(format!("that is {delta:?}, but {told:?} is announced"))
        }
    }
}

fn known(topic: &TopicSummary) -> Known {
    (TopicId(topic.id.into_bytes()), topic.partitions)
}

/// Whether an answer is about a topic that was asked about.
fn is_about(answer: &TopicAnswer, topic: &TopicRef, rules: &TopicRules) -> bool {
    match topic {
        TopicRef::Name(name) => answer.name.as_ref() == Some(name),
        // A topic that is known has its name told.
        TopicRef::Id(id) => {
            answer.id == *id && (answer.name.is_none() || answer.name == rules.name_of(topic))
        }
    }
}
