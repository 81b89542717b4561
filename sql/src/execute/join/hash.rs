//! Hash join: a table of the right's rows by key, looked up for each row of the left.
//!
//! If the right does not fit the statement's memory, both sides are cut into parts by a hash of their keys, on disk, and
//! each pair of parts is joined by itself; parts that still do not fit are cut again.

use std::sync::Arc;

use model::{Result, Type, port::BoxFuture};

use super::{Matches, Shape, pairs};
use crate::{
    batch::{Batch, Column, concat, key::KeyTable},
    execute::{Expressions, Operator, Runtime},
    expr::Expr,
    memory::Charge,
    plan::{Join, JoinKind},
    spill,
};

/// Into how many parts both sides are cut.
const PARTS: usize = 32;
/// How often parts are cut again before the statement is refused.
const DEPTH_MAX: u64 = 5;
/// How many pairs are made at once.
const PAIRS: usize = 4_096;
/// The end of a chain of rows with one key.
const END: u32 = u32::MAX;

/// The operator.
pub(super) struct HashJoin {
    runtime: Runtime,
    shape: Shape,
    left_keys: Expressions,
    right_keys: Expressions,
    key_types: Vec<Type>,
    left: Source,
    right: Option<Source>,
    depth: u64,
    build: Build,
    charge: Charge,
    probe: Option<Probe>,
    /// Rows of the right without a partner are being given; the next one to look at.
    leftovers: Option<usize>,
    waiting: Vec<Part>,
    /// Over all parts: what NOT IN has to know of the right.
    right_empty: bool,
    right_null: bool,
}

/// Where rows come from.
enum Source {
    Input(Box<dyn Operator>),
    File(spill::Reader),
    Nothing,
}

/// A pair of parts on disk.
struct Part {
    depth: u64,
    left: spill::Reader,
    right: spill::Reader,
}

/// The right's rows in memory.
struct Build {
    rows: Batch,
    table: KeyTable,
    /// For each key: its first row.
    heads: Vec<u32>,
    /// For each row: the next one with its key.
    nexts: Vec<u32>,
    /// For each row: whether it has a partner; empty if nobody asks.
    matched: Vec<bool>,
}

/// A batch of the left that is being looked up.
struct Probe {
    batch: Batch,
    keys: Vec<Arc<Column>>,
    numbers: Vec<u32>,
    row: usize,
    /// The next row of the right in the present row's chain.
    chain: u32,
    matches: Matches,
    exhausted: bool,
}

impl Source {
    async fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Self::Input(input) => input.next().await,
            Self::File(file) => file.next_batch(),
            Self::Nothing => Ok(None),
        }
    }
}

impl HashJoin {
    pub(super) fn new(
        join: &Join,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
        runtime: &Runtime,
    ) -> Self {
        let shape = Shape::new(join);
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.keys.iter().cloned().unzip();
        let key_types: Vec<Type> = right_keys.iter().map(|key| key.ty).collect();
        Self {
            runtime: runtime.clone(),
            left_keys: Expressions::new(&left_keys, shape.left_types.len()),
            right_keys: Expressions::new(&right_keys, shape.right_types.len()),
            build: Build::empty(&shape.right_types, &key_types),
            shape,
            key_types,
            left: Source::Input(left),
            right: Some(Source::Input(right)),
            depth: 0,
            charge: runtime.budget.charge("a hash join"),
            probe: None,
            leftovers: None,
            waiting: Vec::new(),
            right_empty: true,
            right_null: false,
        }
    }

    fn keeps_right(&self) -> bool {
        matches!(self.shape.kind, JoinKind::Right | JoinKind::Full)
    }

