//! Compaction: what is in use in a segment is appended to the log again, then the segment is erased.
//!
//! ```text
//! the summary of the segment is read
//! records in use are read, a step at a time, and appended as moves; tombstones too
//! when all moves are durable and no read is in progress, both marks are written
//! when both are durable, the segment is free and its records come off the counts
//! ```
//!
//! A crash anywhere leaves the segment as it was, or erased: what was moved out of it has later entries elsewhere, and
//! the tombstones of what was removed from it stay until the marks are durable.
//!
//! Records are moved byte by byte. Damage is reported and moves along: dropping it would turn a damaged blob into a missing
//! one, and what is whole of it may still help.

use std::collections::VecDeque;

use ashlar_wire::time::Instant;
use core::time::Duration;

use super::Blobs;
use super::batch::{Record, RecordBody, RecordData};
use super::entry::{EntryKind, LogEntry};
use super::head::{ChunkHasher, RecordHead};
use super::log::{Append, AppendOwner};
use super::mark::{Mark, decode_summary, summary_blocks};
use super::planted::BlobBug;
use super::segments::SegmentState;
use super::submit::{Purpose, Urgency};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::io::{Durability, IoKind};

/// Most tombstones that one step moves.
const STEP_TOMBSTONES_MAX: usize = 1_024;
/// Records that cannot be read: with so many the rest of a segment is not tried.
const UNREAD_MAX: u32 = 16;
/// A segment with records that could not be read is compacted again after this time: meanwhile they may have been made anew elsewhere.
const POSTPONED_FOR: Duration = Duration::from_secs(60);

/// What compaction does.
#[derive(Debug)]
enum Phase {
    /// The summary is being read.
    Summary,
    /// The next step may begin at this time.
    Pause(Instant),
    /// Records are being read.
    Reading { chosen: Vec<LogEntry>, first_block: usize },
    /// Everything was moved or is about to be.
    Draining,
}

/// The compaction of one segment.
#[derive(Debug)]
pub(super) struct Compaction {
    segment: u32,
    phase: Phase,
    /// All entries of the segment that were read.
    entries: Vec<LogEntry>,
    /// Those that are not looked at yet.
    left: VecDeque<LogEntry>,
    /// Moves that are not durable.
    moves: usize,
    /// Records are read one by one, after a failed read.
    is_careful: bool,
    /// Records in use that could not be read.
    unread: u32,
}

/// A segment whose marks are being written.
#[derive(Debug)]
pub(super) struct Erasure {
    marks_left: u8,
    /// Its records come off the counts at the end.
    entries: Vec<LogEntry>,
}

impl Blobs {
    /// Whether there will be more room, sooner or later.
    pub(super) fn is_compacting(&self) -> bool {
        self.compaction.is_some() || !self.erasures.is_empty()
    }

    /// When the next step is due.
    pub(super) fn compaction_due(&self) -> Option<Instant> {
        match &self.compaction {
            Some(Compaction { phase: Phase::Pause(due), .. }) if *due > self.now => Some(*due),
            Some(_) => None,
            None => self.segments.next_postponed(),
        }
    }

    /// Whether room is so short that compaction does not keep its pace.
    fn is_short_of_room(&self) -> bool {
        self.room() < self.put_reserve() + 2 * u64::from(self.geometry.segment_room())
    }

    /// The segment whose compaction gains most, if it is worth it.
    fn choose_segment(&self) -> Option<u32> {
        let room = u64::from(self.geometry.segment_room()) * BLOCK_BYTES as u64;
        let step_blocks = self.config.compaction_step_bytes.div_ceil(BLOCK_BYTES as u32).max(1);
        // Each step may waste two blocks, and steps overlap.
        let overhead = u64::from(4 * (self.geometry.segment_blocks / step_blocks + 1)) * BLOCK_BYTES as u64;
        let dead_min = if self.is_short_of_room() { 0 } else { room * self.config.compaction_dead_percent_min / 100 };
        for (number, segment) in self.segments.by_live() {
            if room.saturating_sub(segment.live) < dead_min || segment.live + overhead > room && segment.live > 0 {
                return None;
            }
            // The end of the segment that is open then may be too short for the largest record.
            if segment.live == 0 || segment.live + segment.largest + overhead <= room {
                return Some(number);
            }
        }
        None
    }

    /// Whether the next step of the compaction that is under way can begin.
    pub(super) fn is_compaction_ready(&self) -> bool {
        let Some(compaction) = &self.compaction else { return false };
        let is_moved = compaction.moves == 0 || self.bugs.has(BlobBug::EraseBeforeMoved);
        let is_read = self.segments.get(compaction.segment).pins > 0 && !self.bugs.has(BlobBug::EraseWhileRead);
        match compaction.phase {
            Phase::Pause(due) => is_moved && (due <= self.now || self.is_short_of_room()),
            Phase::Draining => is_moved && !is_read,
            Phase::Summary | Phase::Reading { .. } => false,
        }
    }

