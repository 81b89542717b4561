//! COPY FROM: rows of fields into a table.
//!
//! Invariants:
//! - Values are read by their columns' own input; a column that is not named gets its default; generated columns are
//!   computed; constraints are asked as for INSERT.
//! - Rows go in by batches. If a batch is refused its rows are tried one by one, so that the error names the line.
//! - With `atomic = off` the session may commit what is buffered whenever [`CopyFrom::is_full`] says so.

use std::sync::Arc;

use model::{
    Code, Error, Result, Type,
    command::{ENTRY_BYTES_MAX, ENTRY_WRITES_MAX},
    id::{ColumnNumber, PartitionId},
    load::PART_BYTES,
    schema::{ColumnDefault, Table},
    types::Typmod,
    value::{self, binary, text_io},
};

use super::{Fields, Format, Options, Splitter, stage::Stage};
use crate::{
    batch::{Batch, Column, Data},
    dml::Inserter,
    execute::{Expressions, Runtime},
    txn,
};

/// Rows that are put in together.
const BATCH_ROWS: usize = 1_000;
/// Bytes of input whose rows are put in together.
const BATCH_BYTES: usize = 4 << 20;
/// How much of a line or value an error shows.
const SHOWN_CHARACTERS_MAX: usize = 100;

/// A COPY FROM that is going on.
pub struct CopyFrom {
    runtime: Runtime,
    table: Arc<Table>,
    options: Options,
    splitter: Splitter,
    fields: Fields,
    inserter: Inserter,
    targets: Vec<TargetColumn>,
    /// What fills the columns that are not named: place and expression.
    defaults: Vec<(usize, Expressions)>,
    context: value::Context,
    made: Vec<Column>,
    held: Held,
    rows: u64,
    /// Whether rows may be staged at their owner before the command.
    may_stage: bool,
    stage: Option<Stage>,
}

/// A column that is read.
struct TargetColumn {
    place: usize,
    name: String,
    ty: Type,
    typmod: Typmod,
}

/// Lines of the rows that wait to be put in.
#[derive(Default)]
struct Held {
    lines: Vec<u64>,
    /// How many bytes they were read from.
    bytes: usize,
    /// What an error would show of them.
    raw: Vec<u8>,
    ends: Vec<usize>,
}

impl CopyFrom {
    /// Reads rows of these columns of a table.
    pub fn new(
        table: &Arc<Table>,
        columns: &[ColumnNumber],
        options: &Options,
        runtime: &Runtime,
    ) -> Result<Self> {
        let mut targets = Vec::with_capacity(columns.len());
        for number in columns {
            let column = table.column(*number);
            if matches!(column.default, Some(ColumnDefault::Generated(_))) {
                return Err(Error::new(
                    Code::InvalidColumnReference,
                    format!("column \"{}\" is a generated column", column.name),
                )
                .with_detail("Generated columns cannot be used in COPY."));
            }
            targets.push(TargetColumn {
                place: usize::from(number.0) - 1,
                name: column.name.clone(),
                ty: column.data_type,
                typmod: column.typmod,
            });
        }
        let mut defaults = Vec::new();
        for column in table.visible_columns().filter(|column| !columns.contains(&column.number)) {
            if let Some(default) = runtime.rules.default(table, column.number)? {
                defaults.push((usize::from(column.number.0) - 1, Expressions::new(&[default], 0)));
            }
        }
        let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
        let context = runtime.context.lock().text.clone();
        Ok(Self {
            splitter: Splitter::new(options, &names),
            fields: Fields::default(),
            inserter: Inserter::new(table, &runtime.rules.rules(table)?, runtime),
            made: targets.iter().map(|target| Column::with_capacity(target.ty, BATCH_ROWS)).collect(),
            held: Held::default(),
            defaults,
            targets,
            context,
            rows: 0,
            may_stage: false,
            stage: None,
            options: options.clone(),
            table: Arc::clone(table),
            runtime: runtime.clone(),
        })
    }

    /// Lets rows be staged at their owner before the command that adds them, once there are many: the caller then executes
    /// that load. Only a COPY that stands alone and is one command can do so, and nothing but keys may have to be judged.
    pub fn allow_staging(&mut self) {
        self.may_stage = self.options.atomic
            && !self.runtime.statement.locks_rows()
            && self.runtime.statement.dispatch.takes_loads()
            && self.table.partition_by.is_empty()
            && self.table.foreign_keys.is_empty();
    }

    /// What was staged, to be executed.
    pub fn take_stage(&mut self) -> Option<Stage> {
        self.stage.take()
    }

