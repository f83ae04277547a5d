//! Strings.

use super::{Talk, check};

#[test]
fn set_and_get() {
    check(
        r#"
        > PING
        PONG
        > GET a
        (nil)
        > SET a "hello world"
        OK
        > GET a
        "hello world"
        > SET a 1 NX
        (nil)
        > SET a 2 XX GET
        "hello world"
        > SET a 3 IFEQ 1
        (nil)
        > SET a 3 IFEQ 2
        OK
        > SET b 1 XX
        (nil)
        > SET a 1 NX XX
        (error) ERR syntax error
        > SET a 1 EX 0
        (error) ERR invalid expire time in 'set' command
        > SET a 1 EX x
        (error) ERR value is not an integer or out of range
        > GETSET a 9
        "3"
        > GETDEL a
        "9"
        > GET a
        (nil)
        > SET
        (error) ERR wrong number of arguments for 'set' command
        > CLIENT NOSUCH
        (error) ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.
    "#,
    );
}

#[test]
fn strings_expire() {
    check(
        r#"
        > SET a 1 PX 100
        OK
        > GETEX a PERSIST
        "1"
        +200
        > GET a
        "1"
        > SETEX a 1 x
        OK
        > SET a y KEEPTTL
        OK
        +999
        > GET a
        "y"
        +1
        > GET a
        (nil)
        > PSETEX a 5 x
        OK
        +5
        > STRLEN a
        0
        > SET a 1 PXAT 1
        OK
        > GET a
        (nil)
    "#,
    );
}

#[test]
fn parts_and_numbers() {
    check(
        r#"
        > APPEND a abc
        3
        > APPEND a def
        6
        > GETRANGE a 1 -2
        "bcde"
        > GETRANGE a -100 100
        "abcdef"
        > GETRANGE a 5 2
        ""
        > SUBSTR a 0 0
        "a"
        > SETRANGE a 8 X
        9
        > GET a
        "abcdef\x00\x00X"
        > SETRANGE b 3 ""
        0
        > SETRANGE a -1 x
        (error) ERR offset is out of range
        > INCR a
        (error) ERR value is not an integer or out of range
        > INCR n
        1
        > INCRBY n 41
        42
        > DECRBY n 2
        40
        > DECR n
        39
        > SET n 9223372036854775807
        OK
        > INCR n
        (error) ERR increment or decrement would overflow
        > SET f 10.5
        OK
        > INCRBYFLOAT f 0.1
        "10.6"
        > INCRBYFLOAT f 5.0e3
        "5010.60000000000000009"
        > SET tenth 0.1
        OK
        > INCRBYFLOAT tenth 0.2
        "0.3"
        > INCRBYFLOAT f nan
        (error) ERR value is not a valid float
        > MSET x 1 y 2 z 3
        OK
        > MSETNX q 1 x 5
        0
        > MGET x y nosuch z q
        ["1" "2" (nil) "3" (nil)]
        > MSET x
        (error) ERR wrong number of arguments for 'mset' command
    "#,
    );
}

#[test]
fn long_strings_grow_and_shrink() {
    let mut talk = Talk::new();
    let long = "x".repeat(50_000);
    for step in 1..=20 {
        assert_eq!(talk.say(0, &format!("APPEND a {long}")), (step * 50_000).to_string());
    }
    assert_eq!(talk.say(0, "GETRANGE a 999998 -1"), "\"xx\"");
    assert_eq!(talk.say(0, "SET a s"), "OK");
    assert_eq!(talk.say(0, "STRLEN a"), "1");
}

/// A conversation cannot show blanks at the end of a line, and clients see them.
#[test]
fn errors_keep_the_blanks_at_their_end() {
    let mut talk = Talk::new();
    assert_eq!(
        talk.raw(0, b"NOSUCH a bb\r\n"),
        b"-ERR unknown command 'NOSUCH', with args beginning with: 'a' 'bb' \r\n"
    );
    assert_eq!(talk.raw(0, b"EXPIRE a 1 \"\"\r\n"), b"-ERR Unsupported option \r\n");
}

