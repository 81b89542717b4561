//! Random schemas, rows and statements, typed so that they mean something and small so that they can be shrunk.
//!
//! Invariants:
//! - Everything follows from one seed.
//! - Values stay small and divisors are guarded, so that a statement seldom fails for a reason that depends on the order
//!   in which a server evaluates.
//! - Floats are multiples of a quarter: their sums do not depend on the order of the rows.
//!
//! Not here: running and comparing (`differential`).

mod expression;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// How deep an expression may nest.
const DEPTH_MAX: u32 = 3;

/// The families of values the generator knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `int`
    Int,
    /// `bigint`
    Big,
    /// `numeric`
    Num,
    /// `double precision`
    Float,
    /// `text`
    Text,
    /// `boolean`
    Bool,
    /// `date`
    Date,
}

const KINDS: [Kind; 7] = [Kind::Int, Kind::Big, Kind::Num, Kind::Float, Kind::Text, Kind::Bool, Kind::Date];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Int => "int",
            Kind::Big => "bigint",
            Kind::Num => "numeric(12,3)",
            Kind::Float => "double precision",
            Kind::Text => "text",
            Kind::Bool => "boolean",
            Kind::Date => "date",
        }
    }
}

/// A generated table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns; the first is the key `id`.
    pub columns: Vec<(String, Kind)>,
}

