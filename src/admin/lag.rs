//! How far groups are behind, in records and in time. The ends of partitions are read after the offsets they are compared
//! with, so that no group is ahead of what it consumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use hashbrown::HashMap;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::group::Committed;
use crate::group::operator::Commit;
use crate::group::types::{GroupId, TopicName};
use crate::server::Observer;

/// A survey of all groups is used again for so many times as long as it took, so that however many ask, surveys take at
/// most a tenth of one core.
const REST: u32 = 10;
/// Records whose time is looked up for one survey, at most; the data plane opens fewer if they are costly.
const LOOKED_UP_MAX: usize = 1024;

/// A partition and an offset in it.
type Place = (TopicName, i32, i64);

/// How far a group is behind, over all its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupLag {
    /// Records behind.
    pub(crate) records: i64,
    /// How old the oldest record is that has not been consumed, in milliseconds; `None` while it is not known.
    pub(crate) ms: Option<i64>,
    /// Partitions with a committed offset.
    pub(crate) partitions: usize,
}

/// How far one committed offset is behind. Nothing is known where there is no such partition any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommitLag {
    /// The end of the partition.
    pub(crate) end_offset: Option<i64>,
    /// Records behind.
    pub(crate) records: Option<i64>,
    /// How old the record is that comes next, in milliseconds; 0 at the end.
    pub(crate) ms: Option<i64>,
}

impl GroupLag {
    /// Of all the commits of one group; `None` without any.
    pub(crate) fn sum(lags: &[CommitLag]) -> Option<Self> {
        if lags.is_empty() {
            return None;
        }
        let known = lags.iter().filter(|lag| lag.records.is_some());
        let ms = known.clone().map(|lag| lag.ms);
        Some(Self {
            records: known
                .filter_map(|lag| lag.records)
                .fold(0, i64::saturating_add),
            ms: oldest(ms),
            partitions: lags.len(),
        })
    }
}

/// All groups at one moment.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Every group that has committed anything.
    pub(crate) groups: BTreeMap<GroupId, GroupLag>,
    /// Which groups have committed offsets of a topic.
    pub(crate) topics: BTreeMap<TopicName, BTreeSet<GroupId>>,
}

/// Surveys all groups when somebody asks.
#[derive(Debug, Default)]
pub(crate) struct Surveyor {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    newest: Arc<Survey>,
    good_until: Option<Instant>,
    /// Times of records that were looked up for the newest survey. `None`: the record tells none.
    times: HashMap<Place, Option<i64>>,
    /// The last group whose records were looked up: the next survey goes on behind it.
    looked_up: Option<GroupId>,
}

impl Surveyor {
    /// How far all groups are behind, at most a moment ago.
    pub(crate) async fn survey(&self, observer: &Observer) -> Arc<Survey> {
        let mut inside = self.inside.lock().await;
        let began = Instant::now();
        if inside.good_until.is_some_and(|until| began < until) {
            return inside.newest.clone();
        }
        let survey = Arc::new(inside.look(observer).await);
        let ended = Instant::now();
        inside.good_until = Some(ended + (ended - began) * REST);
        inside.newest = survey.clone();
        survey
    }
}

impl Inside {
    async fn look(&mut self, observer: &Observer) -> Survey {
        let broker = observer.broker();
        let mut survey = Survey::default();
        let mut behind: BTreeMap<GroupId, Vec<Place>> = BTreeMap::new();
        let add = |shard: Vec<Committed>| {
            for group in shard {
                let late = measure(broker, &group, &mut survey);
                behind.insert(group.group_id, late);
            }
        };
        observer.each_committed(add).await;
        self.look_up(broker, &behind).await;
        let now_ms = broker.now_ms();
        for (group_id, places) in &behind {
            // A record without a time makes nobody late.
            let age =
                |time: &Option<i64>| time.map_or(0, |time| now_ms.saturating_sub(time).max(0));
            let ages = places.iter().map(|place| self.times.get(place).map(age));
            let ms = oldest(ages);
            if let Some(lag) = survey.groups.get_mut(group_id) {
                lag.ms = ms;
            }
        }
        survey
    }

