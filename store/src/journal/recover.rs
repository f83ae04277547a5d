//! Recovery of the journal: which batches are to be repeated, and whether all of them are there.
//!
//! The newest whole batch names the tail. Every batch from there on must be whole: one that is missing was acknowledged
//! and has been damaged since, and a drive that has forgotten something it promised is not opened. A batch behind the
//! newest whole one is torn and was never acknowledged. What is left of it is overwritten before anybody is told what the drive
//! holds: the sectors that it lacks may be equal in a batch that is written over it later, and if that is interrupted, too, the
//! torn one would be whole, and a change be there that was not there before.

use std::collections::BTreeMap;

use ashlar_wire::checksum::Salt;

use crate::buffer::BLOCK_BYTES;
use crate::error::OpenError;
use crate::journal::batch::{BatchHeader, BatchSeq, begun_sequence, data_is_whole, decode_header};
use crate::planted::{Bug, Bugs};

/// What the ring holds.
#[derive(Debug)]
pub(crate) struct RecoveredJournal {
    /// From the tail to the newest, without a gap, never empty.
    pub(crate) batches: Vec<BatchHeader>,
    /// Greater than that of any batch.
    pub(crate) generation: u64,
    /// Blocks where a batch behind the newest was begun.
    pub(crate) torn: Vec<u32>,
}

/// Looks through the ring.
///
/// # Errors
/// [`OpenError::Damaged`].
pub(crate) fn recover_journal(salt: Salt, ring: &[u8], bugs: Bugs) -> Result<RecoveredJournal, OpenError> {
    let mut whole: BTreeMap<BatchSeq, BatchHeader> = BTreeMap::new();
    let mut newest_torn = BatchSeq(0);
    let mut generation = 0;
    let blocks = ring.len() / BLOCK_BYTES;
    let mut position = 0;
    while position < blocks {
        let at = u32::try_from(position).expect("a ring has a limit");
        position += 1;
        let Some(header) = decode_header(salt, ring, at) else { continue };
        generation = generation.max(header.generation);
        if !data_is_whole(salt, ring, &header) && !bugs.has(Bug::AcceptTornBatch) {
            newest_torn = newest_torn.max(header.sequence);
            continue;
        }
        // Nothing else begins inside a whole batch: what looks like it is a client's data.
        position = at as usize + header.blocks();
        let held = whole.entry(header.sequence).or_insert(header);
        if held.generation < header.generation {
            *held = header;
        }
    }
    let newest = whole.last_key_value().map(|(_, header)| *header).ok_or(OpenError::Damaged("journal: no batch"))?;
    if newest_torn > newest.sequence.next() {
        return Err(OpenError::Damaged("journal: a batch is missing"));
    }
    let needed = (newest.tail.0..=newest.sequence.0).map(|sequence| whole.get(&BatchSeq(sequence)).copied());
    let batches: Vec<BatchHeader> = if bugs.has(Bug::IgnoreJournalGap) {
        needed.map_while(|header| header).collect()
    } else {
        needed.collect::<Option<Vec<_>>>().ok_or(OpenError::Damaged("journal: a batch is missing"))?
    };
    if batches.is_empty() {
        return Err(OpenError::Damaged("journal: no batch"));
    }
    // It was given one of these two places: behind the newest, or where the ring begins.
    let behind = newest.position + u32::try_from(newest.blocks()).expect("a batch has a limit");
    let is_begun = |at: &u32| begun_sequence(ring, *at).is_some_and(|sequence| sequence > newest.sequence);
    let torn = [behind, 0].into_iter().filter(is_begun).collect();
    Ok(RecoveredJournal { batches, generation: generation + 1, torn })
}

#[cfg(test)]
mod tests;
