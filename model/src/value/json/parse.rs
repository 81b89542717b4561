//! Reading JSON text, strictly by RFC 8259: into a document, or only checking it (`json`).
//!
//! Messages and details are PostgreSQL's. Nesting is bounded by `DEPTH_MAX`, a deeper text is refused with `54001`.

use super::build::{ArrayBuilder, ObjectBuilder, bool_node, number_node, string_node};
use super::{DEPTH_MAX, Jsonb, NULL, too_deep};
use crate::value::{Numeric, ValueError, ValueErrorKind};

impl Jsonb {
    /// Reads a document from its text.
    pub fn parse(text: &str) -> Result<Jsonb, ValueError> {
        let mut parser = Parser { text, at: 0 };
        let node = parser.document(&mut Build)?;
        Ok(Jsonb::from_vec(node))
    }
}

/// Checks that a text is JSON, as the type `json` demands.
pub fn validate(text: &str) -> Result<(), ValueError> {
    Parser { text, at: 0 }.document(&mut Check)
}

/// What is made of the text: nodes, or nothing.
trait Sink {
    type Node;
    type Array;
    type Object;
    fn null(&mut self) -> Self::Node;
    fn bool(&mut self, value: bool) -> Self::Node;
    fn number(&mut self, text: &str) -> Result<Self::Node, ValueError>;
    fn string(&mut self, text: String) -> Result<Self::Node, ValueError>;
    /// Whether pairs of surrogates must be whole: only where the text is decoded.
    const DECODES: bool;
    fn array(&mut self) -> Self::Array;
    fn element(&mut self, array: &mut Self::Array, node: Self::Node);
    fn end_array(&mut self, array: Self::Array) -> Self::Node;
    fn object(&mut self) -> Self::Object;
    fn pair(&mut self, object: &mut Self::Object, key: String, node: Self::Node) -> Result<(), ValueError>;
    fn end_object(&mut self, object: Self::Object) -> Self::Node;
}

struct Build;

fn refuse_zero(text: &str) -> Result<(), ValueError> {
    if text.contains('\0') {
        return Err(ValueError::new(ValueErrorKind::Untranslatable, "unsupported Unicode escape sequence")
            .with_detail("\\u0000 cannot be converted to text."));
    }
    Ok(())
}

impl Sink for Build {
    type Node = Vec<u8>;
    type Array = ArrayBuilder;
    type Object = ObjectBuilder;

    const DECODES: bool = true;

    fn null(&mut self) -> Vec<u8> {
        vec![NULL]
    }
    fn bool(&mut self, value: bool) -> Vec<u8> {
        bool_node(value)
    }
    fn number(&mut self, text: &str) -> Result<Vec<u8>, ValueError> {
        Ok(number_node(&text.parse::<Numeric>()?))
    }
    fn string(&mut self, text: String) -> Result<Vec<u8>, ValueError> {
        refuse_zero(&text)?;
        Ok(string_node(&text))
    }
    fn array(&mut self) -> ArrayBuilder {
        ArrayBuilder::default()
    }
    fn element(&mut self, array: &mut ArrayBuilder, node: Vec<u8>) {
        array.push_raw(&node);
    }
    fn end_array(&mut self, array: ArrayBuilder) -> Vec<u8> {
        array.into_node()
    }
    fn object(&mut self) -> ObjectBuilder {
        ObjectBuilder::default()
    }
    fn pair(&mut self, object: &mut ObjectBuilder, key: String, node: Vec<u8>) -> Result<(), ValueError> {
        refuse_zero(&key)?;
        object.set_raw(key, node);
        Ok(())
    }
    fn end_object(&mut self, object: ObjectBuilder) -> Vec<u8> {
        object.into_node()
    }
}

struct Check;

impl Sink for Check {
    type Node = ();
    type Array = ();
    type Object = ();

    const DECODES: bool = false;

    fn null(&mut self) {}
    fn bool(&mut self, _: bool) {}
    fn number(&mut self, _: &str) -> Result<(), ValueError> {
        Ok(())
    }
    fn string(&mut self, _: String) -> Result<(), ValueError> {
        Ok(())
    }
    fn array(&mut self) {}
    fn element(&mut self, (): &mut (), (): ()) {}
    fn end_array(&mut self, (): ()) {}
    fn object(&mut self) {}
    fn pair(&mut self, (): &mut (), _: String, (): ()) -> Result<(), ValueError> {
        Ok(())
    }
    fn end_object(&mut self, (): ()) {}
}