    /// Looks up times that are not known yet, beginning behind the group where the last survey had to stop.
    async fn look_up(&mut self, broker: &Broker, behind: &BTreeMap<GroupId, Vec<Place>>) {
        let mut known = std::mem::take(&mut self.times);
        let mut wanted: Vec<(&GroupId, &Place)> = Vec::new();
        let from = match self.looked_up.take() {
            Some(last) => (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded),
            None => (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded),
        };
        let first = behind.range::<GroupId, _>(from.clone());
        let rest = behind.iter().take_while(|(group_id, _)| match &from.0 {
            std::ops::Bound::Excluded(last) => *group_id <= last,
            _ => false,
        });
        for (group_id, places) in first.chain(rest) {
            for place in places {
                if let Some(time) = known.remove(place) {
                    self.times.insert(place.clone(), time);
                } else if !self.times.contains_key(place) && wanted.len() < LOOKED_UP_MAX {
                    wanted.push((group_id, place));
                }
            }
        }
        let places: Vec<Place> = wanted.iter().map(|(_, place)| (*place).clone()).collect();
        let times = broker.times_of(places).await;
        let stopped = times.len() < wanted.len() || wanted.len() == LOOKED_UP_MAX;
        let last = times.len().checked_sub(1).and_then(|last| wanted.get(last));
        self.looked_up = last
            .filter(|_| stopped)
            .map(|(group_id, _)| (*group_id).clone());
        for ((_, place), time) in wanted.into_iter().zip(times) {
            self.times.insert(place.clone(), time);
        }
    }
}

/// The largest age; `None` if one is not known.
fn oldest(mut ages: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    ages.try_fold(0, |most: i64, age| Some(most.max(age?)))
}

/// Adds a group to the survey and tells where it is behind. Called after its offsets were read.
fn measure(broker: &Broker, group: &Committed, survey: &mut Survey) -> Vec<Place> {
    let mut lag = GroupLag::default();
    let mut behind = Vec::new();
    for (topic, partitions) in &group.offsets {
        let groups = survey.topics.entry(topic.clone()).or_default();
        groups.insert(group.group_id.clone());
        for (partition, offset) in partitions {
            lag.partitions += 1;
            let Some(bounds) = broker.bounds(topic, *partition) else {
                continue;
            };
            if bounds.end > *offset {
                lag.records = lag
                    .records
                    .saturating_add(bounds.end.saturating_sub(*offset));
                behind.push((topic.clone(), *partition, *offset));
            }
        }
    }
    survey.groups.insert(group.group_id.clone(), lag);
    behind
}

/// How far each commit of a group is behind, in their order. The commits must have been read before.
pub(crate) async fn of_commits(broker: &Broker, commits: &[Commit]) -> Vec<CommitLag> {
    let mut lags = Vec::with_capacity(commits.len());
    let mut behind = Vec::new();
    for commit in commits {
        let bounds = broker.bounds(&commit.topic, commit.partition);
        let records = bounds.map(|bounds| bounds.end.saturating_sub(commit.offset).max(0));
        if records.is_some_and(|records| records > 0) {
            let place = (commit.topic.clone(), commit.partition, commit.offset);
            behind.push((lags.len(), place));
        }
        lags.push(CommitLag {
            end_offset: bounds.map(|bounds| bounds.end),
            records,
            ms: records.filter(|records| *records == 0),
        });
    }
    behind.truncate(LOOKED_UP_MAX);
    let places = behind.iter().map(|(_, place)| place.clone()).collect();
    let times = broker.times_of(places).await;
    let now_ms = broker.now_ms();
    for ((at, _), time) in behind.iter().zip(times) {
        lags[*at].ms = time.map(|time| now_ms.saturating_sub(time).max(0));
    }
    lags
}