    /// Reads the right; false if it was cut into parts instead.
    async fn read_right(&mut self, mut right: Source) -> Result<bool> {
        let mut batches = Vec::new();
        let mut bytes = 0;
        let mut table = KeyTable::new(&self.key_types);
        let (mut numbers, mut some) = (Vec::new(), Vec::new());
        while let Some(batch) = right.next().await? {
            self.runtime.pace().await?;
            if batch.is_empty() {
                continue;
            }
            let batch = batch.compact();
            let keys = self.right_keys.columns(&self.runtime, &batch).await?;
            self.note_right(&keys);
            let refs: Vec<&Column> = keys.iter().map(Arc::as_ref).collect();
            table.insert(&refs, batch.len(), true, &mut some);
            numbers.extend_from_slice(&some);
            // Rows, their joined copy, and about 24 bytes a row for the table and the chains.
            bytes += 2 * batch.heap_bytes() + (24 + 12 * self.key_types.len()) * batch.len();
            batches.push(batch);
            if !self.charge.try_set(bytes) {
                let null_aware = self.shape.kind == JoinKind::NullAwareAnti && self.shape.residual.is_some();
                if self.depth >= DEPTH_MAX || null_aware {
                    return Err(self.charge.refusal(bytes));
                }
                self.cut(batches, right).await?;
                return Ok(false);
            }
        }
        let rows = concat(&batches, &self.shape.right_types);
        drop(batches);
        self.build = self.chain(rows, table, &numbers);
        Ok(true)
    }

    /// Notes rows of the right, over all parts.
    fn note_right(&mut self, keys: &[Arc<Column>]) {
        if self.depth == 0 {
            self.right_empty = false;
            self.right_null |= keys.iter().any(|key| key.nulls().contains(&true));
        }
    }

    /// Chains the rows of each key.
    fn chain(&self, rows: Batch, table: KeyTable, numbers: &[u32]) -> Build {
        let mut build = Build { table, ..Build::empty(&self.shape.right_types, &self.key_types) };
        build.heads = vec![END; build.table.len()];
        build.nexts = vec![END; rows.len()];
        // From the last to the first, so that chains are in the order of the rows.
        for (row, number) in numbers.iter().enumerate().rev() {
            if *number != END {
                build.nexts[row] = std::mem::replace(&mut build.heads[*number as usize], row as u32);
            }
        }
        if self.keeps_right() {
            build.matched = vec![false; rows.len()];
        }
        build.rows = rows;
        build
    }

    /// Writes both sides into parts.
    async fn cut(&mut self, held: Vec<Batch>, mut right: Source) -> Result<()> {
        let create =
            |types: &[Type]| (0..PARTS).map(|_| self.runtime.spill.create(types)).collect::<Result<Vec<_>>>();
        let mut right_files = create(&self.shape.right_types)?;
        let mut left_files = create(&self.shape.left_types)?;
        for batch in held {
            self.cut_batch(&batch, false, &mut right_files).await?;
        }
        self.charge.set(0)?;
        while let Some(batch) = right.next().await? {
            self.runtime.pace().await?;
            let batch = batch.compact();
            if self.depth == 0 && !batch.is_empty() {
                let keys = self.right_keys.columns(&self.runtime, &batch).await?;
                self.note_right(&keys);
            }
            self.cut_batch(&batch, false, &mut right_files).await?;
        }
        while let Some(batch) = self.left.next().await? {
            self.runtime.pace().await?;
            self.cut_batch(&batch.compact(), true, &mut left_files).await?;
        }
        self.left = Source::Nothing;
        let spilled: u64 = left_files.iter().chain(&right_files).map(spill::Writer::bytes).sum();
        self.runtime.note(|node| node.spilled += spilled);
        for (left, right) in left_files.into_iter().zip(right_files) {
            if left.rows() > 0 || (right.rows() > 0 && self.keeps_right()) {
                self.waiting.push(Part {
                    depth: self.depth + 1,
                    left: left.finish()?,
                    right: right.finish()?,
                });
            }
        }
        Ok(())
    }

