//! `convoke groups`: what there is to know about groups, and what can be done to them, by way of a running server's
//! HTTP.

mod act;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Error;
use super::remote::Server;

pub(super) use show::{Teller, items};

/// Which server and what about it.
#[derive(Debug, Args)]
pub(super) struct Groups {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List groups with their state and lag.
    List(List),
    /// Tell everything about a group.
    Describe(Group),
    /// List a group's rebalances: why, what moved, how long.
    Rebalances(Group),
    /// List a group's offsets with who committed them.
    Commits(Group),
    /// List changes of a group's offsets that operators made or that went back.
    Audit(Group),
    /// Tell how far groups are behind.
    Lag(Lag),
    /// Move a group's offsets, whether or not members run.
    Reset(Reset),
    /// Remove members, and keep them out for a while.
    Kick(Kick),
    /// Assign a member nothing, and let it go when it has given up all it had.
    Drain(Drain),
    /// Leave members nothing to consume until `resume`.
    Pause(Plain),
    /// End a pause.
    Resume(Plain),
    /// Assign anew.
    Rebalance(Plain),
    /// Tell which partitions would move if something changed.
    Preview(Preview),
    /// Write a group's offsets to a file.
    Backup(Backup),
    /// Put offsets back from a file that `backup` wrote.
    Restore(Restore),
    /// Give a new group the offsets of another.
    Clone(CloneGroup),
    /// Forget a group without members, and its offsets.
    Delete(Plain),
    /// Show or change what a group sets for itself.
    Settings(Settings),
    /// Show or change how many groups there may be.
    Caps(Caps),
}

#[derive(Debug, Args)]
struct Group {
    /// The group.
    group: String,
}

