//! Crash enumerator: random changes, a crash after any IO, recovery by the real code, comparison with a model.
//!
//! A state is one crash: the drive keeps any subset of the 512-byte sectors that were not durable, then the drive is opened
//! again and everything on it is compared. Four crashes are tried at each moment that is chosen, and the run goes on from
//! the last one. A run begins with formatting,
//! on a drive that still has everything of the run before.
//!
//! Verified, for each extent: its version is that of a change that was issued, not below the last that was acknowledged;
//! its content is exactly that of this version; the same for reads while changes are in progress. Records, deleted volumes
//! and lists likewise, and that no space is lost. Not verified: speed, memory.

pub mod drive;
mod model;
mod run;

use crate::planted::{Bug, Bugs};
use drive::FakeDrive;
pub use run::FlipCounts;
use run::{Quiet, Run};

/// Pseudo-random numbers of a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub const fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True once in so many times.
    pub const fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// What an enumeration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Crashes, each with its recovery and comparison.
    pub states: usize,
    /// Changes that were acknowledged.
    pub acknowledged: usize,
    /// Changes that were in progress at a crash.
    pub interrupted: usize,
    /// Those of them that were found done.
    pub survived: usize,
    /// Reads that were compared while changes were in progress.
    pub reads: usize,
    /// IOs that were completed.
    pub ios: usize,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// After how many states.
    pub states: usize,
    /// What was found and what was expected.
    pub what: String,
}

/// Moments of one run at which it crashes, before the drive is formatted anew.
const CRASHES_PER_RUN: usize = 8;

/// Goes through so many states. The same seed gives the same states.
///
/// # Errors
/// The first violation.
pub fn enumerate(states: usize, seed: u64, bug: Option<Bug>) -> Result<Counts, Violation> {
    let bugs = bug.map_or(Bugs::default(), Bugs::plant);
    let mut chance = Chance::new(seed);
    let mut drive = FakeDrive::new(run::DRIVE_BYTES);
    let mut counts = Counts::default();
    while counts.states < states {
        let mut run = Run::new(drive, chance.next(), bugs, counts);
        let mut result = run.begin();
        for _ in 0..CRASHES_PER_RUN {
            result = result.and_then(|()| run.next_state());
        }
        (drive, counts) = run.end();
        result.map_err(|what| Violation { states: counts.states, what })?;
    }
    Ok(counts)
}

/// Flips a byte in every block of superblocks and tables, in one of `others_of` blocks of data and in six times as many of the
/// journal, one after the other: the drive refuses to open, or says which extent is damaged, or nothing is wrong. Twice: when
/// everything is in its place, and when the journal is needed.
///
/// # Errors
/// The first byte whose flip was served or lost something.
pub fn flip_bytes(others_of: usize, seed: u64, bug: Option<Bug>) -> Result<FlipCounts, Violation> {
    let bugs = bug.map_or(Bugs::default(), Bugs::plant);
    let mut chance = Chance::new(seed);
    let mut sum = FlipCounts::default();
    for quiet in [Quiet::Settled, Quiet::Sealed] {
        let drive = FakeDrive::new(run::DRIVE_BYTES);
        let mut run = Run::new(drive, chance.next(), bugs, Counts::default());
        let counts = run.begin().and_then(|()| run.flip_bytes(quiet, others_of));
        let counts = counts.map_err(|what| Violation { states: 0, what })?;
        sum.flips += counts.flips;
        sum.refused += counts.refused;
        sum.reported += counts.reported;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests;
