//! What is read of groups, as tables for people or as the server's JSON.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Value, json};

use super::{Backup, Caps, List, Preview, Settings};
use crate::cli::Error;
use crate::cli::remote::{Remote, part};
use crate::cli::table::{Table, cell, plain, span, time};

/// Rebalances that `describe` shows; `rebalances` shows all.
const REBALANCES_SHOWN: usize = 3;

/// Asks and tells.
pub(in crate::cli) struct Teller<'a> {
    pub(in crate::cli) remote: &'a Remote,
    /// As JSON.
    pub(in crate::cli) json: bool,
}

/// The items of a list; none if it is none.
pub(in crate::cli) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `t:0,1 u:3` of partitions by topic.
pub(super) fn partitions(value: &Value) -> String {
    let topic = |topic: &Value| {
        let numbers: Vec<String> = items(&topic["partitions"]).iter().map(cell).collect();
        format!("{}:{}", cell(&topic["topic"]), numbers.join(","))
    };
    let topics: Vec<String> = items(value).iter().map(topic).collect();
    if topics.is_empty() {
        return "-".to_owned();
    }
    topics.join(" ")
}

/// A member in a sentence or a cell.
fn member(value: &Value) -> String {
    match (&value["instance_id"], &value["member_id"]) {
        (Value::String(id), _) | (_, Value::String(id)) => id.clone(),
        _ => "-".to_owned(),
    }
}

/// Who touched an offset, and from where.
fn toucher(value: &Value) -> String {
    if value.is_null() {
        return "-".to_owned();
    }
    let how = match value["member_id"].is_null() {
        true => " (assign)",
        false => "",
    };
    format!(
        "{}@{}{how}",
        cell(&value["client_id"]),
        cell(&value["client_host"]).trim_start_matches('/')
    )
}

