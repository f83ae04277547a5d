//! Opening of an area of blobs: superblocks, marks, summaries, then segments without a summary.
//!
//! The two marks of each segment say what it is. Of a full one the summary is read, of others all batches. Entries of
//! different segments are put in order by the lives of the segments, so summaries may come in any order. At the end, one
//! sync makes durable what was read: after the end of a process it may be in the memory of the machine only. Nothing is
//! written.

mod loading;

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::time::Instant;

use super::Blobs;
use super::config::BlobConfig;
use super::layout::BlobSuperblock;
use super::mark::{Seal, summary_blocks};
use super::planted::{BlobBug, BlobBugs};
use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::error::OpenError;
use crate::io::{Io, IoError, IoId, IoKind, IoOutput};
use crate::opening::Expected;
use loading::Loading;

/// Blocks of one read of a segment without a summary.
const CHUNK_BLOCKS: u32 = 256;

/// What a read is for.
#[derive(Debug, Clone, Copy)]
enum Part {
    Superblock(usize),
    /// The last mark of the segment before this one, and the first mark of this one.
    Marks(u32),
    Summary {
        segment: u32,
        seal: Seal,
    },
    /// A piece of the segment that is scanned.
    Chunk {
        first: u32,
    },
    Sync,
}

/// Reads an area until it can be used.
#[derive(Debug)]
pub struct BlobOpening {
    config: BlobConfig,
    expected: Expected,
    bugs: BlobBugs,
    /// IOs that were not polled.
    queue: VecDeque<Io>,
    /// IOs that were not completed, with their blocks.
    parts: BTreeMap<IoId, (Part, u32)>,
    in_flight: usize,
    next_io: u64,
    superblocks: [Result<BlobSuperblock, OpenError>; 2],
    /// The next segment of which marks are read.
    next_marks: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Superblocks,
    /// Marks and summaries.
    Marks(Box<Loading>),
    /// Segments without a summary, one at a time.
    Scans(Box<Loading>),
    /// The last sync.
    Sync(Box<Loading>),
    Failed(OpenError),
    /// The result was taken.
    Done,
}

impl BlobOpening {
    /// Begins to open an area. `expected.drive` should be the id that the drive's extents have.
    #[must_use]
    pub fn new(config: BlobConfig, expected: Expected) -> Self {
        Self::with_bugs(config, expected, BlobBugs::default())
    }

    /// The same with a planted bug.
    #[must_use]
    pub fn with_bugs(config: BlobConfig, expected: Expected, bugs: BlobBugs) -> Self {
        let mut opening = Self {
            config,
            expected,
            bugs,
            queue: VecDeque::new(),
            parts: BTreeMap::new(),
            in_flight: 0,
            next_io: 0,
            superblocks: [Err(OpenError::NotFormatted); 2],
            next_marks: 0,
            state: State::Superblocks,
        };
        let blocks = expected.bytes / BLOCK_BYTES as u64;
        if blocks < 2 {
            opening.state = State::Failed(OpenError::NotFormatted);
            return opening;
        }
        for (copy, block) in [0, blocks - 1].into_iter().enumerate() {
            opening.read(Part::Superblock(copy), block * BLOCK_BYTES as u64, 1);
        }
        opening
    }

    fn read(&mut self, part: Part, offset: u64, blocks: u32) {
        self.submit(part, blocks, IoKind::Read { offset, len: blocks as usize * BLOCK_BYTES });
    }

