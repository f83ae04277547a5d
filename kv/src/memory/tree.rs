//! Handles in an order, each found by its rank or by what it stands for.
//!
//! A B+-tree: items lie in leaves of up to `FAN`, which are linked in both directions; each branch above them knows how
//! many items are below it and which is the first. The order is the caller's: it is asked, for one item at a time,
//! whether that comes before what is inserted or looked for, and the answers must be "yes" up to some rank and "no" from
//! there on. An item is a handle and a number, so that most answers need not look at what the handle stands for.
//!
//! Every step costs a walk from the root, which for a million items has four nodes, and moves up to `FAN` entries in
//! some of them. An item takes 13 to 25 bytes. Items that come in ascending order fill their leaves.
//!
//! Follows the B+-tree with counted branches (order-statistic tree). Valkey keeps a skip list for this.

use std::ops::Range;

use crate::memory::arena::Handle;

/// The most entries of a node.
const FAN: usize = 64;
/// The fewest, but for the root and the last node of each level. Two nodes with more than twice this share their entries;
/// with less they become one, which then is far from full.
const FILL_MIN: usize = 24;
/// No node.
const NONE: u32 = u32::MAX;

const _: () = assert!(FILL_MIN * 2 < FAN && FILL_MIN * 2 > FAN / 2, "what is joined is not split at once");

/// A handle, with a number by which it is ordered as far as that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The number in two halves, the upper first, so that an item has no gap.
    halves: [u32; 2],
    handle: Handle,
}

const _: () = assert!(size_of::<Item>() == 12, "an item has no gap");

impl Item {
    /// A handle with its number.
    #[inline]
    #[must_use]
    pub fn new(number: u64, handle: Handle) -> Self {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        Self { halves: [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes), handle }
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        let [upper, lower] = self.halves;
        u64::from(upper) << 32 | u64::from(lower)
    }

    /// The handle.
    #[inline]
    #[must_use]
    pub const fn handle(self) -> Handle {
        self.handle
    }
}

#[derive(Debug, Clone, Default)]
struct Leaf {
    items: Vec<Item>,
    previous: u32,
    next: u32,
}

/// What a node knows about one below it.
#[derive(Debug, Clone, Copy)]
struct Branch {
    node: u32,
    /// How many items are below.
    count: u32,
    /// The first of them.
    first: Item,
}

type Inner = Vec<Branch>;

/// Items in an order.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    leaves: Slab<Leaf>,
    inners: Slab<Inner>,
    /// A leaf if there are no levels above; no node if there are no items.
    root: u32,
    /// How many levels of inner nodes there are.
    levels: u32,
    len: usize,
}

/// Nodes by number.
#[derive(Debug, Clone)]
struct Slab<T> {
    nodes: Vec<T>,
    /// Numbers that are free; their nodes are empty.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    fn add(&mut self, node: T) -> u32 {
        if let Some(number) = self.free.pop() {
            *self.get_mut(number) = node;
            return number;
        }
        let number = u32::try_from(self.nodes.len()).expect("there are fewer nodes than items");
        self.nodes.push(node);
        number
    }

    fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(self.get_mut(number))
    }

    fn get(&self, number: u32) -> &T {
        &self.nodes[number as usize]
    }

    fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.nodes[number as usize]
    }

    fn bytes_held(&self) -> usize {
        self.nodes.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}

impl Tree {
    /// An empty tree, which holds no memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes of memory are held, this value itself aside. Looks at every node.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let leaves: usize = self.leaves.nodes.iter().map(|leaf| leaf.items.capacity() * size_of::<Item>()).sum();
        let inners: usize = self.inners.nodes.iter().map(|inner| inner.capacity() * size_of::<Branch>()).sum();
        self.leaves.bytes_held() + self.inners.bytes_held() + leaves + inners
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Adds an item behind all that come before it.
    pub fn insert(&mut self, item: Item, mut is_before: impl FnMut(Item) -> bool) {
        if self.is_empty() {
            self.root = self.leaves.add(Leaf { items: vec![item], previous: NONE, next: NONE });
            self.len = 1;
            return;
        }
        self.len += 1;
        if let Some(new) = self.insert_below((self.root, true), self.levels, item, &mut is_before) {
            let branches = vec![self.branch(self.root, self.levels), self.branch(new, self.levels)];
            self.root = self.inners.add(branches);
            self.levels += 1;
        }
    }

