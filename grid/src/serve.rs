//! Handlers as tasks: those that wait, and streams. They end with their caller's interest.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use std::sync::Arc;

use crate::cancel::Cancelled;
use crate::error::Outcome;
use crate::handler::{Answered, CallContext, Place, Served, StreamFn};
use crate::link::Link;
use crate::message::MuxId;
use crate::mux::encode_refusal;
use crate::mux::streams::StreamKey;
use crate::stream::ServerStream;

/// Runs a served call that was begun in `place` to its answer, or until its caller leaves.
pub(crate) fn call(
    link: Arc<Link>,
    id: MuxId,
    served: Arc<Served>,
    place: Box<dyn Place>,
    mut cancelled: Cancelled,
) -> impl Future<Output = ()> {
    let running = Running { link, id, served, place: Some(place), is_over: false };
    async move {
        // All of it, so that it answers also where this task is dropped before its first turn.
        let mut running = running;
        let mut answer = Vec::new();
        let answered = poll_fn(|cx| {
            if Pin::new(&mut cancelled).poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            let place = running.place.as_mut().expect("given back at the end only");
            place.poll(cx, &mut answer).map(Some)
        })
        .await;
        if let Some(answered) = answered {
            reply(&running.link, id, answered, answer);
        }
        running.is_over = true;
    }
}

/// Sends what a handler answered.
pub(crate) fn reply(link: &Arc<Link>, id: MuxId, answered: Answered, answer: Vec<u8>) {
    let (outcome, answer) = match answered {
        Answered::Ok => (Outcome::Ok, answer),
        Answered::Refused(refusal) => (Outcome::Refused, encode_refusal(&refusal)),
        Answered::Malformed => (Outcome::Malformed, Vec::new()),
    };
    link.lock().reply(id, outcome, answer);
}

/// A served call that is a task. One that is dropped before its end still answers: the handler ran and failed.
struct Running {
    link: Arc<Link>,
    id: MuxId,
    served: Arc<Served>,
    place: Option<Box<dyn Place>>,
    is_over: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.served.give_back(place);
        }
        if !self.is_over {
            self.link.lock().reply(self.id, Outcome::Failed, Vec::new());
        }
    }
}

/// Runs a stream's handler to its return, or until its initiator leaves.
pub(crate) async fn stream(
    link: Arc<Link>,
    key: StreamKey,
    run: Arc<StreamFn>,
    context: CallContext,
    initial: Vec<u8>,
) {
    let guard = Unfinished { link, key, done: false };
    let cancelled = context.cancelled.clone();
    let stream = ServerStream::new(&guard.link, key);
    if let Some(result) = until_cancelled(cancelled, run(context, initial, stream)).await {
        if result.is_ok() {
            // A large last message leaves before the end does.
            poll_fn(|cx| guard.link.lock().poll_flushed(key, cx)).await;
        }
        guard.link.lock().finish_served(key, result);
        guard.disarm();
    }
}

/// A stream whose handler did not return: its initiator left, or its task was dropped.
struct Unfinished {
    link: Arc<Link>,
    key: StreamKey,
    done: bool,
}

impl Unfinished {
    fn disarm(mut self) {
        self.done = true;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.done {
            self.link.lock().refuse_stream(self.key, Outcome::Failed);
        }
    }
}

/// The value of `work`, or `None` once `cancelled`.
async fn until_cancelled<T>(cancelled: Cancelled, work: Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
    let mut cancelled = pin!(cancelled);
    let mut work = work;
    poll_fn(|cx| {
        if cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}
