//! Two muxes back to back, without a socket and in a time that the test tells: what one gives as bytes, the other gets,
//! cut at any place.

mod calling;
mod ends;
mod escaped;
mod exact;
mod streaming;

use std::collections::VecDeque;

use super::*;
use crate::config::Limits;
use crate::frame::{Decoder, Piece};
use crate::message::{Assembler, Message};
use crate::seam::Lane;

/// The chunk of these tests: the least that a peer may ask for.
const CHUNK: usize = 1_024;
/// The one route that is bound to something here, and what it is bound to.
const DRIVE: (&str, RouteIndex) = ("drive", RouteIndex(3));

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

/// Bytes that show where they come from.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 31 % 251).expect("less than 251")).collect()
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// What travelled: operation, id and payload length of each message.
type Seen = Vec<(Op, MuxId, usize)>;

struct End {
    mux: Mux,
    decoder: Decoder,
    assembler: Assembler,
    /// Work that the test has not looked at yet.
    work: VecDeque<Work>,
}

/// Ends 0 and 1, with what is between them.
struct Pair {
    ends: [End; 2],
    now: Instant,
    /// Received bytes come in pieces of this many.
    cut: usize,
}

impl Pair {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// A pair with other limits than usual, the same at both ends.
    fn with(change: impl Fn(&mut Limits)) -> Self {
        let mut limits = Limits { chunk_max: CHUNK, ..Limits::for_lane(Lane::Small) };
        change(&mut limits);
        Self::between(limits, limits)
    }

    fn between(one: Limits, other: Limits) -> Self {
        let end = |side, own: Limits, peer| {
            let salt = Some(Salt::new(&[b"pair"]));
            End {
                mux: Mux::new(side, own, peer, &Timing::default(), salt, at(0)),
                decoder: Decoder::new(side),
                assembler: Assembler::new(own.chunk_max, salt),
                work: VecDeque::new(),
            }
        };
        Self { ends: [end(Side::Dialer, one, other), end(Side::Acceptor, other, one)], now: at(0), cut: usize::MAX }
    }

