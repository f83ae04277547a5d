//! What each received message does.

use core::fmt;

use ashlar_wire::time::Instant;

use super::inbound::Part;
use super::streams::{StreamKey, Windows};
use super::{Mux, State, Work, calls, deadline_from_ms, decode_refusal, from_responder};
use crate::cancel::Cancelled;
use crate::error::{CallError, Outcome, Reason, StreamError};
use crate::frame::FrameError;
use crate::message::{Flags, Header, Message, MessageError, MuxId, Op};

/// The peer broke the protocol in a way after which nothing on the connection can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// The bytes are not frames.
    Frame(FrameError),
    /// The frames do not hold messages.
    Message(MessageError),
    /// The peer goes on asking and does not read the answers.
    NotReading,
    /// The peer named more routes than it may, or one that is too long.
    Route,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::NotReading => f.write_str("the peer goes on asking and does not read the answers"),
            Self::Route => f.write_str("the peer names a route beyond the limit"),
        }
    }
}

impl core::error::Error for ProtocolError {}

impl From<FrameError> for ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<MessageError> for ProtocolError {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}

/// Small limits must not be undercut by the size of the frames that messages are counted in, bytes.
const SLACK_BYTES: usize = 1 << 20;

impl Mux {
    /// Bytes were received at `now`: proof of life.
    #[inline]
    pub fn handle_received(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.liveness.handle_received(now);
    }

    /// A message with an operation that this version does not know: a later version's, to be passed over.
    pub fn handle_unknown(&mut self) {
        self.counters.messages_in += 1;
        self.counters.unknown_ops += 1;
    }

    /// Takes one message; what the owner has to run for it.
    ///
    /// # Errors
    /// The connection must be closed.
    #[inline]
    pub fn handle_message(&mut self, now: Instant, message: &Message<'_>) -> Result<Option<Work>, ProtocolError> {
        self.now = self.now.max(now);
        self.counters.messages_in += 1;
        if self.state != State::Open {
            return Ok(None);
        }
        if self.out.queued_small() > self.answers_bytes_max() {
            return Err(ProtocolError::NotReading);
        }
        let Message { header, payload } = message;
        self.stirred = true;
        match header.op {
            Op::Reply => self.handle_reply(header, payload),
            Op::Data => self.handle_data(header, payload),
            Op::Credit => self.handle_credit(header),
            Op::Call => return Ok(self.handle_call(now, header, payload)),
            Op::Chunk => return Ok(self.handle_chunk(header, payload)),
            Op::Open => return Ok(self.handle_open(now, header, payload)),
            Op::Cancel => self.handle_cancel(header.id),
            Op::Accept => self.handle_credit(header),
            Op::End => self.handle_end(header, payload),
            Op::Reset => self.handle_reset(header, payload),
            Op::Ping => self.pong = Some(header.sequence),
            Op::Pong => self.liveness.handle_pong(now, header.sequence),
            Op::GoAway if header.sequence == super::GO_AWAY_DONE => self.peer_done = true,
            Op::GoAway => self.peer_draining = true,
            Op::Route => return self.handle_route(header, payload).map(Some),
            Op::Challenge => return Ok(Some(Work::Challenge(payload.to_vec()))),
            Op::Proof => return Ok(Some(Work::Proof(payload.to_vec()))),
            // Whoever drives the connection hands it to its handler.
            Op::Datagram => self.counters.datagrams_in += 1,
        }
        Ok(None)
    }

    /// Bytes of small messages that can wait while the peer is honest: what is allowed before requests are refused, an
    /// answer to each that was accepted, and as much again for what goes with them (credits, cancels, ends). Beyond, even
    /// the refusals pile up.
    fn answers_bytes_max(&self) -> usize {
        let calls = usize::try_from(self.limits.calls_in_flight_max).unwrap_or(usize::MAX);
        let streams = usize::try_from(self.limits.streams_open_max).unwrap_or(usize::MAX);
        let answers = calls.saturating_add(streams).saturating_mul(self.limits.chunk_max);
        self.limits.outbound_bytes_max.saturating_add(answers).saturating_mul(2).saturating_add(SLACK_BYTES)
    }

    /// Counts a message that makes no sense where it came.
    fn misfit(&mut self) {
        self.counters.misfit += 1;
    }

