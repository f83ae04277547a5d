//! Who is told that what it has read has changed.

use super::{Talk, check, readable};

#[test]
fn reads_are_remembered_once() {
    check(
        r#"
        > HELLO 3
        {"server": "valkey", "version": "9.1.0", "proto": 3, "id": 1, "mode": "standalone", "role": "master", "modules": []}
        > CLIENT TRACKING ON
        OK
        > GET a
        (nil)
        1> SET a 1
        OK
        0?
        >["invalidate" ["a"]]
        1> SET a 2
        OK
        0?
        > MGET a b
        ["2" (nil)]
        > SET a 3
        OK
        >["invalidate" ["a"]]
        > MULTI
        OK
        > GET a
        QUEUED
        > SET a 4
        QUEUED
        > EXEC
        ["3" OK]
        >["invalidate" ["a"]]
        1> SET b 1
        OK
        0?
        >["invalidate" ["b"]]
        > GET c
        (nil)
        1> FLUSHALL
        OK
        0?
        >["invalidate" (nil)]
        > FLUSHDB
        OK
        >["invalidate" (nil)]
        > CLIENT TRACKING OFF
        OK
        > GET a
        (nil)
        1> SET a 1
        OK
        0?
    "#,
    );
}

#[test]
fn clients_of_the_old_protocol_let_others_listen() {
    check(
        r#"
        1> SUBSCRIBE __redis__:invalidate
        ["subscribe" "__redis__:invalidate" 1]
        > CLIENT TRACKING ON REDIRECT 2
        OK
        > CLIENT GETREDIR
        2
        > GET a
        (nil)
        2> SET a 1 PX 100
        OK
        1?
        ["message" "__redis__:invalidate" ["a"]]
        > GET a
        "1"
        +200
        2> GET a
        (nil)
        1?
        ["message" "__redis__:invalidate" ["a"]]
        > FLUSHALL
        OK
        1?
        ["message" "__redis__:invalidate" (nil)]
        > CLIENT TRACKINGINFO
        ["flags" ["on"] "redirect" 2 "prefixes" []]
    "#,
    );
}

#[test]
fn who_should_listen_may_be_gone() {
    let mut talk = Talk::new();
    talk.join();
    talk.join();
    talk.say(0, "HELLO 3");
    assert_eq!(talk.say(0, "CLIENT TRACKING ON REDIRECT 3"), "OK");
    talk.say(0, "GET a");
    talk.leave(2);
    talk.say(1, "SET a 1");
    assert_eq!(readable(&talk.mail(0)), ">[\"tracking-redir-broken\" 3]");
    assert_eq!(
        talk.say(0, "CLIENT TRACKINGINFO"),
        "{\"flags\": ~[\"on\" \"broken_redirect\"], \"redirect\": 3, \"prefixes\": []}"
    );
    assert!(talk.say(0, "CLIENT LIST ID 1").contains(" flags=tR "));
    assert_eq!(talk.say(0, "CLIENT TRACKING OFF"), "OK");
    assert_eq!(talk.say(0, "CLIENT GETREDIR"), "-1");
}

#[test]
fn prefixes_are_listened_to() {
    check(
        r#"
        > HELLO 3
        {"server": "valkey", "version": "9.1.0", "proto": 3, "id": 1, "mode": "standalone", "role": "master", "modules": []}
        > CLIENT TRACKING ON BCAST PREFIX a PREFIX b NOLOOP
        OK
        1> MSET a1 1 a2 1 c 1
        OK
        0?
        >["invalidate" ["a1" "a2"]]
        1> MULTI
        OK
        1> SET b 1
        QUEUED
        1> INCR a1
        QUEUED
        1> EXEC
        [OK 2]
        0?
        >["invalidate" ["a1"]]
        >["invalidate" ["b"]]
        > SET a1 1 PX 10
        OK
        +20
        1> GET a1
        (nil)
        0?
        >["invalidate" ["a1"]]
        > CLIENT TRACKING ON BCAST PREFIX ab
        (error) ERR Prefix 'ab' overlaps with an existing prefix 'a'. Prefixes for a single client must not overlap.
        > CLIENT TRACKING ON BCAST PREFIX c PREFIX cd
        (error) ERR Prefix 'c' overlaps with another provided prefix 'cd'. Prefixes for a single client must not overlap.
        > CLIENT TRACKING ON BCAST PREFIX c
        OK
        > CLIENT TRACKINGINFO
        {"flags": ~["on" "bcast"], "redirect": 0, "prefixes": ["a" "b" "c"]}
        > SET c 1
        OK
        >["invalidate" ["c"]]
        > CLIENT TRACKING ON
        (error) ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.
        > RESET
        RESET
        > CLIENT TRACKINGINFO
        ["flags" ["off"] "redirect" -1 "prefixes" []]
    "#,
    );
}

#[test]
fn clients_choose_what_is_remembered() {
    check(
        r#"
        > HELLO 3
        {"server": "valkey", "version": "9.1.0", "proto": 3, "id": 1, "mode": "standalone", "role": "master", "modules": []}
        > CLIENT TRACKING ON OPTIN
        OK
        > GET a
        (nil)
        > CLIENT CACHING YES
        OK
        > CLIENT TRACKINGINFO
        {"flags": ~["on" "optin" "caching-yes"], "redirect": 0, "prefixes": []}
        > GET b
        (nil)
        > GET c
        (nil)
        1> MSET a 1 b 1 c 1
        OK
        0?
        >["invalidate" ["b"]]
        > CLIENT CACHING NO
        (error) ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.
        > CLIENT TRACKING ON OPTOUT
        (error) ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.
        > CLIENT TRACKING OFF
        OK
        > CLIENT TRACKING ON OPTOUT NOLOOP
        OK
        > CLIENT CACHING YES
        (error) ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.
        > CLIENT CACHING NO
        OK
        > GET a
        "1"
        > GET b
        "1"
        > SET b 2
        OK
        > GET b
        "2"
        1> MSET a 1 b 1
        OK
        0?
        >["invalidate" ["b"]]
    "#,
    );
}

