//! An area while it is read: what marks, summaries and scans say of each segment, and the index that follows.

use std::collections::{BTreeMap, BTreeSet};

use super::super::entry::LogEntry;
use super::super::index::Index;
use super::super::layout::BlobSuperblock;
use super::super::log::OpenSegment;
use super::super::mark::{Mark, Seal, decode_summary, summary_blocks};
use super::super::planted::{BlobBug, BlobBugs};
use super::super::scan::{ScanTask, scan_segment};
use super::super::segments::{SegmentInfo, SegmentState};
use super::super::{Recovered, Salts};
use crate::buffer::{AlignedBuf, BLOCK_BYTES};

/// The marks of a segment, as they arrive: none if there is no whole mark.
#[derive(Debug, Default)]
struct Marks {
    first: Option<Option<Mark>>,
    last: Option<Option<Mark>>,
    last_block: Option<AlignedBuf>,
}

/// What the marks of a segment say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Free {
        life: u64,
    },
    /// One mark alone says that it is free.
    HalfErased {
        life: u64,
    },
    Sealed(Seal),
    /// Its batches have to tell.
    Scan {
        /// The last life that was erased, if a mark says so.
        erased: Option<u64>,
        life: Option<u64>,
    },
}

/// Judges a segment by its marks.
fn judge(first: Option<Mark>, last: Option<Mark>) -> Verdict {
    // A mark at the wrong end is no mark.
    let first = first.filter(|mark| !matches!(mark, Mark::Sealed(_)));
    let last = last.filter(|mark| !matches!(mark, Mark::Used { .. }));
    match (first, last) {
        (Some(Mark::Free { life }), Some(Mark::Free { life: other })) if life == other => Verdict::Free { life },
        (Some(Mark::Free { life }), Some(Mark::Free { life: other })) => Verdict::HalfErased { life: life.max(other) },
        // The write of the first mark was lost, or it is of a later life.
        (Some(Mark::Free { life }), Some(Mark::Sealed(seal))) if seal.life > life => Verdict::Sealed(seal),
        (Some(Mark::Free { life }), _) => Verdict::HalfErased { life },
        (Some(Mark::Used { life }), Some(Mark::Free { life: erased })) if erased >= life => {
            Verdict::HalfErased { life: erased }
        }
        (Some(Mark::Used { life }), Some(Mark::Free { life: erased })) => {
            Verdict::Scan { erased: Some(erased), life: Some(life) }
        }
        (Some(Mark::Used { life }), Some(Mark::Sealed(seal))) if seal.life == life => Verdict::Sealed(seal),
        (Some(Mark::Used { life }), _) => Verdict::Scan { erased: None, life: Some(life) },
        (None, Some(Mark::Sealed(seal))) => Verdict::Sealed(seal),
        (None, Some(Mark::Free { life })) => Verdict::Scan { erased: Some(life), life: None },
        (None, _) | (Some(Mark::Sealed(_)), _) => Verdict::Scan { erased: None, life: None },
    }
}

/// What was read so far.
#[derive(Debug)]
pub(super) struct Loading {
    pub(super) superblock: BlobSuperblock,
    salts: Salts,
    marks: BTreeMap<u32, Marks>,
    segments: Vec<SegmentInfo>,
    index: Index,
    /// Segments that are to be scanned; the last is next.
    scans: Vec<ScanTask>,
    scan: Option<(ScanTask, AlignedBuf)>,
    has_failed_read: bool,
    /// Lives of used segments.
    lives: BTreeSet<u64>,
    open: Option<OpenSegment>,
    next_sequence: u64,
    lost: Vec<u32>,
}

impl Loading {
    pub(super) fn new(superblock: BlobSuperblock, bugs: BlobBugs) -> Self {
        Self {
            superblock,
            salts: Salts::new(&superblock, bugs),
            marks: BTreeMap::new(),
            segments: vec![SegmentInfo::FREE; superblock.geometry.segments as usize],
            index: Index::default(),
            scans: Vec::new(),
            scan: None,
            has_failed_read: false,
            lives: BTreeSet::new(),
            open: None,
            next_sequence: 1,
            lost: Vec::new(),
        }
    }

    fn segment(&mut self, number: u32) -> &mut SegmentInfo {
        &mut self.segments[number as usize]
    }

    /// Takes two blocks: the last of the segment before this one and the first of this one. Says which summaries have to
    /// be read.
    pub(super) fn take_marks(&mut self, number: u32, blocks: Option<&AlignedBuf>, bugs: BlobBugs) -> Vec<(u32, Seal)> {
        let (salt, segments) = (self.salts.mark, self.superblock.geometry.segments);
        let (before, this) = (number.checked_sub(1), Some(number).filter(|number| *number < segments));
        if let Some(before) = before {
            let marks = self.marks.entry(before).or_default();
            let block = blocks.map(|blocks| blocks.block(0));
            marks.last = Some(block.and_then(|block| Mark::decode(salt, before, block)));
            marks.last_block = block.map(AlignedBuf::copy_of);
        }
        if let Some(this) = this {
            let marks = self.marks.entry(this).or_default();
            marks.first = Some(blocks.and_then(|blocks| Mark::decode(salt, this, blocks.block(1))));
        }
        before.into_iter().chain(this).filter_map(|number| self.judge_segment(number, bugs)).collect()
    }

