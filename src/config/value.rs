//! The kinds of value a key may have: how each is read from text, shown as text and held to its
//! rule. Which key has which kind stands in `keys.rs`; addresses have their own file.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The type of a key, as DescribeConfigs names it (KIP-569).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    Long,
    /// Texts with commas between them.
    List,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Int => "int",
            Self::Long => "long",
            Self::List => "list",
        })
    }
}

/// Which values of its kind a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Whatever parses.
    Any,
    /// Numbers from the first to the second, both included.
    Range(i64, i64),
    /// The first number (a sentinel such as −1) or the range that follows.
    Or(i64, i64, i64),
    /// One of these words, upper or lower case.
    OneOf(&'static [&'static str]),
    /// A list that is not empty, of these words, none of them twice.
    SomeOf(&'static [&'static str]),
    /// Text that is not empty.
    NotEmpty,
    /// Said in words, because the value's own reader holds it.
    Form(&'static str),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Any => Ok(()),
            Self::Range(min, i64::MAX) => write!(f, "at least {min}"),
            Self::Range(min, max) if max == i64::from(i32::MAX) => write!(f, "at least {min}"),
            Self::Range(min, max) if min == max => write!(f, "{min}"),
            Self::Range(min, max) => write!(f, "{min} to {max}"),
            Self::Or(other, min, max) => write!(f, "{other}, or {}", Self::Range(min, max)),
            Self::OneOf(words) => f.write_str(&words.join(", ")),
            Self::SomeOf(words) => write!(f, "one or more of {}", words.join(", ")),
            Self::NotEmpty => f.write_str("not empty"),
            Self::Form(form) => f.write_str(form),
        }
    }
}

/// A value of a key.
pub(crate) trait Value: Sized {
    /// What DescribeConfigs calls it.
    const KIND: Kind;

    /// Reads the text of a property; the error says what was expected, where the rule of the key
    /// does not say it already.
    fn read(text: &str) -> Result<Self, String>;

    /// The text that [`Value::read`] reads back.
    fn show(&self) -> String;

    /// Whether the key's rule allows the value.
    fn allowed(&self, _rule: Rule) -> bool {
        true
    }
}

fn number<T: FromStr>(text: &str, kind: Kind) -> Result<T, String> {
    text.parse().map_err(|_| match kind {
        Kind::Int => "a whole number of 32 bits".to_owned(),
        _ => "a whole number of 64 bits".to_owned(),
    })
}

fn number_allowed(value: i64, rule: Rule) -> bool {
    match rule {
        Rule::Range(min, max) => (min..=max).contains(&value),
        Rule::Or(other, min, max) => value == other || (min..=max).contains(&value),
        _ => true,
    }
}

impl Value for i32 {
    const KIND: Kind = Kind::Int;

    fn read(text: &str) -> Result<Self, String> {
        number(text, Self::KIND)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn allowed(&self, rule: Rule) -> bool {
        number_allowed(i64::from(*self), rule)
    }
}

impl Value for i64 {
    const KIND: Kind = Kind::Long;

    fn read(text: &str) -> Result<Self, String> {
        number(text, Self::KIND)
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn allowed(&self, rule: Rule) -> bool {
        number_allowed(*self, rule)
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Boolean;

    fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const KIND: Kind = Kind::String;

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }

    fn allowed(&self, rule: Rule) -> bool {
        match rule {
            Rule::OneOf(words) => words.iter().any(|word| word.eq_ignore_ascii_case(self)),
            Rule::NotEmpty => !self.is_empty(),
            _ => true,
        }
    }
}

impl Value for PathBuf {
    const KIND: Kind = Kind::String;

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self::from(text))
    }

    fn show(&self) -> String {
        self.display().to_string()
    }

    fn allowed(&self, rule: Rule) -> bool {
        rule != Rule::NotEmpty || !self.as_os_str().is_empty()
    }
}

/// No text at all is no value: `key=` unsets what may be unset.
impl<T: Value> Value for Option<T> {
    const KIND: Kind = T::KIND;

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Ok(None)
        } else {
            T::read(text).map(Some)
        }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }

    fn allowed(&self, rule: Rule) -> bool {
        self.as_ref().is_none_or(|value| value.allowed(rule))
    }
}

/// The parts of a list, trimmed; empty parts are skipped, as Kafka does.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

impl Value for Vec<String> {
    const KIND: Kind = Kind::List;

    fn read(text: &str) -> Result<Self, String> {
        Ok(parts(text).map(str::to_owned).collect())
    }

    fn show(&self) -> String {
        self.join(",")
    }

    fn allowed(&self, rule: Rule) -> bool {
        match rule {
            Rule::SomeOf(words) => {
                let known = |part: &String| words.contains(&part.as_str());
                let twice = |(at, part): (usize, &String)| self[..at].contains(part);
                !self.is_empty() && self.iter().all(known) && !self.iter().enumerate().any(twice)
            }
            Rule::NotEmpty => !self.is_empty(),
            _ => true,
        }
    }
}

/// `address:count` pairs with commas between them; the address ends at the last colon, because IPv6
/// addresses have some of their own.
/// Names with counts: `NAME:COUNT` with commas between them.
fn counts(text: &str, is_name: impl Fn(&str) -> bool) -> Result<BTreeMap<String, i32>, String> {
    let mut map = BTreeMap::new();
    for part in parts(text) {
        let (name, count) = part.rsplit_once(':').ok_or_else(String::new)?;
        let count: i32 = count.trim().parse().map_err(|_| String::new())?;
        let name = name.trim().trim_matches(['[', ']']);
        if count < 0 || !is_name(name) {
            return Err(String::new());
        }
        map.insert(name.to_owned(), count);
    }
    Ok(map)
}

