//! Handlers as tasks: they end with their caller's interest.

use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use std::sync::Arc;

use crate::cancel::Cancelled;
use crate::error::Outcome;
use crate::handler::{Answered, CallContext, ServeFn, StreamFn};
use crate::link::Link;
use crate::message::MuxId;
use crate::mux::encode_refusal;
use crate::mux::streams::StreamKey;
use crate::stream::ServerStream;

/// Runs a served call to its answer, or until its caller leaves. A call that is cancelled before its first turn never
/// starts.
pub(crate) async fn call(link: Arc<Link>, id: MuxId, run: Arc<ServeFn>, context: CallContext, request: Vec<u8>) {
    let guard = Unanswered { link, id, done: false };
    if context.cancelled.is_cancelled() {
        return guard.disarm();
    }
    let cancelled = context.cancelled.clone();
    match until_cancelled(cancelled, run(context, request)).await {
        Some((answered, answer)) => {
            reply(&guard.link, id, answered, answer);
            guard.disarm();
        }
        None => guard.disarm(),
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

/// A task that is dropped before its end still answers: the handler ran and failed.
struct Unanswered {
    link: Arc<Link>,
    id: MuxId,
    done: bool,
}

impl Unanswered {
    fn disarm(mut self) {
        self.done = true;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.done {
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
