//! A connection whose other end the test holds: what comes in one batch, and how it ends.

use core::future::pending;

use super::rejected::{binary, dial, frames, hello_config};
use super::*;
use crate::frame::{Side, encode_close};
use crate::hello::{Dialer, HelloConfig, Session, Step};
use crate::message::{Flags, Header, MuxId, Op, encode};

/// Never answers.
struct Wait;

impl Method for Wait {
    const ID: HandlerId = HandlerId::new(1);
    type Request = Vec<u8>;
    type Reply = Vec<u8>;
}

/// Answers with the request, on the connection's task.
const ECHO: HandlerId = HandlerId::new(2);

/// One server, and how many calls of [`Wait`] began.
fn setup() -> (Setup, Arc<AtomicU32>) {
    let begun = Arc::new(AtomicU32::new(0));
    let setup = Setup::with(
        |_| {},
        |handlers| {
            let begun = begun.clone();
            let wait = move |_: CallContext, _: Vec<u8>| {
                begun.fetch_add(1, Ordering::Relaxed);
                pending()
            };
            let echo = |_, request: &[u8], answer: &mut Vec<u8>| {
                answer.extend_from_slice(request);
                Ok(())
            };
            let handlers = handlers.serve::<Wait, _>(wait).expect("the first");
            handlers.inline_bytes(ECHO, echo).expect("the first")
        },
    );
    (setup, begun)
}

/// A connection of that life of the second server, whose proof comes with `early` behind it.
fn connect(setup: &Setup, life: u64, early: &[u8]) -> (Pipe, Session) {
    let config = HelloConfig { incarnation: Incarnation(life), ..hello_config() };
    let (mut dialer, hello) = Dialer::new(config, [3; 32]);
    let pipe = dial(setup, &binary(&hello));
    let challenge = frames(&pipe).remove(0).0;
    let Ok(Step::Send(proof)) = dialer.handle_message(&challenge) else { panic!("a proof") };
    pipe.put(&[&binary(&proof), early].concat());
    // The welcome is a frame of its own.
    setup.world.run();
    let welcome = pipe.take().expect("it is welcome");
    let len = usize::from(welcome[1]);
    let Ok(Step::Done(session)) = dialer.handle_message(&welcome[2..2 + len]) else { panic!("a session") };
    locked(&pipe.incoming).bytes.extend_from_slice(&welcome[2 + len..]);
    (pipe, session)
}

