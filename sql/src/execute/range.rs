//! Keys and ranges of keys as bytes, and partitions, from a plan's expressions.

use bytes::Bytes;
use model::{
    Error, Result, Value,
    id::{IndexId, PartitionId},
    key::{self, KeyPart},
    schema::{IndexPart, Table},
};

use super::Runtime;
use crate::{
    expr::Expr,
    plan::{KeyRange, Keys, Partitions},
};

/// A range of key bytes: from inclusive, to exclusive (none for the end).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyBytes {
    /// From here.
    pub from: Bytes,
    /// To here.
    pub to: Option<Bytes>,
}

impl KeyBytes {
    /// All keys.
    pub fn all() -> Self {
        Self { from: Bytes::new(), to: None }
    }

    /// The keys that begin with a prefix.
    pub fn of_prefix(prefix: Vec<u8>) -> Self {
        let to = key::prefix_end(&prefix).map(Bytes::from);
        Self { from: prefix.into(), to }
    }

    /// Whether no key lies in it.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Whether a key, or a key that begins so, lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from.as_ref() && self.to.as_ref().is_none_or(|to| key < to.as_ref())
    }
}

/// The key parts of the primary key or of an index.
pub(crate) fn parts_of(table: &Table, index: Option<IndexId>) -> Result<&[IndexPart]> {
    let found = match index {
        Some(id) => table.find_index(id),
        None => table.key(),
    };
    match (found, index) {
        (Some(index), _) => Ok(&index.parts),
        (None, None) => Ok(&[]),
        (None, Some(id)) => Err(Error::internal(format!("index {id} is not one of table {}", table.name))),
    }
}

/// The bytes of a range of keys; none if it holds none because a bound is null.
pub fn key_range(runtime: &Runtime, parts: &[IndexPart], range: &KeyRange) -> Result<Option<KeyBytes>> {
    key_range_of(parts, range, |expr| constant(runtime, expr))
}

/// The same, of bounds that `value` evaluates.
pub(crate) fn key_range_of(
    parts: &[IndexPart],
    range: &KeyRange,
    value: impl Fn(&Expr) -> Result<Value>,
) -> Result<Option<KeyBytes>> {
    let mut prefix = Vec::new();
    for (expr, part) in range.prefix.iter().zip(parts) {
        match value(expr)? {
            Value::Null => return Ok(None),
            value => encode(&mut prefix, &value, part.order)?,
        }
    }
    let Some(part) = parts.get(range.prefix.len()).map(|part| part.order) else {
        return Ok(Some(KeyBytes::of_prefix(prefix)));
    };
    let mut null = prefix.clone();
    encode(&mut null, &Value::Null, part)?;
    if range.null == Some(true) {
        return Ok(Some(KeyBytes::of_prefix(null)));
    }
    let bound = |bound: &Option<(Expr, bool)>| -> Result<Option<Option<(Vec<u8>, bool)>>> {
        let Some((expr, inclusive)) = bound else { return Ok(Some(None)) };
        match value(expr)? {
            Value::Null => Ok(None),
            value => {
                let mut bytes = prefix.clone();
                encode(&mut bytes, &value, part)?;
                Ok(Some(Some((bytes, *inclusive))))
            }
        }
    };
    let (Some(lower), Some(upper)) = (bound(&range.lower)?, bound(&range.upper)?) else { return Ok(None) };
    if lower.is_none() && upper.is_none() && range.null.is_none() {
        return Ok(Some(KeyBytes::of_prefix(prefix)));
    }
    // Descending bytes run the other way.
    let (first, last) = if part.desc { (upper, lower) } else { (lower, upper) };
    let from = match first {
        Some((bytes, true)) => bytes,
        Some((bytes, false)) => end_of(&bytes),
        None if part.nulls_first => end_of(&null),
        None => prefix.clone(),
    };
    let to = match last {
        Some((bytes, true)) => key::prefix_end(&bytes),
        Some((bytes, false)) => Some(bytes),
        None if part.nulls_first => key::prefix_end(&prefix),
        None => Some(null),
    };
    Ok(Some(KeyBytes { from: from.into(), to: to.map(Bytes::from) }))
}

/// The least bytes behind all that begin with these.
fn end_of(bytes: &[u8]) -> Vec<u8> {
    // Encoded parts never consist of 0xff alone: their tags are lower.
    key::prefix_end(bytes).unwrap_or_default()
}

fn encode(out: &mut Vec<u8>, value: &Value, part: KeyPart) -> Result<()> {
    key::encode_part(out, value, part).map_err(|fault| Error::internal(fault.to_string()))
}

/// Whole keys as bytes, each once, in the order in which they were given; keys with a null are left out.
pub(crate) fn whole_keys(runtime: &Runtime, parts: &[IndexPart], keys: &Keys) -> Result<Vec<Bytes>> {
    let mut all = Vec::new();
    let mut seen = hashbrown::HashSet::new();
    let mut add = |values: &[Value]| -> Result<()> {
        if values.iter().any(Value::is_null) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (value, part) in values.iter().zip(parts) {
            encode(&mut bytes, value, part.order)?;
        }
        let bytes = Bytes::from(bytes);
        if seen.insert(bytes.clone()) {
            all.push(bytes);
        }
        Ok(())
    };
    match keys {
        Keys::List(list) => {
            for key in list {
                let values = key.iter().map(|expr| constant(runtime, expr)).collect::<Result<Vec<_>>>()?;
                add(&values)?;
            }
        }
        Keys::Array { prefix, array } => {
            let mut values = prefix.iter().map(|expr| constant(runtime, expr)).collect::<Result<Vec<_>>>()?;
            if let Value::Array(array) = constant(runtime, array)? {
                for element in array.values() {
                    values.truncate(prefix.len());
                    values.push(element.clone());
                    add(&values)?;
                }
            }
        }
    }
    Ok(all)
}

/// The partition a row with these partition values lies in.
pub fn partition_of(table: &Table, values: &[Value]) -> Result<PartitionId> {
    PartitionId::new(table.database, table.schema, values)
}

/// The partitions that are read.
pub(crate) async fn partitions(
    runtime: &Runtime,
    table: &Table,
    which: &Partitions,
) -> Result<Vec<PartitionId>> {
    match which {
        Partitions::Default => Ok(vec![PartitionId::default_of(table.database, table.schema)]),
        Partitions::One(exprs) => {
            let values = exprs.iter().map(|expr| constant(runtime, expr)).collect::<Result<Vec<_>>>()?;
            if values.iter().any(Value::is_null) {
                return Ok(Vec::new());
            }
            // A value that names no partition has no rows.
            Ok(partition_of(table, &values).into_iter().collect())
        }
        Partitions::All => {
            let mut all = runtime.statement.dispatch.partitions(table.id).await?;
            all.extend(runtime.statement.overlay.partitions_of(table.id));
            all.sort();
            all.dedup();
            Ok(all)
        }
    }
}

/// The value of an expression without input.
pub(crate) fn constant(runtime: &Runtime, expr: &Expr) -> Result<Value> {
    let none: &[Value] = &[];
    runtime.evaluate(|scope| scope.value(expr, none))
}
