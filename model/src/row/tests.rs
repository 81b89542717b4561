//! Rows: what is written is read back, columns alone too; damaged bytes are refused or read as other values.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::types::Scalar;
use crate::value::{Array, Bytea, Date, Interval, Jsonb, Numeric, Time, Timestamp};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn numeric(text: &str) -> Value {
    Value::Numeric(text.parse().expect("a numeric"))
}

fn json(text: &str) -> Value {
    Value::Jsonb(Jsonb::parse(text).expect("json"))
}

/// One of everything.
fn samples() -> Vec<(Value, Type)> {
    let numbers = vec![Value::Int4(1), Value::Null, Value::Int4(-3)];
    vec![
        (Value::Bool(true), Type::Bool),
        (Value::Int2(-2), Type::Int2),
        (Value::Int4(i32::MIN), Type::Int4),
        (Value::Int8(i64::MAX), Type::Int8),
        (Value::Float4(1.5), Type::Float4),
        (Value::Float8(f64::NAN), Type::Float8),
        (numeric("123.45"), Type::Numeric),
        (numeric("-99999999999999999999999999999999999999999999999999.000"), Type::Numeric),
        (numeric("NaN"), Type::Numeric),
        (numeric("-Infinity"), Type::Numeric),
        (numeric("0.00"), Type::Numeric),
        (Value::text("grüße"), Type::Text),
        (Value::text(""), Type::Varchar),
        (Value::Bytea(Bytea::from(&[0u8, 255][..])), Type::Bytea),
        (Value::Date(Date::INFINITY), Type::Date),
        (Value::Time(Time::from_micros(1).expect("time")), Type::Time),
        (Value::Timestamp(Timestamp::MIN), Type::Timestamp),
        (Value::Timestamptz(Timestamp::NEG_INFINITY), Type::Timestamptz),
        (Value::Interval(Interval::new(1, -2, 3)), Type::Interval),
        (Value::Uuid([7; 16]), Type::Uuid),
        (Value::Json("{ }".into()), Type::Json),
        (json("{\"a\": [1, {\"b\": null}]}"), Type::Jsonb),
        (Value::Oid(u32::MAX), Type::Regclass),
        (Value::Array(Arc::new(Array::from_values(Scalar::Int4, numbers))), Type::Array(Scalar::Int4)),
        (Value::Array(Arc::new(Array::empty(Scalar::Text))), Type::Array(Scalar::Text)),
        (Value::Array(Arc::new(Array::from_vector(Scalar::Int2, Vec::new()))), Type::Int2Vector),
        (Value::Record(Arc::from(vec![Value::Null, Value::text("x"), Value::Int4(1)])), Type::Record),
        (Value::Null, Type::Text),
    ]
}

fn encoded(samples: &[(Value, Type)]) -> Vec<u8> {
    let (values, types): (Vec<_>, Vec<_>) = samples.iter().cloned().unzip();
    let mut out = Vec::new();
    encode(&values, &types, &mut out).expect("a row");
    out
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let mut row = encoded(&[
        (Value::Int4(1), Type::Int4),
        (Value::Null, Type::Text),
        (Value::text("ab"), Type::Text),
        (numeric("123.45"), Type::Numeric),
        (json("{\"a\": 1}"), Type::Jsonb),
    ]);
    set_revision(&mut row, 7);
    set_updated_at(&mut row, -1);
    let expected = concat!(
        "01",
        "00",
        "0700000000000000",
        "ffffffffffffffff",
        "0500",
        "02",
        "0400",
        "0400",
        "0600",
        "0900",
        "1400",
        "01000000",
        "6162",
        "023930",
        "060100010003006103",
        "0001",
    );
    assert_eq!(hex(&row), expected);
}

#[test]
fn every_type_comes_back_whole_and_alone() {
    let samples = samples();
    let mut row = encoded(&samples);
    set_revision(&mut row, 42);
    set_updated_at(&mut row, 1_700_000_000_000_000);
    let view = RowView::new(&row).expect("a row");
    assert_eq!((view.revision(), view.updated_at(), view.len()), (42, 1_700_000_000_000_000, samples.len()));
    for (column, (value, of)) in samples.iter().enumerate() {
        assert_eq!(view.column(column, *of), Ok(Some(value.clone())), "{of}");
    }
    let types: Vec<_> = samples.iter().map(|(_, of)| *of).collect();
    let values: Vec<_> = samples.into_iter().map(|(value, _)| value).collect();
    assert_eq!(view.decode(&types), Ok(values));
}

