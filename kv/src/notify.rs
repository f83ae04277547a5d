//! A wake-up for one task: a flag that any thread sets and one task waits for.
//!
//! Setting the flag twice before the task looks counts once. The flag stays set until the task has seen it, so that news which comes
//! between two waits are not missed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_set: bool,
    /// The task that waited last.
    waker: Option<Waker>,
}

impl Notify {
    /// Wakes the task, now or at its next wait.
    pub fn notify(&self) {
        let mut state = self.lock();
        state.is_set = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ready once [`Notify::notify`] was called since this was last ready. Of several tasks only the one that asked last is woken.
    pub fn poll_notified(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_set) {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn news_count_once_and_are_not_missed() {
        let (notify, count) = (Notify::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        notify.notify();
        notify.notify();
        assert_eq!((notify.poll_notified(&cx), count.0.load(Ordering::SeqCst)), (Poll::Ready(()), 0));
        assert_eq!(notify.poll_notified(&cx), Poll::Pending);
        notify.notify();
        assert_eq!((count.0.load(Ordering::SeqCst), notify.poll_notified(&cx)), (1, Poll::Ready(())));
        assert_eq!(notify.poll_notified(&cx), Poll::Pending);
    }
}
