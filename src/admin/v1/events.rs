//! Which groups change, told to whoever listens: at most once a second, and by looking at all groups once for all
//! listeners. Nobody is looked at while nobody listens.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use hashbrown::HashMap;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

use super::Api;
use crate::admin::problem::Problem;
use crate::group::operator::Summary;
use crate::group::types::GroupId;

/// How often groups are looked at.
const PACE: Duration = Duration::from_secs(1);
/// How often a listener hears that the server is still there.
const ALIVE: Duration = Duration::from_secs(10);
/// Listeners at one time: they must not take all the connections there are.
const LISTENERS_MAX: usize = 64;
/// Groups that one event names; beyond, listeners are told to look at everything anew.
const NAMED_MAX: usize = 500;
/// Events that wait for a listener who is slow. Whoever misses one looks at everything anew.
const WAITING_MAX: usize = 4;

/// What a listener is told.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Changed, example = json!({"groups": ["orders"]}))]
pub(super) struct Changed {
    /// The groups that changed; `null` when it were too many to name them, or some were missed.
    groups: Option<Vec<String>>,
}

/// Whoever listens.
#[derive(Debug)]
pub(super) struct Events {
    stopped: watch::Receiver<bool>,
    /// `None` while nobody looks at the groups.
    sender: Mutex<Option<broadcast::Sender<Changed>>>,
}

impl Events {
    pub(super) fn new(stopped: watch::Receiver<bool>) -> Self {
        Self {
            stopped,
            sender: Mutex::default(),
        }
    }

    /// Listens from now on, and has the groups looked at.
    fn listen(&self, api: &Api) -> Result<broadcast::Receiver<Changed>, Problem> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*sender {
            if sender.receiver_count() >= LISTENERS_MAX {
                return Err(Problem::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    format!(
                        "{LISTENERS_MAX} listen already; close a page, or ask /v1/groups now and then"
                    ),
                ));
            }
            return Ok(sender.subscribe());
        }
        let (new, receiver) = broadcast::channel(WAITING_MAX);
        *sender = Some(new);
        drop(sender);
        tokio::spawn(look(api.clone()));
        Ok(receiver)
    }

    /// Tells everybody. `false` if nobody is there any more: then nobody need look.
    fn tell(&self, changed: Option<Changed>) -> bool {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let is_heard = match (&*sender, changed) {
            (None, _) => false,
            (Some(sender), None) => sender.receiver_count() > 0,
            (Some(sender), Some(changed)) => sender.send(changed).is_ok(),
        };
        if !is_heard {
            *sender = None;
        }
        is_heard
    }
}

/// What is compared of a group.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    summary: Summary,
    /// Records behind.
    records: Option<i64>,
}

/// Looks at all groups once a second as long as somebody listens.
async fn look(api: Api) {
    let mut stopped = api.0.events.stopped.clone();
    let mut before: Option<HashMap<GroupId, Seen>> = None;
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => {
                api.0.events.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
                return;
            }
        }
        let mut changed = None;
        if let Some(now) = seen(&api).await {
            changed = match &before {
                Some(before) => compare(before, &now),
                // Whoever has looked already may have looked before this.
                None => Some(Changed { groups: None }),
            };
            before = Some(now);
        }
        if !api.0.events.tell(changed) {
            return;
        }
    }
}

async fn seen(api: &Api) -> Option<HashMap<GroupId, Seen>> {
    let observer = api.ready().ok()?;
    let summaries = observer.summaries().await;
    let survey = api.survey().await.ok()?;
    let seen = summaries.into_iter().map(|summary| {
        let records = survey.groups.get(&summary.group_id).map(|lag| lag.records);
        (summary.group_id.clone(), Seen { summary, records })
    });
    Some(seen.collect())
}

/// What is new, gone or different; `None` if nothing is.
fn compare(before: &HashMap<GroupId, Seen>, now: &HashMap<GroupId, Seen>) -> Option<Changed> {
    let different = now
        .iter()
        .filter(|(id, seen)| before.get(*id) != Some(*seen));
    let gone = before.keys().filter(|id| !now.contains_key(*id));
    let changed = different.map(|(id, _)| id).chain(gone);
    let mut groups: Vec<String> = changed
        .take(NAMED_MAX + 1)
        .map(|id| id.to_string())
        .collect();
    groups.sort_unstable();
    match groups.len() {
        0 => None,
        1..=NAMED_MAX => Some(Changed {
            groups: Some(groups),
        }),
        _ => Some(Changed { groups: None }),
    }
}

/// Tells which groups change
///
/// Server-sent events, at most one a second: `event: changed` with the groups that changed, or `null` when everything
/// should be looked at anew.
#[utoipa::path(get, path = "/v1/events", tag = "groups",
    responses((status = 200, description = "Events, as long as the connection lasts.", body = Changed, content_type = "text/event-stream")))]
pub(super) async fn listen(
    State(api): State<Api>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    api.observer()?;
    let receiver = api.0.events.listen(&api)?;
    let events = stream::unfold(receiver, |mut receiver| async {
        let changed = match receiver.recv().await {
            Ok(changed) => changed,
            Err(RecvError::Lagged(_)) => Changed { groups: None },
            Err(RecvError::Closed) => return None,
        };
        let event = Event::default().event("changed").json_data(&changed);
        // Names and nothing else always become JSON.
        let event = event.unwrap_or_else(|_| Event::default().event("changed"));
        Some((Ok(event), receiver))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(epochs: &[(&str, i32, i64)]) -> HashMap<GroupId, Seen> {
        let seen = |(group_id, epoch, records): &(&str, i32, i64)| {
            let summary = Summary {
                group_id: (*group_id).into(),
                kind: "classic",
                state: "Stable",
                epoch: *epoch,
                member_count: 1,
                offset_count: 1,
                rebalance_count: 1,
                rebalanced_at: None,
                is_stormy: false,
                is_paused: false,
                has_conflict: false,
            };
            let records = Some(*records);
            (GroupId::from(*group_id), Seen { summary, records })
        };
        epochs.iter().map(seen).collect()
    }

    #[test]
    fn what_is_new_gone_or_different_is_named_once() {
        let before = groups(&[("a", 1, 0), ("b", 1, 0), ("c", 1, 0), ("d", 1, 0)]);
        let now = groups(&[("a", 1, 0), ("b", 2, 0), ("d", 1, 5), ("e", 1, 0)]);
        let changed = compare(&before, &now).unwrap().groups.unwrap();
        assert_eq!(changed, ["b", "c", "d", "e"]);
        assert!(compare(&now, &now).is_none());
    }

    #[test]
    fn too_many_are_not_named() {
        let names: Vec<String> = (0..=NAMED_MAX).map(|i| format!("g{i}")).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, 1, 0)).collect();
        let changed = compare(&HashMap::new(), &groups(&many)).unwrap();
        assert!(changed.groups.is_none());
    }
}
