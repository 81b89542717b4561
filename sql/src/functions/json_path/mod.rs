//! SQL/JSON paths: `jsonb_path_query` and its siblings, `@?` and `@@`.
//!
//! A path is parsed for each call; there is no type `jsonpath`, a path is a text. What PostgreSQL has and this does not is
//! `.datetime()` and the functions that end in `_tz`.

mod parse;
mod run;

use model::{Code, Error, Result, Type, Value, value::Jsonb};

use super::{Accepts, Body, Definitions, Gives, RowIterator, boolean, json::document, text};

/// An expression of a path: what it gives is a sequence of JSON values, or the truth of a predicate.
#[derive(Debug)]
enum Expr {
    /// `$`.
    Root,
    /// `@`: the item that a filter looks at.
    Current,
    /// `$name`.
    Variable(String),
    /// A number, string, boolean or null.
    Literal(Jsonb),
    /// `last`: the place of the last element of the array that a subscript looks into.
    Last,
    /// Something of each item.
    Step(Box<Expr>, Step),
    /// `-x`, `+x`.
    Sign {
        negative: bool,
        of: Box<Expr>,
    },
    /// `x + y` and the like.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `x == y` and the like.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    /// `exists (x)`.
    Exists(Box<Expr>),
    /// `(p) is unknown`.
    IsUnknown(Box<Expr>),
    /// `x starts with y`.
    StartsWith(Box<Expr>, Box<Expr>),
    /// `x like_regex "pattern" flag "flags"`.
    LikeRegex(Box<Expr>, regex::Regex),
}

#[derive(Debug)]
enum Step {
    /// `.key`.
    Key(String),
    /// `.*`.
    AnyKey,
    /// `.**`, down to these levels.
    Deep(u32, u32),
    /// `[*]`.
    AnyElement,
    /// `[a, b to c]`.
    Elements(Vec<(Expr, Option<Expr>)>),
    /// `? (p)`.
    Filter(Box<Expr>),
    /// `.type()` and the like.
    Method(Method),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Type,
    Size,
    Double,
    Ceiling,
    Floor,
    Abs,
    KeyValue,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A path.
#[derive(Debug)]
struct Path {
    /// `strict`: what is not there is an error, and arrays are not taken apart by themselves.
    strict: bool,
    expr: Expr,
}

impl Expr {
    /// Whether it is true, false or unknown rather than a sequence.
    fn is_predicate(&self) -> bool {
        match self {
            Self::Compare(..)
            | Self::And(..)
            | Self::Or(..)
            | Self::Not(_)
            | Self::Exists(_)
            | Self::IsUnknown(_)
            | Self::StartsWith(..)
            | Self::LikeRegex(..) => true,
            Self::Root
            | Self::Current
            | Self::Variable(_)
            | Self::Literal(_)
            | Self::Last
            | Self::Step(..)
            | Self::Sign { .. }
            | Self::Arithmetic(..) => false,
        }
    }
}

/// A call's arguments, read.
struct Call {
    path: Path,
    target: Jsonb,
    variables: Jsonb,
    silent: bool,
}

impl Call {
    fn of(a: &[Value]) -> Result<Self> {
        let variables = a.get(2).map_or_else(|| Jsonb::parse("{}"), |value| Ok(document(value).clone()))?;
        Ok(Self {
            path: parse::parse(text(&a[1]))?,
            target: document(&a[0]).clone(),
            variables,
            silent: a.get(3).is_some_and(boolean),
        })
    }

    /// All items; with `silent` those before an error.
    fn items(&self) -> Result<Vec<Jsonb>> {
        match run::items(&self.path, &self.target, &self.variables) {
            Err(_) if self.silent => Ok(Vec::new()),
            other => other,
        }
    }

    /// Whether there is an item; null where an error says that nobody knows.
    fn exists(&self) -> Result<Value> {
        match run::items(&self.path, &self.target, &self.variables) {
            Ok(items) => Ok(Value::Bool(!items.is_empty())),
            Err(_) if self.silent => Ok(Value::Null),
            Err(error) => Err(error),
        }
    }

