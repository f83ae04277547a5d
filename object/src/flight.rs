//! Several futures under way in one task, their results taken in the order in which they were begun.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use std::collections::VecDeque;

use crate::api::BoxFuture;

/// Futures under way, the oldest first. Dropped, they end where they are.
pub(crate) struct Flight<'a, T>(VecDeque<Under<'a, T>>);

enum Under<'a, T> {
    Way(BoxFuture<'a, T>),
    Done(T),
}

impl<T> Under<'_, T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Done(_) => true,
            Self::Way(future) => match future.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    *self = Self::Done(value);
                    true
                }
                Poll::Pending => false,
            },
        }
    }
}

impl<'a, T> Flight<'a, T> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn push(&mut self, future: BoxFuture<'a, T>) {
        self.0.push_back(Under::Way(future));
    }

    /// What the oldest one gave, when it is done; the others go on meanwhile. Nothing if there is none.
    pub(crate) async fn next(&mut self) -> Option<T> {
        poll_fn(|cx| {
            let mut is_first_done = true;
            for (number, under) in self.0.iter_mut().enumerate() {
                let is_done = under.poll(cx);
                is_first_done &= is_done || number > 0;
            }
            if is_first_done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        match self.0.pop_front() {
            Some(Under::Done(value)) => Some(value),
            Some(Under::Way(_)) => unreachable!("the oldest one is done"),
            None => None,
        }
    }

    /// What another future gives; those under way go on meanwhile.
    pub(crate) async fn beside<O>(&mut self, other: impl Future<Output = O>) -> O {
        let mut other = pin!(other);
        poll_fn(|cx| {
            for under in &mut self.0 {
                under.poll(cx);
            }
            Pin::as_mut(&mut other).poll(cx)
        })
        .await
    }
}

/// What all of them give, in their order, when the last one is done.
pub(crate) async fn all<T>(futures: impl IntoIterator<Item = BoxFuture<'_, T>>) -> Vec<T> {
    let mut flight = Flight::new();
    futures.into_iter().for_each(|future| flight.push(future));
    let mut values = Vec::with_capacity(flight.len());
    while let Some(value) = flight.next().await {
        values.push(value);
    }
    values
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use core::task::Waker;

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Gives the number as soon as it may, and counts how often it was asked for.
    fn when<'a>((may, asked): (&'a AtomicBool, &'a AtomicUsize), number: usize) -> BoxFuture<'a, usize> {
        Box::pin(poll_fn(move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            if may.load(Ordering::Relaxed) { Poll::Ready(number) } else { Poll::Pending }
        }))
    }

    #[test]
    fn the_oldest_is_waited_for_and_the_others_go_on() {
        let (may, asked) = ([false, true, false].map(AtomicBool::new), [0; 3].map(AtomicUsize::new));
        let counts = || asked.each_ref().map(|asked| asked.load(Ordering::Relaxed));
        let mut flight = Flight::new();
        may.iter().zip(&asked).zip(0..).for_each(|(one, number)| flight.push(when(one, number)));
        assert_eq!((flight.len(), counts()), (3, [0, 0, 0]));
        {
            let mut next = pin!(flight.next());
            assert_eq!((poll(next.as_mut()), counts()), (Poll::Pending, [1, 1, 1]));
            may[0].store(true, Ordering::Relaxed);
            assert_eq!((poll(next.as_mut()), counts()), (Poll::Ready(Some(0)), [2, 1, 2]));
        }
        assert_eq!(poll(pin!(flight.next())), Poll::Ready(Some(1)), "the last one is not waited for");
        assert_eq!((poll(pin!(flight.beside(async { "other" }))), counts()), (Poll::Ready("other"), [2, 1, 4]));
        assert_eq!(poll(pin!(flight.next())), Poll::Pending);
        assert_eq!(flight.len(), 1);
        may[2].store(true, Ordering::Relaxed);
        assert_eq!(poll(pin!(flight.next())), Poll::Ready(Some(2)));
        assert_eq!(poll(pin!(flight.next())), Poll::Ready(None));
    }
}
