//! The durable facts of this room: topics and their configs, group configs, start offsets, the producer ids given out.
//!
//! One text file, `topics.journal`: lines `<crc32c of the rest, 8 hex digits> <JSON>`, a fact each, or all facts of one
//! change. A change appends its line and syncs before anybody is told: one line, because a power cut may keep any part of
//! what was not synced, and a whole line behind a torn one would look like damage. When the file has grown to twice what is still true, it is written anew
//! beside and renamed into place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use kafka_protocol::error::ResponseError;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::topics::{Refusal, TopicSummary};
use super::{Error, OFFSETS_TOPIC};
use crate::log::fs::{Fs, FsFile, Open};

const NAME: &str = "topics.journal";
/// The first line: what this file is. Format 1 knew no line with several facts.
const FORMAT: u32 = 2;
/// The most partitions that a topic can have. Kafka has no such limit; each of them is an object in memory.
pub(super) const TOPIC_PARTITIONS_MAX: i32 = 1 << 20;
/// Below this size the file is never written anew.
const REWRITE_BYTES_MIN: u64 = 64 << 10;

/// One durable fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    Format {
        version: u32,
    },
    Topic {
        #[serde(with = "id")]
        id: Uuid,
        name: String,
        partitions: i32,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        internal: bool,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        configs: BTreeMap<String, String>,
    },
    Partitions {
        #[serde(with = "id")]
        id: Uuid,
        count: i32,
    },
    TopicConfigs {
        #[serde(with = "id")]
        id: Uuid,
        configs: BTreeMap<String, String>,
    },
    Deleted {
        #[serde(with = "id")]
        id: Uuid,
    },
    GroupConfigs {
        group: String,
        configs: BTreeMap<String, String>,
    },
    ProducerIds {
        next: i64,
    },
    Start {
        #[serde(with = "id")]
        id: Uuid,
        partition: i32,
        offset: i64,
    },
    /// The facts of one change.
    All {
        facts: Vec<Self>,
    },
}

mod id {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use uuid::Uuid;

    pub(super) fn serialize<S: Serializer>(id: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

impl Entry {
    pub(super) fn topic(summary: &TopicSummary, configs: &BTreeMap<String, String>) -> Self {
        Self::Topic {
            id: summary.id,
            name: summary.name.to_string(),
            partitions: summary.partitions,
            internal: summary.internal,
            configs: configs.clone(),
        }
    }
}

/// A topic as the journal knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) partitions: i32,
    pub(super) internal: bool,
    pub(super) configs: BTreeMap<String, String>,
    /// Start offsets that records were deleted up to.
    pub(super) starts: BTreeMap<i32, i64>,
}

/// All facts that hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) topics: HashMap<Uuid, Known>,
    pub(super) groups: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) producer_ids_next: i64,
}