    /// Takes in a chunk.
    pub async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        self.splitter.feed(chunk)?;
        self.take_rows().await
    }

    /// No chunk follows: puts in what is left. Answers how many rows there were.
    pub async fn finish(&mut self) -> Result<u64> {
        self.splitter.finish();
        self.take_rows().await?;
        self.put().await?;
        self.inserter.finish().await?;
        if let Some(stage) = &mut self.stage {
            stage.finish().await?;
        }
        Ok(self.rows)
    }

    /// Rows put in so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether so much is buffered that, with `atomic = off`, it should be committed now.
    pub fn is_full(&self) -> bool {
        let statement = &self.runtime.statement;
        !self.options.atomic
            && (statement.with_writes(|writes| writes.bytes()) >= ENTRY_BYTES_MAX / 2
                || self.inserter.rows_since_commit() + BATCH_ROWS as u64 > ENTRY_WRITES_MAX as u64)
    }

    /// Tells that what was buffered is committed.
    pub async fn committed(&mut self) -> Result<()> {
        self.inserter.finish().await?;
        self.inserter.begin_commit();
        Ok(())
    }

    async fn take_rows(&mut self) -> Result<()> {
        loop {
            let more = self.splitter.next(&mut self.fields).map_err(|error| self.at_line(error))?;
            if !more {
                return Ok(());
            }
            self.read_row()?;
            if self.held.lines.len() >= BATCH_ROWS || self.held.bytes >= BATCH_BYTES {
                self.put().await?;
            }
        }
    }

    fn read_row(&mut self) -> Result<()> {
        let (fields, targets) = (&self.fields, &self.targets);
        if fields.len() > targets.len() {
            let empty = targets.is_empty() && fields.len() == 1 && fields.get(0).is_none_or(<[u8]>::is_empty);
            if !empty {
                let error = Error::new(Code::BadCopyFileFormat, "extra data after last expected column");
                return Err(self.at_line(error));
            }
        }
        let mut fault = None;
        for (index, (column, target)) in self.made.iter_mut().zip(targets).enumerate() {
            if index >= fields.len() {
                let message = format!("missing data for column \"{}\"", target.name);
                return Err(self.at_line(Error::new(Code::BadCopyFileFormat, message)));
            }
            let read = read_field(column, target, fields.get(index), self.options.format, &self.context);
            if let Err(error) = read {
                fault = Some((index, error));
                break;
            }
        }
        if let Some((index, error)) = fault {
            return Err(self.at_column(error, index));
        }
        self.held.lines.push(self.splitter.line());
        self.held.bytes += self.splitter.raw().len();
        self.held.raw.extend_from_slice(shown_bytes(self.splitter.raw()));
        self.held.ends.push(self.held.raw.len());
        Ok(())
    }

    /// Puts in the rows that wait.
    async fn put(&mut self) -> Result<()> {
        self.runtime.pace().await?;
        let count = self.held.lines.len();
        if count == 0 {
            return Ok(());
        }
        let fresh: Vec<Column> =
            self.targets.iter().map(|target| Column::with_capacity(target.ty, BATCH_ROWS)).collect();
        let made = std::mem::replace(&mut self.made, fresh);
        let held = std::mem::take(&mut self.held);
        let rows = self.whole_rows(made, count).await?;
        let put = match &mut self.stage {
            Some(stage) => self.inserter.stage(rows.clone(), &mut stage.rows).await,
            None => self.inserter.insert(rows.clone()).await.map(drop),
        };
        if let Err(error) = put {
            return Err(self.name_line(error, &rows, &held).await);
        }
        self.rows += count as u64;
        if let Some(stage) = &mut self.stage {
            txn::check_size(stage.bytes(), self.runtime.transaction_bytes_max)?;
            return stage.send_full().await;
        }
        if self.may_stage && self.runtime.statement.with_writes(|writes| writes.bytes()) >= PART_BYTES {
            return self.begin_staging().await;
        }
        crate::dml::check_size(&self.runtime)
    }

    /// What is buffered goes to the owner, and what follows too.
    async fn begin_staging(&mut self) -> Result<()> {
        let (statement, table) = (&self.runtime.statement, self.table.id);
        let partition = PartitionId::default_of(self.table.database, self.table.schema);
        let mut stage = Stage::begin(&statement.dispatch, partition, table, &self.runtime.budget).await?;
        let (_, rows) = statement.take_writes().into_parts();
        for (_, key, entry) in rows {
            let row = entry.row.ok_or_else(|| Error::internal("a COPY removed a row"))?;
            stage.rows.push(&key, |out| {
                out.extend_from_slice(&row);
                Ok::<_, Error>(())
            })?;
        }
        stage.send_full().await?;
        self.stage = Some(stage);
        Ok(())
    }

    async fn whole_rows(&mut self, made: Vec<Column>, count: usize) -> Result<Batch> {
        let nothing = Batch::new(Vec::new(), count);
        let mut columns: Vec<Option<Arc<Column>>> = vec![None; self.table.columns.len()];
        for (target, column) in self.targets.iter().zip(made) {
            columns[target.place] = Some(Arc::new(column));
        }
        for (place, default) in &mut self.defaults {
            columns[*place] = default.columns(&self.runtime, &nothing).await?.pop();
        }
        let types = self.table.column_types();
        let whole = columns.into_iter().zip(types).map(|(column, ty)| {
            column.unwrap_or_else(|| {
                let mut nulls = Column::with_capacity(ty, count);
                nulls.push_nulls(count);
                Arc::new(nulls)
            })
        });
        Ok(Batch::new(whole.collect(), count))
    }

    /// Finds the row that was refused, and names its line. Where no row is known to be the one, no line is named.
    async fn name_line(&mut self, error: Error, rows: &Batch, held: &Held) -> Error {
        if let Some(row) = self.inserter.take_refused() {
            // As in PostgreSQL the line itself is not shown: it was read some time ago.
            return error.with_context(format!("COPY {}, line {}", self.table.name, held.lines[row]));
        }
        let data_fault = matches!(
            error.code(),
            Code::NotNullViolation | Code::CheckViolation | Code::ProgramLimitExceeded
        );
        if !data_fault {
            return error;
        }
        for row in 0..rows.len() {
            if self.inserter.judge(rows.slice(row, 1)).await.is_err() {
                return self.with_line(error, held.lines[row], held.raw(row));
            }
        }
        error
    }

    fn with_line(&self, error: Error, line: u64, raw: &[u8]) -> Error {
        let place = format!("COPY {}, line {line}", self.table.name);
        if self.options.format == Format::Binary {
            return error.with_context(place);
        }
        error.with_context(format!("{place}: \"{}\"", shown(raw)))
    }

    fn at_line(&self, error: Error) -> Error {
        self.with_line(error, self.splitter.line(), self.splitter.raw())
    }

    fn at_column(&self, error: Error, index: usize) -> Error {
        let place = format!(
            "COPY {}, line {}, column {}",
            self.table.name,
            self.splitter.line(),
            self.targets[index].name
        );
        match self.fields.get(index) {
            Some(field) if self.options.format != Format::Binary => {
                error.with_context(format!("{place}: \"{}\"", shown(field)))
            }
            Some(_) => error.with_context(place),
            None => error.with_context(format!("{place}: null input")),
        }
    }
}

