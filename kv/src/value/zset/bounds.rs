//! Ranges of scores and of members, as commands give them.

use std::ops::Range;

use crate::value::score::parse_bound;

/// One end of a range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreBound {
    /// The score; never not a number.
    pub score: f64,
    /// Whether the score itself is outside.
    pub is_open: bool,
}

impl ScoreBound {
    /// Reads `1.5`, or `(1.5` for an open bound.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (is_open, score) = match bytes {
            [b'(', rest @ ..] => (true, rest),
            _ => (false, bytes),
        };
        Some(Self { score: parse_bound(score)?, is_open })
    }
}

/// A range of scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreRange {
    /// The lower end.
    pub min: ScoreBound,
    /// The upper end.
    pub max: ScoreBound,
}

impl ScoreRange {
    /// Reads both ends.
    #[must_use]
    pub fn parse(min: &[u8], max: &[u8]) -> Option<Self> {
        Some(Self { min: ScoreBound::parse(min)?, max: ScoreBound::parse(max)? })
    }

    pub(super) fn is_above_min(&self, score: f64) -> bool {
        if self.min.is_open { score > self.min.score } else { score >= self.min.score }
    }

    pub(super) fn is_below_max(&self, score: f64) -> bool {
        if self.max.is_open { score < self.max.score } else { score <= self.max.score }
    }
}

/// One end of a range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Before all members.
    Least,
    /// After all members.
    Greatest,
    /// This member, which is within.
    Closed(&'a [u8]),
    /// This member, which is outside.
    Open(&'a [u8]),
}

impl<'a> LexBound<'a> {
    /// Reads `-`, `+`, `[member` or `(member`.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            b"-" => Some(Self::Least),
            b"+" => Some(Self::Greatest),
            [b'[', member @ ..] => Some(Self::Closed(member)),
            [b'(', member @ ..] => Some(Self::Open(member)),
            _ => None,
        }
    }
}

/// A range of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lower end.
    pub min: LexBound<'a>,
    /// The upper end.
    pub max: LexBound<'a>,
}

impl<'a> LexRange<'a> {
    /// Reads both ends.
    #[must_use]
    pub fn parse(min: &'a [u8], max: &'a [u8]) -> Option<Self> {
        Some(Self { min: LexBound::parse(min)?, max: LexBound::parse(max)? })
    }

    pub(super) fn is_above_min(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::Least => true,
            LexBound::Greatest => false,
            LexBound::Closed(min) => member >= min,
            LexBound::Open(min) => member > min,
        }
    }

    pub(super) fn is_below_max(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::Least => false,
            LexBound::Greatest => true,
            LexBound::Closed(max) => member <= max,
            LexBound::Open(max) => member < max,
        }
    }
}

/// The ranks that are left of a range by `LIMIT offset count`, counted from the end at which reading begins. A negative
/// offset leaves none, a negative count leaves all behind the offset.
#[must_use]
pub fn window(ranks: Range<usize>, offset: i64, count: i64, is_reversed: bool) -> Range<usize> {
    let len = ranks.len();
    let skipped = usize::try_from(offset).map_or(len, |offset| offset.min(len));
    let kept = usize::try_from(count).map_or(len, |count| count).min(len - skipped);
    if is_reversed {
        let end = ranks.end - skipped;
        end - kept..end
    } else {
        let start = ranks.start + skipped;
        start..start + kept
    }
}
