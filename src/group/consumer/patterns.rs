//! Topic patterns of consumer groups: compiled and matched once for all groups of a coordinator, kept up to date as
//! topics come and go (semantics 3.6).
//!
//! Kafka resolves on another thread, for each group, all topics anew, at most every 10 s. Here a change touches only
//! the topics that changed, so a group hears of it half a second later. What a client sees is the same: the heartbeat
//! that brings a pattern is answered before it is resolved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::group::operator::Trigger;
use crate::group::pattern::Pattern;
use crate::group::record::{Record, RegexValue};
use crate::group::stats::Cause;
use crate::group::types::{GroupId, Millis, TopicName, Topics, TopicsChange};
use crate::group::{Actions, Coordinator};

/// The most topics that are named in a sentence.
const NAMES_MAX: usize = 8;

/// All patterns in use.
#[derive(Debug, Default)]
pub(in crate::group) struct Patterns(BTreeMap<Arc<str>, Matches>);

#[derive(Debug)]
struct Matches {
    pattern: Pattern,
    topics: BTreeSet<TopicName>,
    /// The groups that use it; none for one that was only checked so far.
    groups: BTreeSet<GroupId>,
}

impl Patterns {
    /// Compiles a pattern unless that has been done.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn check(&mut self, pattern: &str, topics: &Topics) -> Result<(), String> {
        if self.0.contains_key(pattern) {
            return Ok(());
        }
        let compiled = Pattern::new(pattern)?;
        self.0.retain(|_, matches| !matches.groups.is_empty());
        let matches = Matches {
            topics: compiled.resolve(topics).into_iter().collect(),
            pattern: compiled,
            groups: BTreeSet::new(),
        };
        self.0.insert(Arc::from(pattern), matches);
        Ok(())
    }

    /// The pattern in the spelling that is in memory already.
    pub(super) fn shared(&self, pattern: &str) -> Arc<str> {
        let known = self.0.get_key_value(pattern);
        known.map_or_else(|| Arc::from(pattern), |(pattern, _)| pattern.clone())
    }

    /// A group uses the pattern from now on. One that does not compile, which only an old record can bring, matches
    /// nothing.
    pub(super) fn attach(&mut self, pattern: &str, group_id: &GroupId, topics: &Topics) {
        if self.check(pattern, topics).is_ok()
            && let Some(matches) = self.0.get_mut(pattern)
        {
            matches.groups.insert(group_id.clone());
        }
    }

    fn detach(&mut self, pattern: &str, group_id: &GroupId) {
        if let Some(matches) = self.0.get_mut(pattern) {
            matches.groups.remove(group_id);
            if matches.groups.is_empty() {
                self.0.remove(pattern);
            }
        }
    }

    /// The group uses none any more.
    pub(super) fn detach_group(&mut self, group_id: &GroupId) {
        self.0.retain(|_, matches| {
            matches.groups.remove(group_id);
            !matches.groups.is_empty()
        });
    }

    fn topics(&self, pattern: &str) -> Vec<TopicName> {
        self.0
            .get(pattern)
            .map_or_else(Vec::new, |matches| matches.topics.iter().cloned().collect())
    }

    /// Whether a pattern in use matches a topic that exists, be it resolved or not.
    pub(in crate::group) fn matches(&self, pattern: &str, topic: &str) -> bool {
        self.0
            .get(pattern)
            .is_some_and(|matches| matches.topics.contains(topic))
    }

    /// Takes a change of topics in; returns the groups whose patterns match others now, in order.
    pub(super) fn topics_changed(&mut self, change: &TopicsChange) -> BTreeSet<GroupId> {
        let mut concerned = BTreeSet::new();
        for matches in self.0.values_mut() {
            let mut changed = false;
            for (name, _) in &change.deleted {
                changed |= matches.topics.remove(name);
            }
            for name in change
                .created
                .iter()
                .filter(|name| matches.pattern.matches(name))
            {
                changed |= matches.topics.insert(name.clone());
            }
            if changed {
                concerned.extend(matches.groups.iter().cloned());
            }
        }
        concerned
    }
}

