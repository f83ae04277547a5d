//! Sets. Most of what is expected was taken from Valkey 8.1.

use super::{Talk, check};

const MEMBERS_COME_AND_GO: &str = r#"
    > SADD s 1 2 3
    3
    > OBJECT ENCODING s
    "intset"
    > SADD s 3 4
    1
    > SMEMBERS s
    ["1" "2" "3" "4"]
    > SADD s a
    1
    > OBJECT ENCODING s
    "listpack"
    > SMEMBERS s
    ["1" "2" "3" "4" "a"]
    > SCARD s
    5
    > SCARD nosuch
    0
    > SISMEMBER s a
    1
    > SISMEMBER s 1
    1
    > SISMEMBER s zz
    0
    > SISMEMBER nosuch zz
    0
    > SMISMEMBER s a b 1
    [1 0 1]
    > SMISMEMBER nosuch a b
    [0 0]
    > SREM s a nosuch
    1
    > SREM nosuch a
    0
    > SREM s 1 2 3 4 5
    4
    > EXISTS s
    0
    > SADD s
    (error) ERR wrong number of arguments for 'sadd' command
"#;

#[test]
fn members_come_and_go() {
    check(MEMBERS_COME_AND_GO);
}

const WRONG_KINDS_ARE_REFUSED: &str = r#"
    > SADD s x
    1
    > SET str x
    OK
    > SADD str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SREM str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SISMEMBER str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SMISMEMBER str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SCARD str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SMEMBERS str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SPOP str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SPOP str 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SRANDMEMBER str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SRANDMEMBER str 1
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SMOVE str s a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SMOVE s str a
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SMOVE nosuch str a
    0
    > SMOVE s str nosuch
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SINTER str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SINTER nosuch str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SUNION nosuch str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SDIFF nosuch str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SDIFF s str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SINTERSTORE d s str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SUNIONSTORE d s str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SDIFFSTORE d s str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SINTERCARD 1 str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SINTERCARD 2 nosuch str
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
    > SSCAN str 0
    (error) WRONGTYPE Operation against a key holding the wrong kind of value
"#;

#[test]
fn wrong_kinds_are_refused() {
    check(WRONG_KINDS_ARE_REFUSED);
}

const OPERATIONS_ON_SEVERAL_SETS: &str = r#"
    > SADD a x y z
    3
    > SADD b y z w
    3
    > SINTER a b
    ["y" "z"]
    > SDIFF a b
    ["x"]
    > SDIFF b a
    ["w"]
    > SDIFF a nosuch b
    ["x"]
    > SDIFF nosuch a
    []
    > SINTER a nosuch
    []
    > SINTERCARD 2 a b
    2
    > SINTERCARD 2 a b LIMIT 1
    1
    > SINTERCARD 2 a b LIMIT 0
    2
    > SINTERCARD 2 a b LIMIT -1
    (error) ERR LIMIT can't be negative
    > SINTERCARD 2 a b LIMIT x
    (error) ERR LIMIT can't be negative
    > SINTERCARD 2 a b LIMIT
    (error) ERR syntax error
    > SINTERCARD 2 a b FOO 1
    (error) ERR syntax error
    > SINTERCARD 0 a
    (error) ERR numkeys should be greater than 0
    > SINTERCARD -1 a
    (error) ERR numkeys should be greater than 0
    > SINTERCARD x a
    (error) ERR numkeys should be greater than 0
    > SINTERCARD 3 a b
    (error) ERR Number of keys can't be greater than number of args
    > SINTERCARD 1 a b
    (error) ERR syntax error
    > SINTERCARD 1 a LIMIT 2 LIMIT 1
    1
    > SINTERSTORE d a b
    2
    > SMEMBERS d
    ["y" "z"]
    > SUNIONSTORE d a b
    4
    > SMEMBERS d
    ["x" "y" "z" "w"]
    > SDIFFSTORE d a b
    1
    > SMEMBERS d
    ["x"]
    > OBJECT ENCODING d
    "listpack"
    > SINTERSTORE d a nosuch
    0
    > EXISTS d
    0
    > SUNIONSTORE str nosuch
    0
    > EXISTS str
    0
    > SDIFFSTORE d nosuch a
    0
    > SUNIONSTORE a a b
    4
    > SMEMBERS a
    ["x" "y" "z" "w"]
    > SMOVE a b x
    1
    > SMOVE a b x
    0
    > SMOVE a a y
    1
    > SMOVE a a nosuch
    0
    > SMOVE a newset y
    1
    > SMEMBERS newset
    ["y"]
    > SMOVE a b y
    0
    > SMEMBERS b
    ["y" "z" "w" "x"]
