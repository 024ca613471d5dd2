//! One action that takes its time: what it waits for, how it ends.

use std::collections::{BTreeMap, BTreeSet};

use super::orders::Partitions;
use crate::group::classic::{BY_ORDER, Phase};
use crate::group::operator::{
    MemberChange, MemberRef, Move, NotDone, NotDoneKind, OffsetChange, Operated,
};
use crate::group::record::Record;
use crate::group::request::{Reply, RequestId};
use crate::group::subscription::{Assignment, Subscription};
use crate::group::timers::Timer;
use crate::group::types::{GroupId, MemberId, Millis};
use crate::group::{Actions, Coordinator};

/// What members may take longer than their own timeouts say.
const GRACE_MS: i64 = 10_000;
/// Whatever timeouts members choose: no operation takes longer.
const LONGEST_MS: i64 = 30 * 60_000;
/// Assignors of Kafka's own, whose assignments say by partitions alone what a member is to have. librdkafka's leader
/// repeats in them what each member told of itself, and no member reads that.
const PLAIN_ASSIGNORS: [&str; 4] = ["range", "roundrobin", "sticky", "cooperative-sticky"];
/// As many names of members as one sentence holds.
const NAMED_MAX: usize = 10;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Task {
    /// Move offsets when nobody owns the partitions.
    Reset(Vec<Move>),
    /// These members give up all they own.
    Drain(BTreeSet<MemberId>),
    /// Everybody does.
    Pause,
}

/// What a group is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    Classic,
    Consumer,
}

/// An action under way.
#[derive(Debug)]
pub(super) struct Operation {
    id: RequestId,
    began: Millis,
    deadline: Millis,
    task: Task,
    /// What the group was when its members were last told.
    told_as: Kind,
    members: Vec<MemberChange>,
    owners: BTreeMap<(std::sync::Arc<str>, i32), MemberId>,
    notes: Vec<String>,
}

impl Operation {
    /// A member is gone before the operation has ended.
    pub(super) fn lost(&mut self, member: MemberRef) {
        if self.notes.len() < NAMED_MAX {
            self.notes.push(format!(
                "Member {} left the group, or was removed because it did not let go in time.",
                member.member_id
            ));
        }
        let known = self
            .members
            .iter_mut()
            .find(|change| change.member.member_id == member.member_id);
        if let Some(change) = known {
            change.change = "removed";
        }
    }

    /// In a sentence.
    pub(super) fn sentence(&self) -> String {
        match &self.task {
            Task::Reset(moves) => format!(
                "An operator moves {} offsets; the partitions are being taken from their owners.",
                moves.len()
            ),
            Task::Drain(members) => format!(
                "An operator drains {}.",
                members
                    .iter()
                    .map(|id| &**id)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Task::Pause => "An operator pauses the group.".to_owned(),
        }
    }

    pub(super) fn deadline(&self) -> Millis {
        self.deadline
    }

    pub(super) fn is_pause(&self) -> bool {
        matches!(self.task, Task::Pause)
    }
}

impl Coordinator {
    fn kind_of(&self, group_id: &str) -> Kind {
        if let Some(group) = self.state.consumer(group_id) {
            return if group.is_empty() {
                Kind::Empty
            } else {
                Kind::Consumer
            };
        }
        match self.classic.get(group_id) {
            Some(group) if group.phase() != Phase::Empty => Kind::Classic,
            _ => Kind::Empty,
        }
    }

