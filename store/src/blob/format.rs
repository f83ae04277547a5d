//! Formatting of an area of blobs: marks that say that segments are free, then the superblocks.
//!
//! The superblocks come last, after a sync: an area whose formatting was interrupted is not formatted. What an earlier
//! formatting left behind does not pass for this one's, because the nonce goes into every checksum.

use std::collections::VecDeque;

use ashlar_wire::id::{ClusterId, DriveId, ServerId};

use super::Salts;
use super::layout::{BlobGeometry, BlobSuperblock};
use super::mark::Mark;
use super::planted::BlobBugs;
use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::error::OpenError;
use crate::format::Existing;
use crate::io::{Durability, Io, IoError, IoId, IoKind, IoOutput};

/// Most writes at a time.
const WRITES_MAX: usize = 8;

/// What an area of blobs becomes.
#[derive(Debug, Clone, Copy)]
pub struct NewBlobArea {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The server that formats it.
    pub server: ServerId,
    /// Its drive: the id that the drive's extents have, too.
    pub drive: DriveId,
    /// Chance, new for each formatting.
    pub nonce: [u8; 16],
    /// Bytes that it has.
    pub bytes: u64,
    /// Blocks of a segment, [`super::layout::SEGMENT_BLOCKS`] as a rule.
    pub segment_blocks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Look,
    Erase,
    EraseSync,
    Marks,
    MarksSync,
    Superblocks,
    LastSync,
    Done,
}

/// Writes an area until it can be opened.
#[derive(Debug)]
pub struct BlobFormatting {
    superblock: BlobSuperblock,
    salts: Salts,
    existing: Existing,
    phase: Phase,
    queue: VecDeque<Io>,
    outstanding: usize,
    next_io: u64,
    /// The next segment whose first mark is written, with the last mark of the one before it.
    next_segment: u32,
    failure: Option<OpenError>,
}

impl BlobFormatting {
    /// Begins to format an area.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`] and [`OpenError::BadLayout`], the caller's.
    pub fn new(new: &NewBlobArea, existing: Existing) -> Result<Self, OpenError> {
        Self::with_bugs(new, existing, BlobBugs::default())
    }

    /// The same with a planted bug.
    ///
    /// # Errors
    /// As there.
    pub fn with_bugs(new: &NewBlobArea, existing: Existing, bugs: BlobBugs) -> Result<Self, OpenError> {
        let NewBlobArea { cluster, server, drive, nonce, bytes, segment_blocks } = *new;
        let geometry = BlobGeometry::plan(bytes, segment_blocks)?;
        let superblock = BlobSuperblock { cluster, server, drive, nonce, geometry };
        let mut formatting = Self {
            superblock,
            salts: Salts::new(&superblock, bugs),
            existing,
            phase: Phase::Look,
            queue: VecDeque::new(),
            outstanding: 0,
            next_io: 0,
            next_segment: 0,
            failure: None,
        };
        for offset in geometry.superblock_offsets() {
            formatting.submit(IoKind::Read { offset, len: BLOCK_BYTES });
        }
        Ok(formatting)
    }

    fn submit(&mut self, kind: IoKind) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.outstanding += 1;
        self.queue.push_back(Io { id, kind });
    }

    fn write(&mut self, offset: u64, bytes: AlignedBuf) {
        self.submit(IoKind::Write { offset, data: vec![bytes.into()], durability: Durability::Cached });
    }

    /// The next IO to execute.
    pub fn poll_io(&mut self) -> Option<Io> {
        self.queue.pop_front()
    }

    /// Takes the result of an IO.
    pub fn handle_io(&mut self, _: IoId, result: Result<IoOutput, IoError>) {
        self.outstanding -= 1;
        match result {
            Err(error) => self.failure = self.failure.or(Some(OpenError::Io(error))),
            Ok(IoOutput::Data(bytes)) => self.look(&bytes),
            Ok(IoOutput::Done) => {}
        }
        if self.failure.is_none() {
            self.advance();
        }
    }

    /// The superblock of the formatted area, or why it is not formatted, once everything is durable.
    #[must_use]
    pub const fn poll_ready(&self) -> Option<Result<BlobSuperblock, OpenError>> {
        match (self.failure, self.phase) {
            (Some(error), _) => Some(Err(error)),
            (None, Phase::Done) => Some(Ok(self.superblock)),
            _ => None,
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        if self.existing == Existing::Overwrite {
            return;
        }
        self.failure = match BlobSuperblock::decode(bytes) {
            Ok(held) => Some(OpenError::AlreadyFormatted(held.drive)),
            Err(error @ OpenError::NewerFormat(_)) => Some(error),
            // Damage here and nothing there is what an interrupted formatting leaves.
            Err(_) => self.failure,
        };
    }

    fn advance(&mut self) {
        let offsets = self.superblock.geometry.superblock_offsets();
        if self.phase == Phase::Marks {
            return self.write_marks();
        }
        if self.outstanding > 0 {
            return;
        }
        match self.phase {
            Phase::Look => {
                offsets.iter().for_each(|offset| self.write(*offset, AlignedBuf::zeroed(1)));
                self.phase = Phase::Erase;
            }
            Phase::Erase => self.sync(Phase::EraseSync),
            Phase::EraseSync => {
                self.phase = Phase::Marks;
                self.write_marks();
            }
            Phase::MarksSync => {
                let bytes = self.superblock.encode();
                offsets.iter().for_each(|offset| self.write(*offset, AlignedBuf::copy_of(&bytes)));
                self.phase = Phase::Superblocks;
            }
            Phase::Superblocks => self.sync(Phase::LastSync),
            Phase::LastSync => self.phase = Phase::Done,
            Phase::Marks | Phase::Done => {}
        }
    }

    fn sync(&mut self, next: Phase) {
        self.phase = next;
        self.submit(IoKind::Sync);
    }

    /// The last mark of a segment and the first one of the next stand side by side.
    fn write_marks(&mut self) {
        let geometry = self.superblock.geometry;
        let free = Mark::Free { life: 0 };
        while self.next_segment <= geometry.segments {
            if self.outstanding >= WRITES_MAX {
                return;
            }
            let segment = self.next_segment;
            self.next_segment += 1;
            let mut marks = Vec::new();
            if let Some(before) = segment.checked_sub(1) {
                marks.push((geometry.offset(before, geometry.segment_blocks - 1), before));
            }
            if segment < geometry.segments {
                marks.push((geometry.offset(segment, 0), segment));
            }
            let mut bytes = AlignedBuf::zeroed(marks.len());
            for (index, (_, number)) in marks.iter().enumerate() {
                free.encode_into(self.salts.mark, *number, bytes.block_mut(index));
            }
            self.write(marks[0].0, bytes);
        }
        if self.outstanding == 0 {
            self.sync(Phase::MarksSync);
        }
    }
}
