//! Scans: rows of a table by range, by index, by keys, of one or many partitions, seen through the transaction's own
//! writes.
//!
//! Invariants:
//! - All pages of one partition are read at one point, so a scan sees one state of it.
//! - Rows the transaction has written replace stored ones, removed ones go, new ones come in the order of the access.
//! - A long scan of one partition whose order nobody relies on is cut in two after some pages, and partitions are read
//!   side by side: [`STREAMS`] pages are on their way at once.
//! - From the second page on, the next one is asked for before this one is used, and decoded beside what uses this one: a
//!   LIMIT that is met by the first page reads no other.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use model::{
    Error, Result, Value,
    id::{IndexId, PartitionId},
    key,
    port::{BoxFuture, Reply},
    read::{self, At, Page, ReadPoint, Rows, Stored},
    row::RowView,
    schema::{IndexPart, Table},
};
use tokio::task::JoinSet;

use super::{
    Expressions, KeyBytes, Operator, Runtime,
    range::{key_range, partitions, parts_of, whole_keys},
};
use crate::{
    batch::{
        Batch, Column,
        stored::{Decoder, Source},
    },
    expr::{Expr, Kind},
    plan::{self, Access},
};

/// Rows of the first page: enough for a LIMIT, little to throw away.
const FIRST_PAGE_ROWS: usize = 256;
/// Rows of a full page.
const PAGE_ROWS: usize = 4_096;
/// Bytes of a page.
const PAGE_BYTES: usize = 1 << 20;
/// How many ranges are read at once where the order does not matter.
const STREAMS: usize = 2;
/// After so many pages a range is cut in two.
const PAGES_BEFORE_CUT: usize = 3;
/// Keys of one multi-get.
const KEYS_PER_GET: usize = 1_024;

/// The operator.
pub(super) struct Scan {
    runtime: Runtime,
    plan: plan::Scan,
    decoder: Arc<Decode>,
    filter: Option<Filter>,
    /// What is still to be read; none before the first batch.
    work: Option<VecDeque<Work>>,
    /// Ranges that are being read, the next one to look at first.
    current: VecDeque<Pages>,
}

/// What a row must fulfil. The columns it reads are decoded first, the others only of the rows that are kept.
struct Filter {
    condition: Expressions,
    /// The columns that the condition reads, in the order in which it knows them.
    reads: Vec<usize>,
    /// The columns that it does not read.
    rest: Vec<usize>,
}

impl Filter {
    fn new(condition: &Expr, width: usize) -> Self {
        let mut reads = BTreeSet::new();
        let mut whole = false;
        condition.any(&mut |at| {
            match at.kind {
                Kind::Column(column) => {
                    reads.insert(column);
                }
                // A sub-query reads the row in its own way.
                Kind::Subquery(_) => whole = true,
                _ => {}
            }
            false
        });
        if whole {
            reads = (0..width).collect();
        }
        let reads: Vec<usize> = reads.into_iter().collect();
        let mut condition = condition.clone();
        renumber(&mut condition, &reads);
        Self {
            condition: Expressions::condition(&condition, reads.len()),
            rest: (0..width).filter(|column| !reads.contains(column)).collect(),
            reads,
        }
    }

    /// The rows that are kept, of some whose first columns are these.
    async fn decode<R: Source + Sync + ?Sized>(
        &mut self,
        runtime: &Runtime,
        decoder: &Decoder,
        partition: &PartitionId,
        rows: &R,
        read: Vec<Arc<Column>>,
    ) -> Result<Batch> {
        let kept = self.condition.filter(runtime, Batch::new(read, rows.count())).await?;
        if kept.is_empty() {
            return Ok(kept);
        }
        let rest = decoder.columns_of(partition, rows, self.rest.iter().copied(), kept.selection())?;
        let (count, kept) = (kept.len(), kept.compact());
        let mut columns: Vec<(usize, Arc<Column>)> = Vec::with_capacity(self.reads.len() + rest.len());
        columns.extend(self.reads.iter().copied().zip(kept.columns().iter().cloned()));
        columns.extend(self.rest.iter().copied().zip(rest));
        columns.sort_by_key(|(place, _)| *place);
        Ok(Batch::new(columns.into_iter().map(|(_, column)| column).collect(), count))
    }
}

