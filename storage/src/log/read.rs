//! Reading entries back from segments.
//!
//! Invariants:
//! - Every record is checked again on each read: CRC, segment, group and index.
//! - A place that turned out to be stale, because its segment was recycled meanwhile, is not corruption: the caller looks
//!   up the place again and only believes a second, unchanged answer.
//!
//! Not here: which entries are in memory (`group`).

use super::index::Place;
use super::record::{self, Kind};
use super::segment::Segment;
use super::{Entry, Error, GroupId};

/// Bytes read at once, in the hope that the next entries are neighbours.
const AHEAD: u64 = 64 << 10;

/// A window on one segment.
#[derive(Default)]
pub(crate) struct Reader {
    segment: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Reader {
    /// The entry whose record is at a place.
    pub(crate) fn entry(
        &mut self,
        segment: &Segment,
        place: Place,
        group: GroupId,
        index: u64,
    ) -> Result<Entry, Error> {
        let corrupt = |what: &'static str| Error::Corrupt {
            segment: place.segment,
            offset: u64::from(place.offset),
            what,
        };
        let bytes = self.window(segment, place)?;
        let record = record::find(bytes, segment.seed, segment.number)
            .ok_or_else(|| corrupt("record of an entry is damaged"))?;
        if record.group != group || !matches!(Kind::find(record.kind), Some(Kind::Append | Kind::Rewrite)) {
            return Err(corrupt("record is not the entry it should be"));
        }
        let (id, kind, payload) =
            record::entry(record.body).ok_or_else(|| corrupt("record body is impossible"))?;
        if id.index != index {
            return Err(corrupt("record is not the entry it should be"));
        }
        Ok(Entry { id, kind, payload: record::copy(payload) })
    }

    fn window(&mut self, segment: &Segment, place: Place) -> Result<&[u8], Error> {
        let (from, to) = (u64::from(place.offset), u64::from(place.offset) + u64::from(place.bytes));
        let inside =
            self.segment == place.segment && self.start <= from && to <= self.start + self.bytes.len() as u64;
        if !inside {
            let length = (to - from).max(AHEAD).min(segment.bytes - from);
            self.bytes.resize(length as usize, 0);
            self.segment = 0;
            segment.file.read_exact_at(&mut self.bytes, from).map_err(Error::io("read entry"))?;
            self.segment = place.segment;
            self.start = from;
        }
        let at = (from - self.start) as usize;
        Ok(&self.bytes[at..at + place.bytes as usize])
    }
}
