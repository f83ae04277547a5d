//! A small sorted set: member and score in turn, in order.
//!
//! A score that is an integer is kept as one; another as `~` and its eight bytes, little-endian, which is never the form
//! of an integer. The sign of a zero is lost, as it is in Valkey's form.

use std::ops::Range;

use super::Entry;
use crate::memory::packed::{Digits, Packed, Piece, Pieces, Place};

/// What stands before the bytes of a score that is no integer.
const MARK: u8 = b'~';
/// The greatest magnitude of a score that is kept as an integer: 2^53, up to which each has a number of its own.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The entries at some ranks, from either end.
pub(super) fn range(packed: &Packed, ranks: Range<usize>) -> Pairs<'_> {
    let len = packed.len() / 2;
    let end = ranks.end.min(len);
    let start = ranks.start.min(end);
    let pieces = packed.iter_between(place(packed, start), place(packed, end));
    Pairs { pieces, left: end - start }
}

/// Where the member is that has a rank, or the end.
fn place(packed: &Packed, rank: usize) -> Place {
    packed.nth(2 * rank).unwrap_or(packed.end())
}

/// Where a member is, and its score.
pub(super) fn find(packed: &Packed, member: &[u8]) -> Option<(Place, f64)> {
    let place = packed.find(member, packed.first()?, 2)?;
    Some((place, score_of(packed.get(packed.after(place)))))
}

/// Adds a member that is not there.
pub(super) fn insert(packed: &mut Packed, member: &[u8], score: f64) {
    let rank = range(packed, 0..usize::MAX).take_while(|entry| entry.order(score, member).is_lt()).count();
    let place = place(packed, rank);
    with_score(score, |score| packed.insert(place, score));
    packed.insert(place, member);
}

/// Adds a member that comes after all others.
pub(super) fn push_back(packed: &mut Packed, member: Piece<'_>, score: f64) {
    packed.push_back(member);
    with_score(score, |score| packed.push_back(score));
}

pub(super) fn remove_range(packed: &mut Packed, ranks: Range<usize>) {
    packed.remove_many(place(packed, ranks.start), 2 * ranks.len().min(packed.len()));
}

/// Gives the piece of a score.
fn with_score<T>(score: f64, then: impl FnOnce(Piece<'_>) -> T) -> T {
    if score.fract() == 0.0 && score.abs() <= INTEGER_MAX {
        // Exact: an integer within 53 bits.
        return then(Piece::from(score as i64));
    }
    let mut bytes = [MARK; 9];
    bytes[1..].copy_from_slice(&score.to_le_bytes());
    then(Piece::from(&bytes))
}

fn score_of(piece: Piece<'_>) -> f64 {
    if let Some(integer) = piece.integer() {
        // Exact: it was made from a score within 53 bits.
        return integer as f64;
    }
    let mut digits = Digits::default();
    let bytes = piece.bytes(&mut digits).split_first().and_then(|(_, bytes)| <[u8; 8]>::try_from(bytes).ok());
    f64::from_le_bytes(bytes.expect("a score is an integer or has eight bytes"))
}

/// Members with their scores.
#[derive(Debug, Clone)]
pub(super) struct Pairs<'a> {
    pieces: Pieces<'a>,
    left: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let member = self.pieces.next()?.into();
        let score = score_of(self.pieces.next()?);
        self.left -= 1;
        Some(Entry { member, score })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let score = score_of(self.pieces.next_back()?);
        let member = self.pieces.next_back()?.into();
        self.left -= 1;
        Some(Entry { member, score })
    }
}
