//! Connections from outside that come to nothing: what is counted, what is told, and to whom.

use ashlar_wire::secret::Secret;

use super::*;
use crate::frame::{Decoder, Piece, Side, encode_binary, encode_close};
use crate::hello::{Dialer, HELLO_LEN_MAX, HelloConfig, PeerLimits, RefusalCode, Step};
use crate::status::Rejected;

/// A connection from nobody, and what it sends first.
pub(super) fn dial(setup: &Setup, bytes: &[u8]) -> Pipe {
    let (own, theirs) = World::pipe();
    own.put(bytes);
    setup.servers[0].grid.accept(theirs, Lane::Small);
    setup.world.run();
    own
}

/// A frame: the payload of a binary one, or code and text of a close.
type Frame = (Vec<u8>, Option<(u16, String)>);

/// The frames that have come.
pub(super) fn frames(pipe: &Pipe) -> Vec<Frame> {
    let mut bytes = pipe.take().expect("something was said");
    let (mut decoder, mut input) = (Decoder::new(Side::Dialer), bytes.as_mut_slice());
    let mut seen = Vec::new();
    while let Some(piece) = decoder.next_piece(&mut input).expect("frames") {
        match piece {
            Piece::Payload { bytes, .. } => seen.push((bytes.to_vec(), None)),
            Piece::Close { code, text } => seen.push((Vec::new(), Some((code, text)))),
            Piece::Ping(_) => panic!("nobody pings"),
        }
    }
    seen
}

pub(super) fn hello_config() -> HelloConfig {
    let own = config(1);
    HelloConfig {
        cluster: own.cluster,
        server: B,
        incarnation: own.incarnation,
        address: ADDRESSES[1].to_owned(),
        secrets: own.secrets,
        limits: PeerLimits::of(own.limits),
        always_checksum: false,
        lane: Lane::Small,
        expected_peer: None,
        channel_binding: [0; 32],
    }
}

fn hello(change: impl Fn(&mut HelloConfig)) -> Vec<u8> {
    let mut hello = hello_config();
    change(&mut hello);
    Dialer::new(hello, [3; 32]).1
}

pub(super) fn binary(payload: &[u8]) -> Vec<u8> {
    encode_binary(Side::Dialer, payload)
}

#[test]
fn each_kind_has_its_count_and_is_told_unless_it_is_ordinary() {
    let none = Rejected::default();
    let malformed = Rejected { malformed: 1, ..none };
    let other = Rejected { other: 1, ..none };
    let cluster = hello(|hello| hello.cluster = ClusterId::from_bytes([8; 16]));
    let secret = hello(|hello| hello.secrets = Secrets::new(Secret::from_bytes([8; 32])));
    // The versions are the first element behind the kind.
    let versions = [&b"\x93\xa6ashlar\x01\x92\x05\x09"[..], b"\xc0"].concat();
    let lane = hello(|hello| hello.lane = Lane::Bulk);
    let cases = [
        ("no frame", vec![0xff; 9], malformed, true),
        ("a frame that is not masked", encode_binary(Side::Acceptor, b"?"), malformed, true),
        ("no hello", binary(b"?"), malformed, true),
        ("a long message", binary(&vec![0; HELLO_LEN_MAX + 1]), malformed, true),
        ("a close", encode_close(Side::Dialer, 1000, "bye"), other, false),
        ("another cluster", binary(&cluster), Rejected { wrong_cluster: 1, ..none }, true),
        ("another secret", binary(&secret), Rejected { unauthenticated: 1, ..none }, true),
        ("another version", binary(&versions), Rejected { wrong_version: 1, ..none }, true),
        ("another lane", binary(&lane), other, true),
    ];
    for (what, bytes, counted, is_told) in cases {
        let setup = Setup::new();
        let pipe = dial(&setup, &bytes);
        let server = &setup.servers[0];
        assert_eq!(server.grid.counters().rejected, counted, "{what}");
        let events = server.events();
        assert_eq!(matches!(&events[..], [PeerEvent::Rejected { .. }]), is_told, "{what}: {events:?}");
        assert_eq!(events.is_empty(), !is_told, "{what}");
        assert_eq!(server.grid.tasks(), 0, "{what}");
        let last = frames(&pipe).pop().and_then(|(_, close)| close).expect("a close");
        assert!(last.0 == 1008 && last.1.starts_with("not authenticated: "), "{what}: {last:?}");
        assert_eq!(pipe.take(), None, "it is closed");
    }
}

