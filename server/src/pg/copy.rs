//! The COPY sub-protocol, the same inside both protocols.
//!
//! Invariants:
//! - While data comes in, Flush and Sync are ignored and anything else ends the COPY with an error.
//! - A client that goes in the middle, or says CopyFail, leaves nothing of that COPY behind.

use std::pin::pin;

use model::{Code, Error, Result};
use sql::session::{CopyChunk, CopyFormat, Executed, Format, Session};

use super::{
    attend::{End, Operation},
    encode,
    frame::Next,
    stream::Link,
};

/// A buffer of this size is sent before more is written.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// The wire's format of a COPY.
pub(super) fn wire_format(format: CopyFormat) -> encode::Format {
    match format.format {
        Format::Text => encode::Format::Text,
        Format::Binary => encode::Format::Binary,
        Format::Unknown(code) => encode::Format::Unknown(code),
    }
}

/// Sends rows of COPY TO STDOUT, a message each.
pub(super) async fn send(
    chunk: &CopyChunk,
    link: &mut Link,
    operation: &mut Operation<'_>,
) -> Result<Result<()>, End> {
    let mut from = 0;
    for end in &chunk.ends {
        link.output.copy_data(&chunk.bytes[from..*end]);
        from = *end;
        if link.output.len() >= BUFFER_BYTES_MAX {
            operation.flush(link).await?;
            if let Some(error) = operation.stopped() {
                return Ok(Err(error));
            }
        }
    }
    Ok(Ok(()))
}

/// Receives the data of COPY FROM STDIN; answers the command tag.
pub(super) async fn receive(
    link: &mut Link,
    session: &mut Session,
    format: CopyFormat,
    operation: &mut Operation<'_>,
    bytes_max: usize,
) -> Result<Result<String>, End> {
    link.output.copy_begin(b'G', wire_format(format), format.columns);
    operation.flush(link).await?;
    loop {
        if let Some(error) = operation.stopped() {
            drop(session.copy_fail(error.message()).await);
            return Ok(Err(error));
        }
        let frame = match link.input.next(bytes_max) {
            Ok(Next::Whole(frame)) => frame,
            Ok(Next::Missing(missing)) => {
                operation.fill(link, missing).await?;
                continue;
            }
            Err(error) => return Err(End::Fatal(error)),
        };
        match frame.tag {
            b'd' => {
                let data = bytes::Bytes::copy_from_slice(link.input.fields(frame).rest());
                link.input.consume(frame);
                if let Err(error) = operation.run(link, pin!(session.copy_data(data))).await? {
                    return Ok(Err(error));
                }
            }
            b'c' => {
                link.input.consume(frame);
                return Ok(match operation.run(link, pin!(session.copy_done())).await? {
                    Ok(Executed::Complete(tag)) => Ok(tag),
                    Ok(_) => Err(Error::internal("a COPY went on after its end")),
                    Err(error) => Err(error),
                });
            }
            b'f' => {
                let reason = link.input.fields(frame).text().map(str::to_owned);
                link.input.consume(frame);
                let reason = reason.unwrap_or_else(|_| "reason not readable".to_owned());
                return Ok(Err(session.copy_fail(&reason).await));
            }
            b'S' | b'H' => link.input.consume(frame),
            b'X' => {
                drop(session.copy_fail("the client has ended the connection").await);
                return Err(End::Terminated);
            }
            other => {
                // It stays in the input and is answered after the COPY's error.
                let message = format!("unexpected message type 0x{other:02X} during COPY from stdin");
                drop(session.copy_fail(&message).await);
                return Ok(Err(Error::new(Code::ProtocolViolation, message)));
            }
        }
    }
}
