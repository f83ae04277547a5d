//! Adapter between an NBD session and an initiator: requests as operations, results as replies.
//!
//! The owner keeps, for each request that it hands to the initiator, which session it came from and what it was.

use crate::block::BLOCK_BYTES;
use crate::error::Error;
use crate::initiator::{Op, Space};
use crate::nbd::{ErrorCode, Io, IoRequest, Reply, Span};
use crate::piece::Piece;

/// Bytes of which one request is told what is allocated: as many spans as a reply has, if they are of one block each.
pub const STATUS_BYTES_MAX: u64 = 16_384 * BLOCK_BYTES as u64;

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
/// Of a long range only the beginning is asked for its allocation: a client asks for the rest.
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
        Io::Status => Op::Presence { offset, len: len.min(STATUS_BYTES_MAX) },
    })
}

/// Whether a request reads, which its reply has to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It asks what is allocated.
    Status,
    /// It does anything else.
    Other,
}

/// The reply to a request that the initiator has completed, or has not taken.
#[must_use]
pub fn reply_of(direction: Direction, result: Result<Vec<Piece>, Error>) -> Reply {
    match (direction, result) {
        (Direction::Read, Ok(pieces)) => Reply::Data(pieces),
        (Direction::Status, Ok(pieces)) => Reply::Status(pieces.iter().map(span_of).collect()),
        (Direction::Other, Ok(_)) => Reply::Done,
        (_, Err(error)) => Reply::failed(error_code_of(error)),
    }
}

/// What a client hears of a piece: blocks that are not stored are holes.
const fn span_of(piece: &Piece) -> Span {
    let is_hole = matches!(piece, Piece::Zeroes(_));
    Span { len: piece.len(), is_hole, is_zero: is_hole }
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
        assert_eq!(plan(Io::Status), Step::Submit(Op::Presence { offset, len }));
        let long = IoRequest { id: RequestId(1), offset, len: u64::MAX, fua: false, io: Io::Status };
        assert_eq!(plan_request(long), Step::Submit(Op::Presence { offset, len: STATUS_BYTES_MAX }));
    }

    #[test]
    fn results_become_replies() {
        let pieces = vec![Piece::Zeroes(3)];
        assert_eq!(reply_of(Direction::Read, Ok(pieces.clone())), Reply::Data(pieces));
        assert_eq!(reply_of(Direction::Other, Ok(vec![])), Reply::Done);
        let spans = [(3, true), (5, false)].map(|(len, is_hole)| Span { len, is_hole, is_zero: is_hole });
        let pieces = vec![Piece::Zeroes(3), Piece::Stored(5)];
        assert_eq!(reply_of(Direction::Status, Ok(pieces)), Reply::Status(spans.to_vec()));
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
