//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources for topics, groups and the broker
//! itself, whose own settings are read-only.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_topics_response::CreatableTopicConfigs;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse, alter_configs_response, incremental_alter_configs_response,
};
use kafka_protocol::protocol::StrBytes;

use super::changes::Outcome;
use super::config_keys::{self, ConfigKind, TopicConfigKey, invalid, items};
use super::topics::{Refusal, check_name};
use super::{Broker, GroupConfigKey, Shared};

/// Resource types on the wire.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Where a value comes from, on the wire.
const FROM_TOPIC: i8 = 1;
const FROM_FILE: i8 = 4;
const FROM_DEFAULT: i8 = 5;
const FROM_GROUP: i8 = 8;

/// The most bytes of one resource's stored overrides; Kafka's metadata records have a like limit.
const OVERRIDES_BYTES_MAX: usize = 1 << 20;

/// The most resources one DescribeConfigs describes: a name of a few bytes grows to some 8 kB of answer.
const RESOURCES_MAX: usize = 20_000;

type Overrides = BTreeMap<String, String>;

/// One edit of an incremental change.
struct Edit {
    name: String,
    operation: Operation,
    value: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Set,
    Delete,
    Append,
    Subtract,
}

/// A key of a topic or of a group, as far as edits care.
#[derive(Clone, Copy)]
enum Key<'a> {
    Topic(&'static TopicConfigKey),
    Group(&'a GroupConfigKey),
}

impl Broker {
    /// DescribeConfigs 1–4.
    pub fn describe_configs(
        &self,
        request: &DescribeConfigsRequest,
        version: i16,
    ) -> DescribeConfigsResponse {
        let with_docs = request.include_documentation && version >= 3;
        let mut left = RESOURCES_MAX;
        let describe = |resource: &DescribeConfigsResource| {
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
                .with_error_message(None);
            let described = match left.checked_sub(1) {
                Some(fewer) => {
                    left = fewer;
                    self.shared.described(resource)
                }
                None => {
                    let message = format!(
                        "More than {RESOURCES_MAX} resources in one request; ask for fewer."
                    );
                    Err(Refusal::new(ResponseError::InvalidRequest, message))
                }
            };
            match described {
                Ok(mut configs) => {
                    for config in &mut configs {
                        if !with_docs {
                            config.documentation = None;
                        }
                        if !request.include_synonyms {
                            config.synonyms.clear();
                        }
                    }
                    result.with_configs(configs)
                }
                Err(refusal) => result
                    .with_error_code(refusal.code)
                    .with_error_message(refusal.text()),
            }
        };
        DescribeConfigsResponse::default()
            .with_results(request.resources.iter().map(describe).collect())
    }

    /// IncrementalAlterConfigs 0–1.
    pub async fn incremental_alter_configs(
        &self,
        request: IncrementalAlterConfigsRequest,
    ) -> IncrementalAlterConfigsResponse {
        let twice = twice(
            request
                .resources
                .iter()
                .map(|r| (r.resource_type, r.resource_name.clone())),
        );
        let mut responses = Vec::new();
        for resource in request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name);
            let edits = resource.configs.into_iter().map(|config| {
                Some(Edit {
                    name: config.name.to_string(),
                    operation: operation(config.config_operation)?,
                    value: config.value.map(|value| value.to_string()),
                })
            });
            let outcome = match edits.collect::<Option<Vec<Edit>>>() {
                _ if twice.contains(&(kind, name.clone())) => Err(listed_twice()),
                None => Err(Refusal::new(
                    ResponseError::InvalidRequest,
                    "Unknown config operation",
                )),
                Some(edits) => {
                    self.alter(kind, name.to_string(), edits, false, request.validate_only)
                        .await
                }
            };
            let refusal = outcome.err();
            responses.push(
                incremental_alter_configs_response::AlterConfigsResourceResponse::default()
                    .with_resource_type(kind)
                    .with_resource_name(name)
                    .with_error_code(refusal.as_ref().map_or(0, |refusal| refusal.code))
                    .with_error_message(refusal.and_then(|refusal| refusal.text())),
            );
        }
        IncrementalAlterConfigsResponse::default().with_responses(responses)
    }

    /// Sets what one group sets for itself; `None` puts the default back.
    ///
    /// # Errors
    /// Why it was refused, in a sentence.
    pub async fn set_group_configs(
        &self,
        group: &str,
        configs: Vec<(String, Option<String>)>,
    ) -> Result<(), String> {
        let edits = configs.into_iter().map(|(name, value)| Edit {
            name,
            operation: match value {
                Some(_) => Operation::Set,
                None => Operation::Delete,
            },
            value,
        });
        let set = self.alter(GROUP, group.to_owned(), edits.collect(), false, false);
        set.await.map_err(|refusal| {
            let text = refusal.text().map(|text| text.to_string());
            text.unwrap_or_else(|| format!("error {}", refusal.code))
        })
    }

    /// AlterConfigs 0–2: what is not named goes back to its default.
    pub async fn alter_configs(&self, request: AlterConfigsRequest) -> AlterConfigsResponse {
        let twice = twice(
            request
                .resources
                .iter()
                .map(|r| (r.resource_type, r.resource_name.clone())),
        );
        let mut responses = Vec::new();
        for resource in request.resources {
            let (kind, name) = (resource.resource_type, resource.resource_name);
            let edits = resource.configs.into_iter().map(|config| Edit {
                name: config.name.to_string(),
                operation: Operation::Set,
                value: config.value.map(|value| value.to_string()),
            });
            let outcome = match twice.contains(&(kind, name.clone())) {
                true => Err(listed_twice()),
                false => {
                    self.alter(
                        kind,
                        name.to_string(),
                        edits.collect(),
                        true,
                        request.validate_only,
                    )
                    .await
                }
            };
            let refusal = outcome.err();
            responses.push(
                alter_configs_response::AlterConfigsResourceResponse::default()
                    .with_resource_type(kind)
                    .with_resource_name(name)
                    .with_error_code(refusal.as_ref().map_or(0, |refusal| refusal.code))
                    .with_error_message(refusal.and_then(|refusal| refusal.text())),
            );
        }
        AlterConfigsResponse::default().with_responses(responses)
    }

    /// ListConfigResources 0–1: version 0 asks for client metrics only, of which there are none.
    pub fn list_config_resources(
        &self,
        request: &ListConfigResourcesRequest,
        version: i16,
    ) -> ListConfigResourcesResponse {
        let response = ListConfigResourcesResponse::default();
        let all = [GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC];
        let kinds = match request.resource_types.as_slice() {
            _ if version == 0 => &[CLIENT_METRICS][..],
            [] => &all,
            kinds => kinds,
        };
        if kinds.iter().any(|kind| !all.contains(kind)) {
            return response.with_error_code(ResponseError::UnsupportedVersion.code());
        }
        let entry = |kind, name: &str| {
            ConfigResource::default()
                .with_resource_type(kind)
                .with_resource_name(StrBytes::from_string(name.to_owned()))
        };
        let mut resources = Vec::new();
        for kind in all.into_iter().filter(|kind| kinds.contains(kind)) {
            match kind {
                GROUP => {
                    resources.extend(self.shared.groups().keys().map(|group| entry(GROUP, group)))
                }
                BROKER => resources.push(entry(BROKER, &self.shared.options.node_id.to_string())),
                TOPIC => resources.extend(
                    self.shared
                        .topics()
                        .iter()
                        .map(|topic| entry(TOPIC, topic.name())),
                ),
                _ => {}
            }
        }
        response.with_config_resources(resources)
    }

    async fn alter(
        &self,
        kind: i8,
        name: String,
        edits: Vec<Edit>,
        replace: bool,
        only_check: bool,
    ) -> Outcome {
        match kind {
            TOPIC => check_name(&name)?,
            GROUP if name.is_empty() => {
                return Err(Refusal::new(
                    ResponseError::InvalidRequest,
                    "Default group resources are not allowed.",
                ));
            }
            GROUP => {}
            BROKER => {
                let names: Vec<&str> = edits.iter().map(|edit| edit.name.as_str()).collect();
                let message = format!(
                    "Cannot update these configs dynamically: [{}]",
                    names.join(", ")
                );
                return Err(Refusal::new(ResponseError::InvalidRequest, message));
            }
            _ => return Err(unsupported(kind)),
        }
        let distinct = edits
            .iter()
            .map(|edit| edit.name.as_str())
            .collect::<HashSet<_>>()
            .len();
        if distinct < edits.len() {
            return Err(Refusal::new(
                ResponseError::InvalidRequest,
                "Error due to duplicate config keys",
            ));
        }
        let nulls: Vec<&str> = edits
            .iter()
            .filter(|edit| edit.value.is_none() && edit.operation != Operation::Delete)
            .map(|edit| edit.name.as_str())
            .collect();
        if !nulls.is_empty() {
            let message = format!("Null value not supported for : {}", nulls.join(","));
            return Err(Refusal::new(ResponseError::InvalidRequest, message));
        }
        let shared = self.shared.clone();
        let change = move || {
            let edit = |present: &Overrides| {
                shared.edited(kind, if replace { None } else { Some(present) }, edits)
            };
            match kind {
                TOPIC => shared.configure_topic(&name, edit, only_check),
                _ => shared.configure_group(&name, edit, only_check),
            }
        };
        self.change(change)
            .await
            .unwrap_or_else(|| Err(ResponseError::UnknownServerError.into()))
    }
}

