//! What PostgreSQL's grammar has and `sqlparser` has not, rewritten on tokens into what means the same.
//!
//! - `FOR NO KEY UPDATE` and `FOR KEY SHARE` become the next stronger lock that the tree can say.
//! - `x ISNULL` and `x NOTNULL` become `IS NULL` and `IS NOT NULL`.
//! - `TABLE t` becomes `SELECT * FROM t`; the column names of `CREATE TABLE t (a, b) AS query` become those of a sub-query.
//! - `OPERATOR(pg_catalog.~)` becomes the operator alone.
//! - `BETWEEN SYMMETRIC a AND b` becomes `BETWEEN symmetric(a) AND b`: no function can have that name.
//! - `DROP INDEX CONCURRENTLY` loses the last word: dropping an index waits for nobody.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan, Word},
};

/// Rewrites the tokens of one statement.
pub(crate) fn rewrite(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let input = symmetric(drop_concurrently(table_statement(create_table_as(adjacent_strings(input)))));
    let touched = (0..input.len()).any(|at| {
        is(&input, at, Keyword::FOR)
            || word(&input, at, "operator")
            || word(&input, at, "isnull")
            || word(&input, at, "notnull")
    });
    if !touched {
        return input;
    }
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(input.len());
    let mut at = 0;
    while at < input.len() {
        if is(&input, at, Keyword::FOR) && word(&input, at + 1, "no") && is(&input, at + 2, Keyword::KEY) {
            output.push(input[at].clone());
            at += 3;
        } else if is(&input, at, Keyword::FOR)
            && is(&input, at + 1, Keyword::KEY)
            && word(&input, at + 2, "share")
        {
            output.push(input[at].clone());
            at += 2;
        } else if (word(&input, at, "isnull") || word(&input, at, "notnull")) && follows_operand(&input, at) {
            output.push(made(&input[at], "IS"));
            if word(&input, at, "notnull") {
                output.push(made(&input[at], "NOT"));
            }
            output.push(made(&input[at], "NULL"));
            at += 1;
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

/// A keyword in the place of another token.
fn made(at: &TokenWithSpan, word: &str) -> TokenWithSpan {
    TokenWithSpan { token: Token::make_keyword(word), span: at.span }
}

fn follows_operand(tokens: &[TokenWithSpan], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| token(tokens, before));
    match before {
        Some(
            Token::RParen
            | Token::RBracket
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Placeholder(_),
        ) => true,
        Some(Token::Word(word)) => {
            word.quote_style.is_some()
                || matches!(
                    word.keyword,
                    Keyword::NoKeyword | Keyword::NULL | Keyword::TRUE | Keyword::FALSE | Keyword::END
                )
        }
        _ => false,
    }
}

/// Strings on lines that follow each other are one string (SQL-92).
fn adjacent_strings(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let follows = |pair: &[TokenWithSpan]| {
        matches!(
            (&pair[0].token, &pair[1].token),
            (Token::SingleQuotedString(_), Token::SingleQuotedString(_))
        ) && pair[0].span.end.line < pair[1].span.start.line
    };
    if !input.windows(2).any(follows) {
        return input;
    }
    let mut output: Vec<TokenWithSpan> = Vec::with_capacity(input.len());
    for token in input {
        if let (Some(last), Token::SingleQuotedString(more)) = (output.last_mut(), &token.token)
            && let Token::SingleQuotedString(text) = &mut last.token
            && last.span.end.line < token.span.start.line
        {
            text.push_str(more);
            last.span.end = token.span.end;
            continue;
        }
        output.push(token);
    }
    output
}

fn drop_concurrently(mut input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if is(&input, 0, Keyword::DROP) && is(&input, 1, Keyword::INDEX) && word(&input, 2, "concurrently") {
        input.remove(2);
    }
    input
}

/// The name that marks the lower bound of `BETWEEN SYMMETRIC`.
pub(crate) const SYMMETRIC: &str = "symmetric";

fn symmetric(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let after_between = |at: usize| at > 0 && is(&input, at - 1, Keyword::BETWEEN);
    let marked =
        |at: usize| after_between(at) && (word(&input, at, SYMMETRIC) || word(&input, at, "asymmetric"));
    if !(0..input.len()).any(marked) {
        return input;
    }
    let mut output = Vec::with_capacity(input.len() + 2);
    // Where the open bounds end: before these tokens.
    let mut ends = Vec::new();
    for (at, token) in input.iter().enumerate() {
        let of = |made: Token| TokenWithSpan { token: made, span: token.span };
        if ends.last() == Some(&at) {
            output.push(of(Token::RParen));
            ends.pop();
        }
        if !marked(at) {
            output.push(token.clone());
        } else if let (true, Some(end)) = (word(&input, at, SYMMETRIC), end_of_bound(&input, at + 1)) {
            let name = Word { value: SYMMETRIC.to_owned(), quote_style: None, keyword: Keyword::NoKeyword };
            output.extend([of(Token::Word(name)), of(Token::LParen)]);
            ends.push(end);
        }
    }
    output
}

/// The AND that ends the lower bound of a BETWEEN.
fn end_of_bound(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    (from..tokens.len()).find(|at| {
        match &tokens[*at].token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
            Token::Word(_) if is(tokens, *at, Keyword::CASE) => depth += 1,
            Token::Word(_) if is(tokens, *at, Keyword::END) => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && is(tokens, *at, Keyword::AND)
    })
}

/// `TABLE t` at the start of a statement, or as the source of an INSERT.
fn table_statement(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let named = |at: usize| matches!(token(&input, at), Some(Token::Word(_)));
    let is_insert = is(&input, 0, Keyword::INSERT);
    let found = (0..input.len()).find(|at| {
        is(&input, *at, Keyword::TABLE)
            && named(at + 1)
            && (*at == 0 || (is_insert && *at >= 3 && !is(&input, at - 1, Keyword::INTO)))
    });
    let Some(at) = found else { return input };
    let mut output = input[..at].to_vec();
    output.extend([
        made(&input[at], "SELECT"),
        TokenWithSpan { token: Token::Mul, span: input[at].span },
        made(&input[at], "FROM"),
    ]);
    output.extend_from_slice(&input[at + 1..]);
    output
}

/// `CREATE TABLE t (a, b) AS query` as `CREATE TABLE t AS SELECT * FROM (query) AS t (a, b)`.
fn create_table_as(input: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !(is(&input, 0, Keyword::CREATE) && is(&input, 1, Keyword::TABLE)) {
        return input;
    }
    let Some(open) = input.iter().position(|token| token.token == Token::LParen) else { return input };
    let mut at = open + 1;
    while matches!(token(&input, at), Some(Token::Word(_)))
        && matches!(token(&input, at + 1), Some(Token::Comma))
    {
        at += 2;
    }
    let closes = matches!(token(&input, at), Some(Token::Word(_)))
        && matches!(token(&input, at + 1), Some(Token::RParen));
    if !closes || !is(&input, at + 2, Keyword::AS) {
        return input;
    }
    let names = &input[open..=at + 1];
    let query = &input[at + 3..];
    let of = |token: Token| TokenWithSpan { token, span: input[open].span };
    let mut output = input[..open].to_vec();
    output.push(input[at + 2].clone());
    output.extend([
        made(&input[open], "SELECT"),
        of(Token::Mul),
        made(&input[open], "FROM"),
        of(Token::LParen),
    ]);
    output.extend_from_slice(query);
    output.extend([of(Token::RParen), made(&input[open], "AS"), of(Token::make_word("t", Some('"')))]);
    output.extend_from_slice(names);
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
            matches!(&schema.token, Token::Word(word) if word.value.eq_ignore_ascii_case("pg_catalog"))
                .then_some(operator)?
        }
        operator => operator,
    };
    (!operator.is_empty()).then_some((operator, close + 1 - at))
}
