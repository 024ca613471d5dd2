//! The header of a record batch (Kafka's format 2): the only part of a batch this room reads when records are produced
//! or fetched. Opening a batch is `records`.

/// Bytes in front of the records.
pub(super) const HEADER_BYTES: usize = 61;
/// Bytes in front of what `batch length` counts.
const LENGTH_END: usize = 12;
/// Where the bytes covered by the CRC begin.
const CRC_FROM: usize = 21;

const CODEC_MASK: i16 = 0b111;
const APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// No producer id: the batch is not idempotent.
pub(super) const NO_PRODUCER: i64 = -1;
/// No timestamp.
pub(super) const NO_TIMESTAMP: i64 = -1;

/// A batch header as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) base_offset: i64,
    /// Of the whole batch, header included.
    pub(super) bytes: usize,
    pub(super) crc: u32,
    pub(super) attributes: i16,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) count: i32,
}

/// Why bytes are no batch of format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// Shorter than its header, or than its length says.
    Short,
    /// Another format.
    Magic(u8),
    /// A length that cannot be.
    Length,
}

impl Header {
    /// Reads a header. The batch may reach beyond `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Bad> {
        if bytes.len() < LENGTH_END + 5 {
            return Err(Bad::Short);
        }
        if bytes[16] != 2 {
            return Err(Bad::Magic(bytes[16]));
        }
        let length = i32::from_be_bytes(take(bytes, 8));
        let whole = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(LENGTH_END));
        let whole = whole
            .filter(|whole| *whole >= HEADER_BYTES)
            .ok_or(Bad::Length)?;
        if bytes.len() < HEADER_BYTES {
            return Err(Bad::Short);
        }
        Ok(Self {
            base_offset: i64::from_be_bytes(take(bytes, 0)),
            bytes: whole,
            crc: u32::from_be_bytes(take(bytes, 17)),
            attributes: i16::from_be_bytes(take(bytes, CRC_FROM)),
            last_offset_delta: i32::from_be_bytes(take(bytes, 23)),
            base_timestamp: i64::from_be_bytes(take(bytes, 27)),
            max_timestamp: i64::from_be_bytes(take(bytes, 35)),
            producer_id: i64::from_be_bytes(take(bytes, 43)),
            producer_epoch: i16::from_be_bytes(take(bytes, 51)),
            base_sequence: i32::from_be_bytes(take(bytes, 53)),
            count: i32::from_be_bytes(take(bytes, 57)),
        })
    }

    /// The offset of the last record.
    pub(super) fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// The sequence number of the last record; they wrap at the end of i32.
    pub(super) fn last_sequence(&self) -> i32 {
        self.base_sequence.wrapping_add(self.last_offset_delta) & i32::MAX
    }

    /// How the records are compressed, by Kafka's number.
    pub(super) fn codec(&self) -> i16 {
        self.attributes & CODEC_MASK
    }

    /// Whether the broker's clock stamped the batch.
    pub(super) fn is_append_time(&self) -> bool {
        self.attributes & APPEND_TIME != 0
    }

    pub(super) fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    pub(super) fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }
}

/// Whether the CRC in the header is that of the bytes. `batch` is one whole batch.
pub(super) fn crc_matches(header: &Header, batch: &[u8]) -> bool {
    batch.len() == header.bytes && crc32c::crc32c(&batch[CRC_FROM..]) == header.crc
}

