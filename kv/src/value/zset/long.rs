//! A large sorted set: entries by member in a table, and the same entries in order in a tree.
//!
//! The table owns the entries: the value of a member is its score, eight bytes little-endian. The tree has their handles.
//! A score is only changed in place, so a handle stays.

use std::ops::Range;

use super::{Entry, order};
use crate::memory::arena::Handle;
use crate::memory::hash_key::HashKey;
use crate::memory::tree::{Handles, Tree};
use crate::value::dict::{self, Dict};

/// A large sorted set.
#[derive(Debug, Default)]
pub(super) struct Long {
    members: Dict,
    order: Tree,
}

impl Long {
    pub(super) const fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn bytes_held(&self) -> usize {
        self.members.bytes_held() + self.order.bytes_held()
    }

    pub(super) fn entry(&self, handle: Handle) -> Entry<'_> {
        entry_of(&self.members, handle)
    }

    /// Where a member is, and its score.
    pub(super) fn find(&self, key: &HashKey, member: &[u8]) -> Option<(Handle, f64)> {
        let handle = self.members.find(key, member)?;
        Some((handle, self.entry(handle).score))
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, key: &HashKey, member: &[u8], score: f64) {
        let handle = self.put(key, member, score);
        self.place(handle);
    }

    /// Adds a member that is not there and comes after all others.
    pub(super) fn push_back(&mut self, key: &HashKey, member: &[u8], score: f64) {
        let handle = self.put(key, member, score);
        self.order.insert(handle, |_| true);
    }

    fn put(&mut self, key: &HashKey, member: &[u8], score: f64) -> Handle {
        let inserted = self.members.insert(key, dict::Entry { member, value: &score.to_le_bytes(), expiry_ms: None });
        assert!(inserted.is_new(), "only what is not there is added");
        inserted.handle
    }

    /// Puts an entry of the table in the order.
    fn place(&mut self, handle: Handle) {
        let Self { members, order } = self;
        let new = entry_of(members, handle);
        order.insert(handle, |other| entry_of(members, other).order(new.score, &new.member).is_lt());
    }

    /// Takes an entry of the table out of the order.
    fn displace(&mut self, handle: Handle) {
        let old = self.entry(handle);
        let rank = self.partition_point(|entry| entry.order(old.score, &old.member).is_lt());
        let removed = self.order.remove_at(rank);
        assert!(removed == Some(handle), "the order has what the table has");
    }

    /// Changes the score of an entry.
    pub(super) fn set_score(&mut self, handle: Handle, score: f64) {
        self.displace(handle);
        self.members.value_mut(handle).copy_from_slice(&score.to_le_bytes());
        self.place(handle);
    }

    pub(super) fn remove(&mut self, key: &HashKey, member: &[u8]) -> Option<f64> {
        let (handle, score) = self.find(key, member)?;
        self.displace(handle);
        self.members.remove_handle(key, handle);
        Some(score)
    }

    pub(super) fn remove_range(&mut self, key: &HashKey, ranks: Range<usize>) {
        let Self { members, order } = self;
        order.remove_range(ranks, |handle| members.remove_handle(key, handle));
    }

    pub(super) fn handles(&self, ranks: Range<usize>) -> Handles<'_> {
        self.order.iter(ranks)
    }

    pub(super) fn partition_point(&self, mut is_before: impl FnMut(&Entry<'_>) -> bool) -> usize {
        self.order.partition_point(|handle| is_before(&self.entry(handle)))
    }

    pub(super) fn scan<'a>(
        &'a self,
        key: &HashKey,
        cursor: u32,
        count: usize,
        visit: &mut impl FnMut(Entry<'a>),
    ) -> u32 {
        self.members
            .scan(key, cursor, count, |entry| visit(Entry { member: entry.member.into(), score: score_of(entry) }))
    }

    /// Puts in order what has been gathered in a table of scores.
    pub(super) fn from_members(members: Dict) -> Self {
        let mut handles: Vec<Handle> = members.handles().collect();
        handles.sort_unstable_by(|one, other| {
            let (one, other) = (entry_of(&members, *one), entry_of(&members, *other));
            order((one.score, &one.member), (other.score, &other.member))
        });
        let mut order = Tree::new();
        for handle in handles {
            order.insert(handle, |_| true);
        }
        Self { members, order }
    }
}

fn entry_of(members: &Dict, handle: Handle) -> Entry<'_> {
    let entry = members.entry(handle);
    Entry { member: entry.member.into(), score: score_of(entry) }
}

/// The score that is the value of a member.
pub(super) fn score_of(entry: dict::Entry<'_>) -> f64 {
    f64::from_le_bytes(entry.value.try_into().expect("the value of a member is a score"))
}
