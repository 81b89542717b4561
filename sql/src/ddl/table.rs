//! CREATE TABLE, CREATE TABLE AS, CREATE COLLECTION.

use model::{
    Code, Error, Result, Type,
    catalog::{Change, Object, ObjectId},
    id::{ColumnNumber, IndexId, SchemaId, SequenceId, TableId},
    key::KeyPart,
    schema::{
        Check, Column, ColumnDefault, ForeignKey, Index, IndexPart, IndexState, KeyConstraint, Kind,
        Referential, Sequence, Table,
    },
    types::Typmod,
};
use sqlparser::ast;

use super::last;
use crate::{
    bind::{self, Found, Names, types::find_type, unsupported},
    execute::Cancel,
    session::Session,
};

/// What is asked of a column besides its type.
#[derive(Default)]
pub(super) struct ColumnPlan {
    pub(super) column: Option<Column>,
    pub(super) primary: Vec<Option<String>>,
    /// Name, and whether nulls are not distinct.
    unique: Vec<(Option<String>, bool)>,
    checks: Vec<(Option<String>, String)>,
    foreign: Vec<ast::ForeignKeyConstraint>,
    /// A sequence of its own: its numbers' type and options, and whether it is GENERATED ALWAYS.
    pub(super) identity: Option<(Type, Vec<ast::SequenceOptions>, bool, bool)>,
}

impl ColumnPlan {
    /// Whether there are constraints that rows must meet, beside NOT NULL.
    pub(super) fn is_constrained(&self) -> bool {
        !self.primary.is_empty()
            || !self.unique.is_empty()
            || !self.checks.is_empty()
            || !self.foreign.is_empty()
    }
}

impl Session {
    pub(super) async fn create_table(
        &mut self,
        create: &ast::CreateTable,
        cancel: &Cancel,
    ) -> Result<String> {
        check_plain(create)?;
        let names = self.current_names();
        let path = bind::path_of(&create.name)?;
        let temporary =
            create.temporary || path.first().is_some_and(|first| path.len() == 2 && first == "pg_temp");
        let (schema, name) =
            if temporary { self.place_temporary(&names, &path)? } else { self.place(&names, &path)? };
        if !temporary && create.on_commit.is_some() {
            let message = "ON COMMIT can only be used on temporary tables";
            return Err(Error::new(Code::InvalidTableDefinition, message));
        }
        let tag = if create.query.is_some() { "SELECT" } else { "CREATE TABLE" };
        let taken = if temporary {
            names.catalog.find_temporary(self.session_id(), &name)
        } else {
            names.catalog.find_relation(schema, &name)
        };
        if taken.is_some() {
            self.exists_already(create.if_not_exists, Code::DuplicateTable, "relation", &name)?;
            return Ok(if create.query.is_some() { "CREATE TABLE AS".to_owned() } else { tag.to_owned() });
        }
        if let Some(query) = &create.query {
            return self.create_table_as(create, query, schema, name, temporary, cancel).await;
        }
        let mut builder = Builder::new(self, &names, schema, name).await?;
        builder.table.temporary = temporary.then(|| self.session_id());
        if let Some(ast::CreateTableLikeKind::Plain(like) | ast::CreateTableLikeKind::Parenthesized(like)) =
            &create.like
        {
            builder.like(self, &names, like)?;
        }
        let mut plans = Vec::new();
        for column in &create.columns {
            plans.push(self.column_plan(&names, column)?);
        }
        for plan in plans {
            builder.add_column(self, plan).await?;
        }
        builder.partition(create.partition_by.as_deref())?;
        builder.options(&create.table_options)?;
        for constraint in &create.constraints {
            builder.constraint(self, &names, constraint).await?;
        }
        builder.finish_constraints(self, &names).await?;
        let id = builder.table.id;
        let change = builder.into_change()?;
        self.change(change).await?;
        if temporary {
            self.note_temporary(id, on_commit(create));
        }
        Ok(tag.to_owned())
    }

    /// The schema in whose partition a temporary table lies, and its name.
    fn place_temporary(&self, names: &Names, path: &[String]) -> Result<(SchemaId, String)> {
        match path {
            [name] => Ok((self.temporary_schema(names)?, name.clone())),
            [schema, name] if schema == "pg_temp" => Ok((self.temporary_schema(names)?, name.clone())),
            _ => Err(Error::new(
                Code::InvalidTableDefinition,
                "cannot create temporary relation in non-temporary schema",
            )),
        }
    }

    /// The first schema of `search_path`, so that a transaction may write the table beside others; if there is none, `public`
    /// or any other: the table belongs to none of them.
    fn temporary_schema(&self, names: &Names) -> Result<SchemaId> {
        names.creation_schema().or_else(|none| {
            let (catalog, database) = (&names.catalog, self.database_id());
            let other = catalog.find_schema(database, "public").or_else(|| catalog.schemas(database).next());
            other.map(|schema| schema.id).ok_or(none)
        })
    }

