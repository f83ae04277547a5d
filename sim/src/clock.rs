//! Time: one virtual clock for the world, one monotonic and one wall clock for each server, and the agenda.
//!
//! World time is nanoseconds since the world began and moves only when no task is ready: it jumps to the next entry
//! of the agenda. A server's monotonic clock starts anywhere, may run up to a few percent too fast or too slow, and
//! never steps. Its wall clock may step; no seam shows it to the code under test.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A monotonic clock that starts at its own origin and runs at its own rate.
#[derive(Debug, Clone)]
pub(crate) struct ServerClock {
    /// World time at which the clock showed `shown_ns`.
    base_ns: u64,
    shown_ns: u64,
    /// How much too fast it runs; negative is too slow.
    drift_ppm: i32,
}

/// The drift of a clock stays below this: 5 %.
pub const DRIFT_PPM_MAX: i32 = 50_000;

const MILLION: i128 = 1_000_000;

impl ServerClock {
    pub(crate) fn new(world_ns: u64, shown_ns: u64, drift_ppm: i32) -> Self {
        assert!(drift_ppm.abs() <= DRIFT_PPM_MAX, "a drift of {drift_ppm} ppm is out of bounds");
        Self { base_ns: world_ns, shown_ns, drift_ppm }
    }

    /// What the clock shows at `world_ns`.
    pub(crate) fn shown_at(&self, world_ns: u64) -> u64 {
        let passed = i128::from(world_ns.saturating_sub(self.base_ns));
        let shown = i128::from(self.shown_ns) + passed * (MILLION + i128::from(self.drift_ppm)) / MILLION;
        u64::try_from(shown).unwrap_or(u64::MAX)
    }

    /// The first world time at which the clock shows `shown_ns` or more.
    pub(crate) fn world_at(&self, shown_ns: u64) -> u64 {
        let ahead = i128::from(shown_ns.saturating_sub(self.shown_ns));
        let rate = MILLION + i128::from(self.drift_ppm);
        let world = i128::from(self.base_ns) + (ahead * MILLION + rate - 1) / rate;
        u64::try_from(world).unwrap_or(u64::MAX)
    }

    /// Changes the rate from `world_ns` on. The clock does not step.
    pub(crate) fn set_drift(&mut self, world_ns: u64, drift_ppm: i32) {
        *self = Self::new(world_ns, self.shown_at(world_ns), drift_ppm);
    }
}

/// What will happen when, in order of time, then of `tie`, then of entry.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    key: (u64, u64, u64),
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> Agenda<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn insert(&mut self, at_ns: u64, tie: u64, what: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { key: (at_ns, tie, self.sequence), what }));
    }

    pub(crate) fn next(&self) -> Option<(u64, &T)> {
        self.heap.peek().map(|Reverse(entry)| (entry.key.0, &entry.what))
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.heap.pop().map(|Reverse(entry)| (entry.key.0, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reaches_what_it_was_asked_for() {
        for drift_ppm in [-50_000, -10_000, -1, 0, 1, 333, 10_000, 50_000] {
            let mut clock = ServerClock::new(1_000, 77, drift_ppm);
            for shown_ns in [77, 78, 1_000, 123_456_789, u64::from(u32::MAX) * 1_000] {
                let world_ns = clock.world_at(shown_ns);
                assert!(clock.shown_at(world_ns) >= shown_ns, "{drift_ppm} {shown_ns}");
                assert!(world_ns == 1_000 || clock.shown_at(world_ns - 1) < shown_ns, "{drift_ppm} {shown_ns}");
            }
            let before = clock.shown_at(5_000_000);
            clock.set_drift(5_000_000, -drift_ppm);
            assert_eq!(clock.shown_at(5_000_000), before);
        }
    }

    #[test]
    fn the_agenda_is_ordered() {
        let mut agenda = Agenda::new();
        for (at_ns, tie, what) in [(5, 0, 'd'), (1, 9, 'b'), (1, 9, 'c'), (1, 2, 'a')] {
            agenda.insert(at_ns, tie, what);
        }
        assert_eq!(agenda.next(), Some((1, &'a')));
        let order: Vec<_> = core::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, [(1, 'a'), (1, 'b'), (1, 'c'), (5, 'd')]);
    }
}
