//! Bugs that escaped once: each test failed before its fix.

use super::*;

/// A stream of end 0 and a call of end 0 must never be taken for each other.
#[test]
fn calls_and_streams_of_one_slot_are_two_things() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(0);
    let id = pair.start(0, &bytes(5 * CHUNK)).expect("started");
    let cancelled = pair.start(0, b"to be cancelled").expect("started");
    pair.settle();
    assert_eq!(pair.ends[1].work.len(), 2, "the chunks did not go to the stream");
    let (_, _, request, alive) = pair.next_call(1);
    let (.., stopped) = pair.next_call(1);
    assert!(request == b"to be cancelled" || request.len() == 5 * CHUNK);
    pair.ends[0].mux.cancel_call(cancelled);
    pair.ends[0].mux.release_stream(key);
    pair.settle();
    assert_eq!(pair.receive(1, served).1, Some(Err(StreamError::Cut(Reason::Cancelled))));
    assert_eq!((alive.is_cancelled(), stopped.is_cancelled()), (request.len() < CHUNK, request.len() > CHUNK));
    pair.ends[0].mux.cancel_call(id);
    pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    pair.settle();
    pair.assert_empty();
    pair.assert_fits();
}

/// `NotSent` was said while the request waited among the small messages, and then it left.
#[test]
fn what_was_said_not_to_be_sent_is_not_sent() {
    for cancel in [false, true] {
        for len in [0, 10, CHUNK, 5 * CHUNK] {
            let mut pair = Pair::new();
            let before = pair.start(0, b"before").expect("started");
            let id = pair.start_with(0, &bytes(len), "", at(50)).expect("started");
            let after = pair.start(0, b"after").expect("started");
            if cancel {
                pair.ends[0].mux.cancel_call(id);
            } else {
                pair.pass(50);
                assert_eq!(pair.result(0, id), Some(Err(CallError::NotSent(Reason::Deadline))));
            }
            pair.settle();
            assert_eq!(pair.serve(1), 2, "{len} bytes, cancel {cancel}: only the others run");
            pair.settle();
            for (id, request) in [(before, b"before".to_vec()), (after, b"after".to_vec())] {
                assert_eq!(pair.result(0, id), Some(Ok(request)));
            }
            pair.assert_empty();
            pair.assert_fits();
        }
    }
}

/// Requests were told as not sent when the connection ended, and then the last batch held them.
#[test]
fn nothing_leaves_after_the_close() {
    let mut pair = Pair::new();
    let key = pair.open(0, 0);
    let ids = [10, 5 * CHUNK].map(|len| pair.start(0, &bytes(len)).expect("started"));
    pair.pass(0);
    pair.ends[0].mux.close(Lost::Protocol);
    for id in ids {
        let lost = Reason::Disconnected(Lost::Protocol);
        assert_eq!(pair.result(0, id), Some(Err(CallError::NotSent(lost))));
    }
    assert!(!pair.ends[0].mux.has_output());
    assert_eq!(pair.step(0), []);
    pair.ends[0].mux.reply_in_place(ids[0], Outcome::Ok, &mut b"late".to_vec());
    pair.ends[0].mux.release_stream(key);
    assert_eq!(pair.ends[0].mux.in_flight(), (0, 0, 0, 0));
}

/// With more small messages waiting than a batch holds, a large one left before the small ones that came before it.
#[test]
fn a_large_message_does_not_overtake_its_own_small_ones() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(1 << 20);
    for _ in 0..400 {
        pair.start(0, &bytes(CHUNK)).expect("started");
    }
    assert!(pair.send(0, key, b"small").is_ready());
    assert!(pair.send(0, key, &bytes(3 * CHUNK)).is_ready());
    let routed = pair.start_with(0, &bytes(3 * CHUNK), DRIVE.0, Instant::NEVER).expect("started");
    pair.settle();
    pair.assert_fits();
    assert_eq!(pair.receive(1, served), (vec![b"small".to_vec(), bytes(3 * CHUNK)], None));
    assert_eq!(pair.serve(1), 401);
    pair.settle();
    assert_eq!(pair.result(0, routed), Some(Ok(bytes(3 * CHUNK))), "its route was known when it came");
}

/// The slot of a stream that its initiator let go was refused as long as the old handler had not returned.
#[test]
fn a_slot_is_free_when_its_initiator_says_so() {
    let mut pair = Pair::new();
    for by_end in [false, true] {
        let (old, old_served) = pair.opened(0);
        if by_end {
            assert!(pair.finish(1, old_served).is_ready());
            pair.settle();
        }
        pair.ends[0].mux.release_stream(old);
        let key = pair.open(0, 0);
        pair.settle();
        assert_eq!(pair.receive(0, key), (Vec::new(), None), "not refused");
        let (served, _) = pair.accept(1);
        assert!(matches!(pair.send(1, old_served, b"to nobody"), Poll::Ready(Err(_))));
        pair.ends[1].mux.refuse_stream(old_served, Outcome::Failed);
        assert!(pair.send(1, served, b"to the new one").is_ready());
        assert!(pair.send(0, key, b"from the new one").is_ready());
        pair.settle();
        assert_eq!(pair.receive(0, key), (vec![b"to the new one".to_vec()], None));
        assert_eq!(pair.receive(1, served), (vec![b"from the new one".to_vec()], None));
        pair.ends[0].mux.release_stream(key);
        pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
        pair.settle();
        pair.assert_empty();
    }
    pair.assert_fits();
}

