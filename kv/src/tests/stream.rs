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
