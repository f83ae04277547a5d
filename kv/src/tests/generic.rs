//! Keys as such.

use super::{Talk, check};

#[test]
fn keys_come_and_go() {
    check(
        r#"
        > MSET a 1 b 2 c 3
        OK
        > DEL a nosuch a
        1
        > UNLINK b
        1
        > EXISTS c c a
        2
        > TYPE c
        string
        > TYPE a
        none
        > RENAME a b
        (error) ERR no such key
        > RENAME c d
        OK
        > GET d
        "3"
        > SET e 5 PX 1000
        OK
        > RENAMENX d e
        0
        > RENAME e d
        OK
        > PTTL d
        1000
        > RENAME d d
        OK
        > MOVE d 1
        1
        > MOVE d 1
        0
        > MOVE d 0
        (error) ERR source and destination objects are the same
        > SELECT 1
        OK
        > PTTL d
        1000
        > SWAPDB 0 1
        OK
        > EXISTS d
        0
        > SELECT 0
        OK
        > DBSIZE
        1
        > RANDOMKEY
        "d"
        > FLUSHDB
        OK
        > RANDOMKEY
        (nil)
    "#,
    );
}

#[test]
fn what_is_known_of_a_key() {
    check(
        r#"
        > OBJECT ENCODING d
        (nil)
        > MSET i 12 s abc l 012345678901234567890123456789012345678901234
        OK
        > OBJECT ENCODING i
        "int"
        > OBJECT ENCODING s
        "embstr"
        > OBJECT ENCODING l
        "raw"
        > APPEND i 3
        3
        > OBJECT ENCODING i
        "raw"
        +5000
        > OBJECT IDLETIME s
        5
        > OBJECT FREQ s
        (error) ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.
        > FLUSHALL ASYNC
        OK
        > FLUSHALL NOW
        (error) ERR syntax error
        > DBSIZE
        0
    "#,
    );
}

#[test]
fn expiry_and_its_conditions() {
    check(
        r#"
        > EXPIRE a 10
        0
        > TTL a
        -2
        > SET a 1
        OK
        > TTL a
        -1
        > EXPIRE a 10 XX
        0
        > EXPIRE a 10 GT
        0
        > EXPIRE a 10 LT
        1
        > EXPIRE a 20 NX
        0
        > EXPIRE a 5 GT
        0
        > EXPIRE a 20 GT
        1
        > TTL a
        20
        > PEXPIRE a 1500
        1
        > TTL a
        2
        > EXPIRETIME a
        1800000002
        > PEXPIREAT a 1800000001000
        1
        > PTTL a
        1000
        > PERSIST a
        1
        > PERSIST a
        0
        > EXPIRE a 10 NX XX
        (error) ERR NX and XX, GT or LT options at the same time are not compatible
        > EXPIRE a 10 GT LT
        (error) ERR GT and LT options at the same time are not compatible
        > EXPIRE a 10 YY
        (error) ERR Unsupported option YY
        > EXPIRE a x
        (error) ERR value is not an integer or out of range
        > EXPIRE a 9223372036854775807
        (error) ERR invalid expire time in 'expire' command
        > EXPIRE a -1
        1
        > EXISTS a
        0
    "#,
    );
}

#[test]
fn every_key_is_scanned() {
    let mut talk = Talk::new();
    for number in 0..500 {
        talk.say(0, &format!("SET key:{number} x"));
        talk.say(0, &format!("SET {{tag}}other:{number} x"));
    }
    let (mut cursor, mut found) = ("0".to_owned(), std::collections::BTreeSet::new());
    loop {
        let reply = talk.say(0, &format!("SCAN {cursor} MATCH *ey:* COUNT 7 TYPE string"));
        let (next, names) = reply[1..reply.len() - 1].split_once(' ').unwrap();
        for name in names[1..names.len() - 1].split(' ').filter(|name| !name.is_empty()) {
            assert!(found.insert(name.to_owned()), "{name} came twice");
        }
        cursor = next.trim_matches('"').to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 500);
    assert_eq!(talk.say(0, "SCAN 0 COUNT 100000 TYPE list"), "[\"0\" []]");
    for (line, error) in [
        ("SCAN x", "invalid cursor"),
        ("SCAN 0 COUNT 0", "syntax error"),
        ("SCAN 0 TYPE nosuch", "unknown type name 'nosuch'"),
        ("SCAN 0 MATCH", "syntax error"),
    ] {
        assert_eq!(talk.say(0, line), format!("(error) ERR {error}"), "{line}");
    }
    let keys = talk.say(0, "KEYS key:49?");
    assert_eq!(keys.split(' ').count(), 10);
}

