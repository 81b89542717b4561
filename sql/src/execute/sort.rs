//! Sorting: in memory while it fits, else as sorted runs in spill files that are merged; and the first rows of an order.
//!
//! Invariants:
//! - The order is total and stable: rows with equal keys stay in the order in which they came.
//! - Keys are compared as bytes ([`crate::batch::key`]); the rows themselves are not looked at.
//! - At most [`RUNS_MAX`] runs are merged at once.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use model::{Result, Type, key::KeyPart, port::BoxFuture};

use super::{Expressions, Operator, Runtime, limit};
use crate::{
    batch::{Batch, Column, ROWS, concat, key::Keys},
    expr::{Expr, SortKey},
    memory::Charge,
    spill,
};

/// So many rows are sorted on a thread of their own.
const BLOCKING_ROWS: usize = 20_000;
/// How many runs are merged at once.
const RUNS_MAX: usize = 64;

/// How the parts of a packed key sort.
pub(super) fn parts(keys: &[SortKey]) -> Vec<KeyPart> {
    keys.iter().map(|key| KeyPart { desc: key.descending, nulls_first: key.nulls_first }).collect()
}

fn values(keys: &[SortKey], width: usize) -> Expressions {
    let values: Vec<Expr> = keys.iter().map(|key| key.value.clone()).collect();
    Expressions::new(&values, width)
}

/// Sorts rows that come in batches; used by the operator and by others that need an order.
pub(super) struct Sorter {
    runtime: Runtime,
    types: Vec<Type>,
    parts: Vec<KeyPart>,
    keys: Expressions,
    rows: Vec<Batch>,
    packed: Vec<Keys>,
    charge: Charge,
    runs: Vec<spill::Reader>,
}

impl Sorter {
    pub(super) fn new(keys: &[SortKey], types: Vec<Type>, runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            parts: parts(keys),
            keys: values(keys, types.len()),
            types,
            rows: Vec::new(),
            packed: Vec::new(),
            charge: runtime.budget.charge("a sort"),
            runs: Vec::new(),
        }
    }

    /// Takes in rows.
    pub(super) async fn add(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.runtime.pace().await?;
        let batch = batch.compact();
        let columns = self.keys.columns(&self.runtime, &batch).await?;
        let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
        let packed = Keys::of(&refs, &self.parts, batch.len());
        // The sorted copy and the order of the rows come on top of what is held.
        let bytes = 2 * batch.heap_bytes() + packed.heap_bytes() + 24 * batch.len();
        let mut wanted = self.charge.bytes() + bytes;
        if !self.charge.try_set(wanted) {
            self.spill_run().await?;
            wanted = bytes;
            self.charge.set(wanted)?;
        }
        self.rows.push(batch);
        self.packed.push(packed);
        Ok(())
    }

    /// All rows in order.
    pub(super) async fn finish(mut self) -> Result<Sorted> {
        if self.runs.is_empty() {
            let order = self.order().await?.1;
            let rows = concat(&self.rows, &self.types);
            self.rows.clear();
            self.packed.clear();
            return Ok(Sorted::Memory { rows, order, given: 0, _charge: self.charge });
        }
        self.spill_run().await?;
        while self.runs.len() > RUNS_MAX {
            let rest = self.runs.split_off(RUNS_MAX);
            let merged = self.merge_to_file()?;
            self.runs = rest;
            self.runs.push(merged);
        }
        Ok(Sorted::Merging(Merge::new(self.runs, self.types, self.charge)?))
    }

    /// Takes the keys out; answers them and the numbers of the rows in order.
    async fn order(&mut self) -> Result<(Vec<Keys>, Vec<u32>)> {
        let packed = std::mem::take(&mut self.packed);
        if packed.iter().map(Keys::len).sum::<usize>() < BLOCKING_ROWS {
            let order = order(&packed);
            return Ok((packed, order));
        }
        super::runtime::blocking(move || {
            let order = order(&packed);
            (packed, order)
        })
        .await
    }

    /// Writes what is held as a sorted run: the rows, and their keys as one more column.
    async fn spill_run(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let (packed, order) = self.order().await?;
        let rows = concat(&self.rows, &self.types);
        let mut keys = Column::with_capacity(Type::Bytea, rows.len());
        for packed in &packed {
            (0..packed.len()).for_each(|row| keys.push_bytes(packed.get(row)));
        }
        self.rows.clear();
        self.packed.clear();
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(keys));
        let whole = Batch::new(columns, rows.len());
        let mut file = self.runtime.spill.create(&self.run_types())?;
        for piece in order.chunks(ROWS) {
            self.runtime.cancel.check()?;
            file.write(&whole.select(piece))?;
        }
        self.runtime.note(|node| node.spilled += file.bytes());
        self.runs.push(file.finish()?);
        Ok(())
    }

    fn run_types(&self) -> Vec<Type> {
        let mut types = self.types.clone();
        types.push(Type::Bytea);
        types
    }

    fn merge_to_file(&mut self) -> Result<spill::Reader> {
        let types = self.run_types();
        let mut file = self.runtime.spill.create(&types)?;
        let mut merge = Merge::new(
            std::mem::take(&mut self.runs),
            self.types.clone(),
            self.runtime.budget.charge("a sort"),
        )?;
        while let Some(batch) = merge.next(true)? {
            self.runtime.cancel.check()?;
            file.write(&batch)?;
        }
        file.finish()
    }
}

