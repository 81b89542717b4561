//! What batches, vectors and key tables compute, against values one at a time.

use model::{
    Type, Value,
    key::KeyPart,
    types::Scalar,
    value::{self, Array, Interval, Jsonb, Numeric, binary, text_io},
};
use proptest::prelude::*;

use super::{
    Batch, Column, concat,
    key::{KeyTable, Keys},
};

/// Some values of every kind of storage, nulls among them.
fn values_of(ty: Type) -> BoxedStrategy<Value> {
    let numeric = (any::<i64>(), 0..6u16).prop_map(|(digits, scale)| {
        Value::Numeric(Numeric::from_parts(i128::from(digits % 1000), scale).expect("a small scale"))
    });
    let value = match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::Int4 => (-5..5i32).prop_map(Value::Int4).boxed(),
        Type::Int8 => any::<i64>().prop_map(Value::Int8).boxed(),
        Type::Float8 => prop_oneof![
            Just(f64::NAN),
            Just(0.0),
            Just(-0.0),
            Just(f64::INFINITY),
            any::<i16>().prop_map(f64::from),
        ]
        .prop_map(Value::Float8)
        .boxed(),
        Type::Numeric => numeric.boxed(),
        Type::Text => "[ab\u{e4} ]{0,4}".prop_map(Value::text).boxed(),
        Type::Bytea => {
            prop::collection::vec(0..3u8, 0..4).prop_map(|bytes| Value::Bytea(bytes.into())).boxed()
        }
        Type::Interval => {
            (0..3i32, 0..61i32).prop_map(|(m, d)| Value::Interval(Interval::new(m, d, 0))).boxed()
        }
        Type::Jsonb => {
            prop::sample::select(vec!["1", "1.0", "[]", "[1]", "{\"a\": 1}", "\"x\"", "null", "true", "{}"])
                .prop_map(|text| Value::Jsonb(Jsonb::parse(text).expect("JSON")))
                .boxed()
        }
        _ => prop::collection::vec(prop::option::of(-2..3i32), 0..3)
            .prop_map(|values| {
                let values = values.into_iter().map(|at| at.map_or(Value::Null, Value::Int4)).collect();
                Value::Array(Array::from_values(Scalar::Int4, values).into())
            })
            .boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 5 => value].boxed()
}

const TYPES: [Type; 10] = [
    Type::Bool,
    Type::Int4,
    Type::Int8,
    Type::Float8,
    Type::Numeric,
    Type::Text,
    Type::Bytea,
    Type::Interval,
    Type::Jsonb,
    Type::Array(Scalar::Int4),
];

fn typed_values() -> impl Strategy<Value = (Type, Vec<Value>)> {
    prop::sample::select(TYPES.to_vec())
        .prop_flat_map(|ty| (Just(ty), prop::collection::vec(values_of(ty), 0..40)))
}

