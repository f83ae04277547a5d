//! Whose turn it is.

use core::fmt;

/// One turn of ownership (of a slot, an extent, a placement group). The greater epoch wins; two owners never share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first owner.
    pub const ZERO: Self = Self(0);

    /// The turn after this one.
    ///
    /// # Panics
    /// After 2^64 - 1 turns, which no cluster lives to see: a value that large is damage, not age.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("an epoch counts elections, of which there are fewer than 2^64"))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_grow() {
        assert_eq!(Epoch::ZERO.next(), Epoch(1));
        assert!(Epoch(u64::MAX - 1).next() > Epoch(u64::MAX - 1));
    }

    #[test]
    #[should_panic(expected = "fewer than 2^64")]
    fn the_last_epoch_has_no_next() {
        let _ = Epoch(u64::MAX).next();
    }
}
