//! Formatting of a drive: empty tables and an empty journal, then the superblocks.
//!
//! The superblocks come last, after a sync: a drive whose formatting was interrupted is not formatted. What an earlier
//! formatting left behind does not pass for this one's, because the nonce goes into every checksum.

use std::collections::VecDeque;

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::{ClusterId, DriveId, ServerId};

use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::error::OpenError;
use crate::io::{Durability, Io, IoError, IoId, IoKind, IoOutput};
use crate::journal::batch::{BatchPlace, BatchSeq, encode_batch};
use crate::layout::{Geometry, LayoutOptions, Superblock};
use crate::page::PageId;
use crate::planted::{Bug, Bugs};
use crate::tables::Tables;

/// Pages of one write.
const CHUNK_PAGES: u32 = 256;
/// Most writes at a time.
const WRITES_MAX: usize = 8;

/// Who the drive becomes.
#[derive(Debug, Clone, Copy)]
pub struct NewDrive {
    /// Its cluster.
    pub cluster: ClusterId,
    /// The server that formats it.
    pub server: ServerId,
    /// Its id, never used before.
    pub drive: DriveId,
    /// Chance, new for each formatting.
    pub nonce: [u8; 16],
    /// Bytes that it has.
    pub bytes: u64,
    /// How it is divided.
    pub options: LayoutOptions,
}

/// Whether a drive that has a superblock may be formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It is refused.
    Refuse,
    /// Everything on it is lost.
    Overwrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Look,
    Erase,
    EraseSync,
    Tables,
    TablesSync,
    Superblocks,
    LastSync,
    Done,
}

/// Writes a drive until it can be opened.
#[derive(Debug)]
pub struct Formatting {
    superblock: Superblock,
    existing: Existing,
    bugs: Bugs,
    phase: Phase,
    queue: VecDeque<Io>,
    outstanding: usize,
    next_io: u64,
    /// Pages whose writes were queued, both copies counted.
    next_page: u32,
    failure: Option<OpenError>,
}

impl Formatting {
    /// Begins to format a drive.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`] and [`OpenError::BadLayout`], the caller's.
    pub fn new(new: &NewDrive, existing: Existing) -> Result<Self, OpenError> {
        Self::with_bugs(new, existing, Bugs::default())
    }

    /// The same with a planted bug.
    ///
    /// # Errors
    /// As there.
    pub fn with_bugs(new: &NewDrive, existing: Existing, bugs: Bugs) -> Result<Self, OpenError> {
        let NewDrive { cluster, server, drive, nonce, bytes, options } = *new;
        let geometry = Geometry::plan(bytes, options)?;
        let mut formatting = Self {
            superblock: Superblock { cluster, server, drive, nonce, geometry },
            existing,
            bugs,
            phase: Phase::Look,
            queue: VecDeque::new(),
            outstanding: 0,
            next_io: 0,
            next_page: 0,
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

    /// The superblock of the formatted drive, or why it is not formatted, once everything is durable.
    #[must_use]
    pub const fn poll_ready(&self) -> Option<Result<Superblock, OpenError>> {
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
        self.failure = match Superblock::decode(bytes) {
            Ok(held) => Some(OpenError::AlreadyFormatted(held.drive)),
            Err(error @ OpenError::NewerFormat(_)) => Some(error),
            // Damage here and nothing there is what an interrupted formatting leaves.
            Err(_) => self.failure,
        };
    }

    fn advance(&mut self) {
        let geometry = self.superblock.geometry;
        if self.phase == Phase::Tables {
            return self.write_tables();
        }
        if self.outstanding > 0 {
            return;
        }
        match self.phase {
            Phase::Look => {
                geometry.superblock_offsets().iter().for_each(|offset| self.write(*offset, AlignedBuf::zeroed(1)));
                self.phase = Phase::Erase;
            }
            Phase::Erase => self.sync(Phase::EraseSync),
            Phase::EraseSync => {
                self.phase = Phase::Tables;
                let place = BatchPlace { sequence: BatchSeq(1), generation: 1, tail: BatchSeq(1), position: 0 };
                let bytes = encode_batch(self.salt(b"journal"), place, [].iter(), &[]);
                self.write(geometry.journal_offset(0), bytes);
                self.write_tables();
            }
            Phase::TablesSync => {
                let bytes = self.superblock.encode();
                let offsets = geometry.superblock_offsets();
                offsets.iter().for_each(|offset| self.write(*offset, AlignedBuf::copy_of(&bytes)));
                self.phase = Phase::Superblocks;
            }
            Phase::Superblocks => self.sync(Phase::LastSync),
            Phase::LastSync => self.phase = Phase::Done,
            Phase::Tables | Phase::Done => {}
        }
    }

    fn sync(&mut self, next: Phase) {
        self.phase = next;
        self.submit(IoKind::Sync);
    }

    fn salt(&self, form: &[u8]) -> Salt {
        if self.bugs.has(Bug::ForgetIdentity) { Salt::new(&[form]) } else { self.superblock.salt(form) }
    }

    fn write_tables(&mut self) {
        let geometry = self.superblock.geometry;
        let salt = self.salt(b"page");
        while self.next_page < 2 * geometry.pages() {
            if self.outstanding >= WRITES_MAX {
                return;
            }
            let copy = self.next_page / geometry.pages();
            let first = self.next_page % geometry.pages();
            let pages = CHUNK_PAGES.min(geometry.pages() - first);
            let mut bytes = AlignedBuf::zeroed(pages as usize);
            for index in 0..pages {
                let block = bytes.block_mut(index as usize);
                Tables::encode_empty(&geometry, PageId(first + index), salt, block);
            }
            self.next_page += pages;
            self.write(geometry.page_offset(PageId(first), copy as usize), bytes);
        }
        if self.outstanding == 0 {
            self.sync(Phase::TablesSync);
        }
    }
}
