//! How much of what was taken from the allocator holds something, summed over shards without a lock.
//!
//! Arenas keep free cells for the next records, so that the allocator's count does not fall when a key goes. Whoever decides how
//! full memory is subtracts what is spare. A shard tells the sum only when its own figures have changed by [`STEP_BYTES`], so
//! that shards in use at the same time seldom write the same line.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// By how much a shard's figures change before the sum knows.
const STEP_BYTES: usize = 1 << 10;

/// Bytes of all shards.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    used: AtomicI64,
    spare: AtomicI64,
}

impl Gauge {
    /// Bytes of records and what they hang in, without what collections hold.
    pub(crate) fn used(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Bytes that were taken from the allocator and hold nothing.
    pub(crate) fn spare(&self) -> u64 {
        u64::try_from(self.spare.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// What one shard has told the sum.
#[derive(Debug)]
pub(crate) struct Share {
    gauge: Arc<Gauge>,
    used: usize,
    spare: usize,
}

impl Share {
    /// Of a shard that holds nothing.
    pub(crate) const fn new(gauge: Arc<Gauge>) -> Self {
        Self { gauge, used: 0, spare: 0 }
    }

    /// So much is the shard's now.
    #[inline]
    pub(crate) fn tell(&mut self, used: usize, spare: usize) {
        if self.used.abs_diff(used) >= STEP_BYTES || self.spare.abs_diff(spare) >= STEP_BYTES {
            self.add(used, spare);
        }
    }

    /// So much is the shard's now; the sum knows at once.
    #[cold]
    pub(crate) fn add(&mut self, used: usize, spare: usize) {
        let change = |from: usize, to: usize| {
            let bytes = i64::try_from(to.abs_diff(from)).expect("memory has fewer than 2^63 bytes");
            if to < from { -bytes } else { bytes }
        };
        self.gauge.used.fetch_add(change(self.used, used), Ordering::Relaxed);
        self.gauge.spare.fetch_add(change(self.spare, spare), Ordering::Relaxed);
        (self.used, self.spare) = (used, spare);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.add(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_follows_in_steps() {
        let gauge = Arc::new(Gauge::default());
        let (mut one, mut other) = (Share::new(Arc::clone(&gauge)), Share::new(Arc::clone(&gauge)));
        one.tell(STEP_BYTES - 1, 0);
        assert_eq!((gauge.used(), gauge.spare()), (0, 0));
        one.tell(5_000, 40);
        other.tell(100, 3_000);
        assert_eq!((gauge.used(), gauge.spare()), (5_100, 3_040));
        one.tell(4_500, 50);
        assert_eq!(gauge.used(), 5_100, "half a step");
        one.add(4_500, 50);
        assert_eq!((gauge.used(), gauge.spare()), (4_600, 3_050));
        one.tell(0, 0);
        drop(other);
        assert_eq!((gauge.used(), gauge.spare()), (0, 0));
    }
}