#[test]
fn a_pipeline_in_pieces() {
    let mut talk = Talk::new();
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
    assert_eq!(talk.raw(0, bytes), b"+OK\r\n$1\r\n1\r\n");
    assert_eq!(
        talk.raw(0, b"*1\r\n$4\r\nPING\r\n*x\r\n"),
        b"+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n"
    );
}

#[test]
fn databases_and_protocols() {
    let mut talk = Talk::new();
    for (line, reply) in [
        ("SET a 1", "OK"),
        ("SELECT 1", "OK"),
        ("GET a", "(nil)"),
        ("SELECT 16", "(error) ERR DB index is out of range"),
        ("SELECT 2147483648", "(error) ERR value is out of range, value must between -2147483648 and 2147483647"),
        ("SWAPDB 0 16", "(error) ERR DB index is out of range"),
        ("SWAPDB 2147483648 0", "(error) ERR invalid first DB index"),
        ("SWAPDB 16 x", "(error) ERR invalid second DB index"),
        ("SELECT 0", "OK"),
        ("CLIENT SETNAME me", "OK"),
        ("CLIENT GETNAME", "\"me\""),
        ("CLIENT REPLY SKIP", ""),
        ("PING", ""),
        ("PING", "PONG"),
        ("CLIENT REPLY OFF", ""),
        ("PING", ""),
        ("CLIENT REPLY ON", "OK"),
        ("RESET", "RESET"),
    ] {
        assert_eq!(talk.say(0, line), reply, "{line}");
    }
    let hello = talk.say(0, "HELLO 3");
    assert!(hello.starts_with("{\"server\": \"valkey\"") && hello.contains("\"proto\": 3"), "{hello}");
    assert_eq!(talk.say(0, "GET nosuch"), "(nil)");
    assert_eq!(talk.raw(0, b"GET nosuch\r\n"), b"_\r\n");
}

#[test]
fn the_longest_common_subsequence() {
    check(
        r#"
        > MSET a ohmytext b mynewtext
        OK
        > LCS a b
        "mytext"
        > LCS a b LEN
        6
        > LCS a b IDX
        ["matches" [[[4 7] [5 8]] [[2 3] [0 1]]] "len" 6]
        > LCS a b IDX MINMATCHLEN 4 WITHMATCHLEN
        ["matches" [[[4 7] [5 8] 4]] "len" 6]
        > LCS a nosuch
        ""
        > LCS a nosuch LEN
        0
        > LCS a b IDX LEN
        (error) ERR If you want both the length and indexes, please just use IDX.
        > LCS a b WHAT
        (error) ERR syntax error
        > LPUSH l x
        1
        > LCS a l
        (error) ERR The specified keys must contain string values
    "#,
    );
}

#[test]
fn several_strings_that_expire() {
    check(
        r#"
        > MSETEX 2 a 1 b 2
        1
        > MSETEX 2 b 3 c 4 NX
        0
        > MSETEX 2 b 3 c 4 XX
        0
        > MGET a b c
        ["1" "2" (nil)]
        > MSETEX 2 c 4 d 5 NX EX 100
        1
        > TTL d
        100
        > MSETEX 2 c 6 d 7 XX KEEPTTL
        1
        > TTL d
        100
        > MGET c d
        ["6" "7"]
        > MSETEX 0 a 1
        (error) ERR invalid numkeys value or out of range
        > MSETEX 2147483648 a 1
        (error) ERR invalid numkeys value or out of range
        > MSETEX 1.5 a 1
        (error) ERR invalid numkeys value or out of range
        > MSETEX 3 a 1 b 2
        (error) ERR syntax error
        > MSETEX 1 a 1 EX x KEEPTTL
        (error) ERR syntax error
        > SET a 1 EX x NOSUCH
        (error) ERR syntax error
        > GETEX a EX x PERSIST
        (error) ERR syntax error
        > MSETEX 1 a 1 GET
        (error) ERR syntax error
        > MSETEX 1 a 1 EX 0
        (error) ERR invalid expire time in 'msetex' command
    "#,
    );
}
