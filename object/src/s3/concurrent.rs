//! Futures side by side, a bounded number at once. Nothing of a runtime is needed: they are polled by the task that waits.

use core::future::poll_fn;
use core::task::Poll;

use crate::api::BoxFuture;

/// Runs futures, up to `at_once_max` at a time, and gives their results in the order of the futures.
///
/// # Panics
/// `at_once_max` is zero.
pub(super) async fn all<'a, T>(futures: impl Iterator<Item = BoxFuture<'a, T>>, at_once_max: usize) -> Vec<T> {
    assert!(at_once_max > 0, "nothing would ever run");
    let mut waiting = futures.enumerate().fuse();
    let mut running: Vec<(usize, BoxFuture<'a, T>)> = Vec::new();
    let mut done: Vec<Option<T>> = Vec::new();
    loop {
        while running.len() < at_once_max
            && let Some(next) = waiting.next()
        {
            running.push(next);
            done.push(None);
        }
        if running.is_empty() {
            return done.into_iter().map(|result| result.expect("every future has ended")).collect();
        }
        poll_fn(|cx| {
            let before = running.len();
            running.retain_mut(|(index, future)| match future.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    done[*index] = Some(result);
                    false
                }
                Poll::Pending => true,
            });
            if running.len() < before { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Waker};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_keep_their_order_and_few_run_at_once() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let futures = (0..20_usize).map(|index| -> BoxFuture<'_, usize> {
            let (running, most) = (&running, &most);
            Box::pin(async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                let mut polls_left = index * 7 % 5;
                poll_fn(|_| match polls_left {
                    0 => Poll::Ready(()),
                    _ => {
                        polls_left -= 1;
                        Poll::Pending
                    }
                })
                .await;
                running.fetch_sub(1, Ordering::Relaxed);
                index
            })
        });
        let mut all = pin!(all(futures, 3));
        let mut cx = Context::from_waker(Waker::noop());
        let results = loop {
            if let Poll::Ready(results) = all.as_mut().poll(&mut cx) {
                break results;
            }
        };
        assert_eq!(results, (0..20).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn whoever_waits_is_given_a_turn_only_when_something_has_ended() {
        let polls = AtomicUsize::new(0);
        let second_time: BoxFuture<'_, &str> = Box::pin(poll_fn(|_| match polls.fetch_add(1, Ordering::Relaxed) {
            0 => Poll::Pending,
            1 => Poll::Ready("done"),
            _ => panic!("it is asked once each time"),
        }));
        let first_time: BoxFuture<'_, &str> = Box::pin(core::future::ready("at once"));
        let mut all = pin!(all([second_time, first_time].into_iter(), 1));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!((all.as_mut().poll(&mut cx), polls.load(Ordering::Relaxed)), (Poll::Pending, 1));
        assert_eq!(all.as_mut().poll(&mut cx), Poll::Ready(vec!["done", "at once"]));
    }
}