    /// Goes on as far as it gets.
    pub(super) fn advance_compaction(&mut self) {
        self.segments.resume_postponed(self.now);
        loop {
            if self.compaction.is_none() && !self.start_compaction() || !self.is_compaction_ready() {
                return;
            }
            let mut compaction = self.compaction.take().expect("a compaction is ready");
            if let Phase::Draining = compaction.phase {
                if compaction.unread > 0 && self.segments.get(compaction.segment).live > 0 {
                    self.segments.postpone(compaction.segment, self.now + POSTPONED_FOR);
                } else {
                    self.erase(compaction.segment, compaction.entries);
                }
            } else {
                self.begin_step(&mut compaction);
                self.compaction = Some(compaction);
            }
        }
    }

    /// Begins with the next segment; false if there is none.
    fn start_compaction(&mut self) -> bool {
        if self.room() < u64::from(self.geometry.segment_room()) {
            return false;
        }
        let Some(segment) = self.choose_segment() else { return false };
        let compaction = Compaction {
            segment,
            phase: Phase::Summary,
            entries: Vec::new(),
            left: VecDeque::new(),
            moves: 0,
            is_careful: false,
            unread: 0,
        };
        self.compaction = Some(compaction);
        match self.segments.get(segment).summary_entries {
            Some(entries) => {
                let blocks = summary_blocks(entries as usize);
                let len = blocks as usize * BLOCK_BYTES;
                let offset = self.geometry.offset(segment, self.geometry.segment_blocks - blocks);
                self.submissions.submit(Urgency::Background, Purpose::Summary { len }, IoKind::Read { offset, len });
            }
            None => self.finish_summary_read(None),
        }
        true
    }

    pub(super) fn finish_summary_read(&mut self, blocks: Option<AlignedBuf>) {
        let mut compaction = self.compaction.take().expect("a summary is read for compaction");
        let number = compaction.segment;
        let entries = blocks.and_then(|blocks| {
            let end = blocks.block(blocks.blocks() - 1);
            match Mark::decode(self.salts.mark, number, end) {
                Some(Mark::Sealed(seal)) if seal.life == self.segments.get(number).life => {
                    decode_summary(self.salts.mark, &seal, self.geometry.segment_blocks, &blocks)
                }
                _ => None,
            }
        });
        // Without the summary its dead records stay on the counts, which keeps some tombstones until the next opening.
        let mut entries = entries.unwrap_or_else(|| self.index.in_segment(number));
        entries.sort_by_key(|entry| entry.place);
        compaction.left = entries.iter().copied().collect();
        compaction.entries = entries;
        compaction.phase = Phase::Pause(self.now);
        self.compaction = Some(compaction);
    }

    /// Chooses what is moved next and reads it.
    fn begin_step(&mut self, compaction: &mut Compaction) {
        let step = if compaction.is_careful { 0 } else { self.config.compaction_step_bytes as usize };
        let mut chosen: Vec<LogEntry> = Vec::new();
        let (mut first_block, mut end_block, mut tombstones) = (0, 0, 0);
        while let Some(entry) = compaction.left.front().copied() {
            let is_used = self.index.get(entry.blob).is_some_and(|held| held.is_at(&entry, compaction.segment));
            if is_used && entry.kind == EntryKind::Removed {
                if tombstones == STEP_TOMBSTONES_MAX {
                    break;
                }
                tombstones += 1;
                self.move_tombstone(compaction, entry);
            } else if is_used {
                let span = entry.span();
                let block = span.head / BLOCK_BYTES;
                let end = span.end.div_ceil(BLOCK_BYTES);
                let first = if chosen.is_empty() { block } else { first_block };
                if !chosen.is_empty() && (end - first) * BLOCK_BYTES > step {
                    break;
                }
                (first_block, end_block) = (first, end.max(end_block));
                chosen.push(entry);
            }
            compaction.left.pop_front();
        }
        if chosen.is_empty() {
            let is_done = compaction.left.is_empty();
            compaction.phase = if is_done { Phase::Draining } else { Phase::Pause(self.now) };
            return;
        }
        let len = (end_block - first_block) * BLOCK_BYTES;
        let block = u32::try_from(first_block).expect("a segment has a limit");
        let kind = IoKind::Read { offset: self.geometry.offset(compaction.segment, block), len };
        self.submissions.submit(Urgency::Background, Purpose::Records { len }, kind);
        compaction.phase = Phase::Reading { chosen, first_block };
    }

    fn move_tombstone(&mut self, compaction: &mut Compaction, entry: LogEntry) {
        if self.bugs.has(BlobBug::DropTombstone) {
            if let Some(released) = self.index.forget(entry.blob) {
                self.segments.release_live(released.segment, released.bytes);
            }
            return;
        }
        self.append_move(compaction, entry, None);
    }

    fn append_move(&mut self, compaction: &mut Compaction, old: LogEntry, body: Option<RecordBody>) {
        compaction.moves += 1;
        let owner = AppendOwner::Move { from: compaction.segment, old };
        self.log.moves.push_back(Append { owner, record: Record { entry: old, body } });
    }

