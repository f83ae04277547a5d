//! A block device in memory, for all lives of its server: every operation takes time, a crash loses what was not synced.
//!
//! A sector of 512 bytes is old or new, never mixed. What was written and not synced, or was under way, may be there or not after a
//! crash, each sector by itself. A read that overlaps a write under way may see either. Every end of a life is taken for a loss of power.
//!
//! A device that was drawn to be bad also rots, reads with errors, writes to another place or not at all, and fails for a life: only
//! where extents or blobs lie, whose checksums show it, and only one device of a world, for copies are there to survive one.

use core::ops::Range;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_store::buffer::{AlignedBuf, BLOCK_BYTES};
use ashlar_store::io::{Durability, Io, IoError, IoId, IoKind, IoOutput};

use crate::rng::Rng;

const SECTOR_BYTES: usize = 512;
/// What Linux calls an error of a device.
const EIO: i32 = 5;

type Block = Arc<[u8; BLOCK_BYTES]>;

/// How a device is, for the time of a world.
#[derive(Debug, Clone, Copy)]
pub(in crate::scenarios) struct Habits {
    /// Longest time of one operation.
    pub(in crate::scenarios) nanos_max: u64,
    /// How often it does something wrong, per million operations where data lies.
    pub(in crate::scenarios) wrong_ppm: u32,
    /// How often a write or sync fails for good, until the next life, per million.
    pub(in crate::scenarios) fails_ppm: u32,
}

/// How often a device did what it must not.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::scenarios) struct Wrongs {
    pub(in crate::scenarios) rotted: u64,
    pub(in crate::scenarios) unread: u64,
    pub(in crate::scenarios) lost: u64,
    pub(in crate::scenarios) misplaced: u64,
    pub(in crate::scenarios) failed: u64,
}

impl Wrongs {
    /// Those of another device, too.
    pub(in crate::scenarios) const fn add(&mut self, other: Self) {
        let Self { rotted, unread, lost, misplaced, failed } = other;
        self.rotted += rotted;
        self.unread += unread;
        self.lost += lost;
        self.misplaced += misplaced;
        self.failed += failed;
    }

    /// For the summary of many seeds.
    pub(super) const fn counters(self) -> [(&'static str, u64); 5] {
        let Self { rotted, unread, lost, misplaced, failed } = self;
        [
            ("rotted", rotted),
            ("unread", unread),
            ("writes_lost", lost),
            ("misplaced", misplaced),
            ("drives_failed", failed),
        ]
    }
}

/// What a crash keeps of what was not durable.
#[derive(Debug, Clone, Copy)]
enum Keep {
    All,
    None,
    Half,
    Most,
}

impl Keep {
    fn draw(rng: &mut Rng) -> Self {
        rng.pick(&[Self::All, Self::None, Self::Half, Self::Most])
    }

    fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Half => rng.chance(500_000),
            Self::Most => rng.chance(984_000),
        }
    }
}

struct Content {
    habits: Habits,
    /// Blocks where data lies, once it is formatted.
    data: Range<u64>,
    durable: BTreeMap<u64, Block>,
    current: BTreeMap<u64, Block>,
    /// For each block the contents that it had since it was durable, with the number of the write.
    unsynced: BTreeMap<u64, Vec<(u64, Block)>>,
    /// Operations under way, and how many writes were completed before each.
    under_way: BTreeMap<IoId, (Io, u64)>,
    completed: u64,
    has_failed: bool,
    wrongs: Wrongs,
}

/// See the head of this file.
#[derive(Clone)]
pub(in crate::scenarios) struct Device(Arc<Mutex<Content>>);