/// The numbers of all rows in order.
fn order(packed: &[Keys]) -> Vec<u32> {
    let mut keyed: Vec<(u64, u32, u32, u32)> = Vec::new();
    let mut row_number = 0;
    for (batch, keys) in packed.iter().enumerate() {
        for row in 0..keys.len() {
            keyed.push((prefix(keys.get(row)), batch as u32, row as u32, row_number));
            row_number += 1;
        }
    }
    let key = |at: &(u64, u32, u32, u32)| packed[at.1 as usize].get(at.2 as usize);
    // The row number decides between equal keys, so an unstable sort is stable here.
    keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a).cmp(key(b))).then(a.3.cmp(&b.3)));
    keyed.into_iter().map(|at| at.3).collect()
}

/// The first eight bytes of a key, as a number in the same order.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

/// Rows in order.
pub(super) enum Sorted {
    /// All in memory.
    Memory { rows: Batch, order: Vec<u32>, given: usize, _charge: Charge },
    /// Runs that are merged.
    Merging(Merge),
}

impl Sorted {
    /// The next rows.
    pub(super) fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Self::Memory { rows, order, given, .. } => {
                if *given >= order.len() {
                    return Ok(None);
                }
                let to = (*given + ROWS).min(order.len());
                let batch = rows.select(&order[*given..to]);
                *given = to;
                Ok(Some(batch.compact()))
            }
            Self::Merging(merge) => merge.next(false),
        }
    }
}

/// Sorted runs that are merged.
pub(super) struct Merge {
    runs: Vec<Run>,
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    types: Vec<Type>,
    _charge: Charge,
}

struct Run {
    file: spill::Reader,
    batch: Batch,
    row: usize,
}

impl Merge {
    fn new(files: Vec<spill::Reader>, types: Vec<Type>, charge: Charge) -> Result<Self> {
        let mut merge = Self { runs: Vec::new(), heads: BinaryHeap::new(), types, _charge: charge };
        for mut file in files {
            if let Some(batch) = file.next_batch()? {
                merge.runs.push(Run { file, batch, row: 0 });
                merge.push_head(merge.runs.len() - 1);
            }
        }
        Ok(merge)
    }

    /// Runs are in the order in which they were written, so the run's number keeps the sort stable.
    fn push_head(&mut self, run: usize) {
        let at = &self.runs[run];
        let keys = at.batch.column(self.types.len());
        if let Some(texts) = keys.as_texts() {
            self.heads.push(Reverse((texts.get(at.row).to_vec(), run)));
        }
    }

