//! What window functions compute over the frames of one partition.

use std::sync::Arc;

use model::{Code, Error, Result, Value};

use super::frame::Frames;
use crate::{
    batch::Column,
    execute::{Runtime, aggregate::single},
    functions::{Body, WindowFunction},
    plan::WindowCall,
};

/// One call's values for all rows of a partition.
pub(super) fn compute(
    runtime: &Runtime,
    call: &WindowCall,
    arguments: &[Arc<Column>],
    filter: Option<&Column>,
    frames: &Frames,
) -> Result<Column> {
    match call.function.body {
        Body::Window(function) => {
            let mut column = Column::with_capacity(call.ty, frames.len());
            for row in 0..frames.len() {
                column.push_value(&value(function, arguments, frames, row)?);
            }
            Ok(column)
        }
        Body::Aggregate(_) => aggregate(runtime, call, arguments, filter, frames),
        Body::Scalar(_) | Body::Set(..) => {
            Err(Error::internal(format!("{}() was called over a window", call.function.name)))
        }
    }
}

fn value(function: WindowFunction, arguments: &[Arc<Column>], frames: &Frames, row: usize) -> Result<Value> {
    let rows = frames.len();
    let first_peer = frames.peers(row).start;
    Ok(match function {
        WindowFunction::RowNumber => Value::Int8(row as i64 + 1),
        WindowFunction::Rank => Value::Int8(first_peer as i64 + 1),
        WindowFunction::DenseRank => Value::Int8(i64::from(frames.group(row)) + 1),
        WindowFunction::PercentRank if rows <= 1 => Value::Float8(0.0),
        WindowFunction::PercentRank => Value::Float8(first_peer as f64 / (rows - 1) as f64),
        WindowFunction::CumeDist => Value::Float8(frames.peers(row).end as f64 / rows as f64),
        WindowFunction::Ntile => ntile(&arguments[0].value(0), rows, row)?,
        WindowFunction::Lag => shifted(arguments, rows, row, -1),
        WindowFunction::Lead => shifted(arguments, rows, row, 1),
        WindowFunction::FirstValue => {
            frames.ranges(row).first().map_or(Value::Null, |range| arguments[0].value(range.start))
        }
        WindowFunction::LastValue => {
            frames.ranges(row).last().map_or(Value::Null, |range| arguments[0].value(range.end - 1))
        }
        WindowFunction::NthValue => {
            let Some(nth) = arguments[1].value(row).as_i64() else { return Ok(Value::Null) };
            if nth <= 0 {
                return Err(must_be_positive("nth_value"));
            }
            let mut left = nth as u64 - 1;
            for range in frames.ranges(row) {
                if left < range.len() as u64 {
                    return Ok(arguments[0].value(range.start + left as usize));
                }
                left -= range.len() as u64;
            }
            Value::Null
        }
    })
}

fn must_be_positive(name: &str) -> Error {
    Error::new(Code::InvalidParameterValue, format!("argument of {name} must be greater than zero"))
}

/// Buckets differ in size by at most one; the larger ones come first.
fn ntile(buckets: &Value, rows: usize, row: usize) -> Result<Value> {
    let Some(buckets) = buckets.as_i64() else { return Ok(Value::Null) };
    if buckets <= 0 {
        return Err(must_be_positive("ntile"));
    }
    let (rows, row) = (rows as i64, row as i64);
    let (size, larger) = (rows / buckets, rows % buckets);
    let in_larger = larger * (size + 1);
    let bucket = if row < in_larger { row / (size + 1) } else { larger + (row - in_larger) / size.max(1) };
    Ok(Value::Int4(bucket as i32 + 1))
}

/// `lag` and `lead`: the value so many rows before or after, else the default.
fn shifted(arguments: &[Arc<Column>], rows: usize, row: usize, direction: i64) -> Value {
    let offset = match arguments.get(1) {
        None => 1,
        Some(offset) => match offset.value(row).as_i64() {
            Some(offset) => offset,
            None => return Value::Null,
        },
    };
    let at = offset.checked_mul(direction).and_then(|shift| (row as i64).checked_add(shift));
    match at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < rows) {
        Some(at) => arguments[0].value(at),
        None => arguments.get(2).map_or(Value::Null, |default| default.value(row)),
    }
}

fn aggregate(
    runtime: &Runtime,
    call: &WindowCall,
    arguments: &[Arc<Column>],
    filter: Option<&Column>,
    frames: &Frames,
) -> Result<Column> {
    let counts = |row: usize| {
        let passes = filter.is_none_or(|filter| filter.value(row).as_bool() == Some(true));
        passes && !(call.function.strict && arguments.iter().any(|argument| argument.is_null(row)))
    };
    let types: Vec<_> = call.arguments.iter().map(|argument| argument.ty).collect();
    let mut state = single(runtime, call.function, &types, call.ty);
    let feed = |state: &mut crate::execute::aggregate::Single, rows: Vec<u32>| -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let gathered: Vec<Column> = arguments.iter().map(|argument| argument.gather(&rows)).collect();
        state.add(&gathered.iter().collect::<Vec<_>>(), rows.len())
    };
    let mut column = Column::with_capacity(call.ty, frames.len());
    if frames.only_grow() {
        state.begin();
        let mut taken = 0;
        let mut last: Option<Value> = None;
        for row in 0..frames.len() {
            let end = frames.end(row);
            if end > taken || last.is_none() {
                runtime.cancel.check()?;
                feed(&mut state, (taken..end).filter(|row| counts(*row)).map(|row| row as u32).collect())?;
                taken = end;
                last = Some(state.result()?);
            }
            column.push_value(last.as_ref().unwrap_or(&Value::Null));
        }
        return Ok(column);
    }
    for row in 0..frames.len() {
        runtime.cancel.check()?;
        state.begin();
        let rows = frames.ranges(row).into_iter().flatten().filter(|row| counts(*row)).map(|row| row as u32);
        feed(&mut state, rows.collect())?;
        column.push_value(&state.result()?);
    }
    Ok(column)
}
