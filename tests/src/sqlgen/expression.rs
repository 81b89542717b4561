//! Typed expressions: a literal, a column, or one step down into smaller ones.
//!
//! Invariants: an expression of a kind has exactly that type in PostgreSQL; what could fail by its value is guarded.

use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Generator, KINDS, Kind, Scope};

impl Generator {
    pub(super) fn any(&mut self, scope: &Scope, depth: u32) -> String {
        let kind = *KINDS.choose(&mut self.rng).expect("there are kinds");
        self.expression(kind, scope, depth)
    }

    pub(super) fn literal(&mut self, kind: Kind) -> String {
        match kind {
            Kind::Int => format!("({})", self.rng.random_range(-20..60)),
            Kind::Big => format!("({})::bigint", self.rng.random_range(-1_000_000..5_000_000_000i64)),
            Kind::Num => {
                let scale = self.rng.random_range(0..4u32);
                let value: i64 = self.rng.random_range(-100_000..100_000);
                let ten = 10i64.pow(scale);
                let sign = if value < 0 { "-" } else { "" };
                match scale {
                    0 => format!("({value})::numeric"),
                    _ => format!(
                        "({sign}{}.{:0width$})",
                        value.abs() / ten,
                        value.abs() % ten,
                        width = scale as usize
                    ),
                }
            }
            Kind::Float => format!("({})::float8", f64::from(self.rng.random_range(-400..400)) / 4.0),
            Kind::Text => {
                let words = [
                    "",
                    "a",
                    "b",
                    "ab",
                    "abc",
                    "Abc",
                    "x y",
                    " pad ",
                    "é",
                    "zebra",
                    "a%b",
                    "under_score",
                    "10",
                    "9",
                    "it''s",
                ];
                format!("'{}'::text", words.choose(&mut self.rng).expect("listed"))
            }
            Kind::Bool => self.of(&["true", "false"]).to_string(),
            Kind::Date => {
                let (y, m, d) = (
                    self.rng.random_range(1995..2030),
                    self.rng.random_range(1..=12),
                    self.rng.random_range(1..=28),
                );
                format!("DATE '{y}-{m:02}-{d:02}'")
            }
        }
    }

    /// A column, a literal or, seldom, NULL.
    fn leaf(&mut self, kind: Kind, scope: &Scope) -> String {
        let columns: Vec<&String> =
            scope.columns.iter().filter(|(_, k)| *k == kind).map(|(n, _)| n).collect();
        if !columns.is_empty() && self.rng.random_range(0..4) != 0 {
            return (*columns.choose(&mut self.rng).expect("it is not empty")).clone();
        }
        if self.rng.random_range(0..15) == 0 {
            let name = if kind == Kind::Num { "numeric" } else { kind.name() };
            return format!("NULL::{name}");
        }
        self.literal(kind)
    }

