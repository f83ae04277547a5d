//! One value that one task gives another, across threads.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
enum State<T> {
    /// Nothing yet; who waits.
    Open(Option<Waker>),
    Kept(T),
    /// Nothing will come.
    Broken,
}

#[derive(Debug)]
struct Shared<T>(Mutex<State<T>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, state: State<T>) {
        let before = core::mem::replace(&mut *self.lock(), state);
        if let State::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

/// The giving end. Dropped without a value, it breaks the promise.
#[derive(Debug)]
pub struct Promise<T>(Option<Arc<Shared<T>>>);

/// The waiting end: the value, or `None` from a broken promise.
#[derive(Debug)]
pub struct Promised<T>(Arc<Shared<T>>);

/// Both ends of a promise.
#[must_use]
pub fn promise<T>() -> (Promise<T>, Promised<T>) {
    let shared = Arc::new(Shared(Mutex::new(State::Open(None))));
    (Promise(Some(shared.clone())), Promised(shared))
}

impl<T> Promise<T> {
    /// Gives the value.
    pub fn keep(mut self, value: T) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Kept(value));
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.settle(State::Broken);
        }
    }
}

impl<T> Future for Promised<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        match core::mem::replace(&mut *state, State::Broken) {
            State::Open(_) => {
                *state = State::Open(Some(cx.waker().clone()));
                Poll::Pending
            }
            State::Kept(value) => Poll::Ready(Some(value)),
            State::Broken => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_and_broken() {
        let mut cx = Context::from_waker(Waker::noop());
        let (giving, mut waiting) = promise();
        assert_eq!(Pin::new(&mut waiting).poll(&mut cx), Poll::Pending);
        giving.keep(7);
        assert_eq!(Pin::new(&mut waiting).poll(&mut cx), Poll::Ready(Some(7)));
        let (giving, mut waiting) = promise::<u8>();
        assert_eq!(Pin::new(&mut waiting).poll(&mut cx), Poll::Pending);
        drop(giving);
        assert_eq!(Pin::new(&mut waiting).poll(&mut cx), Poll::Ready(None));
    }
}