/// A SELECT in parts, so that parts can be left out.
#[derive(Clone, Debug, Default)]
pub struct Select {
    distinct: bool,
    items: Vec<String>,
    from: String,
    joins: Vec<String>,
    filters: Vec<String>,
    group: Vec<String>,
    having: Option<String>,
    /// Keeps only that many rows, ordered by every item.
    limit: Option<(u32, u32)>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Statement {
    /// One query; equal as a multiset of rows.
    Query(Select),
    /// Two queries and the operator between them.
    Set(Select, &'static str, Select),
    /// A change; the table is compared afterwards.
    Change {
        /// The statement.
        sql: String,
        /// The table it changes.
        table: String,
    },
    /// DDL that must not change any answer.
    Index(String),
    /// A query and a predicate: its rows are those where the predicate is true, false or unknown.
    Partition(Select, String),
    /// Two spellings of one question, of which one can be read straight by key.
    Twin(String, String),
}

impl Statement {
    /// As it is sent to PostgreSQL.
    pub fn sql(&self) -> String {
        match self {
            Statement::Query(select) | Statement::Partition(select, _) => select.sql(),
            Statement::Set(a, operator, b) => format!("{} {operator} {}", a.sql(), b.sql()),
            Statement::Change { sql, .. } | Statement::Index(sql) | Statement::Twin(sql, _) => sql.clone(),
        }
    }

    /// Smaller statements that may still show the same difference.
    pub fn smaller(&self) -> Vec<Statement> {
        match self {
            Statement::Query(select) => select.smaller().into_iter().map(Statement::Query).collect(),
            Statement::Set(a, operator, b) => {
                let mut list = vec![Statement::Query(a.clone()), Statement::Query(b.clone())];
                let left = a.smaller().into_iter().filter(|s| s.items.len() == a.items.len());
                list.extend(left.map(|s| Statement::Set(s, operator, b.clone())));
                let right = b.smaller().into_iter().filter(|s| s.items.len() == b.items.len());
                list.extend(right.map(|s| Statement::Set(a.clone(), operator, s)));
                list
            }
            Statement::Partition(select, p) => {
                select.smaller().into_iter().map(|s| Statement::Partition(s, p.clone())).collect()
            }
            Statement::Change { .. } | Statement::Index(_) | Statement::Twin(..) => Vec::new(),
        }
    }
}

impl Select {
    /// The text.
    pub fn sql(&self) -> String {
        let mut sql = String::from("SELECT ");
        if self.distinct {
            sql.push_str("DISTINCT ");
        }
        sql.push_str(&self.items.join(", "));
        if !self.from.is_empty() {
            sql.push_str(&format!(" FROM {}", self.from));
        }
        for join in &self.joins {
            sql.push_str(&format!(" {join}"));
        }
        if !self.filters.is_empty() {
            sql.push_str(&format!(" WHERE {}", self.filters.join(" AND ")));
        }
        if !self.group.is_empty() {
            sql.push_str(&format!(" GROUP BY {}", self.group.join(", ")));
        }
        if let Some(having) = &self.having {
            sql.push_str(&format!(" HAVING {having}"));
        }
        if let Some((limit, offset)) = self.limit {
            let all: Vec<String> = (1..=self.items.len()).map(|n| n.to_string()).collect();
            sql.push_str(&format!(" ORDER BY {} LIMIT {limit} OFFSET {offset}", all.join(", ")));
        }
        sql
    }

    /// The same question where something holds besides.
    pub fn and(&self, predicate: &str) -> Select {
        let mut select = self.clone();
        select.filters.push(predicate.to_owned());
        select
    }

    fn smaller(&self) -> Vec<Select> {
        let mut list = Vec::new();
        let mut push = |change: &dyn Fn(&mut Select)| {
            let mut select = self.clone();
            change(&mut select);
            list.push(select);
        };
        if !self.joins.is_empty() {
            push(&|s| _ = s.joins.pop());
        }
        for n in 0..self.filters.len() {
            push(&|s| _ = s.filters.remove(n));
        }
        if self.items.len() > 1 {
            for n in 0..self.items.len() {
                push(&|s| _ = s.items.remove(n));
            }
        }
        if self.having.is_some() {
            push(&|s| s.having = None);
        }
        if self.limit.is_some() {
            push(&|s| s.limit = None);
        }
        if self.distinct {
            push(&|s| s.distinct = false);
        }
        list
    }
}

/// Makes everything of one round.
pub struct Generator {
    rng: StdRng,
    tables: Vec<Table>,
    indexes: Vec<String>,
    index_count: u32,
    next_id: i64,
}

/// The columns an expression may name.
#[derive(Clone, Default)]
struct Scope {
    columns: Vec<(String, Kind)>,
}

impl Generator {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Generator {
        let rng = StdRng::seed_from_u64(seed);
        let mut generator =
            Generator { rng, tables: Vec::new(), indexes: Vec::new(), index_count: 0, next_id: 1_000 };
        for n in 0..generator.rng.random_range(2..=4) {
            let mut columns = vec![("id".to_owned(), Kind::Int)];
            for c in 0..generator.rng.random_range(3..=6) {
                let kind = *KINDS.choose(&mut generator.rng).expect("there are kinds");
                columns.push((format!("c{c}"), kind));
            }
            generator.tables.push(Table { name: format!("t{n}"), columns });
        }
        generator
    }

    /// The tables of this round.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// What makes the tables and fills them.
    pub fn setup(&mut self) -> Vec<String> {
        let mut statements = Vec::new();
        for table in self.tables.clone() {
            let columns: Vec<String> =
                table.columns.iter().map(|(name, kind)| format!("{name} {}", kind.name())).collect();
            statements.push(format!(
                "CREATE TABLE {} ({}, PRIMARY KEY (id))",
                table.name,
                columns.join(", ")
            ));
            let rows = self.rng.random_range(0..60);
            if rows > 0 {
                let values: Vec<String> = (0..rows).map(|id| self.row(&table, id)).collect();
                statements.push(format!("INSERT INTO {} VALUES {}", table.name, values.join(", ")));
            }
        }
        statements
    }

    fn row(&mut self, table: &Table, id: i64) -> String {
        let rest: Vec<String> = table.columns[1..]
            .iter()
            .map(
                |(_, kind)| {
                    if self.rng.random_range(0..6) == 0 { "NULL".to_owned() } else { self.literal(*kind) }
                },
            )
            .collect();
        format!("({id}, {})", rest.join(", "))
    }

    /// The next statement.
    pub fn statement(&mut self) -> Statement {
        match self.rng.random_range(0..100) {
            0..8 => Statement::Query(self.constants()),
            8..42 => Statement::Query(self.rows()),
            42..62 => Statement::Query(self.groups()),
            62..70 => self.set(),
            70..80 => self.change(),
            80..84 => self.index(),
            84..92 => {
                let (select, scope) = self.plain();
                let predicate = self.boolean(&scope, DEPTH_MAX - 1);
                Statement::Partition(select, predicate)
            }
            _ => self.twin(),
        }
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        *list.choose(&mut self.rng).expect("a list is not empty")
    }

    fn table(&mut self) -> Table {
        self.tables.choose(&mut self.rng).expect("there are tables").clone()
    }

    fn constants(&mut self) -> Select {
        let scope = Scope::default();
        let items = (0..self.rng.random_range(1..4)).map(|_| self.any(&scope, DEPTH_MAX)).collect();
        Select { items, ..Select::default() }
    }

    /// Tables, joins and filters, with a few columns as items.
    fn plain(&mut self) -> (Select, Scope) {
        let mut scope = Scope::default();
        let mut select = Select::default();
        let first = self.table();
        let enter = |scope: &mut Scope, table: &Table, alias: &str| {
            scope.columns.extend(table.columns.iter().map(|(name, kind)| (format!("{alias}.{name}"), *kind)));
        };
        select.from = format!("{} a", first.name);
        enter(&mut scope, &first, "a");
        for alias in ["b", "c"].iter().take(self.rng.random_range(0..=2)) {
            let table = self.table();
            let before = scope.clone();
            enter(&mut scope, &table, alias);
            let kind = self.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN", "LEFT JOIN"]);
            // FULL JOIN wants an equality; the others may have anything beside it.
            let equality = self.equality(&before, alias, &table);
            let condition = match self.rng.random_range(0..4) {
                0 if kind != "FULL JOIN" => format!("{equality} AND {}", self.boolean(&scope, 1)),
                _ => equality,
            };
            select.joins.push(format!("{kind} {} {alias} ON {condition}", table.name));
        }
        for _ in 0..self.rng.random_range(0..3) {
            let filter = self.boolean(&scope, DEPTH_MAX - 1);
            select.filters.push(filter);
        }
        for _ in 0..self.rng.random_range(1..4) {
            let (name, _) = scope.columns.choose(&mut self.rng).expect("a table has columns").clone();
            select.items.push(name);
        }
        (select, scope)
    }

    fn equality(&mut self, before: &Scope, alias: &str, table: &Table) -> String {
        let pairs: Vec<(String, String)> = before
            .columns
            .iter()
            .flat_map(|(left, kind)| {
                let matching = table.columns.iter().filter(move |(_, k)| k == kind);
                matching.map(move |(right, _)| (left.clone(), format!("{alias}.{right}")))
            })
            .collect();
        let (left, right) = pairs.choose(&mut self.rng).expect("both have an id").clone();
        format!("{left} = {right}")
    }

    fn rows(&mut self) -> Select {
        let (mut select, scope) = self.plain();
        for _ in 0..self.rng.random_range(0..3) {
            let item = self.any(&scope, DEPTH_MAX);
            select.items.push(item);
        }
        if self.rng.random_range(0..6) == 0 {
            let item = self.scalar_query(&scope);
            select.items.push(item);
        }
        select.distinct = self.rng.random_range(0..6) == 0;
        if self.rng.random_range(0..4) == 0 {
            select.limit = Some((self.rng.random_range(0..20), self.rng.random_range(0..5)));
        }
        select
    }

    fn groups(&mut self) -> Select {
        let (mut select, scope) = self.plain();
        select.items.clear();
        for _ in 0..self.rng.random_range(0..3) {
            let key = match self.rng.random_range(0..3) {
                0 => self.any(&scope, 1),
                _ => scope.columns.choose(&mut self.rng).expect("a table has columns").0.clone(),
            };
            // A constant is no key: GROUP BY 1 means the first item.
            if key.contains('.') && !select.group.contains(&key) {
                select.items.push(key.clone());
                select.group.push(key);
            }
        }
        for _ in 0..self.rng.random_range(1..4) {
            let aggregate = self.aggregate(&scope);
            select.items.push(aggregate);
        }
        if self.rng.random_range(0..4) == 0 {
            let aggregate = self.aggregate_number(&scope);
            select.having = Some(format!("{aggregate} > {}", self.rng.random_range(0..10)));
        }
        if self.rng.random_range(0..5) == 0 {
            select.limit = Some((self.rng.random_range(0..10), self.rng.random_range(0..3)));
        }
        select
    }

    fn aggregate_number(&mut self, scope: &Scope) -> String {
        match self.rng.random_range(0..3) {
            0 => "count(*)".to_owned(),
            1 => format!("count(DISTINCT {})", self.any(scope, 1)),
            _ => format!("sum({})", self.expression(Kind::Int, scope, 1)),
        }
    }

    fn aggregate(&mut self, scope: &Scope) -> String {
        let kind = self.of(&[Kind::Int, Kind::Big, Kind::Num, Kind::Float]);
        let call = match self.rng.random_range(0..12) {
            0 => "count(*)".to_owned(),
            1 => format!("count({})", self.any(scope, 1)),
            2 => format!("count(DISTINCT {})", self.any(scope, 1)),
            3 | 4 => format!("sum({})", self.expression(kind, scope, 2)),
            5 => format!("avg({})", {
                let kind = self.of(&[Kind::Int, Kind::Num]);
                self.expression(kind, scope, 1)
            }),
            6 | 7 => {
                let kind = self.of(&[Kind::Int, Kind::Num, Kind::Text, Kind::Date, Kind::Float]);
                let name = if self.rng.random() { "min" } else { "max" };
                format!("{name}({})", self.expression(kind, scope, 2))
            }
            8 => format!("bool_or({})", self.boolean(scope, 1)),
            9 => format!("bool_and({})", self.boolean(scope, 1)),
            10 => {
                let text = self.expression(Kind::Text, scope, 1);
                format!("string_agg({text}, ',' ORDER BY {text})")
            }
            _ => format!("sum(DISTINCT {})", self.expression(Kind::Int, scope, 1)),
        };
        if self.rng.random_range(0..4) == 0 {
            return format!("{call} FILTER (WHERE {})", self.boolean(scope, 1));
        }
        call
    }

    fn set(&mut self) -> Statement {
        let kinds: Vec<Kind> =
            (0..self.rng.random_range(1..3)).map(|_| *KINDS.choose(&mut self.rng).expect("listed")).collect();
        let mut side = || {
            let (mut select, scope) = self.plain();
            select.items = kinds.iter().map(|kind| self.expression(*kind, &scope, 1)).collect();
            select
        };
        let (a, b) = (side(), side());
        let operators = ["UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"];
        Statement::Set(a, operators.choose(&mut self.rng).expect("listed"), b)
    }

    fn change(&mut self) -> Statement {
        let table = self.table();
        let name = table.name.clone();
        let scope = Scope { columns: table.columns.clone() };
        let column = |rng: &mut StdRng| table.columns[rng.random_range(1..table.columns.len())].clone();
        let sql = match self.rng.random_range(0..10) {
            0..3 => {
                let id = self.next_id;
                self.next_id += 3;
                let rows: Vec<String> =
                    (0..self.rng.random_range(1..4)).map(|n| self.row(&table, id + n)).collect();
                format!("INSERT INTO {name} VALUES {} RETURNING *", rows.join(", "))
            }
            3 => {
                let (id, set) = (self.rng.random_range(0..60), column(&mut self.rng));
                let row = self.row(&table, id);
                format!(
                    "INSERT INTO {name} VALUES {row} ON CONFLICT (id) DO UPDATE SET {0} = excluded.{0} RETURNING id",
                    set.0
                )
            }
            4 => {
                let id = self.rng.random_range(0..60);
                let row = self.row(&table, id);
                format!("INSERT INTO {name} VALUES {row} ON CONFLICT DO NOTHING RETURNING id")
            }
            5..8 => {
                let (set, kind) = column(&mut self.rng);
                let value = self.expression(kind, &scope, 2);
                let filter = self.boolean(&scope, 2);
                format!("UPDATE {name} SET {set} = {value} WHERE {filter} RETURNING *")
            }
            8 => {
                let id = self.rng.random_range(0..60);
                let (set, kind) = column(&mut self.rng);
                format!("UPDATE {name} SET {set} = {} WHERE id = {id}", self.expression(kind, &scope, 1))
            }
            _ => {
                let filter = self.boolean(&scope, 2);
                format!("DELETE FROM {name} WHERE {filter} AND id % 3 = 0 RETURNING id")
            }
        };
        Statement::Change { sql, table: name }
    }

    fn index(&mut self) -> Statement {
        if self.indexes.len() > 4 || (!self.indexes.is_empty() && self.rng.random_range(0..3) == 0) {
            let at = self.rng.random_range(0..self.indexes.len());
            return Statement::Index(format!("DROP INDEX {}", self.indexes.remove(at)));
        }
        let table = self.table();
        self.index_count += 1;
        let name = format!("ix{}", self.index_count);
        let mut columns: Vec<String> = Vec::new();
        for _ in 0..self.rng.random_range(1..=2) {
            let (column, _) = table.columns.choose(&mut self.rng).expect("a table has columns");
            if !columns.iter().any(|c| c.starts_with(column.as_str())) {
                let order = self.of(&["", " DESC", " NULLS FIRST"]);
                columns.push(format!("{column}{order}"));
            }
        }
        let scope = Scope { columns: table.columns.clone() };
        let partial = match self.rng.random_range(0..5) {
            0 => {
                let (column, _) = scope.columns.choose(&mut self.rng).expect("a table has columns");
                format!(" WHERE {column} IS NOT NULL")
            }
            _ => String::new(),
        };
        self.indexes.push(name.clone());
        Statement::Index(format!("CREATE INDEX {name} ON {} ({}){partial}", table.name, columns.join(", ")))
    }

    /// The same rows by a key the planner can use and by an expression it cannot.
    fn twin(&mut self) -> Statement {
        let table = self.table();
        let scope = Scope { columns: table.columns.clone() };
        let numbers: Vec<String> = scope
            .columns
            .iter()
            .filter(|(_, k)| matches!(k, Kind::Int | Kind::Big))
            .map(|(n, _)| n.clone())
            .collect();
        let column = numbers.choose(&mut self.rng).expect("there is an id").clone();
        let value = self.rng.random_range(-5..60);
        let condition = match self.rng.random_range(0..5) {
            0 | 1 => format!("= {value}"),
            2 => format!("BETWEEN {value} AND {}", value + self.rng.random_range(0..20)),
            3 => format!("> {value}"),
            _ => format!("IN ({value}, {}, {})", value + 3, value + 7),
        };
        let rest =
            if self.rng.random() { format!(" AND {}", self.boolean(&scope, 1)) } else { String::new() };
        let select = format!("SELECT * FROM {} WHERE ", table.name);
        Statement::Twin(
            format!("{select}{column} {condition}{rest}"),
            format!("{select}{column} + 0 {condition}{rest}"),
        )
    }

    fn scalar_query(&mut self, outer: &Scope) -> String {
        let table = self.table();
        let mut inner =
            Scope { columns: table.columns.iter().map(|(n, k)| (format!("s.{n}"), *k)).collect() };
        let aggregate = self.aggregate(&inner);
        inner.columns.extend(outer.columns.iter().cloned());
        let filter = self.boolean(&inner, 1);
        format!("(SELECT {aggregate} FROM {} s WHERE {filter})", table.name)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn one_seed_makes_the_same_statements_again() {
        let run = |seed| {
            let mut generator = Generator::new(seed);
            let mut all = generator.setup();
            all.extend((0..200).map(|_| generator.statement().sql()));
            all
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn shrinking_ends() {
        let mut generator = Generator::new(3);
        for _ in 0..200 {
            let mut statement = generator.statement();
            for _ in 0..1_000 {
                let Some(smaller) = statement.smaller().pop() else { break };
                assert!(smaller.sql().len() < statement.sql().len());
                statement = smaller;
            }
        }
    }
}
