//! Streams as their users hold them, from one server to another.

use super::*;
use crate::stream::ServerStream;

/// Sends back what it gets, up to the end.
const ECHO: HandlerId = HandlerId::new(5);
/// Sends one message after the other, for ever.
const FLOOD: HandlerId = HandlerId::new(6);
/// Refuses at once.
const REFUSE: HandlerId = HandlerId::new(7);
const MESSAGE: [u8; 1_000] = [3; 1_000];

async fn echo(_: CallContext, initial: Vec<u8>, mut stream: ServerStream) -> Result<(), Refusal> {
    let broken = |_: StreamError| refusal();
    stream.sender.send(&initial).await.map_err(broken)?;
    while let Some(message) = stream.receiver.receive().await.map_err(broken)? {
        stream.sender.send(&message).await.map_err(broken)?;
    }
    Ok(())
}

/// Two servers, and how many messages the flood of the second one has sent; more than a million once it has ended.
fn setup() -> (Setup, Arc<AtomicU32>) {
    let sent = Arc::new(AtomicU32::new(0));
    let handlers = |handlers: Handlers| {
        let sent = sent.clone();
        let flood = move |_: CallContext, _: Vec<u8>, mut stream: ServerStream| {
            let sent = sent.clone();
            async move {
                while stream.sender.send(&MESSAGE).await.is_ok() {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        let handlers = handlers.stream(ECHO, echo).expect("the first").stream(FLOOD, flood).expect("the first");
        handlers.stream(REFUSE, |_, _, _| async { Err(refusal()) }).expect("the first")
    };
    (Setup::with(|_| {}, handlers).connected(), sent)
}

fn open(setup: &Setup, handler: HandlerId) -> ClientStream {
    setup.world.now(setup.handle().open_stream(handler, b"first", CallOptions::default())).expect("opened")
}

#[test]
fn what_is_sent_comes_back_and_the_end_too() {
    let (setup, _) = setup();
    let mut stream = open(&setup, ECHO);
    assert_eq!(setup.servers.each_ref().map(|server| server.status().streams), [1, 1]);
    assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(b"first".to_vec())));
    for len in [0, 1, 1_000, 50_000] {
        assert_eq!(setup.world.now(stream.sender.send(&vec![7; len])), Ok(()));
        assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(vec![7; len])), "{len}");
    }
    assert_eq!(setup.world.within(100, stream.receiver.receive()), None, "nothing more so far");
    assert_eq!(setup.world.now(stream.sender.finish()), Ok(()));
    assert_eq!(setup.world.now(stream.receiver.receive()), Ok(None));
    assert_eq!(setup.world.now(stream.sender.send(b"?")), Err(StreamError::Finished));
    drop(stream);
    setup.world.run();
    assert_eq!(setup.servers.each_ref().map(|server| server.status().streams), [0, 0]);
}

#[test]
fn handlers_that_refuse_or_are_missing_end_the_stream_with_a_reason() {
    let (setup, _) = setup();
    let unknown = StreamError::NotExecuted(Reason::UnknownHandler);
    for (handler, error) in [(REFUSE, StreamError::Refused(refusal())), (HandlerId::new(9), unknown)] {
        let mut stream = open(&setup, handler);
        assert_eq!(setup.world.now(stream.receiver.receive()), Err(error.clone()));
        assert_eq!(setup.world.now(stream.sender.send(b"?")), Err(error.clone()));
        assert_eq!(setup.world.now(stream.sender.finish()), Err(error));
    }
    let nobody = setup.servers[0].grid.open_stream(ServerId::from_bytes([9; 16]), ECHO, b"", CallOptions::default());
    assert_eq!(setup.world.now(nobody).expect_err("nobody"), StreamError::NotExecuted(Reason::UnknownPeer));
    let long = setup.handle();
    let long = setup.world.now(long.open_stream(ECHO, &[0; 20_000], CallOptions::default())).expect_err("too long");
    assert_eq!(long, StreamError::NotExecuted(Reason::TooLong));
}

