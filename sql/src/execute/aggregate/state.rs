//! States of aggregates: one vector per aggregate, one place per group; typed for what queries do most, accumulators for
//! the rest.

use model::{
    Code, Error, Result, Type, Value,
    value::{Numeric, NumericSum, ValueError},
};

use crate::{
    batch::{Column, Data},
    context::Context,
    functions::{Accumulator, Body, Function},
};

/// The states of one aggregate.
pub(super) enum State {
    Count(Vec<i64>),
    /// `sum(int2 | int4)`: the sum, and whether there was a row.
    IntSum(Vec<(i64, bool)>),
    /// `sum(int8)`, `avg` of integers: the sum, how many, and whether the average is asked for.
    WideSum {
        sums: Vec<(i128, i64)>,
        average: bool,
    },
    /// `sum(float8)` and `avg` of floats.
    FloatSum {
        sums: Vec<(f64, i64)>,
        average: bool,
    },
    /// `sum` and `avg` of numerics.
    NumericSum {
        sums: Vec<(NumericSum, i64)>,
        average: bool,
    },
    /// `min` and `max` of what is stored as integers.
    IntExtreme {
        best: Vec<Option<i64>>,
        largest: bool,
        ty: Type,
    },
    /// `min` and `max` of numerics.
    NumericExtreme {
        best: Vec<Option<Numeric>>,
        largest: bool,
    },
    /// Everything else.
    Untyped {
        accumulators: Vec<Box<dyn Accumulator>>,
        make: fn(&[Type]) -> Box<dyn Accumulator>,
        types: Vec<Type>,
    },
}