impl Held {
    fn raw(&self, row: usize) -> &[u8] {
        let from = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.raw[from..self.ends[row]]
    }
}

/// Reads a field as a value of its column. The plain spellings of common types need no detour.
fn read_field(
    column: &mut Column,
    target: &TargetColumn,
    field: Option<&[u8]>,
    format: Format,
    context: &value::Context,
) -> Result<()> {
    let Some(bytes) = field else {
        column.push_null();
        return Ok(());
    };
    if format == Format::Binary {
        let value = binary::decode_binary(target.ty, bytes)?;
        let value = text_io::apply_typmod(value, target.ty, target.typmod, false)?;
        column.push_value(&value);
        return Ok(());
    }
    if target.ty.is_integer()
        && let Some(int) = plain_int(bytes, target.ty)
    {
        column.push_int(int);
        return Ok(());
    }
    let text = std::str::from_utf8(bytes).map_err(|fault| {
        let from = fault.valid_up_to();
        let length = fault.error_len().unwrap_or(bytes.len() - from).max(1);
        value::ValueError::invalid_utf8(&bytes[from..from + length])
    })?;
    if matches!(column.data(), Data::Text(_))
        && (target.ty == Type::Text || (target.ty == Type::Varchar && target.typmod.is_none()))
        && !bytes.contains(&0)
    {
        column.push_bytes(bytes);
        return Ok(());
    }
    column.push_value(&text_io::parse(target.ty, target.typmod, text, context)?);
    Ok(())
}

/// An integer of digits with or without a minus that fits its type; others are left to the type's input.
fn plain_int(bytes: &[u8], ty: Type) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value: i64 = 0;
    for digit in digits {
        value = value * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    let value = if negative { -value } else { value };
    let fits = match ty {
        Type::Int2 => i16::try_from(value).is_ok(),
        Type::Int4 => i32::try_from(value).is_ok(),
        _ => true,
    };
    fits.then_some(value)
}

fn shown_bytes(raw: &[u8]) -> &[u8] {
    &raw[..raw.len().min(4 * SHOWN_CHARACTERS_MAX + 4)]
}

/// As much of a line as an error shows.
fn shown(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        None => text.into_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}