    /// Whether partitions can be taken from the members and given back. Nobody but themselves knows what members that
    /// are no consumers own, nor what an assignor's own bytes say about it (Kafka Streams).
    pub(super) fn check_assignable(&self, group_id: &str) -> Result<(), NotDone> {
        let Some(group) = self
            .classic
            .get(group_id)
            .filter(|group| group.phase() != Phase::Empty)
        else {
            return Ok(());
        };
        let kind = group.protocol_type();
        if &**kind != "consumer" {
            return Err(NotDone::conflict(format!(
                "The members of group {group_id} are no consumers but of type {kind}: what they own, only they know."
            )));
        }
        for (member_id, member) in group.members() {
            let protocol = group.protocol().map_or("", |name| &**name);
            let metadata = member.metadata_for(protocol);
            let readable = metadata.is_empty() || Subscription::parse(&metadata).is_some();
            let given = Assignment::parse(member.assignment());
            if !readable || (given.is_none() && !member.assignment().is_empty()) {
                return Err(NotDone::conflict(format!(
                    "What member {member_id} of group {group_id} owns cannot be read from its bytes."
                )));
            }
            let is_plain = PLAIN_ASSIGNORS.contains(&protocol);
            if !is_plain && given.is_some_and(|given| given.has_user_data()) {
                return Err(NotDone::conflict(format!(
                    "The assignor of group {group_id} puts data of its own into assignments, as Kafka Streams does, so that partitions cannot be taken out of them. Stop the members first."
                )));
            }
        }
        Ok(())
    }

    /// How long members may take.
    pub(super) fn patience_ms(&self, group_id: &str) -> i64 {
        let longest = |(session_ms, rebalance_ms): (i64, i64), more: (i64, i64)| {
            (session_ms.max(more.0), rebalance_ms.max(more.1))
        };
        let none = (0, 0);
        let (session_ms, rebalance_ms) =
            match (self.state.consumer(group_id), self.classic.get(group_id)) {
                (Some(group), _) => {
                    let members = group.members().map(|(_, member)| {
                        let told = member.told();
                        let session_ms = told.classic.as_ref().map_or_else(
                            || self.session_timeout_ms(group_id),
                            |classic| classic.session_timeout_ms,
                        );
                        (session_ms.into(), told.rebalance_timeout_ms.into())
                    });
                    members.fold(none, longest)
                }
                (None, Some(group)) => {
                    let members = group.members().map(|(_, member)| {
                        (
                            member.session_timeout_ms().into(),
                            member.rebalance_timeout_ms().into(),
                        )
                    });
                    // A cooperative group gathers twice.
                    let (session_ms, rebalance_ms) = members.fold(none, longest);
                    (session_ms, rebalance_ms.saturating_mul(2))
                }
                (None, None) => none,
            };
        session_ms
            .saturating_add(rebalance_ms)
            .saturating_add(GRACE_MS)
            .min(LONGEST_MS)
    }

    /// What the members that are concerned would give up.
    pub(super) fn concerned(&self, group_id: &str, task: &Task) -> Vec<MemberChange> {
        let moved: Partitions = match task {
            Task::Reset(moves) => held_by(moves),
            Task::Drain(_) | Task::Pause => Partitions::new(),
        };
        let takes = |member_id: &MemberId, topic: &str, index: i32| match task {
            Task::Reset(_) => moved.get(topic).is_some_and(|of_it| of_it.contains(&index)),
            Task::Drain(members) => members.contains(member_id),
            Task::Pause => true,
        };
        let mut concerned = Vec::new();
        for (member, owned) in self.owned(group_id) {
            let mut gives_up = Vec::new();
            for (topic, partitions) in owned {
                let id = &member.member_id;
                let taken = partitions.iter().filter(|index| takes(id, &topic, **index));
                gives_up.extend(taken.map(|index| (topic.clone(), *index)));
            }
            let change = match task {
                Task::Drain(members) if members.contains(&member.member_id) => "drained",
                _ if gives_up.is_empty() => continue,
                Task::Drain(_) => continue,
                Task::Reset(_) | Task::Pause => "revokes",
            };
            concerned.push(MemberChange {
                member,
                change,
                gives_up,
            });
        }
        concerned
    }

