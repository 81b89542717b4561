//! DROP, TRUNCATE.

use std::collections::BTreeSet;

use model::{
    Code, Error, Result,
    access::Privilege,
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    id::{PartitionId, TableId},
    schema::{ColumnDefault, Table},
};
use sqlparser::ast;

use super::{changed_table, last};
use crate::{
    bind::{self, Found, unsupported},
    session::Session,
};

impl Session {
    pub(super) async fn drop_objects(&mut self, statement: &ast::Statement) -> Result<String> {
        let ast::Statement::Drop {
            object_type,
            if_exists,
            names,
            cascade,
            restrict: _,
            purge,
            temporary,
            table,
        } = statement
        else {
            return Err(Error::internal("no DROP"));
        };
        if *purge || *temporary || table.is_some() {
            return Err(unsupported("this form of DROP", "See the documentation for what is."));
        }
        let mut paths = Vec::new();
        for name in names {
            paths.push(bind::path_of(name)?);
        }
        let word = match object_type {
            ast::ObjectType::Table => "TABLE",
            ast::ObjectType::View => "VIEW",
            ast::ObjectType::Index => "INDEX",
            ast::ObjectType::Sequence => "SEQUENCE",
            ast::ObjectType::Schema => "SCHEMA",
            other => return Err(unsupported(&format!("DROP {other}"), "See the documentation for what is.")),
        };
        for path in &paths {
            if word == "SCHEMA" {
                self.drop_schema(path, *if_exists, *cascade).await?;
            } else {
                self.drop_relation(word, path, *if_exists, *cascade).await?;
            }
        }
        Ok(format!("DROP {word}"))
    }

    fn missing(&mut self, tolerated: bool, code: Code, kind: &str, name: &str) -> Result<()> {
        if tolerated {
            self.tell(Error::new(code, format!("{kind} \"{name}\" does not exist, skipping")));
            return Ok(());
        }
        Err(Error::new(code, format!("{kind} \"{name}\" does not exist")))
    }

