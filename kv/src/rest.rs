//! Whether the engine has had no work for a while: those that look after it by themselves look less often then, so that a server at
//! rest leaves its processor alone.
//!
//! Work says so once a batch: a load of a flag that is written ten times a second at most. Who looks after the engine reviews the flag:
//! after [`REST_AFTER`] without work, and with nothing that becomes due by itself, the engine rests. The next work wakes them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::engine::Engine;
use crate::notify::Notify;

/// How long nothing is done before the engine rests.
const REST_AFTER: Duration = Duration::from_secs(1);

/// There was work since the last review.
const WORKED: u8 = 0;
/// There was none.
const QUIET: u8 = 1;
const RESTS: u8 = 2;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    state: AtomicU8,
    /// Since when reviews have found no work.
    quiet_since: Mutex<Option<Instant>>,
    /// For whoever calls [`Engine::handle_tick`].
    tick: Notify,
    cluster_task: Notify,
    saver: Notify,
}

impl Rest {
    /// There was work, or there is.
    pub(crate) fn end(&self) {
        if self.state.load(Ordering::Relaxed) != WORKED && self.state.swap(WORKED, Ordering::AcqRel) == RESTS {
            [&self.tick, &self.cluster_task, &self.saver].into_iter().for_each(Notify::notify);
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) == RESTS
    }

    /// Looks whether there was work, or something `is_due` by itself. One thread calls it.
    pub(crate) fn review(&self, now: Instant, is_due: impl FnOnce() -> bool) {
        let mut since = self.quiet_since.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state.fetch_max(QUIET, Ordering::AcqRel);
        let has_begun = match *since {
            Some(_) if before == RESTS => return,
            Some(since) if before == QUIET => now.saturating_since(since) >= REST_AFTER,
            _ => {
                *since = Some(now);
                false
            }
        };
        if !has_begun {
            return;
        }
        if is_due() {
            *since = None;
            return;
        }
        // Work that began meanwhile has said so.
        self.state.compare_exchange(QUIET, RESTS, Ordering::AcqRel, Ordering::Relaxed).ok();
    }
}

impl Engine {
    /// Whether there was no work for a while and nothing becomes due by itself: nobody needs to look after it more than once a second.
    pub fn is_resting(&self) -> bool {
        self.rest.is_on()
    }

    /// Ready once a rest has ended since this was last ready. The one task asks that calls [`Engine::handle_tick`].
    pub fn poll_tick_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        self.rest.tick.poll_notified(cx)
    }

    /// The same for the one task that runs its part in a cluster.
    pub fn poll_report_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        self.rest.cluster_task.poll_notified(cx)
    }

    /// The same for the one thread that saves.
    pub fn poll_look_wanted(&self, cx: &Context<'_>) -> Poll<()> {
        self.rest.saver.poll_notified(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn it_begins_after_a_second_without_work_and_ends_with_the_next() {
        let rest = Rest::default();
        let cx = &Context::from_waker(std::task::Waker::noop());
        rest.review(at(0), || false);
        rest.review(at(900), || false);
        assert!(!rest.is_on());
        rest.end();
        rest.review(at(1_000), || false);
        rest.review(at(1_900), || false);
        assert!(!rest.is_on(), "there was work at 900");
        assert!(rest.tick.poll_notified(cx).is_pending());
        rest.review(at(2_000), || false);
        assert!(rest.is_on());
        rest.review(at(2_100), || panic!("it rests"));
        assert!(rest.is_on());
        rest.end();
        assert!(
            !rest.is_on() && rest.tick.poll_notified(cx).is_ready() && rest.cluster_task.poll_notified(cx).is_ready()
        );
        rest.end();
        assert!(rest.tick.poll_notified(cx).is_pending(), "nobody slept");
    }

    #[test]
    fn it_does_not_begin_while_something_is_due() {
        let rest = Rest::default();
        for ms in (0..5_000).step_by(100) {
            rest.review(at(ms), || true);
            assert!(!rest.is_on());
        }
        rest.review(at(5_000), || false);
        rest.review(at(6_000), || false);
        assert!(rest.is_on());
    }

    #[test]
    fn work_that_begins_while_it_is_looked_counts() {
        let rest = Rest::default();
        rest.review(at(0), || false);
        rest.review(at(1_000), || {
            rest.end();
            false
        });
        assert!(!rest.is_on());
    }
}
