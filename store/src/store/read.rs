//! Reads: blocks from the overlay, from the drive, and zeroes; every block from the drive is verified.
//!
//! Write-back and later changes may overwrite a slot while it is read. They are visible in the page of the extent, which
//! stays in memory meanwhile: bytes that do not match are damage only if nothing was changed, otherwise they are read
//! again.
//!
//! To salvage an extent is to read it whole and to say which blocks are damaged. Where the drive fails to read it at once,
//! its blocks are read one by one.

use ashlar_placement::rule::ExtentId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::Store;
use super::operation::{Flow, Operation, Owner, Stage};
use super::submit::{Purpose, Urgency};
use crate::block::{BlockChecksum, BlockRange, EXTENT_BLOCKS, EXTENT_BYTES, Hasher, LostBlocks};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::error::Error;
use crate::gate::OpId;
use crate::io::{IoError, IoKind};
use crate::journal::batch::BatchSeq;
use crate::layout::SlotId;
use crate::page::{CellId, ExtentInfo};
use crate::request::{Reply, Request, RequestKind};

/// Where the newest data of a block is.
#[derive(Debug)]
enum Piece {
    Absent,
    Memory(Segment),
    Drive(BlockChecksum),
}

/// A read on its way.
#[derive(Debug)]
pub(super) struct ReadPlan {
    id: ExtentId,
    cell: CellId,
    version: Version,
    range: BlockRange,
    /// One for each block of the range.
    pieces: Vec<Piece>,
    /// What is read from the drive: from the first to the last block that is needed.
    span: BlockRange,
    slot: SlotId,
    /// The newest change of the page when the read began.
    changed: BatchSeq,
}

/// What was read of an extent block by block, and how far that is.
#[derive(Debug)]
pub(super) struct Salvage {
    read: AlignedBuf,
    /// The next block, counted from the beginning of the plan's span.
    next: usize,
}

impl Store {
    /// Plans a read, and answers it at once if the drive is not needed.
    pub(super) fn advance_read(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        match self.try_advance_read(id, operation) {
            Ok(reply) => Flow::Done(Ok(reply)),
            Err(flow) => flow,
        }
    }

    fn try_advance_read(&mut self, id: OpId, operation: &mut Operation) -> Result<Reply, Flow> {
        let (extent, range) = match &operation.kind {
            RequestKind::Salvage { extent } => (*extent, Some(BlockRange::WHOLE)),
            RequestKind::Read { extent, offset, len } => (*extent, Some(BlockRange::new(*offset, *len as usize)?)),
            RequestKind::Checksums { extent } => (*extent, None),
            _ => unreachable!("only reads come here"),
        };
        if self.index.tombstones.contains_key(&extent.volume) {
            return Err(Error::VolumeDeleted.into());
        }
        let cell = self.index.by_extent.get(&extent).copied();
        let held = cell.and_then(|cell| self.tables.infos[cell.0 as usize].map(|info| (cell, info)));
        let version = held.map_or(Version::ZERO, |(_, info)| info.version);
        let Some((cell, info)) = held.filter(|(_, info)| info.slot.is_some()) else {
            return Ok(match range {
                Some(range) => reply(operation, AlignedBuf::zeroed(range.count), version, LostBlocks::default()),
                None => Reply::Checksums { blocks: vec![None; EXTENT_BLOCKS], version },
            });
        };
        self.pin(id, operation, cell)?;
        match range {
            Some(range) => self.begin_read(id, operation, cell, info, range),
            None => {
                let held = self.tables.blocks(cell);
                let blocks = (0..EXTENT_BLOCKS).map(|at| held.present.contains(at).then(|| held.checksums[at]));
                Ok(Reply::Checksums { blocks: blocks.collect(), version })
            }
        }
    }

    fn begin_read(
        &mut self,
        id: OpId,
        operation: &mut Operation,
        cell: CellId,
        info: ExtentInfo,
        range: BlockRange,
    ) -> Result<Reply, Flow> {
        let held = self.tables.blocks(cell);
        let piece = |block| match self.tables.overlay.get(&(cell, block)) {
            Some(overlay) => Piece::Memory(overlay.data.clone()),
            None if held.present.contains(block) => Piece::Drive(held.checksums[block]),
            None => Piece::Absent,
        };
        let pieces: Vec<Piece> = (range.first..range.end()).map(piece).collect();
        let is_on_drive = |piece: &Piece| matches!(piece, Piece::Drive(_));
        let changed = self.tables.pages[&cell.page()].changed;
        let first = pieces.iter().position(is_on_drive);
        let last = pieces.iter().rposition(is_on_drive);
        let span =
            first.zip(last).map(|(first, last)| BlockRange { first: range.first + first, count: last - first + 1 });
        let slot = info.slot.expect("an extent with blocks has a slot");
        let mut plan = ReadPlan { id: info.id, cell, version: info.version, range, pieces, span: range, slot, changed };
        let Some(span) = span else {
            let (data, lost) = plan.assemble(None);
            return Ok(reply(operation, data, plan.version, lost));
        };
        plan.span = span;
        let (offset, len) = (self.geometry.slot_offset(slot, span.first), span.count * BLOCK_BYTES);
        let urgency = if operation.owner == Owner::Scrub { Urgency::Background } else { Urgency::Request };
        self.submissions.submit(urgency, Purpose::Read { op: id, len }, IoKind::Read { offset, len });
        // From here on the request has cost an IO: it is not dropped any more.
        operation.deadline = Instant::NEVER;
        operation.stage = Stage::Reading(plan);
        Err(Flow::Wait)
    }

