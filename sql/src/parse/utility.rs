//! The grammar of statements that steer the session: transactions, settings, cursors, prepared statements, EXPLAIN, COPY,
//! and the few forms of DDL that are ours alone or that `sqlparser` cannot say.
//!
//! Invariants:
//! - A statement that starts with one of these words is parsed here to its end, or refused with `42601`; every option is
//!   kept or refused.
//! - Statements inside (PREPARE, DECLARE, EXPLAIN, COPY) are parsed by the same parser as any other.

use model::{Code, Error, Result};
use sqlparser::{
    ast,
    tokenizer::{Token, TokenWithSpan},
};

use super::{Parsed, Source, near, parse_tokens, parser, syntax_error};

/// A statement that steers the session. There is one at a time, behind a box.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Utility {
    /// `BEGIN`, `START TRANSACTION`.
    Begin { modes: Vec<Mode>, start: bool },
    /// `COMMIT`, `END`.
    Commit { chain: bool },
    /// `ROLLBACK`, `ABORT`.
    Rollback { chain: bool },
    /// `SAVEPOINT`.
    Savepoint(String),
    /// `RELEASE`.
    Release(String),
    /// `ROLLBACK TO`.
    RollbackTo(String),
    /// `SET TRANSACTION`.
    SetTransaction(Vec<Mode>),
    /// `SET SESSION CHARACTERISTICS AS TRANSACTION`.
    SetSession(Vec<Mode>),
    /// `SET`: no values mean DEFAULT.
    Set { name: String, values: Option<Vec<String>>, local: bool },
    /// `SHOW`; none for ALL.
    Show(Option<String>),
    /// `RESET`; none for ALL.
    Reset(Option<String>),
    /// `DISCARD`.
    Discard(Discard),
    /// `DECLARE … CURSOR`.
    Declare(Declare),
    /// `FETCH`, `MOVE`.
    Fetch { cursor: String, direction: Direction, moves: bool },
    /// `CLOSE`; none for ALL.
    Close(Option<String>),
    /// `PREPARE`.
    Prepare { name: String, types: Vec<ast::DataType>, statement: Parsed },
    /// `EXECUTE`.
    Execute { name: String, arguments: Vec<ast::Expr> },
    /// `DEALLOCATE`; none for ALL.
    Deallocate(Option<String>),
    /// `EXPLAIN`.
    Explain { options: ExplainOptions, statement: Parsed },
    /// `COPY`.
    Copy(Copy),
    /// `LISTEN`, `UNLISTEN`, `NOTIFY`.
    Notify { what: &'static str },
    /// `LOCK TABLE`.
    Lock { tables: Vec<Vec<String>>, mode: String, nowait: bool },
    /// `ANALYZE`; no tables mean all.
    Analyze { tables: Vec<Vec<String>> },
    /// `SELECT command_status('…')`.
    CommandStatus(String),
    /// `VACUUM`, `CHECKPOINT`: nothing to do here, accepted.
    Maintain { tag: &'static str },
    /// `CREATE COLLECTION`.
    CreateCollection { name: Vec<String>, if_not_exists: bool, options: Vec<(String, String)> },
    /// `CREATE DATABASE`.
    CreateDatabase { name: String, options: Vec<(String, String)> },
    /// `DROP DATABASE`.
    DropDatabase { name: String, if_exists: bool },
    /// `ALTER DATABASE`.
    AlterDatabase { name: String, rename: Option<String>, owner: Option<String> },
    /// `CREATE ROLE`, `CREATE USER`, `CREATE GROUP`.
    CreateRole { name: String, options: Vec<RoleOption> },
    /// `ALTER ROLE`, `ALTER USER`.
    AlterRole { name: String, options: Vec<RoleOption>, rename: Option<String> },
    /// `DROP ROLE`, `DROP USER`.
    DropRole { names: Vec<String>, if_exists: bool },
    /// `GRANT role TO role`, `REVOKE role FROM role`.
    Membership { roles: Vec<String>, members: Vec<String>, revoke: bool },
    /// `GRANT … ON … TO`, `REVOKE … ON … FROM`.
    Privileges(Privileges),
    /// `ALTER SEQUENCE`.
    AlterSequence { name: Vec<String>, if_exists: bool, options: Vec<SequenceOption> },
    /// `CREATE SEQUENCE`.
    CreateSequence { name: Vec<String>, if_not_exists: bool, options: Vec<SequenceOption> },
}

/// How a transaction behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    ReadCommitted,
    RepeatableRead,
    Serializable,
    ReadOnly,
    ReadWrite,
    Deferrable,
    NotDeferrable,
}

/// What `DISCARD` throws away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discard {
    All,
    Plans,
    Sequences,
    Temporary,
}

/// `DECLARE`.
#[derive(Clone, Debug)]
pub(crate) struct Declare {
    pub(crate) name: String,
    pub(crate) binary: bool,
    pub(crate) scroll: bool,
    pub(crate) hold: bool,
    pub(crate) query: Parsed,
}

