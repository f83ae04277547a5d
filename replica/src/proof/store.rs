//! Model of a drive's store for one placement group: what is visible, what is durable, and what a crash leaves.
//!
//! A change is visible at once and durable at its completion; with it, every earlier change of the same extent. A crash
//! keeps, per extent, any prefix of the changes that are not durable. A block is one number, its tag; zero is zeroes.
//! A drive that is full refuses what needs space for an extent that has none, and what follows that on the same extent.
//! Of a deleted volume it has nothing, and changes of it count as done.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::version::Version;
use bytes::Bytes;

use super::chance::Chance;
use crate::record::Record;
use crate::request::{
    BLOCK_BYTES, Content, Difference, PAGE_MAX, Page, Range, Run, StoreError, StoreId, StoreReply, StoreRequest,
    StoreResult,
};

/// Bytes of a block, as a size.
const BLOCK: usize = BLOCK_BYTES as usize;

/// Set in the tag of a block whose bytes are not what was written.
pub const DAMAGED: u64 = 1 << 63;
/// The tag of a block that is kept as lost.
pub const LOST: u64 = DAMAGED;

/// One extent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extent {
    /// Its version.
    pub version: Version,
    /// Tags of blocks that are not zero, by number.
    pub blocks: BTreeMap<u32, u64>,
}

/// All extents.
pub type Extents = BTreeMap<ExtentId, Extent>;

#[derive(Debug, Clone)]
struct Change {
    id: StoreId,
    runs: Vec<Run>,
    version: Version,
}

/// The store of one member.
#[derive(Debug, Clone, Default)]
pub struct Store {
    visible: Extents,
    durable: Extents,
    unsynced: BTreeMap<ExtentId, VecDeque<Change>>,
    record: Option<Vec<u8>>,
    records: VecDeque<(StoreId, Vec<u8>)>,
    early: BTreeMap<StoreId, StoreResult>,
    requests: BTreeMap<StoreId, StoreRequest>,
    /// Changes that were refused and are not completed, by extent, and why.
    refused: BTreeMap<ExtentId, (StoreError, usize)>,
    /// Mends that leave blocks damaged.
    in_vain: BTreeSet<StoreId>,
    /// Volumes that were deleted here.
    deleted: BTreeSet<VolumeId>,
    /// The group and the drive, known once a volume was deleted.
    owner: Option<(GroupId, DriveId)>,
    /// The greatest version of a change in this life, unless an extent has gone back since.
    reached: Version,
    /// Most extents that have blocks, if the drive is full at a number.
    pub occupied_max: Option<usize>,
    /// What every request fails with from now on, if it does.
    pub fault: Option<StoreError>,
}

/// One block with a tag.
#[must_use]
pub fn block_of(tag: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(&tag.to_be_bytes());
    block
}

/// The tags of blocks.
#[must_use]
pub fn tags_of(data: &[u8]) -> Vec<u64> {
    let tag = |block: &[u8]| block[..8].iter().fold(0, |tag, byte| tag << 8 | u64::from(*byte));
    data.chunks(BLOCK).map(tag).collect()
}

fn numbers(range: Range) -> core::ops::Range<u32> {
    range.offset / BLOCK_BYTES..(range.offset + range.len) / BLOCK_BYTES
}

fn apply(extents: &mut Extents, id: ExtentId, change: &Change) {
    let extent = extents.entry(id).or_default();
    extent.version = change.version;
    for run in &change.runs {
        let tags = match &run.content {
            Content::Data(data) => tags_of(data),
            Content::Zeroes(len) => vec![0; (*len / BLOCK_BYTES) as usize],
            Content::Lost(sums) => {
                let held = |number| extent.blocks.get(&number).copied();
                let lost = |(number, sum): (u32, &Option<u32>)| match (held(number), sum.map(u64::from)) {
                    (Some(held), Some(tag)) if held == tag => tag,
                    (_, tag) => DAMAGED | tag.unwrap_or(0),
                };
                numbers(run.range()).zip(sums).map(lost).collect()
            }
        };
        for (number, tag) in numbers(run.range()).zip(tags) {
            extent.blocks.remove(&number);
            if tag != 0 {
                extent.blocks.insert(number, tag);
            }
        }
    }
    if extent.version == Version::ZERO && extent.blocks.is_empty() {
        extents.remove(&id);
    }
}

/// Whether a block of an extent cannot be read.
fn is_damaged(extent: &Extent) -> bool {
    extent.blocks.values().any(|tag| tag & DAMAGED != 0)
}