impl Teller<'_> {
    /// Prints an answer. A reader that has gone is no failure.
    pub(in crate::cli) fn tell(
        &self,
        answer: &Value,
        table: impl Fn(&Value) -> String,
    ) -> Result<(), Error> {
        let text = if self.json {
            let text = serde_json::to_string_pretty(answer);
            text.unwrap_or_else(|_| answer.to_string()) + "\n"
        } else {
            table(answer)
        };
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        Ok(())
    }

    fn group(&self, group: &str, rest: &str) -> Result<Value, Error> {
        Ok(self
            .remote
            .get(&format!("/v1/groups/{}{rest}", part(group)))?)
    }

    /// All pages of a list, put together.
    pub(in crate::cli) fn pages(
        &self,
        path: &str,
        name: &str,
        query: &str,
        limit: Option<usize>,
    ) -> Result<Value, Error> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let left = limit.map_or(10_000, |limit| {
                limit.saturating_sub(all.len()).clamp(1, 10_000)
            });
            let mut page = self
                .remote
                .get(&format!("{path}?limit={left}{query}{after}"))?;
            if let Value::Array(rows) = page[name].take() {
                all.extend(rows);
            }
            let next = page["next"].as_str().map(part);
            if let (Some(next), true) = (next, limit.is_none_or(|limit| all.len() < limit)) {
                after = format!("&after={next}");
                continue;
            }
            page[name] = all.into();
            return Ok(page);
        }
    }

    pub(super) fn list(&self, list: &List) -> Result<(), Error> {
        let mut query = String::new();
        for (name, value) in [
            ("prefix", &list.prefix),
            ("state", &list.state),
            ("kind", &list.kind),
        ] {
            if let Some(value) = value {
                let _ = write!(query, "&{name}={}", part(value));
            }
        }
        let answer = self.pages("/v1/groups", "groups", &query, list.limit)?;
        self.tell(&answer, |answer| {
            let mut table = Table::new(&[
                "GROUP",
                "KIND",
                "STATE",
                "EPOCH",
                "MEMBERS",
                "LAG",
                "BEHIND",
                "REBALANCES",
                "LAST-REBALANCE",
                "NOTES",
            ]);
            for row in items(&answer["groups"]) {
                let notes = [
                    ("is_stormy", "stormy"),
                    ("is_paused", "paused"),
                    ("has_conflict", "conflict"),
                ];
                let notes = notes.iter().filter(|(name, _)| row[*name] == true);
                let notes: Vec<&str> = notes.map(|(_, note)| *note).collect();
                table.row([
                    cell(&row["group_id"]),
                    cell(&row["kind"]),
                    cell(&row["state"]),
                    cell(&row["epoch"]),
                    cell(&row["member_count"]),
                    cell(&row["lag"]["records"]),
                    span(&row["lag"]["ms"]),
                    cell(&row["rebalance_count"]),
                    time(&row["rebalanced_at_ms"]),
                    cell(&notes.join(",").into()),
                ]);
            }
            format!(
                "{table}{} groups, {} members\n",
                answer["counts"]["groups"], answer["counts"]["members"]
            )
        })
    }

    pub(super) fn describe(&self, group: &str) -> Result<(), Error> {
        self.tell(&self.group(group, "")?, described)
    }

    pub(super) fn rebalances(&self, group: &str) -> Result<(), Error> {
        let answer = self.group(group, "/rebalances")?;
        self.tell(&answer, |answer| {
            let storm = answer["storm"].as_str().map(|storm| plain(storm) + "\n");
            storm.unwrap_or_default() + &rebalances(items(&answer["rebalances"]))
        })
    }

    pub(super) fn commits(&self, group: &str) -> Result<(), Error> {
        self.tell(&self.group(group, "/commits")?, commits)
    }

    pub(super) fn audit(&self, group: &str) -> Result<(), Error> {
        let answer = self.group(group, "/audit")?;
        self.tell(&answer, |answer| {
            let mut table = Table::new(&["AT", "TOPIC", "PARTITION", "FROM", "TO", "WHO", "HOW"]);
            for row in items(&answer["audit"]) {
                let rest =
                    ["topic", "partition", "from", "to", "who", "how"].map(|name| cell(&row[name]));
                table.row([time(&row["at_ms"])].into_iter().chain(rest));
            }
            table.to_string()
        })
    }

    pub(super) fn lag(&self, group: Option<&str>) -> Result<(), Error> {
        if let Some(group) = group {
            return self.commits(group);
        }
        self.tell(&self.remote.get("/v1/lag")?, |answer| {
            let mut table = Table::new(&["GROUP", "PARTITIONS", "LAG", "BEHIND"]);
            for row in items(&answer["groups"]) {
                table.row([
                    cell(&row["group_id"]),
                    cell(&row["partitions"]),
                    cell(&row["records"]),
                    span(&row["ms"]),
                ]);
            }
            table.to_string()
        })
    }

    pub(super) fn preview(&self, preview: &Preview) -> Result<(), Error> {
        let members = preview.without.iter().map(|id| json!({"member_id": id}));
        let clients = preview
            .without_client
            .iter()
            .map(|id| json!({"client_id": id}));
        let topics = preview.topic.iter();
        let topics = topics.map(|(topic, count)| json!({"topic": topic, "partitions": count}));
        let body = json!({
            "members_added": preview.add,
            "members_removed": members.chain(clients).collect::<Vec<_>>(),
            "topics": topics.collect::<Vec<_>>(),
            "assignor": preview.assignor,
        });
        let path = format!("/v1/groups/{}/preview", part(&preview.group));
        self.tell(&self.remote.ask("POST", &path, Some(&body))?, |answer| {
            let mut members = Table::new(&["MEMBER", "CLIENT", "WOULD-OWN"]);
            for row in items(&answer["members"]) {
                let who = &row["member"];
                members.row([
                    member(who),
                    cell(&who["client_id"]),
                    partitions(&row["owned"]),
                ]);
            }
            let moved = items(&answer["moves"]);
            format!(
                "{members}\n{}{} would move, {} would stay, by {}\n",
                moves(moved),
                moved.len(),
                answer["stayed_count"],
                cell(&answer["assignor"])
            )
        })
    }

    /// A backup is JSON either way.
    pub(super) fn backup(&self, backup: &Backup) -> Result<(), Error> {
        let answer = self.group(&backup.group, "/offsets")?;
        let Some(file) = &backup.output else {
            let json = Self {
                json: true,
                ..*self
            };
            return json.tell(&answer, |_| String::new());
        };
        let text = serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n";
        std::fs::write(file, text)?;
        let count = items(&answer["offsets"]).len();
        let mut err = std::io::stderr();
        let _ = writeln!(err, "{count} offsets in {}", file.display());
        Ok(())
    }

    pub(super) fn settings(&self, settings: &Settings) -> Result<(), Error> {
        let mut body = json!({});
        for (name, value) in [
            ("offsets_retention_ms", settings.offsets_retention_ms),
            ("members_max", settings.members_max),
            ("offsets_max", settings.offsets_max),
        ] {
            if let Some(value) = value {
                body[name] = value.0.into();
            }
        }
        let path = format!("/v1/groups/{}/settings", part(&settings.group));
        let answer = if body == json!({}) {
            self.remote.get(&path)?
        } else {
            let path = format!("{path}?dry_run={}", settings.dry_run);
            self.remote.ask("PUT", &path, Some(&body))?
        };
        self.tell(&answer, |answer| {
            let mut table = Table::new(&["SETTING", "VALUE"]);
            for name in ["offsets_retention_ms", "members_max", "offsets_max"] {
                let value = match &answer[name] {
                    Value::Null => "default".to_owned(),
                    value => cell(value),
                };
                table.row([name.to_owned(), value]);
            }
            table.to_string()
        })
    }
}

