//! The wire room against Kafka's own bytes, against kafka-protocol, and against liars.

mod golden_replies;
mod golden_requests;
mod hostile;
mod lenient;
mod oracle;

use ::bytes::Bytes;

use super::guard::Op;
use super::*;

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// The frames of a golden file: (name, version, bytes).
fn frames(file: &'static str) -> impl Iterator<Item = (&'static str, i16, Vec<u8>)> {
    file.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, hex) = line.split_once(' ').unwrap();
            let (name, version) = name.rsplit_once("-v").unwrap();
            (name, version.parse().unwrap(), unhex(hex))
        })
}

fn peer() -> Peer {
    Peer::new("/127.0.0.1")
}

/// Every version of every row that is read, hidden rows included.
fn rows() -> impl Iterator<Item = (&'static Api, i16)> {
    api::APIS
        .iter()
        .flat_map(|api| (api.decode_from..=api.max).map(move |version| (api, version)))
}

fn header_of(api: &'static Api, api_version: i16) -> Header {
    let client = Client {
        id: "cid".into(),
        host: "/127.0.0.1".into(),
    };
    Header {
        api,
        api_version,
        correlation_id: 7,
        client,
        elements: 0,
        asked: None,
    }
}

/// Decodes a body, of a hidden row too.
fn decode_body(api: &'static Api, version: i16, body: Vec<u8>) -> Result<Call, Error> {
    body_of(header_of(api, version), Bytes::from(body)).map(|(_, call)| call)
}

/// SplitMix64: the same bytes on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// A length or count in a generated body.
#[derive(Debug, Clone, Copy)]
enum Length {
    Int16,
    Int32,
    Varint,
}

/// Makes bodies from the shape tables.
struct Maker {
    dice: Dice,
    out: Vec<u8>,
    /// Where lengths and counts stand.
    lengths: Vec<(usize, Length)>,
    /// No nulls, no empty arrays: every op of the program has bytes.
    full: bool,
    /// Whether a tag that schemas know was written.
    known_tags: bool,
}

impl Maker {
    fn body(ops: &[Op], seed: u64, full: bool) -> Self {
        let (dice, out, lengths) = (Dice(seed), Vec::new(), Vec::new());
        let mut maker = Self {
            dice,
            out,
            lengths,
            full,
            known_tags: false,
        };
        maker.run(ops);
        maker
    }

    fn chance(&mut self) -> bool {
        !self.full && self.dice.roll(4) == 0
    }

    /// Fields of fixed size: bytes of 0 and 1, so that a boolean is written back as it was.
    fn fixed(&mut self, n: u8) {
        for _ in 0..n {
            let byte = self.dice.roll(2) as u8;
            self.out.push(byte);
        }
    }

