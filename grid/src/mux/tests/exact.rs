//! Limits to the byte, counters to the one, and who is woken when.

use super::calls::Calls;
use super::escaped::Woken;
use super::*;
use crate::frame::FrameError;
use crate::message::MessageError;

fn waker() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (woken.clone(), Waker::from(woken))
}

fn new_call() -> NewCall<'static> {
    NewCall { handler: 7, route: "", deadline: Instant::NEVER, class: Class::Foreground }
}

impl Pair {
    /// A message comes to `end` that nobody sent.
    fn hear(&mut self, end: usize, header: Header, payload: &[u8]) -> Option<Work> {
        let now = self.now;
        self.ends[end].mux.handle_message(now, &Message { header, payload }).expect("the connection goes on")
    }

    fn counters(&self, end: usize) -> Counters {
        self.ends[end].mux.counters()
    }
}

fn more(header: Header) -> Header {
    Header { flags: header.flags.with(Flags::MORE), ..header }
}

#[test]
fn the_buffer_of_short_requests_comes_back() {
    let mut pair = Pair::new();
    for (len, comes_back) in [(0, true), (10, true), (CHUNK, true), (CHUNK + 1, false), (5 * CHUNK, false)] {
        let mux = &mut pair.ends[0].mux;
        mux.return_scratch(Vec::with_capacity(8 * CHUNK));
        let mut request = mux.take_scratch();
        assert!(request.is_empty() && request.capacity() >= 8 * CHUNK);
        request.extend(bytes(len));
        let id = mux.start_scratch_call(at(0), &new_call(), request).expect("started");
        assert_eq!(mux.take_scratch().capacity() >= 8 * CHUNK, comes_back, "{len} bytes");
        pair.settle();
        assert_eq!(pair.serve(1), 1);
        pair.settle();
        assert_eq!(pair.result(0, id), Some(Ok(bytes(len))), "{len} bytes");
    }
    pair.ends[0].mux.return_scratch(vec![1; 10]);
    assert!(pair.ends[0].mux.take_scratch().is_empty(), "without what was in it");
}

#[test]
fn an_answer_in_place_says_how_it_ended_and_leaves_its_buffer() {
    let refused = (Outcome::Refused, encode_refusal(&Refusal::new(5, "no")));
    let answers = [10, CHUNK, CHUNK + 1].map(|len| (Outcome::Ok, bytes(len))).into_iter().chain([refused]);
    for (outcome, answer) in answers {
        let mut pair = Pair::new();
        let id = pair.start(0, b"?").expect("started");
        let mut buffer = Vec::with_capacity(8 * CHUNK);
        buffer.extend_from_slice(&answer);
        assert!(pair.ends[1].mux.reply_in_place(id, outcome, &mut buffer), "there is room for more");
        assert_eq!((buffer.len(), buffer.capacity() >= 8 * CHUNK), (0, answer.len() <= CHUNK));
        let Counters { calls_in, messages_in, abandoned, .. } = pair.counters(1);
        assert_eq!((calls_in, messages_in, abandoned), (1, 1, 0));
        pair.step(1);
        let refusal = Err(CallError::Refused(Refusal::new(5, "no")));
        assert_eq!(pair.result(0, id), Some(if outcome == Outcome::Ok { Ok(answer) } else { refusal }));
    }
    let mut pair = Pair::with(|limits| limits.outbound_bytes_max = CHUNK);
    let id = MuxId { slot: 0, generation: 1 };
    assert!(!pair.ends[1].mux.reply_in_place(id, Outcome::Ok, &mut bytes(CHUNK)), "too much waits now");
}