impl Facts {
    /// Takes a fact. Facts about a topic that is gone change nothing.
    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Format { .. } => {}
            Entry::All { facts } => facts.into_iter().for_each(|fact| self.take(fact)),
            Entry::Topic {
                id,
                name,
                partitions,
                internal,
                configs,
            } => {
                self.topics.insert(
                    id,
                    Known {
                        name,
                        partitions,
                        internal,
                        configs,
                        starts: BTreeMap::new(),
                    },
                );
            }
            Entry::Partitions { id, count } => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.partitions = count;
                }
            }
            Entry::TopicConfigs { id, configs } => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.configs = configs;
                }
            }
            Entry::Deleted { id } => {
                self.topics.remove(&id);
            }
            Entry::GroupConfigs { group, configs } => {
                match configs.is_empty() {
                    true => self.groups.remove(&group),
                    false => self.groups.insert(group, configs),
                };
            }
            Entry::ProducerIds { next } => self.producer_ids_next = next,
            Entry::Start {
                id,
                partition,
                offset,
            } => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    // Two calls may write in another order than they were checked; a start never goes back.
                    let start = topic.starts.entry(partition).or_insert(offset);
                    *start = offset.max(*start);
                }
            }
        }
    }

    /// What no change can have written, although every line has its checksum.
    fn absurdity(&self) -> Option<&'static str> {
        let mut names = BTreeSet::new();
        for topic in self.topics.values() {
            if !(1..=TOPIC_PARTITIONS_MAX).contains(&topic.partitions) {
                return Some("it gives a topic a number of partitions that none can have");
            }
            if topic.internal != (topic.name == OFFSETS_TOPIC) {
                return Some("it takes a topic for the group log's, or that for another");
            }
            if !names.insert(&topic.name) {
                return Some("it has two topics of one name");
            }
        }
        None
    }

    fn lines(&self) -> String {
        let mut text = String::new();
        line(&mut text, &Entry::Format { version: FORMAT });
        line(
            &mut text,
            &Entry::ProducerIds {
                next: self.producer_ids_next,
            },
        );
        for (group, configs) in &self.groups {
            line(
                &mut text,
                &Entry::GroupConfigs {
                    group: group.clone(),
                    configs: configs.clone(),
                },
            );
        }
        let mut topics: Vec<_> = self.topics.iter().collect();
        topics.sort_unstable_by_key(|(_, topic)| topic.name.as_str());
        for (id, topic) in topics {
            let Known {
                name,
                partitions,
                internal,
                configs,
                starts,
            } = topic.clone();
            line(
                &mut text,
                &Entry::Topic {
                    id: *id,
                    name,
                    partitions,
                    internal,
                    configs,
                },
            );
            for (partition, offset) in starts {
                line(
                    &mut text,
                    &Entry::Start {
                        id: *id,
                        partition,
                        offset,
                    },
                );
            }
        }
        text
    }
}

fn line(text: &mut String, entry: &Entry) {
    use std::fmt::Write as _;
    // Maps of strings and numbers always serialise.
    let json = serde_json::to_string(entry).unwrap_or_default();
    let _ = writeln!(text, "{:08x} {json}", crc32c::crc32c(json.as_bytes()));
}

fn parse(line: &[u8]) -> Option<Entry> {
    let (crc, json) = line.split_at_checked(9)?;
    let crc = u32::from_str_radix(std::str::from_utf8(&crc[..8]).ok()?, 16).ok()?;
    (crc32c::crc32c(json) == crc).then_some(())?;
    serde_json::from_slice(json).ok()
}

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// The folder, open: syncing it must not fail because others have taken every descriptor.
    held_dir: Option<File>,
    file: Arc<dyn FsFile>,
    bytes: u64,
    /// What the file took when it was last written anew.
    live_bytes: u64,
    facts: Facts,
    /// A sync failed or a write could not be taken back: nothing more is written until a restart.
    failed: bool,
}

