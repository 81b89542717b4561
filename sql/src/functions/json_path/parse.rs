//! The grammar of paths, by recursive descent: or, and, not, comparison, sum, product, sign, steps.

use model::{
    Code, Error, Result,
    value::{Jsonb, Numeric},
};

use super::{Arithmetic, Comparison, Expr, Method, Path, Step};

/// How deep a path may nest.
const DEPTH_MAX: usize = 64;

/// Reads a path.
pub(super) fn parse(text: &str) -> Result<Path> {
    if text.trim().is_empty() {
        let message = format!("invalid input syntax for type jsonpath: \"{text}\"");
        return Err(Error::new(Code::InvalidTextRepresentation, message));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, in_filter: 0, in_subscript: 0 };
    let strict = match parser.peek() {
        Some(Token::Word(word)) if word == "strict" || word == "lax" => {
            let strict = word == "strict";
            parser.at += 1;
            strict
        }
        _ => false,
    };
    let expr = parser.or()?;
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
        let name_end =
            |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        if first == '"' {
            let (text, tail) = quoted(rest)?;
            tokens.push(Token::Text(text));
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('$').filter(|tail| tail.starts_with('"')) {
            let (text, tail) = quoted(tail)?;
            tokens.push(Token::Variable(text));
            rest = tail;
        } else if first == '$' && name_end(&rest[1..]) > 0 {
            let end = 1 + name_end(&rest[1..]);
            tokens.push(Token::Variable(rest[1..end].to_owned()));
            rest = &rest[end..];
        } else if first.is_ascii_digit() {
            let end = number_end(rest);
            tokens.push(Token::Number(rest[..end].to_owned()));
            rest = &rest[end..];
        } else if first.is_alphabetic() || first == '_' {
            let end = name_end(rest);
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
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

/// Digits, a fraction and an exponent; a dot with no digit behind belongs to what follows.
fn number_end(text: &str) -> usize {
    let digits =
        |from: usize| text[from..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| from + at);
    let mut end = digits(0);
    if text[end..].starts_with('.') && text[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
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

/// A quoted text, and what stands behind it. Its escapes are those of JSON.
fn quoted(text: &str) -> Result<(String, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => {
                let document = Jsonb::parse(&text[..=at])?;
                return Ok((document.root().as_text().unwrap_or_default(), &text[at + 1..]));
            }
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err(syntax("at end of jsonpath input"))
}

fn syntax(place: &str) -> Error {
    Error::new(Code::SyntaxError, format!("syntax error {place}"))
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
        let found = matches!(self.peek(), Some(Token::Word(at)) if at == word);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, symbol: &str) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { Err(self.wrong()) }
    }

    fn predicate(&self, expr: Expr) -> Result<Expr> {
        if expr.is_predicate() { Ok(expr) } else { Err(self.wrong()) }
    }

    fn or(&mut self) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::new(Code::StatementTooComplex, "jsonpath nests too deep"));
        }
        let mut left = self.and()?;
        while self.eat("||") {
            let right = self.and()?;
            left = Expr::Or(Box::new(self.predicate(left)?), Box::new(self.predicate(right)?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr> {
        let mut left = self.comparison()?;
        while self.eat("&&") {
            let right = self.comparison()?;
            left = Expr::And(Box::new(self.predicate(left)?), Box::new(self.predicate(right)?));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expr> {
        if self.eat("!") {
            self.need("(")?;
            let inner = self.or()?;
            let inner = self.predicate(inner)?;
            self.need(")")?;
            return Ok(Expr::Not(Box::new(inner)));
        }
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
                let right = self.sum()?;
                return Ok(Expr::Compare(comparison, Box::new(left), Box::new(right)));
            }
        }
        if self.eat_word("is") {
            if !self.eat_word("unknown") {
                return Err(self.wrong());
            }
            return Ok(Expr::IsUnknown(Box::new(self.predicate(left)?)));
        }
        if self.eat_word("starts") {
            if !self.eat_word("with") {
                return Err(self.wrong());
            }
            let prefix = match self.peek() {
                Some(Token::Text(_) | Token::Variable(_)) => self.primary()?,
                _ => return Err(self.wrong()),
            };
            return Ok(Expr::StartsWith(Box::new(left), Box::new(prefix)));
        }
        if self.eat_word("like_regex") {
            let Some(Token::Text(pattern)) = self.peek().cloned() else { return Err(self.wrong()) };
            self.at += 1;
            let mut flags = String::new();
            if self.eat_word("flag") {
                let Some(Token::Text(given)) = self.peek().cloned() else { return Err(self.wrong()) };
                self.at += 1;
                flags = given;
            }
            return Ok(Expr::LikeRegex(Box::new(left), pattern_of(&pattern, &flags)?));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expr> {
        let mut left = self.product()?;
        loop {
            let operation = if self.eat("+") {
                Arithmetic::Add
            } else if self.eat("-") {
                Arithmetic::Subtract
            } else {
                return Ok(left);
            };
            let right = self.product()?;
            left = Expr::Arithmetic(operation, Box::new(left), Box::new(right));
        }
    }

    fn product(&mut self) -> Result<Expr> {
        let mut left = self.sign()?;
        loop {
            let operation = if self.eat("*") {
                Arithmetic::Multiply
            } else if self.eat("/") {
                Arithmetic::Divide
            } else if self.eat("%") {
                Arithmetic::Modulo
            } else {
                return Ok(left);
            };
            let right = self.sign()?;
            left = Expr::Arithmetic(operation, Box::new(left), Box::new(right));
        }
    }

    fn sign(&mut self) -> Result<Expr> {
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
            of = Expr::Sign { negative, of: Box::new(of) };
        }
        Ok(of)
    }

    fn steps(&mut self) -> Result<Expr> {
        let mut expr = self.primary()?;
        loop {
            let step = if self.eat(".") {
                self.dotted()?
            } else if self.eat("[") {
                self.subscripts()?
            } else if self.eat("?") {
                self.need("(")?;
                self.in_filter += 1;
                let condition = self.or()?;
                self.in_filter -= 1;
                let condition = self.predicate(condition)?;
                self.need(")")?;
                Step::Filter(Box::new(condition))
            } else {
                return Ok(expr);
            };
            expr = Expr::Step(Box::new(expr), step);
        }
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
            Some(Token::Variable(name)) => format!("${name}"),
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        if !self.eat("(") {
            return Ok(Step::Key(name));
        }
        let method = match name.as_str() {
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

    fn subscripts(&mut self) -> Result<Step> {
        if self.eat("*") {
            self.need("]")?;
            return Ok(Step::AnyElement);
        }
        self.in_subscript += 1;
        let mut list = Vec::new();
        loop {
            let from = self.sum()?;
            let to = if self.eat_word("to") { Some(self.sum()?) } else { None };
            list.push((from, to));
            if !self.eat(",") {
                break;
            }
        }
        self.in_subscript -= 1;
        self.need("]")?;
        Ok(Step::Elements(list))
    }

    fn primary(&mut self) -> Result<Expr> {
        let Some(token) = self.peek().cloned() else { return Err(self.wrong()) };
        let expr = match token {
            Token::Symbol("$") => Expr::Root,
            Token::Symbol("@") if self.in_filter > 0 => Expr::Current,
            Token::Symbol("@") => {
                return Err(Error::new(Code::SyntaxError, "@ is not allowed in root expressions"));
            }
            Token::Symbol("(") => {
                self.at += 1;
                let inner = self.or()?;
                self.need(")")?;
                return Ok(inner);
            }
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
                "last" if self.in_subscript > 0 => Expr::Last,
                "last" => {
                    let message = "LAST is allowed only in array subscripts";
                    return Err(Error::new(Code::SyntaxError, message));
                }
                "exists" => {
                    self.at += 1;
                    self.need("(")?;
                    let inner = self.or()?;
                    self.need(")")?;
                    return Ok(Expr::Exists(Box::new(inner)));
                }
                _ => return Err(self.wrong()),
            },
        };
        self.at += 1;
        Ok(expr)
    }
}

/// The pattern of `like_regex`, with XQuery's flags.
fn pattern_of(pattern: &str, flags: &str) -> Result<regex::Regex> {
    let quoted = flags.contains('q');
    let text = if quoted { regex::escape(pattern) } else { pattern.to_owned() };
    let mut builder = regex::RegexBuilder::new(&text);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            's' => builder.dot_matches_new_line(true),
            'm' => builder.multi_line(true),
            'q' => &mut builder,
            'x' if !quoted => {
                return Err(Error::unsupported(
                    "XQuery \"x\" flag (expanded regular expressions) is not implemented",
                    "Leave the blanks out of the pattern.",
                ));
            }
            other => {
                let message = "invalid input syntax for type jsonpath";
                let detail = format!("Unrecognized flag character \"{other}\" in LIKE_REGEX predicate.");
                return Err(Error::new(Code::SyntaxError, message).with_detail(detail));
            }
        };
    }
    builder.build().map_err(|fault| {
        Error::new(Code::InvalidRegularExpression, format!("invalid regular expression: {fault}"))
    })
}