impl Shared {
    /// The overrides after `edits` of `present` ones (none, if they are replaced), checked.
    fn edited(
        &self,
        kind: i8,
        present: Option<&Overrides>,
        edits: Vec<Edit>,
    ) -> Result<Overrides, Refusal> {
        let defaults = &self.options.topic_defaults;
        let mut overrides = present.cloned().unwrap_or_default();
        for edit in edits {
            let key = self.key(kind, &edit.name);
            let value = edit.value.unwrap_or_default();
            match edit.operation {
                Operation::Delete => {
                    overrides.remove(&edit.name);
                }
                Operation::Set => {
                    overrides.insert(edit.name, value);
                }
                Operation::Append | Operation::Subtract => {
                    let append = edit.operation == Operation::Append;
                    let Some(Key::Topic(key)) = key.filter(|key| key.kind() == ConfigKind::List)
                    else {
                        let verb = if append { "APPEND" } else { "SUBTRACT" };
                        let message = format!(
                            "Can't {verb} to key {} because its type is not LIST.",
                            edit.name
                        );
                        return Err(Refusal::new(ResponseError::InvalidConfig, message));
                    };
                    let present = config_keys::effective(key.name, &overrides, defaults);
                    let changed = combine(present, &value, append);
                    overrides.insert(edit.name, changed);
                }
            }
        }
        self.check_overrides(kind, &overrides)?;
        Ok(overrides)
    }

