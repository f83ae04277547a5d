//! What this server does with a stream: open, send, receive, finish, cut.

use core::task::{Context, Poll};
use std::collections::VecDeque;
use std::sync::Arc;

use ashlar_wire::time::Instant;

use super::streams::{StreamKey, Windows};
use super::{Mux, NewCall, State, encode_refusal, remaining_ms};
use crate::error::{Outcome, Reason, Refusal, StreamError};
use crate::message::{Flags, Header, Op};
use crate::outbox::Class;

impl Mux {
    /// Opens a stream with an initial payload of at most a chunk. `window` and `window_max` bound what this side
    /// accepts unread, bytes; 0 means the connection's own.
    ///
    /// # Errors
    /// Nothing has left; retry is safe.
    pub fn open_stream(
        &mut self,
        now: Instant,
        call: &NewCall<'_>,
        initial: &[u8],
        window: (u32, u32),
    ) -> Result<StreamKey, StreamError> {
        self.check_open().map_err(StreamError::NotExecuted)?;
        if initial.len() > self.out_chunk_max() {
            return Err(StreamError::NotExecuted(Reason::TooLong));
        }
        if call.deadline <= now {
            return Err(StreamError::NotExecuted(Reason::Deadline));
        }
        if !self.has_room_out() {
            return Err(StreamError::NotExecuted(Reason::Overloaded));
        }
        let handler = self.intern_route(call.route, call.handler).map_err(StreamError::NotExecuted)?;
        let receive = if window.0 == 0 { self.limits.stream_window } else { window.0 };
        let receive_max = if window.1 == 0 { self.limits.stream_window_max } else { window.1 };
        let windows = Windows { send: 0, receive, receive_max };
        let key = self.streams.open(None, windows, call.deadline, now);
        let key = key.ok_or(StreamError::NotExecuted(Reason::Overloaded))?;
        self.liveness.handle_awaited(now);
        let id = self.streams.get(key).expect("opened the line before").id;
        let deadline_ms = remaining_ms(now, call.deadline);
        let header = Header { deadline_ms, handler, ..Header::new(Op::Open, id, u64::from(receive)) };
        self.out.push(&header, initial);
        self.wake_task();
        Ok(key)
    }