/// The lag of at most so many groups in Prometheus' text format. Those that are the least behind are left out, and how
/// many they are is told: labels cost whoever gathers them.
pub(crate) fn metrics(survey: &Survey, groups_max: usize) -> String {
    let mut groups: Vec<(&GroupId, &GroupLag)> = survey.groups.iter().collect();
    if groups.len() > groups_max {
        groups.sort_by(|a, b| b.1.records.cmp(&a.1.records).then(a.0.cmp(b.0)));
        groups.truncate(groups_max);
        groups.sort_by_key(|(group_id, _)| *group_id);
    }
    let mut text = String::new();
    head(
        &mut text,
        "convoke_group_lag_records",
        "Records that a group is behind, over all its partitions.",
    );
    for (group_id, lag) in &groups {
        line(
            &mut text,
            "convoke_group_lag_records",
            group_id,
            &lag.records,
        );
    }
    head(
        &mut text,
        "convoke_group_lag_seconds",
        "Age of the oldest record that a group has not consumed, by the record's timestamp. Absent while it is not known.",
    );
    for (group_id, lag) in &groups {
        if let Some(ms) = lag.ms {
            line(
                &mut text,
                "convoke_group_lag_seconds",
                group_id,
                &(ms as f64 / 1000.0),
            );
        }
    }
    head(
        &mut text,
        "convoke_group_lag_left_out",
        "Groups with committed offsets whose lag is not among these metrics, because convoke.metrics.lag.groups.max leaves them out: those that are the least behind.",
    );
    let left_out = survey.groups.len().saturating_sub(groups.len());
    let _ = writeln!(text, "convoke_group_lag_left_out {left_out}");
    text
}

fn head(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn line(text: &mut String, name: &str, group_id: &str, value: &dyn std::fmt::Display) {
    let _ = write!(text, "{name}{{group=\"");
    for c in group_id.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    let _ = writeln!(text, "\"}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(groups: &[(&str, i64, Option<i64>)]) -> Survey {
        let lag = |(group_id, records, ms): &(&str, i64, Option<i64>)| {
            let lag = GroupLag {
                records: *records,
                ms: *ms,
                partitions: 1,
            };
            (GroupId::from(*group_id), lag)
        };
        Survey {
            groups: groups.iter().map(lag).collect(),
            topics: BTreeMap::new(),
        }
    }

    #[test]
    fn the_groups_that_are_the_least_behind_are_left_out_of_the_metrics() {
        let survey = survey(&[("a", 1, Some(1500)), ("b", 9, None), ("c", 5, Some(0))]);
        let text = metrics(&survey, 2);
        assert!(!text.contains("group=\"a\""), "{text}");
        assert!(
            text.contains("convoke_group_lag_records{group=\"b\"} 9\n"),
            "{text}"
        );
        assert!(
            text.contains("convoke_group_lag_seconds{group=\"c\"} 0\n"),
            "{text}"
        );
        assert!(
            !text.contains("convoke_group_lag_seconds{group=\"b\"}"),
            "{text}"
        );
        assert!(text.ends_with("convoke_group_lag_left_out 1\n"), "{text}");
    }

    #[test]
    fn a_group_id_cannot_break_out_of_its_label() {
        let text = metrics(&survey(&[("a\"} 1\nb\\", 1, None)]), 10);
        assert!(text.contains(r#"{group="a\"} 1\nb\\"} 1"#), "{text}");
    }

    #[test]
    fn one_unknown_time_leaves_the_whole_group_unknown() {
        let lag = |records, ms| CommitLag {
            end_offset: Some(9),
            records: Some(records),
            ms,
        };
        let gone = CommitLag::default();
        let sum = |lags: &[CommitLag]| GroupLag::sum(lags).map(|lag| (lag.records, lag.ms));
        assert_eq!(sum(&[]), None);
        assert_eq!(sum(&[gone]), Some((0, Some(0))));
        assert_eq!(sum(&[lag(2, Some(7)), lag(0, Some(0))]), Some((2, Some(7))));
        assert_eq!(sum(&[lag(2, Some(7)), lag(1, None)]), Some((3, None)));
    }
}
