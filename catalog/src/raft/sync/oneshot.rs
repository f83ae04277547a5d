//! One value from one task to another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::{Wakers, lock, wake};

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    sender_is_gone: bool,
    receiver_is_gone: bool,
    wakers: Wakers,
}

/// The end that gives the value.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);

/// The end that takes it, as a future.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

/// The sender was dropped without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Canceled;

impl fmt::Display for Canceled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sender is gone")
    }
}

impl std::error::Error for Canceled {}

/// Both ends.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Slot { value: None, sender_is_gone: false, receiver_is_gone: false, wakers: Wakers::default() };
    let slot = Arc::new(Mutex::new(slot));
    (Sender(slot.clone()), Receiver(slot))
}

impl<T> Sender<T> {
    /// Gives the value, or gives it back when the receiver is gone.
    pub(crate) fn send(self, value: T) -> Result<(), T> {
        let mut slot = lock(&self.0);
        if slot.receiver_is_gone {
            return Err(value);
        }
        slot.value = Some(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let wakers = {
            let mut slot = lock(&self.0);
            slot.sender_is_gone = true;
            slot.wakers.take()
        };
        wake(wakers);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let value = {
            let mut slot = lock(&self.0);
            slot.receiver_is_gone = true;
            slot.value.take()
        };
        drop(value);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Canceled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        if let Some(value) = slot.value.take() {
            return Poll::Ready(Ok(value));
        }
        if slot.sender_is_gone {
            return Poll::Ready(Err(Canceled));
        }
        slot.wakers.add(cx.waker());
        Poll::Pending
    }
}
