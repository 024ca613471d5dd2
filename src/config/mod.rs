//! Every knob once: the table of keys, where values come from (defaults, a properties file, the
//! command line), and the checks that hold between them. What a value is used for is not known
//! here.

mod docs;
mod foreign;
mod keys;
mod listeners;
mod properties;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use docs::{markdown, properties_file};
pub use foreign::{FAMILIES, FOREIGN, Foreign};
pub use keys::{Config, KEYS, Key, key};
pub use listeners::{Endpoint, HostPort, HttpListen, Listener, ProtocolMap};
pub use value::{Kind, LogSync, MigrationPolicy, PrefixCaps, Rule, Storage, TimestampType};

/// Why a configuration cannot be used. Each text names the key, the value and what is allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line of the file is no property.
    #[error("{}, line {line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// An assignment has no `=`.
    #[error("--set {text}: write --set KEY=VALUE")]
    Assignment {
        /// What stood there.
        text: String,
    },
    /// The key is neither ours nor Kafka's.
    #[error("{place}: unknown key {key}{}", did_you_mean(*nearest))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stood.
        place: Place,
        /// The known key with the most similar name.
        nearest: Option<&'static str>,
    },
    /// A key of Kafka's that would promise what is not kept.
    #[error("{place}: {key} cannot be honoured: {remedy}")]
    Refused {
        /// The key.
        key: String,
        /// Where it stood.
        place: Place,
        /// Why, and what to do.
        remedy: &'static str,
    },
    /// The value does not fit its key.
    #[error("{place}: {key}={value} is not allowed; {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Where it stood.
        place: Place,
        /// What is allowed.
        expected: String,
    },
    /// Two keys contradict each other.
    #[error("{key}={value} is not allowed: {reason}")]
    Conflict {
        /// The key at fault.
        key: &'static str,
        /// Its value.
        value: String,
        /// Which other key it contradicts, and what would be right.
        reason: String,
    },
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None => "; `convoke config` lists all keys".to_owned(),
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// `--set`.
    Set,
    /// A flag of its own.
    Flag(&'static str),
    /// A field that a program set.
    Field,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Set => f.write_str("--set"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Field => f.write_str("Config"),
        }
    }
}

/// Gathers a configuration from its sources; what comes later overrides what came before.
#[derive(Debug, Default)]
pub struct Loader {
    config: Config,
    /// Who set each key, under which name.
    given: BTreeMap<&'static str, (String, Place)>,
    warnings: Vec<String>,
}

