//! Hidden row ids: the keys of tables without a primary key.
//!
//! An id is 16 bytes: the gateway's clock in microseconds, a count, and a random number, all big-endian. So rows of one
//! session lie in the order in which they came, and two gateways do not meet.

use crate::context::Context;

/// Makes row ids for one statement.
#[derive(Debug)]
pub struct RowIds {
    micros: u64,
    salt: u32,
    count: u32,
}

impl RowIds {
    /// Ids from now on.
    pub fn new(context: &mut Context) -> Self {
        let micros = context.clock.wall().unix_micros();
        Self { micros: u64::try_from(micros).unwrap_or(0), salt: (context.random)() as u32, count: 0 }
    }

    /// Makes the next id.
    pub fn make(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.micros.to_be_bytes());
        id[8..12].copy_from_slice(&self.count.to_be_bytes());
        id[12..].copy_from_slice(&self.salt.to_be_bytes());
        match self.count.checked_add(1) {
            Some(next) => self.count = next,
            None => (self.count, self.micros) = (0, self.micros + 1),
        }
        id
    }
}