fn sum_of(extent: ExtentId, number: u32, tag: u64) -> Checksum {
    let place = extent.extent.0.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(number));
    Checksum(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place)
}

impl Store {
    /// Takes a request; its completion is asked for later. Reads look either now or then.
    pub fn submit(&mut self, id: StoreId, request: StoreRequest, looks_now: bool) {
        let change = match &request {
            StoreRequest::Write { extent, run, version } => {
                Some((*extent, Change { id, runs: vec![run.clone()], version: *version }))
            }
            StoreRequest::Patch { extent, runs, version } => {
                let is_kept = self.version_of(*extent) == *version;
                let runs = runs.iter().filter(|run| !(is_kept && run.is_lost())).cloned().collect();
                Some((*extent, Change { id, runs, version: *version }))
            }
            StoreRequest::Mend { extent, runs, version } => {
                let held = self.version_of(*extent);
                let runs = if held == *version { runs.clone() } else { self.known_again(*extent, runs) };
                Some((*extent, Change { id, runs, version: held }))
            }
            StoreRequest::Save { record } => {
                self.records.push_back((id, record.clone()));
                None
            }
            _ if looks_now => {
                let reply = self.look(&request);
                self.early.insert(id, reply);
                None
            }
            _ => None,
        };
        if let Some((extent, change)) = change.filter(|(extent, _)| !self.deleted.contains(&extent.volume)) {
            let behind = self.refused.get(&extent).map(|(error, _)| *error);
            if let Some(error) = behind.or_else(|| self.refusal(extent, &request, &change)) {
                self.refused.entry(extent).or_insert((error, 0)).1 += 1;
                self.early.insert(id, Err(error));
                self.requests.insert(id, request);
                return;
            }
            let goes_back = change.version < self.version_of(extent);
            // What was the greatest version may be gone: it is looked for among those that are left.
            self.reached = if goes_back { Version::ZERO } else { self.reached.max(change.version) };
            apply(&mut self.visible, extent, &change);
            if matches!(request, StoreRequest::Mend { .. }) && self.visible.get(&extent).is_some_and(is_damaged) {
                self.in_vain.insert(id);
            }
            self.unsynced.entry(extent).or_default().push_back(change);
        }
        self.requests.insert(id, request);
    }

    /// Completes a request.
    ///
    /// # Errors
    /// The fault of the store, if it has one.
    ///
    /// # Panics
    /// If there is no such request.
    pub fn complete(&mut self, id: StoreId) -> StoreResult {
        let request = self.requests.remove(&id).expect("only what was submitted completes");
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        match &request {
            StoreRequest::Write { extent, .. }
            | StoreRequest::Patch { extent, .. }
            | StoreRequest::Mend { extent, .. } => {
                if let Some(refused) = self.early.remove(&id) {
                    self.forget_refused(*extent);
                    return refused;
                }
                self.sync(*extent, id);
                if self.in_vain.remove(&id) { Err(StoreError::Damaged) } else { Ok(StoreReply::Done) }
            }
            StoreRequest::Save { .. } => {
                while self.records.iter().any(|(other, _)| *other == id) {
                    self.record = self.records.pop_front().map(|(_, record)| record);
                }
                Ok(StoreReply::Done)
            }
            _ => self.early.remove(&id).unwrap_or_else(|| self.look(&request)),
        }
    }

    fn sync(&mut self, extent: ExtentId, id: StoreId) {
        let Some(changes) = self.unsynced.get_mut(&extent) else { return };
        while changes.iter().any(|change| change.id == id) {
            let change = changes.pop_front().expect("there is the one that was found");
            apply(&mut self.durable, extent, &change);
        }
        if changes.is_empty() {
            self.unsynced.remove(&extent);
        }
    }

    fn is_occupied(&self, id: ExtentId) -> bool {
        self.visible.get(&id).is_some_and(|extent| !extent.blocks.is_empty())
    }

    /// Extents that have blocks.
    #[must_use]
    pub fn occupied(&self) -> usize {
        self.visible.values().filter(|extent| !extent.blocks.is_empty()).count()
    }

    /// Why a change is not done.
    fn refusal(&self, extent: ExtentId, request: &StoreRequest, change: &Change) -> Option<StoreError> {
        let is_other = matches!(request, StoreRequest::Mend { version, .. } if self.version_of(extent) != *version);
        if is_other && change.runs.is_empty() {
            return Some(StoreError::Damaged);
        }
        self.needs_space(extent, change).then_some(StoreError::Full)
    }

