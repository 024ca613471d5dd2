//! The embedded consumer protocol: the bytes that consumers pass each other through JoinGroup and SyncGroup.
//!
//! The only place where the core looks into members' bytes. Layouts are Kafka's ConsumerProtocolSubscription and
//! ConsumerProtocolAssignment, versions 0–3, not flexible; later versions read as version 3, whose fields they begin
//! with. Counts and lengths are never trusted: what is read costs memory in proportion to the bytes that are there.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::types::TopicName;

/// The newest version whose fields are known here.
pub const LATEST_VERSION: i16 = 3;

/// Partitions by topic name, in the order of the bytes.
pub type NamePartitions = Vec<(TopicName, Vec<i32>)>;

/// What a classic consumer tells its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// As written; may be newer than [`LATEST_VERSION`].
    pub version: i16,
    /// The topics, in the order of the bytes.
    pub topics: Vec<TopicName>,
    /// The assignor's own bytes.
    pub user_data: Option<Bytes>,
    /// Since version 1: what the member holds; empty before.
    pub owned: NamePartitions,
    /// Since version 2: the generation that `owned` is of; −1 before.
    pub generation: i32,
    /// Since version 3: the rack.
    pub rack_id: Option<Arc<str>>,
}

/// What a classic consumer is assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// As written; may be newer than [`LATEST_VERSION`].
    pub version: i16,
    /// What the member shall hold.
    pub partitions: NamePartitions,
    /// The assignor's own bytes.
    pub user_data: Option<Bytes>,
}

/// The topics of a subscription of any version, read as the version 0 that all of them begin with.
///
/// `None` if the bytes are no subscription. Kafka reads no further either when it asks what a classic group
/// subscribes to, so a member whose later fields are broken still counts.
#[must_use]
pub fn subscribed_topics(metadata: &[u8]) -> Option<BTreeSet<TopicName>> {
    let mut read = Reader(metadata);
    read.i16()?;
    let topics = read.strings()?;
    read.nullable_bytes()?;
    Some(topics.into_iter().collect())
}

/// The version that a subscription or an assignment names, whatever follows it.
#[must_use]
pub fn version_of(bytes: &[u8]) -> Option<i16> {
    Reader(bytes).i16()
}

impl Subscription {
    /// Reads a whole subscription; `None` if the bytes are none, or of a negative version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut read = Reader(bytes);
        let version = read.i16().filter(|version| *version >= 0)?;
        let topics = read.strings()?;
        let user_data = read.nullable_bytes()?.map(Bytes::copy_from_slice);
        let owned = if version >= 1 {
            read.partitions()?
        } else {
            Vec::new()
        };
        let generation = if version >= 2 { read.i32()? } else { -1 };
        let rack_id = if version >= 3 {
            read.nullable_string()?
        } else {
            None
        };
        Some(Self {
            version,
            topics,
            user_data,
            owned,
            generation,
            rack_id,
        })
    }

    /// The bytes of it; a version beyond [`LATEST_VERSION`] has that version's fields.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(self.version);
        put_count(&mut out, self.topics.len());
        for topic in &self.topics {
            put_string(&mut out, topic);
        }
        put_nullable_bytes(&mut out, self.user_data.as_ref());
        if self.version >= 1 {
            put_partitions(&mut out, &self.owned);
        }
        if self.version >= 2 {
            out.put_i32(self.generation);
        }
        if self.version >= 3 {
            match &self.rack_id {
                Some(rack_id) => put_string(&mut out, rack_id),
                None => out.put_i16(-1),
            }
        }
        out.freeze()
    }
}

impl Assignment {
    /// Reads a whole assignment; `None` if the bytes are none, or of a negative version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut read = Reader(bytes);
        Some(Self {
            version: read.i16().filter(|version| *version >= 0)?,
            partitions: read.partitions()?,
            user_data: read.nullable_bytes()?.map(Bytes::copy_from_slice),
        })
    }

    /// The bytes of it.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(self.version);
        put_partitions(&mut out, &self.partitions);
        put_nullable_bytes(&mut out, self.user_data.as_ref());
        out.freeze()
    }

    /// Whether an assignor of the client's own put bytes into it, which no server assignor could give back.
    #[must_use]
    pub fn has_user_data(&self) -> bool {
        self.user_data.as_ref().is_some_and(|data| !data.is_empty())
    }
}

/// A cursor that yields `None` where the bytes end too early or say something that cannot be.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// An array's count, refused where its elements, `smallest` bytes each, could not be there.
    fn count(&mut self, smallest: usize) -> Option<usize> {
        let count = usize::try_from(self.i32()?).ok()?;
        (count <= self.0.len() / smallest).then_some(count)
    }

    /// Bytes that are not UTF-8 become replacement characters, as in Kafka.
    fn string(&mut self) -> Option<TopicName> {
        let length = usize::try_from(self.i16()?).ok()?;
        Some(String::from_utf8_lossy(self.take(length)?).into())
    }

    /// Any negative length is null, as in Kafka.
    fn nullable_string(&mut self) -> Option<Option<TopicName>> {
        match usize::try_from(self.i16()?) {
            Ok(length) => Some(Some(String::from_utf8_lossy(self.take(length)?).into())),
            Err(_) => Some(None),
        }
    }

    fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.i32()?) {
            Ok(length) => self.take(length).map(Some),
            Err(_) => Some(None),
        }
    }

    fn strings(&mut self) -> Option<Vec<TopicName>> {
        (0..self.count(2)?).map(|_| self.string()).collect()
    }

    fn partitions(&mut self) -> Option<NamePartitions> {
        (0..self.count(6)?)
            .map(|_| {
                let topic = self.string()?;
                let partitions = (0..self.count(4)?)
                    .map(|_| self.i32())
                    .collect::<Option<_>>()?;
                Some((topic, partitions))
            })
            .collect()
    }
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_i32(i32::try_from(count).expect("no frame holds 2^31 elements"));
}

