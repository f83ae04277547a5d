//! Scan of a segment without a summary: its batches in order, and whether some are missing.
//!
//! Batches are written one after the other, each when the one before it is durable, and their sequences have no gap. So a
//! sequence that is missing before another one was acknowledged and has been damaged since. Of the newest segment the
//! last batch may be torn: it is left out.

use std::collections::BTreeSet;

use ashlar_wire::checksum::Salt;

use super::batch::Batch;
use super::entry::LogEntry;
use super::planted::{BlobBug, BlobBugs};
use crate::buffer::BLOCK_BYTES;

/// What is known of a segment before it is scanned.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanTask {
    pub(super) segment: u32,
    /// The last life that was erased, if a mark says so: its batches do not count.
    pub(super) erased: Option<u64>,
    /// The life of the segment, if a mark says so.
    pub(super) life: Option<u64>,
}

/// What a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The life of the segment; none if nothing is in it.
    pub(super) life: Option<u64>,
    /// Entries of all batches, in their order.
    pub(super) entries: Vec<LogEntry>,
    /// Behind the last batch.
    pub(super) next_block: u32,
    /// Behind the sequence of the last batch.
    pub(super) next_sequence: u64,
    /// Batches are missing.
    pub(super) is_lost: bool,
}

/// Looks through a segment. `lives` are those of the used segments, as far as they are known.
pub(super) fn scan_segment(salt: Salt, task: ScanTask, lives: &BTreeSet<u64>, bytes: &[u8], bugs: BlobBugs) -> Scanned {
    let blocks = u32::try_from(bytes.len() / BLOCK_BYTES).expect("a segment has a limit");
    let decoded = (1..blocks - 1).filter_map(|block| Batch::decode(salt, bytes, task.segment, block));
    let found: Vec<Batch> = decoded.filter(|batch| batch.place.life > task.erased.unwrap_or(0)).collect();
    let life = task.life.or_else(|| found.iter().map(|batch| batch.place.life).max());
    let Some(life) = life else {
        return Scanned { life, entries: Vec::new(), next_block: 1, next_sequence: 0, is_lost: false };
    };
    // From there on batches are in other segments: what is here was torn, and its sequence given to another batch.
    let sequence_end = lives.range(life.saturating_add(1)..).next().copied();
    let mut chain: Vec<Batch> = Vec::new();
    let mut is_lost = false;
    for batch in found {
        let is_of_life = batch.place.life == life || bugs.has(BlobBug::AcceptOldLife);
        if !is_of_life || sequence_end.is_some_and(|end| batch.place.sequence >= end) {
            continue;
        }
        let (next_block, next_sequence) = chain_end(&chain, life);
        // Nothing else begins inside a batch: what looks like it is a client's data.
        let is_behind = batch.place.sequence >= next_sequence || bugs.has(BlobBug::AcceptOldLife);
        if batch.place.block >= next_block && is_behind {
            is_lost |= (batch.place.block, batch.place.sequence) != (next_block, next_sequence);
            chain.push(batch);
        }
    }
    let is_newest = sequence_end.is_none();
    if is_newest && chain.last().is_some_and(|last| !last.is_whole(salt, bytes, bugs)) {
        // What was lost before it stays lost.
        chain.pop();
    }
    if bugs.has(BlobBug::OverwriteLastBatch) && is_newest {
        let (next_block, _) = chain_end(&chain[..chain.len().saturating_sub(1)], life);
        let (_, next_sequence) = chain_end(&chain, life);
        let entries = chain.into_iter().flat_map(|batch| batch.entries).collect();
        return Scanned { life: Some(life), entries, next_block, next_sequence, is_lost };
    }
    let (next_block, next_sequence) = chain_end(&chain, life);
    let entries = chain.into_iter().flat_map(|batch| batch.entries).collect();
    Scanned { life: Some(life), entries, next_block, next_sequence, is_lost: is_lost && !bugs.has(BlobBug::IgnoreGap) }
}

fn chain_end(chain: &[Batch], life: u64) -> (u32, u64) {
    chain.last().map_or((1, life), |last| (last.place.block + last.blocks, last.place.sequence + 1))
}

#[cfg(test)]
mod tests;
