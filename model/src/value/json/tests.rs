//! Documents: round trips, order of keys, depth, damage.

use proptest::prelude::*;

use super::*;

fn json(text: &str) -> Jsonb {
    Jsonb::parse(text).expect(text)
}

#[test]
fn keys_are_found_whatever_their_order() {
    let pairs: Vec<_> = (0..500).rev().map(|key| format!("\"k{key}\": {key}")).collect();
    let document = json(&format!("{{{}}}", pairs.join(", ")));
    for key in 0..500 {
        assert_eq!(
            document.get_key(&format!("k{key}")).map(|found| found.to_string()),
            Some(key.to_string())
        );
    }
    assert!(document.get_key("k500").is_none() && document.get_key("").is_none());
}

#[test]
fn nesting_has_a_limit_and_not_a_crash() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Jsonb::parse(&nested(DEPTH_MAX)).is_ok());
    for text in [nested(DEPTH_MAX + 2), "[".repeat(1_000_000), "{\"a\":".repeat(1_000_000)] {
        assert_eq!(Jsonb::parse(&text).expect_err("too deep").kind(), ValueErrorKind::TooComplex);
        assert_eq!(validate(&text).expect_err("too deep").kind(), ValueErrorKind::TooComplex);
    }
    let deepest = json(&nested(DEPTH_MAX));
    assert_eq!(deepest.to_string(), nested(DEPTH_MAX));
    let mut wrapped = ArrayBuilder::default();
    wrapped.push(&deepest);
    assert_eq!(wrapped.try_finish().expect_err("too deep").kind(), ValueErrorKind::TooComplex);
    let refused = json("[1]").set_path(&["0"], &deepest, SetMode::Set);
    assert_eq!(refused.expect_err("too deep").kind(), ValueErrorKind::TooComplex);
    assert!(
        Jsonb::check(deepest.as_bytes()).is_ok()
            && deepest.contains(&deepest)
            && deepest.cmp_sql(&deepest).is_eq()
    );
}

#[test]
fn large_documents_take_the_long_form() {
    let long = "x".repeat(70_000);
    let document = json(&format!("{{\"a\": [\"{long}\", 2], \"b\": 3}}"));
    assert_eq!(document.as_bytes()[0], OBJECT_LONG);
    assert_eq!(document.find_path(["a", "1"]).map(|node| node.to_jsonb()), Some(json("2")));
    assert_eq!(document.find_path(["a", "0"]).and_then(Node::as_text), Some(long));
    assert_eq!(Jsonb::check(document.as_bytes()), Ok(document.clone()));
}

#[test]
fn errors_carry_postgresqls_detail() {
    let cases = [
        ("{\"a\":}", "Expected JSON value, but found \"}\"."),
        ("nul", "Token \"nul\" is invalid."),
        ("", "The input string ended unexpectedly."),
        ("\"\\u0000\"", "\\u0000 cannot be converted to text."),
        ("\"\\ud83d\"", "Unicode low surrogate must follow a high surrogate."),
        ("\"a\nb\"", "Character with value 0x0a must be escaped."),
        ("[1] 2", "Expected end of input, but found \"2\"."),
        ("{\"a\" 1}", "Expected \":\", but found \"1\"."),
    ];
    for (text, detail) in cases {
        assert_eq!(Jsonb::parse(text).expect_err(text).detail(), Some(detail), "{text}");
    }
}

fn documents() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?".prop_map(|number| number),
        "[a-z\"\\\\\u{1}-\u{20}é😀]{0,6}".prop_map(|text| {
            let mut quoted = String::new();
            print::write_string(&text, &mut quoted);
            quoted
        }),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5)
                .prop_map(|elements| format!("[{}]", elements.join(","))),
            proptest::collection::vec(("[a-c]{0,2}", inner), 0..5).prop_map(|pairs| {
                let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", pairs.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn a_document_reads_back_from_its_text_and_bytes(text in documents()) {
        validate(&text).expect("valid");
        let document = json(&text);
        prop_assert_eq!(&json(&document.to_string()), &document);
        prop_assert_eq!(&json(&document.pretty()), &document);
        prop_assert_eq!(Jsonb::check(document.as_bytes()), Ok(document.clone()));
        prop_assert_eq!(&document.root().to_jsonb(), &document);
        prop_assert!(document.contains(&document));
    }

    #[test]
    fn order_is_total_and_hash_follows_equality(a in documents(), b in documents()) {
        use std::hash::{DefaultHasher, Hasher};
        let (a, b) = (json(&a), json(&b));
        prop_assert_eq!(a.cmp_sql(&b), b.cmp_sql(&a).reverse());
        let hash = |document: &Jsonb| {
            let mut state = DefaultHasher::new();
            document.hash_sql(&mut state);
            state.finish()
        };
        if a.cmp_sql(&b).is_eq() {
            prop_assert_eq!(hash(&a), hash(&b));
        }
    }

    #[test]
    fn damage_is_found_by_check_and_borne_by_all_else(text in documents(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let document = json(&text);
        let mut bytes = document.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let damaged = Jsonb::from_stored(&bytes);
        let _ = (damaged.to_string(), damaged.pretty(), damaged.strip_nulls(), damaged.cmp_sql(&document));
        let _ = (damaged.contains(&document), damaged.exists("a"), damaged.concat(&document));
        let _ = damaged.set_path(&["a", "0"], &document, SetMode::SetOrCreate);
        if let Ok(checked) = Jsonb::check(&bytes) {
            prop_assert_eq!(&json(&checked.to_string()).to_string(), &checked.to_string());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]{}:,\"\\\\0-9a-ntrue.eE+-]{0,30}") {
        prop_assert_eq!(Jsonb::parse(&text).is_ok(), validate(&text).is_ok() , "{}", text);
    }
}
