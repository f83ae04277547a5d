//! How calls and streams fail: by whose fault, whether the request ran, and so whether a retry is safe.
//!
//! The one question that a caller has after a failure is "may I send it again?". It is answered by the variant:
//! [`CallError::NotSent`] and [`CallError::NotExecuted`] always may; [`CallError::Unknown`] may if the request is
//! idempotent; [`CallError::Refused`] is the handler's own answer and no failure of the grid.

use core::fmt;

/// The handler's own "no": the request arrived, was understood and refused. Never a fault of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Meaning agreed between caller and handler.
    pub code: u32,
    /// For people; at most 1,000 bytes travel.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(code: u32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused ({}): {}", self.code, self.text)
    }
}

/// Why a call failed, named by what is known of its execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The handler refused. Retry: as the two agreed.
    Refused(Refusal),
    /// The request never left this server. Retry: always safe.
    NotSent(Reason),
    /// The peer has the request and did not start it. Retry: always safe.
    NotExecuted(Reason),
    /// The request was sent and no answer came: it may have run, may be running, or never will. Retry: if idempotent.
    Unknown(Reason),
}

impl CallError {
    /// Whether the same request may be sent again without asking what it does.
    #[must_use]
    pub const fn is_retry_safe(&self) -> bool {
        matches!(self, Self::NotSent(_) | Self::NotExecuted(_))
    }

    /// The cause, unless the handler itself refused.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused(_) => None,
            Self::NotSent(reason) | Self::NotExecuted(reason) | Self::Unknown(reason) => Some(*reason),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotSent(reason) => write!(f, "not sent: {reason}"),
            Self::NotExecuted(reason) => write!(f, "not executed: {reason}"),
            Self::Unknown(reason) => write!(f, "sent, outcome unknown: {reason}"),
        }
    }
}

impl core::error::Error for CallError {}

/// Whose fault a [`Reason`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This side asked for something that cannot be.
    Caller,
    /// The peer, or the way to it, could not do its part.
    Peer,
}

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The caller's deadline passed.
    Deadline,
    /// The caller left.
    Cancelled,
    /// The request or its answer is longer than the limit.
    TooLong,
    /// No server of that id is known here.
    UnknownPeer,
    /// The peer has no such handler, or not on that route.
    UnknownHandler,
    /// The payload is not what the handler, or the caller, expects.
    Malformed,
    /// There is no connection to the peer now.
    NotConnected,
    /// The connection was lost.
    Disconnected(Lost),
    /// In-flight limit reached, here or at the peer.
    Overloaded,
    /// The peer is draining.
    Draining,
    /// Too many failures in a row: not tried, to let the peer recover.
    BreakerOpen,
    /// The handler ended without an answer.
    HandlerFailed,
}

impl Reason {
    /// Whose fault it is.
    #[must_use]
    pub const fn fault(self) -> Fault {
        match self {
            Self::Deadline | Self::Cancelled | Self::TooLong | Self::UnknownPeer | Self::Malformed => Fault::Caller,
            _ => Fault::Peer,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "the deadline passed",
            Self::Cancelled => "cancelled",
            Self::TooLong => "longer than the limit",
            Self::UnknownPeer => "no such server is known",
            Self::UnknownHandler => "the peer has no such handler",
            Self::Malformed => "the payload is malformed",
            Self::NotConnected => "not connected",
            Self::Disconnected(lost) => return write!(f, "the connection was lost: {lost}"),
            Self::Overloaded => "overloaded",
            Self::Draining => "the peer is draining",
            Self::BreakerOpen => "the breaker is open after repeated failures",
            Self::HandlerFailed => "the handler ended without an answer",
        })
    }
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The peer closed it, or its process ended.
    Closed,
    /// The transport failed.
    Broken,
    /// Nothing was heard from the peer for too long.
    Silent,
    /// The peer broke the protocol.
    Protocol,
    /// Both sides dialed, and the other connection won.
    Replaced,
    /// The peer drained, and everything on it was finished.
    Drained,
    /// The peer did not prove a cluster secret that is still held.
    Unproved,
    /// This server ended it.
    Shutdown,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed by the peer",
            Self::Broken => "transport failed",
            Self::Silent => "peer is silent",
            Self::Protocol => "peer broke the protocol",
            Self::Replaced => "replaced by another connection",
            Self::Drained => "drained",
            Self::Unproved => "the peer did not prove the new cluster secret",
            Self::Shutdown => "shut down here",
        })
    }
}

/// Why a stream ended in any way but an orderly end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The other side's handler refused to go on.
    Refused(Refusal),
    /// The other side never started the stream. Retry: always safe.
    NotExecuted(Reason),
    /// The stream was cut: what was received is a prefix, what was sent may not have arrived.
    Cut(Reason),
    /// The end came, but not after the messages that were sent: count or digest differ. What was received is not whole.
    NotWhole,
    /// This side has ended the stream already.
    Finished,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NotExecuted(reason) => write!(f, "stream not started: {reason}"),
            Self::Cut(reason) => write!(f, "stream cut: {reason}"),
            Self::NotWhole => f.write_str("the stream's end does not fit its messages"),
            Self::Finished => f.write_str("the stream was ended by this side"),
        }
    }
}

impl core::error::Error for StreamError {}

