//! Calls from another thread than the connection's.

use core::task::Waker;

use super::*;
use crate::error::{CallError, Reason};
use crate::handover::{HandedCall, Handover};
use crate::mux::calls::CallResult;

const HOME: usize = 1;
const OTHER: usize = 2;

/// A thread that keeps the tasks that it is given.
#[derive(Default)]
struct Other(Mutex<Vec<BoxFuture<()>>>);

impl Threads for Other {
    fn spawn(&self, task: BoxFuture<()>) {
        self.0.lock().expect("nobody panics with it").push(task);
    }
}

impl Other {
    /// Its tasks have a turn; how many there are then.
    fn turn(&self) -> usize {
        let mut tasks = self.0.lock().expect("nobody panics with it");
        tasks.retain_mut(|task| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tasks.len()
    }
}

/// A connection that has had its first turns, and where the other thread hands over.
fn setup() -> (Setup, Arc<Handover>) {
    let mut setup = Setup::on_thread(HOME, 0);
    assert!(setup.link.handover(OTHER).is_none(), "nobody knows yet where the connection is");
    setup.turn();
    setup.turn();
    setup.pending.clear();
    setup.turn();
    assert!(setup.link.handover(HOME).is_none() && setup.link.handover(0).is_none());
    let handover = setup.link.handover(OTHER).expect("another thread").clone();
    (setup, handover)
}

fn hand_over<'a>(other: &Other, link: &'a Link, handover: &'a Arc<Handover>, waker: &Waker) -> HandedCall<'a> {
    let encode = |out: &mut Vec<u8>| out.extend_from_slice(&PAYLOAD);
    let mut cx = Context::from_waker(waker);
    let started = HandedCall::start(other, (link, handover), (1, Instant::NEVER), &encode, &cx);
    let mut call = started.expect("a short request").expect("the connection is open");
    assert!(Pin::new(&mut call).poll(&mut cx).is_pending());
    call
}

fn result(call: &mut HandedCall<'_>) -> Option<CallResult> {
    match Pin::new(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (woken.clone(), Waker::from(woken))
}

#[test]
fn several_leave_in_one_write_and_wake_the_connection_once() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let (woken, waker) = waker();
    assert!(Pin::new(&mut setup.driver).poll(&mut Context::from_waker(&waker)).is_pending());
    let link = setup.link.clone();
    let (writes, written) = setup.counts();
    let first = hand_over(&other, &link, &handover, Waker::noop());
    assert!(core::mem::take(&mut *woken.0.lock().expect("nobody panics with it")), "the task sleeps");
    let more: Vec<_> = (0..9).map(|_| hand_over(&other, &link, &handover, Waker::noop())).collect();
    assert!(!*woken.0.lock().expect("nobody panics with it"), "it was woken already");
    assert_eq!(setup.counts(), (writes, written));
    setup.turn();
    let (writes_now, written_now) = setup.counts();
    assert!(writes_now == writes + 1 && written_now > written + 10 * PAYLOAD.len());
    assert_eq!(setup.link.lock().in_flight().0, 10);
    drop((first, more));
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 0, "callers that leave are told to the peer");
}

#[test]
fn an_answer_comes_back_by_way_of_the_distributor() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    let (woken, waker) = waker();
    let mut call = hand_over(&other, &link, &handover, &waker);
    setup.turn();
    let id = {
        let mux = setup.link.lock();
        assert_eq!(mux.in_flight().0, 1);
        mux.last_call()
    };
    setup.receive(id, &PAYLOAD);
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 0);
    assert!(!*woken.0.lock().expect("nobody panics with it"), "it waits to be given out");
    assert_eq!(other.turn(), 1, "the distributor goes on");
    assert!(*woken.0.lock().expect("nobody panics with it"));
    assert_eq!(result(&mut call), Some(Ok(PAYLOAD.to_vec())));
}

#[test]
fn a_caller_that_leaves_before_its_call_is_taken_sends_nothing() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    let before = setup.kernel().written;
    drop(hand_over(&other, &link, &handover, Waker::noop()));
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 0);
    let call = hand_over(&other, &link, &handover, Waker::noop());
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 1, "a slot that is used again is another call");
    drop(call);
    assert!(setup.kernel().written > before);
}