    fn judge_segment(&mut self, number: u32, bugs: BlobBugs) -> Option<(u32, Seal)> {
        let Marks { first: Some(first), last: Some(last), .. } = *self.marks.get(&number)? else { return None };
        let last_block = self.marks.remove(&number).and_then(|marks| marks.last_block);
        let blocks_max = self.superblock.geometry.segment_room();
        let last = last.filter(|mark| match mark {
            Mark::Sealed(seal) => summary_blocks(seal.entries as usize) <= blocks_max,
            _ => true,
        });
        match judge(first, last) {
            Verdict::Free { life } => {
                self.segment(number).life = life;
                self.next_sequence = self.next_sequence.max(life.saturating_add(1));
            }
            Verdict::HalfErased { life } => {
                *self.segment(number) = SegmentInfo { state: SegmentState::Erasing, life, ..SegmentInfo::FREE };
                self.next_sequence = self.next_sequence.max(life.saturating_add(1));
            }
            Verdict::Sealed(seal) => {
                self.lives.insert(seal.life);
                if summary_blocks(seal.entries as usize) > 1 {
                    return Some((number, seal));
                }
                self.take_summary(number, seal, last_block.as_deref(), bugs);
            }
            Verdict::Scan { erased, life } => {
                self.lives.extend(life);
                self.scans.push(ScanTask { segment: number, erased, life });
            }
        }
        None
    }

    pub(super) fn take_summary(&mut self, number: u32, seal: Seal, blocks: Option<&[u8]>, bugs: BlobBugs) {
        let segment_blocks = self.superblock.geometry.segment_blocks;
        let decoded = blocks.and_then(|blocks| decode_summary(self.salts.mark, &seal, segment_blocks, blocks));
        match decoded {
            Some(entries) => {
                self.next_sequence = self.next_sequence.max(seal.last.saturating_add(1));
                self.take_entries(number, seal.life, &entries, bugs);
                self.segment(number).summary_entries = Some(seal.entries);
            }
            None => self.scans.push(ScanTask { segment: number, erased: None, life: Some(seal.life) }),
        }
    }

    /// A used segment with these entries, in their order.
    fn take_entries(&mut self, number: u32, life: u64, entries: &[LogEntry], bugs: BlobBugs) {
        let largest = entries.iter().map(LogEntry::footprint).max().unwrap_or(0);
        *self.segment(number) = SegmentInfo { state: SegmentState::Closed, life, largest, ..SegmentInfo::FREE };
        let Self { index, segments, .. } = self;
        for entry in entries {
            let is_newer = |other: u32| segments[other as usize].life < life || bugs.has(BlobBug::IgnoreOrder);
            index.recover(entry, number, is_newer);
        }
    }

    /// The next segment to be scanned. Those whose life is not known come first: they may be the newest.
    pub(super) fn next_scan(&mut self) -> Option<u32> {
        self.scans.sort_by_key(|task| task.life.is_none());
        let task = self.scans.pop()?;
        self.scan = Some((task, AlignedBuf::zeroed(self.superblock.geometry.segment_blocks as usize)));
        self.has_failed_read = false;
        Some(task.segment)
    }

    pub(super) fn take_chunk(&mut self, first: u32, bytes: Option<&[u8]>) {
        let (_, segment) = self.scan.as_mut().expect("a chunk is part of a scan");
        match bytes {
            Some(bytes) => segment[first as usize * BLOCK_BYTES..][..bytes.len()].copy_from_slice(bytes),
            None => self.has_failed_read = true,
        }
    }

    /// The segment that is scanned has been read.
    pub(super) fn finish_scan(&mut self, bugs: BlobBugs) {
        let (task, bytes) = self.scan.take().expect("a scan is finished once");
        let number = task.segment;
        let scanned = scan_segment(self.salts.batch, task, &self.lives, &bytes, bugs);
        let is_lost = scanned.is_lost || self.has_failed_read;
        let Some(life) = scanned.life else {
            match task.erased.filter(|_| !is_lost) {
                // Nothing is in it, and one mark was whole: both are written again.
                Some(life) => {
                    *self.segment(number) = SegmentInfo { state: SegmentState::Erasing, life, ..SegmentInfo::FREE };
                }
                None => {
                    self.segment(number).state = SegmentState::Unusable;
                    self.lost.push(number);
                }
            }
            return;
        };
        let is_newest = self.lives.range(life + 1..).next().is_none();
        self.lives.insert(life);
        self.take_entries(number, life, &scanned.entries, bugs);
        let mut next_sequence = scanned.next_sequence;
        if is_lost {
            self.lost.push(number);
            // More batches than were found may have been there.
            next_sequence += u64::from(self.superblock.geometry.segment_blocks);
        } else if is_newest {
            let (next_block, entries) = (scanned.next_block, scanned.entries);
            self.open = Some(OpenSegment { number, life, next_block, entries });
        }
        self.next_sequence = self.next_sequence.max(next_sequence);
    }

    /// What was found, when everything has been read.
    pub(super) fn finish(mut self) -> Recovered {
        // Only the newest segment is appended to.
        let open = self.open.take().filter(|open| self.lives.last() == Some(&open.life));
        if let Some(open) = &open {
            self.segment(open.number).state = SegmentState::Open;
        }
        let Self { superblock, mut segments, mut index, next_sequence, lost, .. } = self;
        for (segment, entry) in index.finish_recovery() {
            segments[segment as usize].live += entry.footprint();
        }
        Recovered { superblock, segments, index, open, next_sequence, lost }
    }
}

#[cfg(test)]
mod tests;
