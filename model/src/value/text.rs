//! Text and bytes: immutable, cheap to clone, two words wide.
//!
//! Not here: collations (there is one, C: by bytes), `character(n)` padding beyond the helper `trim_blanks`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Immutable UTF-8 text, shared on clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Arc<str>);

impl Text {
    /// The text as a slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Text {
    fn default() -> Self {
        Text(Arc::from(""))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(Arc::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text(Arc::from(text))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Text(text)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Immutable bytes, shared on clone; two words, where `bytes::Bytes` has four.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytea(Arc<[u8]>);

impl Deref for Bytea {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytea {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Bytea {
    fn from(bytes: &[u8]) -> Self {
        Bytea(Arc::from(bytes))
    }
}

impl From<Vec<u8>> for Bytea {
    fn from(bytes: Vec<u8>) -> Self {
        Bytea(Arc::from(bytes))
    }
}

impl fmt::Debug for Bytea {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\\x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The text without trailing blanks: what `character(n)` compares and counts.
pub fn trim_blanks(text: &str) -> &str {
    text.trim_end_matches(' ')
}