    /// Begins what ends when the members have let go; [`Self::progress`] ends it.
    pub(super) fn start(&mut self, now: Millis, id: RequestId, group_id: &GroupId, task: Task) {
        let members = self.concerned(group_id, &task);
        // A pause that came with the settings may have been told already.
        let mut told_as = Kind::Empty;
        if matches!(task, Task::Pause) {
            let orders = self.orders.entry(group_id.clone()).or_default();
            let untold = std::mem::take(&mut orders.pause_changed);
            if self.is_paused(group_id) && !untold {
                told_as = self.kind_of(group_id);
            }
            let mut own = self.overridden(group_id);
            own.paused = true;
            self.set_overrides(group_id, own);
        }
        let owners = members.iter().flat_map(|change| {
            let owner = &change.member.member_id;
            let all = change.gives_up.iter();
            all.map(|partition| (partition.clone(), owner.clone()))
        });
        let owners = owners.collect();
        let deadline = now.plus(self.patience_ms(group_id));
        if told_as == Kind::Empty
            && let Some(group) = self.classic.get_mut(group_id)
        {
            group.clearing = Default::default();
        }
        let orders = self.orders.entry(group_id.clone()).or_default();
        match &task {
            Task::Reset(moves) => orders.held = held_by(moves),
            Task::Drain(members) => orders.benched.extend(members.iter().cloned()),
            Task::Pause => {}
        }
        orders.operation = Some(Operation {
            id,
            began: now,
            deadline,
            task,
            told_as,
            members,
            owners,
            notes: Vec::new(),
        });
        self.timers
            .arm(Timer::Operation(group_id.clone()), deadline);
    }

    /// Looks whether a group's operation has come to its end, and whether its members must be told (again).
    pub(in crate::group) fn progress(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let operation = |this: &Self| {
            let operation = this.orders.get(group_id)?.operation.as_ref()?;
            Some((operation.told_as, operation.is_pause()))
        };
        let Some((told_as, is_pause)) = operation(self) else {
            return;
        };
        if is_pause && !self.is_paused(group_id) {
            let why = NotDone::conflict("The group was resumed before everybody had let go.");
            return self.end(now, group_id, Err(why), actions);
        }
        let kind = self.kind_of(group_id);
        if self.has_let_go(group_id, kind) {
            return self.complete(now, group_id, kind, told_as, actions);
        }
        if kind != told_as {
            // At first, and when the group has gone over to the other protocol meanwhile.
            self.tell_members(now, group_id, actions);
            if let Some(operation) = self.operation_of(group_id) {
                operation.told_as = kind;
            }
            if self.has_let_go(group_id, self.kind_of(group_id)) {
                self.progress(now, group_id, actions);
            }
        }
    }

    /// As [`Self::progress`], for every group.
    pub(in crate::group) fn progress_all(&mut self, now: Millis, actions: &mut Actions) {
        let under_way = self
            .orders
            .iter()
            .filter(|(_, orders)| orders.operation.is_some());
        let mut group_ids: Vec<GroupId> = under_way.map(|(group_id, _)| group_id.clone()).collect();
        group_ids.sort_unstable();
        for group_id in group_ids {
            self.progress(now, &group_id, actions);
        }
    }

    fn operation_of(&mut self, group_id: &str) -> Option<&mut Operation> {
        self.orders.get_mut(group_id)?.operation.as_mut()
    }

    /// Has the members own less, or more, from now on: a new target, or a rebalance.
    pub(super) fn tell_members(&mut self, now: Millis, group_id: &GroupId, actions: &mut Actions) {
        match self.kind_of(group_id) {
            Kind::Empty => {}
            Kind::Consumer => {
                let why = self.journal.by_operator(group_id);
                self.raise_epoch(now, group_id, why, actions);
                self.assign_target(now, group_id, actions);
            }
            Kind::Classic => {
                let Some(mut group) = self.classic.remove(&**group_id) else {
                    return;
                };
                group.clearing = Default::default();
                if group.phase() != Phase::PreparingRebalance {
                    let why = self.journal.by_operator(group_id);
                    self.rebalance(now, group_id, &mut group, why, actions);
                }
                self.keep(group_id.clone(), group);
            }
        }
    }

