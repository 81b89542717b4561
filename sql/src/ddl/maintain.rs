//! What touches rows of tables as a whole: emptying, ANALYZE, LOCK TABLE, and statements that DDL runs by itself.

use std::{collections::HashSet, sync::Arc};

use model::{
    Code, Error, Result, Value,
    id::{PartitionId, SequenceId, TableId},
    port::{LockMode, Lockable, Wait},
    read::{At, Scan},
    row::RowView,
    schema::Table,
};

use crate::{
    execute::Cancel,
    session::Session,
    stats::{ColumnStatistics, TableStatistics},
};

/// How many rows ANALYZE looks at in a partition.
const SAMPLE_ROWS_MAX: usize = 30_000;

/// How many partitions ANALYZE looks at.
const SAMPLE_PARTITIONS_MAX: usize = 16;

impl Session {
    /// Whether a table has rows, in any partition.
    pub(super) async fn has_rows(&mut self, table: &Table) -> Result<bool> {
        let text = format!("SELECT 1 FROM {} LIMIT 1", self.qualified(table));
        Ok(self.run_alone(&text, &Cancel::new()).await? > 0)
    }

    /// `setval` of a sequence that starts over.
    pub(super) async fn restart_sequence(&mut self, id: SequenceId, value: i64) -> Result<()> {
        self.set_sequence(id, value).await
    }

    /// ANALYZE.
    pub(crate) async fn analyze(&mut self, paths: &[Vec<String>], cancel: &Cancel) -> Result<()> {
        let names = self.current_names();
        let mut tables: Vec<Arc<Table>> = Vec::new();
        if paths.is_empty() {
            let database = self.database_id();
            tables.extend(names.catalog.tables().filter(|table| table.database == database).cloned());
        }
        for path in paths {
            tables.push(names.get_table(path)?);
        }
        for table in tables {
            cancel.check()?;
            self.analyze_table(&table, cancel).await?;
        }
        self.forget_plans();
        Ok(())
    }

    async fn analyze_table(&mut self, table: &Table, cancel: &Cancel) -> Result<()> {
        let dispatch = self.dispatch();
        let partitions = if table.partition_by.is_empty() {
            vec![PartitionId::default_of(table.database, table.schema)]
        } else {
            dispatch.partitions(table.id).await?
        };
        let mut rows = 0;
        for partition in &partitions {
            rows += dispatch.count(partition, table.id, &At::Latest).await?;
        }
        let mut samples: Vec<Sample> = table.columns.iter().map(|_| Sample::default()).collect();
        let mut seen = 0_usize;
        for partition in partitions.iter().take(SAMPLE_PARTITIONS_MAX) {
            let mut from = bytes::Bytes::new();
            let mut read = 0;
            while read < SAMPLE_ROWS_MAX {
                cancel.check()?;
                let scan = Scan {
                    partition: partition.clone(),
                    table: table.id,
                    index: None,
                    from: from.clone(),
                    to: None,
                    reverse: false,
                    rows_max: 1_000,
                    bytes_max: 1 << 20,
                    at: At::Latest,
                };
                let page = dispatch.scan(scan).await?;
                for stored in page.rows.iter() {
                    let view =
                        RowView::new(&stored.row).map_err(|error| Error::internal(error.to_string()))?;
                    for (place, (column, sample)) in table.columns.iter().zip(&mut samples).enumerate() {
                        if column.dropped {
                            continue;
                        }
                        let value = view
                            .column(place, column.data_type)
                            .map_err(|error| Error::internal(error.to_string()))?;
                        sample.add(value.unwrap_or_else(|| column.missing.clone().unwrap_or(Value::Null)));
                    }
                }
                read += page.rows.len();
                match page.next {
                    Some(next) => from = next,
                    None => break,
                }
            }
            seen += read;
        }
        let columns = table.columns.iter().zip(samples).filter(|(column, _)| !column.dropped);
        let columns = columns
            .map(|(column, sample)| (column.number, sample.finish(seen as f64, rows as f64)))
            .collect();
        self.keep_statistics(table.id, TableStatistics { rows: rows as f64, columns });
        Ok(())
    }

