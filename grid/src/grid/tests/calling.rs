//! Calls by peer: where they go, when they are tried again, and what their callers learn.

use core::future::{pending, ready};
use core::sync::atomic::AtomicUsize;

use super::*;
use crate::handler::Packed;
use crate::handler::tests::Echo;

const WITHIN_1_S: CallOptions<'static> = CallOptions {
    timeout: Some(Duration::from_secs(1)),
    route: "",
    fail_fast: false,
    class: Class::Foreground,
    window: (0, 0),
};
const FAST: CallOptions<'static> = CallOptions { fail_fast: true, ..WITHIN_1_S };
/// Answers with the request.
const ECHO: HandlerId = HandlerId::new(1);

/// Takes the bulk lane, whatever its length.
struct BulkEcho;

impl Method for BulkEcho {
    const ID: HandlerId = HandlerId::new(3);
    const LANE: Lane = Lane::Bulk;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// May be sent twice.
struct Twice;

impl Method for Twice {
    const ID: HandlerId = HandlerId::new(4);
    const IDEMPOTENT: bool = true;
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Asks the handler of [`Echo`] for a number.
struct Number;

impl Method for Number {
    const ID: HandlerId = ECHO;
    type Request = Vec<u8>;
    type Reply = Packed<u32>;
}

fn echoing(handlers: Handlers) -> Handlers {
    let handlers = handlers.serve::<Echo, _>(|_, request| ready(Ok(request))).expect("the first");
    handlers.serve::<BulkEcho, _>(|_, request| ready(Ok(request))).expect("the first")
}

/// Two servers; the calls of the second one of the peer end as `answer` says, by how many came before.
fn counting(
    change: impl Fn(&mut GridConfig),
    answer: fn(usize) -> Option<Result<Vec<u8>, Refusal>>,
) -> (Setup, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let setup = Setup::with(change, |handlers| {
        let counting = count.clone();
        let handler = move |_: CallContext, _: Vec<u8>| {
            let before = counting.fetch_add(1, Ordering::Relaxed);
            async move {
                match answer(before) {
                    Some(answer) => answer,
                    None => pending().await,
                }
            }
        };
        let handlers = handlers.serve::<Echo, _>(handler.clone()).expect("the first");
        handlers.serve::<Twice, _>(handler).expect("the first")
    });
    (setup.connected(), count)
}

fn count(setup: &Setup, lane: Lane) -> usize {
    locked(&setup.world.dials).iter().filter(|(.., of)| *of == lane).count()
}

#[test]
fn every_way_to_call_comes_back_with_the_answer() {
    let setup = Setup::with(|_| {}, echoing).connected();
    let (peer, grid) = (setup.handle(), &setup.servers[0].grid);
    let short = CallOptions::within(Duration::from_secs(1));
    for len in [0, 100, BULK_THRESHOLD - 1] {
        let request = vec![7; len];
        assert_eq!(setup.world.now(peer.call_bytes(ECHO, &request, short)), Ok(request.clone()), "{len}");
        assert_eq!(setup.world.now(peer.call::<Echo>(&request, short)), Ok(request.clone()), "{len}");
        assert_eq!(setup.world.now(grid.call::<Echo>(B, &request, short)), Ok(request), "{len}");
    }
    assert_eq!((count(&setup, Lane::Bulk), setup.servers[0].status().bulk_connections), (0, 0));
    assert_eq!(setup.world.now(peer.call::<Number>(&vec![0xcd, 1, 2], short)), Ok(Packed(0x102)));
    let no_number = setup.world.now(peer.call::<Number>(&vec![0xc0], short));
    assert_eq!(no_number, Err(CallError::Unknown(Reason::Malformed)));
    let unknown = CallError::NotSent(Reason::UnknownPeer);
    let nobody = ServerId::from_bytes([9; 16]);
    assert_eq!(setup.world.now(grid.call::<Echo>(nobody, &Vec::new(), short)), Err(unknown));
    let no_handler = setup.world.now(peer.call_bytes(HandlerId::new(9), b"?", short));
    assert_eq!(no_handler, Err(CallError::NotExecuted(Reason::UnknownHandler)));
}

#[test]
fn long_requests_take_the_bulk_lane() {
    let long = vec![7; BULK_THRESHOLD];
    type Call = fn(&Setup) -> Result<Vec<u8>, CallError>;
    let cases: [Call; 4] = [
        |setup| setup.world.now(setup.handle().call_bytes(ECHO, &vec![7; BULK_THRESHOLD], WITHIN_1_S)),
        |setup| setup.world.now(setup.handle().call::<Echo>(&vec![7; BULK_THRESHOLD], WITHIN_1_S)),
        |setup| setup.world.now(setup.handle().call::<BulkEcho>(&vec![7; BULK_THRESHOLD], WITHIN_1_S)),
        |setup| setup.world.now(setup.handle().call_large(ECHO, Arc::new(vec![7; BULK_THRESHOLD]), WITHIN_1_S)),
    ];
    for (case, call) in cases.into_iter().enumerate() {
        let setup = Setup::with(|_| {}, echoing).connected();
        assert_eq!(call(&setup), Ok(long.clone()), "{case}");
        assert_eq!(count(&setup, Lane::Bulk), 1, "{case}");
        assert_eq!(setup.servers.each_ref().map(|server| server.status().bulk_connections), [1, 1], "{case}");
    }
    let setup = Setup::with(|_| {}, echoing).connected();
    assert_eq!(setup.world.now(setup.handle().call::<BulkEcho>(&vec![7; 10], WITHIN_1_S)), Ok(vec![7; 10]));
    assert_eq!(setup.servers[0].status().bulk_connections, 1, "whoever names the lane gets it");
}

#[test]
fn nobody_waits_beyond_the_deadline() {
    let (setup, _) = counting(|config| config.timing.call_deadline = Duration::from_secs(7), |_| None);
    let peer = setup.handle();
    setup.world.pass(100);
    // Long ones begin at what the coarse clock says, which is ten milliseconds behind.
    let cases = [(Some(0), 0), (Some(1_000), 1_000), (Some(4_999), 4_999), (Some(5_000), 4_990), (None, 6_990)];
    for (timeout, ms) in cases {
        let options = CallOptions { timeout: timeout.map(Duration::from_millis), ..CallOptions::default() };
        let before = setup.world.ms();
        let result = setup.world.within(ms + 50, peer.call_bytes(ECHO, b"?", options));
        let error = if ms > 0 { CallError::Unknown } else { CallError::NotSent };
        assert_eq!((result, setup.world.ms() - before), (Some(Err(error(Reason::Deadline))), ms));
    }
    assert_eq!(setup.servers[1].status().calls_handled, 0, "the handlers are stopped too");
    assert_eq!(setup.servers[1].status().counters.abandoned, 4);
}

#[test]
fn without_a_connection_a_call_waits_for_one_unless_it_is_in_a_hurry() {
    let setup = Setup::with(|_| {}, echoing).connected();
    let peer = setup.handle();
    let listeners = core::mem::take(&mut *locked(&setup.world.listeners));
    setup.cut(0);
    setup.world.run();
    assert!(!peer.is_connected());
    let not_connected = Err(CallError::NotSent(Reason::NotConnected));
    let before = setup.world.ms();
    assert_eq!(setup.world.now(peer.call_bytes(ECHO, b"?", FAST)), not_connected);
    assert_eq!(setup.world.within(2_000, peer.call_bytes(ECHO, b"?", WITHIN_1_S)), Some(not_connected.clone()));
    assert_eq!(setup.world.ms() - before, 1_000);
    let stream = setup.world.now(peer.open_stream(ECHO, b"", FAST)).expect_err("no connection");
    assert_eq!(stream, StreamError::NotExecuted(Reason::NotConnected));
    assert!(!setup.servers[0].grid.send_datagram(B, ECHO, b"?"));
    *locked(&setup.world.listeners) = listeners;
    let late = setup.world.within(10_000, peer.call_bytes(ECHO, b"late", CallOptions::default()));
    assert_eq!(late, Some(Ok(b"late".to_vec())), "it comes with the next connection");
}

#[test]
fn what_may_run_twice_is_tried_again_after_a_loss() {
    for (is_idempotent, options, tries) in [(true, WITHIN_1_S, 2), (true, FAST, 1), (false, WITHIN_1_S, 1)] {
        let (setup, count) = counting(|_| {}, |before| (before > 0).then(|| Ok(b"again".to_vec())));
        let peer = setup.handle();
        let request = b"?".to_vec();
        let call = async {
            if is_idempotent {
                peer.call::<Twice>(&request, options).await
            } else {
                peer.call::<Echo>(&request, options).await
            }
        };
        let mut call = pin!(call);
        assert_eq!(setup.world.within(10, call.as_mut()), None, "the first does not answer");
        setup.cut(0);
        let result = setup.world.within(1_000, call).expect("an end");
        let lost = CallError::Unknown(Reason::Disconnected(Lost::Broken));
        assert_eq!(result, if tries == 2 { Ok(b"again".to_vec()) } else { Err(lost) });
        assert_eq!(count.load(Ordering::Relaxed), tries, "{is_idempotent}");
    }
}

/// It was sent once; that the second try was not sent is no comfort.
#[test]
fn what_may_have_run_is_never_said_not_to_have_been_sent() {
    let (setup, _) = counting(|_| {}, |_| None);
    let (peer, request) = (setup.handle(), b"?".to_vec());
    let mut call = pin!(peer.call::<Twice>(&request, WITHIN_1_S));
    assert_eq!(setup.world.within(10, call.as_mut()), None);
    locked(&setup.world.listeners).clear();
    setup.cut(0);
    assert_eq!(setup.world.within(2_000, call), Some(Err(CallError::Unknown(Reason::NotConnected))));
    // One that was never sent is said so.
    let never = setup.world.within(2_000, peer.call::<Twice>(&request, WITHIN_1_S));
    assert_eq!(never, Some(Err(CallError::NotSent(Reason::NotConnected))));
}

#[test]
fn errors_say_whether_a_call_is_tried_again() {
    let lost = Reason::Disconnected(Lost::Broken);
    let refused = CallError::Refused(refusal());
    let all =
        [Reason::Draining, lost, Reason::NotConnected, Reason::Overloaded, Reason::Deadline, Reason::UnknownHandler];
    for (at, reason) in all.into_iter().enumerate() {
        for error in [CallError::NotSent(reason), CallError::NotExecuted(reason)] {
            assert_eq!(may_retry(&error, false, WITHIN_1_S), at < 3, "{error}");
            assert!(!may_retry(&error, true, FAST), "{error}");
            assert_eq!(last_word(error.clone(), false), error);
            assert_eq!(last_word(error, true), CallError::Unknown(reason));
        }
        let unknown = CallError::Unknown(reason);
        assert_eq!(may_retry(&unknown, true, WITHIN_1_S), reason == lost);
        assert!(!may_retry(&unknown, false, WITHIN_1_S));
        assert_eq!(not_executed(&unknown), StreamError::NotExecuted(reason));
    }
    assert!(!may_retry(&refused, true, WITHIN_1_S));
    assert_eq!(last_word(refused.clone(), true), refused);
    assert_eq!(not_executed(&refused), StreamError::NotExecuted(Reason::NotConnected));
}

#[test]
fn a_peer_that_drains_is_tried_until_there_is_another_connection() {
    let (setup, count) = counting(|_| {}, |before| (before > 0).then(|| Ok(b"here".to_vec())));
    let peer = setup.handle();
    let mut running = pin!(peer.call_bytes(ECHO, b"?", CallOptions::within(Duration::from_millis(200))));
    assert_eq!(setup.world.within(10, running.as_mut()), None);
    setup.servers[1].grid.0.links()[0].lock().drain();
    setup.world.run();
    assert_eq!(setup.servers[0].status().state, PeerState::Draining);
    let draining = Err(CallError::NotSent(Reason::Draining));
    assert_eq!(setup.world.now(peer.call_bytes(ECHO, b"?", FAST)), draining);
    let impatient = peer.call_bytes(ECHO, b"?", CallOptions::within(Duration::from_millis(50)));
    let not_connected = Err(CallError::NotSent(Reason::NotConnected));
    assert_eq!(setup.world.within(60, impatient), Some(not_connected), "none takes the call in time");
    // When what runs on it is over the connection ends, and the next one takes the call.
    let patient = setup.world.within(1_000, peer.call_bytes(ECHO, b"?", WITHIN_1_S));
    assert_eq!(patient, Some(Ok(b"here".to_vec())));
    assert_eq!((setup.servers[0].status().connects, count.load(Ordering::Relaxed)), (2, 2));
    assert_eq!(setup.world.within(0, running), Some(Err(CallError::Unknown(Reason::Deadline))));
}

#[test]
fn an_overloaded_peer_is_left_alone_for_a_while() {
    // Of the requests of the peer not one byte may wait.
    let setup = Setup::with(|config| (config.limits.inbound_bytes_max, config.breaker_failures_max) = (0, 3), echoing);
    let setup = setup.connected();
    let peer = setup.handle();
    let call = |request: &[u8]| setup.world.now(peer.call_bytes(ECHO, request, WITHIN_1_S));
    let overloaded = Err(CallError::NotExecuted(Reason::Overloaded));
    let open = Err(CallError::NotSent(Reason::BreakerOpen));
    for _ in 0..2 {
        assert_eq!(call(b"?"), overloaded);
    }
    assert_eq!(call(b""), Ok(Vec::new()), "a success begins the count anew");
    for _ in 0..3 {
        assert!(!setup.servers[0].status().breaker_open);
        assert_eq!(call(b"?"), overloaded);
    }
    assert!(setup.servers[0].status().breaker_open);
    assert_eq!([call(b""), call(b"?")], [open.clone(), open.clone()], "whatever it is");
    setup.world.pass(499);
    assert_eq!(call(b""), open);
    setup.world.pass(1);
    assert_eq!(call(b"?"), overloaded, "one is let through");
    assert_eq!(call(b""), open, "and opens it again");
    setup.world.pass(500);
    assert_eq!(call(b""), Ok(Vec::new()));
    assert!(!setup.servers[0].status().breaker_open);
    assert_eq!(call(b"?"), overloaded, "it is asked again");
}

#[test]
fn refusals_and_stops_reach_the_caller_and_the_handler() {
    let (setup, count) = counting(|_| {}, |before| (before == 0).then(|| Err(refusal())));
    let peer = setup.handle();
    let request = b"?".to_vec();
    assert_eq!(setup.world.now(peer.call::<Twice>(&request, WITHIN_1_S)), Err(CallError::Refused(refusal())));
    assert_eq!(count.load(Ordering::Relaxed), 1, "a refusal is an answer");
    {
        let mut call = pin!(peer.call::<Twice>(&request, WITHIN_1_S));
        assert_eq!(setup.world.within(10, call.as_mut()), None);
        assert_eq!(setup.servers.each_ref().map(|server| server.status().calls_in_flight), [1, 0]);
        assert_eq!(setup.servers.each_ref().map(|server| server.status().calls_handled), [0, 1]);
    }
    setup.world.run();
    assert_eq!(setup.servers[1].status().calls_handled, 0, "who drops the future cancels the call");
    let mut call = pin!(peer.call::<Twice>(&request, WITHIN_1_S));
    assert_eq!(setup.world.within(10, call.as_mut()), None);
    setup.servers[0].grid.stop();
    let stopped = CallError::Unknown(Reason::Disconnected(Lost::Shutdown));
    assert_eq!(setup.world.within(1_000, call), Some(Err(stopped)));
}

#[test]
fn datagrams_reach_their_handler_once_and_alone() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let setup = Setup::with(
        |_| {},
        |handlers| {
            let taken = taken.clone();
            let take = move |from, bytes: &[u8]| locked(&taken).push((from, bytes.to_vec()));
            echoing(handlers).datagram(HandlerId::new(20), take).expect("the first")
        },
    );
    let setup = setup.connected();
    let grid = &setup.servers[0].grid;
    assert!(grid.send_datagram(B, HandlerId::new(20), b"news"));
    assert!(grid.send_datagram(B, HandlerId::new(21), b"for nobody") && grid.send_datagram(B, ECHO, b"no call"));
    assert!(!grid.send_datagram(ServerId::from_bytes([9; 16]), HandlerId::new(20), b"?"));
    setup.world.run();
    assert_eq!(*locked(&taken), [(A, b"news".to_vec())]);
    assert_eq!(setup.servers[1].status().counters.datagrams_in, 3);
    let no_call = setup.world.now(setup.handle().call_bytes(HandlerId::new(20), b"?", WITHIN_1_S));
    assert_eq!(no_call, Err(CallError::NotExecuted(Reason::UnknownHandler)));
}
