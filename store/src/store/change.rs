//! Changes of extents: which slot, which way, which entry.
//!
//! | change | way |
//! |---|---|
//! | a small write | into the journal with its data, in the same batch as others of its extent |
//! | a large write of blocks that are absent | into the extent's slot, then into the journal |
//! | a large write that covers all blocks of its extent | into a new slot, then into the journal |
//! | any other large write | into the journal with its data: nothing live is overwritten before it is there |
//! | a replacement | into a new slot, then into the journal |

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::version::Version;

use super::Store;
use super::operation::{Flow, Operation, Owner, Stage};
use super::submit::{Purpose, Urgency};
use crate::block::{BlockChecksum, BlockRange, BlockSet, Hasher, LostBlocks};
use crate::buffer::{BLOCK_BYTES, Segment};
use crate::error::Error;
use crate::gate::{GateKey, Issued, Mode, OpId};
use crate::index;
use crate::io::{Durability, IoKind};
use crate::journal::entry::{Data, Entry, Others, Put};
use crate::page::ExtentInfo;
use crate::planted::Bug;
use crate::request::{Reply, RequestKind};

/// A write or replacement whose values make sense.
struct Writing {
    id: ExtentId,
    group: GroupId,
    version: Version,
    blocks: BlockSet,
    lost: LostBlocks,
    data: Option<Segment>,
    others: Others,
}

impl Store {
    /// Checks a change, then takes it as far as its entry. The operation is inside its gate.
    pub(super) fn change_extent(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        match self.try_change_extent(id, operation) {
            Ok(()) => Flow::Wait,
            Err(flow) => flow,
        }
    }

    fn try_change_extent(&mut self, id: OpId, operation: &mut Operation) -> Result<(), Flow> {
        match operation.kind.clone() {
            RequestKind::Write { extent, group, offset, data, version } => {
                let range = BlockRange::new(offset, data.bytes().len())?;
                let (blocks, data) = (BlockSet::of(range), Some(data));
                let (lost, others) = (LostBlocks::default(), Others::Keep);
                let writing = Writing { id: extent, group, version, blocks, lost, data, others };
                self.write(id, operation, writing)
            }
            RequestKind::Replace { extent, group, version, blocks, lost, data } => {
                if data.as_ref().map_or(0, Segment::blocks) != blocks.len() {
                    return Err(Error::Misaligned.into());
                }
                let writing = Writing { id: extent, group, version, blocks, lost, data, others: Others::Clear };
                self.write(id, operation, writing)
            }
            RequestKind::Clear { extent, offset, len, version } => {
                let range = BlockRange::new(offset, len as usize)?;
                self.clear(id, operation, extent, range, version)
            }
            RequestKind::ForgetExtent { extent, version } => self.forget(id, operation, extent, version),
            _ => unreachable!("only changes of extents come here"),
        }
    }

    /// What the extent is, or will be once all changes before this one are durable.
    fn current(&mut self, id: ExtentId) -> Option<Issued> {
        let held = self.index.by_extent.get(&id).map(|cell| {
            let info = self.tables.infos[cell.0 as usize].expect("a cell in the index is used");
            Issued { cell: *cell, info }
        });
        (*self.gates.issued(&GateKey::Extent(id))).or(held)
    }

    fn check_change(&self, id: ExtentId, version: Version) -> Result<(), Error> {
        if self.index.tombstones.contains_key(&id.volume) {
            return Err(Error::VolumeDeleted);
        }
        if version == Version::ZERO { Err(Error::ZeroVersion) } else { Ok(()) }
    }

