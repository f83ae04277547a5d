//! Runs seeds of the catalog's proof: `cargo run --release -p ashlar-catalog --features proof --example catalog_seeds --
//! FIRST COUNT`. Prints each seed that fails, and what all of them did.
#![expect(clippy::print_stdout, reason = "an example that reports to a terminal")]

use std::panic::catch_unwind;

use ashlar_catalog::proof::{Planted, run, run_recovery};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let first = arguments.next().and_then(Result::ok).unwrap_or(0);
    let count = arguments.next().and_then(Result::ok).unwrap_or(100);
    let (mut acknowledged, mut unknown, mut crashes, mut cuts, mut failed) = (0, 0, 0, 0, 0);
    for seed in first..first + count {
        for (kind, done) in
            [("run", catch_unwind(|| run(seed, None))), ("recovery", catch_unwind(|| run_recovery(seed)))]
        {
            match done {
                Ok(Ok(report)) => {
                    acknowledged += report.acknowledged;
                    unknown += report.unknown;
                    crashes += report.crashes;
                    cuts += report.cuts;
                }
                Ok(Err(error)) => {
                    failed += 1;
                    println!("{kind} {seed}: {error}");
                }
                Err(_) => {
                    failed += 1;
                    println!("{kind} {seed}: panicked");
                }
            }
        }
    }
    println!(
        "{count} seeds: {acknowledged} acknowledged, {unknown} unknown, {crashes} crashes, {cuts} cuts, {failed} failed"
    );
    for planted in [Planted::NotDurable, Planted::NoVotes] {
        let seen = |seed: &u64| !matches!(catch_unwind(|| run(*seed, Some(planted))), Ok(Ok(_)));
        let seen = (first..first + count).filter(seen).count();
        println!("{planted:?}: seen by {seen} of {count} seeds");
    }
}
