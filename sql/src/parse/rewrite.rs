//! What PostgreSQL's grammar has and `sqlparser` has not, rewritten on tokens into what means the same.
//!
//! - `FOR NO KEY UPDATE` and `FOR KEY SHARE` become the next stronger lock that the tree can say.
//! - `OPERATOR(pg_catalog.~)` becomes the operator alone.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

/// Rewrites the tokens of one statement.
pub(crate) fn rewrite(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let touched = (0..input.len()).any(|at| is(&input, at, Keyword::FOR) || word(&input, at, "operator"));
    if !touched {
        return input;
    }
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(input.len());
    let mut at = 0;
    while at < input.len() {
        if is(&input, at, Keyword::FOR) && word(&input, at + 1, "no") && is(&input, at + 2, Keyword::KEY) {
            output.push(input[at].clone());
            at += 3;
        } else if is(&input, at, Keyword::FOR) && is(&input, at + 1, Keyword::KEY) && word(&input, at + 2, "share") {
            output.push(input[at].clone());
            at += 2;
        } else if word(&input, at, "operator") && matches!(token(&input, at + 1), Some(Token::LParen)) {
            match qualified_operator(&input, at) {
                Some((operator, length)) => {
                    output.extend_from_slice(operator);
                    at += length;
                }
                None => {
                    output.push(input[at].clone());
                    at += 1;
                }
            }
        } else {
            output.push(input[at].clone());
            at += 1;
        }
    }
    output
}

fn token(tokens: &[TokenWithSpan], at: usize) -> Option<&Token> {
    tokens.get(at).map(|token| &token.token)
}

fn is(tokens: &[TokenWithSpan], at: usize, keyword: Keyword) -> bool {
    matches!(token(tokens, at), Some(Token::Word(word)) if word.keyword == keyword && word.quote_style.is_none())
}

fn word(tokens: &[TokenWithSpan], at: usize, text: &str) -> bool {
    matches!(token(tokens, at), Some(Token::Word(word)) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}

/// The operator inside `OPERATOR(schema.op)` and how many tokens it all takes.
fn qualified_operator(tokens: &[TokenWithSpan], at: usize) -> Option<(&[TokenWithSpan], usize)> {
    let close = (at + 2..tokens.len().min(at + 8)).find(|at| tokens[*at].token == Token::RParen)?;
    let inside = &tokens[at + 2..close];
    let operator = match inside {
        [schema, dot, operator @ ..] if dot.token == Token::Period => {
            matches!(&schema.token, Token::Word(word) if word.value.eq_ignore_ascii_case("pg_catalog")).then_some(operator)?
        }
        operator => operator,
    };
    (!operator.is_empty()).then_some((operator, close + 1 - at))
}
