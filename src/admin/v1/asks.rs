//! What the API is asked, as JSON. What is not known is refused: a field with a slip of the pen must not be passed over
//! in an action.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use crate::admin::problem::Ask;
use crate::group::Caps;
use crate::group::operator::{Setting, Supposition, Who};

/// Which groups to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListGroups {
    /// Only groups whose id begins like this.
    pub(crate) prefix: Option<String>,
    /// Only groups in this state, as Kafka names it; upper or lower case.
    #[param(example = "Stable")]
    pub(crate) state: Option<String>,
    /// Only groups of this kind: `classic`, `consumer` or `simple`.
    pub(crate) kind: Option<String>,
    /// How many at most, 1 to 10,000; otherwise 1,000.
    #[param(minimum = 1, maximum = 10_000)]
    pub(crate) limit: Option<u32>,
    /// Only groups whose id is behind this one: `next` of the page before.
    pub(crate) after: Option<String>,
}

/// Which topics to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListTopics {
    /// Only topics whose name begins like this.
    pub(crate) prefix: Option<String>,
    /// How many at most, 1 to 10,000; otherwise 1,000.
    #[param(minimum = 1, maximum = 10_000)]
    pub(crate) limit: Option<u32>,
    /// Only topics whose name is behind this one: `next` of the page before.
    pub(crate) after: Option<String>,
}

/// Whether to act at all.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DryRun {
    /// Tell what would be done, and do nothing.
    pub(crate) dry_run: bool,
}

/// An action without further words.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"dry_run": true}))]
pub(crate) struct Plain {
    /// Tell what would be done, and do nothing.
    pub(crate) dry_run: bool,
}

impl Ask for Plain {}

/// Where offsets are to be moved.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum To {
    /// To the first record there is.
    Earliest,
    /// To the end, as it is when this is asked.
    Latest,
    /// To the first record of this time (unix milliseconds) or later; to the end if all are older.
    TimeMs(i64),
    /// By so many records, back if negative, but not beyond the first record or the end.
    Shift(i64),
    /// To this very offset.
    Offset(i64),
    /// To where another group is.
    Group(String),
    /// To these very offsets.
    Offsets(Vec<Offset>),
}

/// An offset of a partition, as a backup holds it.
#[derive(Clone, Debug, Deserialize, serde::Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"topic": "orders", "partition": 0, "offset": 100, "leader_epoch": 0, "metadata": ""}))]
pub(crate) struct Offset {
    /// The topic.
    pub(crate) topic: String,
    /// The partition.
    pub(crate) partition: i32,
    /// The offset, 0 or more.
    #[schema(minimum = 0)]
    pub(crate) offset: i64,
    /// The leader epoch that goes with it; -1 for none.
    #[serde(default = "no_epoch")]
    pub(crate) leader_epoch: i32,
    /// The note that goes with it.
    #[serde(default)]
    pub(crate) metadata: String,
}

fn no_epoch() -> i32 {
    -1
}

/// Partitions of a topic: all of them, if only its name is given.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Chosen {
    /// The whole topic.
    Topic(String),
    /// Some partitions.
    Partitions(ChosenPartitions),
}

/// Some partitions of a topic.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChosenPartitions {
    /// The topic.
    pub(crate) topic: String,
    /// Its partitions; all if absent.
    pub(crate) partitions: Option<Vec<i32>>,
}

/// Moves committed offsets.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": {"shift": -100}, "topics": ["orders"], "dry_run": true}))]
pub(crate) struct Reset {
    /// Where to.
    pub(crate) to: To,
    /// Of which topics; if absent, of every partition that has a committed offset.
    pub(crate) topics: Option<Vec<Chosen>>,
    /// Tell what would be done, and do nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

impl Ask for Reset {
    const BYTES_MAX: usize = 16 << 20;
}

/// The offsets of a group in a file.
#[derive(Debug, Deserialize, serde::Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"group": "orders", "offsets": [{"topic": "orders", "partition": 0, "offset": 100, "leader_epoch": 0, "metadata": ""}]}))]
pub(crate) struct Backup {
    /// The group they were of. Which group they are put into is told by the path.
    #[serde(default)]
    pub(crate) group: String,
    /// The offsets.
    pub(crate) offsets: Vec<Offset>,
}

impl Ask for Backup {
    const BYTES_MAX: usize = 16 << 20;
}

/// A member, by whatever is known of it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) enum Named {
    /// By member id.
    #[serde(rename = "member_id")]
    Member(String),
    /// By group instance id.
    #[serde(rename = "instance_id")]
    Instance(String),
    /// Every member of this client id.
    #[serde(rename = "client_id")]
    Client(String),
}

impl From<Named> for Who {
    fn from(named: Named) -> Self {
        match named {
            Named::Member(id) => Self::Member(id.into()),
            Named::Instance(id) => Self::Instance(id.into()),
            Named::Client(id) => Self::Client(id.into()),
        }
    }
}