#[test]
fn scans_take_out_what_has_expired_and_would_be_shown() {
    check(
        r#"
        > SET a 1 PX 1
        OK
        > HSET b f 1
        1
        > PEXPIRE b 1
        1
        > SET c 1
        OK
        +2
        > SCAN 0 COUNT 100000 TYPE string
        ["0" ["c"]]
        > DBSIZE
        2
        > SCAN 0 COUNT 100000 MATCH x*
        ["0" []]
        > DBSIZE
        2
        > SCAN 0 COUNT 100000
        ["0" ["c"]]
        > DBSIZE
        1
        > SWAPDB 44 a
        (error) ERR invalid second DB index
        > SWAPDB a b
        (error) ERR invalid first DB index
        > SWAPDB 44 55
        (error) ERR DB index is out of range
        > SWAPDB 0 -1
        (error) ERR DB index is out of range
    "#,
    );
}

#[test]
fn while_another_server_says_what_expires() {
    let mut talk = Talk::new();
    assert_eq!(talk.say(0, "CLIENT IMPORT-SOURCE ON"), "(error) ERR Server is not in import mode");
    assert_eq!(talk.say(0, "CLIENT IMPORT-SOURCE x"), "(error) ERR Server is not in import mode");
    assert_eq!(talk.say(0, "CLIENT IMPORT-SOURCE OFF"), "OK");
    talk.join();
    for (client, line, reply) in [
        (0, "CONFIG SET import-mode yes", "OK"),
        (1, "CLIENT IMPORT-SOURCE x", "(error) ERR syntax error"),
        (1, "CLIENT IMPORT-SOURCE ON", "OK"),
        (0, "SET a 1 PX 10", "OK"),
        (0, "SET b 1 PX 10", "OK"),
        (0, "HSET h f v", "1"),
        (0, "HSETEX h EXAT 0 FIELDS 2 g 1 i 2", "1"),
        (0, "HLEN h", "3"),
        (0, "HGETALL h", "[\"f\" \"v\"]"),
        (0, "SET c 1", "OK"),
        (0, "EXPIREAT c -5", "1"),
    ] {
        assert_eq!(talk.say(client, line), reply, "{line}");
    }
    talk.wait(100);
    talk.tick();
    for (client, line, reply) in [
        (0, "GET a", "(nil)"),
        (0, "TTL a", "-2"),
        (0, "EXISTS a b c", "0"),
        (0, "KEYS *", "[\"h\"]"),
        (0, "DBSIZE", "4"),
        (1, "TTL a", "0"),
        (1, "INCR a", "2"),
        (1, "EXPIRETIME c", "0"),
        (1, "EXISTS a b c", "3"),
        (0, "DBSIZE", "4"),
        // Who writes does not find it.
        (0, "INCR b", "1"),
        (0, "TTL b", "-1"),
        (0, "CONFIG SET import-mode no", "OK"),
        (1, "GET a", "(nil)"),
    ] {
        assert_eq!(talk.say(client, line), reply, "{client} {line}");
    }
    talk.tick();
    assert_eq!(talk.say(0, "DBSIZE"), "2");
    assert_eq!(talk.say(0, "HLEN h"), "1");
}

#[test]
fn looking_for_a_key_is_a_hit_or_a_miss() {
    let mut talk = Talk::new();
    talk.say(0, "SET a 1");
    for line in
        ["TTL a", "PTTL nosuch", "TYPE a", "TYPE nosuch", "EXPIRETIME nosuch", "PERSIST nosuch", "EXPIRE nosuch 1"]
    {
        talk.say(0, line);
    }
    let stats = talk.say(0, "INFO stats");
    assert!(stats.contains("keyspace_hits:2\\r\\nkeyspace_misses:3\\r"), "{stats}");
}
