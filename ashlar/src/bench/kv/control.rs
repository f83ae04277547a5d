//! What the threads of a load and its watcher tell each other: when to begin, when it counts, when it is over.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where a load is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Connections are being made.
    Connecting,
    /// Requests are sent and do not count.
    WarmUp,
    /// Requests are sent and count.
    Measuring,
    /// Nothing more is sent.
    Over,
}

const PHASES: [Phase; 4] = [Phase::Connecting, Phase::WarmUp, Phase::Measuring, Phase::Over];

/// Shared by the threads of one load and its watcher.
#[derive(Debug)]
pub struct Control {
    phase: AtomicU8,
    /// Requests that may still be sent while it counts, if that is what ends the load.
    left: Option<AtomicU64>,
    /// Replies that were counted so far: for progress, and to see that there is none.
    done: AtomicU64,
    threads: Mutex<Threads>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    ready: usize,
    ended: usize,
}

impl Control {
    /// For a load of `requests`, or one that time ends.
    #[must_use]
    pub fn new(requests: Option<u64>) -> Self {
        Self {
            phase: AtomicU8::new(0),
            left: requests.map(AtomicU64::new),
            done: AtomicU64::new(0),
            threads: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Where the load is.
    #[inline]
    pub fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Ordering::Relaxed)) % PHASES.len()]
    }

    /// Goes on to `phase`.
    pub fn set(&self, phase: Phase) {
        let number = PHASES.iter().position(|known| *known == phase).unwrap_or(0);
        self.phase.store(u8::try_from(number).unwrap_or(0), Ordering::Relaxed);
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Whether a number of requests ends the load.
    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.left.is_some()
    }

    /// Whether all requests were sent.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    /// How many of `requests` may be sent.
    #[inline]
    pub fn claim(&self, requests: usize) -> usize {
        let Some(left) = &self.left else { return requests };
        let wanted = requests as u64;
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(wanted)));
        usize::try_from(taken.unwrap_or(0).min(wanted)).unwrap_or(requests)
    }

    /// So many more replies were counted.
    #[inline]
    pub fn add(&self, replies: u64) {
        if replies > 0 {
            self.done.fetch_add(replies, Ordering::Relaxed);
        }
    }

    /// Replies that were counted.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread has its connections.
    pub fn ready(&self) {
        self.lock().ready += 1;
        self.changed.notify_all();
    }

    /// The calling thread is at its end.
    pub fn ended(&self) {
        self.lock().ended += 1;
        self.changed.notify_all();
    }

    /// Waits until there is something to send.
    pub fn wait_for_start(&self) {
        let is_early = |_: &mut Threads| self.phase() == Phase::Connecting;
        drop(self.changed.wait_while(self.lock(), is_early).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until all `threads` have their connections; whether they have, or one has ended instead.
    pub fn wait_for_ready(&self, threads: usize) -> bool {
        let is_early = |seen: &mut Threads| seen.ready < threads && seen.ended == 0;
        let seen = self.changed.wait_while(self.lock(), is_early).unwrap_or_else(PoisonError::into_inner);
        seen.ended == 0
    }

    /// Waits for `span`, or less if all `threads` have ended; whether one still runs.
    pub fn wait(&self, span: Duration, threads: usize) -> bool {
        let is_early = |seen: &mut Threads| seen.ended < threads;
        let waited = self.changed.wait_timeout_while(self.lock(), span, is_early);
        let (seen, _) = waited.unwrap_or_else(PoisonError::into_inner);
        seen.ended < threads
    }
}

/// Tells at its end that the thread has ended, however that comes.
#[derive(Debug)]
pub struct Ending<'a>(pub &'a Control);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_add_up_to_what_was_asked_for() {
        let control = Control::new(Some(25));
        let claimed: Vec<usize> = (0..4).map(|_| control.claim(10)).collect();
        assert_eq!(claimed, [10, 10, 5, 0]);
        assert!(control.is_spent() && control.is_bounded());
        let endless = Control::new(None);
        assert_eq!((endless.claim(10), endless.is_spent()), (10, false));
    }

    #[test]
    fn phases_and_ends() {
        let control = Control::new(None);
        for phase in [Phase::WarmUp, Phase::Measuring, Phase::Over] {
            control.set(phase);
            assert_eq!(control.phase(), phase);
        }
        control.wait_for_start();
        control.ready();
        assert!(control.wait_for_ready(1) && control.wait(Duration::ZERO, 1));
        drop(Ending(&control));
        assert!(!control.wait_for_ready(2) && !control.wait(Duration::from_secs(60), 1));
    }
}