/// Removes members.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"members": [{"client_id": "billing-1"}], "ban_ms": 60000, "dry_run": true}))]
pub(crate) struct Kick {
    /// Which.
    pub(crate) members: Vec<Named>,
    /// How long they are kept out, in milliseconds; 0 for not at all.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub(crate) ban_ms: i64,
    /// Tell what would be done, and do nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

impl Ask for Kick {}

/// Assigns a member nothing, and lets it go when it has given up all it had.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"member": {"instance_id": "billing-1"}, "dry_run": true}))]
pub(crate) struct Drain {
    /// Which.
    pub(crate) member: Named,
    /// Tell what would be done, and do nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

impl Ask for Drain {}

/// Gives a new group the offsets of this one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"to": "orders-copy", "dry_run": true}))]
pub(crate) struct CloneGroup {
    /// The new group.
    pub(crate) to: String,
    /// Tell what would be done, and do nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

impl Ask for CloneGroup {}

/// A topic that would have so many partitions.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SupposedTopic {
    /// The topic: new, or grown.
    pub(crate) topic: String,
    /// How many partitions it would have.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) partitions: i32,
}

/// What would be different.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"members_added": 1, "topics": [{"topic": "orders", "partitions": 24}], "assignor": "range"}))]
pub(crate) struct Preview {
    /// So many members more, subscribed as the first member is.
    #[serde(default)]
    #[schema(maximum = 1000)]
    pub(crate) members_added: u32,
    /// These were gone.
    #[serde(default)]
    pub(crate) members_removed: Vec<Named>,
    /// Topics with so many partitions: new, or grown.
    #[serde(default)]
    pub(crate) topics: Vec<SupposedTopic>,
    /// This assignor were used: `uniform` or `range`; the group's own if absent.
    pub(crate) assignor: Option<String>,
}

impl Ask for Preview {}

/// Members that may be supposed: as many as a page can show, and as an assignor deals with at once.
const SUPPOSED_MEMBERS_MAX: u32 = 1000;
/// Partitions of all topics that may be supposed.
const SUPPOSED_PARTITIONS_MAX: i64 = 100_000;
/// Partitions of a topic, as CreateTopics takes them.
const PARTITIONS_MAX: i32 = 10_000;

impl TryFrom<Preview> for Supposition {
    type Error = String;

    fn try_from(preview: Preview) -> Result<Self, String> {
        if preview.members_added > SUPPOSED_MEMBERS_MAX {
            return Err(format!("members_added is 0 to {SUPPOSED_MEMBERS_MAX}"));
        }
        let mut topics = preview.topics.iter();
        if let Some(topic) = topics.find(|topic| !(0..=PARTITIONS_MAX).contains(&topic.partitions))
        {
            return Err(format!(
                "partitions of {} are 0 to {PARTITIONS_MAX}, not {}",
                topic.topic, topic.partitions
            ));
        }
        let all = preview
            .topics
            .iter()
            .map(|topic| i64::from(topic.partitions));
        if all.sum::<i64>() > SUPPOSED_PARTITIONS_MAX {
            return Err(format!(
                "topics have {SUPPOSED_PARTITIONS_MAX} partitions together at most"
            ));
        }
        let topics = preview.topics.into_iter();
        Ok(Self {
            members_added: preview.members_added,
            members_removed: preview.members_removed.into_iter().map(Who::from).collect(),
            topics: topics
                .map(|topic| (topic.topic.into(), topic.partitions))
                .collect(),
            assignor: preview.assignor.map(Into::into),
        })
    }
}

/// What a group sets for itself. What is absent stays as it is; `null` puts the server's setting back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"offsets_retention_ms": -1, "members_max": null}))]
pub(crate) struct NewSettings {
    /// How long offsets are kept without members, in milliseconds; -1 for ever.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<i64>)]
    offsets_retention_ms: Option<Option<i64>>,
    /// The most members.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<i64>)]
    members_max: Option<Option<i64>>,
    /// The most partitions with a committed offset.
    #[serde(deserialize_with = "given")]
    #[schema(value_type = Option<i64>)]
    offsets_max: Option<Option<i64>>,
}

impl Ask for NewSettings {}

impl NewSettings {
    /// Those that are given.
    pub(crate) fn given(&self) -> Vec<(Setting, Option<i64>)> {
        let all = [
            (Setting::OffsetsRetentionMs, self.offsets_retention_ms),
            (Setting::MembersMax, self.members_max),
            (Setting::OffsetsMax, self.offsets_max),
        ];
        let given = all.into_iter();
        given
            .filter_map(|(setting, value)| Some((setting, value?)))
            .collect()
    }
}

/// How many groups there may be. What is absent has no limit.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"groups_max": 1000, "prefixes": [{"prefix": "test-", "groups_max": 50}]}))]
pub(crate) struct NewCaps {
    /// The most groups there may be.
    #[serde(default)]
    groups_max: Option<u32>,
    /// The most groups whose ids begin with a prefix, at most 100 of them.
    #[serde(default)]
    prefixes: Vec<NewPrefixCap>,
}

/// How many groups there may be whose ids begin alike.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPrefixCap {
    /// How their ids begin.
    prefix: String,
    /// The most of them.
    groups_max: u32,
}

impl Ask for NewCaps {}

/// Prefixes that may have a cap: each is compared with every new group.
const PREFIXES_MAX: usize = 100;

impl TryFrom<NewCaps> for Caps {
    type Error = String;

    fn try_from(asked: NewCaps) -> Result<Self, String> {
        if asked.prefixes.len() > PREFIXES_MAX {
            return Err(format!("prefixes: {PREFIXES_MAX} at most"));
        }
        let mut prefixes: Vec<(Arc<str>, usize)> = Vec::new();
        for cap in asked.prefixes {
            if cap.prefix.is_empty() {
                return Err("prefixes: a prefix is empty; groups_max is for all groups".to_owned());
            }
            if prefixes.iter().any(|(prefix, _)| **prefix == *cap.prefix) {
                return Err(format!("prefixes: {} is named twice", cap.prefix));
            }
            prefixes.push((cap.prefix.into(), cap.groups_max as usize));
        }
        Ok(Self {
            groups_max: asked.groups_max.map(|max| max as usize),
            prefixes,
        })
    }
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
