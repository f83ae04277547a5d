//! Threads that execute the IOs of one drive.
//!
//! One queue for all of them, in the order in which the store gave the IOs out; they complete in any order. The store
//! bounds how many are under way, so the queue needs no limit of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ashlar_store::io::Io;

use super::executor::DriveFile;
use super::inbox::{Completion, Inbox};

#[derive(Default)]
struct State {
    ios: VecDeque<Io>,
    is_stopped: bool,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next IO; nothing when the pool stops.
    fn next(&self) -> Option<Io> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(io) = state.ios.pop_front() {
                return Some(io);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The threads.
pub(super) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts so many threads. Completed IOs go to `inbox`.
    ///
    /// # Errors
    /// The operating system gives no thread. Retry safe.
    pub(super) fn start<T: Send + 'static>(
        file: &Arc<DriveFile>,
        inbox: &Arc<Inbox<T>>,
        count: usize,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut pool = Self { queue, threads: Vec::new() };
        for number in 0..count {
            let (queue, file, inbox) = (Arc::clone(&pool.queue), Arc::clone(file), Arc::clone(inbox));
            let work = move || {
                while let Some(Io { id, kind }) = queue.next() {
                    inbox.complete(Completion { id, result: file.execute(&kind) });
                }
            };
            match thread::Builder::new().name(format!("drive-io-{number}")).spawn(work) {
                Ok(thread) => pool.threads.push(thread),
                Err(error) => {
                    pool.stop();
                    return Err(error);
                }
            }
        }
        Ok(pool)
    }

    /// Gives IOs to the threads.
    pub(super) fn execute(&self, ios: impl Iterator<Item = Io>) {
        let mut state = self.queue.lock();
        let before = state.ios.len();
        state.ios.extend(ios);
        let added = state.ios.len() - before;
        drop(state);
        (0..added.min(self.threads.len())).for_each(|_| self.queue.changed.notify_one());
    }

    /// Ends the threads, after the IO that each of them has. What waits is not executed.
    pub(super) fn stop(&mut self) {
        self.queue.lock().is_stopped = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}
