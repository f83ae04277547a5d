//! One question for all that want its answer: who comes while one is under way waits for the next, which asks for all of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::notify::Notify;

#[derive(Debug, Default)]
struct Rounds {
    /// Number of the last question that began.
    begun: u64,
    /// Number of the last one that ended, and whether it was answered.
    ended: u64,
    is_answered: bool,
    is_asking: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct SharedQuestion {
    rounds: Mutex<Rounds>,
    ended: Notify,
}

/// A question under way. Dropped without an answer, it leaves the next one to others.
struct Asking<'a> {
    shared: &'a SharedQuestion,
    number: u64,
}

impl SharedQuestion {
    /// Whether a question that began after this call was answered: this one or that of another caller. Dropping the future is
    /// safe.
    pub(super) async fn ask<F: Future<Output = bool>>(&self, question: impl Fn() -> F) -> bool {
        let own = self.lock().begun + 1;
        loop {
            let seen = self.ended.count();
            if let Some(is_answered) = self.answer_since(own) {
                return is_answered;
            }
            match self.begin() {
                Some(asking) => {
                    let is_answered = question().await;
                    asking.end(is_answered);
                }
                None => self.ended.notified_since(seen).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_since(&self, own: u64) -> Option<bool> {
        let rounds = self.lock();
        (rounds.ended >= own).then_some(rounds.is_answered)
    }

    fn begin(&self) -> Option<Asking<'_>> {
        let mut rounds = self.lock();
        if rounds.is_asking {
            return None;
        }
        rounds.is_asking = true;
        rounds.begun += 1;
        Some(Asking { shared: self, number: rounds.begun })
    }
}

impl Asking<'_> {
    fn end(self, is_answered: bool) {
        let mut rounds = self.shared.lock();
        (rounds.ended, rounds.is_answered) = (self.number, is_answered);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.shared.lock().is_asking = false;
        self.shared.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::future::poll_fn;
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    use super::*;

    /// A question that is answered when the cell says so; counts how often it was asked.
    fn question<'a>(asked: &'a Cell<u32>, answer: &'a Cell<Option<bool>>) -> impl Fn() -> Answer<'a> {
        move || {
            asked.set(asked.get() + 1);
            Box::pin(poll_fn(|_| answer.get().map_or(Poll::Pending, Poll::Ready)))
        }
    }

    type Answer<'a> = core::pin::Pin<Box<dyn Future<Output = bool> + 'a>>;

    #[test]
    fn who_comes_while_a_question_is_under_way_shares_the_next_one() {
        let (shared, asked, answer) = (SharedQuestion::default(), Cell::new(0), Cell::new(None));
        let cx = &mut Context::from_waker(Waker::noop());
        let mut first = pin!(shared.ask(question(&asked, &answer)));
        assert!(first.as_mut().poll(cx).is_pending());
        let mut second = pin!(shared.ask(question(&asked, &answer)));
        let mut third = pin!(shared.ask(question(&asked, &answer)));
        assert!(second.as_mut().poll(cx).is_pending() && third.as_mut().poll(cx).is_pending());
        assert_eq!(asked.get(), 1);
        answer.set(Some(true));
        assert_eq!(first.as_mut().poll(cx), Poll::Ready(true));
        answer.set(None);
        assert!(third.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        assert_eq!(asked.get(), 2, "the first one may have been asked too early for them");
        answer.set(Some(false));
        assert_eq!(third.as_mut().poll(cx), Poll::Ready(false));
        assert_eq!(second.as_mut().poll(cx), Poll::Ready(false), "one answer for both");
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn a_question_that_is_given_up_is_asked_by_the_next() {
        let (shared, asked, answer) = (SharedQuestion::default(), Cell::new(0), Cell::new(None));
        let cx = &mut Context::from_waker(Waker::noop());
        let mut first = Box::pin(shared.ask(question(&asked, &answer)));
        let mut second = pin!(shared.ask(question(&asked, &answer)));
        assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        drop(first);
        answer.set(Some(true));
        assert_eq!(second.as_mut().poll(cx), Poll::Ready(true));
        assert_eq!(asked.get(), 2);
    }
}
