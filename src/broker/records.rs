//! Opening one batch: decompress it within a bound and find a record by its timestamp. Used by ListOffsets and for lag in time; the
//! bytes are a client's and are believed nowhere.

use std::io::{self, Read};

use super::batch::{HEADER_BYTES, Header};

/// What may be opened for one question. Kafka's clients build batches of at most a few MiB.
const OPENED_BYTES_MAX: usize = 256 << 20;
/// What opening a batch counts for, beside its records.
const OPENING_BYTES: usize = 256 << 10;
/// The longest block of a framed snappy stream; the Java library writes 32 KiB.
const SNAPPY_BLOCK_BYTES_MAX: usize = 64 << 20;
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// Why a batch cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// The bytes are not what their codec says.
    #[error("the batch cannot be decompressed: {0}")]
    Codec(#[from] io::Error),
    /// No such codec.
    #[error("codec {0} is unknown")]
    UnknownCodec(i16),
    /// The batch grows beyond the bound.
    #[error("more than {OPENED_BYTES_MAX} bytes would have to be opened")]
    TooLarge,
    /// A record is not what it should be.
    #[error("record {0} of the batch is malformed")]
    Record(i32),
}

/// One record, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
}

/// How much may still be opened for one question. Batches that promise a timestamp they do not have cost their producer
/// nothing and would be opened one after the other.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    /// Whether nothing more is to be opened.
    pub(super) fn is_spent(&self) -> bool {
        self.0 == 0
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self(OPENED_BYTES_MAX)
    }
}

/// The first record of the batch that satisfies `wanted`.
///
/// # Errors
/// [`Unreadable`], if it is met before such a record.
pub(super) fn find(
    header: &Header,
    batch: &[u8],
    budget: &mut Budget,
    wanted: impl Fn(Stamp) -> bool,
) -> Result<Option<Stamp>, Unreadable> {
    let body = batch.get(HEADER_BYTES..).unwrap_or_default();
    budget.0 = budget.0.saturating_sub(OPENING_BYTES);
    let mut reader = open(header.codec(), body)?;
    let mut opened = Counted {
        inner: &mut *reader,
        left: &mut budget.0,
    };
    for index in 0..header.count {
        let stamp = opened.record(header).map_err(|error| match error.kind() {
            io::ErrorKind::QuotaExceeded => Unreadable::TooLarge,
            io::ErrorKind::InvalidData if header.codec() == 0 => Unreadable::Record(index),
            io::ErrorKind::UnexpectedEof => Unreadable::Record(index),
            _ => Unreadable::Codec(error),
        })?;
        if wanted(stamp) {
            return Ok(Some(stamp));
        }
    }
    Ok(None)
}

/// A reader of the records' bytes that never holds more than a window of them, but for snappy's blocks.
fn open<'a>(codec: i16, body: &'a [u8]) -> Result<Box<dyn Read + 'a>, Unreadable> {
    Ok(match codec {
        0 => Box::new(body),
        1 => Box::new(io::BufReader::new(flate2::read::MultiGzDecoder::new(body))),
        2 => Box::new(Snappy::new(body)),
        3 => Box::new(lz4_flex::frame::FrameDecoder::new(body)),
        4 => Box::new(ruzstd::decoding::StreamingDecoder::new(body).map_err(io::Error::other)?),
        other => return Err(Unreadable::UnknownCodec(other)),
    })
}

/// Reads records and counts what they take.
struct Counted<'a> {
    inner: &'a mut dyn Read,
    left: &'a mut usize,
}

impl Counted<'_> {
    fn exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let left = self
            .left
            .checked_sub(buffer.len())
            .ok_or(io::ErrorKind::QuotaExceeded)?;
        *self.left = left;
        self.inner.read_exact(buffer)
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.exact(&mut byte)?;
        Ok(byte[0])
    }

    /// A zigzag number of variable length, and how many bytes it took.
    fn varint(&mut self) -> io::Result<(i64, usize)> {
        let mut value = 0u64;
        for count in 0..10 {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * count);
            if byte & 0x80 == 0 {
                return Ok((
                    (value >> 1).cast_signed() ^ -(value & 1).cast_signed(),
                    count + 1,
                ));
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn skip(&mut self, bytes: usize) -> io::Result<()> {
        let mut scratch = [0; 4096];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(scratch.len());
            self.exact(&mut scratch[..now])?;
            left -= now;
        }
        Ok(())
    }

    /// The next record: length, attributes, timestamp delta, offset delta, and the rest, which is stepped over.
    fn record(&mut self, header: &Header) -> io::Result<Stamp> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (length, _) = self.varint()?;
        let length = usize::try_from(length).map_err(|_| invalid())?;
        self.byte()?;
        let (timestamp_delta, timestamp_bytes) = self.varint()?;
        let (offset_delta, offset_bytes) = self.varint()?;
        let rest = length
            .checked_sub(1 + timestamp_bytes + offset_bytes)
            .ok_or_else(invalid)?;
        self.skip(rest)?;
        if !(0..=i64::from(header.last_offset_delta)).contains(&offset_delta) {
            return Err(invalid());
        }
        let timestamp = match header.is_append_time() {
            true => header.max_timestamp,
            false => header.base_timestamp.wrapping_add(timestamp_delta),
        };
        Ok(Stamp {
            offset: header.base_offset.saturating_add(offset_delta),
            timestamp,
        })
    }
}

