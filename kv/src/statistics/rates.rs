//! How much happens a second, over the last 16 looks.

use super::Totals;

const SAMPLES: usize = 16;

/// What happened a second, in each of the last looks.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Of the last look: when, Unix microseconds, and the sums then.
    last: Option<(i64, Totals)>,
    samples: [[u64; 3]; SAMPLES],
    next: usize,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    Commands,
    BytesIn,
    BytesOut,
}

impl Rates {
    /// Looks at the sums.
    pub(super) fn sample(&mut self, totals: Totals, now_us: i64) {
        if let Some((then_us, before)) = self.last {
            let span_us = u64::try_from(now_us - then_us).unwrap_or(0).max(1);
            let per_second = |now: u64, then: u64| now.saturating_sub(then).saturating_mul(1_000_000) / span_us;
            self.samples[self.next % SAMPLES] = [
                per_second(totals.commands, before.commands),
                per_second(totals.bytes_in, before.bytes_in),
                per_second(totals.bytes_out, before.bytes_out),
            ];
            self.next += 1;
        }
        self.last = Some((now_us, totals));
    }

    /// The mean over the last looks.
    pub(crate) fn get(&self, rate: Rate) -> u64 {
        self.samples.iter().map(|sample| sample[rate as usize]).sum::<u64>() / SAMPLES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_over_the_last_looks() {
        let mut rates = Rates::default();
        for look in 0..=16 {
            rates.sample(
                Totals { commands: look * 100, bytes_in: look, ..Totals::default() },
                look.cast_signed() * 100_000,
            );
        }
        assert_eq!([Rate::Commands, Rate::BytesIn, Rate::BytesOut].map(|rate| rates.get(rate)), [1_000, 10, 0]);
        (17..33).for_each(|look| rates.sample(Totals { commands: 1_600, ..Totals::default() }, look * 100_000));
        assert_eq!(rates.get(Rate::Commands), 0);
    }
}
