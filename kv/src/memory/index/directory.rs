//! The segments of a large index, found by the leading bits of the order.

use super::segment::{BLOCKS_MAX, Mark, Segment};
use super::{Records, split_hash};
use crate::memory::arena::Handle;

/// Leading bits of the order that a directory goes by, at most.
const DEPTH_MAX: u8 = 26;

/// A directory does not double past one place for so many entries.
const ENTRIES_PER_PLACE_MIN: usize = 64;

/// Two halves become one when they have at most so many entries together: half of what fills a segment.
const MERGED_ENTRIES_MAX: usize = BLOCKS_MAX * 7 / 2;

/// A segment and the orders that it is for: those that begin with the first `depth` bits of `base`.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub(super) segment: Segment,
    /// The first order. The bits after `depth` are 0.
    base: u32,
    depth: u8,
}

impl Part {
    /// What the segment goes by: the order without the bits that all of its entries share.
    #[inline]
    pub(super) const fn mark(&self, order: u32, tag: u8) -> Mark {
        Mark { order: order << self.depth, tag }
    }

    /// Where a window ends that starts at an order of this part and has about so many entries: an order, or 2^32.
    pub(super) fn window_end(&self, order: u32, entries: usize) -> u64 {
        let local = match self.segment.block_count() {
            0 => 1 << 32,
            _ => self.segment.first_order(self.segment.window(order << self.depth, entries).1),
        };
        u64::from(self.base) + local.div_ceil(1 << self.depth)
    }

    /// Shows every entry from an order of this part up to another, and others around them.
    pub(super) fn visit(&self, order: u32, end: u64, visit: impl FnMut(Handle)) {
        if self.segment.block_count() > 0 {
            let last = u32::try_from(end - 1).expect("orders have 32 bits");
            let (from, last) = (self.segment.home(order << self.depth), self.segment.home(last << self.depth));
            self.segment.visit(from, last + 1, visit);
        }
    }

    /// Makes room in place: without the dead, or with more blocks.
    pub(super) fn grow(&mut self, draw: u32, records: &impl Records) {
        let segment = &self.segment;
        let blocks = if segment.is_stale() { segment.block_count() } else { segment.block_count_next(draw) };
        self.rebuild(Segment::with_blocks(blocks), records);
    }

    /// Gives away what is not needed.
    pub(super) fn shrink(&mut self, draw: u32, records: &impl Records) {
        self.rebuild(Segment::with_room_for(self.segment.len(), draw), records);
    }

    fn rebuild(&mut self, segment: Segment, records: &impl Records) {
        let old = std::mem::replace(&mut self.segment, segment);
        self.take_in(&old, records);
    }

    fn take_in(&mut self, segment: &Segment, records: &impl Records) {
        self.put(&read_entries(segment, records));
    }

    fn put(&mut self, entries: &[(Handle, u32, u8)]) {
        for &(handle, order, tag) in entries {
            let mark = self.mark(order, tag);
            self.segment.insert(mark, handle);
        }
    }
}

/// The entries of a segment, each with order and tag. They are read before any is moved, and touched before any is hashed: a
/// processor has many reads under way at once, but only if little else is to be done between them.
fn read_entries(segment: &Segment, records: &impl Records) -> Vec<(Handle, u32, u8)> {
    let mut entries = Vec::with_capacity(segment.len());
    segment.handles().for_each(|handle| records.touch(handle));
    entries.extend(segment.handles().map(|handle| {
        let (order, tag) = split_hash(records.hash(handle));
        (handle, order, tag)
    }));
    entries
}

/// Parts by order.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    /// Entries in all parts.
    pub(super) len: usize,
    /// The place of a part in `parts`, by the leading `depth` bits of the order.
    table: Vec<u32>,
    /// In no order. Together they are for every order once.
    parts: Vec<Part>,
    /// How many parts have each depth.
    depths: [u32; DEPTH_MAX as usize + 1],
    /// The depth of the deepest part.
    depth: u8,
    /// Bytes of all segments.
    segment_bytes: usize,
    /// No segment has more slots, nor had.
    slots_max: usize,
}

impl Directory {
    /// A directory of one part that is for every order.
    pub(super) fn new(part: Part) -> Self {
        let mut depths = [0; DEPTH_MAX as usize + 1];
        depths[0] = 1;
        Self {
            len: part.segment.len(),
            depths,
            depth: 0,
            segment_bytes: part.segment.bytes_held(),
            slots_max: part.segment.slot_count(),
            table: vec![0],
            parts: vec![part],
        }
    }

    #[inline]
    fn place(&self, order: u32) -> usize {
        // Depth 0 has one place; 32 bits cannot be shifted by 32.
        (u64::from(order) >> (32 - self.depth)) as usize
    }

    #[inline]
    pub(super) fn part(&self, order: u32) -> &Part {
        &self.parts[self.table[self.place(order)] as usize]
    }