/// Columns by their places in a list instead of their own numbers.
fn renumber(expr: &mut Expr, list: &[usize]) {
    if let Kind::Column(column) = &mut expr.kind
        && let Ok(place) = list.binary_search(column)
    {
        *column = place;
    }
    expr.for_each_child_mut(&mut |child| renumber(child, list));
}

/// One piece of a scan.
enum Work {
    Range(PartitionId, KeyBytes),
    Keys(PartitionId, Vec<Bytes>),
}

/// A range that is being read page by page.
struct Pages {
    partition: PartitionId,
    point: ReadPoint,
    range: KeyBytes,
    /// Where the page that is on its way starts (ends, when reverse).
    edge: Option<Bytes>,
    coming: Option<Coming>,
    /// After the first page: where the second one starts. It is asked for when it is wanted; those behind it early.
    second: Option<Bytes>,
    given: usize,
    rows_max: usize,
    /// For an index: what the transaction has written in the range, in order, not given yet.
    written: VecDeque<(Bytes, Stored)>,
    /// The upper part of the range, when it was cut in two: for another stream.
    upper: Option<KeyBytes>,
}

/// Rows that were read.
enum Found {
    /// As a page gave them, with the columns that are decoded first.
    Packed(Rows, Vec<Arc<Column>>),
    /// One by one, or with rows of the transaction among them.
    Loose(Vec<Stored>),
}

enum Coming {
    Here(Result<Page>),
    Waiting(Reply<Page>),
    /// Being read and decoded by a task of its own, which ends with this.
    Decoding(JoinSet<Result<Decoded>>),
}

/// A page with the columns that are decoded first.
struct Decoded {
    page: Page,
    columns: Vec<Arc<Column>>,
}

/// How rows are decoded.
struct Decode {
    decoder: Decoder,
    /// The columns that are decoded first: those of the filter, or all.
    first: Vec<usize>,
}

impl Decode {
    fn first_columns<R: Source + ?Sized>(
        &self,
        partition: &PartitionId,
        rows: &R,
    ) -> Result<Vec<Arc<Column>>> {
        self.decoder.columns_of(partition, rows, self.first.iter().copied(), None)
    }
}

impl Scan {
    pub(super) fn new(plan: &plan::Scan, runtime: &Runtime) -> Self {
        let filter = plan.filter.as_ref().map(|filter| Filter::new(filter, plan.columns.len()));
        Self {
            runtime: runtime.clone(),
            decoder: Arc::new(Decode {
                decoder: Decoder::new(&plan.table, &plan.columns),
                first: filter
                    .as_ref()
                    .map_or((0..plan.columns.len()).collect(), |filter| filter.reads.clone()),
            }),
            filter,
            plan: plan.clone(),
            work: None,
            current: VecDeque::new(),
        }
    }

    fn index(&self) -> Option<IndexId> {
        match &self.plan.access {
            Access::Full { index } | Access::Range { index, .. } | Access::Keys { index, .. } => *index,
        }
    }

    async fn begin(&mut self) -> Result<VecDeque<Work>> {
        let table = &self.plan.table;
        let partitions = partitions(&self.runtime, table, &self.plan.partitions).await?;
        let parts = parts_of(table, self.index())?;
        self.runtime.note(|node| node.partitions += partitions.len() as u64);
        let mut work = VecDeque::new();
        for partition in partitions {
            match &self.plan.access {
                Access::Full { .. } => work.push_back(Work::Range(partition, KeyBytes::all())),
                Access::Range { range, .. } => {
                    let range = key_range(&self.runtime, parts, range)?;
                    if let Some(range) = range.filter(|range| !range.is_empty()) {
                        work.push_back(Work::Range(partition, range));
                    }
                }
                Access::Keys { index, keys } => self.begin_keys(partition, *index, parts, keys, &mut work)?,
            }
        }
        Ok(work)
    }

