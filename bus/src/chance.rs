//! Chance from a seed: which member, how long. Same seed, same choices.

use core::time::Duration;

/// A stream of choices (SplitMix64, Steele and others 2014). Not for secrets.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next_u64()) * u128::try_from(bound).unwrap_or(0);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// A span from zero to `longest`.
    pub(crate) fn span(&mut self, longest: Duration) -> Duration {
        let nanos = usize::try_from(longest.as_nanos()).unwrap_or(usize::MAX - 1);
        Duration::from_nanos(u64::try_from(self.below(nanos + 1)).unwrap_or(u64::MAX))
    }

    /// Puts `items` into any order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn same_seed_same_choices_within_bounds() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..100).map(|_| chance.below(7)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!((0..7).all(|value| draw(1).contains(&value)) && draw(1).iter().all(|value| *value < 7));
        assert_eq!(Chance::new(1).below(0), 0);
        assert!(Chance::new(3).span(Duration::from_millis(5)) <= Duration::from_millis(5));
    }
}
