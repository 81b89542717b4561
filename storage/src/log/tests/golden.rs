//! The bytes of every kind of record and of the segment header. A change here is a change of the format: it needs a new
//! version, and the drawing in `docs/formats/log.md`.

use bytes::Bytes;

use super::super::meta::Meta;
use super::super::record::{self, Body, Kind, Stamp};
use super::super::segment::Header;
use super::super::{GroupId, LogId};
use super::support::identity;

fn hex(bytes: &[u8]) -> String {
    bytes
        .chunks(8)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn every_record_kind_has_its_bytes() {
    let id = LogId { term: 2, node: 3, index: 4 };
    let meta = Meta {
        vote: Some(Bytes::from_static(b"vote")),
        purged: Some(LogId { term: 1, node: 1, index: 8 }),
        committed: Some(LogId { term: 2, node: 3, index: 11 }),
        applied: Some(10),
        floor: 9,
        snapshot: Some((LogId { term: 1, node: 1, index: 8 }, Bytes::from_static(b"snap"))),
        membership: Bytes::from_static(b"members"),
    };
    let bodies = [
        Body::Append { id, kind: 5, payload: b"payload" },
        Body::Vote(b"vote"),
        Body::Truncate { from: 4 },
        Body::Purge { upto: id },
        Body::Committed { upto: id },
        Body::Checkpoint { applied: vec![(GroupId(1), 10), (GroupId(2), 20)] },
        Body::GroupCreate(Meta::default()),
        Body::GroupDrop,
        Body::SnapshotInstalled { upto: id, data: b"generation" },
        Body::Seal,
        Body::SegmentStart { groups: 2 },
        Body::GroupState(meta),
        Body::Rewrite { id, kind: 5, payload: b"payload" },
        Body::Begin { index: 4 },
        Body::Resume { sync_group: 6, lsn: 7 },
    ];
    let mut found = String::new();
    for (at, body) in bodies.iter().enumerate() {
        let kind = Kind::find(at as u8 + 1).unwrap();
        let mut bytes = Vec::new();
        record::encode(GroupId(0x0102), body, &mut bytes);
        let seed = record::seed(identity().incarnation, 0x0B);
        record::stamp(
            &mut bytes,
            Stamp { seed, segment: 0x0B, sync_group: 0x0C, lsn: 0x0D, last: at % 2 == 0 },
        );
        let read = record::find(&bytes, seed, 0x0B).unwrap();
        assert_eq!(read.size, bytes.len());
        assert_eq!((read.kind, read.last, read.group), (kind as u8, at % 2 == 0, GroupId(0x0102)));
        assert_eq!((read.sync_group, read.lsn), (0x0C, 0x0D));
        assert_eq!(record::decode(kind, read.body).as_ref(), Some(body));
        found += &format!("{kind:?}\n  {}\n  {}\n", hex(&bytes[..40]), hex(&bytes[40..]));
    }
    let header = Header { identity: identity(), segment: 0x0B, bytes: 64 << 20, recycled: true };
    found += &format!("Header\n  {}\n", hex(&header.encode()[..80]));
    if std::env::var_os("KEYSTEAD_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/log/tests/golden/records.txt"), &found)
            .unwrap();
    }
    assert_eq!(found, include_str!("golden/records.txt"));
}

#[test]
fn a_body_that_is_cut_anywhere_is_not_read_as_another() {
    let meta = Meta {
        vote: Some(Bytes::from_static(b"vote")),
        membership: Bytes::from_static(b"m"),
        ..Meta::default()
    };
    let mut body = Vec::new();
    meta.encode(&mut body);
    assert_eq!(Meta::decode(&body), Some(meta));
    for length in 0..body.len() {
        assert_eq!(Meta::decode(&body[..length]), None);
    }
    for kind in [Kind::Truncate, Kind::Purge, Kind::Committed, Kind::Begin, Kind::Resume, Kind::SegmentStart]
    {
        assert_eq!(record::decode(kind, &[0; 7]), None);
    }
    assert_eq!(record::decode(Kind::Append, &[0; 31]), None);
    assert_eq!(record::decode(Kind::Checkpoint, &[0; 17]), None);
    assert_eq!(record::decode(Kind::SnapshotInstalled, &[0; 23]), None);
}

#[test]
fn made_up_bodies_and_headers_never_panic() {
    use super::super::files::sim::Chance;
    let mut chance = Chance(1);
    let (mut read, mut refused) = (0, 0);
    for round in 0..20_000 {
        let kind = Kind::find(1 + (round % 15) as u8).unwrap();
        let length = chance.below(200) as usize;
        // Small numbers are what lengths and flags are made of.
        let small = chance.below(2) == 0;
        let body: Vec<u8> =
            (0..length).map(|_| chance.next_u64() as u8 & if small { 3 } else { 255 }).collect();
        match record::decode(kind, &body) {
            None => refused += 1,
            Some(found) => {
                read += 1;
                let mut again = Vec::new();
                record::encode(GroupId(1), &found, &mut again);
                assert_eq!(record::decode(kind, record::body_of(&again)), Some(found));
            }
        }
        assert!(Header::decode(&body, 1, &identity()).is_err());
    }
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}
