//! One run of the enumerator: an area, random requests, and ends of the process.

mod any;
mod ask;
mod compare;
mod flip;

use core::time::Duration;
use std::collections::BTreeMap;

use ashlar_wire::id::{BlobId, ClusterId, DriveId, ServerId};
use ashlar_wire::time::Instant;

use super::BlobCounts;
use super::model::{Change, Content, Model};
use crate::blob::planted::BlobBugs;
use crate::blob::{
    BlobConfig, BlobError, BlobEvent, BlobFormatting, BlobOpening, BlobReply, BlobRequest, BlobRequestKind, Blobs,
    ListDetail, NewBlobArea,
};
use crate::buffer::BLOCK_BYTES;
use crate::format::Existing;
use crate::io::IoKind;
use crate::opening::Expected;
use crate::proof::Chance;
use crate::proof::drive::FakeDrive;
use crate::request::RequestId;

const SEGMENT_BLOCKS: u32 = 64;
const SEGMENTS: u32 = 9;
/// Nine segments of 64 blocks.
pub(super) const AREA_BYTES: usize = (8 + SEGMENTS as usize * SEGMENT_BLOCKS as usize + 1) * BLOCK_BYTES;
/// Most bytes of a blob in such an area.
const BLOB_BYTES_MAX: u32 = SEGMENT_BLOCKS / 8 * BLOCK_BYTES as u32;

/// Different ids; each is put and removed many times.
const IDS: usize = 120;
const REQUESTS_MAX: usize = 24;
/// Most reads among them, so that slow ones do not keep changes away.
const READS_MAX: usize = 8;
/// Completions that a recovery or a quiet phase may take.
const STEPS_MAX: usize = 200_000;

/// What a request in progress is, for the model.
#[derive(Debug, Clone)]
enum Asked {
    Change(BlobId),
    Get { blob: BlobId, offset: u32, len: u32, version: usize },
    Head { blob: BlobId, version: usize },
}

/// What is more frequent until the next end.
#[derive(Debug, Clone, Copy)]
struct Mood {
    /// Blobs of up to this many bytes.
    len_max: u32,
    /// Of ten changes so many are removals.
    removals: usize,
    /// Reads take long.
    slow_reads: bool,
    /// Marks of segments that are erased take long.
    slow_marks: bool,
    /// Of so many completions one is that of a slow IO.
    slowness: usize,
    /// Few ids get most changes.
    few_ids: bool,
}

/// One run.
#[derive(Debug)]
pub(super) struct Run {
    drive: FakeDrive,
    chance: Chance,
    bugs: BlobBugs,
    counts: BlobCounts,
    area: NewBlobArea,
    now: Instant,
    blobs: Option<Blobs>,
    model: Model,
    asked: BTreeMap<RequestId, Asked>,
    next_request: u64,
    next_tag: u64,
    mood: Mood,
}

fn run_config() -> BlobConfig {
    BlobConfig {
        requests_max: REQUESTS_MAX,
        ios_max: 64,
        packed_bytes_max: 5_000,
        seal_after: Duration::from_millis(10),
        compaction_dead_percent_min: 30,
        compaction_step_bytes: 12 * 4_096,
        compaction_bytes_per_s: 4 << 20,
        scrub_interval: Some(Duration::from_millis(70)),
        list_max: 50,
        list_headers_max: 20,
        ..BlobConfig::default()
    }
}