    pub(super) fn expression(&mut self, kind: Kind, scope: &Scope, depth: u32) -> String {
        if depth == 0 || self.rng.random_range(0..4) == 0 {
            return self.leaf(kind, scope);
        }
        let depth = depth - 1;
        // What every kind has.
        if self.rng.random_range(0..6) == 0 {
            let (a, b) = (self.expression(kind, scope, depth), self.expression(kind, scope, depth));
            return match self.rng.random_range(0..4) {
                0 => format!("CASE WHEN {} THEN {a} ELSE {b} END", self.boolean(scope, depth)),
                1 => format!("coalesce({a}, {b})"),
                2 => format!("nullif({a}, {b})"),
                _ if kind == Kind::Bool => format!("coalesce({a}, {b})"),
                _ => format!("{}({a}, {b})", if self.rng.random() { "greatest" } else { "least" }),
            };
        }
        match kind {
            Kind::Int => self.int(scope, depth),
            Kind::Big => {
                let (a, b) =
                    (self.expression(Kind::Int, scope, depth), self.expression(Kind::Big, scope, depth));
                match self.rng.random_range(0..5) {
                    0 => format!("({a})::bigint"),
                    1 => format!("({a} + {b})"),
                    2 => format!("({b} - {a})"),
                    3 => format!("({b} / nullif({a}, 0))"),
                    _ => format!("({b} % nullif({a}, 0))"),
                }
            }
            Kind::Num => self.num(scope, depth),
            Kind::Float => {
                let (a, b) =
                    (self.expression(Kind::Float, scope, depth), self.expression(Kind::Float, scope, depth));
                match self.rng.random_range(0..6) {
                    0 => format!("({a} + {b})"),
                    1 => format!("({a} - {b})"),
                    2 => format!("({a} * 2)"),
                    3 => format!("abs({a})"),
                    4 => format!("floor({a})"),
                    _ => format!("({})::float8", self.expression(Kind::Int, scope, depth)),
                }
            }
            Kind::Text => self.text(scope, depth),
            Kind::Bool => self.boolean(scope, depth + 1),
            Kind::Date => {
                let a = self.expression(Kind::Date, scope, depth);
                let n = self.rng.random_range(-50..50);
                match self.rng.random_range(0..5) {
                    0 => format!("({a} + ({n}))"),
                    1 => format!("({a} - ({n}))"),
                    2 => format!("date_trunc('month', {a})::date"),
                    3 => format!("({a} + interval '1 month')::date"),
                    _ => format!("({a})::text::date"),
                }
            }
        }
    }

