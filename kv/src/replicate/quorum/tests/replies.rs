//! Which replies wait, for what, and who counts as a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{Members, TakeOver};
use super::{acknowledge, begin_shard, enrol, map_of_three, members, name, start_in, take_over, term};
use crate::client::Mailbox;
use crate::session::Session;
use crate::tests::Talk;

fn held(talk: &mut Talk, clients: &[usize]) -> Vec<bool> {
    clients.iter().map(|client| talk.session_mut(*client).is_held()).collect()
}

/// A replica that is so many bytes behind gets nothing more.
fn limit_lag(talk: &Talk) {
    talk.engine().configure("repl-backlog-size", "16384").unwrap();
    talk.engine().configure("client-output-buffer-limit", "replica 16384 0 0").unwrap();
}

#[test]
fn a_read_waits_until_a_question_is_answered_that_was_asked_after_it_came() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    let clients: Vec<usize> = (0..3).map(|_| talk.join()).collect();
    talk.mail(replica);
    let before = talk.engine().replication.end();
    talk.say(clients[0], "GET foo");
    let asked = talk.engine().replication.end();
    assert!(asked > before);
    talk.say(clients[1], "GET foo");
    assert_eq!(talk.engine().replication.end(), asked, "nobody has got the question: it is asked for both");
    acknowledge(&mut talk, replica, Some(before));
    assert_eq!(held(&mut talk, &clients), [true, true, false]);
    // It has got the question by now, and an answer may be on its way.
    talk.say(clients[2], "GET foo");
    assert!(talk.engine().replication.end() > asked);
    acknowledge(&mut talk, replica, Some(asked));
    assert_eq!(held(&mut talk, &clients), [false, false, true]);
    acknowledge(&mut talk, replica, None);
    assert_eq!(held(&mut talk, &clients), [false; 3]);
    // What a write appends is enough to wait for.
    talk.mail(replica);
    talk.say(clients[0], "SET foo 1");
    let heard = talk.mail(replica);
    assert!(heard.ends_with(b"SET\r\n$3\r\nfoo\r\n$1\r\n1\r\n"), "{}", heard.escape_ascii());
    // A question before it does not tell of what is behind.
    talk.say(clients[1], "GET foo");
    assert!(talk.mail(replica).ends_with(b"GETACK\r\n$1\r\n*\r\n"));
}

#[test]
fn who_waits_is_woken_once_a_majority_has_what_it_did_and_not_before() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    assert!(!talk.engine().has_held_replies() && !Talk::new().engine().has_held_replies());
    let mut writers: Vec<(Session, Arc<AtomicUsize>, u64)> = Vec::new();
    for peer in ["127.0.0.1:1", "127.0.0.1:2"] {
        let woken = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&woken);
        let mailbox = Arc::new(Mailbox::new(Box::new(move || _ = counter.fetch_add(1, Ordering::Relaxed))));
        let mut session = Session::open(talk.engine_shared(), mailbox, Talk::link(peer), talk.now()).unwrap();
        session.feed(b"INCR foo\r\n", talk.now());
        assert!(session.is_held());
        writers.push((session, woken, talk.engine().replication.end()));
    }
    let state = |writers: &mut [(Session, Arc<AtomicUsize>, u64)]| -> Vec<(bool, usize)> {
        writers.iter_mut().map(|(session, woken, _)| (session.is_held(), woken.load(Ordering::Relaxed))).collect()
    };
    let first = writers[0].2;
    acknowledge(&mut talk, replica, Some(first));
    talk.tick();
    assert_eq!(state(&mut writers), [(false, 1), (true, 0)]);
    assert!(talk.engine().has_held_replies());
    acknowledge(&mut talk, replica, None);
    assert_eq!(state(&mut writers), [(false, 1), (false, 1)]);
    assert!(!talk.engine().has_held_replies());
}

