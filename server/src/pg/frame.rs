//! Frames of clients: where one ends, and what its fields are, read in place.
//!
//! Invariants:
//! - A length is judged at its header, before any memory is reserved for the body. The buffer grows only by bytes that
//!   have arrived.
//! - Reading a field never panics and never allocates by a number the client sent.
//! - Bytes behind a broken frame are not interpreted: the connection ends.
//!
//! Not here: what a frame means (`simple`, `extended`, `copy`).

use model::{Code, Error, Result};

/// Short messages: Describe, Execute, Close, Sync, Flush, CopyFail (PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT`).
const SMALL_BYTES_MAX: usize = 10_000;
/// The startup packet (PostgreSQL's `MAX_STARTUP_PACKET_LENGTH`).
pub(super) const STARTUP_BYTES_MAX: usize = 10_000;
/// An answer in a SASL exchange.
pub(super) const SASL_BYTES_MAX: usize = 16 << 10;
/// A buffer that grew larger than this is given back when it is empty.
const KEPT_BYTES_MAX: usize = 16 << 10;
/// How much is asked of the socket at once.
const READ_BYTES: usize = 8 << 10;
/// The same, when a large message is on its way.
const READ_BYTES_LARGE: usize = 256 << 10;

/// Bytes that have arrived and were not yet consumed.
#[derive(Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
}

/// A whole frame inside an [`Input`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// The type byte.
    pub(super) tag: u8,
    from: usize,
    to: usize,
}

/// What the next bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A whole frame.
    Whole(Frame),
    /// A frame of which at least so many bytes are missing.
    Missing(usize),
}

impl Input {
    /// Bytes that were not consumed.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that were not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Leaves out the next `count` bytes.
    pub(super) fn skip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.buffer.len());
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            if self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        }
    }

    /// Where the socket writes to: room for the next read, `missing` bytes of a frame being known to come.
    pub(super) fn room(&mut self, missing: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let wanted = missing.clamp(READ_BYTES, READ_BYTES_LARGE);
        if self.buffer.capacity() - self.buffer.len() < wanted.min(READ_BYTES) {
            self.buffer.reserve(wanted);
        }
        &mut self.buffer
    }

    /// What is next, for a session that is ready. `bytes_max` bounds statements, parameters and COPY data.
    ///
    /// An error is fatal: what follows cannot be told apart.
    pub(super) fn next(&self, bytes_max: usize) -> Result<Next> {
        let unread = self.unread();
        let Some((&tag, rest)) = unread.split_first() else { return Ok(Next::Missing(5)) };
        let limit = match tag {
            b'Q' | b'P' | b'B' | b'd' | b'F' => bytes_max,
            b'D' | b'E' | b'C' | b'S' | b'H' | b'X' | b'c' | b'f' => SMALL_BYTES_MAX,
            b'p' => SASL_BYTES_MAX,
            other => {
                return Err(Error::new(
                    Code::ProtocolViolation,
                    format!("invalid frontend message type {other}"),
                ));
            }
        };
        let Some(length) = rest.first_chunk::<4>() else { return Ok(Next::Missing(5 - unread.len())) };
        let length = i32::from_be_bytes(*length);
        let Some(body) = usize::try_from(length).ok().and_then(|length| length.checked_sub(4)) else {
            return Err(Error::new(Code::ProtocolViolation, "invalid message length"));
        };
        if body > limit {
            let message = format!("message of {body} bytes exceeds {limit} bytes");
            return Err(match tag {
                b'Q' | b'P' | b'B' | b'd' => Error::new(Code::ProgramLimitExceeded, message)
                    .with_hint("Send it in pieces, or raise sql.frame_bytes_max."),
                _ => Error::new(Code::ProtocolViolation, "invalid message length").with_detail(message),
            });
        }
        let whole = 5 + body;
        if unread.len() < whole {
            return Ok(Next::Missing(whole - unread.len()));
        }
        let from = self.start + 5;
        Ok(Next::Whole(Frame { tag, from, to: from + body }))
    }

    /// The fields of a frame.
    pub(super) fn fields(&self, frame: Frame) -> Fields<'_> {
        Fields { rest: &self.buffer[frame.from..frame.to] }
    }

    /// Consumes a frame.
    pub(super) fn consume(&mut self, frame: Frame) {
        let whole = frame.to - self.start;
        self.skip(whole);
    }

    /// The startup packet's body, once it is here; `None` if bytes are missing.
    pub(super) fn startup(&self) -> Result<Option<&[u8]>> {
        let unread = self.unread();
        let Some(length) = unread.first_chunk::<4>() else { return Ok(None) };
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).unwrap_or(0);
        if !(8..=STARTUP_BYTES_MAX).contains(&length) {
            return Err(Error::new(Code::ProtocolViolation, "invalid length of startup packet"));
        }
        Ok(unread.get(4..length))
    }
}

