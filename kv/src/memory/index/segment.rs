//! A part of an index: handles in blocks of eight, ordered by hash up to displacement.
//!
//! An entry's home is the block that its order falls on when all orders are spread evenly over the blocks. It lies there
//! or, where that was full, in the first block after it with room, wrapping. A search ends at the first block with an
//! empty lane. So a lane of a full block becomes dead when its entry goes, and not empty: others may have passed it.

use crate::memory::arena::Handle;

/// Entries in a block.
const LANES: usize = 8;

/// Of eight lanes, seven may be used (live or dead), so a search always ends.
const USED_MAX_PER_BLOCK: usize = 7;

/// Blocks of a segment at most. A longer one is only for hashes that agree in so many bits that no split parts them.
pub(super) const BLOCKS_MAX: usize = 128;

const EMPTY: u8 = 0;
const DEAD: u8 = 1;

/// A number up to a bound, from bits of a hash that need not be even ones.
const fn drawn(draw: u32, max: usize) -> usize {
    /// 2^32 by the golden ratio: neighbours come to lie far apart.
    const SPREAD: u32 = 0x9e37_79b9;
    ((draw.wrapping_mul(SPREAD) as u64 * (max as u64 + 1)) >> 32) as usize
}

/// What a segment uses of a hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Where the entry is at home, from 0 (the first block) to 2^32 (past the last).
    pub(super) order: u32,
    /// Tells most entries of a block apart without a look at their records. At least 2.
    pub(super) tag: u8,
}

/// Eight entries.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// [`EMPTY`], [`DEAD`], or the tag of the handle beside it.
    tags: [u8; LANES],
    handles: [u32; LANES],
}

impl Block {
    const NEW: Self = Self { tags: [EMPTY; LANES], handles: [0; LANES] };

    #[inline]
    fn tags(&self) -> Tags {
        Tags(u64::from_le_bytes(self.tags))
    }

    fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.tags().live().map(|lane| Handle::from_raw(self.handles[lane]))
    }
}

const ONES: u64 = u64::from_le_bytes([1; LANES]);
const TOPS: u64 = ONES << 7;

/// The eight tags of a block, compared all at once.
#[derive(Debug, Clone, Copy)]
struct Tags(u64);

impl Tags {
    /// The lanes with this tag, and now and then one above such a lane without it.
    #[inline]
    const fn equal(self, tag: u8) -> Lanes {
        let differ = self.0 ^ (ONES * tag as u64);
        Lanes(differ.wrapping_sub(ONES) & !differ & TOPS)
    }

    #[inline]
    const fn has_empty(self) -> bool {
        self.0.wrapping_sub(ONES) & !self.0 & TOPS != 0
    }

    /// The lanes that are neither empty nor dead.
    #[inline]
    const fn live(self) -> Lanes {
        let at_least_two = (self.0 & !TOPS) + ONES * 126;
        Lanes((at_least_two | self.0) & TOPS)
    }

    /// The first lane that is empty or dead.
    #[inline]
    fn first_free(self) -> Option<usize> {
        Lanes(!self.live().0 & TOPS).next()
    }
}

/// Lanes of a block: the top bit of each one's byte.
#[derive(Debug, Clone, Copy)]
struct Lanes(u64);

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() / 8;
        self.0 &= self.0 - 1;
        Some(lane as usize)
    }
}

/// Where an entry is in its segment, until the segment changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    block: usize,
    lane: usize,
}

/// A hash table of fixed size. An empty one allocates nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Segment {
    blocks: Box<[Block]>,
    live: u32,
    dead: u32,
}

impl Segment {
    pub(super) fn with_blocks(count: usize) -> Self {
        Self { blocks: vec![Block::NEW; count].into_boxed_slice(), live: 0, dead: 0 }
    }

    /// One that takes so many entries and a quarter to a half more, as `draw` has it.
    pub(super) fn with_room_for(entries: usize, draw: u32) -> Self {
        let room = entries / 4;
        Self::with_blocks((entries + room + drawn(draw, room)).div_ceil(USED_MAX_PER_BLOCK))
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.live as usize
    }