#[test]
fn letting_go_of_both_halves_stops_the_handler() {
    let (setup, sent) = setup();
    let stream = open(&setup, FLOOD);
    setup.world.run();
    let ClientStream { sender, receiver } = stream;
    drop(receiver);
    setup.world.run();
    assert_eq!(setup.servers[1].status().streams, 1, "the other half holds it");
    drop(sender);
    setup.world.run();
    assert_eq!(setup.servers.each_ref().map(|server| server.status().streams), [0, 0]);
    assert_eq!(setup.servers[1].status().counters.abandoned, 1);
    assert!(sent.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_reader_that_takes_makes_room_and_one_that_waits_does_not() {
    let (setup, sent) = setup();
    let window = config(0).limits.stream_window as usize;
    let mut stream = open(&setup, FLOOD);
    setup.world.pass(1_000);
    let full = sent.load(Ordering::Relaxed) as usize;
    assert!((window / 1_100..=window / 1_000 + 1).contains(&full), "{full} messages fill the window");
    assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(MESSAGE.to_vec())));
    // What is here already is taken without waiting, and its room goes back to the sender now and then.
    let mut taken = 1;
    while stream.receiver.next_ready().is_some() {
        taken += 1;
        setup.world.run();
        let more = sent.load(Ordering::Relaxed) as usize > full;
        assert_eq!(more, taken >= 32, "after {taken}");
    }
    assert_eq!(taken, full);
    // Who waits for the next one has told what it took before.
    for _ in 0..1_000 {
        assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(MESSAGE.to_vec())));
    }
    assert!(sent.load(Ordering::Relaxed) as usize <= taken + 1_000 + 4 * 1_048_576 / 1_000);
}

#[test]
fn who_waits_for_the_next_message_has_told_what_it_took() {
    let (setup, sent) = setup();
    let options = CallOptions { window: (1_000, 1_000), ..CallOptions::default() };
    let mut stream = setup.world.now(setup.handle().open_stream(FLOOD, b"first", options)).expect("opened");
    for taken in 1..20 {
        assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(MESSAGE.to_vec())));
        assert_eq!(sent.load(Ordering::Relaxed), taken, "one at a time");
    }
}

#[test]
fn a_lost_connection_and_a_deadline_cut_the_stream() {
    let (setup, _) = setup();
    let mut stream = open(&setup, ECHO);
    assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(b"first".to_vec())));
    setup.cut(0);
    let cut = StreamError::Cut(Reason::Disconnected(Lost::Broken));
    assert_eq!(setup.world.now(stream.receiver.receive()), Err(cut.clone()));
    assert_eq!(setup.world.now(stream.sender.send(b"?")), Err(cut));
    setup.world.pass(1_000);
    let options = CallOptions::within(Duration::from_secs(1));
    let mut stream = setup.world.now(setup.handle().open_stream(ECHO, b"first", options)).expect("opened");
    assert_eq!(setup.world.now(stream.receiver.receive()), Ok(Some(b"first".to_vec())));
    assert_eq!(setup.world.within(999, stream.receiver.receive()), None);
    assert_eq!(setup.world.within(1, stream.receiver.receive()), Some(Err(StreamError::Cut(Reason::Deadline))));
    setup.world.pass(100);
    assert_eq!(setup.servers[1].status().streams, 0);
}

#[test]
fn a_stream_to_a_peer_that_drains_waits_for_the_next_connection() {
    let (setup, _) = setup();
    let (peer, options) = (setup.handle(), CallOptions::within(Duration::from_secs(1)));
    let drain = |ms| {
        let running = peer.open_stream(ECHO, b"first", CallOptions::within(Duration::from_millis(ms)));
        let running = setup.world.now(running).expect("opened");
        setup.servers[1].grid.0.links()[0].lock().drain();
        setup.world.run();
        running
    };
    let running = drain(200);
    let hasty = setup.world.now(peer.open_stream(ECHO, b"", CallOptions { fail_fast: true, ..options }));
    assert_eq!(hasty.expect_err("draining"), StreamError::NotExecuted(Reason::Draining));
    let release = async {
        setup.servers[0].host.sleep_until(at(setup.world.ms() + 200)).await;
        drop(running);
        peer.open_stream(ECHO, b"", options).await
    };
    assert!(setup.world.within(1_000, release).expect("an end").is_ok());
    // With none to come, it ends with its time.
    let running = drain(10_000);
    let before = setup.world.ms();
    let late = setup.world.within(2_000, peer.open_stream(ECHO, b"", options)).expect("an end");
    assert_eq!(late.expect_err("draining"), StreamError::NotExecuted(Reason::Draining));
    assert_eq!(setup.world.ms() - before, 1_000);
    drop(running);
}
