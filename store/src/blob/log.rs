//! The log: changes and moves gather while a write is in flight, and make the next one.
//!
//! One write is in flight at a time, a batch or the summary of a full segment. What a batch holds is applied in memory,
//! and its requests are answered, when it is durable: in this order, and not before.
//!
//! Room is kept in three steps. Puts leave three segments and what tombstones of all blobs would take. Removals leave two,
//! or wait for compaction. Compaction starts when there is one, and needs no more than that.

use std::collections::{BTreeSet, VecDeque};

use ashlar_wire::id::BlobId;
use ashlar_wire::time::Instant;

use super::Blobs;
use super::batch::{BatchPlace, BatchSize, Record, encode_batch};
use super::entry::{ENTRY_LEN, LogEntry};
use super::error::BlobError;
use super::mark::{Mark, encode_summary, summary_blocks};
use super::operation::{OpId, Owner};
use super::planted::BlobBug;
use super::request::BlobReply;
use super::segments::{SegmentState, blocks_left};
use super::submit::{Purpose, Urgency};
use crate::buffer::BLOCK_BYTES;
use crate::io::{Durability, IoKind};

/// Segments that puts leave.
const PUT_RESERVE_SEGMENTS: u64 = 3;
/// Segments that removals leave.
const REMOVAL_RESERVE_SEGMENTS: u64 = 2;

/// For whom a record is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendOwner {
    /// A put or removal.
    Change(OpId),
    /// Compaction of the segment in which the entry was, with the entry as it was there.
    Move {
        /// The segment.
        from: u32,
        /// The entry in it.
        old: LogEntry,
    },
}

/// A record that waits for a batch.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) owner: AppendOwner,
    pub(super) record: Record,
}

/// The segment to which batches are appended.
#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) number: u32,
    pub(super) life: u64,
    pub(super) next_block: u32,
    /// Entries of all its batches, for the summary.
    pub(super) entries: Vec<LogEntry>,
}

/// What is being written.
#[derive(Debug)]
enum LogFlight {
    Batch { blocks: u32, entries: Vec<(AppendOwner, LogEntry)>, superseded: Vec<AppendOwner> },
    Summary,
}

/// The log of an open area.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) open: Option<OpenSegment>,
    pub(super) next_sequence: u64,
    pub(super) changes: VecDeque<Append>,
    pub(super) moves: VecDeque<Append>,
    flight: Option<LogFlight>,
    /// When an empty batch is due behind the last one.
    pub(super) seal_at: Option<Instant>,
    /// The next batch is empty: it overwrites what may be left of a batch that was torn, so that no later write can
    /// make it whole.
    begins_empty: bool,
    /// Which queue the next batch takes from first.
    moves_first: bool,
}

/// Whether a record may be appended now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Take,
    /// Compaction has to gain room first.
    Wait,
    Refuse(BlobError),
    /// The entry that is moved has been superseded.
    Drop,
    /// It is superseded when the batch is durable.
    DropLater,
}

/// What the next write is.
#[derive(Debug)]
enum NextWrite {
    Batch {
        appends: Vec<Append>,
        /// Moves that are needless when the batch is durable, and not before.
        superseded: Vec<AppendOwner>,
    },
    /// The open segment is too full, or there is none.
    Switch,
    Nothing,
}

impl Log {
    pub(super) const fn new(open: Option<OpenSegment>, next_sequence: u64, seal_at: Option<Instant>) -> Self {
        Self {
            open,
            next_sequence,
            changes: VecDeque::new(),
            moves: VecDeque::new(),
            flight: None,
            seal_at,
            begins_empty: true,
            moves_first: false,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty() && self.moves.is_empty() && self.flight.is_none() && self.seal_at.is_none()
    }

    pub(super) fn seal_due(&self) -> Option<Instant> {
        self.seal_at.filter(|_| self.flight.is_none())
    }

    pub(super) fn clear(&mut self) {
        self.changes.clear();
        self.moves.clear();
        self.flight = None;
    }
}

impl Blobs {
    /// Blocks that can be appended in all. The open segment counts only if `blocks` fit into it.
    fn room_for(&self, blocks: u32, entries: usize) -> u64 {
        let open = self.log.open.as_ref().map_or(0, |open| {
            let left = blocks_left(&self.geometry, open.next_block, open.entries.len() + entries);
            if left >= blocks { u64::from(left) } else { 0 }
        });
        open + u64::from(self.segments.free_count()) * u64::from(self.geometry.segment_room())
    }

    /// Blocks that can be appended in all.
    pub(super) fn room(&self) -> u64 {
        self.room_for(0, 0)
    }

    /// Blocks that puts leave: for removals, compaction, and tombstones of all blobs.
    pub(super) fn put_reserve(&self) -> u64 {
        let tombstones = (self.index.len() + 1) * 2 * ENTRY_LEN;
        let segments = PUT_RESERVE_SEGMENTS * u64::from(self.geometry.segment_room());
        segments + (tombstones as u64).div_ceil(BLOCK_BYTES as u64)
    }