    async fn create_table_as(
        &mut self,
        create: &ast::CreateTable,
        query: &ast::Query,
        schema: SchemaId,
        name: String,
        temporary: bool,
        cancel: &Cancel,
    ) -> Result<String> {
        let names = self.current_names();
        let text = query.to_string();
        let statement = ast::Statement::Query(Box::new(query.clone()));
        let bound = {
            let mut context = self.new_context();
            bind::bind(&text, &statement, &names, &mut context, bind::Parameters::default())?
        };
        if !bound.parameters.is_empty() {
            return Err(Error::new(Code::UndefinedParameter, "there is no parameter $1"));
        }
        let mut builder = Builder::new(self, &names, schema, name).await?;
        builder.table.temporary = temporary.then(|| self.session_id());
        for (at, (output, id)) in bound.outputs.iter().enumerate() {
            let info = bound.columns.get(*id);
            let renamed = create.columns.get(at).map(|column| bind::fold(&column.name));
            builder.push_column(plain_column(
                renamed.unwrap_or_else(|| output.clone()),
                info.ty,
                Typmod(info.typmod),
            ))?;
        }
        let (table_id, partition) = (builder.table.id, create.partition_by.as_deref());
        builder.partition(partition)?;
        builder.options(&create.table_options)?;
        let change = builder.into_change()?;
        self.change(change).await?;
        if temporary {
            self.note_temporary(table_id, on_commit(create));
        }
        let with_data =
            create.with_data.as_ref().is_none_or(|with| !with.to_string().to_uppercase().contains("NO DATA"));
        let mut rows = 0;
        if with_data {
            rows = match self.fill_table(table_id, &text, cancel).await {
                Ok(rows) => rows,
                Err(error) => {
                    if !self.is_transactional() {
                        let drop = Change { drop: vec![ObjectId::Table(table_id)], ..Change::default() };
                        self.change(drop).await?;
                    }
                    return Err(error);
                }
            };
        }
        Ok(format!("SELECT {rows}"))
    }

    /// Fills a table from a query; how many rows.
    async fn fill_table(&mut self, table: TableId, query: &str, cancel: &Cancel) -> Result<u64> {
        let catalog = self.current_catalog();
        let found = catalog.table(table).ok_or_else(|| Error::internal("a new table is not there"))?;
        let text = format!("INSERT INTO {} {query}", self.qualified(found));
        self.run_alone(&text, cancel).await
    }

    pub(super) async fn create_collection(
        &mut self,
        path: &[String],
        if_not_exists: bool,
        options: &[(String, String)],
    ) -> Result<()> {
        let names = self.current_names();
        let (schema, name) = self.place(&names, path)?;
        if names.catalog.find_relation(schema, &name).is_some() {
            return self.exists_already(if_not_exists, Code::DuplicateTable, "relation", &name);
        }
        let mut builder = Builder::new(self, &names, schema, name).await?;
        builder.table.kind = Kind::Collection;
        for (option, value) in options {
            match option.as_str() {
                "feed" => builder.table.feed = is_on(value)?,
                _ => return Err(unrecognized_option(option)),
            }
        }
        let mut id = plain_column("id".to_owned(), Type::Text, Typmod::NONE);
        id.not_null = true;
        builder.push_column(id)?;
        builder.push_column(plain_column("doc".to_owned(), Type::Jsonb, Typmod::NONE))?;
        builder.primary = Some((None, vec![ColumnNumber(1)]));
        builder.finish_constraints(self, &names).await?;
        let change = builder.into_change()?;
        self.change(change).await?;
        Ok(())
    }

