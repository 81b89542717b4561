//! Text to syntax trees: a scan for depth and size, then `sqlparser` with PostgreSQL's dialect.
//!
//! Invariants:
//! - Nothing recursive sees a text that [`scan`] has not let through, so no statement overflows the stack.
//! - One text may hold many statements; each keeps its own source, and places in errors count characters of the whole text.
//! - Statements that steer the session (transactions, settings, cursors) have a grammar of their own (`utility`).
//!
//! Not here: what names and expressions mean (`bind`).

use std::sync::Arc;

use model::{Code, Error, Result};
use sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan},
};

pub(crate) mod literals;
pub(crate) mod rewrite;
pub(crate) mod scan;
mod tokens;
mod unsupported;
pub(crate) mod utility;

use tokens::tokenize;
pub(crate) use utility::Utility;

/// How deep `sqlparser` may recurse; several of its steps make one level of nesting.
const RECURSION_MAX: usize = 4 * scan::DEPTH_MAX;

/// A text with the means to say where in it something stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// From where places are looked for, so that many statements of one text cost no more than as many texts.
    from: Place,
}

/// One place of a text: as the tokenizer names it, in bytes, and in characters.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: Location,
    bytes: usize,
    characters: usize,
}

impl Place {
    const START: Self = Self { at: Location { line: 1, column: 1 }, bytes: 0, characters: 0 };
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, from: Place::START }
    }

    /// The same text, for what stands at a place or behind it.
    fn from(self, at: Location) -> Self {
        Self { text: self.text, from: self.place(at) }
    }

    fn place(&self, at: Location) -> Place {
        let mut place = if at < self.from.at { Place::START } else { self.from };
        for c in self.text[place.bytes..].chars() {
            if place.at >= at {
                break;
            }
            place.bytes += c.len_utf8();
            place.characters += 1;
            if c == '\n' {
                place.at = Location { line: place.at.line + 1, column: 1 };
            } else {
                place.at.column += 1;
            }
        }
        place
    }

    /// The character position, 1-based, of a place that the tokenizer named; none for a made-up place.
    pub(crate) fn position(&self, at: Location) -> Option<u32> {
        if at.line == 0 {
            return None;
        }
        u32::try_from(self.place(at).characters + 1).ok()
    }

    /// The byte offset of a place.
    pub(crate) fn offset(&self, at: Location) -> usize {
        self.place(at).bytes
    }
}

/// One statement.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// What it says.
    pub(crate) statement: Statement,
    /// Its own text, without the semicolon.
    pub(crate) text: Arc<str>,
}

/// What a statement says.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    /// Nothing: only blanks and comments.
    Empty,
    /// A query, a change of rows, or DDL.
    Sql(Box<ast::Statement>),
    /// What steers the session.
    Utility(Box<Utility>),
}

/// Parses all statements of a text. A text without any gives none.
pub(crate) fn parse(text: &str) -> Result<Vec<Parsed>> {
    scan::check(text)?;
    scan::with_stack(text, || {
        let mut source = Source::new(text);
        let mut statements = Vec::new();
        for tokens in split(source)? {
            source = source.from(tokens.first().map_or(Place::START.at, |token| token.span.start));
            statements.push(parse_tokens(source, tokens)?);
        }
        Ok(statements)
    })
}

/// Parses one statement; more than one is `42601`, as PostgreSQL says for prepared statements.
pub(crate) fn parse_one(text: &str) -> Result<Parsed> {
    let mut all = parse(text)?;
    if all.len() > 1 {
        return Err(Error::new(
            Code::SyntaxError,
            "cannot insert multiple commands into a prepared statement",
        ));
    }
    Ok(all.pop().unwrap_or(Parsed { statement: Statement::Empty, text: Arc::default() }))
}

/// Parses an expression that stands alone, as a catalog keeps it.
pub(crate) fn parse_expression(text: &str) -> Result<ast::Expr> {
    let source = Source::new(text);
    scan::check(text)?;
    let tokens = tokenize(source)?;
    let mut parser = parser(tokens);
    let expr = parser.parse_expr().map_err(|error| syntax_error(source, error))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF => Ok(expr),
        _ => Err(near(source, &rest)),
    }
}

/// Parses a query that stands alone, as a catalog keeps it.
pub(crate) fn parse_query(text: &str) -> Result<Box<ast::Query>> {
    match parse_one(text)?.statement {
        Statement::Sql(statement) => match *statement {
            ast::Statement::Query(query) => Ok(query),
            _ => Err(Error::internal("a view holds something that is no query")),
        },
        Statement::Empty | Statement::Utility(_) => {
            Err(Error::internal("a view holds something that is no query"))
        }
    }
}

fn parser(tokens: Vec<TokenWithSpan>) -> Parser<'static> {
    static DIALECT: PostgreSqlDialect = PostgreSqlDialect {};
    Parser::new(&DIALECT).with_recursion_limit(RECURSION_MAX).with_tokens_with_locations(tokens)
}

/// Tokens of each statement that has any.
fn split(source: Source<'_>) -> Result<Vec<Vec<TokenWithSpan>>> {
    let mut groups = Vec::new();
    let mut group = Vec::new();
    for token in tokenize(source)? {
        match token.token {
            Token::SemiColon => groups.push(std::mem::take(&mut group)),
            Token::Whitespace(_) | Token::EOF => {}
            _ => group.push(token),
        }
    }
    groups.push(group);
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

fn parse_tokens(source: Source<'_>, tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let (first, last) = match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => (first.span.start, last.span.end),
        _ => return Ok(Parsed { statement: Statement::Empty, text: Arc::default() }),
    };
    let text: Arc<str> = source.text[source.offset(first)..source.offset(last)].trim_end().into();
    let statement = parse_statement(source, tokens).map_err(|error| match error.code() {
        Code::SyntaxError => unsupported::find(&text).unwrap_or(error),
        _ => error,
    })?;
    Ok(Parsed { statement, text })
}