/// A whole hello up to the proof; what comes then.
fn authenticate(setup: &Setup) -> (Pipe, Vec<Frame>) {
    let (mut dialer, hello) = Dialer::new(hello_config(), [3; 32]);
    let pipe = dial(setup, &binary(&hello));
    let challenge = frames(&pipe).remove(0).0;
    let Ok(Step::Send(proof)) = dialer.handle_message(&challenge) else { panic!("a proof") };
    pipe.put(&binary(&proof));
    setup.world.run();
    let seen = frames(&pipe);
    (pipe, seen)
}

#[test]
fn who_does_not_fit_is_told_why_before_the_end() {
    let told = |bytes: &[u8]| {
        let told = Dialer::new(hello_config(), [3; 32]).0.handle_message(bytes).expect_err("a refusal");
        told.refusal_code()
    };
    let setup = Setup::new();
    let pipe = dial(&setup, &binary(&hello(|hello| hello.cluster = ClusterId::from_bytes([8; 16]))));
    let seen = frames(&pipe);
    assert_eq!((seen.len(), told(&seen[0].0)), (2, Some(RefusalCode::WrongCluster)));
    // Who has proved itself is not said not to have.
    setup.servers[0].grid.stop();
    let (_, seen) = authenticate(&setup);
    assert_eq!(told(&seen[0].0), Some(RefusalCode::Draining));
    assert_eq!(seen[1].1, Some((1008, format!("refused here: {}", RefusalCode::Draining))));
    // A duplicate makes this side ask whether the first one lives, which it would not do for long.
    let rest = |config: &mut GridConfig| config.timing.rest_per_connection = Duration::from_secs(10);
    let setup = Setup::with(rest, |handlers| handlers).connected();
    setup.world.pass(2_000);
    let before = setup.servers[1].status().counters.messages_in;
    let (_, seen) = authenticate(&setup);
    assert_eq!(told(&seen[0].0), Some(RefusalCode::Duplicate));
    assert_eq!(setup.servers[1].status().counters.messages_in, before + 1, "a ping");
}

#[test]
fn no_two_hellos_are_alike() {
    let setup = Setup::new();
    let hello = binary(&hello(|_| {}));
    let challenges = [0; 3].map(|_| frames(&dial(&setup, &hello)).remove(0).0);
    assert!(challenges[0] != challenges[1] && challenges[1] != challenges[2]);
    let heard: Arc<Mutex<Vec<Pipe>>> = Arc::default();
    let hearing = heard.clone();
    let listener: Listener = Box::new(move |wire, _| locked(&hearing).push(wire));
    locked(&setup.world.listeners).insert("c:1".to_owned(), listener);
    setup.servers[0].grid.add_peer("c:1");
    setup.world.run();
    let first = locked(&heard).remove(0).take();
    setup.world.pass(1_000);
    let second = locked(&heard).remove(0).take();
    assert!(first.is_some() && first != second);
}

#[test]
fn a_message_of_a_hello_may_be_as_long_as_the_limit() {
    for (len, reason) in [(HELLO_LEN_MAX, "hello"), (HELLO_LEN_MAX + 1, "longer")] {
        for parts in [vec![len], vec![1_500, len - 1_500]] {
            let setup = Setup::new();
            let bytes = binary(&vec![0; len]);
            let (own, theirs) = World::pipe();
            setup.servers[0].grid.accept(theirs, Lane::Small);
            let mut at = 0;
            for part in parts {
                let end = if at == 0 { part } else { bytes.len() };
                own.put(&bytes[at..end.min(bytes.len())]);
                at = end;
                setup.world.run();
            }
            own.put(&bytes[at.min(bytes.len())..]);
            setup.world.run();
            // One that is too long is not heard to its end, so it is not answered as a message.
            assert_eq!(frames(&own).len(), if reason == "hello" { 2 } else { 1 }, "{len}");
        }
    }
}