proptest! {
    #[test]
    fn a_column_gives_back_what_was_put_in((ty, values) in typed_values()) {
        let column = Column::from_values(ty, &values);
        let back: Vec<Value> = (0..column.len()).map(|row| column.value(row)).collect();
        prop_assert_eq!(back, values);
    }

    #[test]
    fn packed_keys_are_ordered_and_equal_as_the_values_are((ty, values) in typed_values(), desc: bool, nulls_first: bool) {
        let column = Column::from_values(ty, &values);
        let part = KeyPart { desc, nulls_first };
        let keys = Keys::of(&[&column], &[part], values.len());
        for (a, left) in values.iter().enumerate() {
            for (b, right) in values.iter().enumerate() {
                let expected = match (left.is_null(), right.is_null()) {
                    (false, false) if desc => right.cmp_sql(left),
                    (false, false) => left.cmp_sql(right),
                    (true, true) => std::cmp::Ordering::Equal,
                    (null, _) => if null == nulls_first { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater },
                };
                prop_assert_eq!(keys.get(a).cmp(keys.get(b)), expected, "{:?} and {:?}", left, right);
            }
        }
    }

    #[test]
    fn a_key_table_numbers_equal_keys_alike((ty, values) in typed_values()) {
        let column = Column::from_values(ty, &values);
        let mut table = KeyTable::new(&[ty]);
        let (mut numbers, mut found) = (Vec::new(), Vec::new());
        table.insert(&[&column], values.len(), false, &mut numbers);
        table.find(&[&column], values.len(), false, &mut found);
        prop_assert_eq!(&numbers, &found);
        for (a, left) in values.iter().enumerate() {
            for (b, right) in values.iter().enumerate() {
                prop_assert_eq!(numbers[a] == numbers[b], left.eq_sql(right), "{:?} and {:?}", left, right);
            }
        }
        table.find(&[&column], values.len(), true, &mut found);
        for (row, value) in values.iter().enumerate() {
            prop_assert_eq!(found[row] == u32::MAX, value.is_null());
        }
    }

    #[test]
    fn cells_are_written_as_their_values_are((ty, values) in typed_values()) {
        let batch = Batch::of(vec![Column::from_values(ty, &values)]);
        let context = value::Context::default();
        let mut scratch = String::new();
        for (row, value) in values.iter().enumerate() {
            let (mut text, mut bytes) = (Vec::new(), Vec::new());
            prop_assert_eq!(batch.write_text(row, 0, &context, &mut scratch, &mut text), !value.is_null());
            prop_assert_eq!(batch.write_binary(row, 0, &mut bytes), !value.is_null());
            let (mut expected_text, mut expected_bytes) = (String::new(), Vec::new());
            text_io::write_text(value, ty, &context, &mut expected_text);
            binary::encode_binary(value, ty, &mut expected_bytes);
            prop_assert_eq!(text, expected_text.into_bytes());
            prop_assert_eq!(bytes, expected_bytes);
        }
    }

    #[test]
    fn a_column_stores_its_values_as_rows_do((ty, values) in typed_values()) {
        let column = Column::from_values(ty, &values);
        for (row, value) in values.iter().enumerate() {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            let stored = column.write_stored(row, &mut bytes).expect("a value of the type");
            prop_assert_eq!(stored, !value.is_null());
            if stored {
                model::row::write_value(value, ty, &mut expected).expect("a value of the type");
            }
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn selections_and_joined_batches_keep_their_rows((ty, values) in typed_values(), picks in prop::collection::vec(any::<u32>(), 0..20)) {
        let batch = Batch::of(vec![Column::from_values(ty, &values)]);
        if values.is_empty() {
            return Ok(());
        }
        let picks: Vec<u32> = picks.iter().map(|pick| pick % values.len() as u32).collect();
        let expected: Vec<Value> = picks.iter().map(|pick| values[*pick as usize].clone()).collect();
        let picked = batch.select(&picks);
        prop_assert_eq!(picked.rows().concat(), expected.clone());
        prop_assert_eq!(picked.clone().compact().rows().concat(), expected.clone());
        let joined = concat(&[picked, batch], &[ty]);
        prop_assert_eq!(joined.rows().concat(), [expected, values].concat());
    }
}

#[test]
fn a_selection_of_a_selection_counts_logical_rows() {
    let values: Vec<Value> = (0..10).map(Value::Int4).collect();
    let batch = Batch::of(vec![Column::from_values(Type::Int4, &values)]);
    let even = batch.select(&[0, 2, 4, 6, 8]);
    assert_eq!(even.select(&[1, 3]).rows().concat(), [Value::Int4(2), Value::Int4(6)]);
    assert_eq!(even.slice(3, 10).rows().concat(), [Value::Int4(6), Value::Int4(8)]);
}

#[test]
fn nulls_are_filled_in_where_no_row_is_found() {
    let column = Column::from_values(Type::Text, &[Value::text("a"), Value::text("b")]);
    let gathered = column.gather_or_null(&[1, super::NO_ROW, 0]);
    let values: Vec<Value> = (0..3).map(|row| gathered.value(row)).collect();
    assert_eq!(values, [Value::text("b"), Value::Null, Value::text("a")]);
}
