//! Calls by way of a third server, where the link between two servers is cut.
//!
//! Two servers that cannot reach each other may both be reached by others. A third one makes the call directly and never hands it
//! on: a call takes two hops at most. Only methods that may run twice take that way ([`Repeatable`]), as a call whose answer was lost is
//! made again by way of the next server.
//!
//! A server that nobody reaches is not looked for by every call: after a try has failed, calls fail at once for [`AGAIN_AFTER`].
//! A way that was found is taken until it fails; the direct one is tried first each time, which costs nothing while there is no connection.
//!
//! Request by way of a third server: id of the server that is meant, 16 bytes, and the payload of the call. Answer: that of the call.

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_grid::CallOptions;
use ashlar_grid::error::{CallError, Reason, Refusal};
use ashlar_grid::handler::{HandlerId, Handlers, MalformedPayload, Method, Payload, RegisteredTwice};
use ashlar_grid::seam::{Lane, Runtime};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::{Node, WeakNode, no_member, stopped};

/// Third servers that are tried in a row.
const VIA_MAX: usize = 3;
/// How much longer than the call itself the way there and back may take.
const HOP: Duration = Duration::from_millis(500);
/// After a try that found no way the next one comes no sooner.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// Refused: the server cannot be reached from here either, or has not answered.
const UNREACHABLE: u32 = 1_000;

/// A method whose calls a third server may make for others. Running it twice is the same as once.
pub(crate) trait Repeatable: Method<Request: Clone + Send + Sync, Reply: Send> {
    /// The method by which a third server is asked.
    const BY_WAY: HandlerId;
}

/// Asks a third server to make the call.
struct ByWay<M>(PhantomData<M>);

impl<M: Repeatable> Method for ByWay<M> {
    const ID: HandlerId = M::BY_WAY;
    const LANE: Lane = M::LANE;
    type Request = Enclosed<M::Request>;
    type Reply = M::Reply;
}

/// A request, and the server that it is for.
#[derive(Debug, PartialEq, Eq)]
struct Enclosed<T> {
    server: ServerId,
    request: T,
}

impl<T: Payload> Payload for Enclosed<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.server.as_bytes());
        self.request.encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let (server, request) = bytes.split_first_chunk().ok_or(MalformedPayload)?;
        Ok(Self { server: ServerId::from_bytes(*server), request: T::decode(request)? })
    }
}

/// What is known of the way to a server that there is no link to.
#[derive(Debug, Clone, Copy)]
struct Way {
    via: Option<ServerId>,
    /// When others may be asked again.
    again_at: Instant,
    /// How often others were asked: each time begins with the next one.
    tries: usize,
}

/// Ways to servers that could not be reached directly: one for each that was called meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Detours(Mutex<BTreeMap<ServerId, Way>>);

impl Detours {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerId, Way>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The third servers to try now, of those that there is a connection to: the one that was found, or some, or none for a while.
    fn choose(&self, server: ServerId, now: Instant, connected: &[ServerId]) -> Vec<ServerId> {
        let mut ways = self.lock();
        let way = ways.entry(server).or_insert(Way { via: None, again_at: now, tries: 0 });
        if let Some(via) = way.via.filter(|via| connected.contains(via)) {
            return vec![via];
        }
        if way.again_at > now {
            return Vec::new();
        }
        let mut others: Vec<ServerId> = connected.iter().copied().filter(|other| *other != server).collect();
        let first = way.tries % others.len().max(1);
        others.rotate_left(first);
        others.truncate(VIA_MAX);
        *way = Way { via: None, again_at: now + AGAIN_AFTER, tries: way.tries.wrapping_add(1) };
        others
    }

    fn found(&self, server: ServerId, via: ServerId) {
        if let Some(way) = self.lock().get_mut(&server) {
            way.via = Some(via);
        }
    }

    fn failed(&self, server: ServerId, via: ServerId) {
        if let Some(way) = self.lock().get_mut(&server).filter(|way| way.via == Some(via)) {
            way.via = None;
        }
    }
}

/// Third servers by way of which a server may be reached that is not reached directly.
pub(crate) fn thirds<R: Runtime>(node: &Node<R>, server: ServerId) -> Vec<ServerId> {
    node.0.detours.choose(server, node.runtime().now(), &node.connected())
}

/// A third server has reached it, or has not.
pub(crate) fn note<R: Runtime>(node: &Node<R>, server: ServerId, via: ServerId, reached: bool) {
    if reached {
        node.0.detours.found(server, via);
    } else {
        node.0.detours.failed(server, via);
    }
}

/// A third server's refusal to be the way to a server that it does not reach either.
pub(crate) fn unreachable() -> Refusal {
    Refusal::new(UNREACHABLE, "the server cannot be reached from here either")
}

