//! ALTER TABLE, ALTER SCHEMA.

use std::sync::Arc;

use model::{
    Code, Error, Result, Type, Value,
    catalog::{Change, Expected, Object, ObjectId},
    schema::{Column, ColumnDefault, IndexState, Table},
    types::Typmod,
};
use sqlparser::ast;

use super::{
    changed_table,
    drop::{Dropping, depends},
    last,
    table::{Builder, quote, visible},
};
use crate::{
    bind::{self, Found, types::find_type, unsupported},
    eval,
    execute::Cancel,
    functions::{Volatility, cast},
    session::Session,
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
        for operation in operations {
            let names = self.current_names();
            match names.find(&path)? {
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
                        format!("\"{}\" is not a table", last(&path)),
                    ));
                }
                None if *if_exists => {
                    let message = format!("relation \"{}\" does not exist, skipping", path.join("."));
                    self.tell(Error::new(Code::UndefinedTable, message));
                    return Ok(());
                }
                None => return Err(bind::undefined_table(&path)),
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
        let mut fill: Option<String> = None;
        if let Some(column) = &mut plan.column {
            if let Some(ColumnDefault::Expression(text)) = &column.default {
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
            let is_computed =
                matches!(column.default, Some(ColumnDefault::Generated(_))) || plan.identity.is_some();
            let bare = column.not_null && column.missing.is_none() && fill.is_none() && !is_computed;
            if (bare || is_computed || fill.is_some()) && self.has_rows(table).await? {
                if bare {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
                    return Err(Error::new(Code::NotNullViolation, message));
                }
                if plan.identity.is_some() {
                    return Err(unsupported(
                        "adding an identity column to a table with rows",
                        "Add it without IDENTITY and fill it.",
                    ));
                }
            }
        }
        let computed = plan
            .column
            .as_ref()
            .is_some_and(|column| matches!(column.default, Some(ColumnDefault::Generated(_))));
        let mut builder = Builder::over((**table).clone());
        let before_indexes: Vec<_> = table.indexes.iter().map(|index| index.id).collect();
        builder.add_column(self, plan).await?;
        builder.finish_constraints(self, &names).await?;
        for index in &mut builder.table.indexes {
            if !before_indexes.contains(&index.id) {
                index.state = IndexState::Building;
            }
        }
        let mut change = changed_table(table, builder.table);
        for sequence in builder.sequences {
            change.expect.insert(0, (ObjectId::Sequence(sequence.id), None));
            change.put.insert(0, Object::Sequence(sequence));
        }
        self.change(change).await?;
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
        Ok(())
    }

    /// Writes every row of a table again.
    async fn rewrite(&mut self, table: &Table, assignment: &str, cancel: &Cancel) -> Result<u64> {
        let schema =
            self.current_catalog().schema(table.schema).map(|schema| schema.name.clone()).unwrap_or_default();
        let text = format!("UPDATE {}.{} SET {assignment}", quote(&schema), quote(&table.name));
        self.run_alone(&text, cancel).await
    }

    /// How many rows meet a condition.
    async fn count_where(&mut self, table: &Table, condition: &str, cancel: &Cancel) -> Result<bool> {
        let schema =
            self.current_catalog().schema(table.schema).map(|schema| schema.name.clone()).unwrap_or_default();
        let text =
            format!("SELECT 1 FROM {}.{} WHERE {condition} LIMIT 1", quote(&schema), quote(&table.name));
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
        let key = table.key();
        if key.is_some_and(|key| key.parts.iter().any(|part| part.column == number)) {
            return Err(Error::unsupported(
                "a column of the primary key cannot be dropped",
                "Make a new table with another key.",
            ));
        }
        let mut dropping = Dropping::new(&catalog, cascade);
        let reads =
            catalog.views().any(|view| view.depends_on.contains(&table.id) && view.query.contains(name));
        if reads {
            if !cascade {
                let message = format!(
                    "cannot drop column {name} of table {} because other objects depend on it",
                    table.name
                );
                return Err(depends(
                    message,
                    format!("a view depends on column {name} of table {}", table.name),
                ));
            }
            dropping.views_on(table.id, "table", &table.name)?;
        }
        let mut after = (*table).clone();
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

    async fn rename_column(&mut self, table: &Arc<Table>, old: &str, new: &str) -> Result<()> {
        let column = get_column(table, old)?;
        if table.find_column(new).is_some() {
            let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
            return Err(Error::new(Code::DuplicateColumn, message));
        }
        let mentioned = |text: &String| text.contains(old);
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
        for index in after.indexes.iter_mut().filter(|index| index.constraint && index.name == old) {
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
        let names = self.current_names();
        if matches!(constraint, ast::TableConstraint::PrimaryKey(_)) && self.has_rows(table).await? {
            return Err(Error::unsupported(
                "a primary key cannot be added to a table with rows",
                "Make a new table with the key and INSERT … SELECT the rows.",
            ));
        }
        let mut builder = Builder::over((**table).clone());
        builder.constraint(self, &names, constraint).await?;
        builder.finish_constraints(self, &names).await?;
        let mut after = builder.table;
        for index in after.indexes.iter_mut().skip(table.indexes.len()) {
            if table.primary_key == after.primary_key {
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
        for key in after.foreign_keys.iter().skip(table.foreign_keys.len()) {
            self.check_parents(table, key, cancel).await?;
        }
        self.change(changed_table(table, after)).await.map(drop)
    }

    async fn check_parents(
        &mut self,
        table: &Table,
        key: &model::schema::ForeignKey,
        cancel: &Cancel,
    ) -> Result<()> {
        let catalog = self.current_catalog();
        let Some(parent) = catalog.table(key.parent) else { return Ok(()) };
        let schema = catalog.schema(parent.schema).map(|schema| schema.name.clone()).unwrap_or_default();
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
            "{} AND NOT EXISTS (SELECT 1 FROM {}.{} p WHERE {})",
            present.join(" AND "),
            quote(&schema),
            quote(&parent.name),
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

    async fn drop_constraint(
        &mut self,
        table: &Arc<Table>,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let mut after = (**table).clone();
        let mut change = Change::default();
        if let Some(index) = table.indexes.iter().find(|index| index.constraint && index.name == name) {
            if table.primary_key == Some(index.id) {
                return Err(Error::unsupported(
                    "a primary key cannot be dropped",
                    "Rows lie under their key; make a new table.",
                ));
            }
            let columns: Vec<_> = index.parts.iter().map(|part| part.column).collect();
            let catalog = self.current_catalog();
            for child in catalog.tables() {
                let refers = |key: &model::schema::ForeignKey| {
                    key.parent == table.id
                        && key.parent_columns.len() == columns.len()
                        && key.parent_columns.iter().all(|at| columns.contains(at))
                };
                let Some(key) = child.foreign_keys.iter().find(|key| refers(key)) else { continue };
                if !cascade {
                    let message = format!(
                        "cannot drop constraint {name} on table {} because other objects depend on it",
                        table.name
                    );
                    return Err(depends(
                        message,
                        format!("constraint {} on table {} depends on index {name}", key.name, child.name),
                    ));
                }
                if child.id == table.id {
                    after.foreign_keys.retain(|key| !refers(key));
                } else {
                    let mut without = (**child).clone();
                    without.foreign_keys.retain(|key| !refers(key));
                    let part = changed_table(child, without);
                    change.expect.extend(part.expect);
                    change.put.extend(part.put);
                }
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
                if self.count_where(table, &format!("{} IS NULL", quote(name)), cancel).await? {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" contains null values", table.name);
                    return Err(Error::new(Code::NotNullViolation, message));
                }
                after.columns[at].not_null = true;
            }
            ast::AlterColumnOperation::DropNotNull => {
                if table.key().is_some_and(|key| key.parts.iter().any(|part| part.column == column.number)) {
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
        let in_key =
            table.indexes.iter().any(|index| index.parts.iter().any(|part| part.column == column.number));
        let same_bytes = ty == column.data_type || (is_text(ty) && is_text(column.data_type));
        let wider = typmod.is_none()
            || (ty == column.data_type && typmod == column.typmod)
            || {
                matches!((typmod.length(), column.typmod.length()), (Some(new), Some(old)) if new >= old && is_text(ty))
            };
        let rewrites = using.is_some() || !same_bytes || !wider;
        if rewrites && self.has_rows(table).await? {
            if using.is_none()
                && cast::find(column.data_type, ty)
                    .is_none_or(|context| context == crate::functions::CastContext::Explicit)
            {
                let message = format!("column \"{}\" cannot be cast automatically to type {ty}", column.name);
                let hint = format!("You might need to specify \"USING {}::{ty}\".", column.name);
                return Err(Error::new(Code::DatatypeMismatch, message).with_hint(hint));
            }
            // A narrower modifier of the same type: every row must fit as it is.
            if using.is_none() && same_bytes {
                let name = quote(&column.name);
                let shown = ty.name_with(typmod);
                if self
                    .count_where(table, &format!("{name}::{shown} IS DISTINCT FROM {name}"), cancel)
                    .await?
                {
                    let message = format!("value too long for type {shown}");
                    return Err(Error::new(Code::StringDataRightTruncation, message));
                }
            } else {
                return Err(Error::unsupported(
                    format!("changing the type of column \"{}\" would rewrite the table", column.name),
                    "Add a column of the new type, fill it with UPDATE, and drop the old one.",
                ));
            }
        }
        if in_key && !same_bytes && self.has_rows(table).await? {
            return Err(Error::unsupported(
                "the type of an indexed column cannot be changed",
                "Drop the index first.",
            ));
        }
        let mut after = (**table).clone();
        let changed = &mut after.columns[usize::from(column.number.0) - 1];
        changed.data_type = ty;
        changed.typmod = typmod;
        if !same_bytes {
            changed.missing = None;
            if changed.missing.as_ref().is_some_and(Value::is_null) {
                changed.missing = None;
            }
        }
        self.change(changed_table(table, after)).await.map(drop)
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