    /// The blocks that are damaged here, and of which this is the content.
    fn known_again(&self, id: ExtentId, runs: &[Run]) -> Vec<Run> {
        let held = |number: u32| self.visible.get(&id).and_then(|extent| extent.blocks.get(&number)).copied();
        let mut found = Vec::new();
        for run in runs {
            let Content::Data(data) = &run.content else { continue };
            for (number, tag) in numbers(run.range()).zip(tags_of(data)) {
                if held(number) == Some(DAMAGED | tag) {
                    found.push(Run { offset: number * BLOCK_BYTES, content: Content::Data(block_of(tag).into()) });
                }
            }
        }
        found
    }

    /// Whether a change finds no space.
    fn needs_space(&self, id: ExtentId, change: &Change) -> bool {
        let has_data = change.runs.iter().any(|run| matches!(run.content, Content::Data(_)));
        has_data && !self.is_occupied(id) && self.occupied_max.is_some_and(|most| self.occupied() >= most)
    }

    fn forget_refused(&mut self, extent: ExtentId) {
        let (_, count) = self.refused.get_mut(&extent).expect("a refused change is counted");
        *count -= 1;
        if *count == 0 {
            self.refused.remove(&extent);
        }
    }

    fn version_of(&self, id: ExtentId) -> Version {
        self.visible.get(&id).map_or(Version::ZERO, |extent| extent.version)
    }

    /// The drive has other bytes now than were written to some blocks of an extent: those whose bit is set, and the first.
    pub fn damage(&mut self, id: ExtentId, bits: u64) {
        if self.unsynced.contains_key(&id) {
            return;
        }
        for extents in [&mut self.visible, &mut self.durable] {
            let Some(extent) = extents.get_mut(&id) else { continue };
            let hit = |place: usize| place == 0 || bits & 1 << (place % 64) != 0;
            let tags = extent.blocks.values_mut().enumerate().filter(|(place, _)| hit(*place));
            tags.for_each(|(_, tag)| *tag |= DAMAGED);
        }
    }

    /// A volume is deleted, durably. The record of this member of the group proves from now on what the extents do not any more.
    pub fn delete_volume(&mut self, volume: VolumeId, owner: (GroupId, DriveId)) {
        self.owner = Some(owner);
        self.deleted.insert(volume);
        let newest = self.visible.values().map(|extent| extent.version).max().unwrap_or_default();
        self.reached = self.reached.max(newest);
        self.visible.retain(|id, _| id.volume != volume);
        self.durable.retain(|id, _| id.volume != volume);
        self.unsynced.retain(|id, _| id.volume != volume);
    }

    /// Whether a volume was deleted here.
    #[must_use]
    pub fn has_deleted(&self, volume: VolumeId) -> bool {
        self.deleted.contains(&volume)
    }

    /// Up to where the extents were at all acting members, as the record says, once extents may be gone.
    fn proven(&self) -> Version {
        let record = self.owner.zip(self.record.as_ref());
        let record = record.and_then(|((group, drive), record)| Record::decode(record, group, drive).ok());
        record.map_or(Version::ZERO, |record| record.clean)
    }

    /// Extents with blocks that cannot be read.
    #[must_use]
    pub fn damaged(&self) -> BTreeSet<ExtentId> {
        self.visible.iter().filter(|(_, extent)| is_damaged(extent)).map(|(id, _)| *id).collect()
    }

    /// Drops extents without blocks that every acting member may do without, as the drive of a member does by itself.
    pub fn drop_empty(&mut self, may_drop: impl Fn(Version, Version) -> bool) -> usize {
        let newest = self.durable.values().map(|extent| extent.version).max().unwrap_or_default();
        let is_due = |(id, extent): &(&ExtentId, &Extent)| {
            extent.blocks.is_empty() && !self.unsynced.contains_key(id) && may_drop(extent.version, newest)
        };
        let due: Vec<ExtentId> = self.durable.iter().filter(is_due).map(|(id, _)| *id).collect();
        for id in &due {
            self.durable.remove(id);
            self.visible.remove(id);
        }
        due.len()
    }