    fn begin_keys(
        &self,
        partition: PartitionId,
        index: Option<IndexId>,
        parts: &[IndexPart],
        keys: &plan::Keys,
        work: &mut VecDeque<Work>,
    ) -> Result<()> {
        let mut keys = whole_keys(&self.runtime, parts, keys)?;
        if self.plan.ordered {
            keys.sort();
            if self.plan.reverse {
                keys.reverse();
            }
        }
        let table = &self.plan.table;
        let unique = index.is_none_or(|id| table.find_index(id).is_some_and(|index| index.unique));
        let written = index.is_some() && self.runtime.statement.overlay.touches(table.id);
        if !unique || written {
            for key in keys {
                work.push_back(Work::Range(partition.clone(), KeyBytes::of_prefix(key.to_vec())));
            }
            return Ok(());
        }
        while !keys.is_empty() {
            let rest = keys.split_off(keys.len().min(KEYS_PER_GET));
            work.push_back(Work::Keys(partition.clone(), keys));
            keys = rest;
        }
        Ok(())
    }

    /// The next stored rows, with their partition; none at the end.
    async fn next_rows(&mut self) -> Result<Option<(PartitionId, Found)>> {
        if self.work.is_none() {
            self.work = Some(self.begin().await?);
        }
        let index = self.index();
        loop {
            self.runtime.pace().await?;
            let streams = if self.plan.ordered { 1 } else { STREAMS };
            while self.current.len() < streams
                && let Some(Work::Range(..)) = self.work.as_ref().and_then(VecDeque::front)
                && let Some(Work::Range(partition, range)) = self.work.as_mut().and_then(VecDeque::pop_front)
            {
                self.current.push_back(
                    Pages::open(&self.runtime, &self.plan, &self.decoder, partition, range).await?,
                );
            }
            if let Some(mut pages) = self.current.pop_front() {
                let rows = pages.next(&self.runtime, &self.plan, &self.decoder, index).await?;
                let partition = pages.partition.clone();
                if rows.is_some() {
                    if let Some(upper) = pages.upper.take()
                        && let Some(work) = &mut self.work
                    {
                        work.push_front(Work::Range(partition.clone(), upper));
                    }
                    self.current.push_back(pages);
                }
                match rows {
                    Some(rows) => return Ok(Some((partition, rows))),
                    None => continue,
                }
            }
            match self.work.as_mut().and_then(VecDeque::pop_front) {
                None => return Ok(None),
                Some(Work::Range(partition, range)) => {
                    self.current.push_back(
                        Pages::open(&self.runtime, &self.plan, &self.decoder, partition, range).await?,
                    );
                }
                Some(Work::Keys(partition, keys)) => {
                    let rows = self.get(&partition, keys).await?;
                    return Ok(Some((partition, Found::Loose(rows))));
                }
            }
        }
    }

    async fn get(&mut self, partition: &PartitionId, keys: Vec<Bytes>) -> Result<Vec<Stored>> {
        let rows = look_up(&self.runtime, &self.plan.table, self.index(), partition, keys).await?;
        Ok(rows.into_iter().flatten().collect())
    }
}

/// Rows by keys of the primary key, or of a unique index of a table that the transaction has not written; one place per
/// key.
pub(super) async fn look_up(
    runtime: &Runtime,
    table: &Table,
    index: Option<IndexId>,
    partition: &PartitionId,
    keys: Vec<Bytes>,
) -> Result<Vec<Option<Stored>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let (statement, table) = (&runtime.statement, table.id);
    let point = statement.read_point(partition).await?;
    let at = At::Point(point.clone());
    let answers = statement.dispatch.get_many(partition, table, index, keys.clone(), &at).await?;
    let mut rows = Vec::with_capacity(keys.len());
    for (key, answer) in keys.into_iter().zip(answers) {
        if statement.notes_reads() {
            let revision = match &answer {
                Some(stored) => Some(revision_of(&stored.row)?),
                None => None,
            };
            match index {
                None => statement.note_row_read(partition, table, key.clone(), revision, point.revision),
                Some(_) => statement.note_table_read(partition, table, point.revision),
            }
        }
        let written = if index.is_none() { statement.overlay.get(partition, table, &key) } else { None };
        rows.push(match written {
            Some(row) => row.map(|row| Stored { key, row: row.clone() }),
            None => answer,
        });
    }
    Ok(rows)
}

fn index_of(access: &Access) -> Option<IndexId> {
    match access {
        Access::Full { index } | Access::Range { index, .. } | Access::Keys { index, .. } => *index,
    }
}

fn revision_of(row: &[u8]) -> Result<model::id::Revision> {
    let view =
        RowView::new(row).map_err(|fault| Error::new(model::Code::DataCorrupted, fault.to_string()))?;
    Ok(model::id::Revision(view.revision()))
}

