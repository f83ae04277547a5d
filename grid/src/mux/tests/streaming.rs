//! Streams: order, windows, ends.

use super::streams::cost;
use super::*;

type Received = (Vec<Vec<u8>>, Option<Result<(), StreamError>>);

const CUT: fn(Reason) -> StreamError = StreamError::Cut;

fn ended(received: Received) -> Vec<Vec<u8>> {
    assert_eq!(received.1, Some(Ok(())));
    received.0
}

#[test]
fn messages_keep_their_order_both_ways() {
    for cut in [13, 1_000, usize::MAX] {
        let mut pair = Pair::new();
        pair.cut = cut;
        let (key, served) = pair.opened(0);
        let lens = [0, 1, CHUNK, CHUNK + 1, 3, 20_000, 0, 7, 5 * CHUNK, 1];
        let (mut to, mut from) = (Vec::new(), Vec::new());
        for (index, len) in lens.into_iter().enumerate() {
            for (end, key) in [(0, key), (1, served)] {
                let message = bytes(len + index);
                while pair.send(end, key, &message).is_pending() {
                    pair.step(end);
                }
            }
            if index % 3 == 2 {
                to.extend(pair.receive(1, served).0);
                from.extend(pair.receive(0, key).0);
            }
        }
        while pair.finish(0, key).is_pending() || pair.finish(1, served).is_pending() {
            pair.settle();
        }
        pair.settle();
        to.extend(ended(pair.receive(1, served)));
        from.extend(ended(pair.receive(0, key)));
        let expected: Vec<_> = lens.into_iter().enumerate().map(|(index, len)| bytes(len + index)).collect();
        assert_eq!((&to, &from), (&expected, &expected), "cut {cut}");
        pair.ends[1].mux.finish_served(served, Ok(()));
        pair.ends[0].mux.release_stream(key);
        pair.settle();
        pair.assert_empty();
        pair.assert_fits();
    }
}

#[test]
fn a_window_of_one_byte_is_one_message_at_a_time() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(1);
    for round in 0..5 {
        assert_eq!(pair.send(1, served, &bytes(round)), Poll::Ready(Ok(())));
        assert!(pair.send(1, served, b"too early").is_pending());
        pair.settle();
        assert!(pair.send(1, served, b"not read yet").is_pending());
        assert_eq!(pair.receive(0, key), (vec![bytes(round)], None));
        pair.settle();
    }
    pair.assert_fits();
}

#[test]
fn a_slow_reader_holds_the_sender() {
    let mut pair = Pair::with(|limits| (limits.stream_window, limits.stream_window_max) = (8_192, 8_192));
    let (key, served) = pair.opened(0);
    let mut sent = 0;
    loop {
        while pair.send(0, key, &bytes(1_000)).is_ready() {
            sent += 1;
        }
        if pair.ends[0].mux.in_flight().3 == 0 {
            break;
        }
        pair.settle();
    }
    assert_eq!(sent, 8_192_u64.div_ceil(cost(1_000)));
    assert_eq!(pair.receive(1, served).0.len() as u64, sent);
    pair.settle();
    assert!(pair.send(0, key, b"room again").is_ready());
    pair.assert_fits();
}

#[test]
fn windows_grow_while_credit_comes_round_quickly() {
    let mut pair = Pair::with(|limits| (limits.stream_window, limits.stream_window_max) = (4_096, 65_536));
    // A round trip of 100 ms is measured.
    pair.pass(0);
    pair.step(1);
    pair.pass(100);
    pair.settle();
    let (key, served) = pair.opened(0);
    let mut burst = 0;
    for _ in 0..20 {
        burst = 0;
        while pair.send(0, key, &bytes(1_000)).is_ready() {
            burst += 1;
        }
        pair.settle();
        pair.now = pair.now + Duration::from_millis(100);
        pair.receive(1, served);
        pair.settle();
    }
    assert!(burst * cost(1_000) >= 65_536, "{burst} messages at once");
    assert!((burst - 1) * cost(1_000) < 65_536, "and no more than the widest window");
    pair.assert_fits();
}

