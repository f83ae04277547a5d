//! All of one connection's calls and streams, as a value: messages and calls in, messages and completions out.
//!
//! The mux knows no socket, no clock and no task. Its owner feeds it what was received ([`Mux::handle_message`]), what time
//! it is ([`Mux::handle_timeout`]) and what this server wants (`start_call`, `poll_call`, `open_stream`, ...), and writes
//! what [`Mux::take_batch`] gives. It answers requests with [`Work`] for its owner, who runs the handlers.
//!
//! Neither direction waits for the other: reading never needs room in the outbox, because everything that reading can
//! cause to be written is bounded by what the peer may have in flight.

pub mod calls;
pub mod inbound;
pub mod returns;
pub mod streams;

mod receive;
mod stream_calls;

use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use ashlar_wire::checksum::Salt;
use ashlar_wire::pack::{self, Reader};
use ashlar_wire::time::Instant;

use crate::cancel::Cancelled;
use crate::config::{Limits, Timing};
use crate::error::{CallError, Lost, Outcome, Reason, Refusal, StreamError};
use crate::frame::Side;
use crate::handler::RouteIndex;
use crate::liveness::{Liveness, Verdict};
use crate::message::{Flags, Header, MuxId, Op};
use crate::outbox::{Batch, Class, Outbox, Position};

use calls::{CallResult, Calls};
use inbound::Inbound;
pub use receive::ProtocolError;
use returns::{Key, Returns};
use streams::{StreamKey, Streams};

/// What was counted on one connection since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages received.
    pub messages_in: u64,
    /// Calls started here.
    pub calls_out: u64,
    /// Calls of the peer.
    pub calls_in: u64,
    /// Answers to calls that nobody waits for any more.
    pub late: u64,
    /// Calls and streams of the peer that were refused as overloaded.
    pub overloaded: u64,
    /// Calls of the peer that were stopped because their caller left or their deadline passed.
    pub abandoned: u64,
    /// Messages that made no sense where they came; each hurt at most its own call.
    pub misfit: u64,
    /// Messages with an operation that this version does not know.
    pub unknown_ops: u64,
    /// Datagrams of the peer, whether or not anybody took them.
    pub datagrams_in: u64,
    /// Datagrams that were dropped here because too much waited, or was to be said at once.
    pub datagrams_dropped: u64,
}

/// How far the connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed(Lost),
}

/// What the owner has to run.
#[derive(Debug)]
pub enum Work {
    /// A call of the peer; answer with [`Mux::reply`].
    Call {
        /// Answer to this.
        id: MuxId,
        /// Where the handler is bound.
        route: RouteIndex,
        /// Its number.
        handler: u16,
        /// The request.
        request: Vec<u8>,
        /// When the caller stops waiting.
        deadline: Instant,
        /// Resolves when the caller leaves.
        cancelled: Cancelled,
    },
    /// A stream of the peer; end with [`Mux::finish_served`].
    Stream {
        /// Its key here.
        key: StreamKey,
        /// Where the handler is bound.
        route: RouteIndex,
        /// Its number.
        handler: u16,
        /// Its initial payload.
        initial: Vec<u8>,
        /// When its initiator stops waiting.
        deadline: Instant,
        /// Resolves when its initiator leaves.
        cancelled: Cancelled,
    },
    /// The peer names a route: intern it with [`Mux::set_route`].
    Route {
        /// The peer's number for it.
        number: u16,
        /// Its name.
        name: String,
    },
    /// The peer asks for a proof of the newest secret: answer with [`Mux::push_proof`].
    Challenge(Vec<u8>),
    /// The peer's answer to a challenge of this side.
    Proof(Vec<u8>),
}

/// What calls of the peer may begin before the mux is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Whether any may.
    pub is_open: bool,
    /// How many of them may wait.
    pub calls: usize,
    /// Bytes of the requests of those that wait, in all.
    pub bytes: usize,
}

/// What limits the calls of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls in flight.
    pub calls: usize,
    /// Bytes of a request that leaves as one message.
    pub request_bytes: usize,
    /// Bytes that wait to be written when a call begins.
    pub queued_bytes: usize,
}

