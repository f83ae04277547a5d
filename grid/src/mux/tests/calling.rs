//! Calls: answers, ends, limits, order.

use super::*;

fn foreground(deadline: Instant) -> NewCall<'static> {
    NewCall { handler: 7, route: "", deadline, class: Class::Foreground }
}

#[test]
fn every_size_comes_back_as_it_went() {
    for (from, cut) in [(0, 13), (1, 64), (0, 4_096), (1, usize::MAX)] {
        let mut pair = Pair::new();
        pair.cut = cut;
        for len in [0, 1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 70_000, 1 << 20] {
            let id = pair.start(from, &bytes(len)).expect("started");
            assert_eq!(pair.result(from, id), None);
            pair.settle();
            assert_eq!(pair.ends[from].mux.in_flight(), (1, 0, 0, 0));
            assert_eq!(pair.ends[1 - from].mux.in_flight(), (0, 1, 0, 0));
            assert_eq!(pair.serve(1 - from), 1);
            pair.settle();
            assert_eq!(pair.result(from, id), Some(Ok(bytes(len))), "{len} bytes, cut {cut}");
            pair.assert_empty();
        }
        pair.assert_fits();
    }
}

#[test]
fn every_outcome_says_what_it_means() {
    use CallError::{NotExecuted, Refused, Unknown};
    let refusal = Refusal::new(5, "no");
    let cases = [
        (Outcome::Refused, encode_refusal(&refusal), Refused(refusal)),
        (Outcome::Refused, vec![1], Unknown(Reason::Malformed)),
        (Outcome::UnknownHandler, Vec::new(), NotExecuted(Reason::UnknownHandler)),
        (Outcome::Overloaded, Vec::new(), NotExecuted(Reason::Overloaded)),
        (Outcome::Draining, Vec::new(), NotExecuted(Reason::Draining)),
        (Outcome::Expired, Vec::new(), NotExecuted(Reason::Deadline)),
        (Outcome::Malformed, Vec::new(), NotExecuted(Reason::Malformed)),
        (Outcome::TooLong, Vec::new(), NotExecuted(Reason::TooLong)),
        (Outcome::Failed, Vec::new(), Unknown(Reason::HandlerFailed)),
        (Outcome::AnswerTooLong, Vec::new(), Unknown(Reason::TooLong)),
    ];
    let mut pair = Pair::new();
    for (outcome, answer, error) in cases {
        let id = pair.start(0, b"?").expect("started");
        pair.settle();
        let (served, ..) = pair.next_call(1);
        pair.ends[1].mux.reply(served, outcome, answer);
        pair.settle();
        assert_eq!(pair.result(0, id), Some(Err(error)));
    }
    pair.assert_fits();
    pair.assert_empty();
}

#[test]
fn an_answer_beyond_the_limit_says_so() {
    let mut pair = Pair::with(|limits| limits.payload_max = 4 * CHUNK);
    assert_eq!(pair.start(0, &bytes(4 * CHUNK + 1)), Err(CallError::NotSent(Reason::TooLong)));
    let id = pair.start(0, b"much").expect("started");
    pair.settle();
    let (served, ..) = pair.next_call(1);
    pair.ends[1].mux.reply(served, Outcome::Ok, bytes(4 * CHUNK + 1));
    pair.settle();
    assert_eq!(pair.result(0, id), Some(Err(CallError::Unknown(Reason::TooLong))));
    pair.assert_empty();
}

#[test]
fn a_cancelled_call_stops_its_handler() {
    for len in [10, 5 * CHUNK] {
        let mut pair = Pair::new();
        let id = pair.start(0, &bytes(len)).expect("started");
        pair.settle();
        let (served, _, _, cancelled) = pair.next_call(1);
        pair.ends[0].mux.cancel_call(id);
        pair.settle();
        assert!(cancelled.is_cancelled());
        // An answer that comes too late is not even sent.
        pair.ends[1].mux.reply(served, Outcome::Ok, bytes(len));
        pair.assert_empty();
        assert_eq!(pair.ends[1].mux.counters().abandoned, 1);
    }
}