    /// Checks all overrides of a topic or a group.
    ///
    /// # Errors
    /// INVALID_CONFIG with Kafka's sentence.
    fn check_overrides(&self, kind: i8, overrides: &Overrides) -> Result<(), Refusal> {
        let refuse = |message| Err(Refusal::new(ResponseError::InvalidConfig, message));
        let mut bytes = 0;
        for (name, value) in overrides {
            bytes += name.len() + value.len();
            match self.key(kind, name) {
                Some(Key::Topic(key)) => key.check(value).or_else(refuse)?,
                Some(Key::Group(key)) => check_group_value(key, value).or_else(refuse)?,
                None if kind == TOPIC => {
                    return refuse(format!("Unknown topic config name: {name}"));
                }
                None => return refuse(format!("Unknown group config name: {name}")),
            }
        }
        if bytes > OVERRIDES_BYTES_MAX {
            return refuse(format!(
                "The configs of one resource take {bytes} bytes; {OVERRIDES_BYTES_MAX} are allowed"
            ));
        }
        if kind == GROUP {
            self.check_group_pairs(overrides).or_else(refuse)?;
        }
        Ok(())
    }

    /// The checks of a new topic's configs.
    pub(super) fn check_topic_configs(&self, overrides: &Overrides) -> Result<(), Refusal> {
        self.check_overrides(TOPIC, overrides)
    }

    fn check_group_pairs(&self, overrides: &Overrides) -> Result<(), String> {
        let value = |name: &str| {
            let key = self
                .options
                .group_configs
                .iter()
                .find(|key| key.name == name)?;
            overrides
                .get(name)
                .unwrap_or(&key.default)
                .trim()
                .parse::<i64>()
                .ok()
        };
        for key in &self.options.group_configs {
            let Some(other) = &key.exceeds else { continue };
            if let (Some(greater), Some(less)) = (value(&key.name), value(other))
                && greater <= less
                && (overrides.contains_key(&key.name) || overrides.contains_key(other))
            {
                return Err(format!("{} must be greater than {other}", key.name));
            }
        }
        Ok(())
    }

