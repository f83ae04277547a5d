//! Windows of streams to the byte, and which of their ends are told to the other side.

use super::escaped::Woken;
use super::streams::cost;
use super::*;

/// What leaves `end` now: operation and flags of each message.
fn told(pair: &mut Pair, end: usize) -> Vec<(Op, Flags)> {
    let mut seen = Vec::new();
    while pair.ends[end].mux.has_output() {
        pair.step_over(end, |header, _| seen.push((header.op, header.flags)));
    }
    seen
}

/// How much credit leaves `end` now.
fn credit(pair: &mut Pair, end: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while pair.ends[end].mux.has_output() {
        pair.step_over(end, |header, _| seen.extend((header.op == Op::Credit).then_some(header.sequence)));
    }
    seen
}

/// A round trip of so many milliseconds is measured at both ends.
fn measure(pair: &mut Pair, ms: u64) {
    pair.pass(0);
    pair.pass(ms);
    pair.settle();
}

#[test]
fn a_message_begins_only_while_the_window_has_room() {
    for (window, sent) in [(2 * cost(100) - 1, 2), (2 * cost(100), 2), (2 * cost(100) + 1, 3)] {
        let mut pair = Pair::new();
        let (key, served) = pair.opened(u32::try_from(window).expect("small"));
        let count = (0..9).take_while(|_| pair.send(1, served, &bytes(100)).is_ready()).count();
        assert_eq!(count, sent, "{window}");
        pair.settle();
        assert_eq!(pair.receive(0, key).0.len(), sent);
        pair.assert_fits();
    }
}

#[test]
fn room_goes_back_when_half_of_the_window_was_read() {
    for (window, credits) in [(2 * cost(100), vec![132, 132]), (2 * cost(100) + 1, vec![264])] {
        let mut pair = Pair::new();
        let window = u32::try_from(window).expect("small");
        let (key, served) = pair.opened(window);
        let mut seen = Vec::new();
        for _ in 0..2 {
            assert!(pair.send(1, served, &bytes(100)).is_ready());
            pair.step(1);
            pair.receive(0, key);
            seen.extend(credit(&mut pair, 0));
        }
        assert_eq!(seen, credits, "{window}");
        // A direction that has ended needs no room.
        assert!(pair.send(1, served, &bytes(1_000)).is_ready());
        assert!(pair.finish(1, served).is_ready());
        pair.step(1);
        pair.receive(0, key);
        assert_eq!(credit(&mut pair, 0), []);
    }
}

#[test]
fn a_window_grows_within_two_round_trips_up_to_its_limit() {
    // The windows asked for, how late the reader reads, and the credit that leaves then.
    let cases = [
        ((1_000, 3_000), 199, 2_000 + 32),
        ((1_000, 3_000), 200, 1_000 + 32),
        ((1_000, 1_500), 199, 1_500 + 32),
        ((1_000, 1_000), 199, 1_000 + 32),
        ((1_000, 10), 199, 1_000 + 32),
        ((1_000, 0), 199, 2_000 + 32),
        ((0, 0), 199, 0),
    ];
    for (window, after, expected) in cases {
        let mut pair = Pair::new();
        measure(&mut pair, 100);
        let call = NewCall { handler: 9, route: "", deadline: Instant::NEVER, class: Class::Foreground };
        let now = pair.now;
        let key = pair.ends[0].mux.open_stream(now, &call, b"initial", window).expect("opened");
        pair.settle();
        let (served, _) = pair.accept(1);
        assert!(pair.send(1, served, &bytes(1_000)).is_ready());
        pair.settle();
        pair.pass(after);
        pair.receive(0, key);
        assert_eq!(credit(&mut pair, 0).into_iter().sum::<u64>(), expected, "{window:?} after {after} ms");
    }
}

