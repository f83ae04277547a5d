//! Opening of a drive: superblock, journal, tables, then the journal's entries once more.
//!
//! The journal is read first, so that only pages which its entries change stay in memory. Both copies of every page are
//! read: a copy that was damaged or lost shows, and is repaired by the next write-back. Nothing is written but zeroes over
//! the beginning of a batch that a crash has left torn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::{ClusterId, DriveId};
use ashlar_wire::time::Instant;

use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::config::Config;
use crate::error::OpenError;
use crate::index::Index;
use crate::io::{Durability, Io, IoError, IoId, IoKind, IoOutput};
use crate::journal::batch::{BatchSeq, decode_entries};
use crate::journal::entry::Entry;
use crate::journal::recover::{RecoveredJournal, recover_journal};
use crate::journal::ring::LiveBatch;
use crate::layout::{Geometry, Superblock};
use crate::page::{Page, PageId};
use crate::planted::Bugs;
use crate::store::{JournalStart, OpenJournal, Recovered, Store};
use crate::tables::{Residence, Tables};

/// Blocks of one read.
const CHUNK_BLOCKS: u32 = 256;

/// Which drive is meant.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// It must belong to this cluster.
    pub cluster: ClusterId,
    /// It must be this drive, if that is known.
    pub drive: Option<DriveId>,
    /// Bytes that it has now.
    pub bytes: u64,
}

/// What an IO is for.
#[derive(Debug, Clone, Copy)]
enum Part {
    Superblock(usize),
    Ring {
        first: u32,
        blocks: u32,
    },
    Pages {
        first: u32,
        pages: u32,
        copy: usize,
    },
    /// What is left of a torn batch is overwritten.
    Torn,
}

/// An entry of the journal with its data.
type Replay = Vec<(BatchSeq, Entry, Option<Segment>)>;

/// Reads a drive until it can be used, and overwrites what a crash left of a batch.
#[derive(Debug)]
pub struct Opening {
    config: Config,
    expected: Expected,
    bugs: Bugs,
    /// IOs that were not polled.
    queue: VecDeque<Io>,
    parts: BTreeMap<IoId, Part>,
    in_flight: usize,
    next_io: u64,
    superblocks: [Result<Superblock, OpenError>; 2],
    state: State,
}

#[derive(Debug)]
enum State {
    Superblocks,
    Ring {
        superblock: Superblock,
        ring: AlignedBuf,
    },
    Tables(Box<Loading>),
    Failed(OpenError),
    /// The result was taken.
    Done,
}

/// Tables while they are read.
#[derive(Debug)]
struct Loading {
    superblock: Superblock,
    page_salt: Salt,
    journal: RecoveredJournal,
    replay: Replay,
    /// Pages that the journal's entries change.
    touched: BTreeSet<PageId>,
    tables: Tables,
    /// Pages of which a copy is to be written again.
    repair: Vec<PageId>,
    next_page: u32,
    /// Chunks of which one copy has arrived; none in it if the drive failed the read.
    halves: BTreeMap<u32, (usize, Option<AlignedBuf>)>,
}

impl Opening {
    /// Begins to open a drive.
    #[must_use]
    pub fn new(config: Config, expected: Expected) -> Self {
        Self::with_bugs(config, expected, Bugs::default())
    }

    /// The same with a planted bug.
    #[must_use]
    pub fn with_bugs(config: Config, expected: Expected, bugs: Bugs) -> Self {
        let mut opening = Self {
            config,
            expected,
            bugs,
            queue: VecDeque::new(),
            parts: BTreeMap::new(),
            in_flight: 0,
            next_io: 0,
            superblocks: [Err(OpenError::NotFormatted); 2],
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
        self.submit(part, IoKind::Read { offset, len: blocks as usize * BLOCK_BYTES });
    }

    fn submit(&mut self, part: Part, kind: IoKind) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        self.parts.insert(id, part);
        self.queue.push_back(Io { id, kind });
    }

    /// The next IO to execute.
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
    /// When the IO is not in progress, or a read is answered with another length.
    pub fn handle_io(&mut self, id: IoId, result: Result<IoOutput, IoError>) {
        let part = self.parts.remove(&id).expect("an IO is completed once");
        self.in_flight -= 1;
        let data = |result: Result<IoOutput, IoError>, blocks: u32| {
            result.map(|output| output.into_data(blocks as usize * BLOCK_BYTES))
        };
        let handled = match part {
            Part::Superblock(copy) => {
                self.superblocks[copy] =
                    data(result, 1).map_err(OpenError::Io).and_then(|bytes| Superblock::decode(&bytes));
                if self.parts.is_empty() { self.choose_superblock() } else { Ok(()) }
            }
            Part::Ring { first, blocks } => self.take_ring(first, data(result, blocks)),
            Part::Pages { first, pages, copy } => self.take_pages(first, copy, data(result, pages).ok()),
            Part::Torn => result.map(drop).map_err(OpenError::Io),
        };
        if let Err(error) = handled {
            self.state = State::Failed(error);
            self.queue.clear();
        }
    }

