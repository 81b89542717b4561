//! Values: sizes, and the agreement of order, equality and hash.

use std::hash::{DefaultHasher, Hasher};

use proptest::prelude::*;

use super::*;

#[test]
fn a_value_is_three_words_and_an_error_one() {
    assert_eq!(size_of::<Value>(), 24);
    assert_eq!(size_of::<Numeric>(), 24);
    assert_eq!(size_of::<Bytea>(), 16);
    assert_eq!(size_of::<ValueError>(), 8);
    assert!(size_of::<Result<Value, ValueError>>() <= 32);
}

fn numeric(text: &str) -> Value {
    Value::Numeric(text.parse().expect("a numeric"))
}

fn json(text: &str) -> Value {
    Value::Jsonb(Jsonb::parse(text).expect("json"))
}

fn hash(value: &Value) -> u64 {
    let mut state = DefaultHasher::new();
    value.hash_sql(&mut state);
    state.finish()
}

#[test]
fn what_sql_calls_equal_is_equal_and_hashes_alike() {
    let pairs = [
        (numeric("1.0"), numeric("1.00")),
        (numeric("0"), numeric("-0.000")),
        (numeric("1e60"), numeric("1000000000000000000000000000000000000000000000000000000000000.0")),
        (numeric("NaN"), numeric("nan")),
        (Value::Float8(0.0), Value::Float8(-0.0)),
        (Value::Float8(f64::NAN), Value::Float8(-f64::NAN)),
        (Value::Float4(1.5), Value::Float8(1.5)),
        (Value::Int2(3), Value::Int8(3)),
        (Value::Interval(Interval::new(1, 0, 0)), Value::Interval(Interval::new(0, 29, 86_400_000_000))),
        (json("{\"a\": 1.0, \"b\": []}"), json("{\"b\": [], \"a\": 1}")),
        (Value::Null, Value::Null),
    ];
    for (a, b) in pairs {
        assert!(a.eq_sql(&b), "{a:?} {b:?}");
        assert_eq!(hash(&a), hash(&b), "{a:?} {b:?}");
    }
}

#[test]
fn equality_for_tests_sees_representations() {
    assert_ne!(numeric("1.0"), numeric("1.00"));
    assert_ne!(Value::Float8(0.0), Value::Float8(-0.0));
    assert_eq!(Value::Float8(f64::NAN), Value::Float8(f64::NAN));
    assert_ne!(Value::Int4(1), Value::Int8(1));
}

#[test]
fn null_and_nan_sort_last() {
    assert!(Value::Null.cmp_sql(&Value::Int4(i32::MAX)).is_gt());
    assert!(Value::Float8(f64::NAN).cmp_sql(&Value::Float8(f64::INFINITY)).is_gt());
    assert!(numeric("NaN").cmp_sql(&numeric("Infinity")).is_gt());
    assert!(numeric("-Infinity").cmp_sql(&numeric("-1e100")).is_lt());
    assert!(Value::Int4(2).cmp_sql(&Value::Float8(1.5)).is_gt());
}

fn numerics() -> impl Strategy<Value = Value> {
    let small = (any::<i64>(), 0..63u32, 0..9u16);
    let small =
        small.prop_map(|(mantissa, shift, scale)| Numeric::from_parts((mantissa >> shift).into(), scale));
    let wide = (any::<i128>(), 0..45u16).prop_map(|(mantissa, scale)| Numeric::from_parts(mantissa, scale));
    prop_oneof![3 => small, 1 => wide].prop_map(|number| Value::Numeric(number.expect("a small scale")))
}

proptest! {
    #[test]
    fn order_is_total_and_agrees_with_hashes(a in numerics(), b in numerics(), c in numerics()) {
        prop_assert_eq!(a.cmp_sql(&b), b.cmp_sql(&a).reverse());
        if a.cmp_sql(&b).is_le() && b.cmp_sql(&c).is_le() {
            prop_assert!(a.cmp_sql(&c).is_le());
        }
        if a.eq_sql(&b) {
            prop_assert_eq!(hash(&a), hash(&b));
        }
    }
}
