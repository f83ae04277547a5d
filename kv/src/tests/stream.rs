//! Streams.

use super::{BEGIN_MS, Talk, check, check_all};

#[test]
fn conversations() {
    check_all(include_str!("stream.txt"));
}

#[test]
fn ids_follow_the_clock() {
    check(&format!(
        r#"
        > XADD s * a 1
        "{BEGIN_MS}-0"
        > XADD s * a 2
        "{BEGIN_MS}-1"
        +1
        > XADD s * a 3
        "{}-0"
        > XADD s 1800000000001-* a 4
        "{}-1"
    "#,
        BEGIN_MS + 1,
        BEGIN_MS + 1,
    ));
}

#[test]
fn what_is_pending_grows_old() {
    check(&format!(
        r#"
        > XGROUP CREATE s g 0 MKSTREAM
        OK
        > XADD s 1-1 a 1
        "1-1"
        > XREADGROUP GROUP g alice STREAMS s >
        [["s" [["1-1" ["a" "1"]]]]]
        +500
        > XPENDING s g - + 10
        [["1-1" "alice" 500 1]]
        > XPENDING s g IDLE 501 - + 10
        []
        > XPENDING s g IDLE 500 - + 10 alice
        [["1-1" "alice" 500 1]]
        > XCLAIM s g bob 501 1-1
        []
        > XCLAIM s g bob 500 1-1 JUSTID
        ["1-1"]
        > XPENDING s g - + 10
        [["1-1" "bob" 0 1]]
        +100
        > XAUTOCLAIM s g alice 101 0
        ["0-0" [] []]
        > XAUTOCLAIM s g alice 100 0
        ["0-0" [["1-1" ["a" "1"]]] []]
        > XINFO CONSUMERS s g
        [["name" "alice" "pending" 1 "idle" 0 "inactive" 0] ["name" "bob" "pending" 0 "idle" 100 "inactive" 100]]
        > XCLAIM s g bob 0 1-1 IDLE 30 RETRYCOUNT 7
        [["1-1" ["a" "1"]]]
        > XPENDING s g - + 1
        [["1-1" "bob" 30 7]]
        > XCLAIM s g bob 0 1-1 TIME {} JUSTID
        ["1-1"]
        > XPENDING s g - + 1
        [["1-1" "bob" 599 7]]
    "#,
        BEGIN_MS + 1
    ));
}

#[test]
fn a_rough_trim_takes_whole_nodes() {
    let mut talk = Talk::new();
    for number in 1..=250 {
        talk.say(0, &format!("XADD s {number}-0 a {number}"));
    }
    assert_eq!(talk.say(0, "XTRIM s MAXLEN ~ 60"), "100");
    assert_eq!(talk.say(0, "XTRIM s MAXLEN ~ 0 LIMIT 50"), "0");
    assert_eq!(talk.say(0, "XTRIM s MINID ~ 201-0 LIMIT 0"), "100");
    assert_eq!(talk.say(0, "XADD s MAXLEN = 2 * b c"), format!("\"{BEGIN_MS}-0\""));
    assert_eq!(talk.say(0, "XLEN s"), "2");
}

/// What a group of the stream `x` has read and has still to read, as far as that is known.
fn progress(talk: &mut Talk) -> String {
    let groups = talk.say(0, "XINFO GROUPS x");
    let of_group = groups.split("\"entries-read\" ").nth(1).unwrap();
    of_group.split(']').next().unwrap().replace("\"lag\" ", "")
}

#[test]
fn what_was_read_is_counted_again_behind_entries_that_are_gone() {
    let mut talk = Talk::new();
    for at in 1..=5 {
        talk.say(0, &format!("XADD x {at}-0 f v"));
    }
    talk.say(0, "XGROUP CREATE x g 0");
    for (line, after) in [
        ("XREADGROUP GROUP g c COUNT 1 STREAMS x >", "1 4"),
        ("XREADGROUP GROUP g c COUNT 10 STREAMS x >", "5 0"),
        ("XADD x 6-0 f v", "5 1"),
        ("XADD x 7-0 f v", "5 2"),
        ("XADD x 8-0 f v", "5 3"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS x >", "6 2"),
        // It cannot be told whether 7-0 will be read.
        ("XDEL x 7-0", "6 (nil)"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS x >", "8 0"),
        ("XADD x 9-0 f v", "8 1"),
        ("XADD x 10-0 f v", "8 2"),
        ("XTRIM x MINID = 10-0", "8 2"),
        ("XREADGROUP GROUP g c COUNT 1 STREAMS x >", "10 0"),
    ] {
        talk.say(0, line);
        assert_eq!(progress(&mut talk), after, "{line}");
    }
}
