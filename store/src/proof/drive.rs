//! Fake drive: keeps what is durable, may lose everything else sector by sector.
//!
//! A sector of 512 bytes is old or new, never mixed. What was written and not synced may be there or not after a crash, each
//! sector by itself, and of several writes to one sector any. A read that overlaps a write in progress may see either.
//!
//! Blocks are shared until they are changed: a copy of a drive costs little, so that several crashes of one moment can be
//! tried.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Chance;
use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::io::{Durability, Io, IoKind, IoOutput};

/// Bytes that are written whole or not at all.
pub const SECTOR_BYTES: usize = 512;

type Sector = [u8; SECTOR_BYTES];

/// Bytes in blocks that copies share until they are changed.
#[derive(Debug, Clone)]
struct Blocks(Vec<Arc<[u8; BLOCK_BYTES]>>);

impl Blocks {
    fn zeroed(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(BLOCK_BYTES), "a drive has whole blocks");
        let zeroes = Arc::new([0; BLOCK_BYTES]);
        Self((0..bytes / BLOCK_BYTES).map(|_| Arc::clone(&zeroes)).collect())
    }

    /// Calls with each block of a range, the range in it, and the same in the whole.
    fn pieces(start: usize, len: usize, mut each: impl FnMut(usize, Range<usize>, Range<usize>)) {
        let mut done = 0;
        while done < len {
            let (block, first) = ((start + done) / BLOCK_BYTES, (start + done) % BLOCK_BYTES);
            let count = (len - done).min(BLOCK_BYTES - first);
            each(block, first..first + count, done..done + count);
            done += count;
        }
    }

    fn read(&self, start: usize, out: &mut [u8]) {
        let len = out.len();
        Self::pieces(start, len, |block, there, here| out[here].copy_from_slice(&self.0[block][there]));
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        Self::pieces(start, bytes.len(), |block, there, here| {
            Arc::make_mut(&mut self.0[block])[there].copy_from_slice(&bytes[here]);
        });
    }
}

/// What a crash keeps of what was not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    All,
    None,
    Half,
    Most,
}

/// A drive in memory.
#[derive(Debug, Clone)]
pub struct FakeDrive {
    durable: Blocks,
    current: Blocks,
    /// For each sector the values that it had since it was durable, with the number of the write.
    unsynced: BTreeMap<usize, Vec<(u64, Sector)>>,
    in_flight: Vec<(Io, u64)>,
    /// Writes that were completed.
    completed: u64,
}

