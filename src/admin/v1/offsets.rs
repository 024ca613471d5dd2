//! Moving offsets: what an operator names in words becomes an aim for each partition here. First and last offsets and
//! times are asked of the data plane; what is done while members run is the core's affair.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;

use super::Api;
use super::actions::{Large, act};
use super::asks::{Backup, Chosen, CloneGroup, DryRun, Offset, Reset, To};
use super::shapes::Operated;
use crate::admin::problem::{Body, Name, Params, Problem};
use crate::broker::Broker;
use crate::group::operator::{Action, Aim, Commit, Move};
use crate::group::types::TopicName;
use crate::server::Observer;

/// Partitions that one action may move, as CreateTopics and commits go.
const MOVES_MAX: usize = 100_000;
/// Notes about partitions that were put right; the rest is counted.
const NOTES_MAX: usize = 100;

/// Moves a group's offsets, whether or not members run
///
/// Members that own the partitions give them up first and go on from the new offsets. Answered when it is done.
#[utoipa::path(post, path = "/v1/groups/{group_id}/reset", tag = "offsets",
    params(("group_id" = String, Path, description = "The group.")), request_body = Reset,
    responses((status = 200, description = "What was moved.", body = Operated)))]
pub(super) async fn reset_offsets(
    State(api): State<Api>,
    turn: Large,
    Name(group_id): Name,
    Body(reset): Body<Reset>,
) -> Result<Json<Operated>, Problem> {
    let observer = api.ready()?;
    let resolver = Resolver { observer };
    let (moves, notes) = resolver.resolve(&group_id, reset.to, reset.topics).await?;
    let action = Action::Reset(moves);
    act(&api, turn, &group_id, action, reset.dry_run, notes).await
}

/// Hands out a group's offsets, to be kept
#[utoipa::path(get, path = "/v1/groups/{group_id}/offsets", tag = "offsets",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "The offsets.", body = Backup)))]
pub(super) async fn backup_offsets(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Backup>, Problem> {
    let inspected = api.observer()?.inspect(group_id.as_str().into()).await?;
    Ok(Json(Backup {
        group: group_id,
        offsets: inspected.commits.iter().map(kept).collect(),
    }))
}

/// Puts offsets back that were kept
///
/// As a reset to these very offsets: the group need not exist, and members may run. Offsets that are out of bounds by
/// now go to the nearest bound, and a note says so.
#[utoipa::path(put, path = "/v1/groups/{group_id}/offsets", tag = "offsets",
    params(("group_id" = String, Path, description = "The group."), DryRun), request_body = Backup,
    responses((status = 200, description = "What was moved.", body = Operated)))]
pub(super) async fn restore_offsets(
    State(api): State<Api>,
    turn: Large,
    Name(group_id): Name,
    Params(asked): Params<DryRun>,
    Body(backup): Body<Backup>,
) -> Result<Json<Operated>, Problem> {
    let observer = api.ready()?;
    let (moves, notes) = Resolver { observer }.exact(backup.offsets, Bounds::PutRight)?;
    let action = Action::Reset(moves);
    act(&api, turn, &group_id, action, asked.dry_run, notes).await
}

/// Gives a new group the offsets of this one
#[utoipa::path(post, path = "/v1/groups/{group_id}/clone", tag = "offsets",
    params(("group_id" = String, Path, description = "The group.")), request_body = CloneGroup,
    responses((status = 200, description = "What the new group got.", body = Operated)))]
pub(super) async fn clone_group(
    State(api): State<Api>,
    turn: Large,
    Name(group_id): Name,
    Body(clone): Body<CloneGroup>,
) -> Result<Json<Operated>, Problem> {
    let observer = api.ready()?;
    if clone.to.is_empty() {
        return Err(Problem::invalid("to: name the new group"));
    }
    let inspected = observer.inspect(group_id.as_str().into()).await?;
    if observer.inspect(clone.to.as_str().into()).await.is_ok() {
        return Err(Problem::new(
            axum::http::StatusCode::CONFLICT,
            format!(
                "there is a group {} already; reset it to the offsets of {group_id} instead",
                clone.to
            ),
        ));
    }
    let offsets = inspected.commits.iter().map(kept).collect();
    let (moves, notes) = Resolver { observer }.exact(offsets, Bounds::PutRight)?;
    let action = Action::Reset(moves);
    act(&api, turn, &clone.to, action, clone.dry_run, notes).await
}

