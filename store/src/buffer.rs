//! Block-aligned memory for direct IO, and shared pieces of it.
//!
//! A buffer is passed as a value and shared by reference count, so that a payload that arrives aligned reaches the drive
//! without a copy. The alignment is found inside a slightly larger allocation, which needs no unsafe code.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes of a block: the unit of reads, writes, checksums and presence.
pub const BLOCK_BYTES: usize = 4096;

/// Zeroed or filled memory that starts at a multiple of 4 KiB and has a whole number of blocks.
pub struct AlignedBuf {
    bytes: Vec<u8>,
    /// Where the aligned part starts. The vector never grows, so the address behind it never changes.
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// So many blocks of zeroes.
    ///
    /// # Panics
    /// When the allocator gives memory that cannot be aligned, which no allocator does.
    #[must_use]
    pub fn zeroed(blocks: usize) -> Self {
        let len = blocks * BLOCK_BYTES;
        let bytes = vec![0; len + BLOCK_BYTES - 1];
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES);
        assert!(start < BLOCK_BYTES, "an address can be aligned within a block");
        Self { bytes, start, len }
    }

    /// A copy of bytes.
    ///
    /// # Panics
    /// When they are not a whole number of blocks.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "a buffer has whole blocks");
        let mut buf = Self::zeroed(bytes.len() / BLOCK_BYTES);
        buf.copy_from_slice(bytes);
        buf
    }

    /// How many blocks it has.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.len / BLOCK_BYTES
    }

    /// One block.
    ///
    /// # Panics
    /// When it lies behind the end.
    #[must_use]
    pub fn block(&self, index: usize) -> &[u8] {
        &self[index * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// One block, to be changed.
    ///
    /// # Panics
    /// When it lies behind the end.
    pub fn block_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self[index * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} blocks)", self.blocks())
    }
}

/// A run of blocks of a shared buffer.
#[derive(Debug, Clone)]
pub struct Segment {
    buf: Arc<AlignedBuf>,
    first: usize,
    count: usize,
}

impl Segment {
    /// The blocks `first` to `first + count - 1` of a buffer.
    ///
    /// # Panics
    /// When the buffer has fewer.
    #[must_use]
    pub fn new(buf: Arc<AlignedBuf>, first: usize, count: usize) -> Self {
        assert!(first + count <= buf.blocks(), "a segment lies inside its buffer");
        Self { buf, first, count }
    }

    /// A part of this segment.
    ///
    /// # Panics
    /// When the segment has fewer blocks.
    #[must_use]
    pub fn part(&self, first: usize, count: usize) -> Self {
        assert!(first + count <= self.count, "a part lies inside its segment");
        Self { buf: Arc::clone(&self.buf), first: self.first + first, count }
    }

    /// How many blocks it has.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.count
    }

    /// Its bytes, aligned.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.first * BLOCK_BYTES..][..self.count * BLOCK_BYTES]
    }
}

impl From<AlignedBuf> for Segment {
    fn from(buf: AlignedBuf) -> Self {
        let count = buf.blocks();
        Self { buf: Arc::new(buf), first: 0, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_and_their_parts_are_aligned() {
        for blocks in [1, 2, 7, 256] {
            let mut buf = AlignedBuf::zeroed(blocks);
            buf.block_mut(blocks - 1).fill(7);
            assert_eq!((buf.as_ptr().align_offset(BLOCK_BYTES), buf.blocks()), (0, blocks));
            let copy = AlignedBuf::copy_of(&buf);
            assert_eq!(copy.block(blocks - 1), [7; BLOCK_BYTES]);
            let part = Segment::from(copy).part(blocks - 1, 1);
            assert_eq!(part.bytes().as_ptr().align_offset(BLOCK_BYTES), 0);
            assert_eq!(part.bytes(), [7; BLOCK_BYTES]);
        }
    }
}
