//! Messages, and events of keys.

use super::{Talk, check, readable};

fn mail(talk: &mut Talk, client: usize) -> String {
    readable(&talk.mail(client))
}

#[test]
fn messages_reach_whoever_listens() {
    let mut talk = Talk::new();
    let (listener, modern) = (talk.join(), talk.join());
    talk.say(modern, "HELLO 3");
    for (client, line, reply) in [
        (0, "PUBLISH a hello", "0"),
        (listener, "SUBSCRIBE a b", "[\"subscribe\" \"a\" 1]\n[\"subscribe\" \"b\" 2]"),
        (modern, "PSUBSCRIBE a*", ">[\"psubscribe\" \"a*\" 1]"),
        (modern, "SSUBSCRIBE s", ">[\"ssubscribe\" \"s\" 1]"),
        (0, "PUBLISH a hello", "2"),
        (0, "PUBLISH ab hello", "1"),
        (0, "SPUBLISH s hi", "1"),
        (0, "PUBSUB CHANNELS", "[\"a\" \"b\"]"),
        (0, "PUBSUB CHANNELS b*", "[\"b\"]"),
        (0, "PUBSUB NUMSUB a nosuch", "[\"a\" 1 \"nosuch\" 0]"),
        (0, "PUBSUB NUMPAT", "1"),
        (0, "PUBSUB SHARDCHANNELS", "[\"s\"]"),
    ] {
        assert_eq!(talk.say(client, line), reply, "{line}");
    }
    assert_eq!(mail(&mut talk, listener), "[\"message\" \"a\" \"hello\"]");
    let expected =
        ">[\"pmessage\" \"a*\" \"a\" \"hello\"]\n>[\"pmessage\" \"a*\" \"ab\" \"hello\"]\n>[\"smessage\" \"s\" \"hi\"]";
    assert_eq!(mail(&mut talk, modern), expected);
    let refused = "(error) ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                   in this context";
    for (client, line, reply) in [
        (listener, "GET a", refused),
        (listener, "PING", "[\"pong\" \"\"]"),
        (modern, "GET a", "(nil)"),
        (listener, "UNSUBSCRIBE a", "[\"unsubscribe\" \"a\" 1]"),
        (listener, "UNSUBSCRIBE", "[\"unsubscribe\" \"b\" 0]"),
        (listener, "UNSUBSCRIBE", "[\"unsubscribe\" (nil) 0]"),
        (listener, "GET a", "(nil)"),
        (modern, "RESET", "RESET"),
        (0, "PUBSUB NUMPAT", "0"),
    ] {
        assert_eq!(talk.say(client, line), reply, "{line}");
    }
}

#[test]
fn events_of_keys_are_messages() {
    let mut talk = Talk::new();
    let listener = talk.join();
    assert_eq!(talk.say(0, "CONFIG SET notify-keyspace-events KEA"), "OK");
    talk.say(listener, "PSUBSCRIBE __key*");
    talk.say(0, "SET a 1 PX 10");
    let expected = "[\"pmessage\" \"__key*\" \"__keyspace@0__:a\" \"set\"]\n[\"pmessage\" \"__key*\" \"__keyevent@0__:set\" \"a\"]\n\
                    [\"pmessage\" \"__key*\" \"__keyspace@0__:a\" \"expire\"]\n\
                    [\"pmessage\" \"__key*\" \"__keyevent@0__:expire\" \"a\"]";
    assert_eq!(mail(&mut talk, listener), expected);
    talk.wait(20);
    talk.say(0, "GET a");
    let expected = "[\"pmessage\" \"__key*\" \"__keyspace@0__:a\" \"expired\"]\n\
                    [\"pmessage\" \"__key*\" \"__keyevent@0__:expired\" \"a\"]";
    assert_eq!(mail(&mut talk, listener), expected);
    talk.say(0, "SET b 1 PX 10");
    mail(&mut talk, listener);
    talk.wait(20);
    talk.tick();
    assert!(mail(&mut talk, listener).contains("\"expired\""), "nobody had to look for it");
    assert_eq!(talk.say(0, "DBSIZE"), "0");
}