/// The fields of one message, read from the front.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Fields of bytes that are not in an input.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(too_short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// A 16-bit number.
    pub(super) fn int16(&mut self) -> Result<i16> {
        let (taken, rest) = self.rest.split_first_chunk::<2>().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(i16::from_be_bytes(*taken))
    }

    /// A 32-bit number.
    pub(super) fn int32(&mut self) -> Result<i32> {
        let (taken, rest) = self.rest.split_first_chunk::<4>().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*taken))
    }

    /// A count of things that follow, each of at least `least` bytes: a count that cannot be true is refused, so that it
    /// can be reserved for.
    pub(super) fn count(&mut self, least: usize) -> Result<usize> {
        // PostgreSQL reads counts as unsigned 16 bits.
        let count = usize::from(self.int16()? as u16);
        if count * least > self.rest.len() {
            return Err(too_short());
        }
        Ok(count)
    }

    /// A text that ends with NUL.
    pub(super) fn text(&mut self) -> Result<&'a str> {
        let end = self.rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| Error::new(Code::ProtocolViolation, "invalid string in message"))?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        valid_text(text)
    }

    /// A value: none for null.
    pub(super) fn value(&mut self) -> Result<Option<&'a [u8]>> {
        match self.int32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| too_short())?;
                self.bytes(length).map(Some)
            }
        }
    }

    /// Nothing may follow.
    pub(super) fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::new(Code::ProtocolViolation, "invalid message format"))
    }
}

/// Text in UTF-8, as everything a client sends must be (`22021`).
pub(super) fn valid_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let from = error.valid_up_to();
        let shown: Vec<String> =
            bytes[from..].iter().take(error.error_len().unwrap_or(1)).map(|b| format!("0x{b:02x}")).collect();
        Error::new(
            Code::CharacterNotInRepertoire,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    })
}

fn too_short() -> Error {
    Error::new(Code::ProtocolViolation, "insufficient data left in message")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn input(bytes: &[u8]) -> Input {
        let mut input = Input::default();
        input.room(0).extend_from_slice(bytes);
        input
    }

    #[test]
    fn a_length_is_judged_at_its_header() {
        for (tag, length, code) in [
            (b'Q', -1, Code::ProtocolViolation),
            (b'Q', 3, Code::ProtocolViolation),
            (b'Q', i32::MIN, Code::ProtocolViolation),
            (b'Q', i32::MAX, Code::ProgramLimitExceeded),
            (b'P', 1 << 30, Code::ProgramLimitExceeded),
            (b'S', 1 << 20, Code::ProtocolViolation),
            (b'p', 1 << 20, Code::ProtocolViolation),
            (b'z', 4, Code::ProtocolViolation),
            (0x16, 4, Code::ProtocolViolation),
        ] {
            let mut bytes = vec![tag];
            bytes.extend(i32::to_be_bytes(length));
            let input = input(&bytes);
            assert_eq!(input.next(LIMIT).expect_err("a hostile length").code(), code, "{tag} {length}");
            assert!(input.buffer.capacity() < 64 << 10);
        }
    }

    #[test]
    fn frames_are_whole_or_missing() {
        let mut input = input(b"Q\0\0\0\x08abc\0S\0\0\0\x04H\0");
        let Ok(Next::Whole(frame)) = input.next(LIMIT) else { panic!("a whole frame") };
        assert_eq!((frame.tag, input.fields(frame).text().expect("a text")), (b'Q', "abc"));
        input.consume(frame);
        let Ok(Next::Whole(frame)) = input.next(LIMIT) else { panic!("a whole frame") };
        input.consume(frame);
        assert!(matches!(input.next(LIMIT), Ok(Next::Missing(3))));
        input.room(3).extend_from_slice(b"\0\0\x04");
        assert!(matches!(input.next(LIMIT), Ok(Next::Whole(_))));
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let mut input = input(&vec![0; 1 << 20]);
        input.skip(1 << 20);
        assert!(input.is_empty() && input.buffer.capacity() <= KEPT_BYTES_MAX);
    }

    #[test]
    fn counts_that_cannot_be_true_are_refused() {
        assert!(Fields::of(&[0xff, 0xff, 0, 0]).count(4).is_err());
        assert!(matches!(Fields::of(&[0, 1, 0, 0, 0, 0]).count(4), Ok(1)));
        assert!(matches!(Fields::of(&[0xff, 0xff, 0xff, 0xff]).value(), Ok(None)));
        assert!(Fields::of(&[0xff, 0xff, 0xff, 0xfe]).value().is_err());
        assert!(Fields::of(&[0x7f, 0xff, 0xff, 0xff]).value().is_err());
        assert!(Fields::of(b"no end").text().is_err());
        assert_eq!(
            Fields::of(b"\xff\0").text().expect_err("not UTF-8").code(),
            Code::CharacterNotInRepertoire
        );
    }

    #[test]
    fn random_bytes_never_panic_and_reserve_nothing() {
        let mut state = 0x5eed_u64;
        println!("seed {state:#x}");
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        for _ in 0..20_000 {
            let length = usize::from(byte()) % 64;
            let mut bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
            if let Some(first) = bytes.first_mut() {
                *first = b"QPBEDCSHXpdcf"[usize::from(*first) % 13];
            }
            let mut input = input(&bytes);
            while let Ok(Next::Whole(frame)) = input.next(LIMIT) {
                let mut fields = input.fields(frame);
                while !fields.rest().is_empty() {
                    let read = match byte() % 5 {
                        0 => fields.text().map(drop),
                        1 => fields.value().map(drop),
                        2 => fields.count(4).map(drop),
                        3 => fields.int32().map(drop),
                        _ => fields.byte().map(drop),
                    };
                    if read.is_err() {
                        break;
                    }
                }
                input.consume(frame);
            }
            let _ = input.startup();
            assert!(input.buffer.capacity() <= 64 << 10);
        }
    }
}