impl Teller<'_> {
    /// Those that are named change; the server takes all of them at once.
    pub(super) fn caps(&self, caps: &Caps) -> Result<(), Error> {
        let mut answer = self.remote.get("/v1/caps")?;
        if caps.groups_max.is_some() || !caps.prefix.is_empty() {
            if let Some(max) = caps.groups_max {
                answer["groups_max"] = max.0.into();
            }
            let mut prefixes = items(&answer["prefixes"]).to_vec();
            for (prefix, max) in &caps.prefix {
                prefixes.retain(|cap| cap["prefix"] != **prefix);
                if let Some(max) = max.0 {
                    prefixes.push(json!({"prefix": prefix, "groups_max": max}));
                }
            }
            answer["prefixes"] = prefixes.into();
            let path = format!("/v1/caps?dry_run={}", caps.dry_run);
            answer = self.remote.ask("PUT", &path, Some(&answer))?;
        }
        self.tell(&answer, |answer| {
            let mut table = Table::new(&["GROUPS", "MAX"]);
            table.row(["all".to_owned(), cell(&answer["groups_max"])]);
            for cap in items(&answer["prefixes"]) {
                table.row([
                    format!("{}*", cell(&cap["prefix"])),
                    cell(&cap["groups_max"]),
                ]);
            }
            table.to_string()
        })
    }
}

fn commits(answer: &Value) -> String {
    let mut table = Table::new(&[
        "TOPIC",
        "PARTITION",
        "OFFSET",
        "END",
        "LAG",
        "BEHIND",
        "COMMITTED",
        "BY",
        "OWNER",
    ]);
    for row in items(&answer["commits"]) {
        table.row([
            cell(&row["topic"]),
            cell(&row["partition"]),
            cell(&row["offset"]),
            cell(&row["end_offset"]),
            cell(&row["lag_records"]),
            span(&row["lag_ms"]),
            time(&row["committed_at_ms"]),
            toucher(&row["committed_by"]),
            cell(&row["owner"]),
        ]);
    }
    table.to_string()
}

