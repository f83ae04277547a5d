//! Which turn of ownership, which version of a protocol, which features.

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

/// A version of a protocol between servers. Each side offers a range and the greatest common one is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ProtocolVersion(pub u16);

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of up to 64 optional abilities, one bit each. Which bit means what is the matter of the protocol that
/// carries the set; a bit that a receiver does not know is an ability that it does not have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u64);

impl Features {
    /// No ability at all.
    pub const NONE: Self = Self(0);

    /// The set whose members are the bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The one feature of bit `index` (0 to 63).
    ///
    /// # Panics
    /// With an index above 63: features are constants, so this stops a build's first test.
    #[must_use]
    pub const fn bit(index: u32) -> Self {
        assert!(index < u64::BITS, "a feature is one of 64 bits");
        Self(1 << index)
    }

    /// One bit a feature, as written.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// What either set has.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both sets have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether every member of `other` is a member of `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#b})", self.0)
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

    #[test]
    fn features_are_a_set() {
        let (a, b) = (Features::bit(0), Features::bit(63));
        let both = a.union(b);
        assert_eq!(both.bits(), 0x8000_0000_0000_0001);
        assert!(both.contains(a) && both.contains(b) && both.contains(Features::NONE));
        assert!(!a.contains(both));
        assert_eq!(both.intersection(b), b);
        assert_eq!(a.intersection(b), Features::NONE);
        assert_eq!(Features::from_bits(both.bits()), both);
    }
}
