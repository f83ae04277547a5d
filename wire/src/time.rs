//! Monotonic time as a value.
//!
//! No code below the program reads a clock: `now` comes in as an [`Instant`]. Spans are [`core::time::Duration`].
//! Wall-clock time has no type here, because no protocol between servers may depend on it.

use core::ops::Add;
use core::time::Duration;

/// A point of monotonic time: nanoseconds since an origin that the process chose. Never leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin itself.
    pub const ORIGIN: Self = Self(0);
    /// Later than any point that a process reaches (584 years).
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How much later `self` is than `earlier`; zero if it is not later.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::NEVER`].
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}
