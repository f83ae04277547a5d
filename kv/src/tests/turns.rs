//! Requests that make many bytes of replies run in turns, and wait while their client does not take these.

use super::{Talk, readable};
use crate::session::{Next, TURN_BYTES_MAX, UNTAKEN_BYTES_MAX};

const VALUE_BYTES: usize = 300_000;

fn talk() -> Talk {
    let mut talk = Talk::new();
    let value = "v".repeat(VALUE_BYTES);
    let request = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${VALUE_BYTES}\r\n{value}\r\n");
    assert_eq!(talk.raw(0, request.as_bytes()), b"+OK\r\n");
    talk
}

#[test]
fn what_is_left_of_a_turn_runs_in_the_next_in_order() {
    let mut talk = talk();
    let other = talk.join();
    let (now, mut input, mut turns, mut replies) = (talk.now(), Vec::new(), 0, Vec::new());
    for _ in 0..20 {
        input.extend_from_slice(b"GET big\r\nINCR count\r\n");
    }
    // One that has not come whole is no reason for another turn.
    input.extend_from_slice(b"GET bi");
    loop {
        let session = talk.session_mut(0);
        let (taken, next) = session.feed(&input, now);
        input.drain(..taken);
        assert!(
            session.replies().len() < TURN_BYTES_MAX + VALUE_BYTES + 100,
            "a turn ends with the request that fills it"
        );
        replies.extend_from_slice(session.replies());
        let sent = session.replies().len();
        session.handle_sent(sent);
        if next == Next::Read {
            break;
        }
        turns += 1;
        assert_eq!(next, Next::More);
        assert_eq!(session.handle_mail(), Next::More, "mail does not change that");
        // Others come between, and find what has run so far and nothing else.
        let ran = readable(&replies).lines().count() / 2;
        assert_eq!(talk.say(other, "GET count"), format!("\"{ran}\""));
    }
    assert_eq!(input, b"GET bi");
    assert_eq!(turns, 20 * VALUE_BYTES / TURN_BYTES_MAX);
    let value = format!("${VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES));
    let expected: String = (1..=20).map(|count| format!("{value}:{count}\r\n")).collect();
    assert!(replies == expected.as_bytes());
}

#[test]
fn who_takes_no_replies_is_told_to_wait() {
    let mut talk = talk();
    let (now, mut input) = (talk.now(), b"GET big\r\n".repeat(2 * UNTAKEN_BYTES_MAX / VALUE_BYTES));
    let session = talk.session_mut(0);
    while !session.is_untaken() {
        let (taken, next) = session.feed(&input, now);
        input.drain(..taken);
        assert_eq!(next, Next::More, "as long as that is not so, more runs");
    }
    let len = session.replies().len();
    assert!(len > UNTAKEN_BYTES_MAX && len < UNTAKEN_BYTES_MAX + TURN_BYTES_MAX + VALUE_BYTES + 100);
    session.handle_sent(len - UNTAKEN_BYTES_MAX);
    assert!(!session.is_untaken());
}

#[test]
fn the_limit_of_a_client_still_ends_it() {
    let mut talk = talk();
    assert_eq!(talk.say(0, "CONFIG SET client-output-buffer-limit \"normal 2000000 0 0\""), "OK");
    let (now, mut input, mut next) = (talk.now(), b"GET big\r\n".repeat(20), Next::More);
    let session = talk.session_mut(0);
    while next == Next::More {
        let (taken, then) = session.feed(&input, now);
        input.drain(..taken);
        next = then;
    }
    assert_eq!(next, Next::Drop);
    assert!(!input.is_empty());
}
