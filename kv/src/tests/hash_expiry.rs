//! Fields of hashes that expire, as Valkey 9 has them.

use super::told::logged;
use super::{Talk, check};

const FIELDS_EXPIRE: &str = r#"
    > HSET h a 1 b 2 c 3
    3
    > HEXPIRE h 100 FIELDS 2 a zz
    [1 -2]
    > OBJECT ENCODING h
    "hashtable"
    > HTTL h FIELDS 3 a b zz
    [100 -1 -2]
    > HPTTL h FIELDS 1 a
    [100000]
    > HEXPIRETIME h FIELDS 1 a
    [1800000100]
    > HPEXPIRETIME h FIELDS 1 a
    [1800000100000]
    > HTTL nosuch FIELDS 2 a b
    [-2 -2]
    > HEXPIRE h 200 XX FIELDS 2 a b
    [1 0]
    > HEXPIRE h 300 NX FIELDS 2 a b
    [0 1]
    > HEXPIRE h 250 GT FIELDS 2 a b
    [1 0]
    > HEXPIRE h 200 LT FIELDS 3 a b c
    [1 1 1]
    > HPEXPIRE h 1500 FIELDS 1 c
    [1]
    > HTTL h FIELDS 3 a b c
    [200 200 2]
    > HPERSIST h FIELDS 3 a a zz
    [1 -1 -2]
    > HPERSIST nosuch FIELDS 1 a
    [-2]
    > HTTL h FIELDS 1 a
    [-1]
    > HGETALL h
    ["a" "1" "b" "2" "c" "3"]
    +1500
    > HGET h c
    "3"
    +1
    > HGET h c
    (nil)
    > HMGET h a b c
    ["1" "2" (nil)]
    > HLEN h
    3
    > HEXISTS h c
    0
    > HSTRLEN h c
    0
    > HDEL h c
    0
    > HKEYS h
    ["a" "b"]
    > HSCAN h 0
    ["0" ["a" "1" "b" "2"]]
    > HRANDFIELD h 5
    ["a" "b"]
    > HSETNX h c 4
    1
    > HTTL h FIELDS 1 c
    [-1]
    > HEXPIREAT h 1 FIELDS 2 c zz
    [2 -2]
    > HPEXPIREAT h 1800000300000 FIELDS 1 a
    [1]
    > HEXPIRETIME h FIELDS 1 a
    [1800000300]
    > HINCRBY h a 5
    6
    > HINCRBYFLOAT h a 0.5
    "6.5"
    > HTTL h FIELDS 1 a
    [298]
    > HSET h a 1
    0
    > HTTL h FIELDS 1 a
    [-1]
    > HEXPIRE h 0 FIELDS 2 a b
    [2 2]
    > EXISTS h
    0
    > HEXPIRE nosuch 10 FIELDS 2 a b
    [-2 -2]
"#;

#[test]
fn fields_expire() {
    check(FIELDS_EXPIRE);
}