    async fn cut_batch(&mut self, batch: &Batch, left: bool, files: &mut [spill::Writer]) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let keys = if left { &mut self.left_keys } else { &mut self.right_keys };
        let columns = keys.columns(&self.runtime, batch).await?;
        let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
        let hashes = KeyTable::partition_hashes(&refs, batch.len(), self.depth + 1);
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        for (row, hash) in hashes.iter().enumerate() {
            parts[(hash % PARTS as u64) as usize].push(row as u32);
        }
        for (file, rows) in files.iter_mut().zip(&parts) {
            file.write(&batch.select(rows))?;
        }
        Ok(())
    }

    /// Takes up the next pair of parts; false if there is none.
    async fn next_part(&mut self) -> Result<bool> {
        let Some(part) = self.waiting.pop() else { return Ok(false) };
        self.depth = part.depth;
        self.left = Source::File(part.left);
        self.right = Some(Source::File(part.right));
        self.build = Build::empty(&self.shape.right_types, &self.key_types);
        self.charge.set(0)?;
        Ok(true)
    }

    async fn begin_probe(&mut self, batch: Batch) -> Result<Probe> {
        let batch = batch.compact();
        let keys = self.left_keys.columns(&self.runtime, &batch).await?;
        let refs: Vec<&Column> = keys.iter().map(Arc::as_ref).collect();
        let mut numbers = Vec::new();
        self.build.table.find(&refs, batch.len(), true, &mut numbers);
        let chain = self.build.head(numbers.first().copied());
        let matches = Matches::new(batch.len(), self.shape.kind);
        Ok(Probe { keys, numbers, row: 0, chain, matches, exhausted: false, batch })
    }

    /// The next rows of the batch that is being looked up; none when it is done.
    async fn probe_step(&mut self, probe: &mut Probe) -> Result<Option<Batch>> {
        if !self.shape.gives_pairs() && self.shape.residual.is_none() {
            for (row, number) in probe.numbers.iter().enumerate() {
                probe.matches.matched[row] = *number != END;
            }
            probe.exhausted = true;
        }
        while !probe.exhausted {
            let (left_rows, right_rows) = probe.next_pairs(&self.build);
            if left_rows.is_empty() {
                continue;
            }
            let judged = self
                .shape
                .judge(&self.runtime, &probe.batch, &left_rows, &self.build.rows, &right_rows)
                .await?;
            let (left_rows, right_rows) = match judged {
                None => (left_rows, right_rows),
                Some(kept) => (
                    kept.iter().map(|at| left_rows[*at as usize]).collect(),
                    kept.iter().map(|at| right_rows[*at as usize]).collect(),
                ),
            };
            for row in &left_rows {
                probe.matches.note(*row)?;
            }
            if self.keeps_right() {
                right_rows.iter().for_each(|row| self.build.matched[*row as usize] = true);
            }
            if self.shape.gives_pairs() && !left_rows.is_empty() {
                return Ok(Some(pairs(&probe.batch, &left_rows, &self.build.rows, &right_rows)));
            }
            self.runtime.pace().await?;
        }
        Ok(None)
    }

    /// What is given of a batch of the left when all its pairs were looked at.
    async fn finish_probe(&mut self, probe: Probe) -> Result<Option<Batch>> {
        let rows = match self.shape.kind {
            JoinKind::Inner | JoinKind::Right => return Ok(None),
            JoinKind::Left | JoinKind::Full | JoinKind::Single => {
                let rows = probe.matches.rows(false);
                return Ok((!rows.is_empty()).then(|| self.shape.left_alone(&probe.batch, &rows)));
            }
            JoinKind::Semi => probe.matches.rows(true),
            JoinKind::Anti => probe.matches.rows(false),
            JoinKind::NullAwareAnti => self.null_aware(&probe).await?,
        };
        Ok((!rows.is_empty()).then(|| probe.batch.select(&rows)))
    }

    /// `NOT IN`: rows without a partner, and without a possible one.
    async fn null_aware(&mut self, probe: &Probe) -> Result<Vec<u32>> {
        let unmatched = probe.matches.rows(false);
        if self.right_empty {
            return Ok(unmatched);
        }
        let null_key = |row: u32| probe.keys.iter().any(|key| key.is_null(row as usize));
        if self.shape.residual.is_none() {
            if self.right_null {
                return Ok(Vec::new());
            }
            return Ok(unmatched.into_iter().filter(|row| !null_key(*row)).collect());
        }
        let keys = self.right_keys.columns(&self.runtime, &self.build.rows).await?;
        let all: Vec<u32> = (0..self.build.rows.len() as u32).collect();
        let nulls: Vec<u32> =
            all.iter().copied().filter(|row| keys.iter().any(|key| key.is_null(*row as usize))).collect();
        let mut kept = Vec::new();
        for row in unmatched {
            self.runtime.pace().await?;
            let possible = if null_key(row) { &all } else { &nulls };
            let lefts = vec![row; possible.len()];
            let judged =
                self.shape.judge(&self.runtime, &probe.batch, &lefts, &self.build.rows, possible).await?;
            if judged.is_none_or(|held| held.is_empty()) {
                kept.push(row);
            }
        }
        Ok(kept)
    }

    /// The next rows of the right without a partner.
    fn next_leftovers(&mut self) -> Option<Batch> {
        let from = self.leftovers?;
        let to = (from + PAIRS).min(self.build.matched.len());
        if from >= to {
            self.leftovers = None;
            return None;
        }
        self.leftovers = Some(to);
        let rows: Vec<u32> =
            (from..to).filter(|row| !self.build.matched[*row]).map(|row| row as u32).collect();
        Some(self.shape.right_alone(&self.build.rows, &rows))
    }

    /// Whether no row of the left can be given, so that it need not be read.
    fn is_pointless(&self) -> bool {
        self.build.rows.is_empty()
            && matches!(self.shape.kind, JoinKind::Inner | JoinKind::Right | JoinKind::Semi)
    }
}