"#;

#[test]
fn operations_on_several_sets() {
    check(OPERATIONS_ON_SEVERAL_SETS);
}

const CHANCE_AND_SCANS: &str = r#"
    > SADD a x y
    2
    > SADD b y
    1
    > SPOP nosuch
    (nil)
    > SPOP nosuch 2
    []
    > SPOP a 0
    []
    > SPOP a -1
    (error) ERR value is out of range, must be positive
    > SPOP a x
    (error) ERR value is out of range, must be positive
    > SPOP a 1 2
    (error) ERR syntax error
    > DEL a
    1
    > EXISTS a
    0
    > SADD one x
    1
    > SPOP one
    "x"
    > EXISTS one
    0
    > SRANDMEMBER nosuch
    (nil)
    > SRANDMEMBER nosuch 2
    []
    > SRANDMEMBER b 0
    []
    > SRANDMEMBER b x
    (error) ERR value is not an integer or out of range
    > SRANDMEMBER b 1 2
    (error) ERR syntax error
    > SRANDMEMBER b -9223372036854775808
    (error) ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
    > SRANDMEMBER b 9223372036854775808
    (error) ERR value is not an integer or out of range
    > SRANDMEMBER b 100
    ["y"]
    > SADD one x
    1
    > SRANDMEMBER one
    "x"
    > SRANDMEMBER one -3
    ["x" "x" "x"]
    > SPOP one 1
    ["x"]
    > SSCAN nosuch 0
    ["0" []]
    > SSCAN nosuch 0 FOO
    ["0" []]
    > SSCAN nosuch x
    (error) ERR invalid cursor
    > SSCAN b x
    (error) ERR invalid cursor
    > SSCAN b +1
    ["0" ["y"]]
    > SSCAN b -1
    (error) ERR invalid cursor
    > SSCAN b 0x
    (error) ERR invalid cursor
    > SSCAN b ""
    (error) ERR invalid cursor
    > SSCAN b 99999999999999999999999
    (error) ERR invalid cursor
    > SADD q 1 2 3
    3
    > SSCAN q 0
    ["0" ["1" "2" "3"]]
    > SSCAN q 0 MATCH 2
    ["0" ["2"]]
    > SSCAN q 0 MATCH 2 COUNT 5
    ["0" ["2"]]
    > SSCAN q 0 COUNT 0
    (error) ERR syntax error
    > SSCAN q 0 COUNT -1
    (error) ERR syntax error
    > SSCAN q 0 COUNT x
    (error) ERR value is not an integer or out of range
    > SSCAN q 0 COUNT
    (error) ERR syntax error
    > SSCAN q 0 MATCH
    (error) ERR syntax error
    > SSCAN q 0 NOSCORES
    (error) ERR NOSCORES option can only be used in ZSCAN
    > SCAN 0 NOSCORES
    (error) ERR NOSCORES option can only be used in ZSCAN
    > SCAN 0 NOVALUES COUNT x
    (error) ERR NOVALUES option can only be used in HSCAN
    > SSCAN q 0 NOVALUES
    (error) ERR NOVALUES option can only be used in HSCAN
    > SSCAN q 0 TYPE set
    (error) ERR syntax error
    > SSCAN q 0 FOO bar
    (error) ERR syntax error
