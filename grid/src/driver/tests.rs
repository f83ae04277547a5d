//! One driver without a socket: what comes in one batch, and what has left after each of its turns.

mod handed_over;
mod served;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::secret::Secret;

use super::*;
use crate::config::{Limits, Timing};
use crate::error::Outcome;
use crate::frame::{Decoder, Segment, Side};
use crate::handler::{HandlerId, Handlers};
use crate::hello::{PeerLimits, Secrets, Session};
use crate::link::PendingCall;
use crate::message::{Assembler, Header, MuxId, Op, encode};
use crate::mux::{Mux, NewCall};
use crate::outbox::Class;
use crate::rotation::{Keyring, Proofs};
use crate::seam::{Lane, Threads};

/// Answers with the request.
const ECHO: HandlerId = HandlerId::new(1);
const PAYLOAD: [u8; 512] = [5; 512];
const NOW: Instant = Instant::from_nanos(1_000_000_000);

/// A world where nothing happens, on the thread of a number. It counts how often it was asked for the time, and the tasks that
/// it was given and dropped.
#[derive(Default)]
struct Still {
    readings: Mutex<u32>,
    tasks: Mutex<u32>,
    thread: usize,
    /// What each reading of the clock takes.
    step: Duration,
}

impl Threads for Still {
    fn thread_number(&self) -> usize {
        self.thread
    }

    fn spawn(&self, _: BoxFuture<()>) {
        *self.tasks.lock().expect("nobody panics with it") += 1;
    }
}

impl Runtime for Still {
    type Wire = Pipe;

    fn now(&self) -> Instant {
        let mut readings = self.readings.lock().expect("nobody panics with it");
        *readings += 1;
        NOW + self.step * *readings
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<()> {
        Box::pin(core::future::pending())
    }

    fn dial(&self, _: &str, _: Lane) -> BoxFuture<Result<Pipe, WireError>> {
        Box::pin(core::future::pending())
    }

    fn random(&self, _: &mut [u8]) {}
}

/// Gives one batch after the other, then nothing; counts what it is given.
struct Pipe {
    incoming: VecDeque<Vec<u8>>,
    kernel: Arc<Mutex<Kernel>>,
}

/// The other side of a pipe.
#[derive(Default)]
struct Kernel {
    /// Others come first.
    is_busy: bool,
    writes: u32,
    written: usize,
}

impl Wire for Pipe {
    fn poll_read(&mut self, _: &mut Context<'_>, sink: &mut dyn FnMut(&mut [u8])) -> Poll<Result<usize, WireError>> {
        let Some(mut batch) = self.incoming.pop_front() else { return Poll::Pending };
        sink(&mut batch);
        Poll::Ready(Ok(batch.len()))
    }

    fn poll_turn(&mut self, _: &mut Context<'_>) -> Poll<()> {
        let is_busy = self.kernel.lock().expect("nobody panics with it").is_busy;
        if is_busy { Poll::Pending } else { Poll::Ready(()) }
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, WireError>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let mut kernel = self.kernel.lock().expect("nobody panics with it");
        kernel.writes += 1;
        kernel.written += len;
        Poll::Ready(Ok(len))
    }

    fn unacked_bytes(&self) -> Option<u64> {
        None
    }

    fn channel_binding(&self) -> [u8; 32] {
        [0; 32]
    }
}

fn link() -> Arc<Link> {
    let (limits, secrets) = (Limits::for_lane(Lane::Small), Secrets::new(Secret::from_bytes([7; 32])));
    let session = Session {
        peer: ServerId::from_bytes([2; 16]),
        incarnation: Incarnation(1),
        peer_address: String::new(),
        lane: Lane::Small,
        peer_limits: PeerLimits::of(limits),
        version: 1,
        features: 0,
        key: secrets.newest().key_id(),
        id: 1,
        salt: None,
    };
    let proofs = Proofs::new(Keyring::new(secrets), ServerId::from_bytes([1; 16]), &session, [0; 32]);
    let mux = Mux::new(Side::Dialer, limits, limits, &Timing::default(), None, NOW);
    Arc::new(Link::new(mux, session, proofs, NOW))
}

/// A connection to which a batch has come: the answer to a call of this side, and `calls` calls of the peer.
struct Setup {
    runtime: Arc<Still>,
    driver: Driver<Still>,
    link: Arc<Link>,
    pending: Vec<PendingCall>,
    kernel: Arc<Mutex<Kernel>>,
}

impl Setup {
    fn new(calls: u32) -> Self {
        Self::on_thread(0, calls)
    }

    fn on_thread(thread: usize, calls: u32) -> Self {
        let echo = |_, request: &[u8], answer: &mut Vec<u8>| {
            answer.extend_from_slice(request);
            Ok(())
        };
        let handlers = Handlers::new().inline_bytes(ECHO, echo).expect("the first");
        Self::with(Still { thread, ..Still::default() }, handlers, calls)
    }

