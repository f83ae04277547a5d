//! A caller that left, told to whom it concerns.

use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    /// At most one waiter a clone that is polled; replaced on every poll of the same task.
    wakers: Mutex<Vec<Waker>>,
}

/// Waiters of one call, at most.
const WAKERS_MAX: usize = 16;

/// Resolves when the caller has left. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Cancelled(Arc<Shared>);

impl Cancelled {
    /// Whether the caller has left.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// The caller has left.
    pub(crate) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let wakers = core::mem::take(&mut *self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_cancelled() {
            return Poll::Ready(());
        }
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            assert!(wakers.len() < WAKERS_MAX, "a call's cancellation has at most {WAKERS_MAX} waiters");
            wakers.push(cx.waker().clone());
        }
        drop(wakers);
        // It may have been set between the first look and the registration.
        if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}