impl Device {
    pub(in crate::scenarios) fn new(habits: Habits) -> Self {
        Self(Arc::new(Mutex::new(Content {
            habits,
            data: 0..0,
            durable: BTreeMap::new(),
            current: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            under_way: BTreeMap::new(),
            completed: 0,
            has_failed: false,
            wrongs: Wrongs::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here to there lies data. Before this is known nothing goes wrong.
    pub(in crate::scenarios) fn set_data(&self, blocks: Range<u64>) {
        self.lock().data = blocks;
    }

    pub(in crate::scenarios) fn wrongs(&self) -> Wrongs {
        self.lock().wrongs
    }

    /// Whether it has failed in this life.
    pub(in crate::scenarios) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Nothing goes wrong any more, and what was done wrong stays.
    pub(in crate::scenarios) fn heal(&self) {
        let mut content = self.lock();
        content.habits = Habits { wrong_ppm: 0, fails_ppm: 0, ..content.habits };
    }

    /// Takes an operation; it is completed after so many nanoseconds.
    pub(in crate::scenarios) fn start(&self, io: Io, rng: &mut Rng) -> u64 {
        let mut content = self.lock();
        let completed = content.completed;
        content.under_way.insert(io.id, (io, completed));
        rng.magnitude(5_000..=content.habits.nanos_max)
    }

    /// Completes an operation. Nothing if a crash came before.
    pub(in crate::scenarios) fn complete(&self, id: IoId, rng: &mut Rng) -> Option<Result<IoOutput, IoError>> {
        self.lock().complete(id, rng)
    }

    /// Does an operation at once.
    pub(in crate::scenarios) fn execute(&self, io: Io, rng: &mut Rng) -> Result<IoOutput, IoError> {
        let id = io.id;
        self.start(io, rng);
        self.complete(id, rng).expect("it was just begun")
    }

    /// The life that used it has ended.
    pub(in crate::scenarios) fn crash(&self, rng: &mut Rng) {
        self.lock().crash(rng);
    }
}

impl Content {
    fn complete(&mut self, id: IoId, rng: &mut Rng) -> Option<Result<IoOutput, IoError>> {
        let (io, completed_at_start) = self.under_way.remove(&id)?;
        let is_change = !matches!(io.kind, IoKind::Read { .. });
        if is_change && !self.has_failed && !self.data.is_empty() && rng.chance(self.habits.fails_ppm) {
            self.has_failed = true;
            self.wrongs.failed += 1;
        }
        if is_change && self.has_failed {
            return Some(Err(IoError { errno: EIO }));
        }
        Some(match io.kind {
            IoKind::Read { offset, len } => self.read(offset, len, rng).map(IoOutput::Data),
            IoKind::Write { offset, data, durability } => {
                self.completed += 1;
                let blocks = data.iter().flat_map(|segment| segment.bytes().chunks_exact(BLOCK_BYTES));
                let blocks: Vec<Block> = blocks.map(block_of).collect();
                let first = offset / BLOCK_BYTES as u64;
                if let Some(at) = self.misplaced(first, rng) {
                    let is_near = |number: &u64| at == first || self.data.contains(number);
                    let places: Vec<u64> = (at..).take(blocks.len()).filter(is_near).collect();
                    for (number, block) in places.into_iter().zip(blocks) {
                        self.write(number, block, durability);
                    }
                }
                Ok(IoOutput::Done)
            }
            IoKind::Sync => {
                self.sync(completed_at_start);
                Ok(IoOutput::Done)
            }
        })
    }

    fn goes_wrong(&self, block: u64, rng: &mut Rng) -> bool {
        self.habits.wrong_ppm > 0 && self.data.contains(&block) && rng.chance(self.habits.wrong_ppm)
    }

    /// Where a write to this block really goes; nowhere if it is lost.
    fn misplaced(&mut self, block: u64, rng: &mut Rng) -> Option<u64> {
        if !self.goes_wrong(block, rng) {
            return Some(block);
        }
        if rng.chance(500_000) {
            self.wrongs.lost += 1;
            return None;
        }
        self.wrongs.misplaced += 1;
        Some(block ^ 1)
    }

    fn read(&mut self, offset: u64, len: usize, rng: &mut Rng) -> Result<AlignedBuf, IoError> {
        let first = offset / BLOCK_BYTES as u64;
        let mut bytes = AlignedBuf::zeroed(len / BLOCK_BYTES);
        let end = first + bytes.blocks() as u64;
        if self.goes_wrong(first, rng) {
            if rng.chance(500_000) {
                self.wrongs.unread += 1;
                return Err(IoError { errno: EIO });
            }
            self.rot(first..end, rng);
        }
        for (number, block) in self.current.range(first..end) {
            bytes.block_mut((number - first) as usize).copy_from_slice(&**block);
        }
        for (io, _) in self.under_way.values() {
            let IoKind::Write { offset, data, .. } = &io.kind else { continue };
            let sectors = data.iter().flat_map(|segment| segment.bytes().chunks_exact(SECTOR_BYTES));
            for (sector, content) in (offset / SECTOR_BYTES as u64..).zip(sectors) {
                let (block, part) = (sector / 8, (sector % 8) as usize);
                if (first..end).contains(&block) && rng.chance(500_000) {
                    let block = bytes.block_mut((block - first) as usize);
                    block[part * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(content);
                }
            }
        }
        Ok(bytes)
    }

    /// A bit of one of these blocks changes.
    fn rot(&mut self, blocks: Range<u64>, rng: &mut Rng) {
        let Some(number) = self.current.range(blocks).next().map(|(number, _)| *number) else { return };
        let (byte, bit) = (rng.below(BLOCK_BYTES as u64) as usize, rng.below(8));
        for content in [&mut self.current, &mut self.durable] {
            if let Some(block) = content.get_mut(&number) {
                Arc::make_mut(block)[byte] ^= 1 << bit;
            }
        }
        self.wrongs.rotted += 1;
    }

    fn write(&mut self, number: u64, block: Block, durability: Durability) {
        self.current.insert(number, Arc::clone(&block));
        match durability {
            Durability::Durable => {
                self.durable.insert(number, block);
                self.unsynced.remove(&number);
            }
            Durability::Cached => self.unsynced.entry(number).or_default().push((self.completed, block)),
        }
    }

    fn sync(&mut self, completed: u64) {
        for (number, blocks) in &mut self.unsynced {
            if let Some((_, block)) = blocks.iter().rev().find(|(write, _)| *write <= completed) {
                self.durable.insert(*number, Arc::clone(block));
            }
            blocks.retain(|(write, _)| *write > completed);
        }
        self.unsynced.retain(|_, blocks| !blocks.is_empty());
    }

    fn crash(&mut self, rng: &mut Rng) {
        let keep = Keep::draw(rng);
        for (number, blocks) in core::mem::take(&mut self.unsynced) {
            let kept = &blocks[rng.below(blocks.len() as u64) as usize].1;
            self.tear(number, kept, keep, rng);
        }
        for (io, _) in core::mem::take(&mut self.under_way).into_values() {
            let IoKind::Write { offset, data, .. } = io.kind else { continue };
            // Each write by itself: one may be done and another not begun.
            let keep = Keep::draw(rng);
            let blocks = data.iter().flat_map(|segment| segment.bytes().chunks_exact(BLOCK_BYTES));
            for (number, block) in (offset / BLOCK_BYTES as u64..).zip(blocks) {
                self.tear(number, &block_of(block), keep, rng);
            }
        }
        self.current = self.durable.clone();
        self.has_failed = false;
    }

    /// Some sectors of a block are those of a later content.
    fn tear(&mut self, number: u64, later: &Block, keep: Keep, rng: &mut Rng) {
        let block = Arc::make_mut(self.durable.entry(number).or_insert_with(|| Arc::new([0; BLOCK_BYTES])));
        for (old, new) in block.chunks_exact_mut(SECTOR_BYTES).zip(later.chunks_exact(SECTOR_BYTES)) {
            if keep.keeps(rng) {
                old.copy_from_slice(new);
            }
        }
    }
}

fn block_of(bytes: &[u8]) -> Block {
    Arc::new(bytes.try_into().expect("chunks are blocks"))
}
