//! Points on the earth.

use super::{Talk, check_all};

#[test]
fn conversations() {
    check_all(include_str!("geo.txt"));
}

#[test]
fn a_result_is_kept_only_behind_a_key_that_was_named() {
    let mut talk = Talk::new();
    talk.say(0, "GEOADD g 1 1 a");
    // The key of the second STORE is none that the specification finds.
    assert_eq!(talk.say(0, "GEORADIUS g 1 1 1 m STORE t STORE u"), "(error) ERR syntax error");
    assert_eq!(talk.say(0, "GEORADIUS g 1 1 1 m STORE t STOREDIST u"), "1");
    assert_eq!(talk.say(0, "EXISTS t u"), "1");
}
