//! Points on the earth.

use super::{Talk, check_all};

#[test]
fn conversations() {
    check_all(include_str!("geo.txt"));
}

#[test]
fn of_several_keys_to_keep_a_result_behind_the_last_one_counts() {
    let mut talk = Talk::new();
    talk.say(0, "GEOADD g 1 1 a");
    assert_eq!(talk.say(0, "GEORADIUS g 1 1 1 m STORE t STORE u"), "1");
    assert_eq!(talk.say(0, "GEORADIUS g 1 1 1 m STOREDIST t STORE u"), "1");
    assert_eq!(["t", "u"].map(|key| talk.say(0, &format!("EXISTS {key}"))), ["0", "1"]);
}