    /// Carries one batch from `end` to the other one; what was in it. `tamper` may change each message on its way.
    fn step_over(&mut self, end: usize, mut tamper: impl FnMut(&mut Header, &mut Vec<u8>)) -> Seen {
        let (mut batch, mut spare) = (Batch::default(), Vec::new());
        if !self.ends[end].mux.take_batch(&mut batch) {
            return Seen::new();
        }
        let mut flow: Vec<u8> = batch.slices().flatten().copied().collect();
        batch.advance(flow.len(), &mut spare);
        assert!(batch.is_empty());
        self.ends[end].mux.handle_written(flow.len() as u64, true, &mut spare);
        let (now, to) = (self.now, &mut self.ends[1 - end]);
        to.mux.handle_received(now);
        let mut seen = Seen::new();
        for piece in flow.chunks_mut(self.cut.min(1 << 24)) {
            let mut piece = piece;
            while let Some(piece) = to.decoder.next_piece(&mut piece).expect("frames") {
                let Piece::Payload { bytes, .. } = piece else { panic!("only binary frames") };
                let each = |message: Option<Message<'_>>| {
                    let Message { mut header, payload } = message.expect("a known operation");
                    let mut payload = payload.to_vec();
                    seen.push((header.op, header.id, payload.len()));
                    tamper(&mut header, &mut payload);
                    match to.mux.handle_message(now, &Message { header, payload: &payload })? {
                        Some(Work::Route { number, name }) => {
                            to.mux.set_route(number, (name == DRIVE.0).then_some(DRIVE.1));
                        }
                        work => to.work.extend(work),
                    }
                    Ok::<(), ProtocolError>(())
                };
                to.assembler.handle_bytes(bytes, each).expect("messages");
            }
        }
        seen
    }

    fn step(&mut self, end: usize) -> Seen {
        self.step_over(end, |_, _| {})
    }

    /// Carries everything both ways until nothing waits.
    fn settle(&mut self) {
        while self.ends.iter().any(|end| end.mux.has_output()) {
            self.step(0);
            self.step(1);
        }
    }

    /// Lets time pass at both ends.
    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        for end in &mut self.ends {
            end.mux.handle_received(self.now);
            end.mux.handle_timeout(self.now, None, 1);
        }
    }

    fn start(&mut self, end: usize, request: &[u8]) -> Result<MuxId, CallError> {
        self.start_with(end, request, "", Instant::NEVER)
    }

    fn start_with(&mut self, end: usize, request: &[u8], route: &str, deadline: Instant) -> Result<MuxId, CallError> {
        let call = NewCall { handler: 7, route, deadline, class: Class::Foreground };
        self.ends[end].mux.start_call(self.now, &call, request)
    }

    fn result(&mut self, end: usize, id: MuxId) -> Option<CallResult> {
        match self.ends[end].mux.poll_call(id, &context()) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Answers each call that waits at `end` with its own request; how many there were.
    fn serve(&mut self, end: usize) -> usize {
        let End { mux, work, .. } = &mut self.ends[end];
        let work = core::mem::take(work);
        let count = work.len();
        for work in work {
            let Work::Call { id, request, .. } = work else { panic!("a call, not {work:?}") };
            mux.reply(id, Outcome::Ok, request);
        }
        count
    }

    /// The next call that waits at `end`.
    fn next_call(&mut self, end: usize) -> (MuxId, RouteIndex, Vec<u8>, Cancelled) {
        match self.ends[end].work.pop_front() {
            Some(Work::Call { id, route, request, cancelled, .. }) => (id, route, request, cancelled),
            other => panic!("a call, not {other:?}"),
        }
    }

    fn open(&mut self, end: usize, window: u32) -> StreamKey {
        self.try_open(end, window, Instant::NEVER).expect("opened")
    }

    fn try_open(&mut self, end: usize, window: u32, deadline: Instant) -> Result<StreamKey, StreamError> {
        let call = NewCall { handler: 9, route: "", deadline, class: Class::Foreground };
        self.ends[end].mux.open_stream(self.now, &call, b"initial", (window, window))
    }

    /// The stream that waits at `end` for its handler.
    fn accept(&mut self, end: usize) -> (StreamKey, Cancelled) {
        match self.ends[end].work.pop_front() {
            Some(Work::Stream { key, initial, cancelled, handler: 9, .. }) if initial == b"initial" => (key, cancelled),
            other => panic!("a stream, not {other:?}"),
        }
    }

    /// A stream from end 0 to end 1, open at both.
    fn opened(&mut self, window: u32) -> (StreamKey, StreamKey) {
        let key = self.open(0, window);
        self.settle();
        (key, self.accept(1).0)
    }

    fn send(&mut self, end: usize, key: StreamKey, message: &[u8]) -> Poll<Result<(), StreamError>> {
        self.ends[end].mux.poll_send(key, message, &context())
    }

    fn finish(&mut self, end: usize, key: StreamKey) -> Poll<Result<(), StreamError>> {
        self.ends[end].mux.poll_finish(key, &context())
    }

    /// All messages that have come, and the end if it has; what was taken is told as consumed.
    fn receive(&mut self, end: usize, key: StreamKey) -> (Vec<Vec<u8>>, Option<Result<(), StreamError>>) {
        let mut all = Vec::new();
        loop {
            let mut inbox = VecDeque::new();
            match self.ends[end].mux.poll_receive(key, &mut inbox, &context()) {
                Poll::Pending => return (all, None),
                Poll::Ready(Some(result)) => return (all, Some(result)),
                Poll::Ready(None) => {
                    let cost = inbox.iter().map(|message| streams::cost(message.len())).sum();
                    all.extend(inbox);
                    self.ends[end].mux.consumed(key, cost);
                }
            }
        }
    }

    /// Whether nothing is left at either end.
    fn assert_empty(&self) {
        for end in &self.ends {
            assert_eq!(end.mux.in_flight(), (0, 0, 0, 0));
        }
    }

    /// That nobody sent what he must not.
    fn assert_fits(&self) {
        for end in &self.ends {
            let Counters { misfit, unknown_ops, .. } = end.mux.counters();
            assert_eq!((misfit, unknown_ops), (0, 0));
        }
    }
}
