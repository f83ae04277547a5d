//! Monotonic time since the process started to look at it.

#![allow(unsafe_code, reason = "the kernel's coarse clock is not offered by std")]

use std::sync::LazyLock;

use ashlar_wire::time::Instant;

#[allow(clippy::disallowed_methods, reason = "this is the seam through which all others get their time")]
static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// Now, in the process's own time: 1 ns after the origin at the earliest.
#[must_use]
pub fn now() -> Instant {
    let nanos = u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos(nanos.max(1))
}

/// The point of the kernel's monotonic clock at which [`now`] is zero.
static ORIGIN_NANOS: LazyLock<u64> = LazyLock::new(|| {
    let origin = LazyLock::force(&ORIGIN);
    let elapsed = u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    kernel_nanos(libc::CLOCK_MONOTONIC).saturating_sub(elapsed)
});

/// The time of the kernel's last tick, some milliseconds before [`now`], more where a host keeps the kernel from ticking. It is for what is
/// far off: no counter is read for it, and nothing waits for that.
#[must_use]
pub fn now_coarse() -> Instant {
    let nanos = kernel_nanos(libc::CLOCK_MONOTONIC_COARSE).saturating_sub(*ORIGIN_NANOS);
    Instant::from_nanos(nanos.max(1))
}

fn kernel_nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes into the struct that it is given, and nowhere else.
    unsafe {
        libc::clock_gettime(clock, &raw mut time);
    }
    // Neither is negative.
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Now, with the time of day.
#[must_use]
pub fn now_both() -> ashlar_kv::Now {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    ashlar_kv::Now { unix_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX), instant: now() }
}

/// The same point for the runtime's timers.
#[must_use]
pub fn at(point: Instant) -> std::time::Instant {
    // A point beyond what timers can hold is as good as never: a year.
    let span = std::time::Duration::from_nanos(point.as_nanos());
    *ORIGIN + span.min(std::time::Duration::from_secs(365 * 24 * 3600))
}

/// Completes at `point` or a little later.
pub async fn sleep_until(point: Instant) {
    tokio::time::sleep_until(at(point).into()).await;
}

/// Completes after `span`.
pub async fn sleep(span: std::time::Duration) {
    tokio::time::sleep(span).await;
}

/// What `future` gives, or `None` if that takes longer than `span`.
pub async fn within<F: Future>(span: std::time::Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(span, future).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_follows_the_exact_one() {
        let begin = now();
        loop {
            let (coarse, after) = (now_coarse(), now());
            // The origin's two readings may lie apart.
            assert!(coarse <= after + std::time::Duration::from_millis(1), "{coarse:?} before {after:?}");
            if coarse > begin {
                return;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn time_does_not_go_back_and_translates() {
        let first = now();
        let second = now();
        assert!(Instant::ORIGIN < first && first <= second);
        assert!(at(first) <= at(second) && at(second) < at(Instant::NEVER));
    }
}
