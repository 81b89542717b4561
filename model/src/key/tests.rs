//! Keys: order of bytes is order of values, decoding gives equal values, hostile bytes do no harm.

use proptest::prelude::*;

use super::*;
use crate::types::Scalar;
use crate::value::array::Dimension;
use crate::value::{Array, Bytea, Date, Interval, Numeric, Time, Timestamp};

fn encoded(values: &[Value]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_into(&mut out, values).expect("a key");
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>().trim_end().to_owned()
}

fn numeric(text: &str) -> Value {
    Value::Numeric(text.parse().expect("a numeric"))
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let cases = [
        (vec![Value::Int4(0)], "28"),
        (vec![Value::Int4(1), Value::Int8(256)], "29 01 2a 01 00"),
        (vec![Value::Int2(-1)], "27 fe"),
        (vec![Value::Int8(i64::MIN)], "20 7f ff ff ff ff ff ff ff"),
        (vec![Value::text("a"), Value::Null], "50 61 00 01 f0"),
        (vec![numeric("1.5")], "40 04 80 00 01 10 00"),
        (vec![numeric("-1.5")], "40 02 7f ff fe ef ff"),
        (vec![numeric("0.00")], "40 03"),
        (vec![Value::Float8(-0.0)], "38 80 00 00 00 00 00 00 00"),
        (vec![Value::Bool(true)], "19"),
        (vec![Value::Bytea(Bytea::from(&[0u8, 1][..]))], "54 00 ff 01 00 01"),
        (vec![Value::Interval(Interval::new(1, 0, 0))], "64 80 00 00 00 00 00 02 5b 7f 3d 40 00"),
    ];
    for (values, expected) in cases {
        assert_eq!(hex(&encoded(&values)), expected, "{values:?}");
    }
    let mut descending = Vec::new();
    encode_parts(&mut descending, &[Value::Bool(true), Value::Null], &[KeyPart::DESC, KeyPart::DESC])
        .expect("a key");
    assert_eq!(hex(&descending), "e6 02");
}

#[test]
fn values_equal_in_sql_have_one_key() {
    let same = [
        (numeric("1.0"), numeric("1.00")),
        (numeric("100"), numeric("1e2")),
        (Value::Float8(0.0), Value::Float8(-0.0)),
        (Value::Float4(1.5), Value::Float8(1.5)),
        (Value::Int2(7), Value::Int8(7)),
        (Value::Oid(7), Value::Int8(7)),
        (Value::Interval(Interval::new(1, 0, 0)), Value::Interval(Interval::new(0, 30, 0))),
    ];
    for (a, b) in same {
        assert_eq!(encoded(&[a]), encoded(&[b]));
    }
}

#[test]
fn json_is_no_key_and_leaves_nothing_behind() {
    let mut out = vec![1];
    let json = Value::Jsonb(crate::value::Jsonb::null());
    assert_eq!(
        encode_into(&mut out, std::slice::from_ref(&json)),
        Err(KeyError::NotAllowed { kind: "jsonb" })
    );
    let record = Value::Record(Arc::from(vec![Value::Int4(1), json]));
    assert!(encode_into(&mut out, &[record]).is_err());
    assert_eq!(out, [1]);
}

#[test]
fn a_prefix_ends_before_the_next_one() {
    assert_eq!(prefix_end(&[1, 2]), Some(vec![1, 3]));
    assert_eq!(prefix_end(&[1, 0xff, 0xff]), Some(vec![2]));
    assert_eq!(prefix_end(&[0xff]), None);
    assert_eq!(prefix_end(&[]), None);
}

/// Values of one type, ends of ranges included.
fn values_of(of: Type) -> BoxedStrategy<Value> {
    match of {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int2 => any::<i16>().prop_map(Value::Int2).boxed(),
        Type::Int4 => prop_oneof![any::<i32>(), -300..300].prop_map(Value::Int4).boxed(),
        Type::Int8 => prop_oneof![any::<i64>(), -70_000..70_000i64, Just(i64::MIN), Just(i64::MAX)]
            .prop_map(Value::Int8)
            .boxed(),
        Type::Oid => any::<u32>().prop_map(Value::Oid).boxed(),
        Type::Float4 => any::<f32>().prop_map(Value::Float4).boxed(),
        Type::Float8 => prop_oneof![any::<f64>(), Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), -2.0..2.0]
            .prop_map(Value::Float8)
            .boxed(),
        Type::Numeric => numerics().prop_map(Value::Numeric).boxed(),
        Type::Text => "[\u{1}-\u{3}a-c\u{fffd}]{0,5}".prop_map(Value::text).boxed(),
        Type::Bytea => {
            proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()], 0..6)
                .prop_map(|bytes| Value::Bytea(Bytea::from(bytes)))
                .boxed()
        }
        Type::Date => prop_oneof![Just(i32::MIN), Just(i32::MAX), -2_000_000..2_000_000]
            .prop_map(|days| Value::Date(Date::from_days(days).expect("in range")))
            .boxed(),
        Type::Time => (0..=86_400_000_000i64)
            .prop_map(|micros| Value::Time(Time::from_micros(micros).expect("in range")))
            .boxed(),
        Type::Timestamp => timestamps().prop_map(Value::Timestamp).boxed(),
        Type::Timestamptz => timestamps().prop_map(Value::Timestamptz).boxed(),
        Type::Interval => prop_oneof![
            (any::<i32>(), any::<i32>(), any::<i64>()),
            (-2..2i32, -61..61i32, prop_oneof![Just(0i64), Just(86_400_000_000), -9..9i64]),
        ]
        .prop_map(|(months, days, micros)| Value::Interval(Interval::new(months, days, micros)))
        .boxed(),
        Type::Uuid => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        Type::Record => proptest::collection::vec(nullable(Type::Text), 0..3).prop_map(record).boxed(),
        Type::Array(element) => (proptest::collection::vec(nullable(element.as_type()), 0..4), 0..3i32)
            .prop_map(move |(values, lower)| {
                let dimensions = vec![Dimension { length: values.len() as i32, lower }];
                let shape = if values.is_empty() { Vec::new() } else { dimensions };
                Value::Array(Arc::new(Array::new(element, shape, values).expect("a shape")))
            })
            .boxed(),
        other => panic!("no values for {other}"),
    }
}