fn show_counts(counts: &BTreeMap<String, i32>) -> String {
    let pairs: Vec<_> = counts
        .iter()
        .map(|(name, count)| format!("{name}:{count}"))
        .collect();
    pairs.join(",")
}

impl Value for BTreeMap<String, i32> {
    const KIND: Kind = Kind::List;

    fn read(text: &str) -> Result<Self, String> {
        counts(text, |name| name.parse::<IpAddr>().is_ok())
    }

    fn show(&self) -> String {
        show_counts(self)
    }
}

/// The most groups whose ids begin with each prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixCaps(pub BTreeMap<String, i32>);

impl Value for PrefixCaps {
    const KIND: Kind = Kind::List;

    fn read(text: &str) -> Result<Self, String> {
        counts(text, |prefix| !prefix.is_empty()).map(Self)
    }

    fn show(&self) -> String {
        show_counts(&self.0)
    }
}

/// Words that become an enum: the text of each variant once, for reading and showing.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// The word that stands for the value in a configuration.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl Value for $name {
            const KIND: Kind = Kind::String;

            fn read(text: &str) -> Result<Self, String> {
                $(if text.eq_ignore_ascii_case($word) {
                    return Ok(Self::$variant);
                })+
                Err(String::new())
            }

            fn show(&self) -> String {
                self.as_str().to_owned()
            }
        }
    };
}

words! {
    /// Where groups, offsets and topics are kept.
    Storage {
        /// In the data folder.
        Disk = "disk",
        /// In memory only: everything is gone when the process ends.
        Memory = "memory",
    }
}

words! {
    /// Which time a batch carries after Produce.
    TimestampType {
        /// The producer's.
        CreateTime = "CreateTime",
        /// The server's, at the time of the append.
        LogAppendTime = "LogAppendTime",
    }
}

words! {
    /// Which way a group may change between the classic and the consumer protocol while it has
    /// members (KIP-848).
    MigrationPolicy {
        /// Neither way.
        Disabled = "disabled",
        /// Classic to consumer.
        Upgrade = "upgrade",
        /// Consumer to classic.
        Downgrade = "downgrade",
        /// Both ways.
        Bidirectional = "bidirectional",
    }
}

/// When the group log reaches the disk, and with that, when replies leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSync {
    /// Before the reply. Nothing acknowledged is lost.
    Always,
    /// Every so many milliseconds; replies do not wait. What was acknowledged in the last
    /// interval may be lost with the machine (not with the process).
    Interval {
        /// Milliseconds from one sync to the next.
        interval_ms: u32,
    },
    /// Left to the operating system.
    None,
}

impl Value for LogSync {
    const KIND: Kind = Kind::String;

    fn read(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        match lower.split_once(':') {
            None if lower == "always" => Ok(Self::Always),
            None if lower == "none" => Ok(Self::None),
            Some(("interval", ms)) => match ms.trim().parse() {
                Ok(interval_ms @ 1..=3_600_000) => Ok(Self::Interval { interval_ms }),
                _ => Err(String::new()),
            },
            _ => Err(String::new()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Always => "always".to_owned(),
            Self::Interval { interval_ms } => format!("interval:{interval_ms}"),
            Self::None => "none".to_owned(),
        }
    }

    fn allowed(&self, _rule: Rule) -> bool {
        !matches!(self, Self::Interval { interval_ms: 0 })
    }
}

impl fmt::Display for LogSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_reads_back() {
        for sync in [
            LogSync::Always,
            LogSync::None,
            LogSync::Interval { interval_ms: 20 },
        ] {
            assert_eq!(LogSync::read(&sync.show()), Ok(sync));
        }
        let overrides = BTreeMap::<String, i32>::read("10.0.0.1:5, [::1]:7,10.0.0.2:0").unwrap();
        assert_eq!(overrides.get("::1"), Some(&7));
        assert_eq!(BTreeMap::read(&overrides.show()), Ok(overrides));
    }

    #[test]
    fn exceptions_are_for_addresses() {
        for text in ["host:5", "10.0.0.1", "10.0.0.1:-1", "10.0.0.1:many", ":5"] {
            assert!(BTreeMap::<String, i32>::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interval_needs_a_length() {
        for text in [
            "interval",
            "interval:",
            "interval:0",
            "interval:3600001",
            "interval:-1",
        ] {
            assert!(LogSync::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_of_words_takes_each_once() {
        let rule = Rule::SomeOf(&["uniform", "range"]);
        let list = |text| Vec::<String>::read(text).unwrap();
        assert!(list("range, uniform").allowed(rule));
        assert!(!list("range,range").allowed(rule));
        assert!(!list("sticky").allowed(rule));
        assert!(!list("").allowed(rule));
    }

    #[test]
    fn a_sentinel_stands_beside_the_range() {
        let rule = Rule::Or(-1, 10, 20);
        assert!((-1_i64).allowed(rule));
        assert!(10_i64.allowed(rule));
        assert!(!0_i64.allowed(rule));
        assert_eq!(rule.to_string(), "-1, or 10 to 20");
    }
}