#[derive(Debug, Args)]
struct List {
    /// Only groups whose id begins like this.
    #[arg(long)]
    prefix: Option<String>,
    /// Only groups in this state: Stable, Empty, PreparingRebalance and so on.
    #[arg(long)]
    state: Option<String>,
    /// Only groups of this kind: classic, consumer or simple.
    #[arg(long)]
    kind: Option<String>,
    /// How many at most. [default: all]
    #[arg(long)]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
struct Lag {
    /// The group, with each partition. [default: all groups]
    group: Option<String>,
}

/// How an action is done.
#[derive(Debug, Args)]
struct How {
    /// Show what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask on a terminal.
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Args)]
struct Plain {
    /// The group.
    group: String,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct Reset {
    /// The group.
    group: String,
    #[command(flatten)]
    to: To,
    /// Only this topic: TOPIC or TOPIC:0,1,2; may be given several times. [default: all with an offset]
    #[arg(long, value_name = "TOPIC")]
    topic: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Where to, in one of these ways.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct To {
    /// To the first record there is.
    #[arg(long)]
    to_earliest: bool,
    /// To the end.
    #[arg(long)]
    to_latest: bool,
    /// To the first record of this time or later: 2026-11-30T21:50:25Z, or unix milliseconds.
    #[arg(long, value_name = "TIME", value_parser = super::moment::read)]
    to_datetime: Option<i64>,
    /// By so many records, back if negative, but not out of bounds.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    shift_by: Option<i64>,
    /// To this very offset.
    #[arg(long, value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To where another group is.
    #[arg(long, value_name = "GROUP")]
    to_group: Option<String>,
    /// To the offsets in a file that `backup` wrote; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    from_file: Option<PathBuf>,
}

/// Members by whatever is known of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Who {
    /// By member id.
    #[arg(long, value_name = "ID")]
    member: Vec<String>,
    /// By group instance id.
    #[arg(long, value_name = "ID")]
    instance: Vec<String>,
    /// By client id: every member of it.
    #[arg(long, value_name = "ID")]
    client: Vec<String>,
}

#[derive(Debug, Args)]
struct Kick {
    /// The group.
    group: String,
    #[command(flatten)]
    who: Who,
    /// How long they are kept out, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    ban_ms: i64,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct Drain {
    /// The group.
    group: String,
    #[command(flatten)]
    who: Who,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct Preview {
    /// The group.
    group: String,
    /// So many members more.
    #[arg(long, value_name = "N", default_value_t = 0)]
    add: u32,
    /// Without this member; may be given several times.
    #[arg(long, value_name = "MEMBER-ID")]
    without: Vec<String>,
    /// Without every member of this client id; may be given several times.
    #[arg(long, value_name = "ID")]
    without_client: Vec<String>,
    /// A topic with so many partitions; may be given several times.
    #[arg(long, value_name = "TOPIC=PARTITIONS", value_parser = supposed_topic)]
    topic: Vec<(String, i32)>,
    /// With this assignor: uniform or range.
    #[arg(long)]
    assignor: Option<String>,
}

fn supposed_topic(text: &str) -> Result<(String, i32), String> {
    let parsed = text
        .rsplit_once('=')
        .and_then(|(topic, count)| Some((topic, count.parse().ok()?)));
    let (topic, count) = parsed.ok_or("write TOPIC=PARTITIONS")?;
    Ok((topic.to_owned(), count))
}

#[derive(Debug, Args)]
struct Backup {
    /// The group.
    group: String,
    /// Where to. [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Restore {
    /// The group.
    group: String,
    /// The file; `-` is stdin.
    file: PathBuf,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct CloneGroup {
    /// The group.
    group: String,
    /// The new group.
    to: String,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct Settings {
    /// The group.
    group: String,
    /// How long offsets are kept without members, in milliseconds; -1 for ever; `default` for the server's.
    #[arg(long, value_name = "MS", value_parser = setting, allow_hyphen_values = true)]
    offsets_retention_ms: Option<Setting>,
    /// The most members, or `default`.
    #[arg(long, value_name = "COUNT", value_parser = setting)]
    members_max: Option<Setting>,
    /// The most partitions with a committed offset, or `default`.
    #[arg(long, value_name = "COUNT", value_parser = setting)]
    offsets_max: Option<Setting>,
    /// Show how the settings would be, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct Caps {
    /// The most groups there may be, or `none`.
    #[arg(long, value_name = "COUNT", value_parser = most)]
    groups_max: Option<Most>,
    /// The most groups whose ids begin with a prefix, or `none`; may be given several times.
    #[arg(long, value_name = "PREFIX=COUNT", value_parser = prefix_cap)]
    prefix: Vec<(String, Most)>,
    /// Show how the caps would be, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A limit, or none.
#[derive(Debug, Clone, Copy)]
struct Most(Option<u32>);

fn most(text: &str) -> Result<Most, String> {
    if text == "none" {
        return Ok(Most(None));
    }
    let value = text.parse().map_err(|_| "write a number, or none");
    Ok(Most(Some(value?)))
}

fn prefix_cap(text: &str) -> Result<(String, Most), String> {
    let (prefix, max) = text.rsplit_once('=').ok_or("write PREFIX=COUNT")?;
    Ok((prefix.to_owned(), most(max)?))
}

/// A value, or the server's.
#[derive(Debug, Clone, Copy)]
struct Setting(Option<i64>);

fn setting(text: &str) -> Result<Setting, String> {
    if text == "default" {
        return Ok(Setting(None));
    }
    let value = text.parse().map_err(|_| "write a number, or default");
    Ok(Setting(Some(value?)))
}

impl Groups {
    pub(super) fn run(&self) -> Result<(), Error> {
        let remote = self.server.remote()?;
        let teller = Teller {
            remote: &remote,
            json: self.server.json,
        };
        match &self.command {
            Command::List(list) => teller.list(list),
            Command::Describe(group) => teller.describe(&group.group),
            Command::Rebalances(group) => teller.rebalances(&group.group),
            Command::Commits(group) => teller.commits(&group.group),
            Command::Audit(group) => teller.audit(&group.group),
            Command::Lag(lag) => teller.lag(lag.group.as_deref()),
            Command::Preview(preview) => teller.preview(preview),
            Command::Backup(backup) => teller.backup(backup),
            Command::Settings(settings) => teller.settings(settings),
            Command::Caps(caps) => teller.caps(caps),
            Command::Reset(reset) => teller.act(&reset.action()?, &reset.how),
            Command::Kick(kick) => teller.act(&kick.action(), &kick.how),
            Command::Drain(drain) => teller.act(&drain.action()?, &drain.how),
            Command::Pause(plain) => teller.act(&plain.action("POST", "/pause"), &plain.how),
            Command::Resume(plain) => teller.act(&plain.action("POST", "/resume"), &plain.how),
            Command::Rebalance(plain) => {
                teller.act(&plain.action("POST", "/rebalance"), &plain.how)
            }
            Command::Delete(plain) => teller.act(&plain.action("DELETE", ""), &plain.how),
            Command::Restore(restore) => teller.act(&restore.action()?, &restore.how),
            Command::Clone(clone) => teller.act(&clone.action(), &clone.how),
        }
    }
}
