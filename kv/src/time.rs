//! What time it is, as a value.

use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use ashlar_wire::time::Instant;

/// Two clocks, read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Unix time in microseconds: for expiry, which clients see.
    pub unix_us: i64,
    /// Monotonic: for spans and deadlines.
    pub instant: Instant,
}

impl Now {
    /// So much later.
    pub(crate) fn after(self, span: Duration) -> Self {
        let us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Self { unix_us: self.unix_us.saturating_add(us), instant: self.instant + span }
    }

    /// The same point of the monotonic clock, at the beginning of Unix time: nothing has expired then.
    pub(crate) const fn before_all(self) -> Self {
        Self { unix_us: 0, ..self }
    }

    /// Unix time in milliseconds.
    #[must_use]
    pub const fn unix_ms(self) -> i64 {
        self.unix_us.div_euclid(1_000)
    }

    /// Seconds of the monotonic clock, from some point on: for spans between two of them, whatever Unix time does meanwhile.
    #[must_use]
    pub(crate) fn seconds(self) -> i64 {
        i64::try_from(self.instant.saturating_since(Instant::ORIGIN).as_secs()).unwrap_or(i64::MAX)
    }

    /// Milliseconds of the monotonic clock, as [`Now::seconds`].
    #[must_use]
    pub(crate) fn milliseconds(self) -> i64 {
        i64::try_from(self.instant.saturating_since(Instant::ORIGIN).as_millis()).unwrap_or(i64::MAX)
    }

    /// The same clocks at a later point of the monotonic one.
    #[must_use]
    pub(crate) fn at(self, instant: Instant) -> Self {
        let passed = instant.saturating_since(self.instant).as_micros();
        let unix_us = self.unix_us.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        Self { unix_us, instant: instant.max(self.instant) }
    }
}

/// Something that is told again only after a while.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// The shortest span between two times.
    const SPAN: Duration = Duration::from_secs(60);

    /// Whether it is to be told now, which counts as told.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told.is_none_or(|told| now.saturating_since(told) >= Self::SPAN);
        if is_due {
            *told = Some(now);
        }
        is_due
    }
}