    /// What a column definition asks for.
    pub(super) fn column_plan(&mut self, names: &Names, definition: &ast::ColumnDef) -> Result<ColumnPlan> {
        let ast::ColumnDef { name, data_type, options } = definition;
        let name = bind::fold(name);
        let mut plan = ColumnPlan::default();
        let (ty, typmod) = match serial(data_type) {
            Some(ty) => {
                plan.identity = Some((ty, Vec::new(), false, true));
                (ty, Typmod::NONE)
            }
            None => {
                let (ty, typmod) = find_type(data_type)?;
                (ty, Typmod(typmod))
            }
        };
        if matches!(ty, Type::Unknown | Type::Record | Type::Void) {
            let message = format!("column \"{name}\" has pseudo-type {ty}");
            return Err(Error::new(Code::InvalidTableDefinition, message));
        }
        let mut column = plain_column(name.clone(), ty, typmod);
        column.not_null = plan.identity.is_some();
        let (mut nullable, mut has_default) = (false, false);
        for ast::ColumnOptionDef { name: constraint, option } in options {
            let constraint = constraint.as_ref().map(bind::fold);
            match option {
                ast::ColumnOption::Null => nullable = true,
                ast::ColumnOption::NotNull => column.not_null = true,
                ast::ColumnOption::Default(_) if has_default => {
                    let message = format!("multiple default values specified for column \"{name}\"");
                    return Err(Error::new(Code::SyntaxError, message));
                }
                ast::ColumnOption::Default(expr) => {
                    has_default = true;
                    let text = expr.to_string();
                    let mut context = self.new_context();
                    let bound =
                        bind::bind_alone(&text, "DEFAULT", &[], Some((ty, typmod.0)), names, &mut context)
                            .map_err(|error| {
                                if error.code() == Code::UndefinedColumn {
                                    return Error::new(
                                        Code::FeatureNotSupported,
                                        "cannot use column reference in DEFAULT expression",
                                    );
                                }
                                error
                            })?;
                    let is_null = matches!(bound.as_constant(), Some(value) if value.is_null());
                    column.default = (!is_null).then_some(ColumnDefault::Expression(text));
                }
                ast::ColumnOption::PrimaryKey(_) => plan.primary.push(constraint),
                ast::ColumnOption::Unique(unique) => plan.unique.push((
                    constraint,
                    matches!(unique.nulls_distinct, ast::NullsDistinctOption::NotDistinct),
                )),
                ast::ColumnOption::Check(check) => plan
                    .checks
                    .push((constraint.or(check.name.as_ref().map(bind::fold)), check.expr.to_string())),
                ast::ColumnOption::ForeignKey(foreign) => {
                    let mut foreign = foreign.clone();
                    if let Some(ident) = constraint {
                        foreign.name = Some(ast::Ident::with_quote('"', ident));
                    }
                    foreign.columns = vec![ast::Ident::with_quote('"', name.clone())];
                    plan.foreign.push(foreign);
                }
                ast::ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    generation_expr,
                    generation_expr_mode,
                    generated_keyword: _,
                } => match (generated_as, generation_expr) {
                    (_, Some(expr)) => {
                        if matches!(generation_expr_mode, Some(ast::GeneratedExpressionMode::Virtual)) {
                            return Err(unsupported(
                                "a virtual generated column",
                                "Use GENERATED ALWAYS AS (…) STORED.",
                            ));
                        }
                        column.default = Some(ColumnDefault::Generated(expr.to_string()));
                    }
                    (kind, None) => {
                        let always = matches!(kind, ast::GeneratedAs::Always);
                        if !ty.is_integer() {
                            let message = "identity column type must be smallint, integer, or bigint";
                            return Err(Error::new(Code::InvalidParameterValue, message));
                        }
                        plan.identity =
                            Some((ty, sequence_options.clone().unwrap_or_default(), always, false));
                        column.not_null = true;
                    }
                },
                ast::ColumnOption::Collation(collation) => {
                    let name = last(&bind::path_of(collation)?);
                    if !matches!(name.as_str(), "C" | "POSIX" | "default" | "c" | "ucs_basic") {
                        let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                        return Err(Error::new(Code::UndefinedObject, message));
                    }
                }
                other => {
                    return Err(unsupported(
                        &format!("{other} for a column"),
                        "It is not part of PostgreSQL's dialect.",
                    ));
                }
            }
        }
        if nullable && column.not_null {
            let message = format!("conflicting NULL/NOT NULL declarations for column \"{name}\"");
            return Err(Error::new(Code::SyntaxError, message));
        }
        plan.column = Some(column);
        Ok(plan)
    }
}

/// A table on its way.
pub(super) struct Builder {
    pub(super) table: Table,
    pub(super) sequences: Vec<Sequence>,
    pub(super) primary: Option<(Option<String>, Vec<ColumnNumber>)>,
    unique: Vec<(Option<String>, Vec<ColumnNumber>, bool)>,
    checks: Vec<(Option<String>, String)>,
    foreign: Vec<ast::ForeignKeyConstraint>,
    used_names: Vec<String>,
    /// The table has rows, which lie under the key they have.
    filled: bool,
}

impl Builder {
    async fn new(session: &Session, names: &Names, schema: SchemaId, name: String) -> Result<Self> {
        let id = TableId(session.dispatch().allocate_ids(1).await?);
        let _ = names;
        let table = Table {
            id,
            database: session.database_id(),
            schema,
            name,
            owner: session.role(),
            kind: Kind::Table,
            version: 1,
            columns: Vec::new(),
            primary_key: None,
            indexes: Vec::new(),
            partition_by: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            feed: true,
            temporary: None,
            comment: None,
        };
        Ok(Self::over(table))
    }

