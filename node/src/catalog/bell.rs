//! Wakes tasks when something has changed. What has changed they see for themselves.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Rung {
    count: u64,
    /// One for each task that waits.
    waiting: Vec<Waker>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Bell(Mutex<Rung>);

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Rung> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was rung so far. To be read before what is waited for is looked at, so that no change is missed.
    pub(super) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Wakes everybody who waits.
    pub(super) fn ring(&self) {
        let mut rung = self.lock();
        rung.count += 1;
        let waiting = core::mem::take(&mut rung.waiting);
        drop(rung);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until it was rung more often than `count` times.
    pub(super) async fn rung_since(&self, count: u64) {
        poll_fn(|cx| {
            let mut rung = self.lock();
            if rung.count > count {
                return Poll::Ready(());
            }
            if !rung.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                rung.waiting.push(cx.waker().clone());
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
    fn a_ring_is_heard_once_and_none_is_missed() {
        let bell = Bell::default();
        let mut cx = Context::from_waker(Waker::noop());
        let before = bell.count();
        {
            let mut waits = pin!(bell.rung_since(before));
            assert!(waits.as_mut().poll(&mut cx).is_pending());
            bell.ring();
            assert!(waits.as_mut().poll(&mut cx).is_ready());
        }
        // It was rung before anybody waited.
        assert!(pin!(bell.rung_since(before)).poll(&mut cx).is_ready());
        assert!(pin!(bell.rung_since(bell.count())).poll(&mut cx).is_pending());
    }
}
