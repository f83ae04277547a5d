//! A candidate asks a member of its shard for a promise, by a call on the grid.
//!
//! The grid proves which server asks; the member's server refuses a candidate of another server. The request waits in the member's
//! [mailbox](super::mailboxes), because a promise is written to the drive before it is given, and no thread of the grid waits for a drive.

use core::future::poll_fn;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use ashlar_grid::CallOptions;
use ashlar_grid::error::Refusal;
use ashlar_grid::handler::{HandlerId, MalformedPayload, Method, Payload};
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_kv::Notify;
use ashlar_kv::cluster::map::Name;
use ashlar_kv::replicate::quorum::{Extent, PromiseAnswer, PromiseRequest, Refused, Term};
use ashlar_wire::id::ServerId;
use ashlar_wire::pack::{PackError, Reader, write_uint};

use super::assignment::server_of;
use super::mailboxes::{EngineMailboxes, PromiseCaller};
use crate::{Node, WeakNode};

/// How long a member may take to answer: a call, one write to the drive and its sync.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// The written form.
const VERSION: u64 = 1;

/// The server has no such engine, or the candidate is not the caller's.
const WRONG_ENGINE: u32 = 1;
/// Too many candidates wait for the engine, or the server stops.
const BUSY: u32 = 2;

/// See the head of this file.
pub(super) struct PromiseCall;

impl Method for PromiseCall {
    const ID: HandlerId = HandlerId::new(15);
    // A promise that was given may be given again.
    const IDEMPOTENT: bool = true;
    type Request = RequestForm;
    type Reply = AnswerForm;
}

/// The request as it is written: version, shard, epoch and life of the term, candidate, member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestForm(pub(super) PromiseRequest);

/// The answer as it is written: version, kind, and what belongs to the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerForm(pub(super) PromiseAnswer);

const LACKS_DATA: u64 = 0;
const PROMISED: u64 = 1;
const SUPERSEDED: u64 = 2;
const OTHER_SHARD: u64 = 3;
const UNKNOWN_CANDIDATE: u64 = 4;
const TERM_TOO_HIGH: u64 = 5;

fn write_name(out: &mut Vec<u8>, name: Name) {
    out.extend_from_slice(name.bytes());
}

fn write_term(out: &mut Vec<u8>, term: Term) {
    write_uint(out, term.epoch);
    write_uint(out, term.life);
}

fn read_name(reader: &mut Reader<'_>) -> Result<Name, MalformedPayload> {
    let (bytes, rest) = reader.remaining().split_first_chunk::<20>().ok_or(MalformedPayload)?;
    let name = Name::new(*bytes);
    *reader = Reader::new(rest);
    Ok(name)
}

fn malformed(_: PackError) -> MalformedPayload {
    MalformedPayload
}

fn read_term(reader: &mut Reader<'_>) -> Result<Term, MalformedPayload> {
    let epoch = reader.read_uint().map_err(malformed)?;
    Ok(Term { epoch, life: reader.read_uint().map_err(malformed)? })
}

fn check_version(reader: &mut Reader<'_>) -> Result<(), MalformedPayload> {
    if reader.read_uint().map_err(malformed)? == VERSION { Ok(()) } else { Err(MalformedPayload) }
}

fn check_end(reader: &Reader<'_>) -> Result<(), MalformedPayload> {
    if reader.remaining().is_empty() { Ok(()) } else { Err(MalformedPayload) }
}

impl Payload for RequestForm {
    fn encode(&self, out: &mut Vec<u8>) {
        let PromiseRequest { shard, term, candidate, member } = self.0;
        write_uint(out, VERSION);
        write_name(out, shard);
        write_term(out, term);
        write_name(out, candidate);
        write_name(out, member);
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        let (shard, term) = (read_name(&mut reader)?, read_term(&mut reader)?);
        let (candidate, member) = (read_name(&mut reader)?, read_name(&mut reader)?);
        check_end(&reader)?;
        Ok(Self(PromiseRequest { shard, term, candidate, member }))
    }
}

impl Payload for AnswerForm {
    fn encode(&self, out: &mut Vec<u8>) {
        write_uint(out, VERSION);
        match self.0 {
            PromiseAnswer::Promised(None) => write_uint(out, LACKS_DATA),
            PromiseAnswer::Promised(Some(Extent { term, position })) => {
                write_uint(out, PROMISED);
                write_term(out, term);
                write_uint(out, position);
            }
            PromiseAnswer::Superseded(term) => {
                write_uint(out, SUPERSEDED);
                write_term(out, term);
            }
            PromiseAnswer::Refused(Refused::OtherShard) => write_uint(out, OTHER_SHARD),
            PromiseAnswer::Refused(Refused::UnknownCandidate) => write_uint(out, UNKNOWN_CANDIDATE),
            PromiseAnswer::Refused(Refused::TermTooHigh) => write_uint(out, TERM_TOO_HIGH),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, MalformedPayload> {
        let mut reader = Reader::new(bytes);
        check_version(&mut reader)?;
        let answer = match reader.read_uint().map_err(malformed)? {
            LACKS_DATA => PromiseAnswer::Promised(None),
            PROMISED => {
                let term = read_term(&mut reader)?;
                let position = reader.read_uint().map_err(malformed)?;
                PromiseAnswer::Promised(Some(Extent { term, position }))
            }
            SUPERSEDED => PromiseAnswer::Superseded(read_term(&mut reader)?),
            OTHER_SHARD => PromiseAnswer::Refused(Refused::OtherShard),
            UNKNOWN_CANDIDATE => PromiseAnswer::Refused(Refused::UnknownCandidate),
            TERM_TOO_HIGH => PromiseAnswer::Refused(Refused::TermTooHigh),
            _ => return Err(MalformedPayload),
        };
        check_end(&reader)?;
        Ok(Self(answer))
    }
}

/// A request that waits for its engine.
#[derive(Debug)]
pub struct PendingPromise {
    request: PromiseRequest,
    reply: Arc<ReplySlot>,
}

#[derive(Debug, Default)]
struct ReplySlot {
    /// The answer; nothing in it if the engine has gone without one.
    answer: Mutex<Option<Option<PromiseAnswer>>>,
    told: Notify,
}

impl PendingPromise {
    fn new(request: PromiseRequest) -> (Self, Arc<ReplySlot>) {
        let reply = Arc::<ReplySlot>::default();
        (Self { request, reply: Arc::clone(&reply) }, reply)
    }

    /// What is asked.
    #[must_use]
    pub fn request(&self) -> &PromiseRequest {
        &self.request
    }

    /// Answers.
    pub fn answer(self, answer: PromiseAnswer) {
        self.reply.tell(Some(answer));
    }
}

impl Drop for PendingPromise {
    fn drop(&mut self) {
        self.reply.tell(None);
    }
}

impl ReplySlot {
    /// Only the first answer counts.
    fn tell(&self, answer: Option<PromiseAnswer>) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer);
        self.told.notify();
    }