    fn look(&self, request: &StoreRequest) -> StoreResult {
        if let StoreRequest::Read { extent, range } = request
            && let Some(held) = self.visible.get(extent)
            && numbers(*range).any(|number| held.blocks.get(&number).is_some_and(|tag| tag & DAMAGED != 0))
        {
            return Err(StoreError::Damaged);
        }
        Ok(match request {
            StoreRequest::Read { extent, range } => {
                let tag = |number| self.visible.get(extent).and_then(|extent| extent.blocks.get(&number));
                let blocks = numbers(*range).map(|number| block_of(tag(number).copied().unwrap_or(0)));
                StoreReply::Read(Bytes::from(blocks.collect::<Vec<_>>().concat()))
            }
            StoreRequest::List { above, after } => StoreReply::List(self.list(*above, *after)),
            StoreRequest::Checksums { extent } => {
                let blocks = self.visible.get(extent).map(|extent| &extent.blocks);
                let last = blocks.and_then(|blocks| blocks.last_key_value()).map_or(0, |(number, _)| number + 1);
                let tag = |number| blocks.and_then(|blocks| blocks.get(&number)).copied().unwrap_or(0);
                StoreReply::Checksums((0..last).map(|number| sum_of(*extent, number, tag(number))).collect())
            }
            StoreRequest::Occupied { extent } => StoreReply::Occupied(self.is_occupied(*extent)),
            StoreRequest::Presence { extent, range } => {
                let mut bits = vec![0_u8; range.presence_len()];
                let blocks = self.visible.get(extent).map(|extent| &extent.blocks);
                for (at, number) in numbers(*range).enumerate() {
                    let is_there = blocks.is_some_and(|blocks| blocks.contains_key(&number));
                    bits[at / 8] |= u8::from(is_there) << (at % 8);
                }
                StoreReply::Read(Bytes::from(bits))
            }
            StoreRequest::Difference { extent, than } => StoreReply::Difference(self.difference(*extent, than)),
            StoreRequest::Write { .. } | StoreRequest::Patch { .. } => StoreReply::Done,
            StoreRequest::Mend { .. } | StoreRequest::Save { .. } => StoreReply::Done,
        })
    }

    fn list(&self, above: Version, after: Option<ExtentId>) -> Page {
        let matches = |id: &ExtentId, extent: &Extent| Some(*id) > after && extent.version > above;
        let mut found = self.visible.iter().filter(|(id, extent)| matches(id, extent));
        // Pages are short here, so that walks have several.
        let shown = |extent: &Extent| {
            if above == Version::ZERO && is_damaged(extent) { Version::ZERO } else { extent.version }
        };
        let entries: Vec<_> = found.by_ref().take(PAGE_MAX.min(3)).map(|(id, extent)| (*id, shown(extent))).collect();
        let newest = self.visible.values().map(|extent| extent.version).max().unwrap_or_default();
        let newest = newest.max(self.reached).max(self.proven());
        Page { entries, has_more: found.next().is_some(), newest }
    }

    fn difference(&self, id: ExtentId, than: &[Checksum]) -> Difference {
        let extent = self.visible.get(&id).cloned().unwrap_or_default();
        let last = extent.blocks.last_key_value().map_or(0, |(number, _)| number + 1);
        let other = u32::try_from(than.len()).expect("an extent has few blocks");
        let mut runs = Vec::new();
        for number in 0..last.max(other) {
            let tag = extent.blocks.get(&number).copied().unwrap_or(0);
            let theirs = than.get(number as usize).copied().unwrap_or(sum_of(id, number, 0));
            if theirs != sum_of(id, number, tag) || tag & DAMAGED != 0 {
                let content = match tag {
                    0 => Content::Zeroes(BLOCK_BYTES),
                    // Tags are checksums here.
                    LOST => Content::Lost(vec![None]),
                    _ if tag & DAMAGED != 0 => Content::Lost(vec![u32::try_from(tag & !DAMAGED).ok()]),
                    _ => Content::Data(block_of(tag).into()),
                };
                runs.push(Run { offset: number * BLOCK_BYTES, content });
            }
        }
        Difference { version: extent.version, runs }
    }

    /// The process or the machine ends: any prefix of what is not durable stays.
    pub fn crash(&mut self, chance: &mut Chance) {
        for (extent, changes) in core::mem::take(&mut self.unsynced) {
            let kept = chance.index(changes.len() + 1);
            for change in changes.iter().take(kept) {
                apply(&mut self.durable, extent, change);
            }
        }
        let kept = chance.index(self.records.len() + 1);
        if kept > 0 {
            self.record = Some(self.records[kept - 1].1.clone());
        }
        self.visible = self.durable.clone();
        self.reached = Version::ZERO;
        self.records.clear();
        self.early.clear();
        self.refused.clear();
        self.in_vain.clear();
        self.requests.clear();
    }

    /// The record that is durable.
    #[must_use]
    pub fn record(&self) -> Option<&[u8]> {
        self.record.as_deref()
    }

    /// What a read sees.
    #[must_use]
    pub const fn visible(&self) -> &Extents {
        &self.visible
    }

    /// Whether everything visible is durable.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
    }
}