    pub(super) const fn block_count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) const fn bytes_held(&self) -> usize {
        self.blocks.len() * size_of::<Block>()
    }

    pub(super) const fn slot_count(&self) -> usize {
        self.blocks.len() * LANES
    }

    const fn used_max(&self) -> usize {
        self.blocks.len() * USED_MAX_PER_BLOCK
    }

    /// Whether an entry more needs a larger segment, or the same without the dead.
    #[inline]
    pub(super) const fn is_full(&self) -> bool {
        self.live as usize + self.dead as usize >= self.used_max()
    }

    /// Whether a good part of what fills it is dead.
    pub(super) const fn is_stale(&self) -> bool {
        self.dead > 0 && self.dead as usize * 4 >= self.used_max()
    }

    /// Whether less than a quarter of it is in use.
    pub(super) const fn is_sparse(&self) -> bool {
        self.live == 0 || (self.blocks.len() > 1 && self.live as usize * 4 < self.used_max())
    }

    /// The next larger number of blocks: a third to seven twelfths more, as `draw` has it.
    pub(super) fn block_count_next(&self, draw: u32) -> usize {
        let blocks = self.blocks.len();
        blocks + (blocks / 3).max(1) + drawn(draw, blocks / 4)
    }

    /// Whether it may have the next larger number of blocks.
    pub(super) fn grows(&self, draw: u32) -> bool {
        self.block_count_next(draw) <= BLOCKS_MAX
    }

    #[inline]
    pub(super) fn home(&self, order: u32) -> usize {
        ((u64::from(order) * self.blocks.len() as u64) >> 32) as usize
    }

    #[inline]
    const fn after(&self, block: usize) -> usize {
        let next = block + 1;
        if next == self.blocks.len() { 0 } else { next }
    }

    /// The entry with this mark that the caller knows for the right one.
    #[inline]
    pub(super) fn find(&self, mark: Mark, mut is: impl FnMut(Handle) -> bool) -> Option<Place> {
        if self.blocks.is_empty() {
            return None;
        }
        let mut at = self.home(mark.order);
        loop {
            let block = &self.blocks[at];
            let tags = block.tags();
            for lane in tags.equal(mark.tag) {
                // A lane that only looks equal may be empty or dead; its handle would mean nothing.
                if block.tags[lane] == mark.tag && is(Handle::from_raw(block.handles[lane])) {
                    return Some(Place { block: at, lane });
                }
            }
            if tags.has_empty() {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Where the home block of a mark is, and its size.
    pub(super) fn home_bytes(&self, mark: Mark) -> Option<(*const u8, usize)> {
        let block = self.blocks.get(self.home(mark.order))?;
        Some((std::ptr::from_ref(block).cast(), size_of::<Block>()))
    }

    /// Shows the entries of the home block that have the tag of a mark.
    pub(super) fn suspects(&self, mark: Mark, mut visit: impl FnMut(Handle)) {
        let Some(block) = self.blocks.get(self.home(mark.order)) else { return };
        for lane in block.tags().equal(mark.tag) {
            if block.tags[lane] == mark.tag {
                visit(Handle::from_raw(block.handles[lane]));
            }
        }
    }

    #[inline]
    pub(super) fn handle(&self, place: Place) -> Handle {
        Handle::from_raw(self.blocks[place.block].handles[place.lane])
    }

    pub(super) fn set_handle(&mut self, place: Place, handle: Handle) {
        self.blocks[place.block].handles[place.lane] = handle.raw();
    }

    /// Adds an entry to a segment that is not full.
    #[inline]
    pub(super) fn insert(&mut self, mark: Mark, handle: Handle) {
        assert!(!self.is_full(), "a segment takes entries up to seven eighths");
        let mut at = self.home(mark.order);
        loop {
            let block = &mut self.blocks[at];
            if let Some(lane) = block.tags().first_free() {
                self.dead -= u32::from(block.tags[lane] == DEAD);
                self.live += 1;
                block.tags[lane] = mark.tag;
                block.handles[lane] = handle.raw();
                return;
            }
            at = self.after(at);
        }
    }

    pub(super) fn remove(&mut self, place: Place) -> Handle {
        let block = &mut self.blocks[place.block];
        let is_full = !block.tags().has_empty();
        block.tags[place.lane] = if is_full { DEAD } else { EMPTY };
        self.live -= 1;
        self.dead += u32::from(is_full);
        Handle::from_raw(block.handles[place.lane])
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> + '_ {
        self.blocks.iter().flat_map(Block::handles)
    }

    /// Shows every entry that is at home in these blocks, and others around them. None is shown twice.
    pub(super) fn visit(&self, from: usize, end: usize, mut visit: impl FnMut(Handle)) {
        self.blocks[from..end].iter().flat_map(Block::handles).for_each(&mut visit);
        let mut at = end - 1;
        for _ in end - from..self.blocks.len() {
            if self.blocks[at].tags().has_empty() {
                return;
            }
            at = self.after(at);
            self.blocks[at].handles().for_each(&mut visit);
        }
    }

    /// The blocks from the one that is home to an order, so many that about so many entries are at home there: the
    /// first and the one past the last.
    pub(super) fn window(&self, order: u32, entries: usize) -> (usize, usize) {
        let from = self.home(order);
        let wanted = entries.saturating_mul(self.blocks.len()).div_ceil(self.len().max(1)).max(1);
        (from, self.blocks.len().min(from.saturating_add(wanted)))
    }

    /// The first order that is at home in this block or after it, up to 2^32 for the end.
    pub(super) const fn first_order(&self, block: usize) -> u64 {
        ((block as u64) << 32).div_ceil(self.blocks.len() as u64)
    }

    /// What is in a slot, of [`Segment::slot_count`].
    pub(super) fn slot(&self, slot: usize) -> Option<Handle> {
        let (block, lane) = (&self.blocks[slot / LANES], slot % LANES);
        (block.tags[lane] > DEAD).then(|| Handle::from_raw(block.handles[lane]))
    }
}

#[cfg(test)]
mod tests;