    fn submit(&mut self, part: Part, blocks: u32, kind: IoKind) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.parts.insert(id, (part, blocks));
        self.queue.push_back(Io { id, kind });
    }

    /// The next IO to execute: reads, and one sync at the end.
    pub fn poll_io(&mut self) -> Option<Io> {
        if self.in_flight >= self.config.ios_max {
            return None;
        }
        self.in_flight += usize::from(!self.queue.is_empty());
        self.queue.pop_front()
    }

    /// Takes the result of an IO.
    ///
    /// # Panics
    /// When the IO is not in progress, or answered with another length.
    pub fn handle_io(&mut self, id: IoId, result: Result<IoOutput, IoError>) {
        let (part, blocks) = self.parts.remove(&id).expect("an IO is completed once");
        self.in_flight -= 1;
        if let Part::Sync = part {
            if let Err(error) = result {
                self.state = State::Failed(OpenError::Io(error));
            }
            return;
        }
        let result = result.map(|output| output.into_data(blocks as usize * BLOCK_BYTES));
        let handled = match part {
            Part::Superblock(copy) => {
                self.superblocks[copy] = result.map_err(OpenError::Io).and_then(|bytes| BlobSuperblock::decode(&bytes));
                if self.parts.is_empty() { self.choose_superblock() } else { Ok(()) }
            }
            Part::Marks(segment) => {
                self.take_marks(segment, result.ok().as_ref());
                Ok(())
            }
            Part::Summary { segment, seal } => {
                self.take_summary(segment, seal, result.ok().as_deref());
                Ok(())
            }
            Part::Chunk { first } => {
                self.take_chunk(first, result.ok().as_deref());
                Ok(())
            }
            Part::Sync => unreachable!("the sync was handled above"),
        };
        match handled {
            Ok(()) => self.advance(),
            Err(error) => {
                self.state = State::Failed(error);
                self.queue.clear();
            }
        }
    }

    /// The blobs, or why there are none, once. What was found to be lost is told by their events.
    pub fn poll_ready(&mut self, now: Instant) -> Option<Result<Blobs, OpenError>> {
        let is_ready = match &self.state {
            State::Failed(_) => true,
            State::Sync(_) => self.parts.is_empty(),
            State::Superblocks | State::Marks(_) | State::Scans(_) | State::Done => false,
        };
        if !is_ready {
            return None;
        }
        match core::mem::replace(&mut self.state, State::Done) {
            State::Failed(error) => Some(Err(error)),
            State::Sync(loading) => Some(Ok(Blobs::new(now, self.config, loading.finish(), self.bugs))),
            _ => unreachable!("only these are ready"),
        }
    }

    fn choose_superblock(&mut self) -> Result<(), OpenError> {
        let superblock = match self.superblocks {
            [Ok(first), Ok(second)] if first != second => {
                return Err(OpenError::Damaged("the two superblocks of blobs differ"));
            }
            [Ok(superblock), _] | [Err(_), Ok(superblock)] => superblock,
            // What says more of the two; a drive that shrank has lost its second.
            [Err(OpenError::NotFormatted), Err(error)] | [Err(error), Err(_)] => return Err(error),
        };
        let Expected { cluster, drive, bytes } = self.expected;
        if superblock.cluster != cluster {
            return Err(OpenError::ForeignCluster(superblock.cluster));
        }
        if drive.is_some_and(|drive| drive != superblock.drive) {
            return Err(OpenError::OtherDrive(superblock.drive));
        }
        let geometry = superblock.geometry;
        if geometry.blocks != bytes / BLOCK_BYTES as u64 {
            return Err(OpenError::WrongSize { bytes, formatted_bytes: geometry.bytes() });
        }
        self.state = State::Marks(Box::new(Loading::new(superblock, self.bugs)));
        Ok(())
    }

    /// Asks for what is needed next.
    fn advance(&mut self) {
        if let State::Marks(loading) = &mut self.state {
            let geometry = loading.superblock.geometry;
            let mut next = self.next_marks;
            while next <= geometry.segments && self.parts.len() < self.config.ios_max {
                self.read(Part::Marks(next), geometry.offset(next, 0) - BLOCK_BYTES as u64, 2);
                next += 1;
            }
            self.next_marks = next;
            if !self.parts.is_empty() {
                return;
            }
            let State::Marks(loading) = core::mem::replace(&mut self.state, State::Done) else {
                unreachable!("it was just looked at")
            };
            self.state = State::Scans(loading);
        }
        if let State::Scans(loading) = &mut self.state {
            if !self.parts.is_empty() {
                return;
            }
            if let Some(segment) = loading.next_scan() {
                return self.begin_scan(segment);
            }
            let State::Scans(loading) = core::mem::replace(&mut self.state, State::Done) else {
                unreachable!("it was just looked at")
            };
            self.state = State::Sync(loading);
            if !self.bugs.has(BlobBug::SkipOpeningSync) {
                self.submit(Part::Sync, 0, IoKind::Sync);
            }
        }
    }

    fn take_marks(&mut self, segment: u32, blocks: Option<&AlignedBuf>) {
        let State::Marks(loading) = &mut self.state else { return };
        let geometry = loading.superblock.geometry;
        for (number, seal) in loading.take_marks(segment, blocks, self.bugs) {
            let blocks = summary_blocks(seal.entries as usize);
            let offset = geometry.offset(number, geometry.segment_blocks - blocks);
            self.read(Part::Summary { segment: number, seal }, offset, blocks);
        }
    }

    fn take_summary(&mut self, segment: u32, seal: Seal, blocks: Option<&[u8]>) {
        let State::Marks(loading) = &mut self.state else { return };
        loading.take_summary(segment, seal, blocks, self.bugs);
    }

    fn begin_scan(&mut self, segment: u32) {
        let State::Scans(loading) = &mut self.state else { return };
        let geometry = loading.superblock.geometry;
        for first in (0..geometry.segment_blocks).step_by(CHUNK_BLOCKS as usize) {
            let blocks = CHUNK_BLOCKS.min(geometry.segment_blocks - first);
            self.read(Part::Chunk { first }, geometry.offset(segment, first), blocks);
        }
    }

    fn take_chunk(&mut self, first: u32, bytes: Option<&[u8]>) {
        let State::Scans(loading) = &mut self.state else { return };
        loading.take_chunk(first, bytes);
        if self.parts.is_empty() {
            loading.finish_scan(self.bugs);
        }
    }
}
