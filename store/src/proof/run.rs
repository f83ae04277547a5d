//! One run of the enumerator: a drive, a store, random requests, and crashes.

mod answer;
mod ask;
mod compare;
mod flip;

use core::time::Duration;
use std::collections::BTreeMap;

use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, DriveId, ServerId, VolumeId};
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::drive::FakeDrive;
use super::model::{Change, ExtentModel, Model, VolumeState, block_bytes, data_of};
use super::{Chance, Counts};
use crate::block::{BlockChecksum, BlockRange, BlockSet, EXTENT_BLOCKS, LostBlocks};
use crate::buffer::BLOCK_BYTES;
use crate::config::Config;
use crate::error::Error;
use crate::format::{Existing, Formatting, NewDrive};
use crate::layout::{JOURNAL_BLOCKS_MIN, LayoutOptions};
use crate::opening::{Expected, Opening};
use crate::planted::Bugs;
use crate::record::{Key, Value};
use crate::request::{Event, Reply, Request, RequestId, RequestKind};
use crate::store::Store;

/// Crashes that are tried at one moment, each with other sectors kept. The run goes on from the last.
const IMAGES: usize = 4;

/// Twelve slots and the smallest journal.
pub(super) const DRIVE_BYTES: usize = (8 + JOURNAL_BLOCKS_MIN as usize + 240 + 12 * EXTENT_BLOCKS + 1) * 4096;

const JOURNAL_END: usize = 8 + JOURNAL_BLOCKS_MIN as usize;
const DATA_START: usize = DRIVE_BYTES / BLOCK_BYTES - 1 - 12 * EXTENT_BLOCKS;
/// Between the two copies of the tables.
const SECOND_COPIES: usize = JOURNAL_END + (DATA_START - JOURNAL_END) / 2;

const VOLUMES: u8 = 3;
const EXTENTS: u64 = 6;
const RECORDS: u8 = 12;
const RECORDS_MAX: u32 = 9;
const REQUESTS_MAX: usize = 24;
/// Completions that a recovery or a quiet phase may take.
const STEPS_MAX: usize = 200_000;

/// What a request in progress is, for the model.
#[derive(Debug, Clone)]
enum Asked {
    Change(ExtentId, Version),
    ForgetExtent(ExtentId),
    Read { id: ExtentId, range: BlockRange, least: Version, lives: u64 },
    DeleteVolume(VolumeId),
    ForgetVolume(VolumeId),
    Record(u8, Option<u64>),
}

/// One run.
#[derive(Debug)]
pub(super) struct Run {
    drive: FakeDrive,
    chance: Chance,
    bugs: Bugs,
    counts: Counts,
    identity: NewDrive,
    now: Instant,
    store: Option<Store>,
    model: Model,
    asked: BTreeMap<RequestId, Asked>,
    next_request: u64,
    epoch: u64,
    sequence: u64,
    next_tag: u64,
    next_volume: u8,
    mood: Mood,
}

/// How a drive rests while its bytes are flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quiet {
    /// Everything is in its place.
    Settled,
    /// The journal is needed, and has an empty batch at its end.
    Sealed,
}

/// What became of flipped bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlipCounts {
    /// Bytes that were flipped.
    pub flips: usize,
    /// Drives that refused to open.
    pub refused: usize,
    /// Drives with an extent that was reported as damaged. The others had nothing wrong.
    pub reported: usize,
}

/// What is more frequent in a state.
#[derive(Debug, Clone, Copy)]
struct Mood {
    /// Writes of most of an extent, so that the journal fills.
    large: bool,
    /// Writes that nobody waits for take long.
    slow_write_back: bool,
}

pub(super) fn test_config() -> Config {
    Config {
        requests_max: REQUESTS_MAX,
        ios_max: 12,
        write_back_ios_max: 5,
        pages_cached_max: 4,
        dirty_pages_max: 4,
        write_back_after: Duration::from_millis(40),
        seal_after: Duration::from_millis(10),
        scrub_interval: Some(Duration::from_millis(70)),
        ..Config::default()
    }
}

impl Run {
    pub(super) fn new(drive: FakeDrive, seed: u64, bugs: Bugs, counts: Counts) -> Self {
        let mut chance = Chance::new(seed);
        let half = chance.next().to_be_bytes();
        let id = |first: u8| core::array::from_fn(|index| if index == 0 { first } else { half[index % 8] });
        let identity = NewDrive {
            cluster: ClusterId::from_bytes(id(1)),
            server: ServerId::from_bytes(id(2)),
            drive: DriveId::from_bytes(id(3)),
            nonce: id(4),
            bytes: drive.bytes() as u64,
            options: LayoutOptions {
                journal_blocks: JOURNAL_BLOCKS_MIN,
                records_max: RECORDS_MAX,
                tombstones_max: 252,
            },
        };
        Self {
            drive,
            chance,
            bugs,
            counts,
            identity,
            now: Instant::ORIGIN,
            store: None,
            model: Model::default(),
            asked: BTreeMap::new(),
            next_request: 0,
            epoch: 1,
            sequence: 0,
            next_tag: 1,
            next_volume: 0,
            mood: Mood { large: false, slow_write_back: false },
        }
    }

    pub(super) fn end(self) -> (FakeDrive, Counts) {
        (self.drive, self.counts)
    }

