//! Draws: the arithmetic under weighted rendezvous hashing, in integers only.
//!
//! A drive draws a number for each seat of each placement group: uniform, 64 bits, always the same. Read as a fraction
//! x of one, `-ln(1 - x)` is exponentially distributed, and divided by the drive's rate it is the time at which the
//! drive would arrive at that seat. The first to arrive takes it, so a drive wins in exact proportion to its rate, and
//! a drive that leaves, joins or changes its rate takes nobody else's win away from a third.
//!
//! Everything here is part of the written result of placement: a changed constant moves data in every cluster.
//!
//! Source: weighted rendezvous hashing as in Thaler and Ravishankar (1998) with logarithmic weights; the mixer is the
//! finalizer of SplitMix64 (Steele, Lea, Flood, 2014; constants by Stafford).

use ashlar_wire::checksum::{Salt, checksum};

/// Of the costs that [`exponential`] gives: 2^58 is one.
pub(crate) const COST_BITS: u32 = 58;

/// 2^64 divided by the golden ratio, odd: steps of it fill 64 bits evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Stirs 64 bits; a bijection, so two drives with different names never draw the same number for a seat.
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The `step`-th number that follows from `seed`.
#[inline]
pub(crate) const fn mix_step(seed: u64, step: u64) -> u64 {
    mix(seed.wrapping_add(GOLDEN.wrapping_mul(step.wrapping_add(1))))
}

/// 64 bits that stand for an id among all others of its `kind`: XXH3.
pub(crate) fn name(kind: &str, id: &[u8]) -> u64 {
    checksum(Salt::new(&[b"ashlar placement", kind.as_bytes()]), id).0
}

/// `-ln(1 - x / 2^64)` in units of 2^-58; at most 44.37 of them.
///
/// The relative error is below 2^-40 wherever a winner among 16,384 drives is likely to be found (x above 2^-20 of
/// one), and the absolute error is below 2^-57 everywhere: a drive's share of wins is off by less than one part in
/// 2^40, while a million draws tell shares apart to one part in 2^10.
#[inline]
pub(crate) const fn exponential(x: u64) -> u64 {
    if x == 0 {
        return 0;
    }
    // 1 - x = 2^-halvings (1 - y), y at most one half; y = step / 256 + rest, so that
    // 1 - y = (1 - step / 256) (1 - z) with z below 2^-7.
    let left = x.wrapping_neg();
    let halvings = left.leading_zeros();
    let y = (left << halvings).wrapping_neg();
    let step = y >> 56;
    let z = (y & 0x00ff_ffff_ffff_ffff) << 8;
    let z = z / (256 - step);
    let sum = halvings as u128 * LOGS[128] as u128 + LOGS[step as usize] as u128 + series(z) as u128;
    // At most 64 ln 2 + 1 in units of 2^-64, which is below 2^70; the shift leaves 64 bits.
    (sum >> (64 - COST_BITS)) as u64
}

/// `-ln(1 - z)` in units of 2^-64 for z below 2^-7: z + z^2/2 + .. + z^8/8. What is left out is below 2^-66.
#[inline]
const fn series(z: u64) -> u64 {
    let mut sum = u64::MAX / 8;
    let mut power = 7;
    while power > 1 {
        sum = u64::MAX / power + times(z, sum);
        power -= 1;
    }
    z + times(z, times(z, sum))
}

/// The product of two fractions of one, in units of 2^-64.
#[inline]
const fn times(a: u64, b: u64) -> u64 {
    ((a as u128 * b as u128) >> 64) as u64
}

/// `-ln(1 - step / 256)` in units of 2^-64; the last is ln 2.
const LOGS: [u64; 129] = {
    let mut logs = [0; 129];
    let mut step = 0;
    while step < logs.len() {
        logs[step] = log_of_step(step as u128);
        step += 1;
    }
    logs
};

/// 2 atanh(step / (512 - step)) by its series, in units of 2^-100 until the end. The ratio is at most 1/3, so 40 terms
/// are more than the units can tell.
const fn log_of_step(step: u128) -> u64 {
    let below = 512 - step;
    let mut term = (step << 100) / below;
    let (mut sum, mut odd) = (0, 1);
    while odd < 80 {
        sum += term / odd;
        term = term * step * step / (below * below);
        odd += 2;
    }
    (sum >> 35) as u64
}

/// A drive's number for a seat, and the rate at which it arrives there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// [`exponential`] of the drawn number.
    cost: u64,
    /// Above 0.
    rate: u64,
}

impl Arrival {
    /// Later than every drive.
    pub(crate) const NEVER: Self = Self { cost: u64::MAX, rate: 1 };

    /// The arrival of a drive that drew `x`.
    #[inline]
    pub(crate) const fn new(x: u64, rate: u64) -> Self {
        Self { cost: exponential(x), rate }
    }

    /// Whether this is before `other`: `cost / rate` compared without rounding.
    #[inline]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        (self.cost as u128) * (other.rate as u128) < (other.cost as u128) * (self.rate as u128)
    }

    /// What a drive must draw to be before this one, roughly.
    #[inline]
    pub(crate) const fn limit(self) -> Limit {
        let time = ((self.cost as u128) << TIME_BITS) / self.rate as u128 + 1;
        Limit { time: if time > u64::MAX as u128 { u64::MAX } else { time as u64 } }
    }
}

/// Of the times in [`Limit`]: 2^60 is one.
const TIME_BITS: u32 = 60;

/// A quick look at a draw that spares nearly every drive its logarithm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// A time before which nobody need be looked at, rounded up; the greatest means any time.
    time: u64,
}

impl Limit {
    /// Whether a drive that drew `x` may be early enough. Never says no wrongly, because `-ln(1 - x)` is at least x.
    #[inline]
    pub(crate) const fn admits(self, x: u64, rate: u64) -> bool {
        let cost_least = x >> (64 - COST_BITS);
        cost_least as u128 <= (self.time as u128 * rate as u128) >> TIME_BITS || self.time == u64::MAX
    }
}

#[cfg(test)]
mod tests;