    fn length(&mut self, kind: Length, value: i64) {
        self.lengths.push((self.out.len(), kind));
        match kind {
            Length::Int16 => self.out.extend((value as i16).to_be_bytes()),
            Length::Int32 => self.out.extend((value as i32).to_be_bytes()),
            Length::Varint => self.varint((value + 1) as u32),
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn text(&mut self, kind: Length, nullable: bool) {
        if nullable && self.chance() {
            return self.length(kind, -1);
        }
        let length = self.dice.roll(12) + u64::from(self.full);
        self.length(kind, length as i64);
        for _ in 0..length {
            let byte = b'a' + self.dice.roll(26) as u8;
            self.out.push(byte);
        }
    }

    fn array(&mut self, kind: Length, nullable: bool, element: &[Op]) {
        if nullable && self.chance() {
            return self.length(kind, -1);
        }
        let count = self.dice.roll(3) + u64::from(self.full);
        self.length(kind, count as i64);
        for _ in 0..count {
            self.run(element);
        }
    }

    fn run(&mut self, ops: &[Op]) {
        use Length::{Int16, Int32, Varint};
        let mut next = 0;
        while next < ops.len() {
            let op = ops[next];
            next += 1;
            let held = match op {
                Op::Arr(_, n) | Op::ArrN(_, n) | Op::CArr(_, n) | Op::CArrN(_, n) => n,
                Op::Opt(n) | Op::Tags(n) => n,
                _ => 0,
            };
            let inner = &ops[next..next + usize::from(held)];
            next += usize::from(held);
            match op {
                Op::Fix(n) => self.fixed(n),
                Op::Str => self.text(Int16, false),
                Op::StrN => self.text(Int16, true),
                Op::CStr => self.text(Varint, false),
                Op::CStrN => self.text(Varint, true),
                Op::Bytes => self.text(Int32, false),
                Op::BytesN => self.text(Int32, true),
                Op::CBytes => self.text(Varint, false),
                Op::CBytesN => self.text(Varint, true),
                Op::Fixes(n) => self.array(Int32, false, &[Op::Fix(n)]),
                Op::CFixes(n) => self.array(Varint, false, &[Op::Fix(n)]),
                Op::Arr(..) => self.array(Int32, false, inner),
                Op::ArrN(..) => self.array(Int32, true, inner),
                Op::CArr(..) => self.array(Varint, false, inner),
                Op::CArrN(..) => self.array(Varint, true, inner),
                Op::Opt(_) => {
                    let null = self.chance();
                    self.out.push(if null { 0xff } else { 1 });
                    if !null {
                        self.run(inner);
                    }
                }
                Op::Tags(_) => self.tags(inner),
                Op::Tag(..) | Op::NoTag(_) => unreachable!("inside Tags only"),
            }
        }
    }

    fn tags(&mut self, known: &[Op]) {
        let mut fields: Vec<(u8, &[Op])> = Vec::new();
        let mut next = 0;
        while next < known.len() {
            next += 1;
            if let Op::Tag(tag, n) = known[next - 1] {
                if self.full || self.dice.roll(2) == 0 {
                    fields.push((tag, &known[next..next + usize::from(n)]));
                }
                next += usize::from(n);
            }
        }
        let unknown = !self.full && self.dice.roll(4) == 0;
        self.known_tags |= !fields.is_empty();
        self.varint(fields.len() as u32 + u32::from(unknown));
        for (tag, field) in fields {
            let value = Self::body(field, self.dice.roll(u64::MAX), self.full);
            self.varint(u32::from(tag));
            self.varint(value.out.len() as u32);
            let at = self.out.len();
            self.lengths.extend(
                value
                    .lengths
                    .iter()
                    .map(|(offset, kind)| (at + offset, *kind)),
            );
            self.out.extend(value.out);
        }
        if unknown {
            self.varint(90);
            self.varint(2);
            self.fixed(2);
        }
    }
}

#[test]
fn fetched_batches_are_parts_of_their_own_and_the_bytes_are_the_same() {
    use kafka_protocol::messages::FetchResponse;
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData,
    };

    let records = Bytes::from(vec![7; 300]);
    for (api, version) in rows().filter(|(api, _)| api.name == "Fetch") {
        let plain = PartitionData::default().with_partition_index(3);
        let full = plain
            .clone()
            .with_high_watermark(9)
            .with_records(Some(records.clone()));
        let mut aborted = full.clone();
        aborted.aborted_transactions = Some(vec![AbortedTransaction::default()]);
        let mut diverging = full.clone();
        if version >= 12 {
            let epoch = EpochEndOffset::default().with_epoch(4).with_end_offset(5);
            diverging = diverging.with_diverging_epoch(epoch);
        }
        let mut topic = FetchableTopicResponse::default().with_partitions(vec![
            plain.clone().with_records(Some(Bytes::new())),
            full,
            plain,
            aborted,
            diverging,
        ]);
        if version < 13 {
            topic = topic.with_topic(kafka_protocol::messages::TopicName(
                kafka_protocol::protocol::StrBytes::from_static_str("topic"),
            ));
        }
        let reply = FetchResponse::default().with_responses(vec![topic.clone(), topic]);
        let reply = Reply::Data(data::Reply::Fetch(reply));
        let header = header_of(api, version);
        let parts = encode_parts(&header, &reply).unwrap();
        assert_eq!(parts.len(), 13, "version {version}");
        let own = |part: &&Bytes| part.as_ptr() == records.as_ptr();
        assert_eq!(parts.iter().filter(own).count(), 6);
        assert_eq!(
            parts.concat(),
            encode(&header, &reply).unwrap(),
            "version {version}"
        );
    }
}
