//! The guard: a walk over the shape of a request before anything is decoded.
//!
//! kafka-protocol reserves room for as many elements as the wire claims, so a five-byte body can
//! ask for hundreds of gigabytes. The walk reads every length and count, holds it against the bytes
//! that are left, and is exactly as lenient as Kafka's own decoder where that matters: any negative
//! length is null where null is allowed, unknown and repeated tags are skipped, bytes behind the
//! body are ignored. What Kafka accepts and kafka-protocol does not is rewritten by [`canonical`].
//! Building values from the bytes is done elsewhere.

use std::fmt;

/// One step of a program. A plain name is a classic length (`int16` for strings, `int32` for the
/// rest), `C` a compact one (varint plus one), a trailing `N` means null is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// That many bytes of any value.
    Fix(u8),
    /// A string.
    Str,
    StrN,
    CStr,
    CStrN,
    /// Opaque bytes.
    Bytes,
    BytesN,
    CBytes,
    CBytesN,
    /// An array of elements of that many bytes each.
    Fixes(u8),
    CFixes(u8),
    /// An array: the fewest bytes of an element, and how many ops that follow describe one.
    Arr(u8, u8),
    ArrN(u8, u8),
    CArr(u8, u8),
    CArrN(u8, u8),
    /// A struct that may be null, described by that many ops.
    Opt(u8),
    /// Tagged fields; that many ops that follow tell the tags the schema knows.
    Tags(u8),
    /// A known tag and how many ops describe it. Its stated size is not believed, as in Kafka.
    Tag(u8, u8),
    /// A tag of another version: Kafka closes the connection.
    NoTag(u8),
}

/// The programs of one API: (first version, program), ascending; a version uses the last that starts
/// at or below it.
pub(crate) type Shape = &'static [(i16, &'static [Op])];

/// The program of one version.
pub(crate) fn program(shape: Shape, version: i16) -> &'static [Op] {
    shape
        .iter()
        .rev()
        .find(|(from, _)| *from <= version)
        .map_or(&[], |(_, ops)| ops)
}

/// Elements of arrays of structs or strings, and tagged fields, that one frame may hold. Far above
/// any legal request (a commit of 100,000 partitions), it bounds what a frame of many tiny elements
/// can unfold into.
pub(crate) const ELEMENTS_MAX: u32 = 1_500_000;

/// Kafka's longest string in bytes, in either encoding.
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// The longest name that a member id is made from: "-" and a UUID behind it still make a string.
/// Kafka hands out longer ids and then fails to write them.
pub(crate) const NAME_BYTES_MAX: usize = STRING_BYTES_MAX - 37;

/// Why a frame is refused, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Offset in the body, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub why: Flaw,
}

/// What can be wrong with the bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// A field or length goes beyond the end of the frame.
    CutShort {
        /// Bytes the field needs.
        needed: u64,
        /// Bytes that are left.
        left: usize,
    },
    /// An array claims more elements than the bytes left can hold.
    Count {
        /// Elements claimed.
        count: u32,
        /// Bytes that are left.
        left: usize,
    },
    /// Null where the field must have a value.
    Null,
    /// A string above Kafka's limit of 32,767 bytes.
    StringTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// More elements in one frame than the guard allows.
    TooManyElements {
        /// The limit.
        limit: u32,
    },
    /// A variable-length integer that does not end after five bytes.
    Varint,
    /// A tagged field that this version does not have.
    Tag {
        /// The tag.
        tag: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Flaw::CutShort { needed, left } => {
                write!(f, "a field of {needed} bytes with {left} left")
            }
            Flaw::Count { count, left } => {
                write!(f, "an array of {count} elements with {left} bytes left")
            }
            Flaw::Null => write!(f, "null where a value is required"),
            Flaw::StringTooLong { bytes } => {
                write!(f, "a string of {bytes} bytes (at most {STRING_BYTES_MAX})")
            }
            Flaw::TooManyElements { limit } => write!(f, "more than {limit} elements"),
            Flaw::Varint => write!(f, "a varint longer than five bytes"),
            Flaw::Tag { tag } => write!(f, "tagged field {tag}, which this version does not have"),
        }?;
        write!(f, " at byte {} of the body", self.at)
    }
}

/// A frame that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Bytes of the body; what follows is ignored.
    pub(crate) bytes: usize,
    /// Elements that it unfolds into.
    pub(crate) elements: u32,
    /// Holds an encoding that Kafka reads and kafka-protocol does not, or reads differently:
    /// decode what [`canonical`] makes of it.
    pub(crate) odd: bool,
}

/// Walks `body` along `ops`, allowing `elements_max` elements.
pub(crate) fn walk(ops: &[Op], body: &[u8], elements_max: u32) -> Result<Walked, Refusal> {
    let mut walker = Walker::<false>::new(body, elements_max);
    walker.run(ops)?;
    Ok(Walked {
        bytes: walker.at,
        elements: elements_max - walker.elements_left,
        odd: walker.odd,
    })
}

