//! Opening what a crash left: read everything, decide, only then change anything.
//!
//! Invariants:
//! - `scan` writes nothing. It either refuses, naming segment and offset, or says where the log ends.
//! - A sync group counts whole or not at all. Only the last one may be torn: if any whole record of a higher sync
//!   group than the torn one exists, the damaged bytes were synced once, and the log is corrupt.
//! - `Tail` says what must be zeroed before the log is written again.
//!
//! Not here: what the groups' owners do with a log that is shorter than their state.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::files::Files;
use super::index::{Index, Place, Slot};
use super::meta::{self, Metas};
use super::record::{self, Body, HEADER, Kind, Record};
use super::segment::{DATA, Header, Name, Segment, VERSION};
use super::{Error, GroupId, Identity};

/// What a scan found.
pub(crate) struct Scan {
    pub(crate) metas: Metas,
    pub(crate) indexes: BTreeMap<GroupId, Index>,
    /// All segments in order. The log ends in `tail.segment`; later ones are ready for use.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) tail: Tail,
    pub(crate) sealed: bool,
    pub(crate) records: u64,
}

/// Where the log ends and how it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) sync_group: u64,
    pub(crate) lsn: u64,
    /// The highest sync group seen in a torn tail, if there is one.
    pub(crate) torn_sync_group: Option<u64>,
    /// Segments to be zeroed from an offset to their end.
    pub(crate) zero: Vec<(u64, u64)>,
}

/// Reads the whole log. `segments` are the numbers found, in order.
pub(crate) fn scan(
    files: &dyn Files,
    identity: &Identity,
    numbers: &[u64],
    belief: Belief,
) -> Result<Scan, Error> {
    for pair in numbers.windows(2) {
        if pair[1] != pair[0] + 1 {
            return Err(Error::MissingSegment { segment: pair[0] + 1 });
        }
    }
    let mut scanner = Scanner::default();
    let mut segments = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        let (header, segment, bytes) = load(files, identity, *number)?;
        segments.push(Arc::new(segment));
        scanner.segment(&header, segments[at].seed, &bytes)?;
    }
    let first = *numbers.first().expect("a log that is scanned has segments");
    scanner.finish(first, segments, belief)
}

/// What to take for a torn tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// What cannot have been synced.
    Torn,
    /// Anything: a planted bug.
    #[cfg(any(test, feature = "faults"))]
    AnyDamage,
}

fn load(files: &dyn Files, identity: &Identity, number: u64) -> Result<(Header, Segment, Vec<u8>), Error> {
    let file = files.open(&Name::Segment(number).to_string()).map_err(Error::io("open segment"))?;
    let length = file.len().map_err(Error::io("measure segment"))?;
    let mut block = vec![0; length.min(DATA) as usize];
    file.read_exact_at(&mut block, 0).map_err(Error::io("read segment header"))?;
    let header = Header::decode(&block, number, identity)?;
    if length < header.bytes {
        return Err(Error::Corrupt {
            segment: number,
            offset: length,
            what: "segment is shorter than its header says",
        });
    }
    let mut bytes = vec![0; (header.bytes - DATA) as usize];
    file.read_exact_at(&mut bytes, DATA).map_err(Error::io("read segment"))?;
    Ok((header, Segment::new(&header, file), bytes))
}

/// The last whole sync group.
#[derive(Clone, Copy, Debug)]
struct Last {
    sync_group: u64,
    lsn: u64,
    segment: u64,
    /// Where it ends, from the start of the records.
    at: usize,
}

#[derive(Default)]
struct Scanner {
    metas: Metas,
    indexes: BTreeMap<GroupId, Index>,
    last: Option<Last>,
    sealed: bool,
    records: u64,
    /// Where reading stopped: segment, offset, and the number of the sync group that would be torn there.
    stop: Option<(u64, u64, u64)>,
    /// Nothing may continue the log any more; what follows is only searched.
    searching: bool,
    /// The highest sync group of a whole record behind the last whole group.
    behind: Option<u64>,
    zero: Vec<(u64, u64)>,
}

