//! Blobs of a drive: immutable shards of objects in a segmented log, never torn, never silently wrong.
//!
//! [`Blobs`] is the area of blobs of one drive as a value, beside and independent of [`crate::store::Store`]: requests
//! and the results of IOs go in, IOs and answers come out. It has a file (or a part of a device) of its own.
//!
//! The area is cut into segments. One of them is open: puts, removals and moves are appended to it in batches, one write
//! at a time, and everything that gathers while one is under way shares the next. A full segment gets a summary of its
//! batches, so that opening does not read them. Compaction moves what is live out of a segment, then erases the
//! segment's two marks, and only then may it be used again.
//!
//! Invariants
//! - Acknowledged means durable. After a crash at any moment every acknowledged put is there and every acknowledged
//!   removal is; what was not acknowledged is there whole or not at all.
//! - A removed blob does not come back: its tombstone is kept, and moved by compaction, while any record of the blob is on
//!   the drive.
//! - The last batch of the log alone can be torn. A batch is written when the one before it is durable, so a damaged batch
//!   with anything behind it was acknowledged and is reported.
//! - Every block of 4 KiB of a blob has a checksum that binds blob and place. What does not match is an error and an
//!   event, never data. Compaction moves damaged blobs as they are, so that the damage stays visible.
//! - What fails to be written or synced poisons the area; nothing is retried, nothing served any more.
//! - Room for removals and for the compaction of one segment is kept from puts, so that a full drive can be emptied.
//!
//! Limits: a blob has up to 4 MiB and a header of up to 512 bytes. The index is in memory, about 65 bytes for each blob
//! and tombstone, up to `blobs_max`.
//!
//! Deliberately absent: files, threads, clocks, chance; erasure codes, placement and garbage collection, which are the
//! caller's; a change of the size of the area; repair of damage in place.
//!
//! In reading order: [`request`], [`error`], [`config`], [`layout`]; written forms: `mark` (segments), `entry`, `batch`,
//! `head` (a blob); `scan` (a segment without summary); in memory: `index`, `segments`; the machine: `operation`, `read`,
//! `log`, `compaction`, `submit`; [`opening`] and [`mod@format`]; [`planted`] and `proof`.
//!
//! Follows log-structured file systems (Rosenblum and Ousterhout) and Bitcask's log with an index in memory. Departs from
//! them in that tombstones are counted against the records that they cover, so that both go.

pub mod config;
pub mod error;
pub mod layout;
pub mod request;

pub use config::BlobConfig;
pub use error::BlobError;
pub use request::{BlobEvent, BlobReply, BlobRequest, BlobRequestKind, BlobStats, NewBlob};

use std::collections::VecDeque;

use ashlar_wire::id::{ClusterId, DriveId, ServerId};
use ashlar_wire::time::Instant;

use crate::error::OpenError;
use crate::format::Existing;
use crate::io::{Io, IoError, IoId, IoOutput};
use crate::opening::Expected;
use crate::request::RequestId;
use layout::BlobSuperblock;

/// The blobs of one drive, open. Made by [`BlobOpening`].
#[derive(Debug)]
pub struct Blobs {
    events: VecDeque<BlobEvent>,
}

impl Blobs {
    /// Whose area this is.
    #[must_use]
    pub const fn superblock(&self) -> &BlobSuperblock {
        todo!()
    }

    /// Space and number of blobs.
    #[must_use]
    pub fn stats(&self) -> BlobStats {
        todo!()
    }

    /// Whether nothing is in progress and nothing that was acknowledged could be taken for torn.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        todo!()
    }

    /// Takes a request. Its answer comes from [`Blobs::poll_reply`].
    ///
    /// # Errors
    /// [`BlobError::Busy`] above `requests_max` or `put_bytes_max`: nothing was taken, and a retry is safe. Everything
    /// else is told by the reply.
    pub fn handle_request(&mut self, _now: Instant, _id: RequestId, _request: BlobRequest) -> Result<(), BlobError> {
        todo!()
    }

    /// Takes the result of an IO of [`Blobs::poll_io`].
    ///
    /// # Panics
    /// When the IO is not in progress, or a read is answered with another length.
    pub fn handle_io(&mut self, _now: Instant, _id: IoId, _result: Result<IoOutput, IoError>) {
        todo!()
    }

    /// Does what is due: to be called at [`Blobs::poll_timeout`] or soon after.
    pub fn handle_timeout(&mut self, _now: Instant) {
        todo!()
    }

    /// When [`Blobs::handle_timeout`] is to be called, if no other call comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// The next IO to execute. At most `ios_max` are given out and not completed at a time.
    pub fn poll_io(&mut self) -> Option<Io> {
        todo!()
    }

    /// The next answer.
    pub fn poll_reply(&mut self) -> Option<(RequestId, Result<BlobReply, BlobError>)> {
        todo!()
    }

    /// The next thing that the owner of the redundancy should know.
    pub fn poll_event(&mut self) -> Option<BlobEvent> {
        self.events.pop_front()
    }
}

/// Who an area of blobs becomes.
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
    /// Blocks of a segment, [`layout::SEGMENT_BLOCKS`] as a rule.
    pub segment_blocks: u32,
}

/// Writes an area until it can be opened. (Moves to `blob::format`.)
#[derive(Debug)]
pub struct BlobFormatting;

impl BlobFormatting {
    /// Begins to format an area.
    ///
    /// # Errors
    /// [`OpenError::TooSmall`] and [`OpenError::BadLayout`], the caller's.
    pub fn new(_new: &NewBlobArea, _existing: Existing) -> Result<Self, OpenError> {
        todo!()
    }

    /// The next IO to execute.
    pub fn poll_io(&mut self) -> Option<Io> {
        todo!()
    }

    /// Takes the result of an IO.
    pub fn handle_io(&mut self, _id: IoId, _result: Result<IoOutput, IoError>) {
        todo!()
    }

    /// The superblock of the formatted area, or why it is not formatted, once everything is durable.
    #[must_use]
    pub fn poll_ready(&self) -> Option<Result<BlobSuperblock, OpenError>> {
        todo!()
    }
}

/// Reads an area until it can be used. (Moves to `blob::opening`.)
#[derive(Debug)]
pub struct BlobOpening;

impl BlobOpening {
    /// Begins to open an area. `expected.drive` should be the id that the drive's extents have.
    #[must_use]
    pub fn new(_config: BlobConfig, _expected: Expected) -> Self {
        todo!()
    }

    /// The next IO to execute: reads, and one sync at the end.
    pub fn poll_io(&mut self) -> Option<Io> {
        todo!()
    }

    /// Takes the result of an IO.
    pub fn handle_io(&mut self, _id: IoId, _result: Result<IoOutput, IoError>) {
        todo!()
    }

    /// The blobs, or why there are none, once. What was found to be lost is told by their events.
    pub fn poll_ready(&mut self, _now: Instant) -> Option<Result<Blobs, OpenError>> {
        todo!()
    }
}
