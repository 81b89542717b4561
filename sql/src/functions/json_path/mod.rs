//! SQL/JSON paths: `jsonb_path_query` and its siblings, `@?` and `@@`.
//!
//! A path is parsed for each call; there is no type `jsonpath`, a path is a text. What PostgreSQL has and this does not is
//! `.datetime()` and the functions that end in `_tz`.

mod parse;
mod run;

use std::rc::Rc;

use model::{
    Code, Error, Result, Type, Value,
    expr::{Arithmetic, Comparison},
    value::{Jsonb, json::Node},
};

use self::run::{Run, is_of_data};
use super::{Accepts, Body, Definitions, Gives, RowIterator, boolean, json::document, text};
use crate::{context::Context, execute::Cancel};

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
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    /// `exists (x)`.
    Exists(Box<Expr>),
    /// `(p) is unknown`.
    IsUnknown(Box<Expr>),
    /// `x starts with y`.
    StartsWith(Box<Expr>, Box<Expr>),
    /// `x like_regex "pattern" flag "flags"`.
    LikeRegex(Box<Expr>, Rc<regex::Regex>),
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
            | Self::And(_)
            | Self::Or(_)
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
    cancel: Cancel,
}

impl Call {
    fn of(context: &Context, a: &[Value]) -> Result<Self> {
        let variables = a.get(2).map_or_else(|| Jsonb::parse("{}"), |value| Ok(document(value).clone()))?;
        if !matches!(variables.root(), Node::Object(_)) {
            let detail = "Jsonpath parameters should be encoded as key-value pairs of \"vars\" object.";
            return Err(Error::new(Code::InvalidParameterValue, "\"vars\" argument is not an object")
                .with_detail(detail));
        }
        Ok(Self {
            path: parse::parse(text(&a[1]))?,
            target: document(&a[0]).clone(),
            variables,
            silent: a.get(3).is_some_and(boolean),
            cancel: context.making.cancel().clone(),
        })
    }

    /// The operators are silent.
    fn of_operator(context: &Context, a: &[Value]) -> Result<Self> {
        Ok(Self { silent: true, ..Self::of(context, a)? })
    }

    fn run(&self) -> Run<'_> {
        Run::new(&self.path, &self.target, &self.variables, &self.cancel)
    }

    /// All items; with `silent` those before an error.
    fn items(&self) -> Result<Vec<Jsonb>> {
        let mut items = Vec::new();
        match self.run().items(&mut items) {
            Err(error) if self.silent && is_of_data(&error) => Ok(items),
            ended => ended.map(|()| items),
        }
    }

    /// Whether there is an item; null where an error says that nobody knows.
    fn exists(&self) -> Result<Value> {
        match self.run().exists() {
            Err(error) if self.silent && is_of_data(&error) => Ok(Value::Null),
            found => found.map(Value::Bool),
        }
    }

    /// The one truth that the path gives.
    fn matches(&self) -> Result<Value> {
        let items = self.items()?;
        if let [only] = &items[..] {
            match only.root() {
                Node::Bool(value) => return Ok(Value::Bool(value)),
                Node::Null => return Ok(Value::Null),
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
    d.scalar("jsonb_path_exists", P, Type::Bool, |context, a| Call::of(context, a)?.exists()).optional(2);
    d.scalar("jsonb_path_match", P, Type::Bool, |context, a| Call::of(context, a)?.matches()).optional(2);
    d.scalar("jsonb_path_query_first", P, B, |context, a| {
        Ok(Call::of(context, a)?.items()?.into_iter().next().map_or(Value::Null, Value::Jsonb))
    })
    .optional(2);
    d.scalar("jsonb_path_query_array", P, B, |context, a| {
        let mut array = model::value::json::ArrayBuilder::default();
        Call::of(context, a)?.items()?.iter().for_each(|item| array.push(item));
        Ok(Value::Jsonb(array.try_finish()?))
    })
    .optional(2);
    let rows = Body::Set(&[("jsonb_path_query", Gives::Exact(Type::Jsonb))], |context, a| {
        let rows: RowIterator =
            Box::new(Call::of(context, a)?.items()?.into_iter().map(|item| Ok(vec![Value::Jsonb(item)])));
        Ok(rows)
    });
    d.add("jsonb_path_query", P, B, rows).optional(2);
    d.infix("@?", B, T, Type::Bool, |context, a| Call::of_operator(context, a)?.exists());
    d.infix("@@", B, T, Type::Bool, |context, a| Call::of_operator(context, a)?.matches());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(path: &str, target: &str) -> std::result::Result<String, String> {
        let path = parse::parse(path).map_err(|error| error.code().sqlstate().to_owned())?;
        let target = Jsonb::parse(target).expect("a document");
        let variables = Jsonb::parse(r#"{"x": 2}"#).expect("a document");
        let mut found = Vec::new();
        let ended = Run::new(&path, &target, &variables, &Cancel::new()).items(&mut found);
        ended.map_err(|error| error.code().sqlstate().to_owned())?;
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

    #[test]
    fn a_path_that_is_too_high_or_too_deep_is_refused() {
        for (path, allowed) in [
            (format!("${}", ".a".repeat(250)), true),
            (format!("1{}", "+1".repeat(250)), true),
            (format!("{}1", "-".repeat(250)), true),
            (format!("${}", " ? (@ == 1)".repeat(250)), true),
            (format!("${}", "[0]".repeat(250)), true),
            (format!("{}1 == 1{}", "$ ? (".repeat(60), ")".repeat(60)), true),
            (format!("1 == 1{}", " || 1 == 2".repeat(2_000)), true),
            (format!("{}$.a{}", "(".repeat(60), ")".repeat(60)), true),
            (format!("${}", ".a".repeat(100_000)), false),
            (format!("1{}", "+1".repeat(100_000)), false),
            (format!("1{}", "*1".repeat(100_000)), false),
            (format!("{}1", "-".repeat(100_000)), false),
            (format!("{}0{}", "$[".repeat(20_000), "]".repeat(20_000)), false),
            (format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)), false),
            (format!("{}1 == 1{}", "!(".repeat(20_000), ")".repeat(20_000)), false),
            (format!("{}1{}", "exists(".repeat(20_000), ")".repeat(20_000)), false),
            (format!("{}1 == 1{}", "$ ? (".repeat(20_000), ")".repeat(20_000)), false),
        ] {
            let found = items(&path, "1");
            assert_eq!(found != Err("54001".to_owned()), allowed, "{}", &path[..20]);
        }
    }

    #[test]
    fn a_path_holds_only_so_much_and_stops_with_its_statement() {
        let many = format!("${}", "[0,0]".repeat(40));
        assert_eq!(items(&many, "1"), Err("54000".to_owned()));
        let endless = parse::parse(&format!("${} ? (@ == 2)", "[0,0]".repeat(40))).expect("a path");
        let (target, variables) = (Jsonb::null(), Jsonb::null());
        let cancel = Cancel::new();
        cancel.cancel(crate::execute::Reason::Request);
        let ended = Run::new(&endless, &target, &variables, &cancel).items(&mut Vec::new());
        assert_eq!(ended.map_err(|error| error.code().sqlstate()), Err("57014"));
    }
}