    /// How many items come before what the closure asks for: the rank of the first that does not.
    pub fn partition_point(&self, mut is_before: impl FnMut(Item) -> bool) -> usize {
        if self.is_empty() {
            return 0;
        }
        let (mut node, mut rank) = (self.root, 0);
        for _ in 0..self.levels {
            let branches = self.inners.get(node);
            let slot = branches.partition_point(|branch| is_before(branch.first)).saturating_sub(1);
            rank += branches[..slot].iter().map(|branch| branch.count as usize).sum::<usize>();
            node = branches[slot].node;
        }
        rank + self.leaves.get(node).items.partition_point(|item| is_before(*item))
    }

    /// The handle at a rank, the first being at 0.
    #[must_use]
    pub fn nth(&self, rank: usize) -> Option<Handle> {
        let spot = self.spot(rank)?;
        Some(self.leaves.get(spot.leaf).items[spot.slot].handle)
    }

    /// Removes the item at a rank; its handle.
    pub fn remove_at(&mut self, rank: usize) -> Option<Handle> {
        let mut removed = None;
        self.remove_range(rank..rank.saturating_add(1), |handle| removed = Some(handle));
        removed
    }

    /// Removes the items at some ranks and tells of each handle, in order. Costs a walk for each leaf that is touched.
    pub fn remove_range(&mut self, ranks: Range<usize>, mut removed: impl FnMut(Handle)) {
        let mut left = ranks.end.min(self.len).saturating_sub(ranks.start);
        while left > 0 {
            let count = self.remove_below(self.root, self.levels, ranks.start, left, &mut removed);
            left -= count;
            self.len -= count;
            self.lower_root();
        }
    }