#[test]
fn what_makes_no_sense() {
    for (line, error) in [
        (
            "CLIENT CACHING yes",
            "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ),
        ("CLIENT TRACKING maybe", "syntax error"),
        ("CLIENT TRACKING on maybe", "syntax error"),
        ("CLIENT TRACKING on redirect", "syntax error"),
        ("CLIENT TRACKING on redirect x", "value is not an integer or out of range"),
        ("CLIENT TRACKING on redirect 77", "The client ID you want redirect to does not exist"),
        ("CLIENT TRACKING on redirect 1 redirect 1", "A client can only redirect to a single other client"),
        ("CLIENT TRACKING on prefix a", "PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING on bcast optin", "OPTIN and OPTOUT are not compatible with BCAST"),
        ("CLIENT TRACKING on optin optout", "You can't specify both OPTIN mode and OPTOUT mode"),
    ] {
        assert_eq!(Talk::new().say(0, line), format!("(error) ERR {error}"), "{line}");
    }
}

#[test]
fn what_is_remembered_has_a_limit() {
    let mut talk = Talk::new();
    talk.say(0, "CONFIG SET tracking-table-max-keys 3");
    talk.say(0, "HELLO 3");
    talk.say(0, "CLIENT TRACKING ON");
    let told = talk.say(0, "MGET a b c d e");
    assert_eq!(told.matches("invalidate").count(), 2, "{told}");
    assert_eq!(talk.engine().tracking.counts(), [1, 3, 3, 0]);
    talk.leave(0);
    let other = talk.join();
    assert_eq!(talk.engine().tracking.counts()[0], 0);
    assert_eq!(talk.say(other, "MSET a 1 b 1 c 1 d 1 e 1"), "OK");
}

/// Whoever lowers the limit may be the last who says anything for a long time.
#[test]
fn a_lower_limit_holds_without_a_further_command() {
    let mut talk = Talk::new();
    talk.say(0, "HELLO 3");
    talk.say(0, "CLIENT TRACKING ON");
    talk.say(0, "MGET a b c");
    let other = talk.join();
    assert_eq!(talk.say(other, "CONFIG SET tracking-table-max-keys 1"), "OK");
    talk.tick();
    let told = String::from_utf8_lossy(&talk.mail(0)).into_owned();
    assert_eq!(told.matches("invalidate").count(), 2, "{told}");
}

/// As nothing but PING runs, no command reads a key after which the limit is looked at.
#[test]
fn a_lower_limit_is_told_of_before_the_next_reply() {
    let mut talk = Talk::new();
    talk.say(0, "HELLO 3");
    talk.say(0, "CLIENT TRACKING ON");
    talk.say(0, "MGET a b");
    talk.say(0, "MULTI");
    let other = talk.join();
    talk.say(other, "CONFIG SET tracking-table-max-keys 1");
    let told = talk.say(0, "PING");
    assert!(told.starts_with(">[\"invalidate\" [") && told.ends_with("\nQUEUED"), "{told}");
    assert_eq!(talk.say(0, "EXEC"), "[PONG]");
}

#[test]
fn what_goes_for_want_of_memory_is_told_before_the_reply() {
    let mut talk = Talk::new();
    talk.say(0, "HELLO 3");
    talk.say(0, "SET volatile x EX 1000");
    talk.say(0, "SET other x");
    talk.say(0, "CLIENT TRACKING ON");
    talk.say(0, "GET volatile");
    talk.say(0, "CONFIG SET maxmemory-policy volatile-random maxmemory 1");
    assert_eq!(talk.say(0, "GET other"), ">[\"invalidate\" [\"volatile\"]]\n\"x\"");
}

#[test]
fn what_a_command_that_waited_changes_is_told_after_its_reply() {
    check(
        r#"
        > RPUSH to a
        1
        1> HELLO 3
        {"server": "valkey", "version": "9.1.0", "proto": 3, "id": 2, "mode": "standalone", "role": "master", "modules": []}
        1> CLIENT TRACKING ON
        OK
        1> LRANGE to 0 -1
        ["a"]
        1> BLMOVE from to LEFT LEFT 0
        > RPUSH from foo
        1
        1?
        "foo"
        >["invalidate" ["to"]]
    "#,
    );
}

#[test]
fn prefixes_take_little_memory() {
    let mut talk = Talk::new();
    let memory = |talk: &mut Talk| {
        let info = talk.say(0, "CLIENT INFO");
        let shown = info.split(' ').find_map(|word| word.strip_prefix("tot-mem="));
        shown.unwrap().parse::<u64>().unwrap()
    };
    let before = memory(&mut talk);
    let prefixes: String = (0..1_000).map(|number| format!(" PREFIX {number}-")).collect();
    assert_eq!(talk.say(0, &format!("CLIENT TRACKING ON BCAST{prefixes}")), "OK");
    let grown = memory(&mut talk) - before;
    assert!((16_000..30_000).contains(&grown), "{grown}");
}

#[test]
fn nothing_is_remembered_of_keys_that_are_all_gone() {
    let mut talk = Talk::new();
    for line in ["CLIENT TRACKING ON", "GET a", "CLIENT TRACKING OFF", "FLUSHALL"] {
        talk.say(0, line);
    }
    let stats = talk.say(0, "INFO stats");
    assert!(stats.contains("tracking_total_keys:0") && stats.contains("tracking_total_items:0"), "{stats}");
}
