//! Model of a drive: what each extent, record and volume may be.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::VolumeId;
use ashlar_wire::version::Version;

use crate::block::{BlockRange, BlockSet, EXTENT_BLOCKS, LostBlocks};
use crate::buffer::{AlignedBuf, BLOCK_BYTES};

/// Names the content of a block; zero is zeroes.
pub(super) type Tag = u64;
/// The tag of a block whose content is lost: it cannot be read.
pub(super) const LOST: Tag = u64::MAX;

/// Fills a block with the content of its tag: no two tags have a word in common at the same place.
pub(super) fn fill(block: &mut [u8], tag: Tag) {
    let start = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for (index, word) in (1..).zip(block.chunks_exact_mut(8)) {
        let value = if tag == 0 { 0 } else { start ^ (index << 50) };
        word.copy_from_slice(&value.to_be_bytes());
    }
}

/// Data with a tag for each block.
pub(super) fn data_of(tags: &[Tag]) -> AlignedBuf {
    let mut data = AlignedBuf::zeroed(tags.len());
    tags.iter().enumerate().for_each(|(index, tag)| fill(data.block_mut(index), *tag));
    data
}

/// A change of an extent.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { range: BlockRange, first_tag: Tag },
    Clear { range: BlockRange },
    Replace { blocks: BlockSet, lost: LostBlocks, first_tag: Tag },
}

impl Change {
    fn apply(&self, tags: &mut [Tag]) {
        match self {
            Self::Write { range, first_tag } => {
                (range.first..range.end()).zip(*first_tag..).for_each(|(block, tag)| tags[block] = tag);
            }
            Self::Clear { range } => tags[range.first..range.end()].fill(0),
            Self::Replace { blocks, lost, first_tag } => {
                tags.fill(0);
                blocks.iter().zip(*first_tag..).for_each(|(block, tag)| tags[block] = tag);
                lost.iter().for_each(|block| tags[block] = LOST);
            }
        }
    }
}

/// What an extent was at the last comparison, and what was issued since.
#[derive(Debug, Clone)]
pub(super) struct ExtentModel {
    pub(super) base: Version,
    tags: Vec<Tag>,
    changes: Vec<(Version, Change)>,
    /// The last version that was acknowledged.
    pub(super) acknowledged: Version,
    /// Changes that were not answered.
    pub(super) pending: usize,
    /// It is being forgotten.
    pub(super) forgetting: bool,
    /// How often it was forgotten. A read that began before the last time may see what was then.
    pub(super) lives: u64,
}

impl Default for ExtentModel {
    fn default() -> Self {
        Self {
            base: Version::ZERO,
            tags: vec![0; EXTENT_BLOCKS],
            changes: Vec::new(),
            acknowledged: Version::ZERO,
            pending: 0,
            forgetting: false,
            lives: 0,
        }
    }
}

impl ExtentModel {
    /// It does not exist any more.
    pub(super) fn forget(&mut self) {
        *self = Self { lives: self.lives + 1, ..Self::default() };
    }

    pub(super) fn issue(&mut self, version: Version, change: Change) {
        self.changes.push((version, change));
        self.pending += 1;
    }

    pub(super) fn acknowledge(&mut self, version: Version) {
        self.acknowledged = self.acknowledged.max(version);
        self.pending -= 1;
    }

    /// A change was refused: it has not happened and will not.
    pub(super) fn refuse(&mut self, version: Version) {
        self.changes.retain(|(held, _)| *held != version);
        self.pending -= 1;
    }

    /// Whether a change clears an extent that does not exist.
    pub(super) fn is_clear_of_nothing(&self, version: Version) -> bool {
        let is_clear = |(held, change): &(Version, Change)| *held == version && matches!(change, Change::Clear { .. });
        let is_first = self.changes.iter().all(|(held, _)| *held >= version);
        self.base == Version::ZERO && is_first && self.changes.iter().any(is_clear)
    }

    /// The content at a version; none if no change has it.
    pub(super) fn content(&self, version: Version) -> Option<Vec<Tag>> {
        let is_known = version == self.base || self.changes.iter().any(|(held, _)| *held == version);
        let mut tags = self.tags.clone();
        self.changes.iter().filter(|(held, _)| *held <= version).for_each(|(_, change)| change.apply(&mut tags));
        is_known.then_some(tags)
    }

    /// Compares what was read of a range; the version must not be below `least`.
    pub(super) fn compare(
        &self,
        least: Version,
        version: Version,
        range: BlockRange,
        data: &AlignedBuf,
        lost: &LostBlocks,
    ) -> Result<(), String> {
        if version < least {
            return Err(format!("version {version} where {least} was acknowledged"));
        }
        let tags = self.content(version).ok_or_else(|| format!("version {version}, which was never issued"))?;
        let tags = &tags[range.first..range.end()];
        let of_lost = |tag: &Tag| if *tag == LOST { 0 } else { *tag };
        let expected = data_of(&tags.iter().map(of_lost).collect::<Vec<_>>());
        let is_right = |index: &usize| {
            let is_lost = lost.contains(range.first + index);
            is_lost == (tags[*index] == LOST) && data.block(*index) == expected.block(*index)
        };
        let wrong = (0..range.count).find(|index| !is_right(index));
        wrong.map_or(Ok(()), |index| {
            let block = range.first + index;
            let old = (self.changes.iter().map(|(held, _)| *held).chain([self.base]))
                .filter_map(|held| self.content(held).map(|tags| (held, tags[block])))
                .find(|(_, tag)| data_of(&[*tag]).block(0) == data.block(index));
            Err(format!("block {block} at version {version} has the content of {:?}", old.map(|(held, _)| held)))
        })
    }

    /// Whether a block of a range may be lost.
    pub(super) fn may_be_lost(&self, range: BlockRange) -> bool {
        let is_lost = |change: &Change| match change {
            Change::Replace { lost, .. } => lost.iter().any(|block| (range.first..range.end()).contains(&block)),
            Change::Write { .. } | Change::Clear { .. } => false,
        };
        self.tags[range.first..range.end()].contains(&LOST) || self.changes.iter().any(|(_, change)| is_lost(change))
    }

    /// What was found is what is from now on.
    pub(super) fn settle(&mut self, version: Version) -> usize {
        let survived = self.changes.iter().filter(|(held, _)| *held <= version && *held > self.acknowledged).count();
        self.tags = self.content(version).expect("the version was compared");
        self.base = version;
        self.acknowledged = version;
        self.changes.clear();
        self.pending = 0;
        self.forgetting = false;
        survived
    }

    /// Whether it has data, when nothing is pending.
    pub(super) fn has_data(&self) -> bool {
        self.content(self.acknowledged).is_some_and(|tags| tags.iter().any(|tag| *tag != 0))
    }
}

/// What a record may be: the first value is durable, the others were issued since.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordModel {
    pub(super) values: Vec<Option<u64>>,
}

/// What a volume may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeState {
    Live,
    /// Its deletion was issued.
    Deleting,
    Deleted,
    /// It is being forgotten that it was deleted.
    Forgetting,
}

/// The whole drive.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) extents: BTreeMap<ExtentId, ExtentModel>,
    pub(super) records: BTreeMap<u8, RecordModel>,
    pub(super) volumes: BTreeMap<VolumeId, VolumeState>,
    /// Changes issued and not answered, of records and volumes.
    pub(super) busy_records: BTreeSet<u8>,
}

pub(super) const fn block_bytes(blocks: usize) -> u32 {
    (blocks * BLOCK_BYTES) as u32
}
