//! Calls about shards and ranges to other servers, by way of a third one where the link to a server is cut.
//!
//! A server that does not answer may be reached by others. The third server makes the call directly, and never hands it on: a call takes
//! two hops at most. Whether a call can have been carried out is told to the caller, because a commit may not be repeated then.
//!
//! Request of the relay: version 1, kind, id of the server that is meant, and the payload of the call. Its answer is that of the call.

use core::time::Duration;

use ashlar_grid::CallOptions;
use ashlar_grid::error::{CallError, Refusal};
use ashlar_grid::handler::{HandlerId, Method, Payload};
use ashlar_grid::seam::{Lane, Runtime};
use ashlar_object::index::{Reply, Request};
use ashlar_placement::map::GroupId;
use ashlar_wire::id::ServerId;
use bytes::Bytes;

use super::form::{DriveCall, decode_to_range, encode_to_range};
use super::service::{AskRange, GetShard, ObjectNode, PutShard};
use crate::Node;

/// A call that is made for another server.
pub(super) struct Relay;

impl Method for Relay {
    const ID: HandlerId = HandlerId::new(99);
    const LANE: Lane = Lane::Bulk;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

const VERSION: u8 = 1;
/// Bytes before the payload.
const HEAD: usize = 18;
/// Third servers that are tried for one call.
const VIA_MAX: usize = 2;
/// How much longer than the call itself the way there and back may take.
const HOP: Duration = Duration::from_millis(500);

/// The form is not known, or asks a server to relay to itself.
const MALFORMED: u32 = 1;
/// The call was certainly not carried out.
const NOT_DONE: u32 = 2;
/// The call may have been carried out.
const UNKNOWN: u32 = 3;

/// What is asked of another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// A request to the owner of a range.
    Range(Vec<u8>),
    /// A shard to be kept or removed.
    PutShard(DriveCall),
    /// Bytes of a shard.
    GetShard(DriveCall),
    /// A request to whoever owns the range, as the third server knows it; the id of a server says nothing then.
    Owner(Vec<u8>),
}

/// Why a call brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It was certainly not carried out.
    NotDone,
    /// It may have been.
    Unknown,
}

impl From<CallError> for NoAnswer {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) if refusal.code == UNKNOWN => Self::Unknown,
            CallError::Refused(_) | CallError::NotSent(_) | CallError::NotExecuted(_) => Self::NotDone,
            CallError::Unknown(_) => Self::Unknown,
        }
    }
}

fn encode(asked: &Asked, server: ServerId) -> Vec<u8> {
    let kind = match asked {
        Asked::Range(_) => 0,
        Asked::PutShard(_) => 1,
        Asked::GetShard(_) => 2,
        Asked::Owner(_) => 3,
    };
    let mut out = [&[VERSION, kind], &server.as_bytes()[..]].concat();
    match asked {
        Asked::Range(request) | Asked::Owner(request) => request.encode(&mut out),
        Asked::PutShard(request) | Asked::GetShard(request) => request.encode(&mut out),
    }
    out
}

fn decode(bytes: &[u8]) -> Option<(Asked, ServerId)> {
    let (head, payload) = bytes.split_at_checked(HEAD)?;
    let payload = payload.to_vec();
    let asked = match head[..2] {
        [VERSION, 0] => Asked::Range(payload),
        [VERSION, 1] => Asked::PutShard(DriveCall::Written(payload)),
        [VERSION, 2] => Asked::GetShard(DriveCall::Written(payload)),
        [VERSION, 3] => Asked::Owner(payload),
        _ => return None,
    };
    Some((asked, ServerId::from_bytes(head[2..].try_into().ok()?)))
}

/// Makes the call directly.
pub(super) async fn direct<R: Runtime>(
    node: &Node<R>,
    server: ServerId,
    asked: &Asked,
    span: Duration,
) -> Result<Vec<u8>, NoAnswer> {
    let options = CallOptions { fail_fast: true, ..CallOptions::within(span) };
    let grid = node.grid();
    let answer = match asked {
        Asked::Range(request) | Asked::Owner(request) => grid.call::<AskRange>(server, request, options).await,
        Asked::PutShard(request) => grid.call::<PutShard>(server, request, options).await,
        Asked::GetShard(request) => grid.call::<GetShard>(server, request, options).await,
    };
    answer.map_err(NoAnswer::from)
}

