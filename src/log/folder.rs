//! The data folder: who holds it, in which format, and which cluster it is. What lies in its rooms is theirs.
//!
//! ```text
//! convoke.meta   this file's facts, as text
//! convoke.lock   held while a process runs
//! group/         the group log
//! topics/        the topic data
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::Error;
use super::fs::{Fs, Lock, Open, salt};

const META: &str = "convoke.meta";
const META_NEW: &str = "convoke.meta.tmp";
const LOCK: &str = "convoke.lock";
/// The format written, and the newest one read.
const FORMAT: u32 = 1;
/// Far more than the meta file ever has.
const META_BYTES_MAX: u64 = 64 << 10;
/// What a fresh volume may hold without being someone else's data.
const IGNORED: [&str; 2] = ["lost+found", LOCK];

/// What a data folder is asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderOptions {
    /// `offsets.topic.num.partitions`: fixed when the folder is created.
    pub partition_count: u16,
    /// `node.id`: fixed when the folder is created.
    pub node_id: i32,
}

/// Who the folder's server is, for as long as the folder lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// 22 letters of base64url, drawn when the folder was created.
    pub cluster_id: String,
    /// `node.id`.
    pub node_id: i32,
}

impl Identity {
    /// A new identity, for a new folder or a server in memory.
    pub fn draw(node_id: i32) -> Self {
        Self {
            cluster_id: draw_cluster_id(),
            node_id,
        }
    }
}

/// A data folder that this process holds.
#[derive(Debug)]
pub struct Folder {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    identity: Identity,
    partition_count: u16,
    _lock: Lock,
}

impl Folder {
    /// Takes the folder, creating it if absent.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::NotOurs`], [`Error::Newer`], [`Error::Differs`], [`Error::Damaged`],
    /// [`Error::NoRoom`], [`Error::Io`].
    pub fn open(fs: Arc<dyn Fs>, path: &Path, options: FolderOptions) -> Result<Self, Error> {
        create(&*fs, path)?;
        // Look before locking: a folder of someone else is left untouched.
        let ours = is_ours(&*fs, path)?;
        let lock = path.join(LOCK);
        let lock = fs
            .try_lock(&lock)
            .map_err(|e| Error::room("lock", &lock, 0, e))?;
        let lock = lock.ok_or_else(|| Error::InUse {
            path: path.to_owned(),
        })?;
        let meta = if ours {
            Meta::read(&*fs, path)?
        } else {
            Meta::create(&*fs, path, options)?
        };
        let differs = |key, stored: String, asked: String| Error::Differs {
            path: path.to_owned(),
            key,
            stored,
            asked,
        };
        if meta.partition_count != options.partition_count {
            let (stored, asked) = (
                meta.partition_count.to_string(),
                options.partition_count.to_string(),
            );
            return Err(differs("offsets.topic.num.partitions", stored, asked));
        }
        if meta.identity.node_id != options.node_id {
            return Err(differs(
                "node.id",
                meta.identity.node_id.to_string(),
                options.node_id.to_string(),
            ));
        }
        Ok(Self {
            fs,
            path: path.to_owned(),
            identity: meta.identity,
            partition_count: meta.partition_count,
            _lock: lock,
        })
    }

    /// Who the folder's server is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// How many partitions the group log has.
    pub fn partition_count(&self) -> u16 {
        self.partition_count
    }

    /// The file system it lies on.
    pub fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the group log lies.
    pub fn group_dir(&self) -> PathBuf {
        self.path.join("group")
    }

    /// Where the topic data lies; the broker creates it.
    pub fn topics_dir(&self) -> PathBuf {
        self.path.join("topics")
    }
}