const WHAT_IS_REFUSED: &str = r#"
    > HSET h a 1
    1
    > SET str x
    OK
    > HEXPIRE h x FIELDS 1 a
    (error) ERR value is not an integer or out of range
    > HEXPIRE h -1 FIELDS 1 a
    (error) ERR invalid expire time in 'hexpire' command
    > HEXPIRE h 9223372036854775807 FIELDS 1 a
    (error) ERR invalid expire time in 'hexpire' command
    > HPEXPIRE h 9223372036854775807 FIELDS 1 a
    (error) ERR invalid expire time in 'hpexpire' command
    > HPEXPIREAT h -5 FIELDS 1 a
    (error) ERR invalid expire time in 'hpexpireat' command
    > HEXPIRE h 10 NX XX FIELDS 1 a
    (error) ERR NX and XX, GT or LT options at the same time are not compatible
    > HEXPIRE h 10 GT LT FIELDS 1 a
    (error) ERR GT and LT options at the same time are not compatible
    > HEXPIRE h 10 YY FIELDS 1 a
    (error) ERR Unsupported option YY
    > HEXPIRE h 10 FIELDS 0 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HEXPIRE h 10 FIELDS 2 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HEXPIRE h 10 FIELDS x a
    (error) ERR value is not an integer or out of range
    > HEXPIRE h 10 NX a b
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HEXPIRE str 10 FIELDS 1 a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HEXPIRE h 10 FIELDS 1
    (error) ERR wrong number of arguments for 'hexpire' command
    > HTTL h FIELDS 2 a
    (error) ERR syntax error
    > HTTL h FIELDS x a
    (error) ERR value is not an integer or out of range
    > HTTL str FIELDS 1 a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HPERSIST h FIELDS 2 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HPERSIST h FIELDS x a
    (error) ERR value is not an integer or out of range
    > HPERSIST str FIELDS 1 a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HGETEX h EX FIELDS 1 a
    (error) ERR syntax error
    > HGETEX h EX x FIELDS 1 a
    (error) ERR value is not an integer or out of range
    > HGETEX h EX -1 FIELDS 1 a
    (error) ERR invalid expire time in 'hgetex' command
    > HGETEX h EX 1 PERSIST FIELDS 1 a
    (error) ERR syntax error
    > HGETEX h KEEPTTL FIELDS 1 a
    (error) ERR syntax error
    > HGETEX h FIELDS 2 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HGETEX h EX 10 a b
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HGETEX str FIELDS 1 a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HGETDEL h FIELDS 2 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HGETDEL h NOSUCH a
    (error) ERR wrong number of arguments for 'hgetdel' command
    > HGETDEL h FIELDS x a
    (error) ERR value is not an integer or out of range
    > HGETDEL h FIELDS 0 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HGETDEL str FIELDS 1 a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HSETEX h EX 10 FIELDS 1 a
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HSETEX h NX XX FIELDS 1 a 1
    (error) ERR syntax error
    > HSETEX h FNX FXX FIELDS 1 a 1
    (error) ERR syntax error
    > HSETEX h EX 10 KEEPTTL FIELDS 1 a 1
    (error) ERR syntax error
    > HSETEX h PERSIST FIELDS 1 a 1
    (error) ERR syntax error
    > HSETEX h EX -1 FIELDS 1 a 1
    (error) ERR invalid expire time in 'hsetex' command
    > HSETEX h EX x FIELDS 1 a 1
    (error) ERR value is not an integer or out of range
    > HSETEX h PX 9223372036854775807 FIELDS 1 a 1
    (error) ERR invalid expire time in 'hsetex' command
    > HSETEX str FIELDS 1 a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HSETEX h NX EX -1 FIELDS 1 a 1
    0
    > HSETEX h XX FNX EX -1 FIELDS 1 a 1
    (error) ERR invalid expire time in 'hsetex' command
    > HSETEX h EX 1 PX 1 FIELDS 1 a 1
    (error) ERR syntax error
    > HSETEX h EX 1 EXAT 1 FIELDS 1 a 1
    (error) ERR syntax error
    > HGETEX h PERSIST EX 1 FIELDS 1 a
    (error) ERR syntax error
    > HSETEX h EX 1 a 1 b
    (error) ERR numfields should be greater than 0 and match the provided number of fields
    > HGETALL h
    ["a" "1"]
"#;

#[test]
fn what_is_refused() {
    check(WHAT_IS_REFUSED);
}

const READING_AND_CHANGING: &str = r#"
    > HSETEX h NX EX 7 nx EX 100 FIELDS 2 a 1 b 2
    1
    > HTTL h FIELDS 2 a b
    [100 100]
    > HSETEX h XX FXX KEEPTTL fxx xx keepttl FIELDS 1 a 1
    1
    > HSETEX h KEEPTTL FIELDS 2 a 5 c 3
    1
    > HTTL h FIELDS 3 a b c
    [100 100 -1]
    > HSETEX h FIELDS 1 a 6
    1
    > HTTL h FIELDS 1 a
    [-1]
    > HSETEX h FNX FIELDS 2 a 1 d 1
    0
    > HSETEX h FXX FIELDS 2 a 1 d 1
    0
    > HSETEX h FXX PX 5000 FIELDS 2 a 7 b 7
    1
    > HPTTL h FIELDS 2 a b
    [5000 5000]
    > HSETEX h NX FIELDS 1 a 8
    0
    > HSETEX nosuch XX FIELDS 1 a 8
    0
    > HSETEX new NX EXAT 1800000001 FIELDS 1 a 8
    1
    > HEXPIRETIME new FIELDS 1 a
    [1800000001]
    > HSETEX new XX PXAT 1800000001500 FNX FIELDS 1 b 9
    1
    > HPEXPIRETIME new FIELDS 1 b
    [1800000001500]
    > HSETEX new EXAT 1 FIELDS 2 a 1 zz 2
    1
    > HGETALL new
    ["b" "9"]
    > HSETEX fresh EXAT 1 FIELDS 1 a 1
    1
    > EXISTS fresh
    0
    > HGETEX h FIELDS 3 a zz c
    ["7" (nil) "3"]
    > HGETEX h EX 7 FIELDS 2 a zz
    ["7" (nil)]
    > HTTL h FIELDS 2 a zz
    [7 -2]
    > HGETEX h PX 7500 FIELDS 1 b
    ["7"]
    > HPTTL h FIELDS 1 b
    [7500]
    > HGETEX h EXAT 1800000009 FIELDS 1 b
    ["7"]
    > HGETEX h PXAT 1800000009500 FIELDS 1 c
    ["3"]
    > HPEXPIRETIME h FIELDS 3 a b c
    [1800000007000 1800000009000 1800000009500]
    > HGETEX h PERSIST FIELDS 3 a b zz
    ["7" "7" (nil)]
    > HTTL h FIELDS 3 a b c
    [-1 -1 10]
    > HGETEX h PXAT 5 FIELDS 2 a zz
    ["7" (nil)]
    > HKEYS h
    ["b" "c"]
    > HGETEX nosuch EX 5 FIELDS 1 a
    [(nil)]
    > HGETDEL h fields 2 b zz
    ["7" (nil)]
    > HGETDEL nosuch FIELDS 1 b
    [(nil)]
    > HGETDEL h FIELDS 1 c
    ["3"]
    > EXISTS h
    0
