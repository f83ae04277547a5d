//! Key-value slots, sets of them, and the names of what owns them.
//!
//! A set of slots is kept as sorted ranges that neither touch nor overlap, so that equal sets are equal values and have
//! one written form. Nothing here knows who owns a slot: that is [`claim`](crate::claim).

use alloc::vec::Vec;
use core::fmt;

use ashlar_wire::checksum::{Salt, checksum};

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// One of the [`SLOTS`] hash slots of the key-value service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The first slot.
    pub const FIRST: Self = Self(0);
    /// The last slot.
    pub const LAST: Self = Self(SLOTS - 1);

    /// The slot with this number, if there is one.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number < SLOTS { Some(Self(number)) } else { None }
    }

    /// Its number, below [`SLOTS`].
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Its place in a table of [`SLOTS`] entries.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A replica group: a primary and its replicas. An id is chosen once, by whoever makes the group, and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u64);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// An availability zone: what may be lost as one. Zero is "not told".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Zone(pub u32);

impl Zone {
    /// The zone that operators call `name`. Two names meet in one number about once in four thousand million.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let hash = checksum(Salt::new(&[b"ashlar zone"]), name.as_bytes()).0;
        let [a, b, c, d, ..] = hash.to_be_bytes();
        Self(u32::from_be_bytes([a, b, c, d]).max(1))
    }
}

/// Slots from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRange {
    /// The least slot.
    pub first: Slot,
    /// The greatest slot; at least `first`.
    pub last: Slot,
}

impl SlotRange {
    /// Every slot.
    pub const ALL: Self = Self { first: Slot::FIRST, last: Slot::LAST };

    /// The slots from `first` to `last`, if these are slots in their order.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        match (Slot::new(first), Slot::new(last)) {
            (Some(from), Some(to)) if first <= last => Some(Self { first: from, last: to }),
            _ => None,
        }
    }

    /// How many slots.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.last.0 - self.first.0 + 1
    }

    /// Its place in a table of all slots.
    pub(crate) fn indexes(self) -> core::ops::Range<usize> {
        self.first.index()..self.last.index() + 1
    }

    /// The first `count` slots, all of them if it is 0 or too many, and the others.
    pub(crate) fn split_at(self, count: usize) -> (Self, Option<Self>) {
        match u16::try_from(count) {
            Ok(count) if (1..self.count()).contains(&count) => {
                let next = self.first.0 + count;
                let front = Self { first: self.first, last: Slot(next - 1) };
                (front, Some(Self { first: Slot(next), last: self.last }))
            }
            _ => (self, None),
        }
    }
}

/// A set of slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotSet {
    /// Sorted; between two ranges lies at least one slot that is not in the set.
    ranges: Vec<SlotRange>,
}

impl SlotSet {
    /// The set without slots.
    pub const EMPTY: Self = Self { ranges: Vec::new() };

    /// Every slot.
    #[must_use]
    pub fn all() -> Self {
        Self { ranges: alloc::vec![SlotRange::ALL] }
    }

    /// The slots of `ranges`, which may come in any order and overlap.
    pub fn from_ranges(ranges: impl IntoIterator<Item = SlotRange>) -> Self {
        let mut given: Vec<SlotRange> = ranges.into_iter().collect();
        given.sort_unstable();
        let mut ranges: Vec<SlotRange> = Vec::with_capacity(given.len());
        for range in given {
            match ranges.last_mut() {
                Some(last) if range.first.0 <= last.last.0 + 1 => last.last = last.last.max(range.last),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// Its ranges: sorted, apart from each other.
    #[must_use]
    pub fn ranges(&self) -> &[SlotRange] {
        &self.ranges
    }

    /// Whether it has no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many slots it has.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.ranges.iter().map(|range| range.count()).sum()
    }

    /// Whether `slot` is in it.
    #[must_use]
    pub fn contains(&self, slot: Slot) -> bool {
        let after = self.ranges.partition_point(|range| range.first <= slot);
        after > 0 && self.ranges[after - 1].last >= slot
    }

    /// Its slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.ranges.iter().flat_map(|range| (range.first.0..=range.last.0).map(Slot))
    }

    /// The slots of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::from_ranges(self.ranges.iter().chain(&other.ranges).copied())
    }

