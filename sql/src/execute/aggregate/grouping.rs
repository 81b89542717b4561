//! One grouping set: its groups and the states of its aggregates.

use std::sync::Arc;

use model::{Result, Type, Value, key::KeyPart};

use super::call::Call;
use crate::{
    batch::{Batch, Column, key::KeyTable},
    execute::Runtime,
    functions::Function,
    memory::Charge,
    plan, spill,
};

/// Into how many parts rows are spilled.
const PARTS: usize = 32;
/// How often parts are parted again before the statement is refused.
const DEPTH_MAX: u64 = 5;

/// Where everything stands in the evaluated columns, and what is given.
pub(super) struct Layout {
    pub(super) groups: usize,
    pub(super) calls: Vec<CallLayout>,
    grouping: Vec<Vec<usize>>,
    /// Types of the evaluated columns.
    types: Vec<Type>,
    /// Types of what is given.
    given: Vec<Type>,
}

/// Where one call's columns stand.
#[derive(Clone)]
pub(super) struct CallLayout {
    pub(super) function: &'static Function,
    pub(super) arguments: std::ops::Range<usize>,
    pub(super) filter: Option<usize>,
    pub(super) order: std::ops::Range<usize>,
    pub(super) order_parts: Vec<KeyPart>,
    pub(super) distinct: bool,
    pub(super) argument_types: Vec<Type>,
    pub(super) ty: Type,
}

impl Layout {
    pub(super) fn new(plan: &plan::Aggregate, given: Vec<Type>) -> Self {
        let mut types: Vec<Type> = plan.groups.iter().map(|group| group.ty).collect();
        let mut calls = Vec::with_capacity(plan.aggregates.len());
        for call in &plan.aggregates {
            let from = types.len();
            types.extend(call.arguments.iter().map(|argument| argument.ty));
            let arguments = from..types.len();
            let filter = call.filter.as_ref().map(|filter| {
                types.push(filter.ty);
                types.len() - 1
            });
            let from = types.len();
            types.extend(call.order.iter().map(|key| key.value.ty));
            calls.push(CallLayout {
                function: call.function,
                argument_types: call.arguments.iter().map(|argument| argument.ty).collect(),
                arguments,
                filter,
                order: from..types.len(),
                order_parts: crate::execute::sort::parts(&call.order),
                distinct: call.distinct,
                ty: call.ty,
            });
        }
        Self { groups: plan.groups.len(), calls, grouping: plan.grouping.clone(), types, given }
    }
}

/// The groups of one set.
pub(super) struct Grouping {
    runtime: Runtime,
    layout: Arc<Layout>,
    set: Vec<usize>,
    depth: u64,
    table: KeyTable,
    /// The values of the set's columns, one row per group.
    groups: Vec<Column>,
    count: usize,
    calls: Vec<Call>,
    charge: Charge,
    spilling: Option<Vec<spill::Writer>>,
    /// What was held when spilling began: the batch that did not fit had been taken in by then.
    held: usize,
    numbers: Vec<u32>,
}

impl Grouping {
    pub(super) fn new(set: Vec<usize>, layout: &Arc<Layout>, depth: u64, runtime: &Runtime) -> Self {
        let types: Vec<Type> = set.iter().map(|group| layout.types[*group]).collect();
        Self {
            runtime: runtime.clone(),
            table: KeyTable::new(&types),
            groups: types.iter().map(|ty| Column::with_capacity(*ty, 0)).collect(),
            count: 0,
            calls: layout.calls.iter().map(|call| Call::new(call, runtime)).collect(),
            charge: runtime.budget.charge("an aggregation"),
            spilling: None,
            held: 0,
            numbers: Vec::new(),
            layout: Arc::clone(layout),
            set,
            depth,
        }
    }

    pub(super) fn set(&self) -> &[usize] {
        &self.set
    }

