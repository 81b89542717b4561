//! A snapshot on the wire: the chunks of an image cut into pieces, and put together again.
//!
//! Invariants:
//! - A piece has at most [`PIECE_BYTES_MAX`] of data and a checksum over all of itself; a chunk is given on only when it is
//!   whole.
//! - A stream without its end is an error to whoever reads it, never a short snapshot.

use bytes::{Bytes, BytesMut};
use storage::Error;
use tokio::sync::mpsc;

use super::{
    Refusal,
    proto::{SnapshotEnd, SnapshotPart, SnapshotPiece, snapshot_part::Part},
};

/// Data of one piece, at most.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;

/// A chunk larger than this is refused: an image's largest, and its header.
const CHUNK_BYTES_MAX: usize = (64 << 20) + 1_024;

/// Cuts chunks into pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    number: u32,
}

impl Pieces {
    /// The pieces of the next chunk.
    pub(crate) fn cut(&mut self, mut chunk: Bytes) -> Vec<SnapshotPart> {
        let mut parts = Vec::new();
        while !chunk.is_empty() {
            let data = chunk.split_to(chunk.len().min(PIECE_BYTES_MAX));
            let (number, more) = (self.number, !chunk.is_empty());
            let piece = SnapshotPiece { number, more, crc32c: checksum(number, more, &data), data };
            parts.push(SnapshotPart { part: Some(Part::Piece(piece)) });
            self.number += 1;
        }
        parts
    }

    /// What comes behind the last piece.
    pub(crate) fn end(self) -> SnapshotPart {
        SnapshotPart { part: Some(Part::End(SnapshotEnd { pieces: self.number })) }
    }
}

fn checksum(number: u32, more: bool, data: &[u8]) -> u32 {
    let head = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(head, &[u8::from(more)]), data)
}

/// Puts pieces together to chunks.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    number: u32,
    chunk: BytesMut,
}

/// What a part of a snapshot completes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    /// Nothing yet.
    Nothing,
    /// A chunk.
    Chunk(Bytes),
    /// The snapshot.
    End,
}

impl Joiner {
    /// Takes the next part behind the header.
    pub(crate) fn take(&mut self, part: SnapshotPart) -> Result<Joined, Refusal> {
        match part.part {
            Some(Part::Piece(piece)) => self.piece(piece),
            Some(Part::End(end)) if end.pieces == self.number && self.chunk.is_empty() => Ok(Joined::End),
            Some(Part::End(_)) => Err(Refusal::malformed("a snapshot ends early")),
            Some(Part::Header(_)) | None => {
                Err(Refusal::malformed("a snapshot has no piece where one must be"))
            }
        }
    }

    fn piece(&mut self, piece: SnapshotPiece) -> Result<Joined, Refusal> {
        let SnapshotPiece { number, more, crc32c, data } = piece;
        if data.is_empty() || data.len() > PIECE_BYTES_MAX {
            return Err(Refusal::malformed("a piece of a snapshot has an impossible size"));
        }
        if checksum(number, more, &data) != crc32c {
            return Err(Refusal::malformed("a piece of a snapshot is damaged"));
        }
        if number != self.number {
            return Err(Refusal::malformed("a piece of a snapshot is missing or out of order"));
        }
        if self.chunk.len() + data.len() > CHUNK_BYTES_MAX {
            return Err(Refusal::malformed("a chunk of a snapshot is too large"));
        }
        self.number += 1;
        if !more && self.chunk.is_empty() {
            return Ok(Joined::Chunk(data));
        }
        self.chunk.extend_from_slice(&data);
        if more {
            return Ok(Joined::Nothing);
        }
        Ok(Joined::Chunk(std::mem::take(&mut self.chunk).freeze()))
    }
}

/// A message from whoever receives a snapshot to whoever makes a state of it.
#[derive(Debug)]
pub(crate) enum Arrived {
    Chunk(Bytes),
    End,
}

/// The chunks of a snapshot that is being received, for a thread that may block. Ends with an error unless the end arrived.
#[derive(Debug)]
pub(crate) struct Incoming {
    chunks: mpsc::Receiver<Arrived>,
    over: bool,
}

impl Incoming {
    /// A sender of chunks and their receiver; few fit in between.
    pub(crate) fn channel() -> (mpsc::Sender<Arrived>, Self) {
        let (sender, chunks) = mpsc::channel(2);
        (sender, Self { chunks, over: false })
    }
}

impl Iterator for Incoming {
    type Item = storage::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        match self.chunks.blocking_recv() {
            Some(Arrived::Chunk(chunk)) => Some(Ok(chunk)),
            Some(Arrived::End) => {
                self.over = true;
                None
            }
            None => {
                self.over = true;
                Some(Err(Error::Image { what: "it was cut short on its way".to_owned() }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent() -> (Vec<Bytes>, Vec<SnapshotPart>) {
        let large: Vec<u8> = (0..PIECE_BYTES_MAX * 2 + 5).map(|at| at as u8).collect();
        let chunks = vec![Bytes::from_static(b"small"), large.into(), Bytes::from_static(b"last")];
        let mut pieces = Pieces::default();
        let mut parts: Vec<_> = chunks.iter().flat_map(|chunk| pieces.cut(chunk.clone())).collect();
        parts.push(pieces.end());
        (chunks, parts)
    }

    fn join(parts: Vec<SnapshotPart>) -> Result<Vec<Bytes>, Refusal> {
        let mut joiner = Joiner::default();
        let mut chunks = Vec::new();
        for part in parts {
            match joiner.take(part)? {
                Joined::Nothing => {}
                Joined::Chunk(chunk) => chunks.push(chunk),
                Joined::End => return Ok(chunks),
            }
        }
        Err(Refusal::malformed("no end"))
    }

    #[test]
    fn chunks_come_back_as_they_went_in_bounded_pieces() {
        let (chunks, parts) = sent();
        assert_eq!(parts.len(), 6);
        assert_eq!(join(parts), Ok(chunks));
    }

    #[test]
    fn a_damaged_missing_repeated_or_reordered_piece_is_refused() {
        let (_, parts) = sent();
        for at in 0..parts.len() {
            let mut missing = parts.clone();
            missing.remove(at);
            assert!(join(missing).is_err(), "without {at}");
            let mut again = parts.clone();
            again.insert(at, parts[at].clone());
            if at + 1 < parts.len() {
                assert!(join(again).is_err(), "{at} twice");
                let mut swapped = parts.clone();
                swapped.swap(at, at + 1);
                assert!(join(swapped).is_err(), "{at} late");
            }
            let mut damaged = parts.clone();
            if let Some(Part::Piece(piece)) = &mut damaged[at].part {
                let mut data = piece.data.to_vec();
                data[0] ^= 1;
                piece.data = data.into();
                assert!(join(damaged).is_err(), "{at} damaged");
                let mut turned = parts.clone();
                if let Some(Part::Piece(piece)) = &mut turned[at].part {
                    piece.more = !piece.more;
                }
                assert!(join(turned).is_err(), "{at} continues otherwise");
            }
        }
    }

    #[test]
    fn a_stream_that_breaks_off_ends_with_an_error_and_a_whole_one_without() {
        let (sender, mut incoming) = Incoming::channel();
        sender.try_send(Arrived::Chunk(Bytes::from_static(b"a"))).unwrap();
        drop(sender);
        assert!(incoming.next().unwrap().is_ok());
        assert!(incoming.next().unwrap().is_err());
        assert!(incoming.next().is_none());

        let (sender, mut incoming) = Incoming::channel();
        sender.try_send(Arrived::End).unwrap();
        assert!(incoming.next().is_none());
    }
}