    /// The handles at some ranks, from either end.
    #[must_use]
    pub fn iter(&self, ranks: Range<usize>) -> Handles<'_> {
        let left = ranks.end.min(self.len).saturating_sub(ranks.start);
        Handles { tree: self, start: ranks.start, left, front: None, back: None }
    }

    fn spot(&self, rank: usize) -> Option<Spot> {
        if rank >= self.len {
            return None;
        }
        let (mut node, mut rank) = (self.root, rank);
        for _ in 0..self.levels {
            let branch = self.inners.get(node)[slot_of(self.inners.get(node), &mut rank)];
            node = branch.node;
        }
        Some(Spot { leaf: node, slot: rank })
    }

    /// What is to be known about a node with so many levels below it.
    fn branch(&self, node: u32, levels: u32) -> Branch {
        if levels == 0 {
            let items = &self.leaves.get(node).items;
            let count = u32::try_from(items.len()).expect("a leaf has at most FAN");
            return Branch { node, count, first: items[0] };
        }
        let branches = self.inners.get(node);
        Branch { node, count: branches.iter().map(|branch| branch.count).sum(), first: branches[0].first }
    }

    fn fill(&self, node: u32, levels: u32) -> usize {
        if levels == 0 { self.leaves.get(node).items.len() } else { self.inners.get(node).len() }
    }

    /// Adds an item below a node, the last of its level or not; the node that was split off behind it, if it was full.
    fn insert_below(
        &mut self,
        (node, is_last): (u32, bool),
        levels: u32,
        item: Item,
        is_before: &mut impl FnMut(Item) -> bool,
    ) -> Option<u32> {
        if levels == 0 {
            return self.insert_in_leaf(node, is_last, item, is_before);
        }
        let branches = self.inners.get(node);
        let slot = branches.partition_point(|branch| is_before(branch.first)).saturating_sub(1);
        let child = branches[slot].node;
        let is_last_child = is_last && slot + 1 == branches.len();
        let split = self.insert_below((child, is_last_child), levels - 1, item, is_before);
        let Some(new) = split else {
            let first = self.first(child, levels - 1);
            let branch = &mut self.inners.get_mut(node)[slot];
            branch.count += 1;
            branch.first = first;
            return None;
        };
        let (old, new) = (self.branch(child, levels - 1), self.branch(new, levels - 1));
        let branches = self.inners.get_mut(node);
        branches[slot] = old;
        let tail = add_entry(branches, slot + 1, new, is_last)?;
        Some(self.inners.add(tail))
    }

    fn insert_in_leaf(
        &mut self,
        node: u32,
        is_last: bool,
        item: Item,
        is_before: &mut impl FnMut(Item) -> bool,
    ) -> Option<u32> {
        let leaf = self.leaves.get_mut(node);
        let slot = leaf.items.partition_point(|other| is_before(*other));
        let items = add_entry(&mut leaf.items, slot, item, is_last)?;
        let next = leaf.next;
        let new = self.leaves.add(Leaf { items, previous: node, next });
        self.leaves.get_mut(node).next = new;
        if next != NONE {
            self.leaves.get_mut(next).previous = new;
        }
        Some(new)
    }

    fn first(&self, node: u32, levels: u32) -> Item {
        if levels == 0 { self.leaves.get(node).items[0] } else { self.inners.get(node)[0].first }
    }

    /// Removes up to so many items from a rank below a node on, out of one leaf; how many. The node may then be empty.
    fn remove_below(
        &mut self,
        node: u32,
        levels: u32,
        rank: usize,
        count_max: usize,
        removed: &mut impl FnMut(Handle),
    ) -> usize {
        if levels == 0 {
            let items = &mut self.leaves.get_mut(node).items;
            let end = items.len().min(rank + count_max);
            items.drain(rank..end).for_each(|item| removed(item.handle));
            return end - rank;
        }
        let mut rank = rank;
        let slot = slot_of(self.inners.get(node), &mut rank);
        let child = self.inners.get(node)[slot].node;
        let count = self.remove_below(child, levels - 1, rank, count_max, removed);
        self.mend(node, slot, levels - 1);
        count
    }

    /// Brings a branch up to date after removals below it, and joins it with a neighbour if it has become small.
    fn mend(&mut self, node: u32, slot: usize, levels: u32) {
        let child = self.inners.get(node)[slot].node;
        let fill = self.fill(child, levels);
        if fill == 0 {
            self.free(child, levels);
            self.inners.get_mut(node).remove(slot);
            return;
        }
        if fill < FILL_MIN && self.inners.get(node).len() > 1 {
            let left = slot.saturating_sub(1);
            return self.even_out(node, left, levels);
        }
        self.inners.get_mut(node)[slot] = self.branch(child, levels);
    }

    /// Makes one of two neighbours, or shares their entries evenly.
    fn even_out(&mut self, node: u32, slot: usize, levels: u32) {
        let (left, right) = (self.inners.get(node)[slot].node, self.inners.get(node)[slot + 1].node);
        let total = self.fill(left, levels) + self.fill(right, levels);
        let kept = if total <= 2 * FILL_MIN { total } else { total / 2 };
        if levels == 0 {
            let mut entries = std::mem::take(&mut self.leaves.get_mut(right).items);
            let other = &mut self.leaves.get_mut(left).items;
            share(other, &mut entries, kept);
            self.leaves.get_mut(right).items = entries;
        } else {
            let mut entries = std::mem::take(self.inners.get_mut(right));
            share(self.inners.get_mut(left), &mut entries, kept);
            *self.inners.get_mut(right) = entries;
        }
        self.inners.get_mut(node)[slot] = self.branch(left, levels);
        if kept == total {
            self.free(right, levels);
            self.inners.get_mut(node).remove(slot + 1);
        } else {
            self.inners.get_mut(node)[slot + 1] = self.branch(right, levels);
        }
    }

    /// Gives up a node that is empty.
    fn free(&mut self, node: u32, levels: u32) {
        if levels > 0 {
            self.inners.remove(node);
            return;
        }
        let leaf = self.leaves.remove(node);
        if leaf.previous != NONE {
            self.leaves.get_mut(leaf.previous).next = leaf.next;
        }
        if leaf.next != NONE {
            self.leaves.get_mut(leaf.next).previous = leaf.previous;
        }
    }

    /// Takes away levels that have only one branch.
    fn lower_root(&mut self) {
        if self.is_empty() {
            return self.clear();
        }
        while self.levels > 0 && self.inners.get(self.root).len() == 1 {
            let branches = self.inners.remove(self.root);
            self.root = branches[0].node;
            self.levels -= 1;
        }
    }
}