/// The header bytes of a batch as it is stored: offset and leader epoch, which lie outside the CRC, are ours. With
/// `append_time_ms` the broker's stamp replaces the producer's; without it a claim that the broker stamped the batch is
/// taken out. Either makes the CRC anew.
pub(super) fn stored_header(
    batch: &[u8],
    base_offset: i64,
    append_time_ms: Option<i64>,
) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    head.copy_from_slice(&batch[..HEADER_BYTES]);
    head[0..8].copy_from_slice(&base_offset.to_be_bytes());
    head[12..16].copy_from_slice(&super::LEADER_EPOCH.to_be_bytes());
    let sent = i16::from_be_bytes(take(&head, CRC_FROM));
    let stored = if append_time_ms.is_some() {
        sent | APPEND_TIME
    } else {
        sent & !APPEND_TIME
    };
    if let Some(now) = append_time_ms {
        head[35..43].copy_from_slice(&now.to_be_bytes());
    }
    if stored != sent || append_time_ms.is_some() {
        head[21..23].copy_from_slice(&stored.to_be_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[CRC_FROM..]), &batch[HEADER_BYTES..]);
        head[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    head
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut taken = [0; N];
    taken.copy_from_slice(&bytes[at..at + N]);
    taken
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Writes batches for tests.
    #[derive(Clone, Debug)]
    pub(crate) struct Batch {
        pub(crate) attributes: i16,
        pub(crate) base_timestamp: i64,
        pub(crate) max_timestamp: i64,
        pub(crate) producer: (i64, i16, i32),
        pub(crate) count: i32,
        pub(crate) records: Vec<u8>,
    }

    impl Batch {
        /// Uncompressed records with these timestamps and a value of `bytes` zeros.
        pub(crate) fn of(timestamps: &[i64], bytes: usize) -> Self {
            let base = timestamps[0];
            let records = timestamps
                .iter()
                .zip(0..)
                .flat_map(|(ts, delta)| record(ts - base, delta, bytes))
                .collect();
            Self {
                attributes: 0,
                base_timestamp: base,
                max_timestamp: timestamps.iter().copied().max().unwrap(),
                producer: (NO_PRODUCER, -1, -1),
                count: timestamps.len() as i32,
                records,
            }
        }

        pub(crate) fn by(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
            self.producer = (id, epoch, sequence);
            self
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            let mut out = vec![0; HEADER_BYTES];
            out[8..12].copy_from_slice(
                &((HEADER_BYTES - LENGTH_END + self.records.len()) as i32).to_be_bytes(),
            );
            out[12..16].copy_from_slice(&(-1i32).to_be_bytes());
            out[16] = 2;
            out[21..23].copy_from_slice(&self.attributes.to_be_bytes());
            out[23..27].copy_from_slice(&(self.count - 1).to_be_bytes());
            out[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
            out[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
            out[43..51].copy_from_slice(&self.producer.0.to_be_bytes());
            out[51..53].copy_from_slice(&self.producer.1.to_be_bytes());
            out[53..57].copy_from_slice(&self.producer.2.to_be_bytes());
            out[57..61].copy_from_slice(&self.count.to_be_bytes());
            out.extend_from_slice(&self.records);
            let crc = crc32c::crc32c(&out[CRC_FROM..]);
            out[17..21].copy_from_slice(&crc.to_be_bytes());
            out
        }
    }

    fn varint(value: i64, out: &mut Vec<u8>) {
        let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
        while left >= 0x80 {
            out.push(left as u8 | 0x80);
            left >>= 7;
        }
        out.push(left as u8);
    }

    fn record(timestamp_delta: i64, offset_delta: i64, bytes: usize) -> Vec<u8> {
        let mut body = vec![0];
        varint(timestamp_delta, &mut body);
        varint(offset_delta, &mut body);
        varint(-1, &mut body);
        varint(bytes as i64, &mut body);
        body.extend(std::iter::repeat_n(0, bytes));
        varint(0, &mut body);
        let mut out = Vec::new();
        varint(body.len() as i64, &mut out);
        out.extend(body);
        out
    }

    #[test]
    fn offset_and_epoch_lie_outside_the_crc_and_the_brokers_stamp_renews_it() {
        let sent = Batch::of(&[5, 9], 3).bytes();
        for stamp in [None, Some(77)] {
            let mut stored = sent.clone();
            stored[..HEADER_BYTES].copy_from_slice(&stored_header(&sent, 1234, stamp));
            let header = Header::read(&stored).unwrap();
            assert!(crc_matches(&header, &stored));
            assert_eq!((header.base_offset, header.last_offset()), (1234, 1235));
            assert_eq!(
                (header.is_append_time(), header.max_timestamp),
                (stamp.is_some(), stamp.unwrap_or(9))
            );
        }
    }

    #[test]
    fn what_is_no_batch_is_told_apart() {
        let good = Batch::of(&[1], 0).bytes();
        assert_eq!(Header::read(&good[..16]), Err(Bad::Short));
        assert_eq!(Header::read(&good[..40]), Err(Bad::Short));
        let mut old = good.clone();
        old[16] = 1;
        assert_eq!(Header::read(&old), Err(Bad::Magic(1)));
        let mut lying = good.clone();
        lying[8..12].copy_from_slice(&(-3i32).to_be_bytes());
        assert_eq!(Header::read(&lying), Err(Bad::Length));
        let mut flipped = good;
        *flipped.last_mut().unwrap() ^= 1;
        assert!(!crc_matches(&Header::read(&flipped).unwrap(), &flipped));
    }

    #[test]
    fn sequences_wrap_behind_the_largest() {
        let header =
            Header::read(&Batch::of(&[1, 1, 1], 0).by(1, 0, i32::MAX - 1).bytes()).unwrap();
        assert_eq!(header.last_sequence(), 0);
    }
}