/// Where `FETCH` goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Forward(i64),
    ForwardAll,
    BackwardAll,
    Absolute(i64),
    Relative(i64),
}

/// Options of `EXPLAIN`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExplainOptions {
    pub(crate) analyze: bool,
    pub(crate) verbose: bool,
    pub(crate) costs: bool,
    pub(crate) timing: bool,
    pub(crate) summary: Option<bool>,
    pub(crate) json: bool,
}

/// `COPY`.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub(crate) target: CopyTarget,
    /// Into the table.
    pub(crate) from: bool,
    /// Where to or from: none for the client.
    pub(crate) file: Option<String>,
    pub(crate) options: Vec<(String, Option<Vec<String>>)>,
    pub(crate) filter: Option<ast::Expr>,
}

/// What is copied.
#[derive(Clone, Debug)]
pub(crate) enum CopyTarget {
    Table { name: Vec<String>, columns: Vec<String> },
    Query(Box<Parsed>),
}

/// An option of a role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RoleOption {
    Superuser(bool),
    Login(bool),
    CreateDatabase(bool),
    CreateRole(bool),
    Inherit(bool),
    Password(Option<String>),
    ConnectionLimit(i64),
    InRole(Vec<String>),
    Members(Vec<String>),
}

/// `GRANT`, `REVOKE` on objects.
#[derive(Clone, Debug)]
pub(crate) struct Privileges {
    pub(crate) revoke: bool,
    /// Names with columns; an empty list means ALL.
    pub(crate) privileges: Vec<(String, Vec<String>)>,
    pub(crate) object: GrantObject,
    /// `PUBLIC` is an empty name.
    pub(crate) grantees: Vec<String>,
    pub(crate) grant_option: bool,
    pub(crate) cascade: bool,
}

/// On what a right is given.
#[derive(Clone, Debug)]
pub(crate) enum GrantObject {
    Tables(Vec<Vec<String>>),
    Sequences(Vec<Vec<String>>),
    Schemas(Vec<String>),
    Databases(Vec<String>),
    AllTablesIn(Vec<String>),
    AllSequencesIn(Vec<String>),
}

/// An option of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SequenceOption {
    Type(String),
    Increment(i64),
    Min(Option<i64>),
    Max(Option<i64>),
    Start(i64),
    Restart(Option<i64>),
    Cache(i64),
    Cycle(bool),
    OwnedBy(Option<Vec<String>>),
    OwnerTo(String),
    RenameTo(String),
}

/// The statement, if it is one of these.
pub(crate) fn parse(source: Source<'_>, tokens: &[TokenWithSpan]) -> Result<Option<Utility>> {
    let mut cursor = Cursor { source, tokens, at: 0 };
    let Some(first) = cursor.peek_word() else { return Ok(None) };
    let utility = match first.as_str() {
        "begin" => cursor.begin(false)?,
        "start" => cursor.begin(true)?,
        "commit" | "end" => {
            cursor.at += 1;
            cursor.accept_any(&["work", "transaction"]);
            Utility::Commit { chain: cursor.chain()? }
        }
        "rollback" | "abort" => cursor.rollback()?,
        "savepoint" => {
            cursor.at += 1;
            Utility::Savepoint(cursor.name()?)
        }
        "release" => {
            cursor.at += 1;
            cursor.accept("savepoint");
            Utility::Release(cursor.name()?)
        }
        "set" => cursor.set()?,
        "show" => {
            cursor.at += 1;
            Utility::Show(cursor.setting_or_all()?)
        }
        "reset" => {
            cursor.at += 1;
            Utility::Reset(cursor.setting_or_all()?)
        }
        "discard" => cursor.discard()?,
        "declare" => return cursor.declare().map(Some),
        "fetch" | "move" => cursor.fetch()?,
        "close" => {
            cursor.at += 1;
            Utility::Close(if cursor.accept("all") { None } else { Some(cursor.name()?) })
        }
        "prepare" => return cursor.prepare().map(Some),
        "execute" => cursor.execute()?,
        "deallocate" => {
            cursor.at += 1;
            cursor.accept("prepare");
            Utility::Deallocate(if cursor.accept("all") { None } else { Some(cursor.name()?) })
        }
        "explain" => return cursor.explain().map(Some),
        "copy" => cursor.copy()?,
        "listen" | "unlisten" | "notify" => {
            let what = match first.as_str() {
                "listen" => "LISTEN",
                "unlisten" => "UNLISTEN",
                _ => "NOTIFY",
            };
            cursor.at = tokens.len();
            Utility::Notify { what }
        }
        "lock" => cursor.lock()?,
        "analyze" | "analyse" => cursor.analyze()?,
        "select" => {
            cursor.at += 1;
            let asks = cursor.accept("command_status") && cursor.accept_token(&Token::LParen);
            let Some(id) = asks.then(|| cursor.string().ok()).flatten() else { return Ok(None) };
            if !cursor.accept_token(&Token::RParen) || cursor.at < tokens.len() {
                return Ok(None);
            }
            Utility::CommandStatus(id)
        }
        "vacuum" | "checkpoint" => {
            cursor.at = tokens.len();
            Utility::Maintain { tag: if first == "vacuum" { "VACUUM" } else { "CHECKPOINT" } }
        }
        "create" | "alter" | "drop" => match cursor.definition(&first)? {
            Some(utility) => utility,
            None => return Ok(None),
        },
        "grant" | "revoke" => cursor.grant(first == "revoke")?,
        _ => return Ok(None),
    };
    cursor.end()?;
    Ok(Some(utility))
}