    #[inline]
    fn handle_reply(&mut self, header: &Header, payload: &[u8]) {
        if header.flags.contains(Flags::MORE) {
            let total = usize::try_from(header.sequence).unwrap_or(usize::MAX);
            if total > self.limits.payload_max {
                self.calls.complete(header.id, Err(CallError::Unknown(Reason::TooLong)));
                return self.misfit();
            }
            let heard = self.calls.receive_part(header.id, Some(total), payload, false);
            return self.note_heard(header.id, heard);
        }
        let was_waiting = match Outcome::from_number(header.handler) {
            Outcome::Ok => self.calls.answer(header.id, payload),
            outcome => {
                let error = match outcome {
                    Outcome::Refused => match decode_refusal(payload) {
                        Some(refusal) => CallError::Refused(refusal),
                        None => CallError::Unknown(Reason::Malformed),
                    },
                    other => other.to_call_error(),
                };
                // Of a request that was refused at its first chunk, the others need not leave.
                self.drop_large(header.id, false);
                self.calls.complete(header.id, Err(error))
            }
        };
        self.counters.late += u64::from(!was_waiting);
    }

    fn note_heard(&mut self, id: MuxId, heard: calls::Heard) {
        match heard {
            calls::Heard::Used => {}
            calls::Heard::Late => self.counters.late += 1,
            calls::Heard::Misfit => {
                self.calls.complete(id, Err(CallError::Unknown(Reason::Malformed)));
                self.misfit();
            }
        }
    }

    fn handle_call(&mut self, now: Instant, header: &Header, payload: &[u8]) -> Option<Work> {
        self.counters.calls_in += 1;
        let more = header.flags.contains(Flags::MORE);
        let total = if more { usize::try_from(header.sequence).unwrap_or(usize::MAX) } else { payload.len() };
        let refused = if self.draining {
            Some(Outcome::Draining)
        } else if total > self.limits.payload_max {
            Some(Outcome::TooLong)
        } else if !self.inbound.has_room(total) || !self.has_room_out() {
            self.counters.overloaded += 1;
            Some(Outcome::Overloaded)
        } else if more && payload.len() >= total {
            self.misfit();
            Some(Outcome::Malformed)
        } else {
            None
        };
        if let Some(outcome) = refused {
            self.push_reply(header.id, outcome, Vec::new());
            return None;
        }
        let deadline = deadline_from_ms(now, header.deadline_ms);
        if !more {
            return self.begin_work(header.id, header.handler, payload.to_vec(), deadline);
        }
        if !self.inbound.begin_receiving(header.id, total, header.handler, payload, deadline) {
            self.misfit();
        }
        None
    }

    fn begin_work(&mut self, id: MuxId, handler: u32, request: Vec<u8>, deadline: Instant) -> Option<Work> {
        let Some((route, handler)) = self.split_handler(handler) else {
            self.push_reply(id, Outcome::UnknownHandler, Vec::new());
            return None;
        };
        let cancelled = Cancelled::default();
        if !self.inbound.begin_running(id, request.len(), deadline, cancelled.clone()) {
            self.misfit();
            return None;
        }
        Some(Work::Call { id, route, handler, request, deadline, cancelled })
    }

    /// Route and number of a handler as a message names them; `None` if nothing is bound to that route.
    fn split_handler(&self, handler: u32) -> Option<(crate::handler::RouteIndex, u16)> {
        let [high, low] = [handler >> 16, handler & 0xffff].map(|half| u16::try_from(half).expect("sixteen bits"));
        if high == 0 {
            return Some((crate::handler::RouteIndex::default(), low));
        }
        Some(((*self.routes_in.get(usize::from(high - 1))?)?, low))
    }

    fn handle_chunk(&mut self, header: &Header, payload: &[u8]) -> Option<Work> {
        let last = !header.flags.contains(Flags::MORE);
        if let Some(key) = self.streams.find(header.id, from_responder(header.flags)) {
            let payload_max = self.limits.payload_max;
            let stream = self.streams.get(key)?;
            if !stream.receiving.is_open() {
                self.counters.late += 1;
            } else if stream.receiving.handle_chunk(payload, last, payload_max).is_err() {
                self.bad_stream(key);
            }
            return None;
        }
        if from_responder(header.flags) {
            let heard = self.calls.receive_part(header.id, None, payload, last);
            self.note_heard(header.id, heard);
            return None;
        }
        match self.inbound.receive_part(header.id, payload, last) {
            Part::More => None,
            Part::Complete(whole) => self.begin_work(header.id, whole.handler, whole.request, whole.deadline),
            // The rest of a request that was refused, cancelled or expired.
            Part::Unexpected => None,
            Part::Misfit => {
                self.misfit();
                self.inbound.cancel(header.id);
                self.push_reply(header.id, Outcome::Malformed, Vec::new());
                None
            }
        }
    }

    fn handle_cancel(&mut self, id: MuxId) {
        if self.inbound.cancel(id) {
            self.drop_large(id, true);
            self.counters.abandoned += 1;
        } else if let Some(key) = self.streams.find(id, false) {
            self.counters.abandoned += 1;
            self.fail_stream(key, &StreamError::Cut(Reason::Cancelled));
        } else {
            // Its answer may be leaving in chunks.
            self.drop_large(id, true);
        }
    }