    async fn told(&self) -> Option<PromiseAnswer> {
        loop {
            if let Some(answer) = *self.answer.lock().unwrap_or_else(PoisonError::into_inner) {
                return answer;
            }
            poll_fn(|cx| self.told.poll_notified(cx)).await;
        }
    }
}

/// A candidate of another server asks.
pub(super) async fn receive(
    mailboxes: &EngineMailboxes,
    caller: ServerId,
    request: PromiseRequest,
) -> Result<PromiseAnswer, Refusal> {
    if server_of(request.candidate).0 != caller {
        return Err(Refusal::new(WRONG_ENGINE, "the candidate is an engine of another server than the caller"));
    }
    // The last bit of an engine's tag is its number.
    let number = (server_of(request.member).1 & 1) as usize;
    let (pending, reply) = PendingPromise::new(request);
    if !mailboxes.want_promise(number, pending) {
        return Err(Refusal::new(BUSY, "the engine has too many requests for a promise, or stops: try again"));
    }
    reply.told().await.ok_or_else(|| Refusal::new(BUSY, "the engine stops"))
}

/// Asks by calls of this node.
pub(super) fn caller<R: Runtime>(node: WeakNode<R>) -> PromiseCaller {
    Box::new(move |request| -> BoxFuture<Option<PromiseAnswer>> {
        let node = node.clone();
        Box::pin(async move { call(&node.upgrade()?, request).await })
    })
}

async fn call<R: Runtime>(node: &Node<R>, request: PromiseRequest) -> Option<PromiseAnswer> {
    let options = CallOptions { fail_fast: true, ..CallOptions::within(ANSWER_MAX) };
    let server = server_of(request.member).0;
    match node.grid().call::<PromiseCall>(server, &RequestForm(request), options).await {
        Ok(AnswerForm(answer)) => Some(answer),
        Err(error) => {
            tracing::debug!(%server, %error, "a member does not answer the candidate");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(payload: &impl Payload) -> String {
        let mut bytes = Vec::new();
        payload.encode(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn name(byte: u8) -> Name {
        Name::new([byte; 20])
    }

    #[test]
    fn golden_bytes_of_the_request() {
        let term = Term { epoch: 300, life: 2 };
        let request = RequestForm(PromiseRequest { shard: name(1), term, candidate: name(2), member: name(3) });
        let names = ["01", "02", "03"].map(|byte| byte.repeat(20));
        assert_eq!(hex(&request), format!("01{}cd012c02{}{}", names[0], names[1], names[2]));
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert_eq!(RequestForm::decode(&bytes), Ok(request));
        (0..bytes.len()).for_each(|end| assert_eq!(RequestForm::decode(&bytes[..end]), Err(MalformedPayload)));
        assert_eq!(RequestForm::decode(&[&bytes[..], &[0]].concat()), Err(MalformedPayload));
    }

    #[test]
    fn golden_bytes_of_the_answers() {
        let term = Term { epoch: 7, life: 1 };
        for (answer, golden) in [
            (PromiseAnswer::Promised(None), "0100"),
            (PromiseAnswer::Promised(Some(Extent { term, position: 200 })), "01010701ccc8"),
            (PromiseAnswer::Superseded(term), "01020701"),
            (PromiseAnswer::Refused(Refused::OtherShard), "0103"),
            (PromiseAnswer::Refused(Refused::UnknownCandidate), "0104"),
            (PromiseAnswer::Refused(Refused::TermTooHigh), "0105"),
        ] {
            assert_eq!(hex(&AnswerForm(answer)), golden);
            let mut bytes = Vec::new();
            AnswerForm(answer).encode(&mut bytes);
            assert_eq!(AnswerForm::decode(&bytes), Ok(AnswerForm(answer)));
            assert_eq!(AnswerForm::decode(&[&bytes[..], &[0]].concat()), Err(MalformedPayload), "{golden}");
        }
        assert_eq!(AnswerForm::decode(&[1, 6]), Err(MalformedPayload));
        assert_eq!(AnswerForm::decode(&[2, 0]), Err(MalformedPayload));
    }
}