#[test]
fn a_column_added_later_is_not_there() {
    let row = encoded(&[(Value::Int4(1), Type::Int4)]);
    let view = RowView::new(&row).expect("a row");
    assert_eq!(view.column(1, Type::Text), Ok(None));
    assert_eq!((view.raw(1), view.is_null(1)), (None, false));
}

#[test]
fn typed_getters_read_without_a_value() {
    let row = encoded(&samples());
    let view = RowView::new(&row).expect("a row");
    assert_eq!(view.bool_at(0), Some(true));
    assert_eq!(
        (view.i64_at(1), view.i64_at(2), view.i64_at(3)),
        (Some(-2), Some(i32::MIN.into()), Some(i64::MAX))
    );
    assert_eq!(view.f64_at(4), Some(1.5));
    assert_eq!(view.text_at(11), Some("grüße"));
    assert_eq!(view.text_at(27), None);
}

#[test]
fn rows_beyond_64_kib_have_wide_ends() {
    let long = "x".repeat(70_000);
    let samples = [
        (Value::Int4(1), Type::Int4),
        (Value::text(long.as_str()), Type::Text),
        (Value::Null, Type::Int4),
        (Value::Int8(2), Type::Int8),
    ];
    let row = encoded(&samples);
    assert_eq!(row[1], 1);
    let view = RowView::new(&row).expect("a row");
    for (column, (value, of)) in samples.iter().enumerate() {
        assert_eq!(view.column(column, *of), Ok(Some(value.clone())));
    }
}

#[test]
fn a_value_of_another_type_is_refused_and_leaves_nothing_behind() {
    let mut out = vec![9];
    let refused = encode(&[Value::Int4(1), Value::text("x")], &[Type::Int4, Type::Int8], &mut out);
    assert_eq!(refused, Err(RowError::Mismatch { column: 1, of: Type::Int8 }));
    assert_eq!(out, [9]);
    assert!(encode(&[Value::Null], &[], &mut out).is_err());
}

#[test]
fn a_newer_format_is_told_apart_from_damage() {
    let mut row = encoded(&[]);
    assert!(RowView::new(&row).is_ok());
    row[0] = 2;
    assert_eq!(RowView::new(&row).err(), Some(RowError::Format { found: 2 }));
    assert_eq!(RowView::new(&row[..10]).err(), Some(RowError::Malformed));
}

#[test]
fn every_cut_and_every_flipped_bit_is_borne() {
    let samples = samples();
    let row = encoded(&samples);
    let types: Vec<_> = samples.iter().map(|(_, of)| *of).collect();
    for cut in 0..row.len() {
        assert!(RowView::new(&row[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..row.len() * 8 {
        let mut damaged = row.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Ok(view) = RowView::new(&damaged) {
            for (column, of) in types.iter().enumerate() {
                // Anything but a panic, reading the values included.
                if let Ok(Some(value)) = view.column(column, *of) {
                    let _ = crate::value::text_io::to_text(&value, *of, &crate::value::Context::default());
                    let _ = value.cmp_sql(&Value::Null);
                }
                let _ = (view.i64_at(column), view.f64_at(column), view.text_at(column));
            }
        }
    }
}

proptest! {
    #[test]
    fn hostile_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80), index in 0..28usize) {
        let of = samples()[index].1;
        if let Some(value) = read_value(&bytes, of) {
            let mut again = Vec::new();
            prop_assert!(write_value(&value, of, &mut again).is_some());
            if of != Type::Numeric && !of.is_array() && of != Type::Record && of != Type::Jsonb {
                prop_assert_eq!(&again, &bytes);
            }
        }
        let mut row = encoded(&[(Value::Int4(1), Type::Int4)]);
        row.truncate(HEADER_LEN - 2);
        row.extend_from_slice(&bytes);
        if let Ok(view) = RowView::new(&row) {
            for column in 0..view.len() {
                let _ = view.column(column, of);
            }
        }
    }

    #[test]
    fn numerics_keep_value_and_scale(mantissa in any::<i128>(), shift in 0..127u32, scale in 0..200u16) {
        let number = Numeric::from_parts(mantissa >> shift, scale).expect("in range");
        let mut bytes = Vec::new();
        number.write_compact(&mut bytes);
        prop_assert_eq!(Numeric::read_compact(&bytes), Some(number.clone()));
        let mut wire = Vec::new();
        number.write_wire(&mut wire);
        prop_assert_eq!(Numeric::read_wire(&wire), Ok(number));
    }
}
