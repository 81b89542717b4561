//! Messages of the server, written into one buffer.
//!
//! Invariants:
//! - The buffer holds whole messages only: a message is begun, filled and ended by one call, or taken back.
//! - Rows go from the values into the buffer without anything in between.

use model::{request::Column, types::Type};

/// A format of a value on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Format {
    /// As text.
    #[default]
    Text,
    /// As PostgreSQL's binary form of its type.
    Binary,
    /// A code that means nothing, told as the client gave it.
    Unknown(i16),
}

impl Format {
    /// As the protocol writes it.
    fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
            Self::Unknown(code) => code,
        }
    }
}

/// Transaction status of ReadyForQuery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// Outside a block.
    Idle,
    /// In a block.
    Block,
    /// In a failed block.
    Failed,
}

/// What is to be sent.
#[derive(Default)]
pub(super) struct Output {
    buffer: Vec<u8>,
}

/// A buffer that grew larger than this is given back when it is empty.
const KEPT_BYTES_MAX: usize = 16 << 10;

impl Output {
    /// Bytes waiting.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes back what was written after so many bytes, none of which were sent.
    pub(super) fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// What waits.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Forgets the first `count` bytes: they were sent.
    pub(super) fn sent(&mut self, count: usize) {
        if count == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        } else {
            self.buffer.drain(..count);
        }
    }

    /// One message: the type byte, the length, and what `fill` writes.
    #[inline]
    pub(super) fn message(&mut self, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.begin(tag);
        fill(&mut self.buffer);
        self.end(start);
    }

    /// One message that may turn out not to be possible: then nothing is left of it.
    #[inline]
    pub(super) fn try_message<E>(
        &mut self,
        tag: u8,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.begin(tag);
        match fill(&mut self.buffer) {
            Ok(()) => {
                self.end(start);
                Ok(())
            }
            Err(error) => {
                self.buffer.truncate(start - 1);
                Err(error)
            }
        }
    }

    #[inline]
    fn begin(&mut self, tag: u8) -> usize {
        self.buffer.extend_from_slice(&[tag, 0, 0, 0, 0]);
        self.buffer.len() - 4
    }

    #[inline]
    fn end(&mut self, start: usize) {
        let length = u32::try_from(self.buffer.len() - start).unwrap_or(u32::MAX);
        self.buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// A byte outside of any message: the answer to SSLRequest.
    pub(super) fn bare(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    /// `1` ParseComplete.
    pub(super) fn parse_complete(&mut self) {
        self.message(b'1', |_| ());
    }

    /// `2` BindComplete.
    pub(super) fn bind_complete(&mut self) {
        self.message(b'2', |_| ());
    }

    /// `3` CloseComplete.
    pub(super) fn close_complete(&mut self) {
        self.message(b'3', |_| ());
    }

    /// `n` NoData.
    pub(super) fn no_data(&mut self) {
        self.message(b'n', |_| ());
    }

    /// `s` PortalSuspended.
    pub(super) fn portal_suspended(&mut self) {
        self.message(b's', |_| ());
    }

    /// `I` EmptyQueryResponse.
    pub(super) fn empty_query(&mut self) {
        self.message(b'I', |_| ());
    }

    /// `C` CommandComplete.
    pub(super) fn command_complete(&mut self, tag: &str) {
        self.message(b'C', |out| put_text(out, tag));
    }

    /// `Z` ReadyForQuery.
    pub(super) fn ready(&mut self, status: Status) {
        let status = match status {
            Status::Idle => b'I',
            Status::Block => b'T',
            Status::Failed => b'E',
        };
        self.message(b'Z', |out| out.push(status));
    }

    /// `S` ParameterStatus.
    pub(super) fn parameter(&mut self, name: &str, value: &str) {
        self.message(b'S', |out| {
            put_text(out, name);
            put_text(out, value);
        });
    }

    /// `K` BackendKeyData.
    pub(super) fn key(&mut self, process: i32, secret: u32) {
        self.message(b'K', |out| {
            out.extend_from_slice(&process.to_be_bytes());
            out.extend_from_slice(&secret.to_be_bytes());
        });
    }

    /// `t` ParameterDescription.
    pub(super) fn parameters(&mut self, types: &[Type]) {
        self.message(b't', |out| {
            put_count(out, types.len());
            types.iter().for_each(|of| out.extend_from_slice(&of.oid().to_be_bytes()));
        });
    }

    /// `T` RowDescription.
    pub(super) fn columns(&mut self, columns: &[Column], format: impl Fn(usize) -> Format) {
        self.message(b'T', |out| {
            put_count(out, columns.len());
            for (at, column) in columns.iter().enumerate() {
                put_text(out, &column.name);
                out.extend_from_slice(&column.origin.0.to_be_bytes());
                out.extend_from_slice(&column.origin.1.to_be_bytes());
                out.extend_from_slice(&column.data_type.oid().to_be_bytes());
                out.extend_from_slice(&column.data_type.len().to_be_bytes());
                out.extend_from_slice(&column.typmod.0.to_be_bytes());
                out.extend_from_slice(&format(at).code().to_be_bytes());
            }
        });
    }

    /// `A` NotificationResponse, `G` CopyIn and `H` CopyOut share this shape: an overall format, one per column.
    pub(super) fn copy_begin(&mut self, tag: u8, format: Format, columns: usize) {
        self.message(tag, |out| {
            out.push(format.code() as u8);
            put_count(out, columns);
            (0..columns).for_each(|_| out.extend_from_slice(&format.code().to_be_bytes()));
        });
    }

    /// `d` CopyData.
    pub(super) fn copy_data(&mut self, bytes: &[u8]) {
        self.message(b'd', |out| out.extend_from_slice(bytes));
    }

    /// `c` CopyDone.
    pub(super) fn copy_done(&mut self) {
        self.message(b'c', |_| ());
    }

    /// `R` AuthenticationOk.
    pub(super) fn authentication_ok(&mut self) {
        self.message(b'R', |out| out.extend_from_slice(&0_u32.to_be_bytes()));
    }

    /// `R` AuthenticationSASL: what is offered.
    pub(super) fn sasl(&mut self, mechanisms: &[&str]) {
        self.message(b'R', |out| {
            out.extend_from_slice(&10_u32.to_be_bytes());
            mechanisms.iter().for_each(|name| put_text(out, name));
            out.push(0);
        });
    }

    /// `R` AuthenticationSASLContinue (11) and AuthenticationSASLFinal (12).
    pub(super) fn sasl_step(&mut self, step: u32, text: &str) {
        self.message(b'R', |out| {
            out.extend_from_slice(&step.to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        });
    }

    /// `v` NegotiateProtocolVersion.
    pub(super) fn negotiate(&mut self, version: u32, unknown: &[String]) {
        self.message(b'v', |out| {
            out.extend_from_slice(&version.to_be_bytes());
            out.extend_from_slice(&u32::try_from(unknown.len()).unwrap_or(0).to_be_bytes());
            unknown.iter().for_each(|name| put_text(out, name));
        });
    }
}

/// A text and its NUL. A NUL inside would end it early for the client, so it is shown as `\0`.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    if text.as_bytes().contains(&0) {
        out.extend_from_slice(text.replace('\0', "\\0").as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(0);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_be_bytes());
}

/// A value with its length, written by `fill`; nothing for null.
#[inline]
pub(super) fn put_value<E>(
    out: &mut Vec<u8>,
    fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out)?;
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Null.
#[inline]
pub(super) fn put_null(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i32).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_fails_leaves_nothing() {
        let mut output = Output::default();
        output.parse_complete();
        let before = output.bytes().to_vec();
        let failed = output.try_message(b'D', |out| {
            out.extend_from_slice(b"half");
            Err("no")
        });
        assert_eq!(failed, Err("no"));
        assert_eq!(output.bytes(), before);
    }

    #[test]
    fn messages_have_their_length_and_text_its_end() {
        let mut output = Output::default();
        output.command_complete("SELECT 1");
        assert_eq!(output.bytes(), b"C\0\0\0\x0dSELECT 1\0");
        output.sent(output.len());
        output.parameter("a", "b\0c");
        assert_eq!(output.bytes(), b"S\0\0\0\x0ba\0b\\0c\0");
    }

    #[test]
    fn values_carry_their_length() {
        let mut out = Vec::new();
        let put: Result<(), ()> = put_value(&mut out, |out| {
            out.extend_from_slice(b"xy");
            Ok(())
        });
        put_null(&mut out);
        assert_eq!((put, out.as_slice()), (Ok(()), b"\0\0\0\x02xy\xff\xff\xff\xff".as_slice()));
    }
}