#[test]
fn calls_that_run_in_place_are_counted() {
    let mut pair = Pair::new();
    let mux = &mut pair.ends[1].mux;
    let id = MuxId { slot: 3, generation: 1 };
    assert!(mux.begin_waiting(id, 10, at(50), Cancelled::default()));
    assert!(!mux.begin_waiting(id, 10, at(50), Cancelled::default()), "the id is in use");
    assert!(!mux.begin_waiting(id, 10, at(50), Cancelled::default()));
    mux.note_cancelled_in_place();
    let Counters { calls_in, messages_in, misfit, abandoned, .. } = mux.counters();
    assert_eq!((calls_in, messages_in, misfit, abandoned), (4, 4, 2, 1));
    assert_eq!(mux.next_timeout(), at(0), "the first ping");
    mux.handle_timeout(at(60), None, 1);
    assert_eq!((mux.counters().abandoned, mux.in_flight().1), (2, 0), "its deadline has passed");
    mux.handle_unknown();
    assert_eq!((mux.counters().messages_in, mux.counters().unknown_ops), (5, 1));
}

#[test]
fn what_may_begin_without_the_mux_is_what_is_within_the_limits() {
    let limits = |limits: &mut Limits| {
        (limits.calls_in_flight_max, limits.inbound_bytes_max, limits.outbound_bytes_max) = (5, 10 * CHUNK, CHUNK);
    };
    let open = Admission { is_open: true, calls: 5, bytes: 10 * CHUNK };
    let mut pair = Pair::with(limits);
    assert_eq!(pair.ends[1].mux.admission(), open);
    pair.start(0, &bytes(CHUNK)).expect("started");
    pair.settle();
    assert_eq!(pair.ends[1].mux.admission(), Admission { calls: 4, bytes: 9 * CHUNK, ..open });
    assert_eq!(pair.serve(1), 1);
    let closed = Admission { is_open: false, ..open };
    assert_eq!(pair.ends[1].mux.admission(), closed, "the answer waits");
    pair.settle();
    assert_eq!(pair.ends[1].mux.admission(), open);
    pair.ends[1].mux.drain();
    assert_eq!(pair.ends[1].mux.admission(), closed);
    pair.ends[0].mux.close(Lost::Broken);
    assert_eq!(pair.ends[0].mux.admission(), closed);
}

#[test]
fn payloads_may_be_as_long_as_the_limit_and_no_longer() {
    let most = 4 * CHUNK;
    for (len, fits) in [(most, true), (most + 1, false)] {
        let mut pair = Pair::with(|limits| limits.payload_max = most);
        assert_eq!(pair.start(0, &bytes(len)).is_ok(), fits, "{len}");
        let id = pair.start(0, b"much").expect("started");
        pair.settle();
        pair.ends[1].work.truncate(usize::from(fits) + 1);
        let (served, ..) =
            core::iter::from_fn(|| Some(pair.next_call(1))).find(|call| call.2 == b"much").expect("it came");
        pair.ends[1].mux.reply(served, Outcome::Ok, bytes(len));
        pair.settle();
        let too_long = Err(CallError::Unknown(Reason::TooLong));
        assert_eq!(pair.result(0, id), Some(if fits { Ok(bytes(len)) } else { too_long.clone() }), "{len}");
        // What a peer announces is looked at as well.
        let id = pair.start(0, b"?").expect("started");
        let reply = more(Header::new(Op::Reply, id, len as u64).from_responder(true));
        pair.hear(0, reply, &bytes(10));
        assert_eq!(pair.result(0, id), (!fits).then_some(too_long), "{len}");
        let call = more(Header::new(Op::Call, MuxId { slot: 9, generation: 9 }, len as u64));
        let before = pair.ends[1].mux.in_flight().1;
        assert!(pair.hear(1, call, &bytes(10)).is_none());
        assert_eq!(pair.ends[1].mux.in_flight().1 - before, usize::from(fits), "{len}");
        pair.settle();
        pair.ends[1].work.clear();
        let (key, served) = pair.opened(1 << 20);
        let sent = pair.send(0, key, &bytes(len));
        assert_eq!(sent, Poll::Ready(if fits { Ok(()) } else { Err(StreamError::Cut(Reason::TooLong)) }), "{len}");
        pair.settle();
        assert_eq!(pair.receive(1, served).0.len(), usize::from(fits), "{len}");
    }
}

