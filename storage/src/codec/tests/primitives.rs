//! Numbers, lengths.

use bytes::Bytes;

use crate::codec::{Put as _, Reader};

#[test]
fn numbers_have_one_form() {
    for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX] {
        let mut out = Vec::new();
        out.put_varint(value);
        let bytes = Bytes::from(out);
        let mut reader = Reader::new(&bytes, "a number");
        assert_eq!(reader.varint(), Ok(value));
        assert!(reader.end().is_ok());
    }
    for value in [0, -1, 1, i64::MIN, i64::MAX] {
        let mut out = Vec::new();
        out.put_signed(value);
        assert_eq!(Reader::new(&out.into(), "a number").signed(), Ok(value));
    }
    for bytes in [&[0x80, 0x00][..], &[0xff; 10], &[0x80; 11], &[0x80]] {
        let bytes = Bytes::copy_from_slice(bytes);
        assert!(Reader::new(&bytes, "a number").varint().is_err(), "{bytes:?}");
    }
}

#[test]
fn a_length_beyond_the_input_reserves_nothing() {
    let bytes = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(Reader::new(&bytes, "a list").list(Reader::u8).is_err());
    assert!(Reader::new(&bytes, "bytes").blob().is_err());
}
