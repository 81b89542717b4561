//! From text to a plan: cache, parse, bind, authorize, optimize, lower.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use model::{Code, Error, Result, Type, catalog::Catalog, id::TableId, read::At, request::Column};
use sqlparser::ast;

use super::Session;
use crate::{
    bind::{self, Access, Command},
    cache::{Key, Planned, Prepared, Sought},
    context::Context,
    direct::{Direct, DirectJoin, DirectRange, DirectUpdate},
    expr::{Expr, Kind},
    optimize,
    parse::{self, Parsed, Statement, Utility},
    plan::{
        logical::{Columns, Logical},
        lower,
    },
    rights,
    stats::Statistics,
};

/// How long a row count is used before it is asked again.
const COUNT_AGE_MAX: Duration = Duration::from_secs(10);

impl Session {
    /// A statement that is in the plan cache, so that its text need not be parsed.
    pub(super) fn find_prepared(&mut self, text: &str, given: &[Option<Type>]) -> Option<Prepared> {
        if self.transaction.as_ref().is_some_and(|transaction| transaction.catalog.is_some()) {
            return None;
        }
        let settings = self.plan_settings();
        let sought = Sought { text, given, database: self.database, settings: &settings };
        self.engine.cache.find(&sought, self.engine.dispatch.catalog().version())
    }

    /// Parses a text and plans it if it is a query or a change of rows.
    pub(super) async fn prepare(&mut self, text: &str, given: &[Option<Type>]) -> Result<Prepared> {
        if let Some(found) = self.find_prepared(text, given) {
            return Ok(found);
        }
        let parsed = Arc::new(parse::parse_one(text)?);
        let (prepared, shared) = self.prepare_parsed(parsed, text, given).await?;
        let overlaid = self.transaction.as_ref().is_some_and(|transaction| transaction.catalog.is_some());
        if shared && !overlaid && prepared.planned.is_some() {
            let (text, given) = (text.into(), given.to_vec());
            let key = Key { text, given, database: self.database, settings: self.plan_settings() };
            self.engine.cache.put(key, prepared.clone());
        }
        Ok(prepared)
    }

    /// Plans a parsed statement; also whether other sessions may use the plan.
    pub(super) async fn prepare_parsed(
        &mut self,
        parsed: Arc<Parsed>,
        text: &str,
        given: &[Option<Type>],
    ) -> Result<(Prepared, bool)> {
        let mut prepared =
            Prepared { parsed: parsed.clone(), planned: None, parameters: Arc::default(), columns: None };
        let mut shared = true;
        match &parsed.statement {
            Statement::Empty => {}
            Statement::Utility(utility) => {
                prepared.columns = self.utility_columns(utility).await?;
                if let Utility::Explain { statement, .. }
                | Utility::Declare(parse::utility::Declare { query: statement, .. }) = utility.as_ref()
                    && let Statement::Sql(inner) = &statement.statement
                    && is_planned(inner)
                {
                    prepared.parameters = self.plan(text, statement, given).await?.0.parameters.clone();
                }
            }
            Statement::Sql(statement) if is_planned(statement) => {
                let (planned, share) = self.plan(text, &parsed, given).await?;
                shared = share;
                prepared.parameters = planned.parameters.clone();
                prepared.columns.clone_from(&planned.columns);
                prepared.planned = Some(planned);
            }
            Statement::Sql(_) => {}
        }
        Ok((prepared, shared))
    }

    /// Plans a query or a change of rows of a text. A name that is not found is looked for in the newest catalog before it fails.
    pub(super) async fn plan(
        &mut self,
        text: &str,
        parsed: &Parsed,
        given: &[Option<Type>],
    ) -> Result<(Arc<Planned>, bool)> {
        match self.plan_once(text, parsed, given).await {
            Err(error) if matches!(error.code(), Code::UndefinedTable | Code::InvalidSchemaName) => {
                let before = self.engine.dispatch.catalog().version();
                let newest = self.engine.dispatch.refresh_catalog().await?;
                if newest.version() == before {
                    return Err(error);
                }
                self.plan_once(text, parsed, given).await
            }
            other => other,
        }
    }

    async fn plan_once(
        &mut self,
        text: &str,
        parsed: &Parsed,
        given: &[Option<Type>],
    ) -> Result<(Arc<Planned>, bool)> {
        let Statement::Sql(statement) = &parsed.statement else {
            return Err(Error::internal("a plan of what has none"));
        };
        let catalog = self.catalog();
        let names = self.names(catalog.clone());
        let _stoppable = self.cancel.begin_unguarded(self.settings.limits().statement);
        let mut context = self.context(catalog.clone(), Vec::new());
        let bound = parse::scan::with_stack(&parsed.text, || {
            bind::bind(text, statement, &names, &mut context, bind::Parameters::new(given))
        })?;
        self.authorize(&catalog, &bound.access)?;
        let mut tables = BTreeSet::new();
        collect_tables(&bound.plan, &mut tables);
        let statistics = self.statistics(&catalog, &tables).await;
        let planned =
            parse::scan::with_stack(&parsed.text, || finish(bound, &catalog, &statistics, &mut context))?;
        Ok((Arc::new(planned), true))
    }

    /// Rows of tables, counted anew where the count is old.
    async fn statistics(&self, catalog: &Catalog, tables: &BTreeSet<TableId>) -> Statistics {
        let mut statistics = Statistics::default();
        let now = self.engine.clock.monotonic();
        for id in tables {
            let Some(table) = catalog.table(*id) else { continue };
            statistics.describe(table);
            let known =
                self.engine.statistics.find(*id).filter(|(at, _)| now.saturating_sub(*at) < COUNT_AGE_MAX);
            let found = match known {
                Some((_, found)) => found,
                None => {
                    let Some(rows) = self.count(table).await else { continue };
                    self.engine.statistics.set_rows(*id, rows as f64, now)
                }
            };
            statistics.set(*id, found);
        }
        statistics
    }