    fn int(&mut self, scope: &Scope, depth: u32) -> String {
        let (a, b) = (self.expression(Kind::Int, scope, depth), self.expression(Kind::Int, scope, depth));
        match self.rng.random_range(0..11) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {})", self.rng.random_range(-5..6)),
            3 => format!("({a} / nullif({b}, 0))"),
            4 => format!("({a} % nullif({b}, 0))"),
            5 => format!("abs({a})"),
            6 => format!("(-{a})"),
            7 => format!("length({})", self.expression(Kind::Text, scope, depth)),
            8 => format!("strpos({}, 'b')", self.expression(Kind::Text, scope, depth)),
            9 => format!("({} - {})", self.expression(Kind::Date, scope, depth), self.literal(Kind::Date)),
            _ => format!("({})::int", self.boolean(scope, depth)),
        }
    }

    fn num(&mut self, scope: &Scope, depth: u32) -> String {
        let (a, b) = (self.expression(Kind::Num, scope, depth), self.expression(Kind::Num, scope, depth));
        match self.rng.random_range(0..12) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("({a} * {b})"),
            3 => format!("({a} / nullif({b}, 0))"),
            4 => format!("({a} % nullif({b}, 0))"),
            5 => format!("round({a}, {})", self.rng.random_range(-1..4)),
            6 => format!("trunc({a}, {})", self.rng.random_range(-1..3)),
            7 => format!("abs({a})"),
            8 => format!("ceil({a})"),
            9 => format!("({})::numeric", self.expression(Kind::Int, scope, depth)),
            10 => format!(
                "extract({} from {})",
                if self.rng.random() { "year" } else { "doy" },
                self.expression(Kind::Date, scope, depth)
            ),
            _ => format!("({} + {a})", self.expression(Kind::Int, scope, depth)),
        }
    }

    fn text(&mut self, scope: &Scope, depth: u32) -> String {
        let a = self.expression(Kind::Text, scope, depth);
        let n = self.rng.random_range(-2..5);
        match self.rng.random_range(0..16) {
            0 | 1 => format!("({a} || {})", self.expression(Kind::Text, scope, depth)),
            2 => format!("upper({a})"),
            3 => format!("lower({a})"),
            4 => format!("substr({a}, {n}, {})", self.rng.random_range(0..4)),
            5 => format!("left({a}, {n})"),
            6 => format!("right({a}, {n})"),
            7 => format!("replace({a}, 'a', 'zz')"),
            8 => format!("btrim({a})"),
            9 => format!("reverse({a})"),
            10 => format!("({})::text", {
                let kind = self.of(&[Kind::Int, Kind::Num, Kind::Date, Kind::Big]);
                self.expression(kind, scope, depth)
            }),
            11 => format!("lpad({a}, {}, '*')", self.rng.random_range(0..8)),
            12 => format!("split_part({a}, 'b', 1)"),
            13 => format!("concat({a}, {})", self.expression(Kind::Int, scope, depth)),
            14 => format!("repeat({a}, {})", self.rng.random_range(0..3)),
            _ => format!("initcap({a})"),
        }
    }

    pub(super) fn boolean(&mut self, scope: &Scope, depth: u32) -> String {
        let kind = self.of(&[Kind::Int, Kind::Big, Kind::Num, Kind::Float, Kind::Text, Kind::Date]);
        let below = depth.saturating_sub(1);
        let a = self.expression(kind, scope, below);
        let operator = self.of(&["=", "<>", "<", "<=", ">", ">="]);
        if depth == 0 {
            return format!("({a} {operator} {})", self.leaf(kind, scope));
        }
        match self.rng.random_range(0..18) {
            0..4 => format!("({a} {operator} {})", self.expression(kind, scope, below)),
            4 => format!("({a} IS NULL)"),
            5 => format!("({a} IS NOT NULL)"),
            6 => format!("({a} IS DISTINCT FROM {})", self.expression(kind, scope, below)),
            7 => format!("({} AND {})", self.boolean(scope, below), self.boolean(scope, below)),
            8 => format!("({} OR {})", self.boolean(scope, below), self.boolean(scope, below)),
            9 => format!("(NOT {})", self.boolean(scope, below)),
            10 => format!("({a} BETWEEN {} AND {})", self.leaf(kind, scope), self.leaf(kind, scope)),
            11 => format!(
                "({a} {} ({}, {}, {}))",
                if self.rng.random() { "IN" } else { "NOT IN" },
                self.leaf(kind, scope),
                self.leaf(kind, scope),
                self.leaf(kind, scope)
            ),
            12 => {
                let pattern = self.of(&["a%", "%b%", "_b%", "", "%", "%c", "Abc", "%\\%%"]);
                let operator = self.of(&["LIKE", "NOT LIKE", "ILIKE"]);
                format!("({} {operator} '{pattern}')", self.expression(Kind::Text, scope, below))
            }
            13 => {
                let table = self.table();
                let mut inner =
                    Scope { columns: table.columns.iter().map(|(n, k)| (format!("e.{n}"), *k)).collect() };
                inner.columns.extend(scope.columns.iter().filter(|(n, _)| n.contains('.')).cloned());
                let not = if self.rng.random() { "NOT " } else { "" };
                format!(
                    "({not}EXISTS (SELECT 1 FROM {} e WHERE {}))",
                    table.name,
                    self.boolean(&inner, below.min(1))
                )
            }
            14 => {
                let table = self.table();
                let same: Vec<&(String, Kind)> = table.columns.iter().filter(|(_, k)| *k == kind).collect();
                match same.choose(&mut self.rng) {
                    None => format!("({a} = {})", self.leaf(kind, scope)),
                    Some((column, _)) => {
                        let operator = self.of(&["IN", "NOT IN", "= ANY", "> ALL"]);
                        format!("({a} {operator} (SELECT i.{column} FROM {} i))", table.name)
                    }
                }
            }
            15 => {
                let test = self.of(&["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS UNKNOWN"]);
                format!("({} {test})", self.boolean(scope, below))
            }
            16 => format!("({a} = ANY (ARRAY[{}, {}]))", self.leaf(kind, scope), self.leaf(kind, scope)),
            _ => self.leaf(Kind::Bool, scope),
        }
    }
}