    fn next(&mut self, with_keys: bool) -> Result<Option<Batch>> {
        let mut types = self.types.clone();
        if with_keys {
            types.push(Type::Bytea);
        }
        let mut columns: Vec<Column> = types.iter().map(|ty| Column::with_capacity(*ty, ROWS)).collect();
        let mut count = 0;
        while count < ROWS {
            let Some(Reverse((_, run))) = self.heads.pop() else { break };
            let at = &mut self.runs[run];
            for (column, from) in columns.iter_mut().zip(at.batch.columns()) {
                column.push_from(from, at.row);
            }
            count += 1;
            at.row += 1;
            if at.row == at.batch.len() {
                match at.file.next_batch()? {
                    Some(batch) => (at.batch, at.row) = (batch, 0),
                    None => continue,
                }
            }
            self.push_head(run);
        }
        if count == 0 {
            return Ok(None);
        }
        Ok(Some(Batch::new(columns.into_iter().map(Arc::new).collect(), count)))
    }
}

/// The operator.
pub(super) struct Sort {
    input: Box<dyn Operator>,
    state: State,
}

enum State {
    Taking(Option<Box<Sorter>>),
    Giving(Sorted),
}

impl Sort {
    pub(super) fn new(
        input: Box<dyn Operator>,
        keys: &[SortKey],
        types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        Self { input, state: State::Taking(Some(Box::new(Sorter::new(keys, types, runtime)))) }
    }
}

impl Operator for Sort {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                match &mut self.state {
                    State::Giving(sorted) => return sorted.next(),
                    State::Taking(sorter) => {
                        let Some(mut sorter) = sorter.take() else { return Ok(None) };
                        while let Some(batch) = self.input.next().await? {
                            sorter.add(batch).await?;
                        }
                        self.state = State::Giving(sorter.finish().await?);
                    }
                }
            }
        })
    }
}

/// The first rows of an order.
pub(super) struct TopN {
    runtime: Runtime,
    input: Box<dyn Operator>,
    keys: Expressions,
    parts: Vec<KeyPart>,
    sort_keys: Vec<SortKey>,
    limit: Expr,
    offset: Option<Expr>,
    types: Vec<Type>,
    given: Option<Given>,
}

enum Given {
    Rows(std::vec::IntoIter<Batch>),
    Sorted { sorted: Box<Sorted>, skip: usize, left: usize },
}

/// Beyond this many rows a whole sort, which can spill, does the work.
const TOP_MAX: u64 = 100_000;

impl TopN {
    pub(super) fn new(
        input: Box<dyn Operator>,
        keys: &[SortKey],
        limit: &Expr,
        offset: Option<&Expr>,
        types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            input,
            keys: values(keys, types.len()),
            parts: parts(keys),
            sort_keys: keys.to_vec(),
            limit: limit.clone(),
            offset: offset.cloned(),
            types,
            given: None,
        }
    }

    async fn take_in(&mut self) -> Result<Given> {
        let (skip, left) = limit::counts(&self.runtime, Some(&self.limit), self.offset.as_ref()).await?;
        let wanted = left.and_then(|left| left.checked_add(skip)).filter(|wanted| *wanted <= TOP_MAX);
        let Some(wanted) = wanted else {
            let mut sorter = Sorter::new(&self.sort_keys, self.types.clone(), &self.runtime);
            while let Some(batch) = self.input.next().await? {
                sorter.add(batch).await?;
            }
            let skip = usize::try_from(skip).unwrap_or(usize::MAX);
            let left = left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
            return Ok(Given::Sorted { sorted: Box::new(sorter.finish().await?), skip, left });
        };
        if wanted == 0 {
            return Ok(Given::Rows(Vec::new().into_iter()));
        }
        let mut top = Top::new(
            wanted as usize,
            self.types.clone(),
            self.runtime.budget.charge("the first rows of an order"),
        );
        while let Some(batch) = self.input.next().await? {
            self.runtime.pace().await?;
            let columns = self.keys.columns(&self.runtime, &batch).await?;
            let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
            top.add(&batch, &Keys::of(&refs, &self.parts, batch.len()))?;
        }
        let rows = top.finish();
        let skip = (skip as usize).min(rows.len());
        let rows = rows.slice(skip, rows.len() - skip);
        let batches: Vec<Batch> = (0..rows.len()).step_by(ROWS).map(|from| rows.slice(from, ROWS)).collect();
        Ok(Given::Rows(batches.into_iter()))
    }
}