/// Creates the folder and those above it, so that a power cut takes none of them back.
fn create(fs: &dyn Fs, path: &Path) -> Result<(), Error> {
    let above = path.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    let missing: Vec<&Path> = above.take_while(|dir| fs.list(dir).is_err()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs.create_dirs(path)
        .map_err(|e| Error::room("create", path, 0, e))?;
    for dir in missing.iter().rev().filter_map(|dir| dir.parent()) {
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
    }
    Ok(())
}

/// Whether the folder has a meta file; an error if it has other things but none.
fn is_ours(fs: &dyn Fs, path: &Path) -> Result<bool, Error> {
    let names = fs.list(path).map_err(|e| Error::io("list", path, e))?;
    if names.iter().any(|name| name == META) {
        return Ok(true);
    }
    match names
        .iter()
        .find(|name| !IGNORED.contains(&name.as_str()) && *name != META_NEW)
    {
        Some(name) => Err(Error::NotOurs {
            path: path.to_owned(),
            found: format!("it holds {name} but no {META}"),
        }),
        None => Ok(false),
    }
}

struct Meta {
    identity: Identity,
    partition_count: u16,
}

impl Meta {
    fn create(fs: &dyn Fs, dir: &Path, options: FolderOptions) -> Result<Self, Error> {
        let meta = Self {
            identity: Identity::draw(options.node_id),
            partition_count: options.partition_count,
        };
        let new = dir.join(META_NEW);
        if fs
            .list(dir)
            .map_err(|e| Error::io("list", dir, e))?
            .iter()
            .any(|name| name == META_NEW)
        {
            fs.remove(&new).map_err(|e| Error::io("remove", &new, e))?;
        }
        let text = meta.text();
        let room = |e| Error::room("write", &new, text.len() as u64, e);
        let file = fs.open(&new, Open::Create).map_err(room)?;
        file.write_at(&[text.as_bytes()], 0).map_err(room)?;
        file.sync_all().map_err(room)?;
        fs.rename(&new, &dir.join(META))
            .map_err(|e| Error::io("rename", &new, e))?;
        fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))?;
        Ok(meta)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "format={FORMAT}\npartitions={}\ncluster.id={}\nnode.id={}\n",
            self.partition_count, self.identity.cluster_id, self.identity.node_id
        );
        let crc = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c={crc:08x}");
        text
    }

    fn read(fs: &dyn Fs, dir: &Path) -> Result<Self, Error> {
        let path = dir.join(META);
        let io = |e| Error::io("read", &path, e);
        let file = fs.open(&path, Open::Read).map_err(io)?;
        let mut bytes = vec![0; file.size().map_err(io)?.min(META_BYTES_MAX) as usize];
        let count = file.read_at(&mut bytes, 0).map_err(io)?;
        bytes.truncate(count);
        let text = String::from_utf8_lossy(&bytes);
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        };
        let damaged = |what: &str| Error::damaged(&path, 0, what);
        let format = value("format")
            .and_then(|format| format.parse().ok())
            .ok_or_else(|| damaged("no format in it"))?;
        let (body, crc) = text
            .rsplit_once("crc32c=")
            .ok_or_else(|| damaged("no checksum in it"))?;
        if u32::from_str_radix(crc.trim(), 16) != Ok(crc32c::crc32c(body.as_bytes())) {
            return Err(damaged("its checksum does not match"));
        }
        if format > FORMAT {
            return Err(Error::Newer {
                path: path.clone(),
                found: format,
                known: FORMAT,
            });
        }
        let number = |key: &str| value(key).and_then(|number| number.parse::<i32>().ok());
        let partition_count = number("partitions").and_then(|count| u16::try_from(count).ok());
        Ok(Self {
            identity: Identity {
                cluster_id: value("cluster.id")
                    .ok_or_else(|| damaged("no cluster.id in it"))?
                    .to_owned(),
                node_id: number("node.id").ok_or_else(|| damaged("no node.id in it"))?,
            },
            partition_count: partition_count.ok_or_else(|| damaged("no partitions in it"))?,
        })
    }
}

/// 16 random bytes as Kafka writes a uuid: base64url without padding, never with a leading dash.
fn draw_cluster_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    loop {
        // The version and variant bits of a random uuid.
        let bits = (u128::from(salt()) << 64 | u128::from(salt())) & !(0xf << 76 | 0b11 << 62)
            | 0x4 << 76
            | 0b10 << 62;
        let letter = |at: u32| match at {
            21 => bits << 4,
            _ => bits >> (122 - 6 * at),
        };
        let id: String = (0..22)
            .map(|at| char::from(LETTERS[(letter(at) & 63) as usize]))
            .collect();
        if !id.starts_with('-') {
            return id;
        }
    }
}
