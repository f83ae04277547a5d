//! Memory that is full: what goes, and what is refused. Only records are counted here.

use super::{Talk, check};
use crate::persist::journal::decode_batch;

/// What a key of these tests takes, bytes: seven of the head, nine of the name, twenty of the value, and four of the cell's rest.
const KEY_BYTES: u64 = 40;

/// An engine with so many keys, and room for `kept` of them.
fn filled(keys: usize, kept: u64, policy: &str) -> Talk {
    let mut talk = Talk::new();
    for number in 0..keys {
        assert_eq!(talk.say(0, &format!("SET key:{number:05} {}", "x".repeat(20))), "OK");
    }
    talk.tick();
    talk.say(0, &format!("CONFIG SET maxmemory-policy {policy}"));
    talk.say(0, &format!("CONFIG SET maxmemory {}", kept * KEY_BYTES));
    talk
}

fn figure(talk: &mut Talk, name: &str) -> u64 {
    let info = String::from_utf8(talk.raw(0, b"INFO\r\n")).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.parse().unwrap()
}

fn count(talk: &mut Talk) -> u64 {
    talk.say(0, "DBSIZE").parse().unwrap()
}

#[test]
fn nothing_goes_without_a_policy() {
    let mut talk = filled(1_000, 500, "noeviction");
    let refused = "(error) OOM command not allowed when used memory > 'maxmemory'.";
    for (line, reply) in [
        ("SET a 1", refused),
        ("GET key:00000", "\"xxxxxxxxxxxxxxxxxxxx\""),
        ("EVAL \"return redis.call('set', 'a', '1')\" 0", "x"),
        ("DEL key:00001", "1"),
        ("MULTI", "OK"),
        ("GET key:00000", refused),
        ("EXEC", "(error) EXECABORT Transaction discarded because of previous errors."),
    ] {
        let said = talk.say(0, line);
        if reply == "x" {
            assert!(said.starts_with("(error) OOM command not allowed when used memory > 'maxmemory'."), "{said}");
        } else {
            assert_eq!(said, reply, "{line}");
        }
    }
    assert_eq!((count(&mut talk), figure(&mut talk, "evicted_keys")), (999, 0));
    talk.wait(2_000);
    assert_eq!(figure(&mut talk, "current_eviction_exceeded_time"), 2_000);
    talk.say(0, "CONFIG SET maxmemory 0");
    talk.tick();
    talk.wait(1_000);
    assert_eq!(figure(&mut talk, "total_eviction_exceeded_time"), 2_000);
    assert_eq!(talk.say(0, "SET a 1"), "OK");
}

#[test]
fn transactions_are_judged_when_they_run() {
    let mut talk = filled(1_000, 2_000, "noeviction");
    talk.join();
    for line in ["MULTI", "SET a 1", "GET a"] {
        talk.say(0, line);
    }
    talk.say(1, "CONFIG SET maxmemory 1000");
    let refused =
        "(error) EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(talk.say(0, "EXEC"), refused);
    assert_eq!(talk.say(0, "EXEC"), "(error) ERR EXEC without MULTI");
    talk.say(1, "CONFIG SET maxmemory 0");
    talk.say(0, "MULTI");
    talk.say(0, "GET a");
    talk.say(1, "CONFIG SET maxmemory 1000");
    assert_eq!(talk.say(0, "EXEC"), "[(nil)]", "it needs no memory");
}

#[test]
fn scripts_say_whether_they_need_memory() {
    let mut talk = filled(1_000, 500, "noeviction");
    let refused = "(error) OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
    let script = |head: &str, body: &str| {
        let text = format!("{head}\n{body}");
        format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$1\r\n0\r\n", text.len())
    };
    for (head, reply) in [("#!lua", refused), ("#!lua flags=allow-oom", "OK"), ("#!lua flags=no-writes", "\"1\"")] {
        let body = if head.ends_with("no-writes") {
            "return redis.call('get','a')"
        } else {
            "return redis.call('set','a','1')"
        };
        let bytes = talk.raw(0, script(head, body).as_bytes());
        assert_eq!(super::readable(&bytes), reply, "{head}");
    }
    let body = "redis.call('del','a') return redis.call('set','b','2')";
    assert_eq!(super::readable(&talk.raw(0, script("-- no head", body).as_bytes())), "OK", "it has written already");
}

#[test]
fn every_policy_keeps_to_the_limit() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let mut talk = filled(2_000, 500, policy);
        talk.say(0, "CONFIG SET maxmemory-eviction-tenacity 100");
        let kept = count(&mut talk);
        assert!((400..=500).contains(&kept), "{policy}: {kept} keys are left");
        assert_eq!(figure(&mut talk, "evicted_keys"), 2_000 - kept);
        assert!(figure(&mut talk, "used_memory") <= 500 * KEY_BYTES);
        for number in 0..500 {
            assert_eq!(talk.say(0, &format!("SET new:{number:05} {}", "x".repeat(20))), "OK");
        }
        assert!(figure(&mut talk, "used_memory") <= 501 * KEY_BYTES);
    }
}