/// Writes `body` again as kafka-protocol wants it: nulls as −1, booleans of presence as 1, invalid
/// UTF-8 replaced as Java's decoder does.
pub(crate) fn canonical(ops: &[Op], body: &[u8], elements_max: u32) -> Result<Vec<u8>, Refusal> {
    let mut walker = Walker::<true>::new(body, elements_max);
    walker.out.reserve(body.len());
    walker.run(ops)?;
    Ok(walker.out)
}

struct Walker<'a, const REWRITE: bool> {
    body: &'a [u8],
    at: usize,
    elements_left: u32,
    elements_max: u32,
    odd: bool,
    out: Vec<u8>,
}

impl<'a, const REWRITE: bool> Walker<'a, REWRITE> {
    fn new(body: &'a [u8], elements_max: u32) -> Self {
        let (elements_left, out) = (elements_max, Vec::new());
        Self {
            body,
            at: 0,
            elements_left,
            elements_max,
            odd: false,
            out,
        }
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), Refusal> {
        let mut next = 0;
        while let Some(&op) = ops.get(next) {
            next += 1;
            // Ops that hold others: `inner(n)` are the n that follow.
            let inner = |n: u8| ops.get(next..next + usize::from(n)).unwrap_or(&[]);
            match op {
                Op::Fix(n) => self.raw(usize::from(n))?,
                Op::Str | Op::StrN | Op::CStr | Op::CStrN => {
                    let compact = matches!(op, Op::CStr | Op::CStrN);
                    self.string(compact, matches!(op, Op::StrN | Op::CStrN))?;
                }
                Op::Bytes | Op::BytesN | Op::CBytes | Op::CBytesN => {
                    let compact = matches!(op, Op::CBytes | Op::CBytesN);
                    if let Some(n) = self.length(compact, matches!(op, Op::BytesN | Op::CBytesN))? {
                        self.raw(n)?;
                    }
                }
                Op::Fixes(n) => self.fixes(false, n)?,
                Op::CFixes(n) => self.fixes(true, n)?,
                Op::Arr(least, n) => self.array(false, false, least, inner(n))?,
                Op::ArrN(least, n) => self.array(false, true, least, inner(n))?,
                Op::CArr(least, n) => self.array(true, false, least, inner(n))?,
                Op::CArrN(least, n) => self.array(true, true, least, inner(n))?,
                Op::Opt(n) => {
                    if self.present()? {
                        self.run(inner(n))?;
                    }
                }
                Op::Tags(n) => self.tags(inner(n))?,
                // Only ever inside `Tags`, which reads them itself.
                Op::Tag(..) | Op::NoTag(_) => {}
            }
            next += match op {
                Op::Arr(_, n) | Op::ArrN(_, n) | Op::CArr(_, n) | Op::CArrN(_, n) => usize::from(n),
                Op::Opt(n) | Op::Tags(n) => usize::from(n),
                _ => 0,
            };
        }
        Ok(())
    }