"#;

#[test]
fn chance_and_scans() {
    check(CHANCE_AND_SCANS);
}

const FORMS: &str = r#"
    > SADD q 1 2 3
    3
    > SADD big 1 2 3 4 5 6 7 8 9 10
    10
    > SADD l1 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    1
    > OBJECT ENCODING l1
    "hashtable"
    > SUNIONSTORE u big q
    10
    > OBJECT ENCODING u
    "intset"
    > SUNIONSTORE u big q l1
    11
    > OBJECT ENCODING u
    "hashtable"
    > SDIFFSTORE u big q
    7
    > OBJECT ENCODING u
    "intset"
    > SINTERSTORE u big q
    3
    > OBJECT ENCODING u
    "intset"
    > SADD mix 1 2 x
    3
    > SINTERSTORE u mix q
    2
    > OBJECT ENCODING u
    "intset"
    > SINTER
    (error) ERR wrong number of arguments for 'sinter' command
    > SINTERSTORE d
    (error) ERR wrong number of arguments for 'sinterstore' command
    > SUNIONSTORE d
    (error) ERR wrong number of arguments for 'sunionstore' command
    > SMOVE a b
    (error) ERR wrong number of arguments for 'smove' command
    > SPOP
    (error) ERR wrong number of arguments for 'spop' command
    > SRANDMEMBER
    (error) ERR wrong number of arguments for 'srandmember' command
    > SSCAN q
    (error) ERR wrong number of arguments for 'sscan' command
    > SMISMEMBER a
    (error) ERR wrong number of arguments for 'smismember' command
    > SET e x PX 1
    OK
    > SINTERSTORE e q big
    3
    > TTL e
    -1
    > SADD w 9223372036854775807 -9223372036854775808 01 "" -0 +1
    6
    > OBJECT ENCODING w
    "listpack"
    > SMEMBERS w
    ["-9223372036854775808" "9223372036854775807" "01" "" "-0" "+1"]
    > TYPE w
    set
"#;

#[test]
fn forms() {
    check(FORMS);
}

#[test]
fn large_sets_and_chance() {
    let mut talk = Talk::new();
    let members: Vec<String> = (0..513).map(|number| number.to_string()).collect();
    assert_eq!(talk.say(0, &format!("SADD a {}", members[..512].join(" "))), "512");
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"intset\"");
    assert_eq!(talk.say(0, "SADD a 512"), "1");
    assert_eq!(talk.say(0, "OBJECT ENCODING a"), "\"hashtable\"");
    let mut scanned = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = talk.say(0, &format!("SSCAN a {cursor} COUNT 20"));
        let (next, found) = reply[1..reply.len() - 2].split_once(" [").unwrap();
        found.split(' ').filter(|member| !member.is_empty()).for_each(|member| {
            assert!(scanned.insert(member.to_owned()), "{member} came twice");
        });
        cursor = next.trim_matches('"').to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(scanned.len(), 513);
    for (line, count) in [("SRANDMEMBER a 5", 5), ("SRANDMEMBER a -600", 600), ("SPOP a 500", 500), ("SPOP a 9", 9)] {
        assert_eq!(talk.say(0, line).split(' ').count(), count, "{line}");
    }
    assert!(talk.say(0, "SPOP a").starts_with('"'));
    assert_eq!(talk.say(0, "SCARD a"), "3");
    assert_eq!(talk.say(0, "SISMEMBER a x"), "0");
    talk.say(0, "HELLO 3");
    assert!(talk.raw(0, b"SMEMBERS a\r\n").starts_with(b"~3\r\n"));
    assert!(talk.raw(0, b"SRANDMEMBER a 2\r\n").starts_with(b"*2\r\n"));
    assert!(talk.raw(0, b"SPOP a 3\r\n").starts_with(b"~3\r\n"));
    assert_eq!(talk.raw(0, b"EXISTS a\r\n"), b":0\r\n");
}