    /// Whether nobody has any more what it must not own.
    fn has_let_go(&self, group_id: &str, kind: Kind) -> bool {
        let Some(operation) = self.orders.get(group_id).and_then(|o| o.operation.as_ref()) else {
            return false;
        };
        match kind {
            Kind::Empty => true,
            Kind::Consumer => self.state.consumer(group_id).is_none_or(|group| {
                !group.members().any(|(member_id, member)| {
                    self.still_holds(group_id, member_id, member)
                        || self.is_still_to_have(group_id, member_id, member)
                })
            }),
            Kind::Classic => self.classic.get(group_id).is_none_or(|group| {
                let settled = group.phase() == Phase::Stable;
                let here = match &operation.task {
                    Task::Drain(members) => members.iter().any(|id| group.has(id)),
                    Task::Reset(_) | Task::Pause => true,
                };
                let cleared = match &operation.task {
                    // They have joined, so all of them have given up; offsets move before they are assigned anything.
                    Task::Reset(_) => group.clearing.is_clear,
                    Task::Drain(_) | Task::Pause => group.clearing.is_clear && settled,
                };
                !here || cleared || self.is_settled_without(group_id, group)
            }),
        }
    }

    /// Everybody has let go: moves what is to be moved, gives back what was withheld for it, and says so.
    fn complete(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        kind: Kind,
        told_as: Kind,
        actions: &mut Actions,
    ) {
        // What absent members have by the book is taken before what is withheld is given back.
        self.strip_absent(group_id, actions);
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        let Some(operation) = &mut orders.operation else {
            return;
        };
        let task = std::mem::replace(&mut operation.task, Task::Pause);
        let mut offsets = Vec::new();
        if let Task::Reset(moves) = task {
            if let Some(orders) = self.orders.get_mut(group_id) {
                orders.held.clear();
            }
            let settled = self
                .classic
                .get(group_id)
                .is_some_and(|group| group.phase() == Phase::Stable);
            let owes = match kind {
                Kind::Empty => false,
                Kind::Consumer => told_as != Kind::Empty,
                // Before the leader has assigned, it does so with what was moved.
                Kind::Classic => told_as != Kind::Empty && settled,
            };
            if owes {
                self.tell_members(now, group_id, actions);
            }
            let (planned, notes) = self.plan_moves(now, group_id, &moves);
            offsets = self.move_offsets(now, group_id, planned, actions);
            if kind == Kind::Classic && !settled {
                self.record_gathering(group_id, actions);
            }
            if let Some(operation) = self.operation_of(group_id) {
                operation.notes.extend(notes);
                fill_owners(&mut offsets, operation);
            }
        }
        let done = self.operation_of(group_id).map(|operation| Operated {
            offsets,
            members: std::mem::take(&mut operation.members),
            notes: std::mem::take(&mut operation.notes),
            took_ms: now.since(operation.began),
        });
        self.end(now, group_id, Ok(done.unwrap_or_default()), actions);
    }

    /// Records that a classic group has gone on to the generation in which everybody has let go: after a restart nobody
    /// may commit in the one before, and the group gathers anew.
    fn record_gathering(&mut self, group_id: &GroupId, actions: &mut Actions) {
        let Some(mut value) = self.classic.get(group_id).map(|group| group.value()) else {
            return;
        };
        value.leader = Some(BY_ORDER.into());
        let record = Record::GroupMetadata {
            group_id: group_id.clone(),
            value: Some(value.into()),
        };
        self.emit(record, actions);
    }

    /// Answers an operation and forgets it.
    fn end(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        outcome: Result<Operated, NotDone>,
        actions: &mut Actions,
    ) {
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        if let Some(operation) = orders.operation.take() {
            actions.reply(operation.id, group_id, Reply::Operated(outcome));
        }
        if orders.pause_changed {
            self.timers.arm(Timer::Operation(group_id.clone()), now);
        } else {
            self.timers.cancel(&Timer::Operation(group_id.clone()));
        }
        self.tidy_orders(group_id);
    }

