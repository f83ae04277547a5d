//! Source of choices for the generator: a seed, or bytes that a fuzzer mutates.

use crate::rng::Rng;

/// Where choices come from.
#[derive(Debug)]
pub(crate) enum Choices<'a> {
    /// Uniform draws from a seed.
    Seed(Rng),
    /// Each choice takes one or two bytes; every choice behind the end is the first.
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        match self {
            Self::Seed(rng) => rng.below(bound as u64) as usize,
            Self::Bytes(bytes) => {
                let width = if bound <= 1 << 8 { 1 } else { 2 };
                let (head, rest) = bytes.split_at(bytes.len().min(width));
                *bytes = rest;
                head.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) % bound
            }
        }
    }

    /// True once in `of` times; never behind the end of bytes.
    pub(crate) fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// One of these.
    pub(crate) fn pick<'c, T: ?Sized>(&mut self, of: &[&'c T]) -> &'c T {
        of[self.below(of.len())]
    }

    /// Whether all bytes were used.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes([]))
    }
}
