//! Write-back: from the journal to its place, in rounds.
//!
//! ```text
//! data of the overlay to its slots, changed pages to the copies that were not read
//! sync
//! the same pages to the copies that were read
//! sync
//! the tail of the journal moves to where it was at the beginning of the round
//! ```
//!
//! The copy that a page was read from is whole. The other one may not be: a crash may have interrupted its write, or it has
//! rotted. So that one is written first, and until it is durable the page is in the copy that was read.
//!
//! A page is written as it is when its turn comes, which may be newer than the beginning of the round. That is harmless:
//! recovery repeats everything from the tail on, whatever it finds. Changes go on meanwhile.

use super::Store;
use super::submit::{Purpose, Urgency};
use crate::block::EXTENT_BLOCKS;
use crate::buffer::Segment;
use crate::io::{Durability, IoKind};
use crate::journal::batch::BatchSeq;
use crate::page::{CellId, PageId};
use crate::planted::Bug;

/// What a round does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Data,
    FirstCopies,
    FirstSync,
    SecondCopies,
    SecondSync,
}

/// One round of write-back.
#[derive(Debug)]
pub(super) struct Round {
    /// Everything before this batch is in its place at the end.
    cut: BatchSeq,
    phase: Phase,
    /// The overlay before this place was written.
    cursor: (CellId, usize),
    /// Pages that were changed before the cut.
    pages: Vec<PageId>,
    next_page: usize,
    /// IOs that are not completed.
    outstanding: usize,
}

impl Store {
    /// Begins a round, if there is none.
    pub(super) fn start_round(&mut self) {
        self.write_back_at = None;
        if self.round.is_some() {
            return;
        }
        let cut = self.journal.first_unapplied();
        if self.bugs.has(Bug::TrimTooEarly) {
            self.journal.move_tail(cut, self.now + self.config.seal_after);
        }
        let pages = self.tables.dirty.keys().copied().collect();
        let cursor = (CellId(0), 0);
        self.round = Some(Round { cut, phase: Phase::Data, cursor, pages, next_page: 0, outstanding: 0 });
    }

    /// Schedules write-back, and begins it where space runs short.
    pub(super) fn schedule_write_back(&mut self) {
        if self.tables.dirty.is_empty() || self.round.is_some() {
            return;
        }
        if self.journal.is_half_full() || self.tables.dirty.len() >= self.config.dirty_pages_max {
            self.start_round();
        } else if self.write_back_at.is_none() {
            self.write_back_at = Some(self.now + self.config.write_back_after);
        }
    }

    pub(super) fn finish_round_io(&mut self) {
        self.round.as_mut().expect("an IO of a round ends before it").outstanding -= 1;
    }

    /// Submits what the round may submit now.
    pub(super) fn advance_round(&mut self) {
        self.schedule_write_back();
        let Some(mut round) = self.round.take() else { return };
        let is_done = self.advance_phases(&mut round);
        if !is_done {
            self.round = Some(round);
            return;
        }
        self.tables.dirty.retain(|_, changed| *changed >= round.cut);
        self.tables.overlay.retain(|_, block| block.sequence >= round.cut);
        self.journal.move_tail(round.cut, self.now + self.config.seal_after);
        self.tables.evict(self.config.pages_cached_max);
        self.schedule_write_back();
    }

    fn advance_phases(&mut self, round: &mut Round) -> bool {
        loop {
            let has_room = round.outstanding < self.config.write_back_ios_max;
            match round.phase {
                Phase::Data if has_room => {
                    if !self.write_back_data(round) {
                        round.phase = Phase::FirstCopies;
                    }
                }
                Phase::FirstCopies | Phase::SecondCopies if has_room && round.next_page < round.pages.len() => {
                    self.write_back_page(round);
                }
                Phase::FirstCopies | Phase::SecondCopies if round.outstanding == 0 => self.sync_round(round),
                Phase::FirstSync if round.outstanding == 0 => (round.phase, round.next_page) = (Phase::SecondCopies, 0),
                Phase::SecondSync if round.outstanding == 0 => return true,
                _ => return false,
            }
        }
    }

    /// Writes the next run of consecutive blocks; false if there is none.
    fn write_back_data(&mut self, round: &mut Round) -> bool {
        let mut run: Vec<Segment> = Vec::new();
        let mut start = None;
        for ((cell, block), overlay) in self.tables.overlay.range(round.cursor..) {
            if overlay.sequence >= round.cut {
                continue;
            }
            let (first_cell, first) = *start.get_or_insert((*cell, *block));
            if (first_cell, first + run.len()) != (*cell, *block) {
                break;
            }
            run.push(overlay.data.clone());
        }
        let Some((cell, first)) = start else { return false };
        round.cursor = (cell, first + run.len());
        assert!(first + run.len() <= EXTENT_BLOCKS, "the overlay's blocks lie in their extent");
        let info = self.tables.infos[cell.0 as usize].expect("an extent with an overlay exists");
        let slot = info.slot.expect("an extent with blocks has a slot");
        let offset = self.geometry.slot_offset(slot, first);
        self.index.begin_writing(slot);
        let kind = IoKind::Write { offset, data: run, durability: Durability::Cached };
        self.submissions.submit(Urgency::Background, Purpose::WriteBack(slot), kind);
        round.outstanding += 1;
        true
    }

    fn write_back_page(&mut self, round: &mut Round) {
        let page = round.pages[round.next_page];
        round.next_page += 1;
        let is_first = round.phase == Phase::FirstCopies;
        if is_first {
            self.tables.written[page.0 as usize] += 1;
        }
        let whole = self.tables.whole_copy(page);
        let copy = if is_first { 1 - whole } else { whole };
        let bytes = self.tables.encode_page(page, self.page_salt);
        let offset = self.geometry.page_offset(page, copy);
        let kind = IoKind::Write { offset, data: vec![bytes.into()], durability: Durability::Cached };
        self.submissions.submit(Urgency::Background, Purpose::WriteBackPage, kind);
        round.outstanding += 1;
    }

    fn sync_round(&mut self, round: &mut Round) {
        let is_first = round.phase == Phase::FirstCopies;
        round.phase = if is_first { Phase::FirstSync } else { Phase::SecondSync };
        let skipped = if is_first { Bug::SkipFirstSync } else { Bug::SkipSecondSync };
        if self.bugs.has(skipped) {
            return;
        }
        self.submissions.submit(Urgency::Background, Purpose::Sync, IoKind::Sync);
        round.outstanding += 1;
    }
}