    fn key(&self, kind: i8, name: &str) -> Option<Key<'_>> {
        match kind {
            TOPIC => config_keys::find(name).map(Key::Topic),
            _ => self
                .options
                .group_configs
                .iter()
                .find(|key| key.name == name)
                .map(Key::Group),
        }
    }

    fn described(
        &self,
        resource: &DescribeConfigsResource,
    ) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let name = &*resource.resource_name;
        let mut configs = match resource.resource_type {
            TOPIC => {
                check_name(name)?;
                let topics = self.topics();
                let unknown = || Refusal {
                    code: ResponseError::UnknownTopicOrPartition.code(),
                    message: Some(String::new()),
                };
                let topic = topics.get(name).ok_or_else(unknown)?;
                self.topic_configs(&topic.overrides)
            }
            GROUP if name.is_empty() => {
                return Err(Refusal::new(
                    ResponseError::InvalidRequest,
                    "Group name must not be empty",
                ));
            }
            GROUP => {
                let none = BTreeMap::new();
                let groups = self.groups();
                self.group_configs(groups.get(name).unwrap_or(&none))
            }
            // The defaults of all brokers, which nobody can set.
            BROKER if name.is_empty() => Vec::new(),
            BROKER => self.broker_configs(name)?,
            CLIENT_METRICS => Vec::new(),
            kind => return Err(unsupported(kind)),
        };
        if let Some(asked) = resource
            .configuration_keys
            .as_ref()
            .filter(|keys| !keys.is_empty())
        {
            configs.retain(|config| asked.contains(&config.name));
        }
        configs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(configs)
    }

    fn topic_configs(&self, overrides: &Overrides) -> Vec<DescribeConfigsResourceResult> {
        let describe = |key: &'static TopicConfigKey| {
            let own = overrides.get(key.name);
            let from_file = self.options.topic_defaults.get(key.name);
            let below = from_file.map_or(key.default, String::as_str);
            let below_source = if from_file.is_some() {
                FROM_FILE
            } else {
                FROM_DEFAULT
            };
            let mut synonyms = Vec::new();
            synonyms.extend(own.map(|value| synonym(key.name, value, FROM_TOPIC)));
            if let Some(name) = key.broker_key {
                synonyms.extend(from_file.map(|value| synonym(name, value, FROM_FILE)));
                synonyms.push(synonym(name, key.default, FROM_DEFAULT));
            }
            DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_static_str(key.name))
                .with_value(Some(StrBytes::from_string(
                    own.map_or(below, String::as_str).to_owned(),
                )))
                .with_config_source(if own.is_some() {
                    FROM_TOPIC
                } else {
                    below_source
                })
                .with_synonyms(synonyms)
                .with_config_type(key.kind.code())
                .with_documentation(Some(StrBytes::from_static_str(key.doc)))
        };
        config_keys::topic_config_keys()
            .iter()
            .map(describe)
            .collect()
    }

    /// The configs of a new topic, as CreateTopics tells them.
    pub(super) fn created_configs(&self, overrides: &Overrides) -> Vec<CreatableTopicConfigs> {
        let tell = |config: DescribeConfigsResourceResult| {
            CreatableTopicConfigs::default()
                .with_name(config.name)
                .with_value(config.value)
                .with_read_only(config.read_only)
                .with_config_source(config.config_source)
                .with_is_sensitive(config.is_sensitive)
        };
        self.topic_configs(overrides)
            .into_iter()
            .map(tell)
            .collect()
    }

    fn group_configs(&self, overrides: &Overrides) -> Vec<DescribeConfigsResourceResult> {
        let describe = |key: &GroupConfigKey| {
            let own = overrides.get(&key.name);
            let below_source = if key.default == key.built_in {
                FROM_DEFAULT
            } else {
                FROM_FILE
            };
            let mut synonyms = Vec::new();
            synonyms.extend(own.map(|value| synonym(&key.name, value, FROM_GROUP)));
            if let Some(name) = &key.broker_key {
                if below_source == FROM_FILE {
                    synonyms.push(synonym(name, &key.default, FROM_FILE));
                }
                synonyms.push(synonym(name, &key.built_in, FROM_DEFAULT));
            }
            DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_string(key.name.clone()))
                .with_value(Some(StrBytes::from_string(
                    own.unwrap_or(&key.default).clone(),
                )))
                .with_config_source(if own.is_some() {
                    FROM_GROUP
                } else {
                    below_source
                })
                .with_synonyms(synonyms)
                .with_config_type(key.kind.code())
                .with_documentation(Some(StrBytes::from_string(key.doc.clone())))
        };
        self.options.group_configs.iter().map(describe).collect()
    }

    fn broker_configs(&self, name: &str) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
        let id = self.options.node_id;
        if name.parse() != Ok(id) {
            let message =
                format!("Unexpected broker id, expected {id} or empty string, but received {name}");
            return Err(Refusal::new(ResponseError::InvalidRequest, message));
        }
        let describe = |config: &super::BrokerConfig| {
            let value = config
                .value
                .clone()
                .filter(|_| !config.sensitive)
                .map(StrBytes::from_string);
            let source = if config.is_default {
                FROM_DEFAULT
            } else {
                FROM_FILE
            };
            let same = DescribeConfigsSynonym::default()
                .with_name(StrBytes::from_string(config.name.clone()))
                .with_value(value.clone())
                .with_source(source);
            DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_string(config.name.clone()))
                .with_value(value)
                .with_read_only(true)
                .with_config_source(source)
                .with_is_sensitive(config.sensitive)
                .with_synonyms(vec![same])
                .with_config_type(config.kind.code())
                .with_documentation(Some(StrBytes::from_string(config.doc.clone())))
        };
        Ok(self.options.broker_configs.iter().map(describe).collect())
    }
}

