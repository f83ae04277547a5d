//! Adapter between an NBD session and an initiator: requests as operations, results as replies.
//!
//! The owner keeps, for each request that it hands to the initiator, which session it came from and what it was.

use crate::error::Error;
use crate::initiator::{Op, Space};
use crate::nbd::{ErrorCode, Io, IoRequest, Reply, Span};
use crate::piece::Piece;

/// What becomes of an NBD request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The initiator does it; its result becomes a reply by [`reply_of`].
    Submit(Op),
    /// It is answered at once.
    Reply(Reply),
}

/// What to do with a request. FUA needs nothing: every write is durable when it is completed.
///
/// Allocation is not asked for yet, so everything counts as data: what the NBD specification lets a server say always.
#[must_use]
pub fn plan_request(request: IoRequest) -> Step {
    let IoRequest { offset, len, io, .. } = request;
    Step::Submit(match io {
        Io::Read => Op::Read { offset, len },
        Io::Write(data) => Op::Write { offset, data },
        Io::Flush => Op::Flush,
        Io::Trim => Op::Discard { offset, len },
        // Zeroes are requests without payload, so they are always faster than a write.
        Io::WriteZeroes { may_punch, fast_only: _ } => {
            Op::Zero { offset, len, space: if may_punch { Space::Release } else { Space::Keep } }
        }
        Io::Cache => return Step::Reply(Reply::Done),
        Io::Status => return Step::Reply(Reply::Status(vec![Span { len, is_hole: false, is_zero: false }])),
    })
}

/// Whether a request reads, which its reply has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It does anything else.
    Other,
}

/// The reply to a request that the initiator has completed, or has not taken.
#[must_use]
pub fn reply_of(direction: Direction, result: Result<Vec<Piece>, Error>) -> Reply {
    match (direction, result) {
        (Direction::Read, Ok(pieces)) => Reply::Data(pieces),
        (Direction::Other, Ok(_)) => Reply::Done,
        (_, Err(error)) => Reply::failed(error_code_of(error)),
    }
}

/// The number by which a client hears of an error.
#[must_use]
pub const fn error_code_of(error: Error) -> ErrorCode {
    match error {
        Error::BehindEnd { .. } | Error::EmptyRange => ErrorCode::Invalid,
        Error::Full => ErrorCode::NoSpace,
        // A client that hears this leaves.
        Error::Fenced => ErrorCode::Shutdown,
        Error::TooMuchInFlight
        | Error::UnknownSet(_)
        | Error::BadPart
        | Error::OtherTable(_)
        | Error::TimedOut
        | Error::BadAnswer
        | Error::Rejected
        | Error::Damaged => ErrorCode::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::RequestId;
    use bytes::Bytes;

    #[test]
    fn requests_become_operations() {
        let (offset, len) = (5, 3);
        let plan = |io| plan_request(IoRequest { id: RequestId(1), offset, len, fua: true, io });
        let zeroes = |may_punch| Io::WriteZeroes { may_punch, fast_only: true };
        let data = Bytes::from_static(b"abc");
        for (io, op) in [
            (Io::Read, Op::Read { offset, len }),
            (Io::Write(data.clone()), Op::Write { offset, data }),
            (Io::Flush, Op::Flush),
            (Io::Trim, Op::Discard { offset, len }),
            (zeroes(true), Op::Zero { offset, len, space: Space::Release }),
            (zeroes(false), Op::Zero { offset, len, space: Space::Keep }),
        ] {
            assert_eq!(plan(io), Step::Submit(op));
        }
        assert_eq!(plan(Io::Cache), Step::Reply(Reply::Done));
        let span = Span { len, is_hole: false, is_zero: false };
        assert_eq!(plan(Io::Status), Step::Reply(Reply::Status(vec![span])));
    }

    #[test]
    fn results_become_replies() {
        let pieces = vec![Piece::Zeroes(3)];
        assert_eq!(reply_of(Direction::Read, Ok(pieces.clone())), Reply::Data(pieces));
        assert_eq!(reply_of(Direction::Other, Ok(vec![])), Reply::Done);
        for (error, code) in [
            (Error::Fenced, ErrorCode::Shutdown),
            (Error::Full, ErrorCode::NoSpace),
            (Error::Damaged, ErrorCode::Io),
            (Error::TimedOut, ErrorCode::Io),
            (Error::EmptyRange, ErrorCode::Invalid),
        ] {
            assert_eq!(reply_of(Direction::Read, Err(error)), Reply::failed(code));
        }
    }
}
