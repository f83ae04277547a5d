//! Reads: blocks from the overlay, from the drive, and zeroes; every block from the drive is verified.
//!
//! Write-back and later changes may overwrite a slot while it is read. They are visible in the page of the extent, which
//! stays in memory meanwhile: bytes that do not match are damage only if nothing was changed, otherwise they are read
//! again.

use ashlar_placement::rule::ExtentId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::Store;
use super::operation::{Flow, Operation, Owner, Stage};
use super::submit::{Purpose, Urgency};
use crate::block::{BlockChecksum, BlockRange, EXTENT_BLOCKS, EXTENT_BYTES, Hasher};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::error::Error;
use crate::gate::OpId;
use crate::io::{IoError, IoKind};
use crate::journal::batch::BatchSeq;
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
    /// The newest change of the page when the read began.
    changed: BatchSeq,
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
                Some(range) => Reply::Data { data: AlignedBuf::zeroed(range.count), version },
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
        let mut plan = ReadPlan { id: info.id, cell, version: info.version, range, pieces, span: range, changed };
        let Some(span) = span else {
            let data = plan.assemble(None).expect("nothing is verified that was not read");
            return Ok(Reply::Data { data, version: plan.version });
        };
        plan.span = span;
        let slot = info.slot.expect("an extent with blocks has a slot");
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
        let Stage::Reading(plan) = core::mem::replace(&mut operation.stage, Stage::Waiting) else {
            panic!("an operation that reads has a plan");
        };
        let result = match result {
            Ok(data) => plan.assemble(Some(data)).ok_or(Error::Damaged),
            Err(error) => Err(Error::ReadFailed(error)),
        };
        match result {
            Ok(data) => self.finish(operation, Ok(Reply::Data { data, version: plan.version })),
            Err(Error::Damaged) if self.tables.pages[&plan.cell.page()].changed != plan.changed => {
                self.unpin(&mut operation);
                self.operations.insert(id, operation);
                self.ready.push_back(id);
            }
            Err(error) => self.finish(operation, Err(error)),
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
    /// The bytes of the range; none if a block from the drive is not what was written there. Where the drive gave the
    /// whole range, its buffer is the answer, without a copy.
    fn assemble(&self, read: Option<AlignedBuf>) -> Option<AlignedBuf> {
        let hasher = Hasher::new(self.id);
        let is_whole = read.is_some() && self.span == self.range;
        let (mut data, read) = match read {
            Some(read) if is_whole => (read, None),
            other => (AlignedBuf::zeroed(self.range.count), other),
        };
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
                        return None;
                    }
                }
            }
        }
        Some(data)
    }
}