impl Journal {
    /// Opens the journal in `dir`, or begins one.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Newer`], [`Error::Io`].
    pub(super) fn open(fs: Arc<dyn Fs>, dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NAME);
        fs.create_dirs(dir)
            .map_err(|e| Error::io("create", dir, e))?;
        match fs.open(&path, Open::Write) {
            Ok(file) => Self::read(fs, dir, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = write_anew(&*fs, dir, &Facts::default())
                    .and_then(|made| fs.sync_dir(dir).map(|()| made));
                let (file, bytes) = made.map_err(|e| Error::io("create", &path, e))?;
                Ok(Self {
                    held_dir: held_dir(&*fs, dir)?,
                    fs,
                    dir: dir.to_owned(),
                    file,
                    bytes,
                    live_bytes: bytes,
                    facts: Facts::default(),
                    failed: false,
                })
            }
            Err(error) => Err(Error::io("open", &path, error)),
        }
    }

    fn read(fs: Arc<dyn Fs>, dir: &Path, mut file: Arc<dyn FsFile>) -> Result<Self, Error> {
        let path = dir.join(NAME);
        let io = |e| Error::io("read", &path, e);
        let size = file.size().map_err(io)?;
        let mut bytes =
            vec![0; usize::try_from(size).map_err(|_| io(io::ErrorKind::FileTooLarge.into()))?];
        let count = file.read_at(&mut bytes, 0).map_err(io)?;
        bytes.truncate(count);
        let mut facts = Facts::default();
        let mut format = FORMAT;
        let mut at = 0;
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let entry = line.strip_suffix(b"\n").and_then(parse);
            match entry {
                Some(Entry::Format { version }) if version > FORMAT => {
                    return Err(Error::Newer {
                        path,
                        found: version,
                        known: FORMAT,
                    });
                }
                Some(Entry::Format { version }) => format = version,
                Some(entry) => facts.take(entry),
                // A crash leaves lines of one unsynced change behind; nothing whole can stand after them.
                None if at > 0
                    && !lines.any(|line| line.strip_suffix(b"\n").and_then(parse).is_some()) =>
                {
                    tracing::warn!(file = %path.display(), bytes = bytes.len() - at, "cut what a crash left half written");
                    file.truncate(at as u64)
                        .and_then(|()| file.sync_all())
                        .map_err(|e| Error::io("cut", &path, e))?;
                    break;
                }
                None => {
                    return Err(Error::damaged(
                        &path,
                        at as u64,
                        "a line does not match its checksum",
                    ));
                }
            }
            at += line.len();
        }
        if let Some(what) = facts.absurdity() {
            return Err(Error::damaged(&path, 0, what));
        }
        if format < FORMAT {
            // Whoever knows that format only must not take the next change for damage.
            let made =
                write_anew(&*fs, dir, &facts).and_then(|made| fs.sync_dir(dir).map(|()| made));
            let (anew, bytes) = made.map_err(|e| Error::io("write anew", &path, e))?;
            (file, at) = (anew, bytes as usize);
        }
        let live_bytes = facts.lines().len() as u64;
        Ok(Self {
            held_dir: held_dir(&*fs, dir)?,
            fs,
            dir: dir.to_owned(),
            file,
            bytes: at as u64,
            live_bytes,
            facts,
            failed: false,
        })
    }

    /// What holds.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Makes facts durable, all of them; a crash before this returns may keep some.
    ///
    /// # Errors
    /// KAFKA_STORAGE_ERROR; nothing changed. After a failed sync every write is refused until a restart.
    pub(super) fn write(&mut self, entries: &[Entry]) -> Result<(), Refusal> {
        if entries.is_empty() {
            return Ok(());
        }
        let refuse = |message: String| Refusal::new(ResponseError::KafkaStorageError, message);
        if self.failed {
            return Err(refuse("An earlier write to the topic journal failed; see the server's log, then restart it.".to_owned()));
        }
        let mut text = String::new();
        match entries {
            [entry] => line(&mut text, entry),
            several => {
                let facts = several.to_vec();
                line(&mut text, &Entry::All { facts });
            }
        }
        let path = self.dir.join(NAME);
        if let Err(error) = self.file.write_at(&[text.as_bytes()], self.bytes) {
            self.failed = self.file.truncate(self.bytes).is_err();
            tracing::error!(file = %path.display(), %error, "cannot write; the change is refused");
            return Err(refuse(format!("Cannot write the topic journal: {error}")));
        }
        if let Err(error) = self.file.sync_data() {
            // Nobody can tell what is on the disk now. What is refused should not be there after a restart.
            self.failed = true;
            let _ = self.file.truncate(self.bytes);
            tracing::error!(file = %path.display(), %error, "cannot sync; no change is taken until a restart");
            return Err(refuse(format!("Cannot sync the topic journal: {error}")));
        }
        self.bytes += text.len() as u64;
        entries
            .iter()
            .for_each(|entry| self.facts.take(entry.clone()));
        if self.bytes > REWRITE_BYTES_MIN && self.bytes > 2 * self.live_bytes {
            self.rewrite();
        }
        Ok(())
    }

    /// Writes the file anew with what still holds. A failure leaves the old one in place.
    fn rewrite(&mut self) {
        match write_anew(&*self.fs, &self.dir, &self.facts) {
            Ok((file, bytes)) => {
                self.file = file;
                self.bytes = bytes;
                self.live_bytes = bytes;
                let synced = match &self.held_dir {
                    Some(dir) => dir.sync_all(),
                    None => self.fs.sync_dir(&self.dir),
                };
                if let Err(error) = synced {
                    // After a crash either file may be there; what is written from now on is in one of them only.
                    self.failed = true;
                    tracing::error!(folder = %self.dir.display(), %error, "cannot sync; no change is taken until a restart");
                }
            }
            Err(error) => {
                tracing::warn!(folder = %self.dir.display(), %error, "cannot write the topic journal anew; it goes on growing");
                self.live_bytes = self.bytes;
            }
        }
    }
}

