//! Memory for one shard: at a chosen alignment, between guards that nobody may touch.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes kept free on either side: more than the longest step of any kernel.
const GUARD_LEN: usize = 320;

/// What the guards hold.
const GUARD: u8 = 0xc9;

/// The longest register.
const ALIGN: usize = 64;

/// Where the shards of one call stand.
#[derive(Debug, Clone, Copy)]
pub(super) enum Placement {
    /// Each shard at another distance from a multiple of 64, the first at this one.
    Apart(usize),
    /// All at this distance, so that they can be streamed.
    Alike(usize),
}

impl Placement {
    fn alignment(self, shard: usize) -> usize {
        match self {
            Self::Apart(first) => (first + 23 * shard) % ALIGN,
            Self::Alike(all) => all % ALIGN,
        }
    }
}

/// Room for one shard.
pub(super) struct Room {
    bytes: Vec<u8>,
    shard: Range<usize>,
}

impl Room {
    pub(super) fn new(len_max: usize) -> Self {
        Self { bytes: vec![GUARD; GUARD_LEN + ALIGN + len_max + GUARD_LEN], shard: GUARD_LEN..GUARD_LEN }
    }

    /// Puts the content where `placement` has shard number `shard`, and guards around it.
    pub(super) fn put(&mut self, placement: Placement, shard: usize, content: &[u8]) {
        let to_aligned = self.bytes[GUARD_LEN..].as_ptr().addr().wrapping_neg() % ALIGN;
        let start = GUARD_LEN + (to_aligned + placement.alignment(shard)) % ALIGN;
        self.shard = start..start + content.len();
        self.content_mut().copy_from_slice(content);
        self.guards().into_iter().for_each(|guard| self.bytes[guard].fill(GUARD));
    }

    pub(super) fn content(&self) -> &[u8] {
        &self.bytes[self.shard.clone()]
    }

    pub(super) fn content_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.shard.clone()]
    }

    pub(super) fn guards_are_whole(&self) -> bool {
        self.guards().into_iter().all(|guard| self.bytes[guard] == [GUARD; GUARD_LEN])
    }

    fn guards(&self) -> [Range<usize>; 2] {
        let Range { start, end } = self.shard;
        [start - GUARD_LEN..start, end..end + GUARD_LEN]
    }
}
