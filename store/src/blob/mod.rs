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

mod batch;
mod compaction;
pub mod config;
mod entry;
pub mod error;
pub mod format;
mod head;
mod index;
pub mod layout;
mod log;
mod mark;
pub mod opening;
mod operation;
pub mod planted;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod read;
pub mod request;
mod scan;
mod segments;
mod submit;

use std::collections::{BTreeMap, VecDeque};

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::BlobId;
use ashlar_wire::time::Instant;

use crate::buffer::BLOCK_BYTES;
use crate::io::{Io, IoError, IoId, IoOutput};
use crate::request::RequestId;
use compaction::{Compaction, Erasure};
use index::Index;
use layout::{BlobGeometry, BlobSuperblock};
use log::{Log, OpenSegment};
use operation::{BlobGates, OpId, Operation, Owner};
use planted::{BlobBug, BlobBugs};
use segments::{SegmentInfo, SegmentState, Segments};
use submit::Submissions;

pub use config::BlobConfig;
pub use error::BlobError;
pub use format::{BlobFormatting, NewBlobArea};
pub use opening::BlobOpening;
pub use request::{
    BlobBytes, BlobEvent, BlobHead, BlobReply, BlobRequest, BlobRequestKind, BlobStats, ListDetail, ListedBlob,
    ListedHeader, NewBlob,
};

/// Most events that wait for [`Blobs::poll_event`]; further reports of damage are dropped, as they come again.
pub const EVENTS_MAX: usize = 1_024;

/// The identities that go into checksums of written forms.
#[derive(Debug, Clone, Copy)]
struct Salts {
    batch: Salt,
    head: Salt,
    mark: Salt,
}

impl Salts {
    fn new(superblock: &BlobSuperblock, bugs: BlobBugs) -> Self {
        let salt = |form: &[u8]| {
            if bugs.has(BlobBug::ForgetFormatting) { Salt::new(&[form]) } else { superblock.salt(form) }
        };
        Self { batch: salt(b"blob batch"), head: salt(b"blob head"), mark: salt(b"blob mark") }
    }
}

/// Where the scrub is.
#[derive(Debug)]
struct Scrub {
    /// When the next blob is due; none while one is read, or if there is no scrub.
    due: Option<Instant>,
    /// The blob that was read last.
    after: Option<BlobId>,
}

/// What opening found.
struct Recovered {
    superblock: BlobSuperblock,
    segments: Vec<SegmentInfo>,
    index: Index,
    open: Option<OpenSegment>,
    next_sequence: u64,
    /// Segments whose log is damaged.
    lost: Vec<u32>,
}

/// The blobs of one drive, open. Made by [`BlobOpening`].
#[derive(Debug)]
pub struct Blobs {
    config: BlobConfig,
    superblock: BlobSuperblock,
    geometry: BlobGeometry,
    salts: Salts,
    /// The latest time that was told.
    now: Instant,
    index: Index,
    segments: Segments,
    operations: BTreeMap<OpId, Operation>,
    next_op: u64,
    /// Requests among the operations: bounded by `requests_max`.
    requests: usize,
    /// Bytes of puts among them: bounded by `put_bytes_max`.
    put_bytes: usize,
    /// Operations that can go on.
    ready: VecDeque<OpId>,
    gates: BlobGates,
    log: Log,
    compaction: Option<Compaction>,
    erasures: BTreeMap<u32, Erasure>,
    submissions: Submissions,
    scrub: Scrub,
    replies: VecDeque<(RequestId, Result<BlobReply, BlobError>)>,
    events: VecDeque<BlobEvent>,
    poison: Option<IoError>,
    bugs: BlobBugs,
}

impl Blobs {
    /// Goes on from what opening found.
    fn new(now: Instant, config: BlobConfig, recovered: Recovered, bugs: BlobBugs) -> Self {
        let Recovered { superblock, segments, index, open, next_sequence, lost } = recovered;
        // Not known to have anything behind its last batch.
        let seal_at = open.as_ref().map(|_| now + config.seal_after);
        let half_erased = segments.iter().zip(0..).filter(|(segment, _)| segment.state == SegmentState::Erasing);
        let half_erased: Vec<u32> = half_erased.map(|(_, number)| number).collect();
        let mut blobs = Self {
            config,
            superblock,
            geometry: superblock.geometry,
            salts: Salts::new(&superblock, bugs),
            now,
            index,
            segments: Segments::new(superblock.geometry, segments),
            operations: BTreeMap::new(),
            next_op: 0,
            requests: 0,
            put_bytes: 0,
            ready: VecDeque::new(),
            gates: BlobGates::default(),
            log: Log::new(open, next_sequence, seal_at),
            compaction: None,
            erasures: BTreeMap::new(),
            submissions: Submissions::default(),
            scrub: Scrub { due: config.scrub_interval.map(|interval| now + interval), after: None },
            replies: VecDeque::new(),
            events: lost.into_iter().map(|segment| BlobEvent::Lost { segment }).collect(),
            poison: None,
            bugs,
        };
        half_erased.into_iter().for_each(|number| blobs.erase(number, Vec::new()));
        blobs.run();
        blobs
    }

