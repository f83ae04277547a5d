//! Several futures at once, on one task.

use core::future::poll_fn;
use core::pin::{Pin, pin};
use core::task::Poll;

/// One of several futures.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What all of them give, in their order, when the last one is done. The caller bounds how many there are and how
/// long each takes.
pub async fn all<T>(futures: Vec<Pending<'_, T>>) -> Vec<T> {
    let mut slots: Vec<(Option<Pending<'_, T>>, Option<T>)> =
        futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|cx| {
        for (future, value) in &mut slots {
            if let Some(Poll::Ready(ready)) = future.as_mut().map(|future| future.as_mut().poll(cx)) {
                *value = Some(ready);
                *future = None;
            }
        }
        if slots.iter().all(|(future, _)| future.is_none()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    slots.into_iter().filter_map(|(_, value)| value).collect()
}

/// What both give, when the later one is done.
pub async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|cx| {
        if first.is_none() {
            first = ready(one.as_mut().poll(cx));
        }
        if second.is_none() {
            second = ready(other.as_mut().poll(cx));
        }
        match (first.take(), second.take()) {
            (Some(one), Some(other)) => Poll::Ready((one, other)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}

/// What a future gives, unless the other one ends before it.
pub async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match (one.as_mut().poll(cx), other.as_mut().poll(cx)) {
        (Poll::Ready(value), _) => Poll::Ready(Some(value)),
        (Poll::Pending, Poll::Ready(())) => Poll::Ready(None),
        (Poll::Pending, Poll::Pending) => Poll::Pending,
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use ashlar_grid::seam::BoxFuture;

    use super::*;
    use core::task::{Context, Waker};

    #[test]
    fn order_is_kept_and_nothing_is_polled_after_its_end() {
        let later = |polls: u32, value: u32| -> BoxFuture<u32> {
            let mut left = polls;
            Box::pin(poll_fn(move |_| {
                left = left.checked_sub(1).expect("not polled after its end");
                if left == 0 { Poll::Ready(value) } else { Poll::Pending }
            }))
        };
        let mut together = Box::pin(all(vec![later(3, 1), later(1, 2), later(2, 3)]));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(together.as_mut().poll(&mut cx).is_pending());
        assert!(together.as_mut().poll(&mut cx).is_pending());
        assert_eq!(together.as_mut().poll(&mut cx), Poll::Ready(vec![1, 2, 3]));
    }
}
