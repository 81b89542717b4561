//! The grammar of paths, by recursive descent: or, and, not, comparison, sum, product, sign, steps.
//!
//! Invariant: what is read is at most [`HEIGHT_MAX`] high, so recursion over it is bounded, and is read at most
//! [`DEPTH_MAX`] brackets deep.

use std::rc::Rc;

use model::{
    Code, Error, Result,
    expr::{Arithmetic, Comparison},
    value::{Jsonb, Numeric},
};

use super::{Expr, Method, Path, Step};
use crate::functions::pattern;

/// How deep brackets may nest in a path.
const DEPTH_MAX: usize = 64;

/// How many operations may lie over each other.
const HEIGHT_MAX: usize = 256;

/// Reads a path.
pub(super) fn parse(text: &str) -> Result<Path> {
    if text.trim().is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(Error::new(Code::InvalidTextRepresentation, message));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, in_filter: 0, in_subscript: 0 };
    let strict = parser.eat_word("strict");
    if !strict {
        parser.eat_word("lax");
    }
    let Built { expr, .. } = parser.or()?;
    match parser.peek() {
        None => Ok(Path { strict, expr }),
        Some(_) => Err(parser.wrong()),
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    /// A bare name or keyword.
    Word(String),
    /// `"…"`.
    Text(String),
    /// `$name`, `$"name"`.
    Variable(String),
    Number(String),
    Symbol(&'static str),
}

const SYMBOLS: [&str; 27] = [
    "**", "==", "!=", "<>", "<=", ">=", "&&", "||", "<", ">", "!", "?", "(", ")", "[", "]", "{", "}", ".",
    ",", "*", "+", "-", "/", "%", "@", "$",
];

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("/*") {
            let end = tail.find("*/").ok_or_else(|| syntax("at end of jsonpath input"))?;
            rest = tail[end + 2..].trim_start();
            continue;
        }
        let digit_behind = |text: &str| text[1..].starts_with(|c: char| c.is_ascii_digit());
        if first == '"' {
            let (text, tail) = quoted(&rest[1..])?;
            tokens.push(Token::Text(text));
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix("$\"") {
            let (text, tail) = quoted(tail)?;
            tokens.push(Token::Variable(text));
            rest = tail;
        } else if first == '$' && rest[1..].starts_with(is_of_name) {
            let (text, tail) = name(&rest[1..])?;
            tokens.push(Token::Variable(text));
            rest = tail;
        } else if first.is_ascii_digit() || (first == '.' && digit_behind(rest)) {
            let end = number_end(rest);
            if rest[end..].starts_with(is_of_name) {
                return Err(syntax(&format!("at or near \"{}\" of jsonpath input", &rest[..end])));
            }
            tokens.push(Token::Number(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if is_of_name(first) {
            let (text, tail) = name(rest)?;
            tokens.push(Token::Word(text));
            rest = tail;
        } else {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let symbol =
                symbol.ok_or_else(|| syntax(&format!("at or near \"{first}\" of jsonpath input")))?;
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Whether a character may stand in a name that is not quoted.
fn is_of_name(c: char) -> bool {
    !(c.is_ascii_whitespace() || "?%$.[]{}()|&!=<>@#,*:-+/\"".contains(c))
}

/// A name that is not quoted, and what stands behind it.
fn name(text: &str) -> Result<(String, &str)> {
    let (mut found, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next().filter(|c| is_of_name(*c)) {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => rest = escaped(rest, &mut found)?,
            c => found.push(c),
        }
    }
    Ok((found, rest))
}

/// An integer without zeros before it, a fraction and an exponent.
fn number_end(text: &str) -> usize {
    let digits =
        |from: usize| text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| from + at);
    let mut end = if text.starts_with('0') { 1 } else { digits(0) };
    if text[end..].starts_with('.') {
        end = digits(end + 1);
    }
    let exponent = text[end..].strip_prefix(['e', 'E']);
    if let Some(exponent) = exponent {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        if exponent[sign..].starts_with(|c: char| c.is_ascii_digit()) {
            end = digits(end + 1 + sign);
        }
    }
    end
}

/// A text up to its closing quote, and what stands behind that.
fn quoted(text: &str) -> Result<(String, &str)> {
    let (mut found, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '"' => return Ok((found, rest)),
            '\\' => rest = escaped(rest, &mut found)?,
            c => found.push(c),
        }
    }
    Err(syntax("at end of jsonpath input"))
}

/// Adds the character that an escape means; what stands behind the escape. Escapes are those of JavaScript.
fn escaped<'t>(text: &'t str, into: &mut String) -> Result<&'t str> {
    let Some(c) = text.chars().next() else { return Err(syntax("at end of jsonpath input")) };
    let rest = &text[c.len_utf8()..];
    into.push(match c {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        'x' => {
            let (code, rest) = hexadecimal(rest, 2, "invalid hexadecimal character sequence")?;
            into.push(character(code)?);
            return Ok(rest);
        }
        'u' => {
            let (code, rest) = unicode(rest)?;
            let surrogate = |message: &str| {
                Error::new(Code::InvalidTextRepresentation, "invalid input syntax for type jsonpath")
                    .with_detail(message)
            };
            if !(0xd800..0xdc00).contains(&code) {
                if (0xdc00..0xe000).contains(&code) {
                    return Err(surrogate("Unicode low surrogate must follow a high surrogate."));
                }
                into.push(character(code)?);
                return Ok(rest);
            }
            let alone = || surrogate("Unicode low surrogate must follow a high surrogate.");
            let (low, rest) = unicode(rest.strip_prefix("\\u").ok_or_else(alone)?)?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(alone());
            }
            into.push(character(0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00))?);
            return Ok(rest);
        }
        c => c,
    });
    Ok(rest)
}

