//! `convoke topics`: topics and who consumes them, by way of a running server's HTTP.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::Error;
use super::groups::{Teller, items};
use super::remote::{Server, part};
use super::table::{Table, cell};

/// Which server and what about it.
#[derive(Debug, Args)]
pub(super) struct Topics {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List topics with their records and consuming groups.
    List {
        /// Only topics whose name begins like this.
        #[arg(long)]
        prefix: Option<String>,
        /// How many at most. [default: all]
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Tell about a topic's partitions and groups.
    Describe {
        /// The topic.
        topic: String,
    },
}

impl Topics {
    pub(super) fn run(&self) -> Result<(), Error> {
        let remote = self.server.remote()?;
        let teller = Teller {
            remote: &remote,
            json: self.server.json,
        };
        match &self.command {
            Command::List { prefix, limit } => {
                let prefix = prefix.as_deref().map(part);
                let query = prefix
                    .map(|prefix| format!("&prefix={prefix}"))
                    .unwrap_or_default();
                let answer = teller.pages("/v1/topics", "topics", &query, *limit)?;
                teller.tell(&answer, listed)
            }
            Command::Describe { topic } => {
                let answer = remote.get(&format!("/v1/topics/{}", part(topic)))?;
                teller.tell(&answer, described)
            }
        }
    }
}

/// Records of a partition that can be read.
fn records(partition: &Value) -> i64 {
    let offset = |name: &str| partition[name].as_i64().unwrap_or(0);
    offset("end_offset").saturating_sub(offset("start_offset"))
}

fn listed(answer: &Value) -> String {
    let mut table = Table::new(&["TOPIC", "PARTITIONS", "RECORDS", "GROUPS", "INTERNAL"]);
    for row in items(&answer["topics"]) {
        let partitions = items(&row["partitions"]);
        let sum: i64 = partitions.iter().map(records).fold(0, i64::saturating_add);
        table.row([
            cell(&row["topic"]),
            partitions.len().to_string(),
            sum.to_string(),
            items(&row["groups"]).len().to_string(),
            cell(&row["is_internal"]),
        ]);
    }
    table.to_string()
}

fn described(answer: &Value) -> String {
    let mut partitions = Table::new(&["PARTITION", "START", "END", "RECORDS"]);
    for row in items(&answer["partitions"]) {
        let [partition, start, end] =
            ["partition", "start_offset", "end_offset"].map(|name| cell(&row[name]));
        partitions.row([partition, start, end, records(row).to_string()]);
    }
    let mut groups = Table::new(&["GROUP"]);
    for row in items(&answer["groups"]) {
        groups.row([cell(&row["group_id"])]);
    }
    let mut text = format!(
        "{} {}\n\n{partitions}",
        cell(&answer["topic"]),
        cell(&answer["topic_id"])
    );
    if !groups.is_empty() {
        text += &format!("\n{groups}");
    }
    text
}