fn kept(commit: &Commit) -> Offset {
    Offset {
        topic: commit.topic.to_string(),
        partition: commit.partition,
        offset: commit.offset,
        leader_epoch: commit.leader_epoch,
        metadata: commit.metadata.to_string(),
    }
}

/// What to do about an offset that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    /// Refuse it: whoever asked named this very offset.
    Refuse,
    /// Take the nearest one and say so: it existed once.
    PutRight,
}

type Resolved = (Vec<Move>, Vec<String>);

/// Turns words into an aim for each partition.
struct Resolver<'a> {
    observer: &'a Observer,
}

impl Resolver<'_> {
    async fn resolve(
        &self,
        group_id: &str,
        to: To,
        topics: Option<Vec<Chosen>>,
    ) -> Result<Resolved, Problem> {
        match to {
            To::Offsets(_) if topics.is_some() => Err(Problem::invalid(
                "topics: not together with to.offsets, which names partitions itself",
            )),
            To::Offsets(offsets) => self.exact(offsets, Bounds::Refuse),
            To::Group(other) => {
                let inspected = self.observer.inspect(other.as_str().into()).await?;
                let chosen = topics.map(|topics| self.chosen(topics)).transpose()?;
                let wanted = |commit: &&Commit| {
                    let place = (commit.topic.clone(), commit.partition);
                    chosen.as_ref().is_none_or(|chosen| chosen.contains(&place))
                };
                let offsets = inspected.commits.iter().filter(wanted).map(kept);
                self.exact(offsets.collect(), Bounds::PutRight)
            }
            to => {
                let places = match topics {
                    Some(topics) => self.chosen(topics)?,
                    None => self.committed(group_id).await?,
                };
                let mut moves = Vec::with_capacity(places.len());
                for (topic, partition) in places {
                    let to = self.aim(&to, &topic, partition).await?;
                    moves.push(Move {
                        topic,
                        partition,
                        to,
                    });
                }
                not_empty(moves, Vec::new())
            }
        }
    }

    fn broker(&self) -> &Broker {
        self.observer.broker()
    }

    /// Every partition of which the group has an offset, as far as it exists.
    async fn committed(&self, group_id: &str) -> Result<BTreeSet<(TopicName, i32)>, Problem> {
        let inspected = self.observer.inspect(group_id.into()).await?;
        let places = inspected.commits.iter();
        let places = places.map(|commit| (commit.topic.clone(), commit.partition));
        let exists = |(topic, partition): &(TopicName, i32)| {
            self.broker().bounds(topic, *partition).is_some()
        };
        Ok(places.filter(exists).collect())
    }

    /// Every partition that is named. Each must exist.
    fn chosen(&self, topics: Vec<Chosen>) -> Result<BTreeSet<(TopicName, i32)>, Problem> {
        let image = self.broker().topics();
        let mut places = BTreeSet::new();
        // A topic may be named as often as the body is long, and have many partitions.
        let mut whole: BTreeSet<TopicName> = BTreeSet::new();
        for chosen in topics {
            let (name, partitions) = match chosen {
                Chosen::Topic(name) => (name, None),
                Chosen::Partitions(chosen) => (chosen.topic, chosen.partitions),
            };
            let Some(topic) = image.get(&name).filter(|topic| !topic.internal) else {
                return Err(Problem::invalid(format!(
                    "topics: there is no topic {name}"
                )));
            };
            let partitions = match partitions {
                Some(partitions) => partitions,
                None if whole.insert(topic.name.clone()) => (0..topic.partitions).collect(),
                None => continue,
            };
            for partition in partitions {
                if !(0..topic.partitions).contains(&partition) {
                    return Err(Problem::invalid(format!(
                        "topics: {name} has partitions 0 to {}, not {partition}",
                        topic.partitions - 1
                    )));
                }
                places.insert((topic.name.clone(), partition));
            }
            if places.len() > MOVES_MAX {
                return Err(too_many(places.len()));
            }
        }
        Ok(places)
    }

    async fn aim(&self, to: &To, topic: &TopicName, partition: i32) -> Result<Aim, Problem> {
        let gone = || {
            Problem::invalid(format!(
                "there is no partition {partition} of {topic} any more"
            ))
        };
        let bounds = self.broker().bounds(topic, partition).ok_or_else(gone)?;
        let offset = match to {
            To::Earliest => bounds.log_start,
            To::Latest => bounds.end,
            To::TimeMs(time_ms) if *time_ms < 0 => {
                return Err(Problem::invalid(
                    "to.time_ms is 0 or more: unix milliseconds",
                ));
            }
            To::TimeMs(time_ms) => {
                let found = self.broker().offset_from(topic, partition, *time_ms).await;
                let unreadable = |why| {
                    Problem::unavailable(format!(
                        "the time in partition {partition} of {topic} cannot be found now: {why}"
                    ))
                };
                found.map_err(unreadable)?.ok_or_else(gone)?
            }
            To::Shift(by) => {
                return Ok(Aim::Shift {
                    by: *by,
                    low: bounds.log_start,
                    high: bounds.end,
                });
            }
            To::Offset(offset) => {
                in_bounds(topic, partition, *offset, bounds.log_start, bounds.end)?;
                *offset
            }
            To::Group(_) | To::Offsets(_) => {
                return Err(Problem::invalid("to names offsets itself"));
            }
        };
        Ok(Aim::Exact {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        })
    }

    /// To these very offsets.
    fn exact(&self, offsets: Vec<Offset>, out_of_bounds: Bounds) -> Result<Resolved, Problem> {
        let mut moves: BTreeMap<(TopicName, i32), Move> = BTreeMap::new();
        let mut notes = Vec::new();
        let mut put_right = 0;
        for offset in offsets {
            let topic: TopicName = offset.topic.into();
            let partition = offset.partition;
            let Some(bounds) = self.broker().bounds(&topic, partition) else {
                return Err(Problem::invalid(format!(
                    "there is no partition {partition} of topic {topic:?}; make the topic first, or leave it out"
                )));
            };
            let (low, high) = (bounds.log_start, bounds.end);
            let mut to = offset.offset;
            if to < 0 || out_of_bounds == Bounds::Refuse {
                in_bounds(&topic, partition, to, low, high)?;
            }
            if !(low..=high).contains(&to) {
                to = to.clamp(low, high.max(low));
                put_right += 1;
                if put_right <= NOTES_MAX {
                    notes.push(format!(
                        "Partition {partition} of {topic} reaches from {low} to {high}, so it goes to {to} instead of {}.",
                        offset.offset
                    ));
                }
            }
            let moved = Move {
                topic: topic.clone(),
                partition,
                to: Aim::Exact {
                    offset: to,
                    leader_epoch: offset.leader_epoch.max(-1),
                    metadata: offset.metadata.into(),
                },
            };
            if moves.insert((topic.clone(), partition), moved).is_some() {
                return Err(Problem::invalid(format!(
                    "partition {partition} of {topic} is named twice"
                )));
            }
        }
        if put_right > NOTES_MAX {
            notes.push(format!("So it is with {} more.", put_right - NOTES_MAX));
        }
        not_empty(moves.into_values().collect(), notes)
    }
}

fn in_bounds(topic: &str, partition: i32, offset: i64, low: i64, high: i64) -> Result<(), Problem> {
    if (low..=high).contains(&offset) {
        return Ok(());
    }
    Err(Problem::invalid(format!(
        "offset {offset} does not exist: partition {partition} of {topic} reaches from {low} to {high}"
    )))
}

fn not_empty(moves: Vec<Move>, notes: Vec<String>) -> Result<Resolved, Problem> {
    match moves.len() {
        0 => Err(Problem::invalid(
            "there is nothing to move: no offset of these partitions is committed; name them in topics",
        )),
        1..=MOVES_MAX => Ok((moves, notes)),
        many => Err(too_many(many)),
    }
}

fn too_many(many: usize) -> Problem {
    Problem::invalid(format!(
        "{many} partitions are too many at once; {MOVES_MAX} go"
    ))
}