/// An aggregate that is none: what the binder never makes.
struct Never(&'static str);

impl Accumulator for Never {
    fn add(&mut self, _: &mut Context, _: &[Value]) -> Result<()> {
        Err(Error::internal(format!("{}() is not an aggregate", self.0)))
    }

    fn finish(&mut self) -> Result<Value> {
        Err(Error::internal(format!("{}() is not an aggregate", self.0)))
    }
}

impl State {
    pub(super) fn new(function: &'static Function, types: &[Type], ty: Type) -> Self {
        let largest = function.name == "max";
        match (function.name, types) {
            ("count", [] | [_]) => Self::Count(Vec::new()),
            ("sum", [Type::Int2 | Type::Int4]) => Self::IntSum(Vec::new()),
            ("sum", [Type::Int8]) => Self::WideSum { sums: Vec::new(), average: false },
            ("avg", [Type::Int2 | Type::Int4 | Type::Int8]) => {
                Self::WideSum { sums: Vec::new(), average: true }
            }
            ("sum", [Type::Float8]) => Self::FloatSum { sums: Vec::new(), average: false },
            ("avg", [Type::Float4 | Type::Float8]) => Self::FloatSum { sums: Vec::new(), average: true },
            ("sum" | "avg", [Type::Numeric]) => {
                Self::NumericSum { sums: Vec::new(), average: function.name == "avg" }
            }
            ("min" | "max", [of]) if matches!(Data::new(*of, 0), Data::Int(_)) => {
                Self::IntExtreme { best: Vec::new(), largest, ty }
            }
            ("min" | "max", [Type::Numeric]) => Self::NumericExtreme { best: Vec::new(), largest },
            _ => {
                let make = match function.body {
                    Body::Aggregate(make) => make,
                    Body::Scalar(_) | Body::Set(..) | Body::Window(_) => {
                        |_: &[Type]| Box::new(Never("a function")) as Box<dyn Accumulator>
                    }
                };
                Self::Untyped { accumulators: Vec::new(), make, types: types.to_vec() }
            }
        }
    }

    /// Forgets all groups.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Count(counts) => counts.clear(),
            Self::IntSum(sums) => sums.clear(),
            Self::WideSum { sums, .. } => sums.clear(),
            Self::FloatSum { sums, .. } => sums.clear(),
            Self::NumericSum { sums, .. } => sums.clear(),
            Self::IntExtreme { best, .. } => best.clear(),
            Self::NumericExtreme { best, .. } => best.clear(),
            Self::Untyped { accumulators, .. } => accumulators.clear(),
        }
    }

    /// Makes room for groups up to `groups`.
    pub(super) fn grow(&mut self, groups: usize) {
        match self {
            Self::Count(counts) => counts.resize(groups, 0),
            Self::IntSum(sums) => sums.resize(groups, (0, false)),
            Self::WideSum { sums, .. } => sums.resize(groups, (0, 0)),
            Self::FloatSum { sums, .. } => sums.resize(groups, (0.0, 0)),
            Self::NumericSum { sums, .. } => sums.resize(groups, (NumericSum::default(), 0)),
            Self::IntExtreme { best, .. } => best.resize(groups, None),
            Self::NumericExtreme { best, .. } => best.resize(groups, None),
            Self::Untyped { accumulators, make, types } => accumulators.resize_with(groups, || make(types)),
        }
    }

    /// Takes in rows: their arguments, none of them null for a strict aggregate, and the numbers of their groups.
    pub(super) fn update(
        &mut self,
        context: &mut Context,
        arguments: &[&Column],
        numbers: &[u32],
    ) -> Result<()> {
        match self {
            Self::Count(counts) => numbers.iter().for_each(|number| counts[*number as usize] += 1),
            Self::IntSum(sums) => {
                for (value, number) in ints(arguments)?.iter().zip(numbers) {
                    let (sum, some) = &mut sums[*number as usize];
                    *sum = sum.checked_add(*value).ok_or_else(|| ValueError::out_of_range("bigint"))?;
                    *some = true;
                }
            }
            Self::WideSum { sums, .. } => {
                for (value, number) in ints(arguments)?.iter().zip(numbers) {
                    let (sum, count) = &mut sums[*number as usize];
                    *sum += i128::from(*value);
                    *count += 1;
                }
            }
            Self::FloatSum { sums, .. } => {
                let values = arguments[0].as_floats().ok_or_else(misfit)?;
                for (value, number) in values.iter().zip(numbers) {
                    let (sum, count) = &mut sums[*number as usize];
                    let before = *sum;
                    *sum += value;
                    *count += 1;
                    if sum.is_infinite() && before.is_finite() && value.is_finite() {
                        return Err(Error::new(Code::NumericValueOutOfRange, "value out of range: overflow"));
                    }
                }
            }
            Self::NumericSum { sums, .. } => {
                let values = arguments[0].as_numerics().ok_or_else(misfit)?;
                for (value, number) in values.iter().zip(numbers) {
                    let (sum, count) = &mut sums[*number as usize];
                    sum.add(value)?;
                    *count += 1;
                }
            }
            Self::IntExtreme { best, largest, .. } => {
                for (value, number) in ints(arguments)?.iter().zip(numbers) {
                    let best = &mut best[*number as usize];
                    let better = best.is_none_or(|best| if *largest { *value > best } else { *value < best });
                    if better {
                        *best = Some(*value);
                    }
                }
            }
            Self::NumericExtreme { best, largest } => {
                let values = arguments[0].as_numerics().ok_or_else(misfit)?;
                for (value, number) in values.iter().zip(numbers) {
                    let best = &mut best[*number as usize];
                    let better = best.as_ref().is_none_or(|best| {
                        let order = value.cmp_sql(best);
                        if *largest { order.is_gt() } else { order.is_lt() }
                    });
                    if better {
                        *best = Some(value.clone());
                    }
                }
            }
            Self::Untyped { accumulators, .. } => {
                let mut values = Vec::with_capacity(arguments.len());
                for (row, number) in numbers.iter().enumerate() {
                    values.clear();
                    values.extend(arguments.iter().map(|argument| argument.value(row)));
                    accumulators[*number as usize].add(context, &values)?;
                }
            }
        }
        Ok(())
    }

    /// The result of one group.
    pub(super) fn finish(&mut self, group: usize) -> Result<Value> {
        Ok(match self {
            Self::Count(counts) => Value::Int8(counts[group]),
            Self::IntSum(sums) => match sums[group] {
                (sum, true) => Value::Int8(sum),
                (_, false) => Value::Null,
            },
            Self::WideSum { sums, average } => match sums[group] {
                (_, 0) => Value::Null,
                (sum, count) if *average => Value::Numeric(Numeric::from(sum).div(&Numeric::from(count))?),
                (sum, _) => Value::Numeric(Numeric::from(sum)),
            },
            Self::FloatSum { sums, average } => match sums[group] {
                (_, 0) => Value::Null,
                (sum, count) => Value::Float8(if *average { sum / count as f64 } else { sum }),
            },
            Self::NumericSum { sums, average } => match &sums[group] {
                (_, 0) => Value::Null,
                (sum, count) if *average => Value::Numeric(sum.total()?.div(&Numeric::from(*count))?),
                (sum, _) => Value::Numeric(sum.total()?),
            },
            Self::IntExtreme { best, ty, .. } => match best[group] {
                Some(best) => Column::ints(*ty, vec![best], Vec::new()).value(0),
                None => Value::Null,
            },
            Self::NumericExtreme { best, .. } => best[group].clone().map_or(Value::Null, Value::Numeric),
            Self::Untyped { accumulators, .. } => accumulators[group].finish()?,
        })
    }

    /// Bytes on the heap, roughly.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Count(counts) => counts.capacity() * 8,
            Self::IntSum(sums) => sums.capacity() * 16,
            Self::WideSum { sums, .. } => sums.capacity() * 32,
            Self::FloatSum { sums, .. } => sums.capacity() * 16,
            Self::NumericSum { sums, .. } => sums.capacity() * size_of::<(NumericSum, i64)>(),
            Self::IntExtreme { best, .. } => best.capacity() * 16,
            Self::NumericExtreme { best, .. } => best.capacity() * size_of::<Option<Numeric>>(),
            Self::Untyped { accumulators, .. } => {
                accumulators.iter().map(|accumulator| accumulator.heap_bytes() + 96).sum()
            }
        }
    }
}

fn ints<'a>(arguments: &[&'a Column]) -> Result<&'a [i64]> {
    arguments[0].as_ints().ok_or_else(misfit)
}

fn misfit() -> Error {
    Error::internal("an aggregate was given an argument of another type")
}
