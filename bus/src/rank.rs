//! Which replica of a failed primary stands first.
//!
//! The one with the most data; among those, the one whose zone has the fewest primaries, so that failures do not pile them
//! up in one zone; among those, the one with the smallest id. Each replica finds its own rank from what the others have told
//! and waits so many steps; a rank that is wrong, because something was not told in time, costs a delay and never safety.
//!
//! Follows Valkey's rank by replication offset; zones and ids are added.

use core::cmp::Reverse;

use ashlar_wire::id::ServerId;

/// What counts of a replica that may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How far its copy goes, bytes of the replication log.
    pub offset: u64,
    /// Living primaries in its zone.
    pub zone_primaries: usize,
    /// Which.
    pub id: ServerId,
}

impl Standing {
    /// Whether it should stand before `other`.
    #[must_use]
    pub fn is_better(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.offset, Reverse(one.zone_primaries), Reverse(one.id));
        key(self) > key(other)
    }
}

/// How many of `others` should stand before `own`.
pub fn rank<'a>(own: &Standing, others: impl IntoIterator<Item = &'a Standing>) -> u32 {
    let better = others.into_iter().filter(|other| other.id != own.id && other.is_better(own)).count();
    u32::try_from(better).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_then_zone_then_id() {
        let standing =
            |offset, zone_primaries, id: u8| Standing { offset, zone_primaries, id: ServerId::from_bytes([id; 16]) };
        // Best first.
        let order = [standing(9, 5, 9), standing(8, 0, 3), standing(8, 1, 1), standing(8, 1, 2), standing(0, 0, 0)];
        for (expected, own) in order.iter().enumerate() {
            assert_eq!(rank(own, &order), u32::try_from(expected).unwrap());
        }
        assert_eq!(rank(&order[0], &[]), 0);
        assert!(!order[0].is_better(&order[0]));
        assert_eq!(rank(&standing(7, 5, 9), &order), 3, "what is told of itself does not stand before it");
    }
}