/// A server that stops in peace finishes what its callers have asked for.
#[test]
fn what_was_handed_over_before_draining_goes_on() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    let mut early = hand_over(&other, &link, &handover, Waker::noop());
    link.drain(NOW);
    let mut late = hand_over(&other, &link, &handover, Waker::noop());
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 1);
    assert_eq!(other.turn(), 1);
    assert!(result(&mut early).is_none(), "it is on its way");
    assert_eq!(result(&mut late), Some(Err(CallError::NotSent(Reason::Draining))));
}

#[test]
fn what_was_not_taken_when_the_connection_ends_was_not_sent() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    let mut sent = hand_over(&other, &link, &handover, Waker::noop());
    setup.turn();
    let mut kept = hand_over(&other, &link, &handover, Waker::noop());
    setup.link.lock().close(Lost::Silent);
    assert!(Pin::new(&mut setup.driver).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let lost = Reason::Disconnected(Lost::Silent);
    assert_eq!(other.turn(), 0, "the distributor ends with the connection");
    assert_eq!(result(&mut sent), Some(Err(CallError::Unknown(lost))));
    assert_eq!(result(&mut kept), Some(Err(CallError::NotSent(lost))));
    let encode = |out: &mut Vec<u8>| out.push(1);
    let cx = Context::from_waker(Waker::noop());
    let late = HandedCall::start(&other, (&link, &handover), (1, Instant::NEVER), &encode, &cx);
    assert_eq!(late.expect("a short request").err(), Some(CallError::NotSent(lost)));
}

#[test]
fn a_thread_that_comes_after_the_end_learns_it() {
    let (mut setup, _) = setup();
    let other = Other::default();
    setup.link.lock().close(Lost::Silent);
    assert!(Pin::new(&mut setup.driver).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let handover = setup.link.handover(OTHER + 1).expect("another thread");
    let cx = Context::from_waker(Waker::noop());
    let late = HandedCall::start(&other, (&setup.link, handover), (1, Instant::NEVER), &|_: &mut Vec<u8>| {}, &cx);
    let lost = CallError::NotSent(Reason::Disconnected(Lost::Silent));
    assert_eq!(late.expect("a short request").err(), Some(lost));
}

#[test]
fn a_long_request_goes_the_other_way() {
    let (setup, handover) = setup();
    let other = Other::default();
    let long = |out: &mut Vec<u8>| out.resize(Limits::for_lane(Lane::Small).chunk_max + 1, 0);
    let cx = Context::from_waker(Waker::noop());
    assert!(HandedCall::start(&other, (&setup.link, &handover), (1, Instant::NEVER), &long, &cx).is_none());
    let (link, mut setup) = (setup.link.clone(), setup);
    let call = hand_over(&other, &link, &handover, Waker::noop());
    setup.turn();
    assert_eq!(setup.link.lock().in_flight().0, 1, "nothing of it is left before the next one");
    drop(call);
}

#[test]
fn an_idle_connection_keeps_no_distributor() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    for _ in 0..2 {
        let mut call = hand_over(&other, &link, &handover, Waker::noop());
        handover.release_memory();
        assert_eq!(other.turn(), 1, "a call is under way");
        setup.turn();
        let id = setup.link.lock().last_call();
        setup.receive(id, &PAYLOAD);
        setup.turn();
        assert_eq!(other.turn(), 1);
        assert_eq!(result(&mut call), Some(Ok(PAYLOAD.to_vec())));
        handover.release_memory();
        assert_eq!(other.turn(), 0);
    }
}

/// Callers that come and leave while the connection's task does not run: what they put down stays.
#[test]
fn what_waits_to_be_taken_is_limited() {
    let (mut setup, handover) = setup();
    let other = Other::default();
    let link = setup.link.clone();
    let cx = Context::from_waker(Waker::noop());
    let put = |len: usize| {
        let encode = move |out: &mut Vec<u8>| out.resize(out.len() + len, 0);
        HandedCall::start(&other, (&link, &handover), (1, Instant::NEVER), &encode, &cx).expect("a short request")
    };
    let limits = Limits::for_lane(Lane::Small);
    for len in [0, 1_000] {
        let mut count = 0_usize;
        let refused = loop {
            match put(len) {
                Ok(call) => drop(call),
                Err(error) => break error,
            }
            count += 1;
        };
        assert_eq!(refused, CallError::NotSent(Reason::Overloaded));
        let most = usize::try_from(limits.calls_in_flight_max).expect("few");
        assert!(count <= most && count * len <= limits.outbound_bytes_max + len, "{count} of {len} bytes");
        setup.turn();
        setup.turn();
        drop(put(len).expect("all was taken"));
    }
}
