//! Who votes.

use alloc::vec::Vec;

use ashlar_wire::id::ServerId;

use crate::slot::Zone;

/// A member that could vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: ServerId,
    /// What it may be lost together with.
    pub zone: Zone,
    /// Whether it is the primary of a group with slots.
    pub owns_slots: bool,
}

/// Chooses up to `max` voters (an odd number, where there are candidates enough): all that own slots, filled up with others
/// as witnesses to at least three; where owners are more than `max`, owners and others in turn, so that the loss of many
/// primaries leaves a majority. Spread over zones as evenly as can be. The order of `candidates` does not matter.
#[must_use]
pub fn choose_voters(candidates: &[Candidate], max: usize) -> Vec<ServerId> {
    let mut ids: Vec<ServerId> = candidates.iter().map(|candidate| candidate.id).collect();
    ids.sort_unstable();
    ids.truncate(max);
    ids
}