/// A request to start.
#[derive(Debug, Clone)]
pub struct NewCall<'a> {
    /// Number of the handler.
    pub handler: u16,
    /// Where it is bound, empty for nowhere.
    pub route: &'a str,
    /// When to give up.
    pub deadline: Instant,
    /// How urgent a large request is.
    pub class: Class,
}

/// One connection's calls and streams.
#[derive(Debug)]
pub struct Mux {
    limits: Limits,
    peer_limits: Limits,
    state: State,
    out: Outbox,
    calls: Calls,
    inbound: Inbound,
    streams: Streams,
    liveness: Liveness,
    /// Bytes handed to the socket since the beginning.
    accepted: u64,
    routes_out: BTreeMap<String, u16>,
    routes_in: Vec<Option<RouteIndex>>,
    /// This side refuses new work of the peer.
    draining: bool,
    /// The peer refuses new work.
    peer_draining: bool,
    /// The peer knows that this side has nothing more for it.
    told_done: bool,
    /// The peer has nothing more for this side.
    peer_done: bool,
    counters: Counters,
    /// The latest ping of the peer, to be answered: however many it sends, one answer waits.
    pong: Option<u64>,
    /// Streams wait until the outbox has room.
    senders_wait: bool,
    /// Something was received that may make a task of this server send more.
    stirred: bool,
    /// Where requests are packed before they are sent; kept for its room.
    scratch: Vec<u8>,
    /// The latest time that was told.
    now: Instant,
    /// The connection's task, once it has slept.
    task: Option<Waker>,
    /// Whether it sleeps, and has to be woken.
    sleeps: bool,
}

impl Mux {
    /// A connection whose hello is done. `limits` are this side's, `peer_limits` what the peer's hello said.
    #[must_use]
    pub fn new(
        side: Side,
        limits: Limits,
        peer_limits: Limits,
        timing: &Timing,
        salt: Option<Salt>,
        now: Instant,
    ) -> Self {
        Self {
            limits,
            peer_limits,
            state: State::Open,
            out: Outbox::new(side, limits.chunk_max.min(peer_limits.chunk_max), salt),
            calls: Calls::new(limits.calls_in_flight_max.min(peer_limits.calls_in_flight_max)),
            inbound: Inbound::new(limits.calls_in_flight_max, limits.inbound_bytes_max),
            streams: Streams::new(limits.streams_open_max.min(peer_limits.streams_open_max)),
            liveness: Liveness::new(side, timing, now),
            accepted: 0,
            routes_out: BTreeMap::new(),
            routes_in: Vec::new(),
            draining: false,
            peer_draining: false,
            told_done: false,
            peer_done: false,
            counters: Counters::default(),
            pong: None,
            senders_wait: false,
            stirred: false,
            scratch: Vec::new(),
            now,
            task: None,
            sleeps: false,
        }
    }

    /// Starts a call. Its answer comes from [`Mux::poll_call`].
    ///
    /// # Errors
    /// Always [`CallError::NotSent`]: nothing has left, retry is safe.
    #[inline]
    pub fn start_call(&mut self, now: Instant, call: &NewCall<'_>, request: &[u8]) -> Result<MuxId, CallError> {
        if request.len() > self.out_chunk_max() {
            return self.start_large_call(now, call, Arc::new(request.to_vec()));
        }
        let (id, header) = self.begin_call(now, call)?;
        let position = self.out.push(&header, request);
        self.calls.set_position(id, position);
        self.wake_task();
        Ok(id)
    }

    /// Like [`Mux::start_call`] for a request that is owned: a large one is not copied until its chunks leave.
    ///
    /// # Errors
    /// As there.
    pub fn start_large_call(
        &mut self,
        now: Instant,
        call: &NewCall<'_>,
        request: Arc<Vec<u8>>,
    ) -> Result<MuxId, CallError> {
        if request.len() > self.payload_out_max() {
            return Err(CallError::NotSent(Reason::TooLong));
        }
        if request.len() <= self.out_chunk_max() {
            return self.start_call(now, call, &request);
        }
        let (id, header) = self.begin_call(now, call)?;
        self.out.push_large(header, request, call.class);
        self.wake_task();
        Ok(id)
    }