#[test]
fn answers_that_fit_into_a_message_leave_in_order() {
    let mut pair = Pair::new();
    let ids = [0; 3].map(|_| pair.start(0, b"?").expect("started"));
    pair.settle();
    for len in [CHUNK, 1, CHUNK + 1] {
        let (served, ..) = pair.next_call(1);
        pair.ends[1].mux.reply(served, Outcome::Ok, bytes(len));
    }
    let lens: Vec<_> = pair.step(1).into_iter().map(|(_, id, len)| (id, len)).collect();
    assert_eq!(lens, [(ids[0], CHUNK), (ids[1], 1), (ids[2], CHUNK), (ids[2], 1)]);
}

#[test]
fn wrong_parts_of_an_answer_hurt_only_their_call() {
    let reply = |id, total| more(Header::new(Op::Reply, id, total).from_responder(true));
    let chunk = |id| Header::new(Op::Chunk, id, 0).from_responder(true);
    // How long the parts are of an answer of 100 bytes, whether each says that more follows, and what it comes to.
    let cases: [(&[(usize, bool)], bool); 6] = [
        (&[(60, true), (40, false)], true),
        (&[(100, true)], false),
        (&[(101, true)], false),
        (&[(60, true), (30, false)], false),
        (&[(60, true), (40, true)], false),
        (&[(60, true), (50, false)], false),
    ];
    for (parts, fits) in cases {
        let mut pair = Pair::new();
        let [id, other] = [0; 2].map(|_| pair.start(0, b"?").expect("started"));
        for (at, (len, has_more)) in parts.iter().enumerate() {
            let header = if at == 0 { reply(id, 100) } else { chunk(id) };
            pair.hear(0, if *has_more { more(header) } else { header }, &bytes(*len));
        }
        assert_eq!(pair.counters(0).misfit, u64::from(!fits), "{parts:?}");
        // More of it is late, and nothing worse.
        pair.hear(0, chunk(id), &bytes(1));
        assert_eq!((pair.counters(0).late, pair.counters(0).misfit), (1, u64::from(!fits)), "{parts:?}");
        let result = pair.result(0, id).expect("it has ended");
        if fits {
            assert_eq!(result.map(|answer| answer.len()), Ok(100));
        } else {
            assert_eq!(result, Err(CallError::Unknown(Reason::Malformed)), "{parts:?}");
        }
        pair.hear(0, chunk(id), &bytes(1));
        assert_eq!(pair.counters(0).late, 2, "{parts:?}");
        // A part without a beginning.
        pair.hear(0, chunk(other), &bytes(1));
        assert_eq!(pair.counters(0).misfit, 1 + u64::from(!fits), "{parts:?}");
    }
}

#[test]
fn no_use_of_a_slot_is_taken_for_another_or_for_a_stream() {
    let mut pair = Pair::new();
    let mut seen = Vec::new();
    for _ in 0..20 {
        let id = pair.start(0, b"?").expect("started");
        assert_eq!((id.slot, id.generation & MuxId::STREAM), (0, 0));
        assert!(!seen.contains(&id), "{id:?} after {seen:?}");
        seen.push(id);
        pair.ends[0].mux.cancel_call(id);
    }
    assert_eq!(pair.counters(0).calls_out, 20);
}

#[test]
fn only_short_answers_lie_in_the_room_of_a_slot() {
    for (len, is_kept) in [(2_048, true), (2_049, false), (100_000, false)] {
        let mut calls = Calls::new(1);
        let id = calls.begin(Instant::NEVER).expect("the first");
        let before = calls.held_bytes();
        assert!(calls.answer(id, &bytes(len)) && !calls.answer(id, b"again"));
        assert_eq!(calls.held_bytes() - before >= len, is_kept, "{len}");
        assert_eq!(calls.poll(id, &context()), Poll::Ready(Ok(bytes(len))));
    }
}

