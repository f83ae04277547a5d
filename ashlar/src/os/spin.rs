//! Staying awake for a moment: a worker that has just received something looks again before it sleeps.
//!
//! Waking a sleeping thread takes longer than a whole call does (20 us and more where the core has halted), and in an
//! exchange of small calls the next bytes come within that time. So a worker keeps its runtime from parking until
//! nothing has come for [`SPIN_SPAN`]. Where staying awake has not paid several times in a row (rare traffic, or a core
//! that the other side needs to answer at all) it is left alone, and tried again only once in a while. An idle worker
//! sleeps and costs nothing.
//!
//! A worker that shares its core with another one of its kind sleeps at once: often it waits for what only the other can send,
//! and keeps it from sending that. The kernel puts them there when bulk work takes the other cores.
//!
//! Two sides that both sleep find each other asleep every time: the wait of one is then its own waking, the other's, and
//! the other's work. A span that is shorter than all three never pays, and such a pair stays slow for good.

#![allow(unsafe_code, reason = "which core a thread runs on is not offered by std")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::{clock, turns, wakes};

/// How long a worker stays awake after the last bytes: two wakings (25 to 35 us each in a virtual machine) and the work on
/// a batch between them.
const SPIN_SPAN: Duration = Duration::from_micros(100);
/// After this many vain attempts in a row, a worker sleeps at once.
const VAIN_MAX: u32 = 8;
/// Then every so-many-th receipt is another attempt.
const ATTEMPT_EVERY: u32 = 64;

/// For how long after a worker was awake on a core it counts as one of that core, nanoseconds.
const SEEN_SPAN_NANOS: u64 = 2_000_000;
const CORE_BITS: u32 = 16;
/// Stands for the core of a worker that was seen nowhere yet: all of its bits.
const NO_CORE: u64 = (1 << CORE_BITS) - 1;

thread_local! {
    /// Something has come that calls for staying awake, since the spinner looked last.
    static HAS_COME: Cell<bool> = const { Cell::new(false) };
    static HISTORY: Cell<History> = const { Cell::new(History::new()) };
    static SPINNER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// Whether staying awake has paid of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct History {
    /// Attempts in vain since the last that paid.
    vain: u32,
    /// Receipts since the last attempt.
    skipped: u32,
}

impl History {
    const fn new() -> Self {
        Self { vain: 0, skipped: 0 }
    }

    /// Something came while the worker stayed awake, or had just been woken and has to decide: whether to stay awake.
    fn handle_received(&mut self, was_awake: bool) -> bool {
        if was_awake {
            *self = Self::new();
            return true;
        }
        self.skipped += 1;
        let attempt = self.vain < VAIN_MAX || self.skipped >= ATTEMPT_EVERY;
        if attempt {
            self.skipped = 0;
        }
        attempt
    }

    /// Nothing came while the worker stayed awake.
    fn handle_vain(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }
}

/// One worker among all of its kind: where and when it was last seen awake, and the others.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Of each: nanoseconds since the origin, with the core in their last [`CORE_BITS`].
    seen: Arc<[AtomicU64]>,
    own: usize,
}

impl Place {
    /// The places of `count` workers, seen nowhere yet.
    pub(super) fn all(count: usize) -> Vec<Self> {
        let seen: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(NO_CORE)).collect();
        (0..count).map(|own| Self { seen: seen.clone(), own }).collect()
    }

    /// Notes that this worker is awake on `core`; whether another one was there a moment ago. If that one is woken now, it
    /// is likely to wait for this core.
    fn shares(&self, core: u64, now: Instant) -> bool {
        let now = now.as_nanos() & !NO_CORE;
        let last = self.seen[self.own].load(Ordering::Relaxed);
        // Seldom, so that the line stays in the caches of all.
        if last & NO_CORE != core || now > last + SEEN_SPAN_NANOS / 2 {
            self.seen[self.own].store(now | core, Ordering::Relaxed);
        }
        let is_there = |seen: u64| seen & NO_CORE == core && now < (seen & !NO_CORE) + SEEN_SPAN_NANOS;
        let mut others = self.seen.iter().enumerate().filter(|(index, _)| *index != self.own);
        core != NO_CORE && others.any(|(_, other)| is_there(other.load(Ordering::Relaxed)))
    }
}

