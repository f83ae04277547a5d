//! Crash enumerator of blobs: random requests, a crash after any IO, recovery by the real code, comparison with a model.
//!
//! A state is one end of the process: by a loss of power, after which any subset of the 512-byte sectors that were not
//! durable is there, or by a kill, after which a loss of power may still take what was found. Then the area is opened again
//! and everything in it is compared. Then the run goes on from there, to the next end. A run begins with formatting, on a
//! drive that still has everything of the run before.
//!
//! Verified: each blob has the content of a change that was issued, not before the last that was acknowledged; replies and
//! reads are those of a state between request and reply; lists; nothing is reported as damaged; counts of blobs, bytes and
//! segments are exact; a full area can be emptied and is usable then. Not verified: speed, memory.

mod any;
mod model;
mod reseal;
mod run;

use super::planted::{BlobBug, BlobBugs};
use crate::proof::drive::FakeDrive;
use crate::proof::{Chance, Violation};
pub use any::open_any;
use run::Run;

/// What an enumeration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobCounts {
    /// Ends of the process, each with its recovery and comparison.
    pub states: usize,
    /// Changes that were acknowledged.
    pub acknowledged: usize,
    /// Changes that were in progress at an end.
    pub interrupted: usize,
    /// Those of them that were found done.
    pub survived: usize,
    /// Reads that were compared while changes were in progress.
    pub reads: usize,
    /// Puts that found no room.
    pub refused: usize,
    /// Segments that were erased.
    pub erased: usize,
    /// Times that a full area was emptied.
    pub emptied: usize,
    /// IOs that were completed.
    pub ios: usize,
}

/// What flipping bytes came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobFlipCounts {
    /// Bytes that were flipped, each by itself.
    pub flips: usize,
    /// Of them: blobs were reported as damaged.
    pub damaged: usize,
    /// Of them: a part of the log was reported as lost.
    pub lost: usize,
}

/// Ends of one run, before the area is formatted anew.
const STATES_PER_RUN: usize = 8;

/// Goes through so many states. The same seed gives the same states.
///
/// # Errors
/// The first violation.
pub fn enumerate_blobs(states: usize, seed: u64, bug: Option<BlobBug>) -> Result<BlobCounts, Violation> {
    let bugs = bug.map_or(BlobBugs::default(), BlobBugs::plant);
    let mut chance = Chance::new(seed);
    let mut drive = FakeDrive::new(run::AREA_BYTES);
    let mut counts = BlobCounts::default();
    while counts.states < states {
        let mut run = Run::new(drive, chance.next(), bugs, counts);
        let mut result = run.begin();
        for _ in 0..STATES_PER_RUN {
            result = result.and_then(|()| run.next_state());
        }
        (drive, counts) = run.end();
        result.map_err(|what| Violation { states: counts.states, what })?;
    }
    Ok(counts)
}

/// Flips one of the first bytes of each block of an area at rest, and every `stride`th of all, each by itself, in three
/// patterns: it is reported, or nothing is wrong. Nothing damaged is ever returned, and what is not reported is there.
///
/// # Errors
/// The first byte whose flip was served or lost something.
pub fn flip_blobs(stride: usize, seed: u64, bug: Option<BlobBug>) -> Result<BlobFlipCounts, Violation> {
    let bugs = bug.map_or(BlobBugs::default(), BlobBugs::plant);
    let mut run = Run::new(FakeDrive::new(run::AREA_BYTES), seed, bugs, BlobCounts::default());
    let counts = run.begin().and_then(|()| run.flip_bytes(stride));
    counts.map_err(|what| Violation { states: 0, what })
}

/// Overwrites blocks of an area at rest by other blocks of it, `count` times, each by itself, as misdirected writes do. What
/// is returned is right, and what is not reported is there.
///
/// # Errors
/// The first block that was served in the wrong place or lost something.
pub fn misplace_blobs(count: usize, seed: u64, bug: Option<BlobBug>) -> Result<BlobFlipCounts, Violation> {
    let bugs = bug.map_or(BlobBugs::default(), BlobBugs::plant);
    let mut run = Run::new(FakeDrive::new(run::AREA_BYTES), seed, bugs, BlobCounts::default());
    let counts = run.begin().and_then(|()| run.misplace_blocks(count));
    counts.map_err(|what| Violation { states: 0, what })
}

#[cfg(test)]
mod tests;
