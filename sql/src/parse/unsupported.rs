//! What PostgreSQL can say and the parser cannot: `0A000` with a hint, where a text would else be called wrong.
//!
//! Invariants:
//! - Nothing is looked for here before the parser has refused a statement, so nothing that is supported can be lost.

use model::Error;
use sqlparser::tokenizer::Token;

use super::{Source, tokens::tokenize};
use crate::bind;

/// How statements begin, and what to do instead.
const STATEMENTS: &[(&str, &str)] = &[
    ("alter system", "Use SET in the session, or the options of the server."),
    ("cluster", "Rows are kept in the order of their key."),
    ("commit prepared", "Commit the transaction in one phase."),
    ("create recursive view", "Use CREATE VIEW … AS WITH RECURSIVE …."),
    ("create or replace recursive view", "Use CREATE OR REPLACE VIEW … AS WITH RECURSIVE …."),
    ("do", "There is no procedural language: send the statements one by one."),
    ("drop owned", "Drop the objects one by one."),
    ("import foreign schema", "Load the rows with COPY."),
    ("reassign owned", "Use ALTER … OWNER TO."),
    ("reindex", "Indexes need no rebuilding."),
    ("rollback prepared", "Commit the transaction in one phase."),
    ("security label", "Use COMMENT ON."),
];

/// Kinds of objects that there are none of, after CREATE, ALTER, DROP and COMMENT ON.
const OBJECTS: &[&str] = &[
    "access method",
    "aggregate",
    "cast",
    "collation",
    "conversion",
    "domain",
    "event trigger",
    "extension",
    "foreign data wrapper",
    "foreign table",
    "function",
    "language",
    "large object",
    "materialized view",
    "operator",
    "policy",
    "procedure",
    "publication",
    "routine",
    "rule",
    "server",
    "statistics",
    "subscription",
    "tablespace",
    "text search",
    "transform",
    "trigger",
    "type",
    "user mapping",
];

/// Clauses: how the statement begins, words inside it, and what to do instead.
const CLAUSES: &[(&str, &str, &str)] = &[
    ("alter table", "set schema", "Create the table in the other schema and fill it with INSERT … SELECT."),
    ("alter table", "set tablespace", "There are no tablespaces."),
    ("alter table", "cluster on", "Rows are kept in the order of their key."),
    ("alter table", "set without", "Rows are kept in the order of their key."),
    ("alter table", "set statistics", "ANALYZE takes as many values as it needs."),
    ("alter table", "set storage", "How values are stored is not a matter of the table."),
    ("alter table", "set compression", "How values are stored is not a matter of the table."),
    ("copy", "freeze", "Leave it out: rows need no freezing."),
    ("create", "check option", "Views are read-only: leave it out."),
    ("create", "including", "Name the columns and constraints."),
    ("create", "excluding", "Name the columns and constraints."),
    ("create table", "like", "Name the columns and constraints."),
    ("delete", "current of", "Name the row by its key."),
    ("update", "current of", "Name the row by its key."),
    ("", "rows from", "Join the functions by WITH ORDINALITY."),
    ("", "search depth first by", "Keep the path in an array and order by it."),
    ("", "search breadth first by", "Count the steps in a column and order by it."),
];

/// The refusal of a statement that is PostgreSQL's though the parser does not know it.
pub(super) fn find(text: &str) -> Option<Error> {
    let tokens = tokenize(Source::new(text)).ok()?;
    let words: Vec<String> = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .map(|token| match &token.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
            _ => String::new(),
        })
        .collect();
    let starts = |phrase: &str| starts_with(&words, phrase);
    if let Some((phrase, hint)) = STATEMENTS.iter().find(|(phrase, _)| starts(phrase)) {
        return Some(bind::unsupported(&phrase.to_uppercase(), hint));
    }
    for verb in ["create or replace", "create", "alter", "drop", "comment on"] {
        let object = OBJECTS.iter().find(|object| starts(&format!("{verb} {object}")));
        if let Some(object) = object {
            let what = format!("{verb} {object}").to_uppercase();
            return Some(bind::unsupported(
                &what,
                "See the list of supported statements in the documentation.",
            ));
        }
    }
    let has = |phrase: &str| (0..words.len()).any(|at| starts_with(&words[at..], phrase));
    let (_, phrase, hint) = CLAUSES
        .iter()
        .find(|(statement, phrase, _)| (statement.is_empty() || starts(statement)) && has(phrase))?;
    Some(bind::unsupported(&phrase.to_uppercase(), hint))
}

fn starts_with(words: &[String], phrase: &str) -> bool {
    phrase.split(' ').enumerate().all(|(at, word)| words.get(at).is_some_and(|found| found == word))
}

#[cfg(test)]
mod tests {
    use model::Code;

    use crate::parse::parse;

    #[test]
    fn what_is_postgresqls_is_not_called_a_mistake() {
        for text in [
            "do $$ begin end $$",
            "reindex table t",
            "cluster",
            "alter system set work_mem = '1MB'",
            "commit prepared 'x'",
            "create publication p for all tables",
            "comment on function f() is 'x'",
            "drop aggregate a (int)",
            "create recursive view v (n) as select 1",
            "create view v as select 1 with local check option",
            "create table l (like t including all)",
            "create table l (like t, b int)",
            "alter table t set schema s",
            "alter table t alter a set statistics 100",
            "update t set a = 1 where current of c",
            "copy t from stdin freeze",
            "select U&\"d\\0061t\" from t",
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.code(), Code::FeatureNotSupported, "{text}: {}", error.message());
            assert!(error.hint().is_some(), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_one_and_hears_nothing_of_other_dialects() {
        for text in ["alter table t foo", "drop foo", "select (1"] {
            let error = parse(text).expect_err(text);
            assert_eq!((error.code(), error.detail()), (Code::SyntaxError, None), "{text}");
        }
        assert_eq!(parse("done").expect_err("a mistake").detail(), Some("Expected: an SQL statement."));
    }
}