    /// An empty buffer to pack a request into, for [`Mux::start_scratch_call`].
    #[inline]
    pub fn take_scratch(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.scratch)
    }

    /// Gives the buffer back unused.
    pub fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.scratch = scratch;
    }

    /// Starts a call whose request was packed into the buffer of [`Mux::take_scratch`].
    ///
    /// # Errors
    /// As [`Mux::start_call`].
    #[inline]
    pub fn start_scratch_call(
        &mut self,
        now: Instant,
        call: &NewCall<'_>,
        request: Vec<u8>,
    ) -> Result<MuxId, CallError> {
        if request.len() > self.out_chunk_max() {
            return self.start_large_call(now, call, Arc::new(request));
        }
        let started = self.start_call(now, call, &request);
        self.return_scratch(request);
        started
    }

    /// Sends a message that nobody answers, ahead of calls and streams; false, and nothing has left, where the connection
    /// has ended, too much waits already, or the payload is longer than a chunk.
    pub fn send_datagram(&mut self, handler: u16, payload: &[u8]) -> bool {
        let header = Header { handler: u32::from(handler), ..Header::new(Op::Datagram, MuxId::CONNECTION, 0) };
        let fits = self.state == State::Open && payload.len() <= self.out_chunk_max();
        let taken = fits && self.out.push_datagram(&header, payload);
        if taken {
            self.wake_task();
        } else {
            self.counters.datagrams_dropped += 1;
        }
        taken
    }

    fn begin_call(&mut self, now: Instant, call: &NewCall<'_>) -> Result<(MuxId, Header), CallError> {
        self.check_open().map_err(CallError::NotSent)?;
        if call.deadline <= now {
            return Err(CallError::NotSent(Reason::Deadline));
        }
        if !self.has_room_out() {
            return Err(CallError::NotSent(Reason::Overloaded));
        }
        let handler = self.intern_route(call.route, call.handler).map_err(CallError::NotSent)?;
        let id = self.calls.begin(call.deadline).ok_or(CallError::NotSent(Reason::Overloaded))?;
        self.liveness.handle_awaited(now);
        self.counters.calls_out += 1;
        let deadline_ms = remaining_ms(now, call.deadline);
        Ok((id, Header { deadline_ms, handler, ..Header::new(Op::Call, id, 0) }))
    }

    /// Whether new work may begin.
    fn check_open(&self) -> Result<(), Reason> {
        match self.state {
            State::Closed(lost) => Err(Reason::Disconnected(lost)),
            State::Open if self.peer_draining || self.draining => Err(Reason::Draining),
            State::Open => Ok(()),
        }
    }

    /// The answer of a call, if it has come; else `cx` is woken when it does.
    #[inline]
    pub fn poll_call(&mut self, id: MuxId, cx: &Context<'_>) -> Poll<CallResult> {
        self.calls.poll(id, cx)
    }

    /// Starts a call that a thread has handed over under `key`; its request fits into a chunk. What it ends with, also if it
    /// cannot be started, is among [`Mux::take_returns`].
    pub fn start_handed_call(&mut self, now: Instant, caller: (usize, Key), call: &NewCall<'_>, request: &[u8]) {
        match self.start_call(now, call, request) {
            Ok(id) => self.calls.hand_over(id, caller),
            Err(error) => self.calls.return_error(caller, error),
        }
    }

    /// Gives a call up that was handed over.
    pub fn cancel_handed_call(&mut self, thread: usize, key: Key) {
        if let Some(id) = self.calls.find_handed(thread, key) {
            self.cancel_call(id);
        }
    }

    /// Moves the results for the callers of one thread into `returns`, which is empty; which thread, if there were any.
    pub fn take_returns(&mut self, returns: &mut Returns) -> Option<usize> {
        self.calls.take_returns(returns)
    }

    /// Gives a call up: the peer is told, its answer is dropped.
    pub fn cancel_call(&mut self, id: MuxId) {
        if let Some(position) = self.calls.cancel(id)
            && self.state == State::Open
        {
            self.push_cancel(id, position);
        }
    }

    /// Tells the peer that nobody waits for a call any more; a request of which nothing has left needs no telling, and
    /// never leaves.
    fn push_cancel(&mut self, id: MuxId, position: Position) {
        let unsent = if position == Position::LARGE {
            let queued = self.out.large_state(id, false);
            self.drop_large(id, false);
            queued == Some(false)
        } else {
            self.out.retract(position)
        };
        if !unsent {
            self.out.push(&Header::new(Op::Cancel, id, 0), &[]);
        }
        // Even where there is nothing to say: the peer may be draining and wait for this to be the last.
        self.wake_task();
    }

    /// Answers a call of the peer. Nothing happens if its caller has left.
    pub fn reply(&mut self, id: MuxId, outcome: Outcome, answer: Vec<u8>) {
        if self.inbound.finish(id) {
            self.push_reply(id, outcome, answer);
        }
    }

    /// Answers a call that ran where its request was read, of which nothing is known here, with the bytes in `answer`, which is
    /// left empty. Whether there is room for more answers.
    #[inline]
    pub fn reply_in_place(&mut self, id: MuxId, outcome: Outcome, answer: &mut Vec<u8>) -> bool {
        self.note_call_in_place();
        if self.state != State::Open {
            answer.clear();
            return false;
        }
        if answer.len() > self.out_chunk_max() {
            self.push_reply(id, outcome, core::mem::take(answer));
        } else {
            let header = Header { handler: outcome as u32, ..Header::new(Op::Reply, id, 0) }.from_responder(true);
            self.out.push(&header, answer);
            answer.clear();
            self.wake_task();
        }
        self.has_room_out()
    }

    /// Takes up a call that has begun where its request of `bytes` bytes was read, and waits now: it is answered with
    /// [`Mux::reply`], and `cancelled` resolves when its caller leaves. `false` where the caller uses an id that is in use, or the
    /// connection has ended.
    pub fn begin_waiting(&mut self, id: MuxId, bytes: usize, deadline: Instant, cancelled: Cancelled) -> bool {
        self.note_call_in_place();
        if self.state != State::Open {
            return false;
        }
        let is_new = self.inbound.begin_running(id, bytes, deadline, cancelled);
        self.counters.misfit += u64::from(!is_new);
        is_new
    }

    /// A call was given up before it began where its request was read.
    pub fn note_cancelled_in_place(&mut self) {
        self.note_call_in_place();
        self.counters.abandoned += 1;
    }

    fn note_call_in_place(&mut self) {
        self.counters.messages_in += 1;
        self.counters.calls_in += 1;
    }

    fn push_reply(&mut self, id: MuxId, outcome: Outcome, answer: Vec<u8>) {
        let (outcome, answer) = if answer.len() > self.payload_out_max() {
            (Outcome::AnswerTooLong, Vec::new())
        } else {
            (outcome, answer)
        };
        let header = Header { handler: outcome as u32, ..Header::new(Op::Reply, id, 0) }.from_responder(true);
        if answer.len() > self.out_chunk_max() {
            self.out.push_large(header, Arc::new(answer), Class::Foreground);
        } else {
            self.out.push(&header, &answer);
        }
        self.wake_task();
    }

    /// What calls of the peer may begin now without this mux: none while this side drains or the peer leaves too much unread.
    #[must_use]
    pub fn admission(&self) -> Admission {
        let is_open = self.state == State::Open && !self.draining && self.has_room_out();
        let (calls, bytes) = self.inbound.room();
        Admission { is_open, calls, bytes }
    }

    /// The number of `handler` on `route` for this connection; tells the peer the route at its first use.
    fn intern_route(&mut self, route: &str, handler: u16) -> Result<u32, Reason> {
        if route.is_empty() {
            return Ok(u32::from(handler));
        }
        if let Some(number) = self.routes_out.get(route) {
            return Ok(u32::from(*number) << 16 | u32::from(handler));
        }
        let number = u16::try_from(self.routes_out.len() + 1).map_err(|_| Reason::Overloaded)?;
        if number > self.peer_limits.routes_max || route.len() > ROUTE_LEN_MAX {
            return Err(Reason::Overloaded);
        }
        self.routes_out.insert(route.to_owned(), number);
        self.out.push(&Header::new(Op::Route, MuxId::CONNECTION, u64::from(number)), route.as_bytes());
        self.wake_task();
        Ok(u32::from(number) << 16 | u32::from(handler))
    }

    /// The route that the peer's `number` stands for; `None` if nothing here is bound to it.
    ///
    /// # Panics
    /// When `number` is not one that [`Work::Route`] gave.
    pub fn set_route(&mut self, number: u16, route: Option<RouteIndex>) {
        assert!(number >= 1 && number <= self.limits.routes_max, "checked when it was received");
        let at = usize::from(number - 1);
        if self.routes_in.len() <= at {
            self.routes_in.resize(at + 1, None);
        }
        self.routes_in[at] = route;
    }

    /// Asks the peer to prove the newest secret.
    pub fn push_challenge(&mut self, challenge: &[u8]) {
        self.push_about_secret(Op::Challenge, challenge);
    }

    fn push_about_secret(&mut self, op: Op, payload: &[u8]) {
        if self.state == State::Open {
            self.out.push_control(&Header::new(op, MuxId::CONNECTION, 0), payload);
            self.wake_task();
        }
    }

    /// Answers such a question of the peer.
    pub fn push_proof(&mut self, proof: &[u8]) {
        self.push_about_secret(Op::Proof, proof);
    }

    /// Refuses new work of the peer from now on, and tells it; running work goes on.
    pub fn drain(&mut self) {
        if !self.draining && self.state == State::Open {
            self.draining = true;
            self.out.push(&Header::new(Op::GoAway, MuxId::CONNECTION, 0), &[]);
            self.wake_task();
        }
    }

    /// Goes on with draining, whoever began it; whether this side began it and all is finished, so that the connection can
    /// be closed.
    ///
    /// Having nothing to do is not enough for that: a call of the peer may be on its way. So the side that does not drain
    /// says when it has nothing more for the other, and only then the other closes.
    pub fn go_on_draining(&mut self) -> bool {
        if !self.draining && !self.peer_draining {
            return false;
        }
        let nothing_asked = self.calls.waiting() == 0 && self.streams.have_ended();
        if self.peer_draining && !self.told_done && nothing_asked && self.state == State::Open {
            self.told_done = true;
            self.out.push(&Header::new(Op::GoAway, MuxId::CONNECTION, GO_AWAY_DONE), &[]);
        }
        self.draining && self.peer_done && nothing_asked && self.inbound.is_empty() && self.out.queued() == 0
    }

    /// Whether the peer drains and knows that this side has nothing more for it: its end is no loss then.
    #[must_use]
    pub fn is_let_go(&self) -> bool {
        self.told_done
    }

    /// Whether the peer refuses new work.
    #[must_use]
    pub fn is_peer_draining(&self) -> bool {
        self.peer_draining
    }

    /// Ends the connection: every call and stream ends with `lost` as its reason, every handler is stopped.
    pub fn close(&mut self, lost: Lost) {
        if self.state != State::Open {
            return;
        }
        self.state = State::Closed(lost);
        self.calls.fail_all(lost, &self.out);
        self.inbound.cancel_all();
        self.streams.fail_all(&StreamError::Cut(Reason::Disconnected(lost)));
        // Calls that waited here were told that they were not sent.
        self.out.clear();
        self.pong = None;
        self.wake_task();
        // Nothing is left to wake it for.
        self.task = None;
    }

    /// Why the connection ended, if it has.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        match self.state {
            State::Open => None,
            State::Closed(lost) => Some(lost),
        }
    }

    /// Moves the next frames into `batch`; whether there were any.
    pub fn take_batch(&mut self, batch: &mut Batch) -> bool {
        if let Some(token) = self.pong.take() {
            self.out.push_control(&Header::new(Op::Pong, MuxId::CONNECTION, token), &[]);
        }
        let streams = &mut self.streams;
        let any = self.out.take_batch(batch, |id, responder| {
            // The key of our own end: the peer is the responder where we are not.
            if let Some(stream) = streams.find(id, !responder).and_then(|key| streams.get(key)) {
                stream.sending.large_leaving = false;
                stream.sending.wake();
            }
        });
        self.wake_senders();
        any
    }

    /// Whether the outbox takes more than what it must.
    fn has_room_out(&self) -> bool {
        self.out.queued() <= self.limits.outbound_bytes_max
    }

    /// Wakes the streams that wait for the outbox, if it has room.
    fn wake_senders(&mut self) {
        if self.senders_wait && self.has_room_out() {
            self.senders_wait = false;
            self.streams.wake_senders();
        }
    }

    /// Drops what is left of a large payload.
    fn drop_large(&mut self, id: MuxId, responder: bool) {
        self.out.drop_large(id, responder);
        self.wake_senders();
    }

    /// A batch is in the socket; its buffers come back.
    pub fn handle_written(&mut self, len: u64, batch_done: bool, spare: &mut Vec<Vec<u8>>) {
        self.accepted += len;
        self.out.reuse(spare);
        if batch_done && self.liveness.is_ping_waiting() {
            self.liveness.handle_ping_written(self.accepted);
        }
    }

    /// When [`Mux::handle_timeout`] has to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.liveness
            .next_timeout()
            .min(self.calls.next_deadline())
            .min(self.inbound.next_deadline())
            .min(self.streams.next_deadline())
    }

    /// Time has passed. `unacked` as [`Wire::unacked_bytes`](crate::seam::Wire::unacked_bytes) says; `connections` is how many this
    /// server has: a peer from which nothing is awaited is asked less often the more there are.
    pub fn handle_timeout(&mut self, now: Instant, unacked: Option<u64>, connections: usize) {
        self.now = self.now.max(now);
        if self.state != State::Open {
            return;
        }
        for (id, position) in self.calls.expire(now, &self.out) {
            self.push_cancel(id, position);
        }
        self.counters.abandoned += self.inbound.expire(now);
        for key in self.streams.expired(now) {
            self.cut_stream(key, &StreamError::Cut(Reason::Deadline), Outcome::Expired);
        }
        // Before the peer is judged: otherwise what is awaited since the last look would be asked about only at the next one.
        if self.calls.waiting() == 0 && self.streams.is_empty() && self.out.queued() == 0 {
            self.liveness.handle_rest(connections);
        } else {
            self.liveness.handle_awaited(self.now);
        }
        match self.liveness.handle_timeout(now, self.accepted, unacked) {
            Verdict::Fine => {}
            Verdict::Ping(token) => self.out.push_control(&Header::new(Op::Ping, MuxId::CONNECTION, token), &[]),
            Verdict::Dead => self.close(Lost::Silent),
        }
        if self.is_idle() {
            self.out.release_memory();
            self.calls.release_memory();
            self.streams.release_memory();
            self.scratch = Vec::new();
        }
    }

    /// Whether, since the last time, something was received that may make a task of this server send more.
    pub fn take_stirred(&mut self) -> bool {
        core::mem::take(&mut self.stirred)
    }

    /// Bytes that wait to be written.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.out.queued()
    }

    /// Whether something waits to be written.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.out.queued() > 0 || self.pong.is_some()
    }

    /// Whether nothing runs in either direction.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.waiting() == 0 && self.inbound.is_empty() && self.streams.is_empty() && self.out.queued() == 0
    }

    /// Notes the connection's task, to be woken when there is something to write or to look at.
    pub fn sleep(&mut self, task: &Waker) {
        match &mut self.task {
            Some(old) => old.clone_from(task),
            empty => *empty = Some(task.clone()),
        }
        self.sleeps = true;
    }

    /// The connection's task is awake: nothing needs to wake it.
    pub fn awake(&mut self) {
        self.sleeps = false;
    }

    #[inline]
    fn wake_task(&mut self) {
        if core::mem::take(&mut self.sleeps)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Smoothed round trip, once measured.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.liveness.round_trip()
    }

    /// The peer is asked whether it lives if it has not been heard for a while, whatever is awaited from it.
    pub fn ask_peer(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.liveness.handle_doubt(self.now);
        self.wake_task();
    }

    /// Whether the peer answers later than it should.
    #[must_use]
    pub fn is_suspect(&self, now: Instant) -> bool {
        self.liveness.is_suspect(now)
    }

    /// How long the peer has not been heard.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Duration {
        self.liveness.silence(now)
    }

    /// Calls waiting here, calls of the peer being handled, open streams, bytes to be written.
    #[must_use]
    pub fn in_flight(&self) -> (usize, usize, usize, usize) {
        (self.calls.waiting() as usize, self.inbound.len(), self.streams.len(), self.out.queued())
    }

    /// The call that was started last.
    #[cfg(test)]
    pub(crate) fn last_call(&self) -> MuxId {
        self.calls.last()
    }

    /// Bytes of memory held for queues and tables, without what waits in them.
    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.out.held_bytes() + self.calls.held_bytes() + self.streams.held_bytes() + self.scratch.capacity()
    }

    /// What limits the calls of this side.
    #[must_use]
    pub fn call_limits(&self) -> CallLimits {
        CallLimits {
            calls: usize::try_from(self.calls.max()).unwrap_or(usize::MAX),
            request_bytes: self.out_chunk_max(),
            queued_bytes: self.limits.outbound_bytes_max,
        }
    }

    fn out_chunk_max(&self) -> usize {
        self.limits.chunk_max.min(self.peer_limits.chunk_max)
    }

    fn payload_out_max(&self) -> usize {
        self.limits.payload_max.min(self.peer_limits.payload_max)
    }

    fn push_outcome(&mut self, op: Op, id: MuxId, responder: bool, outcome: Outcome, payload: &[u8]) -> Position {
        let header = Header { handler: outcome as u32, ..Header::new(op, id, 0) }.from_responder(responder);
        self.wake_task();
        self.out.push(&header, payload)
    }
}