    /// A builder that goes on with a table that exists.
    pub(super) fn over(table: Table) -> Self {
        Self {
            table,
            sequences: Vec::new(),
            primary: None,
            unique: Vec::new(),
            checks: Vec::new(),
            foreign: Vec::new(),
            used_names: Vec::new(),
            filled: false,
        }
    }

    /// Says whether the table has rows, which stay where they are.
    pub(super) fn set_filled(&mut self, filled: bool) {
        self.filled = filled;
    }

    fn like(&mut self, session: &Session, names: &Names, like: &ast::CreateTableLike) -> Result<()> {
        let _ = session;
        let source = names.get_table(&bind::path_of(&like.name)?)?;
        let defaults = matches!(like.defaults, Some(ast::CreateTableLikeDefaults::Including));
        for column in source.visible_columns() {
            let mut copy = column.clone();
            copy.comment = None;
            copy.missing = None;
            copy.moved = None;
            if !defaults {
                copy.default = None;
            } else if matches!(copy.default, Some(ColumnDefault::Identity { .. })) {
                return Err(unsupported(
                    "LIKE … INCLUDING DEFAULTS of an identity column",
                    "Write the column out.",
                ));
            }
            self.push_column(copy)?;
        }
        Ok(())
    }

    pub(super) fn push_column(&mut self, mut column: Column) -> Result<ColumnNumber> {
        if self.table.columns.iter().any(|other| !other.dropped && other.name == column.name) {
            return Err(Error::new(
                Code::DuplicateColumn,
                format!("column \"{}\" specified more than once", column.name),
            ));
        }
        const SYSTEM: [&str; 8] =
            ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax", "_revision", "_updated_at"];
        if SYSTEM.contains(&column.name.as_str()) {
            let message = format!("column name \"{}\" conflicts with a system column name", column.name);
            return Err(Error::new(Code::DuplicateColumn, message));
        }
        let number = u16::try_from(self.table.columns.len() + 1)
            .ok()
            .filter(|number| usize::from(*number) <= model::row::COLUMNS_MAX);
        let Some(number) = number else {
            return Err(Error::new(
                Code::TooManyColumns,
                format!("tables can have at most {} columns", model::row::COLUMNS_MAX),
            ));
        };
        column.number = ColumnNumber(number);
        self.table.columns.push(column);
        Ok(ColumnNumber(number))
    }

    pub(super) async fn add_column(&mut self, session: &Session, plan: ColumnPlan) -> Result<()> {
        let ColumnPlan { column, primary, unique, checks, foreign, identity } = plan;
        let column = column.ok_or_else(|| Error::internal("a column without a definition"))?;
        let name = column.name.clone();
        let number = self.push_column(column)?;
        if let Some((ty, options, always, _serial)) = identity {
            let id = SequenceId(session.dispatch().allocate_ids(1).await?);
            let mut sequence =
                super::sequence::new_sequence(id, &self.table, format!("{}_{name}_seq", self.table.name), ty);
            super::sequence::apply_ast_options(&mut sequence, &options)?;
            sequence.owned_by = Some((self.table.id, number));
            let at = usize::from(number.0) - 1;
            self.table.columns[at].default = Some(ColumnDefault::Identity { sequence: id, always });
            self.sequences.push(sequence);
        }
        for name in primary {
            self.set_primary(name, vec![number])?;
        }
        for (name, nulls_not_distinct) in unique {
            self.unique.push((name, vec![number], nulls_not_distinct));
        }
        for (constraint, text) in checks {
            let constraint = constraint.unwrap_or_else(|| format!("{}_{name}_check", self.table.name));
            self.checks.push((Some(constraint), text));
        }
        self.foreign.extend(foreign);
        Ok(())
    }

