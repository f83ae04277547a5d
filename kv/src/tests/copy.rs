//! Copies of keys. Most of what is expected was taken from Valkey 8.1.

use super::check;

const VALUES_ARE_COPIED: &str = r#"
    > SET a 1
    OK
    > COPY a b
    1
    > GET b
    "1"
    > COPY a b
    0
    > SET a 2 EX 100
    OK
    > COPY a b REPLACE
    1
    > GET b
    "2"
    > TTL b
    100
    > COPY a a
    (error) ERR source and destination objects are the same
    > COPY a a DB 0
    (error) ERR source and destination objects are the same
    > COPY a a DB 1
    1
    > COPY a a DB 1
    0
    > COPY a c DB 1 REPLACE REPLACE
    1
    > SELECT 1
    OK
    > MGET a c
    ["2" "2"]
    > TTL c
    100
    > FLUSHDB
    OK
    > SELECT 0
    OK
    > COPY nosuch b
    0
    > COPY nosuch b REPLACE
    0
    > GET b
    "2"
    > COPY a b DB 16
    (error) ERR DB index is out of range
    > COPY a b DB -1
    (error) ERR DB index is out of range
    > COPY a b DB x
    (error) ERR value is not an integer or out of range
    > COPY a b DB 99999999999
    (error) ERR value is out of range, value must between -2147483648 and 2147483647
    > COPY a b DB
    (error) ERR syntax error
    > COPY a b FOO
    (error) ERR syntax error
    > COPY a
    (error) ERR wrong number of arguments for 'copy' command
    > SADD s 1 2 3
    3
    > COPY s t
    1
    > SADD t 4
    1
    > SMEMBERS s
    ["1" "2" "3"]
    > SMEMBERS t
    ["1" "2" "3" "4"]
    > OBJECT ENCODING t
    "intset"
    > HSET h a 1
    1
    > COPY h i
    1
    > HSET i b 2
    1
    > HGETALL h
    ["a" "1"]
    > HGETALL i
    ["a" "1" "b" "2"]
    > SADD big a b c d e f g h i j aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    11
    > COPY big big2
    1
    > DEL big
    1
    > SCARD big2
    11
    > OBJECT ENCODING big2
    "hashtable"
    > APPEND r x
    1
    > APPEND r y
    2
    > COPY r r2
    1
    > OBJECT ENCODING r2
    "raw"
    > COPY a r2 REPLACE
    1
    > OBJECT ENCODING r2
    "int"
    > COPY s a REPLACE
    1
    > TYPE a
    set
    > TTL a
    -1
"#;

#[test]
fn values_are_copied() {
    check(VALUES_ARE_COPIED);
}

#[test]
fn object_help() {
    let mut talk = super::Talk::new();
    let reply = talk.say(0, "OBJECT HELP");
    assert!(reply.starts_with("[OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"), "{reply}");
    assert_eq!(talk.say(0, "OBJECT HELP x"), "(error) ERR wrong number of arguments for 'object|help' command");
}
