//! The arrows between rooms: who may name whom. Read from the sources, because inside one crate nobody else forbids it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A room and the rooms it may name. Above stands what is built on what is below.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "admin", "server", "client", "config", "log", "sim", "desk", "wire", "group", "broker",
        ],
    ),
    ("admin", &["server", "config", "group", "wire", "broker"]),
    (
        "server",
        &["broker", "config", "desk", "log", "wire", "group"],
    ),
    ("broker", &["log"]),
    ("client", &[]),
    ("config", &[]),
    ("log", &[]),
    ("sim", &["broker", "desk", "log", "wire", "group"]),
    ("desk", &["broker", "group"]),
    ("wire", &["group"]),
    ("group", &[]),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The room a file lies in: the first part of its path below `src`.
fn room(path: &Path, src: &Path) -> String {
    let below = path.strip_prefix(src).unwrap();
    let first = below
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Rooms that a line of code names, as `crate::room` or, in the binary, `convoke::room`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    ["crate::", "convoke::"]
        .into_iter()
        .flat_map(move |prefix| {
            code.split(prefix).skip(1).map(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                &rest[..end.unwrap_or(rest.len())]
            })
        })
}

#[test]
fn every_room_names_only_rooms_below_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let rooms: BTreeSet<&str> = MAY_NAME.iter().map(|(room, _)| *room).collect();
    let mut wrong = Vec::new();
    for file in &files {
        let room = room(file, &src);
        if room == "lib" {
            continue;
        }
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!(
                "{}: the table does not know the room {room}",
                file.display()
            ));
            continue;
        };
        let text = fs::read_to_string(file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for other in named(line) {
                if rooms.contains(other) && other != room && !allowed.contains(&other) {
                    wrong.push(format!(
                        "{}:{}: {room} names {other}",
                        file.display(),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_planted_arrow_is_seen() {
    let line = "use crate::server::Server; // crate::cli does not count";
    assert_eq!(named(line).collect::<Vec<_>>(), ["server"]);
}
