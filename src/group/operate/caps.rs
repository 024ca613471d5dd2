//! How many groups there may be: in total, and of those whose ids begin alike. Counted for all coordinators together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::group::Coordinator;
use crate::group::operator::{NotDone, NotDoneKind};
use crate::group::request::{ConsumerHeartbeatReply, ErrorCode, Reply, Request};
use crate::group::types::GroupId;

/// What is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// The most groups there may be; `None` for no limit.
    pub groups_max: Option<usize>,
    /// The most groups whose ids begin with a prefix.
    pub prefixes: Vec<(Arc<str>, usize)>,
}

#[derive(Debug, Default)]
struct Book {
    caps: Caps,
    /// Counts the changes of `caps`: whoever has counted for other ones counts anew.
    version: u64,
    groups: usize,
    /// Groups by prefix, in the order of the caps.
    of_prefix: Vec<usize>,
}

impl Book {
    fn hits<'a>(&'a self, group_id: &'a str) -> impl Iterator<Item = usize> + 'a {
        let prefixes = self.caps.prefixes.iter().enumerate();
        prefixes
            .filter(move |(_, (prefix, _))| group_id.starts_with(&**prefix))
            .map(|(place, _)| place)
    }
}

/// The groups of all coordinators that share this, and how many there may be.
#[derive(Debug, Default)]
pub struct GroupCaps {
    book: Mutex<Book>,
    /// Whether there is any limit: mostly not, and then nobody looks into the book.
    limited: AtomicBool,
}

impl GroupCaps {
    /// Begins with these limits.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        let this = Self::default();
        this.set(caps);
        this
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Numbers alone, which stay whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is allowed.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.lock().caps.clone()
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.lock().groups
    }

    /// Allows something else from now on. Nothing that there is goes away. Every coordinator must then
    /// [count](Coordinator::count_groups) for the new prefixes.
    pub fn set(&self, caps: Caps) {
        let limited = caps.groups_max.is_some() || !caps.prefixes.is_empty();
        let mut book = self.lock();
        self.limited.store(limited, Ordering::Relaxed);
        book.of_prefix = vec![0; caps.prefixes.len()];
        book.caps = caps;
        book.version += 1;
    }
}

/// One coordinator's part of the count; given back when dropped.
#[derive(Debug, Default)]
pub(in crate::group) struct Counted {
    caps: Arc<GroupCaps>,
    version: u64,
    groups: usize,
    of_prefix: Vec<usize>,
    /// A place that was taken for a group which the request at hand may make.
    reserved: Option<GroupId>,
}

impl Counted {
    pub(in crate::group) fn of(caps: &Arc<GroupCaps>) -> Self {
        let mut this = Self::default();
        this.caps = caps.clone();
        this
    }

    /// Counts these groups, and no others.
    fn count<'a>(&mut self, group_ids: impl Iterator<Item = &'a GroupId>) {
        let mut book = self.caps.lock();
        let is_new = self.version == book.version;
        book.groups -= self.groups;
        if is_new {
            for (all, mine) in book.of_prefix.iter_mut().zip(&self.of_prefix) {
                *all -= mine;
            }
        }
        (self.version, self.groups, self.reserved) = (book.version, 0, None);
        self.of_prefix = vec![0; book.of_prefix.len()];
        for group_id in group_ids {
            self.groups += 1;
            for place in book.hits(group_id) {
                self.of_prefix[place] += 1;
            }
        }
        book.groups += self.groups;
        for (all, mine) in book.of_prefix.iter_mut().zip(&self.of_prefix) {
            *all += mine;
        }
    }

    /// One group more, or one less. `false`: the caps have changed, and everything must be counted.
    #[must_use]
    fn change(&mut self, group_id: &GroupId, more: bool) -> bool {
        let mut book = self.caps.lock();
        if book.version != self.version {
            return false;
        }
        let places: Vec<usize> = book.hits(group_id).collect();
        let step = |count: &mut usize| *count = if more { *count + 1 } else { *count - 1 };
        step(&mut book.groups);
        step(&mut self.groups);
        for place in places {
            step(&mut book.of_prefix[place]);
            step(&mut self.of_prefix[place]);
        }
        true
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count(std::iter::empty());
    }
}

impl Coordinator {
    /// Counts all groups anew, after the caps have changed.
    pub fn count_groups(&mut self) {
        self.counted.count(self.state.groups().map(|(id, _)| id));
    }

    /// A group has come or gone: the number of groups is not what it was.
    pub(in crate::group) fn groups_changed(&mut self, group_id: &GroupId, before: usize) {
        let more = self.state.group_count() > before;
        if more && self.counted.reserved.as_ref() == Some(group_id) {
            self.counted.reserved = None;
            return;
        }
        if !self.counted.change(group_id, more) {
            self.count_groups();
        }
    }

    /// Takes a place for the group that a request would make.
    ///
    /// # Errors
    /// The refusal: there are as many groups as there may be.
    pub(in crate::group) fn reserve_group(&mut self, request: &Request) -> Result<(), Reply> {
        if !self.counted.caps.limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        let makes = match request {
            Request::Join(_) | Request::OffsetCommit(_) => true,
            Request::ConsumerHeartbeat(beat) => beat.member_epoch == 0,
            Request::Operate(operate) => operate.makes_group() && !operate.dry_run,
            _ => false,
        };
        let Some(group_id) = request.group_id().filter(|_| makes) else {
            return Ok(());
        };
        if self.state.group(group_id).is_some() {
            return Ok(());
        }
        let full = {
            let book = self.counted.caps.lock();
            let total = book.caps.groups_max.filter(|max| book.groups >= *max);
            let of_prefix = book.hits(group_id).find_map(|place| {
                let (prefix, max) = &book.caps.prefixes[place];
                (book.of_prefix[place] >= *max).then(|| (prefix.clone(), *max))
            });
            match (total, of_prefix) {
                (Some(max), _) => Some(format!(
                    "There are {max} groups, as many as convoke.groups.max allows."
                )),
                (None, Some((prefix, max))) => Some(format!(
                    "There are {max} groups that begin with {prefix:?}, as many as convoke.groups.prefix.max allows."
                )),
                (None, None) => None,
            }
        };
        if let Some(why) = full {
            return Err(refused(request, why));
        }
        let group_id = group_id.clone();
        if !self.counted.change(&group_id, true) {
            self.count_groups();
            // With the new limits.
            return self.reserve_group(request);
        }
        self.counted.reserved = Some(group_id);
        Ok(())
    }

    /// The request has been handled: a place that it did not need is free again.
    pub(in crate::group) fn settle_group(&mut self) {
        if let Some(group_id) = self.counted.reserved.take()
            && !self.counted.change(&group_id, false)
        {
            self.count_groups();
        }
    }
}

/// The codes are those of a group, or a commit, that is too large: stock clients end with a clear error.
fn refused(request: &Request, why: String) -> Reply {
    match request {
        Request::ConsumerHeartbeat(_) => Reply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(
            ErrorCode::GroupMaxSizeReached,
            why,
        )),
        Request::Operate(_) => Reply::Operated(Err(NotDone {
            kind: NotDoneKind::Limit,
            message: why,
        })),
        Request::Join(_) => crate::group::refusal::refuse(request, ErrorCode::GroupMaxSizeReached),
        _ => crate::group::refusal::refuse(request, ErrorCode::InvalidCommitOffsetSize),
    }
}
