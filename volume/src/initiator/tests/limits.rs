//! Every limit of an initiator, reached; and the limits of classes.

use super::*;
use crate::qos::{Rate, Rates};

#[test]
fn requests() {
    let mut initiator = initiator(Limits { requests_max: 2, ..Limits::default() });
    start(&mut initiator, 1, read(0, K));
    start(&mut initiator, 2, read(0, K));
    assert_eq!(initiator.handle_request(at(0), RequestId(3), read(0, K), None), Err(Error::TooMuchInFlight));
    let sent = subrequests(&mut initiator);
    initiator.handle_answer(at(0), sent[0].id, answered(AnswerKind::Zeroes));
    start(&mut initiator, 3, read(0, K));
}

#[test]
fn bytes_of_requests() {
    let mut initiator = initiator(Limits { request_bytes_max: 10 * K, ..Limits::default() });
    // Alone, a request of any length is taken.
    start(&mut initiator, 1, read(0, 20 * K));
    assert_eq!(initiator.handle_request(at(0), RequestId(2), read(0, 1), None), Err(Error::TooMuchInFlight));
    // What has no payload passes.
    start(&mut initiator, 3, Op::Zero { offset: 0, len: SIZE, space: Space::Release });
}

#[test]
fn bytes_of_completed_requests_are_free_again() {
    let mut initiator = initiator(Limits { request_bytes_max: 10 * K, ..Limits::default() });
    start(&mut initiator, 1, read(0, 8 * K));
    start(&mut initiator, 2, Op::Discard { offset: EXTENT, len: K });
    assert_eq!(initiator.handle_request(at(0), RequestId(3), read(0, 8 * K), None), Err(Error::TooMuchInFlight));
    let sent = subrequests(&mut initiator);
    initiator.handle_answer(at(0), sent[0].id, answered(AnswerKind::Zeroes));
    start(&mut initiator, 3, read(0, 8 * K));
}

#[test]
fn subrequests_in_flight() {
    let mut initiator = initiator(Limits { subrequests_max: 3, ..Limits::default() });
    for id in 0..10 {
        start(&mut initiator, id, read(id * K, K));
    }
    let sent = subrequests(&mut initiator);
    assert_eq!((sent.len(), initiator.in_flight()), (3, (3, 3 * K)));
    // One in a pause takes no room in flight, but nothing is begun in its place.
    initiator.handle_answer(at(0), sent[0].id, Answer::Lost);
    assert_eq!(initiator.poll_subrequest(), None);
    initiator.handle_answer(at(0), sent[1].id, answered(AnswerKind::Zeroes));
    assert_eq!(subrequests(&mut initiator).len(), 1);
}

#[test]
fn bytes_in_flight() {
    let mut initiator = initiator(Limits { subrequest_bytes_max: 3 * K, ..Limits::default() });
    start(&mut initiator, 1, read(0, 2 * K));
    start(&mut initiator, 2, write(2 * K, 2 * K, 1));
    start(&mut initiator, 3, read(4 * K, K));
    // The second does not fit, and the third does not overtake it.
    let first = only(&mut initiator);
    initiator.handle_answer(at(0), first.id, answered(AnswerKind::Zeroes));
    assert_eq!(subrequests(&mut initiator).len(), 2);
}

#[test]
fn one_subrequest_that_exceeds_the_bytes_in_flight_goes_alone() {
    let mut initiator = initiator(Limits { subrequest_bytes_max: K, ..Limits::default() });
    start(&mut initiator, 1, read(0, 2 * K));
    start(&mut initiator, 2, read(0, K));
    let first = only(&mut initiator);
    assert_eq!(first.header.range.len, 8_192);
    initiator.handle_answer(at(0), first.id, answered(AnswerKind::Zeroes));
    only(&mut initiator);
}

#[test]
fn a_long_request_leaves_room_for_others() {
    let mut initiator = initiator(Limits { runs_per_request_max: 2, ..Limits::default() });
    start(&mut initiator, 1, Op::Zero { offset: 0, len: SIZE - K, space: Space::Release });
    start(&mut initiator, 2, read(SIZE - K, K));
    let sent = subrequests(&mut initiator);
    let verbs: Vec<Verb> = sent.iter().map(|sent| sent.header.verb).collect();
    assert_eq!(verbs, [Verb::Zero, Verb::Read, Verb::Zero]);
    initiator.handle_answer(at(0), sent[0].id, DONE);
    assert_eq!(only(&mut initiator).header.verb, Verb::Zero);
}

#[test]
fn payloads() {
    let mut initiator = initiator(Limits { payload_bytes_max: 8_192, ..Limits::default() });
    start(&mut initiator, 1, read(K, 5 * K));
    let lens: Vec<u32> = subrequests(&mut initiator).iter().map(|sent| sent.header.range.len).collect();
    assert_eq!(lens, [8_192, 8_192, 4_096]);
}

#[test]
fn requests_wait_for_tokens_in_order() {
    let mut initiator = initiator(Limits::default());
    let rate = |per_second, burst| Rate { per_second, burst };
    let rates = |requests| Rates { requests: rate(requests, 2), bytes: rate(1 << 30, 1 << 30) };
    initiator.set_rates(at(0), Some(rates(10)));
    for id in 0..5 {
        start(&mut initiator, id, read(id * K, K));
    }
    start(&mut initiator, 9, Op::Flush);
    assert_eq!(subrequests(&mut initiator).len(), 2);
    let due = initiator.poll_timeout().unwrap();
    initiator.handle_timeout(due);
    assert_eq!(only(&mut initiator).header.range.offset, 8_192);
    // Limits change while attached.
    initiator.set_rates(due, Some(rates(1_000)));
    initiator.handle_timeout(initiator.poll_timeout().unwrap());
    assert_eq!(only(&mut initiator).header.range.offset, 12_288);
    initiator.set_rates(due, None);
    assert_eq!(only(&mut initiator).header.range.offset, 16_384);
    assert_eq!(initiator.poll_timeout(), None);
}

#[test]
fn a_deadline_passes_before_the_tokens_come() {
    let mut initiator = initiator(Limits::default());
    let rate = Rate { per_second: 1, burst: 1 };
    initiator.set_rates(at(0), Some(Rates { requests: rate, bytes: rate }));
    start(&mut initiator, 1, read(0, 1));
    initiator.handle_request(at(0), RequestId(2), read(0, 1), Some(at(10))).unwrap();
    start(&mut initiator, 3, read(0, 1));
    let sent = only(&mut initiator);
    initiator.handle_answer(at(1), sent.id, answered(AnswerKind::Zeroes));
    initiator.handle_timeout(at(10));
    assert_eq!(completions(&mut initiator), [(1, Ok(vec![0])), (2, Err(Error::TimedOut))]);
    initiator.handle_timeout(at(3_000));
    only(&mut initiator);
}