#[test]
fn half_a_request_and_half_an_answer_are_dropped_on_cancel() {
    let mut pair = Pair::new();
    let id = pair.start(0, &bytes(1 << 20)).expect("started");
    assert!(pair.step(0).len() < 100, "a batch, not all");
    assert_eq!(pair.ends[1].mux.in_flight(), (0, 1, 0, 0));
    pair.ends[0].mux.cancel_call(id);
    pair.settle();
    pair.assert_empty();
    assert!(pair.ends[1].work.is_empty());

    let id = pair.start(0, b"much, please").expect("started");
    pair.settle();
    let (served, ..) = pair.next_call(1);
    pair.ends[1].mux.reply(served, Outcome::Ok, bytes(1 << 20));
    pair.step(1);
    assert!(pair.ends[1].mux.in_flight().3 > 1 << 19, "half of it waits");
    pair.ends[0].mux.cancel_call(id);
    pair.step(0);
    assert_eq!(pair.ends[1].mux.in_flight(), (0, 0, 0, 0), "the other half does not leave");
    pair.settle();
    pair.assert_empty();
    pair.assert_fits();
}

#[test]
fn a_deadline_before_sending_is_known_to_be_harmless() {
    for len in [10, 5 * CHUNK] {
        let mut pair = Pair::new();
        let id = pair.start_with(0, &bytes(len), "", at(50)).expect("started");
        pair.pass(50);
        assert_eq!(pair.result(0, id), Some(Err(CallError::NotSent(Reason::Deadline))), "{len} bytes");
    }
    let mut pair = Pair::new();
    pair.now = at(50);
    assert_eq!(pair.start_with(0, b"late", "", at(50)), Err(CallError::NotSent(Reason::Deadline)));
    assert!(!pair.ends[0].mux.has_output());
}

#[test]
fn a_deadline_after_sending_leaves_the_outcome_open() {
    for len in [10, 1 << 20] {
        let mut pair = Pair::new();
        let id = pair.start_with(0, &bytes(len), "", at(50)).expect("started");
        pair.step(0);
        pair.pass(50);
        assert_eq!(pair.result(0, id), Some(Err(CallError::Unknown(Reason::Deadline))), "{len} bytes");
        for work in core::mem::take(&mut pair.ends[1].work) {
            let Work::Call { cancelled, id, .. } = work else { panic!("a call") };
            assert!(cancelled.is_cancelled(), "the handler has the same deadline");
            pair.ends[1].mux.reply(id, Outcome::Ok, Vec::new());
        }
        pair.settle();
        pair.assert_empty();
        pair.assert_fits();
    }
}

#[test]
fn a_late_answer_is_nobody_elses() {
    let mut pair = Pair::new();
    let first = pair.start(0, b"first").expect("started");
    pair.settle();
    let (served, ..) = pair.next_call(1);
    pair.ends[1].mux.reply(served, Outcome::Ok, b"to the first".to_vec());
    pair.ends[0].mux.cancel_call(first);
    let second = pair.start(0, b"second").expect("started");
    assert_eq!((second.slot, second.generation == first.generation), (first.slot, false), "the slot is used again");
    pair.step(1);
    assert_eq!(pair.result(0, second), None);
    assert_eq!(pair.ends[0].mux.counters().late, 1);
    pair.settle();
    assert_eq!(pair.serve(1), 1);
    pair.settle();
    assert_eq!(pair.result(0, second), Some(Ok(b"second".to_vec())));
    pair.assert_empty();
}

#[test]
fn calls_beyond_the_limit_are_refused_here() {
    let mut pair = Pair::with(|limits| limits.calls_in_flight_max = 3);
    let ids: Vec<_> = (0..3).map(|_| pair.start(0, b"one of three").expect("started")).collect();
    assert_eq!(pair.start(0, b"a fourth"), Err(CallError::NotSent(Reason::Overloaded)));
    pair.settle();
    assert_eq!(pair.serve(1), 3);
    pair.settle();
    assert_eq!(pair.start(0, b"not yet"), Err(CallError::NotSent(Reason::Overloaded)), "answers are not collected");
    assert!(pair.result(0, ids[0]).is_some_and(|result| result.is_ok()));
    pair.start(0, b"now").expect("room for one");
}