fn parse_statement(source: Source<'_>, tokens: Vec<TokenWithSpan>) -> Result<Statement> {
    if let Some(utility) = utility::parse(source, &tokens)? {
        return Ok(Statement::Utility(Box::new(utility)));
    }
    let tokens = rewrite::rewrite(tokens);
    let mut parser = parser(tokens);
    let statement = parser.parse_statement().map_err(|error| syntax_error(source, error))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF => Ok(Statement::Sql(Box::new(statement))),
        _ => Err(near(source, &rest)),
    }
}

/// `syntax error at or near "…"`, as PostgreSQL says it, from what `sqlparser` says.
fn syntax_error(source: Source<'_>, error: ParserError) -> Error {
    let message = match error {
        ParserError::RecursionLimitExceeded => return scan::too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let (text, at) = match message.rsplit_once(" at Line: ") {
        Some((text, place)) => (text, place.split_once(", Column: ")),
        None => (message.as_str(), None),
    };
    let at = at
        .and_then(|(line, column)| Some(Location { line: line.parse().ok()?, column: column.parse().ok()? }));
    match at.filter(|at| at.line > 0) {
        Some(at) => {
            let near = word_at(&source.text[source.offset(at)..]);
            let error = if near.is_empty() {
                Error::new(Code::SyntaxError, "syntax error at end of input")
            } else {
                Error::new(Code::SyntaxError, format!("syntax error at or near \"{near}\""))
            };
            let error = match detail(text) {
                Some(detail) => error.with_detail(detail),
                None => error,
            };
            source.position(at).map_or(error.clone(), |position| error.with_position(position))
        }
        None if text.contains("found: EOF") => {
            let end = source.text.trim_end_matches([';', ' ', '\n', '\t', '\r']).chars().count() + 1;
            Error::new(Code::SyntaxError, "syntax error at end of input")
                .with_position(u32::try_from(end).unwrap_or(u32::MAX))
        }
        None => Error::new(
            Code::SyntaxError,
            format!("syntax error: {}", text.trim_start_matches("sql parser error: ")),
        ),
    }
}

/// What was expected, if that was one thing: where it is many, most of them are other dialects'.
fn detail(text: &str) -> Option<String> {
    let expected = text.split(", found: ").next().unwrap_or(text);
    let expected = expected.trim_start_matches("sql parser error: ").trim_end_matches('.');
    (!expected.contains(", ") && !expected.contains(" or ")).then(|| format!("{expected}."))
}

/// `syntax error at or near` a token.
pub(crate) fn near(source: Source<'_>, token: &TokenWithSpan) -> Error {
    if token.token == Token::EOF || token.span.start.line == 0 {
        return Error::new(Code::SyntaxError, "syntax error at end of input");
    }
    let near = word_at(&source.text[source.offset(token.span.start)..]);
    let error = Error::new(Code::SyntaxError, format!("syntax error at or near \"{near}\""));
    source.position(token.span.start).map_or(error.clone(), |position| error.with_position(position))
}

/// The token text at the start of a text, roughly as PostgreSQL's lexer would cut it.
fn word_at(text: &str) -> &str {
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else { return "" };
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    let end = if first == '\'' || first == '"' {
        chars.find(|(_, c)| *c == first).map_or(text.len(), |(at, c)| at + c.len_utf8())
    } else if is_word(first) {
        chars
            .find(|(_, c)| !(is_word(*c) || first.is_ascii_digit() && *c == '.'))
            .map_or(text.len(), |(at, _)| at)
    } else {
        first.len_utf8()
    };
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (String, Option<u32>) {
        let error = parse(text).expect_err(text);
        assert_eq!(error.code(), Code::SyntaxError, "{text}");
        (error.message().to_owned(), error.position())
    }

    #[test]
    fn a_syntax_error_names_the_token_and_its_place_in_characters() {
        assert_eq!(fault("select 1 frm x y"), ("syntax error at or near \"x\"".to_owned(), Some(14)));
        assert_eq!(fault("select 'ä' a b"), ("syntax error at or near \"b\"".to_owned(), Some(14)));
        assert_eq!(fault("select 1;\nselct 2").1, Some(11));
        assert_eq!(fault("select (1").0, "syntax error at end of input");
    }

    #[test]
    fn places_are_the_same_wherever_they_are_looked_for_from() {
        let text = "a é\n\nb ; c\nd";
        let at = |line, column| Location { line, column };
        for from in [at(1, 1), at(1, 3), at(2, 1), at(3, 5), at(4, 1)] {
            let source = Source::new(text).from(from);
            for (place, position, offset) in
                [(at(1, 1), 1, 0), (at(1, 3), 3, 2), (at(3, 1), 6, 6), (at(3, 5), 10, 10), (at(4, 2), 13, 13)]
            {
                assert_eq!((source.position(place), source.offset(place)), (Some(position), offset));
            }
        }
        assert_eq!(Source::new(text).position(at(0, 0)), None);
    }

    #[test]
    fn a_text_is_split_into_statements_with_their_own_text() {
        let all = parse(" select 1 ; ; select ';' -- done\n; /* nothing */ ").expect("two statements");
        let texts: Vec<_> = all.iter().map(|parsed| &*parsed.text).collect();
        assert_eq!(texts, ["select 1", "select ';'"]);
    }
}
