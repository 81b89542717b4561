//! Every form comes back equal, has the bytes it always had, and no bytes make a decoder panic.

mod golden;
mod primitives;
mod values;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Error, catalog, command, control, entry, state};

fn decode_everything(bytes: &Bytes) {
    let _ = entry::decode(bytes);
    let _ = command::decode(bytes);
    let _ = command::decode_outcome(bytes);
    let _ = control::decode(bytes);
    let _ = control::decode_answer(bytes);
    let _ = catalog::decode_object(bytes);
    let _ = catalog::decode_grant(bytes);
    let _ = state::Applied::decode(bytes);
    let _ = state::Head::decode(bytes);
    let _ = state::Counters::decode(bytes);
    let _ = state::PartitionState::decode(bytes);
    let _ = state::Slot::decode(bytes);
    let _ = state::Named::decode(bytes);
    let _ = state::FeedRecord::decode(bytes);
    let _ = state::SequenceState::decode(bytes);
    let _ = state::decode_held(bytes);
    let _ = state::decode_sequence(bytes);
}

#[test]
fn entries_and_requests_come_back_equal() {
    for (name, value) in values::entries() {
        let bytes = entry::to_bytes(&value);
        assert_eq!(entry::decode(&bytes), Ok(value), "{name}");
    }
    for (name, value) in values::outcomes() {
        let mut bytes = Vec::new();
        command::encode_outcome(&mut bytes, &value);
        assert_eq!(command::decode_outcome(&bytes.into()), Ok(value), "{name}");
    }
    for (name, value) in values::requests() {
        let bytes = control::to_bytes(&value);
        assert_eq!(control::decode(&bytes), Ok(value), "{name}");
    }
    for (name, value) in values::objects() {
        let bytes = catalog::object_to_bytes(&value);
        assert_eq!(catalog::decode_object(&bytes), Ok(value), "{name}");
    }
    for (name, value) in values::answers() {
        let bytes = control::answer_to_bytes(9, &value);
        assert_eq!(control::decode_answer(&bytes), Ok((9, value)), "{name}");
    }
}

#[test]
fn a_kind_or_version_that_is_not_known_is_told_apart_from_damage() {
    let (_, claim) = values::entries().into_iter().find(|(name, _)| *name == "claim").expect("there is one");
    let bytes = entry::to_bytes(&claim);
    let with = |at: usize, byte: u8| {
        let mut changed = bytes.to_vec();
        changed[at] = byte;
        entry::decode(&changed.into())
    };
    for reserved in [entry::kind::PUBLISH, entry::kind::SPLIT, entry::kind::ANCHOR, 200] {
        assert!(matches!(with(0, reserved), Err(Error::Unknown { .. })), "{reserved}");
    }
    assert!(matches!(with(1, 2), Err(Error::Unknown { number: 2, .. })));
    let cut = bytes.slice(..bytes.len() - 1);
    assert!(matches!(entry::decode(&cut), Err(Error::Malformed { .. })));
    let longer = Bytes::from([&bytes[..], &[0]].concat());
    assert!(matches!(entry::decode(&longer), Err(Error::Malformed { .. })));
}

#[test]
fn every_cut_and_every_flipped_bit_of_real_bytes_is_survived() {
    let entries = values::entries().into_iter().map(|(_, value)| entry::to_bytes(&value));
    let requests = values::requests().into_iter().map(|(_, value)| control::to_bytes(&value));
    for bytes in entries.chain(requests) {
        for length in 0..bytes.len() {
            decode_everything(&bytes.slice(..length));
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            decode_everything(&flipped.into());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 1..20u8) {
        decode_everything(&Bytes::from(bytes.clone()));
        // Past the first bytes, too.
        let mut headed = vec![kind, 1, 0, 0, 0];
        headed.extend_from_slice(&bytes);
        decode_everything(&Bytes::from(headed));
    }
}
