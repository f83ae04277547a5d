//! The state machine of one open drive.
//!
//! An operation is one request on its way: it enters a gate (order), waits for the table page of its extent (memory),
//! writes large data to a slot, and puts an entry into the journal. The entry is applied in memory and the request answered
//! when its batch is durable. Reads see what was applied, nothing earlier and nothing later.
//!
//! Cut by concern: `operation` (requests and their steps), `change` (what changes extents), `volume` (deleted volumes and
//! records), `read`, `commit` (batches), `residence` (table pages in memory), `write_back` (journal to place), `submit`
//! (IOs). Every `handle_*` ends in `run`, which goes on until nothing can be done without a completion.

mod change;
mod commit;
mod operation;
mod read;
mod residence;
mod submit;
mod volume;
mod write_back;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::checksum::Salt;
use ashlar_wire::id::VolumeId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::config::Config;
use crate::error::Error;
use crate::gate::{Gates, OpId};
use crate::index::Index;
use crate::io::{Io, IoError, IoId, IoOutput};
use crate::layout::{Geometry, Superblock};
use crate::page::PageId;
use crate::planted::Bugs;
use crate::request::{Event, Reply, Request, RequestId};
use crate::tables::Tables;
use commit::Journal;
use operation::{Operation, Owner};
use residence::Loading;
use submit::Submissions;
use write_back::Round;

/// One open drive. Made by [`crate::opening::Opening`].
#[derive(Debug)]
pub struct Store {
    config: Config,
    superblock: Superblock,
    geometry: Geometry,
    page_salt: Salt,
    /// The latest time that was told.
    now: Instant,
    tables: Tables,
    index: Index,
    gates: Gates,
    operations: BTreeMap<OpId, Operation>,
    next_op: u64,
    /// Requests among the operations: bounded by `requests_max`.
    requests: usize,
    /// Extents of deleted volumes that are being dropped.
    drops: usize,
    /// Operations that can go on.
    ready: VecDeque<OpId>,
    journal: Journal,
    submissions: Submissions,
    /// Pages that are being read, with who waits for them.
    loading: BTreeMap<PageId, Loading>,
    /// Pages of which both copies are damaged.
    damaged: BTreeSet<PageId>,
    round: Option<Round>,
    /// When write-back starts, at the latest.
    write_back_at: Option<Instant>,
    scrub: Scrub,
    completions: VecDeque<(RequestId, Result<Reply, Error>)>,
    events: VecDeque<Event>,
    poison: Option<IoError>,
    bugs: Bugs,
}

/// Where the scrub is.
#[derive(Debug)]
struct Scrub {
    /// When the next extent is due; none while one is read, or if there is no scrub.
    due: Option<Instant>,
    /// The extent that was read last.
    after: Option<ExtentId>,
}

/// Most events that wait for [`Store::poll_event`]; further reports of damage are dropped, as they come again.
pub const EVENTS_MAX: usize = 1_024;

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) superblock: Superblock,
    pub(crate) page_salt: Salt,
    pub(crate) tables: Tables,
    pub(crate) index: Index,
    pub(crate) journal: Journal,
}

pub(crate) use commit::{Journal as OpenJournal, JournalStart};

impl Store {
    /// A store that goes on from what recovery found.
    pub(crate) fn new(now: Instant, config: Config, recovered: Recovered, bugs: Bugs) -> Self {
        let Recovered { superblock, page_salt, tables, index, journal } = recovered;
        let is_dirty = !tables.dirty.is_empty();
        Self {
            config,
            superblock,
            geometry: superblock.geometry,
            page_salt,
            now,
            tables,
            index,
            gates: Gates::default(),
            operations: BTreeMap::new(),
            next_op: 0,
            requests: 0,
            drops: 0,
            ready: VecDeque::new(),
            journal,
            submissions: Submissions::default(),
            loading: BTreeMap::new(),
            damaged: BTreeSet::new(),
            round: None,
            write_back_at: is_dirty.then(|| now + config.write_back_after),
            scrub: Scrub { due: config.scrub_interval.map(|interval| now + interval), after: None },
            completions: VecDeque::new(),
            events: VecDeque::new(),
            poison: None,
            bugs,
        }
    }

