//! Writing documents as text: PostgreSQL's one-line form, and the indented one of `jsonb_pretty`.

use std::fmt::{self, Write};

use super::{Jsonb, Node};

impl Node<'_> {
    /// Appends the one-line form: `{"a": 1, "b": [1, 2]}`.
    pub fn write_text(self, out: &mut String) {
        match self {
            Node::Null => out.push_str("null"),
            Node::Bool(value) => out.push_str(if value { "true" } else { "false" }),
            Node::Number(number) => number.to_numeric().write_text(out),
            Node::String(text) => write_string(text, out),
            Node::Array(array) => {
                out.push('[');
                for (index, element) in array.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    element.write_text(out);
                }
                out.push(']');
            }
            Node::Object(object) => {
                out.push('{');
                for (index, (key, value)) in object.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_text(out);
                }
                out.push('}');
            }
        }
    }

    /// The text that `->>` gives: a string without quotes, `None` for null, else the one-line form.
    pub fn as_text(self) -> Option<String> {
        match self {
            Node::Null => None,
            Node::String(text) => Some(text.to_owned()),
            _ => {
                let mut out = String::new();
                self.write_text(&mut out);
                Some(out)
            }
        }
    }

    fn write_pretty(self, level: usize, out: &mut String) {
        let indent = |level: usize, out: &mut String| {
            out.push('\n');
            (0..level * 4).for_each(|_| out.push(' '));
        };
        match self {
            Node::Array(array) => {
                out.push('[');
                for (index, element) in array.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    indent(level + 1, out);
                    element.write_pretty(level + 1, out);
                }
                indent(level, out);
                out.push(']');
            }
            Node::Object(object) => {
                out.push('{');
                for (index, (key, value)) in object.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    indent(level + 1, out);
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_pretty(level + 1, out);
                }
                indent(level, out);
                out.push('}');
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_) => self.write_text(out),
        }
    }
}

impl Jsonb {
    /// The indented form of `jsonb_pretty`.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.root().write_pretty(0, &mut out);
        out
    }
}

impl fmt::Display for Jsonb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.root().write_text(&mut out);
        f.write_str(&out)
    }
}

/// Appends a JSON string with its quotes, escaping as PostgreSQL does.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}