#[test]
fn the_work_before_a_command_is_bounded() {
    let mut talk = filled(2_000, 500, "allkeys-random");
    talk.say(0, "CONFIG SET maxmemory-eviction-tenacity 0");
    let before = count(&mut talk);
    assert_eq!(talk.say(0, "SET a 1"), "OK", "more goes later");
    assert_eq!(count(&mut talk), before - 16 + 1 - 16);
    (0..2).for_each(|_| talk.tick());
    assert!(figure(&mut talk, "used_memory") <= 500 * KEY_BYTES, "the tick does the rest");
}

#[test]
fn only_what_expires_goes_under_volatile_policies() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let mut talk = filled(1_000, 2_000, policy);
        for number in 0..500 {
            talk.say(0, &format!("EXPIRE key:{number:05} {}", 10_000 + number));
        }
        talk.say(0, "CONFIG SET maxmemory-eviction-tenacity 100");
        talk.say(0, &format!("CONFIG SET maxmemory {}", 600 * KEY_BYTES));
        let kept: Vec<u64> =
            (0..1_000).filter(|number| talk.say(0, &format!("EXISTS key:{number:05}")) == "1").collect();
        assert_eq!(kept.iter().filter(|number| **number >= 500).count(), 500, "{policy}");
        assert!(kept.len() < 650, "{policy}: {} keys are left", kept.len());
        if policy == "volatile-ttl" {
            let late = kept.iter().filter(|number| (400..500).contains(*number)).count();
            let early = kept.iter().filter(|number| **number < 100).count();
            assert!(early <= late / 2, "those that expire soon go first: {early} and {late} are left");
        }
        talk.say(0, "CONFIG SET maxmemory 1000");
        assert!(talk.say(0, "SET a 1").starts_with("(error) OOM"), "{policy}: nothing is left that may go");
    }
}

#[test]
fn what_is_used_stays() {
    for policy in ["allkeys-lru", "allkeys-lfu"] {
        let mut talk = filled(2_000, 4_000, policy);
        talk.say(0, "CONFIG SET maxmemory-eviction-tenacity 100");
        for _ in 0..20 {
            talk.wait(30_000);
            (0..200).for_each(|number| drop(talk.say(0, &format!("GET key:{number:05}"))));
        }
        talk.say(0, &format!("CONFIG SET maxmemory {}", 1_000 * KEY_BYTES));
        let kept: Vec<u64> =
            (0..2_000).filter(|number| talk.say(0, &format!("EXISTS key:{number:05}")) == "1").collect();
        let used = kept.iter().filter(|number| **number < 200).count();
        assert!(used >= 195, "{policy}: {used} of 200 that are used are left, of {} keys", kept.len());
    }
}

#[test]
fn others_are_told() {
    let mut talk = filled(1_000, 2_000, "allkeys-random");
    let engine = talk.engine_shared();
    engine.journal().start(0, Box::new(|| {}));
    // All of it is written: what waits to be would leave keys alone.
    engine.journal().release(1 << 30);
    let (listener, tracker) = (talk.join(), talk.join());
    talk.say(0, "CONFIG SET notify-keyspace-events Ee");
    talk.say(listener, "SUBSCRIBE __keyevent@0__:evicted");
    talk.say(tracker, "HELLO 3");
    talk.say(tracker, "CLIENT TRACKING ON");
    talk.say(tracker, "GET key:00007");
    talk.say(0, "CONFIG SET maxmemory-eviction-tenacity 100 maxmemory 1");
    assert_eq!(count(&mut talk), 0);
    let heard = super::readable(&talk.mail(listener));
    assert_eq!(heard.lines().count(), 1_000);
    assert!(heard.contains("[\"message\" \"__keyevent@0__:evicted\" \"key:00042\"]"), "{heard}");
    assert_eq!(super::readable(&talk.mail(tracker)), ">[\"invalidate\" [\"key:00007\"]]");
    let batch = engine.journal().take().batch;
    let units = decode_batch(&batch).unwrap();
    let commands: String = units.iter().map(|unit| String::from_utf8_lossy(unit.commands)).collect();
    assert_eq!(commands.matches("*2\r\n$6\r\nUNLINK\r\n$9\r\nkey:").count(), 1_000, "{commands}");
}

#[test]
fn watched_keys_that_go_are_changed() {
    let mut talk = filled(10, 100, "allkeys-random");
    talk.join();
    talk.say(0, "WATCH key:00003");
    talk.say(0, "MULTI");
    talk.say(0, "GET key:00003");
    talk.say(1, "CONFIG SET maxmemory 1");
    talk.say(1, "PING");
    talk.say(1, "CONFIG SET maxmemory 0");
    assert_eq!(talk.say(0, "EXEC"), "(nil array)");
}

