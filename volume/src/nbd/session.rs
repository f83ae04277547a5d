//! One NBD connection as a value: bytes in and out, requests out, answers in.
//!
//! A handshake of options leads to an export; from then on requests and replies pass each other. The session keeps what
//! was gathered of the message that is being received, the requests in flight and the bytes to be sent, all limited: at a
//! limit it wants no bytes until something was answered or sent.
//!
//! Where bytes are cut moves nothing: the session is a function of all bytes and all answers, in their order.

mod handshake;
mod transmission;

use std::collections::{BTreeMap, VecDeque};

use super::export::Export;
use super::header::{Framing, Header};
use super::limits::Limits;
use super::option::{ContextQuery, InfoQuery, OptionHeader};
use super::output::Output;
use super::protocol::{ErrorCode, INIT_MAGIC, OPTION_MAGIC, handshake as handshake_flags};
use super::request::{Request, RequestId};

/// Whether clients may, or have to, put TLS on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPolicy {
    /// This server has no TLS.
    Unsupported,
    /// A client may start it.
    Offered,
    /// Nothing works before it is started. A connection that came in over TLS is one on which it is started.
    Required,
}

/// Why a session has ended. All but the first two are the client's fault, or a refusal that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client has said that it leaves.
    Disconnected,
    /// The client has given up during the handshake.
    Aborted,
    /// An export was asked for in a way that has no answer for failure, and cannot be had.
    Refused,
    /// A magic number is wrong: the two sides are out of step.
    BadMagic,
    /// The client has set flags that it was not offered.
    UnknownFlags,
    /// More than [`Limits::options_max`] options.
    TooManyOptions,
    /// An option or a refused payload longer than [`Limits::skip_bytes_max`], or a name longer than
    /// [`Limits::option_bytes_max`] where that has no answer.
    TooLong,
}

impl End {
    /// Whether what is in flight is still answered.
    const fn is_soft(self) -> bool {
        matches!(self, Self::Disconnected | Self::Aborted)
    }
}

/// What the session waits for.
#[derive(Debug)]
enum State {
    ClientFlags,
    OptionHeader,
    OptionData(OptionHeader),
    /// Data of an option that is too long to be read: so many bytes are left.
    SkipOption(OptionHeader, u64),
    /// The owner's answer.
    Asking(Asked),
    /// The owner's TLS.
    Tls,
    RequestHeader,
    /// Room for the payload of a request.
    Held(Header),
    /// The payload of a write.
    Payload(Header, Vec<u8>),
    /// The payload of a refused request: so many bytes are left.
    SkipPayload(Header, u64, ErrorCode),
    Ended(End),
}

/// What the owner was asked.
#[derive(Debug)]
enum Asked {
    List,
    /// `EXPORT_NAME`.
    ExportName(String),
    /// `INFO` or `GO`.
    Info {
        option: u32,
        query: InfoQuery,
    },
    /// `LIST_META_CONTEXT` or `SET_META_CONTEXT`.
    Contexts {
        option: u32,
        query: ContextQuery,
    },
}

/// What was negotiated so far.
#[derive(Debug, Default)]
struct Negotiated {
    no_zeroes: bool,
    framing: Framing,
    /// The export for which `base:allocation` was chosen.
    allocation_of: Option<String>,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    tls: TlsPolicy,
    /// TLS is on the connection.
    is_secure: bool,
    is_shutting_down: bool,
    state: State,
    /// What has come of the message that is being received, if that is gathered.
    gathered: Vec<u8>,
    /// Options so far.
    options: u32,
    negotiated: Negotiated,
    /// Set when the transmission phase begins.
    export: Option<Export>,
    /// `base:allocation` was chosen for this export.
    has_allocation: bool,
    requests: VecDeque<Request>,
    /// Requests that the owner has.
    in_flight: BTreeMap<RequestId, Header>,
    next_id: u64,
    /// Payload bytes of the requests in flight and of the one that is being received.
    held_bytes: u64,
    output: Output,
}

impl Session {
    /// A connection that was just accepted; its greeting waits to be sent. If TLS is on it already, call
    /// [`Session::handle_tls`] before any byte.
    ///
    /// # Panics
    /// When the limits leave no room for a request.
    #[must_use]
    pub fn new(limits: Limits, tls: TlsPolicy) -> Self {
        limits.assert_valid();
        let mut output = Output::default();
        output.push(&INIT_MAGIC.to_be_bytes());
        output.push(&OPTION_MAGIC.to_be_bytes());
        output.push(&(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES).to_be_bytes());
        Self {
            limits,
            tls,
            is_secure: false,
            is_shutting_down: false,
            state: State::ClientFlags,
            gathered: Vec::new(),
            options: 0,
            negotiated: Negotiated::default(),
            export: None,
            has_allocation: false,
            requests: VecDeque::new(),
            in_flight: BTreeMap::new(),
            next_id: 0,
            held_bytes: 0,
            output,
        }
    }

