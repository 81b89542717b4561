//! The ring's test cases (62–70 and 72 of the ownership list) against models that look at every point.
//!
//! A ring of 4 or 6 bits is laid on the real one by blocks: small point `p` stands for the block that ends at
//! `(p + 1) · 2^(32 − bits) − 1 + turn`. Ranges between block ends are whole blocks and stay so under every operation, so
//! what is tried exhaustively is the very code that runs on 32 bits; `turn` moves the seam across the blocks.

mod algebra;
mod owners;

use model::id::Point;

use super::*;

/// A small ring laid on the real one.
#[derive(Clone, Copy, Debug)]
struct Small {
    bits: u32,
    turn: u32,
}

impl Small {
    fn points(self) -> u32 {
        1 << self.bits
    }

    /// The last point of a block.
    fn at(self, small: u32) -> Point {
        let end = ((u64::from(small) + 1) << (32 - self.bits)) - 1;
        Point((end as u32).wrapping_add(self.turn))
    }

    /// Which block ends at this point; it must be the end of one.
    fn small(self, end: Point) -> u32 {
        let (small, rest) = {
            let turned = u64::from(end.0.wrapping_sub(self.turn)) + 1;
            ((turned >> (32 - self.bits)) as u32, turned & ((1 << (32 - self.bits)) - 1))
        };
        assert_eq!(rest, 0, "{end} ends no block of {self:?}");
        small - 1
    }

    /// Empty, full, and all arcs.
    fn ranges(self) -> Vec<Range> {
        let arcs = (0..self.points()).flat_map(move |start| {
            let ends = (0..self.points()).filter(move |end| *end != start);
            ends.map(move |end| Range::between(self.at(start), self.at(end)))
        });
        [Range::Empty, Range::Full].into_iter().chain(arcs).collect()
    }

    /// The blocks of a range, one bit each, by looking at the first and the last point of every block.
    fn scan(self, range: Range) -> u64 {
        let block = |small: u32| {
            let last = self.at(small);
            let first = Point(last.0.wrapping_sub((1 << (32 - self.bits)) - 1));
            let inside = range.contains(last);
            assert_eq!(inside, range.contains(first), "{range} cuts a block");
            inside
        };
        (0..self.points()).filter(|small| block(*small)).fold(0, |mask, small| mask | 1 << small)
    }
}

fn turns() -> [u32; 3] {
    [0, 1, 0x9e37_79b9]
}
