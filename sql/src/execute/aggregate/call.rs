//! One aggregate over all groups: FILTER, DISTINCT and ORDER BY around a state.

use std::sync::Arc;

use model::{Result, Type, Value};

use super::{grouping::CallLayout, state::State};
use crate::{
    batch::{
        Batch, Column, concat,
        key::{KeyTable, Keys},
    },
    execute::Runtime,
};

/// How often the exact size of untyped states is asked for: once per so many batches.
const MEASURE_EVERY: u32 = 16;

/// One aggregate.
pub(super) struct Call {
    runtime: Runtime,
    layout: CallLayout,
    state: State,
    groups: usize,
    /// With DISTINCT: the combinations of group and arguments seen so far.
    seen: Option<KeyTable>,
    /// With ORDER BY: the rows until the end, their group's number first.
    kept: Vec<Batch>,
    asked: u32,
    measured: usize,
}

impl Call {
    pub(super) fn new(layout: &CallLayout, runtime: &Runtime) -> Self {
        let seen = layout.distinct.then(|| {
            let mut types = vec![Type::Int8];
            types.extend(&layout.argument_types);
            KeyTable::new(&types)
        });
        Self {
            runtime: runtime.clone(),
            state: State::new(layout.function, &layout.argument_types, layout.ty),
            layout: layout.clone(),
            groups: 0,
            seen,
            kept: Vec::new(),
            asked: 0,
            measured: 0,
        }
    }

    pub(super) fn grow(&mut self, groups: usize) {
        self.groups = groups;
        self.state.grow(groups);
    }

    /// Takes in evaluated rows with the numbers of their groups.
    pub(super) fn update(&mut self, values: &Batch, numbers: &[u32]) -> Result<()> {
        let layout = &self.layout;
        let plain = layout.filter.is_none() && self.seen.is_none() && layout.order.is_empty();
        let arguments: Vec<&Column> =
            layout.arguments.clone().map(|column| values.column(column).as_ref()).collect();
        let skips_nulls = layout.function.strict && arguments.iter().any(|argument| argument.has_nulls());
        if plain && !skips_nulls {
            return self.runtime.evaluate(|scope| self.state.update(scope.context, &arguments, numbers));
        }
        let mut rows: Vec<u32> = (0..numbers.len() as u32).collect();
        if let Some(filter) = layout.filter {
            let filter = values.column(filter);
            let truths = filter.as_bools().unwrap_or_default();
            rows.retain(|row| truths[*row as usize] && !filter.is_null(*row as usize));
        }
        if skips_nulls {
            rows.retain(|row| !arguments.iter().any(|argument| argument.is_null(*row as usize)));
        }
        if rows.is_empty() {
            return Ok(());
        }
        let numbers: Vec<u32> = rows.iter().map(|row| numbers[*row as usize]).collect();
        let gather = |range: std::ops::Range<usize>| {
            range.map(|column| Arc::new(values.column(column).gather(&rows))).collect::<Vec<_>>()
        };
        let (arguments, order) = (gather(layout.arguments.clone()), gather(layout.order.clone()));
        if !layout.order.is_empty() {
            let groups = Column::ints(
                Type::Int8,
                numbers.iter().map(|number| i64::from(*number)).collect(),
                Vec::new(),
            );
            let columns = [vec![Arc::new(groups)], arguments, order].concat();
            self.kept.push(Batch::new(columns, rows.len()));
            return Ok(());
        }
        self.feed(&arguments, &numbers)
    }

    /// Feeds rows whose order does not matter any more, each combination once with DISTINCT.
    fn feed(&mut self, arguments: &[Arc<Column>], numbers: &[u32]) -> Result<()> {
        let refs: Vec<&Column> = arguments.iter().map(Arc::as_ref).collect();
        let Some(seen) = &mut self.seen else {
            return self.runtime.evaluate(|scope| self.state.update(scope.context, &refs, numbers));
        };
        let groups =
            Column::ints(Type::Int8, numbers.iter().map(|number| i64::from(*number)).collect(), Vec::new());
        let mut keys = vec![&groups];
        keys.extend(&refs);
        let mut next = seen.len() as u32;
        let mut found = Vec::new();
        seen.insert(&keys, numbers.len(), false, &mut found);
        let mut fresh = Vec::new();
        for (row, number) in found.iter().enumerate() {
            if *number == next {
                fresh.push(row as u32);
                next += 1;
            }
        }
        let gathered: Vec<Column> = refs.iter().map(|argument| argument.gather(&fresh)).collect();
        let refs: Vec<&Column> = gathered.iter().collect();
        let numbers: Vec<u32> = fresh.iter().map(|row| numbers[*row as usize]).collect();
        self.runtime.evaluate(|scope| self.state.update(scope.context, &refs, &numbers))
    }

    /// Bytes on the heap, roughly.
    pub(super) fn heap_bytes(&mut self) -> usize {
        if self.asked.is_multiple_of(MEASURE_EVERY) {
            self.measured = self.state.heap_bytes();
        }
        self.asked += 1;
        self.measured
            + self.seen.as_ref().map_or(0, KeyTable::heap_bytes)
            + self.kept.iter().map(Batch::heap_bytes).sum::<usize>()
    }

    /// The results of all groups.
    pub(super) fn finish(&mut self, groups: usize) -> Result<Column> {
        if !self.kept.is_empty() {
            self.feed_in_order()?;
        }
        let mut column = Column::with_capacity(self.layout.ty, groups);
        for group in 0..groups {
            column.push_value(&self.state.finish(group)?);
        }
        Ok(column)
    }

    fn feed_in_order(&mut self) -> Result<()> {
        let mut types = vec![Type::Int8];
        types.extend(&self.layout.argument_types);
        let kept = std::mem::take(&mut self.kept);
        types.extend(kept[0].columns()[types.len()..].iter().map(|column| column.ty()));
        let rows = concat(&kept, &types);
        drop(kept);
        let arguments = self.layout.argument_types.len();
        let keys: Vec<&Column> = rows.columns()[1 + arguments..].iter().map(Arc::as_ref).collect();
        let keys = Keys::of(&keys, &self.layout.order_parts, rows.len());
        let mut order: Vec<u32> = (0..rows.len() as u32).collect();
        order.sort_by(|a, b| keys.get(*a as usize).cmp(keys.get(*b as usize)));
        let sorted = rows.select(&order).compact();
        let numbers: Vec<u32> =
            sorted.column(0).as_ints().unwrap_or_default().iter().map(|number| *number as u32).collect();
        self.feed(&sorted.columns()[1..1 + arguments], &numbers)
    }
}

/// A result of an aggregate over one group, for those that feed one by one.
pub(in crate::execute) fn single(
    runtime: &Runtime,
    function: &'static crate::functions::Function,
    types: &[Type],
    ty: Type,
) -> Single {
    Single { runtime: runtime.clone(), state: State::new(function, types, ty) }
}

/// An aggregate over one group that grows.
pub(in crate::execute) struct Single {
    runtime: Runtime,
    state: State,
}

impl Single {
    /// Starts again.
    pub(in crate::execute) fn begin(&mut self) {
        self.state.clear();
        self.state.grow(1);
    }

    /// Takes in rows.
    pub(in crate::execute) fn add(&mut self, arguments: &[&Column], rows: usize) -> Result<()> {
        let numbers = vec![0; rows];
        self.runtime.evaluate(|scope| self.state.update(scope.context, arguments, &numbers))
    }

    /// The result so far.
    pub(in crate::execute) fn result(&mut self) -> Result<Value> {
        self.state.finish(0)
    }
}
