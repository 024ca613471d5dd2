//! Record batches: how one is built, and where its fields are.

/// Bytes in front of the records.
pub const HEADER_BYTES: usize = 61;

/// What a batch is to hold.
pub struct Shape<'a> {
    /// One record for each.
    pub timestamps: &'a [i64],
    /// Id, epoch and first sequence number; −1 for none.
    pub producer: (i64, i16, i32),
    /// Zeros in each record's value.
    pub value_bytes: usize,
}

impl Shape<'_> {
    /// The batch, uncompressed.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let first = self.timestamps.first().copied().unwrap_or(0);
        let last = self.timestamps.iter().copied().max().unwrap_or(0);
        let count = self.timestamps.len() as i32;
        let mut out = vec![0; HEADER_BYTES];
        out[16] = 2;
        out[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        out[27..35].copy_from_slice(&first.to_be_bytes());
        out[35..43].copy_from_slice(&last.to_be_bytes());
        out[43..51].copy_from_slice(&self.producer.0.to_be_bytes());
        out[51..53].copy_from_slice(&self.producer.1.to_be_bytes());
        out[53..57].copy_from_slice(&self.producer.2.to_be_bytes());
        out[57..61].copy_from_slice(&count.to_be_bytes());
        for (timestamp, index) in self.timestamps.iter().zip(0..) {
            let mut record = vec![0];
            for number in [timestamp - first, index, -1, self.value_bytes as i64] {
                varint(number, &mut record);
            }
            record.resize(record.len() + self.value_bytes, 0);
            record.push(0);
            varint(record.len() as i64, &mut out);
            out.extend(record);
        }
        mend(&mut out);
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

/// Gives bytes that are at least a header the right length and checksum.
pub fn mend(batch: &mut [u8]) {
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// So many bytes from a place on.
#[must_use]
pub fn at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// The number at a place.
#[must_use]
pub fn i32_at(bytes: &[u8], place: usize) -> i32 {
    i32::from_be_bytes(at(bytes, place))
}

/// The number at a place.
#[must_use]
pub fn i64_at(bytes: &[u8], place: usize) -> i64 {
    i64::from_be_bytes(at(bytes, place))
}