fn held_dir(fs: &dyn Fs, dir: &Path) -> Result<Option<File>, Error> {
    fs.hold_dir(dir).map_err(|e| Error::io("open", dir, e))
}

/// Writes the file with what holds and puts it in place; the folder is not synced yet.
fn write_anew(fs: &dyn Fs, dir: &Path, facts: &Facts) -> io::Result<(Arc<dyn FsFile>, u64)> {
    let path = dir.join(NAME);
    let temporary = path.with_extension("tmp");
    match fs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let text = facts.lines();
    let file = fs.open(&temporary, Open::Create)?;
    file.write_at(&[text.as_bytes()], 0)?;
    file.sync_all()?;
    fs.rename(&temporary, &path)?;
    Ok((file, text.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryFs;
    use super::*;
    use crate::log::fault_fs::{FaultFs, Survive};

    fn topic(number: u128) -> Entry {
        Entry::Topic {
            id: Uuid::from_u128(number),
            name: format!("t{number}"),
            partitions: 2,
            internal: false,
            configs: BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]),
        }
    }

    fn open(fs: &Arc<MemoryFs>) -> Journal {
        Journal::open(Arc::clone(fs) as Arc<dyn Fs>, Path::new("/data")).unwrap()
    }

    #[test]
    fn a_journal_that_says_what_cannot_be_is_refused() {
        let twin = |number: u128, name: &str, partitions: i32, internal: bool| Entry::Topic {
            id: Uuid::from_u128(number),
            name: name.to_owned(),
            partitions,
            internal,
            configs: BTreeMap::new(),
        };
        for entries in [
            vec![twin(1, "t", 1, false), twin(2, "t", 1, false)],
            vec![twin(1, OFFSETS_TOPIC, 1, false)],
            vec![twin(1, "t", 1, true)],
            vec![twin(1, "t", 0, false)],
            vec![twin(1, "t", i32::MAX, false)],
            vec![
                twin(1, "t", 1, false),
                Entry::Partitions {
                    id: Uuid::from_u128(1),
                    count: -1,
                },
            ],
        ] {
            let fs = Arc::new(MemoryFs::default());
            open(&fs).write(&entries).unwrap();
            let shared = Arc::clone(&fs) as Arc<dyn Fs>;
            let error = Journal::open(shared, Path::new("/data")).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
        }
        let fs = Arc::new(MemoryFs::default());
        let gone = Entry::Deleted {
            id: Uuid::from_u128(1),
        };
        let again = twin(2, "t", 1, false);
        let entries = [
            twin(1, "t", 1, false),
            gone,
            again,
            twin(3, OFFSETS_TOPIC, 50, true),
        ];
        open(&fs).write(&entries).unwrap();
        assert_eq!(open(&fs).facts().topics.len(), 2);
    }

    #[test]
    fn what_was_written_is_there_after_opening_again() {
        let fs = Arc::new(MemoryFs::default());
        let mut journal = open(&fs);
        let id = Uuid::from_u128(1);
        journal
            .write(&[topic(1), topic(2), Entry::ProducerIds { next: 1000 }])
            .unwrap();
        journal
            .write(&[
                Entry::Partitions { id, count: 9 },
                Entry::Start {
                    id,
                    partition: 3,
                    offset: 77,
                },
            ])
            .unwrap();
        journal
            .write(&[Entry::Deleted {
                id: Uuid::from_u128(2),
            }])
            .unwrap();
        let group = BTreeMap::from([("a".to_owned(), "\"ü\n".to_owned())]);
        journal
            .write(&[Entry::GroupConfigs {
                group: "g\n".to_owned(),
                configs: group,
            }])
            .unwrap();
        let again = open(&fs);
        assert_eq!(again.facts(), journal.facts());
        assert_eq!(again.facts().topics[&id].starts[&3], 77);
        let late = Entry::Start {
            id,
            partition: 3,
            offset: 70,
        };
        open(&fs).write(&[late]).unwrap();
        assert_eq!(open(&fs).facts().topics[&id].starts[&3], 77);
        assert_eq!(
            (
                again.facts().topics.len(),
                again.facts().topics[&id].partitions
            ),
            (1, 9)
        );
    }

    #[test]
    fn a_torn_end_is_cut_and_damage_before_it_refuses() {
        let fs = Arc::new(MemoryFs::default());
        open(&fs).write(&[topic(1)]).unwrap();
        let file = fs
            .open(Path::new("/data/topics.journal"), Open::Write)
            .unwrap();
        let good = file.size().unwrap();
        file.write_at(&[b"00000000 {\"topic\":\nhalf a li"], good)
            .unwrap();
        let mut journal = open(&fs);
        assert_eq!(
            (journal.facts().topics.len(), file.size().unwrap()),
            (1, good)
        );
        journal.write(&[topic(2)]).unwrap();
        file.write_at(&[b"X"], good - 20).unwrap();
        assert!(matches!(
            Journal::open(fs, Path::new("/data")),
            Err(Error::Damaged { .. })
        ));
    }

    #[test]
    fn a_journal_of_an_older_format_is_written_anew() {
        let fs = Arc::new(MemoryFs::default());
        let dir = Path::new("/data");
        fs.create_dirs(dir).unwrap();
        let file = fs.open(&dir.join(NAME), Open::Create).unwrap();
        let mut text = String::new();
        for entry in [Entry::Format { version: 1 }, topic(1), topic(2)] {
            line(&mut text, &entry);
        }
        file.write_at(&[text.as_bytes()], 0).unwrap();
        let mut journal = open(&fs);
        journal.write(&[topic(3), topic(4)]).unwrap();
        assert_eq!(journal.facts().topics.len(), 4);
        assert_eq!(open(&fs).facts(), journal.facts());
        let mut bytes = vec![0; 64];
        let file = fs.open(&dir.join(NAME), Open::Read).unwrap();
        file.read_at(&mut bytes, 0).unwrap();
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap();
        assert_eq!(parse(first), Some(Entry::Format { version: FORMAT }));
    }

    #[test]
    fn a_change_of_several_facts_that_a_power_cut_tears_is_there_or_is_cut() {
        let fs = FaultFs::recording();
        let open = |fs: &FaultFs| Journal::open(fs.shared(), Path::new("/data")).unwrap();
        let mut journal = open(&fs);
        let before = fs.op_count();
        // Long enough to lie in several sectors.
        let topics: Vec<Entry> = (1..=12).map(topic).collect();
        journal.write(&topics).unwrap();
        for op_count in before..=fs.op_count() {
            for seed in 0..200 {
                let cut = fs.after_cut(op_count, Survive::Some(seed));
                let found = open(&cut).facts().topics.len();
                assert!([0, 12].contains(&found), "{found} topics, seed {seed}");
                let mut again = open(&cut);
                again.write(&[topic(99)]).unwrap();
                assert_eq!(open(&cut).facts(), again.facts());
            }
        }
    }

    #[test]
    fn many_changes_do_not_make_the_file_grow_for_ever() {
        let fs = Arc::new(MemoryFs::default());
        let mut journal = open(&fs);
        for next in 0..20_000 {
            journal.write(&[Entry::ProducerIds { next }]).unwrap();
        }
        assert!(
            journal.bytes <= REWRITE_BYTES_MIN + 100,
            "{}",
            journal.bytes
        );
        assert_eq!(open(&fs).facts().producer_ids_next, 19_999);
    }

    #[test]
    fn creating_many_topics_writes_bytes_in_proportion() {
        let fs = Arc::new(MemoryFs::default());
        let mut journal = open(&fs);
        let mut rewritten = 0;
        for number in 0..5_000 {
            let before = journal.bytes;
            journal.write(&[topic(number)]).unwrap();
            rewritten += if journal.bytes < before {
                journal.bytes
            } else {
                0
            };
        }
        assert!(
            rewritten <= 2 * journal.bytes,
            "{rewritten} of {}",
            journal.bytes
        );
    }
}
