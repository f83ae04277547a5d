//! A bounded queue from many tasks to one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::{Wakers, lock, wake};

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    /// At most so many items wait.
    len_max: usize,
    senders: usize,
    receiver_is_gone: bool,
    senders_waiting: Wakers,
    receiver_waiting: Wakers,
}

/// An end that puts items in; the queue is open while there is one.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Queue<T>>>);

/// An end that does not keep the queue open.
#[derive(Debug)]
pub(crate) struct WeakSender<T>(Arc<Mutex<Queue<T>>>);

/// The end that takes items out.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Queue<T>>>);

/// What there is to take at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    /// The oldest item.
    Item(T),
    /// Nothing yet.
    Empty,
    /// Nothing ever again.
    Closed,
}

/// A queue of at most `len_max` items, at least one.
pub(crate) fn channel<T>(len_max: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Arc::new(Mutex::new(Queue {
        items: VecDeque::new(),
        len_max: len_max.max(1),
        senders: 1,
        receiver_is_gone: false,
        senders_waiting: Wakers::default(),
        receiver_waiting: Wakers::default(),
    }));
    (Sender(queue.clone()), Receiver(queue))
}

impl<T> Sender<T> {
    /// Puts an item in when there is room, or gives it back when the receiver is gone.
    pub(crate) async fn send(&self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        poll_fn(|cx| self.poll_send(cx, &mut item)).await
    }

    fn poll_send(&self, cx: &Context<'_>, item: &mut Option<T>) -> Poll<Result<(), T>> {
        let mut queue = lock(&self.0);
        let taken = item.take().expect("a send is not polled after it is done");
        if queue.receiver_is_gone {
            return Poll::Ready(Err(taken));
        }
        if queue.items.len() >= queue.len_max {
            *item = Some(taken);
            queue.senders_waiting.add(cx.waker());
            return Poll::Pending;
        }
        queue.items.push_back(taken);
        let wakers = queue.receiver_waiting.take();
        drop(queue);
        wake(wakers);
        Poll::Ready(Ok(()))
    }

    /// An end that does not keep the queue open.
    pub(crate) fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.clone())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        lock(&self.0).senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let wakers = {
            let mut queue = lock(&self.0);
            queue.senders -= 1;
            if queue.senders == 0 { queue.receiver_waiting.take() } else { Vec::new() }
        };
        wake(wakers);
    }
}

impl<T> WeakSender<T> {
    /// A sender, while there are others and a receiver.
    pub(crate) fn upgrade(&self) -> Option<Sender<T>> {
        let mut queue = lock(&self.0);
        if queue.senders == 0 || queue.receiver_is_gone {
            return None;
        }
        queue.senders += 1;
        Some(Sender(self.0.clone()))
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Receiver<T> {
    /// The oldest item when there is one; none once all senders are gone and the queue is empty.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        poll_fn(|cx| match self.take(Some(cx)) {
            Taken::Item(item) => Poll::Ready(Some(item)),
            Taken::Closed => Poll::Ready(None),
            Taken::Empty => Poll::Pending,
        })
        .await
    }

    /// What there is now.
    pub(crate) fn try_recv(&mut self) -> Taken<T> {
        self.take(None)
    }

    fn take(&mut self, cx: Option<&mut Context<'_>>) -> Taken<T> {
        let mut queue = lock(&self.0);
        let Some(item) = queue.items.pop_front() else {
            if queue.senders == 0 {
                return Taken::Closed;
            }
            if let Some(cx) = cx {
                queue.receiver_waiting.add(cx.waker());
            }
            return Taken::Empty;
        };
        let wakers = queue.senders_waiting.take();
        drop(queue);
        wake(wakers);
        Taken::Item(item)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (items, wakers) = {
            let mut queue = lock(&self.0);
            queue.receiver_is_gone = true;
            (std::mem::take(&mut queue.items), queue.senders_waiting.take())
        };
        // Items may hold ends of this or of other channels: they go without the lock.
        drop(items);
        wake(wakers);
    }
}
