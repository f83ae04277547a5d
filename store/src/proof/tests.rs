use super::*;

#[test]
fn every_state_is_recovered() {
    let counts = enumerate(128, 1, None).unwrap();
    assert!(counts.acknowledged > 500 && counts.interrupted > 50 && counts.survived > 5, "{counts:?}");
}

#[test]
fn flipped_bytes_are_never_served() {
    let counts = flip_bytes(200, 1, None).unwrap();
    assert!(counts.flips > 60 && counts.refused > 0 && counts.reported > 0, "{counts:?}");
}

#[test]
fn the_same_seed_gives_the_same_states() {
    assert_eq!(enumerate(4, 7, None), enumerate(4, 7, None));
}

/// Each bug with a seed that shows it soon.
#[test]
fn planted_bugs_are_found() {
    for (bug, seed, states) in [
        (Bug::JournalNotDurable, 1, 4),
        (Bug::AnswerBeforeDurable, 1, 4),
        (Bug::DirectNotDurable, 4, 4),
        (Bug::JournalBeforeData, 9, 4),
        (Bug::OverwriteInPlace, 2, 4),
        (Bug::WriteIntoWriteBack, 87, 16),
        (Bug::SkipFirstSync, 2, 8),
        (Bug::SkipSecondSync, 3, 8),
        (Bug::TrimTooEarly, 7, 4),
        (Bug::ReuseJournalEarly, 10, 12),
        (Bug::AcceptTornBatch, 7, 4),
        (Bug::ForgetIdentity, 3, 36),
    ] {
        assert!(enumerate(states, seed, Some(bug)).is_err(), "{bug:?} is not found");
    }
    assert!(flip_bytes(80, 1, Some(Bug::IgnoreJournalGap)).is_err());
}

#[test]
#[should_panic(expected = "a slot")]
fn a_slot_that_is_reused_early_trips_an_assertion() {
    let _ = enumerate(8, 1, Some(Bug::ReuseSlotEarly));
}
