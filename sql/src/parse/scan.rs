//! The scan before the parser: how deep a text nests, how much of it there is.
//!
//! Invariants:
//! - One pass over the bytes, without recursion and without allocation; it knows strings, quoted names, comments and dollar
//!   quotes, and otherwise counts more rather than less than the parser will recurse.
//! - What passes nests at most [`DEPTH_MAX`] levels deep and has at most [`TOKENS_MAX`] tokens.

use model::{Code, Error, Result};

/// How deep parentheses, brackets, CASE, prefix operators and the like may nest.
pub(crate) const DEPTH_MAX: usize = 256;

/// How many AND or OR may stand in one chain without parentheses: trees of them lean to one side and are dropped by recursion.
const LOGIC_MAX: usize = 5_000;

/// How many other operators may.
const CHAIN_MAX: usize = 1_000;

/// What nests deeper, or chains longer, is parsed and planned on a stack of its own.
const DEPTH_PLAIN: usize = 16;
const CHAIN_PLAIN: usize = 100;

/// Bytes of that stack; only what is used becomes real.
const STACK_BYTES: usize = 256 * 1024 * 1024;

/// How long a text may be.
pub(crate) const STATEMENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How many tokens a text may have; each costs about a hundred bytes while it is parsed.
pub(crate) const TOKENS_MAX: usize = 4_000_000;

/// What the scan found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Measure {
    /// Levels of nesting.
    pub(crate) depth: usize,
    /// The longest chain of operators at one level, AND and OR left out.
    pub(crate) chain: usize,
    /// The longest chain of AND and OR.
    pub(crate) logic: usize,
    /// Tokens, roughly.
    pub(crate) tokens: usize,
}