#[test]
fn a_member_counts_while_it_takes_the_stream() {
    let (mut talk, replica) = begin_shard(&Arc::default());
    let is_served = |talk: &mut Talk| {
        talk.tick();
        let is_attended = talk.engine().quorum_status().unwrap().is_attended;
        assert_eq!(talk.say(0, "GET foo").contains("NOREPLICAS"), !is_attended);
        is_attended
    };
    assert!(is_served(&mut talk));
    talk.leave(replica);
    assert!(!is_served(&mut talk));
    // It waits for a dump, and then has one.
    let (_, heard) = enrol(&mut talk, 2, "? -1");
    assert_eq!(heard, "a dump");
    assert!(!is_served(&mut talk));
    let (history, end) = (talk.engine().identity.history(), talk.engine().replication.end());
    let (replica, _) = enrol(&mut talk, 2, &format!("{history} {}", end + 1));
    assert!(is_served(&mut talk));
    // It gets nothing more once it is too far behind, although its connection has not ended yet.
    limit_lag(&talk);
    let client = talk.join();
    talk.say(client, &format!("SET foo {}", "x".repeat(20_000)));
    acknowledge(&mut talk, replica, None);
    assert!(!is_served(&mut talk));
    assert!(talk.session_mut(client).is_held(), "what it says now may be of another history");
}

#[test]
fn nobody_is_served_while_data_are_taken_over() {
    let (mut talk, _) = begin_shard(&Arc::default());
    let client = talk.join();
    talk.say(client, "SET foo 1");
    talk.engine().set_copying(Some(term(8, 1)));
    assert!(talk.say(0, "GET foo").contains("NOREPLICAS"));
    assert!(!talk.is_closed(client));
    // The data go, and with them all that they say.
    assert!(talk.engine().replication.forget(talk.engine().role.turn()));
    assert_eq!(talk.engine().quorum_status(), None);
    assert_eq!(talk.engine().replication.extent(), (None, Members::default()));
    assert!(talk.is_closed(client), "nobody will know whether that was committed");
    assert!(talk.say(0, "GET foo").contains("NOREPLICAS"));
    talk.engine().set_copying(None);
    assert_eq!(talk.say(0, "GET foo"), "\"1\"");
}

#[test]
fn members_change_one_by_one_and_only_after_the_change_before_was_committed() {
    let mut talk = start_in(map_of_three(1, 7), &Arc::default());
    assert_eq!(take_over(&talk, &map_of_three(1, 7), 1, &[]), TakeOver::Done);
    let mut replicas = Vec::new();
    // The last is no node of the shard.
    for number in [2, 3, 9] {
        let (history, end) = (talk.engine().identity.history(), talk.engine().replication.end());
        replicas.push(enrol(&mut talk, number, &format!("{history} {}", end + 1)).0);
    }
    let towards = |now: &[u8], next: &[u8]| members(now).towards(next.iter().map(|number| name(*number)).collect());
    // A replica that has not got the last change is none of the next.
    talk.tick();
    assert_eq!(talk.engine().quorum_status().unwrap().members, members(&[1]));
    for expected in [
        towards(&[1], &[1, 2]),
        members(&[1, 2]),
        towards(&[1, 2], &[1, 2, 3]),
        members(&[1, 2, 3]),
        members(&[1, 2, 3]),
        members(&[1, 2, 3]),
    ] {
        replicas.iter().for_each(|replica| acknowledge(&mut talk, *replica, None));
        for _ in 0..2 {
            talk.tick();
            assert_eq!(talk.engine().quorum_status().unwrap().members, expected, "nobody has acknowledged that yet");
        }
    }
}

#[test]
fn a_replica_that_gets_nothing_more_becomes_no_member() {
    let mut talk = start_in(map_of_three(1, 7), &Arc::default());
    assert_eq!(take_over(&talk, &map_of_three(1, 7), 1, &[]), TakeOver::Done);
    let (history, end) = (talk.engine().identity.history(), talk.engine().replication.end());
    let (replica, _) = enrol(&mut talk, 2, &format!("{history} {}", end + 1));
    limit_lag(&talk);
    talk.engine().configure("replication-quorum-copies-min", "1").unwrap();
    acknowledge(&mut talk, replica, None);
    talk.say(0, &format!("SET foo {}", "x".repeat(20_000)));
    talk.tick();
    let status = talk.engine().quorum_status().unwrap();
    assert_eq!((status.members, status.is_attended), (members(&[1]), true));
}