#[test]
fn calls_beyond_the_limit_are_refused_there() {
    // End 0 believes in more than end 1 accepts.
    let limits = Limits { chunk_max: CHUNK, ..Limits::for_lane(Lane::Small) };
    let narrow = Limits { calls_in_flight_max: 2, inbound_bytes_max: 10 * CHUNK, ..limits };
    for (len, fits) in [(10, 2), (6 * CHUNK, 1)] {
        let mut pair = Pair::between(limits, narrow);
        pair.ends[0].mux =
            Mux::new(Side::Dialer, limits, limits, &Timing::default(), Some(Salt::new(&[b"pair"])), at(0));
        let ids: Vec<_> = (0..4).map(|_| pair.start(0, &bytes(len)).expect("started")).collect();
        pair.settle();
        assert_eq!(pair.serve(1), fits);
        pair.settle();
        let results: Vec<_> = ids.into_iter().map(|id| pair.result(0, id).expect("an end")).collect();
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), fits);
        let refused = Err(CallError::NotExecuted(Reason::Overloaded));
        assert_eq!(results.iter().filter(|result| **result == refused).count(), 4 - fits);
        assert_eq!(pair.ends[1].mux.counters().overloaded, 4 - fits as u64);
        pair.assert_empty();
        pair.assert_fits();
    }
}

#[test]
fn calls_wait_for_no_full_outbox() {
    let mut pair = Pair::with(|limits| limits.outbound_bytes_max = 100 * CHUNK);
    while pair.start(0, &bytes(CHUNK)).is_ok() {}
    let queued = pair.ends[0].mux.in_flight().3;
    assert!((100 * CHUNK..102 * CHUNK).contains(&queued), "{queued}: one call over the limit at most");
    assert_eq!(pair.start(0, b"x"), Err(CallError::NotSent(Reason::Overloaded)));
    pair.step(0);
    pair.start(0, b"x").expect("room again");
}

#[test]
fn draining_finishes_what_runs_and_refuses_the_rest() {
    let mut pair = Pair::new();
    let running = pair.start(0, b"running").expect("started");
    pair.settle();
    pair.ends[1].mux.drain();
    let crossing = pair.start(0, b"crossing the news").expect("started");
    pair.settle();
    assert_eq!(pair.result(0, crossing), Some(Err(CallError::NotExecuted(Reason::Draining))));
    assert_eq!(pair.start(0, b"after"), Err(CallError::NotSent(Reason::Draining)));
    assert_eq!(pair.start(1, b"from the draining"), Err(CallError::NotSent(Reason::Draining)));
    assert_eq!(pair.try_open(0, 0, Instant::NEVER), Err(StreamError::NotExecuted(Reason::Draining)));
    assert!(pair.ends[0].mux.is_peer_draining());
    assert!(!pair.ends[0].mux.go_on_draining() && !pair.ends[1].mux.go_on_draining(), "an answer is awaited");
    assert_eq!(pair.serve(1), 1);
    pair.settle();
    assert_eq!(pair.result(0, running), Some(Ok(b"running".to_vec())));
    assert!(!pair.ends[0].mux.go_on_draining() && pair.ends[0].mux.is_let_go(), "it says that it has nothing more");
    pair.settle();
    assert!(pair.ends[1].mux.go_on_draining(), "now it can be closed");
    pair.assert_fits();
}