    fn write(&mut self, id: OpId, operation: &mut Operation, writing: Writing) -> Result<(), Flow> {
        self.check_change(writing.id, writing.version)?;
        let key = GateKey::Extent(writing.id);
        let current = self.current(writing.id);
        if let Some(Issued { info, .. }) = current.filter(|current| current.info.version != Version::ZERO) {
            if info.group != writing.group {
                return Err(Error::OtherGroup { held: info.group }.into());
            }
            if writing.version < info.version {
                return Err(Error::StaleVersion { held: info.version }.into());
            }
            if writing.version == info.version && writing.others == Others::Keep {
                // A duplicate is done when the first is durable.
                let is_alone = !self.gates.is_crowded(&key);
                return Err(if is_alone { Flow::Done(Ok(Reply::Done)) } else { self.wait_alone(id, operation) });
            }
        }
        let mut slot_is_new = false;
        let mut issued = match current {
            Some(issued) => issued,
            None => self.new_extent(&writing)?,
        };
        *self.gates.issued(&key) = Some(issued);
        self.pin(id, operation, issued.cell)?;
        let is_exclusive = operation.admission == super::operation::Admission::Inside(Mode::Exclusive);
        if writing.others == Others::Keep && issued.info.slot.is_none() {
            let slot = self.index.take_slot(index::Purpose::Growth).ok_or(Error::Full)?;
            issued.info.slot = Some(slot);
            slot_is_new = true;
        }
        let (entry, way) = self.plan_write(&mut issued, &writing, slot_is_new, is_exclusive)?;
        *self.gates.issued(&key) = Some(issued);
        match way {
            Data::Inline => self.enqueue(id, operation, Entry::Put(entry), writing.data),
            Data::InSlot => self.write_direct(id, operation, entry, writing.data),
        }
        Ok(())
    }

    /// A cell for an extent that does not exist, if there is space for its data.
    fn new_extent(&mut self, writing: &Writing) -> Result<Issued, Error> {
        let has_space = writing.blocks.is_empty() || self.index.free_slot_count() > index::SLOTS_RESERVED;
        if !has_space {
            return Err(Error::Full);
        }
        let cell = self.index.free_cells.pop_first().ok_or(Error::Full)?;
        let info = ExtentInfo { id: writing.id, group: writing.group, version: Version::ZERO, slot: None };
        Ok(Issued { cell, info })
    }

    /// Chooses the way of a write, and a new slot where it needs one.
    fn plan_write(
        &mut self,
        issued: &mut Issued,
        writing: &Writing,
        slot_is_new: bool,
        alone: bool,
    ) -> Result<(Put, Data), Error> {
        let mut others = if slot_is_new { Others::Clear } else { writing.others };
        let mut way = Data::Inline;
        if writing.others == Others::Clear {
            let old = issued.info.slot;
            issued.info.slot = if writing.blocks.is_empty() {
                None
            } else {
                let purpose = if old.is_some() { index::Purpose::Move } else { index::Purpose::Growth };
                Some(self.index.take_slot(purpose).ok_or(Error::Full)?)
            };
            way = Data::InSlot;
        } else if alone && writing.blocks.len() >= self.config.direct_blocks_min {
            let slot = issued.info.slot.expect("a write has a slot");
            let present = self.tables.blocks(issued.cell).present;
            let is_quiet = !self.index.is_writing(slot) || self.bugs.has(Bug::WriteIntoWriteBack);
            let is_absent = present.and(&writing.blocks).is_empty() || self.bugs.has(Bug::OverwriteInPlace);
            if slot_is_new || is_absent && is_quiet {
                way = Data::InSlot;
            } else if present.without(&writing.blocks).is_empty()
                && let Some(slot) = self.index.take_slot(index::Purpose::Move)
            {
                issued.info.slot = Some(slot);
                (way, others) = (Data::InSlot, Others::Clear);
            }
        }
        issued.info.version = writing.version;
        let checksums = writing.data.as_ref().map_or(Vec::new(), |data| checksums(writing, data));
        let (cell, slot) = (issued.cell, issued.info.slot);
        let (id, group, version, blocks) = (writing.id, writing.group, writing.version, writing.blocks);
        Ok((Put { cell, id, group, version, slot, data: way, others, blocks, checksums }, way))
    }

