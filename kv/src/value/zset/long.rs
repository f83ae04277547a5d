//! A large sorted set: entries by member in a table, and the same entries in order in a tree.
//!
//! The table owns the entries: the value of a member is its score, eight bytes little-endian. The tree has their handles,
//! with numbers that are ordered as the scores are.
//! A score is only changed in place, so a handle stays.

use std::cmp::Ordering;
use std::ops::Range;

use super::{Entry, order};
use crate::memory::arena::Handle;
use crate::memory::hash_key::HashKey;
use crate::memory::tree::{Handles, Item, Tree};
use crate::value::dict::{self, Dict};

/// A large sorted set.
#[derive(Debug, Clone, Default)]
pub(super) struct Long {
    members: Dict,
    order: Tree,
}

impl Long {
    pub(super) const fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) const fn members(&self) -> &Dict {
        &self.members
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.members.bytes_held() + self.order.bytes_held()
    }

    pub(super) fn entry(&self, handle: Handle) -> Entry<'_> {
        let (member, score) = pair_of(&self.members, handle);
        Entry { member: member.into(), score }
    }

    /// Where a member is, and its score.
    pub(super) fn find(&self, member: &[u8], key: &HashKey) -> Option<(Handle, f64)> {
        let handle = self.members.find(key, member)?;
        Some((handle, pair_of(&self.members, handle).1))
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, member: &[u8], score: f64, key: &HashKey) {
        let handle = self.put(member, score, key);
        self.place(handle);
    }

    /// Adds a member that is not there and comes after all others.
    pub(super) fn push_back(&mut self, member: &[u8], score: f64, key: &HashKey) {
        let handle = self.put(member, score, key);
        self.order.insert(Item::new(number_of(score), handle), |_| true);
    }

    fn put(&mut self, member: &[u8], score: f64, key: &HashKey) -> Handle {
        let inserted = self.members.insert(key, dict::Entry { member, value: &score.to_le_bytes(), expiry_ms: None });
        assert!(inserted.is_new(), "only what is not there is added");
        inserted.handle
    }

    /// Puts an entry of the table in the order.
    fn place(&mut self, handle: Handle) {
        let Self { members, order } = self;
        let (member, score) = pair_of(members, handle);
        order.insert(Item::new(number_of(score), handle), |item| is_before(members, item, score, member));
    }

    /// Takes an entry of the table out of the order.
    fn displace(&mut self, handle: Handle) {
        let (member, score) = pair_of(&self.members, handle);
        let rank = self.rank_of(score, member);
        let removed = self.order.remove_at(rank);
        assert!(removed == Some(handle), "the order has what the table has");
    }

    /// How many entries come before a member with a score.
    pub(super) fn rank_of(&self, score: f64, member: &[u8]) -> usize {
        self.order.partition_point(|item| is_before(&self.members, item, score, member))
    }

    /// How many entries at the front have scores that answer yes.
    pub(super) fn partition_by_score(&self, mut is_before: impl FnMut(f64) -> bool) -> usize {
        self.order.partition_point(|item| is_before(score_with(item.number())))
    }

    /// How many entries at the front have members that answer yes.
    pub(super) fn partition_by_member(&self, mut is_before: impl FnMut(&[u8]) -> bool) -> usize {
        self.order.partition_point(|item| is_before(self.members.entry(item.handle()).member))
    }

    /// Changes the score of an entry.
    pub(super) fn set_score(&mut self, handle: Handle, score: f64) {
        self.displace(handle);
        self.members.value_mut(handle).copy_from_slice(&score.to_le_bytes());
        self.place(handle);
    }

    pub(super) fn remove(&mut self, member: &[u8], key: &HashKey) -> Option<f64> {
        let (handle, score) = self.find(member, key)?;
        self.displace(handle);
        self.members.remove_handle(key, handle);
        Some(score)
    }

    pub(super) fn remove_range(&mut self, ranks: Range<usize>, key: &HashKey) {
        let Self { members, order } = self;
        order.remove_range(ranks, |handle| members.remove_handle(key, handle));
    }

    pub(super) fn handles(&self, ranks: Range<usize>) -> Handles<'_> {
        self.order.iter(ranks)
    }

    pub(super) fn scan<'a>(
        &'a self,
        cursor: u32,
        count: usize,
        key: &HashKey,
        visit: &mut impl FnMut(Entry<'a>),
    ) -> u32 {
        self.members
            .scan(key, cursor, count, |entry| visit(Entry { member: entry.member.into(), score: score_of(entry) }))
    }

    /// Puts in order what has been gathered in a table of scores.
    pub(super) fn from_members(members: Dict) -> Self {
        let mut handles: Vec<Handle> = members.handles().collect();
        handles.sort_unstable_by(|one, other| {
            let [one, other] = [one, other].map(|handle| pair_of(&members, *handle));
            order((one.1, one.0), (other.1, other.0))
        });
        let mut order = Tree::new();
        for handle in handles {
            let number = number_of(pair_of(&members, handle).1);
            order.insert(Item::new(number, handle), |_| true);
        }
        Self { members, order }
    }
}

/// A member and its score.
fn pair_of(members: &Dict, handle: Handle) -> (&[u8], f64) {
    let entry = members.entry(handle);
    (entry.member, score_of(entry))
}

/// Whether an item comes before a member with a score. Only where scores are the same, members are looked at.
fn is_before(members: &Dict, item: Item, score: f64, member: &[u8]) -> bool {
    match item.number().cmp(&number_of(score)) {
        Ordering::Equal => members.entry(item.handle()).member < member,
        other => other.is_lt(),
    }
}

/// The sign of a number of 64 bits.
const SIGN: u64 = 1 << 63;

/// A number that is ordered as the score is; the same for both zeros.
fn number_of(score: f64) -> u64 {
    // Adding zero makes one zero of two.
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The score that has a number.
const fn score_with(number: u64) -> f64 {
    f64::from_bits(if number & SIGN == 0 { !number } else { number & !SIGN })
}

/// The score that is the value of a member.
pub(super) fn score_of(entry: dict::Entry<'_>) -> f64 {
    f64::from_le_bytes(entry.value.try_into().expect("the value of a member is a score"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_as_scores_are() {
        let scores = [f64::NEG_INFINITY, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e300, f64::INFINITY];
        assert!(scores.map(number_of).is_sorted_by(|one, other| one < other));
        assert_eq!(number_of(-0.0), number_of(0.0));
        for score in scores {
            assert_eq!(score_with(number_of(score)).to_bits(), score.to_bits());
        }
    }
}