#[test]
fn parts_of_a_message_come_to_no_more_than_the_longest() {
    for (last, fits) in [(CHUNK, true), (CHUNK + 1, false)] {
        let mut pair = Pair::with(|limits| limits.payload_max = 4 * CHUNK);
        let (key, served) = pair.opened(1 << 20);
        let id = pair.ends[1].mux.streams.get(served).expect("open").id;
        let now = pair.now;
        for (at, len) in [CHUNK, CHUNK, CHUNK, last].into_iter().enumerate() {
            let op = if at == 0 { Op::Data } else { Op::Chunk };
            let flags = if at < 3 { Flags::RESPONDER.with(Flags::MORE) } else { Flags::RESPONDER };
            let header = Header { flags, ..Header::new(op, id, u64::from(at == 0)) };
            let message = Message { header, payload: &bytes(len) };
            assert!(pair.ends[0].mux.handle_message(now, &message).expect("goes on").is_none());
        }
        let malformed = Some(Err(StreamError::Cut(Reason::Malformed)));
        let received = pair.receive(0, key);
        assert_eq!((received.0.len(), received.1), (usize::from(fits), if fits { None } else { malformed }));
        assert_eq!(pair.ends[0].mux.counters().misfit, u64::from(!fits));
        // What comes for a stream that has failed, or for none, is late.
        let late = pair.ends[0].mux.counters().late;
        for (slot, sequence) in [(id.slot, 5), (77, 1)] {
            let id = MuxId { slot, ..id };
            for op in [Op::Data, Op::Chunk, Op::Credit, Op::End, Op::Reset] {
                if fits || (slot != 77 && op != Op::Data) || (slot == 77 && op == Op::Chunk) {
                    continue;
                }
                let header = Header::new(op, id, sequence).from_responder(true);
                let before = pair.ends[0].mux.counters().late;
                let message = Message { header, payload: &[] };
                assert!(pair.ends[0].mux.handle_message(now, &message).expect("goes on").is_none());
                assert_eq!(pair.ends[0].mux.counters().late, before + 1, "{op:?} for {slot}");
            }
        }
        assert!(fits || pair.ends[0].mux.counters().late > late);
    }
}

#[test]
fn a_deadline_cuts_what_is_open_at_all_and_nobody_else() {
    let mut pair = Pair::new();
    let mut open = |deadline| {
        let key = pair.try_open(0, 0, deadline).expect("opened");
        pair.settle();
        (key, pair.accept(1).0)
    };
    let (short, long, half) = (open(at(50)), open(at(1_000)), open(at(50)));
    let ended = open(at(50));
    assert!(pair.finish(0, half.0).is_ready());
    assert!(pair.finish(0, ended.0).is_ready() && pair.finish(1, ended.1).is_ready());
    pair.settle();
    assert_eq!(pair.ends[0].mux.streams.next_deadline(), at(50));
    pair.pass(50);
    let cut = Some(Err(StreamError::Cut(Reason::Deadline)));
    assert_eq!([short, half].map(|(key, _)| pair.receive(0, key).1), [cut.clone(), cut]);
    assert_eq!(pair.receive(0, long.0).1, None, "it has time");
    assert_eq!(pair.receive(0, ended.0).1, Some(Ok(())), "it had ended before");
    for end in &pair.ends {
        assert_eq!(end.mux.streams.next_deadline(), at(1_000));
    }
    pair.ends[0].mux.release_stream(long.0);
    pair.settle();
    pair.pass(2_000);
    assert!(pair.ends.iter().all(|end| end.mux.streams.next_deadline() == Instant::NEVER));
}

#[test]
fn an_initial_payload_is_a_chunk_at_most() {
    let mut pair = Pair::new();
    let call = NewCall { handler: 9, route: "", deadline: Instant::NEVER, class: Class::Foreground };
    assert!(pair.ends[0].mux.open_stream(at(0), &call, &bytes(CHUNK), (0, 0)).is_ok());
    let long = pair.ends[0].mux.open_stream(at(0), &call, &bytes(CHUNK + 1), (0, 0));
    assert_eq!(long, Err(StreamError::NotExecuted(Reason::TooLong)));
}

#[test]
fn an_end_waits_for_the_large_message_before_it() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(1 << 20);
    let (woken, waker) = (Arc::new(Woken::default()), Waker::noop());
    assert!(pair.send(1, served, &bytes(200 * CHUNK)).is_ready());
    assert!(pair.finish(1, served).is_pending());
    let woken_by = Waker::from(woken.clone());
    assert!(pair.ends[1].mux.poll_flushed(served, &Context::from_waker(&woken_by)).is_pending());
    pair.step(1);
    assert!(woken.count() == 0 && pair.ends[1].mux.poll_flushed(served, &Context::from_waker(waker)).is_pending());
    assert!(pair.ends[1].mux.poll_flushed(served, &Context::from_waker(&woken_by)).is_pending());
    pair.settle();
    assert_eq!(woken.count(), 1);
    assert!(pair.ends[1].mux.poll_flushed(served, &Context::from_waker(waker)).is_ready());
    assert!(pair.finish(1, served).is_ready());
    pair.settle();
    assert_eq!(pair.receive(0, key), (vec![bytes(200 * CHUNK)], Some(Ok(()))));
    // One that is cut has nothing left to wait for.
    assert!(pair.send(0, key, &bytes(200 * CHUNK)).is_ready());
    pair.ends[0].mux.close(Lost::Broken);
    assert!(pair.ends[0].mux.poll_flushed(key, &Context::from_waker(waker)).is_ready());
}