    fn set_primary(&mut self, name: Option<String>, columns: Vec<ColumnNumber>) -> Result<()> {
        if self.primary.is_some() || self.table.declared_key().is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", self.table.name);
            return Err(Error::new(Code::InvalidTableDefinition, message));
        }
        self.primary = Some((name, columns));
        Ok(())
    }

    pub(super) fn partition(&mut self, partition_by: Option<&ast::Expr>) -> Result<()> {
        let Some(expr) = partition_by else { return Ok(()) };
        let form = || {
            Error::unsupported(
                "this form of PARTITION BY is not supported",
                "Use PARTITION BY HASH (column, …): each distinct value is a partition.",
            )
        };
        let ast::Expr::Function(call) = expr else { return Err(form()) };
        if !call.name.to_string().eq_ignore_ascii_case("hash") {
            return Err(form());
        }
        let ast::FunctionArguments::List(list) = &call.args else { return Err(form()) };
        for arg in &list.args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(ast::Expr::Identifier(ident))) = arg
            else {
                return Err(form());
            };
            let number = self.get_column(&bind::fold(ident))?;
            self.table.partition_by.push(number);
        }
        Ok(())
    }

    pub(super) fn options(&mut self, options: &ast::CreateTableOptions) -> Result<()> {
        let options = match options {
            ast::CreateTableOptions::None => return Ok(()),
            ast::CreateTableOptions::With(options) => options,
            _ => return Err(unsupported("this form of table options", "Use WITH (option = value).")),
        };
        for option in options {
            let ast::SqlOption::KeyValue { key, value } = option else {
                return Err(unrecognized_option(&option.to_string()));
            };
            let value = value.to_string().trim_matches('\'').to_lowercase();
            match last(&bind::path_of(key)?).as_str() {
                "feed" => self.table.feed = is_on(&value)?,
                // PostgreSQL's storage hints have no meaning here and change no result.
                "fillfactor" | "autovacuum_enabled" | "parallel_workers" | "user_catalog_table" => {}
                other => return Err(unrecognized_option(other)),
            }
        }
        Ok(())
    }

    fn get_column(&self, name: &str) -> Result<ColumnNumber> {
        self.table.find_column(name).map(|column| column.number).ok_or_else(|| {
            Error::new(Code::UndefinedColumn, format!("column \"{name}\" named in key does not exist"))
        })
    }

    fn key_columns(&self, columns: &[ast::IndexColumn]) -> Result<Vec<ColumnNumber>> {
        let mut numbers = Vec::new();
        for ast::IndexColumn { column, operator_class } in columns {
            bind_plain(operator_class.is_none())?;
            let ast::Expr::Identifier(ident) = &column.expr else {
                return Err(unsupported("an expression in a constraint", "Use CREATE UNIQUE INDEX."));
            };
            let name = bind::fold(ident);
            let number = self.get_column(&name)?;
            if numbers.contains(&number) {
                let message = format!("column \"{name}\" appears twice in unique constraint");
                return Err(Error::new(Code::DuplicateColumn, message));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }

    pub(super) async fn constraint(
        &mut self,
        session: &Session,
        names: &Names,
        constraint: &ast::TableConstraint,
    ) -> Result<()> {
        let _ = (session, names);
        match constraint {
            ast::TableConstraint::PrimaryKey(key) => {
                check_characteristics(key.characteristics.as_ref())?;
                bind_plain(key.include.is_empty())?;
                let columns = self.key_columns(&key.columns)?;
                self.set_primary(key.name.as_ref().map(bind::fold), columns)
            }
            ast::TableConstraint::Unique(unique) => {
                check_characteristics(unique.characteristics.as_ref())?;
                bind_plain(unique.include.is_empty())?;
                let columns = self.key_columns(&unique.columns)?;
                let nulls_not_distinct =
                    matches!(unique.nulls_distinct, ast::NullsDistinctOption::NotDistinct);
                self.unique.push((unique.name.as_ref().map(bind::fold), columns, nulls_not_distinct));
                Ok(())
            }
            ast::TableConstraint::Check(check) => {
                self.checks.push((check.name.as_ref().map(bind::fold), check.expr.to_string()));
                Ok(())
            }
            ast::TableConstraint::ForeignKey(foreign) => {
                self.foreign.push(foreign.clone());
                Ok(())
            }
            _ => {
                Err(unsupported("this kind of constraint", "PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY are."))
            }
        }
    }

    /// A name for a constraint that has none and is not taken.
    fn pick_name(&mut self, names: &Names, wanted: Option<String>, base: String) -> String {
        let free = |name: &str| {
            names.catalog.find_relation(self.table.schema, name).is_none()
                && !self.used_names.iter().any(|used| used == name)
                && !self.table.indexes.iter().any(|index| index.name == name)
                && !self.table.checks.iter().any(|check| check.name == name)
                && !self.table.foreign_keys.iter().any(|key| key.name == name)
        };
        let name = match wanted {
            Some(name) => name,
            None => {
                let mut base = base;
                base.truncate(
                    (0..=59).rev().find(|at| base.is_char_boundary(*at)).unwrap_or(0).min(base.len()),
                );
                let numbered =
                    std::iter::once(base.clone()).chain((1..).map(|number| format!("{base}{number}")));
                let mut numbered = numbered.filter(|name| free(name));
                numbered.next().unwrap_or(base)
            }
        };
        self.used_names.push(name.clone());
        name
    }

    fn joined(&self, columns: &[ColumnNumber]) -> String {
        columns.iter().map(|number| self.table.column(*number).name.clone()).collect::<Vec<_>>().join("_")
    }

    /// Makes indexes, checks and foreign keys of what was collected.
    pub(super) async fn finish_constraints(&mut self, session: &mut Session, names: &Names) -> Result<()> {
        self.finish_columns(session, names)?;
        if let Some((name, columns)) = self.primary.take() {
            let name = self.pick_name(names, name, format!("{}_pkey", self.table.name));
            for number in &columns {
                let at = usize::from(number.0) - 1;
                self.table.columns[at].not_null = true;
            }
            let id = self.add_index(session, name, columns, false, KeyConstraint::Primary).await?;
            if !self.filled {
                self.table.primary_key = Some(id);
            }
        }
        for (name, columns, nulls_not_distinct) in std::mem::take(&mut self.unique) {
            let base = format!("{}_{}_key", self.table.name, self.joined(&columns));
            let name = self.pick_name(names, name, base);
            self.add_index(session, name, columns, nulls_not_distinct, KeyConstraint::Unique).await?;
        }
        for (name, text) in std::mem::take(&mut self.checks) {
            self.add_check(session, names, name, text)?;
        }
        for foreign in std::mem::take(&mut self.foreign) {
            self.add_foreign_key(session, names, &foreign)?;
        }
        Ok(())
    }

    /// Names the sequences of new columns and looks at what they are computed from.
    pub(super) fn finish_columns(&mut self, session: &mut Session, names: &Names) -> Result<()> {
        for sequence in &mut self.sequences {
            let base = sequence.name.clone();
            let mut numbered =
                std::iter::once(base.clone()).chain((1..).map(|number| format!("{base}{number}")));
            if let Some(name) =
                numbered.find(|name| names.catalog.find_relation(sequence.schema, name).is_none())
            {
                sequence.name = name;
            }
        }
        self.check_generated(session, names)
    }

    async fn add_index(
        &mut self,
        session: &Session,
        name: String,
        columns: Vec<ColumnNumber>,
        nulls_not_distinct: bool,
        constraint: KeyConstraint,
    ) -> Result<IndexId> {
        for number in &columns {
            let column = self.table.column(*number);
            check_key_type(column.data_type)?;
        }
        let missing: Vec<&str> = self
            .table
            .partition_by
            .iter()
            .filter(|number| !columns.contains(number))
            .map(|number| self.table.column(*number).name.as_str())
            .collect();
        if !missing.is_empty() {
            return Err(Error::unsupported(
                format!(
                    "unique constraint on partitioned table \"{}\" must include all partitioning columns",
                    self.table.name
                ),
                format!("Add {} to the key.", missing.join(", ")),
            ));
        }
        let id = IndexId(session.dispatch().allocate_ids(1).await?);
        self.table.indexes.push(Index {
            id,
            name,
            parts: columns.into_iter().map(|column| IndexPart { column, order: KeyPart::ASC }).collect(),
            unique: true,
            nulls_not_distinct,
            constraint: Some(constraint),
            predicate: None,
            predicate_text: None,
            state: IndexState::Ready,
            comment: None,
        });
        Ok(id)
    }

    fn add_check(
        &mut self,
        session: &mut Session,
        names: &Names,
        name: Option<String>,
        text: String,
    ) -> Result<()> {
        let columns = visible(&self.table);
        let mut context = session.new_context();
        let bound = bind::bind_alone(&text, "CHECK", &columns, Some((Type::Bool, -1)), names, &mut context)?;
        let read = bind::depends_on_columns(&bound);
        let first = read.iter().next().filter(|_| read.len() == 1).map(|at| columns[*at].0.clone());
        let base = match first {
            Some(column) => format!("{}_{column}_check", self.table.name),
            None => format!("{}_check", self.table.name),
        };
        let name = self.pick_name(names, name, base);
        if self.table.checks.iter().any(|check| check.name == name) {
            let message = format!("check constraint \"{name}\" already exists");
            return Err(Error::new(Code::DuplicateObject, message));
        }
        self.table.checks.push(Check { name, expression: text });
        Ok(())
    }

    fn check_generated(&self, session: &mut Session, names: &Names) -> Result<()> {
        let columns = visible(&self.table);
        for column in self.table.columns.iter().filter(|column| !column.dropped) {
            let Some(ColumnDefault::Generated(text)) = &column.default else { continue };
            let mut context = session.new_context();
            let bound = bind::bind_alone(
                text,
                "column generation",
                &columns,
                Some((column.data_type, column.typmod.0)),
                names,
                &mut context,
            )?;
            if bound.volatility() != crate::functions::Volatility::Immutable {
                return Err(Error::new(
                    Code::InvalidObjectDefinition,
                    "generation expression is not immutable",
                ));
            }
            for at in bind::depends_on_columns(&bound) {
                let other = self.table.find_column(&columns[at].0);
                if other.is_some_and(|other| matches!(other.default, Some(ColumnDefault::Generated(_)))) {
                    let message = format!(
                        "cannot use generated column \"{}\" in column generation expression",
                        columns[at].0
                    );
                    return Err(Error::new(Code::SyntaxError, message));
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_foreign_key(
        &mut self,
        session: &Session,
        names: &Names,
        foreign: &ast::ForeignKeyConstraint,
    ) -> Result<()> {
        let ast::ForeignKeyConstraint {
            name,
            index_name: _,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            match_kind,
            characteristics,
        } = foreign;
        check_characteristics(characteristics.as_ref())?;
        if match_kind.as_ref().is_some_and(|kind| !kind.to_string().to_uppercase().contains("SIMPLE")) {
            return Err(unsupported("MATCH FULL or PARTIAL", "Use MATCH SIMPLE."));
        }
        let path = bind::path_of(foreign_table)?;
        let own = path.len() == 1 && path[0] == self.table.name;
        let parent = match names.find(&path)? {
            Some(Found::Table(table)) => table,
            None if own => std::sync::Arc::new(self.table.clone()),
            Some(_) => {
                let message = format!("referenced relation \"{}\" is not a table", last(&path));
                return Err(Error::new(Code::WrongObjectType, message));
            }
            None => return Err(bind::undefined_table(&path)),
        };
        let parent =
            if parent.id == self.table.id || own { std::sync::Arc::new(self.table.clone()) } else { parent };
        if parent.id != self.table.id
            && !session.has_right(
                &names.catalog,
                model::access::Object::Table(parent.id),
                model::access::Privilege::References,
                Some(parent.owner),
            )
        {
            return Err(Error::new(
                Code::InsufficientPrivilege,
                format!("permission denied for table {}", parent.name),
            ));
        }
        match (self.table.temporary.is_some(), parent.temporary.is_some()) {
            (false, true) => {
                let message = "constraints on permanent tables may reference only permanent tables";
                return Err(Error::new(Code::InvalidTableDefinition, message));
            }
            (true, false) => {
                let message = "constraints on temporary tables may reference only temporary tables";
                return Err(Error::new(Code::InvalidTableDefinition, message));
            }
            (true, true) | (false, false) => {}
        }
        if parent.schema != self.table.schema {
            return Err(unsupported(
                "a foreign key between schemas",
                "A schema is a transaction domain; keep both tables in one.",
            ));
        }
        let mut numbers = Vec::new();
        for ident in columns {
            let column = bind::fold(ident);
            let found = self.table.find_column(&column).ok_or_else(|| {
                Error::new(
                    Code::UndefinedColumn,
                    format!("column \"{column}\" referenced in foreign key constraint does not exist"),
                )
            })?;
            numbers.push(found.number);
        }
        let mut parent_columns = Vec::new();
        if referred_columns.is_empty() {
            let key = parent.declared_key().ok_or_else(|| {
                Error::new(
                    Code::UndefinedObject,
                    format!("there is no primary key for referenced table \"{}\"", parent.name),
                )
            })?;
            parent_columns.extend(key.parts.iter().map(|part| part.column));
        }
        for ident in referred_columns {
            let column = bind::fold(ident);
            let found = parent.find_column(&column).ok_or_else(|| {
                Error::new(
                    Code::UndefinedColumn,
                    format!("column \"{column}\" referenced in foreign key constraint does not exist"),
                )
            })?;
            parent_columns.push(found.number);
        }
        if numbers.len() != parent_columns.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(Error::new(Code::InvalidForeignKey, message));
        }
        let unique = parent.indexes.iter().any(|index| {
            index.unique
                && index.predicate.is_none()
                && index.parts.len() == parent_columns.len()
                && index.parts.iter().all(|part| parent_columns.contains(&part.column))
        });
        if !unique {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            );
            return Err(Error::new(Code::InvalidForeignKey, message));
        }
        for (number, parent_number) in numbers.iter().zip(&parent_columns) {
            let (a, b) = (self.table.column(*number), parent.column(*parent_number));
            let alike = a.data_type == b.data_type
                || (a.data_type.is_integer() && b.data_type.is_integer())
                || (a.data_type.is_text() && b.data_type.is_text());
            if !alike {
                let base = format!("{}_{}_fkey", self.table.name, self.joined(&numbers));
                let shown = name.as_ref().map_or(base, bind::fold);
                let message = format!("foreign key constraint \"{shown}\" cannot be implemented");
                let detail = format!(
                    "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                    a.name, b.name, a.data_type, b.data_type
                );
                return Err(Error::new(Code::DatatypeMismatch, message).with_detail(detail));
            }
        }
        let base = format!("{}_{}_fkey", self.table.name, self.joined(&numbers));
        let name = self.pick_name(names, name.as_ref().map(bind::fold), base);
        let action = |action: &Option<ast::ReferentialAction>| match action {
            None | Some(ast::ReferentialAction::NoAction | ast::ReferentialAction::Restrict) => {
                Referential::NoAction
            }
            Some(ast::ReferentialAction::Cascade) => Referential::Cascade,
            Some(ast::ReferentialAction::SetNull) => Referential::SetNull,
            Some(ast::ReferentialAction::SetDefault) => Referential::SetDefault,
        };
        self.table.foreign_keys.push(ForeignKey {
            name,
            columns: numbers,
            parent: parent.id,
            parent_columns,
            on_delete: action(on_delete),
            on_update: action(on_update),
        });
        Ok(())
    }

    fn into_change(self) -> Result<Change> {
        let Self { table, sequences, .. } = self;
        if let Some(missing) = table.partition_by.iter().find(|number| {
            !table.key().is_some_and(|key| key.parts.iter().any(|part| part.column == **number))
        }) {
            let message = format!(
                "the primary key of a table with PARTITION BY must contain column \"{}\"",
                table.column(*missing).name
            );
            return Err(Error::unsupported(message, "Add it to the primary key."));
        }
        let mut change = Change { expect: vec![(ObjectId::Table(table.id), None)], ..Change::default() };
        for sequence in sequences {
            change.expect.push((ObjectId::Sequence(sequence.id), None));
            change.put.push(Object::Sequence(sequence));
        }
        change.put.push(Object::Table(table));
        Ok(change)
    }
}

/// The visible columns of a table, as `bind_alone` takes them.
pub(super) fn visible(table: &Table) -> Vec<(String, Type, i32)> {
    table.visible_columns().map(|column| (column.name.clone(), column.data_type, column.typmod.0)).collect()
}

pub(super) fn plain_column(name: String, data_type: Type, typmod: Typmod) -> Column {
    Column {
        number: ColumnNumber(0),
        name,
        data_type,
        typmod,
        not_null: false,
        default: None,
        missing: None,
        hidden: false,
        dropped: false,
        moved: None,
        comment: None,
    }
}

/// The integer type behind `serial`.
fn serial(data_type: &ast::DataType) -> Option<Type> {
    match data_type.to_string().to_lowercase().as_str() {
        "serial" | "serial4" => Some(Type::Int4),
        "bigserial" | "serial8" => Some(Type::Int8),
        "smallserial" | "serial2" => Some(Type::Int2),
        _ => None,
    }
}

/// Types whose values have an order-preserving key.
pub(super) fn check_key_type(ty: Type) -> Result<()> {
    let fits = !matches!(ty, Type::Json | Type::Record | Type::Vector | Type::PgNodeTree);
    if fits {
        return Ok(());
    }
    let message = format!("data type {ty} has no default operator class for access method \"btree\"");
    Err(Error::new(Code::UndefinedObject, message)
        .with_hint("You must specify an operator class for the index or define a default operator class for the data type."))
}

fn check_characteristics(characteristics: Option<&ast::ConstraintCharacteristics>) -> Result<()> {
    let deferred = characteristics.is_some_and(|at| {
        at.deferrable == Some(true) || matches!(at.initially, Some(ast::DeferrableInitial::Deferred))
    });
    if deferred {
        return Err(unsupported(
            "a deferrable constraint",
            "Constraints are checked at the end of each statement.",
        ));
    }
    Ok(())
}

fn bind_plain(plain: bool) -> Result<()> {
    if plain { Ok(()) } else { Err(unsupported("this option of a constraint", "Leave it out.")) }
}

pub(super) fn is_on(value: &str) -> Result<bool> {
    match value.to_lowercase().as_str() {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => {
            Err(Error::new(Code::InvalidParameterValue, format!("invalid value for boolean option: {value}")))
        }
    }
}

fn unrecognized_option(name: &str) -> Error {
    Error::new(Code::InvalidParameterValue, format!("unrecognized parameter \"{name}\""))
}

/// A name as SQL writes it.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What becomes of a temporary table at a commit: none if it stays, else whether it is dropped or only emptied.
fn on_commit(create: &ast::CreateTable) -> Option<bool> {
    match create.on_commit {
        None | Some(ast::OnCommit::PreserveRows) => None,
        Some(ast::OnCommit::DeleteRows) => Some(false),
        Some(ast::OnCommit::Drop) => Some(true),
    }
}

/// Refuses forms of CREATE TABLE that mean nothing here.
fn check_plain(create: &ast::CreateTable) -> Result<()> {
    let plain = !create.or_replace
        && !create.external
        && !create.transient
        && create.clone.is_none()
        && create.inherits.is_none()
        && create.partition_of.is_none()
        && create.order_by.is_none()
        && create.cluster_by.is_none()
        && create.clustered_by.is_none()
        && create.primary_key.is_none()
        && create.file_format.is_none()
        && create.location.is_none()
        && create.on_cluster.is_none()
        && create.comment.is_none();
    if plain {
        Ok(())
    } else {
        Err(unsupported("this form of CREATE TABLE", "See the documentation for what is."))
    }
}
