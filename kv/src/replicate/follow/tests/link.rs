//! What comes over a link, in its details: what is done of it, and what is told of that.

use super::{HISTORY, Replica, dump, requests, session};
use crate::replicate::role::LinkState;
use crate::tests::{Talk, readable};

/// A replica that has heard a dump, and then this.
fn linked(stream: &[&str]) -> Replica {
    let mut replica = Replica::following();
    replica.turn();
    replica.hear(&session(stream, true), usize::MAX);
    assert_eq!(replica.state(), LinkState::Connected);
    replica
}

#[test]
fn what_is_told_of_the_log_is_what_the_drive_has_of_the_stream() {
    let mut replica = Replica::following();
    let engine = replica.talk.engine_shared();
    engine.journal().start(0, Box::new(|| {}));
    replica.turn();
    replica.hear(&session(&["SELECT 0"], true), usize::MAX);
    // The log begins anew with what the dump had.
    engine.journal().cut();
    let fact = |replica: &mut Replica| {
        let sent = replica.hear(&requests(&["REPLCONF GETACK *"]), usize::MAX);
        let words: Vec<String> = sent.split("\r\n").map(str::to_owned).collect();
        assert_eq!((words[4].as_str(), words[8].as_str()), ("ACK", "FACK"), "{sent}");
        assert_eq!(words[6].parse(), Ok(replica.end()));
        words[10].parse::<u64>().unwrap()
    };
    let write = |replica: &mut Replica| {
        replica.hear(&requests(&["SET a 1"]), usize::MAX);
        (engine.journal().end(), replica.end())
    };
    let first = write(&mut replica);
    engine.note_durable(first.0);
    assert_eq!(fact(&mut replica), 0, "the log has no base yet");
    engine.saves().want_base();
    assert!(engine.saves().next(0, 0, &[], 0, 0).is_some());
    engine.saves().end(true, 0);
    assert!(fact(&mut replica) >= first.1);
    let marks = [(); 3].map(|()| write(&mut replica));
    for (log, stream) in marks {
        engine.note_durable(log - 1);
        assert!(fact(&mut replica) < stream);
        engine.note_durable(log);
        let told = fact(&mut replica);
        assert!((stream..=replica.end()).contains(&told));
    }
}

#[test]
fn settings_that_change_hold_for_what_comes_then() {
    let mut replica = linked(&["SELECT 0", "HSET before a 1 b 2"]);
    replica.say("CONFIG SET hash-max-listpack-entries 1");
    replica.hear(&requests(&["HSET after a 1 b 2"]), usize::MAX);
    let encodings = ["before", "after"].map(|key| replica.say(&format!("OBJECT ENCODING {key}")));
    assert_eq!(encodings, ["\"listpack\"", "\"hashtable\""]);
}

#[test]
fn what_is_about_a_server_is_passed_on_and_not_done() {
    let mut replica = linked(&["SELECT 0"]);
    let before = replica.say("CONFIG GET hz");
    let stream = requests(&["CONFIG SET hz 77", "MULTI", "CONFIG SET hz 78", "SET a 1", "EXEC"]);
    let end = replica.end();
    replica.hear(&stream, usize::MAX);
    assert_eq!(replica.end(), end + stream.len() as u64);
    assert_eq!((replica.say("CONFIG GET hz"), replica.say("GET a")), (before, "\"1\"".to_owned()));
    assert_eq!(replica.hear(&requests(&["REPLCONF NEWS *"]), usize::MAX), "", "only GETACK is a question");
}

#[test]
fn requests_without_words_are_passed_over() {
    let mut replica = linked(&["SELECT 0"]);
    let stream =
        [b"*0\r\n".to_vec(), requests(&["MULTI", "SET a 1"]), b"*0\r\n".to_vec(), requests(&["EXEC"])].concat();
    let end = replica.end();
    replica.hear(&stream, usize::MAX);
    assert_eq!((replica.end(), replica.say("GET a")), (end + stream.len() as u64, "\"1\"".to_owned()));
}

#[test]
fn a_script_that_fails_after_its_effects_is_done_and_a_database_that_is_not_there_ends_the_link() {
    let mut replica = linked(&["SELECT 0"]);
    let script = "redis.call('set',KEYS[1],'v')error('x')";
    replica.hear(&requests(&[&format!("EVAL {script} 1 s")]), usize::MAX);
    assert_eq!((replica.say("GET s"), replica.state()), ("\"v\"".to_owned(), LinkState::Connected));
    replica.hear(&requests(&["SELECT 99", "SET a 1"]), usize::MAX);
    assert_eq!((replica.say("GET a"), replica.state()), ("(nil)".to_owned(), LinkState::Connect));
}

