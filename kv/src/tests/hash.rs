//! Hashes. Most of what is expected was taken from Valkey 8.1.

use super::{Talk, check};

const FIELDS_COME_AND_GO: &str = r#"
    > HSET h a 1 b 2
    2
    > HSET h a 3 c 4
    1
    > HGETALL h
    ["a" "3" "b" "2" "c" "4"]
    > HGET h a
    "3"
    > HGET h zz
    (nil)
    > HGET nosuch a
    (nil)
    > HMGET h a zz c
    ["3" (nil) "4"]
    > HMGET nosuch a b
    [(nil) (nil)]
    > HMSET h d 5
    OK
    > HMSET h d
    (error) ERR wrong number of arguments for 'hmset' command
    > HSET h d
    (error) ERR wrong number of arguments for 'hset' command
    > HSET h a 1 b
    (error) ERR wrong number of arguments for 'hset' command
    > HMSET h a 1 b
    (error) ERR wrong number of arguments for 'hmset' command
    > HKEYS h
    ["a" "b" "c" "d"]
    > HVALS h
    ["3" "2" "4" "5"]
    > HLEN h
    4
    > HKEYS nosuch
    []
    > HVALS nosuch
    []
    > HLEN nosuch
    0
    > HGETALL nosuch
    []
    > HEXISTS h a
    1
    > HEXISTS h zz
    0
    > HEXISTS nosuch a
    0
    > HSTRLEN h a
    1
    > HSTRLEN h zz
    0
    > HSTRLEN nosuch a
    0
    > HSETNX h a 9
    0
    > HSETNX h new 9
    1
    > HSTRLEN h new
    1
    > HSETNX fresh f v
    1
    > HGETALL fresh
    ["f" "v"]
    > HDEL h a zz
    1
    > HDEL h b c d new
    4
    > EXISTS h
    0
    > HDEL h a
    0
    > TYPE fresh
    hash
    > HSET
    (error) ERR wrong number of arguments for 'hset' command
    > HGET h
    (error) ERR wrong number of arguments for 'hget' command
    > HDEL h
    (error) ERR wrong number of arguments for 'hdel' command
    > HSETNX a b
    (error) ERR wrong number of arguments for 'hsetnx' command
    > HLEN
    (error) ERR wrong number of arguments for 'hlen' command
"#;

#[test]
fn fields_come_and_go() {
    check(FIELDS_COME_AND_GO);
}

const NUMBERS: &str = r#"
    > HINCRBY h n 5
    5
    > HINCRBY h n -7
    -2
    > HINCRBY h n x
    (error) ERR value is not an integer or out of range
    > HINCRBY h n 9223372036854775808
    (error) ERR value is not an integer or out of range
    > HSET h t text big 9223372036854775807
    2
    > HINCRBY h t 1
    (error) ERR hash value is not an integer
    > HINCRBY h big 1
    (error) ERR increment or decrement would overflow
    > HINCRBY h big -1
    9223372036854775806
    > HSET h sp " 1"
    1
    > HINCRBY h sp 1
    (error) ERR hash value is not an integer
    > HINCRBYFLOAT h f 10.5
    "10.5"
    > HINCRBYFLOAT h f 0.1
    "10.6"
    > HINCRBYFLOAT h f -5
    "5.6"
    > HINCRBYFLOAT h f 5.0e3
    "5005.60000000000000009"
    > HINCRBYFLOAT h f 1e-5000
    (error) ERR value is not a valid float
    > HINCRBYFLOAT h f x
    (error) ERR value is not a valid float
    > HINCRBYFLOAT h f inf
    (error) ERR value is NaN or Infinity
    > HINCRBYFLOAT h f nan
    (error) ERR value is not a valid float
    > HINCRBYFLOAT h f ""
    (error) ERR value is not a valid float
    > HINCRBYFLOAT h t 1
    (error) ERR hash value is not a float
    > HINCRBYFLOAT h sp 1
    (error) ERR hash value is not a float
    > HINCRBYFLOAT h n 3
    "1"
    > HINCRBYFLOAT fresh n 3.25
    "3.25"
    > HINCRBYFLOAT fresh n 200
    "203.25"
    > HINCRBYFLOAT fresh n 1e2
    "303.25"
    > HINCRBYFLOAT fresh n 0.75
    "304"
    > HGETALL fresh
    ["n" "304"]
    > HSTRLEN h n
    1
"#;

#[test]
fn numbers() {
    check(NUMBERS);
}

const WRONG_KINDS_ARE_REFUSED: &str = r#"
    > SET str x
    OK
    > HSET str a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HMSET str a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HSETNX str a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HGET str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HMGET str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HGETALL str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HKEYS str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HVALS str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HLEN str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HSTRLEN str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HEXISTS str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HDEL str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HINCRBY str a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HINCRBY str a x
    (error) ERR value is not an integer or out of range
    > HINCRBYFLOAT str a 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HRANDFIELD str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HRANDFIELD str 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > HSCAN str 0
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
"#;