/// Names in state came through int16 lengths or topic checks; one that somehow is longer is cut, never mis-framed.
fn put_string(out: &mut BytesMut, text: &str) {
    let mut end = text.len().min(i16::MAX as usize);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.put_i16(end as i16);
    out.put_slice(&text.as_bytes()[..end]);
}

fn put_nullable_bytes(out: &mut BytesMut, bytes: Option<&Bytes>) {
    match bytes {
        Some(bytes) => {
            put_count(out, bytes.len());
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

fn put_partitions(out: &mut BytesMut, topics: &NamePartitions) {
    put_count(out, topics.len());
    for (topic, partitions) in topics {
        put_string(out, topic);
        put_count(out, partitions.len());
        for partition in partitions {
            out.put_i32(*partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subscription(version: i16) -> Subscription {
        Subscription {
            version,
            topics: vec!["b".into(), "a".into()],
            user_data: Some(Bytes::from_static(b"own")),
            owned: vec![("a".into(), vec![2, 0])],
            generation: 7,
            rack_id: Some("r1".into()),
        }
    }

    #[test]
    fn a_version_3_subscription_is_these_bytes() {
        let bytes = subscription(3).to_bytes();
        assert_eq!(
            &bytes[..],
            b"\0\x03\0\0\0\x02\0\x01b\0\x01a\0\0\0\x03own\0\0\0\x01\0\x01a\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0\x07\0\x02r1"
        );
        assert_eq!(Subscription::parse(&bytes), Some(subscription(3)));
    }

    #[test]
    fn older_versions_lack_the_later_fields() {
        for version in 0..3 {
            let parsed = Subscription::parse(&subscription(version).to_bytes()).unwrap();
            assert_eq!(parsed.version, version);
            assert_eq!(parsed.topics, subscription(0).topics);
            assert_eq!(parsed.owned.len(), usize::from(version >= 1));
            assert_eq!(parsed.generation, if version >= 2 { 7 } else { -1 });
            assert_eq!(parsed.rack_id, None);
        }
    }

    #[test]
    fn a_newer_version_reads_as_the_latest() {
        let mut bytes = subscription(9).to_bytes().to_vec();
        bytes.extend_from_slice(b"fields of a later day");
        assert_eq!(Subscription::parse(&bytes), Some(subscription(9)));
        assert!(Subscription::parse(&subscription(-1).to_bytes()).is_none());
    }

    #[test]
    fn subscribed_topics_reads_no_further_than_version_0() {
        let bytes = subscription(3).to_bytes();
        let v0_end = subscription(0).to_bytes().len();
        let topics = subscribed_topics(&bytes[..v0_end]).unwrap();
        assert_eq!(topics, BTreeSet::from(["a".into(), "b".into()]));
        assert!(
            Subscription::parse(&bytes[..v0_end]).is_none(),
            "owned partitions are missing"
        );
        for short in 0..v0_end {
            assert_eq!(
                subscribed_topics(&bytes[..short]),
                None,
                "{short} bytes are too few"
            );
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_anything_is_allocated() {
        assert_eq!(subscribed_topics(b"\0\0\x7f\xff\xff\xff\0\0"), None);
        assert_eq!(
            subscribed_topics(b"\0\0\xff\xff\xff\xff\0\0\0\0"),
            None,
            "null is no list"
        );
        assert!(Assignment::parse(b"\0\0\0\0\0\x01\0\x01t\x7f\xff\xff\xff").is_none());
    }

    #[test]
    fn an_assignment_without_user_data_may_say_null_or_nothing() {
        let mut assignment = Assignment {
            version: 1,
            partitions: vec![("t".into(), vec![0, 1])],
            user_data: None,
        };
        assert_eq!(
            Assignment::parse(&assignment.to_bytes()),
            Some(assignment.clone())
        );
        assert!(!assignment.has_user_data());
        assignment.user_data = Some(Bytes::new());
        assert_eq!(
            Assignment::parse(&assignment.to_bytes()),
            Some(assignment.clone())
        );
        assert!(!assignment.has_user_data());
        assignment.user_data = Some(Bytes::from_static(b"x"));
        assert!(assignment.has_user_data());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = subscribed_topics(&bytes);
            let _ = Subscription::parse(&bytes);
            let _ = Assignment::parse(&bytes);
        }

        #[test]
        fn what_parses_whole_names_the_same_topics_as_its_prefix(bytes in proptest::collection::vec(0u8..4, 0..64)) {
            if let Some(whole) = Subscription::parse(&bytes) {
                prop_assert_eq!(subscribed_topics(&bytes), Some(whole.topics.into_iter().collect()));
            }
        }
    }
}