    fn admit(&self, append: &Append, size: &BatchSize, in_batch: &BTreeSet<BlobId>) -> Admission {
        let entry = &append.record.entry;
        if let AppendOwner::Move { from, old } = append.owner {
            let is_current = self.index.get(entry.blob).is_some_and(|held| held.is_at(&old, from));
            return match (is_current, in_batch.contains(&entry.blob)) {
                _ if self.bugs.has(BlobBug::MoveAfterRemoval) => Admission::Take,
                (true, true) if !self.bugs.has(BlobBug::EraseBeforeSuperseded) => Admission::DropLater,
                (true, false) => Admission::Take,
                _ => Admission::Drop,
            };
        }
        let AppendOwner::Change(op) = append.owner else { unreachable!("the other owner was looked at") };
        if self.operations.get(&op).is_some_and(|operation| operation.deadline <= self.now) {
            return Admission::Refuse(BlobError::Expired);
        }
        let blocks = size.blocks();
        let after = self.room_for(blocks, size.entries).checked_sub(u64::from(blocks));
        let Some(after) = after else { return Admission::Refuse(BlobError::Full) };
        let has_reserve = !self.bugs.has(BlobBug::NoReserve);
        if entry.is_put() {
            return if has_reserve && after < self.put_reserve() {
                Admission::Refuse(BlobError::Full)
            } else if self.index.len() >= self.config.blobs_max {
                Admission::Refuse(BlobError::TooManyBlobs)
            } else {
                Admission::Take
            };
        }
        let segment = u64::from(self.geometry.segment_room());
        if after >= REMOVAL_RESERVE_SEGMENTS * segment || !has_reserve {
            return Admission::Take;
        }
        match (self.is_compacting(), after >= segment) {
            (true, _) => Admission::Wait,
            (false, true) => Admission::Take,
            (false, false) => Admission::Refuse(BlobError::Full),
        }
    }

    fn next_write(&mut self) -> NextWrite {
        let mut size = BatchSize::default();
        let mut taken: Vec<Append> = Vec::new();
        let mut superseded = Vec::new();
        let mut in_batch = BTreeSet::new();
        let order = if self.log.moves_first { [true, false] } else { [false, true] };
        for is_move in order {
            loop {
                let queue = if is_move { &self.log.moves } else { &self.log.changes };
                let Some(front) = queue.front() else { break };
                let next = size.with(&front.record.entry);
                if next.blocks() > self.geometry.batch_blocks_max() && !taken.is_empty() {
                    break;
                }
                let admission = self.admit(front, &next, &in_batch);
                if admission == Admission::Wait {
                    break;
                }
                if admission == Admission::Take && !self.fits(&next) {
                    if taken.is_empty() {
                        return NextWrite::Switch;
                    }
                    break;
                }
                let queue = if is_move { &mut self.log.moves } else { &mut self.log.changes };
                let append = queue.pop_front().expect("it was just looked at");
                match admission {
                    Admission::Refuse(error) => self.finish_append(append.owner, Err(error)),
                    Admission::Drop => self.finish_append(append.owner, Ok(BlobReply::Done)),
                    Admission::DropLater => superseded.push(append.owner),
                    _ => {
                        in_batch.insert(append.record.entry.blob);
                        taken.push(append);
                        size = next;
                    }
                }
            }
        }
        if taken.is_empty() { NextWrite::Nothing } else { NextWrite::Batch { appends: taken, superseded } }
    }

    /// Whether a batch fits into the open segment.
    fn fits(&self, size: &BatchSize) -> bool {
        self.log.open.as_ref().is_some_and(|open| {
            blocks_left(&self.geometry, open.next_block, open.entries.len() + size.entries) >= size.blocks()
        })
    }

    fn finish_append(&mut self, owner: AppendOwner, result: Result<BlobReply, BlobError>) {
        match owner {
            AppendOwner::Change(op) => {
                let operation = self.operations.remove(&op).expect("an operation waits for its record");
                self.finish(&operation, result);
            }
            AppendOwner::Move { from, .. } => self.finish_move(from),
        }
    }

    /// Writes the next batch, or the summary of a full segment, if nothing is in flight.
    pub(super) fn log_next(&mut self) {
        while self.log.flight.is_none() {
            let is_pending = !self.log.changes.is_empty() || !self.log.moves.is_empty();
            if self.log.begins_empty && is_pending {
                if self.fits(&BatchSize::default()) {
                    return self.write_batch(Vec::new(), Vec::new());
                }
                self.switch_segment();
                continue;
            }
            match self.next_write() {
                NextWrite::Batch { appends, superseded } => return self.write_batch(appends, superseded),
                NextWrite::Switch => self.switch_segment(),
                NextWrite::Nothing => return self.seal_if_due(),
            }
        }
    }

    /// Writes an empty batch behind the last one if that is due.
    fn seal_if_due(&mut self) {
        if self.log.seal_at.is_none_or(|at| at > self.now) {
            return;
        }
        self.log.seal_at = None;
        let size = BatchSize::default();
        let reserve = REMOVAL_RESERVE_SEGMENTS * u64::from(self.geometry.segment_room());
        if self.fits(&size) && self.room() > reserve && !self.bugs.has(BlobBug::SkipSeal) {
            self.write_batch(Vec::new(), Vec::new());
        }
    }