    pub(super) fn finish_records_read(&mut self, data: Option<AlignedBuf>) {
        let mut compaction = self.compaction.take().expect("records are read for compaction");
        let phase = core::mem::replace(&mut compaction.phase, Phase::Draining);
        let Phase::Reading { chosen, first_block } = phase else { panic!("records are read in their phase") };
        let Some(data) = data else { return self.handle_failed_read(compaction, chosen) };
        let bytes = data.len() as u64;
        let data = Segment::from(data);
        for entry in chosen {
            let body = self.body_of(&entry, &data, first_block);
            self.append_move(&mut compaction, entry, Some(body));
        }
        let pause = Duration::from_nanos(bytes * 1_000_000_000 / self.config.compaction_bytes_per_s.max(1));
        compaction.phase = Phase::Pause(self.now + pause);
        self.compaction = Some(compaction);
    }

    /// A record as it is on the drive, whole or not.
    fn body_of(&mut self, entry: &LogEntry, data: &Segment, first_block: usize) -> RecordBody {
        let span = entry.span();
        let start = first_block * BLOCK_BYTES;
        let head = data.bytes()[span.head - start..span.head_end - start].to_vec();
        let bytes = &data.bytes()[span.data - start..][..entry.len as usize];
        let sums = ChunkHasher::new(entry.blob).sums(bytes);
        let is_whole = RecordHead::decode(self.salts.head, &head)
            .is_some_and(|head| head.blob == entry.blob && head.len == entry.len && head.sums == sums);
        if !is_whole {
            self.report_damage(entry.blob);
        }
        let data = if entry.kind == EntryKind::Aligned {
            let first = span.data / BLOCK_BYTES - first_block;
            let blocks = (span.end - span.data) / BLOCK_BYTES;
            RecordData::Blocks(if blocks > 0 { vec![data.part(first, blocks)] } else { Vec::new() })
        } else {
            RecordData::Bytes(bytes.to_vec())
        };
        RecordBody { head, sums, data }
    }

    /// The drive failed a read. Once more one by one; a record that cannot be read stays where it is.
    fn handle_failed_read(&mut self, mut compaction: Compaction, chosen: Vec<LogEntry>) {
        if chosen.len() > 1 {
            chosen.into_iter().rev().for_each(|entry| compaction.left.push_front(entry));
            compaction.is_careful = true;
        } else {
            chosen.iter().for_each(|entry| self.report_damage(entry.blob));
            compaction.unread += 1;
            if compaction.unread >= UNREAD_MAX {
                compaction.left.clear();
            }
        }
        compaction.phase = Phase::Pause(self.now);
        self.compaction = Some(compaction);
    }

    /// A move out of a segment is durable, or was superseded.
    pub(super) fn finish_move(&mut self, from: u32) {
        let compaction = self.compaction.as_mut().filter(|compaction| compaction.segment == from);
        assert!(compaction.is_some() || self.bugs.has(BlobBug::EraseBeforeMoved), "a compaction waits for its moves");
        if let Some(compaction) = compaction {
            compaction.moves -= 1;
        }
    }

    /// Writes both marks of a segment that has nothing in use.
    pub(super) fn erase(&mut self, number: u32, entries: Vec<LogEntry>) {
        let segment = *self.segments.get(number);
        let is_planted = self.bugs.has(BlobBug::EraseBeforeMoved) || self.bugs.has(BlobBug::MoveAfterRemoval);
        assert!(segment.live == 0 || is_planted, "a segment that is erased has nothing in use");
        self.segments.set_state(number, SegmentState::Erasing);
        let mark = Mark::Free { life: segment.life };
        for block in [0, self.geometry.segment_blocks - 1] {
            let data = vec![mark.encode(self.salts.mark, number).into()];
            let kind =
                IoKind::Write { offset: self.geometry.offset(number, block), data, durability: Durability::Durable };
            self.submissions.submit(Urgency::Background, Purpose::Erase(number), kind);
        }
        self.erasures.insert(number, Erasure { marks_left: 2, entries });
        if self.bugs.has(BlobBug::ReuseBeforeErased) {
            self.release(number);
        }
    }

    pub(super) fn finish_erase(&mut self, number: u32) {
        if self.bugs.has(BlobBug::ReuseBeforeErased) {
            return;
        }
        let erasure = self.erasures.get_mut(&number).expect("a mark is written for an erasure");
        erasure.marks_left -= 1;
        if erasure.marks_left == 0 {
            self.release(number);
        }
    }

    /// The segment is free, and its records come off the counts.
    fn release(&mut self, number: u32) {
        let erasure = self.erasures.remove(&number).expect("a segment is released once");
        for entry in erasure.entries.iter().filter(|entry| entry.is_put()) {
            let released = if self.bugs.has(BlobBug::ForgetCopies) {
                self.index.forget(entry.blob)
            } else {
                self.index.forget_copy(entry.blob)
            };
            if let Some(released) = released {
                self.segments.release_live(released.segment, released.bytes);
            }
        }
        self.segments.set_state(number, SegmentState::Free);
    }
}