#[test]
fn a_close_tells_what_had_left() {
    let mut pair = Pair::new();
    let sent = pair.start(0, b"sent").expect("started");
    let answered = pair.start(0, b"answered").expect("started");
    pair.settle();
    let answers: Vec<_> = (0..2).map(|_| pair.next_call(1)).collect();
    pair.ends[1].mux.reply(answers[1].0, Outcome::Ok, b"yes".to_vec());
    pair.settle();
    let half = pair.start(0, &bytes(1 << 20)).expect("started");
    pair.step(0);
    let large = pair.start(0, &bytes(1 << 20)).expect("started");
    let small = pair.start(0, b"small").expect("started");
    for end in [0, 1] {
        pair.ends[end].mux.close(Lost::Broken);
        assert_eq!(pair.ends[end].mux.lost(), Some(Lost::Broken));
    }
    let lost = Reason::Disconnected(Lost::Broken);
    let expected = [
        (answered, Ok(b"yes".to_vec())),
        (sent, Err(CallError::Unknown(lost))),
        (half, Err(CallError::Unknown(lost))),
        (large, Err(CallError::NotSent(lost))),
        (small, Err(CallError::NotSent(lost))),
    ];
    for (id, result) in expected {
        assert_eq!(pair.result(0, id), Some(result));
    }
    assert!(answers[0].3.is_cancelled(), "its handler is stopped");
    pair.ends[1].mux.reply(answers[0].0, Outcome::Ok, Vec::new());
    assert_eq!(pair.start(0, b"after"), Err(CallError::NotSent(lost)));
}

#[test]
fn routes_are_named_once() {
    let mut pair = Pair::with(|limits| limits.routes_max = 2);
    let mut named = 0;
    for (route, bound) in [("drive", true), ("nowhere", false), ("drive", true), ("nowhere", false), ("", true)] {
        let id = pair.start_with(0, b"?", route, Instant::NEVER).expect("started");
        named += pair.step(0).iter().filter(|(op, ..)| *op == Op::Route).count();
        if bound {
            let (served, index, ..) = pair.next_call(1);
            assert_eq!(index, if route.is_empty() { RouteIndex::default() } else { DRIVE.1 });
            pair.ends[1].mux.reply(served, Outcome::Ok, Vec::new());
        }
        pair.settle();
        let unknown = Err(CallError::NotExecuted(Reason::UnknownHandler));
        assert_eq!(pair.result(0, id), Some(if bound { Ok(Vec::new()) } else { unknown }));
    }
    assert_eq!(named, 2);
    let third = pair.start_with(0, b"?", "a third", Instant::NEVER);
    assert_eq!(third, Err(CallError::NotSent(Reason::Overloaded)));
    pair.assert_empty();
    let mut pair = Pair::new();
    for len in [ROUTE_LEN_MAX, ROUTE_LEN_MAX + 1] {
        let started = pair.start_with(0, b"?", &"x".repeat(len), Instant::NEVER);
        assert_eq!(started.is_ok(), len == ROUTE_LEN_MAX, "{len}");
    }
    pair.settle();
}

#[test]
fn a_route_beyond_the_limit_ends_the_connection() {
    let mut pair = Pair::with(|limits| limits.routes_max = 2);
    let long = "x".repeat(ROUTE_LEN_MAX + 1);
    for (number, name) in [(0, "drive"), (3, "drive"), (u64::MAX, "drive"), (1, &long)] {
        let header = Header::new(Op::Route, MuxId::CONNECTION, number);
        let message = Message { header, payload: name.as_bytes() };
        let result = pair.ends[0].mux.handle_message(at(0), &message);
        assert!(matches!(result, Err(ProtocolError::Route)), "{number}");
    }
}

#[test]
fn pings_overtake_everything() {
    let mut pair = Pair::new();
    pair.start(0, b"small").expect("started");
    pair.start(0, &bytes(1 << 20)).expect("started");
    pair.pass(0);
    let seen = pair.step(0);
    assert_eq!(seen[0].0, Op::Ping, "the first ping measures the round trip");
    pair.start(1, b"small").expect("started");
    assert_eq!(pair.step(1).iter().map(|seen| seen.0).collect::<Vec<_>>(), [Op::Ping, Op::Pong, Op::Call]);
    assert_eq!(pair.ends[0].mux.round_trip(), Some(Duration::ZERO));
}

