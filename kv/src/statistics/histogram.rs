//! How durations are distributed, in bounded memory: 16 buckets for each power of two of nanoseconds, so that a value is known
//! to one sixteenth.

/// Buckets for each power of two, as a power of two itself.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;
/// Durations from 2^40 ns on, which is 18 minutes, count as that.
const BITS_MAX: u32 = 40;
const BUCKETS: usize = (BITS_MAX - FINE_BITS + 1) as usize * FINE;

/// Counts of durations.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

/// The bucket of a duration.
fn bucket(nanos: u64) -> usize {
    let value = nanos.min((1 << BITS_MAX) - 1);
    let extra = (u64::BITS - value.leading_zeros()).saturating_sub(FINE_BITS + 1);
    let fine = usize::try_from(value >> extra).expect("five bits are left");
    extra as usize * FINE + fine
}

/// The greatest duration of a bucket.
fn last_of(bucket: usize) -> u64 {
    let extra = (bucket / FINE).saturating_sub(1);
    let fine = (bucket - extra * FINE) as u64;
    ((fine + 1) << extra) - 1
}

impl Histogram {
    /// One more.
    pub(crate) fn add(&mut self, nanos: u64) {
        let count = &mut self.counts[bucket(nanos)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// All of another.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        self.total += other.total;
    }

    /// The duration, in nanoseconds, that so many percent do not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "counts that matter here are far below 2^53")]
        let wanted = (self.total as f64 * percent / 100.0).max(1.0);
        let mut seen = 0_u64;
        for (number, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            if seen as f64 >= wanted {
                return last_of(number);
            }
        }
        0
    }

    /// For each power of two from 1,024 ns on up to which there are more than up to the one before: microseconds, and how many.
    pub(crate) fn powers(&self) -> Vec<(u64, u64)> {
        let (mut powers, mut before) = (Vec::new(), 0);
        for bits in 10..=BITS_MAX {
            let bound = 1_u64 << bits;
            let seen = self.counts[..=bucket(bound - 1)].iter().map(|count| u64::from(*count)).sum();
            if seen > before {
                // A bound stands for all that can hardly be told from it.
                powers.push(((bound + bound / 128) / 1_000, seen));
                before = seen;
            }
        }
        powers
    }

    /// How many took no longer than this, to one sixteenth of it.
    pub(crate) fn within(&self, nanos: u64) -> u64 {
        self.counts[..=bucket(nanos)].iter().map(|count| u64::from(*count)).sum()
    }

    /// How many there are.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut before = None;
        for nanos in (0..5_000).chain((13..40).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let number = bucket(nanos);
            assert!(before.is_none_or(|before| before <= number), "{nanos}");
            assert!(last_of(number) >= nanos && last_of(number) <= nanos + nanos / 16, "{nanos} {}", last_of(number));
            assert!(number == 0 || last_of(number - 1) < nanos, "{nanos}");
            before = Some(number);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_and_powers() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|micros| histogram.add(micros * 1_000));
        for (percent, micros) in [(0.0, 1), (50.0, 50), (99.0, 99), (100.0, 100)] {
            let found = histogram.percentile(percent);
            assert!((micros * 1_000..micros * 1_070).contains(&found), "{percent}: {found}");
        }
        assert_eq!(histogram.powers(), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (33, 32), (66, 65), (132, 100)]);
        assert_eq!([500, 1_000_000].map(|nanos| histogram.within(nanos)), [0, 100]);
        assert!((50..=53).contains(&histogram.within(50_000)));
        let mut sum = histogram.clone();
        sum.merge(&histogram);
        assert_eq!((sum.total(), sum.powers()[7]), (200, (132, 200)));
        assert_eq!(Histogram::default().percentile(50.0), 0);
    }
}