#[test]
fn deadlines_travel_and_whatever_is_late_is_ended() {
    let mut pair = Pair::new();
    let mut started = Vec::new();
    for deadline in [at(50), Instant::NEVER, at(1_000)] {
        started.push(pair.start_with(0, b"?", "", deadline).expect("started"));
        pair.settle();
        let Some(Work::Call { deadline: told, .. }) = pair.ends[1].work.pop_front() else { panic!("a call") };
        assert_eq!(told, deadline);
    }
    let key = pair.try_open(0, 0, at(50)).expect("opened");
    pair.settle();
    let Some(Work::Stream { deadline, .. }) = pair.ends[1].work.pop_front() else { panic!("a stream") };
    assert_eq!(deadline, at(50));
    // A look that comes later than it should.
    pair.pass(70);
    assert_eq!(pair.result(0, started[0]), Some(Err(CallError::Unknown(Reason::Deadline))));
    assert_eq!(pair.receive(0, key).1, Some(Err(StreamError::Cut(Reason::Deadline))));
    assert_eq!((pair.result(0, started[1]), pair.result(0, started[2])), (None, None));
    assert_eq!((pair.ends[1].mux.in_flight().1, pair.counters(1).abandoned, pair.counters(1).calls_in), (2, 1, 3));
    pair.settle();
    assert!(pair.ends.iter().all(|end| end.mux.next_timeout() <= at(1_000)), "the next deadline is kept in mind");
    pair.pass(2_000);
    assert_eq!(pair.result(0, started[2]), Some(Err(CallError::Unknown(Reason::Deadline))));
    assert_eq!(remaining_ms(at(0), at(0) + Duration::from_nanos(1)), 1, "none is taken for no deadline");
}

#[test]
fn the_bytes_of_a_request_count_until_it_has_ended() {
    let mut pair = Pair::with(|limits| limits.inbound_bytes_max = 3 * CHUNK);
    for len in [CHUNK, 3 * CHUNK].repeat(5) {
        let id = pair.start(0, &bytes(len)).expect("started");
        pair.settle();
        assert_eq!(pair.serve(1), 1, "{len}");
        pair.settle();
        assert_eq!(pair.result(0, id), Some(Ok(bytes(len))));
    }
    let ids = [CHUNK, 2 * CHUNK, 1, 0].map(|len| {
        let id = pair.start(0, &bytes(len)).expect("started");
        pair.settle();
        id
    });
    let overloaded = Some(Err(CallError::NotExecuted(Reason::Overloaded)));
    assert_eq!(ids.map(|id| pair.result(0, id)), [None, None, overloaded, None], "full to the byte");
}

#[test]
fn draining_is_said_once_and_done_when_the_other_side_says_so() {
    let mut pair = Pair::new();
    for end in &mut pair.ends {
        assert!(!end.mux.go_on_draining() && !end.mux.is_let_go() && !end.mux.is_peer_draining());
        assert!(!end.mux.has_output(), "nobody drains");
    }
    pair.ends[1].mux.drain();
    pair.ends[1].mux.drain();
    assert_eq!(pair.step(1).len(), 1);
    assert!(!pair.ends[1].mux.go_on_draining(), "something may be on its way");
    assert!(!pair.ends[0].mux.go_on_draining() && pair.ends[0].mux.is_peer_draining());
    assert_eq!(pair.step(0).len(), 1);
    assert!(!pair.ends[0].mux.go_on_draining() && !pair.ends[0].mux.has_output(), "said once");
    assert!(pair.ends[1].mux.go_on_draining());
    let mut pair = Pair::new();
    pair.ends[0].mux.close(Lost::Broken);
    pair.ends[0].mux.drain();
    assert!(!pair.ends[0].mux.go_on_draining() && !pair.ends[0].mux.has_output());
}

#[test]
fn questions_about_secrets_come_to_the_owner() {
    let mut pair = Pair::new();
    pair.ends[0].mux.push_challenge(b"prove it");
    pair.ends[0].mux.push_proof(b"there");
    pair.settle();
    let work = core::mem::take(&mut pair.ends[1].work);
    assert!(matches!(&work[0], Work::Challenge(bytes) if bytes == b"prove it"));
    assert!(matches!(&work[1], Work::Proof(bytes) if bytes == b"there"));
}

#[test]
fn a_datagram_names_its_handler() {
    let mut pair = Pair::new();
    assert!(pair.ends[0].mux.send_datagram(0x1234, b"news"));
    let mut handler = 0;
    pair.step_over(0, |header, _| handler = header.handler);
    assert_eq!(handler, 0x1234);
}