/// Outcome numbers of [`Op::Reply`](crate::message::Op::Reply) and [`Op::Reset`](crate::message::Op::Reset). Append only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Outcome {
    /// The payload is the answer.
    Ok = 0,
    /// The payload is a packed [`Refusal`].
    Refused = 1,
    /// No such handler.
    UnknownHandler = 2,
    /// In-flight limit.
    Overloaded = 3,
    /// Draining.
    Draining = 4,
    /// The deadline passed before the handler began.
    Expired = 5,
    /// The request could not be read by the handler, which did nothing.
    Malformed = 6,
    /// The request is longer than the limit.
    TooLong = 7,
    /// The handler ran and ended without an answer.
    Failed = 8,
    /// The answer is longer than the limit; the handler ran.
    AnswerTooLong = 9,
    /// The stream was cancelled by its initiator.
    Cancelled = 10,
    /// A stream's messages did not fit their order, window or end.
    BadStream = 11,
}

impl Outcome {
    /// The outcome of that number; an unknown number says only that something failed after it may have run.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Refused,
            2 => Self::UnknownHandler,
            3 => Self::Overloaded,
            4 => Self::Draining,
            5 => Self::Expired,
            6 => Self::Malformed,
            7 => Self::TooLong,
            9 => Self::AnswerTooLong,
            10 => Self::Cancelled,
            11 => Self::BadStream,
            _ => Self::Failed,
        }
    }

    /// What a caller learns from an outcome that is neither an answer nor a refusal.
    #[must_use]
    pub const fn to_call_error(self) -> CallError {
        match self {
            Self::UnknownHandler => CallError::NotExecuted(Reason::UnknownHandler),
            Self::Overloaded => CallError::NotExecuted(Reason::Overloaded),
            Self::Draining => CallError::NotExecuted(Reason::Draining),
            Self::Expired => CallError::NotExecuted(Reason::Deadline),
            Self::Malformed => CallError::NotExecuted(Reason::Malformed),
            Self::TooLong => CallError::NotExecuted(Reason::TooLong),
            Self::AnswerTooLong => CallError::Unknown(Reason::TooLong),
            Self::Cancelled => CallError::Unknown(Reason::Cancelled),
            _ => CallError::Unknown(Reason::HandlerFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_keep_their_numbers_and_say_whether_a_call_may_have_run() {
        use CallError::{NotExecuted, Unknown};
        let cases = [
            (Outcome::Ok, Unknown(Reason::HandlerFailed)),
            (Outcome::Refused, Unknown(Reason::HandlerFailed)),
            (Outcome::UnknownHandler, NotExecuted(Reason::UnknownHandler)),
            (Outcome::Overloaded, NotExecuted(Reason::Overloaded)),
            (Outcome::Draining, NotExecuted(Reason::Draining)),
            (Outcome::Expired, NotExecuted(Reason::Deadline)),
            (Outcome::Malformed, NotExecuted(Reason::Malformed)),
            (Outcome::TooLong, NotExecuted(Reason::TooLong)),
            (Outcome::Failed, Unknown(Reason::HandlerFailed)),
            (Outcome::AnswerTooLong, Unknown(Reason::TooLong)),
            (Outcome::Cancelled, Unknown(Reason::Cancelled)),
            (Outcome::BadStream, Unknown(Reason::HandlerFailed)),
        ];
        for (number, (outcome, error)) in (0_u32..).zip(cases) {
            assert_eq!((outcome as u32, Outcome::from_number(number)), (number, outcome));
            assert_eq!(outcome.to_call_error(), error, "{outcome:?}");
        }
        assert_eq!(Outcome::from_number(12), Outcome::Failed, "a later version's");
    }

    #[test]
    fn errors_say_whether_a_retry_is_safe_and_why_they_came() {
        let refused = CallError::Refused(Refusal::new(5, "no"));
        let lost = Reason::Disconnected(Lost::Silent);
        let cases = [
            (refused.clone(), false, None, "refused (5): no"),
            (CallError::NotSent(lost), true, Some(lost), "not sent: the connection was lost: peer is silent"),
            (CallError::NotExecuted(Reason::Overloaded), true, Some(Reason::Overloaded), "not executed: overloaded"),
            (
                CallError::Unknown(Reason::Deadline),
                false,
                Some(Reason::Deadline),
                "sent, outcome unknown: the deadline passed",
            ),
        ];
        for (error, is_safe, reason, text) in cases {
            assert_eq!((error.is_retry_safe(), error.reason(), error.to_string().as_str()), (is_safe, reason, text));
        }
        let cases = [
            (StreamError::Refused(Refusal::new(5, "no")), "refused (5): no"),
            (StreamError::NotExecuted(Reason::Draining), "stream not started: the peer is draining"),
            (StreamError::Cut(Reason::Cancelled), "stream cut: cancelled"),
            (StreamError::NotWhole, "the stream's end does not fit its messages"),
            (StreamError::Finished, "the stream was ended by this side"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_reason_says_whose_fault_it_is() {
        use Reason::{BreakerOpen, Cancelled, Deadline, Disconnected, Draining, HandlerFailed, Malformed};
        use Reason::{NotConnected, Overloaded, TooLong, UnknownHandler, UnknownPeer};
        for reason in [Deadline, Cancelled, TooLong, UnknownPeer, Malformed] {
            assert_eq!(reason.fault(), Fault::Caller, "{reason}");
        }
        let lost = Disconnected(Lost::Broken);
        for reason in [UnknownHandler, NotConnected, lost, Overloaded, Draining, BreakerOpen, HandlerFailed] {
            assert_eq!(reason.fault(), Fault::Peer, "{reason}");
        }
    }
}
