//! `DEBUG`, as far as it can be told apart from doing nothing.

use super::{Talk, check};

#[test]
fn digests_tell_states_apart_and_nothing_else() {
    let mut talk = Talk::new();
    let zero = "0".repeat(40);
    assert_eq!(talk.say(0, "DEBUG DIGEST"), zero);
    assert_eq!(talk.say(0, "DEBUG DIGEST-VALUE nosuch"), format!("[{zero}]"));
    for (one, other) in [
        ("SADD s a b 3", "SADD s 3 b a"),
        ("ZADD z 1 a 2.5 b", "ZADD z 2.5 b 1 a"),
        ("HSET h a 1 b 2", "HSET h b 2 a 1"),
        ("RPUSH l a 1", "RPUSH l a 1"),
        ("XADD x 1-1 a b", "XADD x 1-1 a b"),
        ("SET k v", "SET k v"),
    ] {
        talk.say(0, one);
        let first = talk.say(0, "DEBUG DIGEST");
        assert_ne!(first, zero, "{one}");
        talk.say(0, "FLUSHALL");
        talk.say(0, other);
        assert_eq!(talk.say(0, "DEBUG DIGEST"), first, "{one}");
        let key = one.split(' ').nth(1).unwrap();
        let value = talk.say(0, &format!("DEBUG DIGEST-VALUE {key}"));
        talk.say(0, &format!("EXPIRE {key} 100"));
        assert_ne!(talk.say(0, "DEBUG DIGEST"), first, "{one} with an expiry");
        assert_ne!(talk.say(0, &format!("DEBUG DIGEST-VALUE {key}")), value);
        talk.say(0, &format!("PERSIST {key}"));
        assert_eq!(talk.say(0, "DEBUG RELOAD"), "OK");
        assert_eq!(talk.say(0, "DEBUG DIGEST"), first, "{one} written down and read again");
        talk.say(0, "FLUSHALL");
    }
    talk.say(0, "RPUSH l a b");
    let ab = talk.say(0, "DEBUG DIGEST");
    talk.say(0, "RPUSH l a");
    talk.say(0, "LPOP l");
    assert_ne!(talk.say(0, "DEBUG DIGEST"), ab, "order matters in a list");
}

#[test]
fn tables_shrink_when_keys_expire() {
    let mut talk = Talk::new();
    let sizes = |talk: &mut Talk| -> Vec<usize> {
        let text = talk.say(0, "DEBUG HTSTATS 0");
        text.split("table size: ").skip(1).map(|rest| rest.split('\\').next().unwrap().parse().unwrap()).collect()
    };
    (0..5).for_each(|key| drop(talk.say(0, &format!("SET kept{key} v"))));
    let few = sizes(&mut talk);
    (0..300).for_each(|key| drop(talk.say(0, &format!("SET gone{key} v PX 5"))));
    let many = sizes(&mut talk);
    assert!(many[0] >= 305 && many[1] >= 300, "{many:?}");
    talk.wait(10);
    talk.tick();
    assert_eq!(talk.say(0, "DBSIZE"), "5");
    assert_eq!(sizes(&mut talk), few);
}

/// Worked out by hand from what the digest is: the kind as four bytes, then the value, each mixed in with SHA-1.
#[test]
fn the_digest_is_a_known_one() {
    let mut talk = Talk::new();
    talk.say(0, "SET foo bar");
    assert_eq!(talk.say(0, "DEBUG DIGEST-VALUE foo"), "[68467c70ae30376e7ce005bcc8827f5ba7fd67dc]");
}

#[test]
fn keys_that_expired_stay_while_nobody_looks() {
    let mut talk = Talk::new();
    talk.say(0, "SET a 1 PX 5");
    assert_eq!(talk.say(0, "DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    talk.wait(10);
    talk.tick();
    assert_eq!(talk.say(0, "DBSIZE"), "1");
    assert_eq!(talk.say(0, "DEBUG SET-ACTIVE-EXPIRE 1"), "OK");
    talk.tick();
    assert_eq!(talk.say(0, "DBSIZE"), "0");
}

#[test]
fn what_tests_ask_for() {
    check(
        r#"
        > DEBUG NOSUCH
        (error) ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP.
        > DEBUG SLEEP
        (error) ERR unknown subcommand or wrong number of arguments for 'SLEEP'. Try DEBUG HELP.
        > DEBUG SLEEP 0.1
        OK
        > DEBUG OBJECT nosuch
        (error) ERR no such key
        > DEBUG LISTPACK nosuch
        (error) ERR no such key
        > SET a b
        OK
        > DEBUG LISTPACK a
        (error) ERR Not a listpack encoded object.
        > DEBUG HTSTATS-KEY a
        (error) ERR The value stored at the specified key is not represented using an hash table
        > DEBUG HTSTATS 99
        (error) ERR Out of range database
        > DEBUG HTSTATS 0
        "[Dictionary HT]\nHash table 0 stats (main hash table):\n table size: 8\n number of entries: 1\n[Expires HT]\nHash table 0 stats (main hash table):\n table size: 0\n number of entries: 0\n"
        > DEBUG POPULATE 3 x 8
        OK
        > GET x:2
        "value:2\x00"
        > DBSIZE
        4
        > DEBUG PROTOCOL push
        (error) ERR RESP2 is not supported by this command
        > DEBUG PROTOCOL map
        [0 0 1 1 2 0]
        %3
        > DEBUG PROTOCOL bignum
        1234567999999999999999999999999999999
        > DEBUG PROTOCOL verbatim
        "txt:This is a verbatim\nstring"
        > DEBUG ERROR 'MY own'
        (error) MY own
        > DEBUG RELOAD nosuch
        (error) ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.
        > DEBUG QUICKLIST-PACKED-THRESHOLD 5gb
        (error) ERR argument must be a memory value bigger than 1 and smaller than 4gb
    "#,
    );
    let mut talk = Talk::new();
    talk.say(0, "RPUSH l a b c");
    let text = talk.say(0, "DEBUG OBJECT l");
    assert!(text.contains("refcount:1 encoding:listpack serializedlength:"), "{text}");
    assert!(!talk.say(0, "DEBUG OBJECT l fast").contains("serializedlength"));
    talk.say(0, "CONFIG SET list-max-listpack-size 1");
    talk.say(0, "RPUSH q a b c");
    assert!(
        talk.say(0, "DEBUG OBJECT q").contains("encoding:quicklist")
            && talk.say(0, "DEBUG OBJECT q").contains("ql_nodes:3")
    );
}

#[test]
fn it_must_be_allowed() {
    let mut talk = Talk::new();
    let refused = "(error) ERR DEBUG command not allowed.";
    for (how, is_allowed) in [("no", false), ("local", true), ("yes", true)] {
        talk.engine().configure("enable-debug-command", how).unwrap();
        assert_eq!(!talk.say(0, "DEBUG SLEEP 0").starts_with(refused), is_allowed, "{how}");
    }
}
