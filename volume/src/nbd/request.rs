//! Questions of a session to its owner, and the owner's answers.

use bytes::Bytes;

use super::protocol::{ErrorCode, allocation};
use crate::piece::Piece;

/// Names one request of one session. Never used again, so a client that uses a cookie twice confuses only itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What an export is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The client wants to know of it. The export need not stay.
    Describe,
    /// The client enters the transmission phase if the answer is an export.
    Enter,
}

/// What the owner is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// All exports: answer with [`Session::handle_exports`](super::Session::handle_exports).
    List,
    /// An export: answer with [`Session::handle_export`](super::Session::handle_export).
    Lookup {
        /// Its name; empty for the default export.
        name: String,
        /// For what.
        purpose: Purpose,
    },
    /// Send what there is to send, then put TLS on the connection, then call
    /// [`Session::handle_tls`](super::Session::handle_tls).
    StartTls,
    /// IO on the export: answer with [`Session::handle_reply`](super::Session::handle_reply).
    Io(IoRequest),
    /// The client leaves. Requests in flight are still answered; the session finishes after the last.
    Disconnect,
}

/// One IO request, checked: within the export, aligned, allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoRequest {
    /// Goes with the answer.
    pub id: RequestId,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes, at least 1; 0 for a flush.
    pub len: u64,
    /// Whether what is written has to be durable when the reply is given.
    pub fua: bool,
    /// What to do there.
    pub io: Io,
}

/// What a client wants with a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Io {
    /// Read it: [`Reply::Data`].
    Read,
    /// Write these bytes: [`Reply::Done`].
    Write(Bytes),
    /// Make all writes durable that were answered before, on every connection: [`Reply::Done`].
    Flush,
    /// Its content is no longer needed: [`Reply::Done`].
    Trim,
    /// Write zeroes: [`Reply::Done`].
    WriteZeroes {
        /// The range may become a hole.
        may_punch: bool,
        /// Fail with [`ErrorCode::NotSupported`] unless this is faster than a write.
        fast_only: bool,
    },
    /// It will be read soon: [`Reply::Done`].
    Cache,
    /// Which parts are allocated: [`Reply::Status`].
    Status,
}

/// A part of a range with one allocation status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Bytes, at least 1.
    pub len: u64,
    /// Nothing is allocated there.
    pub is_hole: bool,
    /// It reads as zeroes.
    pub is_zero: bool,
}

impl Span {
    /// The flags on the wire.
    pub(super) const fn flags(self) -> u32 {
        (if self.is_hole { allocation::STATE_HOLE } else { 0 })
            | (if self.is_zero { allocation::STATE_ZERO } else { 0 })
    }
}

/// The owner's answer to an IO request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done. For what was written: visible to every later read on any connection, and durable if FUA was asked for.
    Done,
    /// What was read: pieces in ascending order that make up the whole range.
    Data(Vec<Piece>),
    /// Allocation from the start of the range on, at least one span. May end before the range does, or after it.
    Status(Vec<Span>),
    /// Failed.
    Failed {
        /// Why.
        code: ErrorCode,
        /// The first byte that is concerned, within the range, if that is known.
        offset: Option<u64>,
    },
}

impl Reply {
    /// A failure of the request as a whole.
    #[must_use]
    pub const fn failed(code: ErrorCode) -> Self {
        Self::Failed { code, offset: None }
    }
}
