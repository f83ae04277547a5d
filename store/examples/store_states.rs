//! Runs states of the crash enumerators: `cargo run --release -p ashlar-store --features proof --example store_states --
//! KIND SEED COUNT [BUG]`.
//!
//! KIND is `extents` or `blobs` for so many crashes; `flips` for one flipped byte of an area of blobs in every COUNT,
//! `misplaced` for COUNT blocks that are overwritten by others, `any` for COUNT random lists of patches as the fuzz target
//! takes them. BUG is the place of a planted bug in its list. The same seed gives the same states.
#![expect(clippy::print_stdout, reason = "this program is there to print")]

use std::process::ExitCode;

use ashlar_store::blob::planted::BLOB_BUGS;
use ashlar_store::blob::proof::{enumerate_blobs, flip_blobs, misplace_blobs, open_any};
use ashlar_store::planted::BUGS;
use ashlar_store::proof::{Chance, enumerate};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let mut numbers = arguments.filter_map(|text| text.parse::<u64>().ok());
    let (seed, count) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(100));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let bug = numbers.next().and_then(|place| usize::try_from(place).ok());
    let blob_bug = bug.and_then(|place| BLOB_BUGS.get(place).copied());
    let result = match what.as_str() {
        "extents" => {
            let bug = bug.and_then(|place| BUGS.get(place).copied());
            enumerate(count, seed, bug).map(|counts| format!("{counts:?}"))
        }
        "blobs" => enumerate_blobs(count, seed, blob_bug).map(|counts| format!("{counts:?}")),
        "flips" => flip_blobs(count.max(1), seed, blob_bug).map(|counts| format!("{counts:?}")),
        "misplaced" => misplace_blobs(count, seed, blob_bug).map(|counts| format!("{counts:?}")),
        "any" => {
            let mut chance = Chance::new(seed);
            for _ in 0..count {
                let len = 1 + chance.below(400);
                let input: Vec<u8> = (0..len).map(|_| chance.next().to_be_bytes()[7]).collect();
                open_any(&input);
            }
            Ok(format!("{count} areas"))
        }
        _ => {
            println!("say extents, blobs, flips, misplaced or any, then a seed and a number");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(counts) => {
            println!("seed {seed}: {counts}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("seed {seed}: after {} states: {}", violation.states, violation.what);
            ExitCode::FAILURE
        }
    }
}