    fn refuse<T>(&self, why: Flaw) -> Result<T, Refusal> {
        Err(Refusal { at: self.at, why })
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Refusal> {
        let left = self.body.len() - self.at;
        let Some(bytes) = self.body.get(self.at..).and_then(|rest| rest.get(..n)) else {
            return self.refuse(Flaw::CutShort {
                needed: n as u64,
                left,
            });
        };
        self.at += n;
        Ok(bytes)
    }

    /// Passes `n` bytes through as they are.
    fn raw(&mut self, n: usize) -> Result<(), Refusal> {
        let bytes = self.take(n)?;
        if REWRITE {
            self.out.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let bytes = self.take(N)?;
        Ok(bytes.try_into().expect("take gives as many bytes as asked"))
    }

    fn varint(&mut self) -> Result<u32, Refusal> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array_of()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.refuse(Flaw::Varint)
    }

    /// Reads a length or count that may be null; writes it back in its plain form.
    fn length(&mut self, compact: bool, nullable: bool) -> Result<Option<usize>, Refusal> {
        let n = if compact {
            // Kafka computes in wrapping int32: a huge varint is a negative length.
            i32::from_ne_bytes(self.varint()?.to_ne_bytes()).wrapping_sub(1)
        } else {
            i32::from_be_bytes(self.array_of()?)
        };
        let length = usize::try_from(n).ok();
        if length.is_none() {
            self.null(n < -1, nullable)?;
        }
        if REWRITE {
            match (compact, length) {
                (true, None) => self.out.push(0),
                (true, Some(n)) => self.put_varint(n as u64 + 1),
                (false, _) => self.out.extend_from_slice(&n.max(-1).to_be_bytes()),
            }
        }
        Ok(length)
    }

    fn null(&mut self, odd: bool, nullable: bool) -> Result<(), Refusal> {
        if !nullable {
            return self.refuse(Flaw::Null);
        }
        self.odd |= odd;
        Ok(())
    }

    fn string(&mut self, compact: bool, nullable: bool) -> Result<(), Refusal> {
        let n = if compact {
            i32::from_ne_bytes(self.varint()?.to_ne_bytes()).wrapping_sub(1)
        } else {
            i32::from(i16::from_be_bytes(self.array_of()?))
        };
        let Ok(length) = usize::try_from(n) else {
            self.null(n < -1, nullable)?;
            if REWRITE {
                self.put_string(compact, None);
            }
            return Ok(());
        };
        if length > STRING_BYTES_MAX {
            return self.refuse(Flaw::StringTooLong { bytes: length });
        }
        let bytes = self.take(length)?;
        if REWRITE {
            let text = String::from_utf8_lossy(bytes);
            if text.len() > STRING_BYTES_MAX {
                return self.refuse(Flaw::StringTooLong { bytes: text.len() });
            }
            self.put_string(compact, Some(&text));
        }
        Ok(())
    }

    fn fixes(&mut self, compact: bool, each: u8) -> Result<(), Refusal> {
        if let Some(count) = self.length(compact, false)? {
            self.fits(count, each)?;
            self.raw(count * usize::from(each))?;
        }
        Ok(())
    }

    fn array(
        &mut self,
        compact: bool,
        nullable: bool,
        least: u8,
        element: &[Op],
    ) -> Result<(), Refusal> {
        let Some(count) = self.length(compact, nullable)? else {
            return Ok(());
        };
        self.fits(count, least)?;
        self.spend(count)?;
        if let [Op::Fix(each)] = element {
            return self.raw(count * usize::from(*each));
        }
        for _ in 0..count {
            self.run(element)?;
        }
        Ok(())
    }

    /// `count` elements of at least `least` bytes each must fit into what is left.
    fn fits(&self, count: usize, least: u8) -> Result<(), Refusal> {
        let left = self.body.len() - self.at;
        if count as u64 * u64::from(least) > left as u64 {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            return self.refuse(Flaw::Count { count, left });
        }
        Ok(())
    }

    fn spend(&mut self, elements: usize) -> Result<(), Refusal> {
        let elements = u32::try_from(elements).unwrap_or(u32::MAX);
        match self.elements_left.checked_sub(elements) {
            Some(left) => self.elements_left = left,
            None => {
                return self.refuse(Flaw::TooManyElements {
                    limit: self.elements_max,
                });
            }
        }
        Ok(())
    }

    /// Kafka: negative is null, anything else a value.
    fn present(&mut self) -> Result<bool, Refusal> {
        let [byte] = self.array_of::<1>()?;
        let present = byte < 0x80;
        self.odd |= present && byte != 1;
        if REWRITE {
            self.out.push(if present { 1 } else { 0xff });
        }
        Ok(present)
    }

    fn tags(&mut self, known: &[Op]) -> Result<(), Refusal> {
        let claimed = self.varint()?;
        // A count above int32 is negative to Kafka: no tagged fields.
        let count = if i32::try_from(claimed).is_ok() {
            claimed
        } else {
            0
        };
        self.odd |= count != claimed;
        self.fits(count as usize, 2)?;
        self.spend(count as usize)?;
        if REWRITE {
            self.put_varint(u64::from(count));
        }
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()?;
            if REWRITE {
                self.put_varint(u64::from(tag));
                self.put_varint(u64::from(size));
            }
            match Self::known(known, tag) {
                Some(Some(field)) => self.run(field)?,
                Some(None) => return self.refuse(Flaw::Tag { tag }),
                None => self.raw(size as usize)?,
            }
        }
        Ok(())
    }

    /// The program of a tag; `Some(None)` when only other versions have it.
    fn known(known: &[Op], tag: u32) -> Option<Option<&[Op]>> {
        let mut next = 0;
        while let Some(&op) = known.get(next) {
            next += 1;
            match op {
                Op::Tag(t, n) => {
                    let end = next + usize::from(n);
                    if u32::from(t) == tag {
                        return Some(Some(known.get(next..end).unwrap_or(&[])));
                    }
                    next = end;
                }
                Op::NoTag(t) if u32::from(t) == tag => return Some(None),
                _ => {}
            }
        }
        None
    }

    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn put_string(&mut self, compact: bool, text: Option<&str>) {
        let length = text.map_or(-1, |text| text.len() as i64);
        if compact {
            self.put_varint((length + 1) as u64);
        } else {
            self.out.extend_from_slice(&(length as i16).to_be_bytes());
        }
        self.out
            .extend_from_slice(text.unwrap_or_default().as_bytes());
    }
}
