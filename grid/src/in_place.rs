//! Calls that are served where their requests were read.
//!
//! Most handlers answer without waiting. Their futures are polled once, right where the request was read and in memory that
//! is used again: no task, no allocation. Only one that waits becomes a task. What is served in place holds up what else the
//! connection has to do, so there is a budget of time for the calls that came together; those beyond it begin as tasks.

use core::task::{Context, Poll, Waker};
use core::time::Duration;

use ashlar_wire::time::Instant;

use crate::cancel::Cancelled;
use crate::handler::{Answered, CallContext, Place, Request, Served};
use crate::mux::Admission;
use crate::seam::Runtime;

/// How long calls that came together are served in place: some dozens of usual ones, and what a message behind them may wait.
const BUDGET: Duration = Duration::from_micros(100);
/// The clock is looked at after so many calls.
const CALLS_PER_LOOK: u32 = 4;

/// What serving in place needs, and how much of it is left for the calls that came together.
pub(crate) struct InPlace {
    admission: Admission,
    /// Taken from handlers, each with its handler's number; few handlers are called together.
    places: Vec<(u16, Box<dyn Place>)>,
    /// What the last call watched for its caller's leaving; the next one may have it.
    cancelled: Option<Cancelled>,
    ends_at: Instant,
    /// Calls until the clock is looked at; 0 where nothing is left of the budget.
    calls_until_look: u32,
}

/// A call that was begun and waits.
pub(crate) struct Waiting {
    pub(crate) place: Box<dyn Place>,
    pub(crate) cancelled: Cancelled,
}

impl InPlace {
    pub(crate) fn new() -> Self {
        Self {
            admission: Admission { is_open: false, calls: 0, bytes: 0 },
            places: Vec::new(),
            cancelled: None,
            ends_at: Instant::ORIGIN,
            calls_until_look: 0,
        }
    }

    /// What may run without the mux until the next word.
    pub(crate) fn admit(&mut self, admission: Admission) {
        self.admission = admission;
    }

    /// Calls that came together are served, from `now` on.
    pub(crate) fn begin(&mut self, now: Instant, admission: Admission) {
        self.admit(admission);
        self.ends_at = now + BUDGET;
        self.calls_until_look = CALLS_PER_LOOK;
    }

    /// The places that were taken from handlers, each with its handler's number: all calls were served.
    pub(crate) fn end(&mut self) -> impl Iterator<Item = (u16, Box<dyn Place>)> {
        self.places.drain(..)
    }

    /// Whether calls may run without the mux.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.admission.is_open
    }

    /// No call may run without the mux until the next word.
    pub(crate) fn close(&mut self) {
        self.admission.is_open = false;
    }

    /// Whether a call with a request of `bytes` bytes may begin in place, and wait then.
    #[inline]
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let Admission { is_open, calls, bytes: room } = self.admission;
        is_open && calls > 0 && bytes <= room && self.has_time()
    }

    /// Whether there is something left of the budget.
    #[inline]
    pub(crate) fn has_time(&self) -> bool {
        self.calls_until_look > 0
    }

    /// Serves a call of handler `number` until it has answered, with what it appends to `answer`, or waits. `context` makes
    /// what the handler knows of its caller.
    #[inline]
    pub(crate) fn serve<R: Runtime>(
        &mut self,
        runtime: &R,
        (number, served): (u16, &Served),
        context: impl FnOnce(Cancelled) -> CallContext,
        request: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Answered, Waiting> {
        let at = match self.places.iter().position(|(of, _)| *of == number) {
            Some(at) => at,
            None => {
                self.places.push((number, served.take_place()));
                self.places.len() - 1
            }
        };
        let place = &mut self.places[at].1;
        let cancelled = self.cancelled.take().map_or_else(Cancelled::default, Cancelled::reused);
        let polled = first_poll(&mut **place, context(cancelled.clone()), Request::Borrowed(request), answer);
        self.spend(runtime);
        match polled {
            Poll::Ready(answered) => {
                self.cancelled = Some(cancelled);
                Ok(answered)
            }
            Poll::Pending => {
                self.admission.calls -= 1;
                self.admission.bytes -= request.len();
                Err(Waiting { place: self.places.swap_remove(at).1, cancelled })
            }
        }
    }

    /// A call has run in place.
    #[inline]
    pub(crate) fn spend<R: Runtime>(&mut self, runtime: &R) {
        self.calls_until_look = self.calls_until_look.saturating_sub(1);
        if self.calls_until_look == 0 && runtime.now() < self.ends_at {
            self.calls_until_look = CALLS_PER_LOOK;
        }
    }
}

/// Begins a call in `place` and lets it run until it answers or waits. Nobody is woken when it can go on: it is polled again by
/// the task that it becomes.
pub(crate) fn first_poll(
    place: &mut dyn Place,
    context: CallContext,
    request: Request<'_>,
    answer: &mut Vec<u8>,
) -> Poll<Answered> {
    if place.begin(context, request) {
        place.poll(&mut Context::from_waker(Waker::noop()), answer)
    } else {
        Poll::Ready(Answered::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_begins_in_place_within_what_the_mux_admits() {
        let admission = |is_open, calls, bytes| Admission { is_open, calls, bytes };
        let cases = [
            (admission(true, 1, 10), 10, true),
            (admission(true, 2, 10), 0, true),
            (admission(true, 1, 10), 11, false),
            (admission(true, 0, 10), 10, false),
            (admission(true, 0, 10), 0, false),
            (admission(false, 1, 10), 10, false),
            (admission(false, 0, 0), 1, false),
        ];
        for (admission, bytes, expected) in cases {
            let mut in_place = InPlace::new();
            assert!(!in_place.is_open() && !in_place.has_time() && !in_place.admits(0), "before the first word");
            in_place.admit(admission);
            assert!(!in_place.admits(bytes), "nothing is served yet");
            in_place.begin(Instant::ORIGIN, admission);
            assert_eq!((in_place.admits(bytes), in_place.has_time()), (expected, true), "{admission:?}, {bytes} bytes");
            assert_eq!(in_place.is_open(), admission.is_open);
            in_place.close();
            assert!(!in_place.is_open() && !in_place.admits(0));
        }
    }
}