impl Operator for HashJoin {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                self.runtime.pace().await?;
                if let Some(right) = self.right.take() {
                    let whole = self.read_right(right).await?;
                    if !whole || self.is_pointless() {
                        self.left = Source::Nothing;
                    }
                }
                if let Some(mut probe) = self.probe.take() {
                    if let Some(batch) = self.probe_step(&mut probe).await? {
                        self.probe = Some(probe);
                        return Ok(Some(batch));
                    }
                    if let Some(batch) = self.finish_probe(probe).await? {
                        return Ok(Some(batch));
                    }
                }
                if self.leftovers.is_some() {
                    if let Some(batch) = self.next_leftovers() {
                        return Ok(Some(batch));
                    }
                    self.build.matched.clear();
                }
                match self.left.next().await? {
                    Some(batch) if batch.is_empty() => {}
                    Some(batch) => self.probe = Some(self.begin_probe(batch).await?),
                    None if self.keeps_right() && !self.build.matched.is_empty() => self.leftovers = Some(0),
                    None => {
                        if !self.next_part().await? {
                            return Ok(None);
                        }
                    }
                }
            }
        })
    }
}

impl Build {
    fn empty(types: &[Type], key_types: &[Type]) -> Self {
        Self {
            rows: concat(&[], types),
            table: KeyTable::new(key_types),
            heads: Vec::new(),
            nexts: Vec::new(),
            matched: Vec::new(),
        }
    }

    fn head(&self, number: Option<u32>) -> u32 {
        number.and_then(|number| self.heads.get(number as usize)).copied().unwrap_or(END)
    }
}

impl Probe {
    /// Some pairs with equal keys, in the order of the left.
    fn next_pairs(&mut self, build: &Build) -> (Vec<u32>, Vec<u32>) {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        while left.len() < PAIRS {
            while self.chain == END {
                self.row += 1;
                if self.row >= self.numbers.len() {
                    self.exhausted = true;
                    return (left, right);
                }
                self.chain = build.head(Some(self.numbers[self.row]));
            }
            left.push(self.row as u32);
            right.push(self.chain);
            self.chain = build.nexts[self.chain as usize];
        }
        (left, right)
    }
}