    async fn drop_relation(
        &mut self,
        word: &str,
        path: &[String],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let names = self.current_names();
        let name = last(path);
        let kind = word.to_lowercase();
        let Some(found) = names.find(path)? else {
            let code = if word == "INDEX" { Code::UndefinedObject } else { Code::UndefinedTable };
            return self.missing(if_exists, code, &kind, &path.join("."));
        };
        let mut dropping = Dropping::new(&names.catalog, cascade);
        match (word, &found) {
            ("TABLE", Found::Table(table)) => {
                self.need_owner(&names.catalog, table.owner, "table", &name)?;
                dropping.table(table)?;
            }
            ("VIEW", Found::View(view)) => {
                self.need_owner(&names.catalog, view.owner, "view", &name)?;
                dropping.view(view.id, &view.name)?;
            }
            ("SEQUENCE", Found::Sequence(sequence)) => {
                self.need_owner(&names.catalog, sequence.owner, "sequence", &name)?;
                if let Some((table, number)) = sequence.owned_by
                    && let Some(table) = names.catalog.table(table)
                {
                    let uses = matches!(&table.column(number).default, Some(ColumnDefault::Identity { sequence: at, .. }) if *at == sequence.id);
                    if uses && !cascade {
                        let message =
                            format!("cannot drop sequence {name} because other objects depend on it");
                        let detail = format!(
                            "default value for column {} of table {} depends on sequence {name}",
                            table.column(number).name,
                            table.name
                        );
                        return Err(depends(message, detail));
                    }
                    if uses {
                        let mut after = (**table).clone();
                        after.columns[usize::from(number.0) - 1].default = None;
                        dropping.alter(table, after);
                    }
                }
                for table in names.catalog.tables().filter(|table| table.database == sequence.database) {
                    let mut after = (**table).clone();
                    let mut touched = Vec::new();
                    for column in after.columns.iter_mut().filter(|column| !column.dropped) {
                        let names_it = matches!(&column.default, Some(ColumnDefault::Expression(text)) if names_sequence(text, &name));
                        if names_it {
                            touched.push(column.name.clone());
                            column.default = None;
                        }
                    }
                    let Some(first) = touched.first() else { continue };
                    if !cascade {
                        let message =
                            format!("cannot drop sequence {name} because other objects depend on it");
                        let detail = format!(
                            "default value for column {first} of table {} depends on sequence {name}",
                            table.name
                        );
                        return Err(depends(message, detail));
                    }
                    dropping
                        .cascaded
                        .push(format!("default value for column {first} of table {}", table.name));
                    dropping.alter(table, after);
                }
                dropping.change.drop.push(ObjectId::Sequence(sequence.id));
            }
            ("INDEX", Found::Index(table, id)) => {
                self.need_owner(&names.catalog, table.owner, "index", &name)?;
                let index =
                    table.find_index(*id).ok_or_else(|| Error::internal("an index without a descriptor"))?;
                if index.constraint.is_some() {
                    let message = format!(
                        "cannot drop index {name} because constraint {name} on table {} requires it",
                        table.name
                    );
                    return Err(Error::new(Code::DependentObjectsStillExist, message).with_hint(format!(
                        "You can drop constraint {name} on table {} instead.",
                        table.name
                    )));
                }
                let mut after = (**table).clone();
                let hidden: BTreeSet<_> =
                    index.parts.iter().map(|part| part.column).chain(index.predicate).collect();
                after.indexes.retain(|at| at.id != *id);
                for number in hidden {
                    let used = after.indexes.iter().any(|at| {
                        at.predicate == Some(number) || at.parts.iter().any(|part| part.column == number)
                    });
                    let column = &mut after.columns[usize::from(number.0) - 1];
                    if column.hidden && !used {
                        column.dropped = true;
                        column.default = None;
                    }
                }
                dropping.alter(table, after);
            }
            (_, found) => {
                let message = format!("\"{name}\" is not a{} {kind}", if kind == "index" { "n" } else { "" });
                let is = match found {
                    Found::Table(_) => "TABLE",
                    Found::View(_) => "VIEW",
                    Found::Sequence(_) => "SEQUENCE",
                    Found::Index(..) => "INDEX",
                    Found::System(_) => {
                        let message = format!("permission denied: \"{name}\" is a system catalog");
                        return Err(Error::new(Code::InsufficientPrivilege, message));
                    }
                };
                return Err(Error::new(Code::WrongObjectType, message)
                    .with_hint(format!("Use DROP {is} to remove a {}.", is.to_lowercase())));
            }
        }
        self.told(&dropping);
        let change = dropping.change;
        self.change(change).await?;
        Ok(())
    }

    fn told(&mut self, dropping: &Dropping<'_>) {
        match &dropping.cascaded[..] {
            [] => {}
            [only] => self.tell(Error::new(Code::SuccessfulCompletion, format!("drop cascades to {only}"))),
            many => {
                let error = Error::new(
                    Code::SuccessfulCompletion,
                    format!("drop cascades to {} other objects", many.len()),
                );
                let lines: Vec<String> = many.iter().map(|what| format!("drop cascades to {what}")).collect();
                self.tell(error.with_detail(lines.join("\n")));
            }
        }
    }

