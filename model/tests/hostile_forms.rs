//! Whatever bytes or texts a client sends for any type: a value or a typed refusal, never a panic.

use model::types::{Type, Typmod};
use model::value::{Context, Zone, binary, text_io};
use proptest::prelude::*;

fn types() -> impl Strategy<Value = Type> {
    let all: Vec<Type> = Type::all().collect();
    (0..all.len()).prop_map(move |index| all[index])
}

/// Texts with a bias to what some type takes for itself.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,20}",
        "[-+0-9.eE]{0,30}",
        "[{}\\[\\]:=,\"\\\\a-c0-9 ]{0,30}",
        "[0-9]{1,6}-[0-9]{1,3}-[0-9]{1,3}[T ][0-9]{1,3}:[0-9]{1,3}(:[0-9]{1,3})?[-+Z0-9:.]{0,6}",
        "-?[0-9]{1,20}[.]?[0-9]{0,3} ?(years?|mons|days|hours|us|decades|millennium)( ago)?",
        "P[-0-9.]{1,12}[YMWDTHS][-0-9.TYMDHS]{0,10}",
        "\\\\x[0-9a-fA-F ]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn bytes_are_decoded_or_refused(of in types(), bytes in proptest::collection::vec(any::<u8>(), 0..48)) {
        if let Ok(value) = binary::decode_binary(of, &bytes) {
            prop_assert!(value.fits(of), "{} {:?}", of, value);
            let mut again = Vec::new();
            binary::encode_binary(&value, of, &mut again);
            prop_assert_eq!(binary::decode_binary(of, &again), Ok(value.clone()), "{}", of);
            prop_assert!(text_io::to_text(&value, of, &Context::default()).is_some());
        }
    }

    #[test]
    fn array_headers_do_not_make_us_allocate(length in any::<i32>(), lower in any::<i32>(), count in 0..7i32) {
        let mut bytes = Vec::new();
        [count, 0, 23].iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
        for _ in 0..count {
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(&lower.to_be_bytes());
        }
        let of = Type::from_oid(1007).expect("integer[]");
        let empty = count == 0 || length == 0;
        prop_assert_eq!(binary::decode_binary(of, &bytes).is_ok(), empty && lower.checked_add(length).is_some() || count == 0);
    }

    #[test]
    fn texts_are_read_or_refused(of in types(), text in texts(), typmod in -1..70_000i32) {
        let context = Context { zone: Zone::parse("America/New_York").expect("a zone"), ..Context::default() };
        for typmod in [Typmod::NONE, Typmod(typmod)] {
            let Ok(value) = text_io::parse(of, typmod, &text, &context) else { continue };
            prop_assert!(value.fits(of), "{} {:?}", of, value);
            let shown = text_io::to_text(&value, of, &context).expect("not null");
            if typmod.is_none() {
                prop_assert_eq!(text_io::parse(of, typmod, &shown, &context), Ok(value), "{} {:?} {:?}", of, text, shown);
            }
        }
    }
}