/// Messages in one frame: the operation, the slot of the call, the handler.
fn messages(session: &Session, all: &[(Op, u32, HandlerId)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (op, slot, handler) in all {
        let id = MuxId { slot: *slot, generation: 1 };
        let header = Header { handler: u32::from(handler.number()), ..Header::new(*op, id, 0) };
        encode(&mut payload, &header, b"?", session.salt);
    }
    binary(&payload)
}

fn close(pipe: &Pipe) -> Option<(u16, String)> {
    frames(pipe).pop().and_then(|(_, close)| close)
}

#[test]
fn a_call_whose_cancel_came_with_it_never_begins() {
    let (setup, begun) = setup();
    let (pipe, session) = connect(&setup, 3, &[]);
    let [call, cancel] = [Op::Call, Op::Cancel];
    pipe.put(&messages(
        &session,
        &[(call, 1, Wait::ID), (call, 2, Wait::ID), (cancel, 1, Wait::ID), (call, 3, Wait::ID)],
    ));
    setup.world.run();
    let status = setup.servers[0].status();
    assert_eq!((begun.load(Ordering::Relaxed), status.calls_handled), (2, 2));
    assert_eq!((status.counters.calls_in, status.counters.abandoned), (3, 1));
    // One that came before has begun, and is stopped.
    pipe.put(&messages(&session, &[(cancel, 2, Wait::ID)]));
    setup.world.run();
    let status = setup.servers[0].status();
    assert_eq!((status.calls_handled, status.counters.abandoned, status.counters.misfit), (1, 2, 0));
    pipe.put(&messages(&session, &[(call, 3, Wait::ID)]));
    setup.world.run();
    assert_eq!(setup.servers[0].status().counters.misfit, 1, "its id is in use");
    assert_eq!(setup.servers[0].status().calls_handled, 1);
}

#[test]
fn what_came_with_the_end_of_the_hello_is_not_lost() {
    let (setup, begun) = setup();
    // Messages carry a salt that the welcome brings; a close carries none.
    let (pipe, _) = connect(&setup, 4, &encode_close(Side::Dialer, 1000, "bye"));
    setup.world.run();
    let events = setup.servers[0].events();
    let gone = |event: &PeerEvent| matches!(event, PeerEvent::Lost { reason, .. } if reason == "closed by the peer");
    assert!(events.iter().any(gone), "{events:?}");
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    drop(pipe);
}

#[test]
fn the_end_says_why() {
    type End = fn(&Setup, &Pipe);
    let stop: End = |setup, _| setup.servers[0].grid.stop();
    let garbage: End = |_, pipe| pipe.put(&[0x81, 0x80]);
    let replaced: End = |setup, _| drop(connect(setup, 4, &[]));
    let unproved: End = |setup, _| setup.servers[0].grid.rotate(Secrets::new(Secret::from_bytes([6; 32])));
    let bye: End = |_, pipe| pipe.put(&encode_close(Side::Dialer, 1000, "bye"));
    let protocol = "a frame begins with 0x81; only whole binary frames are spoken";
    let cases = [
        (stop, Some((1001, "going away"))),
        (garbage, Some((1002, protocol))),
        (replaced, Some((1000, "replaced"))),
        (unproved, Some((1008, "the new cluster secret was not proved"))),
        (bye, None),
    ];
    for (at, (end, expected)) in cases.into_iter().enumerate() {
        let (setup, _) = setup();
        let (pipe, _) = connect(&setup, 3, &[]);
        setup.world.run();
        end(&setup, &pipe);
        if expected.is_some_and(|(code, _)| code == 1008) {
            // This end is heard meanwhile, else it would be lost for its silence.
            for _ in 0..6 {
                setup.world.pass(900);
                pipe.put(&[0x8a, 0x80, 0, 0, 0, 0]);
            }
        }
        setup.world.run();
        let seen = close(&pipe);
        assert_eq!(seen.as_ref().map(|(code, text)| (*code, text.as_str())), expected, "case {at}");
        assert_eq!(pipe.take(), None, "case {at}");
    }
}

#[test]
fn pings_of_the_socket_are_answered_up_to_a_limit() {
    let (setup, _) = setup();
    let (pipe, _) = connect(&setup, 3, &[]);
    setup.world.run();
    pipe.take();
    let ping = [0x89, 0x82, 0, 0, 0, 0, b'h', b'i'];
    pipe.put(&ping);
    setup.world.run();
    assert_eq!(pipe.take(), Some(vec![0x8a, 2, b'h', b'i']));
    // Nobody reads: the answers stop.
    locked(&pipe.incoming).is_full = true;
    for _ in 0..20 {
        pipe.put(&ping.repeat(500));
        setup.world.run();
    }
    locked(&pipe.incoming).is_full = false;
    setup.world.pass(1_000);
    let answers = pipe.take().map_or(0, |bytes| bytes.windows(4).filter(|four| *four == [0x8a, 2, b'h', b'i']).count());
    assert_eq!(answers, 1_024, "of four bytes each");
}

#[test]
fn requests_in_parts_go_to_inline_handlers_too() {
    let (setup, _) = setup();
    let (pipe, session) = connect(&setup, 3, &[]);
    setup.world.run();
    pipe.take();
    let id = MuxId { slot: 1, generation: 1 };
    let mut payload = Vec::new();
    let first = Header { handler: 2, flags: Flags::MORE, ..Header::new(Op::Call, id, 3) };
    encode(&mut payload, &first, b"ab", session.salt);
    encode(&mut payload, &Header::new(Op::Chunk, id, 0), b"c", session.salt);
    pipe.put(&binary(&payload));
    setup.world.run();
    let seen = frames(&pipe).remove(0).0;
    assert!(seen.windows(5).any(|five| five == b"\xc4\x03abc"), "{seen:?}");
}
