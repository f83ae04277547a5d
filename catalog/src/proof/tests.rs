//! Seeds, and bugs that they must see.

use std::panic::catch_unwind;

use super::*;

mod calls;

#[test]
fn what_is_acknowledged_is_never_lost() {
    let mut total = Report::default();
    for seed in 0..24 {
        let report = run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.acknowledged > 0, "seed {seed}");
        total.acknowledged += report.acknowledged;
        total.crashes += report.crashes;
        total.cuts += report.cuts;
        total.snapshot_index += report.snapshot_index;
        total.term += report.term;
    }
    // The faults are there: otherwise nothing has been shown.
    assert!(total.acknowledged > 1_000 && total.crashes > 100 && total.cuts > 100, "{total:?}");
    assert!(total.snapshot_index > 1_000 && total.term > 24, "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let report = run(3, None).unwrap();
    assert_eq!(run(3, None), Ok(report));
    assert_ne!(run(4, None).unwrap().trace, report.trace);
}

#[test]
fn a_lost_quorum_is_recovered() {
    for seed in 0..6 {
        let report = run_recovery(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.term > 1 << 32, "{report:?}");
    }
}

#[test]
fn a_leader_that_lost_what_it_sent_gives_its_names_to_nothing_else() {
    for seed in 0..12 {
        run_lost_tail(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn who_has_caught_up_shows_what_was_shown_before() {
    for seed in 0..6 {
        run_caught_up(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_drive_that_lies_is_seen() {
    // openraft's own assertions count as well: it stops before it does harm.
    let seen = |seed| !matches!(catch_unwind(|| run(seed, Some(Planted::NotDurable))), Ok(Ok(_)));
    let count = (0..12).filter(|seed| seen(*seed)).count();
    assert!(count >= 6, "{count} of 12 seeds see that writes are not durable");
}

#[test]
fn a_drive_that_forgets_votes_is_seen() {
    let seen = |seed| !matches!(catch_unwind(|| run(seed, Some(Planted::NoVotes))), Ok(Ok(_)));
    let count = (0..40).filter(|seed| seen(*seed)).count();
    assert!(count >= 1, "{count} of 40 seeds see that votes are forgotten");
}