/// Asks a server for a shard, and third ones if it does not answer: such calls may be repeated.
pub(super) async fn ask_shard<R: Runtime>(
    node: &Node<R>,
    server: ServerId,
    asked: &Asked,
    span: Duration,
) -> Result<Vec<u8>, NoAnswer> {
    match direct(node, server, asked, span).await {
        Ok(answer) => Ok(answer),
        Err(_) => by_others(node, server, asked, span, true).await,
    }
}

/// Has third servers ask whoever owns the range as they know it. A commit is handed to the next one only if it was certainly not
/// carried out by way of the one before.
pub(super) async fn ask_elsewhere<R: Runtime>(
    node: &Node<R>,
    group: GroupId,
    request: &Request,
    span: Duration,
) -> Result<Reply, NoAnswer> {
    let payload = encode_to_range(group, &request.encode());
    let repeats = !matches!(request, Request::Commit { .. });
    let answer = by_others(node, node.id(), &Asked::Owner(payload), span, repeats).await?;
    Reply::decode(Bytes::from(answer)).map_err(|_| NoAnswer::Unknown)
}

async fn by_others<R: Runtime>(
    node: &Node<R>,
    server: ServerId,
    asked: &Asked,
    span: Duration,
    repeats: bool,
) -> Result<Vec<u8>, NoAnswer> {
    let mut failed = NoAnswer::NotDone;
    let third = node.connected().into_iter().filter(|other| *other != server).take(VIA_MAX);
    for via in third.collect::<Vec<ServerId>>() {
        let options = CallOptions { fail_fast: true, ..CallOptions::within(span + HOP) };
        match node.grid().call::<Relay>(via, &encode(asked, server), options).await {
            Ok(answer) => return Ok(answer),
            Err(error) => failed = NoAnswer::from(error),
        }
        if failed == NoAnswer::Unknown && !repeats {
            return Err(failed);
        }
    }
    Err(failed)
}

/// Another server asks for a call to a third one, or to the owner of a range as this server knows it.
pub(super) async fn relay<R: Runtime>(
    service: &ObjectNode<R>,
    node: &Node<R>,
    request: &[u8],
    span: Duration,
) -> Result<Vec<u8>, Refusal> {
    let malformed = || Refusal::new(MALFORMED, "no call that this server can make for another one");
    let (asked, server) = decode(request).ok_or_else(malformed)?;
    let answer = match asked {
        Asked::Owner(payload) => {
            let (group, form) = decode_to_range(Bytes::from(payload)).map_err(|_| malformed())?;
            let request = Request::decode(form).map_err(|_| malformed())?;
            service.ask_owner(node, group, &request).await.map(|reply| reply.encode())
        }
        _ if server == node.id() => return Err(malformed()),
        asked => direct(node, server, &asked, span).await,
    };
    answer.map_err(|failed| match failed {
        NoAnswer::NotDone => Refusal::new(NOT_DONE, "the server cannot be reached from here either"),
        NoAnswer::Unknown => Refusal::new(UNKNOWN, "the server was asked, and has not answered"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let server = ServerId::from_bytes([7; 16]);
        let (payload, call) = (b"ab".to_vec(), DriveCall::Written(b"ab".to_vec()));
        for (asked, kind) in [
            (Asked::Range(payload.clone()), 0),
            (Asked::PutShard(call.clone()), 1),
            (Asked::GetShard(call), 2),
            (Asked::Owner(payload), 3),
        ] {
            let bytes = encode(&asked, server);
            assert_eq!(bytes, [&[1, kind][..], &[7; 16], b"ab"].concat());
            assert_eq!(decode(&bytes), Some((asked, server)));
        }
        assert_eq!(decode(&[1; 17]), None, "cut");
        assert_eq!(decode(&[&[1, 4][..], &[7; 16]].concat()), None, "a later kind");
        assert_eq!(decode(&[&[2, 0][..], &[7; 16]].concat()), None, "a later version");
    }

    #[test]
    fn only_what_may_have_been_done_is_unknown() {
        let refused = |code| NoAnswer::from(CallError::Refused(Refusal::new(code, "")));
        assert_eq!(
            (refused(UNKNOWN), refused(NOT_DONE), refused(MALFORMED)),
            (NoAnswer::Unknown, NoAnswer::NotDone, NoAnswer::NotDone)
        );
    }
}
