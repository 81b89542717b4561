//! ALTER TABLE, ALTER SCHEMA.

use std::{collections::BTreeMap, sync::Arc};

use model::{
    Code, Error, Result, Type,
    catalog::{Change, Expected, Object, ObjectId},
    id::{ColumnNumber, PartitionId, TableId},
    port::{LockMode, Lockable},
    schema::{Column, ColumnDefault, Index, IndexState, Kind, Table},
    types::Typmod,
};
use sqlparser::ast;

use super::{
    changed_table,
    drop::{Dropping, depends},
    last,
    retype::Retype,
    table::{Builder, quote, visible},
    take_table_lock,
};
use crate::{
    bind::{self, Found, types::find_type, unsupported},
    eval,
    execute::Cancel,
    functions::Volatility,
    session::{HeldLocks, Session},
};

impl Session {
    pub(super) async fn alter_table(&mut self, alter: &ast::AlterTable, cancel: &Cancel) -> Result<()> {
        let ast::AlterTable {
            name,
            if_exists,
            only: _,
            operations,
            location,
            on_cluster,
            table_type,
            end_token: _,
        } = alter;
        if location.is_some() || on_cluster.is_some() || table_type.is_some() {
            return Err(unsupported("this form of ALTER TABLE", "See the documentation for what is."));
        }
        let path = bind::path_of(name)?;
        // A change of type may rewrite the table, which cannot be part of a transaction.
        let at_once = if operations.iter().any(sets_type) { 1 } else { operations.len().max(1) };
        for operations in operations.chunks(at_once) {
            let begins = !self.is_transactional() && self.needs_transaction(&path, operations)?;
            if begins {
                self.ensure_transaction(false, true);
            }
            self.alter_all(&path, *if_exists, operations, cancel).await?;
            if begins {
                self.commit_work().await?;
            }
        }
        Ok(())
    }

    /// Whether operations look at rows, or are more than one change of the catalog. The rows of a partitioned table belong to no transaction.
    fn needs_transaction(&self, path: &[String], operations: &[ast::AlterTableOperation]) -> Result<bool> {
        let is_more = |operation: &ast::AlterTableOperation| {
            matches!(
                operation,
                ast::AlterTableOperation::AddColumn { .. }
                    | ast::AlterTableOperation::AddConstraint { .. }
                    | ast::AlterTableOperation::AlterColumn { op: ast::AlterColumnOperation::SetNotNull, .. }
            )
        };
        let found = self.current_names().find(path)?;
        let is_whole = matches!(&found, Some(Found::Table(table)) if table.partition_by.is_empty());
        Ok(is_whole && (operations.len() > 1 || operations.iter().any(is_more)))
    }

    async fn alter_all(
        &mut self,
        path: &[String],
        if_exists: bool,
        operations: &[ast::AlterTableOperation],
        cancel: &Cancel,
    ) -> Result<()> {
        for operation in operations {
            let names = self.current_names();
            match names.find(path)? {
                Some(Found::Table(table)) => {
                    self.need_owner(&names.catalog, table.owner, "table", &table.name)?;
                    self.alter_one(&table, operation, cancel).await?;
                }
                Some(Found::View(view)) => {
                    self.need_owner(&names.catalog, view.owner, "view", &view.name)?;
                    let mut after = (*view).clone();
                    match operation {
                        ast::AlterTableOperation::RenameTable {
                            table_name: ast::RenameTableNameKind::To(to) | ast::RenameTableNameKind::As(to),
                        } => after.name = last(&bind::path_of(to)?),
                        ast::AlterTableOperation::OwnerTo { new_owner } => {
                            after.owner =
                                super::get_role(&names.catalog, &new_owner.to_string().to_lowercase())?;
                        }
                        _ => {
                            return Err(Error::new(
                                Code::WrongObjectType,
                                format!("\"{}\" is not a table", view.name),
                            ));
                        }
                    }
                    let change = Change {
                        expect: vec![(ObjectId::View(view.id), Some(Expected::Exists))],
                        put: vec![Object::View(after)],
                        ..Change::default()
                    };
                    self.change(change).await?;
                }
                Some(_) => {
                    return Err(Error::new(
                        Code::WrongObjectType,
                        format!("\"{}\" is not a table", last(path)),
                    ));
                }
                None if if_exists => {
                    let message = format!("relation \"{}\" does not exist, skipping", path.join("."));
                    self.tell(Error::new(Code::UndefinedTable, message));
                    return Ok(());
                }
                None => return Err(bind::undefined_table(path)),
            }
        }
        Ok(())
    }

