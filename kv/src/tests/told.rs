//! What replicas and the log are told of commands that depend on time, chance or what was there, and what subscribers are.

use super::{Talk, readable};
use crate::persist::journal::decode_batch;

/// What the log has of the engine since it was last asked.
pub(super) fn logged(talk: &Talk) -> String {
    let batch = talk.engine().journal().take().batch;
    let units = decode_batch(&batch).unwrap();
    units.iter().map(|unit| String::from_utf8_lossy(unit.commands)).collect::<String>().replace("\r\n", " ")
}

/// The words of a log, without their lengths; a bar before each command.
fn commands(logged: &str) -> String {
    let words = logged.split(' ').filter(|word| !word.starts_with('$') && !word.is_empty());
    let words: Vec<&str> = words.map(|word| if word.starts_with('*') { "|" } else { word }).collect();
    words.join(" ").trim_start_matches("| ").into()
}

/// The names of events, as a client hears them that listens to all of the first database.
fn events(talk: &mut Talk, listener: usize) -> String {
    let heard = readable(&talk.mail(listener));
    let names =
        heard.lines().filter_map(|line| line.split("__keyevent@0__:").nth(1)).filter_map(|rest| rest.split('"').next());
    names.collect::<Vec<_>>().join(" ")
}

/// Each case begins without keys: what is done before, the command, what is logged, which events there are.
fn check(cases: &[(&[&str], &str, &str, &str)]) {
    for (before, line, told, heard) in cases {
        let mut talk = Talk::new();
        talk.engine().journal().start(0, Box::new(|| {}));
        let listener = talk.join();
        before.iter().for_each(|line| {
            talk.say(0, line);
        });
        talk.say(0, "CONFIG SET notify-keyspace-events AKE");
        talk.say(listener, "PSUBSCRIBE __keyevent*");
        logged(&talk);
        talk.say(0, line);
        assert_eq!(commands(&logged(&talk)), *told, "{before:?} {line}");
        assert_eq!(events(&mut talk, listener), *heard, "{before:?} {line}");
    }
}

#[test]
fn strings_with_a_time() {
    check(&[
        (&[], "SET k v EX 10 NX", "SET k v PXAT 1800000010000", "set expire"),
        (&[], "SET k v GET PX 10", "SET k v PXAT 1800000000010", "set expire"),
        (&[], "SET k v nx pxat 1800000010000", "SET k v PXAT 1800000010000", "set expire"),
        (&[], "set k v pxat 1800000010000", "set k v pxat 1800000010000", "set expire"),
        (&["SET k 1"], "set k v pxat 1", "UNLINK k", "expired"),
        (&[], "SET k v PX 5 px 10", "SET k v PXAT 1800000000010", "set expire"),
        (&["SET k 1"], "SET k v XX get GET KEEPTTL", "SET k v KEEPTTL", "set"),
        (&["SET k 1"], "SET k v NX GET", "", ""),
        (&["SET k 1"], "SET k v EXAT 1", "UNLINK k", "expired"),
        (&["SET k 1"], "SET k v GET PXAT 1", "UNLINK k", "expired"),
        (&[], "SET k v EXAT 1", "", ""),
        (&["SET k 1", "CONFIG SET lazyfree-lazy-expire no"], "SET k v EXAT 1", "DEL k", "expired"),
        (&["SET k 1"], "GETEX k EXAT 1", "UNLINK k", "expired"),
        (&["SET k 1"], "GETEX k EX 5 EX 10", "PEXPIREAT k 1800000010000", "expire"),
        (&["SET k 1"], "GETEX k PERSIST PERSIST", "", ""),
        (&[], "MSETEX 2 a 1 b 2 NX EX 1 ex 10", "MSETEX 2 a 1 b 2 PXAT 1800000010000", "set expire set expire"),
        (&[], "MSETEX 1 a 1 PX 10 XX", "", ""),
        (&["SET a 1"], "MSETEX 1 a 1 PX 10 XX", "MSETEX 1 a 1 PXAT 1800000000010", "set expire"),
        (&[], "MSETEX 1 a 1 pxat 1800000010000", "MSETEX 1 a 1 PXAT 1800000010000", "set expire"),
    ]);
}

#[test]
fn keys_that_expire() {
    check(&[
        (&["SET k 1"], "EXPIRE k 10 NX", "PEXPIREAT k 1800000010000 NX", "expire"),
        (&["SET k 1"], "EXPIRE k -1", "UNLINK k", "expired"),
        (&["SET k 1"], "EXPIREAT k 1", "UNLINK k", "expired"),
        (&["SET k 1", "CONFIG SET lazyfree-lazy-expire no"], "PEXPIRE k -9223372036854775808", "DEL k", "expired"),
        (&["SET k 1"], "EXPIRE k -1 GT", "", ""),
    ]);
}