/// Which branch a rank falls into; `rank` is then that within it.
fn slot_of(branches: &[Branch], rank: &mut usize) -> usize {
    let mut slot = 0;
    while *rank >= branches[slot].count as usize {
        *rank -= branches[slot].count as usize;
        slot += 1;
    }
    slot
}

/// Adds an entry to a node; what is split off if it was full. At the very end of a level a full node stays full: elsewhere
/// it will have to take more.
fn add_entry<T>(entries: &mut Vec<T>, slot: usize, entry: T, is_last: bool) -> Option<Vec<T>> {
    if entries.len() < FAN {
        entries.insert(slot, entry);
        return None;
    }
    let at = if is_last && slot == FAN { FAN } else { FAN / 2 };
    let mut tail = entries.split_off(at);
    if slot < FAN && slot <= at {
        entries.insert(slot, entry);
    } else {
        tail.insert(slot - at, entry);
    }
    Some(tail)
}

/// Moves entries between neighbours until the left one has `kept`.
fn share<T>(left: &mut Vec<T>, right: &mut Vec<T>, kept: usize) {
    if left.len() > kept {
        right.splice(0..0, left.drain(kept..));
    } else {
        let moved = kept - left.len();
        left.extend(right.drain(..moved));
    }
}

/// Where a handle is.
#[derive(Debug, Clone, Copy)]
struct Spot {
    leaf: u32,
    slot: usize,
}

/// A run of handles, from either end.
#[derive(Debug, Clone)]
pub struct Handles<'a> {
    tree: &'a Tree,
    /// The rank of the first that is left.
    start: usize,
    left: usize,
    /// Where the next from the front is; found when it is first asked for. So is `back`.
    front: Option<Spot>,
    back: Option<Spot>,
}

impl Iterator for Handles<'_> {
    type Item = Handle;

    fn next(&mut self) -> Option<Handle> {
        if self.left == 0 {
            return None;
        }
        let tree = self.tree;
        let spot = match self.front {
            None => tree.spot(self.start)?,
            Some(Spot { leaf, slot }) if slot + 1 < tree.leaves.get(leaf).items.len() => Spot { leaf, slot: slot + 1 },
            Some(Spot { leaf, .. }) => Spot { leaf: tree.leaves.get(leaf).next, slot: 0 },
        };
        self.front = Some(spot);
        self.start += 1;
        self.left -= 1;
        Some(tree.leaves.get(spot.leaf).items[spot.slot].handle)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Handles<'_> {
    fn next_back(&mut self) -> Option<Handle> {
        if self.left == 0 {
            return None;
        }
        let tree = self.tree;
        let spot = match self.back {
            None => tree.spot(self.start + self.left - 1)?,
            Some(Spot { leaf, slot: 0 }) => {
                let leaf = tree.leaves.get(leaf).previous;
                Spot { leaf, slot: tree.leaves.get(leaf).items.len() - 1 }
            }
            Some(Spot { leaf, slot }) => Spot { leaf, slot: slot - 1 },
        };
        self.back = Some(spot);
        self.left -= 1;
        Some(tree.leaves.get(spot.leaf).items[spot.slot].handle)
    }
}

impl ExactSizeIterator for Handles<'_> {}

#[cfg(test)]
mod tests;