#[test]
fn idle_is_who_has_nothing_to_do_in_any_direction() {
    let mut pair = Pair::new();
    assert!(pair.ends.iter().all(|end| end.mux.is_idle()));
    assert!(!pair.ends[0].mux.take_stirred());
    let id = pair.start(0, b"?").expect("started");
    pair.settle();
    assert!(!pair.ends[0].mux.is_idle(), "an answer is awaited");
    assert!(!pair.ends[1].mux.is_idle(), "a handler runs");
    assert!(pair.ends[1].mux.take_stirred() && !pair.ends[1].mux.take_stirred(), "what came may make it send more");
    pair.serve(1);
    assert!(!pair.ends[1].mux.is_idle(), "an answer waits");
    pair.settle();
    assert!(pair.result(0, id).is_some() && pair.ends.iter().all(|end| end.mux.is_idle()));
    let (key, served) = pair.opened(0);
    assert!(pair.ends.iter().all(|end| !end.mux.is_idle()), "a stream is open");
    pair.ends[0].mux.release_stream(key);
    pair.ends[1].mux.refuse_stream(served, Outcome::Failed);
    pair.settle();
    assert!(pair.ends.iter().all(|end| end.mux.is_idle()));
}

#[test]
fn the_task_is_woken_once_while_it_sleeps_and_not_while_it_is_awake() {
    let mut pair = Pair::new();
    let (woken, waker) = waker();
    pair.ends[0].mux.sleep(&waker);
    pair.start(0, b"?").expect("started");
    pair.start(0, b"?").expect("started");
    assert_eq!(woken.count(), 1);
    pair.ends[0].mux.sleep(&waker);
    pair.ends[0].mux.awake();
    pair.start(0, b"?").expect("started");
    assert_eq!(woken.count(), 1);
    pair.ends[0].mux.sleep(&waker);
    pair.ends[0].mux.ask_peer(at(10));
    assert_eq!(woken.count(), 2, "there is something to ask");
}

#[test]
fn a_sender_that_waits_for_the_window_is_woken_by_credit_alone() {
    let mut pair = Pair::new();
    let (key, served) = pair.opened(1);
    assert!(pair.send(1, served, b"one").is_ready());
    let (woken, waker) = waker();
    let mux = &mut pair.ends[1].mux;
    assert!(mux.poll_send(served, b"two", &Context::from_waker(&waker)).is_pending());
    pair.step(1);
    assert_eq!(woken.count(), 0, "what waited has left, the window is as full as before");
    pair.receive(0, key);
    pair.step(0);
    assert_eq!(woken.count(), 1);
}

#[test]
fn a_peer_is_as_silent_as_it_was_not_heard() {
    let mut pair = Pair::new();
    assert_eq!(pair.ends[0].mux.round_trip(), None, "nothing is measured yet");
    pair.pass(0);
    let mux = &mut pair.ends[0].mux;
    mux.handle_written(0, true, &mut Vec::new());
    assert_eq!(mux.silence(at(70)), Duration::from_millis(70));
    assert!(!mux.is_suspect(at(1_800)) && mux.is_suspect(at(1_801)));
    mux.handle_received(at(60));
    assert_eq!(mux.silence(at(70)), Duration::from_millis(10));
    assert!(!mux.is_suspect(at(1_801)));
}

#[test]
fn refusals_are_cut_between_characters() {
    for (text, len) in [("x".repeat(1_000), 1_000), ("x".repeat(1_001), 1_000), (format!("x{}", "ä".repeat(600)), 999)]
    {
        let told = decode_refusal(&encode_refusal(&Refusal::new(5, text.clone()))).expect("a refusal");
        assert_eq!((told.code, told.text.len()), (5, len));
        assert!(text.starts_with(&told.text));
    }
}

#[test]
fn protocol_errors_say_what_the_peer_did() {
    let cases = [
        (ProtocolError::from(FrameError::Masking), FrameError::Masking.to_string()),
        (ProtocolError::from(MessageError::Checksum), MessageError::Checksum.to_string()),
        (ProtocolError::NotReading, "the peer goes on asking and does not read the answers".to_owned()),
        (ProtocolError::Route, "the peer names a route beyond the limit".to_owned()),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}
