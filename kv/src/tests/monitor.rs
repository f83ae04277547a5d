//! MONITOR.

use super::{Talk, readable};

#[test]
fn who_watches_sees_what_others_do() {
    let mut talk = Talk::new();
    let watcher = talk.join();
    assert_eq!(talk.say(watcher, "MONITOR"), "OK");
    for line in [
        "SET a \"b\\\"\\n\\x01\"",
        "GET",
        "NOSUCH a",
        "AUTH not-real",
        "AUTH not-real not-a-password",
        "HELLO 3 AUTH x y SETNAME z",
        "CONFIG SET timeout 0",
        "MULTI",
        "INCR a",
        "EXEC",
        "MULTI",
        "NOSUCH",
        "EXEC",
        "SELECT 3",
        "BLPOP k 0",
    ] {
        talk.say(0, line);
    }
    let shown = readable(&talk.mail(watcher));
    let lines: Vec<&str> =
        shown.lines().map(|line| line.strip_prefix("1800000000.000000 [").expect("the time comes first")).collect();
    assert_eq!(
        lines,
        [
            "0 127.0.0.1:50000] \"SET\" \"a\" \"b\\\"\\n\\x01\"",
            "0 127.0.0.1:50000] \"AUTH\" \"(redacted)\"",
            "0 127.0.0.1:50000] \"AUTH\" \"(redacted)\" \"(redacted)\"",
            "0 127.0.0.1:50000] \"HELLO\" \"3\" \"AUTH\" \"(redacted)\" \"(redacted)\" \"SETNAME\" \"z\"",
            "0 127.0.0.1:50000] \"MULTI\"",
            "0 127.0.0.1:50000] \"INCR\" \"a\"",
            "0 127.0.0.1:50000] \"EXEC\"",
            "0 127.0.0.1:50000] \"MULTI\"",
            "0 127.0.0.1:50000] \"EXEC\"",
            "3 127.0.0.1:50000] \"SELECT\" \"3\"",
            "3 127.0.0.1:50000] \"BLPOP\" \"k\" \"0\"",
        ]
    );
    assert!(talk.say(watcher, "GET a").starts_with("(error) ERR Replica can't interact with the keyspace"));
    assert!(talk.say(watcher, "CLIENT LIST ID 2").contains(" flags=O "));
    assert_eq!(talk.say(watcher, "RESET").lines().last(), Some("RESET"));
    assert_eq!(talk.say(watcher, "PING"), "PONG");
}
