//! MERGE: for each pair of the source the first clause that fits.
//!
//! A row of the target that two rows of the source would change is `21000`.

use std::sync::Arc;

use hashbrown::HashSet;
use model::{
    Result, Type, Value,
    port::{BoxFuture, LockMode},
    schema::Table,
};

use super::{
    RowWriter, check_size,
    error::second_time,
    foreign::Foreign,
    insert::{claims, put_new},
    target::{Found, Rows, Targets},
    unique::{Unique, UniqueKey},
    update::{Assignments, Change, apply_changes},
};
use crate::{
    batch::Batch,
    execute::{Expressions, Operator, Runtime},
    plan::{self, MergeAction},
};

/// The operator.
pub struct Merge {
    runtime: Runtime,
    node: usize,
    table: Arc<Table>,
    source: Option<Box<dyn Operator>>,
    place: plan::Target,
    targets: Targets,
    clauses: Vec<Clause>,
    writer: RowWriter,
    unique: Unique,
    foreign: Foreign,
    seen: HashSet<Vec<u8>>,
}

struct Clause {
    matched: bool,
    condition: Option<Expressions>,
    action: Action,
}

enum Action {
    Nothing,
    Delete,
    Update(Assignments),
    Insert(Expressions),
}

impl Merge {
    /// Merges the rows of a source.
    pub fn new(
        node: usize,
        plan: &plan::Merge,
        source: Box<dyn Operator>,
        source_types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        let table = &plan.table;
        let width = table.columns.len() + source_types.len();
        let clauses = plan.clauses.iter().map(|clause| Clause {
            matched: clause.matched,
            condition: clause.condition.as_ref().map(|condition| Expressions::condition(condition, width)),
            action: match &clause.action {
                MergeAction::Nothing => Action::Nothing,
                MergeAction::Delete => Action::Delete,
                MergeAction::Update(assignments) => Action::Update(Assignments::new(assignments, width)),
                MergeAction::Insert(values) => Action::Insert(Expressions::new(values, width)),
            },
        });
        Self {
            runtime: runtime.clone(),
            node,
            source: Some(source),
            place: plan.target,
            targets: Targets::new(table, plan.target, LockMode::Update, None, source_types.len(), runtime),
            clauses: clauses.collect(),
            writer: RowWriter::new(table, &plan.rules, runtime),
            unique: Unique::new(table, runtime),
            foreign: Foreign::new(table, runtime),
            seen: HashSet::new(),
            table: Arc::clone(table),
        }
    }

    async fn run(&mut self, mut source: Box<dyn Operator>) -> Result<()> {
        while let Some(batch) = source.next().await? {
            self.runtime.pace().await?;
            let batch = batch.compact();
            for row in 0..batch.len() {
                let one = batch.slice(row, 1).compact();
                if one.is_null(0, self.place.key) {
                    self.not_matched(&one).await?
                } else {
                    self.matched(&one).await?
                }
            }
            check_size(&self.runtime)?;
        }
        self.foreign.finish().await
    }

    /// The number of the first clause that fits.
    async fn choose(&mut self, matched: bool, input: &Batch) -> Result<Option<usize>> {
        for (number, clause) in
            self.clauses.iter_mut().enumerate().filter(|(_, clause)| clause.matched == matched)
        {
            let fits = match &mut clause.condition {
                None => true,
                Some(condition) => !condition.filter(&self.runtime, input.clone()).await?.is_empty(),
            };
            if fits {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    async fn not_matched(&mut self, one: &Batch) -> Result<()> {
        let nulls: Vec<Value> = vec![Value::Null; self.table.columns.len()];
        let absent = Batch::from_rows(&self.table.column_types(), &[nulls]);
        let input = super::beside(&absent, one);
        let Some(number) = self.choose(false, &input).await? else { return Ok(()) };
        let Action::Insert(values) = &mut self.clauses[number].action else { return Ok(()) };
        let columns = values.columns(&self.runtime, &input).await?;
        let rows = self.writer.complete(Batch::new(columns, 1)).await?;
        let made = self.writer.encode(&rows, None)?;
        let keys = claims(&self.unique, &rows, &made)?;
        if self.runtime.statement.locks_rows() {
            let all: Vec<UniqueKey> = keys.iter().flatten().cloned().collect();
            self.unique.look_up(&all, LockMode::Update).await?;
        }
        for (new, keys) in made.iter().zip(&keys) {
            self.unique.refuse_taken(keys, || rows.row(0), None)?;
            put_new(&self.runtime, &self.table, new)?;
            self.unique.note(keys, &new.key);
        }
        self.foreign.note_new(&rows, &made)?;
        self.runtime.count_affected(self.node, 1);
        Ok(())
    }

    async fn matched(&mut self, one: &Batch) -> Result<()> {
        let bytes = |column: usize| {
            one.column(column).as_texts().map(|keys| keys.get(0).to_vec()).unwrap_or_default()
        };
        let mut key = bytes(self.place.partition);
        key.extend(bytes(self.place.key));
        let again = !self.seen.insert(key);
        if again {
            return Err(second_time("MERGE"));
        }
        let Rows { found, input } = self.targets.find(one).await?;
        let Some(Found { partition, stored, base }) = found.into_iter().next() else { return Ok(()) };
        let Some(number) = self.choose(true, &input).await? else { return Ok(()) };
        let columns = self.table.columns.len();
        match &mut self.clauses[number].action {
            Action::Nothing | Action::Insert(_) => return Ok(()),
            Action::Delete => {
                self.runtime.statement.write(&partition, self.table.id, stored.key, base, None)?;
                self.foreign.note_removed(&partition, &input, 0)?;
            }
            Action::Update(assigned) => {
                let after = assigned.apply(&self.runtime, &input, columns).await?;
                let before = input.project(&(0..columns).collect::<Vec<_>>());
                let change = Change { partition, stored, base };
                let (writer, unique, foreign) = (&mut self.writer, &mut self.unique, &mut self.foreign);
                apply_changes(&self.runtime, writer, unique, foreign, &[change], &before, after).await?;
            }
        }
        self.runtime.count_affected(self.node, 1);
        Ok(())
    }
}

impl Operator for Merge {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(source) = self.source.take() {
                self.run(source).await?;
            }
            Ok(None)
        })
    }
}