    /// Writes data to its slot, durably, before its entry: what an entry names is there.
    fn write_direct(&mut self, id: OpId, operation: &mut Operation, put: Put, data: Option<Segment>) {
        let (Some(slot), Some(data)) = (put.slot, data) else {
            return self.enqueue(id, operation, Entry::Put(put), None);
        };
        let mut first = 0;
        let mut outstanding = 0;
        for run in put.blocks.runs() {
            let offset = self.geometry.slot_offset(slot, run.first);
            let segment = data.part(first, run.count);
            let durability =
                if self.bugs.has(Bug::DirectNotDurable) { Durability::Cached } else { Durability::Durable };
            let kind = IoKind::Write { offset, data: vec![segment], durability };
            self.submissions.submit(Urgency::Request, Purpose::Direct(id), kind);
            first += run.count;
            outstanding += 1;
        }
        if self.bugs.has(Bug::JournalBeforeData) {
            return self.enqueue(id, operation, Entry::Put(put), None);
        }
        operation.stage = Stage::Direct { entry: Entry::Put(put), outstanding };
    }

    pub(super) fn finish_direct(&mut self, id: OpId) {
        // Gone before its data only with a planted bug.
        let Some(mut operation) = self.operations.remove(&id) else { return };
        let stage = core::mem::replace(&mut operation.stage, Stage::Journaled);
        match stage {
            Stage::Direct { entry, outstanding: 1 } => self.enqueue(id, &mut operation, entry, None),
            Stage::Direct { entry, outstanding } => {
                operation.stage = Stage::Direct { entry, outstanding: outstanding - 1 };
            }
            other => operation.stage = other,
        }
        self.operations.insert(id, operation);
    }

    fn clear(
        &mut self,
        id: OpId,
        operation: &mut Operation,
        extent: ExtentId,
        range: BlockRange,
        version: Version,
    ) -> Result<(), Flow> {
        self.check_change(extent, version)?;
        let Some(Issued { cell, info, .. }) = self.current(extent) else { return Err(Flow::Done(Ok(Reply::Done))) };
        if version < info.version {
            return Err(Error::StaleVersion { held: info.version }.into());
        }
        if version == info.version {
            return Err(Flow::Done(Ok(Reply::Done)));
        }
        self.pin(id, operation, cell)?;
        let entry = Entry::Clear { cell, id: extent, version, blocks: BlockSet::of(range) };
        if self.bugs.has(Bug::ReuseSlotEarly)
            && let Some(slot) = info.slot
            && self.tables.blocks(cell).present.without(&BlockSet::of(range)).is_empty()
        {
            self.index.release_slot(slot);
        }
        self.enqueue(id, operation, entry, None);
        Ok(())
    }

    fn forget(&mut self, id: OpId, operation: &mut Operation, extent: ExtentId, version: Version) -> Result<(), Flow> {
        let Some(Issued { cell, info, .. }) = self.current(extent) else { return Err(Flow::Done(Ok(Reply::Done))) };
        if operation.owner != Owner::Drop {
            self.check_change(extent, version)?;
            if info.version > version {
                return Err(Error::StaleVersion { held: info.version }.into());
            }
            if info.slot.is_some() {
                return Err(Error::HasData.into());
            }
        }
        self.pin(id, operation, cell)?;
        self.enqueue(id, operation, Entry::DropExtent { cell }, None);
        Ok(())
    }

    /// Nobody changes an extent any more: what was planned for it and did not happen is taken back.
    pub(super) fn take_back(&mut self, issued: Issued) {
        let held = self.index.by_extent.get(&issued.info.id);
        if held.is_none() && issued.info.version == Version::ZERO && !self.damaged.contains(&issued.cell.page()) {
            self.index.free_cells.insert(issued.cell);
        }
    }
}

/// The checksums of the blocks. That of a lost one is its content's: its bytes have it only if they happen to be that content. If nobody
/// knows that, it is one that its bytes cannot have.
fn checksums(writing: &Writing, data: &Segment) -> Vec<BlockChecksum> {
    let hasher = Hasher::new(writing.id);
    let sum = |(block, bytes)| {
        let sum = hasher.checksum(block, bytes);
        if writing.lost.contains(block) { writing.lost.sum(block).unwrap_or(BlockChecksum(!sum.0)) } else { sum }
    };
    writing.blocks.iter().zip(data.bytes().chunks_exact(BLOCK_BYTES)).map(sum).collect()
}
