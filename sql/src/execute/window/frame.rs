//! Which rows of its partition a row sees.

use std::{cmp::Ordering, ops::Range, sync::Arc};

use model::{Code, Error, Result, Type, Value};

use crate::{
    batch::Column,
    execute::{Runtime, evaluate_patiently},
    expr::SortKey,
    functions::{Accepts, Operator, find_operators},
    plan::{Bound, Exclude, Frame, FrameUnit},
};

/// The frames of all rows of a partition.
pub(super) struct Frames {
    /// For each row: from, to (exclusive), before anything is left out.
    bounds: Vec<(u32, u32)>,
    /// For each row: its peers.
    peers: Vec<(u32, u32)>,
    groups: Vec<u32>,
    exclude: Exclude,
}

/// A bound with its distance at hand.
enum Distance {
    First,
    Current,
    Last,
    Rows(i64),
    /// In values of the order key: the offset and whether it lies behind the current row.
    Values(Value, bool),
}

impl Frames {
    pub(super) async fn new(
        runtime: &Runtime,
        frame: &Frame,
        groups: &[u32],
        order: &[Arc<Column>],
        keys: &[SortKey],
    ) -> Result<Self> {
        let start = distance(runtime, &frame.start, frame.unit, "starting").await?;
        let end = distance(runtime, &frame.end, frame.unit, "ending").await?;
        let peers = peers_of(groups);
        let ends = group_ranges(groups);
        let mut frames = Self {
            bounds: Vec::with_capacity(groups.len()),
            peers,
            groups: groups.to_vec(),
            exclude: frame.exclude,
        };
        let values = match (&start, &end) {
            (Distance::Values(..), _) | (_, Distance::Values(..)) => {
                Some(ValueRange::new(runtime, order, keys)?)
            }
            _ => None,
        };
        for row in 0..groups.len() {
            let from = frames.bound(&start, row, frame.unit, &ends, values.as_ref(), true)?;
            let to = frames.bound(&end, row, frame.unit, &ends, values.as_ref(), false)?;
            frames.bounds.push((from, to.max(from)));
        }
        Ok(frames)
    }

    /// Rows in the partition.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The number of a row's group of peers.
    pub(super) fn group(&self, row: usize) -> u32 {
        self.groups[row]
    }

    /// The peers of a row.
    pub(super) fn peers(&self, row: usize) -> Range<usize> {
        self.peers[row].0 as usize..self.peers[row].1 as usize
    }

    /// Whether the frames of all rows begin with the partition and nothing is left out, so that they only grow.
    pub(super) fn only_grow(&self) -> bool {
        self.exclude == Exclude::NoOthers
            && self.bounds.iter().all(|(from, _)| *from == 0)
            && self.bounds.windows(2).all(|pair| pair[0].1 <= pair[1].1)
    }

    /// The rows a row sees, as ranges in order.
    pub(super) fn ranges(&self, row: usize) -> Vec<Range<usize>> {
        let (from, to) = (self.bounds[row].0 as usize, self.bounds[row].1 as usize);
        let peers = self.peers(row);
        let without = |out: Range<usize>| {
            [from..out.start.clamp(from, to), out.end.clamp(from, to)..to]
                .into_iter()
                .filter(|range| !range.is_empty())
                .collect::<Vec<_>>()
        };
        match self.exclude {
            Exclude::NoOthers => std::iter::once(from..to).filter(|range| !range.is_empty()).collect(),
            Exclude::CurrentRow => without(row..row + 1),
            Exclude::Group => without(peers),
            Exclude::Ties => {
                let mut ranges = without(peers);
                if (from..to).contains(&row) {
                    ranges.push(row..row + 1);
                    ranges.sort_by_key(|range| range.start);
                }
                ranges
            }
        }
    }

    /// The end of the frame of a row.
    pub(super) fn end(&self, row: usize) -> usize {
        self.bounds[row].1 as usize
    }

    fn bound(
        &self,
        distance: &Distance,
        row: usize,
        unit: FrameUnit,
        ends: &[(u32, u32)],
        values: Option<&ValueRange<'_>>,
        start: bool,
    ) -> Result<u32> {
        let count = self.groups.len() as i64;
        Ok(match (distance, unit) {
            (Distance::First, _) => 0,
            (Distance::Last, _) => count as u32,
            (Distance::Current, FrameUnit::Rows) => row as u32 + u32::from(!start),
            (Distance::Current, FrameUnit::Range | FrameUnit::Groups) => {
                if start {
                    self.peers[row].0
                } else {
                    self.peers[row].1
                }
            }
            (Distance::Rows(offset), FrameUnit::Groups) => {
                let group = i64::from(self.groups[row]).saturating_add(*offset);
                match usize::try_from(group) {
                    Err(_) => 0,
                    Ok(group) => match ends.get(group) {
                        None => count as u32,
                        Some((from, to)) => {
                            if start {
                                *from
                            } else {
                                *to
                            }
                        }
                    },
                }
            }
            (Distance::Rows(offset), FrameUnit::Rows | FrameUnit::Range) => {
                let at = (row as i64).saturating_add(*offset).saturating_add(i64::from(!start));
                at.clamp(0, count) as u32
            }
            (Distance::Values(offset, after), _) => match values {
                Some(values) => values.bound(row, offset, *after, start, &self.peers)?,
                None => 0,
            },
        })
    }
}

