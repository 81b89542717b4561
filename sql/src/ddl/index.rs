//! CREATE INDEX, ALTER INDEX. Expressions and predicates of an index are hidden generated columns.

use std::sync::Arc;

use model::{
    Code, Error, Result, Type,
    id::{ColumnNumber, IndexId},
    key::KeyPart,
    schema::{ColumnDefault, Index, IndexPart, IndexState, Table},
    types::Typmod,
};
use sqlparser::ast;

use super::{
    build::HiddenColumns,
    changed_table, last,
    table::{check_key_type, plain_column, visible},
};
use crate::{
    bind::{self, Found, Names, unsupported},
    functions::Volatility,
    session::Session,
};

impl Session {
    pub(super) async fn create_index(&mut self, create: &ast::CreateIndex) -> Result<()> {
        let ast::CreateIndex {
            name,
            table_name,
            using,
            columns,
            unique,
            concurrently,
            r#async,
            if_not_exists,
            include,
            nulls_distinct,
            with,
            predicate,
            index_options,
            alter_options,
        } = create;
        let plain = !r#async && index_options.is_empty() && alter_options.is_empty();
        if !plain {
            return Err(unsupported("this form of CREATE INDEX", "See the documentation for what is."));
        }
        let _ = with;
        if let Some(method) = using.as_ref().map(|method| method.to_string().to_lowercase()) {
            match method.as_str() {
                "btree" | "hash" => {}
                "gin" | "gist" | "spgist" | "brin" => {
                    return Err(unsupported(&format!("an index of type {method}"), "Use btree."));
                }
                _ => {
                    let message = format!("access method \"{method}\" does not exist");
                    return Err(Error::new(Code::UndefinedObject, message));
                }
            }
        }
        if !include.is_empty() {
            let hint = if *unique { "Leave it out." } else { "Name the columns behind those of the key." };
            return Err(unsupported("INCLUDE in CREATE INDEX", hint));
        }
        if *concurrently && self.in_transaction_block() {
            return Err(Error::new(
                Code::ActiveSqlTransaction,
                "CREATE INDEX CONCURRENTLY cannot run inside a transaction block",
            ));
        }
        let names = self.current_names();
        let table = names.get_table(&bind::path_of(table_name)?)?;
        self.need_owner(&names.catalog, table.owner, "table", &table.name)?;
        let mut after = (*table).clone();
        let mut parts = Vec::new();
        for ast::IndexColumn { column, operator_class } in columns {
            let number = self.index_column(&names, &mut after, &column.expr)?;
            if let Some(class) = operator_class {
                check_operator_class(&last(&bind::path_of(class)?), after.column(number).data_type)?;
            }
            let desc = matches!(column.options.sort, Some(ast::OrderBySort::Desc));
            let nulls_first = column.options.nulls_first.unwrap_or(desc);
            parts.push(IndexPart { column: number, order: KeyPart { desc, nulls_first } });
        }
        if *unique {
            let missing =
                table.partition_by.iter().find(|number| !parts.iter().any(|part| part.column == **number));
            if missing.is_some() {
                return Err(Error::unsupported(
                    format!(
                        "unique constraint on partitioned table \"{}\" must include all partitioning columns",
                        table.name
                    ),
                    "Add the partition columns to the key.",
                ));
            }
        }
        let index_name = match name {
            Some(name) => last(&bind::path_of(name)?),
            None => self.free_index_name(&names, &table, &after, &parts),
        };
        if names.catalog.find_relation(table.schema, &index_name).is_some() {
            return self.exists_already(*if_not_exists, Code::DuplicateTable, "relation", &index_name);
        }
        let (predicate_column, predicate_text) = match predicate {
            None => (None, None),
            Some(predicate) => {
                let text = predicate.to_string();
                let number =
                    self.hidden_column(&names, &mut after, &text, Some(Type::Bool), "index predicate")?;
                (Some(number), Some(text))
            }
        };
        let id = IndexId(self.dispatch().allocate_ids(1).await?);
        after.indexes.push(Index {
            id,
            name: index_name,
            parts,
            unique: *unique,
            nulls_not_distinct: *nulls_distinct == Some(false),
            constraint: None,
            predicate: predicate_column,
            predicate_text,
            state: IndexState::Building,
            comment: None,
        });
        let fills_hidden = after.columns.len() > table.columns.len();
        let change = changed_table(&table, after);
        if fills_hidden {
            self.fill_hidden(&table, change).await
        } else {
            self.change(change).await?;
            Ok(())
        }
    }

    fn free_index_name(&self, names: &Names, table: &Table, after: &Table, parts: &[IndexPart]) -> String {
        let label = |part: &IndexPart| {
            let column = after.column(part.column);
            if column.hidden { "expr".to_owned() } else { column.name.clone() }
        };
        let joined: Vec<String> = parts.iter().map(label).collect();
        let base = format!("{}_{}_idx", table.name, joined.join("_"));
        let mut numbered = std::iter::once(base.clone()).chain((1..).map(|number| format!("{base}{number}")));
        numbered.find(|name| names.catalog.find_relation(table.schema, name).is_none()).unwrap_or(base)
    }

    /// The column of an index part: one of the table's, or a hidden one for an expression.
    fn index_column(&mut self, names: &Names, table: &mut Table, expr: &ast::Expr) -> Result<ColumnNumber> {
        let mut inner = expr;
        while let ast::Expr::Nested(nested) = inner {
            inner = nested;
        }
        if let ast::Expr::Identifier(ident) = inner {
            let name = bind::fold(ident);
            let column = table.find_column(&name).ok_or_else(|| {
                Error::new(Code::UndefinedColumn, format!("column \"{name}\" does not exist"))
            })?;
            check_key_type(column.data_type)?;
            return Ok(column.number);
        }
        self.hidden_column(names, table, &inner.to_string(), None, "index expression")
    }