    async fn drop_schema(&mut self, path: &[String], if_exists: bool, cascade: bool) -> Result<()> {
        let catalog = self.current_catalog();
        let name = last(path);
        let Some(schema) = catalog.find_schema(self.database_id(), &name).cloned() else {
            return self.missing(if_exists, Code::InvalidSchemaName, "schema", &name);
        };
        self.need_owner(&catalog, schema.owner, "schema", &name)?;
        // A temporary table only lies in the schema's partition: it stays there as long as its session.
        let is_inside =
            |table: &&std::sync::Arc<Table>| table.schema == schema.id && table.temporary.is_none();
        let tables: Vec<_> = catalog.tables().filter(is_inside).cloned().collect();
        let views: Vec<_> = catalog.views().filter(|view| view.schema == schema.id).cloned().collect();
        let sequences: Vec<_> = catalog
            .sequences()
            .filter(|sequence| sequence.schema == schema.id && sequence.owned_by.is_none())
            .cloned()
            .collect();
        if !cascade && (!tables.is_empty() || !views.is_empty() || !sequences.is_empty()) {
            let first = tables
                .first()
                .map(|table| format!("table {name}.{}", table.name))
                .or_else(|| views.first().map(|view| format!("view {name}.{}", view.name)))
                .or_else(|| sequences.first().map(|sequence| format!("sequence {name}.{}", sequence.name)))
                .unwrap_or_default();
            let message = format!("cannot drop schema {name} because other objects depend on it");
            return Err(depends(message, format!("{first} depends on schema {name}")));
        }
        let mut dropping = Dropping::new(&catalog, true);
        for view in &views {
            dropping.cascaded.push(format!("view {}", view.name));
            dropping.view(view.id, &view.name)?;
        }
        for table in &tables {
            dropping.cascaded.push(format!("table {}", table.name));
            dropping.table(table)?;
        }
        for sequence in &sequences {
            dropping.cascaded.push(format!("sequence {}", sequence.name));
            dropping.change.drop.push(ObjectId::Sequence(sequence.id));
        }
        dropping.change.drop.push(ObjectId::Schema(schema.id));
        self.told(&dropping);
        let change = dropping.change;
        self.change(change).await?;
        Ok(())
    }

    pub(super) async fn truncate(&mut self, truncate: &ast::Truncate) -> Result<()> {
        let ast::Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } =
            truncate;
        if partitions.is_some() || *if_exists || on_cluster.is_some() {
            return Err(unsupported(
                "this form of TRUNCATE",
                "TRUNCATE table, … [RESTART IDENTITY] [CASCADE] is.",
            ));
        }
        if self.is_read_only() {
            return Err(Error::new(
                Code::ReadOnlySqlTransaction,
                "cannot execute TRUNCATE TABLE in a read-only transaction",
            ));
        }
        let names = self.current_names();
        let cascade = cascade.as_ref().is_some_and(|at| matches!(at, ast::CascadeOption::Cascade));
        let mut tables: Vec<std::sync::Arc<Table>> = Vec::new();
        for target in table_names {
            let table = names.get_table(&bind::path_of(&target.name)?)?;
            if !self.has_right(
                &names.catalog,
                model::access::Object::Table(table.id),
                Privilege::Truncate,
                Some(table.owner),
            ) {
                return Err(Error::new(
                    Code::InsufficientPrivilege,
                    format!("permission denied for table {}", table.name),
                ));
            }
            tables.push(table);
        }
        let mut at = 0;
        while at < tables.len() {
            let parent = tables[at].clone();
            for child in names.catalog.tables() {
                let refers =
                    child.foreign_keys.iter().any(|key| key.parent == parent.id) && child.id != parent.id;
                if !refers || tables.iter().any(|table| table.id == child.id) {
                    continue;
                }
                if !cascade {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    let detail = format!("Table \"{}\" references \"{}\".", child.name, parent.name);
                    return Err(Error::new(Code::FeatureNotSupported, message)
                        .with_detail(detail)
                        .with_hint(format!(
                            "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                            child.name
                        )));
                }
                self.tell(Error::new(
                    Code::SuccessfulCompletion,
                    format!("truncate cascades to table \"{}\"", child.name),
                ));
                tables.push(child.clone());
            }
            at += 1;
        }
        let mut targets = Vec::new();
        for table in &tables {
            let partitions = if table.partition_by.is_empty() {
                vec![PartitionId::default_of(table.database, table.schema)]
            } else if self.in_transaction_block() {
                let message = format!(
                    "TRUNCATE of table \"{}\" with PARTITION BY cannot run inside a transaction block",
                    table.name
                );
                return Err(Error::unsupported(message, "Run it by itself."));
            } else {
                self.dispatch().partitions(table.id).await?
            };
            targets.extend(partitions.into_iter().map(|partition| (partition, table.id)));
        }
        self.empty_tables(targets).await?;
        if matches!(identity, Some(ast::TruncateIdentityOption::Restart)) {
            for table in &tables {
                let owned: Vec<_> = names
                    .catalog
                    .sequences()
                    .filter(|sequence| sequence.owned_by.is_some_and(|(at, _)| at == table.id))
                    .map(|sequence| (sequence.id, sequence.start))
                    .collect();
                for (id, start) in owned {
                    self.restart_sequence(id, start).await?;
                }
            }
        }
        Ok(())
    }
}

