//! Channels and a mutex for tasks of any executor: what Raft's tasks talk through.
//!
//! Each is a `std::sync::Mutex` around a small state and the wakers of who waits. Nothing here knows a runtime, a clock
//! or a thread, and wakers are kept in the order in which they came: on a deterministic executor everything is.

pub(crate) mod mpsc;
pub(crate) mod mutex;
pub(crate) mod oneshot;
pub(crate) mod watch;

use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

/// Locks a state that no task leaves half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics while it holds the lock of a channel")
}

/// Tasks that wait, in the order in which they came. One that is polled again is kept once.
#[derive(Debug, Default)]
struct Wakers(Vec<Waker>);

impl Wakers {
    fn add(&mut self, waker: &Waker) {
        if !self.0.iter().any(|known| known.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }

    /// Takes all, to be woken once the lock is free.
    fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.0)
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
