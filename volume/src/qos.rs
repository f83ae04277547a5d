//! Limits of IO by class of volume: token buckets for requests and for bytes.
//!
//! A bucket fills at its rate up to its burst. A request is let in while there is anything in the bucket and takes its
//! whole cost, so that the bucket may owe: a request greater than the burst passes, and the average holds all the same.

use ashlar_wire::time::Instant;

/// Kinds of volumes that users can buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// On flash: 1,200 requests a second and 30 for each GiB, up to 24,000; 80 MiB a second and half a MiB for each GiB, up
    /// to 260.
    Ssd,
    /// On rotating drives: 1,000 requests and 100 MiB a second.
    Standard,
    /// Without a limit.
    Ultra,
}

/// How fast, and how much at once after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens a second, at least 1.
    pub per_second: u64,
    /// Tokens that gather while nothing happens, at least 1.
    pub burst: u64,
}

/// The limits of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Requests.
    pub requests: Rate,
    /// Bytes read and written.
    pub bytes: Rate,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Seconds of full speed that gather at rest.
const BURST_SECONDS: u64 = 2;

impl Rate {
    const fn with_burst(per_second: u64) -> Self {
        Self { per_second, burst: per_second * BURST_SECONDS }
    }
}

impl Rates {
    /// The limits of a class for a volume of `size` bytes, a GiB that was begun counting whole; `None` for no limit.
    #[must_use]
    pub const fn of(class: Class, size: u64) -> Option<Self> {
        let gib = size.div_ceil(GIB);
        let (requests, bytes) = match class {
            Class::Ssd => (min(1_200 + 30 * gib, 24_000), min(80 * MIB + gib * MIB / 2, 260 * MIB)),
            Class::Standard => (1_000, 100 * MIB),
            Class::Ultra => return None,
        };
        Some(Self { requests: Rate::with_burst(requests), bytes: Rate::with_burst(bytes) })
    }
}

const fn min(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

/// One token bucket.
#[derive(Debug, Clone)]
struct Bucket {
    rate: Rate,
    /// Billionths of a token; negative when it owes.
    level: i128,
    /// When the level was that.
    at: Instant,
}

const NANO: i128 = 1_000_000_000;

impl Bucket {
    /// A full bucket.
    ///
    /// # Panics
    /// When the rate or burst is zero: nothing would ever pass.
    fn new(now: Instant, rate: Rate) -> Self {
        assert!(rate.per_second > 0 && rate.burst > 0, "a rate lets something pass");
        Self { rate, level: i128::from(rate.burst) * NANO, at: now }
    }

    /// The same level, as far as it fits, at another rate.
    fn change(&mut self, now: Instant, rate: Rate) {
        self.refill(now);
        let changed = Self::new(now, rate);
        self.level = self.level.min(changed.level);
        self.rate = rate;
    }

    fn refill(&mut self, now: Instant) {
        // A nanosecond brings as many billionths of a token as the rate has tokens a second.
        let nanos = now.saturating_since(self.at).as_nanos();
        let gained = i128::try_from(nanos).expect("below 2^64").saturating_mul(i128::from(self.rate.per_second));
        self.level = self.level.saturating_add(gained).min(i128::from(self.rate.burst) * NANO);
        self.at = self.at.max(now);
    }

    /// When there is something in the bucket again; `now` or before if there is.
    fn open_at(&self) -> Instant {
        if self.level > 0 {
            return self.at;
        }
        let missing = u128::try_from(1 - self.level).expect("the level is not positive");
        let nanos = missing.div_ceil(u128::from(self.rate.per_second));
        Instant::from_nanos(self.at.as_nanos().saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn take(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * NANO;
    }
}

/// The buckets of one attached volume.
#[derive(Debug, Clone)]
pub(crate) struct Throttle {
    requests: Bucket,
    bytes: Bucket,
}

impl Throttle {
    pub(crate) fn new(now: Instant, rates: Rates) -> Self {
        Self { requests: Bucket::new(now, rates.requests), bytes: Bucket::new(now, rates.bytes) }
    }

    /// Other limits from now on. What was gathered or is owed stays.
    pub(crate) fn change(&mut self, now: Instant, rates: Rates) {
        self.requests.change(now, rates.requests);
        self.bytes.change(now, rates.bytes);
    }

    /// Takes the cost of one request of so many bytes, or says when to ask again.
    pub(crate) fn take(&mut self, now: Instant, bytes: u64) -> Result<(), Instant> {
        self.requests.refill(now);
        self.bytes.refill(now);
        let open_at = self.requests.open_at().max(self.bytes.open_at());
        if open_at > now {
            return Err(open_at);
        }
        self.requests.take(1);
        self.bytes.take(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
