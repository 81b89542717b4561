//! Rules on bound statements: the shape they give, and that rows are the same with and without them.

mod plans;
mod print;
mod rows;

use std::sync::Arc;

use model::{
    Result, Type, Value,
    id::{ColumnNumber, TableId},
    key::KeyPart,
    schema::{IndexPart, Table},
};

use crate::{
    bind::{self, Bound, Names, Parameters},
    execute::{
        fixture::{DATABASE, Memory, PLENTY, context, rows_of, runtime_over, table},
        open,
    },
    parse::{self, Statement},
    plan::{Node, Plan, lower},
    stats::{Statistics, TableStatistics},
    txn::Overlay,
};

/// Binds a statement.
fn bound(memory: &Memory, text: &str) -> Bound {
    let catalog = memory.table_catalog();
    let mut context = context(Arc::clone(&catalog));
    let search_path = Arc::from(["public".to_owned()]);
    let names =
        Names { catalog, database: DATABASE, search_path, temporary: None, role: model::catalog::ADMIN };
    let parsed = parse::parse_one(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let Statement::Sql(statement) = &parsed.statement else { panic!("no SQL: {text}") };
    bind::bind(text, statement, &names, &mut context, Parameters::new(&[]))
        .unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// Binds a statement and applies the rules.
fn optimized(memory: &Memory, statistics: &Statistics, text: &str) -> Bound {
    let mut bound = bound(memory, text);
    let mut context = context(memory.table_catalog());
    let mut plan = std::mem::replace(&mut bound.plan, crate::plan::logical::Logical::one_row());
    super::fold(&mut plan, &mut context);
    bound.plan = super::optimize(plan, &mut bound.columns, statistics).expect("rules do not fail");
    bound
}

fn lowered(bound: Bound, statistics: &Statistics) -> Plan {
    let Bound { plan, columns, outputs, .. } = bound;
    lower::lower(plan, &columns, &outputs, statistics).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Runs a plan and commits what it writes.
fn run(memory: &Arc<Memory>, plan: &Plan) -> Result<Vec<Vec<Value>>> {
    let runtime = runtime_over(memory, PLENTY, false, Overlay::default());
    let rows = rows_of(open(plan, &runtime)?)?;
    memory.commit(runtime.statement.take_writes())?;
    Ok(rows)
}

/// How many nodes of a plan satisfy something, sub-queries in expressions included.
fn count(plan: &Plan, is: &dyn Fn(&Node) -> bool) -> usize {
    usize::from(is(&plan.node)) + plan.inputs().into_iter().map(|input| count(input, is)).sum::<usize>()
}

/// Tables of a trading company: the first columns are the key.
fn company() -> Vec<Table> {
    const I: Type = Type::Int4;
    const L: Type = Type::Int8;
    const T: Type = Type::Text;
    const V: Type = Type::Varchar;
    const B: Type = Type::Bpchar;
    const N: Type = Type::Numeric;
    const D: Type = Type::Date;
    let required = |id: u32, name: &str, key: usize, columns: &[(&str, Type)]| {
        let columns: Vec<(&str, Type, bool)> = columns.iter().map(|(name, ty)| (*name, *ty, true)).collect();
        let mut table = table(id, name, &columns);
        table.indexes[0].parts = (1..=key as u16)
            .map(|number| IndexPart { column: ColumnNumber(number), order: KeyPart::ASC })
            .collect();
        table
    };
    vec![
        required(100, "region", 1, &[("r_regionkey", I), ("r_name", B), ("r_comment", V)]),
        required(
            200,
            "nation",
            1,
            &[("n_nationkey", I), ("n_name", B), ("n_regionkey", I), ("n_comment", V)],
        ),
        required(
            300,
            "supplier",
            1,
            &[
                ("s_suppkey", I),
                ("s_name", B),
                ("s_address", V),
                ("s_nationkey", I),
                ("s_phone", B),
                ("s_acctbal", N),
                ("s_comment", V),
            ],
        ),
        required(
            400,
            "customer",
            1,
            &[
                ("c_custkey", I),
                ("c_name", V),
                ("c_address", V),
                ("c_nationkey", I),
                ("c_phone", B),
                ("c_acctbal", N),
                ("c_mktsegment", B),
                ("c_comment", V),
            ],
        ),
        required(
            500,
            "part",
            1,
            &[
                ("p_partkey", I),
                ("p_name", V),
                ("p_mfgr", B),
                ("p_brand", B),
                ("p_type", V),
                ("p_size", I),
                ("p_container", B),
                ("p_retailprice", N),
                ("p_comment", V),
            ],
        ),
        required(
            600,
            "partsupp",
            2,
            &[
                ("ps_partkey", I),
                ("ps_suppkey", I),
                ("ps_availqty", I),
                ("ps_supplycost", N),
                ("ps_comment", V),
            ],
        ),
        required(
            700,
            "orders",
            1,
            &[
                ("o_orderkey", L),
                ("o_custkey", I),
                ("o_orderstatus", B),
                ("o_totalprice", N),
                ("o_orderdate", D),
                ("o_orderpriority", B),
                ("o_clerk", B),
                ("o_shippriority", I),
                ("o_comment", V),
            ],
        ),
        required(
            800,
            "lineitem",
            2,
            &[
                ("l_orderkey", L),
                ("l_linenumber", I),
                ("l_partkey", I),
                ("l_suppkey", I),
                ("l_quantity", N),
                ("l_extendedprice", N),
                ("l_discount", N),
                ("l_tax", N),
                ("l_returnflag", B),
                ("l_linestatus", B),
                ("l_shipdate", D),
                ("l_commitdate", D),
                ("l_receiptdate", D),
                ("l_shipinstruct", B),
                ("l_shipmode", B),
                ("l_comment", T),
            ],
        ),
    ]
}

/// How large the company's tables are.
fn sizes(tables: &[Table]) -> Statistics {
    let rows = [5.0, 25.0, 10_000.0, 150_000.0, 200_000.0, 800_000.0, 1_500_000.0, 6_000_000.0];
    let mut statistics = Statistics::default();
    for (table, rows) in tables.iter().zip(rows) {
        statistics.describe(table);
        statistics.set(TableId(table.id.0), Arc::new(TableStatistics { rows, ..TableStatistics::default() }));
    }
    statistics
}