    /// Sends a message when the window and the outbox allow it; else `cx` is woken when they may.
    pub fn poll_send(&mut self, key: StreamKey, message: &[u8], cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        let (chunk_max, payload_max, has_room) = (self.out_chunk_max(), self.payload_out_max(), self.has_room_out());
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(Err(StreamError::Finished)) };
        match stream.sending.check() {
            Err(error) => return Poll::Ready(Err(error)),
            Ok(false) => {
                stream.sending.wait(cx.waker());
                return Poll::Pending;
            }
            Ok(true) if !has_room => {
                stream.sending.wait(cx.waker());
                self.senders_wait = true;
                return Poll::Pending;
            }
            Ok(true) => {}
        }
        if message.len() > payload_max {
            return Poll::Ready(Err(StreamError::Cut(Reason::TooLong)));
        }
        let number = stream.sending.count(message);
        let header = Header::new(Op::Data, stream.id, number).from_responder(stream.responder);
        if message.len() > chunk_max {
            stream.sending.large_leaving = true;
            self.out.push_large(header, Arc::new(message.to_vec()), Class::Foreground);
        } else {
            self.out.push(&header, message);
        }
        self.wake_task();
        Poll::Ready(Ok(()))
    }

    /// Moves all messages that have come into `into`, which must be empty; `Ready` with the end when none will come.
    pub fn poll_receive(
        &mut self,
        key: StreamKey,
        into: &mut VecDeque<Vec<u8>>,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<(), StreamError>>> {
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(Some(Err(StreamError::Finished))) };
        match stream.receiving.take(into) {
            Some(end) => Poll::Ready(Some(end)),
            None if into.is_empty() => {
                stream.receiving.wait(cx.waker());
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    /// The reader has taken messages of that cost; the sender gets room when enough has come together.
    pub fn consumed(&mut self, key: StreamKey, cost: u64) {
        let (now, round_trip) = (self.now, self.liveness.round_trip());
        let Some(stream) = self.streams.get(key) else { return };
        let header = Header::new(Op::Credit, stream.id, 0).from_responder(stream.responder);
        if let Some(credit) = stream.receiving.handle_consumed(cost, now, round_trip)
            && self.state == State::Open
        {
            self.out.push(&Header { sequence: credit, ..header }, &[]);
            self.wake_task();
        }
    }

    /// Ends this side's direction in order, once a large message has left. A handler may go on reading.
    pub fn poll_finish(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<Result<(), StreamError>> {
        let Some(stream) = self.streams.get(key) else { return Poll::Ready(Err(StreamError::Finished)) };
        match stream.sending.check() {
            Err(StreamError::Finished) => return Poll::Ready(Ok(())),
            Err(error) => return Poll::Ready(Err(error)),
            Ok(_) if stream.sending.large_leaving => {
                stream.sending.wait(cx.waker());
                return Poll::Pending;
            }
            Ok(_) => {}
        }
        self.push_end(key, true);
        Poll::Ready(Ok(()))
    }

    /// Resolves once no large message of the stream is still leaving.
    pub fn poll_flushed(&mut self, key: StreamKey, cx: &Context<'_>) -> Poll<()> {
        match self.streams.get(key) {
            Some(stream) if stream.sending.large_leaving && stream.sending.is_open() => {
                stream.sending.wait(cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// `reads` tells whether this side may go on reading.
    fn push_end(&mut self, key: StreamKey, reads: bool) {
        let Some(stream) = self.streams.get(key) else { return };
        let mut header = Header::new(Op::End, stream.id, 0).from_responder(stream.responder);
        if stream.responder && reads {
            header.flags = header.flags.with(Flags::MORE);
        }
        if let Some((messages, digest)) = stream.sending.end()
            && self.state == State::Open
        {
            self.out.push(&Header { sequence: messages, ..header }, &digest);
            self.wake_task();
        }
    }

    /// The handler of a stream of the peer has returned: ends the stream as it says and forgets it. A good end
    /// comes after [`Mux::poll_flushed`].
    pub fn finish_served(&mut self, key: StreamKey, result: Result<(), Refusal>) {
        match result {
            Ok(()) => self.push_last_end(key),
            Err(refusal) => self.reset_stream(key, Outcome::Refused, &encode_refusal(&refusal)),
        }
        self.forget_stream(key);
    }

    /// The end of a handler, whether or not its direction has ended before.
    fn push_last_end(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        if stream.sending.is_open() {
            return self.push_end(key, false);
        }
        let header = Header::new(Op::End, stream.id, 0).from_responder(true);
        if stream.sending.is_ended() && stream.receiving.is_open() && self.state == State::Open {
            self.out.push(&header, &[]);
            self.wake_task();
        }
    }

    /// Ends a stream of the peer without its handler's word, and forgets it.
    pub fn refuse_stream(&mut self, key: StreamKey, outcome: Outcome) {
        self.reset_stream(key, outcome, &[]);
        self.forget_stream(key);
    }

    /// The initiator is done with a stream: an end that is not in order is told to the peer.
    pub fn release_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else { return };
        let read_by_peer = stream.half_closed && stream.sending.is_open();
        let (id, unfinished) = (stream.id, stream.receiving.is_open() || read_by_peer);
        if unfinished && self.state == State::Open {
            self.drop_large(id, false);
            self.out.push(&Header::new(Op::Cancel, id, 0), &[]);
        }
        self.forget_stream(key);
    }

    fn forget_stream(&mut self, key: StreamKey) {
        self.streams.remove(key);
        // Even where there is nothing to say: the peer may be draining and wait for this to be the last.
        self.wake_task();
    }

    /// Ends a stream that exists with an error here, and tells the peer.
    pub(super) fn cut_stream(&mut self, key: StreamKey, error: &StreamError, outcome: Outcome) {
        self.reset_stream(key, outcome, &[]);
        self.fail_stream(key, error);
    }

    fn reset_stream(&mut self, key: StreamKey, outcome: Outcome, payload: &[u8]) {
        let Some(stream) = self.streams.get(key) else { return };
        let (id, responder) = (stream.id, stream.responder);
        let open = stream.sending.is_open() || stream.receiving.is_open();
        if open && self.state == State::Open {
            self.drop_large(id, responder);
            self.push_outcome(Op::Reset, id, responder, outcome, payload);
        }
    }

    /// Ends a stream with an error here. Its owner forgets it when it lets go of it.
    pub(super) fn fail_stream(&mut self, key: StreamKey, error: &StreamError) {
        let Some(stream) = self.streams.get(key) else { return };
        stream.fail(error);
        let (id, responder) = (stream.id, stream.responder);
        self.drop_large(id, responder);
    }
}
