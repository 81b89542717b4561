//! A hash table from packed keys to dense numbers 0, 1, 2, … in the order in which keys were first seen.
//!
//! One column stored as integers is looked up by the integer itself; everything else by its packed bytes.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Keys;
use crate::batch::Column;

/// A number of a key, or none.
pub type Found = u32;

/// Keys with numbers.
pub struct KeyTable {
    builder: DefaultHashBuilder,
    repr: Repr,
}

enum Repr {
    /// One integer column; the number of null, if it was seen, is kept apart.
    Int { table: HashTable<u32>, keys: Vec<i64>, null: Option<u32> },
    /// Packed keys, with their hashes so that growing reads no key.
    Bytes { table: HashTable<u32>, hashes: Vec<u64>, keys: Keys },
}

/// Marks a row whose key was not found.
pub(crate) const NOT_FOUND: Found = u32::MAX;

impl KeyTable {
    /// A table for keys of these columns.
    pub fn new(columns: &[model::Type]) -> Self {
        let int =
            matches!(columns, [ty] if matches!(crate::batch::Data::new(*ty, 0), crate::batch::Data::Int(_)));
        let repr = if int {
            Repr::Int { table: HashTable::new(), keys: Vec::new(), null: None }
        } else {
            Repr::Bytes { table: HashTable::new(), hashes: Vec::new(), keys: Keys::default() }
        };
        Self { builder: DefaultHashBuilder::default(), repr }
    }

    /// How many different keys there are.
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Int { keys, .. } => keys.len(),
            Repr::Bytes { keys, .. } => keys.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, roughly.
    pub fn heap_bytes(&self) -> usize {
        match &self.repr {
            Repr::Int { table, keys, .. } => table.capacity() * 5 + keys.capacity() * 8,
            Repr::Bytes { table, hashes, keys } => {
                table.capacity() * 5 + hashes.capacity() * 8 + keys.heap_bytes()
            }
        }
    }

    /// The number of each row's key; new keys get the next numbers. With `skip_nulls` a row with a null in its key gets
    /// `NOT_FOUND`.
    pub fn insert(&mut self, columns: &[&Column], rows: usize, skip_nulls: bool, numbers: &mut Vec<Found>) {
        numbers.clear();
        numbers.reserve(rows);
        let builder = &self.builder;
        match &mut self.repr {
            Repr::Int { table, keys, null } => {
                let Some(ints) = columns[0].as_ints() else {
                    return numbers.resize(rows, NOT_FOUND);
                };
                for (row, int) in ints.iter().enumerate().take(rows) {
                    if columns[0].is_null(row) {
                        numbers.push(if skip_nulls {
                            NOT_FOUND
                        } else {
                            *null.get_or_insert_with(|| {
                                keys.push(0);
                                keys.len() as u32 - 1
                            })
                        });
                        continue;
                    }
                    let hash = builder.hash_one(*int);
                    let null = *null;
                    let entry = table.entry(
                        hash,
                        |at| keys[*at as usize] == *int && Some(*at) != null,
                        |at| builder.hash_one(keys[*at as usize]),
                    );
                    numbers.push(match entry {
                        hashbrown::hash_table::Entry::Occupied(entry) => *entry.get(),
                        hashbrown::hash_table::Entry::Vacant(entry) => {
                            let number = keys.len() as u32;
                            entry.insert(number);
                            keys.push(*int);
                            number
                        }
                    });
                }
            }
            Repr::Bytes { table, hashes, keys } => {
                let packed = Keys::of(columns, &[], rows);
                for row in 0..rows {
                    if skip_nulls && packed.has_null(row) {
                        numbers.push(NOT_FOUND);
                        continue;
                    }
                    let key = packed.get(row);
                    let hash = builder.hash_one(key);
                    let entry = table.entry(
                        hash,
                        |at| hashes[*at as usize] == hash && keys.get(*at as usize) == key,
                        |at| hashes[*at as usize],
                    );
                    numbers.push(match entry {
                        hashbrown::hash_table::Entry::Occupied(entry) => *entry.get(),
                        hashbrown::hash_table::Entry::Vacant(entry) => {
                            let number = hashes.len() as u32;
                            entry.insert(number);
                            hashes.push(hash);
                            keys.push(key);
                            number
                        }
                    });
                }
            }
        }
    }

    /// The number of each row's key, `NOT_FOUND` for keys that are not there and, with `skip_nulls`, keys with a null.
    pub fn find(&self, columns: &[&Column], rows: usize, skip_nulls: bool, numbers: &mut Vec<Found>) {
        numbers.clear();
        numbers.reserve(rows);
        match &self.repr {
            Repr::Int { table, keys, null } => {
                let Some(ints) = columns[0].as_ints() else {
                    return numbers.resize(rows, NOT_FOUND);
                };
                for (row, int) in ints.iter().enumerate().take(rows) {
                    if columns[0].is_null(row) {
                        numbers.push(if skip_nulls { NOT_FOUND } else { null.unwrap_or(NOT_FOUND) });
                        continue;
                    }
                    let found = table.find(self.builder.hash_one(*int), |at| {
                        keys[*at as usize] == *int && Some(*at) != *null
                    });
                    numbers.push(found.copied().unwrap_or(NOT_FOUND));
                }
            }
            Repr::Bytes { table, hashes, keys } => {
                let packed = Keys::of(columns, &[], rows);
                for row in 0..rows {
                    if skip_nulls && packed.has_null(row) {
                        numbers.push(NOT_FOUND);
                        continue;
                    }
                    let key = packed.get(row);
                    let hash = self.builder.hash_one(key);
                    let found =
                        table.find(hash, |at| hashes[*at as usize] == hash && keys.get(*at as usize) == key);
                    numbers.push(found.copied().unwrap_or(NOT_FOUND));
                }
            }
        }
    }

    /// A hash of each row's key that is the same for equal keys in tables with other hashers: for partitioning.
    pub fn partition_hashes(columns: &[&Column], rows: usize, seed: u64) -> Vec<u64> {
        let packed = Keys::of(columns, &[], rows);
        (0..rows).map(|row| fold_hash(packed.get(row), seed)).collect()
    }
}

/// A multiply-and-fold hash over eight bytes at a time; it only spreads rows over partitions.
fn fold_hash(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut mix = |word: u64| {
        let product = u128::from(state ^ word) * u128::from(0xa076_1d64_78bd_642f_u64);
        state = (product as u64) ^ (product >> 64) as u64;
    };
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    for chunk in chunks {
        mix(u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(u64::from_le_bytes(last));
    mix(bytes.len() as u64);
    state
}