impl Operator for Scan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                let Some((partition, rows)) = self.next_rows().await? else { return Ok(None) };
                if rows.is_empty() {
                    continue;
                }
                let count = rows.len();
                let bytes = if self.runtime.statistics.is_some() { rows.bytes() } else { 0 };
                let batch = match rows {
                    Found::Packed(rows, read) => self.keep(&partition, &rows, read).await?,
                    Found::Loose(rows) => {
                        let rows = rows.as_slice();
                        let read = self.decoder.first_columns(&partition, rows)?;
                        self.keep(&partition, rows, read).await?
                    }
                };
                self.runtime.note(|node| {
                    node.rows_removed += (count - batch.len()) as u64;
                    node.bytes_read += bytes;
                });
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            }
        })
    }
}

impl Scan {
    /// The rows that the filter keeps, whole.
    async fn keep<R: Source + Sync + ?Sized>(
        &mut self,
        partition: &PartitionId,
        rows: &R,
        read: Vec<Arc<Column>>,
    ) -> Result<Batch> {
        match &mut self.filter {
            None => Ok(Batch::new(read, rows.count())),
            Some(filter) => filter.decode(&self.runtime, &self.decoder.decoder, partition, rows, read).await,
        }
    }
}

impl Found {
    fn len(&self) -> usize {
        match self {
            Self::Packed(rows, _) => rows.len(),
            Self::Loose(rows) => rows.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the rows without their keys.
    fn bytes(&self) -> u64 {
        match self {
            Self::Packed(rows, _) => (0..rows.len()).map(|row| rows.row(row).len() as u64).sum(),
            Self::Loose(rows) => rows.iter().map(|stored| stored.row.len() as u64).sum(),
        }
    }
}

impl Pages {
    async fn open(
        runtime: &Runtime,
        plan: &plan::Scan,
        decoder: &Arc<Decode>,
        partition: PartitionId,
        range: KeyBytes,
    ) -> Result<Self> {
        let statement = &runtime.statement;
        let point = statement.read_point(&partition).await?;
        statement.note_table_read(&partition, plan.table.id, point.revision);
        let index = index_of(&plan.access);
        let written = match index {
            Some(index) if statement.overlay.touches(plan.table.id) => {
                written_in_order(runtime, &plan.table, &partition, index, &range, plan.reverse)?
            }
            _ => VecDeque::new(),
        };
        let mut pages = Self {
            partition,
            point,
            range,
            edge: None,
            coming: None,
            second: None,
            given: 0,
            rows_max: FIRST_PAGE_ROWS,
            written,
            upper: None,
        };
        pages.ask(runtime, plan, decoder, index, None).await;
        Ok(pages)
    }

    /// Sends for the page at `edge`, none for the first one.
    async fn ask(
        &mut self,
        runtime: &Runtime,
        plan: &plan::Scan,
        decoder: &Arc<Decode>,
        index: Option<IndexId>,
        edge: Option<Bytes>,
    ) {
        let (mut from, mut to) = (self.range.from.clone(), self.range.to.clone());
        if let Some(edge) = &edge {
            if plan.reverse { to = Some(edge.clone()) } else { from = edge.clone() }
        }
        self.edge = edge;
        let mut reply = runtime.statement.dispatch.scan(read::Scan {
            partition: self.partition.clone(),
            table: plan.table.id,
            index,
            from,
            to,
            reverse: plan.reverse,
            rows_max: self.rows_max,
            bytes_max: PAGE_BYTES,
            at: At::Point(self.point.clone()),
        });
        self.rows_max = (self.rows_max * 4).min(PAGE_ROWS);
        let beside = self.given > 0
            && !runtime.statement.overlay.touches(plan.table.id)
            && tokio::runtime::Handle::try_current().is_ok();
        if beside {
            self.coming = Some(self.decode_beside(reply, decoder));
            return;
        }
        // One poll sets the work going; its result is looked at when the page is needed.
        self.coming = Some(match futures::poll!(&mut reply) {
            std::task::Poll::Ready(page) => Coming::Here(page),
            std::task::Poll::Pending => Coming::Waiting(reply),
        });
    }

    /// Has a page read and decoded while others are used.
    fn decode_beside(&self, reply: Reply<Page>, decoder: &Arc<Decode>) -> Coming {
        let (partition, decoder) = (self.partition.clone(), Arc::clone(decoder));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let page = reply.await?;
            let columns = decoder.first_columns(&partition, &page.rows)?;
            Ok(Decoded { page, columns })
        });
        Coming::Decoding(task)
    }