    fn hidden_column(
        &mut self,
        names: &Names,
        table: &mut Table,
        text: &str,
        to: Option<Type>,
        what: &'static str,
    ) -> Result<ColumnNumber> {
        let known = table.columns.iter().find(|column| {
            column.hidden
                && !column.dropped
                && matches!(&column.default, Some(ColumnDefault::Generated(at)) if at == text)
        });
        if let Some(column) = known {
            return Ok(column.number);
        }
        let columns = visible(table);
        let mut context = self.new_context();
        let bound = bind::bind_alone(text, what, &columns, to.map(|ty| (ty, -1)), names, &mut context)?;
        if bound.volatility() != Volatility::Immutable {
            let message = if what == "index predicate" {
                "functions in index predicate must be marked IMMUTABLE"
            } else {
                "functions in index expression must be marked IMMUTABLE"
            };
            return Err(Error::new(Code::InvalidObjectDefinition, message));
        }
        check_key_type(bound.ty)?;
        let number = u16::try_from(table.columns.len() + 1)
            .map_err(|_| Error::new(Code::TooManyColumns, "too many columns"))?;
        let mut column = plain_column(format!("\u{1}expr{number}"), bound.ty, Typmod(bound.typmod));
        column.number = ColumnNumber(number);
        column.hidden = true;
        column.default = Some(ColumnDefault::Generated(text.to_owned()));
        table.columns.push(column);
        Ok(ColumnNumber(number))
    }

    /// Adds hidden columns first, computes them for the rows there are, then begins the index.
    async fn fill_hidden(&mut self, before: &Arc<Table>, change: model::catalog::Change) -> Result<()> {
        let Some(model::catalog::Object::Table(after)) = change.put.first().cloned() else {
            return Err(Error::internal("an index without a table"));
        };
        let mut columns_only = after.clone();
        columns_only.indexes.clone_from(&before.indexes);
        let columns = changed_table(before, columns_only.clone());
        columns_only.version = before.version + 1;
        if self.is_transactional() {
            self.change(columns).await?;
            return self.fill_and_begin(before, &columns_only, after).await;
        }
        let new = after.columns.iter().skip(before.columns.len()).map(|column| column.number).collect();
        let hidden = HiddenColumns::new(self.dispatch(), before.id, new);
        hidden.add(columns).await?;
        let begun = self.fill_and_begin(before, &columns_only, after).await;
        hidden.drop_unread().await?;
        begun
    }

    async fn fill_and_begin(
        &mut self,
        before: &Arc<Table>,
        columns_only: &Table,
        after: Table,
    ) -> Result<()> {
        // Writing a row computes its hidden columns.
        if let Some(first) = before.visible_columns().find(|column| {
            !before.partition_by.contains(&column.number)
                && !matches!(
                    column.default,
                    Some(ColumnDefault::Generated(_) | ColumnDefault::Identity { .. })
                )
        }) {
            let column = super::table::quote(&first.name);
            let text = format!("UPDATE {} SET {column} = {column}", self.qualified(before));
            let cancel = crate::execute::Cancel::new();
            self.run_alone(&text, &cancel).await?;
        }
        self.change(changed_table(columns_only, after)).await?;
        Ok(())
    }

    pub(super) async fn alter_index(
        &mut self,
        name: &ast::ObjectName,
        operation: &ast::AlterIndexOperation,
    ) -> Result<()> {
        let ast::AlterIndexOperation::RenameIndex { index_name } = operation;
        let names = self.current_names();
        let path = bind::path_of(name)?;
        let Found::Index(table, id) = names.get(&path)? else {
            return Err(Error::new(Code::WrongObjectType, format!("\"{}\" is not an index", last(&path))));
        };
        self.need_owner(&names.catalog, table.owner, "index", &last(&path))?;
        let mut after = (*table).clone();
        if let Some(index) = after.indexes.iter_mut().find(|index| index.id == id) {
            index.name = last(&bind::path_of(index_name)?);
        }
        self.change(changed_table(&table, after)).await?;
        Ok(())
    }
}

/// Whether an operator class is one for this type that orders as indexes order here.
fn check_operator_class(class: &str, ty: Type) -> Result<()> {
    const TEXTS: [&str; 6] = [
        "text_ops",
        "varchar_ops",
        "bpchar_ops",
        "text_pattern_ops",
        "varchar_pattern_ops",
        "bpchar_pattern_ops",
    ];
    const OTHERS: [&str; 18] = [
        "int2_ops",
        "int4_ops",
        "int8_ops",
        "float4_ops",
        "float8_ops",
        "numeric_ops",
        "bool_ops",
        "date_ops",
        "time_ops",
        "timetz_ops",
        "timestamp_ops",
        "timestamptz_ops",
        "interval_ops",
        "uuid_ops",
        "bytea_ops",
        "jsonb_ops",
        "oid_ops",
        "name_ops",
    ];
    let takes = if TEXTS.contains(&class) {
        matches!(ty, Type::Text | Type::Varchar | Type::Bpchar)
    } else if OTHERS.contains(&class) {
        class == format!("{}_ops", ty.catalog_name())
    } else if class == "array_ops" {
        ty.is_array()
    } else {
        let message = format!("operator class \"{class}\" does not exist for access method \"btree\"");
        return Err(Error::new(Code::UndefinedObject, message));
    };
    if takes {
        return Ok(());
    }
    let message = format!("operator class \"{class}\" does not accept data type {}", ty.display_name());
    Err(Error::new(Code::DatatypeMismatch, message))
}
