//! Servers that stop in peace.

use core::future::pending;

use super::*;
use crate::stream::ServerStream;

/// A stream with one message.
const LAST: HandlerId = HandlerId::new(2);

/// Never answers.
struct Wait;

impl Method for Wait {
    const ID: HandlerId = HandlerId::new(1);
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

fn setup() -> Setup {
    let handlers = |handlers: Handlers| handlers.serve::<Wait, _>(|_, _| pending()).expect("the first");
    Setup::with(|_| {}, handlers).connected()
}

/// How long one of the two drains, in milliseconds, while a call of the first one takes so long; and how the call ends.
fn drain(who: usize, call_ms: u64) -> (u64, Result<Vec<u8>, CallError>) {
    let setup = setup();
    let peer = setup.handle();
    let request = b"?".to_vec();
    let mut call = pin!(peer.call::<Wait>(&request, CallOptions::within(Duration::from_millis(call_ms))));
    assert_eq!(setup.world.within(0, call.as_mut()), None);
    let before = setup.world.ms();
    let unsettled = setup.world.within(60_000, setup.servers[who].grid.drain()).expect("it ends");
    assert_eq!(unsettled, if call_ms > 10_000 { vec![[B, A][who]] } else { vec![] });
    let took = setup.world.ms() - before;
    let result = setup.world.within(0, call).expect("an end");
    setup.world.pass(100);
    assert_eq!(setup.servers[who].grid.tasks(), 0);
    (took, result)
}

#[test]
fn who_drains_waits_for_what_runs_and_not_for_ever() {
    for who in [0, 1] {
        let (took, result) = drain(who, 300);
        assert!((290..=310).contains(&took), "{took} ms");
        assert_eq!(result, Err(CallError::Unknown(Reason::Deadline)), "nobody has cut it short");
        let (took, result) = drain(who, 20_000);
        assert_eq!(took, 10_000);
        let lost = if who == 0 { Lost::Shutdown } else { Lost::Closed };
        assert_eq!(result, Err(CallError::Unknown(Reason::Disconnected(lost))));
    }
    let setup = setup();
    assert_eq!(setup.world.within(10, setup.servers[1].grid.drain()), Some(vec![]), "nothing runs");
    let [a, b] = setup.servers.each_ref().map(Server::events);
    for event in [a, b].into_iter().flatten() {
        assert!(!matches!(&event, PeerEvent::Lost { is_expected: false, .. }), "{event:?}");
    }
    assert_eq!(setup.servers.each_ref().map(|server| server.grid.counters().losses), [0, 0]);
    assert!(setup.servers[1].grid.0.is_draining() && !setup.servers[0].grid.0.is_draining());
}

/// Whoever opened it may look at its end when it likes.
#[test]
fn a_stream_that_has_ended_holds_nobody_up() {
    for who in [0, 1] {
        let last =
            |_, _, mut stream: ServerStream| async move { stream.sender.send(b"last").await.map_err(|_| refusal()) };
        let setup = Setup::with(|_| {}, |handlers| handlers.stream(LAST, last).expect("the first")).connected();
        let opening = setup.handle();
        let mut stream = setup.world.now(opening.open_stream(LAST, b"", CallOptions::default())).expect("opened");
        setup.world.pass(5);
        assert_eq!(setup.world.within(10, setup.servers[who].grid.drain()), Some(vec![]));
        assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(b"last".to_vec())));
        assert_eq!(setup.world.now(stream.receiver.receive()), Ok(None));
    }
}

#[test]
fn a_peer_is_settled_when_nothing_is_connected_or_can_be() {
    let setup = setup();
    let peer = setup.servers[0].grid.0.peers().by_id[&B].clone();
    assert!(!peer.is_settled(), "a connection lives");
    locked(&setup.world.listeners).clear();
    setup.cut(0);
    assert!(peer.is_settled());
    peer.begin_dial();
    assert!(!peer.is_settled(), "the other side may accept it");
    peer.end_dial();
    assert!(peer.is_settled());
    assert!(peer.begin_bulk(1) && !peer.begin_bulk(1) && !peer.is_settled());
    peer.end_bulk();
    assert!(peer.is_settled());
}

/// Its proof is not sent yet: nobody has a connection of it.
#[test]
fn a_dial_goes_no_further_once_its_server_drains() {
    let setup = Setup::new();
    let [a, b] = &setup.servers;
    b.host.is_stopped.store(true, Ordering::Relaxed);
    a.grid.add_peer(ADDRESSES[1]);
    setup.world.run();
    setup.world.within(10, a.grid.drain()).expect("nothing is connected");
    b.host.is_stopped.store(false, Ordering::Relaxed);
    setup.world.pass(1_000);
    assert_eq!((a.events(), b.events()), (Vec::new(), Vec::new()));
    assert_eq!((a.grid.tasks(), b.grid.counters().rejected.other), (0, 1));
}

/// What belongs to ordinary life is told all the same when it lasts.
#[test]
fn a_server_that_drains_for_long_is_reported() {
    let setup = Setup::new().connected();
    let [a, b] = &setup.servers;
    a.grid.stop();
    setup.world.pass(3_000);
    assert!(!b.events().iter().any(|event| matches!(event, PeerEvent::DialFailed { .. })));
    setup.world.pass(60_000);
    let events = b.events();
    let reason = format!("refused by the peer: {}", crate::hello::RefusalCode::Draining);
    assert_eq!(events, [PeerEvent::DialFailed { address: ADDRESSES[0].into(), reason, will_heal: true }]);
    assert!(b.grid.counters().dials_failed > 16);
}