    async fn next(
        &mut self,
        runtime: &Runtime,
        plan: &plan::Scan,
        decoder: &Arc<Decode>,
        index: Option<IndexId>,
    ) -> Result<Option<Found>> {
        if let Some(second) = self.second.take() {
            self.ask(runtime, plan, decoder, index, Some(second)).await;
        }
        let (page, columns) = match self.coming.take() {
            None => return Ok(None),
            Some(Coming::Here(page)) => (page?, None),
            Some(Coming::Waiting(reply)) => (reply.await?, None),
            Some(Coming::Decoding(mut task)) => {
                let ended = task.join_next().await.ok_or_else(|| Error::internal("a page has no task"))?;
                let fault = |fault| Error::internal("a page was not decoded").with_source(fault);
                let decoded = ended.map_err(fault)??;
                (decoded.page, Some(decoded.columns))
            }
        };
        let here = self.edge.take();
        self.given += 1;
        match (&page.next, self.given) {
            (Some(next), 1) => self.second = Some(next.clone()),
            (Some(next), given) => {
                if given == PAGES_BEFORE_CUT && !plan.ordered && !plan.reverse && index.is_none() {
                    self.cut(runtime, plan, next).await?;
                }
                self.ask(runtime, plan, decoder, index, Some(next.clone())).await;
            }
            (None, _) => {}
        }
        let overlay = &runtime.statement.overlay;
        if !overlay.touches(plan.table.id) {
            let columns = match columns {
                Some(columns) => columns,
                None => decoder.first_columns(&self.partition, &page.rows)?,
            };
            return Ok(Some(Found::Packed(page.rows, columns)));
        }
        let rows = match index {
            None => self.merge_primary(runtime, plan, page, here),
            Some(index) => self.merge_index(runtime, plan, page, index)?,
        };
        Ok(Some(Found::Loose(rows)))
    }

    /// Cuts what is left of the range in two, if there is a key between its ends.
    async fn cut(&mut self, runtime: &Runtime, plan: &plan::Scan, from: &Bytes) -> Result<()> {
        let last = runtime.statement.dispatch.scan(read::Scan {
            partition: self.partition.clone(),
            table: plan.table.id,
            index: None,
            from: from.clone(),
            to: self.range.to.clone(),
            reverse: true,
            rows_max: 1,
            bytes_max: 1,
            at: At::Point(self.point.clone()),
        });
        let Some(last) = last.await?.rows.iter().next() else { return Ok(()) };
        if let Some(middle) = middle(&plan.table, from, &last.key) {
            let to = self.range.to.replace(middle.clone());
            self.upper = Some(KeyBytes { from: middle, to });
        }
        Ok(())
    }

    fn merge_primary(
        &self,
        runtime: &Runtime,
        plan: &plan::Scan,
        page: Page,
        here: Option<Bytes>,
    ) -> Vec<Stored> {
        let place = (self.partition.clone(), plan.table.id);
        let (low, high) = if plan.reverse { (page.next.clone(), here) } else { (here, page.next.clone()) };
        let from = low.unwrap_or_else(|| self.range.from.clone());
        let to = high.or_else(|| self.range.to.clone());
        let upper = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_ref()));
        runtime.statement.overlay.merge(
            &place,
            page.rows.iter().collect(),
            Bound::Included(&from),
            upper,
            plan.reverse,
        )
    }

    /// Stored rows that were written are left out; written rows come where their index keys stand.
    fn merge_index(
        &mut self,
        runtime: &Runtime,
        plan: &plan::Scan,
        page: Page,
        index: IndexId,
    ) -> Result<Vec<Stored>> {
        let overlay = &runtime.statement.overlay;
        let table = &plan.table;
        let parts = parts_of(table, Some(index))?;
        let mut rows = Vec::with_capacity(page.rows.len());
        for stored in page.rows.iter() {
            if overlay.get(&self.partition, table.id, &stored.key).is_some() {
                continue;
            }
            if !self.written.is_empty() {
                let key = index_key(table, parts, &stored)?;
                while let Some((written, _)) = self.written.front()
                    && if plan.reverse { *written > key } else { *written < key }
                {
                    rows.extend(self.written.pop_front().map(|(_, row)| row));
                }
            }
            rows.push(stored);
        }
        if page.next.is_none() {
            rows.extend(self.written.drain(..).map(|(_, row)| row));
        }
        Ok(rows)
    }
}

