//! History of operations per block, checked while it happens: linearizability of a register with one writer at a time.
//!
//! A block's writes have an order, that of their beginnings: its writer has one outstanding at a time, and the next
//! writer begins after the former one is fenced. So a read is right if what it returns is not older than the last write
//! that was acknowledged, and the newest value that was read, when it began; and not newer than the last write that began
//! before it ended. A write that a client gave up may have happened, before its next one, or not.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::VolumeId;

/// A block.
pub type Block = (ExtentId, u32);

#[derive(Debug, Default)]
struct Register {
    /// Numbers and tags of writes in the order in which they began; the first one is that of zeroes before all.
    writes: Vec<(u64, u64)>,
    /// No read that begins now may return an earlier one.
    floor: usize,
}

/// All blocks.
#[derive(Debug, Default)]
pub struct History {
    blocks: BTreeMap<Block, Register>,
    /// Writes of clients that were fenced before they began: they must never be done.
    forbidden: Vec<u64>,
}

impl History {
    fn register(&mut self, block: Block) -> &mut Register {
        let register = self.blocks.entry(block).or_default();
        if register.writes.is_empty() {
            register.writes.push((0, 0));
        }
        register
    }

    /// A write of these blocks begins.
    pub fn begin_write(&mut self, blocks: &[Block], write: u64, tag: u64) {
        blocks.iter().for_each(|block| self.register(*block).writes.push((write, tag)));
    }

    /// A volume is deleted: nobody asks for its blocks any more.
    pub fn forget(&mut self, volume: VolumeId) {
        self.blocks.retain(|(extent, _), _| extent.volume != volume);
    }

    /// A fenced client tries to write.
    pub fn forbid(&mut self, write: u64) {
        self.forbidden.push(write);
    }

    /// Whether a later write of the block has begun.
    pub fn is_replaced(&mut self, block: Block, write: u64) -> bool {
        self.register(block).writes.last().is_some_and(|(last, _)| *last != write)
    }

    /// A write was acknowledged.
    ///
    /// # Errors
    /// In words: it must not have been.
    pub fn acknowledge(&mut self, blocks: &[Block], write: u64) -> Result<(), String> {
        if self.forbidden.contains(&write) {
            return Err(format!("write {write} of a fenced client was acknowledged"));
        }
        for block in blocks {
            let register = self.register(*block);
            let place = register.writes.iter().rposition(|(other, _)| *other == write).unwrap_or(0);
            register.floor = register.floor.max(place);
        }
        Ok(())
    }

    /// A read of these blocks begins: what it must not be older than.
    pub fn begin_read(&mut self, blocks: &[Block]) -> Vec<usize> {
        blocks.iter().map(|block| self.register(*block).floor).collect()
    }

    /// A read returned these tags.
    ///
    /// # Errors
    /// In words: what is wrong with one of them.
    pub fn end_read(&mut self, blocks: &[Block], floors: &[usize], tags: &[u64]) -> Result<(), String> {
        for ((block, floor), tag) in blocks.iter().zip(floors).zip(tags) {
            let register = self.register(*block);
            let is_it = |(_, other): &(u64, u64)| other == tag;
            // The oldest write that it can be: several writes of zeroes look the same.
            let Some(place) = register.writes.iter().skip(*floor).position(is_it) else {
                let (newest, _) = register.writes[*floor];
                return Err(format!(
                    "block {} of extent {}: read {tag} after write {newest} was acknowledged or read",
                    block.1, block.0.extent.0
                ));
            };
            let place = place + floor;
            register.floor = register.floor.max(place);
        }
        Ok(())
    }

    /// Every block that was written, for a last look.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        self.blocks.keys().copied().collect()
    }
}