struct Cursor<'a> {
    source: Source<'a>,
    tokens: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    fn word_at(&self, at: usize) -> Option<String> {
        match self.tokens.get(at).map(|token| &token.token) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_lowercase()),
            _ => None,
        }
    }

    fn peek_word(&self) -> Option<String> {
        self.word_at(self.at)
    }

    fn fault(&self) -> Error {
        match self.tokens.get(self.at) {
            Some(token) => near(self.source, token),
            None => Error::new(Code::SyntaxError, "syntax error at end of input"),
        }
    }

    fn end(&self) -> Result<()> {
        if self.at < self.tokens.len() { Err(self.fault()) } else { Ok(()) }
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek_word().is_some_and(|at| at == word);
        self.at += usize::from(found);
        found
    }

    fn accept_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.accept(word))
    }

    fn accept_all(&mut self, words: &[&str]) -> bool {
        let found =
            words.iter().enumerate().all(|(i, word)| self.word_at(self.at + i).is_some_and(|at| at == *word));
        if found {
            self.at += words.len();
        }
        found
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        if self.accept(word) { Ok(()) } else { Err(self.fault()) }
    }

    fn accept_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.accept_token(token) { Ok(()) } else { Err(self.fault()) }
    }

    fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(if word.quote_style.is_some() { word.value.clone() } else { word.value.to_lowercase() })
            }
            _ => Err(self.fault()),
        }
    }

    fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.accept_token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn qualified(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.name()?];
        while self.accept_token(&Token::Period) {
            parts.push(self.name()?);
        }
        Ok(parts)
    }

    fn qualified_list(&mut self) -> Result<Vec<Vec<String>>> {
        let mut names = vec![self.qualified()?];
        while self.accept_token(&Token::Comma) {
            names.push(self.qualified()?);
        }
        Ok(names)
    }

    fn integer(&mut self) -> Result<i64> {
        let negative = self.accept_token(&Token::Minus);
        if !negative {
            self.accept_token(&Token::Plus);
        }
        match self.peek() {
            Some(Token::Number(text, _)) => {
                let text = if negative { format!("-{text}") } else { text.clone() };
                let number = text.parse().map_err(|_| self.fault())?;
                self.at += 1;
                Ok(number)
            }
            _ => Err(self.fault()),
        }
    }

    fn string(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(Token::DollarQuotedString(text)) => {
                self.at += 1;
                Ok(text.value.clone())
            }
            _ => Err(self.fault()),
        }
    }

    /// A word, string or number, as text.
    fn scalar(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Word(_)) => self.name(),
            Some(Token::Number(text, _)) => {
                self.at += 1;
                Ok(text.clone())
            }
            Some(Token::Minus | Token::Plus) => self.integer().map(|number| number.to_string()),
            _ => self.string(),
        }
    }

    fn chain(&mut self) -> Result<bool> {
        if !self.accept("and") {
            return Ok(false);
        }
        let no = self.accept("no");
        self.expect("chain")?;
        Ok(!no)
    }

    fn begin(&mut self, start: bool) -> Result<Utility> {
        self.at += 1;
        if start {
            self.expect("transaction")?;
        } else {
            self.accept_any(&["work", "transaction"]);
        }
        let modes = if self.at < self.tokens.len() { self.modes()? } else { Vec::new() };
        Ok(Utility::Begin { modes, start })
    }

    fn modes(&mut self) -> Result<Vec<Mode>> {
        let mut modes = Vec::new();
        loop {
            let mode = if self.accept_all(&["isolation", "level"]) {
                if self.accept_all(&["read", "committed"]) || self.accept_all(&["read", "uncommitted"]) {
                    Mode::ReadCommitted
                } else if self.accept_all(&["repeatable", "read"]) {
                    Mode::RepeatableRead
                } else if self.accept("serializable") {
                    Mode::Serializable
                } else {
                    return Err(self.fault());
                }
            } else if self.accept_all(&["read", "only"]) {
                Mode::ReadOnly
            } else if self.accept_all(&["read", "write"]) {
                Mode::ReadWrite
            } else if self.accept("deferrable") {
                Mode::Deferrable
            } else if self.accept_all(&["not", "deferrable"]) {
                Mode::NotDeferrable
            } else {
                return Err(self.fault());
            };
            modes.push(mode);
            let comma = self.accept_token(&Token::Comma);
            if !comma && self.at >= self.tokens.len() {
                return Ok(modes);
            }
        }
    }

    fn rollback(&mut self) -> Result<Utility> {
        self.at += 1;
        self.accept_any(&["work", "transaction"]);
        if self.accept("to") {
            self.accept("savepoint");
            return Ok(Utility::RollbackTo(self.name()?));
        }
        Ok(Utility::Rollback { chain: self.chain()? })
    }

    fn set(&mut self) -> Result<Utility> {
        self.at += 1;
        if self.accept("transaction") {
            return Ok(Utility::SetTransaction(self.modes()?));
        }
        if self.accept_all(&["session", "characteristics", "as", "transaction"]) {
            return Ok(Utility::SetSession(self.modes()?));
        }
        if self.accept_all(&["constraints"]) {
            let error = Error::unsupported(
                "SET CONSTRAINTS is not supported",
                "Constraints are checked at the end of each statement.",
            );
            return Err(error);
        }
        let local = self.accept("local");
        if !local && self.word_at(self.at + 1).is_none_or(|next| next != "authorization") {
            self.accept("session");
        }
        if self.accept_all(&["session", "authorization"]) {
            let values = if self.accept("default") { None } else { Some(vec![self.scalar()?]) };
            return Ok(Utility::Set { name: "session_authorization".to_owned(), values, local });
        }
        if self.accept("role") {
            let values =
                if self.accept_any(&["none", "default"]) { None } else { Some(vec![self.scalar()?]) };
            return Ok(Utility::Set { name: "role".to_owned(), values, local });
        }
        if self.accept_all(&["time", "zone"]) {
            return self.set_time_zone(local);
        }
        if self.accept("names") {
            let values = if self.accept("default") { None } else { Some(vec![self.scalar()?]) };
            return Ok(Utility::Set { name: "client_encoding".to_owned(), values, local });
        }
        let name = self.qualified()?.join(".");
        if !self.accept("to") {
            self.expect_token(&Token::Eq)?;
        }
        if self.accept("default") {
            return Ok(Utility::Set { name, values: None, local });
        }
        let mut values = vec![self.scalar()?];
        while self.accept_token(&Token::Comma) {
            values.push(self.scalar()?);
        }
        Ok(Utility::Set { name, values: Some(values), local })
    }

    fn set_time_zone(&mut self, local: bool) -> Result<Utility> {
        let name = "timezone".to_owned();
        if self.accept_any(&["local", "default"]) {
            return Ok(Utility::Set { name, values: None, local });
        }
        if self.accept("interval") {
            let text = self.string()?;
            self.accept_all(&["hour", "to", "minute"]);
            return Ok(Utility::Set { name, values: Some(vec![text]), local });
        }
        Ok(Utility::Set { name, values: Some(vec![self.scalar()?]), local })
    }

    fn setting_or_all(&mut self) -> Result<Option<String>> {
        if self.accept("all") {
            return Ok(None);
        }
        if self.accept_all(&["time", "zone"]) {
            return Ok(Some("timezone".to_owned()));
        }
        if self.accept_all(&["transaction", "isolation", "level"]) {
            return Ok(Some("transaction_isolation".to_owned()));
        }
        if self.accept_all(&["session", "authorization"]) {
            return Ok(Some("session_authorization".to_owned()));
        }
        Ok(Some(self.qualified()?.join(".")))
    }

    fn discard(&mut self) -> Result<Utility> {
        self.at += 1;
        let what = match self.name()?.as_str() {
            "all" => Discard::All,
            "plans" => Discard::Plans,
            "sequences" => Discard::Sequences,
            "temp" | "temporary" => Discard::Temporary,
            _ => {
                self.at -= 1;
                return Err(self.fault());
            }
        };
        Ok(Utility::Discard(what))
    }

    /// The rest of the tokens as a statement of its own.
    fn rest(&mut self) -> Result<Parsed> {
        if self.at >= self.tokens.len() {
            return Err(self.fault());
        }
        let tokens = self.tokens[self.at..].to_vec();
        self.at = self.tokens.len();
        parse_tokens(self.source, tokens)
    }

    fn declare(mut self) -> Result<Utility> {
        self.at += 1;
        let name = self.name()?;
        let (mut binary, mut scroll) = (false, false);
        loop {
            if self.accept("binary") {
                binary = true;
            } else if self.accept_any(&["insensitive", "asensitive"]) {
            } else if self.accept_all(&["no", "scroll"]) {
                scroll = false;
            } else if self.accept("scroll") {
                scroll = true;
            } else {
                break;
            }
        }
        self.expect("cursor")?;
        let hold = self.accept_all(&["with", "hold"]);
        if !hold {
            self.accept_all(&["without", "hold"]);
        }
        self.expect("for")?;
        Ok(Utility::Declare(Declare { name, binary, scroll, hold, query: self.rest()? }))
    }

    fn fetch(&mut self) -> Result<Utility> {
        let moves = self.accept("move");
        self.at += usize::from(!moves);
        let direction = self.direction()?;
        self.accept_any(&["from", "in"]);
        Ok(Utility::Fetch { cursor: self.name()?, direction, moves })
    }

    fn direction(&mut self) -> Result<Direction> {
        let number = matches!(self.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus));
        if number {
            return Ok(Direction::Forward(self.integer()?));
        }
        // A single word is the cursor's name, whatever it is.
        if self.at + 1 == self.tokens.len() {
            return Ok(Direction::Forward(1));
        }
        Ok(match self.peek_word().as_deref() {
            Some("next") => self.took(Direction::Forward(1)),
            Some("prior") => self.took(Direction::Forward(-1)),
            Some("first") => self.took(Direction::Absolute(1)),
            Some("last") => self.took(Direction::Absolute(-1)),
            Some("all") => self.took(Direction::ForwardAll),
            Some("absolute") => {
                self.at += 1;
                Direction::Absolute(self.integer()?)
            }
            Some("relative") => {
                self.at += 1;
                Direction::Relative(self.integer()?)
            }
            Some("forward") => {
                self.at += 1;
                self.count(1)?
            }
            Some("backward") => {
                self.at += 1;
                self.count(-1)?
            }
            _ => Direction::Forward(1),
        })
    }

    fn took(&mut self, direction: Direction) -> Direction {
        self.at += 1;
        direction
    }

    fn count(&mut self, sign: i64) -> Result<Direction> {
        if self.accept("all") {
            return Ok(if sign > 0 { Direction::ForwardAll } else { Direction::BackwardAll });
        }
        if matches!(self.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus)) {
            return Ok(Direction::Forward(self.integer()?.saturating_mul(sign)));
        }
        Ok(Direction::Forward(sign))
    }

    /// Runs `sqlparser` from here and goes on behind what it took.
    fn with_parser<T>(
        &mut self,
        parse: impl FnOnce(
            &mut sqlparser::parser::Parser<'_>,
        ) -> std::result::Result<T, sqlparser::parser::ParserError>,
    ) -> Result<T> {
        let mut parser = parser(self.tokens[self.at..].to_vec());
        let parsed = parse(&mut parser).map_err(|error| syntax_error(self.source, error))?;
        self.at += parser.index().min(self.tokens.len() - self.at);
        Ok(parsed)
    }

    fn prepare(mut self) -> Result<Utility> {
        self.at += 1;
        if self.word_at(self.at).is_some_and(|word| word == "transaction")
            && self.word_at(self.at + 1).is_none_or(|word| word != "as")
        {
            return Err(Error::unsupported(
                "PREPARE TRANSACTION is not supported",
                "Commit the transaction in one phase.",
            ));
        }
        let name = self.name()?;
        let mut types = Vec::new();
        if self.accept_token(&Token::LParen) {
            loop {
                types.push(self.with_parser(|parser| parser.parse_data_type())?);
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        self.expect("as")?;
        Ok(Utility::Prepare { name, types, statement: self.rest()? })
    }

    fn execute(&mut self) -> Result<Utility> {
        self.at += 1;
        let name = self.name()?;
        let mut arguments = Vec::new();
        if self.accept_token(&Token::LParen) {
            loop {
                arguments.push(self.with_parser(|parser| parser.parse_expr())?);
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(Utility::Execute { name, arguments })
    }

    fn explain(mut self) -> Result<Utility> {
        self.at += 1;
        let mut options = ExplainOptions {
            analyze: false,
            verbose: false,
            costs: true,
            timing: true,
            summary: None,
            json: false,
        };
        if self.accept_token(&Token::LParen) {
            loop {
                self.explain_option(&mut options)?;
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        } else {
            options.analyze = self.accept_any(&["analyze", "analyse"]);
            options.verbose = self.accept("verbose");
        }
        Ok(Utility::Explain { options, statement: self.rest()? })
    }

    fn explain_option(&mut self, options: &mut ExplainOptions) -> Result<()> {
        let name = self.name()?;
        let value = match self.peek() {
            Some(Token::Comma | Token::RParen) | None => None,
            Some(_) => Some(self.scalar()?.to_lowercase()),
        };
        let flag = || match value.as_deref() {
            None | Some("true" | "on" | "1") => Ok(true),
            Some("false" | "off" | "0") => Ok(false),
            Some(_) => Err(Error::new(Code::SyntaxError, format!("{name} requires a Boolean value"))),
        };
        match name.as_str() {
            "analyze" | "analyse" => options.analyze = flag()?,
            "verbose" => options.verbose = flag()?,
            "costs" => options.costs = flag()?,
            "timing" => options.timing = flag()?,
            "summary" => options.summary = Some(flag()?),
            "buffers" | "wal" | "settings" => {
                flag()?;
            }
            "format" => match value.as_deref() {
                Some("text") => options.json = false,
                Some("json") => options.json = true,
                other => {
                    let what = other.unwrap_or("");
                    return Err(Error::new(
                        Code::InvalidParameterValue,
                        format!("unrecognized value for EXPLAIN option \"format\": \"{what}\""),
                    )
                    .with_hint("The formats are text and json."));
                }
            },
            _ => {
                return Err(Error::new(Code::SyntaxError, format!("unrecognized EXPLAIN option \"{name}\"")));
            }
        }
        Ok(())
    }

    fn copy(&mut self) -> Result<Utility> {
        self.at += 1;
        let target = if self.peek() == Some(&Token::LParen) {
            let close = self.matching_paren()?;
            let tokens = self.tokens[self.at + 1..close].to_vec();
            self.at = close + 1;
            CopyTarget::Query(Box::new(parse_tokens(self.source, tokens)?))
        } else {
            let name = self.qualified()?;
            let mut columns = Vec::new();
            if self.accept_token(&Token::LParen) {
                columns = self.names()?;
                self.expect_token(&Token::RParen)?;
            }
            CopyTarget::Table { name, columns }
        };
        let from = self.accept("from");
        if !from {
            self.expect("to")?;
        }
        if self.peek_word().is_some_and(|word| word == "program") {
            return Err(Error::unsupported(
                "COPY with PROGRAM is not supported",
                "Copy from STDIN or to STDOUT.",
            ));
        }
        let file = if self.accept_any(&["stdin", "stdout"]) { None } else { Some(self.string()?) };
        let mut options = Vec::new();
        self.accept("with");
        if self.accept_token(&Token::LParen) {
            loop {
                options.push(self.copy_option()?);
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        } else {
            self.old_copy_options(&mut options)?;
        }
        let filter =
            if self.accept("where") { Some(self.with_parser(|parser| parser.parse_expr())?) } else { None };
        Ok(Utility::Copy(Copy { target, from, file, options, filter }))
    }

    fn matching_paren(&self) -> Result<usize> {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(self.at) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(at);
                    }
                }
                _ => {}
            }
        }
        Err(Error::new(Code::SyntaxError, "syntax error at end of input"))
    }

    fn copy_option(&mut self) -> Result<(String, Option<Vec<String>>)> {
        let name = self.name()?;
        self.accept_token(&Token::Eq);
        let value = match self.peek() {
            Some(Token::Comma | Token::RParen) | None => None,
            Some(Token::Mul) => {
                self.at += 1;
                Some(vec!["*".to_owned()])
            }
            Some(Token::LParen) => {
                self.at += 1;
                let names = self.names()?;
                self.expect_token(&Token::RParen)?;
                Some(names)
            }
            Some(_) => Some(vec![self.scalar()?]),
        };
        Ok((name, value))
    }

    /// `COPY … CSV HEADER DELIMITER ','`, the form before PostgreSQL 9.0.
    fn old_copy_options(&mut self, options: &mut Vec<(String, Option<Vec<String>>)>) -> Result<()> {
        loop {
            let Some(word) = self.peek_word().filter(|word| word != "where") else { return Ok(()) };
            self.at += 1;
            let option = match word.as_str() {
                "csv" | "binary" => ("format".to_owned(), Some(vec![word])),
                "header" => (word, None),
                "delimiter" | "null" | "quote" | "escape" => {
                    self.accept("as");
                    (word, Some(vec![self.string()?]))
                }
                "encoding" => (word, Some(vec![self.string()?])),
                _ => {
                    self.at -= 1;
                    return Err(self.fault());
                }
            };
            options.push(option);
        }
    }

    fn lock(&mut self) -> Result<Utility> {
        self.at += 1;
        self.accept("table");
        self.accept("only");
        let tables = self.qualified_list()?;
        let mut mode = String::from("access exclusive");
        if self.accept("in") {
            let mut words = Vec::new();
            while !self.accept("mode") {
                words.push(self.name()?);
            }
            mode = words.join(" ");
        }
        let nowait = self.accept("nowait");
        Ok(Utility::Lock { tables, mode, nowait })
    }

    fn analyze(&mut self) -> Result<Utility> {
        self.at += 1;
        self.accept("verbose");
        let mut tables = Vec::new();
        if self.at < self.tokens.len() {
            loop {
                tables.push(self.qualified()?);
                if self.accept_token(&Token::LParen) {
                    self.names()?;
                    self.expect_token(&Token::RParen)?;
                }
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
        }
        Ok(Utility::Analyze { tables })
    }

    fn if_not_exists(&mut self) -> bool {
        self.accept_all(&["if", "not", "exists"])
    }

    fn if_exists(&mut self) -> bool {
        self.accept_all(&["if", "exists"])
    }

    /// CREATE, ALTER and DROP of what is parsed here.
    fn definition(&mut self, verb: &str) -> Result<Option<Utility>> {
        let Some(object) = self.word_at(self.at + 1) else { return Ok(None) };
        let start = self.at;
        self.at += 2;
        let utility = match (verb, object.as_str()) {
            ("create", "collection") => self.create_collection()?,
            ("create", "database") => self.create_database()?,
            ("drop", "database") => {
                let if_exists = self.if_exists();
                let name = self.name()?;
                if self.accept("with") || self.peek() == Some(&Token::LParen) {
                    self.expect_token(&Token::LParen)?;
                    self.expect("force")?;
                    self.expect_token(&Token::RParen)?;
                }
                Utility::DropDatabase { name, if_exists }
            }
            ("alter", "database") => self.alter_database()?,
            ("create", "role" | "group") => self.create_role(false)?,
            ("create", "user") if self.peek_word().is_none_or(|word| word != "mapping") => {
                self.create_role(true)?
            }
            ("alter", "role" | "user" | "group") => self.alter_role()?,
            ("drop", "role" | "user" | "group") => {
                let if_exists = self.if_exists();
                Utility::DropRole { names: self.names()?, if_exists }
            }
            ("create", "sequence") => {
                let if_not_exists = self.if_not_exists();
                let name = self.qualified()?;
                Utility::CreateSequence { name, if_not_exists, options: self.sequence_options()? }
            }
            ("alter", "sequence") => {
                let if_exists = self.if_exists();
                let name = self.qualified()?;
                Utility::AlterSequence { name, if_exists, options: self.sequence_options()? }
            }
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        Ok(Some(utility))
    }

    fn create_collection(&mut self) -> Result<Utility> {
        let if_not_exists = self.if_not_exists();
        let name = self.qualified()?;
        let mut options = Vec::new();
        if self.accept("with") {
            self.expect_token(&Token::LParen)?;
            loop {
                let option = self.name()?;
                self.expect_token(&Token::Eq)?;
                options.push((option, self.scalar()?));
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(Utility::CreateCollection { name, if_not_exists, options })
    }

    fn create_database(&mut self) -> Result<Utility> {
        let name = self.name()?;
        self.accept("with");
        let mut options = Vec::new();
        while self.at < self.tokens.len() {
            let mut option = self.name()?;
            if option == "connection" {
                self.expect("limit")?;
                option = "connection limit".to_owned();
            }
            self.accept_token(&Token::Eq);
            options.push((option, self.scalar()?));
        }
        Ok(Utility::CreateDatabase { name, options })
    }

    fn alter_database(&mut self) -> Result<Utility> {
        let name = self.name()?;
        if self.accept_all(&["rename", "to"]) {
            return Ok(Utility::AlterDatabase { name, rename: Some(self.name()?), owner: None });
        }
        if self.accept_all(&["owner", "to"]) {
            return Ok(Utility::AlterDatabase { name, rename: None, owner: Some(self.name()?) });
        }
        Err(Error::unsupported("this form of ALTER DATABASE is not supported", "RENAME TO and OWNER TO are."))
    }

    fn create_role(&mut self, login: bool) -> Result<Utility> {
        let name = self.name()?;
        self.accept("with");
        let mut options = if login { vec![RoleOption::Login(true)] } else { Vec::new() };
        options.extend(self.role_options()?);
        Ok(Utility::CreateRole { name, options })
    }

    fn alter_role(&mut self) -> Result<Utility> {
        let name = self.name()?;
        if self.accept_all(&["rename", "to"]) {
            return Ok(Utility::AlterRole { name, options: Vec::new(), rename: Some(self.name()?) });
        }
        if self.peek_word().is_some_and(|word| word == "set" || word == "reset" || word == "in") {
            return Err(Error::unsupported(
                "settings of a role are not supported",
                "Use SET in the session.",
            ));
        }
        self.accept("with");
        Ok(Utility::AlterRole { name, options: self.role_options()?, rename: None })
    }

    fn role_options(&mut self) -> Result<Vec<RoleOption>> {
        let mut options = Vec::new();
        while self.at < self.tokens.len() {
            let option = match self.name()?.as_str() {
                "superuser" => RoleOption::Superuser(true),
                "nosuperuser" => RoleOption::Superuser(false),
                "login" => RoleOption::Login(true),
                "nologin" => RoleOption::Login(false),
                "createdb" => RoleOption::CreateDatabase(true),
                "nocreatedb" => RoleOption::CreateDatabase(false),
                "createrole" => RoleOption::CreateRole(true),
                "nocreaterole" => RoleOption::CreateRole(false),
                "inherit" => RoleOption::Inherit(true),
                "noinherit" => RoleOption::Inherit(false),
                "encrypted" => continue,
                "password" => {
                    RoleOption::Password(if self.accept("null") { None } else { Some(self.string()?) })
                }
                "connection" => {
                    self.expect("limit")?;
                    RoleOption::ConnectionLimit(self.integer()?)
                }
                "in" => {
                    if !self.accept("role") {
                        self.expect("group")?;
                    }
                    RoleOption::InRole(self.names()?)
                }
                "role" | "user" => RoleOption::Members(self.names()?),
                "valid" | "replication" | "bypassrls" | "admin" => {
                    return Err(Error::unsupported(
                        "this option of a role is not supported",
                        "SUPERUSER, LOGIN, CREATEDB, CREATEROLE, INHERIT, PASSWORD, CONNECTION LIMIT, IN ROLE and ROLE are.",
                    ));
                }
                "noreplication" | "nobypassrls" => continue,
                _ => {
                    self.at -= 1;
                    return Err(self.fault());
                }
            };
            options.push(option);
        }
        Ok(options)
    }

    fn sequence_options(&mut self) -> Result<Vec<SequenceOption>> {
        let mut options = Vec::new();
        while self.at < self.tokens.len() {
            let option = match self.name()?.as_str() {
                "as" => SequenceOption::Type(self.name()?),
                "increment" => {
                    self.accept("by");
                    SequenceOption::Increment(self.integer()?)
                }
                "minvalue" => SequenceOption::Min(Some(self.integer()?)),
                "maxvalue" => SequenceOption::Max(Some(self.integer()?)),
                "start" => {
                    self.accept("with");
                    SequenceOption::Start(self.integer()?)
                }
                "restart" => {
                    self.accept("with");
                    let number = matches!(self.peek(), Some(Token::Number(..) | Token::Minus | Token::Plus));
                    SequenceOption::Restart(if number { Some(self.integer()?) } else { None })
                }
                "cache" => SequenceOption::Cache(self.integer()?),
                "cycle" => SequenceOption::Cycle(true),
                "no" => match self.name()?.as_str() {
                    "minvalue" => SequenceOption::Min(None),
                    "maxvalue" => SequenceOption::Max(None),
                    "cycle" => SequenceOption::Cycle(false),
                    _ => {
                        self.at -= 1;
                        return Err(self.fault());
                    }
                },
                "owned" => {
                    self.expect("by")?;
                    SequenceOption::OwnedBy(if self.accept("none") { None } else { Some(self.qualified()?) })
                }
                "owner" => {
                    self.expect("to")?;
                    SequenceOption::OwnerTo(self.name()?)
                }
                "rename" => {
                    self.expect("to")?;
                    SequenceOption::RenameTo(self.name()?)
                }
                _ => {
                    self.at -= 1;
                    return Err(self.fault());
                }
            };
            options.push(option);
        }
        Ok(options)
    }

    fn grant(&mut self, revoke: bool) -> Result<Utility> {
        self.at += 1;
        let grant_option_for = revoke && self.accept_all(&["grant", "option", "for"]);
        let direction = if revoke { "from" } else { "to" };
        let mut privileges = Vec::new();
        if self.accept("all") {
            self.accept("privileges");
            if self.accept_token(&Token::LParen) {
                let columns = self.names()?;
                self.expect_token(&Token::RParen)?;
                privileges.push(("all".to_owned(), columns));
            }
        } else {
            loop {
                let name = self.name()?;
                let mut columns = Vec::new();
                if self.accept_token(&Token::LParen) {
                    columns = self.names()?;
                    self.expect_token(&Token::RParen)?;
                }
                privileges.push((name, columns));
                if !self.accept_token(&Token::Comma) {
                    break;
                }
            }
        }
        if self.accept(direction) {
            let members = self.grantees()?;
            self.accept_all(&["with", "admin", "option"]);
            self.accept_any(&["cascade", "restrict"]);
            let roles = privileges.into_iter().map(|(name, _)| name).collect();
            return Ok(Utility::Membership { roles, members, revoke });
        }
        self.expect("on")?;
        let object = self.grant_object()?;
        self.expect(direction)?;
        let grantees = self.grantees()?;
        let grant_option = grant_option_for || self.accept_all(&["with", "grant", "option"]);
        let cascade = self.accept("cascade");
        if !cascade {
            self.accept("restrict");
        }
        Ok(Utility::Privileges(Privileges { revoke, privileges, object, grantees, grant_option, cascade }))
    }

    fn grantees(&mut self) -> Result<Vec<String>> {
        let mut grantees = Vec::new();
        loop {
            self.accept("group");
            grantees.push(if self.accept("public") { String::new() } else { self.name()? });
            if !self.accept_token(&Token::Comma) {
                return Ok(grantees);
            }
        }
    }

    fn grant_object(&mut self) -> Result<GrantObject> {
        if self.accept_all(&["all", "tables", "in", "schema"]) {
            return Ok(GrantObject::AllTablesIn(self.names()?));
        }
        if self.accept_all(&["all", "sequences", "in", "schema"]) {
            return Ok(GrantObject::AllSequencesIn(self.names()?));
        }
        if self.accept("schema") {
            return Ok(GrantObject::Schemas(self.names()?));
        }
        if self.accept("database") {
            return Ok(GrantObject::Databases(self.names()?));
        }
        if self.accept("sequence") {
            return Ok(GrantObject::Sequences(self.qualified_list()?));
        }
        if self.peek_word().is_some_and(|word| {
            ["function", "procedure", "routine", "language", "type", "domain"].contains(&word.as_str())
        }) {
            return Err(Error::unsupported(
                "rights on this kind of object are not supported",
                "There are rights on databases, schemas, tables, columns and sequences.",
            ));
        }
        self.accept("table");
        Ok(GrantObject::Tables(self.qualified_list()?))
    }
}
