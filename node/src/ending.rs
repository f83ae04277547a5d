//! The end of a server, for work that would last as long as somebody at another server wants it to.

use core::future::poll_fn;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the server stops, and who waits for that.
#[derive(Debug, Default)]
pub(crate) struct Ending(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_reached: bool,
    /// Tasks that wait, each under a number of its own.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

impl Ending {
    /// The server stops: all that waits for this is woken.
    pub(crate) fn reach(&self) {
        let mut state = self.lock();
        state.is_reached = true;
        let waiting = core::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Whether the server stops.
    pub(crate) fn is_reached(&self) -> bool {
        self.lock().is_reached
    }

    /// What `work` gives; nothing if the server stops before: then the work is dropped where it stands.
    pub(crate) async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut waits) = (pin!(work), Waits { ending: self, number: None });
        poll_fn(|cx| match waits.poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that waits, until it is dropped.
struct Waits<'a> {
    ending: &'a Ending,
    number: Option<u64>,
}

impl Waits<'_> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.ending.lock();
        if state.is_reached {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state
            .waiting
            .entry(number)
            .and_modify(|waker| waker.clone_from(cx.waker()))
            .or_insert_with(|| cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.ending.lock().waiting.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::{pending, ready};
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn work_ends_with_its_result_or_with_the_server() {
        let ending = Ending::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(pin!(ending.cut(ready(7))).poll(&mut cx), Poll::Ready(Some(7)));
        assert!(ending.lock().waiting.is_empty(), "whoever is done does not wait");
        {
            let (count, other) = (Arc::<Count>::default(), Arc::<Count>::default());
            let wakers = [Waker::from(Arc::clone(&count)), Waker::from(Arc::clone(&other))];
            let mut works = Box::pin(ending.cut(pending::<u8>()));
            // The last waker is woken, and nobody else is when the end comes once.
            for waker in [&wakers[1], &wakers[0], &wakers[0]] {
                assert!(works.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
            let mut given_up = Box::pin(ending.cut(pending::<u8>()));
            assert!(given_up.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
            assert_eq!(ending.lock().waiting.len(), 2);
            drop(given_up);
            assert!(!ending.is_reached());
            ending.reach();
            assert_eq!((count.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)), (1, 0));
            assert_eq!(works.as_mut().poll(&mut cx), Poll::Ready(None));
        }
        assert!(ending.is_reached());
        // Nothing is begun any more.
        let begins = async { unreachable!("the server has stopped") };
        assert_eq!(pin!(ending.cut::<()>(begins)).poll(&mut cx), Poll::Ready(None));
    }
}
