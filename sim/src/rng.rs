//! Chance from a seed: xoshiro256** seeded by splitmix64.
//!
//! Streams are forked by label, and a fork depends on the label and the seed only, never on what was drawn before: so
//! one part of the world can draw more without changing what another part sees. Not for cryptography.

use core::ops::RangeInclusive;

/// A stream of chance.
#[derive(Debug, Clone)]
pub struct Rng {
    seed: u64,
    words: [u64; 4],
}

impl Rng {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { seed, words: [0; 4].map(|_: u64| split_mix(&mut state)) }
    }

    /// The stream of `label` and `index` below this one: the same for equal arguments, whatever was drawn so far.
    #[must_use]
    pub fn fork(&self, label: &str, index: u64) -> Self {
        let mut state = hash_bytes(self.seed, label.as_bytes()) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self::new(split_mix(&mut state))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.words;
        let (c2, d2) = (c ^ a, d ^ b);
        self.words = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        b.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// A value below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no value below 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A value of `range`, both ends included.
    ///
    /// # Panics
    /// If `range` is empty.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        assert!(low <= high, "an empty range has no value");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.next_u64(),
        }
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// A value of `range` whose magnitude, not the value itself, is uniform: small values are as likely as great ones.
    ///
    /// # Panics
    /// If `range` is empty.
    pub fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        let bits = self.within(u64::from(bits_of(low))..=u64::from(bits_of(high)));
        let top = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let bottom = if bits == 0 { 0 } else { 1 << (bits - 1) };
        self.within(bottom.max(low)..=top.min(high).max(low))
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

fn bits_of(value: u64) -> u32 {
    64 - value.leading_zeros()
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Spreads every bit of `word` over the whole result.
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A hash of `bytes` that continues `hash`.
pub(crate) fn hash_bytes(hash: u64, bytes: &[u8]) -> u64 {
    let mut hash = hash ^ (bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_first_words() {
        // The reference words of splitmix64 from seed 1234567.
        let mut state = 1_234_567;
        assert_eq!(split_mix(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(split_mix(&mut state), 3_203_168_211_198_807_973);
        // The reference words of xoshiro256** from the state 1, 2, 3, 4.
        let mut rng = Rng { seed: 0, words: [1, 2, 3, 4] };
        assert_eq!([0; 4].map(|_: u64| rng.next_u64()), [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn forks_ignore_what_was_drawn() {
        let mut drawn = Rng::new(7);
        let before = drawn.fork("net", 1).next_u64();
        drawn.next_u64();
        assert_eq!(drawn.fork("net", 1).next_u64(), before);
        assert_ne!(drawn.fork("net", 2).next_u64(), before);
        assert_ne!(drawn.fork("nets", 1).next_u64(), before);
    }

    #[test]
    fn draws_stay_within_bounds() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 5];
        for _ in 0..1_000 {
            seen[rng.below(5) as usize] = true;
            assert!((3..=9).contains(&rng.within(3..=9)));
            assert!((3..=70_000).contains(&rng.magnitude(3..=70_000)));
            assert!((0..=1).contains(&rng.magnitude(0..=1)));
            assert!(!rng.chance(0) && rng.chance(1_000_000));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.magnitude(5..=5), 5);
        assert_ne!(rng.within(0..=u64::MAX), rng.magnitude(1..=u64::MAX));
    }
}