/// The number behind `\u`: four digits, or up to six in braces.
fn unicode(text: &str) -> Result<(u32, &str)> {
    const WRONG: &str = "invalid Unicode escape sequence";
    let Some(inside) = text.strip_prefix('{') else { return hexadecimal(text, 4, WRONG) };
    let end = inside.find('}').filter(|end| (1..=6).contains(end));
    let end = end.ok_or_else(|| syntax_of(WRONG))?;
    let (code, _) = hexadecimal(inside, end, WRONG)?;
    Ok((code, &inside[end + 1..]))
}

fn hexadecimal<'t>(text: &'t str, digits: usize, wrong: &str) -> Result<(u32, &'t str)> {
    let found = text.get(..digits).filter(|found| found.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let code = found.and_then(|found| u32::from_str_radix(found, 16).ok());
    Ok((code.ok_or_else(|| syntax_of(wrong))?, &text[digits..]))
}

fn character(code: u32) -> Result<char> {
    char::from_u32(code).filter(|c| *c != '\0').ok_or_else(|| {
        let detail = format!("\\u{code:04x} cannot be converted to text.");
        Error::new(Code::UntranslatableCharacter, "unsupported Unicode escape sequence").with_detail(detail)
    })
}

fn syntax_of(message: &str) -> Error {
    Error::new(Code::SyntaxError, format!("{message} of jsonpath input"))
}

fn syntax(place: &str) -> Error {
    Error::new(Code::SyntaxError, format!("syntax error {place}"))
}

/// What was read, and how high it is.
struct Built {
    expr: Expr,
    height: usize,
}

impl Built {
    /// Something that has nothing below it.
    fn leaf(expr: Expr) -> Self {
        Self { expr, height: 1 }
    }

    /// Something over parts of which the highest is so high.
    fn over(below: usize, expr: Expr) -> Result<Self> {
        if below >= HEIGHT_MAX { Err(too_complex()) } else { Ok(Self { expr, height: below + 1 }) }
    }
}

fn too_complex() -> Error {
    Error::new(Code::StatementTooComplex, "jsonpath is too complex").with_detail(format!(
        "Its brackets may nest {DEPTH_MAX} levels deep, and {HEIGHT_MAX} operations may lie over each other."
    ))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    in_filter: usize,
    in_subscript: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn wrong(&self) -> Error {
        match self.peek() {
            None => syntax("at end of jsonpath input"),
            Some(Token::Word(text) | Token::Text(text) | Token::Variable(text) | Token::Number(text)) => {
                syntax(&format!("at or near \"{text}\" of jsonpath input"))
            }
            Some(Token::Symbol(symbol)) => syntax(&format!("at or near \"{symbol}\" of jsonpath input")),
        }
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Symbol(at)) if *at == symbol);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(at)) if at.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, symbol: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.wrong()) }
    }

    fn predicate(&self, built: Built) -> Result<Built> {
        if built.expr.is_predicate() { Ok(built) } else { Err(self.wrong()) }
    }

    fn path(&self, built: Built) -> Result<Built> {
        if built.expr.is_predicate() { Err(self.wrong()) } else { Ok(built) }
    }

    /// Reads what stands inside a bracket.
    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(too_complex());
        }
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    /// `(x)`.
    fn bracketed(&mut self) -> Result<Built> {
        self.need("(")?;
        let inner = self.inside(Self::or)?;
        self.need(")")?;
        Ok(inner)
    }

    fn or(&mut self) -> Result<Built> {
        self.chain("||", Self::and, Expr::Or)
    }

    fn and(&mut self) -> Result<Built> {
        self.chain("&&", Self::comparison, Expr::And)
    }

    /// Predicates with a symbol between them.
    fn chain(
        &mut self,
        symbol: &str,
        part: impl Fn(&mut Self) -> Result<Built>,
        make: impl FnOnce(Vec<Expr>) -> Expr,
    ) -> Result<Built> {
        let first = part(self)?;
        if !matches!(self.peek(), Some(Token::Symbol(at)) if *at == symbol) {
            return Ok(first);
        }
        let first = self.predicate(first)?;
        let (mut below, mut parts) = (first.height, vec![first.expr]);
        while self.eat(symbol) {
            let next = part(self)?;
            let next = self.predicate(next)?;
            below = below.max(next.height);
            parts.push(next.expr);
        }
        Built::over(below, make(parts))
    }

    fn comparison(&mut self) -> Result<Built> {
        if self.eat("!") {
            let inner = if self.eat_word("exists") { self.exists()? } else { self.bracketed()? };
            let inner = self.predicate(inner)?;
            return Built::over(inner.height, Expr::Not(Box::new(inner.expr)));
        }
        let in_brackets = matches!(self.peek(), Some(Token::Symbol("(")));
        let left = self.sum()?;
        const COMPARISONS: [(&str, Comparison); 7] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        for (symbol, comparison) in COMPARISONS {
            if self.eat(symbol) {
                let left = self.path(left)?;
                let right = self.sum()?;
                let right = self.path(right)?;
                let below = left.height.max(right.height);
                return Built::over(
                    below,
                    Expr::Compare(comparison, Box::new(left.expr), Box::new(right.expr)),
                );
            }
        }
        if in_brackets && self.eat_word("is") {
            if !self.eat_word("unknown") {
                return Err(self.wrong());
            }
            let left = self.predicate(left)?;
            return Built::over(left.height, Expr::IsUnknown(Box::new(left.expr)));
        }
        if self.eat_word("starts") {
            if !self.eat_word("with") {
                return Err(self.wrong());
            }
            let left = self.path(left)?;
            let prefix = match self.peek() {
                Some(Token::Text(_) | Token::Variable(_)) => self.primary()?,
                _ => return Err(self.wrong()),
            };
            return Built::over(left.height, Expr::StartsWith(Box::new(left.expr), Box::new(prefix.expr)));
        }
        if self.eat_word("like_regex") {
            let left = self.path(left)?;
            let Some(Token::Text(pattern)) = self.peek().cloned() else { return Err(self.wrong()) };
            self.at += 1;
            let mut flags = String::new();
            if self.eat_word("flag") {
                let Some(Token::Text(given)) = self.peek().cloned() else { return Err(self.wrong()) };
                self.at += 1;
                flags = given;
            }
            let pattern = pattern_of(&pattern, &flags)?;
            return Built::over(left.height, Expr::LikeRegex(Box::new(left.expr), pattern));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Built> {
        const SUMS: [(&str, Arithmetic); 2] = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.arithmetic(&SUMS, Self::product)
    }

    fn product(&mut self) -> Result<Built> {
        const PRODUCTS: [(&str, Arithmetic); 3] =
            [("*", Arithmetic::Multiply), ("/", Arithmetic::Divide), ("%", Arithmetic::Modulo)];
        self.arithmetic(&PRODUCTS, Self::sign)
    }

    fn arithmetic(
        &mut self,
        operations: &[(&str, Arithmetic)],
        part: impl Fn(&mut Self) -> Result<Built>,
    ) -> Result<Built> {
        let mut left = part(self)?;
        loop {
            let found = operations.iter().find(|(symbol, _)| self.eat(symbol));
            let Some((_, operation)) = found else { return Ok(left) };
            let (of, right) = (self.path(left)?, part(self)?);
            let right = self.path(right)?;
            let below = of.height.max(right.height);
            left = Built::over(below, Expr::Arithmetic(*operation, Box::new(of.expr), Box::new(right.expr)))?;
        }
    }

    fn sign(&mut self) -> Result<Built> {
        let mut signs = Vec::new();
        loop {
            if self.eat("-") {
                signs.push(true);
            } else if self.eat("+") {
                signs.push(false);
            } else {
                break;
            }
        }
        let mut of = self.steps()?;
        for negative in signs.into_iter().rev() {
            let signed = self.path(of)?;
            of = Built::over(signed.height, Expr::Sign { negative, of: Box::new(signed.expr) })?;
        }
        Ok(of)
    }

    fn steps(&mut self) -> Result<Built> {
        let mut built = self.primary()?;
        loop {
            let (height, step) = if self.eat(".") {
                (0, self.dotted()?)
            } else if self.eat("[") {
                self.subscripts()?
            } else if self.eat("?") {
                self.in_filter += 1;
                let condition = self.bracketed()?;
                self.in_filter -= 1;
                let condition = self.predicate(condition)?;
                (condition.height, Step::Filter(Box::new(condition.expr)))
            } else {
                return Ok(built);
            };
            built = Built::over(built.height.max(height), Expr::Step(Box::new(built.expr), step))?;
        }
    }

    /// `(x)` behind `exists`.
    fn exists(&mut self) -> Result<Built> {
        let inner = self.bracketed()?;
        let inner = self.path(inner)?;
        Built::over(inner.height, Expr::Exists(Box::new(inner.expr)))
    }

    fn dotted(&mut self) -> Result<Step> {
        if self.eat("**") {
            return self.levels();
        }
        if self.eat("*") {
            return Ok(Step::AnyKey);
        }
        let name = match self.peek().cloned() {
            Some(Token::Text(name)) => {
                self.at += 1;
                return Ok(Step::Key(name));
            }
            Some(Token::Word(name)) => name,
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        if !self.eat("(") {
            return Ok(Step::Key(name));
        }
        let method = match name.to_ascii_lowercase().as_str() {
            "type" => Method::Type,
            "size" => Method::Size,
            "double" => Method::Double,
            "ceiling" => Method::Ceiling,
            "floor" => Method::Floor,
            "abs" => Method::Abs,
            "keyvalue" => Method::KeyValue,
            "datetime" => {
                return Err(Error::unsupported(
                    "jsonpath method .datetime() is not supported",
                    "Cast the text outside of the path.",
                ));
            }
            _ => return Err(self.wrong()),
        };
        self.need(")")?;
        Ok(Step::Method(method))
    }

    /// `{n}`, `{n to m}`, `{n to last}` behind `**`.
    fn levels(&mut self) -> Result<Step> {
        if !self.eat("{") {
            return Ok(Step::Deep(0, u32::MAX));
        }
        let from = self.level()?;
        let to = if self.eat_word("to") { self.level()? } else { from };
        self.need("}")?;
        Ok(Step::Deep(from, to))
    }

    fn level(&mut self) -> Result<u32> {
        if self.eat_word("last") {
            return Ok(u32::MAX);
        }
        let Some(Token::Number(digits)) = self.peek().cloned() else { return Err(self.wrong()) };
        let level = digits.parse().map_err(|_| self.wrong())?;
        self.at += 1;
        Ok(level)
    }

    fn subscripts(&mut self) -> Result<(usize, Step)> {
        if self.eat("*") {
            self.need("]")?;
            return Ok((0, Step::AnyElement));
        }
        self.in_subscript += 1;
        let (mut below, mut list) = (0, Vec::new());
        loop {
            let mut bound = |parser: &mut Self| {
                let bound = parser.inside(Self::sum)?;
                let bound = parser.path(bound)?;
                below = below.max(bound.height);
                Ok::<_, Error>(bound.expr)
            };
            let from = bound(self)?;
            let to = if self.eat_word("to") { Some(bound(self)?) } else { None };
            list.push((from, to));
            if !self.eat(",") {
                break;
            }
        }
        self.in_subscript -= 1;
        self.need("]")?;
        Ok((below, Step::Elements(list)))
    }

    fn primary(&mut self) -> Result<Built> {
        let Some(token) = self.peek().cloned() else { return Err(self.wrong()) };
        let expr = match token {
            Token::Symbol("$") => Expr::Root,
            Token::Symbol("@") if self.in_filter > 0 => Expr::Current,
            Token::Symbol("@") => {
                return Err(Error::new(Code::SyntaxError, "@ is not allowed in root expressions"));
            }
            Token::Symbol("(") => return self.bracketed(),
            Token::Symbol(_) => return Err(self.wrong()),
            Token::Variable(name) => Expr::Variable(name),
            Token::Text(text) => Expr::Literal(Jsonb::string(&text)),
            Token::Number(digits) => {
                let number: Numeric = digits.parse().map_err(|_| self.wrong())?;
                Expr::Literal(Jsonb::number(&number))
            }
            Token::Word(word) => match word.as_str() {
                "true" => Expr::Literal(Jsonb::bool(true)),
                "false" => Expr::Literal(Jsonb::bool(false)),
                "null" => Expr::Literal(Jsonb::null()),
                _ if self.eat_word("exists") => return self.exists(),
                word if word.eq_ignore_ascii_case("last") => {
                    if self.in_subscript == 0 {
                        let message = "LAST is allowed only in array subscripts";
                        return Err(Error::new(Code::SyntaxError, message));
                    }
                    Expr::Last
                }
                _ => return Err(self.wrong()),
            },
        };
        self.at += 1;
        Ok(Built::leaf(expr))
    }
}

/// The pattern of `like_regex`, with XQuery's flags.
fn pattern_of(pattern: &str, flags: &str) -> Result<Rc<regex::Regex>> {
    let has = |flag: char| flags.contains(flag);
    if let Some(other) = flags.chars().find(|flag| !"ismxq".contains(*flag)) {
        let detail = format!("Unrecognized flag character \"{other}\" in LIKE_REGEX predicate.");
        return Err(
            Error::new(Code::SyntaxError, "invalid input syntax for type jsonpath").with_detail(detail)
        );
    }
    if has('x') && !has('q') {
        return Err(Error::unsupported(
            "XQuery \"x\" flag (expanded regular expressions) is not implemented",
            "Leave the blanks out of the pattern.",
        ));
    }
    let case = if has('i') { "i" } else { "" };
    let lines = match (has('q'), has('s'), has('m')) {
        (true, ..) => "q",
        (_, true, true) => "w",
        (_, true, false) => "s",
        (_, false, true) => "n",
        (_, false, false) => "p",
    };
    pattern::compile(pattern, &format!("{case}{lines}"))
}
