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

    /// This one for another call, where nobody else has it; else a new one.
    pub(crate) fn reused(mut self) -> Self {
        let Some(shared) = Arc::get_mut(&mut self.0) else { return Self::default() };
        if *shared.cancelled.get_mut() {
            return Self::default();
        }
        shared.wakers.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_has_serves_another_call() {
        let first = Cancelled::default();
        let kept = first.clone();
        let second = first.reused();
        second.cancel();
        assert!(!kept.is_cancelled(), "the call of the clone is another one");
        let third = second.reused();
        assert!(!third.is_cancelled(), "what has resolved stays so");
        let mut context = Context::from_waker(Waker::noop());
        let mut third = third;
        assert!(Pin::new(&mut third).poll(&mut context).is_pending());
        let at = Arc::as_ptr(&third.0);
        let fourth = third.reused();
        assert_eq!(Arc::as_ptr(&fourth.0), at);
        assert!(fourth.0.wakers.lock().unwrap().is_empty(), "who waited for the last call waits no more");
    }
}
