//! Blocks of an extent: ranges, sets and checksums.
//!
//! An extent has up to 256 blocks of 4 KiB. A block that was never written, or was discarded, is absent and reads as
//! zeroes. The checksum of a block binds volume, extent and offset, so bytes in the wrong place do not pass.

use std::collections::BTreeMap;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::{Salt, checksum};

use crate::buffer::BLOCK_BYTES;
use crate::error::Error;

/// Most blocks of an extent, and the blocks of a data slot.
pub const EXTENT_BLOCKS: usize = 256;
/// Bytes of a data slot, and the largest extent.
pub const EXTENT_BYTES: usize = EXTENT_BLOCKS * BLOCK_BYTES;

/// Consecutive blocks of an extent, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block, below 256.
    pub(crate) first: usize,
    /// How many, from 1.
    pub(crate) count: usize,
}

impl BlockRange {
    /// All blocks of the largest extent.
    pub const WHOLE: Self = Self { first: 0, count: EXTENT_BLOCKS };

    /// The blocks of a byte range.
    ///
    /// # Errors
    /// [`Error::Misaligned`] and [`Error::OutsideExtent`], the caller's: a retry needs other values.
    pub const fn new(offset: u32, len: usize) -> Result<Self, Error> {
        let offset = offset as usize;
        if !offset.is_multiple_of(BLOCK_BYTES) || !len.is_multiple_of(BLOCK_BYTES) || len == 0 {
            return Err(Error::Misaligned);
        }
        if offset >= EXTENT_BYTES || len > EXTENT_BYTES - offset {
            return Err(Error::OutsideExtent);
        }
        Ok(Self { first: offset / BLOCK_BYTES, count: len / BLOCK_BYTES })
    }

    pub(crate) const fn end(self) -> usize {
        self.first + self.count
    }
}

/// A set of blocks of one extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockSet([u64; 4]);

impl BlockSet {
    /// No block.
    pub const EMPTY: Self = Self([0; 4]);
    /// Bytes of the written form.
    pub const LEN: usize = 32;

    /// The blocks of a range.
    #[must_use]
    pub fn of(range: BlockRange) -> Self {
        let mut set = Self::EMPTY;
        (range.first..range.end()).for_each(|block| set.insert(block));
        set
    }

    /// Adds a block, below 256.
    pub const fn insert(&mut self, block: usize) {
        self.0[block / 64] |= 1 << (block % 64);
    }

    /// Whether it has a block, below 256.
    #[must_use]
    pub const fn contains(&self, block: usize) -> bool {
        self.0[block / 64] & (1 << (block % 64)) != 0
    }

    /// How many blocks it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// Its blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let set = *self;
        (0..EXTENT_BLOCKS).filter(move |block| set.contains(*block))
    }

    /// Its runs of consecutive blocks, ascending.
    pub(crate) fn runs(&self) -> Vec<BlockRange> {
        let mut runs: Vec<BlockRange> = Vec::new();
        for block in self.iter() {
            match runs.last_mut() {
                Some(run) if run.end() == block => run.count += 1,
                _ => runs.push(BlockRange { first: block, count: 1 }),
            }
        }
        runs
    }

    /// What is in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    /// What is in one of them.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// What is in this and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(core::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// The written form: 32 bytes, block 0 is the lowest bit of the last byte of the first eight.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The set that these bytes are the written form of.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let mut words = [0; 4];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Self(words)
    }
}

/// The checksum of one block at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockChecksum(pub u32);

impl BlockChecksum {
    /// That of these 4 KiB as this block, below 256, of an extent.
    #[must_use]
    pub fn of(id: ExtentId, block: usize, bytes: &[u8]) -> Self {
        Hasher::new(id).checksum(block, bytes)
    }
}

/// Blocks of an extent that cannot be read, each with the checksum of its content: by it, the content is known again in another
/// copy. None if nobody knows it any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LostBlocks(BTreeMap<usize, Option<BlockChecksum>>);

impl LostBlocks {
    /// Adds a block, below 256, or changes what is known of it.
    pub fn insert(&mut self, block: usize, sum: Option<BlockChecksum>) {
        self.0.insert(block, sum);
    }

    /// Removes a block, if it is there.
    pub fn remove(&mut self, block: usize) {
        self.0.remove(&block);
    }

    /// Whether it has a block.
    #[must_use]
    pub fn contains(&self, block: usize) -> bool {
        self.0.contains_key(&block)
    }

    /// The checksum of a block's content, if it has the block and that is known.
    #[must_use]
    pub fn sum(&self, block: usize) -> Option<BlockChecksum> {
        self.0.get(&block).copied().flatten()
    }

    /// Whether it has no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.keys().copied()
    }
}

/// Computes checksums of the blocks of one extent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher(Salt);

impl Hasher {
    pub(crate) fn new(id: ExtentId) -> Self {
        Self(Salt::new(&[b"extent", id.volume.as_bytes(), &id.extent.0.to_be_bytes()]))
    }

    /// XXH3-64 under the extent's salt, mixed with the block's number by the 64-bit golden ratio, folded to 32 bits.
    pub(crate) fn checksum(self, block: usize, bytes: &[u8]) -> BlockChecksum {
        let place = (block as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = checksum(self.0, bytes).0 ^ place;
        // Both halves are 32 bits.
        BlockChecksum((hash >> 32) as u32 ^ hash as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_placement::rule::Extent;
    use ashlar_wire::id::VolumeId;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_whole_blocks_inside_the_extent() {
        assert_eq!(BlockRange::new(8192, 4096), Ok(BlockRange { first: 2, count: 1 }));
        assert_eq!(BlockRange::new(0, EXTENT_BYTES), Ok(BlockRange::WHOLE));
        for (offset, len) in [(0, 0), (1, 4096), (0, 4095), (4096, 100)] {
            assert_eq!(BlockRange::new(offset, len), Err(Error::Misaligned));
        }
        for (offset, len) in [(4096, EXTENT_BYTES), (1 << 20, 4096), (u32::MAX - 4095, 4096)] {
            assert_eq!(BlockRange::new(offset, len), Err(Error::OutsideExtent));
        }
    }

    #[test]
    fn sets_have_runs_and_a_written_form() {
        let mut set = BlockSet::of(BlockRange { first: 62, count: 4 });
        set.insert(0);
        set.insert(255);
        let runs: Vec<_> = set.runs().iter().map(|run| (run.first, run.count)).collect();
        assert_eq!((runs, set.len()), (vec![(0, 1), (62, 4), (255, 1)], 6));
        let golden = *b"\xc0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\x80\0\0\0\0\0\0\0";
        assert_eq!((set.to_bytes(), BlockSet::from_bytes(&golden)), (golden, set));
        assert!(set.without(&set).is_empty() && set.and(&set) == set && set.or(&BlockSet::EMPTY) == set);
    }

    #[test]
    fn a_checksum_binds_volume_extent_and_place() {
        let id = |volume, extent| ExtentId { volume: VolumeId::from_bytes([volume; 16]), extent: Extent(extent) };
        let bytes = [5; BLOCK_BYTES];
        assert_eq!(Hasher::new(id(1, 2)).checksum(3, &bytes), BlockChecksum(GOLDEN));
        let mut seen = BTreeSet::new();
        for id in [id(1, 2), id(1, 3), id(2, 2)] {
            seen.extend((0..EXTENT_BLOCKS).map(|block| Hasher::new(id).checksum(block, &bytes)));
        }
        assert_eq!(seen.len(), 3 * EXTENT_BLOCKS);
    }

    const GOLDEN: u32 = 0xd90e_ebe4;
}
