//! Wakes tasks when something has changed. What has changed they see for themselves.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct NotifyState {
    count: u64,
    /// One for each task that waits.
    waiting: Vec<Waker>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Notify(Mutex<NotifyState>);

impl Notify {
    fn lock(&self) -> MutexGuard<'_, NotifyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was notified so far. To be read before what is waited for is looked at, so that no change is missed.
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Wakes everybody who waits.
    pub(super) fn notify(&self) {
        let mut state = self.lock();
        state.count += 1;
        let waiting = core::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until it was notified more often than `count` times.
    pub(super) async fn notified_since(&self, count: u64) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.count > count {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::pin::pin;
    use core::task::Context;

    #[test]
    fn a_notification_is_seen_once_and_none_is_missed() {
        let notify = Notify::default();
        let mut cx = Context::from_waker(Waker::noop());
        let before = notify.count();
        {
            let mut waits = pin!(notify.notified_since(before));
            assert!(waits.as_mut().poll(&mut cx).is_pending());
            notify.notify();
            assert!(waits.as_mut().poll(&mut cx).is_ready());
        }
        // It was notified before anybody waited.
        assert!(pin!(notify.notified_since(before)).poll(&mut cx).is_ready());
        assert!(pin!(notify.notified_since(notify.count())).poll(&mut cx).is_pending());
    }
}
