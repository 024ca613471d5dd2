//! Actions: what is asked of the server, the dry run that is shown first, and the question before it is done.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use serde_json::{Value, json};

use super::show::{Teller, partitions};
use super::{CloneGroup, Drain, How, Kick, Plain, Reset, Restore, Who};
use crate::cli::Error;
use crate::cli::remote::part;
use crate::cli::table::{Table, cell, plain};

/// What is asked of the server.
#[derive(Debug)]
pub(super) struct Action {
    method: &'static str,
    path: String,
    /// Goes with the request; carries `dry_run`, unless that stands in the query.
    body: Option<Value>,
    /// Whether `dry_run` stands in the query.
    in_query: bool,
}

impl Action {
    fn post(group: &str, verb: &str, body: Value) -> Self {
        Self {
            method: "POST",
            path: format!("/v1/groups/{}{verb}", part(group)),
            body: Some(body),
            in_query: false,
        }
    }

    /// The request, as a dry run or not.
    fn request(&self, dry_run: bool) -> (String, Option<Value>) {
        let mut body = self.body.clone();
        if self.in_query {
            return (format!("{}?dry_run={dry_run}", self.path), body);
        }
        if let Some(body) = &mut body {
            body["dry_run"] = dry_run.into();
        }
        (self.path.clone(), body)
    }
}

impl Plain {
    pub(super) fn action(&self, method: &'static str, verb: &str) -> Action {
        let action = Action::post(&self.group, verb, json!({}));
        if method == "POST" {
            return action;
        }
        Action {
            method,
            body: None,
            in_query: true,
            ..action
        }
    }
}

impl Reset {
    pub(super) fn action(&self) -> Result<Action, Error> {
        let mut body = json!({});
        body["to"] = if self.to.to_earliest {
            "earliest".into()
        } else if self.to.to_latest {
            "latest".into()
        } else if let Some(time_ms) = self.to.to_datetime {
            json!({"time_ms": time_ms})
        } else if let Some(by) = self.to.shift_by {
            json!({"shift": by})
        } else if let Some(offset) = self.to.to_offset {
            json!({"offset": offset})
        } else if let Some(group) = &self.to.to_group {
            json!({"group": group})
        } else {
            let file = self
                .to
                .from_file
                .as_deref()
                .unwrap_or_else(|| Path::new("-"));
            let mut backup = read(file)?;
            json!({"offsets": backup["offsets"].take()})
        };
        if !self.topic.is_empty() {
            let topics = self.topic.iter().map(|text| chosen(text));
            body["topics"] = topics.collect::<Result<Vec<_>, _>>()?.into();
        }
        Ok(Action::post(&self.group, "/reset", body))
    }
}

/// `TOPIC` or `TOPIC:0,1,2`. A topic's name has no colon.
fn chosen(text: &str) -> Result<Value, Error> {
    let Some((topic, partitions)) = text.split_once(':') else {
        return Ok(text.into());
    };
    let partitions: Result<Vec<i32>, _> = partitions.split(',').map(str::parse).collect();
    let partitions = partitions.map_err(|_| Error::Usage {
        text: format!("--topic {text}: write TOPIC or TOPIC:0,1,2"),
    })?;
    Ok(json!({"topic": topic, "partitions": partitions}))
}

impl Who {
    fn named(&self) -> Vec<Value> {
        let members = self.member.iter().map(|id| json!({"member_id": id}));
        let instances = self.instance.iter().map(|id| json!({"instance_id": id}));
        let clients = self.client.iter().map(|id| json!({"client_id": id}));
        members.chain(instances).chain(clients).collect()
    }
}

impl Kick {
    pub(super) fn action(&self) -> Action {
        let body = json!({"members": self.who.named(), "ban_ms": self.ban_ms});
        Action::post(&self.group, "/kick", body)
    }
}

impl Drain {
    pub(super) fn action(&self) -> Result<Action, Error> {
        let mut named = self.who.named();
        match (named.pop(), named.is_empty()) {
            (Some(member), true) => Ok(Action::post(
                &self.group,
                "/drain",
                json!({"member": member}),
            )),
            _ => Err(Error::Usage {
                text: "drain one member at a time".to_owned(),
            }),
        }
    }
}