    #[inline]
    pub(super) fn part_mut(&mut self, order: u32) -> &mut Part {
        let number = self.table[self.place(order)];
        &mut self.parts[number as usize]
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(super) const fn slots_max(&self) -> usize {
        self.slots_max
    }

    pub(super) const fn bytes_held(&self) -> usize {
        size_of::<Self>()
            + self.table.capacity() * size_of::<u32>()
            + self.parts.capacity() * size_of::<Part>()
            + self.segment_bytes
    }

    /// The only part, if there is no other.
    pub(super) fn take_only(&mut self) -> Option<Part> {
        if self.parts.len() == 1 { self.parts.pop() } else { None }
    }

    /// Makes the full segment of an order larger, cleaner or two.
    pub(super) fn make_room(&mut self, order: u32, records: &impl Records) {
        let part = self.part(order);
        let (depth, is_large) = (part.depth, !part.segment.grows(order));
        let places = 1_usize << (depth + 1);
        let may_split =
            depth < self.depth || (depth < DEPTH_MAX && places <= (self.len / ENTRIES_PER_PLACE_MIN).max(2));
        if is_large && may_split && !part.segment.is_stale() {
            self.split(order, records);
        } else {
            self.reshape(order, |part| part.grow(order, records));
        }
    }

    /// Makes the sparse segment of an order smaller, or one with the other half of its range.
    pub(super) fn save_room(&mut self, order: u32, records: &impl Records) {
        let part = self.part(order);
        if part.depth > 0 {
            let other = self.part(part.base ^ half(part.depth - 1));
            if other.depth == part.depth && part.segment.len() + other.segment.len() <= MERGED_ENTRIES_MAX {
                self.merge(order, records);
                return;
            }
        }
        self.reshape(order, |part| part.shrink(order, records));
    }

    fn reshape(&mut self, order: u32, change: impl FnOnce(&mut Part)) {
        let part = self.part_mut(order);
        let before = part.segment.bytes_held();
        change(part);
        let (after, slots) = (part.segment.bytes_held(), part.segment.slot_count());
        self.slots_max = self.slots_max.max(slots);
        self.segment_bytes = self.segment_bytes - before + after;
    }

    /// Cuts the part of an order in two, by the next bit.
    fn split(&mut self, order: u32, records: &impl Records) {
        if self.part(order).depth == self.depth {
            self.table = self.table.iter().flat_map(|number| [*number, *number]).collect();
            self.depth += 1;
        }
        let number = self.table[self.place(order)];
        let old = std::mem::take(&mut self.parts[number as usize]);
        let (depth, middle) = (old.depth + 1, old.base | half(old.depth));
        let entries = read_entries(&old.segment, records);
        let (uppers, lowers): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(_, order, _)| *order >= middle);
        let cut = |base, entries: &[_]| {
            let mut part = Part { segment: Segment::with_room_for(entries.len(), order), base, depth };
            part.put(entries);
            part
        };
        let (lower, upper) = (cut(old.base, &lowers), cut(middle, &uppers));
        self.depths[usize::from(old.depth)] -= 1;
        self.depths[usize::from(depth)] += 2;
        self.segment_bytes += lower.segment.bytes_held() + upper.segment.bytes_held();
        self.segment_bytes -= old.segment.bytes_held();
        self.parts[number as usize] = lower;
        self.parts.push(upper);
        self.point_at(self.parts.len() - 1);
    }

    /// Makes the part of an order and the other half of its range one.
    fn merge(&mut self, order: u32, records: &impl Records) {
        let Part { base, depth, .. } = *self.part(order);
        let bit = half(depth - 1);
        let upper_number = self.table[self.place(base | bit)] as usize;
        let upper = self.parts.swap_remove(upper_number);
        if upper_number < self.parts.len() {
            self.point_at(upper_number);
        }
        // The lower part may be the one that was moved into the gap.
        let number = self.table[self.place(base & !bit)] as usize;
        let lower = &mut self.parts[number];
        let old = std::mem::take(&mut lower.segment);
        self.segment_bytes -= old.bytes_held() + upper.segment.bytes_held();
        lower.depth = depth - 1;
        lower.segment = Segment::with_room_for(old.len() + upper.segment.len(), order);
        lower.take_in(&old, records);
        lower.take_in(&upper.segment, records);
        self.segment_bytes += lower.segment.bytes_held();
        self.depths[usize::from(depth)] -= 2;
        self.depths[usize::from(depth) - 1] += 1;
        self.point_at(number);
        while self.depth > 0 && self.depths[usize::from(self.depth)] == 0 {
            self.table = self.table.iter().copied().step_by(2).collect();
            self.depth -= 1;
        }
    }

    /// Makes the table name a part wherever it is for.
    fn point_at(&mut self, number: usize) {
        let Part { base, depth, .. } = self.parts[number];
        let from = self.place(base);
        let places = 1 << (self.depth - depth);
        self.table[from..from + places].fill(u32::try_from(number).expect("no more parts than places"));
    }
}

/// The bit of an order that cuts a range of this depth in two.
const fn half(depth: u8) -> u32 {
    1 << (31 - depth)
}

#[cfg(test)]
impl Directory {
    /// Panics unless table, parts and sums agree.
    pub(super) fn check(&self) {
        assert_eq!(self.table.len(), 1 << self.depth);
        let mut places = 0;
        for (number, part) in (0..).zip(&self.parts) {
            let from = self.place(part.base);
            let count = 1 << (self.depth - part.depth);
            assert!(self.table[from..from + count].iter().all(|at| *at == number), "part {number} is where it is for");
            places += count;
        }
        assert_eq!(places, self.table.len());
        assert_eq!(self.len, self.parts.iter().map(|part| part.segment.len()).sum::<usize>());
        assert_eq!(self.segment_bytes, self.parts.iter().map(|part| part.segment.bytes_held()).sum::<usize>());
        assert_eq!(Some(self.depth), self.parts.iter().map(|part| part.depth).max());
    }
}
