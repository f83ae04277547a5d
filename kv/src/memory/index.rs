//! A hash table of handles: five bytes an entry and room to spare, and no step that costs more than a thousand moves.
//!
//! Whoever has the records has the keys: hashes come in as [`Records`], equality as a closure over a handle. The index keeps a byte of
//! each hash (the tag), so that about one search in thirty reads a record in vain.
//!
//! Model
//! - The upper half of a hash is its *order*, the low byte its tag.
//! - Entries are in segments, each for a range of orders, each ordered up to displacement (`segment.rs`). A segment that
//!   is full grows by a third to seven twelfths, up to 128 blocks of eight; one that would grow past that splits into two
//!   by the next bit of the order. A directory finds the segment by the leading bits (extendible hashing).
//! - By how much a segment grows is drawn from the hash that finds it full. Thousands of indexes that fill alike, one a
//!   slot, would otherwise all grow at the same number of keys.
//! - Two halves that are nearly empty become one again, and a sparse segment shrinks.
//! - As place follows order, a scan needs no state but the order to go on from: whatever grew, shrank or split in
//!   between, what is at or after it is still to come, and what is before it was seen.
//!
//! Bounds: a change moves at most the entries of one segment, 896, as long as hashes are what they should be. Where
//! many agree in their order, splits stop at a directory of one place for 64 entries and segments grow instead.
//!
//! Deliberately absent: keys, hashing, chance (a draw comes in), and a check that an entry is not there already.
//!
//! Follows extendible hashing (Fagin et al., 1979) and Swiss tables (tags beside entries).

mod directory;
mod segment;

use self::directory::{Directory, Part};
use self::segment::Place;
use crate::memory::arena::Handle;

/// What an index asks about its entries, since only their owner has them. Any closure from a handle to a hash will do.
pub trait Records {
    /// The hash of an entry's key.
    fn hash(&self, handle: Handle) -> u64;

    /// The entry is among many whose hashes are asked for next: has its record brought near, without waiting for it.
    fn touch(&self, handle: Handle) {
        _ = handle;
    }
}

impl<F: Fn(Handle) -> u64> Records for F {
    fn hash(&self, handle: Handle) -> u64 {
        self(handle)
    }
}

/// Entries by hash. An empty one allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Index {
    root: Root,
}

const _: () = assert!(size_of::<Index>() <= 48, "there is one for each slot of each database");

/// Nearly all indexes are one segment.
#[derive(Debug, Clone)]
enum Root {
    One(Part),
    Many(Box<Directory>),
}

impl Default for Root {
    fn default() -> Self {
        Self::One(Part::default())
    }
}

/// What an index uses of a hash: the order, and the tag.
#[inline]
const fn split_hash(hash: u64) -> (u32, u8) {
    let tag = hash as u8;
    ((hash >> 32) as u32, if tag < 2 { tag + 2 } else { tag })
}

impl Index {
    /// An index without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The entry with this hash for which `is` says yes.
    #[inline]
    pub fn find(&self, hash: u64, is: impl FnMut(Handle) -> bool) -> Option<Handle> {
        let (part, place) = self.place(hash, is)?;
        Some(part.segment.handle(place))
    }

    /// The bytes where a search for this hash begins, to be brought near: where they are, and how many. They are not read.
    #[must_use]
    pub fn home(&self, hash: u64) -> Option<(*const u8, usize)> {
        let (order, tag) = split_hash(hash);
        let part = self.part(order);
        part.segment.home_bytes(part.mark(order, tag))
    }

    /// Shows what may be entries with this hash, where a search for it begins: nearly always the one, if there is one.
    pub fn suspects(&self, hash: u64, visit: impl FnMut(Handle)) {
        let (order, tag) = split_hash(hash);
        let part = self.part(order);
        part.segment.suspects(part.mark(order, tag), visit);
    }

    /// Adds an entry that is not there yet. `records` is asked about others, when they have to move.
    pub fn insert(&mut self, hash: u64, handle: Handle, records: &impl Records) {
        let (order, tag) = split_hash(hash);
        while self.part(order).segment.is_full() {
            self.make_room(order, records);
        }
        let part = self.part_mut(order);
        let mark = part.mark(order, tag);
        part.segment.insert(mark, handle);
        if let Root::Many(directory) = &mut self.root {
            directory.len += 1;
        }
    }

    /// Takes out the entry with this hash for which `is` says yes. `records` is asked about others, when they have to
    /// move.
    pub fn remove(&mut self, hash: u64, is: impl FnMut(Handle) -> bool, records: &impl Records) -> Option<Handle> {
        let (_, place) = self.place(hash, is)?;
        let (order, _) = split_hash(hash);
        let part = self.part_mut(order);
        let handle = part.segment.remove(place);
        let is_sparse = part.segment.is_sparse();
        if let Root::Many(directory) = &mut self.root {
            directory.len -= 1;
        }
        if self.is_empty() {
            self.clear();
        } else if is_sparse {
            self.save_room(order, records);
        }
        Some(handle)
    }

