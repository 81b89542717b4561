//! Many texts (or byte strings) in one buffer.
//!
//! Invariants: `offsets` has one entry more than there are texts, starts at 0 and never falls; what was pushed with
//! [`Texts::push_str`] is UTF-8.

/// Texts laid end to end.
#[derive(Clone, Debug)]
pub struct Texts {
    offsets: Vec<usize>,
    bytes: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Texts {
    /// Room for so many texts.
    pub fn with_capacity(count: usize) -> Self {
        let mut offsets = Vec::with_capacity(count + 1);
        offsets.push(0);
        Self { offsets, bytes: Vec::new() }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends one.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.offsets.push(self.bytes.len());
    }

    /// Appends a text.
    #[inline]
    pub fn push_str(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    /// Appends one that `write` writes at the end of the buffer.
    #[inline]
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.offsets.push(self.bytes.len());
    }

    /// Appends some of another's.
    pub fn extend_gathered(&mut self, other: &Texts, rows: &[u32]) {
        self.offsets.reserve(rows.len());
        for row in rows {
            self.push(other.get(*row as usize));
        }
    }

    /// Appends all of another's.
    pub fn extend_from(&mut self, other: &Texts) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.offsets.extend(other.offsets[1..].iter().map(|offset| base + offset));
    }

    /// One of them.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index]..self.offsets[index + 1]]
    }

    /// One of them as text; bytes that are none (of a `bytea` column) read as empty.
    #[inline]
    pub fn get_str(&self, index: usize) -> &str {
        std::str::from_utf8(self.get(index)).unwrap_or_default()
    }

    /// Whether each of them is text.
    pub fn is_utf8(&self) -> bool {
        let begins = |offset: &usize| self.bytes.get(*offset).is_none_or(|byte| byte & 0xc0 != 0x80);
        // Looked at as one: it falls apart into texts if no place is within a character.
        std::str::from_utf8(&self.bytes).is_ok() && (self.bytes.is_ascii() || self.offsets.iter().all(begins))
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.offsets.windows(2).map(|pair| &self.bytes[pair[0]..pair[1]])
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.offsets.capacity() * size_of::<usize>()
    }

    /// Bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the last texts away until `count` are left.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len() {
            self.offsets.truncate(count + 1);
            self.bytes.truncate(self.offsets[count]);
        }
    }

    /// The buffer and the places in it, for what writes them to a file.
    pub fn parts(&self) -> (&[usize], &[u8]) {
        (&self.offsets, &self.bytes)
    }

    /// From what [`Texts::parts`] gave; none if the places do not fit the buffer.
    pub fn from_parts(offsets: Vec<usize>, bytes: Vec<u8>) -> Option<Self> {
        let fits = offsets.first() == Some(&0)
            && offsets.last() == Some(&bytes.len())
            && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        fits.then_some(Self { offsets, bytes })
    }
}
