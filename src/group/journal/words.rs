//! The journal's sentences: why a group rebalanced, what is wrong if it does so over and over, and what to do.

use std::fmt::Write;

use crate::group::operator::{MemberRef, Rebalance, Trigger};
use crate::group::stats::Cause;
use crate::group::types::Millis;

/// What a sentence needs besides the entry.
#[derive(Debug)]
pub(super) struct Besides {
    /// Triggers that were not kept.
    pub(super) more: usize,
    /// Whether it is known who is to have what.
    pub(super) knows_moves: bool,
    /// How long the member that came last was waited for.
    pub(super) waited_ms: i64,
    /// How many members are not at their target.
    pub(super) waiting: usize,
}

/// The member, as sentences name it.
pub(super) fn name(member: &MemberRef) -> String {
    let mut name = member.member_id.to_string();
    let mut known = Vec::new();
    if let Some(instance_id) = &member.instance_id {
        known.push(format!("instance {instance_id}"));
    }
    if !member.client_id.is_empty() {
        known.push(format!("client {}", member.client_id));
    }
    let mut known = known.join(", ");
    if !member.client_host.is_empty() {
        let gap = if known.is_empty() { "" } else { " " };
        let _ = write!(known, "{gap}at {}", member.client_host);
    }
    if !known.is_empty() {
        let _ = write!(name, " ({known})");
    }
    name
}