#[test]
fn who_waits_at_a_replica_is_served_by_what_the_primary_did() {
    let mut replica = linked(&["SELECT 0"]);
    let waiting = replica.talk.join();
    assert_eq!(replica.talk.raw(waiting, b"XREAD BLOCK 0 STREAMS s $\r\n"), b"");
    replica.hear(&requests(&["XADD s 1-1 a 1"]), usize::MAX);
    assert_eq!(readable(&replica.talk.mail(waiting)), "[[\"s\" [[\"1-1\" [\"a\" \"1\"]]]]]");
}

#[test]
fn a_link_is_counted_and_known() {
    let mut replica = linked(&["SELECT 0"]);
    let bytes = requests(&["SET a 1", "SET b 1"]);
    let half = requests(&["SET c 1"]);
    replica.talk.wait(400);
    replica.hear(&[&bytes, &half[..half.len() - 3]].concat(), usize::MAX);
    let view = replica.engine().role.view();
    assert_eq!(view.read, replica.end() + half.len() as u64 - 3, "what has come, done or not");
    assert_eq!(view.copy.map(|copy| copy.heard), Some(replica.talk.now().instant));
    let listed = replica.say("CLIENT LIST TYPE master");
    let total = format!("tot-net-in={}", bytes.len() + half.len() - 3);
    assert!(listed.contains("cmd=set") && listed.contains(&total), "{listed}");
}

#[test]
fn while_a_dump_comes_the_primary_hears_that_somebody_is_there_and_clients_how_far_it_is() {
    let mut replica = Replica::following();
    replica.turn();
    let (dump, bytes) = (dump(), session(&[], false));
    replica.hear(&bytes[..bytes.len() - dump.len() + 60], usize::MAX);
    assert_eq!(replica.engine().role.view().dump, (dump.len() as u64, 60));
    replica.talk.wait(999);
    assert_eq!(replica.turn(), "");
    replica.talk.wait(1);
    assert_eq!(replica.turn(), "\n");
    replica.hear(&bytes[bytes.len() - dump.len() + 60..], 50);
    assert_eq!((replica.engine().role.view().dump.1, replica.state()), (dump.len() as u64, LinkState::Connected));
}

#[test]
fn keys_of_a_dump_that_have_expired_stay_until_the_primary_says_that_they_are_gone() {
    let mut primary = Talk::new();
    primary.say(0, "SET short 1 PX 10");
    let dump = primary.engine().export_rdb(primary.now());
    let mut replica = Replica::following();
    replica.talk.wait(1_000);
    replica.turn();
    let head = format!("+PONG\r\n+OK\r\n+OK\r\n+OK\r\n+FULLRESYNC {HISTORY} 1000\r\n${}\r\n", dump.len());
    replica.hear(&[head.as_bytes(), &dump].concat(), usize::MAX);
    assert_eq!((replica.say("GET short"), replica.say("DBSIZE")), ("(nil)".to_owned(), "1".to_owned()));
    replica.hear(&requests(&["SELECT 0", "PERSIST short"]), usize::MAX);
    assert_eq!(replica.say("GET short"), "\"1\"", "it was there for the primary");
}

#[test]
fn lines_and_names_have_their_bounds() {
    let heard = |bytes: &[u8], asks: bool| {
        let mut replica = Replica::following();
        replica.turn();
        if asks {
            replica.hear(b"+PONG\r\n+OK\r\n+OK\r\n+OK\r\n", usize::MAX);
        }
        replica.hear(bytes, usize::MAX);
        replica.state()
    };
    assert_eq!(heard(&[b'x'; 4_095], false), LinkState::Handshake);
    assert_eq!(heard(&[b'x'; 4_096], false), LinkState::Connect);
    for (name, state) in [
        (HISTORY.to_owned(), LinkState::Sync),
        ("-".repeat(40), LinkState::Connect),
        (HISTORY[1..].to_owned(), LinkState::Connect),
        (format!("{HISTORY}0"), LinkState::Connect),
    ] {
        assert_eq!(heard(format!("+FULLRESYNC {name} 5\r\n").as_bytes(), true), state, "{name}");
    }
    let mut replica = linked(&[]);
    replica.say("CONFIG SET repl-timeout 5");
    replica.talk.wait(5_900);
    replica.turn();
    assert_eq!(replica.state(), LinkState::Connected, "no longer than it may");
    replica.talk.wait(100);
    replica.turn();
    assert_eq!(replica.state(), LinkState::Connect);
}
