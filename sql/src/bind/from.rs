//! FROM: tables, views, sub-queries, functions, joins.
//!
//! Invariants:
//! - A scan gives every column of its table, and the system and hidden ones too; what nobody reads is pruned when the plan is
//!   lowered.
//! - A view is bound as the query it stands for, with its owner's rights.
//! - Functions in FROM, and sub-queries after LATERAL, see what stands to their left.

use model::{
    Code, Error, Result, Type, Value,
    access::Privilege,
    id::ColumnNumber,
    schema::{Table, View},
};
use sqlparser::{ast, ast::Spanned, tokenizer::Span};

use super::{
    Binder, Found, Scope, VIEWS_MAX,
    expr::Frame,
    fold, path_of,
    query::BoundQuery,
    refuse,
    scope::Relation,
    span_of,
    types::{Coercion, find_type},
    undefined_table, unsupported,
};
use crate::{
    expr::{Expr, Kind},
    functions::Body,
    parse,
    plan::{
        JoinKind, ScanColumn, SetExpr,
        logical::{self, Logical},
    },
};

impl Binder<'_> {
    /// FROM: without relations, one row.
    pub(super) fn bind_from<'p>(
        &mut self,
        from: &[ast::TableWithJoins],
        parent: Option<&'p Scope<'p>>,
    ) -> Result<(Logical, Scope<'p>)> {
        let mut scope = Scope::inside(parent);
        let mut plan: Option<Logical> = None;
        for item in from {
            let (next, next_scope) = self.table_with_joins(item, &scope, parent)?;
            let (relations, flat) = (next_scope.relations, next_scope.flat);
            let span = item.relation.span();
            let mut fresh = Scope::inside(parent);
            (fresh.relations, fresh.flat) = (relations, flat);
            scope.join(fresh).map_err(|error| self.at(error, span))?;
            plan = Some(match plan {
                None => next,
                Some(left) => join(JoinKind::Inner, left, next, None),
            });
        }
        Ok((plan.unwrap_or_else(Logical::one_row), scope))
    }

    /// A relation with its joins. The scope it gives has no parent.
    fn table_with_joins(
        &mut self,
        item: &ast::TableWithJoins,
        left: &Scope<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<(Logical, Scope<'static>)> {
        let (mut plan, mut scope) = self.table_factor(&item.relation, left, parent)?;
        for ast::Join { relation, global, join_operator } in &item.joins {
            refuse(*global, "GLOBAL JOIN")?;
            let (right, right_scope) = {
                let mut around = Scope::inside(Some(left));
                around.relations.clone_from(&scope.relations);
                around.flat.clone_from(&scope.flat);
                self.table_factor(relation, &around, parent)?
            };
            (plan, scope) =
                self.join(plan, scope, right, right_scope, join_operator, left, relation.span())?;
        }
        Ok((plan, scope))
    }

    #[allow(clippy::too_many_arguments)]
    fn join(
        &mut self,
        left: Logical,
        mut left_scope: Scope<'static>,
        right: Logical,
        right_scope: Scope<'static>,
        operator: &ast::JoinOperator,
        around: &Scope<'_>,
        span: Span,
    ) -> Result<(Logical, Scope<'static>)> {
        let (kind, constraint) = match operator {
            ast::JoinOperator::Join(constraint) | ast::JoinOperator::Inner(constraint) => {
                (JoinKind::Inner, constraint)
            }
            ast::JoinOperator::Left(constraint) | ast::JoinOperator::LeftOuter(constraint) => {
                (JoinKind::Left, constraint)
            }
            ast::JoinOperator::Right(constraint) | ast::JoinOperator::RightOuter(constraint) => {
                (JoinKind::Right, constraint)
            }
            ast::JoinOperator::FullOuter(constraint) => (JoinKind::Full, constraint),
            ast::JoinOperator::CrossJoin(constraint) => {
                refuse(!matches!(constraint, ast::JoinConstraint::None), "CROSS JOIN with a condition")?;
                (JoinKind::Inner, constraint)
            }
            _ => return Err(unsupported("this kind of join", "Use INNER, LEFT, RIGHT, FULL or CROSS JOIN.")),
        };
        let cross = matches!(operator, ast::JoinOperator::CrossJoin(_));
        match constraint {
            ast::JoinConstraint::On(condition) => {
                left_scope.join(right_scope).map_err(|error| self.at(error, span))?;
                let condition = {
                    let mut scope = Scope::inside(around.parent);
                    scope.relations.clone_from(&left_scope.relations);
                    scope.flat.clone_from(&left_scope.flat);
                    scope.unreachable =
                        around.relations.iter().map(|relation| relation.alias.clone()).collect();
                    let mut frame = Frame::plain(&scope, "JOIN/ON");
                    self.condition(condition, &mut frame)?
                };
                Ok((join(kind, left, right, Some(condition)), left_scope))
            }
            ast::JoinConstraint::Using(names) => {
                let mut columns = Vec::new();
                for name in names {
                    columns.push((path_of(name)?.pop().unwrap_or_default(), span_of(name)));
                }
                self.join_using(left, left_scope, right, right_scope, kind, &columns, span)
            }
            ast::JoinConstraint::UsingAlias(..) => {
                Err(unsupported("an alias of JOIN … USING", "Name the columns of one side."))
            }
            ast::JoinConstraint::Natural => {
                let common = left_scope
                    .flat
                    .iter()
                    .filter(|(name, _)| right_scope.flat.iter().any(|(other, _)| other == name))
                    .map(|(name, _)| (name.clone(), span));
                let columns: Vec<(String, Span)> = common.collect();
                self.join_using(left, left_scope, right, right_scope, kind, &columns, span)
            }
            ast::JoinConstraint::None if cross => {
                left_scope.join(right_scope).map_err(|error| self.at(error, span))?;
                Ok((join(kind, left, right, None), left_scope))
            }
            ast::JoinConstraint::None => {
                Err(self.error(Code::SyntaxError, "syntax error: JOIN needs ON or USING", span))
            }
        }
    }

    /// JOIN … USING: equal columns are merged.
    #[allow(clippy::too_many_arguments)]
    fn join_using(
        &mut self,
        left: Logical,
        mut left_scope: Scope<'static>,
        right: Logical,
        right_scope: Scope<'static>,
        kind: JoinKind,
        names: &[(String, Span)],
        span: Span,
    ) -> Result<(Logical, Scope<'static>)> {
        let find = |binder: &Self, scope: &Scope<'_>, name: &str, side: &str, at: Span| {
            let mut found = scope.flat.iter().filter(|(column, _)| column == name).map(|(_, id)| *id);
            let first = found.next().ok_or_else(|| {
                let message =
                    format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                binder.error(Code::UndefinedColumn, message, at)
            })?;
            if found.next().is_some() {
                let message = format!("common column name \"{name}\" appears more than once in {side} table");
                return Err(binder.error(Code::AmbiguousColumn, message, at));
            }
            Ok(first)
        };
        let mut conditions = Vec::new();
        let mut merged: Vec<(String, usize)> = Vec::new();
        let mut computed: Vec<(usize, Expr)> = Vec::new();
        for (name, at) in names {
            let a = find(self, &left_scope, name, "left", *at)?;
            let b = find(self, &right_scope, name, "right", *at)?;
            let (left_read, right_read) = (self.read(a), self.read(b));
            conditions.push(self.operate("=", (left_read.clone(), *at), (right_read.clone(), *at))?);
            let id = match kind {
                JoinKind::Right if left_read.ty == right_read.ty => b,
                JoinKind::Full => {
                    let (both, ty, typmod) =
                        self.unify(vec![(left_read, *at), (right_read, *at)], "JOIN/USING")?;
                    let id = self.columns.add(name.clone(), ty, typmod);
                    computed.push((id, Expr { kind: Kind::Coalesce(both), ty, typmod }));
                    id
                }
                _ => a,
            };
            merged.push((name.clone(), id));
        }
        let is_merged = |(name, _): &&(String, usize)| !names.iter().any(|(merged, _)| merged == name);
        let mut flat = merged;
        flat.extend(left_scope.flat.iter().filter(is_merged).cloned());
        flat.extend(right_scope.flat.iter().filter(is_merged).cloned());
        left_scope.join(right_scope).map_err(|error| self.at(error, span))?;
        left_scope.flat = flat;
        let mut plan = join(kind, left, right, Expr::and(conditions));
        if !computed.is_empty() {
            let mut items: Vec<(usize, Expr)> =
                plan.output().into_iter().map(|id| (id, self.columns.read(id))).collect();
            items.extend(computed);
            plan = Logical::Project { input: Box::new(plan), items };
        }
        Ok((plan, left_scope))
    }

    fn table_factor(
        &mut self,
        factor: &ast::TableFactor,
        left: &Scope<'_>,
        parent: Option<&Scope<'_>>,
    ) -> Result<(Logical, Scope<'static>)> {
        match factor {
            ast::TableFactor::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_directives,
                inheritance: _,
            } => {
                refuse(
                    !with_hints.is_empty() || version.is_some() || !partitions.is_empty(),
                    "this modifier of a table",
                )?;
                refuse(json_path.is_some() || !index_directives.is_empty(), "this modifier of a table")?;
                if sample.is_some() {
                    return Err(unsupported("TABLESAMPLE", "Use ORDER BY random() LIMIT n."));
                }
                if let Some(ast::TableFunctionArgs { args, settings }) = args {
                    refuse(settings.is_some(), "SETTINGS")?;
                    return self.table_function(name, args, *with_ordinality, alias.as_ref(), left);
                }
                let (plan, mut relation) = self.relation(&path_of(name)?, span_of(name))?;
                self.rename(&mut relation, alias.as_ref())?;
                Ok((plan, one(relation)?))
            }
            ast::TableFactor::Derived { lateral, subquery, alias, sample } => {
                refuse(sample.is_some(), "TABLESAMPLE")?;
                let bound = if *lateral {
                    self.query(subquery, Some(left))?
                } else {
                    let mut around = Scope::inside(parent);
                    around.unreachable =
                        left.relations.iter().map(|relation| relation.alias.clone()).collect();
                    self.query(subquery, Some(&around))?
                };
                let bound = self.settle(bound)?;
                if alias.is_none() {
                    let error = Error::new(Code::SyntaxError, "subquery in FROM must have an alias")
                        .with_hint("For example, FROM (SELECT ...) [AS] foo.");
                    return Err(self.at(error, subquery.span()));
                }
                let (plan, mut relation) = self.derived(bound);
                self.rename(&mut relation, alias.as_ref())?;
                Ok((plan, one(relation)?))
            }
            ast::TableFactor::Function { lateral: _, name, args, with_ordinality, alias } => {
                self.table_function(name, args, *with_ordinality, alias.as_ref(), left)
            }
            ast::TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset,
                with_offset_alias,
                with_ordinality,
            } => {
                refuse(*with_offset || with_offset_alias.is_some(), "WITH OFFSET")?;
                self.unnest(array_exprs, *with_ordinality, alias.as_ref(), left)
            }
            ast::TableFactor::NestedJoin { table_with_joins, alias } => {
                let (plan, mut scope) = self.table_with_joins(table_with_joins, left, parent)?;
                if let Some(alias) = alias {
                    let mut relation = plain_relation(fold(&alias.name), scope.flat.clone());
                    self.rename(&mut relation, Some(alias))?;
                    scope = one(relation)?;
                }
                Ok((plan, scope))
            }
            ast::TableFactor::TableFunction { .. }
            | ast::TableFactor::JsonTable { .. }
            | ast::TableFactor::OpenJsonTable { .. }
            | ast::TableFactor::Pivot { .. }
            | ast::TableFactor::Unpivot { .. }
            | ast::TableFactor::UnpivotExpr { .. }
            | ast::TableFactor::MatchRecognize { .. }
            | ast::TableFactor::XmlTable { .. }
            | ast::TableFactor::SemanticView { .. } => {
                Err(unsupported("this kind of relation in FROM", "Use a table, a sub-query or a function."))
            }
            #[allow(unreachable_patterns)]
            _ => Err(unsupported("this kind of relation in FROM", "Use a table, a sub-query or a function.")),
        }
    }

    /// A bound sub-query as a relation.
    pub(super) fn derived(&mut self, bound: BoundQuery) -> (Logical, Relation) {
        // Two outputs of one column become two columns, so that each name finds its own.
        let plan = self.exactly(BoundQuery { plan: bound.plan, outputs: bound.outputs.clone() });
        let ids = plan.output();
        let columns = bound.outputs.into_iter().zip(ids).map(|((name, _), id)| (name, id)).collect();
        (plan, plain_relation(String::new(), columns))
    }

    /// Gives a relation its alias and the aliases of its columns.
    pub(super) fn rename(&mut self, relation: &mut Relation, alias: Option<&ast::TableAlias>) -> Result<()> {
        let Some(ast::TableAlias { explicit: _, name, columns, at }) = alias else { return Ok(()) };
        refuse(at.is_some(), "AT in an alias")?;
        relation.alias = fold(name);
        relation.schema = None;
        if columns.len() > relation.columns.len() {
            let message = format!(
                "table \"{}\" has {} columns available but {} columns specified",
                relation.alias,
                relation.columns.len(),
                columns.len()
            );
            return Err(self.error(Code::InvalidColumnReference, message, name.span));
        }
        for (column, ast::TableAliasColumnDef { name, data_type }) in relation.columns.iter_mut().zip(columns)
        {
            refuse(data_type.is_some(), "a column definition list")?;
            column.0 = fold(name);
        }
        Ok(())
    }

    /// The relation that a name means: a common table expression, a table, a view, a system relation.
    pub(super) fn relation(&mut self, path: &[String], span: Span) -> Result<(Logical, Relation)> {
        if let [name] = path
            && let Some(found) = self.cte_scan(name)
        {
            return Ok(found);
        }
        let found = match self.view_owner {
            None => self.names.find(path),
            Some(_) => self.names.find_in_view(path),
        };
        match found.map_err(|error| self.at(error, span))? {
            Some(Found::Table(table)) => {
                self.need(table.id, Privilege::Select, []);
                Ok(self.scan(table))
            }
            Some(Found::View(view)) => self.view(&view, span),
            Some(Found::System(relation)) => {
                let mut columns = Vec::new();
                let mut ids = Vec::new();
                for (place, (name, ty)) in relation.columns.iter().enumerate() {
                    let id = self.columns.add_with_origin(name, *ty, -1, (relation.oid, place as u16 + 1));
                    columns.push(((*name).to_owned(), id));
                    ids.push((id, place));
                }
                let plan = Logical::SystemScan { relation, alias: relation.name.to_owned(), columns: ids };
                let mut scoped = plain_relation(relation.name.to_owned(), columns);
                scoped.schema = Some(relation.schema.to_owned());
                Ok((plan, scoped))
            }
            Some(Found::Sequence(sequence)) => {
                let error =
                    unsupported("reading a sequence as a table", "Use pg_sequences, nextval or currval.");
                let _ = sequence;
                Err(self.at(error, span))
            }
            Some(Found::Index(..)) => {
                let name = path.last().map_or("", String::as_str);
                Err(self.error(Code::WrongObjectType, format!("cannot open relation \"{name}\""), span))
            }
            None => Err(self.at(undefined_table(path), span)),
        }
    }

    /// A scan of a table with everything a row has.
    pub(super) fn scan(&mut self, table: std::sync::Arc<Table>) -> (Logical, Relation) {
        let mut columns = Vec::new();
        let mut scan = Vec::new();
        for column in table.columns.iter().filter(|column| !column.dropped) {
            let origin = (table.id.0, column.place().0);
            let id = self.columns.add_with_origin(&column.name, column.data_type, column.typmod.0, origin);
            self.readable.insert(id, (table.id, column.number));
            scan.push((id, ScanColumn::Column(column.number)));
            if !column.hidden {
                columns.push((column.place(), column.name.clone(), id));
            }
        }
        columns.sort_by_key(|(place, _, _)| *place);
        let columns = columns.into_iter().map(|(_, name, id)| (name, id)).collect();
        let mut system = Vec::new();
        let extra = [
            ("_revision", Type::Int8, ScanColumn::Revision),
            ("_updated_at", Type::Timestamptz, ScanColumn::UpdatedAt),
            ("tableoid", Type::Oid, ScanColumn::TableOid),
        ];
        for (name, ty, column) in extra {
            let id = self.columns.add(name, ty, -1);
            // No right on a column gives one on these.
            self.readable.insert(id, (table.id, ColumnNumber(0)));
            scan.push((id, column));
            system.push((name, id));
        }
        for column in [ScanColumn::Partition, ScanColumn::Key, ScanColumn::Row] {
            scan.push((self.columns.add("", Type::Bytea, -1), column));
        }
        let schema = self.names.catalog.schema(table.schema).map(|schema| schema.name.clone());
        let relation = Relation {
            schema,
            alias: table.name.clone(),
            columns,
            system,
            table: Some(table.clone()),
            scalar: false,
            scan: scan.clone(),
        };
        let plan = Logical::Scan(logical::Scan { alias: table.name.clone(), table, columns: scan });
        (plan, relation)
    }

    fn view(&mut self, view: &View, span: Span) -> Result<(Logical, Relation)> {
        if self.views_open.len() >= VIEWS_MAX || self.views_open.contains(&view.id) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", view.name);
            return Err(self.error(Code::InvalidObjectDefinition, message, span));
        }
        self.need(view.id, Privilege::Select, []);
        let query = parse::parse_query(&view.query)?;
        self.views_open.push(view.id);
        let owner = self.view_owner.replace(view.owner);
        let tables = std::mem::take(&mut self.tables);
        let bound = self.query(&query, None).and_then(|bound| self.settle(bound));
        self.tables = tables;
        self.view_owner = owner;
        self.views_open.pop();
        let (plan, mut relation) = self.derived(bound?);
        relation.alias.clone_from(&view.name);
        relation.schema = self.names.catalog.schema(view.schema).map(|schema| schema.name.clone());
        for (column, (name, _, _)) in relation.columns.iter_mut().zip(&view.columns) {
            column.0.clone_from(name);
        }
        // Rights on a view are on the whole of it, and what it reads is its owner's.
        for column in &relation.columns {
            self.readable.remove(&column.1);
        }
        // A star in it stands for the columns there were.
        relation.columns.truncate(view.columns.len());
        Ok((plan, relation))
    }

    fn table_function(
        &mut self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&ast::TableAlias>,
        left: &Scope<'_>,
    ) -> Result<(Logical, Scope<'static>)> {
        let path = path_of(name)?;
        let span = span_of(name);
        let function = path.last().cloned().unwrap_or_default();
        let mut frame = Frame::plain(left, "functions in FROM");
        let mut arguments = Vec::new();
        for arg in args {
            match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => {
                    arguments.push((self.expr(expr, &mut frame)?, expr.span()));
                }
                _ => {
                    return Err(
                        self.at(unsupported("this form of argument", "Pass the arguments in order."), span)
                    );
                }
            }
        }
        if let "json_to_record" | "jsonb_to_record" | "json_to_recordset" | "jsonb_to_recordset" =
            function.as_str()
        {
            refuse(ordinality, "WITH ORDINALITY of a function that returns a record")?;
            return self.json_records(&function, arguments, alias, span);
        }
        let (call, columns) = self.call_in_from(&function, arguments, span)?;
        self.function_scan(vec![call], columns, ordinality, &function, alias)
    }

    /// JSON objects as rows of the columns that the alias defines.
    fn json_records(
        &mut self,
        function: &str,
        arguments: Vec<(Expr, Span)>,
        alias: Option<&ast::TableAlias>,
        span: Span,
    ) -> Result<(Logical, Scope<'static>)> {
        let defined = alias.filter(|alias| !alias.columns.is_empty());
        let defined = defined.filter(|alias| alias.columns.iter().all(|column| column.data_type.is_some()));
        let Some(alias) = defined else {
            let message = "a column definition list is required for functions returning \"record\"";
            return Err(self.error(Code::SyntaxError, message, span));
        };
        let prefix = if function.starts_with("jsonb") { "jsonb" } else { "json" };
        let of = if prefix == "jsonb" { Type::Jsonb } else { Type::Json };
        let [(document, at)] = &arguments[..] else {
            let message = format!("function {function} takes one argument");
            return Err(self.error(Code::UndefinedFunction, message, span));
        };
        let call = if function.ends_with("set") {
            let elements = format!("{prefix}_array_elements");
            self.call_in_from(&elements, vec![(document.clone(), *at)], span)?.0
        } else {
            SetExpr::Scalar(self.coerce(document.clone(), of, -1, Coercion::Implicit, *at)?)
        };
        let row = self.columns.add(function, of, -1);
        let input = Logical::FunctionScan { calls: vec![call], ordinality: false, columns: vec![row] };
        let mut items = Vec::new();
        let mut named = Vec::new();
        for ast::TableAliasColumnDef { name, data_type } in &alias.columns {
            let Some(data_type) = data_type else { continue };
            let (ty, typmod) = find_type(data_type).map_err(|error| self.at(error, name.span))?;
            let key = fold(name);
            let arguments = vec![
                self.columns.read(row),
                Expr::constant(Value::text(key.as_str()), Type::Text),
                Expr::constant(Value::Int4(ty.oid() as i32), Type::Int4),
            ];
            let field = Expr::new(Kind::Call(crate::functions::json_field_as(), arguments), ty);
            let field = self.coerce(field, ty, typmod, Coercion::Assignment, name.span)?;
            let id = self.columns.add(key.clone(), ty, typmod);
            items.push((id, field));
            named.push((key, id));
        }
        let relation = plain_relation(fold(&alias.name), named);
        Ok((Logical::Project { input: Box::new(input), items }, one(relation)?))
    }

    /// A call in FROM: what it does, and the names and types of its columns.
    fn call_in_from(
        &mut self,
        function: &str,
        arguments: Vec<(Expr, Span)>,
        span: Span,
    ) -> Result<(SetExpr, Vec<(String, Type)>)> {
        let is_known = !crate::functions::find_functions(function).is_empty();
        if !is_known || matches!(function, "coalesce" | "greatest" | "least") {
            let value = self.call(function, arguments, span)?;
            let ty = value.ty;
            return Ok((SetExpr::Scalar(value), vec![(function.to_owned(), ty)]));
        }
        let resolved = self.resolve(function, arguments, span)?;
        match resolved.function.body {
            Body::Set(columns, _) => {
                let types = self.set_types(&resolved);
                let named =
                    columns.iter().zip(&types).map(|((name, _), ty)| ((*name).to_owned(), *ty)).collect();
                Ok((
                    SetExpr::Set { function: resolved.function, arguments: resolved.arguments, types },
                    named,
                ))
            }
            Body::Scalar(_) => {
                let value = Expr::new(Kind::Call(resolved.function, resolved.arguments), resolved.ty);
                Ok((SetExpr::Scalar(value), vec![(function.to_owned(), resolved.ty)]))
            }
            Body::Aggregate(_) => Err(self.error(
                Code::GroupingError,
                "aggregate functions are not allowed in functions in FROM",
                span,
            )),
            Body::Window(_) => Err(self.error(
                Code::WindowingError,
                "window functions are not allowed in functions in FROM",
                span,
            )),
        }
    }

    fn unnest(
        &mut self,
        arrays: &[ast::Expr],
        ordinality: bool,
        alias: Option<&ast::TableAlias>,
        left: &Scope<'_>,
    ) -> Result<(Logical, Scope<'static>)> {
        let mut calls = Vec::new();
        let mut columns = Vec::new();
        let mut frame = Frame::plain(left, "functions in FROM");
        for array in arrays {
            let value = self.expr(array, &mut frame)?;
            let (call, named) = self.call_in_from("unnest", vec![(value, array.span())], array.span())?;
            calls.push(call);
            columns.extend(named);
        }
        self.function_scan(calls, columns, ordinality, "unnest", alias)
    }

    fn function_scan(
        &mut self,
        calls: Vec<SetExpr>,
        columns: Vec<(String, Type)>,
        ordinality: bool,
        function: &str,
        alias: Option<&ast::TableAlias>,
    ) -> Result<(Logical, Scope<'static>)> {
        let single = columns.len() == 1 && columns[0].0 == function;
        let mut named = Vec::new();
        let mut ids = Vec::new();
        for (name, ty) in columns {
            // The only column of a function goes by the alias of the relation.
            let name = match alias {
                Some(alias) if single => fold(&alias.name),
                _ => name,
            };
            let id = self.columns.add(name.clone(), ty, -1);
            ids.push(id);
            named.push((name, id));
        }
        if ordinality {
            let id = self.columns.add("ordinality", Type::Int8, -1);
            ids.push(id);
            named.push(("ordinality".to_owned(), id));
        }
        let mut relation = plain_relation(function.to_owned(), named);
        relation.scalar = relation.columns.len() == 1;
        self.rename(&mut relation, alias)?;
        Ok((Logical::FunctionScan { calls, ordinality, columns: ids }, one(relation)?))
    }
}

/// A relation that is no table.
pub(super) fn plain_relation(alias: String, columns: Vec<(String, usize)>) -> Relation {
    Relation {
        schema: None,
        alias,
        columns,
        system: Vec::new(),
        table: None,
        scalar: false,
        scan: Vec::new(),
    }
}

fn one(relation: Relation) -> Result<Scope<'static>> {
    let mut scope = Scope::default();
    scope.add(relation)?;
    Ok(scope)
}

pub(super) fn join(kind: JoinKind, left: Logical, right: Logical, on: Option<Expr>) -> Logical {
    if left.is_one_row() && kind == JoinKind::Inner && on.is_none() {
        return right;
    }
    Logical::Join(logical::Join { kind, left: Box::new(left), right: Box::new(right), on, null_aware: None })
}