    /// The store, or why there is none, once.
    pub fn poll_ready(&mut self, now: Instant) -> Option<Result<Store, OpenError>> {
        let is_ready = match &self.state {
            State::Failed(_) => true,
            State::Tables(loading) => self.parts.is_empty() && loading.next_page == loading.superblock.geometry.pages(),
            State::Superblocks | State::Ring { .. } | State::Done => false,
        };
        if !is_ready {
            return None;
        }
        match core::mem::replace(&mut self.state, State::Done) {
            State::Failed(error) => Some(Err(error)),
            State::Tables(loading) => Some(loading.finish(now, self.config, self.bugs)),
            _ => unreachable!("only these are ready"),
        }
    }

    fn choose_superblock(&mut self) -> Result<(), OpenError> {
        let superblock = match self.superblocks {
            [Ok(first), Ok(second)] if first != second => {
                return Err(OpenError::Damaged("the two superblocks differ"));
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
        let ring = AlignedBuf::zeroed(geometry.journal_blocks as usize);
        self.state = State::Ring { superblock, ring };
        for first in (0..geometry.journal_blocks).step_by(CHUNK_BLOCKS as usize) {
            let blocks = CHUNK_BLOCKS.min(geometry.journal_blocks - first);
            self.read(Part::Ring { first, blocks }, geometry.journal_offset(first), blocks);
        }
        Ok(())
    }

    fn take_ring(&mut self, first: u32, result: Result<AlignedBuf, IoError>) -> Result<(), OpenError> {
        let State::Ring { ring, .. } = &mut self.state else { return Ok(()) };
        let bytes = result.map_err(OpenError::Io)?;
        ring[first as usize * BLOCK_BYTES..][..bytes.len()].copy_from_slice(&bytes);
        if !self.parts.is_empty() {
            return Ok(());
        }
        let State::Ring { superblock, ring } = core::mem::replace(&mut self.state, State::Done) else {
            unreachable!("the state was just looked at");
        };
        let salt = self.salt(&superblock, b"journal");
        let journal = recover_journal(salt, &ring, self.bugs)?;
        let tables = Tables::new(superblock.geometry);
        let replay = plan_replay(&journal, ring, &superblock.geometry)?;
        let page = |entry| tables.page_of(entry).ok_or(OpenError::Damaged("journal: an entry is impossible"));
        let touched = replay.iter().map(|(_, entry, _)| page(entry)).collect::<Result<BTreeSet<_>, _>>()?;
        let page_salt = self.salt(&superblock, b"page");
        let halves = BTreeMap::new();
        let repair = Vec::new();
        let loading = Loading { superblock, page_salt, journal, replay, touched, tables, repair, next_page: 0, halves };
        self.state = State::Tables(Box::new(loading));
        self.read_more_pages();
        Ok(())
    }

    fn salt(&self, superblock: &Superblock, form: &[u8]) -> Salt {
        if self.bugs.has(crate::planted::Bug::ForgetIdentity) {
            return Salt::new(&[form]);
        }
        superblock.salt(form)
    }

    /// Keeps as many chunks on their way as the drive may be given reads.
    fn read_more_pages(&mut self) {
        while self.parts.len() < self.config.ios_max {
            let State::Tables(loading) = &mut self.state else { return };
            let geometry = loading.superblock.geometry;
            let first = loading.next_page;
            if first == geometry.pages() {
                return;
            }
            let pages = CHUNK_BLOCKS.min(geometry.pages() - first);
            loading.next_page += pages;
            for copy in [0, 1] {
                let offset = geometry.page_offset(PageId(first), copy);
                self.read(Part::Pages { first, pages, copy }, offset, pages);
            }
        }
    }

    fn take_pages(&mut self, first: u32, copy: usize, bytes: Option<AlignedBuf>) -> Result<(), OpenError> {
        let State::Tables(loading) = &mut self.state else { return Ok(()) };
        match loading.halves.remove(&first) {
            None => drop(loading.halves.insert(first, (copy, bytes))),
            Some((other, other_bytes)) => {
                assert!(copy != other, "the copies of a chunk are read once each");
                let copies = if copy == 0 { [&bytes, &other_bytes] } else { [&other_bytes, &bytes] };
                loading.take_chunk(first, copies.map(Option::as_ref))?;
            }
        }
        self.read_more_pages();
        if self.parts.is_empty() {
            self.clear_torn();
        }
        Ok(())
    }

    /// Everything was read: overwrites the first block of what was not finished when the drive was used last.
    fn clear_torn(&mut self) {
        let State::Tables(loading) = &mut self.state else { return };
        let geometry = loading.superblock.geometry;
        for at in core::mem::take(&mut loading.journal.torn) {
            let (offset, data) = (geometry.journal_offset(at), vec![AlignedBuf::zeroed(1).into()]);
            self.submit(Part::Torn, IoKind::Write { offset, data, durability: Durability::Durable });
        }
    }
}

/// The entries to be repeated, with their data in the ring.
fn plan_replay(journal: &RecoveredJournal, ring: AlignedBuf, geometry: &Geometry) -> Result<Replay, OpenError> {
    const IMPOSSIBLE: OpenError = OpenError::Damaged("journal: an entry is impossible");
    let ring = Arc::new(ring);
    let mut replay = Vec::new();
    for batch in &journal.batches {
        for (entry, first) in decode_entries(&ring, batch).ok_or(IMPOSSIBLE)? {
            let slot = if let Entry::Put(put) = &entry { put.slot } else { None };
            if slot.is_some_and(|slot| slot.0 >= geometry.slots) {
                return Err(IMPOSSIBLE);
            }
            let blocks = entry.data_blocks();
            let data = (blocks > 0).then(|| Segment::new(Arc::clone(&ring), first, blocks));
            replay.push((batch.sequence, entry, data));
        }
    }
    Ok(replay)
}

impl Loading {
    fn take_chunk(&mut self, first: u32, copies: [Option<&AlignedBuf>; 2]) -> Result<(), OpenError> {
        let pages = copies.iter().flatten().map(|bytes| bytes.blocks()).max().unwrap_or(0);
        if pages == 0 {
            return Err(OpenError::Damaged("tables: both copies of a page cannot be read"));
        }
        for index in 0..pages {
            let id = PageId(first + u32::try_from(index).expect("a chunk has a limit"));
            let decode = |bytes: Option<&AlignedBuf>| {
                let page = bytes.and_then(|bytes| Page::decode(self.page_salt, id, bytes.block(index)));
                page.filter(|page| self.tables.fits(page))
            };
            let pages = copies.map(decode);
            let [first, second] = pages.each_ref().map(|page| page.as_ref().map(|page| page.sequence));
            let is_same = first == second;
            let copy = usize::from(second > first);
            let [first, second] = pages;
            let newest = if copy == 0 { first } else { second };
            let page = newest.ok_or(OpenError::Damaged("tables: both copies of a page"))?;
            if !is_same {
                self.repair.push(id);
            }
            let is_needed = !is_same || self.touched.contains(&id);
            self.tables.install(page, copy, if is_needed { Residence::Memory } else { Residence::Drive });
        }
        Ok(())
    }

    fn finish(mut self, now: Instant, config: Config, bugs: Bugs) -> Result<Store, OpenError> {
        let newest = self.journal.batches.last().expect("a recovered journal has a batch");
        let (sequence, tail) = (newest.sequence, self.journal.batches[0].sequence);
        for (sequence, entry, data) in &self.replay {
            self.tables.apply(entry, data.as_ref(), *sequence);
        }
        for page in self.repair {
            self.tables.dirty.insert(page, sequence);
        }
        let geometry = self.superblock.geometry;
        let slots_ok =
            self.tables.infos.iter().flatten().all(|info| info.slot.is_none_or(|slot| slot.0 < geometry.slots));
        if !slots_ok {
            return Err(OpenError::Damaged("tables: a slot does not exist"));
        }
        let index = Index::build(&self.tables, &geometry)?;
        let live = |batch: &crate::journal::batch::BatchHeader| LiveBatch {
            sequence: batch.sequence,
            position: batch.position,
            blocks: u32::try_from(batch.blocks()).expect("a batch has a limit"),
        };
        let salt = if bugs.has(crate::planted::Bug::ForgetIdentity) {
            Salt::new(&[b"journal"])
        } else {
            self.superblock.salt(b"journal")
        };
        let journal = OpenJournal::new(JournalStart {
            salt,
            ring_blocks: geometry.journal_blocks,
            live: self.journal.batches.iter().map(live).collect(),
            generation: self.journal.generation,
            tail,
            seal_at: now + config.seal_after,
        });
        let recovered =
            Recovered { superblock: self.superblock, page_salt: self.page_salt, tables: self.tables, index, journal };
        Ok(Store::new(now, config, recovered, bugs))
    }
}