/// Who opens a stream in a slot has let the one go that had it, even where nothing else says so.
#[test]
fn a_slot_in_use_again_cancels_who_had_it() {
    let mut pair = Pair::new();
    let old = pair.open(0, 0);
    pair.settle();
    let (old_served, cancelled) = pair.accept(1);
    pair.ends[0].mux.release_stream(old);
    let key = pair.open(0, 0);
    pair.step_over(0, |header, _| {
        if header.op == Op::Cancel {
            header.id.slot = 77;
        }
    });
    assert!(cancelled.is_cancelled());
    assert_eq!(pair.send(1, old_served, b"to nobody"), Poll::Ready(Err(StreamError::Cut(Reason::Cancelled))));
    let (served, _) = pair.accept(1);
    assert!(pair.send(1, served, b"to the new one").is_ready());
    pair.settle();
    assert_eq!(pair.receive(0, key), (vec![b"to the new one".to_vec()], None));
}

/// The longest refusal did not fit into the shortest chunk.
#[test]
fn the_longest_refusal_fits_the_shortest_chunk() {
    let mut pair = Pair::new();
    let refusal = Refusal::new(u32::MAX, "x".repeat(5_000));
    let (key, served) = pair.opened(0);
    pair.ends[1].mux.finish_served(served, Err(refusal));
    pair.settle();
    let (_, end) = pair.receive(0, key);
    let Some(Err(StreamError::Refused(told))) = end else { panic!("{end:?}") };
    assert_eq!(told.code, u32::MAX);
    assert!((900..=1_024).contains(&told.text.len()));
}

/// What was on its way when a stream was cut counted as the peer's mistake, and was kept.
#[test]
fn the_rest_of_a_cut_stream_is_late_and_not_kept() {
    for half in [true, false] {
        let mut pair = Pair::new();
        let key = pair.try_open(0, 1 << 20, at(50)).expect("opened");
        pair.settle();
        let (served, _) = pair.accept(1);
        assert!(pair.send(0, key, &bytes(100 * CHUNK)).is_ready());
        if half {
            pair.step(0);
        }
        // Only the receiver's clock has come so far.
        pair.ends[1].mux.handle_timeout(at(50), None, 1);
        while pair.ends[0].mux.has_output() {
            pair.step(0);
        }
        let cut = Some(Err(StreamError::Cut(Reason::Deadline)));
        assert_eq!(pair.receive(1, served), (Vec::new(), cut));
        pair.assert_fits();
        assert!(pair.ends[1].mux.counters().late > 0);
    }
}

/// A peer that pings without reading made this side queue an answer to each.
#[test]
fn only_the_latest_of_many_pings_is_answered() {
    let mut pair = Pair::new();
    for token in 0..100_000 {
        let message = Message { header: Header::new(Op::Ping, MuxId::CONNECTION, token), payload: &[] };
        assert!(pair.ends[0].mux.handle_message(at(0), &message).expect("goes on").is_none());
    }
    let queued = pair.ends[0].mux.in_flight().3;
    assert!(queued < 100_000, "{queued} bytes of pongs");
    let mut latest = None;
    pair.step_over(0, |header, _| latest = (header.op == Op::Pong).then_some(header.sequence));
    assert_eq!(latest, Some(99_999));
    pair.assert_empty();
}

/// The whole of a large request left although its first chunk had been refused.
#[test]
fn the_rest_of_a_refused_request_does_not_leave() {
    let mut pair = Pair::with(|limits| limits.inbound_bytes_max = 100 * CHUNK);
    let id = pair.start(0, &bytes(1 << 20)).expect("started");
    pair.step(0);
    pair.step(1);
    assert_eq!(pair.result(0, id), Some(Err(CallError::NotExecuted(Reason::Overloaded))));
    assert!(!pair.ends[0].mux.has_output());
    pair.assert_empty();
}

/// Streams sent into a full outbox.
#[test]
fn streams_wait_while_the_outbox_is_full() {
    let mut pair = Pair::with(|limits| limits.outbound_bytes_max = 20 * CHUNK);
    let (key, served) = pair.opened(1 << 20);
    let mut sent = 0;
    while pair.send(0, key, &bytes(CHUNK)).is_ready() {
        sent += 1;
    }
    assert!((19..22).contains(&sent), "{sent} messages");
    let full = StreamError::NotExecuted(Reason::Overloaded);
    assert_eq!(pair.try_open(0, 0, Instant::NEVER), Err(full));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let held = pair.ends[0].mux.poll_send(key, b"held", &Context::from_waker(&waker));
    assert!(held.is_pending() && woken.count() == 0);
    pair.step(0);
    assert_eq!(woken.count(), 1, "there is room: the sender hears of it");
    assert!(pair.send(0, key, b"held").is_ready());
    pair.settle();
    assert_eq!(pair.receive(1, served).0.len(), sent + 1);
    pair.assert_fits();
}