/// Some key bytes between two keys, about in the middle: by value where the first column is an integer, else by bytes.
fn middle(table: &Table, from: &Bytes, last: &Bytes) -> Option<Bytes> {
    let middle = middle_by_value(table, from, last).or_else(|| middle_by_bytes(from, last))?;
    (*from < middle && middle <= *last).then_some(middle)
}

fn middle_by_value(table: &Table, from: &[u8], last: &[u8]) -> Option<Bytes> {
    let part = table.key()?.parts.first()?;
    let ty = table.column(part.column).data_type;
    let first = |bytes: &[u8]| {
        key::decode_prefix(bytes, &[ty], &[part.order])
            .ok()
            .and_then(|(values, _)| values.first().and_then(Value::as_i64))
    };
    let (low, high) = (first(from)?, first(last)?);
    let middle = low.checked_add(high.checked_sub(low)? / 2)?;
    let mut bytes = Vec::new();
    key::encode_part(&mut bytes, &Value::Int8(middle), part.order).ok()?;
    Some(bytes.into())
}

fn middle_by_bytes(from: &[u8], last: &[u8]) -> Option<Bytes> {
    let shared = from.iter().zip(last).take_while(|(a, b)| a == b).count();
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        let rest = &bytes[shared..bytes.len().min(shared + 8)];
        word[..rest.len()].copy_from_slice(rest);
        u64::from_be_bytes(word)
    };
    let (low, high) = (word(from), word(last));
    let middle = low + high.checked_sub(low)? / 2;
    Some([&from[..shared], &middle.to_be_bytes()].concat().into())
}

/// The rows that the transaction has written and whose index keys lie in a range, in the order of the index.
fn written_in_order(
    runtime: &Runtime,
    table: &Table,
    partition: &PartitionId,
    index: IndexId,
    range: &KeyBytes,
    reverse: bool,
) -> Result<VecDeque<(Bytes, Stored)>> {
    let parts = parts_of(table, Some(index))?;
    let predicate = table.find_index(index).and_then(|index| index.predicate);
    let mut written = Vec::new();
    for (key, entry) in runtime.statement.overlay.table(partition, table.id).into_iter().flatten() {
        let Some(row) = &entry.row else { continue };
        let stored = Stored { key: key.clone(), row: row.clone() };
        if let Some(predicate) = predicate
            && column_of(table, &stored.row, predicate)?.as_bool() != Some(true)
        {
            continue;
        }
        let key = index_key(table, parts, &stored)?;
        if range.contains(&key) {
            written.push((key, stored));
        }
    }
    written.sort_by(|a, b| a.0.cmp(&b.0));
    if reverse {
        written.reverse();
    }
    Ok(written.into())
}

/// The bytes of a row's index key, followed by the row's own key so that equal ones have an order.
fn index_key(table: &Table, parts: &[IndexPart], stored: &Stored) -> Result<Bytes> {
    let mut bytes = Vec::new();
    for part in parts {
        let value = column_of(table, &stored.row, part.column)?;
        key::encode_part(&mut bytes, &value, part.order)
            .map_err(|fault| Error::internal(fault.to_string()))?;
    }
    bytes.extend_from_slice(&stored.key);
    Ok(bytes.into())
}

/// One column of a stored row.
pub(crate) fn column_of(table: &Table, row: &[u8], number: model::id::ColumnNumber) -> Result<Value> {
    let damaged = |fault: model::row::RowError| Error::new(model::Code::DataCorrupted, fault.to_string());
    let column = table.column(number);
    let view = RowView::new(row).map_err(damaged)?;
    let value = view.column(usize::from(number.0) - 1, column.data_type).map_err(damaged)?;
    Ok(value.unwrap_or_else(|| column.missing.clone().unwrap_or_default()))
}

/// All columns of a stored row, by number.
pub(crate) fn whole_row(table: &Table, row: &[u8]) -> Result<Vec<Value>> {
    table.columns.iter().map(|column| column_of(table, row, column.number)).collect()
}
