//! Segments in memory: what each is, how much of it is in use, and the room that is left.

use std::collections::{BTreeSet, VecDeque};

use ashlar_wire::time::Instant;

use super::layout::BlobGeometry;
use super::mark::summary_blocks;
use crate::buffer::BLOCK_BYTES;

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// Erased, and nothing in it counts.
    Free,
    /// Batches are appended to it.
    Open,
    /// Full.
    Closed,
    /// Nothing in it is in use; its marks are being written.
    Erasing,
    /// Full, and a record in use could not be read when the others were moved out of it; left alone for a while.
    Postponed,
    /// It cannot be read at all; left alone until the next opening.
    Unusable,
}

/// One segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentInfo {
    pub(super) state: SegmentState,
    /// Sequence of its first batch, or that of its last life if it is free.
    pub(super) life: u64,
    /// Bytes in use: records and tombstones.
    pub(super) live: u64,
    /// Greatest record that was ever put into it in this life, bytes.
    pub(super) largest: u64,
    /// Entries of its summary; none if it has no summary that can be read.
    pub(super) summary_entries: Option<u32>,
    /// Reads that are in progress.
    pub(super) pins: u32,
}

impl SegmentInfo {
    pub(super) const FREE: Self =
        Self { state: SegmentState::Free, life: 0, live: 0, largest: 0, summary_entries: None, pins: 0 };
}

/// All segments.
#[derive(Debug)]
pub(super) struct Segments {
    geometry: BlobGeometry,
    all: Vec<SegmentInfo>,
    free: BTreeSet<u32>,
    /// Closed segments by what is in use.
    closed: BTreeSet<(u64, u32)>,
    /// Postponed segments and until when, the earliest first.
    postponed: VecDeque<(Instant, u32)>,
    live: u64,
}

impl Segments {
    pub(super) fn new(geometry: BlobGeometry, all: Vec<SegmentInfo>) -> Self {
        assert!(all.len() == geometry.segments as usize, "every segment is described");
        let (free, closed, postponed) = (BTreeSet::new(), BTreeSet::new(), VecDeque::new());
        let mut segments = Self { geometry, all, free, closed, postponed, live: 0 };
        for number in 0..geometry.segments {
            segments.enter(number);
            segments.live += segments.get(number).live;
        }
        segments
    }

    pub(super) fn get(&self, number: u32) -> &SegmentInfo {
        &self.all[number as usize]
    }

    /// Changes what is not an order of its own: life, summary, pins.
    pub(super) fn get_mut(&mut self, number: u32) -> &mut SegmentInfo {
        &mut self.all[number as usize]
    }

    fn enter(&mut self, number: u32) {
        let segment = *self.get(number);
        let is_new = match segment.state {
            SegmentState::Free => self.free.insert(number),
            SegmentState::Closed => self.closed.insert((segment.live, number)),
            _ => true,
        };
        assert!(is_new, "a segment is in one order once");
    }

    fn leave(&mut self, number: u32) {
        let segment = *self.get(number);
        let was_there = match segment.state {
            SegmentState::Free => self.free.remove(&number),
            SegmentState::Closed => self.closed.remove(&(segment.live, number)),
            _ => true,
        };
        assert!(was_there, "a segment is in the order of its state");
    }

    pub(super) fn set_state(&mut self, number: u32, state: SegmentState) {
        self.leave(number);
        self.get_mut(number).state = state;
        self.enter(number);
    }

    /// Leaves a closed segment alone until `until`, which is not before that of any other.
    pub(super) fn postpone(&mut self, number: u32, until: Instant) {
        self.set_state(number, SegmentState::Postponed);
        self.postponed.push_back((until, number));
    }

    /// When the next postponed segment is closed again.
    pub(super) fn next_postponed(&self) -> Option<Instant> {
        self.postponed.front().map(|(until, _)| *until)
    }

    /// Closes those that were postponed until now.
    pub(super) fn resume_postponed(&mut self, now: Instant) {
        while let Some((_, number)) = self.postponed.pop_front_if(|(until, _)| *until <= now) {
            self.set_state(number, SegmentState::Closed);
        }
    }

    pub(super) fn add_live(&mut self, number: u32, bytes: u64) {
        self.leave(number);
        let segment = self.get_mut(number);
        segment.live += bytes;
        segment.largest = segment.largest.max(bytes);
        self.live += bytes;
        self.enter(number);
    }

    pub(super) fn release_live(&mut self, number: u32, bytes: u64) {
        self.leave(number);
        let segment = self.get_mut(number);
        segment.live = segment.live.checked_sub(bytes).expect("what is released was in use");
        self.live -= bytes;
        self.enter(number);
    }

    /// The free segment that is used next.
    pub(super) fn next_free(&self) -> Option<u32> {
        self.free.first().copied()
    }

    pub(super) fn free_count(&self) -> u32 {
        u32::try_from(self.free.len()).expect("segments have a limit")
    }

    /// Bytes in use.
    pub(super) const fn live(&self) -> u64 {
        self.live
    }

    /// Bytes of closed segments that are not in use.
    pub(super) fn dead(&self) -> u64 {
        let room = u64::from(self.geometry.segment_room()) * BLOCK_BYTES as u64;
        self.closed.iter().map(|(live, _)| room.saturating_sub(*live)).sum()
    }

    /// Closed segments, those with the least in use first.
    pub(super) fn by_live(&self) -> impl Iterator<Item = (u32, &SegmentInfo)> {
        self.closed.iter().map(|(_, number)| (*number, self.get(*number)))
    }
}

/// Blocks that can be appended to an open segment whose summary will have so many entries.
pub(super) fn blocks_left(geometry: &BlobGeometry, next_block: u32, entries: usize) -> u32 {
    (geometry.segment_blocks - next_block).saturating_sub(summary_blocks(entries))
}