#[test]
fn hashes_with_a_time() {
    let volatile: &[&str] = &["HSETEX h EX 100 FIELDS 2 a 1 b 2"];
    check(&[
        (&[], "HSETEX h NX EX 10 FIELDS 1 a 1", "HSETEX h PXAT 1800000010000 FIELDS 1 a 1", "hset hexpire"),
        (&[], "HSETEX h FNX FIELDS 1 a 1", "HSETEX h FIELDS 1 a 1", "hset"),
        (volatile, "HSETEX h KEEPTTL XX FIELDS 1 a 1", "HSETEX h KEEPTTL FIELDS 1 a 1", "hset"),
        (volatile, "HSETEX h keepttl FIELDS 1 a 1", "HSETEX h keepttl FIELDS 1 a 1", "hset"),
        (&[], "HSETEX h pxat 1800000010000 FIELDS 1 a 1", "HSETEX h pxat 1800000010000 FIELDS 1 a 1", "hset hexpire"),
        (volatile, "HSETEX h PXAT 1 FIELDS 2 a 1 zz 2", "HDEL h a", "hset hexpire hexpired"),
        (volatile, "HGETEX h PX 10 FIELDS 2 a zz", "HPEXPIREAT h 1800000000010 FIELDS 1 a", "hexpire"),
        (volatile, "HGETEX h PERSIST FIELDS 2 a zz", "HPERSIST h FIELDS 1 a", "hpersist"),
        (volatile, "HGETEX h PXAT 1 FIELDS 2 a b", "HDEL h a b", "hexpired del"),
        (volatile, "HGETDEL h FIELDS 2 a b", "HDEL h a b", "hdel del"),
        (volatile, "HEXPIRE h 10 XX FIELDS 1 a", "HPEXPIREAT h 1800000010000 FIELDS 1 a", "hexpire"),
        (volatile, "HEXPIRE h 0 FIELDS 1 a", "HDEL h a", "hexpired"),
        (volatile, "HINCRBY h a 1", "HSETEX h PXAT 1800000100000 FIELDS 1 a 2", "hincrby"),
    ]);
}

#[test]
fn a_field_that_had_expired_does_not_keep_its_time_anywhere() {
    let mut talk = Talk::new();
    talk.engine().journal().start(0, Box::new(|| {}));
    for line in ["DEBUG SET-ACTIVE-EXPIRE 0", "HSETEX h PX 10 FIELDS 2 a 1 b 2", "HSET h c 1"] {
        talk.say(0, line);
    }
    talk.wait(20);
    logged(&talk);
    talk.say(0, "HSETEX h KEEPTTL FIELDS 2 a 1 c 1");
    assert_eq!(commands(&logged(&talk)), "HDEL h a | HSETEX h KEEPTTL FIELDS 2 a 1 c 1");
    talk.say(0, "HSETEX h KEEPTTL XX FIELDS 1 b 1");
    assert_eq!(commands(&logged(&talk)), "HDEL h b | HSETEX h KEEPTTL FIELDS 1 b 1");
    assert_eq!(talk.say(0, "HTTL h FIELDS 3 a b c"), "[-1 -1 -1]");
}

#[test]
fn keys_that_are_made_and_keys_that_are_missed() {
    let mut talk = Talk::new();
    let listener = talk.join();
    talk.say(0, "CONFIG SET notify-keyspace-events AEnm");
    talk.say(listener, "PSUBSCRIBE __keyevent*");
    talk.mail(listener);
    for (line, heard) in [
        ("GET a", "keymiss"),
        ("SET a 1", "new set"),
        ("SET a 2", "set"),
        ("APPEND b 1", "new append"),
        ("SETRANGE c 1 1", "new setrange"),
        ("RPUSH l 1", "new rpush"),
        ("RPUSH l 1", "rpush"),
        ("HSETEX h EXAT 1 FIELDS 1 a 1", "new hset hexpire hexpired del"),
        ("MGET a nosuch l none", "keymiss keymiss"),
        ("EXISTS a nosuch", "keymiss"),
        ("TTL nosuch", "keymiss"),
        ("TYPE nosuch", "keymiss"),
        ("INCR nosuch", "new incrby"),
        ("RENAME a b", "new rename_from rename_to"),
        ("COPY b d", "new copy_to"),
        ("COPY b d REPLACE", "new copy_to"),
        ("COPY nosuch1 d REPLACE", "keymiss"),
        ("DEL nosuch1", ""),
        ("SORT l BY nosort STORE m", "new sortstore"),
        ("SORT l BY nosort STORE m", "sortstore"),
    ] {
        talk.say(0, line);
        assert_eq!(events(&mut talk, listener), heard, "{line}");
    }
    talk.say(0, "CONFIG SET notify-keyspace-events AE");
    talk.say(0, "SET fresh 1");
    talk.say(0, "GET nosuch1");
    assert_eq!(events(&mut talk, listener), "set");
}

#[test]
fn pops_of_several_lists_are_told_as_one_of_the_first() {
    let both = ["RPUSH a 1 2 3", "RPUSH b 4"];
    check(&[
        (&both, "LMPOP 2 none a LEFT", "LPOP a 1", "lpop"),
        (&both, "LMPOP 2 a b RIGHT COUNT 2", "RPOP a 2", "rpop"),
        (&both, "LMPOP 2 b a LEFT COUNT 10", "LPOP b 1", "lpop del"),
        (&both, "BLMPOP 0 2 a b RIGHT COUNT 10", "RPOP a 3", "rpop del"),
        (&both, "LMPOP 1 none LEFT", "", ""),
    ]);
}

#[test]
fn a_new_consumer_is_told_of_by_what_it_claims() {
    let group = ["XADD x 1-1 f v", "XGROUP CREATE x g 0"];
    let moved = "XGROUP SETID x g 1-1 ENTRIESREAD 1";
    let claims = format!("XCLAIM x g c 0 1-1 TIME 1800000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 1-1 | {moved}");
    let made = "XGROUP CREATECONSUMER x g c";
    check(&[
        (&group, "XREADGROUP GROUP g c STREAMS x >", &claims, "xgroup-createconsumer"),
        (&group, "XREADGROUP GROUP g c NOACK STREAMS x >", &format!("{made} | {moved}"), "xgroup-createconsumer"),
        (&group, "XREADGROUP GROUP g c STREAMS x 0", made, "xgroup-createconsumer"),
        (&[group[0], "XGROUP CREATE x g $"], "XREADGROUP GROUP g c STREAMS x >", made, "xgroup-createconsumer"),
    ]);
}