#[test]
fn a_small_call_does_not_wait_for_a_large_one() {
    let mut pair = Pair::with(|limits| limits.chunk_max = 16 * 1_024);
    let large = pair.start(0, &bytes(16 << 20)).expect("started");
    pair.step(0);
    let small = pair.start(0, b"small").expect("started");
    let seen = pair.step(0);
    assert_eq!((seen[0].0, seen[0].1), (Op::Call, small), "it leaves in the next batch, and first");
    assert!(seen[1..].iter().all(|(op, id, _)| (*op, *id) == (Op::Chunk, large)));
    assert!(seen[1..].iter().map(|(.., len)| len).sum::<usize>() <= 5 * 16 * 1_024, "a batch holds little of it");
    assert_eq!(pair.serve(1), 1);
    pair.step(1);
    assert_eq!(pair.result(0, small), Some(Ok(b"small".to_vec())));
}

#[test]
fn two_large_calls_share_and_the_background_yields() {
    let mut pair = Pair::new();
    let payload = bytes(1 << 20);
    let background = NewCall { class: Class::Background, ..foreground(Instant::NEVER) };
    let later = pair.ends[0].mux.start_large_call(at(0), &background, payload.clone().into()).expect("started");
    let ids = [0; 2].map(|_| pair.start(0, &payload).expect("started"));
    let seen = pair.step(0);
    let count = |id| seen.iter().filter(|(_, of, _)| *of == id).count();
    assert!(count(ids[0]).abs_diff(count(ids[1])) <= 1, "in turn");
    assert!(count(later) * 3 <= count(ids[0]) + count(ids[1]) + 3, "once in four turns");
    assert!(count(later) > 0, "but not never");
    pair.settle();
    assert_eq!(pair.serve(1), 3);
    pair.settle();
    for id in [later, ids[0], ids[1]] {
        assert_eq!(pair.result(0, id), Some(Ok(payload.clone())));
    }
    pair.assert_empty();
    pair.assert_fits();
}

#[test]
fn wrong_chunks_hurt_only_their_call() {
    let header = |op, id, sequence| Header::new(op, id, sequence);
    let more = |header: Header| Header { flags: header.flags.with(Flags::MORE), ..header };
    let id = MuxId { slot: 5, generation: 1 };
    let begin = more(header(Op::Call, id, 100));
    // Each line is a request that does not become what it announced.
    let cases: [&[(Header, usize)]; 5] = [
        &[(begin, 60), (header(Op::Chunk, id, 0), 30)],
        &[(begin, 60), (header(Op::Chunk, id, 0), 50)],
        &[(begin, 60), (more(header(Op::Chunk, id, 0)), 40)],
        &[(begin, 100)],
        &[(begin, 101)],
    ];
    for messages in cases {
        let mut pair = Pair::new();
        let other = pair.start(0, b"innocent").expect("started");
        for (header, len) in messages {
            let message = Message { header: *header, payload: &bytes(*len) };
            assert!(pair.ends[1].mux.handle_message(at(0), &message).expect("goes on").is_none());
        }
        assert_eq!(pair.ends[1].mux.counters().misfit, 1);
        assert_eq!(pair.ends[1].mux.in_flight().1, 0, "what came of it is dropped");
        pair.settle();
        assert_eq!(pair.ends[0].mux.counters().late, 1, "it was answered");
        assert_eq!(pair.serve(1), 1);
        pair.settle();
        assert_eq!(pair.result(0, other), Some(Ok(b"innocent".to_vec())));
    }
}

/// The bytes of the edge with this name; in the simulator are its timers and tasks.
#[test]
fn idle_peer_memory() {
    let mut pair = Pair::new();
    for _ in 0..500 {
        let id = pair.start(0, &bytes(300)).expect("started");
        let large = pair.start(0, &bytes(3_000)).expect("started");
        pair.ends[0].mux.return_scratch(Vec::with_capacity(100));
        pair.settle();
        assert_eq!(pair.serve(1), 2);
        pair.settle();
        assert!(pair.result(0, id).is_some() && pair.result(0, large).is_some());
    }
    let held = |pair: &Pair| pair.ends.each_ref().map(|end| end.mux.held_bytes());
    assert!(held(&pair).iter().all(|held| *held > 1_000));
    pair.pass(10_000);
    pair.settle();
    pair.pass(1);
    assert_eq!(held(&pair), [0, 0]);
}