/// Snappy as Kafka's clients write it: blocks with lengths in front (the Java library's framing), or one bare block.
struct Snappy<'a> {
    left: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    at: usize,
}

impl<'a> Snappy<'a> {
    fn new(body: &'a [u8]) -> Self {
        let framed = body.starts_with(&XERIAL_MAGIC) && body.len() >= 16;
        Self {
            left: if framed { &body[16..] } else { body },
            framed,
            block: Vec::new(),
            at: 0,
        }
    }

    /// Opens the next block; `false` at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        if self.left.is_empty() {
            return Ok(false);
        }
        let packed = if self.framed {
            let (length, rest) = self.left.split_first_chunk::<4>().ok_or_else(invalid)?;
            let (packed, rest) = rest
                .split_at_checked(u32::from_be_bytes(*length) as usize)
                .ok_or_else(invalid)?;
            self.left = rest;
            packed
        } else {
            std::mem::take(&mut self.left)
        };
        let length = snap::raw::decompress_len(packed).map_err(io::Error::other)?;
        // A block cannot grow more than about 22-fold: a length that says so is a lie told to take memory.
        if length > SNAPPY_BLOCK_BYTES_MAX || length > packed.len().saturating_mul(64) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.block.resize(length, 0);
        let count = snap::raw::Decoder::new()
            .decompress(packed, &mut self.block)
            .map_err(io::Error::other)?;
        self.block.truncate(count);
        self.at = 0;
        Ok(true)
    }
}

impl Read for Snappy<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.block.len() - self.at);
        buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::batch::tests::Batch;
    use super::*;

    const STAMPS: [i64; 4] = [100, 300, 200, 400];

    fn packed(codec: i16, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let mut batch = Batch::of(&STAMPS, 2000);
        batch.attributes = codec;
        batch.records = pack(&batch.records);
        batch.bytes()
    }

    fn first_from(batch: &[u8], timestamp: i64) -> Result<Option<Stamp>, Unreadable> {
        let header = Header::read(batch).unwrap();
        find(&header, batch, &mut Budget::default(), |stamp| {
            stamp.timestamp >= timestamp
        })
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn snappy(bytes: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(bytes).unwrap()
    }

    fn xerial(bytes: &[u8]) -> Vec<u8> {
        let mut out = XERIAL_MAGIC.to_vec();
        out.extend([0, 0, 0, 1, 0, 0, 0, 1]);
        for chunk in bytes.chunks(1000) {
            let block = snappy(chunk);
            out.extend((block.len() as u32).to_be_bytes());
            out.extend(block);
        }
        out
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn the_record_is_found_inside_a_batch_of_every_codec() {
        let batches = [
            packed(0, <[u8]>::to_vec),
            packed(1, gzip),
            packed(2, snappy),
            packed(2, xerial),
            packed(3, lz4),
            packed(4, zstd),
        ];
        for batch in &batches {
            for (from, offset, timestamp) in [(0, 0, 100), (150, 1, 300), (301, 3, 400)] {
                assert_eq!(
                    first_from(batch, from).unwrap(),
                    Some(Stamp { offset, timestamp })
                );
            }
            assert_eq!(first_from(batch, 401).unwrap(), None);
        }
    }

    #[test]
    fn a_bomb_or_broken_bytes_are_an_error() {
        let bomb = |bytes: &[u8]| {
            // A first record that claims a gigabyte, and zeros that pack well.
            let mut long = vec![0x80, 0x80, 0x80, 0x80, 0x08];
            long.extend(std::iter::repeat_n(0, (2 << 20) + bytes.len()));
            long
        };
        let gzip_bomb = packed(1, |bytes| gzip(&bomb(bytes)));
        let header = Header::read(&gzip_bomb).unwrap();
        let opened = find(&header, &gzip_bomb, &mut Budget(1 << 20), |_| false);
        assert!(matches!(opened, Err(Unreadable::TooLarge)));
        // A snappy block that claims 4 GiB.
        let lie = packed(2, |_| vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        assert!(first_from(&lie, 0).is_err());
        for codec in 0..8 {
            let junk = packed(codec, |bytes| {
                bytes.iter().map(|byte| byte ^ 0xa5).collect()
            });
            assert!(first_from(&junk, 1_000).is_err(), "{codec}");
            let short = packed(codec, |_| Vec::new());
            assert!(first_from(&short, 1_000).is_err(), "{codec}");
        }
    }
}