    fn with(runtime: Still, handlers: Handlers, calls: u32) -> Self {
        let (link, kernel) = (link(), Arc::default());
        let pending = vec![call(&link)];
        let mut batch = Batch::default();
        link.lock().take_batch(&mut batch);

        let mut segment = Segment::new(Vec::new());
        let id = MuxId { slot: 0, generation: 1 };
        let reply = Header { handler: Outcome::Ok as u32, ..Header::new(Op::Reply, id, 0) }.from_responder(true);
        encode(segment.payload_mut(), &reply, &PAYLOAD, None);
        for slot in 0..calls {
            let id = MuxId { slot, generation: 1 };
            let header = Header { handler: u32::from(ECHO.number()), ..Header::new(Op::Call, id, 0) };
            encode(segment.payload_mut(), &header, &PAYLOAD, None);
        }
        segment.seal(Side::Acceptor);

        let (runtime, handlers) = (Arc::new(runtime), Arc::new(handlers));
        let assembler = Assembler::new(Limits::for_lane(Lane::Small).chunk_max, None);
        let decoder = Decoder::new(Side::Dialer);
        let inlet = Inlet::new(runtime.clone(), Side::Dialer, link.clone(), handlers, decoder, assembler);
        let pipe = Pipe { incoming: [segment.as_bytes().to_vec()].into(), kernel: Arc::clone(&kernel) };
        let driver = Driver::new(runtime.clone(), pipe, link.clone(), inlet, Arc::default());
        Self { runtime, driver, link, pending, kernel }
    }

    /// Runs one turn: bytes written and readings of the clock, since the beginning.
    fn turn(&mut self) -> (usize, u32) {
        let mut cx = Context::from_waker(core::task::Waker::noop());
        assert!(Pin::new(&mut self.driver).poll(&mut cx).is_pending(), "the connection lives");
        let readings = *self.runtime.readings.lock().expect("nobody panics with it");
        (self.kernel().written, readings)
    }

    /// A reply to call `id` comes with the next batch.
    fn receive(&mut self, id: MuxId, payload: &[u8]) {
        let mut segment = Segment::new(Vec::new());
        let reply = Header { handler: Outcome::Ok as u32, ..Header::new(Op::Reply, id, 0) }.from_responder(true);
        encode(segment.payload_mut(), &reply, payload, None);
        segment.seal(Side::Acceptor);
        self.driver.wire.incoming.push_back(segment.as_bytes().to_vec());
    }

    /// Writes so far, and bytes written.
    fn counts(&self) -> (u32, usize) {
        let kernel = self.kernel();
        (kernel.writes, kernel.written)
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("nobody panics with it")
    }
}

fn call(link: &Arc<Link>) -> PendingCall {
    let call = NewCall { handler: 1, route: "", deadline: Instant::NEVER, class: Class::Foreground };
    let mut pending = link.call(NOW, &call, &PAYLOAD).expect("the connection is open");
    let mut cx = Context::from_waker(core::task::Waker::noop());
    assert!(Pin::new(&mut pending).poll(&mut cx).is_pending());
    pending
}

#[test]
fn answers_leave_before_woken_callers_add_to_them_if_they_are_worth_a_write() {
    let mut setup = Setup::new(16);
    let [(first, _), (second, _)] = [setup.turn(), setup.turn()];
    assert!(first > 16 * 512 && second - first < 512, "{first}, then {second}");
    let mut setup = Setup::new(1);
    let [(first, _), (second, _)] = [setup.turn(), setup.turn()];
    assert!(first == 0 && second > 512, "{first}, then {second}");
}

#[test]
fn a_turn_reads_the_clock_once() {
    let mut setup = Setup::new(16);
    let before = *setup.runtime.readings.lock().expect("nobody panics with it");
    let readings = [(); 3].map(|()| setup.turn().1 - before);
    assert_eq!(readings, [1, 2, 3], "for what was received, then for the timer");
}

#[test]
fn a_connection_in_line_gathers_what_is_added() {
    let mut setup = Setup::new(1);
    setup.kernel().is_busy = true;
    assert_eq!([setup.turn().0, setup.turn().0], [0, 0], "an answer waits");
    for _ in 0..3 {
        setup.pending.push(call(&setup.link));
    }
    assert_eq!(setup.turn().0, 0);
    setup.kernel().is_busy = false;
    let written = setup.turn().0;
    assert!(written > 4 * 512 && setup.kernel().writes == 1, "{written} bytes in {} writes", setup.kernel().writes);
}

#[test]
fn what_is_worth_a_write_stands_in_no_line() {
    let mut setup = Setup::new(16);
    setup.kernel().is_busy = true;
    assert!(setup.turn().0 > 16 * 512);
}

/// It must notice what becomes of the connection meanwhile, and sleep as usual afterwards.
#[test]
fn a_connection_in_line_can_end_and_can_go_on() {
    let mut cx = Context::from_waker(core::task::Waker::noop());
    let mut setup = Setup::new(1);
    setup.kernel().is_busy = true;
    setup.turn();
    setup.turn();
    setup.link.lock().close(Lost::Shutdown);
    assert!(Pin::new(&mut setup.driver).poll(&mut cx).is_ready());

    let mut setup = Setup::new(1);
    setup.kernel().is_busy = true;
    setup.turn();
    setup.turn();
    setup.kernel().is_busy = false;
    setup.turn();
    let woken = Arc::new(Woken::default());
    let waker = core::task::Waker::from(Arc::clone(&woken));
    assert!(Pin::new(&mut setup.driver).poll(&mut Context::from_waker(&waker)).is_pending());
    setup.pending.push(call(&setup.link));
    assert!(*woken.0.lock().expect("nobody panics with it"), "something new wakes who is not in line");
}

#[derive(Default)]
struct Woken(Mutex<bool>);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().expect("nobody panics with it") = true;
    }
}