    /// Closes the open segment, or opens the next one.
    fn switch_segment(&mut self) {
        if let Some(open) = &self.log.open {
            let last = self.log.next_sequence - 1;
            let summary = encode_summary(self.salts.mark, open.number, open.life, last, &open.entries);
            let blocks = u32::try_from(summary.blocks()).expect("a summary has a limit");
            assert!(open.next_block + blocks <= self.geometry.segment_blocks, "a summary stands behind the batches");
            let offset = self.geometry.offset(open.number, self.geometry.segment_blocks - blocks);
            self.log.flight = Some(LogFlight::Summary);
            let kind = IoKind::Write { offset, data: vec![summary.into()], durability: Durability::Durable };
            return self.submissions.submit(Urgency::Log, Purpose::Log, kind);
        }
        let number = self.segments.next_free().expect("room was counted before a segment is opened");
        let life = self.log.next_sequence;
        self.segments.set_state(number, SegmentState::Open);
        let segment = self.segments.get_mut(number);
        (segment.life, segment.largest, segment.summary_entries) = (life, 0, None);
        self.log.open = Some(OpenSegment { number, life, next_block: 1, entries: Vec::new() });
    }

    fn write_batch(&mut self, appends: Vec<Append>, superseded: Vec<AppendOwner>) {
        assert!(self.log.flight.is_none(), "one batch is in flight at a time, so that one alone can be torn");
        self.log.begins_empty = false;
        self.log.moves_first = !self.log.moves_first;
        let open = self.log.open.as_ref().expect("a batch goes to an open segment");
        let place = BatchPlace {
            segment: open.number,
            block: open.next_block,
            sequence: self.log.next_sequence,
            life: open.life,
        };
        let (owners, mut records): (Vec<AppendOwner>, Vec<Record>) =
            appends.into_iter().map(|append| (append.owner, append.record)).unzip();
        let batch = encode_batch(self.salts.batch, place, &mut records);
        let end = place.block + batch.blocks;
        let summary = summary_blocks(open.entries.len() + records.len());
        assert!(end + summary <= self.geometry.segment_blocks, "a batch leaves room for the summary");
        let mut data = batch.segments;
        let mut block = place.block;
        if block == 1 {
            // The first batch of a segment says together with itself that the segment is used.
            data.insert(0, Mark::Used { life: open.life }.encode(self.salts.mark, open.number).into());
            block = 0;
        }
        let entries: Vec<_> = owners.into_iter().zip(records.into_iter().map(|record| record.entry)).collect();
        let is_durable = !self.bugs.has(BlobBug::BatchNotDurable);
        let durability = if is_durable { Durability::Durable } else { Durability::Cached };
        let kind = IoKind::Write { offset: self.geometry.offset(place.segment, block), data, durability };
        self.submissions.submit(Urgency::Log, Purpose::Log, kind);
        if self.bugs.has(BlobBug::AnswerBeforeDurable) {
            self.answer_early(&entries);
        }
        self.log.flight = Some(LogFlight::Batch { blocks: batch.blocks, entries, superseded });
    }

    /// The planted bug: changes are answered while their batch is in flight.
    fn answer_early(&mut self, entries: &[(AppendOwner, LogEntry)]) {
        for (owner, _) in entries {
            if let AppendOwner::Change(op) = owner
                && let Some(operation) = self.operations.get_mut(op)
                && let Owner::Request(id) = core::mem::replace(&mut operation.owner, Owner::Answered)
            {
                self.requests -= 1;
                self.replies.push_back((id, Ok(BlobReply::Done)));
            }
        }
    }

    /// What was in flight is durable.
    pub(super) fn finish_log_write(&mut self) {
        match self.log.flight.take().expect("a write of the log was in flight") {
            LogFlight::Summary => {
                let open = self.log.open.take().expect("a summary is that of the open segment");
                let entries = u32::try_from(open.entries.len()).expect("a segment has a limit");
                self.segments.get_mut(open.number).summary_entries = Some(entries);
                self.segments.set_state(open.number, SegmentState::Closed);
                // The summary stands behind the last batch.
                self.log.seal_at = None;
            }
            LogFlight::Batch { blocks, entries, superseded } => {
                self.log.next_sequence += 1;
                let open = self.log.open.as_mut().expect("a batch goes to an open segment");
                open.next_block += blocks;
                open.entries.extend(entries.iter().map(|(_, entry)| *entry));
                let number = open.number;
                self.log.seal_at = (!entries.is_empty()).then_some(self.now + self.config.seal_after);
                for (owner, entry) in entries {
                    self.apply(&entry, number);
                    self.finish_append(owner, Ok(BlobReply::Done));
                }
                superseded.into_iter().for_each(|owner| self.finish_append(owner, Ok(BlobReply::Done)));
            }
        }
    }

    fn apply(&mut self, entry: &LogEntry, segment: u32) {
        let released = self.index.apply(entry, segment);
        self.segments.add_live(segment, entry.footprint());
        if let Some(released) = released {
            self.segments.release_live(released.segment, released.bytes);
        }
    }
}