    /// Puts another handle in the place of one, for the same hash: the record has moved. Says whether the old one was
    /// there.
    pub fn replace(&mut self, hash: u64, old: Handle, new: Handle) -> bool {
        let Some((_, place)) = self.place(hash, |handle| handle == old) else { return false };
        let (order, _) = split_hash(hash);
        self.part_mut(order).segment.set_handle(place, new);
        true
    }

    /// Entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.root {
            Root::One(part) => part.segment.len(),
            Root::Many(directory) => directory.len,
        }
    }

    /// Whether there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes taken from the allocator, without its own bookkeeping.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        match &self.root {
            Root::One(part) => part.segment.bytes_held(),
            Root::Many(directory) => directory.bytes_held(),
        }
    }

    /// Places for entries, taken or not.
    #[must_use]
    pub fn places(&self) -> usize {
        self.parts().iter().map(|part| part.segment.slot_count()).sum()
    }

    /// Forgets all entries and gives all memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// All entries, in no promised order.
    pub fn iter(&self) -> impl Iterator<Item = Handle> + '_ {
        self.parts().iter().flat_map(|part| part.segment.handles())
    }

    /// Visits the entries whose order is at or after `cursor` and before the cursor that comes back: at least `count`
    /// of them if so many are left, and not many more. Starts from 0 and is over when 0 comes back.
    ///
    /// An entry that is there from the first call to the last is visited exactly once, whatever else comes and goes.
    pub fn scan(&self, cursor: u32, count: usize, records: &impl Records, mut visit: impl FnMut(Handle)) -> u32 {
        let mut visited = 0;
        let mut order = cursor;
        loop {
            let part = self.part(order);
            let end = part.window_end(order, count.saturating_sub(visited));
            part.visit(order, end, |handle| records.touch(handle));
            part.visit(order, end, |handle| {
                let (found, _) = split_hash(records.hash(handle));
                if found >= order && u64::from(found) < end {
                    visited += 1;
                    visit(handle);
                }
            });
            // Past the last order there is nothing.
            let Ok(next) = u32::try_from(end) else { return 0 };
            if visited >= count {
                return next;
            }
            order = next;
        }
    }

    /// An entry, each with the same chance, if there is one. `draw` gives evenly spread numbers of 64 bits.
    pub fn random(&self, mut draw: impl FnMut() -> u64) -> Option<Handle> {
        if self.is_empty() {
            return None;
        }
        let parts = self.parts();
        let slots_max = match &self.root {
            Root::One(part) => part.segment.slot_count(),
            Root::Many(directory) => directory.slots_max(),
        };
        for _ in 0..RANDOM_TRIES_MAX {
            let place = below(draw(), parts.len() * slots_max);
            let (segment, slot) = (&parts[place / slots_max].segment, place % slots_max);
            let found = if slot < segment.slot_count() { segment.slot(slot) } else { None };
            if found.is_some() {
                return found;
            }
        }
        self.nth(below(draw(), self.len()))
    }

    /// The entry with so many others before it, in no promised order.
    fn nth(&self, mut rank: usize) -> Option<Handle> {
        for part in self.parts() {
            if rank < part.segment.len() {
                return part.segment.handles().nth(rank);
            }
            rank -= part.segment.len();
        }
        None
    }

    #[inline]
    fn place(&self, hash: u64, is: impl FnMut(Handle) -> bool) -> Option<(&Part, Place)> {
        let (order, tag) = split_hash(hash);
        let part = self.part(order);
        let place = part.segment.find(part.mark(order, tag), is)?;
        Some((part, place))
    }

    fn parts(&self) -> &[Part] {
        match &self.root {
            Root::One(part) => std::slice::from_ref(part),
            Root::Many(directory) => directory.parts(),
        }
    }

    #[inline]
    fn part(&self, order: u32) -> &Part {
        match &self.root {
            Root::One(part) => part,
            Root::Many(directory) => directory.part(order),
        }
    }

    #[inline]
    fn part_mut(&mut self, order: u32) -> &mut Part {
        match &mut self.root {
            Root::One(part) => part,
            Root::Many(directory) => directory.part_mut(order),
        }
    }

    /// Makes the full segment of an order larger, cleaner or two.
    fn make_room(&mut self, order: u32, records: &impl Records) {
        match &mut self.root {
            Root::One(part) if part.segment.is_stale() || part.segment.grows(order) => part.grow(order, records),
            Root::One(part) => {
                let part = std::mem::take(part);
                let mut directory = Box::new(Directory::new(part));
                directory.make_room(order, records);
                self.root = Root::Many(directory);
            }
            Root::Many(directory) => directory.make_room(order, records),
        }
    }

    /// Makes the sparse segment of an order smaller, or one with its neighbour.
    fn save_room(&mut self, order: u32, records: &impl Records) {
        match &mut self.root {
            Root::One(part) => part.shrink(order, records),
            Root::Many(directory) => {
                directory.save_room(order, records);
                if let Some(part) = directory.take_only() {
                    self.root = Root::One(part);
                }
            }
        }
    }
}

/// Places tried before entries are counted off.
const RANDOM_TRIES_MAX: usize = 128;

/// A number below a bound, evenly spread as far as 64 bits can be.
#[inline]
pub(crate) const fn below(draw: u64, bound: usize) -> usize {
    ((draw as u128 * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests;