    async fn alter_one(
        &mut self,
        table: &Arc<Table>,
        operation: &ast::AlterTableOperation,
        cancel: &Cancel,
    ) -> Result<()> {
        match operation {
            ast::AlterTableOperation::AddColumn {
                column_keyword: _,
                if_not_exists,
                column_def,
                column_position,
            } => {
                if column_position.is_some() {
                    return Err(unsupported("a position of a new column", "Columns are added at the end."));
                }
                self.add_column(table, column_def, *if_not_exists, cancel).await
            }
            ast::AlterTableOperation::DropColumn {
                has_column_keyword: _,
                column_names,
                if_exists,
                drop_behavior,
            } => {
                let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
                for name in column_names {
                    self.drop_column(table, &bind::fold(name), *if_exists, cascade).await?;
                }
                Ok(())
            }
            ast::AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(table, &bind::fold(old_column_name), &bind::fold(new_column_name)).await
            }
            ast::AlterTableOperation::RenameTable {
                table_name: ast::RenameTableNameKind::To(to) | ast::RenameTableNameKind::As(to),
            } => {
                let name = last(&bind::path_of(to)?);
                if self.current_catalog().find_relation(table.schema, &name).is_some() {
                    return Err(Error::new(
                        Code::DuplicateTable,
                        format!("relation \"{name}\" already exists"),
                    ));
                }
                let mut after = (**table).clone();
                after.name = name;
                self.change(changed_table(table, after)).await.map(drop)
            }
            ast::AlterTableOperation::RenameConstraint { old_name, new_name } => {
                self.rename_constraint(table, &bind::fold(old_name), &bind::fold(new_name)).await
            }
            ast::AlterTableOperation::AddConstraint { constraint, not_valid } => {
                self.add_constraint(table, constraint, *not_valid, cancel).await
            }
            ast::AlterTableOperation::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = matches!(drop_behavior, Some(ast::DropBehavior::Cascade));
                self.drop_constraint(table, &bind::fold(name), *if_exists, cascade).await
            }
            ast::AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(table, &bind::fold(column_name), op, cancel).await
            }
            ast::AlterTableOperation::OwnerTo { new_owner } => {
                let mut after = (**table).clone();
                let name = new_owner.to_string();
                after.owner = match name.to_lowercase().as_str() {
                    "current_user" | "current_role" | "session_user" => self.role(),
                    _ => super::get_role(&self.current_catalog(), name.trim_matches('"'))?,
                };
                self.change(changed_table(table, after)).await.map(drop)
            }
            other => {
                Err(unsupported(&format!("ALTER TABLE … {other}"), "See the documentation for what is."))
            }
        }
    }

    async fn add_column(
        &mut self,
        table: &Arc<Table>,
        definition: &ast::ColumnDef,
        if_not_exists: bool,
        cancel: &Cancel,
    ) -> Result<()> {
        let name = bind::fold(&definition.name);
        if table.find_column(&name).is_some() {
            if if_not_exists {
                let message =
                    format!("column \"{name}\" of relation \"{}\" already exists, skipping", table.name);
                self.tell(Error::new(Code::DuplicateColumn, message));
                return Ok(());
            }
            let message = format!("column \"{name}\" of relation \"{}\" already exists", table.name);
            return Err(Error::new(Code::DuplicateColumn, message));
        }
        let names = self.current_names();
        let mut plan = self.column_plan(&names, definition)?;
        let is_constrained = plan.is_constrained();
        let mut fill: Option<String> = None;
        if let Some(column) = &mut plan.column
            && let Some(ColumnDefault::Expression(text)) = &column.default
        {
            let mut context = self.new_context();
            let bound = bind::bind_alone(
                text,
                "DEFAULT",
                &[],
                Some((column.data_type, column.typmod.0)),
                &names,
                &mut context,
            )?;
            if bound.volatility() == Volatility::Volatile {
                fill = Some(text.clone());
            } else {
                column.missing =
                    Some(eval::value(&mut context, &bound, &[])?).filter(|value| !value.is_null());
            }
        }
        let column = plan.column.as_ref();
        let computed =
            column.is_some_and(|column| matches!(column.default, Some(ColumnDefault::Generated(_))));
        let is_identity = plan.identity.is_some();
        let demands = !plan.primary.is_empty() || column.is_some_and(|column| column.not_null);
        let has_value = column.is_some_and(|column| column.missing.is_some()) || fill.is_some();
        let bare = demands && !has_value && !computed && !is_identity;
        let mut builder = Builder::over((**table).clone());
        builder.add_column(self, plan).await?;
        let looks = bare || computed || is_identity || fill.is_some();
        if is_constrained || looks {
            self.lock_rows(table).await?;
        }
        if looks && self.has_rows(table).await? {
            if bare {
                let message =
                    format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
                return Err(Error::new(Code::NotNullViolation, message));
            }
            if is_identity {
                return Err(unsupported(
                    "adding an identity column to a table with rows",
                    "Add it without IDENTITY and fill it.",
                ));
            }
        }
        builder.finish_columns(self, &names)?;
        let mut change = changed_table(table, builder.table.clone());
        for sequence in std::mem::take(&mut builder.sequences) {
            change.expect.insert(0, (ObjectId::Sequence(sequence.id), None));
            change.put.insert(0, Object::Sequence(sequence));
        }
        let catalog = self.change(change).await?;
        if let Some(text) = fill {
            self.rewrite(table, &format!("{} = {text}", quote(&name)), cancel).await?;
        } else if computed
            && let Some(first) = table
                .visible_columns()
                .find(|column| !matches!(column.default, Some(ColumnDefault::Generated(_))))
        {
            let column = quote(&first.name);
            self.rewrite(table, &format!("{column} = {column}"), cancel).await?;
        }
        if !is_constrained {
            return Ok(());
        }
        let table = catalog
            .table(table.id)
            .ok_or_else(|| bind::undefined_table(std::slice::from_ref(&table.name)))?;
        builder.table = (**table).clone();
        self.add_constraints(table, builder, cancel).await
    }

    /// Writes every row of a table again.
    async fn rewrite(&mut self, table: &Table, assignment: &str, cancel: &Cancel) -> Result<u64> {
        let text = format!("UPDATE {} SET {assignment}", self.qualified(table));
        self.run_alone(&text, cancel).await
    }

    /// How many rows meet a condition.
    async fn count_where(&mut self, table: &Table, condition: &str, cancel: &Cancel) -> Result<bool> {
        let text = format!("SELECT 1 FROM {} WHERE {condition} LIMIT 1", self.qualified(table));
        Ok(self.run_alone(&text, cancel).await? > 0)
    }

    async fn drop_column(
        &mut self,
        table: &Arc<Table>,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        // An earlier column of the same statement may have changed the descriptor.
        let table = catalog.table(table.id).cloned().unwrap_or_else(|| table.clone());
        let Some(column) = table.find_column(name) else {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
            if if_exists {
                self.tell(Error::new(Code::UndefinedColumn, format!("{message}, skipping")));
                return Ok(());
            }
            return Err(Error::new(Code::UndefinedColumn, message));
        };
        let number = column.number;
        if table.partition_by.contains(&number) {
            return Err(Error::unsupported("a partition column cannot be dropped", "Make a new table."));
        }
        if let Some(computed) = self.computed_from(&table, name)? {
            if !cascade {
                let message = format!(
                    "cannot drop column {name} of table {} because other objects depend on it",
                    table.name
                );
                let detail = format!(
                    "column {computed} of table {} depends on column {name} of table {}",
                    table.name, table.name
                );
                return Err(depends(message, detail));
            }
            Box::pin(self.drop_column(&table, &computed, false, true)).await?;
            return Box::pin(self.drop_column(&table, name, false, true)).await;
        }
        let mut dropping = Dropping::new(&catalog, cascade);
        if let Some(view) = self.reader_of(&table, column) {
            if !cascade {
                let message = format!(
                    "cannot drop column {name} of table {} because other objects depend on it",
                    table.name
                );
                return Err(depends(
                    message,
                    format!("view {} depends on column {name} of table {}", view.name, table.name),
                ));
            }
            dropping.views_on(table.id, "table", &table.name)?;
        }
        let mut after = (*table).clone();
        let refers = |key: &model::schema::ForeignKey| key.parent_columns.contains(&number);
        let what = format!("column {name} of table {}", table.name);
        self.release_children(&table, &mut after, &mut dropping.change, refers, &what, cascade)?;
        if table.key().is_some_and(|key| key.parts.iter().any(|part| part.column == number)) {
            give_up_key(&mut after)?;
        }
        after.indexes.retain(|index| !index.parts.iter().any(|part| part.column == number));
        after.foreign_keys.retain(|key| !key.columns.contains(&number));
        let columns = visible(&table);
        let names = self.current_names();
        let mut kept = Vec::new();
        for check in &table.checks {
            let mut context = self.new_context();
            let bound = bind::bind_alone(
                &check.expression,
                "CHECK",
                &columns,
                Some((Type::Bool, -1)),
                &names,
                &mut context,
            )?;
            if !bind::depends_on_columns(&bound).iter().any(|at| columns[*at].0 == name) {
                kept.push(check.clone());
            }
        }
        after.checks = kept;
        let owned = match &column.default {
            Some(ColumnDefault::Identity { sequence, .. }) => Some(*sequence),
            _ => None,
        };
        let gone = &mut after.columns[usize::from(number.0) - 1];
        *gone = Column {
            dropped: true,
            default: None,
            not_null: false,
            name: format!("........pg.dropped.{}........", number.0),
            ..gone.clone()
        };
        dropping.alter(&table, after);
        let mut change = dropping.change;
        change.drop.extend(owned.map(ObjectId::Sequence));
        self.change(change).await?;
        Ok(())
    }

    /// A generated column that is computed from a column.
    fn computed_from(&self, table: &Table, name: &str) -> Result<Option<String>> {
        let (columns, names) = (visible(table), self.current_names());
        for column in table.visible_columns() {
            let Some(ColumnDefault::Generated(text)) = &column.default else { continue };
            let mut context = self.new_context();
            let ty = Some((column.data_type, column.typmod.0));
            let bound = bind::bind_alone(text, "GENERATED", &columns, ty, &names, &mut context)?;
            if bind::depends_on_columns(&bound).iter().any(|at| columns[*at].0 == name) {
                return Ok(Some(column.name.clone()));
            }
        }
        Ok(None)
    }

    async fn rename_column(&mut self, table: &Arc<Table>, old: &str, new: &str) -> Result<()> {
        let column = get_column(table, old)?;
        if table.find_column(new).is_some() {
            let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
            return Err(Error::new(Code::DuplicateColumn, message));
        }
        let quoted = quote(old);
        let mentioned = |text: &String| text.contains(old) || text.contains(&quoted);
        let texts = table.checks.iter().map(|check| &check.expression);
        let generated = table.columns.iter().filter_map(|column| match &column.default {
            Some(ColumnDefault::Generated(text)) => Some(text),
            _ => None,
        });
        if texts.chain(generated).any(mentioned) {
            return Err(Error::unsupported(
                format!("column \"{old}\" is named by a CHECK, a generated column or an index expression"),
                "Drop that first and add it again with the new name.",
            ));
        }
        if self
            .current_catalog()
            .views()
            .any(|view| view.depends_on.contains(&table.id) && mentioned(&view.query))
        {
            return Err(Error::unsupported(
                format!("column \"{old}\" is named by a view"),
                "Drop the view first.",
            ));
        }
        let mut after = (**table).clone();
        after.columns[usize::from(column.number.0) - 1].name = new.to_owned();
        self.change(changed_table(table, after)).await.map(drop)
    }

    async fn rename_constraint(&mut self, table: &Arc<Table>, old: &str, new: &str) -> Result<()> {
        let mut after = (**table).clone();
        let mut found = false;
        for index in after.indexes.iter_mut().filter(|index| index.constraint.is_some() && index.name == old)
        {
            index.name = new.to_owned();
            found = true;
        }
        for check in after.checks.iter_mut().filter(|check| check.name == old) {
            check.name = new.to_owned();
            found = true;
        }
        for key in after.foreign_keys.iter_mut().filter(|key| key.name == old) {
            key.name = new.to_owned();
            found = true;
        }
        if !found {
            return Err(no_constraint(table, old));
        }
        self.change(changed_table(table, after)).await.map(drop)
    }

    async fn add_constraint(
        &mut self,
        table: &Arc<Table>,
        constraint: &ast::TableConstraint,
        not_valid: bool,
        cancel: &Cancel,
    ) -> Result<()> {
        if not_valid {
            return Err(unsupported("NOT VALID", "Constraints are checked when they are added."));
        }
        // What is looked at below must stay so until the catalog says what rows have to meet.
        self.lock_rows(table).await?;
        let names = self.current_names();
        let mut builder = Builder::over((**table).clone());
        builder.constraint(self, &names, constraint).await?;
        self.add_constraints(table, builder, cancel).await
    }

    /// Keeps writers away from a table to the end of the open transaction; those of a partitioned one cannot be.
    async fn lock_rows(&mut self, table: &Table) -> Result<()> {
        if !self.is_transactional() || !table.partition_by.is_empty() {
            return Ok(());
        }
        let partition = PartitionId::default_of(table.database, table.schema);
        let locks = vec![(Lockable::Table(table.id), LockMode::Update)];
        self.begin_statement().lock(&partition, locks, None).await.map(drop)
    }

    /// As [`Session::lock_rows`], outside a transaction as long as what is answered is kept.
    async fn lock_table(&mut self, table: &Table) -> Result<Option<HeldLocks>> {
        if !self.is_transactional() {
            return take_table_lock(self, table, self.lock_patience()).await.map(Some);
        }
        self.lock_rows(table).await?;
        Ok(None)
    }

    /// Adds the constraints that a builder over the table holds, if the rows meet them. Of keys on rows that are there, the
    /// building of their indexes is the judge; inside a transaction that goes on, a look at the rows comes before it.
    async fn add_constraints(
        &mut self,
        table: &Arc<Table>,
        mut builder: Builder,
        cancel: &Cancel,
    ) -> Result<()> {
        let names = self.current_names();
        let has_rows = self.has_rows(table).await?;
        builder.set_filled(has_rows);
        builder.finish_constraints(self, &names).await?;
        let mut after = builder.table;
        let own_key = after.primary_key.filter(|_| table.primary_key.is_none());
        for index in after.indexes.iter_mut().skip(table.indexes.len()) {
            if Some(index.id) != own_key {
                index.state = IndexState::Building;
            }
        }
        for check in after.checks.iter().skip(table.checks.len()) {
            if self.count_where(table, &format!("NOT ({})", check.expression), cancel).await? {
                let message = format!(
                    "check constraint \"{}\" of relation \"{}\" is violated by some row",
                    check.name, table.name
                );
                return Err(Error::new(Code::CheckViolation, message));
            }
        }
        let mut parents: BTreeMap<TableId, Change> = BTreeMap::new();
        for key in after.foreign_keys.iter().skip(table.foreign_keys.len()) {
            if let Some(parent) = names.catalog.table(key.parent).filter(|parent| parent.id != table.id) {
                self.lock_rows(parent).await?;
                // Its rows are asked for now: what was planned without that is planned again.
                parents.entry(parent.id).or_insert_with(|| changed_table(parent, (**parent).clone()));
            }
            self.check_parents(table, key, cancel).await?;
        }
        let demanded: Vec<ColumnNumber> = (table.columns.iter().zip(&after.columns))
            .filter(|(old, new)| new.not_null && !old.not_null)
            .map(|(_, new)| new.number)
            .collect();
        self.check_no_nulls(table, &demanded, cancel).await?;
        if has_rows && self.transaction_goes_on() {
            for index in after.indexes.iter().skip(table.indexes.len()) {
                self.check_unique(table, index, cancel).await?;
            }
        }
        let mut change = changed_table(table, after);
        for parent in parents.into_values() {
            change.expect.extend(parent.expect);
            change.put.extend(parent.put);
        }
        self.change(change).await.map(drop)
    }

    /// `23505` if two rows have the same key.
    async fn check_unique(&mut self, table: &Table, index: &Index, cancel: &Cancel) -> Result<()> {
        let columns: Vec<String> =
            index.parts.iter().map(|part| quote(&table.column(part.column).name)).collect();
        let present: Vec<String> = if index.nulls_not_distinct {
            vec!["true".to_owned()]
        } else {
            columns.iter().map(|column| format!("{column} IS NOT NULL")).collect()
        };
        let grouped =
            format!("{} GROUP BY {} HAVING count(*) > 1", present.join(" AND "), columns.join(", "));
        if self.count_where(table, &grouped, cancel).await? {
            let message = format!("could not create unique index \"{}\"", index.name);
            return Err(Error::new(Code::UniqueViolation, message).with_detail("Two rows have the same key."));
        }
        Ok(())
    }

    /// `23502` if a row has a null in one of the columns.
    async fn check_no_nulls(
        &mut self,
        table: &Table,
        columns: &[ColumnNumber],
        cancel: &Cancel,
    ) -> Result<()> {
        for number in columns {
            let name = &table.column(*number).name;
            if self.count_where(table, &format!("{} IS NULL", quote(name)), cancel).await? {
                let message =
                    format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
                return Err(Error::new(Code::NotNullViolation, message));
            }
        }
        Ok(())
    }

    async fn check_parents(
        &mut self,
        table: &Table,
        key: &model::schema::ForeignKey,
        cancel: &Cancel,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        let Some(parent) = catalog.table(key.parent) else { return Ok(()) };
        let own: Vec<String> = key.columns.iter().map(|number| quote(&table.column(*number).name)).collect();
        let pairs: Vec<String> = key
            .columns
            .iter()
            .zip(&key.parent_columns)
            .map(|(own, theirs)| {
                format!(
                    "p.{} = {}.{}",
                    quote(&parent.column(*theirs).name),
                    quote(&table.name),
                    quote(&table.column(*own).name)
                )
            })
            .collect();
        let present: Vec<String> = own.iter().map(|column| format!("{column} IS NOT NULL")).collect();
        let condition = format!(
            "{} AND NOT EXISTS (SELECT 1 FROM {} p WHERE {})",
            present.join(" AND "),
            self.qualified(parent),
            pairs.join(" AND ")
        );
        if self.count_where(table, &condition, cancel).await? {
            let message = format!(
                "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
                table.name, key.name
            );
            return Err(Error::new(Code::ForeignKeyViolation, message));
        }
        Ok(())
    }

    /// Takes foreign keys away that refer to what is dropped of a table: with CASCADE only, else `2BP01`.
    fn release_children(
        &self,
        table: &Table,
        after: &mut Table,
        change: &mut Change,
        refers: impl Fn(&model::schema::ForeignKey) -> bool,
        what: &str,
        cascade: bool,
    ) -> Result<()> {
        let refers = |key: &model::schema::ForeignKey| key.parent == table.id && refers(key);
        for child in self.current_catalog().tables() {
            let Some(key) = child.foreign_keys.iter().find(|key| refers(key)) else { continue };
            if child.id == table.id {
                after.foreign_keys.retain(|key| !refers(key));
                continue;
            }
            if !cascade {
                let message = format!("cannot drop {what} because other objects depend on it");
                let detail = format!("constraint {} on table {} depends on {what}", key.name, child.name);
                return Err(depends(message, detail));
            }
            let mut without = (**child).clone();
            without.foreign_keys.retain(|key| !refers(key));
            let part = changed_table(child, without);
            change.expect.extend(part.expect);
            change.put.extend(part.put);
        }
        Ok(())
    }

    async fn drop_constraint(
        &mut self,
        table: &Arc<Table>,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let mut after = (**table).clone();
        let mut change = Change::default();
        if let Some(index) =
            table.indexes.iter().find(|index| index.constraint.is_some() && index.name == name)
        {
            let columns: Vec<_> = index.parts.iter().map(|part| part.column).collect();
            let refers = |key: &model::schema::ForeignKey| {
                key.parent_columns.len() == columns.len()
                    && key.parent_columns.iter().all(|at| columns.contains(at))
            };
            let what = format!("constraint {name} on table {}", table.name);
            self.release_children(table, &mut after, &mut change, refers, &what, cascade)?;
            if table.primary_key == Some(index.id) {
                give_up_key(&mut after)?;
            }
            after.indexes.retain(|at| at.id != index.id);
        } else if table.checks.iter().any(|check| check.name == name) {
            after.checks.retain(|check| check.name != name);
        } else if table.foreign_keys.iter().any(|key| key.name == name) {
            after.foreign_keys.retain(|key| key.name != name);
        } else if if_exists {
            let message =
                format!("constraint \"{name}\" of relation \"{}\" does not exist, skipping", table.name);
            self.tell(Error::new(Code::UndefinedObject, message));
            return Ok(());
        } else {
            return Err(no_constraint(table, name));
        }
        let own = changed_table(table, after);
        change.expect.extend(own.expect);
        change.put.extend(own.put);
        self.change(change).await.map(drop)
    }

    async fn alter_column(
        &mut self,
        table: &Arc<Table>,
        name: &str,
        op: &ast::AlterColumnOperation,
        cancel: &Cancel,
    ) -> Result<()> {
        let column = get_column(table, name)?.clone();
        let at = usize::from(column.number.0) - 1;
        let mut after = (**table).clone();
        match op {
            ast::AlterColumnOperation::SetNotNull => {
                self.lock_rows(table).await?;
                self.check_no_nulls(table, &[column.number], cancel).await?;
                after.columns[at].not_null = true;
            }
            ast::AlterColumnOperation::DropNotNull => {
                if table
                    .declared_key()
                    .is_some_and(|key| key.parts.iter().any(|part| part.column == column.number))
                {
                    return Err(Error::new(
                        Code::InvalidTableDefinition,
                        format!("column \"{name}\" is in a primary key"),
                    ));
                }
                after.columns[at].not_null = false;
            }
            ast::AlterColumnOperation::SetDefault { value } => {
                if matches!(column.default, Some(ColumnDefault::Generated(_))) {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is a generated column", table.name);
                    return Err(Error::new(Code::SyntaxError, message));
                }
                let text = value.to_string();
                let names = self.current_names();
                let mut context = self.new_context();
                bind::bind_alone(
                    &text,
                    "DEFAULT",
                    &[],
                    Some((column.data_type, column.typmod.0)),
                    &names,
                    &mut context,
                )?;
                after.columns[at].default = Some(ColumnDefault::Expression(text));
            }
            ast::AlterColumnOperation::DropDefault => after.columns[at].default = None,
            ast::AlterColumnOperation::SetDataType { data_type, using, had_set: _ } => {
                return self.change_type(table, &column, data_type, using.as_ref(), cancel).await;
            }
            ast::AlterColumnOperation::AddGenerated { .. }
            | ast::AlterColumnOperation::GenericOptions { .. } => {
                return Err(unsupported(
                    "this form of ALTER COLUMN",
                    "SET and DROP of DEFAULT and NOT NULL, and TYPE are.",
                ));
            }
        }
        self.change(changed_table(table, after)).await.map(drop)
    }

    async fn change_type(
        &mut self,
        table: &Arc<Table>,
        column: &Column,
        data_type: &ast::DataType,
        using: Option<&ast::Expr>,
        cancel: &Cancel,
    ) -> Result<()> {
        let (ty, typmod) = find_type(data_type)?;
        let typmod = Typmod(typmod);
        let same_bytes = ty == column.data_type || (is_text(ty) && is_text(column.data_type));
        let wider = typmod.is_none()
            || (ty == column.data_type && typmod == column.typmod)
            || {
                matches!((typmod.length(), column.typmod.length()), (Some(new), Some(old)) if new >= old && is_text(ty))
            };
        let rewrites = using.is_some() || !same_bytes || !wider;
        // Whether there are rows must not change until the catalog has; partitioned tables are only looked at.
        let lock =
            if rewrites && table.partition_by.is_empty() { self.lock_table(table).await? } else { None };
        let has_rows = rewrites && self.has_rows(table).await?;
        self.check_readers(table, column, has_rows)?;
        if has_rows {
            if let Some(lock) = lock {
                lock.release().await?;
            }
            if using.is_none() && is_text(ty) && is_text(column.data_type) {
                return self.narrow(table, column, ty, typmod, cancel).await;
            }
            let value = using.map_or_else(|| quote(&column.name), ToString::to_string);
            let retype = Retype { column: column.clone(), ty, typmod, value, is_given: using.is_some() };
            return self.retype(table, &retype, cancel).await;
        }
        let mut after = (**table).clone();
        let changed = &mut after.columns[usize::from(column.number.0) - 1];
        changed.data_type = ty;
        changed.typmod = typmod;
        if !same_bytes {
            changed.missing = None;
        }
        let changed = self.change(changed_table(table, after)).await.map(drop);
        if let Some(lock) = lock {
            lock.release().await?;
        }
        changed
    }

    /// A shorter limit for texts: every row must fit as it is.
    async fn narrow(
        &mut self,
        table: &Arc<Table>,
        column: &Column,
        ty: Type,
        typmod: Typmod,
        cancel: &Cancel,
    ) -> Result<()> {
        let mut after = (**table).clone();
        let changed = &mut after.columns[usize::from(column.number.0) - 1];
        changed.data_type = ty;
        changed.typmod = typmod;
        let shown = ty.name_with(typmod);
        let lock = if table.partition_by.is_empty() { self.lock_table(table).await? } else { None };
        let name = quote(&column.name);
        let too_long =
            self.count_where(table, &format!("{name}::{shown} IS DISTINCT FROM {name}"), cancel).await;
        let narrowed = match too_long {
            Ok(true) => {
                Err(Error::new(Code::StringDataRightTruncation, format!("value too long for type {shown}")))
            }
            Ok(false) => self.change(changed_table(table, after)).await.map(drop),
            Err(error) => Err(error),
        };
        if let Some(lock) = lock {
            lock.release().await?;
        }
        narrowed
    }

    pub(super) async fn alter_schema(&mut self, alter: &ast::AlterSchema) -> Result<()> {
        let ast::AlterSchema { name, if_exists: _, operations } = alter;
        let catalog = self.current_catalog();
        let name = last(&bind::path_of(name)?);
        let id = self.current_names().get_schema(&name)?;
        let schema = catalog.schema(id).ok_or_else(|| Error::internal("a schema without a descriptor"))?;
        self.need_owner(&catalog, schema.owner, "schema", &name)?;
        let mut after = (**schema).clone();
        for operation in operations {
            match operation {
                ast::AlterSchemaOperation::Rename { name } => after.name = last(&bind::path_of(name)?),
                ast::AlterSchemaOperation::OwnerTo { owner } => {
                    after.owner = super::get_role(&catalog, owner.to_string().trim_matches('"'))?;
                }
                _ => return Err(unsupported("this form of ALTER SCHEMA", "RENAME TO and OWNER TO are.")),
            }
        }
        let change = Change {
            expect: vec![(ObjectId::Schema(id), Some(Expected::Exists))],
            put: vec![Object::Schema(after)],
            ..Change::default()
        };
        self.change(change).await.map(drop)
    }
}

/// Rows keep the keys they have and new ones get row ids, which no key of columns is equal to: a row id begins with a zero
/// byte for as long as microseconds since 1970 fit into seven, and no part of a key does.
fn give_up_key(table: &mut Table) -> Result<()> {
    if !table.partition_by.is_empty() || table.kind == Kind::Collection {
        return Err(Error::unsupported(
            format!("the primary key of table \"{}\" cannot be dropped", table.name),
            "A partitioned table and a collection need theirs; make a new table.",
        ));
    }
    table.primary_key = None;
    Ok(())
}

fn sets_type(operation: &ast::AlterTableOperation) -> bool {
    matches!(
        operation,
        ast::AlterTableOperation::AlterColumn { op: ast::AlterColumnOperation::SetDataType { .. }, .. }
    )
}

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::Text | Type::Varchar)
}

fn get_column<'t>(table: &'t Table, name: &str) -> Result<&'t Column> {
    table.find_column(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        Error::new(Code::UndefinedColumn, message)
    })
}

fn no_constraint(table: &Table, name: &str) -> Error {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    Error::new(Code::UndefinedObject, message)
}