    /// Whether a slot is in both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (few, many) = if self.ranges.len() <= other.ranges.len() { (self, other) } else { (other, self) };
        few.ranges.iter().any(|range| {
            let after = many.ranges.partition_point(|other| other.first <= range.last);
            after > 0 && many.ranges[after - 1].last >= range.first
        })
    }

    /// The slots of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        for range in &self.ranges {
            let mut first = range.first.0;
            for hole in other.ranges.iter().filter(|hole| hole.last >= range.first && hole.first <= range.last) {
                if hole.first.0 > first {
                    ranges.push(SlotRange { first: Slot(first), last: Slot(hole.first.0 - 1) });
                }
                first = hole.last.0 + 1;
            }
            if first <= range.last.0 {
                ranges.push(SlotRange { first: Slot(first), last: range.last });
            }
        }
        Self { ranges }
    }

    /// The slots that `keep` chooses.
    #[must_use]
    pub fn filtered(&self, mut keep: impl FnMut(Slot) -> bool) -> Self {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for slot in self.iter().filter(|slot| keep(*slot)) {
            match ranges.last_mut() {
                Some(last) if last.last.0 + 1 == slot.0 => last.last = slot,
                _ => ranges.push(SlotRange { first: slot, last: slot }),
            }
        }
        Self { ranges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u16, u16)]) -> SlotSet {
        SlotSet::from_ranges(ranges.iter().map(|&(first, last)| SlotRange::new(first, last).unwrap()))
    }

    #[test]
    fn equal_sets_are_equal_values() {
        type Ranges = &'static [(u16, u16)];
        let cases: [(Ranges, Ranges); 4] = [
            (&[(5, 9), (0, 4)], &[(0, 9)]),
            (&[(0, 9), (3, 5)], &[(0, 9)]),
            (&[(0, 1), (3, 3), (2, 2)], &[(0, 3)]),
            (&[(0, 1), (3, 16_383)], &[(0, 1), (3, 16_383)]),
        ];
        for (given, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|&(a, b)| SlotRange::new(a, b).unwrap()).collect();
            assert_eq!(set(given).ranges(), expected);
        }
        assert_eq!(SlotSet::all().count(), SLOTS);
        assert_eq!((SlotRange::new(3, 2), SlotRange::new(0, SLOTS)), (None, None));
    }

    #[test]
    fn sets_agree_with_a_table_of_slots() {
        let (one, other) = (set(&[(0, 9), (20, 29), (16_380, 16_383)]), set(&[(5, 22), (27, 27), (16_383, 16_383)]));
        let of = |set: &SlotSet| set.iter().map(Slot::number).collect::<Vec<_>>();
        let both = (0..SLOTS).filter_map(Slot::new);
        let left: Vec<u16> =
            both.filter(|slot| one.contains(*slot) && !other.contains(*slot)).map(Slot::number).collect();
        assert_eq!(of(&one.without(&other)), left);
        assert_eq!(of(&one.filtered(|slot| !other.contains(slot))), left);
        assert_eq!(one.filtered(|slot| !other.contains(slot)), one.without(&other), "in one form");
        let of_any = |slot: &Slot| one.contains(*slot) || other.contains(*slot);
        let any: Vec<u16> = (0..SLOTS).filter_map(Slot::new).filter(of_any).map(Slot::number).collect();
        assert_eq!(of(&one.union(&other)), any);
        assert!(SlotSet::EMPTY.is_empty() && !one.is_empty() && one.without(&one).is_empty());
        assert_eq!(one.without(&other).union(&other), one.union(&other));
        assert_eq!(one.without(&SlotSet::all()), SlotSet::EMPTY);
        for (ranges, expected) in [(&[(10, 19)][..], false), (&[(10, 20)], true), (&[(3, 3)], true), (&[], false)] {
            assert_eq!((one.overlaps(&set(ranges)), set(ranges).overlaps(&one)), (expected, expected));
        }
        let (low, high) = (set(&[(0, 3)]), set(&[(5, 9), (20, 29)]));
        assert!(!low.overlaps(&high) && !high.overlaps(&low));
    }

    #[test]
    fn a_range_is_cut_where_it_was_asked_for() {
        let range = |first, last| SlotRange::new(first, last).unwrap();
        assert_eq!((range(7, 9).count(), range(7, 7).count(), range(7, 9).indexes()), (3, 1, 7..10));
        assert_eq!((Slot::LAST.number(), Slot::LAST.index(), SlotRange::ALL.indexes()), (16_383, 16_383, 0..16_384));
        let whole = range(7, 9);
        for (count, front, back) in [
            (1, range(7, 7), Some(range(8, 9))),
            (2, range(7, 8), Some(range(9, 9))),
            (0, whole, None),
            (3, whole, None),
            (4, whole, None),
            (70_000, whole, None),
        ] {
            assert_eq!(whole.split_at(count), (front, back), "{count}");
        }
    }

    #[test]
    fn names_have_one_form() {
        assert_eq!(alloc::format!("{}", GroupId(0xabc)), "0000000000000abc");
        let [one, other] = ["one", "other"].map(Zone::named);
        assert_eq!(one, Zone::named("one"));
        assert!(one != other && one != Zone::default() && other != Zone::default());
    }
}
