//! Initiator: the IO path of one attached volume at one server, as a value.
//!
//! A request for a range of bytes is cut into runs, each within one extent and in whole blocks. The extent's placement
//! group and its primary follow from the placement table and the group's configuration; a run becomes a request to that
//! primary, sent again until it is answered. Nothing is looked up: where no configuration is known yet, the table's
//! preferred primary is asked, and a server that knows better says so.
//!
//! Order: requests that overlap in a block, unless both are reads, run in the order in which they came. So a block that a
//! request covers in part can be read, changed and written back, and a repetition cannot overtake its successor.
//!
//! The owner's loop: give requests to [`Initiator::handle_request`]; send what [`Initiator::poll_subrequest`] gives, each
//! exactly as it is, and bring each exactly one [`Answer`] ([`Answer::Lost`] when the connection or its patience ended);
//! take completions; call [`Initiator::handle_timeout`] at [`Initiator::poll_timeout`].
//!
//! Failures: a primary that is gone, busy or no primary any more is waited for, with growing pauses, until the request's
//! deadline; without a deadline for ever, since a guest that waits loses nothing. A newer configuration ends the pauses
//! of its group. No room and damage are reported.
//!
//! In reading order: [`config`], `plan` (cutting), `route` (who to ask), `requests` (what the guest waits for, and in which
//! order), `tasks` (what servers are asked), `presence` (bits as pieces), `pacing`, [`attached`].

pub mod attached;
pub mod config;
mod pacing;
mod plan;
mod presence;
mod requests;
mod route;
mod tasks;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;
use bytes::Bytes;

use crate::error::Error;
use crate::message::{AnswerKind, RequestNumber, SubrequestHeader};
use crate::piece::Piece;

pub use attached::Initiator;
pub use config::{Attachment, Limits, Pacing};

/// Names a request of the owner in its completion. The owner chooses; the initiator does not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What becomes of the space of blocks that are zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// It may be given back.
    Release,
    /// It stays allocated, so that a later write does not fail for want of it.
    Keep,
}

/// What the guest wants. Ranges are bytes, aligned or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Read a range.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes, at least 1.
        len: u64,
    },
    /// Write bytes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes, at least one.
        data: Bytes,
    },
    /// Write zeroes.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes, at least 1.
        len: u64,
        /// What becomes of the space of whole blocks.
        space: Space,
    },
    /// Give up the content of whole blocks within a range.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes, at least 1.
        len: u64,
    },
    /// Say which parts of a range are stored: [`Piece::Stored`] and [`Piece::Zeroes`] of whole blocks, cut at the range's ends.
    Presence {
        /// First byte.
        offset: u64,
        /// Bytes, at least 1.
        len: u64,
    },
    /// Make durable what was completed. All of it is: completes at once.
    Flush,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub id: RequestId,
    /// For a read and a query of presence, pieces in ascending order that make up the range; for others, none. A change is durable on every acting
    /// copy and seen by every read that begins now. After an error a change may be done in part.
    pub result: Result<Vec<Piece>, Error>,
}

/// Names one sending of a subrequest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubrequestId {
    /// The same at each repetition.
    pub number: RequestNumber,
    /// Counts the repetitions, from 1.
    pub attempt: u32,
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subrequest {
    /// Goes with the answer.
    pub id: SubrequestId,
    /// To whom.
    pub server: ServerId,
    /// What.
    pub header: SubrequestHeader,
    /// The bytes of a write, shared with the guest's request and not copied; else none.
    pub payload: Bytes,
    /// After this nobody waits for the answer: [`Instant::NEVER`] without a deadline.
    pub deadline: Instant,
}

/// What became of one sending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A server has answered; the bytes are those of a read.
    Answered(AnswerKind, Bytes),
    /// No answer will come. The request may have been executed or not, or be executed later.
    Lost,
}

#[cfg(test)]
mod tests;