impl FakeDrive {
    /// A drive of zeroes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let blocks = Blocks::zeroed(bytes);
        Self {
            durable: blocks.clone(),
            current: blocks,
            unsynced: BTreeMap::new(),
            in_flight: Vec::new(),
            completed: 0,
        }
    }

    /// Bytes of the drive.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.durable.0.len() * BLOCK_BYTES
    }

    /// What the drive holds at a place.
    #[must_use]
    pub fn content(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.current.read(range.start, &mut bytes);
        bytes
    }

    /// Inverts bits of a byte, as rot does.
    pub fn flip(&mut self, at: usize, bits: u8) {
        for blocks in [&mut self.durable, &mut self.current] {
            Arc::make_mut(&mut blocks.0[at / BLOCK_BYTES])[at % BLOCK_BYTES] ^= bits;
        }
    }

    /// Takes an IO. It completes when it is told to.
    pub fn start(&mut self, io: Io) {
        if let IoKind::Write { offset, data, .. } = &io.kind {
            assert!(offset.is_multiple_of(BLOCK_BYTES as u64) && !data.is_empty(), "writes are aligned");
        }
        self.in_flight.push((io, self.completed));
    }

    /// IOs that are not completed.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether one of them is a read or a durable write, by its place in the list.
    #[must_use]
    pub fn is_urgent(&self, index: usize) -> bool {
        match &self.in_flight[index].0.kind {
            IoKind::Read { .. } => true,
            IoKind::Write { durability, .. } => *durability == Durability::Durable,
            IoKind::Sync => false,
        }
    }

    /// What one of them is, by its place in the list.
    #[must_use]
    pub fn kind(&self, index: usize) -> &IoKind {
        &self.in_flight[index].0.kind
    }

    /// Whether a write into this range of bytes is in progress.
    #[must_use]
    pub fn is_writing(&self, range: &Range<u64>) -> bool {
        let inside = |io: &Io| matches!(&io.kind, IoKind::Write { offset, .. } if range.contains(offset));
        self.in_flight.iter().any(|(io, _)| inside(io))
    }

    /// Completes one of them, by its place in the list.
    pub fn complete(&mut self, index: usize, chance: &mut Chance) -> (Io, IoOutput) {
        let (io, completed_at_start) = self.in_flight.swap_remove(index);
        let output = match &io.kind {
            IoKind::Read { offset, len } => IoOutput::Data(self.read(*offset, *len, chance)),
            IoKind::Write { offset, data, durability } => {
                self.completed += 1;
                let mut at = usize::try_from(*offset).expect("a small drive");
                for segment in data {
                    self.write(at, segment.bytes(), *durability);
                    at += segment.bytes().len();
                }
                IoOutput::Done
            }
            IoKind::Sync => {
                self.sync(completed_at_start);
                IoOutput::Done
            }
        };
        (io, output)
    }

    fn read(&self, offset: u64, len: usize, chance: &mut Chance) -> AlignedBuf {
        let start = usize::try_from(offset).expect("a small drive");
        let mut bytes = AlignedBuf::zeroed(len / BLOCK_BYTES);
        self.current.read(start, &mut bytes);
        for (io, _) in &self.in_flight {
            let IoKind::Write { offset, data, .. } = &io.kind else { continue };
            let mut at = usize::try_from(*offset).expect("a small drive");
            for sector in data.iter().flat_map(|segment| segment.bytes().chunks_exact(SECTOR_BYTES)) {
                if (start..start + len).contains(&at) && chance.one_in(2) {
                    bytes[at - start..][..SECTOR_BYTES].copy_from_slice(sector);
                }
                at += SECTOR_BYTES;
            }
        }
        bytes
    }

    fn write(&mut self, start: usize, bytes: &[u8], durability: Durability) {
        self.current.write(start, bytes);
        let first = start / SECTOR_BYTES;
        if durability == Durability::Durable {
            self.durable.write(start, bytes);
            let end = first + bytes.len() / SECTOR_BYTES;
            let stale: Vec<usize> = self.unsynced.range(first..end).map(|(sector, _)| *sector).collect();
            stale.iter().for_each(|sector| drop(self.unsynced.remove(sector)));
            return;
        }
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let value = bytes.try_into().expect("a sector");
            self.unsynced.entry(sector).or_default().push((self.completed, value));
        }
    }

    fn sync(&mut self, completed: u64) {
        for (sector, values) in &mut self.unsynced {
            if let Some((_, value)) = values.iter().rev().find(|(number, _)| *number <= completed) {
                self.durable.write(sector * SECTOR_BYTES, value);
            }
            values.retain(|(number, _)| *number > completed);
        }
        self.unsynced.retain(|_, values| !values.is_empty());
    }

    /// Ends the process that uses the drive. What it had in progress is done in part, and nothing more is durable.
    pub fn kill(&mut self, chance: &mut Chance) {
        for (io, _) in core::mem::take(&mut self.in_flight) {
            let IoKind::Write { offset, data, .. } = io.kind else { continue };
            self.completed += 1;
            let start = usize::try_from(offset).expect("a small drive");
            let keep = choose_keep(chance);
            let sectors = data.iter().flat_map(|segment| segment.bytes().chunks_exact(SECTOR_BYTES));
            for (index, bytes) in sectors.enumerate().filter(|_| keeps(keep, chance)) {
                self.write(start + index * SECTOR_BYTES, bytes, Durability::Cached);
            }
        }
    }

    /// Copies a block over another one, as a misdirected write does.
    pub fn misplace(&mut self, from: usize, to: usize) {
        let block = Arc::clone(&self.current.0[from]);
        (self.current.0[to], self.durable.0[to]) = (Arc::clone(&block), block);
    }

    /// Puts everything back to what it was, durable.
    pub fn restore(&mut self, content: &[u8]) {
        self.current.write(0, content);
        self.durable = self.current.clone();
        self.unsynced.clear();
        self.in_flight.clear();
    }

    /// Loses power.
    pub fn crash(&mut self, chance: &mut Chance) {
        let keep = choose_keep(chance);
        for (sector, values) in core::mem::take(&mut self.unsynced) {
            if keeps(keep, chance) {
                // As a rule the last, sometimes an earlier one.
                let last = values.len() - 1;
                let chosen = if chance.one_in(4) { chance.below(values.len()) } else { last };
                self.durable.write(sector * SECTOR_BYTES, &values[chosen].1);
            }
        }
        for (io, _) in core::mem::take(&mut self.in_flight) {
            let IoKind::Write { offset, data, .. } = io.kind else { continue };
            let start = usize::try_from(offset).expect("a small drive");
            let sectors = data.iter().flat_map(|segment| segment.bytes().chunks_exact(SECTOR_BYTES));
            // Each write in progress by itself: one may be done and another not begun.
            let keep = choose_keep(chance);
            for (index, bytes) in sectors.enumerate() {
                if keeps(keep, chance) {
                    self.durable.write(start + index * SECTOR_BYTES, bytes);
                }
            }
        }
        self.current = self.durable.clone();
    }
}

const fn choose_keep(chance: &mut Chance) -> Keep {
    [Keep::All, Keep::None, Keep::Half, Keep::Most][chance.below(4)]
}

const fn keeps(keep: Keep, chance: &mut Chance) -> bool {
    match keep {
        Keep::All => true,
        Keep::None => false,
        Keep::Half => chance.one_in(2),
        Keep::Most => !chance.one_in(64),
    }
}