#[test]
fn an_end_that_does_not_fit_is_not_taken_for_one() {
    for tampered in 0..3 {
        let mut pair = Pair::new();
        let (key, served) = pair.opened(0);
        for message in [b"one", b"two"] {
            assert!(pair.send(1, served, message).is_ready());
        }
        assert!(pair.finish(1, served).is_ready());
        pair.step_over(1, |header, payload| match (tampered, header.op) {
            (0, Op::End) => header.sequence += 1,
            (1, Op::End) => payload[3] ^= 1,
            (2, Op::Data) if header.sequence == 2 => payload[0] ^= 1,
            _ => {}
        });
        let (messages, end) = pair.receive(0, key);
        assert_eq!((messages.len(), end), (2, Some(Err(StreamError::NotWhole))), "tampering {tampered}");
        pair.ends[1].mux.finish_served(served, Ok(()));
        pair.ends[0].mux.release_stream(key);
        pair.settle();
        pair.assert_empty();
    }
}

#[test]
fn messages_out_of_order_or_beyond_the_window_cut_the_stream_alone() {
    for (tampered, window) in [(0, 0), (1, 0), (2, 1)] {
        let mut pair = Pair::new();
        let (bystander, attended) = pair.opened(0);
        let (key, served) = pair.opened(window);
        if tampered == 2 {
            pair.ends[1].mux.streams.get(served).expect("open").sending.allow(1_000);
        }
        for message in [b"one", b"two"] {
            assert!(pair.send(1, served, message).is_ready());
        }
        pair.step_over(1, |header, _| match (tampered, header.op) {
            (0, Op::Data) if header.sequence == 2 => header.sequence = 3,
            (1, Op::Data) if header.sequence == 2 => header.sequence = 1,
            _ => {}
        });
        assert_eq!(pair.ends[0].mux.counters().misfit, 1);
        assert_eq!(pair.receive(0, key), (vec![b"one".to_vec()], Some(Err(CUT(Reason::Malformed)))));
        pair.settle();
        assert_eq!(pair.send(1, served, b"three"), Poll::Ready(Err(CUT(Reason::Malformed))));
        assert!(pair.send(1, attended, b"fine").is_ready());
        pair.settle();
        assert_eq!(pair.receive(0, bystander), (vec![b"fine".to_vec()], None));
    }
}

#[test]
fn letting_go_cancels_the_handler() {
    let mut pair = Pair::new();
    let key = pair.open(0, 0);
    pair.settle();
    let (served, cancelled) = pair.accept(1);
    assert!(pair.send(0, key, &bytes(100_000)).is_pending() || pair.ends[0].mux.has_output());
    pair.ends[0].mux.release_stream(key);
    pair.settle();
    assert!(cancelled.is_cancelled());
    assert_eq!(pair.send(1, served, b"?"), Poll::Ready(Err(CUT(Reason::Cancelled))));
    assert_eq!(pair.receive(1, served).1, Some(Err(CUT(Reason::Cancelled))));
    pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    pair.settle();
    pair.assert_empty();
    pair.assert_fits();
}

#[test]
fn a_handler_that_gives_up_says_why() {
    let refusal = Refusal::new(4, "enough");
    let cases = [
        (Ok(refusal.clone()), StreamError::Refused(refusal)),
        (Err(Outcome::Failed), CUT(Reason::HandlerFailed)),
        (Err(Outcome::UnknownHandler), StreamError::NotExecuted(Reason::UnknownHandler)),
    ];
    for (end, error) in cases {
        let mut pair = Pair::new();
        let (key, served) = pair.opened(0);
        assert!(pair.send(1, served, b"one").is_ready());
        match end {
            Ok(refusal) => pair.ends[1].mux.finish_served(served, Err(refusal)),
            Err(outcome) => pair.ends[1].mux.refuse_stream(served, outcome),
        }
        pair.settle();
        assert_eq!(pair.receive(0, key), (vec![b"one".to_vec()], Some(Err(error.clone()))));
        assert_eq!(pair.send(0, key, b"two"), Poll::Ready(Err(error)));
        pair.ends[0].mux.release_stream(key);
        pair.settle();
        pair.assert_empty();
        pair.assert_fits();
    }
}

