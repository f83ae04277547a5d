//! A mutex that a task may hold while it waits.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex as StdMutex;
use std::task::Poll;

use super::{Wakers, lock, wake};

/// A value that one task at a time has.
///
/// The value moves into the guard and back: so the guard needs no pointer into the mutex, and there is nothing unsafe
/// here.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    state: StdMutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// None while a guard has it.
    value: Option<T>,
    wakers: Wakers,
}

/// The value, until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    /// Some until the guard is dropped.
    value: Option<T>,
}

impl<T> Mutex<T> {
    /// A mutex that nobody has.
    pub(crate) fn new(value: T) -> Self {
        Self { state: StdMutex::new(State { value: Some(value), wakers: Wakers::default() }) }
    }

    /// Waits for the value.
    pub(crate) async fn lock(&self) -> Guard<'_, T> {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            match state.value.take() {
                Some(value) => Poll::Ready(Guard { mutex: self, value: Some(value) }),
                None => {
                    state.wakers.add(cx.waker());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("a guard has the value until it is dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("a guard has the value until it is dropped")
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        let wakers = {
            let mut state = lock(&self.mutex.state);
            state.value = self.value.take();
            state.wakers.take()
        };
        wake(wakers);
    }
}