/// Refuses a text that is too long (`54000`), nests too deeply (`54001`) or holds a NUL (`22021`).
pub(crate) fn check(text: &str) -> Result<Measure> {
    if text.len() > STATEMENT_BYTES_MAX {
        return Err(too_long(text.len()));
    }
    if text.as_bytes().contains(&0) {
        return Err(Error::new(
            Code::CharacterNotInRepertoire,
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    let measure = Scan::new(text.as_bytes()).run();
    if measure.depth > DEPTH_MAX || measure.chain > CHAIN_MAX || measure.logic > LOGIC_MAX {
        return Err(too_deep());
    }
    if measure.tokens > TOKENS_MAX {
        return Err(Error::new(
            Code::ProgramLimitExceeded,
            format!("statement has more than {TOKENS_MAX} tokens"),
        )
        .with_hint("Send the values as parameters, or load them with COPY."));
    }
    Ok(measure)
}

/// A text with blanks in the place of its comments, so that everything else stands where it stood.
pub(super) fn blank_comments(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut scan = Scan::new(text.as_bytes());
    while let Some(&byte) = scan.bytes.get(scan.at) {
        let start = scan.at;
        let is_comment = scan.step(byte);
        let piece = &text[start..scan.at.min(text.len())];
        if is_comment {
            blanked.extend(piece.chars().map(|c| if c == '\n' { c } else { ' ' }));
        } else {
            blanked.push_str(piece);
        }
    }
    blanked
}

/// Runs work that recurses along the nesting of a text: on a large stack where the text nests deeply.
pub(crate) fn with_stack<T: Send>(text: &str, work: impl FnOnce() -> T + Send) -> T {
    let measure = Scan::new(text.as_bytes()).run();
    if measure.depth <= DEPTH_PLAIN && measure.chain <= CHAIN_PLAIN && measure.logic <= CHAIN_PLAIN {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql-deep".to_owned()).stack_size(STACK_BYTES);
        let handle = thread.spawn_scoped(scope, work).expect("a thread can be started");
        match handle.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// `54001`, as PostgreSQL says it.
pub(crate) fn too_deep() -> Error {
    Error::new(Code::StatementTooComplex, "stack depth limit exceeded")
        .with_hint(format!("A statement may nest {DEPTH_MAX} levels deep."))
}

fn too_long(bytes: usize) -> Error {
    Error::new(
        Code::ProgramLimitExceeded,
        format!("statement of {bytes} bytes exceeds {STATEMENT_BYTES_MAX} bytes"),
    )
    .with_hint("Send the values as parameters, or load them with COPY.")
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    open: usize,
    cases: usize,
    prefixes: usize,
    chain: usize,
    logic: usize,
    operand_before: bool,
    measure: Measure,
}

impl<'a> Scan<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            open: 0,
            cases: 0,
            prefixes: 0,
            chain: 0,
            logic: 0,
            operand_before: false,
            measure: Measure::default(),
        }
    }

    fn run(mut self) -> Measure {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.step(byte);
        }
        self.measure
    }

    /// One token, comment or blank; whether it was a comment, to its end.
    fn step(&mut self, byte: u8) -> bool {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0c | 0x0b => self.at += 1,
            b'-' if self.next_is(b'-') => {
                self.line_comment();
                return true;
            }
            b'/' if self.next_is(b'*') => return self.block_comment(),
            b'\'' => self.quoted(b'\''),
            b'"' => self.quoted(b'"'),
            b'$' => self.dollar(),
            b'(' | b'[' => self.opens(),
            b')' | b']' => self.closes(),
            b',' | b';' => self.separates(byte),
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word(),
            _ => self.operator(),
        }
        false
    }

    fn next_is(&self, byte: u8) -> bool {
        self.bytes.get(self.at + 1) == Some(&byte)
    }

    fn deepen(&mut self) {
        self.measure.depth = self.measure.depth.max(self.open + self.cases + self.prefixes);
    }

    fn operand(&mut self) {
        self.measure.tokens += 1;
        self.prefixes = 0;
        self.operand_before = true;
    }

    fn line_comment(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len());
    }

    /// A comment; whether it has an end.
    fn block_comment(&mut self) -> bool {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            match (self.bytes[self.at], self.bytes.get(self.at + 1)) {
                (b'/', Some(b'*')) => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return true;
                    }
                }
                _ => self.at += 1,
            }
        }
        false
    }

    fn quoted(&mut self, quote: u8) {
        let escapes = quote == b'\'' && self.follows_escape_mark();
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            if escapes && byte == b'\\' {
                self.at += 1;
            } else if byte == quote {
                break;
            }
        }
        self.operand();
    }

    /// Whether an `E` of its own stands just before: not the end of a word, such as `like`, but perhaps after a number.
    fn follows_escape_mark(&self) -> bool {
        let Some((b'e' | b'E', before)) = self.bytes[..self.at].split_last() else { return false };
        let word = before.rsplit(|byte| !is_word_part(byte)).next().unwrap_or(before);
        word.iter().all(u8::is_ascii_digit)
    }

    fn dollar(&mut self) {
        let rest = &self.bytes[self.at + 1..];
        let tag =
            rest.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80));
        match tag {
            Some(length) if rest[length] == b'$' && !rest.first().is_some_and(u8::is_ascii_digit) => {
                let mark = &self.bytes[self.at..self.at + length + 2];
                let body = self.at + mark.len();
                let end = find(&self.bytes[body..], mark);
                self.at = end.map_or(self.bytes.len(), |end| body + end + mark.len());
                self.operand();
            }
            Some(length) => {
                self.at += 1 + length;
                self.operand();
            }
            None => {
                self.at = self.bytes.len();
                self.operand();
            }
        }
    }

    fn opens(&mut self) {
        self.measure.tokens += 1;
        self.open += 1 + self.prefixes;
        self.prefixes = 0;
        self.operand_before = false;
        self.deepen();
        self.at += 1;
    }

    fn closes(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.operand();
        self.at += 1;
    }

    fn separates(&mut self, byte: u8) {
        self.measure.tokens += 1;
        self.prefixes = 0;
        (self.chain, self.logic) = (0, 0);
        self.operand_before = false;
        if byte == b';' {
            (self.open, self.cases) = (0, 0);
        }
        self.at += 1;
    }

    fn word(&mut self) {
        let start = self.at;
        let length = self.bytes[start..]
            .iter()
            .position(|byte| !is_word_part(byte))
            .unwrap_or(self.bytes.len() - start);
        self.at += length;
        let word = &self.bytes[start..self.at];
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"case") {
            self.measure.tokens += 1;
            self.cases += 1;
            self.operand_before = false;
            self.deepen();
        } else if is(b"end") {
            self.cases = self.cases.saturating_sub(1);
            self.operand();
        } else if is(b"not") || is(b"explain") || is(b"prepare") || is(b"execute") || is(b"analyze") {
            self.prefix();
        } else if is(b"and") || is(b"or") {
            self.measure.tokens += 1;
            self.logic += 1;
            self.measure.logic = self.measure.logic.max(self.logic);
            // Operators on both sides of an AND are no chain.
            self.chain = 0;
            self.operand_before = false;
            self.prefixes = 0;
        } else if [&b"union"[..], b"intersect", b"except", b"join", b"is", b"like", b"at", b"in", b"between"]
            .iter()
            .any(|name| is(name))
        {
            self.chains();
        } else {
            self.operand();
        }
    }

    fn operator(&mut self) {
        self.at += 1;
        if self.operand_before {
            self.chains();
        } else {
            self.prefix();
        }
    }

    fn prefix(&mut self) {
        self.measure.tokens += 1;
        self.prefixes += 1;
        self.operand_before = false;
        self.deepen();
    }

    fn chains(&mut self) {
        self.measure.tokens += 1;
        self.chain += 1;
        self.measure.chain = self.measure.chain.max(self.chain);
        self.operand_before = false;
        self.prefixes = 0;
    }
}