"#;

#[test]
fn reading_and_changing() {
    check(READING_AND_CHANGING);
}

#[test]
fn expired_fields_go_by_themselves() {
    let mut talk = Talk::new();
    talk.engine().journal().start(0, Box::new(|| {}));
    let listener = talk.join();
    talk.say(0, "CONFIG SET notify-keyspace-events Ehgx");
    for line in
        ["HSET h a 1 b 2 c 3", "HPEXPIRE h 100 FIELDS 1 a", "HPEXPIRE h 300 FIELDS 1 b", "HSETEX i PX 200 FIELDS 1 x 1"]
    {
        talk.say(0, line);
    }
    talk.say(0, "COPY h j");
    talk.say(0, "RENAME i k");
    talk.say(0, "MOVE j 1");
    talk.say(listener, "PSUBSCRIBE *");
    logged(&talk);
    talk.wait(150);
    talk.tick();
    assert_eq!(logged(&talk).matches("*3 $4 HDEL $1 h $1 a ").count(), 1);
    assert_eq!(super::readable(&talk.mail(listener)).matches("hexpired").count(), 2, "of both databases");
    talk.wait(100);
    talk.tick();
    assert_eq!(logged(&talk), "*3 $4 HDEL $1 k $1 x *2 $6 UNLINK $1 k ");
    let heard = super::readable(&talk.mail(listener));
    assert!(
        heard.contains("\"__keyevent@0__:hexpired\" \"k\"") && heard.contains("\"__keyevent@0__:del\" \"k\""),
        "{heard}"
    );
    talk.say(0, "HPERSIST h FIELDS 1 b");
    talk.wait(1_000);
    talk.tick();
    assert_eq!(talk.say(0, "HGETALL h"), "[\"b\" \"2\" \"c\" \"3\"]");
    assert_eq!(talk.say(0, "DBSIZE"), "1");
    talk.say(0, "SELECT 1");
    assert_eq!(talk.say(0, "HGETALL j"), "[\"c\" \"3\"]");
}

