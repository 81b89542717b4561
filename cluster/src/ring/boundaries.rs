//! Boundaries: a sorted cut of the whole ring, each piece with its holder. What maps and topologies look things up in.
//!
//! Invariants:
//! - There is at least one piece, ends ascend strictly, and a piece runs from the end before it up to its own, the first
//!   from the last: so each point lies in exactly one piece, and the sizes add up to 2^32.
//! - A look-up is one binary search. A visit takes O(log P + K) for K pieces met, allocates nothing and meets each once.
//!
//! Not here: who makes the boundaries (`ring::map` from ranges, `ring::topology` from hashes).

use model::id::Point;

use super::range::{POINTS, Range, clockwise};

/// A cut of the whole ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Boundaries<T> {
    pieces: Vec<(Point, T)>,
}

impl<T: Copy> Boundaries<T> {
    /// The cut whose pieces end at the given points; none if there is no point, or one twice.
    pub(super) fn by_end(pieces: impl IntoIterator<Item = (Point, T)>) -> Option<Self> {
        let mut pieces: Vec<_> = pieces.into_iter().collect();
        pieces.sort_by_key(|(end, _)| *end);
        let ascends = pieces.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (ascends && !pieces.is_empty()).then_some(Self { pieces })
    }

    /// The place of a point's piece.
    pub(super) fn place_of(&self, point: Point) -> usize {
        place_of(self.pieces.len(), |place| self.pieces[place].0, point)
    }

    /// What holds the piece at a place, and the piece.
    pub(super) fn get(&self, place: usize) -> (T, Range) {
        let before = if place == 0 { self.pieces.len() - 1 } else { place - 1 };
        let (end, holder) = self.pieces[place];
        (holder, Range::between(self.pieces[before].0, end))
    }

    /// All pieces, by ascending end.
    pub(super) fn iter(&self) -> impl Iterator<Item = (T, Range)> {
        (0..self.pieces.len()).map(|place| self.get(place))
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Calls `visit` once for each piece that has a point of `range`, clockwise from the range's start.
    pub(super) fn visit(&self, range: Range, mut visit: impl FnMut(T, Range)) {
        walk::<Sound>(
            self.pieces.len(),
            |place| self.pieces[place].0,
            range,
            |place| {
                let (holder, piece) = self.get(place);
                visit(holder, piece);
            },
        );
    }
}

/// The two decisions of a walk. There is one right way; the wrong ones that look right are in the tests, which must be
/// able to run them through the same walk.
pub(super) trait Rules {
    /// The point whose piece is met first.
    fn first(start: Point) -> Point;

    /// Whether the piece that ends at `end` is the last that the range meets; `before` tells where the one before it ends.
    fn is_last(range: Range, start: Point, end: Point, before: impl FnOnce() -> Point) -> bool;
}

pub(super) struct Sound;

impl Rules for Sound {
    /// The first point of the range, not its exclusive start.
    fn first(start: Point) -> Point {
        Point(start.0.wrapping_add(1))
    }

    /// By the way walked: that a piece holds the range's last point does not mean that all before it were met, because the
    /// range may end in the piece in which it began.
    fn is_last(range: Range, start: Point, end: Point, _before: impl FnOnce() -> Point) -> bool {
        let walked = clockwise(start, end);
        walked == 0 || walked >= range.size()
    }
}

/// Meets the places of all pieces that have a point of `range`, given the ascending ends of `len` pieces.
pub(super) fn walk<R: Rules>(
    len: usize,
    mut end: impl FnMut(usize) -> Point,
    range: Range,
    mut meet: impl FnMut(usize),
) {
    let start = match range {
        Range::Empty => return,
        Range::Full => Point((POINTS - 1) as u32),
        Range::Arc(arc) => arc.start(),
    };
    if len == 0 {
        return;
    }
    let first = place_of(len, &mut end, R::first(start));
    for step in 0..len {
        let place = if first + step < len { first + step } else { first + step - len };
        meet(place);
        let own = end(place);
        if R::is_last(range, start, own, || end(if place == 0 { len - 1 } else { place - 1 })) {
            return;
        }
    }
}

/// The first place whose end is not before the point; the first of all if the point lies after the last end.
fn place_of(len: usize, mut end: impl FnMut(usize) -> Point, point: Point) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if end(middle) < point {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == len { 0 } else { low }
}
