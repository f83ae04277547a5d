//! Subrequests of attached volumes: as calls between servers, and as requests of members of placement groups.
//!
//! The written form is that of `ashlar_volume::message`: a header, and the payload behind it. It is encoded straight into the
//! connection's frame. What a member refuses becomes one of the answers that an initiator knows.

use ashlar_grid::handler::{HandlerId, MalformedPayload, Method, Payload};
use ashlar_replica::Configuration;
use ashlar_replica::error::Refusal;
use ashlar_replica::request::{
    Answer as MemberAnswer, ClientRequest, ClientResult, Content, EXTENT_BYTES_MAX, Generation, Operation, Range,
    RequestId, Run, SessionId,
};
use ashlar_volume::initiator::{Answer, Subrequest};
use ashlar_volume::message::{AnswerHeader, AnswerKind, GroupConfig, RequestNumber, SubrequestHeader, Verb};
use bytes::Bytes;

use crate::detour::Repeatable;

/// Calls of attached volumes to the server that has the primary.
pub(super) struct VolumeIo;

impl Method for VolumeIo {
    const ID: HandlerId = HandlerId::new(64);
    type Request = Asked;
    type Reply = Answered;
}

/// A primary knows a subrequest that comes twice by its number.
impl Repeatable for VolumeIo {
    const BY_WAY: HandlerId = HandlerId::new(69);
}

/// A subrequest, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// The written form of the header. Sealed once, as a long call may be encoded twice.
    head: [u8; SubrequestHeader::LEN],
    pub(super) header: SubrequestHeader,
    pub(super) payload: Bytes,
}

impl From<&Subrequest> for Asked {
    fn from(subrequest: &Subrequest) -> Self {
        let Subrequest { header, payload, .. } = subrequest;
        Self { head: header.encode(payload), header: *header, payload: payload.clone() }
    }
}

impl Payload for Asked {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.payload);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let (head, payload) = bytes.split_first_chunk().ok_or(MalformedPayload)?;
        let header = SubrequestHeader::decode(head, payload).map_err(|_| MalformedPayload)?;
        Ok(Self { head: *head, header, payload: Bytes::copy_from_slice(payload) })
    }
}

/// The answer to a subrequest, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answered {
    head: [u8; AnswerHeader::LEN],
    kind: AnswerKind,
    number: RequestNumber,
    payload: Bytes,
}

impl Answered {
    /// The answer to the request of this number; nothing if there is none.
    pub(super) fn new(number: RequestNumber, answer: Answer) -> Option<Self> {
        let Answer::Answered(kind, payload) = answer else { return None };
        let payload_len = u32::try_from(payload.len()).expect("a payload is part of an extent");
        let head = AnswerHeader { number, kind, payload_len }.encode(&payload);
        Some(Self { head, kind, number, payload })
    }

    /// The answer, if it is one to the request of this number.
    pub(super) fn answer_to(self, number: RequestNumber) -> Answer {
        if self.number == number { Answer::Answered(self.kind, self.payload) } else { Answer::Lost }
    }
}

impl Payload for Answered {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.payload);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let (head, payload) = bytes.split_first_chunk().ok_or(MalformedPayload)?;
        let AnswerHeader { number, kind, .. } = AnswerHeader::decode(head, payload).map_err(|_| MalformedPayload)?;
        Ok(Self { head: *head, kind, number, payload: Bytes::copy_from_slice(payload) })
    }
}

/// An answer without a payload.
pub(super) const fn answered(kind: AnswerKind) -> Answer {
    Answer::Answered(kind, Bytes::new())
}

/// What the primary's member is asked; nothing for a range that no extent of a member has.
pub(super) fn client_request(header: &SubrequestHeader, payload: &Bytes) -> Option<ClientRequest> {
    let (offset, len) = (header.range.offset, header.range.len);
    let end = offset.checked_add(len).filter(|end| *end <= EXTENT_BYTES_MAX);
    end?;
    let write = |content| Operation::Write(Run { offset, content });
    let operation = match header.verb {
        Verb::Read => Operation::Read(Range { offset, len }),
        Verb::Presence => Operation::Presence(Range { offset, len }),
        Verb::Write => write(Content::Data(payload.clone())),
        Verb::Zero | Verb::Discard => write(Content::Zeroes(len)),
        // Blocks that were written keep their space.
        Verb::ZeroInPlace => write(Content::Data(Bytes::from(vec![0; len as usize]))),
    };
    Some(ClientRequest {
        session: SessionId(header.session.0),
        request: RequestId(header.number.0),
        // Reads have numbers too, and settle nothing.
        floor: RequestId(header.settled_below.min(header.number).0),
        generation: Generation(header.generation.0),
        epoch: header.epoch,
        extent: header.range.extent,
        operation,
    })
}

/// The answer of a member as an initiator's. `locate` says who leads a group by a configuration of it.
pub(super) fn answer_of(result: ClientResult, locate: impl Fn(&Configuration) -> Option<GroupConfig>) -> Answer {
    answered(match result {
        Ok(MemberAnswer::Read(data)) if !is_zeroes(&data) => return Answer::Answered(AnswerKind::Done, data),
        Ok(MemberAnswer::Read(_)) => AnswerKind::Zeroes,
        Ok(MemberAnswer::Written) => AnswerKind::Done,
        Err(Refusal::Fenced(_)) => AnswerKind::Fenced,
        Err(Refusal::Moved(configuration) | Refusal::Unknown(configuration)) => {
            AnswerKind::OtherEpoch(locate(&configuration))
        }
        Err(Refusal::BadRange | Refusal::OtherGroup) => AnswerKind::Wrong,
        Err(Refusal::GivenUp(_)) => AnswerKind::Settled,
        Err(Refusal::NoSpace) => AnswerKind::Full,
        Err(Refusal::Damaged) => AnswerKind::Damaged,
        Err(Refusal::Behind(_) | Refusal::NotServing | Refusal::TooFewCopies | Refusal::DriveFailed) => {
            AnswerKind::NotPrimary(None)
        }
        // Requests that a session has too many of become fewer when others are answered.
        Err(Refusal::TooFarAhead | Refusal::Busy) => AnswerKind::Busy { retry_after_ms: 0 },
    })
}

/// Whether bytes are all zero. Bytes that are not are mostly found out by the first of them.
fn is_zeroes(bytes: &[u8]) -> bool {
    let is_zero = |part: &[u8]| part.iter().fold(0, |all, byte| all | byte) == 0;
    let (chunks, rest) = bytes.as_chunks::<256>();
    chunks.iter().all(|chunk| is_zero(chunk)) && is_zero(rest)
}

#[cfg(test)]
mod tests;