    /// The one truth that the path gives.
    fn matches(&self) -> Result<Value> {
        let items = self.items()?;
        if let [only] = &items[..] {
            match only.root() {
                model::value::json::Node::Bool(value) => return Ok(Value::Bool(value)),
                model::value::json::Node::Null => return Ok(Value::Null),
                _ => {}
            }
        }
        if self.silent {
            return Ok(Value::Null);
        }
        Err(Error::new(Code::SingletonSqlJsonItemRequired, "single boolean result is expected"))
    }
}

pub(super) fn define(d: &mut Definitions) {
    const B: Type = Type::Jsonb;
    const T: Type = Type::Text;
    const P: [Accepts; 4] =
        [Accepts::Exact(B), Accepts::Exact(T), Accepts::Exact(B), Accepts::Exact(Type::Bool)];
    d.scalar("jsonb_path_exists", P, Type::Bool, |_, a| Call::of(a)?.exists()).optional(2);
    d.scalar("jsonb_path_match", P, Type::Bool, |_, a| Call::of(a)?.matches()).optional(2);
    d.scalar("jsonb_path_query_first", P, B, |_, a| {
        Ok(Call::of(a)?.items()?.into_iter().next().map_or(Value::Null, Value::Jsonb))
    })
    .optional(2);
    d.scalar("jsonb_path_query_array", P, B, |_, a| {
        let mut array = model::value::json::ArrayBuilder::default();
        Call::of(a)?.items()?.iter().for_each(|item| array.push(item));
        Ok(Value::Jsonb(array.try_finish()?))
    })
    .optional(2);
    let rows = Body::Set(&[("jsonb_path_query", Gives::Exact(Type::Jsonb))], |_, a| {
        let rows: RowIterator =
            Box::new(Call::of(a)?.items()?.into_iter().map(|item| Ok(vec![Value::Jsonb(item)])));
        Ok(rows)
    });
    d.add("jsonb_path_query", P, B, rows).optional(2);
    d.infix("@?", B, T, Type::Bool, |_, a| Call { silent: true, ..Call::of(a)? }.exists());
    d.infix("@@", B, T, Type::Bool, |_, a| Call { silent: true, ..Call::of(a)? }.matches());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(path: &str, target: &str) -> std::result::Result<String, String> {
        let path = parse::parse(path).map_err(|error| error.code().sqlstate().to_owned())?;
        let target = Jsonb::parse(target).expect("a document");
        let variables = Jsonb::parse(r#"{"x": 2}"#).expect("a document");
        let found = run::items(&path, &target, &variables);
        let found = found.map_err(|error| error.code().sqlstate().to_owned())?;
        Ok(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    /// Results are those of PostgreSQL 15.
    #[test]
    fn paths_lead_where_they_do_in_postgresql() {
        let target = r#"{"a": [1, 2, {"b": "x"}], "c": {"d": null, "e": 1.5}, "s": "abc"}"#;
        for (path, found) in [
            ("$.a[*]", r#"1 2 {"b": "x"}"#),
            ("$.a[0]", "1"),
            ("$.a[last]", r#"{"b": "x"}"#),
            ("$.a[0 to 1]", "1 2"),
            ("$.a[last - 1, 0]", "2 1"),
            ("$.a.b", r#""x""#),
            ("$.c.*", "null 1.5"),
            ("$.nosuch", ""),
            ("$.s[0]", r#""abc""#),
            ("$.a[*] ? (@ > 1)", "2"),
            ("$.a[*] ? (@ == $x)", "2"),
            ("$.a ? (@ > 1)", "2"),
            (r#"$.s ? (@ starts with "ab")"#, r#""abc""#),
            (r#"$.s ? (@ like_regex "^A" flag "i")"#, r#""abc""#),
            ("$.a.size()", "3"),
            ("$.a[*].type()", r#""number" "number" "object""#),
            ("$.c.e.ceiling()", "2"),
            ("$.a[0] + $.a[1] * 3", "7"),
            ("-$.a[0 to 1]", "-1 -2"),
            ("$.a[0] == 1 && $.s == \"abc\"", "true"),
            ("($.s > 1) is unknown", "true"),
            ("exists($.c.d)", "true"),
            ("!($.a[0] == 2)", "true"),
            ("$.c.d == null", "true"),
            ("$.**{1}", r#"[1, 2, {"b": "x"}] {"d": null, "e": 1.5} "abc""#),
            ("$.\"c\".e", "1.5"),
            ("$.c.keyvalue().key", r#""d" "e""#),
            ("strict $.a[*] ? (@.b == \"x\")", r#"{"b": "x"}"#),
        ] {
            assert_eq!(items(path, target).as_deref(), Ok(found), "{path}");
        }
        for (path, code) in [
            ("strict $.nosuch", "2203A"),
            ("strict $.s[0]", "22039"),
            ("strict $.a[9]", "22033"),
            ("$.s + 1", "22038"),
            ("$.a[*].double()", "22036"),
            ("$y", "42704"),
            ("$.", "42601"),
            ("$[", "42601"),
            ("@ > 1", "42601"),
            ("", "22P02"),
        ] {
            assert_eq!(items(path, target), Err(code.to_owned()), "{path}");
        }
    }
}
