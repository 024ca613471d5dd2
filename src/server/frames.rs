//! Cuts a stream of bytes into frames: a length in four bytes, then that many bytes. Not here: what is in a frame.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// Why a stream cannot be cut into frames. The connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// The first bytes are those of a TLS handshake.
    Tls,
    /// The first bytes are those of an HTTP request.
    Http,
    /// The length is zero or negative.
    NotPositive(i32),
    /// The length is beyond `socket.request.max.bytes`.
    TooLong { length: i32, limit_bytes: usize },
}

impl BadFrame {
    fn of(first: [u8; 4], limit_bytes: usize) -> Self {
        const METHODS: [&[u8; 4]; 8] = [
            b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN",
        ];
        let length = i32::from_be_bytes(first);
        if first[0] == 0x16 && first[1] == 0x03 {
            Self::Tls
        } else if METHODS.contains(&&first) || &first == b"PRI " {
            Self::Http
        } else if length <= 0 {
            Self::NotPositive(length)
        } else {
            Self::TooLong {
                length,
                limit_bytes,
            }
        }
    }
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls => f.write_str(
                "a TLS hello came to a plain-text listener; set security.protocol=PLAINTEXT in the client",
            ),
            Self::Http => f.write_str(
                "an HTTP request came to the Kafka listener; health and metrics have a port of their own (--http)",
            ),
            Self::NotPositive(length) => write!(f, "a frame claims a length of {length} bytes"),
            Self::TooLong {
                length,
                limit_bytes,
            } => write!(
                f,
                "a frame claims {length} bytes, more than socket.request.max.bytes={limit_bytes}"
            ),
        }
    }
}

/// Bytes read and not yet served. Holds no memory while it is empty.
#[derive(Debug)]
pub(crate) struct FrameBuffer {
    bytes: BytesMut,
    limit_bytes: usize,
}

impl FrameBuffer {
    /// `limit_bytes`: the longest frame that is accepted.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            limit_bytes,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn length_in(&self, bytes: &[u8]) -> Result<Option<usize>, BadFrame> {
        let Some(first) = bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        match usize::try_from(i32::from_be_bytes(*first)) {
            Ok(length) if length > 0 && length <= self.limit_bytes => Ok(Some(length)),
            _ => Err(BadFrame::of(*first, self.limit_bytes)),
        }
    }

    /// The next whole frame, without its length; `None` until more bytes come.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, BadFrame> {
        let Some(length) = self.length_in(&self.bytes)? else {
            return Ok(None);
        };
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        self.bytes.advance(4);
        let frame = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
        Ok(Some(frame))
    }

    /// The API key of the next frame, if it is whole.
    pub(crate) fn next_key(&self) -> Option<i16> {
        let length = self.length_in(&self.bytes).ok()??;
        key_of(self.bytes.get(4..4 + length)?)
    }

    /// Takes in what was read, and gives the first frame at once if it is whole.
    ///
    /// The common case, one small frame in one read, so costs one allocation of exactly its size.
    pub(crate) fn push(&mut self, read: &[u8]) -> Result<Option<Bytes>, BadFrame> {
        if self.bytes.is_empty()
            && let Some(length) = self.length_in(read)?
            && let Some(rest) = read.get(4 + length..)
        {
            self.bytes.extend_from_slice(rest);
            return Ok(Some(Bytes::copy_from_slice(&read[4..4 + length])));
        }
        self.bytes.extend_from_slice(read);
        self.next()
    }

    /// For the middle of a large frame: the buffer itself, with room for some more bytes.
    ///
    /// `None` if the missing rest is small, or its length is not known yet: then read elsewhere and [`Self::push`].
    /// Room grows with what has come, so a length field alone reserves nothing.
    pub(crate) fn room(&mut self, chunk_bytes: usize) -> Option<&mut BytesMut> {
        let length = self.length_in(&self.bytes).ok()??;
        let missing = (4 + length).checked_sub(self.bytes.len())?;
        if missing <= chunk_bytes {
            return None;
        }
        let wanted = missing.min(self.bytes.len().max(chunk_bytes));
        self.bytes.reserve(wanted);
        Some(&mut self.bytes)
    }
}

/// The API key of a frame.
pub(crate) fn key_of(frame: &[u8]) -> Option<i16> {
    frame.first_chunk().map(|key| i16::from_be_bytes(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_come_out_however_the_bytes_were_cut() {
        let mut stream = Vec::new();
        for body in [&b"one"[..], b"second", b"3"] {
            stream.extend(frame(body));
        }
        for cut in 1..stream.len() {
            let mut buffer = FrameBuffer::new(100);
            let mut got = Vec::new();
            for piece in stream.chunks(cut) {
                got.extend(buffer.push(piece).unwrap());
                while let Some(next) = buffer.next().unwrap() {
                    got.push(next);
                }
            }
            assert_eq!(got, [&b"one"[..], b"second", b"3"], "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn the_next_key_is_known_when_its_frame_is_whole() {
        let stream = [frame(&[0, 8, 1]), frame(&[0, 12])].concat();
        let mut buffer = FrameBuffer::new(100);
        for (at, byte) in stream.iter().enumerate() {
            assert_eq!(buffer.next_key(), (at >= 7).then_some(8), "{at}");
            buffer.bytes.extend_from_slice(&[*byte]);
        }
        buffer.next().unwrap();
        assert_eq!(buffer.next_key(), Some(12));
        buffer.next().unwrap();
        assert_eq!(buffer.next_key(), None);
        assert_eq!(key_of(&[0]), None);
    }

    #[test]
    fn a_length_alone_reserves_nothing() {
        let mut buffer = FrameBuffer::new(100 << 20);
        let none = buffer.push(&(100i32 << 20).to_be_bytes()).unwrap();
        assert!(none.is_none());
        let room = buffer.room(4096).unwrap();
        assert!(room.capacity() < 3 * 4096, "{}", room.capacity());
    }

    #[test]
    fn a_frame_of_exactly_the_limit_is_awaited_and_one_more_is_refused() {
        let mut buffer = FrameBuffer::new(10);
        assert_eq!(buffer.push(&10i32.to_be_bytes()), Ok(None));
        let mut buffer = FrameBuffer::new(10);
        assert!(matches!(
            buffer.push(&11i32.to_be_bytes()),
            Err(BadFrame::TooLong { length: 11, .. })
        ));
        for length in [0, -1, i32::MIN] {
            let mut buffer = FrameBuffer::new(10);
            assert_eq!(
                buffer.push(&length.to_be_bytes()),
                Err(BadFrame::NotPositive(length))
            );
        }
    }

    #[test]
    fn strangers_are_named() {
        let limit = 100 << 20;
        let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
        assert_eq!(FrameBuffer::new(limit).push(&tls), Err(BadFrame::Tls));
        for hello in ["GET / HTTP/1.1", "POST /x", "PRI * HTTP/2.0"] {
            assert_eq!(
                FrameBuffer::new(limit).push(hello.as_bytes()),
                Err(BadFrame::Http),
                "{hello}"
            );
        }
    }
}