fn moves(moves: &[Value]) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["TOPIC", "PARTITION", "FROM", "TO"]);
    for row in moves {
        table.row(["topic", "partition", "from", "to"].map(|name| cell(&row[name])));
    }
    format!("{table}\n")
}

fn rebalances(rows: &[Value]) -> String {
    let mut table = Table::new(&[
        "BEGAN", "EPOCH", "TOOK", "OUTCOME", "MOVED", "STAYED", "WHY",
    ]);
    for row in rows {
        let ended = row["ended_at_ms"].as_i64();
        let began = row["began_at_ms"].as_i64();
        let took = ended
            .zip(began)
            .map(|(ended, began)| ended.saturating_sub(began));
        table.row([
            time(&row["began_at_ms"]),
            format!("{}→{}", row["from_epoch"], row["to_epoch"]),
            span(&took.into()),
            cell(&row["outcome"]),
            cell(&row["moved_count"]),
            cell(&row["stayed_count"]),
            cell(&row["why"]),
        ]);
    }
    table.to_string()
}

fn described(answer: &Value) -> String {
    let summary = &answer["summary"];
    let mut text = format!(
        "{}: {} group, {}, epoch {}, assignor {}\n",
        plain(&cell(&summary["group_id"])),
        cell(&summary["kind"]),
        cell(&summary["state"]),
        summary["epoch"],
        plain(&cell(&answer["assignor"])),
    );
    let lag = &summary["lag"];
    if !lag.is_null() {
        let _ = writeln!(
            text,
            "{} records behind ({})",
            lag["records"],
            span(&lag["ms"])
        );
    }
    for (says, name) in [("Running", "operation"), ("Storm", "storm")] {
        if let Some(sentence) = answer[name].as_str() {
            let _ = writeln!(text, "{says}: {}", plain(sentence));
        }
    }
    if summary["is_paused"] == true {
        text += "Paused: members own nothing until it is resumed.\n";
    }
    for row in items(&answer["conflicts"]) {
        let clients: Vec<String> = items(&row["clients"]).iter().map(toucher).collect();
        let clients = plain(&clients.join(" and "));
        let _ = writeln!(
            text,
            "Conflict: {clients} both commit to {}:{}",
            cell(&row["topic"]),
            row["partition"]
        );
    }
    if !items(&answer["gaps"]).is_empty() {
        let _ = writeln!(
            text,
            "Nobody consumes {}",
            plain(&partitions(&answer["gaps"]))
        );
    }
    for row in items(&answer["flapping"]) {
        let _ = writeln!(
            text,
            "{} came and went {} times",
            plain(&member(&row["member"])),
            row["count"]
        );
    }
    for row in items(&answer["banned"]) {
        let names = ["member_id", "instance_id", "client_id"];
        let who = names
            .iter()
            .find_map(|name| row[*name].as_str())
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "{} is kept out until {}",
            plain(who),
            time(&row["until_ms"])
        );
    }
    let mut members = Table::new(&["MEMBER", "CLIENT", "HOST", "STATE", "EPOCH", "SEEN", "OWNS"]);
    for row in items(&answer["members"]) {
        let who = &row["member"];
        members.row([
            member(who),
            cell(&who["client_id"]),
            cell(&who["client_host"]),
            cell(&row["state"]),
            cell(&row["epoch"]),
            time(&row["seen_at_ms"]),
            partitions(&row["owned"]),
        ]);
    }
    if !members.is_empty() {
        let _ = write!(text, "\n{members}");
    }
    if !items(&answer["commits"]).is_empty() {
        let _ = write!(text, "\n{}", commits(answer));
    }
    let rows = items(&answer["rebalances"]);
    if !rows.is_empty() {
        let _ = write!(
            text,
            "\n{}",
            rebalances(&rows[..rows.len().min(REBALANCES_SHOWN)])
        );
    }
    text
}
