//! When a key was used, in 24 bits: for eviction, and for `OBJECT IDLETIME` and `FREQ`.
//!
//! Under a policy that evicts what was not used for longest, the bits are the seconds of a clock that turns around after
//! 194 days. Under one that evicts what is used least often, they are 16 bits of minutes and an 8-bit logarithmic counter
//! that chance lets grow and time lets shrink (Morris, 1978, as in Redis 4).

/// Which keys go when memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    /// None: writes that need memory are refused.
    #[default]
    NoEviction,
    AllLru,
    AllLfu,
    AllRandom,
    VolatileLru,
    VolatileLfu,
    VolatileRandom,
    VolatileTtl,
}

impl Policy {
    const ALL: [(Self, &'static str); 8] = [
        (Self::VolatileLru, "volatile-lru"),
        (Self::VolatileLfu, "volatile-lfu"),
        (Self::VolatileRandom, "volatile-random"),
        (Self::VolatileTtl, "volatile-ttl"),
        (Self::AllLru, "allkeys-lru"),
        (Self::AllLfu, "allkeys-lfu"),
        (Self::AllRandom, "allkeys-random"),
        (Self::NoEviction, "noeviction"),
    ];

    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(policy, _)| *policy == self).map_or("noeviction", |(_, name)| name)
    }

    /// The policy of this name.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.as_bytes().eq_ignore_ascii_case(name)).map(|(policy, _)| *policy)
    }

    /// Whether it takes only keys that expire.
    pub(crate) fn takes_expiring_only(self) -> bool {
        matches!(self, Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl)
    }

    /// Whether it goes by when or how often keys were used, so that values cannot be shared between keys.
    pub(crate) fn goes_by_use(self) -> bool {
        matches!(self, Self::AllLru | Self::VolatileLru) || self.counts_use()
    }

    /// Whether it counts how often keys are used.
    pub(crate) fn counts_use(self) -> bool {
        matches!(self, Self::AllLfu | Self::VolatileLfu)
    }
}

/// Bits of the clock.
const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
/// What a new key's counter begins with, so that it is not the first to go.
const COUNT_FIRST: u32 = 5;
const COUNT_MAX: u32 = 255;
/// The greater, the slower counters grow (`lfu-log-factor`).
const GROWTH_DEFAULT: u32 = 10;
/// Minutes after which a counter loses one (`lfu-decay-time`).
const DECAY_MINUTES_DEFAULT: u32 = 1;

/// How uses are noted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccessClock {
    pub(crate) counts_use: bool,
    pub(crate) growth: u32,
    pub(crate) decay_minutes: u32,
    /// Unix time in seconds.
    pub(crate) now_s: i64,
    /// Uses are not noted at all.
    pub(crate) is_kept: bool,
}

impl AccessClock {
    /// The usual settings.
    pub(crate) fn new(policy: Policy, now_ms: i64) -> Self {
        let (growth, decay_minutes) = (GROWTH_DEFAULT, DECAY_MINUTES_DEFAULT);
        Self { counts_use: policy.counts_use(), growth, decay_minutes, now_s: now_ms.div_euclid(1_000), is_kept: false }
    }

    /// For a key that is made now.
    pub(crate) fn first(self) -> u32 {
        if self.counts_use { self.minutes() << 8 | COUNT_FIRST } else { self.seconds() }
    }

    /// For a key that was last used so many seconds ago, as far as that is noted.
    pub(crate) fn idle_since(self, idle_s: u64) -> u32 {
        // A longer time would look short, since the clock turns around.
        let idle_s = i64::try_from(idle_s).unwrap_or(i64::MAX).min(i64::from(MASK));
        if self.counts_use { self.first() } else { low_bits(self.now_s.saturating_sub(idle_s), MASK) }
    }

    /// For a key that was used so often of late, as far as that is noted.
    pub(crate) fn counted(self, count: u8) -> u32 {
        if self.counts_use { self.minutes() << 8 | u32::from(count) } else { self.first() }
    }

    /// For a key that is used now. `chance` is evenly spread.
    #[inline]
    pub(crate) fn used(self, access: u32, chance: impl FnOnce() -> u32) -> u32 {
        if self.is_kept {
            return access;
        }
        if !self.counts_use {
            return self.seconds();
        }
        let count = self.count(access);
        let odds = u64::from(count.saturating_sub(COUNT_FIRST)) * u64::from(self.growth) + 1;
        let grows = count < COUNT_MAX && u64::from(chance()) * odds <= u64::from(u32::MAX);
        self.minutes() << 8 | (count + u32::from(grows))
    }

    /// Seconds since a key was used. Meaningful unless uses are counted.
    pub(crate) fn idle_s(self, access: u32) -> u32 {
        self.seconds().wrapping_sub(access) & MASK
    }

    /// How often a key was used, on a logarithmic scale to 255, less what time took. Meaningful if uses are counted.
    pub(crate) fn count(self, access: u32) -> u32 {
        let idle_minutes = self.minutes().wrapping_sub(access >> 8) & 0xffff;
        let lost = idle_minutes.checked_div(self.decay_minutes).unwrap_or(0);
        (access & 0xff).saturating_sub(lost)
    }

    fn seconds(self) -> u32 {
        low_bits(self.now_s, MASK)
    }

    fn minutes(self) -> u32 {
        low_bits(self.now_s.div_euclid(60), 0xffff)
    }
}

fn low_bits(value: i64, mask: u32) -> u32 {
    u32::try_from(value.rem_euclid(i64::from(mask) + 1)).expect("the remainder has at most 24 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_survives_the_turn_of_the_clock() {
        let at = |now_s| AccessClock { now_s, ..AccessClock::new(Policy::AllLru, 0) };
        for now_s in [0, 5, i64::from(MASK) - 2, i64::from(MASK) + 1, 1_800_000_000] {
            let access = at(now_s).first();
            assert!(access <= MASK);
            assert_eq!(at(now_s + 10).idle_s(access), 10, "{now_s}");
        }
    }

    #[test]
    fn counters_grow_by_chance_and_shrink_by_time() {
        let at = |now_s| AccessClock { now_s, ..AccessClock::new(Policy::AllLfu, 0) };
        let first = at(6_000).first();
        assert_eq!(at(6_000).count(first), COUNT_FIRST);
        let once = at(6_000).used(first, || u32::MAX);
        assert_eq!(at(6_000).count(once), COUNT_FIRST + 1, "the first use always counts");
        let unlucky = at(6_000).used(once, || u32::MAX);
        assert_eq!(at(6_000).count(unlucky), COUNT_FIRST + 1);
        let lucky = at(6_000).used(once, || 0);
        assert_eq!(at(6_000).count(lucky), COUNT_FIRST + 2);
        assert_eq!(at(6_000 + 180).count(lucky), COUNT_FIRST - 1);
        assert_eq!(at(6_000 + 60_000).count(lucky), 0);
    }

    #[test]
    fn policies_by_name() {
        for (policy, name) in Policy::ALL {
            assert_eq!((policy.name(), Policy::from_name(name.as_bytes())), (name, Some(policy)));
        }
        assert_eq!(Policy::from_name(b"lru"), None);
    }
}
