//! The two ends, what is between them, and what each of them has been told.

use core::task::{Context, Poll};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_grid::config::{Limits, Timing};
use ashlar_grid::error::{CallError, Lost, Outcome, Refusal, StreamError};
use ashlar_grid::frame::{Decoder, Piece, Side};
use ashlar_grid::handler::RouteIndex;
use ashlar_grid::message::{Assembler, Flags, Header, Message, MuxId, Op};
use ashlar_grid::mux::streams::{StreamKey, cost};
use ashlar_grid::mux::{Mux, NewCall, ProtocolError, Work, encode_refusal};
use ashlar_grid::outbox::{Batch, Class};
use ashlar_grid::seam::Lane;
use ashlar_wire::checksum::Salt;
use ashlar_wire::time::Instant;

use crate::deeds::{Deed, Forged, Input};
use crate::watch::Watch;

/// The handler that answers on the spot.
const INLINE: u16 = 1;
const SERVED: u16 = 2;
/// What is asked, and answered with itself.
const CHALLENGE: &[u8] = b"prove it";
const ROUTES: [&str; 3] = ["", "bound", "unbound"];

struct Peer {
    mux: Mux,
    limits: Limits,
    decoder: Decoder,
    assembler: Assembler,
    /// Calls that a handler works on, by the tag of their request.
    work: Vec<(MuxId, u32)>,
    /// What has left and not arrived.
    flight: VecDeque<u8>,
    /// The connection's task, which sleeps while it has nothing to write.
    task: Watch<()>,
    asleep: bool,
}

struct Call {
    end: usize,
    tag: u32,
    id: Option<MuxId>,
    watch: Watch<()>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sends {
    Message,
    End,
    Flush,
}

/// One role in a stream: 0 opened it, 1 serves it.
#[derive(Default)]
struct Role {
    key: Option<StreamKey>,
    /// Lengths of the messages that it sent; each holds its number.
    sent: Vec<usize>,
    ended: bool,
    received: usize,
    over: Option<Result<(), StreamError>>,
    sending: Watch<Sends>,
    receiving: Watch<()>,
}

struct Stream {
    /// The end that opened it.
    end: usize,
    roles: [Role; 2],
}

pub struct Rig {
    peers: [Peer; 2],
    calls: Vec<Call>,
    streams: Vec<Stream>,
    /// Streams that nobody opened.
    strays: Vec<(usize, StreamKey)>,
    now: Instant,
    /// Nothing was forged.
    honest: bool,
    /// Tags of calls whose handler ran, and of those that were said never to run.
    ran: BTreeSet<u32>,
    never: BTreeSet<u32>,
    answers: BTreeMap<u32, Vec<u8>>,
}

/// A payload that shows its tag and its length.
fn payload(tag: u32, len: usize) -> Vec<u8> {
    let mut payload = tag.to_be_bytes().to_vec();
    payload.extend((4..len).map(|at| at.to_be_bytes()[7] ^ tag.to_be_bytes()[3]));
    payload
}

fn tag_of(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(payload.get(..4)?.try_into().ok()?))
}

fn limits(narrow: bool) -> Limits {
    let small = Limits { chunk_max: 1_024, ..Limits::for_lane(Lane::Small) };
    if !narrow {
        return Limits { payload_max: 8_192, stream_window: 4_096, stream_window_max: 16_384, ..small };
    }
    Limits {
        calls_in_flight_max: 3,
        streams_open_max: 2,
        inbound_bytes_max: 6_000,
        outbound_bytes_max: 6_000,
        payload_max: 5_000,
        stream_window: 100,
        stream_window_max: 3_000,
        routes_max: 1,
        ..small
    }
}