impl Loader {
    /// Begins with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes every property of a file in Java's properties syntax.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Syntax`], and those of [`Loader::assign`].
    pub fn file(&mut self, path: &Path) -> Result<(), Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        let properties = properties::parse(&text).map_err(|(line, reason)| Error::Syntax {
            path: path.to_owned(),
            line,
            reason,
        })?;
        for property in properties {
            let place = Place::File {
                path: path.to_owned(),
                line: property.line,
            };
            self.assign(&property.key, &property.value, place)?;
        }
        Ok(())
    }

    /// The names of the listeners as they are set so far, those of controllers left out.
    pub fn listener_names(&self) -> Vec<String> {
        let controllers = &self.config.controller_listener_names;
        let served = |name: &String| {
            !controllers
                .iter()
                .any(|other| other.eq_ignore_ascii_case(name))
        };
        let mut names: Vec<_> = self
            .config
            .listeners
            .iter()
            .map(|l| l.name.clone())
            .collect();
        names.retain(served);
        names.dedup();
        names
    }

    /// Takes `KEY=VALUE`.
    ///
    /// # Errors
    /// [`Error::Assignment`], and those of [`Loader::assign`].
    pub fn set(&mut self, text: &str) -> Result<(), Error> {
        let (name, value) = text.split_once('=').ok_or_else(|| Error::Assignment {
            text: text.to_owned(),
        })?;
        self.assign(name.trim(), value.trim(), Place::Set)
    }

    /// Takes one value. Keys that are read over leave a warning.
    ///
    /// # Errors
    /// [`Error::UnknownKey`], [`Error::Refused`], [`Error::Value`]; [`Error::Conflict`] when one
    /// file gives two names of the same key different values.
    pub fn assign(&mut self, name: &str, value: &str, place: Place) -> Result<(), Error> {
        let known = match foreign::foreign(name) {
            Some(Foreign::Alias(to)) => key(to),
            found => key(name).or_else(|| {
                if let Some(Foreign::Ignored(reason)) = found {
                    self.warnings
                        .push(format!("{place}: {name} is not used: {reason}"));
                }
                None
            }),
        };
        match (known, foreign::foreign(name)) {
            (Some(known), _) => self.assign_known(known, name, value, place),
            (None, Some(Foreign::Refused(remedy))) => Err(Error::Refused {
                key: name.to_owned(),
                place,
                remedy,
            }),
            (None, Some(_)) => Ok(()),
            (None, None) => Err(Error::UnknownKey {
                key: name.to_owned(),
                place,
                nearest: nearest(name),
            }),
        }
    }

    fn assign_known(
        &mut self,
        known: &'static Key,
        name: &str,
        value: &str,
        place: Place,
    ) -> Result<(), Error> {
        self.against_earlier(known, name, value, &place)?;
        if name.starts_with("log.dir") && value.contains(',') {
            return Err(Error::Value {
                key: known.name,
                value: value.to_owned(),
                place,
                expected: "give one folder, not several".to_owned(),
            });
        }
        self.config
            .assign(known, value)
            .map_err(|expected| Error::Value {
                key: known.name,
                value: value.to_owned(),
                place: place.clone(),
                expected: known.expects(&expected),
            })?;
        self.given.insert(known.name, (name.to_owned(), place));
        Ok(())
    }

    /// Within one file a key that comes again is Java's "the last one holds", worth a warning, and
    /// two names of one key must agree.
    fn against_earlier(
        &mut self,
        known: &'static Key,
        name: &str,
        value: &str,
        place: &Place,
    ) -> Result<(), Error> {
        let Some((earlier, Place::File { line, .. })) = self.given.get(known.name) else {
            return Ok(());
        };
        if !matches!(place, Place::File { .. }) {
            return Ok(());
        }
        if earlier == name {
            self.warnings.push(format!(
                "{place}: {name} was set on line {line} too; the last one holds"
            ));
            return Ok(());
        }
        if self.config.value(known.name).as_deref() == Some(value) {
            return Ok(());
        }
        Err(Error::Conflict {
            key: known.name,
            value: value.to_owned(),
            reason: format!(
                "{place} gives it as {name}, and line {line} gives {earlier} another value; keep one of them"
            ),
        })
    }

    /// Checks what holds between keys and hands out the configuration with the warnings that an
    /// operator should see.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn finish(mut self) -> Result<(Config, Vec<String>), Error> {
        for (coarse, finer) in [
            (
                "log.retention.hours",
                ["log.retention.minutes", "log.retention.ms"],
            ),
            (
                "log.retention.minutes",
                ["log.retention.ms", "log.retention.ms"],
            ),
            ("log.roll.hours", ["log.roll.ms", "log.roll.ms"]),
        ] {
            let winner = finer.iter().find(|name| self.given.contains_key(*name));
            if let (true, Some(winner)) = (self.given.contains_key(coarse), winner) {
                self.warnings
                    .push(format!("{coarse} is not used, because {winner} is set"));
            }
        }
        self.config.check()?;
        Ok((self.config, self.warnings))
    }
}

/// The known key with the most similar name, if one is similar at all.
fn nearest(name: &str) -> Option<&'static str> {
    let aliases = FOREIGN
        .iter()
        .filter(|(_, foreign)| matches!(foreign, Foreign::Alias(_)));
    KEYS.iter()
        .map(|key| key.name)
        .chain(aliases.map(|(name, _)| *name))
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(similarity, _)| *similarity > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

impl Key {
    /// What the key takes, as a sentence for an error. `detail` is what its reader found wrong.
    fn expects(&self, detail: &str) -> String {
        let allowed = match self.rule {
            Rule::Any => String::new(),
            Rule::OneOf(_) => format!("one of {}", self.rule),
            rule => rule.to_string(),
        };
        match (detail.is_empty(), allowed.is_empty()) {
            (true, true) => format!("expected a value of type {}", self.kind),
            (true, false) => format!("expected {allowed}"),
            (false, true) => format!("expected {detail}"),
            (false, false) => format!("expected {allowed} ({detail})"),
        }
    }