impl Scanner {
    fn segment(&mut self, header: &Header, seed: u32, bytes: &[u8]) -> Result<(), Error> {
        let segment = header.segment;
        let mut at = 0;
        // Where the last whole group of this segment ends.
        let mut end = 0;
        let mut group: Vec<(usize, Record<'_>)> = Vec::new();
        while !self.searching
            && let Some(record) = record::find(&bytes[at..], seed, segment)
            && self.continues(&record, group.last().map(|(_, record)| record), at == 0)
        {
            let (last, size) = (record.last, record.size);
            group.push((at, record));
            at += size;
            if last {
                self.take(segment, &group, at)?;
                group.clear();
                end = at;
            }
        }
        if end > 0 {
            // The log goes on here, so whatever lies behind its records in earlier segments means nothing.
            self.stop = None;
            self.behind = None;
            self.zero.clear();
        }
        let torn = group.first().map(|(_, record)| record.sync_group);
        let rest = &bytes[end..];
        let behind = if is_zero(rest) { None } else { highest_sync_group(rest, seed, segment) };
        // A whole record that does not continue the log at the start of a segment: the damage is before it.
        let blames_predecessor = at == 0 && record::find(bytes, seed, segment).is_some();
        if !self.searching && (self.stop.is_none() || (behind.is_some() && !blames_predecessor)) {
            let next = self.last.map_or(1, |last| last.sync_group + 1);
            self.stop = Some((segment, DATA + at as u64, torn.unwrap_or(next)));
        }
        self.behind = self.behind.max(behind);
        self.searching |= behind.is_some();
        // Behind the records of a recycled segment lies its former life, which nothing can mistake for records; and what
        // is not a whole record now never becomes one.
        let dirty = behind.is_some() || !(header.recycled || is_zero(rest));
        if dirty {
            self.zero.push((segment, DATA + end as u64));
        }
        Ok(())
    }

    fn continues(&self, record: &Record<'_>, before: Option<&Record<'_>>, starts_segment: bool) -> bool {
        if starts_segment != (record.kind == Kind::SegmentStart as u8) {
            return false;
        }
        if let Some(before) = before {
            return record.sync_group == before.sync_group && record.lsn == before.lsn + 1;
        }
        let Some(last) = self.last else { return true };
        if record.lsn != last.lsn + 1 {
            return false;
        }
        if record.kind == Kind::Resume as u8 {
            let resume = Body::Resume { sync_group: last.sync_group, lsn: last.lsn };
            return record.sync_group > last.sync_group
                && record::decode(Kind::Resume, record.body).is_some_and(|body| body == resume);
        }
        record.sync_group == last.sync_group + 1
    }

    fn take(&mut self, segment: u64, group: &[(usize, Record<'_>)], end: usize) -> Result<(), Error> {
        let first_of_log = self.last.is_none();
        for (at, record) in group {
            let offset = DATA + *at as u64;
            let corrupt = |what: &'static str| Error::Corrupt { segment, offset, what };
            let Some(kind) = Kind::find(record.kind) else {
                return Err(Error::UnknownKind { segment, offset, kind: record.kind, version: VERSION });
            };
            let body =
                record::decode(kind, record.body).ok_or_else(|| corrupt("record body is impossible"))?;
            match &body {
                Body::SegmentStart { groups } if !first_of_log && *groups as usize != self.metas.len() => {
                    return Err(corrupt(
                        "segment head names another number of groups than the log before it",
                    ));
                }
                Body::GroupState(meta) if !first_of_log && self.metas.get(&record.group) != Some(meta) => {
                    return Err(corrupt("segment head does not match the log before it"));
                }
                _ => {}
            }
            if !meta::apply(&mut self.metas, record.group, &body) {
                return Err(corrupt("record does not fit the state of its group"));
            }
            let place = Place { segment, offset: offset as u32, bytes: record.size as u32 };
            self.index(record.group, &body, place).map_err(corrupt)?;
        }
        self.records += group.len() as u64;
        if let Some((_, record)) = group.last() {
            self.last = Some(Last { sync_group: record.sync_group, lsn: record.lsn, segment, at: end });
            self.sealed = record.kind == Kind::Seal as u8;
        }
        Ok(())
    }

    fn index(&mut self, group: GroupId, body: &Body<'_>, place: Place) -> Result<(), &'static str> {
        let floor = self.metas.get(&group).map_or(0, |meta| meta.floor);
        let index = self.indexes.entry(group).or_default();
        match body {
            Body::Append { id, .. } => {
                if index.find(id.index).is_some_and(|slot| slot != Slot::Missing) {
                    return Err("index is appended twice");
                }
                if !index.put(id.index, Slot::Written(place)) {
                    return Err("index is far from its neighbours");
                }
            }
            Body::Rewrite { id, .. } if id.index >= floor => {
                if !index.put(id.index, Slot::Written(place)) {
                    return Err("index is far from its neighbours");
                }
            }
            Body::Truncate { from } => index.truncate(*from),
            Body::Purge { .. }
            | Body::SnapshotInstalled { .. }
            | Body::Begin { .. }
            | Body::GroupCreate(_)
            | Body::GroupState(_) => index.purge(floor),
            Body::GroupDrop => {
                self.indexes.remove(&group);
            }
            Body::Rewrite { .. }
            | Body::Vote(_)
            | Body::Committed { .. }
            | Body::Checkpoint { .. }
            | Body::Seal
            | Body::SegmentStart { .. }
            | Body::Resume { .. } => {}
        }
        Ok(())
    }

    fn finish(mut self, first: u64, segments: Vec<Arc<Segment>>, belief: Belief) -> Result<Scan, Error> {
        let (stop_segment, stop_offset, torn) = self.stop.expect("every scan stops somewhere");
        if self.behind > Some(torn) && belief == Belief::Torn {
            return Err(Error::Corrupt {
                segment: stop_segment,
                offset: stop_offset,
                what: "damage before synced records",
            });
        }
        if self.last.is_none() && first > 1 {
            return Err(Error::Corrupt {
                segment: first,
                offset: DATA,
                what: "no records where the log must begin",
            });
        }
        self.indexes.retain(|group, _| self.metas.contains_key(group));
        for (group, meta) in &self.metas {
            let index = self.indexes.entry(*group).or_default();
            index.purge(meta.floor);
            if index.find_missing().is_some() || (!index.is_empty() && index.first() != meta.floor) {
                return Err(Error::Corrupt {
                    segment: first,
                    offset: DATA,
                    what: "entries of a group are missing",
                });
            }
        }
        let tail = Tail {
            segment: self.last.map_or(first, |last| last.segment),
            offset: self.last.map_or(DATA, |last| DATA + last.at as u64),
            sync_group: self.last.map_or(0, |last| last.sync_group),
            lsn: self.last.map_or(0, |last| last.lsn),
            torn_sync_group: self.behind,
            zero: self.zero,
        };
        let (metas, indexes) = (self.metas, self.indexes);
        Ok(Scan { metas, indexes, segments, tail, sealed: self.sealed, records: self.records })
    }
}

/// Makes the decision true on disk: nothing behind the log's end can ever be taken for records.
pub(crate) fn cut(segments: &[Arc<Segment>], tail: &Tail) -> Result<(), Error> {
    const ZEROS: &[u8] = &[0; 1 << 18];
    for (number, from) in &tail.zero {
        let Some(segment) = segments.iter().find(|segment| segment.number == *number) else { continue };
        let mut offset = *from;
        while offset < segment.bytes {
            let count = (segment.bytes - offset).min(ZEROS.len() as u64);
            segment
                .file
                .write_all_at(&ZEROS[..count as usize], offset)
                .map_err(Error::io("zero torn tail"))?;
            offset += count;
        }
        segment.file.sync_data().map_err(Error::io("sync torn tail"))?;
    }
    Ok(())
}

/// The highest sync group of any whole record in these bytes.
fn highest_sync_group(bytes: &[u8], seed: u32, segment: u64) -> Option<u64> {
    let mut highest = None;
    let mut at = 0;
    while at + HEADER <= bytes.len() {
        if let Some(record) = record::find(&bytes[at..], seed, segment) {
            highest = highest.max(Some(record.sync_group));
            at += record.size;
        } else {
            at += 8;
        }
    }
    highest
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: &[u8] = &[0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}