    /// Whether [`Session::handle_bytes`] would take anything. While it would not, leave the socket alone.
    #[must_use]
    pub fn wants_bytes(&self) -> bool {
        let has_room = self.output.len() <= self.limits.output_bytes_max;
        match self.state {
            State::Asking(_) | State::Tls | State::Held(_) | State::Ended(_) => false,
            State::RequestHeader => has_room && self.in_flight.len() < self.limits.in_flight_max,
            _ => has_room,
        }
    }

    /// Takes bytes of the client and returns how many: all, unless the session wants no more. The rest is to be given
    /// again when it does.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && self.wants_bytes() {
            let taken = self.take(rest);
            assert!(taken > 0, "a state that wants bytes takes some");
            rest = &rest[taken..];
        }
        bytes.len() - rest.len()
    }

    /// The next thing that the owner has to do.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// What is to be sent, in order, as non-empty slices. Say with [`Session::handle_transmitted`] how much was.
    pub fn poll_transmit(&self) -> impl Iterator<Item = &[u8]> {
        self.output.slices()
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub const fn transmit_len(&self) -> u64 {
        self.output.len()
    }

    /// The first `len` bytes of what is to be sent were sent.
    ///
    /// # Panics
    /// When fewer are to be sent.
    pub fn handle_transmitted(&mut self, len: u64) {
        self.output.remove(len);
        self.resume_held();
    }

    /// The server shuts down: options and requests that come from now on are refused. Requests in flight are answered as
    /// ever.
    pub fn shut_down(&mut self) {
        self.is_shutting_down = true;
        self.resume_held();
    }

    /// Why the session has ended, once it has. What waits to be sent may still be sent.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        match self.state {
            State::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Whether the connection is to be closed: the client left and everything is answered and sent, or it broke the
    /// protocol.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_idle = self.in_flight.is_empty() && self.output.len() == 0;
        self.end().is_some_and(|end| is_idle || !end.is_soft())
    }

    /// Requests that the owner has not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes at least one byte.
    fn take(&mut self, bytes: &[u8]) -> usize {
        match &mut self.state {
            State::SkipOption(_, left) | State::SkipPayload(_, left, _) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                if *left == 0 {
                    self.handle_skipped();
                }
                taken
            }
            State::Payload(header, data) => {
                let left = usize::try_from(header.len).expect("payloads are limited") - data.len();
                let taken = bytes.len().min(left);
                if data.capacity() - data.len() < taken {
                    data.reserve_exact(left.min(data.len().max(PAYLOAD_STEP_BYTES)).max(taken));
                }
                data.extend_from_slice(&bytes[..taken]);
                if taken == left {
                    self.handle_payload();
                }
                taken
            }
            _ => self.gather(bytes),
        }
    }

    /// Gathers bytes of a message that is read whole.
    fn gather(&mut self, bytes: &[u8]) -> usize {
        let need = match self.state {
            State::ClientFlags => 4,
            State::OptionHeader => OptionHeader::LEN,
            State::OptionData(header) => usize::try_from(header.len).expect("options are limited"),
            State::RequestHeader => self.negotiated.framing.header_len(),
            _ => unreachable!("no other state gathers"),
        };
        let taken = bytes.len().min(need - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == need {
            let mut message = std::mem::take(&mut self.gathered);
            self.handle_message(&message);
            message.clear();
            self.gathered = message;
        }
        taken
    }

    fn handle_message(&mut self, message: &[u8]) {
        match self.state {
            State::ClientFlags => self.handle_client_flags(message),
            State::OptionHeader => self.handle_option_header(message),
            State::OptionData(header) => self.handle_option(header, message),
            State::RequestHeader => self.handle_request_header(message),
            _ => unreachable!("no other state gathers"),
        }
    }

    fn handle_skipped(&mut self) {
        match self.state {
            State::SkipOption(header, _) => self.refuse_long_option(header),
            State::SkipPayload(header, _, code) => self.refuse(&header, code),
            _ => unreachable!("no other state skips"),
        }
    }

    fn end_with(&mut self, end: End) {
        self.gathered = Vec::new();
        self.state = State::Ended(end);
    }
}

/// A payload's buffer grows with what has come, by its length or by this: an announced length alone costs no memory.
const PAYLOAD_STEP_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
