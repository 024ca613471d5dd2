//! The journal on disk (`convoke.journal.durable`): what is finished, one JSON object a line, in a file that is turned
//! over when it is large, and read again at start. Nobody waits for it: what cannot be written in time is left out and
//! counted. Here are the bytes; what stands in an entry is the core's affair.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::group::operator::{AuditEntry, MemberRef, PartitionMove, Rebalance, Trigger};
use crate::group::stats::Cause;
use crate::group::types::Millis;
use crate::group::{Coordinator, Noted};

/// What waits to be written, at most, in batches of one shard's step.
const BACKLOG: usize = 1_024;
/// The file that is written to, and the one before it.
const FILES: (&str, &str) = ("journal.jsonl", "journal.1.jsonl");
/// A longer line is none of ours.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Where shards hand in what is finished.
#[derive(Clone, Debug)]
pub(crate) struct Chronicle(mpsc::Sender<Vec<Noted>>);

impl Chronicle {
    /// Opens the file in the data folder, and writes until all shards are gone.
    pub(crate) fn open(folder: &Path, bytes_max: u64) -> (Self, JoinHandle<()>) {
        let (sender, mut receiver) = mpsc::channel(BACKLOG);
        let mut book = Book {
            folder: folder.to_owned(),
            bytes_max,
            open: None,
        };
        let task = tokio::spawn(async move {
            let mut batches = Vec::new();
            while receiver.recv_many(&mut batches, BACKLOG).await > 0 {
                let noted: Vec<Noted> = batches.drain(..).flatten().collect();
                let written = tokio::task::spawn_blocking(move || {
                    let outcome = book.write(&noted);
                    (book, outcome)
                });
                let Ok((back, outcome)) = written.await else {
                    return;
                };
                book = back;
                if let Err(error) = outcome {
                    tracing::warn!(%error, "the journal on disk lacks entries; make room in the data folder");
                }
            }
        });
        (Self(sender), task)
    }

    /// Hands in what is finished; tells whether it was taken.
    pub(crate) fn put(&self, noted: Vec<Noted>) -> bool {
        self.0.try_send(noted).is_ok()
    }
}

/// The file.
#[derive(Debug)]
struct Book {
    folder: PathBuf,
    bytes_max: u64,
    /// With its length.
    open: Option<(File, u64)>,
}

impl Book {
    fn write(&mut self, noted: &[Noted]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for noted in noted {
            serde_json::to_writer(&mut bytes, &Line::of(noted)).map_err(io::Error::other)?;
            bytes.push(b'\n');
        }
        let path = self.folder.join(FILES.0);
        if self
            .open
            .as_ref()
            .is_some_and(|(_, len)| *len >= self.bytes_max)
        {
            self.open = None;
            std::fs::rename(&path, self.folder.join(FILES.1))?;
        }
        let (mut file, len) = match self.open.take() {
            Some(open) => open,
            None => {
                let file = OpenOptions::new().create(true).append(true).open(&path)?;
                let len = file.metadata()?.len();
                (file, len)
            }
        };
        file.write_all(&bytes)?;
        self.open = Some((file, len + bytes.len() as u64));
        Ok(())
    }
}

/// Gives coordinators back what an earlier life wrote down of groups that still exist.
pub(crate) fn read(folder: &Path, coordinators: &mut [Option<Coordinator>]) {
    let mut bad = 0_usize;
    for name in [FILES.1, FILES.0] {
        let path = folder.join(name);
        let read = File::open(&path).and_then(|file| lines(file, coordinators));
        match read {
            Ok(broken) => bad += broken,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the journal on disk cannot be read");
            }
        }
    }
    if bad > 0 {
        tracing::warn!(
            lines = bad,
            "lines of the journal on disk were not understood"
        );
    }
}