impl Coordinator {
    /// Forgets what patterns were resolved to that no member uses any more.
    pub(super) fn drop_unused_patterns(&mut self, group_id: &GroupId, actions: &mut Actions) {
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let unused = |pattern: &&Arc<str>| !group.uses_pattern(pattern);
        let resolved: Vec<_> = group
            .regexes()
            .map(|(pattern, _)| pattern)
            .filter(unused)
            .cloned()
            .collect();
        for pattern in resolved {
            self.emit(
                Record::ConsumerGroupRegularExpression {
                    group_id: group_id.clone(),
                    regex: pattern,
                    value: None,
                },
                actions,
            );
        }
        self.detach_unused(group_id);
    }

    fn detach_unused(&mut self, group_id: &GroupId) {
        let group = self.state.consumer(group_id);
        let unused: Vec<_> = self
            .patterns
            .0
            .iter()
            .filter(|(pattern, matches)| {
                matches.groups.contains(group_id) && !group.is_some_and(|g| g.uses_pattern(pattern))
            })
            .map(|(pattern, _)| pattern.clone())
            .collect();
        for pattern in unused {
            self.patterns.detach(&pattern, group_id);
        }
    }

    /// Whether a member that came over to this pattern still is to have topics that only its former one matched: nobody
    /// would own them until the next rise of the epoch.
    fn strands(&self, group_id: &GroupId, pattern: &Arc<str>) -> bool {
        let Some(group) = self.state.consumer(group_id) else {
            return false;
        };
        group.members().any(|(_, member)| {
            let told = member.told();
            let unwanted = |topic| {
                let name = self.topics.name_of(topic);
                name.is_some_and(|name| !group.member_subscribes(told, name))
            };
            told.subscribed_topic_regex.as_ref() == Some(pattern)
                && member.target().iter().any(|(topic, _)| unwanted(*topic))
        })
    }

    /// Records what the group's patterns match now; if that has changed, the group epoch rises.
    pub(in crate::group) fn resolve_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let mut changed = false;
        let mut values = Vec::new();
        let mut other: Option<Trigger> = None;
        for pattern in group.patterns() {
            let topics = self.patterns.topics(pattern);
            let before = group.resolved(pattern);
            if before.is_some_and(|before| before.topics == topics) {
                continue;
            }
            other = other.or_else(|| self.pattern_news(before?, &topics));
            // For topics that are gone the epoch rises by itself: they were subscribed to.
            let here = |name: &&TopicName| self.topics.get(name).is_some();
            let were = before.iter().flat_map(|before| &before.topics);
            changed |= !were.filter(here).eq(&topics) || self.strands(group_id, pattern);
            let value = RegexValue {
                topics,
                version: self.topics_version,
                timestamp: now,
            };
            values.push((pattern.clone(), value));
        }
        for (regex, value) in values {
            self.emit(
                Record::ConsumerGroupRegularExpression {
                    group_id: group_id.clone(),
                    regex,
                    value: Some(value),
                },
                actions,
            );
        }
        if changed {
            let mut why = self.topics_owed(group_id);
            if let (Cause::TopicsChanged, Some(news)) = (why.cause(), other) {
                why = news.into();
            }
            self.raise_epoch(now, group_id, why, actions);
            self.assign_if_due(now, group_id, actions);
        } else if let Some(live) = self.consumer.get_mut(&**group_id) {
            // Whoever came with a pattern that matches nothing is not to blame for what happens later.
            live.owed.retain(|trigger| trigger.member.is_none());
        }
    }

    /// Which topics a pattern matches that it did not match before, or else the other way round, and since when.
    fn pattern_news(&self, before: &RegexValue, topics: &[TopicName]) -> Option<Trigger> {
        let news = |cause: Cause, all: &[TopicName], without: &[TopicName]| {
            let new = all.iter().filter(|name| !without.contains(name));
            let new: Vec<&TopicName> = new.take(NAMES_MAX).collect();
            let since = new
                .iter()
                .filter_map(|name| self.journal.topic_changed_at(cause, name));
            let at = since.min().unwrap_or_default();
            let names: Vec<&str> = new.iter().map(|name| &***name).collect();
            let detail = Some(names.join(", ").into());
            let trigger = Trigger::new(cause).detail(detail);
            (!new.is_empty()).then_some(Trigger { at, ..trigger })
        };
        let created = news(Cause::TopicCreated, topics, &before.topics);
        created.or_else(|| news(Cause::TopicDeleted, &before.topics, topics))
    }
}