    /// Whose area this is.
    #[must_use]
    pub const fn superblock(&self) -> &BlobSuperblock {
        &self.superblock
    }

    /// Space and number of blobs.
    #[must_use]
    pub fn stats(&self) -> BlobStats {
        BlobStats {
            blobs: self.index.live_count(),
            tombstones: self.index.len() - self.index.live_count(),
            data_bytes: self.index.data_bytes(),
            live_bytes: self.segments.live(),
            dead_bytes: self.segments.dead(),
            free_bytes: self.room().saturating_sub(self.put_reserve()) * BLOCK_BYTES as u64,
            free_segments: self.segments.free_count(),
            segments: self.geometry.segments,
        }
    }

    /// Whether nothing is in progress and nothing that was acknowledged could be taken for torn.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.operations.is_empty() && self.log.is_settled() && self.compaction.is_none() && self.erasures.is_empty()
    }

    /// Takes a request. Its answer comes from [`Blobs::poll_reply`].
    ///
    /// # Errors
    /// [`BlobError::Busy`] above `requests_max` or `put_bytes_max`: nothing was taken, and a retry is safe. Everything
    /// else is told by the reply.
    pub fn handle_request(&mut self, now: Instant, id: RequestId, request: BlobRequest) -> Result<(), BlobError> {
        self.now = self.now.max(now);
        if self.requests >= self.config.requests_max {
            return Err(BlobError::Busy);
        }
        if let Some(error) = self.poison {
            self.replies.push_back((id, Err(BlobError::Poisoned(error))));
            return Ok(());
        }
        self.accept(id, request)?;
        self.run();
        Ok(())
    }

    /// Takes the result of an IO of [`Blobs::poll_io`].
    ///
    /// # Panics
    /// When the IO is not in progress, or a read is answered with another length.
    pub fn handle_io(&mut self, now: Instant, id: IoId, result: Result<IoOutput, IoError>) {
        self.now = self.now.max(now);
        let purpose = self.submissions.complete(id);
        if self.poison.is_some() {
            return;
        }
        self.finish_io(purpose, result);
        if self.poison.is_none() {
            self.run();
        }
    }

    /// Does what is due: to be called at [`Blobs::poll_timeout`] or soon after.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.poison.is_some() {
            return;
        }
        if self.scrub.due.is_some_and(|at| at <= self.now) {
            self.scrub_next();
        }
        self.run();
    }

    /// When [`Blobs::handle_timeout`] is to be called, if no other call comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.poison.is_some() {
            return None;
        }
        [self.log.seal_due(), self.compaction_due(), self.scrub.due].into_iter().flatten().min()
    }

    /// The next IO to execute. At most `ios_max` are given out and not completed at a time.
    pub fn poll_io(&mut self) -> Option<Io> {
        self.submissions.poll(self.config.ios_max)
    }

    /// The next answer.
    pub fn poll_reply(&mut self) -> Option<(RequestId, Result<BlobReply, BlobError>)> {
        self.replies.pop_front()
    }

    /// The next thing that the owner of the redundancy should know.
    pub fn poll_event(&mut self) -> Option<BlobEvent> {
        self.events.pop_front()
    }

    /// Computes what is in use once more, from the index.
    #[cfg(any(test, feature = "proof"))]
    fn check_accounts(&self) -> Result<(), String> {
        let mut live = vec![0; self.geometry.segments as usize];
        for (segment, entry) in self.index.all() {
            live[segment as usize] += entry.footprint();
        }
        for (number, live) in (0..).zip(live) {
            let segment = self.segments.get(number);
            let is_in_use = !matches!(segment.state, SegmentState::Free | SegmentState::Erasing);
            if segment.live != live || (live > 0 && !is_in_use) {
                return Err(format!("segment {number} has {live} bytes in use, but counts {segment:?}"));
            }
        }
        Ok(())
    }

    /// Goes on until nothing can be done without a completion.
    fn run(&mut self) {
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.step(id);
            }
            self.advance_compaction();
            self.log_next();
            // The log may have refused changes or dropped moves.
            if self.ready.is_empty() && !self.is_compaction_ready() {
                return;
            }
        }
    }

    /// A write or sync failed: what is on the drive is unknown from now on, so nothing is served and nothing retried.
    fn poison(&mut self, error: IoError) {
        self.poison = Some(error);
        for operation in core::mem::take(&mut self.operations).into_values() {
            if let Owner::Request(id) = operation.owner {
                self.replies.push_back((id, Err(BlobError::Poisoned(error))));
            }
        }
        (self.requests, self.put_bytes) = (0, 0);
        self.ready.clear();
        self.gates = BlobGates::default();
        self.log.clear();
        self.compaction = None;
        self.erasures.clear();
        self.submissions.abandon();
        self.events.push_back(BlobEvent::Poisoned(error));
    }
}

#[cfg(test)]
mod tests;
