//! A member's own clock: another origin and another rate than the world's.

use ashlar_wire::time::Instant;

/// How far a clock's rate may be from the world's: 0.99 to 1.01.
pub const RATE_PPM_MAX: i32 = 10_000;

/// The longest life of a member by the world's clock: ten days, within which no product below overflows.
const SPAN_NS_MAX: u64 = 10 * 86_400 * 1_000_000_000;

/// Maps world time to a member's time and back. Rates are a few per cent at most, spans less than years.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberClock {
    began_ns: u64,
    origin_ns: u64,
    ppm: i32,
}

impl MemberClock {
    /// At world time `began_ns` this clock shows `origin_ns`; it gains `ppm` nanoseconds a millisecond.
    pub(crate) fn new(began_ns: u64, origin_ns: u64, ppm: i32) -> Self {
        assert!(ppm.abs() <= RATE_PPM_MAX, "clocks run at nearly the same rate");
        Self { began_ns, origin_ns, ppm }
    }

    /// What the clock shows at a world time.
    pub(crate) fn local(&self, world_ns: u64) -> Instant {
        Instant::from_nanos(self.origin_ns + self.stretch(world_ns - self.began_ns))
    }

    /// The first world time at which the clock shows `local` or more; `None` if it never does.
    pub(crate) fn world_ns(&self, local: Instant) -> Option<u64> {
        if local == Instant::NEVER {
            return None;
        }
        let span = local.as_nanos().saturating_sub(self.origin_ns);
        if self.ppm == 0 {
            return Some(self.began_ns + span);
        }
        // Each step leaves a hundredth of the error or less; a division of 128 bits would take longer than all of them.
        let mut world = span;
        loop {
            let shown = self.stretch(world);
            match shown.abs_diff(span) {
                0 | 1 => break,
                _ => world = (world + span) - shown,
            }
        }
        while world > 0 && self.stretch(world - 1) >= span {
            world -= 1;
        }
        while self.stretch(world) < span {
            world += 1;
        }
        Some(self.began_ns + world)
    }

    fn stretch(&self, span_ns: u64) -> u64 {
        assert!(span_ns <= SPAN_NS_MAX, "a world lasts days");
        span_ns.saturating_add_signed(span_ns as i64 * i64::from(self.ppm) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn there_and_back() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let ppm = rng.within(0..=20_000) as i32 - 10_000;
            let clock = MemberClock::new(rng.below(1 << 40), rng.below(1 << 40), ppm);
            let local = Instant::from_nanos(clock.origin_ns + rng.magnitude(0..=1 << 47));
            let world_ns = clock.world_ns(local).expect("it is not never");
            assert!(clock.local(world_ns) >= local, "{clock:?}");
            assert!(world_ns == clock.began_ns || clock.local(world_ns - 1) < local, "{clock:?}");
        }
        assert_eq!(MemberClock::new(0, 0, 5).world_ns(Instant::NEVER), None);
    }

    #[test]
    fn a_fast_clock_gains() {
        let second = 1_000_000_000;
        let shown = |ppm: i32| MemberClock::new(5, 7, ppm).local(5 + second).as_nanos();
        assert_eq!([0, 10_000, -10_000].map(shown), [7 + second, 7 + second / 100 * 101, 7 + second / 100 * 99]);
    }
}