/// Makes a call directly, or by way of a third server if there is no link to the server.
///
/// # Errors
/// The refusal of the server that is meant; or why it was not reached directly, where no third one reached it either.
pub(crate) async fn call<R: Runtime, M: Repeatable>(
    node: &Node<R>,
    server: ServerId,
    request: &M::Request,
    within: Duration,
) -> Result<M::Reply, CallError> {
    let options = CallOptions { fail_fast: true, ..CallOptions::within(within) };
    match node.grid().call::<M>(server, request, options).await {
        Err(failed) if is_cut(&failed) => by_others::<R, M>(node, server, request, within).await.unwrap_or(Err(failed)),
        answered => answered,
    }
}

/// Whether a call failed for want of a link. A server that is slow or has too much to do is not asked twice for it.
pub(crate) fn is_cut(error: &CallError) -> bool {
    let of_link = [Reason::NotConnected, Reason::UnknownPeer, Reason::BreakerOpen];
    error.reason().is_some_and(|reason| matches!(reason, Reason::Disconnected(_)) || of_link.contains(&reason))
}

/// The answer that came by way of a third server, if one did.
async fn by_others<R: Runtime, M: Repeatable>(
    node: &Node<R>,
    server: ServerId,
    request: &M::Request,
    within: Duration,
) -> Option<Result<M::Reply, CallError>> {
    for via in thirds(node, server) {
        let options = CallOptions { fail_fast: true, ..CallOptions::within(within + HOP) };
        let enclosed = Enclosed { server, request: request.clone() };
        let answered = node.grid().call::<ByWay<M>>(via, &enclosed, options).await;
        let is_answer = match &answered {
            Ok(_) => true,
            Err(CallError::Refused(refusal)) => refusal.code != UNREACHABLE,
            Err(_) => false,
        };
        note(node, server, via, is_answer);
        if is_answer {
            return Some(answered);
        }
    }
    None
}

/// Makes calls of a method for others.
///
/// # Errors
/// It is served already.
pub(crate) fn serve<R: Runtime, M: Repeatable>(
    handlers: Handlers,
    node: &WeakNode<R>,
) -> Result<Handlers, RegisteredTwice> {
    let node = node.clone();
    handlers.serve::<ByWay<M>, _>(move |call, enclosed| {
        let node = node.clone();
        async move {
            let node = node.upgrade().ok_or_else(stopped)?;
            if !node.is_met(call.caller) {
                return Err(no_member());
            }
            let Enclosed { server, request } = enclosed;
            let left = call.deadline.saturating_since(node.runtime().now());
            let options = CallOptions { fail_fast: true, ..CallOptions::within(left) };
            node.grid().call::<M>(server, &request, options).await.map_err(|error| match error {
                CallError::Refused(refusal) => refusal,
                _ => unreachable(),
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    #[test]
    fn a_request_by_way_of_a_third_server_has_golden_bytes() {
        let enclosed = Enclosed { server: server(7), request: b"ab".to_vec() };
        let mut bytes = Vec::new();
        enclosed.encode(&mut bytes);
        assert_eq!(bytes, [&[7; 16][..], b"ab"].concat());
        assert_eq!(Enclosed::decode(&bytes).unwrap(), enclosed);
        assert!(Enclosed::<Vec<u8>>::decode(&bytes[..15]).is_err(), "cut");
    }

    #[test]
    fn a_server_that_nobody_reaches_is_not_looked_for_by_every_call() {
        let (detours, start) = (Detours::default(), Instant::from_nanos(1_000_000_000));
        let all: Vec<ServerId> = (1..=5).map(server).collect();
        let choose = |at: Instant, connected: &[ServerId]| detours.choose(server(1), at, connected);
        assert_eq!(choose(start, &all), [server(2), server(3), server(4)], "not the one that is meant");
        assert_eq!(choose(start + AGAIN_AFTER / 2, &all), [], "it was tried a moment ago");
        assert_eq!(choose(start + AGAIN_AFTER, &all), [server(3), server(4), server(5)], "others come first next time");
        // What was found is taken at once, until it fails or its own connection is gone.
        detours.found(server(1), server(3));
        assert_eq!(choose(start + AGAIN_AFTER, &all), [server(3)]);
        detours.failed(server(1), server(2));
        assert_eq!(choose(start + AGAIN_AFTER, &all), [server(3)], "another way failed");
        assert_eq!(choose(start + 2 * AGAIN_AFTER, &all[3..]), [server(4), server(5)], "its connection is gone");
        detours.found(server(1), server(4));
        detours.failed(server(1), server(4));
        assert_eq!(choose(start + 2 * AGAIN_AFTER, &all), []);
    }
}
