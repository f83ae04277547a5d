//! Seeds of the swarm, planted bugs, and the pitfalls of replication as named scenarios.

use super::*;

mod pitfalls;

/// Seeds of every run of the tests.
const SEEDS: u64 = 200;
/// A planted bug is caught within so many seeds.
const SEEDS_TO_CATCH: u64 = 2_400;

#[test]
fn seeds_keep_every_rule() {
    let mut total = Outcome::default();
    for seed in 0..SEEDS {
        let outcome = run(seed, None);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.reads + outcome.writes > 100, "seed {seed} did too little: {outcome:?}");
        total.writes += outcome.writes;
        total.reads += outcome.reads;
        total.epochs += outcome.epochs;
        total.crashes += outcome.crashes;
        total.recovery_ms += outcome.recovery_ms;
        total.drops += outcome.drops;
        total.deletions += outcome.deletions;
    }
    // How well it goes has bars too: a change that loses service loses operations.
    assert!(total.writes > 60 * SEEDS && total.reads > 300 * SEEDS, "{total:?}");
    assert!(total.epochs > 10 * SEEDS && total.crashes > SEEDS, "the faults did not happen: {total:?}");
    assert!(total.drops > SEEDS, "no extent was dropped: {total:?}");
    assert!(total.deletions > SEEDS / 4, "no volume was deleted: {total:?}");
    assert!(total.recovery_ms < 700 * SEEDS, "{total:?}");
}

#[test]
fn a_seed_is_the_same_every_time() {
    for seed in [1, 2, 3] {
        assert_eq!(run(seed, None), run(seed, None));
    }
    assert_ne!(run(1, None).digest, run(2, None).digest);
}

#[test]
fn every_planted_bug_is_caught() {
    let missed = |planted: &Planted| !pitfalls::catch(*planted) && hunt(*planted, 0..SEEDS_TO_CATCH).is_none();
    let missed: alloc::vec::Vec<_> = Planted::ALL.into_iter().filter(missed).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
