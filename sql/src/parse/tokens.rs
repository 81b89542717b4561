//! Text to tokens: `sqlparser`'s tokenizer, with operators cut as PostgreSQL's lexer cuts them (manual, 4.1.3).
//!
//! Invariants:
//! - An operator ends before `--` and `/*`, and never in `+` or `-` that stand for a sign: `a>-5` is `a > -5`.
//! - What else stands together is one operator, even where nobody has defined it.
//! - Places are those of the text as it was sent.

use std::{any::TypeId, borrow::Cow};

use model::{Code, Error, Result};
use sqlparser::{
    dialect::{Dialect, PostgreSqlDialect},
    tokenizer::{Token, TokenWithSpan, Tokenizer},
};

use super::{Source, scan};
use crate::bind;

/// PostgreSQL's dialect as far as tokens go, without operators of any length: `sqlparser` would take signs and comments
/// into them.
#[derive(Debug)]
struct Lexis(PostgreSqlDialect);

impl Dialect for Lexis {
    fn dialect(&self) -> TypeId {
        self.0.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.0.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.0.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.0.is_identifier_part(ch)
    }

    fn supports_unicode_string_literal(&self) -> bool {
        self.0.supports_unicode_string_literal()
    }

    fn supports_string_escape_constant(&self) -> bool {
        self.0.supports_string_escape_constant()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        self.0.supports_numeric_literal_underscores()
    }

    fn supports_non_decimal_integer_literals(&self) -> bool {
        self.0.supports_non_decimal_integer_literals()
    }

    fn supports_nested_comments(&self) -> bool {
        self.0.supports_nested_comments()
    }

    fn supports_copy_from_stdin_data(&self) -> bool {
        self.0.supports_copy_from_stdin_data()
    }

    fn supports_geometric_types(&self) -> bool {
        self.0.supports_geometric_types()
    }

    fn supports_tilde_like_match_operator(&self) -> bool {
        self.0.supports_tilde_like_match_operator()
    }

    fn is_custom_operator_part(&self, _: char) -> bool {
        false
    }
}

/// The tokens of a text, blanks among them.
pub(super) fn tokenize(source: Source<'_>) -> Result<Vec<TokenWithSpan>> {
    static LEXIS: Lexis = Lexis(PostgreSqlDialect {});
    let has_comment = source.text.contains("--") || source.text.contains("/*");
    let text =
        if has_comment { Cow::from(scan::blank_comments(source.text)) } else { Cow::from(source.text) };
    let tokens = Tokenizer::new(&LEXIS, &text).tokenize_with_location().map_err(|error| {
        let message = unterminated(&error.message, source, error.location);
        let error_ = Error::new(Code::SyntaxError, message);
        match source.position(error.location) {
            Some(position) => error_.with_position(position),
            None => error_,
        }
    })?;
    refuse_unicode_names(&tokens)?;
    Ok(join_operators(tokens))
}

/// `U&"…"`, which would else be a column `U` and an operator.
fn refuse_unicode_names(tokens: &[TokenWithSpan]) -> Result<()> {
    let is_one = |three: &[TokenWithSpan]| {
        matches!(
            [&three[0].token, &three[1].token, &three[2].token],
            [Token::Word(mark), Token::Ampersand, Token::Word(name)]
                if mark.quote_style.is_none() && matches!(mark.value.as_str(), "U" | "u") && name.quote_style.is_some()
        )
    };
    if tokens.windows(3).any(is_one) {
        return Err(bind::unsupported("a name with Unicode escapes", "Write the characters themselves."));
    }
    Ok(())
}

/// Makes one operator of several that stand together, their signs left out.
fn join_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.windows(2).any(|pair| pair.iter().all(|token| is_operator(&token.token))) {
        return tokens;
    }
    let mut joined = Vec::with_capacity(tokens.len());
    let mut rest = &tokens[..];
    while let Some(first) = rest.first() {
        let together = rest.iter().take_while(|token| is_operator(&token.token)).count();
        let signs = rest[..together]
            .iter()
            .rev()
            .take_while(|token| matches!(token.token, Token::Plus | Token::Minus))
            .count();
        let (operator, after) = rest.split_at(together.saturating_sub(signs).max(1));
        joined.push(match operator {
            [_, .., last] => TokenWithSpan {
                token: Token::CustomBinaryOperator(
                    operator.iter().map(|token| token.token.to_string()).collect(),
                ),
                span: sqlparser::tokenizer::Span { start: first.span.start, end: last.span.end },
            },
            _ => first.clone(),
        });
        rest = after;
    }
    joined
}

fn is_operator(token: &Token) -> bool {
    // What most texts are made of is told apart without being written out.
    let is_common = matches!(
        token,
        Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Whitespace(_)
            | Token::Comma
            | Token::LParen
            | Token::RParen
            | Token::Period
            | Token::EOF
    );
    !is_common && token.to_string().bytes().all(|byte| b"+-*/<>=~!@#%^&|?".contains(&byte))
}

fn unterminated(message: &str, source: Source<'_>, at: sqlparser::tokenizer::Location) -> String {
    let rest = &source.text[source.offset(at).min(source.text.len())..];
    let near: String = rest.chars().take(60).collect();
    if message.contains("Unterminated string") || message.contains("Unterminated encoded string") {
        format!("unterminated quoted string at or near \"{near}\"")
    } else if message.contains("Unterminated dollar") {
        format!("unterminated dollar-quoted string at or near \"{near}\"")
    } else if message.contains("multi-line comment") {
        format!("unterminated /* comment at or near \"{near}\"")
    } else if message.contains("close delimiter") {
        format!("unterminated quoted identifier at or near \"{near}\"")
    } else {
        format!("syntax error at or near \"{}\"", near.split_whitespace().next().unwrap_or(""))
    }
}