    pub(super) fn finish_read(&mut self, id: OpId, result: Result<AlignedBuf, IoError>) {
        let mut operation = self.operations.remove(&id).expect("an operation waits for its read");
        match (core::mem::replace(&mut operation.stage, Stage::Waiting), result) {
            (Stage::Reading(plan), Ok(data)) => self.finish_plan(id, operation, &plan, data),
            (Stage::Reading(plan), Err(error)) => {
                if matches!(operation.kind, RequestKind::Salvage { .. }) {
                    let read = AlignedBuf::zeroed(plan.span.count);
                    self.salvage_next(id, operation, plan, Salvage { read, next: 0 });
                } else {
                    self.finish(operation, Err(Error::ReadFailed(error)));
                }
            }
            (Stage::Salvaging(plan, mut salvage), result) => {
                // What cannot be read stays zeroes, which its checksum tells.
                if let Ok(data) = result {
                    salvage.read.block_mut(salvage.next).copy_from_slice(&data);
                }
                salvage.next += 1;
                if salvage.next < plan.span.count {
                    self.salvage_next(id, operation, plan, salvage);
                } else {
                    self.finish_plan(id, operation, &plan, salvage.read);
                }
            }
            _ => panic!("an operation that reads has a plan"),
        }
    }

    fn salvage_next(&mut self, id: OpId, mut operation: Operation, plan: ReadPlan, salvage: Salvage) {
        let slot = plan.slot;
        let offset = self.geometry.slot_offset(slot, plan.span.first + salvage.next);
        let kind = IoKind::Read { offset, len: BLOCK_BYTES };
        self.submissions.submit(Urgency::Request, Purpose::Read { op: id, len: BLOCK_BYTES }, kind);
        operation.stage = Stage::Salvaging(plan, salvage);
        self.operations.insert(id, operation);
    }

    /// Everything that the drive gives is there: the answer, or once more if the extent was changed meanwhile.
    fn finish_plan(&mut self, id: OpId, mut operation: Operation, plan: &ReadPlan, read: AlignedBuf) {
        let (data, lost) = plan.assemble(Some(read));
        if lost.is_empty() {
            let reply = reply(&operation, data, plan.version, lost);
            self.finish(operation, Ok(reply));
        } else if self.tables.pages[&plan.cell.page()].changed != plan.changed {
            self.unpin(&mut operation);
            self.operations.insert(id, operation);
            self.ready.push_back(id);
        } else if matches!(operation.kind, RequestKind::Salvage { .. }) {
            self.report_damage(plan.id);
            let reply = reply(&operation, data, plan.version, lost);
            self.finish(operation, Ok(reply));
        } else {
            self.finish(operation, Err(Error::Damaged));
        }
    }

    /// Reads the next extent of the scrub.
    pub(super) fn scrub_next(&mut self) {
        use core::ops::Bound;
        let first = self.scrub.after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.index.by_extent.range((first, Bound::Unbounded)).map(|(id, _)| *id);
        let next = behind.into_iter().find(|id| !self.index.tombstones.contains_key(&id.volume));
        self.scrub.after = next;
        let Some(extent) = next else {
            // Once around: from the beginning next time.
            self.scrub.due = self.config.scrub_interval.map(|interval| self.now + interval);
            return;
        };
        self.scrub.due = None;
        let len = u32::try_from(EXTENT_BYTES).expect("an extent has 1 MiB");
        let kind = RequestKind::Read { extent, offset: 0, len };
        self.start(Owner::Scrub, Request { deadline: Instant::NEVER, kind });
    }
}

impl ReadPlan {
    /// The bytes of the range, and the blocks from the drive that are not what was written there: they are zeroes. Where
    /// the drive gave the whole range, its buffer is the answer, without a copy.
    fn assemble(&self, read: Option<AlignedBuf>) -> (AlignedBuf, LostBlocks) {
        let hasher = Hasher::new(self.id);
        let is_whole = read.is_some() && self.span == self.range;
        let (mut data, read) = match read {
            Some(read) if is_whole => (read, None),
            other => (AlignedBuf::zeroed(self.range.count), other),
        };
        let mut lost = LostBlocks::default();
        for (index, piece) in self.pieces.iter().enumerate() {
            let block = self.range.first + index;
            match piece {
                Piece::Absent => data.block_mut(index).fill(0),
                Piece::Memory(segment) => data.block_mut(index).copy_from_slice(segment.bytes()),
                Piece::Drive(sum) => {
                    if let Some(read) = &read {
                        data.block_mut(index).copy_from_slice(read.block(block - self.span.first));
                    }
                    if hasher.checksum(block, data.block(index)) != *sum {
                        data.block_mut(index).fill(0);
                        lost.insert(block, Some(*sum));
                    }
                }
            }
        }
        (data, lost)
    }
}

/// What a read is answered with.
fn reply(operation: &Operation, data: AlignedBuf, version: Version, lost: LostBlocks) -> Reply {
    match operation.kind {
        RequestKind::Salvage { .. } => Reply::Salvaged { data, version, lost },
        _ => Reply::Data { data, version },
    }
}
