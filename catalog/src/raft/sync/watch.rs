//! The latest of a sequence of values, for many readers.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::task::Poll;

use super::{Wakers, lock, wake};

#[derive(Debug)]
struct Progress {
    /// Number of values so far.
    sent: u64,
    senders: usize,
    receivers: usize,
    wakers: Wakers,
}

#[derive(Debug)]
struct Shared<T> {
    value: RwLock<T>,
    progress: Mutex<Progress>,
}

/// An end that sends.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// An end that reads, and knows what it has seen.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// A value that is being read. Senders wait for as long as it lives.
#[derive(Debug)]
pub(crate) struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Both ends; the first value counts as seen.
pub(crate) fn channel<T>(first: T) -> (Sender<T>, Receiver<T>) {
    let progress = Progress { sent: 0, senders: 1, receivers: 1, wakers: Wakers::default() };
    let shared = Arc::new(Shared { value: RwLock::new(first), progress: Mutex::new(progress) });
    (Sender(shared.clone()), Receiver { shared, seen: 0 })
}

impl<T> Shared<T> {
    fn borrow(&self) -> Ref<'_, T> {
        Ref(self.value.read().expect("nobody panics while it writes a watched value"))
    }

    /// Lets the readers know of a value that has been written.
    fn announce(&self) {
        let wakers = {
            let mut progress = lock(&self.progress);
            progress.sent += 1;
            progress.wakers.take()
        };
        wake(wakers);
    }
}

impl<T> Sender<T> {
    /// Sends a value, or gives it back when nobody reads.
    pub(crate) fn send(&self, value: T) -> Result<(), T> {
        if lock(&self.0.progress).receivers == 0 {
            return Err(value);
        }
        self.send_if_modified(|current| {
            *current = value;
            true
        });
        Ok(())
    }

    /// Changes the value in place, and lets the readers know if `modify` says so.
    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let modified = {
            let mut value = self.0.value.write().expect("nobody panics while it writes a watched value");
            modify(&mut value)
        };
        if modified {
            self.0.announce();
        }
        modified
    }

    /// The latest value.
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// A new reader, which has seen the latest value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let mut progress = lock(&self.0.progress);
        progress.receivers += 1;
        Receiver { shared: self.0.clone(), seen: progress.sent }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.0.progress).senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let wakers = {
            let mut progress = lock(&self.0.progress);
            progress.senders -= 1;
            if progress.senders == 0 { progress.wakers.take() } else { Vec::new() }
        };
        wake(wakers);
    }
}

impl<T> Receiver<T> {
    /// Waits for a value that was not seen, and marks it as seen; false once all senders are gone.
    pub(crate) async fn changed(&mut self) -> bool {
        poll_fn(|cx| {
            let mut progress = lock(&self.shared.progress);
            if progress.sent > self.seen {
                self.seen = progress.sent;
                return Poll::Ready(true);
            }
            if progress.senders == 0 {
                return Poll::Ready(false);
            }
            progress.wakers.add(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// The latest value.
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.shared.borrow()
    }

    /// The latest value, which counts as seen.
    pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
        // Marked first: a value that is sent between the two is seen twice rather than never.
        self.seen = lock(&self.shared.progress).sent;
        self.shared.borrow()
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        lock(&self.shared.progress).receivers += 1;
        Self { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        lock(&self.shared.progress).receivers -= 1;
    }
}