#[test]
fn each_end_is_told_once_and_as_what_it_is() {
    let (end, cancel, reset) = (Op::End, Op::Cancel, Op::Reset);
    let both = Flags::RESPONDER.with(Flags::MORE);
    // Who of the two does what in turn, and what is told then.
    type Act = fn(&mut Pair, StreamKey, StreamKey);
    type Step = (usize, Act, Option<(Op, Flags)>);
    let initiator_finishes: Act = |pair, key, _| assert!(pair.finish(0, key).is_ready());
    let handler_finishes: Act = |pair, _, served| assert!(pair.finish(1, served).is_ready());
    let release: Act = |pair, key, _| pair.ends[0].mux.release_stream(key);
    let handler_returns: Act = |pair, _, served| pair.ends[1].mux.finish_served(served, Ok(()));
    let handler_fails: Act = |pair, _, served| pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    let cases: [(&str, &[Step]); 7] = [
        (
            "all in order",
            &[
                (0, initiator_finishes, Some((end, Flags(0)))),
                (1, handler_finishes, Some((end, both))),
                (1, handler_returns, None),
                (0, release, None),
            ],
        ),
        ("the handler returns", &[(1, handler_returns, Some((end, Flags::RESPONDER))), (0, release, None)]),
        (
            "the handler ends its direction, then returns",
            &[
                (1, handler_finishes, Some((end, both))),
                (1, handler_returns, Some((end, Flags::RESPONDER))),
                (0, release, None),
            ],
        ),
        (
            "the handler reads on, and nobody writes",
            &[
                (1, handler_finishes, Some((end, both))),
                (0, release, Some((cancel, Flags(0)))),
                (1, handler_returns, None),
            ],
        ),
        ("the initiator leaves", &[(0, release, Some((cancel, Flags(0)))), (1, handler_fails, None)]),
        (
            "the handler ends its direction, then fails",
            &[
                (1, handler_finishes, Some((end, both))),
                (1, handler_fails, Some((reset, Flags::RESPONDER))),
                (0, release, None),
            ],
        ),
        (
            "the initiator has said all, and the handler fails",
            &[(0, initiator_finishes, Some((end, Flags(0)))), (1, handler_fails, Some((reset, Flags::RESPONDER)))],
        ),
    ];
    for (what, steps) in cases {
        let mut pair = Pair::new();
        let (key, served) = pair.opened(0);
        for (at, (who, act, expected)) in steps.iter().enumerate() {
            act(&mut pair, key, served);
            assert_eq!(told(&mut pair, *who), Vec::from_iter(*expected), "{what}, step {at}");
            assert!(!pair.ends[1 - who].mux.has_output(), "{what}, step {at}");
        }
        // On a connection that has ended nothing is told.
        let mut pair = Pair::new();
        let (key, served) = pair.opened(0);
        pair.ends.iter_mut().for_each(|end| end.mux.close(Lost::Closed));
        for (_, act, _) in steps.iter().filter(|step| step.1 as usize != handler_finishes as usize) {
            if *act as usize != initiator_finishes as usize {
                act(&mut pair, key, served);
            }
        }
        assert!(pair.ends.iter().all(|end| !end.mux.has_output()), "{what}");
    }
}

#[test]
fn a_handler_that_has_ended_its_direction_may_still_refuse() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(0);
    assert!(pair.finish(1, served).is_ready());
    pair.ends[1].mux.finish_served(served, Err(Refusal::new(5, "no")));
    pair.settle();
    assert_eq!(pair.send(0, key, b"?"), Poll::Ready(Err(StreamError::Refused(Refusal::new(5, "no")))));
}