#[test]
fn shard_channels_are_counted_by_themselves() {
    check(
        r#"
        1> SUBSCRIBE a
        ["subscribe" "a" 1]
        1> SSUBSCRIBE s t
        ["ssubscribe" "s" 1]
        ["ssubscribe" "t" 2]
        1> SSUBSCRIBE s
        ["ssubscribe" "s" 2]
        1> PSUBSCRIBE a*
        ["psubscribe" "a*" 2]
        > SPUBLISH s 1
        1
        > SPUBLISH a 1
        0
        > PUBLISH s 1
        0
        > PUBLISH a 1
        2
        1?
        ["smessage" "s" "1"]
        ["message" "a" "1"]
        ["pmessage" "a*" "a" "1"]
        > PUBSUB SHARDCHANNELS
        ["s" "t"]
        > PUBSUB SHARDCHANNELS t*
        ["t"]
        > PUBSUB SHARDNUMSUB s a
        ["s" 1 "a" 0]
        > PUBSUB SHARDNUMSUB
        []
        > PUBSUB NUMSUB
        []
        > PUBSUB CHANNELS a b
        (error) ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.
        > PUBSUB SHARDCHANNELS a b
        (error) ERR unknown subcommand or wrong number of arguments for 'SHARDCHANNELS'. Try PUBSUB HELP.
        1> SUNSUBSCRIBE s
        ["sunsubscribe" "s" 1]
        1> SUNSUBSCRIBE
        ["sunsubscribe" "t" 0]
        1> SUNSUBSCRIBE
        ["sunsubscribe" (nil) 0]
        1> PUNSUBSCRIBE
        ["punsubscribe" "a*" 1]
        1> UNSUBSCRIBE nosuch
        ["unsubscribe" "nosuch" 1]
        1> UNSUBSCRIBE
        ["unsubscribe" "a" 0]
        1> PING
        PONG
        > MULTI
        OK
        > SSUBSCRIBE s
        QUEUED
        > EXEC
        [(error) ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client]
    "#,
    );
}

#[test]
fn messages_come_before_the_end_of_a_subscription() {
    let mut talk = Talk::new();
    let listener = talk.join();
    talk.say(listener, "SUBSCRIBE a");
    talk.say(0, "PUBLISH a 1");
    let told = talk.say(listener, "UNSUBSCRIBE a");
    assert_eq!(told, "[\"message\" \"a\" \"1\"]\n[\"unsubscribe\" \"a\" 0]");
    talk.say(listener, "HELLO 3");
    talk.say(listener, "SUBSCRIBE a");
    let told = talk.raw(listener, b"PUBLISH a 2\r\nPING\r\n");
    assert_eq!(readable(&told), "1\n>[\"message\" \"a\" \"2\"]\nPONG");
    assert!(talk.say(0, "PUBSUB HELP").contains("SHARDNUMSUB [<shardchannel> ...]"));
}

#[test]
fn new_keys_are_told_before_what_was_done_to_them() {
    let mut talk = Talk::new();
    let listener = talk.join();
    talk.say(0, "CONFIG SET notify-keyspace-events EAn");
    talk.say(listener, "PSUBSCRIBE *");
    for (line, events) in [
        ("MSET a 1 b 2", "new a, set a, new b, set b"),
        ("SET a 2", "set a"),
        ("APPEND c x", "new c, append c"),
        ("SETRANGE d 1 x", "new d, setrange d"),
        ("RPUSH l x", "new l, rpush l"),
        ("RPUSH l y", "rpush l"),
        ("SADD s m", "new s, sadd s"),
        ("RENAME l a", "new a, rename_from l, rename_to a"),
        ("COPY a e", "new e, copy_to e"),
        ("MOVE s 1", "new s, move_from s, move_to s"),
        ("EVAL \"redis.call('incr', 'n')\" 0", "new n, incrby n"),
        ("SETRANGE f 0 \"\"", ""),
    ] {
        talk.say(0, line);
        let heard = mail(&mut talk, listener);
        let event = |line: &str| {
            let words: Vec<&str> = line.split('"').collect();
            format!("{} {}", words[5].rsplit(':').next().unwrap(), words[7])
        };
        assert_eq!(heard.lines().map(event).collect::<Vec<_>>().join(", "), events, "{line}");
    }
}
