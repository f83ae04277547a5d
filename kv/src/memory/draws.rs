//! Numbers for tests: a seeded stream, the same in every run (SplitMix64), and how even their like should be.

use super::hash_key::{HASH_KEY_BYTES, HashKey};

/// A stream, by its seed.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// A hash of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// A hash key of this seed.
pub(crate) fn hash_key(seed: u64) -> HashKey {
    let mut draws = Draws(seed);
    let mut bytes = [0; HASH_KEY_BYTES];
    bytes.iter_mut().for_each(|byte| *byte = draws.byte());
    HashKey::new(bytes)
}

/// Panics unless counts of even chances are as even as chance would have it, but for one case in ten thousand
/// (chi-square with the approximation of Wilson and Hilferty).
pub(crate) fn assert_even(counts: &[u32]) {
    let total: u32 = counts.iter().sum();
    let due = f64::from(total) / counts.len() as f64;
    assert!(due >= 10.0, "too few draws to judge");
    let chi_square: f64 = counts.iter().map(|count| (f64::from(*count) - due).powi(2) / due).sum();
    let freedom = (counts.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let z = ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    assert!(z.abs() < 3.9, "chi-square {chi_square} of {freedom} degrees is {z} standard deviations off");
}