fn nullable(of: Type) -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 5 => values_of(of)].boxed()
}

fn timestamps() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::INFINITY),
        Just(Timestamp::NEG_INFINITY),
        (Timestamp::MIN.micros()..Timestamp::MAX.micros())
            .prop_map(|micros| Timestamp::from_micros(micros).expect("in range")),
        (-5..5i64).prop_map(|micros| Timestamp::from_micros(micros).expect("in range")),
    ]
}

fn numerics() -> impl Strategy<Value = Numeric> {
    prop_oneof![
        (-2_000..2_000i128, 0..4u16)
            .prop_map(|(mantissa, scale)| Numeric::from_parts(mantissa, scale).expect("small")),
        (any::<i128>(), 0..60u16)
            .prop_map(|(mantissa, scale)| Numeric::from_parts(mantissa, scale).expect("small")),
        "-?[1-9][0-9]{30,60}(\\.[0-9]{1,9})?".prop_map(|text| text.parse().expect("a numeric")),
        Just(Numeric::NAN),
        Just(Numeric::INFINITY),
        Just(Numeric::NEG_INFINITY),
    ]
}

const KEY_TYPES: [Type; 20] = [
    Type::Bool,
    Type::Int2,
    Type::Int4,
    Type::Int8,
    Type::Oid,
    Type::Float4,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Bytea,
    Type::Date,
    Type::Time,
    Type::Timestamp,
    Type::Timestamptz,
    Type::Interval,
    Type::Uuid,
    Type::Record,
    Type::Array(Scalar::Int4),
    Type::Array(Scalar::Text),
    Type::Array(Scalar::Numeric),
];

fn pairs() -> impl Strategy<Value = (Type, Value, Value)> {
    (0..KEY_TYPES.len()).prop_flat_map(|index| {
        let of = KEY_TYPES[index];
        (Just(of), nullable(of), nullable(of))
    })
}

fn parts() -> impl Strategy<Value = KeyPart> {
    (any::<bool>(), any::<bool>()).prop_map(|(desc, nulls_first)| KeyPart { desc, nulls_first })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn order_of_bytes_is_order_of_values((of, a, b) in pairs(), part in parts(), tail in any::<i32>()) {
        let key = |value: &Value| {
            let mut out = Vec::new();
            encode_part(&mut out, value, part).expect("a key");
            encode_part(&mut out, &Value::Int4(tail), KeyPart::ASC).expect("a key");
            out
        };
        let mut expected = match (a.is_null(), b.is_null()) {
            (false, false) if part.desc => b.cmp_sql(&a),
            (false, false) => a.cmp_sql(&b),
            _ => a.cmp_sql(&b),
        };
        if part.nulls_first && (a.is_null() != b.is_null()) {
            expected = expected.reverse();
        }
        prop_assert_eq!(key(&a).cmp(&key(&b)), expected, "{} {:?} {:?}", of, a, b);
    }

    #[test]
    fn a_key_reads_back_as_equal_values((of, a, b) in pairs(), part in parts()) {
        let mut out = Vec::new();
        encode_parts(&mut out, &[a.clone(), b.clone()], &[part, KeyPart::ASC]).expect("a key");
        let (values, used) = decode_prefix(&out, &[of, of], &[part, KeyPart::ASC]).expect("a key");
        prop_assert_eq!(used, out.len());
        prop_assert!(values[0].eq_sql(&a) && values[1].eq_sql(&b), "{:?} {:?} {:?}", a, b, values);
        // The type of the value is that of the column, whatever bytes say.
        prop_assert!(values.iter().all(|value| value.fits(of)));
    }

    #[test]
    fn hostile_bytes_are_refused_quietly(bytes in proptest::collection::vec(any::<u8>(), 0..40), index in 0..KEY_TYPES.len(), part in parts()) {
        let of = KEY_TYPES[index];
        if let Ok((values, used)) = decode_prefix(&bytes, &[of], &[part]) {
            // What is taken for a key is the key of what it says.
            let mut again = Vec::new();
            encode_parts(&mut again, &values, &[part]).expect("a key");
            prop_assert_eq!(&again[..], &bytes[..used]);
        }
    }

    #[test]
    fn damaged_keys_are_refused_or_canonical((of, a, _) in pairs(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encoded(&[a]);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok((values, used)) = decode_prefix(&bytes, &[of], &[]) {
            prop_assert_eq!(&encoded(&values)[..], &bytes[..used]);
        }
    }
}
