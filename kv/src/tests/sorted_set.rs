//! Sorted sets.

use std::collections::BTreeSet;

use super::{Talk, check_all};

#[test]
fn conversations() {
    check_all(include_str!("sorted_set.txt"));
}

#[test]
fn every_member_of_a_large_set_is_scanned_once() {
    let mut talk = Talk::new();
    for number in 0..1_000 {
        assert_eq!(talk.say(0, &format!("ZADD z {number}.5 member:{number}")), "1");
    }
    assert_eq!(talk.say(0, "OBJECT ENCODING z"), "\"skiplist\"");
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = talk.say(0, &format!("ZSCAN z {cursor} COUNT 20 NOSCORES"));
        let (next, names) = reply[1..reply.len() - 1].split_once(' ').unwrap();
        for name in names[1..names.len() - 1].split(' ').filter(|name| !name.is_empty()) {
            assert!(found.insert(name.to_owned()), "{name} came twice");
        }
        steps += 1;
        cursor = next.trim_matches('"').to_owned();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 1_000);
    assert!(steps > 10, "{steps} steps");
    assert_eq!(talk.say(0, "ZSCAN z 18446744073709551615"), "[\"0\" []]");
}

#[test]
fn members_are_drawn_from_all() {
    let mut talk = Talk::new();
    talk.say(0, "ZADD z 1 a 2 b 3 c");
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        seen.insert(talk.say(0, "ZRANDMEMBER z"));
        let two = talk.say(0, "ZRANDMEMBER z 2");
        let (one, other) = two[1..two.len() - 1].split_once(' ').unwrap();
        assert_ne!(one, other);
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(talk.say(0, "ZRANDMEMBER z -5").split(' ').count(), 5);
    assert_eq!(talk.say(0, "ZRANDMEMBER z -200000000"), "(error) ERR value is out of range");
}