impl Key<'_> {
    fn kind(self) -> ConfigKind {
        match self {
            Self::Topic(key) => key.kind,
            Self::Group(key) => key.kind,
        }
    }
}

fn check_group_value(key: &GroupConfigKey, value: &str) -> Result<(), String> {
    match key.kind {
        ConfigKind::Int | ConfigKind::Long | ConfigKind::Short => {
            let number = key.kind.integer(&key.name, value)?;
            match number {
                _ if number < 0 && key.min >= 0 => {
                    Err(invalid(&key.name, value, "Value must be at least 0"))
                }
                _ if number < key.min || number > key.max => Err(format!(
                    "{} must be in the range {} to {} inclusive.",
                    key.name, key.min, key.max
                )),
                _ => Ok(()),
            }
        }
        ConfigKind::Boolean
            if !matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "false") =>
        {
            Err(invalid(
                &key.name,
                value,
                "Expected value to be either true or false",
            ))
        }
        _ => Ok(()),
    }
}

/// A list with items added (each once) or taken away.
fn combine(present: &str, change: &str, append: bool) -> String {
    let mut list: Vec<&str> = items(present).collect();
    for item in items(change) {
        if append && !list.contains(&item) {
            list.push(item);
        } else if !append {
            list.retain(|other| *other != item);
        }
    }
    list.join(",")
}

fn operation(code: i8) -> Option<Operation> {
    match code {
        0 => Some(Operation::Set),
        1 => Some(Operation::Delete),
        2 => Some(Operation::Append),
        3 => Some(Operation::Subtract),
        _ => None,
    }
}

fn synonym(name: &str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_string(name.to_owned()))
        .with_value(Some(StrBytes::from_string(value.to_owned())))
        .with_source(source)
}

fn unsupported(kind: i8) -> Refusal {
    Refusal::new(
        ResponseError::InvalidRequest,
        format!("Unsupported resource type: {kind}"),
    )
}

fn listed_twice() -> Refusal {
    Refusal::new(
        ResponseError::InvalidRequest,
        "Each resource must appear at most once.",
    )
}

/// What occurs more than once.
fn twice(resources: impl Iterator<Item = (i8, StrBytes)>) -> HashSet<(i8, StrBytes)> {
    let mut seen = HashSet::new();
    resources
        .filter(|resource| !seen.insert(resource.clone()))
        .collect()
}
