//! What the log is told reproduces what was done: the content of an engine that runs it again is compared, not the words.

use std::sync::Arc;

use super::Talk;
use crate::engine::{Engine, EngineConfig};
use crate::memory::hash_key::HASH_KEY_BYTES;
use crate::persist::Replay;

/// An engine that runs the log again. Hash tables have another order there, and clients could do nothing.
fn again(talk: &Talk) -> Result<Arc<Engine>, String> {
    let engine = Arc::new(Engine::new(&EngineConfig { secret: [0x5a; HASH_KEY_BYTES], shards: 4, databases: 16 }));
    for (name, value) in [("proto-max-bulk-len", "1mb"), ("maxmemory", "1"), ("zset-max-listpack-entries", "64")] {
        engine.configure(name, value).expect("it is a parameter");
    }
    let batch = talk.engine().journal().take().batch;
    Replay::new(Arc::clone(&engine)).handle_batch(&batch, talk.now())?;
    Ok(engine)
}

/// Runs lines, of which `+MS` lets time pass and the engine look after itself, and `~MS` time alone; then the log again.
fn check(lines: &[&str]) {
    let mut talk = Talk::new();
    talk.engine().journal().start(0, Box::new(|| {}));
    for line in lines {
        match (line.strip_prefix('+'), line.strip_prefix('~')) {
            (Some(ms), _) => {
                talk.wait(ms.parse().unwrap());
                talk.tick();
            }
            (None, Some(ms)) => talk.wait(ms.parse().unwrap()),
            (None, None) => drop(talk.say(0, line)),
        }
    }
    let again = again(&talk).unwrap_or_else(|why| panic!("{lines:?}: {why}"));
    let differences = talk.engine().content().differences(&again.content(), 9);
    assert!(differences.is_empty(), "{lines:?}: {}", differences.join("\n"));
    assert!(!again.content().is_empty(), "{lines:?}: there is something to compare");
}

#[test]
fn words_that_look_like_options_are_values() {
    check(&["SET k GET", "SET k new IFEQ GET GET"]);
    check(&["SET k v", "SET k GET IFEQ v GET", "SET get GET GET"]);
    check(&["SET k v PX 5000", "SET k KEEPTTL KEEPTTL GET"]);
    check(&["SET k v", "SET k PXAT PXAT 1800000100000 IFEQ v"]);
}

#[test]
fn a_rough_trim_is_told_as_it_was_carried_out() {
    check(&["XADD t 1-1 f v", "XTRIM t MINID ~ 100"]);
    check(&["CONFIG SET stream-node-max-entries 1", "XADD t 1-1 f v", "XADD t 2-1 f v", "XTRIM t MINID ~ 100"]);
    check(&["CONFIG SET stream-node-max-entries 1", "XADD s 10-1 f v", "XTRIM s MINID ~ 100", "XSETID s 50-5"]);
    check(&[
        "CONFIG SET stream-node-max-entries 3",
        "XADD s 1-1 f v",
        "XADD s 2-1 f v",
        "XADD s MAXLEN ~ 1 LIMIT 9 * f v",
    ]);
    check(&["CONFIG SET stream-node-max-entries 1", "XADD s 5-1 f v", "XADD s NOMKSTREAM MINID ~ 9 8-* f v"]);
}

#[test]
fn no_limit_of_clients_holds_for_the_log() {
    check(&["SETRANGE k 3000000 x", "SETBIT b 30000000 1", "APPEND k y"]);
}

#[test]
fn equal_weights_have_an_order() {
    let members: Vec<String> = (0..300).map(|number| format!("m{number}")).collect();
    let add = format!("SADD set {}", members.join(" "));
    check(&[&add, "SORT set BY w* ALPHA LIMIT 0 5 STORE d"]);
    check(&[&add, "SORT set BY w* ALPHA DESC LIMIT 0 5 GET # STORE d"]);
}

#[test]
fn groups_of_streams_are_told_as_a_whole() {
    let begin = ["XADD x 1-1 f v", "XADD x 2-1 f v", "XGROUP CREATE x g 0"];
    for line in [
        "XREADGROUP GROUP g c STREAMS x >",
        "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
        "XREADGROUP GROUP g c NOACK STREAMS x >",
        "XREADGROUP GROUP g new STREAMS x 0",
        "XCLAIM x g new 0 9-9",
        "XCLAIM x g new 0 1-1 FORCE LASTID 1-1",
        "XAUTOCLAIM x g new 0 -",
    ] {
        check(&[begin[0], begin[1], begin[2], line]);
        check(&[begin[0], begin[1], begin[2], "XREADGROUP GROUP g c COUNT 1 STREAMS x >", "+500", line]);
    }
    check(&[
        begin[0],
        begin[1],
        begin[2],
        "XREADGROUP GROUP g c STREAMS x >",
        "+500",
        "XREADGROUP GROUP g c STREAMS x 0",
    ]);
}

#[test]
fn a_range_of_members_is_the_same_however_the_set_is_kept() {
    // The engine that runs the log again keeps sets in another form.
    let many: String = (0..100).map(|number| format!(" {} x{number}", number % 7)).collect();
    check(&["ZADD z 0 m5 2.25 m0 -1 m2 100 m6", "ZREMRANGEBYLEX z [m3 +"]);
    check(&[&format!("ZADD z{many}"), "ZREMRANGEBYLEX z [x3 [x5"]);
    check(&["SET a 1", "ZADD z -1 m6 3 m5 4 m1 4 m2 inf m0", "ZRANGESTORE z z [m3 - BYLEX REV"]);
    check(&[&format!("ZADD z{many}"), "ZRANGESTORE y z [x3 [x5 BYLEX LIMIT 1 4"]);
    check(&["ZADD y 1 a", "ZADD z 0 a", "ZRANGESTORE y z [b [c BYLEX"]);
}

#[test]
fn conditions_are_not_judged_again() {
    check(&["MSET a 1 b 2", "MSETEX 2 a 3 b 4 XX PX 50"]);
    check(&["SET a 1 PX 50", "~40", "MSETEX 2 a 3 a 4 XX KEEPTTL"]);
    check(&["MSETEX 2 a 3 b 4 NX EX 5 NX"]);
}

#[test]
fn a_string_that_only_grew_is_there_everywhere() {
    check(&["SET k v", "BITFIELD b OVERFLOW FAIL SET u1 10 4 GET i64 18"]);
    check(&["SET b v", "BITFIELD b OVERFLOW FAIL INCRBY i8 #20 200"]);
}

#[test]
fn fields_that_expire_by_themselves_are_gone_everywhere() {
    check(&["HSET h a 1 b 2", "HPEXPIRE h 100 FIELDS 1 a", "+500"]);
    check(&["SET k v", "HSETEX h PX 100 FIELDS 1 a 1", "+500"]);
    check(&["HSET h b 2", "HSETEX h PX 100 FIELDS 1 a 1", "+500", "HEXPIRE h 6 FIELDS 2 a b"]);
}

#[test]
fn fields_that_are_set_in_vain_are_gone_everywhere() {
    for wait in ["~10", "~60"] {
        for past in ["f3 x", "f5 x", "f5 99 f3 1e5 f3 w2"] {
            let count = past.split(' ').count() / 2;
            let vain = format!("HSETEX h PXAT 1 FIELDS {count} {past}");
            check(&["SET k v", "HSETEX h PX 50 FIELDS 2 f3 a f3 a", wait, &vain]);
            check(&["SET k v", "HSET h a 1", "HSETEX h PX 50 FIELDS 2 f3 a f3 a", wait, &vain]);
        }
    }
}