#[test]
fn a_silent_peer_is_lost_and_calls_say_so() {
    let mut pair = Pair::new();
    let id = pair.start(0, b"?").expect("started");
    pair.settle();
    let mux = &mut pair.ends[0].mux;
    let mut turns = 0;
    while mux.lost().is_none() {
        let now = mux.next_timeout();
        assert!(now <= at(3_000));
        mux.handle_timeout(now, Some(0), 1);
        let (mut batch, mut spare) = (Batch::default(), Vec::new());
        while mux.take_batch(&mut batch) {
            let len = batch.slices().map(<[u8]>::len).sum();
            batch.advance(len, &mut spare);
            mux.handle_written(len as u64, true, &mut spare);
        }
        turns += 1;
        assert!(turns < 100, "time moves on with each look");
    }
    assert_eq!(pair.result(0, id), Some(Err(CallError::Unknown(Reason::Disconnected(Lost::Silent)))));
}

/// What was awaited from a peer at rest was asked about only at a second look, which the first one had left due already.
#[test]
fn a_peer_at_rest_that_opened_a_stream_is_asked_at_the_first_look() {
    let mut pair = Pair::new();
    let many = 60;
    pair.settle();
    for end in &mut pair.ends {
        end.mux.handle_timeout(at(1), Some(0), many);
    }
    pair.settle();
    pair.try_open(0, 1 << 20, Instant::NEVER).expect("opened");
    pair.settle();
    let mux = &mut pair.ends[1].mux;
    mux.handle_timeout(at(3_000), Some(0), many);
    assert!(mux.has_output(), "a ping");
    assert!(mux.next_timeout() > at(3_000));
}

#[test]
fn a_peer_that_asks_and_never_reads_is_let_go() {
    let (calls_in_flight_max, streams_open_max) = (4, 4);
    let outbound_bytes_max = 100 * CHUNK;
    let small = Limits::for_lane(Lane::Small);
    let limits = Limits { calls_in_flight_max, streams_open_max, outbound_bytes_max, ..small };
    let mut mux = Mux::new(Side::Acceptor, limits, limits, &Timing::default(), None, at(0));
    let mut asked = 0_u32;
    let end = loop {
        let header = Header::new(Op::Call, MuxId { slot: asked, generation: 1 }, 0);
        match mux.handle_message(at(1), &Message { header, payload: b"again" }) {
            Ok(_) => asked += 1,
            Err(error) => break error,
        }
        assert!(asked < 1_000_000, "it is never let go");
    };
    assert_eq!(end, ProtocolError::NotReading);
    let most = 2 * (limits.outbound_bytes_max + 8 * limits.chunk_max) + (1 << 20) + 2 * crate::config::FRAME_TARGET;
    assert!(mux.in_flight().3 <= most, "{} bytes wait", mux.in_flight().3);
}

#[test]
fn datagrams_leave_first_and_are_dropped_where_too_many_wait() {
    let mut pair = Pair::new();
    let _ = pair.start(0, &bytes(CHUNK)).expect("started");
    assert!(pair.ends[0].mux.send_datagram(10, &bytes(100)));
    assert!(!pair.ends[0].mux.send_datagram(10, &bytes(CHUNK + 1)), "longer than a chunk");
    let seen = pair.step(0);
    assert_eq!(seen[0], (Op::Datagram, MuxId::CONNECTION, 100), "ahead of the call that came first");
    assert_eq!(pair.ends[1].mux.counters().datagrams_in, 1);
    assert_eq!(pair.step(1), [], "nothing is answered");

    let sent = (0..200).filter(|_| pair.ends[0].mux.send_datagram(10, &bytes(CHUNK))).count();
    assert!((10..30).contains(&sent), "{sent} of 200 fit into what may wait");
    assert_eq!(pair.ends[0].mux.counters().datagrams_dropped, 201 - sent as u64);
    pair.settle();
    assert_eq!(pair.ends[1].mux.counters().datagrams_in, 1 + sent as u64);
    pair.ends[0].mux.close(Lost::Broken);
    assert!(!pair.ends[0].mux.send_datagram(10, b"x"));
}