#[test]
fn a_hash_without_live_fields_is_there_until_they_are_taken_out() {
    let mut talk = Talk::new();
    talk.engine().journal().start(0, Box::new(|| {}));
    for (line, reply) in [("HSETEX h PX 100 FIELDS 2 a 1 b 2", "1"), ("HPEXPIRE h 50 FIELDS 1 a", "[1]")] {
        assert_eq!(talk.say(0, line), reply);
    }
    logged(&talk);
    talk.wait(60);
    assert_eq!(talk.say(0, "EXISTS h"), "1");
    talk.wait(60);
    for (line, reply) in [
        ("KEYS *", "[\"h\"]"),
        ("RANDOMKEY", "\"h\""),
        ("EXISTS h", "1"),
        ("TYPE h", "hash"),
        ("HLEN h", "2"),
        ("HGETALL h", "[]"),
        ("HEXISTS h a", "0"),
        ("HRANDFIELD h", "(nil)"),
        ("HDEL h a", "0"),
        ("HGETDEL h FIELDS 1 a", "[(nil)]"),
        ("HLEN h", "2"),
        ("COPY h i", "1"),
        ("HSET h a 3", "1"),
        ("HTTL h FIELDS 2 a b", "[-1 -2]"),
        ("HLEN h", "2"),
        ("DBSIZE", "2"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    logged(&talk);
    talk.tick();
    assert_eq!(logged(&talk), "*3 $4 HDEL $1 h $1 b *4 $4 HDEL $1 i $1 a $1 b *2 $6 UNLINK $1 i ");
    assert_eq!(talk.say(0, "HGETALL h"), "[\"a\" \"3\"]");
    assert_eq!(talk.say(0, "KEYS *"), "[\"h\"]");
}

#[test]
fn hashes_that_go_are_not_looked_for() {
    let mut talk = Talk::new();
    let set = "HSETEX h PX 100 FIELDS 1 a 1";
    for line in [
        "DEL h",
        "SET h 1",
        "FLUSHDB",
        "FLUSHALL",
        "RENAME h i",
        "SWAPDB 0 1",
        "HDEL h a",
        "HPERSIST h FIELDS 1 a",
        "RESTORE h 0 x",
        "HPEXPIRE h 5000 FIELDS 1 a",
        "HPEXPIRE h 10 FIELDS 1 a",
        "HGETEX h PX 1 FIELDS 1 a",
        "HGETDEL h FIELDS 1 a",
        "COPY h i REPLACE",
    ] {
        talk.say(0, set);
        talk.say(0, line);
        talk.say(0, set);
        talk.wait(200);
        talk.tick();
        assert_eq!(talk.say(0, "TYPE h"), if line.starts_with("SET") { "string" } else { "none" }, "{line}");
        talk.say(0, "FLUSHALL");
    }
}

/// A field of `INFO stats`, and how many keys of the first database have fields that expire.
fn counts(talk: &mut Talk) -> (String, usize) {
    let stats = talk.say(0, "INFO stats");
    let field = stats.split("expired_fields:").nth(1).unwrap();
    let keys = talk.say(0, "INFO keyspace");
    let first = keys.split("db0:").nth(1);
    let volatile = first.and_then(|first| first.split("keys_with_volatile_items=").nth(1));
    let volatile = volatile.map_or(0, |rest| rest.split('\\').next().unwrap().parse().unwrap());
    (field.split('\\').next().unwrap().into(), volatile)
}

#[test]
fn keys_with_fields_that_expire_and_fields_that_expired_are_counted() {
    let mut talk = Talk::new();
    for (line, fields, keys) in [
        ("HSET h a 1 b 2 c 3 d 4", 0, 0),
        ("HEXPIRE h 100 FIELDS 2 a b", 0, 1),
        ("HPERSIST h FIELDS 1 a", 0, 1),
        ("HPERSIST h FIELDS 1 b", 0, 0),
        ("HGETEX h EX 100 FIELDS 1 a", 0, 1),
        ("COPY h i", 0, 2),
        ("HGETEX i PERSIST FIELDS 1 a", 0, 1),
        ("HSET h a 2", 0, 0),
        ("HSETEX h EX 100 FIELDS 1 a 1", 0, 1),
        ("HSETEX h FIELDS 1 a 1", 0, 0),
        ("HSETEX h EX 100 FIELDS 1 a 1", 0, 1),
        ("HDEL h a", 0, 0),
        ("HSETEX h EX 100 FIELDS 1 a 1", 0, 1),
        ("HGETDEL h FIELDS 1 a", 0, 0),
        ("HSETEX h EX 100 FIELDS 1 a 1", 0, 1),
        ("SWAPDB 0 1", 0, 0),
        ("SWAPDB 0 1", 0, 1),
        ("HEXPIRE h 0 FIELDS 2 a nosuch", 1, 0),
        ("HGETEX h EXAT 1 FIELDS 2 b nosuch", 2, 0),
        ("HSETEX h PXAT 1 FIELDS 2 c 1 nosuch 2", 4, 0),
        ("HSETEX h EX 100 FIELDS 1 d 1", 4, 1),
        ("FLUSHALL", 4, 0),
    ] {
        talk.say(0, line);
        assert_eq!(counts(&mut talk), (fields.to_string(), keys), "{line}");
    }
    for line in ["HSETEX h PX 10 FIELDS 1 n 1", "HSET h other 1", "DEBUG SET-ACTIVE-EXPIRE 0"] {
        talk.say(0, line);
    }
    talk.wait(20);
    talk.say(0, "HINCRBY h n 5");
    assert_eq!(counts(&mut talk), ("5".into(), 0), "one was found to have expired");
    assert_eq!(talk.say(0, "HGET h n"), "\"5\"");
}

/// A fixed word is looked at, not only counted.
#[test]
fn the_word_fields_is_demanded() {
    let mut talk = Talk::new();
    talk.say(0, "HSET h x 1 y 2");
    for name in ["HGETDEL", "HPERSIST", "HTTL", "HPTTL", "HEXPIRETIME", "HPEXPIRETIME"] {
        for word in ["bogus", "FIELD", "1", "\"\""] {
            let call = format!("{name} h {word} 1 x");
            assert_eq!(talk.say(0, &call), "(error) ERR syntax error", "{call}");
        }
        assert_ne!(talk.say(0, &format!("{name} nosuch fields 1 x")), "(error) ERR syntax error", "{name}");
    }
    assert_eq!(talk.say(0, "HGETALL h"), "[\"x\" \"1\" \"y\" \"2\"]");
}
