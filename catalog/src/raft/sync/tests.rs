//! Channels and the mutex, polled by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::mpsc::Taken;
use super::{mpsc, mutex, oneshot, watch};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that counts how often it is woken.
struct Poller {
    count: Arc<Count>,
    waker: Waker,
}

impl Poller {
    fn new() -> Self {
        let count = Arc::new(Count::default());
        Self { waker: Waker::from(count.clone()), count }
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    fn woken(&self) -> usize {
        self.count.0.load(Ordering::Relaxed)
    }
}

#[test]
fn one_value_or_none() {
    let task = Poller::new();
    let (sender, mut receiver) = oneshot::channel();
    assert_eq!(task.poll(Pin::new(&mut receiver)), Poll::Pending);
    assert_eq!(sender.send(7), Ok(()));
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(Pin::new(&mut receiver)), Poll::Ready(Ok(7)));

    let (sender, mut receiver) = oneshot::channel::<u8>();
    assert_eq!(task.poll(Pin::new(&mut receiver)), Poll::Pending);
    drop(sender);
    assert_eq!(task.woken(), 2);
    assert_eq!(task.poll(Pin::new(&mut receiver)), Poll::Ready(Err(oneshot::Canceled)));

    let (sender, receiver) = oneshot::channel();
    drop(receiver);
    assert_eq!(sender.send(7), Err(7), "given back");
}

#[test]
fn a_queue_has_a_limit_and_an_order() {
    let (task, other) = (Poller::new(), Poller::new());
    let (sender, mut receiver) = mpsc::channel(2);
    for item in [1, 2] {
        assert_eq!(task.poll(pin!(sender.send(item))), Poll::Ready(Ok(())));
    }
    let mut third = Box::pin(sender.send(3));
    assert_eq!(task.poll(third.as_mut()), Poll::Pending);
    assert_eq!(task.poll(third.as_mut()), Poll::Pending);
    assert_eq!(receiver.try_recv(), Taken::Item(1));
    assert_eq!(task.woken(), 1, "once, however often it was polled");
    assert_eq!(task.poll(third.as_mut()), Poll::Ready(Ok(())));
    drop(third);
    assert_eq!([receiver.try_recv(), receiver.try_recv()], [Taken::Item(2), Taken::Item(3)]);
    assert_eq!(receiver.try_recv(), Taken::Empty);

    let weak = sender.downgrade();
    let again = weak.upgrade().unwrap();
    drop(sender);
    assert_eq!(other.poll(pin!(receiver.recv())), Poll::Pending);
    drop(again);
    assert_eq!(other.woken(), 1, "the last sender is gone");
    assert_eq!(other.poll(pin!(receiver.recv())), Poll::Ready(None));
    assert!(weak.upgrade().is_none());

    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    assert_eq!(task.poll(pin!(sender.send(5))), Poll::Ready(Err(5)));
}

#[test]
fn a_reader_sees_the_latest_value_once() {
    let task = Poller::new();
    let (sender, mut receiver) = watch::channel(0);
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Pending, "the first value counts as seen");
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Ready(true));
    assert_eq!(*receiver.borrow(), 2);
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Pending);
    assert!(!sender.send_if_modified(|_| false));
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Pending);
    assert!(sender.send_if_modified(|value| {
        *value = 3;
        true
    }));
    assert_eq!(*receiver.borrow_and_update(), 3);
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Pending, "it was seen");
    drop(sender);
    assert_eq!(task.poll(pin!(receiver.changed())), Poll::Ready(false));

    let (sender, receiver) = watch::channel(0);
    drop(receiver);
    assert_eq!(sender.send(1), Err(1));
    let late = sender.subscribe();
    sender.send(2).unwrap();
    assert_eq!(*late.borrow(), 2);
}

#[test]
fn one_task_at_a_time_has_the_mutex() {
    let task = Poller::new();
    let mutex = mutex::Mutex::new(1);
    let Poll::Ready(mut guard) = task.poll(pin!(mutex.lock())) else { panic!("nobody has it") };
    *guard += 1;
    let mut waiting = Box::pin(mutex.lock());
    assert!(task.poll(waiting.as_mut()).is_pending());
    drop(guard);
    assert_eq!(task.woken(), 1);
    let Poll::Ready(guard) = task.poll(waiting.as_mut()) else { panic!("it is free") };
    assert_eq!(*guard, 2);
}

#[test]
fn an_end_lives_as_long_as_the_last_of_its_copies() {
    let (task, other) = (Poller::new(), Poller::new());
    let (sender, mut receiver) = mpsc::channel(2);
    let copies = [sender.clone(), sender.clone()];
    drop(sender);
    let [first, last] = copies;
    drop(first);
    assert_eq!(task.poll(pin!(receiver.recv())), Poll::Pending, "one can still send");
    assert_eq!(task.poll(pin!(last.send(7))), Poll::Ready(Ok(())));
    drop(last);
    assert_eq!([receiver.try_recv(), receiver.try_recv()], [Taken::Item(7), Taken::Closed]);

    let (sender, mut receiver) = watch::channel(0);
    let copies = [sender.clone(), sender.clone()];
    let more = receiver.clone();
    drop(sender);
    let [first, last] = copies;
    assert_eq!(other.poll(pin!(receiver.changed())), Poll::Pending);
    drop(first);
    assert_eq!(other.woken(), 0, "one can still send");
    drop(receiver);
    assert_eq!(last.send(1), Ok(()), "one still reads");
    let mut receiver = more.clone();
    drop(more);
    assert_eq!(other.poll(pin!(receiver.changed())), Poll::Ready(true), "a copy has seen what its original had");
    assert_eq!(other.poll(pin!(receiver.changed())), Poll::Pending);
    let before = other.woken();
    drop(last);
    assert_eq!(other.woken(), before + 1, "nobody sends any more");
    assert_eq!(other.poll(pin!(receiver.changed())), Poll::Ready(false));
}
