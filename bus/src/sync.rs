//! What differs between two members, found with few bytes.
//!
//! Facts are sorted into classes by a fingerprint of their ids, and each class has one fingerprint of all its facts. Who
//! differs from another sends its fingerprints; the other answers with the facts of those classes that differ, and with its
//! own fingerprints, so that both learn. With eight facts to a class, one fact that differs costs about eight facts.
//!
//! It stands behind gossip: what gossip missed, a restart has missed, or two halves of a partition learned apart.
//!
//! Follows the anti-entropy of Demers and others (1987), with one level of a hash tree (Merkle 1987).

use alloc::vec;
use alloc::vec::Vec;

use ashlar_wire::id::ServerId;

use crate::claim::Claims;
use crate::fingerprint::fingerprint;
use crate::member::Members;
use crate::packet::SYNC_CLASSES_MAX;
use crate::slot::GroupId;

/// Facts to a class, about.
const FACTS_PER_CLASS: usize = 8;

fn class_of(id: u64, count: usize) -> usize {
    usize::try_from(id).unwrap_or(0) & (count - 1)
}

/// The class of a member among `count`, a power of two.
pub(crate) fn member_class(id: ServerId, count: usize) -> usize {
    class_of(fingerprint(id.as_bytes()), count)
}

/// The class of a claim among `count`, a power of two.
pub(crate) fn claim_class(group: GroupId, count: usize) -> usize {
    class_of(fingerprint(&group.0.to_le_bytes()), count)
}

/// How many classes for this many facts: a power of two.
pub(crate) fn class_count(facts: usize) -> usize {
    (facts / FACTS_PER_CLASS).next_power_of_two().min(SYNC_CLASSES_MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "both halves are kept, one upon the other")]
fn fold(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

/// Fingerprints of members by class.
pub(crate) fn member_classes(members: &Members, count: usize) -> Vec<u32> {
    let mut classes = vec![0; count];
    members.iter().for_each(|member| classes[member_class(member.id, count)] ^= fold(member.hash()));
    classes
}

/// Fingerprints of claims by class.
pub(crate) fn claim_classes(claims: &Claims, count: usize) -> Vec<u32> {
    let mut classes = vec![0; count];
    claims.hashes().for_each(|(claim, hash)| classes[claim_class(claim.group, count)] ^= fold(hash));
    classes
}

/// Which classes differ.
pub(crate) fn differing(own: &[u32], theirs: &[u32]) -> Vec<bool> {
    own.iter().zip(theirs).map(|(own, theirs)| own != theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Description, Life, MemberRecord};
    use ashlar_wire::time::Instant;

    #[test]
    fn one_fact_that_differs_is_one_class_that_differs() {
        let record = |number: u16, failed| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            let id = ServerId::from_bytes(id);
            MemberRecord { id, description: Description::default(), life: Life { refuted: 0, failed } }
        };
        let mut one = Members::default();
        (0..500).for_each(|number| {
            one.merge(record(number, false), Instant::ORIGIN);
        });
        let mut other = one.clone();
        let count = class_count(one.len());
        assert_eq!(count, 64);
        let differ = |one: &Members, other: &Members| {
            let differing = differing(&member_classes(one, count), &member_classes(other, count));
            differing.into_iter().filter(|differs| *differs).count()
        };
        assert_eq!(differ(&one, &other), 0);
        other.merge(record(77, true), Instant::ORIGIN);
        assert_eq!(differ(&one, &other), 1);
        one.remove(record(78, false).id);
        assert!((1..=2).contains(&differ(&one, &other)));
        assert_eq!((class_count(0), class_count(9), class_count(100_000)), (1, 1, SYNC_CLASSES_MAX));
        let mut classes: Vec<usize> = one.iter().map(|member| member_class(member.id, count)).collect();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes, (0..count).collect::<Vec<_>>(), "no class is empty");
    }

    #[test]
    fn a_claim_is_in_the_fingerprint_of_its_class_alone() {
        let mut claims = Claims::default();
        let mut expected = vec![0; 8];
        for number in 1..=100 {
            let (group, owner) = (GroupId(number), ServerId::from_bytes([1; 16]));
            let slots = crate::slot::SlotSet::EMPTY;
            claims.hear(crate::claim::Claim { group, owner, epoch: ashlar_wire::epoch::Epoch(3), slots }, 1_000, false);
            let hash = claims.hashes().find(|(claim, _)| claim.group == group).map(|(_, hash)| hash).unwrap();
            expected[claim_class(group, 8)] ^= fold(hash);
            assert_eq!(claim_classes(&claims, 8), expected, "{number}");
        }
        let mut classes: Vec<usize> = (1..=100).map(|number| claim_class(GroupId(number), 8)).collect();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes, (0..8).collect::<Vec<_>>(), "no class is empty");
        assert_eq!([1, 1 << 32, 1 << 32 | 1, 3 << 32 | 1].map(fold), [1, 1, 0, 2], "both halves count");
    }
}