    fn handle_open(&mut self, now: Instant, header: &Header, payload: &[u8]) -> Option<Work> {
        let refused = if self.draining {
            Some(Outcome::Draining)
        } else if header.flags.contains(Flags::MORE) {
            self.misfit();
            Some(Outcome::Malformed)
        } else if self.split_handler(header.handler).is_none() {
            Some(Outcome::UnknownHandler)
        } else {
            None
        };
        if let Some(outcome) = refused {
            self.push_outcome(Op::Reset, header.id, true, outcome, &[]);
            return None;
        }
        let (route, handler) = self.split_handler(header.handler)?;
        let receive = self.limits.stream_window;
        let windows = Windows {
            send: u32::try_from(header.sequence).unwrap_or(u32::MAX),
            receive,
            receive_max: self.limits.stream_window_max,
        };
        let deadline = deadline_from_ms(now, header.deadline_ms);
        // A slot in use again: the peer has let go of the stream before, whose handler has not returned yet.
        if let Some(old) = self.streams.displaced_by(header.id) {
            self.fail_stream(old, &StreamError::Cut(Reason::Cancelled));
        }
        let Some(key) = self.streams.open(Some(header.id), windows, deadline, now) else {
            self.counters.overloaded += 1;
            self.push_outcome(Op::Reset, header.id, true, Outcome::Overloaded, &[]);
            return None;
        };
        let cancelled = self.streams.get(key)?.cancelled.clone();
        self.out.push(&Header::new(Op::Accept, header.id, u64::from(receive)).from_responder(true), &[]);
        Some(Work::Stream { key, route, handler, initial: payload.to_vec(), deadline, cancelled })
    }

    #[inline]
    fn handle_data(&mut self, header: &Header, payload: &[u8]) {
        let Some(key) = self.streams.find(header.id, from_responder(header.flags)) else {
            // A stream that this side has cut; what was on its way comes to nothing.
            self.counters.late += 1;
            return;
        };
        let Some(stream) = self.streams.get(key) else { return };
        if !stream.receiving.is_open() {
            self.counters.late += 1;
            return;
        }
        let more = header.flags.contains(Flags::MORE);
        if stream.receiving.handle_data(header.sequence, payload, more).is_err() {
            self.bad_stream(key);
        }
    }

    #[inline]
    fn handle_credit(&mut self, header: &Header) {
        match self.streams.find(header.id, from_responder(header.flags)).and_then(|key| self.streams.get(key)) {
            Some(stream) => stream.sending.allow(header.sequence),
            None => self.counters.late += 1,
        }
    }

    fn handle_end(&mut self, header: &Header, payload: &[u8]) {
        let responder = from_responder(header.flags);
        let Some(key) = self.streams.find(header.id, responder) else {
            self.counters.late += 1;
            return;
        };
        let Some(stream) = self.streams.get(key) else { return };
        stream.receiving.handle_end(header.sequence, payload);
        if responder {
            stream.half_closed = header.flags.contains(Flags::MORE);
            if !stream.half_closed {
                // The handler has returned: it reads no more.
                stream.sending.fail(StreamError::Finished);
            }
        }
    }

    fn handle_reset(&mut self, header: &Header, payload: &[u8]) {
        let Some(key) = self.streams.find(header.id, from_responder(header.flags)) else {
            self.counters.late += 1;
            return;
        };
        let error = match Outcome::from_number(header.handler) {
            Outcome::Refused => {
                decode_refusal(payload).map_or(StreamError::Cut(Reason::Malformed), StreamError::Refused)
            }
            Outcome::BadStream => StreamError::Cut(Reason::Malformed),
            Outcome::Expired => StreamError::Cut(Reason::Deadline),
            outcome => match outcome.to_call_error() {
                CallError::NotExecuted(reason) => StreamError::NotExecuted(reason),
                CallError::NotSent(reason) | CallError::Unknown(reason) => StreamError::Cut(reason),
                CallError::Refused(refusal) => StreamError::Refused(refusal),
            },
        };
        self.fail_stream(key, &error);
    }

    fn handle_route(&mut self, header: &Header, payload: &[u8]) -> Result<Work, ProtocolError> {
        let number = u16::try_from(header.sequence).ok().filter(|number| (1..=self.limits.routes_max).contains(number));
        let name = str::from_utf8(payload).ok().filter(|name| name.len() <= super::ROUTE_LEN_MAX);
        match (number, name) {
            (Some(number), Some(name)) => Ok(Work::Route { number, name: name.to_owned() }),
            _ => Err(ProtocolError::Route),
        }
    }

    /// The peer broke a stream's rules: both ends of it learn that, and nothing else suffers.
    fn bad_stream(&mut self, key: StreamKey) {
        self.misfit();
        self.cut_stream(key, &StreamError::Cut(Reason::Malformed), Outcome::BadStream);
    }
}