/// Sequence of an [`Op::GoAway`] that answers one.
const GO_AWAY_DONE: u64 = 1;
/// Longest name of a route, bytes.
pub const ROUTE_LEN_MAX: usize = 256;
/// Longest text of a refusal that travels, bytes: with its code it fits into the shortest chunk.
const REFUSAL_TEXT_MAX: usize = 1_000;

/// The first part of a payload of `total` bytes, with room for the others.
fn first_of(part: &[u8], total: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(total);
    payload.extend_from_slice(part);
    payload
}

/// Milliseconds until `deadline`, at least 1; 0 for none.
fn remaining_ms(now: Instant, deadline: Instant) -> u32 {
    if deadline == Instant::NEVER {
        return 0;
    }
    u32::try_from(deadline.saturating_since(now).as_millis()).unwrap_or(u32::MAX).max(1)
}

/// When a deadline that a message carries is, here.
pub(crate) fn deadline_from_ms(now: Instant, deadline_ms: u32) -> Instant {
    if deadline_ms == 0 { Instant::NEVER } else { now + Duration::from_millis(u64::from(deadline_ms)) }
}

/// The written form of a refusal.
#[must_use]
pub fn encode_refusal(refusal: &Refusal) -> Vec<u8> {
    let mut end = refusal.text.len().min(REFUSAL_TEXT_MAX);
    while !refusal.text.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = Vec::new();
    pack::write_array_len(&mut out, 2);
    pack::write_uint(&mut out, u64::from(refusal.code));
    pack::write_str(&mut out, &refusal.text[..end]);
    out
}

/// A refusal from its written form.
fn decode_refusal(bytes: &[u8]) -> Option<Refusal> {
    let mut reader = Reader::new(bytes);
    if reader.read_array_len().ok()? != 2 {
        return None;
    }
    let code = u32::try_from(reader.read_uint().ok()?).ok()?;
    Some(Refusal::new(code, reader.read_str(REFUSAL_TEXT_MAX).ok()?))
}

/// Whether a message comes from the responder of its id.
const fn from_responder(flags: Flags) -> bool {
    flags.contains(Flags::RESPONDER)
}

#[cfg(test)]
mod tests;