    /// The documentation of the key, in one line.
    pub fn about(&self) -> &'static str {
        self.doc.trim()
    }
}

impl Config {
    /// A server for tests and throw-away use: in memory, any free port on loopback, no HTTP, no
    /// sync, no waiting for more members.
    pub fn memory() -> Self {
        let any_port = HostPort {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        Self {
            listeners: vec![Endpoint {
                name: "PLAINTEXT".to_owned(),
                address: any_port,
            }],
            http_listen: HttpListen::Off,
            storage: Storage::Memory,
            log_sync: LogSync::None,
            group_initial_rebalance_delay_ms: 0,
            ..Self::default()
        }
    }

    /// Where to listen, and what clients are told there.
    ///
    /// # Errors
    /// [`Error::Conflict`] when `listeners`, `advertised.listeners` and the protocol map do not
    /// agree.
    pub fn endpoints(&self) -> Result<Vec<Listener>, Error> {
        listeners::resolve(
            &self.listeners,
            &self.advertised_listeners,
            &self.controller_listener_names,
            &self.listener_security_protocol_map,
        )
        .map_err(|(key, reason)| self.conflict(key, reason))
    }

    /// Holds every value to its rule and all values to each other.
    ///
    /// # Errors
    /// [`Error::Value`] or [`Error::Conflict`], for the first key that fails.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(key) = self.forbidden() {
            return Err(Error::Value {
                key: key.name,
                value: self.value(key.name).unwrap_or_default(),
                place: Place::Field,
                expected: key.expects(""),
            });
        }
        self.endpoints()?;
        self.check_limits()?;
        self.check_groups()
    }

    fn check_limits(&self) -> Result<(), Error> {
        if self.queued_max_request_bytes >= 0
            && self.queued_max_request_bytes < i64::from(self.socket_request_max_bytes)
        {
            let reason = format!(
                "a request may have socket.request.max.bytes={} and would never be read; give at least that, or -1",
                self.socket_request_max_bytes
            );
            return Err(self.conflict("queued.max.request.bytes", reason));
        }
        if self.max_connections_per_ip == 0 && self.max_connections_per_ip_overrides.is_empty() {
            let reason = "nobody could connect; name exceptions in max.connections.per.ip.overrides, or give at least 1";
            return Err(self.conflict("max.connections.per.ip", reason.to_owned()));
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<(), Error> {
        self.ordered(
            "group.min.session.timeout.ms",
            "group.max.session.timeout.ms",
        )?;
        for what in [
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "assignment.interval.ms",
        ] {
            let name = |middle: &str| format!("group.consumer.{middle}{what}");
            let (min, max) = (name("min."), name("max."));
            self.ordered(&min, &max)?;
            self.ordered(&min, &name(""))?;
            self.ordered(&name(""), &max)?;
        }
        let heartbeat_ms = self.group_consumer_heartbeat_interval_ms;
        if heartbeat_ms >= self.group_consumer_session_timeout_ms {
            let reason = format!(
                "it must be below group.consumer.session.timeout.ms={}",
                self.group_consumer_session_timeout_ms
            );
            return Err(self.conflict("group.consumer.heartbeat.interval.ms", reason));
        }
        Ok(())
    }

    /// The number of the first key must not be above that of the second.
    fn ordered(&self, low: &str, high: &str) -> Result<(), Error> {
        let number = |name| self.value(name).and_then(|text| text.parse::<i64>().ok());
        let (Some(low_value), Some(high_value)) = (number(low), number(high)) else {
            return Ok(());
        };
        if low_value <= high_value {
            return Ok(());
        }
        let known = key(high).expect("check_groups names keys of the table");
        Err(self.conflict(known.name, format!("it must be at least {low}={low_value}")))
    }

    fn conflict(&self, key: &'static str, reason: String) -> Error {
        Error::Conflict {
            key,
            value: self.value(key).unwrap_or_default(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