    /// Formats, opens, and makes sure that nothing is there.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        // What the run before had in progress.
        self.drive.crash(&mut self.chance);
        let formatting = Formatting::with_bugs(&self.identity, Existing::Overwrite, self.bugs);
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
        for volume in 0..VOLUMES {
            self.new_volume(volume);
        }
        self.drive.crash(&mut self.chance);
        self.open()?;
        self.compare_all()
    }

    fn new_volume(&mut self, group: u8) {
        let mut id = [self.next_volume; 16];
        id[15] = group;
        self.next_volume = self.next_volume.wrapping_add(1);
        let volume = VolumeId::from_bytes(id);
        self.model.volumes.insert(volume, VolumeState::Live);
        for extent in 0..EXTENTS {
            self.model.extents.insert(ExtentId { volume, extent: Extent(extent) }, ExtentModel::default());
        }
    }

    /// Random requests, then crashes at that moment.
    pub(super) fn next_state(&mut self) -> Result<(), String> {
        self.mood = Mood { large: self.chance.one_in(3), slow_write_back: self.chance.one_in(2) };
        let steps_max = match self.chance.below(8) {
            0 => 20,
            1 | 2 => 1_200,
            _ if self.mood.large => 1_200,
            _ => 300,
        };
        let steps = 1 + self.chance.below(steps_max);
        for _ in 0..steps {
            self.random_step()?;
        }
        match self.chance.below(6) {
            0 | 1 => self.reach_write(8..JOURNAL_END)?,
            2 => self.reach_write(JOURNAL_END..SECOND_COPIES)?,
            3 => self.reach_write(SECOND_COPIES..DATA_START)?,
            _ => {}
        }
        if self.chance.one_in(5) {
            self.become_quiet()?;
            self.check_space()?;
        }
        self.store = None;
        self.asked.clear();
        self.epoch += 1;
        self.sequence = 0;
        let (drive, model) = (self.drive.clone(), self.model.clone());
        for image in 0..IMAGES {
            if image > 0 {
                (self.drive, self.model) = (drive.clone(), model.clone());
            }
            self.crash()?;
        }
        Ok(())
    }

    /// One crash, recovery, comparison.
    fn crash(&mut self) -> Result<(), String> {
        self.drive.crash(&mut self.chance);
        self.counts.states += 1;
        self.counts.interrupted += self.model.extents.values().map(|extent| extent.pending).sum::<usize>();
        self.open()?;
        self.compare_all()
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("the drive is open")
    }

    fn open(&mut self) -> Result<(), String> {
        let expected =
            Expected { cluster: self.identity.cluster, drive: Some(self.identity.drive), bytes: self.identity.bytes };
        let mut opening = Opening::with_bugs(test_config(), expected, self.bugs);
        loop {
            while let Some(io) = opening.poll_io() {
                self.drive.start(io);
            }
            if let Some(result) = opening.poll_ready(self.now) {
                self.store = Some(result.map_err(|error| format!("open: {error}"))?);
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

    /// Goes on until something is written to these blocks: a batch to the journal, or a page to the tables. Then a crash
    /// decides what becomes of it.
    fn reach_write(&mut self, blocks: core::ops::Range<usize>) -> Result<(), String> {
        let bytes = (blocks.start * BLOCK_BYTES) as u64..(blocks.end * BLOCK_BYTES) as u64;
        for _ in 0..300 {
            while let Some(io) = self.store().poll_io() {
                self.drive.start(io);
            }
            if self.drive.is_writing(&bytes) {
                break;
            }
            self.random_step()?;
        }
        Ok(())
    }

    fn pass_time(&mut self, step: Duration) {
        self.now = self.now + step;
        let now = self.now;
        if self.store().poll_timeout().is_some_and(|due| due <= now) {
            self.store().handle_timeout(now);
        }
    }

    /// Completes a random IO.
    fn complete_one(&mut self) {
        while let Some(io) = self.store().poll_io() {
            self.drive.start(io);
        }
        if self.drive.in_flight() == 0 {
            return;
        }
        let mut index = self.chance.below(self.drive.in_flight());
        if self.mood.slow_write_back && !self.drive.is_urgent(index) && !self.chance.one_in(8) {
            index = self.chance.below(self.drive.in_flight());
        }
        let (io, output) = self.drive.complete(index, &mut self.chance);
        self.counts.ios += 1;
        let now = self.now;
        self.store().handle_io(now, io.id, Ok(output));
    }

    fn complete_all(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            self.complete_one();
            self.take_answers()?;
            if self.asked.is_empty() && self.drive.in_flight() == 0 {
                return Ok(());
            }
        }
        Err("the store never comes to rest".into())
    }

    /// Lets everything come to its end.
    fn become_quiet(&mut self) -> Result<(), String> {
        for _ in 0..STEPS_MAX {
            self.complete_one();
            self.take_answers()?;
            if self.asked.is_empty() && self.drive.in_flight() == 0 {
                if self.store().is_settled() {
                    return Ok(());
                }
                self.pass_time(Duration::from_millis(5));
            }
        }
        Err("the store never settles".into())
    }
}

fn group_of(id: ExtentId) -> GroupId {
    GroupId { set: SetId(7), pg: PgId(u32::from(id.volume.as_bytes()[15])) }
}

fn record_value(value: u64) -> Value {
    // Lengths up to the greatest.
    let len = usize::try_from(value % 1_025).expect("short");
    let bytes: Vec<u8> = value.to_be_bytes().iter().copied().cycle().take(len.max(8)).collect();
    Value::new(&bytes).expect("up to 1 KiB")
}