#[test]
fn wrong_kinds_are_refused() {
    check(WRONG_KINDS_ARE_REFUSED);
}

const CHANCE_AND_SCANS: &str = r#"
    > HSET h a 1 b 2 c 3
    3
    > HSCAN h 0
    ["0" ["a" "1" "b" "2" "c" "3"]]
    > HSCAN h 0 MATCH b*
    ["0" ["b" "2"]]
    > HSCAN h 0 NOVALUES
    ["0" ["a" "b" "c"]]
    > HSCAN h 0 NOVALUES MATCH b COUNT 1
    ["0" ["b"]]
    > HSCAN h 0 COUNT 0
    (error) ERR syntax error
    > HSCAN h 0 COUNT x
    (error) ERR value is not an integer or out of range
    > HSCAN h 0 COUNT
    (error) ERR syntax error
    > HSCAN h 0 MATCH
    (error) ERR syntax error
    > HSCAN h 0 FOO
    (error) ERR syntax error
    > HSCAN h x
    (error) ERR invalid cursor
    > HSCAN nosuch 0
    ["0" []]
    > HSCAN nosuch x
    (error) ERR invalid cursor
    > HSCAN nosuch 0 FOO
    ["0" []]
    > HRANDFIELD h 10
    ["a" "b" "c"]
    > HRANDFIELD h 10 WITHVALUES
    ["a" "1" "b" "2" "c" "3"]
    > HRANDFIELD h 0
    []
    > HRANDFIELD h x
    (error) ERR value is not an integer or out of range
    > HRANDFIELD h x y
    (error) ERR value is not an integer or out of range
    > HRANDFIELD h 1 y
    (error) ERR syntax error
    > HRANDFIELD h 1 WITHVALUES z
    (error) ERR syntax error
    > HRANDFIELD h -9223372036854775808
    (error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
    > HRANDFIELD h -9223372036854775808 WITHVALUES
    (error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
    > HRANDFIELD h -9223372036854775808 FOO
    (error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
    > HRANDFIELD h 9223372036854775807 WITHVALUES
    (error) ERR value is out of range
    > HRANDFIELD h -9223372036854775807 WITHVALUES
    (error) ERR value is out of range
    > HRANDFIELD nosuch
    (nil)
    > HRANDFIELD nosuch 5
    []
    > HRANDFIELD nosuch 5 WITHVALUES
    []
    > HSET one a 1
    1
    > HRANDFIELD one
    "a"
    > HRANDFIELD one -3
    ["a" "a" "a"]
    > HRANDFIELD one -2 WITHVALUES
    ["a" "1" "a" "1"]
    > HRANDFIELD one 3 withvalues
    ["a" "1"]
"#;

#[test]
fn chance_and_scans() {
    check(CHANCE_AND_SCANS);
}

const FORMS: &str = r#"
    > HSET h a 1
    1
    > OBJECT ENCODING h
    "listpack"
    > HSET h a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    0
    > OBJECT ENCODING h
    "hashtable"
    > HSET h a 1
    0
    > OBJECT ENCODING h
    "hashtable"
    > HGET h a
    "1"
    > HSET g a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    1
    > OBJECT ENCODING g
    "listpack"
    > HSETNX g aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1
    1
    > OBJECT ENCODING g
    "hashtable"
    > HSTRLEN g a
    64
    > HSET i 007 -0 12 34 "" ""
    3
    > HGETALL i
    ["007" "-0" "12" "34" "" ""]
    > HSTRLEN i 12
    2
"#;

#[test]
fn forms() {
    check(FORMS);
}

#[test]
fn large_hashes_and_chance() {
    let mut talk = Talk::new();
    let fields: Vec<String> = (0..513).map(|number| format!("f{number} v{number}")).collect();
    assert_eq!(talk.say(0, &format!("HSET a {}", fields[..512].join(" "))), "512");
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"listpack\"");
    assert_eq!(talk.say(0, "HSET a f512 v512"), "1");
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"hashtable\"");
    for (line, count) in
        [("HRANDFIELD a 5", 5), ("HRANDFIELD a -600", 600), ("HRANDFIELD a 5 WITHVALUES", 10), ("HKEYS a", 513)]
    {
        assert_eq!(talk.say(0, line).split(' ').count(), count, "{line}");
    }
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    loop {
        let reply = talk.say(0, &format!("HSCAN a {cursor} COUNT 20 MATCH f5* NOVALUES"));
        let (next, names) = reply[1..reply.len() - 2].split_once(" [").unwrap();
        found += names.split(' ').filter(|name| !name.is_empty()).count();
        cursor = next.trim_matches('"').to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 1 + 10 + 13);
    talk.say(0, "HELLO 3");
    assert!(talk.raw(0, b"HGETALL a\r\n").starts_with(b"%513\r\n"));
    assert!(talk.raw(0, b"HRANDFIELD a 2 WITHVALUES\r\n").starts_with(b"*2\r\n*2\r\n"));
}