    /// The timer of a group's orders fired: its pause has changed, or its operation has taken too long.
    pub(in crate::group) fn operation_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        if std::mem::take(&mut orders.pause_changed) {
            let owns = |(_, owned): &(MemberRef, _)| !Vec::is_empty(owned);
            if !self.is_paused(group_id) || self.owned(group_id).iter().any(owns) {
                self.tell_members(now, group_id, actions);
            }
            self.progress(now, group_id, actions);
        }
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        match orders
            .operation
            .as_ref()
            .map(|operation| operation.deadline)
        {
            Some(deadline) if deadline <= now => self.give_up(now, group_id, actions),
            Some(deadline) => self
                .timers
                .arm(Timer::Operation(group_id.clone()), deadline),
            None => self.tidy_orders(group_id),
        }
    }

    /// It has taken too long. Nothing was done, and what was withheld for it is given back.
    fn give_up(&mut self, now: Millis, group_id: &GroupId, actions: &mut Actions) {
        let late = self.who_is_late(group_id);
        let Some(operation) = self.operation_of(group_id) else {
            return;
        };
        let waited_ms = now.since(operation.began);
        let what = match &operation.task {
            Task::Reset(_) => "No offset was moved.",
            Task::Drain(_) => "The member is not assigned anything new, but still has what it had.",
            Task::Pause => "The group stays paused: members get nothing new.",
        };
        let why = NotDone {
            kind: NotDoneKind::Conflict,
            message: format!(
                "Members have not let go within {waited_ms} ms: {}. {what} Kick those members, or wait until they are gone.",
                if late.is_empty() {
                    "all are rebalancing".to_owned()
                } else {
                    late.join(", ")
                },
            ),
        };
        let gives_back = matches!(operation.task, Task::Reset(_));
        if gives_back {
            if let Some(orders) = self.orders.get_mut(group_id) {
                orders.held.clear();
            }
            self.tell_members(now, group_id, actions);
        }
        self.end(now, group_id, Err(why), actions);
    }

    /// Those for whom an operation waits, as many as a sentence holds.
    fn who_is_late(&self, group_id: &str) -> Vec<String> {
        if let Some(group) = self.state.consumer(group_id) {
            let late = group
                .members()
                .filter(|(member_id, member)| self.still_holds(group_id, member_id, member));
            let names = late.map(|(member_id, _)| member_id.to_string());
            return names.take(NAMED_MAX).collect();
        }
        let group = self.classic.get(group_id);
        let late = group.into_iter().flat_map(|group| {
            let gathers = group.phase() == Phase::PreparingRebalance;
            group
                .members()
                .filter(move |(_, member)| gathers && !member.has_joined())
        });
        late.map(|(member_id, _)| member_id.to_string())
            .take(NAMED_MAX)
            .collect()
    }

    /// The coordinator stops: whoever waits for an operation is told.
    pub(in crate::group) fn dismiss_operators(&mut self, actions: &mut Actions) {
        let mut orders: Vec<_> = self.orders.drain().collect();
        orders.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (group_id, orders) in orders {
            for late in orders.late {
                late.say(&group_id, actions);
            }
            if let Some(operation) = orders.operation {
                let why = NotDone::unavailable("The server stops; the action was not finished.");
                actions.reply(operation.id, &group_id, Reply::Operated(Err(why)));
            }
        }
    }
}

fn held_by(moves: &[Move]) -> Partitions {
    let mut held = Partitions::new();
    for m in moves {
        held.entry(m.topic.clone()).or_default().insert(m.partition);
    }
    held
}

fn fill_owners(offsets: &mut [OffsetChange], operation: &Operation) {
    for change in offsets {
        let partition = (change.topic.clone(), change.partition);
        change.held_by = operation.owners.get(&partition).cloned();
    }
}