impl Restore {
    pub(super) fn action(&self) -> Result<Action, Error> {
        Ok(Action {
            method: "PUT",
            path: format!("/v1/groups/{}/offsets", part(&self.group)),
            body: Some(read(&self.file)?),
            in_query: true,
        })
    }
}

impl CloneGroup {
    pub(super) fn action(&self) -> Action {
        Action::post(&self.group, "/clone", json!({"to": self.to}))
    }
}

/// A file that `backup` wrote.
fn read(file: &Path) -> Result<Value, Error> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    let unusable = |why: String| Error::Usage {
        text: format!("{}: {why}", file.display()),
    };
    read.map_err(|error| unusable(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    if value["offsets"].is_array() {
        return Ok(value);
    }
    Err(unusable("this is no backup: it has no offsets".to_owned()))
}

impl Teller<'_> {
    /// Shows the dry run, asks on a terminal, acts, and shows what was done.
    pub(super) fn act(&self, action: &Action, how: &How) -> Result<(), Error> {
        if how.dry_run {
            return self.operated(&self.request(action, true)?);
        }
        if !how.yes && std::io::stdin().is_terminal() {
            let text = table(&self.request(action, true)?);
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "{text}Do this? [y/N] ").and_then(|()| err.flush());
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer)?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(Error::NotConfirmed);
            }
        }
        self.operated(&self.request(action, false)?)
    }

    fn request(&self, action: &Action, dry_run: bool) -> Result<Value, Error> {
        let (path, body) = action.request(dry_run);
        Ok(self.remote.ask(action.method, &path, body.as_ref())?)
    }

    fn operated(&self, answer: &Value) -> Result<(), Error> {
        self.tell(answer, table)
    }
}

/// What was done, or would be.
fn table(answer: &Value) -> String {
    let mut text = String::new();
    let rows = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let mut offsets = Table::new(&["TOPIC", "PARTITION", "FROM", "TO", "HELD-BY"]);
    for row in rows("offsets") {
        offsets.row(["topic", "partition", "from", "to", "held_by"].map(|name| cell(&row[name])));
    }
    let mut members = Table::new(&["MEMBER", "INSTANCE", "CLIENT", "HOST", "CHANGE", "GIVES-UP"]);
    for row in rows("members") {
        let member = &row["member"];
        let who = ["member_id", "instance_id", "client_id", "client_host"];
        let who = who.map(|name| cell(&member[name]));
        members.row(
            who.into_iter()
                .chain([cell(&row["change"]), partitions(&row["gives_up"])]),
        );
    }
    for table in [offsets, members] {
        if !table.is_empty() {
            text += &format!("{table}\n");
        }
    }
    for note in rows("notes") {
        text += &format!("{}\n", plain(note.as_str().unwrap_or_default()));
    }
    text += &match answer["dry_run"].as_bool() {
        Some(true) => "Nothing was done: this is a dry run.\n".to_owned(),
        _ => format!("Done in {} ms.\n", answer["took_ms"]),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_stands_where_the_server_looks_for_it() {
        let plain = Plain {
            group: "a/b".to_owned(),
            how: How {
                dry_run: true,
                yes: false,
            },
        };
        let (path, body) = plain.action("POST", "/pause").request(true);
        assert_eq!(path, "/v1/groups/a%2Fb/pause");
        assert_eq!(body, Some(json!({"dry_run": true})));
        let (path, body) = plain.action("DELETE", "").request(false);
        assert_eq!(path, "/v1/groups/a%2Fb?dry_run=false");
        assert_eq!(body, None);
    }

    #[test]
    fn topics_are_named_with_or_without_partitions() {
        assert_eq!(chosen("t").unwrap(), json!("t"));
        let some = json!({"topic": "t", "partitions": [0, 2]});
        assert_eq!(chosen("t:0,2").unwrap(), some);
        assert!(chosen("t:").is_err());
        assert!(chosen("t:0,x").is_err());
    }

    #[test]
    fn what_was_done_is_a_table() {
        let answer = json!({
            "dry_run": false, "took_ms": 7, "notes": ["One note."],
            "offsets": [{"topic": "t", "partition": 0, "from": 5, "to": null, "held_by": null}],
            "members": []
        });
        assert_eq!(
            table(&answer),
            "TOPIC  PARTITION  FROM  TO  HELD-BY\nt              0     5   -        -\n\nOne note.\nDone in 7 ms.\n"
        );
    }
}