fn is_word_part(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'$' || *byte >= 0x80
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.iter().position(|byte| *byte == b'$')?;
        if text[at..].starts_with(mark) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_nesting_is_refused_before_the_parser_sees_it() {
        let deep = 1_000_000;
        let texts = [
            format!("select {}1{}", "(".repeat(deep), ")".repeat(deep)),
            format!("select {}1{}", "array[".repeat(deep), "]".repeat(deep)),
            format!("select {} 1 end", "case when true then ".repeat(deep)),
            format!("select {} true", "not ".repeat(deep)),
            format!("select {}1", "- ".repeat(deep)),
            format!("select {}1", "+".repeat(deep)),
            format!("select {}1", "-(".repeat(deep)),
            format!("{} select 1", "explain ".repeat(deep)),
            format!("select 1{}", " + 1".repeat(deep)),
            format!("select 1{}", "::int".repeat(deep)),
            format!("select 1{}", " union select 1".repeat(deep)),
            format!("select {}1{}", "coalesce(".repeat(deep), ")".repeat(deep)),
        ];
        for text in texts {
            let code = check(&text).expect_err("too deep").code();
            assert_eq!(code, Code::StatementTooComplex, "{}", &text[..40]);
        }
    }

    #[test]
    fn what_stands_in_strings_and_comments_does_not_nest() {
        let many = "(".repeat(10_000);
        for text in [
            format!("select '{many}'"),
            format!("select $x${many}$x$"),
            format!("select \"{many}\""),
            format!("select 1 -- {many}"),
            format!("select /* {many} /* */ */ 1"),
        ] {
            assert!(check(&text).is_ok(), "{}", &text[..20]);
        }
    }

    #[test]
    fn what_only_looks_like_a_string_or_a_comment_nests() {
        let many = "(".repeat(10_000);
        for text in [format!("select 'a' like'\\' , {many} '"), format!("select 1 -- x\r {many}")] {
            assert!(check(&text).is_err(), "{}", &text[..20]);
        }
        assert!(check(&format!("select e'\\'{many}'")).is_ok());
    }

    #[test]
    fn comments_become_blanks_and_nothing_else_moves() {
        assert_eq!(blank_comments("a--é\nb/*x\n/**/*/c'--'"), "a   \nb   \n      c'--'");
        assert_eq!(blank_comments("a /* no end"), "a /* no end");
    }

    #[test]
    fn long_lists_are_not_deep() {
        let list = vec!["(1, -2)"; 10_000].join(", ");
        assert!(check(&format!("insert into t values {list}")).is_ok());
    }
}