fn lines(file: File, coordinators: &mut [Option<Coordinator>]) -> io::Result<usize> {
    let mut reader = BufReader::new(file);
    let (mut line, mut bad) = (Vec::new(), 0);
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX as u64;
        if io::Read::take(&mut reader, limit).read_until(b'\n', &mut line)? == 0 {
            return Ok(bad);
        }
        let noted = serde_json::from_slice::<Line>(&line)
            .ok()
            .and_then(Line::noted);
        let Some(noted) = noted else {
            bad += 1;
            continue;
        };
        let place = super::topics::shard_of(noted.group_id(), coordinators.len());
        if let Some(Some(coordinator)) = coordinators.get_mut(place) {
            coordinator.remember(noted);
        }
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    group: String,
    /// `classic` or `consumer`; absent for an offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rebalance: Option<Entry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<Change>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    number: u64,
    from_epoch: i32,
    to_epoch: i32,
    began_at_ms: i64,
    ended_at_ms: Option<i64>,
    outcome: String,
    why: String,
    triggers: Vec<Told>,
    phases: Vec<(String, i64)>,
    waited_for: Option<Name>,
    moved_count: usize,
    stayed_count: usize,
    moves: Vec<Moved>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Told {
    cause: String,
    at_ms: i64,
    member: Option<Name>,
    detail: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Name {
    member_id: String,
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    topic: String,
    partition: i32,
    from: Option<String>,
    to: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    at_ms: i64,
    topic: String,
    partition: i32,
    from: Option<i64>,
    to: Option<i64>,
    who: String,
    how: String,
}

/// Words that the core has in its own binary.
fn word(text: &str) -> &'static str {
    const WORDS: &[&str] = &[
        "classic",
        "consumer",
        "completed",
        "superseded",
        "emptied",
        "interrupted",
        "join",
        "sync",
        "assign",
        "revoke",
        "take",
        "reset",
        "restore",
        "delete",
        "commit went back",
        "expired",
    ];
    let known = WORDS.iter().find(|word| **word == text);
    known.copied().unwrap_or("of another version")
}

impl Name {
    fn of(member: &MemberRef) -> Self {
        Self {
            member_id: member.member_id.to_string(),
            instance_id: member.instance_id.as_deref().map(str::to_owned),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
        }
    }

    fn member(self) -> MemberRef {
        MemberRef {
            member_id: self.member_id.into(),
            instance_id: self.instance_id.map(Into::into),
            client_id: self.client_id.into(),
            client_host: self.client_host.into(),
        }
    }
}

impl Entry {
    fn of(entry: &Rebalance) -> Self {
        let told = |trigger: &Trigger| Told {
            cause: trigger.cause.name().to_owned(),
            at_ms: trigger.at.0,
            member: trigger.member.as_ref().map(Name::of),
            detail: trigger.detail.as_deref().map(str::to_owned),
        };
        let moved = |moved: &PartitionMove| Moved {
            topic: moved.topic.to_string(),
            partition: moved.partition,
            from: moved.from.as_deref().map(str::to_owned),
            to: moved.to.as_deref().map(str::to_owned),
        };
        Self {
            number: entry.number,
            from_epoch: entry.from_epoch,
            to_epoch: entry.to_epoch,
            began_at_ms: entry.began_at.0,
            ended_at_ms: entry.ended_at.map(|at| at.0),
            outcome: entry.outcome.to_owned(),
            why: entry.why.clone(),
            triggers: entry.triggers.iter().map(told).collect(),
            phases: entry
                .phases
                .iter()
                .map(|(name, ms)| ((*name).to_owned(), *ms))
                .collect(),
            waited_for: entry.waited_for.as_ref().map(Name::of),
            moved_count: entry.moved_count,
            stayed_count: entry.stayed_count,
            moves: entry.moves.iter().map(moved).collect(),
        }
    }

    fn rebalance(self) -> Option<Rebalance> {
        let trigger = |told: Told| {
            let cause = Cause::ALL.into_iter().find(|c| c.name() == told.cause)?;
            Some(Trigger {
                cause,
                member: told.member.map(Name::member),
                detail: told.detail.map(Into::into),
                at: Millis(told.at_ms),
            })
        };
        let triggers: Option<Vec<Trigger>> = self.triggers.into_iter().map(trigger).collect();
        let moved = |moved: Moved| PartitionMove {
            topic: moved.topic.into(),
            partition: moved.partition,
            from: moved.from.map(Into::into),
            to: moved.to.map(Into::into),
        };
        let phases = self.phases.iter().map(|(name, ms)| (word(name), *ms));
        Some(Rebalance {
            number: self.number,
            from_epoch: self.from_epoch,
            to_epoch: self.to_epoch,
            triggers: triggers?,
            began_at: Millis(self.began_at_ms),
            ended_at: self.ended_at_ms.map(Millis),
            outcome: word(&self.outcome),
            phases: phases.collect(),
            waited_for: self.waited_for.map(Name::member),
            moves: self.moves.into_iter().map(moved).collect(),
            moved_count: self.moved_count,
            stayed_count: self.stayed_count,
            why: self.why,
        })
    }
}

impl Line {
    fn of(noted: &Noted) -> Self {
        let group = noted.group_id().to_string();
        match noted {
            Noted::Rebalance {
                kind, rebalance, ..
            } => Self {
                group,
                kind: Some((*kind).to_owned()),
                rebalance: Some(Entry::of(rebalance)),
                offset: None,
            },
            Noted::Audit { entry, .. } => Self {
                group,
                kind: None,
                rebalance: None,
                offset: Some(Change {
                    at_ms: entry.at.0,
                    topic: entry.topic.to_string(),
                    partition: entry.partition,
                    from: entry.from,
                    to: entry.to,
                    who: entry.who.to_string(),
                    how: entry.how.to_owned(),
                }),
            },
        }
    }

    fn noted(self) -> Option<Noted> {
        let group_id = self.group.into();
        match (self.rebalance, self.offset) {
            (Some(entry), _) => Some(Noted::Rebalance {
                group_id,
                kind: word(&self.kind.unwrap_or_default()),
                rebalance: Arc::new(entry.rebalance()?),
            }),
            (None, Some(change)) => Some(Noted::Audit {
                group_id,
                entry: AuditEntry {
                    at: Millis(change.at_ms),
                    topic: change.topic.into(),
                    partition: change.partition,
                    from: change.from,
                    to: change.to,
                    who: change.who.into(),
                    how: word(&change.how),
                },
            }),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> [Noted; 2] {
        let member = MemberRef {
            member_id: "m".into(),
            instance_id: None,
            client_id: "c\"\n".into(),
            client_host: "/h".into(),
        };
        let rebalance = Rebalance {
            number: 7,
            from_epoch: 1,
            to_epoch: 2,
            triggers: vec![Trigger {
                at: Millis(3),
                ..Trigger::new(Cause::SyncTimeout).by(member.clone())
            }],
            began_at: Millis(3),
            ended_at: Some(Millis(9)),
            outcome: "completed",
            phases: vec![("join", 5), ("sync", 1)],
            waited_for: Some(member),
            moves: vec![PartitionMove {
                topic: "t".into(),
                partition: 1,
                from: None,
                to: Some("m".into()),
            }],
            moved_count: 1,
            stayed_count: 0,
            why: "Because.".to_owned(),
        };
        let entry = AuditEntry {
            at: Millis(4),
            topic: "t".into(),
            partition: 0,
            from: Some(5),
            to: None,
            who: "w".into(),
            how: "delete",
        };
        [
            Noted::Rebalance {
                group_id: "g".into(),
                kind: "classic",
                rebalance: Arc::new(rebalance),
            },
            Noted::Audit {
                group_id: "g".into(),
                entry,
            },
        ]
    }

    #[test]
    fn what_is_written_reads_back() {
        for noted in noted() {
            let line = serde_json::to_string(&Line::of(&noted)).unwrap();
            assert!(!line.contains('\n'));
            let read: Line = serde_json::from_str(&line).unwrap();
            assert_eq!(read.noted(), Some(noted));
        }
    }

    #[tokio::test]
    async fn a_file_that_is_full_is_turned_over_and_both_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (chronicle, task) = Chronicle::open(folder.path(), 1);
        for noted in noted() {
            assert!(chronicle.put(vec![noted]));
            // Each in a batch of its own, whose file is full with it.
            tokio::task::yield_now().await;
            while chronicle.0.capacity() < BACKLOG {
                tokio::task::yield_now().await;
            }
        }
        drop(chronicle);
        task.await.unwrap();
        std::fs::write(folder.path().join("journal.2.jsonl"), "no line").unwrap();
        let fresh = || Coordinator::new(Default::default(), Default::default(), 1);
        let mut coordinators = [Some(fresh())];
        read(folder.path(), &mut coordinators);
        let bytes = coordinators[0].as_ref().map(Coordinator::journal_bytes);
        assert!(bytes.is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join(FILES.0),
            "{}\nno line\n{\"group\":\"g\"}\n",
        )
        .unwrap();
        let mut coordinators = [None];
        read(folder.path(), &mut coordinators);
        let file = File::open(folder.path().join(FILES.0)).unwrap();
        assert_eq!(lines(file, &mut coordinators).unwrap(), 3);
    }
}