fn peers_of(groups: &[u32]) -> Vec<(u32, u32)> {
    let ends = group_ranges(groups);
    groups.iter().map(|group| ends[*group as usize]).collect()
}

fn group_ranges(groups: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (row, group) in groups.iter().enumerate() {
        match ranges.get_mut(*group as usize) {
            Some(range) => range.1 = row as u32 + 1,
            None => ranges.push((row as u32, row as u32 + 1)),
        }
    }
    ranges
}

async fn distance(runtime: &Runtime, bound: &Bound, unit: FrameUnit, which: &str) -> Result<Distance> {
    let (expr, after) = match bound {
        Bound::UnboundedPreceding => return Ok(Distance::First),
        Bound::CurrentRow => return Ok(Distance::Current),
        Bound::UnboundedFollowing => return Ok(Distance::Last),
        Bound::Preceding(expr) => (expr, false),
        Bound::Following(expr) => (expr, true),
    };
    let value = evaluate_patiently(runtime, expr, &[]).await?;
    if value.is_null() {
        return Err(Error::new(Code::NullValueNotAllowed, format!("frame {which} offset must not be null")));
    }
    if unit == FrameUnit::Range {
        return Ok(Distance::Values(value, after));
    }
    match value.as_i64() {
        Some(offset) if offset >= 0 => Ok(Distance::Rows(if after { offset } else { -offset })),
        _ => {
            Err(Error::new(Code::InvalidParameterValue, format!("frame {which} offset must not be negative")))
        }
    }
}

/// RANGE with an offset: distances in values of the only order key.
struct ValueRange<'a> {
    runtime: &'a Runtime,
    column: &'a Column,
    descending: bool,
}

impl<'a> ValueRange<'a> {
    fn new(runtime: &'a Runtime, order: &'a [Arc<Column>], keys: &[SortKey]) -> Result<Self> {
        match (order, keys) {
            ([column], [key]) => Ok(Self { runtime, column, descending: key.descending }),
            _ => Err(Error::new(
                Code::WindowingError,
                "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            )),
        }
    }

    /// The first row at or behind the row's value moved by the offset, or the end of those.
    fn bound(
        &self,
        row: usize,
        offset: &Value,
        after: bool,
        start: bool,
        peers: &[(u32, u32)],
    ) -> Result<u32> {
        // Null is as far from null as a row from its peers, and infinitely far from all others.
        if self.column.is_null(row) {
            return Ok(if start { peers[row].0 } else { peers[row].1 });
        }
        let plus = after != self.descending;
        let limit = self.moved(&self.column.value(row), offset, plus)?;
        let before = |at: usize| {
            if self.column.is_null(at) {
                // Nulls stand at one end, on the side of the order's choice.
                return at < row;
            }
            let order = self.column.value(at).cmp_sql(&limit);
            let order = if self.descending { order.reverse() } else { order };
            if start { order == Ordering::Less } else { order != Ordering::Greater }
        };
        let rows: Vec<u32> = (0..self.column.len() as u32).collect();
        Ok(rows.partition_point(|at| before(*at as usize)) as u32)
    }

    fn moved(&self, value: &Value, offset: &Value, plus: bool) -> Result<Value> {
        let (left, right) = (self.column.ty(), offset.natural_type().unwrap_or(Type::Unknown));
        let symbol = if plus { "+" } else { "-" };
        let operator = find(symbol, left, right).ok_or_else(|| {
            Error::unsupported(
                format!("RANGE with offset PRECEDING/FOLLOWING is not supported for column type {left} and offset type {right}"),
                "Cast the offset value to an appropriate type.",
            )
        })?;
        self.runtime.evaluate(|scope| scope.operate(operator, &[value.clone(), offset.clone()]))
    }
}

fn find(symbol: &str, left: Type, right: Type) -> Option<&'static Operator> {
    let is = |accepts: Accepts, ty: Type| accepts == Accepts::Exact(ty);
    let fits =
        |operator: &&Operator| operator.left.is_some_and(|at| is(at, left)) && is(operator.right, right);
    find_operators(symbol).iter().find(fits)
}