/// A container whose end is not read yet; an object with the key whose value comes next.
enum Open<S: Sink> {
    Array(S::Array),
    Object(S::Object, String),
}

/// A container after one more node.
enum Attached<S: Sink> {
    Open(Open<S>),
    Closed(S::Node),
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    /// Reads the whole text. Open containers stand on a stack of our own, so depth costs no thread's stack.
    fn document<S: Sink>(&mut self, sink: &mut S) -> Result<S::Node, ValueError> {
        let mut open: Vec<Open<S>> = Vec::new();
        loop {
            if open.len() > DEPTH_MAX {
                return Err(too_deep());
            }
            let Some(mut node) = self.begin(sink, &mut open)? else { continue };
            // The node may be the last of its container, and that of its own.
            loop {
                let Some(container) = open.pop() else {
                    self.skip_blanks();
                    return if self.at < self.text.len() {
                        Err(self.expected("end of input"))
                    } else {
                        Ok(node)
                    };
                };
                match self.attach(sink, container, node)? {
                    Attached::Closed(whole) => node = whole,
                    Attached::Open(container) => {
                        open.push(container);
                        break;
                    }
                }
            }
        }
    }

    /// Reads a scalar or an empty container, or opens a container and returns `None`.
    fn begin<S: Sink>(
        &mut self,
        sink: &mut S,
        open: &mut Vec<Open<S>>,
    ) -> Result<Option<S::Node>, ValueError> {
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                let object = sink.object();
                if self.eat(b'}') {
                    return Ok(Some(sink.end_object(object)));
                }
                let key = self.key::<S>()?;
                open.push(Open::Object(object, key));
                Ok(None)
            }
            Some(b'[') => {
                self.at += 1;
                let array = sink.array();
                if self.eat(b']') {
                    return Ok(Some(sink.end_array(array)));
                }
                open.push(Open::Array(array));
                Ok(None)
            }
            Some(b'"') => {
                let text = self.string(S::DECODES)?;
                sink.string(text).map(Some)
            }
            Some(b'-' | b'0'..=b'9') => {
                let text = self.number()?;
                sink.number(text).map(Some)
            }
            _ => self.word(sink).map(Some),
        }
    }

    /// Puts a node into its container and reads what follows: the end, or a comma and perhaps the next key.
    fn attach<S: Sink>(
        &mut self,
        sink: &mut S,
        container: Open<S>,
        node: S::Node,
    ) -> Result<Attached<S>, ValueError> {
        match container {
            Open::Array(mut array) => {
                sink.element(&mut array, node);
                if self.eat(b']') {
                    return Ok(Attached::Closed(sink.end_array(array)));
                }
                if !self.eat(b',') {
                    return Err(self.expected("\",\" or \"]\""));
                }
                Ok(Attached::Open(Open::Array(array)))
            }
            Open::Object(mut object, key) => {
                sink.pair(&mut object, key, node)?;
                if self.eat(b'}') {
                    return Ok(Attached::Closed(sink.end_object(object)));
                }
                if !self.eat(b',') {
                    return Err(self.expected("\",\" or \"}\""));
                }
                let key = self.key::<S>()?;
                Ok(Attached::Open(Open::Object(object, key)))
            }
        }
    }

    fn key<S: Sink>(&mut self) -> Result<String, ValueError> {
        self.skip_blanks();
        if self.peek() != Some(b'"') {
            return Err(self.expected("string"));
        }
        let key = self.string(S::DECODES)?;
        if self.eat(b':') { Ok(key) } else { Err(self.expected("\":\"")) }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn word<S: Sink>(&mut self, sink: &mut S) -> Result<S::Node, ValueError> {
        let token = self.token();
        let length = token.len();
        let node = match token {
            "true" => sink.bool(true),
            "false" => sink.bool(false),
            "null" => sink.null(),
            _ if token.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                return Err(self.invalid_token(token));
            }
            _ => return Err(self.expected("JSON value")),
        };
        self.at += length;
        Ok(node)
    }

    /// The run of word characters here, or one character.
    fn token(&self) -> &str {
        let rest = &self.text[self.at..];
        let word =
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || !c.is_ascii())).unwrap_or(rest.len());
        if word > 0 { &rest[..word] } else { &rest[..rest.chars().next().map_or(0, char::len_utf8)] }
    }

    fn number(&mut self) -> Result<&str, ValueError> {
        let start = self.at;
        let mut valid = true;
        self.at += usize::from(self.peek() == Some(b'-'));
        let digits = self.digits();
        valid &= digits > 0 && (digits == 1 || self.text.as_bytes()[self.at - digits] != b'0');
        if self.peek() == Some(b'.') {
            self.at += 1;
            valid &= self.digits() > 0;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            valid &= self.digits() > 0;
        }
        let rest = &self.text[self.at..];
        let trailing =
            rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || !c.is_ascii())).unwrap_or(rest.len());
        self.at += trailing;
        if !valid || trailing > 0 {
            return Err(self.invalid_token(&self.text[start..self.at]));
        }
        Ok(&self.text[start..self.at])
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self, decodes: bool) -> Result<String, ValueError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(plain) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') else {
                self.at = self.text.len();
                return Err(self.invalid_token(&format!("\"{text}{rest}")));
            };
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => self.escape(&mut text, decodes)?,
                Some(byte) => {
                    return Err(self.refuse(format!("Character with value 0x{byte:02x} must be escaped.")));
                }
                None => return Err(self.invalid_token("\"")),
            }
        }
    }

    fn escape(&mut self, text: &mut String, decodes: bool) -> Result<(), ValueError> {
        self.at += 1;
        let escaped = self.text[self.at..].chars().next();
        self.at += escaped.map_or(0, char::len_utf8);
        text.push(match escaped {
            Some(plain @ ('"' | '\\' | '/')) => plain,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') if decodes => self.unicode()?,
            Some('u') => {
                self.hex()?;
                '?'
            }
            Some(other) => return Err(self.refuse(format!("Escape sequence \"\\{other}\" is invalid."))),
            None => return Err(self.invalid_token("\\")),
        });
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, ValueError> {
        let first = self.hex()?;
        match first {
            0xd800..0xdc00 => {
                if !self.text[self.at..].starts_with("\\u") {
                    return Err(self.refuse("Unicode low surrogate must follow a high surrogate."));
                }
                self.at += 2;
                let second = self.hex()?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err(self.refuse("Unicode low surrogate must follow a high surrogate."));
                }
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                char::from_u32(code)
                    .ok_or_else(|| self.refuse("Unicode low surrogate must follow a high surrogate."))
            }
            _ => char::from_u32(first)
                .ok_or_else(|| self.refuse("Unicode low surrogate must follow a high surrogate.")),
        }
    }

    fn hex(&mut self) -> Result<u32, ValueError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            return Err(self.refuse("\"\\u\" must be followed by four hexadecimal digits."));
        };
        let code =
            digits.iter().fold(0, |code, digit| code * 16 + (*digit as char).to_digit(16).unwrap_or(0));
        self.at += 4;
        Ok(code)
    }

    fn refuse(&self, detail: impl Into<String>) -> ValueError {
        ValueError::new(ValueErrorKind::InvalidText, "invalid input syntax for type json").with_detail(detail)
    }

    fn invalid_token(&self, token: &str) -> ValueError {
        self.refuse(format!("Token \"{token}\" is invalid."))
    }

    fn expected(&self, what: &str) -> ValueError {
        if self.at >= self.text.len() {
            return self.refuse("The input string ended unexpectedly.");
        }
        let token = self.token();
        match token {
            "true" | "false" | "null" => {}
            _ if token.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                return self.invalid_token(token);
            }
            _ => {}
        }
        self.refuse(format!("Expected {what}, but found \"{}\".", self.whole_token()))
    }

    /// The token here, a string with its quotes.
    fn whole_token(&self) -> &str {
        let rest = &self.text[self.at..];
        if let Some(inner) = rest.strip_prefix('"') {
            let end = inner.find('"').map_or(rest.len(), |end| end + 2);
            return &rest[..end];
        }
        self.token()
    }
}