fn seconds(ms: i64) -> String {
    if ms < 1_000 {
        return format!("{ms} ms");
    }
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

/// Why, in one sentence.
pub(super) fn why(entry: &Rebalance, now: Millis, besides: &Besides) -> String {
    let mut text = entry.triggers.first().map_or_else(
        || "The group rebalanced".to_owned(),
        |trigger| capital(&cause(trigger)),
    );
    let others = entry.triggers.len().saturating_sub(1) + besides.more;
    match others {
        0 => {}
        1 => {
            let second = entry.triggers.get(1).map(cause).unwrap_or_default();
            let _ = write!(text, ", and {second}");
        }
        _ => {
            let _ = write!(text, ", and {others} other things happened");
        }
    }
    text.push_str(": ");
    text.push_str(&outcome(entry, now, besides));
    text.push('.');
    text
}

fn outcome(entry: &Rebalance, now: Millis, besides: &Besides) -> String {
    let took_ms = entry.ended_at.unwrap_or(now).since(entry.began_at);
    let total = entry.moved_count + entry.stayed_count;
    let moved = match (besides.knows_moves, entry.moved_count) {
        (false, _) => String::new(),
        (true, 0) => "no partition moved; ".to_owned(),
        (true, moved) => format!("{moved} of {total} partitions moved; "),
    };
    let waited = match &entry.waited_for {
        Some(member) => format!(
            "everyone waited {} for {}",
            seconds(besides.waited_ms),
            name(member)
        ),
        None => format!("it took {}", seconds(took_ms)),
    };
    match entry.outcome {
        "running" if besides.waiting > 0 => format!(
            "{moved}it runs since {} and waits for {} members",
            seconds(took_ms),
            besides.waiting
        ),
        "running" => format!("it runs since {}", seconds(took_ms)),
        "superseded" => format!("{moved}after {} the next one began", seconds(took_ms)),
        "emptied" => format!("{moved}nobody is left in the group"),
        "interrupted" => format!("after {} the coordinator started anew", seconds(took_ms)),
        _ => format!("{moved}{waited}"),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

fn cause(trigger: &Trigger) -> String {
    let who = trigger.member.as_ref().map_or_else(
        || "a member".to_owned(),
        |member| format!("member {}", name(member)),
    );
    let detail = trigger.detail.as_deref();
    let told = |text: String| match detail {
        Some(detail) => format!("{text} ({detail})"),
        None => text,
    };
    let named = |what: &str| match detail {
        Some(detail) => format!("{what}: {detail}"),
        None => what.to_owned(),
    };
    match trigger.cause {
        Cause::MemberJoined => told(format!("{who} joined")),
        Cause::MemberLeft => told(format!("{who} left")),
        Cause::SessionExpired => format!("{who} sent no heartbeat within its session timeout"),
        Cause::RebalanceTimeout => told(format!(
            "{who} did not follow a rebalance within its rebalance timeout"
        )),
        Cause::SyncTimeout => format!("{who} joined but did not sync within the rebalance timeout"),
        Cause::SubscriptionChanged => told(format!("{who} changed what it subscribes to")),
        Cause::LeaderRejoined => told(format!("the leader, {who}, asked for a new assignment")),
        Cause::PartitionsRevoked => told(format!(
            "{who} gave up partitions that are to go to others, and rejoined"
        )),
        Cause::StaticMemberReplaced => {
            told(format!("static {who} came back and needs a new assignment"))
        }
        Cause::GroupOverMaxSize => "the group is larger than it may be".to_owned(),
        Cause::TopicsChanged => named("subscribed topics changed"),
        Cause::TopicCreated => named("a subscribed topic was created"),
        Cause::TopicGrown => named("a subscribed topic got more partitions"),
        Cause::TopicDeleted => named("a subscribed topic was deleted"),
        Cause::Migration => match &trigger.member {
            Some(_) => told(format!("{who} made the group change its protocol")),
            None => named("the group changed its protocol"),
        },
        Cause::Operator => named("an operator acted"),
    }
}

/// What is wrong with a group that rebalances over and over, and what to do.
pub(super) fn storm(causes: &[Cause], details: &[&str], window_ms: i64) -> String {
    let mut counts: Vec<(usize, Cause)> = Vec::new();
    for cause in causes {
        match counts.iter_mut().find(|(_, known)| known == cause) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, *cause)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let (count, main) = counts.first().copied().unwrap_or((0, Cause::MemberJoined));
    let late = details
        .iter()
        .any(|detail| detail.contains("poll timeout") || detail.contains("max.poll.interval"));
    format!(
        "{} rebalances within {} min, {count} of them by {}. {}",
        causes.len(),
        window_ms / 60_000,
        main.name().replace('_', " "),
        advice(main, late)
    )
}

/// What to do about a cause that comes over and over.
fn advice(cause: Cause, late: bool) -> &'static str {
    match cause {
        _ if late => {
            "Members take longer between two polls than max.poll.interval.ms allows: raise it, or lower max.poll.records."
        }
        Cause::MemberJoined | Cause::MemberLeft => {
            "Members restart over and over: look why, and give each a group.instance.id so that a restart moves nothing."
        }
        Cause::SessionExpired => {
            "Members fall silent: look for crashes, long pauses and a bad network, or raise session.timeout.ms."
        }
        Cause::RebalanceTimeout | Cause::SyncTimeout => {
            "Members are too slow to follow: raise max.poll.interval.ms, or do less between two polls."
        }
        Cause::SubscriptionChanged => {
            "Members change what they subscribe to in turn: let all of one group subscribe to the same topics."
        }
        Cause::StaticMemberReplaced => {
            "Static members come back with other settings: see that no two processes have one group.instance.id."
        }
        Cause::LeaderRejoined | Cause::PartitionsRevoked => {
            "The members' own assignor asks for it: look at its settings, or use the consumer protocol."
        }
        Cause::TopicsChanged | Cause::TopicCreated | Cause::TopicGrown | Cause::TopicDeleted => {
            "Subscribed topics change over and over: change them together, or subscribe to fewer."
        }
        Cause::Migration => {
            "The group goes from one protocol to the other and back: let all members speak one."
        }
        Cause::GroupOverMaxSize => "The group has more members than group.max.size allows.",
        Cause::Operator => "Operators asked for them.",
    }
}

/// What to do about members that come and go.
pub(super) fn flapping(members: usize, window_ms: i64) -> String {
    let who = if members == 1 {
        "A member comes".to_owned()
    } else {
        format!("{members} members come")
    };
    format!(
        "{who} and go over and over within {} min: look why, and give each a group.instance.id so that a restart moves \
         nothing.",
        window_ms / 60_000
    )
}
