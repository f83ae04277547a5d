//! An engine without work rests, and its next work ends that.

use super::Talk;

/// So many ticks, a tenth of a second apart.
fn tick(talk: &mut Talk, count: u32) {
    for _ in 0..count {
        talk.wait(100);
        talk.tick();
    }
}

#[test]
fn it_rests_a_second_after_its_last_command() {
    let mut talk = Talk::new();
    talk.say(0, "SET a 1");
    tick(&mut talk, 10);
    assert!(!talk.engine().is_resting());
    tick(&mut talk, 2);
    assert!(talk.engine().is_resting());
    talk.say(0, "GET a");
    assert!(!talk.engine().is_resting());
}

#[test]
fn it_does_not_rest_while_something_becomes_due() {
    let mut talk = Talk::new();
    for (begin, end) in [
        ("SET a 1 PX 5000", "DEL a"),
        ("HSETEX h PX 5000 FIELDS 1 f v", "DEL h"),
        ("CLIENT PAUSE 5000 WRITE", "CLIENT UNPAUSE"),
        ("CONFIG SET timeout 60", "CONFIG SET timeout 0"),
    ] {
        let began = talk.say(0, begin);
        tick(&mut talk, 30);
        assert!(!talk.engine().is_resting(), "{begin}: {began}");
        let ended = talk.say(0, end);
        tick(&mut talk, 30);
        assert!(talk.engine().is_resting(), "{end}: {ended}");
    }
}

#[test]
fn what_expired_lets_it_rest() {
    let mut talk = Talk::new();
    talk.say(0, "SET a 1 PX 2000");
    tick(&mut talk, 50);
    assert!(talk.engine().is_resting());
    assert_eq!(talk.say(0, "DBSIZE"), "0");
}
