//! Some of all slots, a bit each.

use crate::cluster::map::SlotRange;
use crate::keyspace::Slot;
use crate::keyspace::slot::SLOTS;

const WORD_BITS: usize = 64;
const WORDS: usize = SLOTS as usize / WORD_BITS;

/// A set of slots in which one is found at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlotTable(Box<[u64]>);

impl Default for SlotTable {
    fn default() -> Self {
        Self(vec![0; WORDS].into_boxed_slice())
    }
}

impl SlotTable {
    /// Those of these ranges.
    pub(crate) fn of(ranges: &[SlotRange]) -> Self {
        let mut table = Self::default();
        for number in ranges.iter().flat_map(|range| range.numbers()) {
            table.0[usize::from(number) / WORD_BITS] |= 1 << (usize::from(number) % WORD_BITS);
        }
        table
    }

    /// Whether a slot is among them.
    #[inline]
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.0[slot.index() / WORD_BITS] & 1 << (slot.index() % WORD_BITS) != 0
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether both have one slot at least.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one & other != 0)
    }

    /// Those of another are among them from now on.
    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Those of another are not.
    pub(crate) fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    /// All of them, by number.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).filter_map(Slot::new).filter(|slot| self.has(*slot))
    }

    /// All of them as ranges that do not touch.
    pub(crate) fn ranges(&self) -> Vec<SlotRange> {
        SlotRange::gather(self.slots().map(Slot::number))
    }
}