    /// The rows of a table over all its partitions; none if its owner does not answer, which only makes a plan slower.
    async fn count(&self, table: &model::schema::Table) -> Option<u64> {
        let dispatch = &self.engine.dispatch;
        if table.partition_by.is_empty() {
            let partition = model::id::PartitionId::default_of(table.database, table.schema);
            return dispatch.count(&partition, table.id, &At::Latest).await.ok();
        }
        let partitions = dispatch.partitions(table.id).await.ok()?;
        let mut rows = 0;
        let sampled = partitions.len().min(16);
        for partition in partitions.iter().take(sampled) {
            rows += dispatch.count(partition, table.id, &At::Latest).await.ok()?;
        }
        let factor = if sampled > 0 { partitions.len() as u64 / sampled as u64 } else { 1 };
        Some(rows * factor.max(1))
    }

    /// The one place where rights are checked: `42501`.
    pub(crate) fn authorize(&self, catalog: &Catalog, access: &[Access]) -> Result<()> {
        for need in access {
            let role = need.owner.unwrap_or(self.current_user);
            if !rights::may_with_columns(catalog, role, need.relation, need.privilege, &need.columns) {
                let view = catalog.view(need.relation).map(|view| ("view", &view.name));
                let table = catalog.table(need.relation).map(|table| ("table", &table.name));
                let message = match table.or(view) {
                    Some((kind, name)) => format!("permission denied for {kind} {name}"),
                    None => "permission denied".to_owned(),
                };
                return Err(Error::new(Code::InsufficientPrivilege, message));
            }
        }
        Ok(())
    }
}

/// Whether a statement is planned; others are run from their tree.
pub(super) fn is_planned(statement: &ast::Statement) -> bool {
    matches!(
        statement,
        ast::Statement::Query(_)
            | ast::Statement::Insert(_)
            | ast::Statement::Update(_)
            | ast::Statement::Delete(_)
            | ast::Statement::Merge(_)
    )
}

pub(super) fn collect_tables(plan: &Logical, tables: &mut BTreeSet<TableId>) {
    match plan {
        Logical::Scan(scan) => {
            tables.insert(scan.table.id);
        }
        Logical::Insert(insert) => {
            tables.insert(insert.table.id);
        }
        _ => {}
    }
    plan.for_each_expr(&mut |expr| {
        expr.any(&mut |expr| {
            if let crate::expr::Kind::Subquery(subquery) = &expr.kind
                && let crate::expr::Query::Logical(query) = &subquery.query
            {
                collect_tables(query, tables);
            }
            false
        });
    });
    for input in plan.inputs() {
        collect_tables(input, tables);
    }
}

/// Optimizes and lowers a bound statement.
pub(super) fn finish(
    bound: bind::Bound,
    catalog: &Catalog,
    statistics: &Statistics,
    context: &mut Context,
) -> Result<Planned> {
    let bind::Bound { mut plan, mut columns, mut outputs, parameters, access, command, writes } = bound;
    name_objects(&mut plan, &mut columns, &mut outputs);
    let failure = optimize::fold(&mut plan, context);
    let plan = optimize::optimize(plan, &mut columns, statistics)?;
    let plan = lower::lower(plan, &columns, &outputs, statistics)?;
    let gives_rows = command == Command::Select || !outputs.is_empty();
    let described: Arc<[Column]> = outputs
        .iter()
        .map(|(name, id)| {
            let info = columns.get(*id);
            Column {
                name: name.clone(),
                data_type: info.ty,
                typmod: model::types::Typmod(info.typmod),
                origin: info.origin.unwrap_or((0, 0)),
            }
        })
        .collect();
    let direct = if writes { None } else { Direct::find(&plan) };
    let join = if writes { None } else { DirectJoin::find(&plan) };
    let range = if writes { None } else { DirectRange::find(&plan) };
    let program = DirectUpdate::find(&plan);
    Ok(Planned {
        plan: Arc::new(plan),
        columns: gives_rows.then_some(described),
        parameters: parameters.into(),
        access,
        command,
        writes,
        direct,
        join,
        range,
        program,
        failure,
        catalog: catalog.version(),
    })
}

/// Object identifiers of the kinds that are shown by name (`regclass`, `regtype`, …) leave as texts, because only the
/// catalog knows the names. Their type is therefore `text` to the client.
fn name_objects(plan: &mut Logical, columns: &mut Columns, outputs: &mut [(String, usize)]) {
    let is_named = |ty: Type| ty.is_oid() && !matches!(ty, Type::Oid | Type::Xid | Type::Cid);
    let changes =
        matches!(plan, Logical::Insert(_) | Logical::Update(_) | Logical::Delete(_) | Logical::Merge(_));
    if changes || !outputs.iter().any(|(_, id)| is_named(columns.get(*id).ty)) {
        return;
    }
    let mut items: Vec<(usize, Expr)> = plan.output().into_iter().map(|id| (id, columns.read(id))).collect();
    for (name, id) in outputs {
        if is_named(columns.get(*id).ty) {
            let value = Kind::Cast { value: Box::new(columns.read(*id)), explicit: true };
            *id = columns.add(name.clone(), Type::Text, -1);
            items.push((*id, Expr { kind: value, ty: Type::Text, typmod: -1 }));
        }
    }
    let input = std::mem::replace(plan, Logical::one_row());
    *plan = Logical::Project { input: Box::new(input), items };
}