impl Operator for TopN {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if self.given.is_none() {
                self.given = Some(self.take_in().await?);
            }
            match self.given.as_mut() {
                None => Ok(None),
                Some(Given::Rows(batches)) => Ok(batches.next()),
                Some(Given::Sorted { sorted, skip, left }) => loop {
                    if *left == 0 {
                        return Ok(None);
                    }
                    let Some(batch) = sorted.next()? else { return Ok(None) };
                    if *skip >= batch.len() {
                        *skip -= batch.len();
                        continue;
                    }
                    let batch = batch.slice(std::mem::take(skip), *left);
                    *left -= batch.len();
                    return Ok(Some(batch));
                },
            }
        })
    }
}

/// The `count` least rows seen so far. Rows that fell out are dropped from time to time.
struct Top {
    count: usize,
    /// Key and place in `rows`; the greatest is on top.
    heap: BinaryHeap<(Vec<u8>, u32)>,
    rows: Vec<Column>,
    types: Vec<Type>,
    charge: Charge,
}

impl Top {
    fn new(count: usize, types: Vec<Type>, charge: Charge) -> Self {
        let rows = types.iter().map(|ty| Column::with_capacity(*ty, 0)).collect();
        Self { count, heap: BinaryHeap::new(), rows, types, charge }
    }

    fn add(&mut self, batch: &Batch, keys: &Keys) -> Result<()> {
        for row in 0..batch.len() {
            let key = keys.get(row);
            if self.heap.len() == self.count {
                // An equal key comes later and stays behind.
                match self.heap.peek() {
                    Some((greatest, _)) if key < greatest.as_slice() => self.heap.pop(),
                    _ => continue,
                };
            }
            let place = self.held() as u32;
            self.heap.push((key.to_vec(), place));
            let physical = batch.physical(row);
            for (column, from) in self.rows.iter_mut().zip(batch.columns()) {
                column.push_from(from, physical);
            }
            if self.rows.is_empty() {
                continue;
            }
            if self.held() > 2 * self.count + ROWS {
                self.drop_fallen();
            }
        }
        let bytes = self.rows.iter().map(Column::heap_bytes).sum::<usize>()
            + self.heap.iter().map(|(key, _)| key.capacity() + 32).sum::<usize>();
        self.charge.set(bytes)
    }

    fn held(&self) -> usize {
        self.rows.first().map_or(self.heap.len(), Column::len)
    }

    /// Keeps the rows of the heap only, in the order in which they came, so that places still tell their age.
    fn drop_fallen(&mut self) {
        let mut kept: Vec<(Vec<u8>, u32)> = std::mem::take(&mut self.heap).into_vec();
        kept.sort_by_key(|(_, place)| *place);
        let places: Vec<u32> = kept.iter().map(|(_, place)| *place).collect();
        self.rows = self.rows.iter().map(|column| column.gather(&places)).collect();
        self.heap = kept.into_iter().enumerate().map(|(place, (key, _))| (key, place as u32)).collect();
    }

    fn finish(self) -> Batch {
        let order: Vec<u32> = self.heap.into_sorted_vec().into_iter().map(|(_, place)| place).collect();
        let rows = self.rows.first().map_or(order.len(), Column::len);
        debug_assert_eq!(self.rows.len(), self.types.len());
        Batch::new(self.rows.into_iter().map(Arc::new).collect(), rows).select(&order).compact()
    }
}