#[test]
fn clients_go_when_they_take_too_much() {
    let mut talk = Talk::new();
    for client in 0..4 {
        talk.join_until(client);
        assert_eq!(talk.say(client, &format!("CLIENT SETNAME c{client}")), "OK");
    }
    talk.say(0, "CLIENT NO-EVICT ON");
    talk.say(0, "CONFIG SET maxmemory-clients 100000");
    for (client, bytes) in [(1, 30_000), (2, 60_000), (3, 20_000)] {
        talk.piece(client, format!("*1\r\n${bytes}\r\n{}", "x".repeat(bytes - 1)).as_bytes());
    }
    let gone: Vec<bool> = (0..4).map(|client| talk.is_closed(client)).collect();
    assert_eq!(gone, [false, false, true, false], "the largest goes, and no more than must");
    assert_eq!(figure(&mut talk, "evicted_clients"), 1);
    talk.say(0, "CONFIG SET maxmemory-clients 0");
    talk.say(0, "CONFIG SET maxmemory-clients 10000");
    let gone: Vec<bool> = (0..4).map(|client| talk.is_closed(client)).collect();
    assert_eq!(gone, [false, true, true, true]);
    talk.piece(0, format!("*1\r\n$40000\r\n{}", "x".repeat(30_000)).as_bytes());
    assert!(!talk.is_closed(0), "it is protected");
}

#[test]
fn memory_commands() {
    check(
        r#"
        > SET a 1
        OK
        > OBJECT REFCOUNT a
        2147483647
        > OBJECT REFCOUNT b
        (nil)
        > SET b 10000
        OK
        > OBJECT REFCOUNT b
        1
        > CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru
        OK
        > OBJECT REFCOUNT a
        1
        > CONFIG SET maxmemory-policy allkeys-random
        OK
        > OBJECT REFCOUNT a
        2147483647
        > MEMORY USAGE a
        23
        > EXPIRE a 100
        1
        > MEMORY USAGE a SAMPLES 0
        38
        > MEMORY USAGE a SAMPLES
        (error) ERR syntax error
        > MEMORY USAGE a SAMPLES -1
        (error) ERR syntax error
        > MEMORY USAGE a SAMPLES x
        (error) ERR value is not an integer or out of range
        > MEMORY USAGE nothing
        (nil)
        > MEMORY PURGE
        OK
        > MEMORY MALLOC-STATS
        "Stats not supported for the current allocator"
    "#,
    );
    let mut talk = Talk::new();
    talk.say(0, "HELLO 3");
    talk.say(0, "RPUSH l a b c");
    let stats = talk.say(0, "MEMORY STATS");
    assert!(stats.contains("\"keys.count\": 1") && stats.contains("\"db.0\": {"), "{stats}");
    let small: u64 = talk.say(0, "MEMORY USAGE l").parse().unwrap();
    talk.say(0, &format!("RPUSH l {}", "x".repeat(10_000)));
    let large: u64 = talk.say(0, "MEMORY USAGE l").parse().unwrap();
    assert!((10_000..15_000).contains(&(large - small)), "{small} {large}");
}

#[test]
fn large_values_are_given_back_by_the_tick() {
    let mut talk = Talk::new();
    let members: String = (0..200).map(|number| format!(" m{number}")).collect();
    for (line, pending) in [("UNLINK s", 1), ("DEL s", 1), ("FLUSHALL", 1), ("FLUSHDB ASYNC", 1), ("FLUSHALL SYNC", 0)]
    {
        talk.say(0, &format!("SADD s{members}"));
        talk.say(0, line);
        assert_eq!(figure(&mut talk, "lazyfree_pending_objects"), pending, "{line}");
        talk.tick();
        assert_eq!(figure(&mut talk, "lazyfree_pending_objects"), 0, "{line}");
    }
    assert_eq!(figure(&mut talk, "lazyfreed_objects"), 4);
    talk.say(0, "CONFIG RESETSTAT");
    talk.say(0, "CONFIG SET lazyfree-lazy-user-del no lazyfree-lazy-user-flush no");
    talk.say(0, "SADD small 1 2 3");
    talk.say(0, &format!("SADD s{members}"));
    for line in ["UNLINK small", "DEL s", "FLUSHALL"] {
        talk.say(0, line);
    }
    talk.tick();
    assert_eq!(figure(&mut talk, "lazyfreed_objects"), 0);
}

#[test]
fn a_script_may_ask_about_memory() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "EVAL \"return #redis.call('INFO','memory') > 100\" 0"), "1");
    assert_eq!(talk.say(0, "EVAL \"return #redis.call('MEMORY','STATS') > 20\" 0"), "1");
    assert_eq!(figure(&mut talk, "number_of_cached_scripts"), 2);
}

#[test]
fn nothing_goes_while_another_server_says_what_does() {
    let mut talk = filled(100, 200, "allkeys-lru");
    talk.say(0, "CONFIG SET import-mode yes");
    talk.say(0, "CONFIG SET maxmemory 1");
    talk.tick();
    assert!(talk.say(0, "SET a 1").starts_with("(error) OOM command not allowed"));
    assert_eq!(count(&mut talk), 100);
    talk.say(0, "CONFIG SET import-mode no");
    (0..10).for_each(|_| talk.tick());
    assert_eq!(count(&mut talk), 0);
}
