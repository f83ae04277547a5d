//! How a call begins: at its connection, or handed over to it.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use ashlar_wire::time::Instant;

use crate::config::BULK_THRESHOLD;
use crate::error::CallError;
use crate::handover::HandedCall;
use crate::link::{Link, PendingCall};
use crate::mux::NewCall;
use crate::mux::calls::CallResult;
use crate::seam::Runtime;

/// A call that has begun.
pub(crate) enum Started<'a> {
    /// At its connection.
    Own(PendingCall<&'a Link>),
    /// Handed over to the connection's thread.
    Handed(HandedCall<'a>),
}

impl Future for Started<'_> {
    type Output = CallResult;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        match self.get_mut() {
            Self::Own(call) => Pin::new(call).poll(cx),
            Self::Handed(call) => Pin::new(call).poll(cx),
        }
    }
}

/// Why a call did not begin.
pub(crate) enum Start {
    /// The packed request is too long for the small lane.
    TakeBulk(Vec<u8>),
    Failed(CallError),
}

/// Begins a call on `link`, whose request `encode` appends to a buffer; `cx` is woken for its result, and polls it next.
///
/// # Errors
/// The call was not sent.
pub(crate) fn start<'a, R: Runtime>(
    runtime: &R,
    link: &'a Link,
    (now, call): (Instant, &NewCall<'_>),
    encode: &impl Fn(&mut Vec<u8>),
    cx: &Context<'_>,
) -> Result<Started<'a>, Start> {
    // A route has to be named to the peer first: that is for the connection itself.
    if call.route.is_empty()
        && let Some(handover) = link.handover(runtime.thread_number())
        && let Some(handed) = HandedCall::start(runtime, (link, handover), (call.handler, call.deadline), encode, cx)
    {
        return handed.map(Started::Handed).map_err(Start::Failed);
    }
    let mut mux = link.lock();
    let mut request = mux.take_scratch();
    encode(&mut request);
    if request.len() >= BULK_THRESHOLD {
        return Err(Start::TakeBulk(request));
    }
    let id = mux.start_scratch_call(now, call, request).map_err(Start::Failed)?;
    // Registered under the same lock: the first poll of the pending call has nothing left to do.
    let _: Poll<_> = mux.poll_call(id, cx);
    Ok(Started::Own(PendingCall::registered(link, id)))
}