impl Rig {
    pub fn new(input: &Input) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let salt = input.checksums.then(|| Salt::new(&[b"rig"]));
        let peer = |side, own: Limits, other| Peer {
            mux: Mux::new(side, own, other, &Timing::default(), salt, now),
            limits: own,
            decoder: Decoder::new(side),
            assembler: Assembler::new(own.chunk_max, salt),
            work: Vec::new(),
            flight: VecDeque::new(),
            task: Watch::default(),
            asleep: false,
        };
        let [one, other] = input.narrow.map(limits);
        Self {
            peers: [peer(Side::Dialer, one, other), peer(Side::Acceptor, other, one)],
            calls: Vec::new(),
            streams: Vec::new(),
            strays: Vec::new(),
            now,
            honest: true,
            ran: BTreeSet::new(),
            never: BTreeSet::new(),
            answers: BTreeMap::new(),
        }
    }

    pub fn run(&mut self, deed: &Deed) {
        match deed {
            Deed::Call { end, len, route, deadline_ms, background, inline } => {
                self.call(usize::from(*end), *len, *route, *deadline_ms, *background, *inline);
            }
            Deed::PollCall { which } => self.poll_call(usize::from(*which)),
            Deed::CancelCall { which } => self.cancel_call(usize::from(*which)),
            Deed::Reply { end, which, outcome, len } => {
                self.reply(usize::from(*end), usize::from(*which), *outcome, *len);
            }
            Deed::Open { end, window, deadline_ms } => self.open(usize::from(*end), *window, *deadline_ms),
            Deed::Send { which, by_responder, len } => {
                self.send(usize::from(*which), usize::from(*by_responder), usize::from(*len % 9_000));
            }
            Deed::Receive { which, by_responder } => {
                self.receive(usize::from(*which), usize::from(*by_responder));
            }
            Deed::Finish { which, by_responder } => self.finish(usize::from(*which), usize::from(*by_responder)),
            Deed::Release { which } => self.release(usize::from(*which)),
            Deed::Return { which, refuses } => self.return_served(usize::from(*which), *refuses),
            Deed::Abandon { which } => self.abandon(usize::from(*which)),
            Deed::Take { end } => {
                self.take(usize::from(*end));
            }
            Deed::Deliver { from, len } => self.deliver(usize::from(*from), usize::from(*len) + 1),
            Deed::Settle => self.settle(),
            Deed::Pass { ms } => self.pass(*ms),
            Deed::Drain { end } => self.peers[usize::from(*end)].mux.drain(),
            Deed::Close { end } => self.peers[usize::from(*end)].mux.close(Lost::Closed),
            Deed::Challenge { end } => self.peers[usize::from(*end)].mux.push_challenge(CHALLENGE),
            Deed::Forge { to, message } => self.forge(usize::from(*to), message),
        }
    }

    /// What holds at any time; and lets connections' tasks sleep.
    pub fn check(&mut self) {
        for peer in &mut self.peers {
            let (waiting, served, streams, queued) = peer.mux.in_flight();
            let (calls_max, streams_max) = (peer.limits.calls_in_flight_max, peer.limits.streams_open_max);
            assert!(waiting.max(served) <= calls_max as usize && streams <= 2 * streams_max as usize);
            let counters = peer.mux.counters();
            assert!(!self.honest || (counters.misfit, counters.unknown_ops) == (0, 0), "{counters:?}");
            assert!(peer.mux.lost().is_none() || (served, queued) == (0, 0));
            // As the connection's task does before it sleeps, and again when it is woken.
            let drained = peer.mux.go_on_draining();
            if peer.asleep && !peer.task.is_woken() {
                let idle = !drained && !peer.mux.has_output() && peer.mux.lost().is_none();
                assert!(idle, "the connection sleeps although it has something to do");
                continue;
            }
            peer.asleep = false;
            peer.mux.awake();
            if drained {
                peer.mux.close(Lost::Drained);
            }
            if !peer.mux.has_output() && peer.mux.lost().is_none() {
                peer.task.note((), false);
                peer.mux.sleep(&peer.task.waker());
                peer.asleep = true;
            }
        }
    }

    /// The connection's own task runs.
    fn wake(&mut self, end: usize) -> &mut Peer {
        let peer = &mut self.peers[end];
        peer.asleep = false;
        peer.mux.awake();
        peer
    }

    fn deadline(&self, ms: u8) -> Instant {
        if ms == 0 { Instant::NEVER } else { self.now + Duration::from_millis(u64::from(ms) - 1) }
    }

    fn call(&mut self, end: usize, len: u16, route: u8, deadline_ms: u8, background: bool, inline: bool) {
        let tag = u32::try_from(self.calls.len()).expect("few calls");
        let call = NewCall {
            handler: if inline { INLINE } else { SERVED },
            route: ROUTES[usize::from(route) % ROUTES.len()],
            deadline: self.deadline(deadline_ms),
            class: if background { Class::Background } else { Class::Foreground },
        };
        let request = payload(tag, usize::from(len % 9_000));
        let mux = &mut self.peers[end].mux;
        let started = if background {
            mux.start_large_call(self.now, &call, request.into())
        } else {
            let mut scratch = mux.take_scratch();
            scratch.extend_from_slice(&request);
            mux.start_scratch_call(self.now, &call, scratch)
        };
        match started {
            Ok(id) => self.calls.push(Call { end, tag, id: Some(id), watch: Watch::default() }),
            Err(error) => assert!(matches!(error, CallError::NotSent(_))),
        }
    }

    fn poll_call(&mut self, which: usize) {
        let len = self.calls.len().max(1);
        let Some(call) = self.calls.get_mut(which % len) else { return };
        let Some(id) = call.id else { return };
        let (waker, mux) = (call.watch.waker(), &mut self.peers[call.end].mux);
        let result = mux.poll_call(id, &Context::from_waker(&waker));
        call.watch.note((), result.is_ready());
        let Poll::Ready(result) = result else { return };
        call.id = None;
        if !self.honest {
            return;
        }
        let ran = self.ran.contains(&call.tag);
        match result {
            Ok(answer) => assert_eq!(Some(&answer), self.answers.get(&call.tag), "the handler's answer"),
            Err(CallError::Refused(refusal)) => assert_eq!((refusal.code, ran), (call.tag, true)),
            Err(CallError::Unknown(_)) => {}
            Err(CallError::NotSent(_) | CallError::NotExecuted(_)) => {
                assert!(!ran, "it ran");
                self.never.insert(call.tag);
            }
        }
    }

    fn cancel_call(&mut self, which: usize) {
        let len = self.calls.len().max(1);
        if let Some(call) = self.calls.get_mut(which % len)
            && let Some(id) = call.id.take()
        {
            self.peers[call.end].mux.cancel_call(id);
        }
    }

    fn reply(&mut self, end: usize, which: usize, outcome: u8, len: u16) {
        let Peer { mux, work, .. } = &mut self.peers[end];
        if work.is_empty() {
            return;
        }
        let (id, tag) = work.swap_remove(which % work.len());
        let (outcome, answer) = match outcome % 4 {
            0 => (Outcome::Refused, encode_refusal(&Refusal::new(tag, "no"))),
            1 => (Outcome::Failed, Vec::new()),
            _ => (Outcome::Ok, payload(!tag, usize::from(len % 9_000))),
        };
        if outcome == Outcome::Ok {
            self.answers.insert(tag, answer.clone());
        }
        mux.reply(id, outcome, answer);
    }

    fn open(&mut self, end: usize, window: u16, deadline_ms: u8) {
        let tag = u32::try_from(self.streams.len()).expect("few streams");
        let call =
            NewCall { handler: SERVED, route: "", deadline: self.deadline(deadline_ms), class: Class::Foreground };
        let window = (u32::from(window), u32::from(window) * 4);
        match self.peers[end].mux.open_stream(self.now, &call, &tag.to_be_bytes(), window) {
            Ok(key) => {
                let roles = [Role { key: Some(key), ..Role::default() }, Role::default()];
                self.streams.push(Stream { end, roles });
            }
            Err(error) => assert!(matches!(error, StreamError::NotExecuted(_))),
        }
    }

    /// A role of a stream that is held there, with its mux.
    fn role(&mut self, which: usize, role: usize) -> Option<(&mut Mux, &mut Role, StreamKey)> {
        let len = self.streams.len().max(1);
        let stream = self.streams.get_mut(which % len)?;
        let key = stream.roles[role].key?;
        Some((&mut self.peers[stream.end ^ role].mux, &mut stream.roles[role], key))
    }

    fn send(&mut self, which: usize, role: usize, len: usize) {
        let Some((mux, role, key)) = self.role(which, role) else { return };
        let message = payload(u32::try_from(role.sent.len()).expect("few messages"), len);
        let waker = role.sending.waker();
        let sent = mux.poll_send(key, &message, &Context::from_waker(&waker));
        role.sending.note(Sends::Message, sent.is_ready());
        if sent == Poll::Ready(Ok(())) {
            assert!(!role.ended, "nothing is sent after the end");
            role.sent.push(message.len());
        }
    }

    /// Whether anything came.
    fn receive(&mut self, which: usize, by: usize) -> bool {
        let honest = self.honest;
        let Some((mux, role, key)) = self.role(which, by) else { return false };
        let mut inbox = VecDeque::new();
        let waker = role.receiving.waker();
        let polled = mux.poll_receive(key, &mut inbox, &Context::from_waker(&waker));
        role.receiving.note((), polled.is_ready());
        mux.consumed(key, inbox.iter().map(|message| cost(message.len())).sum());
        assert!(role.over.is_none() || inbox.is_empty(), "nothing comes after the end");
        let any = !inbox.is_empty();
        let first = role.received;
        role.received += inbox.len();
        let received = role.received;
        if let Poll::Ready(Some(end)) = polled {
            assert!(role.over.as_ref().is_none_or(|over| *over == end), "an end stays the same");
            role.over = Some(end);
        }
        let over = role.over.clone();
        let len = self.streams.len();
        let sender = &self.streams[which % len].roles[1 - by];
        if honest {
            for (number, message) in (first..).zip(&inbox) {
                let expected = payload(u32::try_from(number).expect("few messages"), sender.sent[number]);
                assert_eq!(*message, expected, "message {number}");
            }
            if over == Some(Ok(())) {
                assert_eq!((received, sender.ended), (sender.sent.len(), true), "an end comes after all");
            }
            assert_ne!(over, Some(Err(StreamError::NotWhole)), "honest peers");
        }
        any
    }

    fn finish(&mut self, which: usize, role: usize) {
        let Some((mux, role, key)) = self.role(which, role) else { return };
        let waker = role.sending.waker();
        let finished = mux.poll_finish(key, &Context::from_waker(&waker));
        role.sending.note(Sends::End, finished.is_ready());
        role.ended |= finished == Poll::Ready(Ok(()));
    }

    fn release(&mut self, which: usize) {
        if let Some((mux, role, key)) = self.role(which, 0) {
            mux.release_stream(key);
            role.key = None;
        }
    }

    /// The handler returns, when its last large message has left.
    fn return_served(&mut self, which: usize, refuses: bool) {
        let Some((mux, role, key)) = self.role(which, 1) else { return };
        if refuses {
            mux.finish_served(key, Err(Refusal::new(1, "x".repeat(2_000))));
        } else {
            let waker = role.sending.waker();
            let flushed = mux.poll_flushed(key, &Context::from_waker(&waker));
            role.sending.note(Sends::Flush, flushed.is_ready());
            if flushed.is_pending() {
                return;
            }
            mux.finish_served(key, Ok(()));
            role.ended = true;
        }
        role.key = None;
    }

    fn abandon(&mut self, which: usize) {
        if let Some((mux, role, key)) = self.role(which, 1) {
            mux.refuse_stream(key, Outcome::Failed);
            role.key = None;
        }
    }

    /// Whether there was anything to take.
    fn take(&mut self, end: usize) -> bool {
        let peer = self.wake(end);
        let (mut batch, mut spare) = (Batch::default(), Vec::new());
        if !peer.mux.take_batch(&mut batch) {
            assert!(!peer.mux.has_output());
            return false;
        }
        let before = peer.flight.len();
        batch.slices().for_each(|slice| peer.flight.extend(slice));
        let len = peer.flight.len() - before;
        batch.advance(len, &mut spare);
        peer.mux.handle_written(len as u64, batch.is_empty(), &mut spare);
        true
    }

    fn deliver(&mut self, from: usize, len: usize) {
        let len = len.min(self.peers[from].flight.len());
        let mut bytes: Vec<u8> = self.peers[from].flight.drain(..len).collect();
        let now = self.now;
        let to = 1 - from;
        self.wake(to).mux.handle_received(now);
        let mut rest = bytes.as_mut_slice();
        loop {
            let piece = self.peers[to].decoder.next_piece(&mut rest).expect("what was written is frames");
            let Some(Piece::Payload { bytes, .. }) = piece else { break };
            let mut messages = Vec::new();
            let each = |message: Option<Message<'_>>| {
                let message = message.expect("what was written is known");
                messages.push((message.header, message.payload.to_vec()));
                Ok::<(), ProtocolError>(())
            };
            self.peers[to].assembler.handle_bytes(bytes, each).expect("what was written is messages");
            for (header, payload) in messages {
                self.hear(to, &Message { header, payload: &payload });
            }
        }
    }

    fn hear(&mut self, end: usize, message: &Message<'_>) {
        let mux = &mut self.peers[end].mux;
        let Header { op, handler, flags, id, .. } = message.header;
        let inline = op == Op::Call && !flags.contains(Flags::MORE) && handler == u32::from(INLINE);
        if inline && mux.admission().is_open {
            let mut answer = message.payload.to_vec();
            if let Some(tag) = tag_of(message.payload) {
                self.note_run(tag);
                self.answers.insert(tag, answer.clone());
            }
            self.peers[end].mux.reply_in_place(id, Outcome::Ok, &mut answer);
            return;
        }
        match mux.handle_message(self.now, message) {
            Ok(None) => {}
            Ok(Some(Work::Route { number, name })) => {
                mux.set_route(number, (name == ROUTES[1]).then_some(RouteIndex(4)))
            }
            Ok(Some(Work::Call { id, request, .. })) => {
                let tag = tag_of(&request).unwrap_or(u32::MAX);
                self.note_run(tag);
                self.peers[end].work.push((id, tag));
            }
            Ok(Some(Work::Stream { key, initial, .. })) => self.serve_stream(end, key, &initial),
            Ok(Some(Work::Challenge(challenge))) => mux.push_proof(&challenge[..challenge.len().min(64)]),
            Ok(Some(Work::Proof(proof))) => assert!(!self.honest || proof == CHALLENGE),
            Err(_) => {
                assert!(!self.honest, "honest peers keep to the protocol");
                mux.close(Lost::Protocol);
            }
        }
    }

    fn note_run(&mut self, tag: u32) {
        if self.honest {
            assert!(self.ran.insert(tag), "call {tag} runs twice");
            assert!(!self.never.contains(&tag), "call {tag} was said not to run");
        }
    }

    fn serve_stream(&mut self, end: usize, key: StreamKey, initial: &[u8]) {
        let tag = tag_of(initial).and_then(|tag| usize::try_from(tag).ok());
        let stream = tag.and_then(|tag| self.streams.get_mut(tag));
        match stream.filter(|stream| stream.end != end && stream.roles[1].key.is_none()) {
            Some(stream) => stream.roles[1].key = Some(key),
            None => {
                assert!(!self.honest, "a stream that nobody opened");
                self.strays.push((end, key));
            }
        }
    }

    fn forge(&mut self, to: usize, forged: &Forged) {
        self.honest = false;
        self.wake(to);
        let header = Header {
            id: MuxId { slot: u32::from(forged.slot), generation: u32::from(forged.generation) },
            sequence: forged.sequence,
            deadline_ms: forged.deadline_ms,
            handler: forged.handler,
            op: Op::ALL[usize::from(forged.op) % Op::ALL.len()],
            flags: Flags(forged.flags),
        };
        let payload = &forged.payload[..forged.payload.len().min(1_024)];
        self.hear(to, &Message { header, payload });
    }

    fn settle(&mut self) {
        loop {
            let mut any = false;
            for end in [0, 1] {
                any |= self.take(end);
                any |= !self.peers[end].flight.is_empty();
                self.deliver(end, usize::MAX);
            }
            if !any {
                return;
            }
        }
    }

    fn pass(&mut self, ms: u16) {
        self.now = self.now + Duration::from_millis(u64::from(ms % 4_000));
        for end in [0, 1] {
            let now = self.now;
            let mux = &mut self.wake(end).mux;
            mux.handle_timeout(now, None, 1);
            assert!(mux.lost().is_some() || mux.next_timeout() > now, "time moves on");
        }
    }

    /// All that can go on goes on to its end; among honest peers, nothing may be stuck then.
    pub fn calm_down(&mut self) {
        self.settle();
        self.check();
        for end in [0, 1] {
            while !self.peers[end].work.is_empty() {
                self.reply(end, 0, 2, 2_000);
            }
        }
        loop {
            self.settle();
            let mut any = false;
            for which in 0..self.streams.len() {
                any |= self.receive(which, 0);
                any |= self.receive(which, 1);
            }
            if !any {
                break;
            }
        }
        self.check();
        if !self.honest || self.peers.iter().any(|peer| peer.mux.lost().is_some()) {
            return;
        }
        for which in 0..self.calls.len() {
            self.poll_call(which);
            assert!(self.calls[which].id.is_none(), "a call without an end");
        }
        for (which, role) in (0..self.streams.len()).flat_map(|which| [(which, 0), (which, 1)]) {
            let Some((mux, _, key)) = self.role(which, role) else { continue };
            let sent = mux.poll_send(key, &[], &Context::from_waker(core::task::Waker::noop()));
            assert!(sent.is_ready(), "a stream is stuck");
            self.settle();
        }
    }

    /// After the end of the connection nothing waits, runs or is kept.
    pub fn close_all(&mut self) {
        for peer in &mut self.peers {
            peer.mux.close(Lost::Broken);
        }
        for which in 0..self.calls.len() {
            self.poll_call(which);
            assert!(self.calls[which].id.is_none(), "a call without an end");
        }
        for which in 0..self.streams.len() {
            for role in [0, 1] {
                if let Some((mux, _, key)) = self.role(which, role) {
                    let waker = core::task::Waker::noop();
                    let sent = mux.poll_send(key, &[], &Context::from_waker(waker));
                    assert!(matches!(sent, Poll::Ready(Err(_))), "a stream without an end");
                }
            }
            self.release(which);
            self.return_served(which, false);
        }
        for (end, key) in core::mem::take(&mut self.strays) {
            self.peers[end].mux.refuse_stream(key, Outcome::Failed);
        }
        for end in [0, 1] {
            assert_eq!(self.peers[end].mux.in_flight(), (0, 0, 0, 0));
            assert!(!self.take(end));
        }
    }
}