    pub(super) fn depth(&self) -> u64 {
        self.depth
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Makes the one group of a set without columns.
    pub(super) fn begin_if_global(&mut self) -> Result<()> {
        if self.set.is_empty() && self.count == 0 {
            self.count = 1;
            self.calls.iter_mut().for_each(|call| call.grow(1));
        }
        Ok(())
    }

    /// Takes in evaluated rows.
    pub(super) fn take(&mut self, values: &Batch) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        if self.set.is_empty() {
            self.begin_if_global()?;
            self.numbers.clear();
            self.numbers.resize(values.len(), 0);
            return self.update(values.clone());
        }
        let keys: Vec<&Column> = self.set.iter().map(|group| values.column(*group).as_ref()).collect();
        if self.spilling.is_some() {
            return self.take_known(values);
        }
        self.table.insert(&keys, values.len(), false, &mut self.numbers);
        let mut next = self.count as u32;
        for (row, number) in self.numbers.iter().enumerate() {
            if *number == next {
                for (group, key) in self.groups.iter_mut().zip(&keys) {
                    group.push_from(key, row);
                }
                next += 1;
            }
        }
        self.count = next as usize;
        let count = self.count;
        self.calls.iter_mut().for_each(|call| call.grow(count));
        self.update(values.clone())
    }

    /// Takes in rows of groups that are in the table; others are spilled.
    fn take_known(&mut self, values: &Batch) -> Result<()> {
        let keys: Vec<&Column> = self.set.iter().map(|group| values.column(*group).as_ref()).collect();
        self.table.find(&keys, values.len(), false, &mut self.numbers);
        let hashes = KeyTable::partition_hashes(&keys, values.len(), self.depth + 1);
        let mut known = Vec::new();
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        for (row, number) in self.numbers.iter().enumerate() {
            if *number == u32::MAX {
                parts[(hashes[row] % PARTS as u64) as usize].push(row as u32);
            } else {
                known.push(row as u32);
            }
        }
        if let Some(files) = &mut self.spilling {
            for (file, rows) in files.iter_mut().zip(&parts) {
                file.write(&values.select(rows))?;
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        self.numbers = known.iter().map(|row| self.numbers[*row as usize]).collect();
        self.update(values.select(&known).compact())
    }

    fn update(&mut self, values: Batch) -> Result<()> {
        for call in &mut self.calls {
            call.update(&values, &self.numbers)?;
        }
        let bytes = self.heap_bytes();
        if bytes <= self.held || self.charge.try_set(bytes) {
            return Ok(());
        }
        if self.set.is_empty() || self.depth >= DEPTH_MAX || self.spilling.is_some() {
            return Err(self.charge.refusal(bytes));
        }
        self.held = bytes;
        let create = |_| self.runtime.spill.create(&self.layout.types);
        self.spilling = Some((0..PARTS).map(create).collect::<Result<Vec<_>>>()?);
        Ok(())
    }

    fn heap_bytes(&mut self) -> usize {
        self.table.heap_bytes()
            + self.groups.iter().map(Column::heap_bytes).sum::<usize>()
            + self.calls.iter_mut().map(Call::heap_bytes).sum::<usize>()
    }

    /// All groups, and the parts that were spilled.
    pub(super) fn finish(mut self) -> Result<(Vec<Batch>, Vec<spill::Reader>)> {
        let count = self.count;
        let mut columns: Vec<Arc<Column>> = Vec::with_capacity(self.layout.given.len());
        for group in 0..self.layout.groups {
            let place = self.set.iter().position(|at| *at == group);
            columns.push(Arc::new(match place {
                Some(place) => {
                    std::mem::replace(&mut self.groups[place], Column::with_capacity(Type::Bool, 0))
                }
                None => {
                    let mut nulls = Column::with_capacity(self.layout.types[group], count);
                    nulls.push_nulls(count);
                    nulls
                }
            }));
        }
        for call in &mut self.calls {
            columns.push(Arc::new(call.finish(count)?));
        }
        for asked in &self.layout.grouping {
            let bits = asked.iter().fold(0, |bits, group| bits << 1 | i64::from(!self.set.contains(group)));
            columns.push(Arc::new(Column::repeat(Type::Int4, &Value::Int4(bits as i32), count)));
        }
        let batches = if count == 0 { Vec::new() } else { vec![Batch::new(columns, count)] };
        let mut parts = Vec::new();
        for file in self.spilling.take().into_iter().flatten().filter(|file| file.rows() > 0) {
            self.runtime.note(|node| node.spilled += file.bytes());
            parts.push(file.finish()?);
        }
        Ok((batches, parts))
    }
}
