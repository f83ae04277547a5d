//! Seeds of 3 to 9 members.

use ashlar_sim::bus::swarm::{Bug, Class, Outcome, Params, run_seed};

/// No bug is planted.
#[cfg(feature = "planted")]
const SOUND: Bug = None;

/// No bug is planted.
#[cfg(not(feature = "planted"))]
const SOUND: Bug = ();

fn run(seed: u64, classes: &[Class]) -> Outcome {
    run_seed(&Params::draw(seed, classes, None), SOUND)
}

/// Runs seeds and returns what was counted in all of them: elections, failures, recoveries.
fn check(seeds: core::ops::Range<u64>, classes: &[Class]) -> [u64; 3] {
    let mut sums = [0; 3];
    for seed in seeds {
        let outcome = run(seed, classes);
        if let Some(failure) = outcome.failure {
            panic!("{failure}");
        }
        let counts = outcome.counts;
        let more = [counts.elections, counts.failures, counts.recoveries];
        sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    sums
}

#[test]
fn every_fault_together() {
    let [elections, failures, recoveries] = check(0..250, Class::ALL);
    assert!(elections > 100 && failures > 100 && recoveries > 100, "{elections}, {failures}, {recoveries}");
}

#[test]
fn each_fault_alone() {
    for class in Class::ALL {
        check(1_000..1_006, &[*class]);
    }
}

#[test]
fn the_same_seed_has_the_same_history() {
    for seed in 0..20 {
        let [once, twice] = [0; 2].map(|_| run(seed, Class::ALL));
        assert_eq!((once.event_hash, once.events, once.world_ns), (twice.event_hash, twice.events, twice.world_ns));
    }
    assert_ne!(run(1, Class::ALL).event_hash, run(2, Class::ALL).event_hash);
}
