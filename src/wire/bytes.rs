//! Reading and writing Kafka's primitive types, in the classic and the compact encoding.
//!
//! The reader is as lenient as Kafka's own (any negative length is null, invalid UTF-8 is replaced)
//! and copies whatever may be kept, so that no value pins a frame. The writer never fails half-way:
//! the first thing it cannot write is remembered and told at the end.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::guard::{Flaw, Refusal, STRING_BYTES_MAX};
use crate::group::types::TopicId;

/// Reads one body or record.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
    /// Compact lengths and tagged fields.
    flexible: bool,
}

pub(crate) type Read<T> = Result<T, Refusal>;

/// A string from its bytes; what is not UTF-8 is replaced, as Java's decoder does.
///
/// # Errors
/// The replacements make it too long to be written again.
pub(crate) fn text(bytes: &[u8]) -> Result<Arc<str>, Flaw> {
    if bytes.is_empty() {
        return Ok(Arc::default());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Ok(Arc::from(text));
    }
    let text = String::from_utf8_lossy(bytes);
    if text.len() > STRING_BYTES_MAX {
        return Err(Flaw::StringTooLong { bytes: text.len() });
    }
    Ok(Arc::from(&*text))
}

impl<'a> Reader<'a> {
    pub(crate) fn new(all: &'a [u8], flexible: bool) -> Self {
        Self {
            all,
            at: 0,
            flexible,
        }
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn left(&self) -> usize {
        self.all.len() - self.at
    }

    pub(crate) fn refuse<T>(&self, why: Flaw) -> Read<T> {
        Err(Refusal { at: self.at, why })
    }

    pub(crate) fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        match self.all.get(self.at..).and_then(|rest| rest.get(..n)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => self.refuse(Flaw::CutShort {
                needed: n as u64,
                left: self.left(),
            }),
        }
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self
            .take(N)?
            .try_into()
            .expect("take gives as many bytes as asked"))
    }

    pub(crate) fn bool(&mut self) -> Read<bool> {
        Ok(self.i8()? != 0)
    }

    pub(crate) fn i8(&mut self) -> Read<i8> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    pub(crate) fn i16(&mut self) -> Read<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Read<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Read<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn topic_id(&mut self) -> Read<TopicId> {
        Ok(TopicId(self.array()?))
    }

    pub(crate) fn unsigned_varint(&mut self) -> Read<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.refuse(Flaw::Varint)
    }

    /// A zigzag varint of up to 64 bits, as record batches use.
    pub(crate) fn varlong(&mut self) -> Read<i64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        self.refuse(Flaw::Varint)
    }

    fn compact_length(&mut self) -> Read<i32> {
        // Kafka computes in wrapping int32: a huge varint is a negative length, hence null.
        Ok(i32::from_ne_bytes(self.unsigned_varint()?.to_ne_bytes()).wrapping_sub(1))
    }

    /// A string that may be null, as it stands in the frame.
    pub(crate) fn nullable_string_ref(&mut self) -> Read<Option<&'a [u8]>> {
        let length = if self.flexible {
            self.compact_length()?
        } else {
            i32::from(self.i16()?)
        };
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        if length > STRING_BYTES_MAX {
            return self.refuse(Flaw::StringTooLong { bytes: length });
        }
        self.take(length).map(Some)
    }

    /// A string, copied.
    pub(crate) fn string(&mut self) -> Read<Arc<str>> {
        self.nullable_string()
            .and_then(|text| text.map_or_else(|| self.refuse(Flaw::Null), Ok))
    }

    /// A string that may be null, copied.
    pub(crate) fn nullable_string(&mut self) -> Read<Option<Arc<str>>> {
        let Some(bytes) = self.nullable_string_ref()? else {
            return Ok(None);
        };
        text(bytes).map(Some).or_else(|why| self.refuse(why))
    }

    fn raw_bytes(&mut self) -> Read<Option<&'a [u8]>> {
        let length = if self.flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        usize::try_from(length)
            .ok()
            .map(|n| self.take(n))
            .transpose()
    }

    /// Opaque bytes, copied.
    pub(crate) fn bytes(&mut self) -> Read<Bytes> {
        match self.raw_bytes()? {
            Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            None => self.refuse(Flaw::Null),
        }
    }

    /// The count of an array whose elements take at least `least` bytes; `None` for null.
    pub(crate) fn nullable_count(&mut self, least: usize) -> Read<Option<usize>> {
        let count = if self.flexible {
            self.compact_length()?
        } else {
            self.i32()?
        };
        let Ok(count) = u32::try_from(count) else {
            return Ok(None);
        };
        if u64::from(count) * least as u64 > self.left() as u64 {
            return self.refuse(Flaw::Count {
                count,
                left: self.left(),
            });
        }
        Ok(Some(count as usize))
    }

    /// An array that may be null. `least` is the fewest bytes of an element.
    pub(crate) fn nullable_array<T>(
        &mut self,
        least: usize,
        mut element: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Option<Vec<T>>> {
        let Some(count) = self.nullable_count(least)? else {
            return Ok(None);
        };
        // `nullable_count` has held the count against the bytes that are there.
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(element(self)?);
        }
        Ok(Some(items))
    }

    /// An array.
    pub(crate) fn items<T>(
        &mut self,
        least: usize,
        element: impl FnMut(&mut Self) -> Read<T>,
    ) -> Read<Vec<T>> {
        match self.nullable_array(least, element)? {
            Some(items) => Ok(items),
            None => self.refuse(Flaw::Null),
        }
    }

    /// Skips tagged fields, where the encoding has them.
    pub(crate) fn tags(&mut self) -> Read<()> {
        self.known_tags(|_, _| Ok(false))
    }

    /// Tagged fields: `known` reads a tag it knows and says so; the stated size is then not believed,
    /// as in Kafka. Others are skipped.
    pub(crate) fn known_tags(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Read<bool>,
    ) -> Read<()> {
        if !self.flexible {
            return Ok(());
        }
        let count = self.unsigned_varint()?;
        // A count above int32 is negative to Kafka: no tagged fields.
        for _ in 0..i32::try_from(count).unwrap_or(0) {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()?;
            if !known(self, tag)? {
                self.take(size as usize)?;
            }
        }
        Ok(())
    }
}