#[test]
fn who_says_nothing_is_let_go_after_a_step_and_who_leaves_at_once() {
    let setup = Setup::new();
    let server = &setup.servers[0];
    // A ping is answered, and is no message of the hello.
    let ping = [0x89, 0x82, 0, 0, 0, 0, b'h', b'i'];
    let pipe = dial(&setup, &ping);
    assert_eq!(pipe.take(), Some(vec![0x8a, 2, b'h', b'i']));
    let half = dial(&setup, &binary(&hello(|_| {}))[..100]);
    drop(dial(&setup, b""));
    setup.world.pass(4_999);
    assert_eq!(server.grid.counters().rejected, Rejected { other: 1, ..Rejected::default() }, "one has left");
    assert_eq!((server.events(), server.grid.tasks()), (Vec::new(), 2));
    setup.world.pass(1);
    assert_eq!(server.grid.counters().rejected, Rejected { other: 1, timeout: 2, ..Rejected::default() });
    let reason = "the peer did not answer in time".to_owned();
    assert_eq!(server.events(), [PeerEvent::Rejected { reason: reason.clone() }, PeerEvent::Rejected { reason }]);
    for pipe in [pipe, half] {
        let close = (1008, "not authenticated: the peer did not answer in time".to_owned());
        assert_eq!(frames(&pipe), [(Vec::new(), Some(close))]);
    }
    // Time counts anew for each message: the challenge comes, its answer does not.
    let pipe = dial(&setup, b"");
    setup.world.pass(4_000);
    pipe.put(&binary(&hello(|_| {})));
    setup.world.pass(4_999);
    assert_eq!((frames(&pipe).len(), server.grid.tasks()), (1, 1));
    setup.world.pass(1);
    assert_eq!((frames(&pipe).len(), server.grid.tasks()), (1, 0));
}

/// A peer that does not read cannot keep a hello for ever.
#[test]
fn a_hello_that_cannot_be_written_ends_as_well() {
    let setup = Setup::new();
    let (own, theirs) = World::pipe();
    own.put(&binary(&hello(|_| {})));
    locked(&own.incoming).is_full = true;
    setup.servers[0].grid.accept(theirs, Lane::Small);
    setup.world.pass(4_999);
    assert_eq!(setup.servers[0].grid.counters().rejected.timeout, 0);
    setup.world.pass(1);
    assert_eq!(setup.servers[0].grid.counters().rejected.timeout, 1);
    setup.world.pass(5_000);
    assert_eq!(setup.servers[0].grid.tasks(), 0, "the farewell has its time too");
}

#[test]
fn no_more_hellos_than_the_limit_go_on_at_once() {
    let setup = Setup::with(|config| config.handshakes_max = 2, |handlers| handlers);
    let server = &setup.servers[0];
    let held = [dial(&setup, b""), dial(&setup, b"")];
    for _ in 0..2 {
        let pipe = dial(&setup, b"");
        assert_eq!(pipe.take(), None, "closed without a word");
    }
    assert_eq!(server.grid.counters().rejected, Rejected { other: 2, ..Rejected::default() });
    let reason = format!("refused here: {}", RefusalCode::Busy);
    assert!(server.events().contains(&PeerEvent::Rejected { reason }));
    drop(held);
    setup.world.run();
    let pipe = dial(&setup, b"");
    assert_eq!(pipe.take(), Some(Vec::new()), "there is room again");
    // A hello that has become a connection is none any more.
    drop(pipe);
    let setup = Setup::with(|config| config.handshakes_max = 1, |handlers| handlers).connected();
    assert_eq!(dial(&setup, b"").take(), Some(Vec::new()));
}

#[test]
fn servers_that_do_not_fit_say_so_at_both_ends() {
    let healing = [
        (RefusalCode::WrongCluster, false, GridConfig { cluster: ClusterId::from_bytes([8; 16]), ..config(1) }),
        (
            RefusalCode::UnknownKey,
            false,
            GridConfig { secrets: Secrets::new(Secret::from_bytes([8; 32])), ..config(1) },
        ),
    ];
    for (code, will_heal, config) in healing {
        let setup = Setup::new();
        let other = Setup::server(&setup.world, config, Handlers::new());
        other.grid.add_peer(ADDRESSES[0]);
        setup.world.pass(20_000);
        let (address, reason) = (ADDRESSES[0].to_owned(), format!("refused by the peer: {code}"));
        assert_eq!(other.events(), [PeerEvent::DialFailed { address, reason, will_heal }]);
        assert!(other.grid.counters().dials_failed > 10);
        let rejected = PeerEvent::Rejected { reason: format!("refused: {code}") };
        assert!(setup.servers[0].events().iter().all(|event| *event == rejected));
    }
}