    /// Who this drive is.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes of data that the drive can hold in all.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        let slots = (self.superblock.geometry.slots as usize).saturating_sub(crate::index::SLOTS_RESERVED);
        slots as u64 * crate::block::EXTENT_BYTES as u64
    }

    /// Bytes of data that can still be written to new extents.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let slots = self.index.free_slot_count().saturating_sub(crate::index::SLOTS_RESERVED);
        slots.min(self.free_extents()) as u64 * crate::block::EXTENT_BYTES as u64
    }

    /// Extents that can still be made, with data or without.
    #[must_use]
    pub fn free_extents(&self) -> usize {
        self.index.free_cells.len()
    }

    /// The extents of a placement group that have no data, ascending, with their versions.
    pub fn empty_extents(&self, group: GroupId) -> impl Iterator<Item = (ExtentId, Version)> {
        let end = |byte, extent| ExtentId { volume: VolumeId::from_bytes([byte; 16]), extent: Extent(extent) };
        let (first, last) = (end(0, 0), end(u8::MAX, u64::MAX));
        self.index.empty.range((group, first)..=(group, last)).map(|(_, extent)| {
            let info = self.tables.infos[self.index.by_extent[extent].0 as usize];
            (*extent, info.expect("a cell in the index is used").version)
        })
    }

    /// The placement group of an extent, if the extent exists.
    #[must_use]
    pub fn group_of(&self, extent: ExtentId) -> Option<GroupId> {
        let cell = self.index.by_extent.get(&extent)?;
        self.tables.infos[cell.0 as usize].map(|info| info.group)
    }

    /// Whether the drive remembers a deleted volume, so that extents may have gone.
    #[must_use]
    pub fn has_deleted_volumes(&self) -> bool {
        !self.index.tombstones.is_empty()
    }

    /// Whether everything acknowledged is in its place and the journal says so: nothing would have to be replayed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.operations.is_empty() && self.round.is_none() && self.tables.dirty.is_empty() && self.journal.is_settled()
    }

    /// Takes a request. Its answer comes from [`Store::poll_completion`].
    ///
    /// # Errors
    /// [`Error::Busy`] above `requests_max`: nothing was taken, and a retry is safe. Everything else is told by the
    /// completion.
    pub fn handle_request(&mut self, now: Instant, id: RequestId, request: Request) -> Result<(), Error> {
        self.now = self.now.max(now);
        if self.requests >= self.config.requests_max {
            return Err(Error::Busy);
        }
        if let Some(error) = self.poison {
            self.completions.push_back((id, Err(Error::Poisoned(error))));
            return Ok(());
        }
        self.requests += 1;
        self.start(Owner::Request(id), request);
        self.run();
        Ok(())
    }

    /// Takes the result of an IO of [`Store::poll_io`].
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
        self.run();
    }

    /// Does what is due: to be called at [`Store::poll_timeout`] or soon after.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = self.now.max(now);
        if self.poison.is_some() {
            return;
        }
        if self.write_back_at.is_some_and(|at| at <= self.now) {
            self.start_round();
        }
        if self.scrub.due.is_some_and(|at| at <= self.now) {
            self.scrub_next();
        }
        self.run();
    }

    /// When [`Store::handle_timeout`] is to be called, if no other call comes before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.poison.is_some() {
            return None;
        }
        let write_back = self.write_back_at.filter(|_| self.round.is_none());
        [write_back, self.journal.seal_due(), self.scrub.due].into_iter().flatten().min()
    }

    /// The next IO to execute. At most `ios_max` are given out and not completed at a time.
    pub fn poll_io(&mut self) -> Option<Io> {
        self.submissions.poll(self.config.ios_max)
    }

    /// The next answer.
    pub fn poll_completion(&mut self) -> Option<(RequestId, Result<Reply, Error>)> {
        self.completions.pop_front()
    }

    /// The next thing that the owner of the redundancy should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Goes on until nothing can be done without a completion.
    fn run(&mut self) {
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.step(id);
            }
            self.drop_doomed();
            self.advance_round();
            self.commit_next();
            if self.ready.is_empty() {
                return;
            }
        }
    }

    fn report_damage(&mut self, extent: ExtentId) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(Event::Damage { extent });
        }
    }

    /// A write or sync failed: what is on the drive is unknown from now on, so nothing is served and nothing retried.
    fn poison(&mut self, error: IoError) {
        self.poison = Some(error);
        let operations = core::mem::take(&mut self.operations);
        for operation in operations.into_values() {
            if let Owner::Request(id) = operation.owner {
                self.completions.push_back((id, Err(Error::Poisoned(error))));
            }
        }
        self.requests = 0;
        self.ready.clear();
        self.submissions.abandon();
        self.events.push_back(Event::Poisoned(error));
    }
}

#[cfg(test)]
mod tests;