#[test]
fn a_deadline_cuts_both_ends() {
    let mut pair = Pair::new();
    let key = pair.try_open(0, 0, at(50)).expect("opened");
    pair.settle();
    let (served, cancelled) = pair.accept(1);
    assert!(pair.send(1, served, b"one").is_ready());
    pair.settle();
    pair.pass(50);
    assert!(cancelled.is_cancelled());
    for (end, key, messages) in [(0, key, 1), (1, served, 0)] {
        let (received, ended) = pair.receive(end, key);
        assert_eq!((received.len(), ended), (messages, Some(Err(CUT(Reason::Deadline)))));
        assert_eq!(pair.send(end, key, b"two"), Poll::Ready(Err(CUT(Reason::Deadline))));
    }
    pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    pair.ends[0].mux.release_stream(key);
    pair.settle();
    pair.assert_empty();
    assert_eq!(pair.try_open(0, 0, at(50)), Err(StreamError::NotExecuted(Reason::Deadline)));
}

#[test]
fn a_lost_connection_is_never_an_end() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(0);
    for (end, key) in [(0, key), (1, served)] {
        assert!(pair.send(end, key, b"one").is_ready());
        assert!(pair.send(end, key, &bytes(1 << 20)).is_ready());
        pair.step(end);
    }
    let lost = CUT(Reason::Disconnected(Lost::Closed));
    for (end, key) in [(0, key), (1, served)] {
        pair.ends[end].mux.close(Lost::Closed);
        assert_eq!(pair.receive(end, key), (vec![b"one".to_vec()], Some(Err(lost.clone()))));
        assert_eq!(pair.finish(end, key), Poll::Ready(Err(lost.clone())));
    }
    pair.ends[0].mux.release_stream(key);
    pair.ends[1].mux.finish_served(served, Ok(()));
    assert!(pair.ends.iter().all(|end| end.mux.in_flight().2 == 0));
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut pair = Pair::with(|limits| limits.streams_open_max = 2);
    let keys = [0; 2].map(|_| pair.open(0, 0));
    assert_eq!(pair.try_open(0, 0, Instant::NEVER), Err(StreamError::NotExecuted(Reason::Overloaded)));
    let back = pair.open(1, 0);
    pair.settle();
    let served = [0; 2].map(|_| pair.accept(1).0);
    let answered = pair.accept(0).0;
    for (key, served) in keys.into_iter().zip(served) {
        pair.ends[0].mux.release_stream(key);
        pair.settle();
        pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    }
    let again = pair.open(0, 0);
    pair.settle();
    let served = pair.accept(1).0;
    assert!(pair.send(1, served, b"to the new one").is_ready());
    pair.settle();
    assert_eq!(pair.receive(0, again), (vec![b"to the new one".to_vec()], None));
    pair.ends[0].mux.finish_served(answered, Ok(()));
    pair.settle();
    assert_eq!(pair.receive(1, back), (Vec::new(), Some(Ok(()))));
    pair.assert_fits();
}

#[test]
fn an_idle_stream_is_small_and_its_memory_comes_back() {
    let mut pair = Pair::new();
    let keys: Vec<_> = (0..100).map(|_| pair.opened(0)).collect();
    pair.pass(10_000);
    pair.settle();
    for end in &pair.ends {
        assert!(end.mux.held_bytes() > 0);
        assert!(end.mux.held_bytes() / 100 <= 1_024, "{} bytes for 100 streams", end.mux.held_bytes());
    }
    for (key, served) in keys {
        pair.ends[0].mux.release_stream(key);
        pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    }
    pair.settle();
    pair.pass(10_000);
    pair.settle();
    pair.pass(1);
    assert_eq!(pair.ends.each_ref().map(|end| end.mux.held_bytes()), [0, 0]);
}

#[test]
fn a_peer_that_names_its_streams_wrongly_is_refused() {
    let mut pair = Pair::with(|limits| limits.streams_open_max = 4);
    // Twice as many slots as streams that may be open: some handlers may not have returned yet.
    let cases = [(7, true), (8, false), (9, false), (u32::MAX, false), (0, true), (0, false), (7, false)];
    for (slot, is_taken) in cases {
        let header = Header { handler: 9, ..Header::new(Op::Open, MuxId { slot, generation: 5 | MuxId::STREAM }, 100) };
        let message = Message { header, payload: b"initial" };
        let before = pair.ends[1].mux.counters().overloaded;
        let work = pair.ends[1].mux.handle_message(at(0), &message).expect("the connection goes on");
        assert_eq!(matches!(work, Some(Work::Stream { .. })), is_taken, "{slot}");
        assert_eq!(pair.ends[1].mux.counters().overloaded - before, u64::from(!is_taken), "{slot}");
    }
    assert_eq!(pair.ends[1].mux.in_flight().2, 2);
}