/// What is dropped, and what goes with it.
pub(super) struct Dropping<'c> {
    catalog: &'c Catalog,
    cascade: bool,
    pub(super) change: Change,
    pub(super) cascaded: Vec<String>,
    gone: BTreeSet<TableId>,
}

impl<'c> Dropping<'c> {
    pub(super) fn new(catalog: &'c Catalog, cascade: bool) -> Self {
        Self { catalog, cascade, change: Change::default(), cascaded: Vec::new(), gone: BTreeSet::new() }
    }

    pub(super) fn alter(&mut self, before: &Table, after: Table) {
        let change = changed_table(before, after);
        self.change.expect.extend(change.expect);
        self.change.put.extend(change.put);
    }

    fn table(&mut self, table: &Table) -> Result<()> {
        if !self.gone.insert(table.id) {
            return Ok(());
        }
        self.views_on(table.id, "table", &table.name)?;
        for child in self.catalog.tables() {
            if child.id == table.id || self.gone.contains(&child.id) {
                continue;
            }
            let keys: Vec<_> = child.foreign_keys.iter().filter(|key| key.parent == table.id).collect();
            let Some(first) = keys.first() else { continue };
            if !self.cascade {
                let message = format!("cannot drop table {} because other objects depend on it", table.name);
                return Err(depends(
                    message,
                    format!(
                        "constraint {} on table {} depends on table {}",
                        first.name, child.name, table.name
                    ),
                ));
            }
            for key in &keys {
                self.cascaded.push(format!("constraint {} on table {}", key.name, child.name));
            }
            let mut after = (**child).clone();
            after.foreign_keys.retain(|key| key.parent != table.id);
            self.alter(child, after);
        }
        self.change.put.retain(|object| !matches!(object, Object::Table(at) if at.id == table.id));
        self.change.expect.retain(|(id, _)| *id != ObjectId::Table(table.id));
        self.change.expect.push((ObjectId::Table(table.id), Some(Expected::TableVersion(table.version))));
        self.change.drop.push(ObjectId::Table(table.id));
        for sequence in self.catalog.sequences() {
            if sequence.owned_by.is_some_and(|(at, _)| at == table.id) {
                self.change.drop.push(ObjectId::Sequence(sequence.id));
            }
        }
        Ok(())
    }

    fn view(&mut self, id: TableId, name: &str) -> Result<()> {
        if !self.gone.insert(id) {
            return Ok(());
        }
        self.views_on(id, "view", name)?;
        self.change.drop.push(ObjectId::View(id));
        Ok(())
    }

    /// The views that read a relation.
    pub(super) fn views_on(&mut self, id: TableId, kind: &str, name: &str) -> Result<()> {
        let views: Vec<_> = self
            .catalog
            .views()
            .filter(|view| view.depends_on.contains(&id) && !self.gone.contains(&view.id))
            .cloned()
            .collect();
        for view in views {
            if !self.cascade {
                let message = format!("cannot drop {kind} {name} because other objects depend on it");
                return Err(depends(message, format!("view {} depends on {kind} {name}", view.name)));
            }
            self.cascaded.push(format!("view {}", view.name));
            self.view(view.id, &view.name)?;
        }
        Ok(())
    }
}

/// `2BP01`.
pub(super) fn depends(message: String, detail: String) -> Error {
    Error::new(Code::DependentObjectsStillExist, message)
        .with_detail(detail)
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// Whether a default calls `nextval` of a sequence by its name.
fn names_sequence(text: &str, sequence: &str) -> bool {
    let lower = text.to_lowercase();
    lower.contains("nextval")
        && (lower.contains(&format!("'{sequence}'")) || lower.contains(&format!(".{sequence}'")))
}