/// A tag and what writes its value.
pub(crate) type Tagged<'a> = (u32, &'a dyn Fn(&mut Writer));

/// Writes one frame or record.
#[derive(Debug)]
pub(crate) struct Writer {
    out: BytesMut,
    flexible: bool,
    failed: Option<&'static str>,
}

impl Writer {
    pub(crate) fn new(capacity: usize, flexible: bool) -> Self {
        Self {
            out: BytesMut::with_capacity(capacity),
            flexible,
            failed: None,
        }
    }

    pub(crate) fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    pub(crate) fn fail(&mut self, why: &'static str) {
        self.failed.get_or_insert(why);
    }

    /// The bytes, or what could not be written.
    pub(crate) fn finish(self) -> Result<BytesMut, &'static str> {
        self.failed.map_or(Ok(self.out), Err)
    }

    /// The bytes so far, or what could not be written.
    pub(crate) fn outcome(&self) -> Result<&[u8], &'static str> {
        self.failed.map_or(Ok(&self.out), Err)
    }

    /// Begins again, keeping the room.
    pub(crate) fn clear(&mut self) {
        self.out.clear();
        self.failed = None;
    }

    /// What stands so far; for lengths and checksums that go in front.
    pub(crate) fn written(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.out.put_u8(u8::from(value));
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.out.put_i8(value);
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.out.put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.put_i64(value);
    }

    pub(crate) fn topic_id(&mut self, id: TopicId) {
        self.out.put_slice(&id.0);
    }

    pub(crate) fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.out.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.put_u8(value as u8);
    }

    /// The length of bytes or of an array.
    pub(crate) fn length(&mut self, n: usize) {
        let Ok(n) = i32::try_from(n) else {
            return self.fail("more than 2^31 bytes or elements");
        };
        if self.flexible {
            self.unsigned_varint(n as u32 + 1)
        } else {
            self.i32(n)
        }
    }

    pub(crate) fn string(&mut self, text: &str) {
        if text.len() > STRING_BYTES_MAX {
            return self.fail("a string longer than 32,767 bytes");
        }
        if self.flexible {
            self.unsigned_varint(text.len() as u32 + 1);
        } else {
            self.i16(text.len() as i16);
        }
        self.raw(text.as_bytes());
    }

    pub(crate) fn nullable_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None if self.flexible => self.out.put_u8(0),
            None => self.i16(-1),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.raw(bytes);
    }

    pub(crate) fn items<T>(&mut self, items: &[T], mut element: impl FnMut(&mut Self, &T)) {
        self.length(items.len());
        for item in items {
            element(self, item);
        }
    }

    /// An array that may be null.
    #[cfg(feature = "sim")]
    pub(crate) fn nullable_items<T>(
        &mut self,
        items: Option<&[T]>,
        element: impl FnMut(&mut Self, &T),
    ) {
        match items {
            Some(items) => self.items(items, element),
            None if self.flexible => self.out.put_u8(0),
            None => self.i32(-1),
        }
    }

    /// No tagged fields, where the encoding has them.
    pub(crate) fn tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    /// Tagged fields, ascending by tag, each written by a closure.
    pub(crate) fn tagged(&mut self, fields: &[Tagged<'_>]) {
        self.unsigned_varint(fields.len() as u32);
        for (tag, field) in fields {
            let mut value = Self::new(32, self.flexible);
            field(&mut value);
            if let Some(why) = value.failed {
                self.fail(why);
            }
            self.unsigned_varint(*tag);
            self.unsigned_varint(value.out.len() as u32);
            self.raw(&value.out);
        }
    }
}
