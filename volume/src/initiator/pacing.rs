//! Growing pauses with chance from a seed.

use core::time::Duration;

use super::config::Pacing;

/// Draws pauses. Same seed, same pauses.
#[derive(Debug)]
pub(super) struct Pauses {
    pacing: Pacing,
    /// State of a SplitMix64 generator (Steele and others, 2014).
    state: u64,
}

impl Pauses {
    pub(super) const fn new(pacing: Pacing, seed: u64) -> Self {
        Self { pacing, state: seed }
    }

    /// Whether a subrequest that failed so often may follow a newer configuration at once.
    pub(super) const fn is_prompt(&self, failures: u32) -> bool {
        failures <= self.pacing.prompt_max
    }

    /// The pause after the `failures`-th failure, from 1: between half and all of what it has grown to, and no less than
    /// the server asked for.
    pub(super) fn draw(&mut self, failures: u32, asked: Duration) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let grown = self.pacing.pause_min.saturating_mul(1 << doublings).min(self.pacing.pause_max);
        let half = grown / 2;
        // A server that asks for more than the longest pause does not know when it will be free.
        let asked = asked.min(self.pacing.pause_max);
        (half + self.below(grown - half)).max(asked)
    }

    fn below(&mut self, span: Duration) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let chance = mixed ^ (mixed >> 31);
        let nanos = (u128::from(chance) * (span.as_nanos() + 1)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).expect("below the longest pause"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let mut pauses = Pauses::new(Pacing::default(), 1);
        let Pacing { pause_min, pause_max, .. } = Pacing::default();
        for _ in 0..100 {
            let first = pauses.draw(1, Duration::ZERO);
            assert!(first >= pause_min / 2 && first <= pause_min);
            let late = pauses.draw(1_000, Duration::ZERO);
            assert!(late >= pause_max / 2 && late <= pause_max);
        }
        assert_ne!(pauses.draw(5, Duration::ZERO), pauses.draw(5, Duration::ZERO));
        assert_eq!(pauses.draw(1, Duration::from_millis(100)), Duration::from_millis(100));
        assert_eq!(pauses.draw(1, Duration::from_secs(100)), pause_max);
    }
}