    /// LOCK TABLE: strong modes take the table's lock; weak ones, which only keep DDL away, take nothing.
    pub(crate) async fn lock_tables(
        &mut self,
        paths: &[Vec<String>],
        mode: &str,
        nowait: bool,
    ) -> Result<()> {
        if !self.in_transaction_block() {
            return Err(Error::new(
                Code::NoActiveSqlTransaction,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        let names = self.current_names();
        let lock = match mode {
            "access share" | "row share" | "row exclusive" => None,
            "share update exclusive" | "share" | "share row exclusive" => Some(LockMode::Share),
            "exclusive" | "access exclusive" => Some(LockMode::Update),
            other => {
                return Err(Error::new(Code::SyntaxError, format!("syntax error at or near \"{other}\"")));
            }
        };
        for path in paths {
            let table = names.get_table(path)?;
            let may = self.has_right(
                &names.catalog,
                model::access::Object::Table(table.id),
                model::access::Privilege::Update,
                Some(table.owner),
            );
            if !may {
                return Err(Error::new(
                    Code::InsufficientPrivilege,
                    format!("permission denied for table {}", table.name),
                ));
            }
            let Some(lock) = lock else { continue };
            if !table.partition_by.is_empty() {
                return Err(Error::unsupported(
                    "a table with PARTITION BY cannot be locked whole",
                    "Lock its rows with FOR UPDATE.",
                ));
            }
            let partition = PartitionId::default_of(table.database, table.schema);
            let wait = nowait.then_some(Wait::Never);
            let statement = self.begin_statement();
            statement.lock(&partition, vec![(Lockable::Table(table.id), lock)], wait).await?;
        }
        Ok(())
    }

    /// Empties tables in partitions, as one change of each partition.
    pub(super) async fn empty_tables(&mut self, targets: Vec<(PartitionId, TableId)>) -> Result<()> {
        let mut groups: std::collections::BTreeMap<PartitionId, Vec<TableId>> =
            std::collections::BTreeMap::new();
        for (partition, table) in targets {
            groups.entry(partition).or_default().push(table);
        }
        for (partition, tables) in groups {
            self.truncate_in(&partition, &tables).await?;
        }
        if !self.is_transactional() {
            self.use_name();
        }
        Ok(())
    }
}

/// Values of one column.
#[derive(Default)]
struct Sample {
    seen: HashSet<u64>,
    count: usize,
    nulls: usize,
    min: Option<Value>,
    max: Option<Value>,
}

impl Sample {
    fn add(&mut self, value: Value) {
        use std::hash::{DefaultHasher, Hasher};
        self.count += 1;
        if value.is_null() {
            self.nulls += 1;
            return;
        }
        let mut hasher = DefaultHasher::new();
        value.hash_sql(&mut hasher);
        self.seen.insert(hasher.finish());
        if self.min.as_ref().is_none_or(|min| value.cmp_sql(min).is_lt()) {
            self.min = Some(value.clone());
        }
        if self.max.as_ref().is_none_or(|max| value.cmp_sql(max).is_gt()) {
            self.max = Some(value);
        }
    }

    /// What is known, scaled from the rows that were seen to all rows.
    fn finish(self, seen: f64, rows: f64) -> ColumnStatistics {
        let distinct = self.seen.len() as f64;
        // Mostly different in the sample: taken to go on like that.
        let scaled =
            if seen > 0.0 && distinct > seen * 0.1 { distinct * (rows / seen).max(1.0) } else { distinct };
        let nulls = if self.count > 0 { self.nulls as f64 / self.count as f64 } else { 0.0 };
        ColumnStatistics { distinct: scaled.min(rows).max(1.0), nulls, min: self.min, max: self.max }
    }
}