impl Run {
    pub(super) fn new(drive: FakeDrive, seed: u64, bugs: BlobBugs, counts: BlobCounts) -> Self {
        let mut chance = Chance::new(seed);
        let half = chance.next().to_be_bytes();
        let id = |first: u8| core::array::from_fn(|index| if index == 0 { first } else { half[index % 8] });
        let area = NewBlobArea {
            cluster: ClusterId::from_bytes(id(1)),
            server: ServerId::from_bytes(id(2)),
            drive: DriveId::from_bytes(id(3)),
            nonce: id(4),
            bytes: drive.bytes() as u64,
            segment_blocks: SEGMENT_BLOCKS,
        };
        Self {
            drive,
            chance,
            bugs,
            counts,
            area,
            now: Instant::ORIGIN,
            blobs: None,
            model: Model::new(),
            asked: BTreeMap::new(),
            next_request: 0,
            next_tag: 1,
            mood: Mood {
                len_max: 4_096,
                removals: 4,
                slow_reads: false,
                slow_marks: false,
                slowness: 1,
                few_ids: false,
            },
        }
    }

    pub(super) fn end(self) -> (FakeDrive, BlobCounts) {
        (self.drive, self.counts)
    }

    /// Formats, opens, and makes sure that nothing is there.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        // What the run before had in progress.
        self.drive.crash(&mut self.chance);
        let formatting = BlobFormatting::with_bugs(&self.area, Existing::Overwrite, self.bugs);
        let mut formatting = formatting.map_err(|error| format!("format: {error}"))?;
        loop {
            while let Some(io) = formatting.poll_io() {
                self.drive.start(io);
            }
            if let Some(result) = formatting.poll_ready() {
                result.map_err(|error| format!("format: {error}"))?;
                break;
            }
            let index = self.chance.below(self.drive.in_flight());
            let (io, output) = self.drive.complete(index, &mut self.chance);
            formatting.handle_io(io.id, Ok(output));
        }
        self.drive.crash(&mut self.chance);
        self.open()?;
        self.compare_all()
    }

    /// Random requests, an end of the process, recovery, comparison.
    pub(super) fn next_state(&mut self) -> Result<(), String> {
        self.mood = Mood {
            len_max: [200, 6_000, BLOB_BYTES_MAX, BLOB_BYTES_MAX][self.chance.below(4)],
            removals: [1, 4, 5, 8][self.chance.below(4)],
            slow_reads: self.chance.one_in(3),
            slow_marks: self.chance.one_in(3),
            slowness: [4, 50, 400][self.chance.below(3)],
            few_ids: self.chance.one_in(3),
        };
        let steps_max = if self.chance.one_in(3) { 2_500 } else { 400 };
        let steps = 1 + self.chance.below(steps_max);
        for _ in 0..steps {
            self.random_step()?;
        }
        if self.chance.one_in(6) {
            self.empty_area()?;
        }
        if self.chance.one_in(4) {
            self.become_quiet()?;
            self.check_accounts()?;
        }
        if self.chance.one_in(2) {
            self.reach_write()?;
        }
        self.blobs = None;
        // A loss of power may follow on a kill at once.
        if self.chance.one_in(2) {
            self.drive.kill(&mut self.chance);
        } else {
            self.drive.crash(&mut self.chance);
        }
        self.counts.states += 1;
        self.counts.interrupted += self.model.values().map(|blob| blob.pending.len()).sum::<usize>();
        self.asked.clear();
        self.open()?;
        self.compare_all()
    }

    fn blobs(&mut self) -> &mut Blobs {
        self.blobs.as_mut().expect("the area is open")
    }

    fn open(&mut self) -> Result<(), String> {
        let expected = Expected { cluster: self.area.cluster, drive: Some(self.area.drive), bytes: self.area.bytes };
        let mut opening = BlobOpening::with_bugs(run_config(), expected, self.bugs);
        loop {
            while let Some(io) = opening.poll_io() {
                self.drive.start(io);
            }
            if let Some(result) = opening.poll_ready(self.now) {
                self.blobs = Some(result.map_err(|error| format!("open: {error}"))?);
                return Ok(());
            }
            let index = self.chance.below(self.drive.in_flight());
            let (io, output) = self.drive.complete(index, &mut self.chance);
            opening.handle_io(io.id, Ok(output));
        }
    }

    fn random_step(&mut self) -> Result<(), String> {
        match self.chance.below(10) {
            0..4 => self.random_request(),
            4..9 => self.complete_one(),
            _ => {
                let step = Duration::from_micros(self.chance.below(30_000) as u64);
                self.pass_time(step);
            }
        }
        self.take_answers()
    }

    /// Goes on until changes gather and a write is in flight: then the end decides what becomes of them.
    fn reach_write(&mut self) -> Result<(), String> {
        for _ in 0..300 {
            (0..self.chance.below(6)).for_each(|_| self.random_request());
            while let Some(io) = self.blobs().poll_io() {
                self.drive.start(io);
            }
            if self.drive.is_writing(&(0..AREA_BYTES as u64)) {
                break;
            }
            self.random_step()?;
        }
        Ok(())
    }

    fn pass_time(&mut self, step: Duration) {
        self.now = self.now + step;
        let now = self.now;
        if self.blobs().poll_timeout().is_some_and(|due| due <= now) {
            self.blobs().handle_timeout(now);
        }
    }

    /// Completes a random IO.
    fn complete_one(&mut self) {
        while let Some(io) = self.blobs().poll_io() {
            self.drive.start(io);
        }
        if self.drive.in_flight() == 0 {
            return;
        }
        let fast: Vec<usize> = (0..self.drive.in_flight()).filter(|index| !self.is_slow(*index)).collect();
        let index = match fast.len() {
            0 if !self.chance.one_in(8) => return,
            count if count > 0 && !self.chance.one_in(self.mood.slowness) => fast[self.chance.below(count)],
            _ => self.chance.below(self.drive.in_flight()),
        };
        let (io, output) = self.drive.complete(index, &mut self.chance);
        self.counts.ios += 1;
        let (now, free) = (self.now, self.blobs().stats().free_segments);
        self.blobs().handle_io(now, io.id, Ok(output));
        let gained = self.blobs().stats().free_segments.saturating_sub(free);
        self.counts.erased += usize::try_from(gained).expect("few");
    }

    /// Whether an IO in flight takes long.
    fn is_slow(&self, index: usize) -> bool {
        match self.drive.kind(index) {
            IoKind::Read { .. } => self.mood.slow_reads,
            IoKind::Write { data, .. } => {
                self.mood.slow_marks && data.len() == 1 && data[0].blocks() == 1 && data[0].bytes()[..4] == *b"asgm"
            }
            IoKind::Sync => false,
        }
    }

    /// Lets everything come to its end.
    fn become_quiet(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            self.complete_one();
            self.take_answers()?;
            if self.asked.is_empty() && self.drive.in_flight() == 0 {
                if self.blobs().is_settled() {
                    return Ok(());
                }
                self.pass_time(Duration::from_millis(5));
            }
        }
        Err(format!("the area never settles: {:?}", self.blobs().stats()))
    }

    /// Removes everything, however full the area is. Then the largest blob can be put.
    fn empty_area(&mut self) -> Result<(), String> {
        let may_exist = self.model.iter().filter(|(_, blob)| blob.now().is_some() || !blob.pending.is_empty());
        let held: Vec<BlobId> = may_exist.map(|(id, _)| *id).collect();
        for blob in held {
            while !self.ask_change(blob, Change::Remove) {
                self.complete_one();
                self.take_answers()?;
            }
        }
        self.become_quiet()?;
        self.check_accounts()?;
        let stats = self.blobs().stats();
        if stats.blobs > 0 || stats.free_segments + 2 < stats.segments {
            return Err(format!("an area that was emptied is not empty: {stats:?}"));
        }
        self.counts.emptied += 1;
        let content = Content { tag: self.new_tag(), len: BLOB_BYTES_MAX, stamp: 1 };
        let blob = self.random_id();
        let refused = self.counts.refused;
        self.ask_change(blob, Change::Put(content));
        self.become_quiet()?;
        if self.counts.refused > refused { Err("an empty area refuses a put".into()) } else { Ok(()) }
    }

    fn new_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }
}