/// Counts its wakes.
#[derive(Debug, Default)]
pub(super) struct Woken(core::sync::atomic::AtomicUsize);

impl Woken {
    pub(super) fn count(&self) -> usize {
        self.0.load(core::sync::atomic::Ordering::Relaxed)
    }
}

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

/// A handler that ended its direction and went on reading waited for ever: its initiator took that for the end of all.
#[test]
fn a_handler_may_end_its_direction_and_read_on() {
    for released in [false, true] {
        let mut pair = Pair::new();
        let (key, served) = pair.opened(0);
        assert!(pair.finish(1, served).is_ready());
        pair.settle();
        assert_eq!(pair.receive(0, key), (Vec::new(), Some(Ok(()))));
        assert!(pair.send(0, key, b"read").is_ready());
        if released {
            pair.ends[0].mux.release_stream(key);
        } else {
            assert!(pair.finish(0, key).is_ready());
        }
        pair.settle();
        let end = if released { Err(StreamError::Cut(Reason::Cancelled)) } else { Ok(()) };
        assert_eq!(pair.receive(1, served), (vec![b"read".to_vec()], Some(end)));
        pair.ends[1].mux.finish_served(served, Ok(()));
        pair.ends[0].mux.release_stream(key);
        pair.settle();
        pair.assert_empty();
        pair.assert_fits();
    }
    // And when it returns, its initiator hears that nobody reads any more.
    let mut pair = Pair::new();
    let (key, served) = pair.opened(0);
    assert!(pair.finish(1, served).is_ready());
    pair.ends[1].mux.finish_served(served, Ok(()));
    pair.settle();
    assert_eq!(pair.send(0, key, b"?"), Poll::Ready(Err(StreamError::Finished)));
    assert_eq!(pair.finish(0, key), Poll::Ready(Ok(())));
    assert_eq!(pair.receive(0, key), (Vec::new(), Some(Ok(()))));
    pair.ends[0].mux.release_stream(key);
    pair.settle();
    pair.assert_empty();
}

/// The name of a route, queued for a call that was then refused, lay until something else woke the connection.
#[test]
fn whatever_is_queued_wakes_the_connection() {
    let mut pair = Pair::with(|limits| limits.calls_in_flight_max = 1);
    pair.start(0, b"the only one").expect("started");
    pair.settle();
    let woken = Arc::new(Woken::default());
    pair.ends[0].mux.sleep(&Waker::from(woken.clone()));
    let refused = pair.start_with(0, b"another", DRIVE.0, Instant::NEVER);
    assert_eq!(refused, Err(CallError::NotSent(Reason::Overloaded)));
    assert_eq!(pair.ends[0].mux.has_output(), woken.count() == 1);
}

/// The last stream or call of a draining connection ended without a message, and nobody noticed until the next ping.
#[test]
fn the_last_to_end_wakes_a_draining_connection() {
    for which in 0..3 {
        let mut pair = Pair::new();
        let id = if which == 0 {
            Some(pair.start(0, b"never leaves").expect("started"))
        } else {
            pair.try_open(1, 0, at(50)).expect("opened");
            pair.settle();
            pair.pass(50);
            None
        };
        pair.ends[1].mux.drain();
        while pair.ends[1].mux.has_output() {
            pair.step(1);
        }
        assert!(!pair.ends[0].mux.go_on_draining() && !pair.ends[0].mux.is_let_go());
        let woken = Arc::new(Woken::default());
        pair.ends[0].mux.sleep(&Waker::from(woken.clone()));
        match (which, id) {
            (0, Some(id)) => pair.ends[0].mux.cancel_call(id),
            (1, _) => {
                let served = pair.accept(0).0;
                pair.ends[0].mux.finish_served(served, Ok(()));
            }
            _ => {
                let served = pair.accept(0).0;
                pair.ends[0].mux.refuse_stream(served, Outcome::Failed);
            }
        }
        assert_eq!(woken.count(), 1, "case {which}");
        pair.ends[0].mux.go_on_draining();
        assert!(pair.ends[0].mux.is_let_go());
    }
}

/// A question about the secret was queued on a connection that had ended, for ever.
#[test]
fn nothing_about_secrets_is_queued_after_the_close() {
    let mut pair = Pair::new();
    pair.ends[0].mux.close(Lost::Closed);
    pair.ends[0].mux.push_challenge(b"prove it");
    pair.ends[0].mux.push_proof(b"there");
    assert_eq!(pair.ends[0].mux.in_flight(), (0, 0, 0, 0));
    assert_eq!(pair.step(0), []);
}