/// The core that this thread runs on; [`NO_CORE`] where the kernel does not tell.
fn this_core() -> u64 {
    // SAFETY: takes no memory.
    let core = u64::try_from(unsafe { libc::sched_getcpu() });
    core.map_or(NO_CORE, |core| core.min(NO_CORE))
}

/// Something was received on this thread.
pub(super) fn note_received() {
    let spinner = SPINNER.take();
    let mut history = HISTORY.get();
    let stays = history.handle_received(spinner.is_none());
    HISTORY.set(history);
    HAS_COME.set(HAS_COME.get() | stays);
    match spinner {
        Some(spinner) if stays => spinner.wake(),
        asleep => SPINNER.set(asleep),
    }
}

/// Keeps the runtime of the worker at `place` awake after each [`note_received`] that calls for it, and as long as connections
/// stand [in line](turns), which it lets pass; wakes the tasks that [others have woken](wakes); never ends.
pub(super) async fn stay_awake(place: Place) {
    let mut is_spinning = false;
    let mut last = Instant::ORIGIN;
    loop {
        poll_fn(|cx| {
            let now = clock::now();
            let is_shared = place.shares(this_core(), now);
            if wakes::wake_all() {
                note_received();
            }
            if HAS_COME.take() {
                last = now;
            }
            if !is_shared && now < last + SPIN_SPAN {
                is_spinning = true;
                return Poll::Ready(());
            }
            if core::mem::take(&mut is_spinning) && !is_shared {
                let mut history = HISTORY.get();
                history.handle_vain();
                HISTORY.set(history);
            }
            if turns::poll_line(cx).is_ready() || wakes::poll_written(cx).is_ready() {
                return Poll::Ready(());
            }
            SPINNER.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        // Before this goes on, the runtime runs what is ready and looks for what has come.
        tokio::task::yield_now().await;
        turns::next_turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_on_one_core_know_it() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let places = Place::all(3);
        assert!(!places[0].shares(4, at(10)));
        assert!(!places[1].shares(5, at(10)), "its own");
        assert!(places[2].shares(4, at(11)) && places[0].shares(4, at(11)), "both know");
        assert!(!places[2].shares(6, at(12)) && !places[0].shares(4, at(12)), "one has moved on");
        assert!(places[2].shares(4, at(13)) && places[2].shares(4, at(13)), "and comes back");
        assert!(!places[2].shares(4, at(15)), "the other one sleeps");
        assert!(places[0].shares(4, at(16)), "it has just been here");
        assert!(
            !places[1].shares(NO_CORE, at(16)) && !places[2].shares(NO_CORE, at(16)),
            "a kernel that does not tell"
        );
    }

    /// The safe twin: the same from the kernel's own table.
    #[test]
    fn the_core_is_one_that_this_thread_may_use() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let mut ranges = line.trim().split(',').map(|range| match range.split_once('-') {
            Some((first, last)) => first.parse().unwrap()..=last.parse().unwrap(),
            None => range.parse().unwrap()..=range.parse().unwrap(),
        });
        let core = this_core();
        assert!(ranges.any(|range: std::ops::RangeInclusive<u64>| range.contains(&core)), "{core} of {line}");
    }

    #[test]
    fn what_does_not_pay_is_left_alone_and_tried_again() {
        let mut history = History::new();
        for _ in 0..VAIN_MAX {
            assert!(history.handle_received(false));
            history.handle_vain();
        }
        for _ in 1..ATTEMPT_EVERY {
            assert!(!history.handle_received(false));
        }
        assert!(history.handle_received(false), "once in a while");
        history.handle_vain();
        assert!(!history.handle_received(false));
        assert!(history.handle_received(true), "it paid");
        assert!(history.handle_received(false), "so it is done again");
    }
}
