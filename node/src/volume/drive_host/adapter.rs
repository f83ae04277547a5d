//! Adapter between members and the store of their drive: each [`StoreRequest`] becomes one or several requests of the store.
//!
//! | request of a member | requests of the store |
//! |---|---|
//! | write of data | `Write` |
//! | write of zeroes | `Checksums` for whether the extent exists, then `Clear` or an empty `Replace` with the version |
//! | patch | `Salvage`, then `Replace`; to an earlier version, the extent is removed first. What is damaged stays lost |
//! | mend | the same, without the change of version; of another version's blocks, those that are lost here and known again |
//! | read | `Read` |
//! | whether there are blocks | `Checksums` |
//! | checksums, difference | `Salvage`, so that every block is verified and of one moment |
//! | list | `List`, page by page, without what is too old |
//! | record | `PutRecord` |
//!
//! A change that is refused takes those of its extent with it that wait behind it: what an extent has stays the effect of a
//! prefix of its changes, and a version stays a promise about content.
//!
//! The greatest version of a group is that of its extents. Below the watermark of its record it says that data of the drive
//! are older than the record, unless a volume was deleted here: then extents may be gone, and the record proves that they
//! were there.
//!
//! A patch to an earlier version happens at learners only. It is not atomic across a crash, and need not be: a learner
//! that restarts is compared and copied from the beginning, and what lies between has a version that the primary's
//! copy has not.
//!
//! Copies of data: one on the way in, from the buffer of the message to an aligned one ([`Adapter::handle_request`]), and
//! none on the way out, as replies share the store's buffer.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_replica::record::Record;
use ashlar_replica::request::{
    Content, Difference, EXTENT_BYTES_MAX, PAGE_MAX, Page, Range, Run, StoreError, StoreId, StoreReply, StoreRequest,
    StoreResult,
};
use ashlar_store::block::{BlockSet, EXTENT_BLOCKS, EXTENT_BYTES, LostBlocks};
use ashlar_store::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use ashlar_store::record::{Key, Value};
use ashlar_store::request::{Reply, Request, RequestId, RequestKind};
use ashlar_store::store::Store;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;
use bytes::Bytes;

use ashlar_store::Error;

use super::content::{self, Patched};
use forgetting::Forgetting;

use super::order::{Arrival, JobId, Order, Sharing};
use super::pace::Pace;

mod dropping;
mod forgetting;
mod steps;

/// Extents that are remembered as damaged; more are found again by reads and the scrub.
pub(super) const DAMAGED_MAX: usize = 4_096;
/// First bytes of the key of a member's record.
const RECORD_PREFIX: &[u8] = b"replica/";
const _: () = assert!(EXTENT_BYTES_MAX as usize == EXTENT_BYTES);

/// A request of a member that was completed.
#[derive(Debug)]
pub(super) enum Done {
    /// For [`ashlar_replica::Member::handle_stored`].
    Stored { group: GroupId, id: StoreId, result: StoreResult },
    /// The extents of a group that has left the drive are gone, or are left alone.
    Forgotten(GroupId),
    /// An extent that was damaged has been replaced.
    Mended(ExtentId),
    /// A volume was deleted, or why not.
    Deleted { volume: VolumeId, result: Result<(), Error> },
}

/// One request of a member on its way.
#[derive(Debug)]
struct Job {
    group: GroupId,
    id: StoreId,
    arrival: Arrival,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Write { extent: ExtentId, offset: u32, data: Segment, version: Version },
    Zeroes { extent: ExtentId, range: Range, version: Version, is_known: bool },
    Patch(Box<Patch>),
    Read { extent: ExtentId, range: Range },
    Checksums { extent: ExtentId },
    Occupied { extent: ExtentId },
    Presence { extent: ExtentId, range: Range },
    Difference { extent: ExtentId, than: Vec<Checksum> },
    List(Box<Listing>),
    Save { record: Vec<u8> },
    DeleteVolume(VolumeId),
    Forget(Box<Forgetting>),
    Drop { extent: ExtentId, version: Version },
}

/// A patch and how far it is.
#[derive(Debug)]
struct Patch {
    extent: ExtentId,
    runs: Vec<Run>,
    version: Version,
    /// The version stays as it is: see [`StoreRequest::Mend`].
    is_mend: bool,
    step: PatchStep,
    /// What is there now.
    held: Version,
    content: Option<Patched>,
    /// Blocks that the extent has, and that cannot be read afterwards.
    lost: LostBlocks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchStep {
    /// Version and, unless all of it is replaced, content are read.
    Looks,
    /// A later version is emptied, to be forgotten.
    Empties,
    Forgets,
    Replaces,
}

/// A list and how far it is.
#[derive(Debug)]
struct Listing {
    above: Version,
    after: Option<ExtentId>,
    /// The whole placement group is looked through, for its greatest version.
    seeks_newest: bool,
    cursor: Option<ExtentId>,
    newest: Version,
    page: Page,
}

/// What the adapter knows of a placement group.
#[derive(Debug, Default)]
struct Known {
    /// Requests that are not completed.
    jobs: usize,
    /// The greatest version that a list of the whole group found.
    listed: Option<Version>,
    /// The greatest version of a change that was completed here.
    completed: Version,
    /// The watermark in the saved record: all up to there was here.
    clean: Version,
    /// Extents without blocks that are being dropped.
    drops: usize,
}

/// What became of one request of the store.
enum Step {
    Next(RequestKind),
    Done(StoreResult),
}

/// The store and the members' requests on their way through it.
#[derive(Debug)]
pub(super) struct Adapter {
    pub(super) store: Store,
    drive: DriveId,
    /// Requests that the store takes at a time.
    in_store_max: usize,
    in_store: usize,
    jobs: Vec<Option<Job>>,
    free: Vec<JobId>,
    arrivals: u64,
    order: Order,
    /// Reads of whole extents, before they have a place in the order: they may see what comes later.
    reads: Pace,
    /// Patches, which have their place.
    patches: Pace,
    /// Patches that waited and may begin.
    released: VecDeque<JobId>,
    /// Requests that the store has no room for yet, in order.
    queue: VecDeque<(JobId, RequestKind)>,
    groups: BTreeMap<GroupId, Known>,
    records: BTreeMap<GroupId, Vec<u8>>,
    damaged: BTreeSet<ExtentId>,
    /// The last of them that members were told of.
    damaged_told: Option<ExtentId>,
    /// Extents of which a change was refused while others of it were under way, until none is.
    refused: BTreeMap<ExtentId, StoreError>,
    /// Groups that are being forgotten and were not told to stop.
    forgetting: BTreeSet<GroupId>,
    done: VecDeque<Done>,
}

impl Adapter {
    /// Takes an open store, and loads the members' records.
    pub(super) fn new(now: Instant, store: Store, in_store_max: usize) -> Self {
        let drive = store.superblock().drive;
        let mut adapter = Self {
            store,
            drive,
            in_store_max,
            in_store: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            order: Order::default(),
            reads: Pace::default(),
            patches: Pace::default(),
            released: VecDeque::new(),
            queue: VecDeque::new(),
            groups: BTreeMap::new(),
            records: BTreeMap::new(),
            damaged: BTreeSet::new(),
            damaged_told: None,
            refused: BTreeMap::new(),
            forgetting: BTreeSet::new(),
            done: VecDeque::new(),
        };
        adapter.load_records(now);
        adapter
    }

    /// Records are in the store's memory, so a scan needs no IO.
    fn load_records(&mut self, now: Instant) {
        let mut after = None;
        loop {
            let request = Request { deadline: Instant::NEVER, kind: RequestKind::Scan { after: after.take() } };
            self.store.handle_request(now, RequestId(u64::MAX), request).expect("an idle store is not busy");
            let Some((_, Ok(Reply::Records { records, more }))) = self.store.poll_completion() else {
                panic!("a scan of an open store is answered at once");
            };
            for (key, value) in &records {
                if let Some(group) = group_of_key(key) {
                    self.keep_record(group, value.as_bytes().to_vec());
                }
            }
            after = records.into_iter().next_back().map(|(key, _)| key);
            if !more || after.is_none() {
                return;
            }
        }
    }

    pub(super) fn keep_record(&mut self, group: GroupId, record: Vec<u8>) {
        if let Ok(decoded) = Record::decode(&record, group, self.drive) {
            let known = self.groups.entry(group).or_default();
            known.clean = known.clean.max(decoded.clean);
        }
        self.records.insert(group, record);
    }

    /// The last record that a member of this placement group saved.
    pub(super) fn record(&self, group: GroupId) -> Option<&[u8]> {
        self.records.get(&group).map(Vec::as_slice)
    }

    /// Requests that are not completed.
    pub(super) fn jobs(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    /// Requests that the store has and has not answered.
    #[cfg(test)]
    pub(super) const fn in_store(&self) -> usize {
        self.in_store
    }

    /// Requests of a placement group that are not completed.
    pub(super) fn jobs_of(&self, group: GroupId) -> usize {
        self.groups.get(&group).map_or(0, |known| known.jobs)
    }

    /// Marks an extent as damaged until it is replaced. Says whether that is new.
    pub(super) fn note_damage(&mut self, extent: ExtentId) -> bool {
        self.damaged.len() < DAMAGED_MAX && self.damaged.insert(extent)
    }

    /// Some of the damaged extents, each time those behind the last ones, with their placement groups.
    pub(super) fn next_damaged(&mut self, most: usize) -> Vec<(GroupId, ExtentId)> {
        let store = &self.store;
        self.damaged.retain(|extent| store.group_of(*extent).is_some());
        let from = self.damaged_told.take().map_or(Bound::Unbounded, Bound::Excluded);
        let told: Vec<ExtentId> = self.damaged.range((from, Bound::Unbounded)).take(most).copied().collect();
        self.damaged_told = told.last().copied();
        told.into_iter().filter_map(|extent| Some((store.group_of(extent)?, extent))).collect()
    }

    /// The next request that was completed.
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Takes a request of a member.
    pub(super) fn handle_request(&mut self, group: GroupId, id: StoreId, request: StoreRequest) {
        let work = self.work(group, request);
        self.begin(group, id, work);
    }

    /// Deletes a volume on this drive.
    pub(super) fn delete_volume(&mut self, volume: VolumeId) {
        self.begin(GroupId::default(), StoreId(0), Work::DeleteVolume(volume));
    }

    fn begin(&mut self, group: GroupId, id: StoreId, work: Work) {
        let arrival = Arrival(self.arrivals);
        self.arrivals += 1;
        self.groups.entry(group).or_default().jobs += 1;
        let (access, is_whole) = (work.access(), work.reads_whole());
        let job = Some(Job { group, id, arrival, work });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.jobs[slot.0 as usize] = job;
                slot
            }
            None => {
                self.jobs.push(job);
                JobId(u32::try_from(self.jobs.len() - 1).expect("jobs have a limit"))
            }
        };
        match access {
            Access::Change(extent, sharing) => self.order.handle_change(slot, arrival, group, extent, sharing),
            Access::Read(_) if is_whole && !self.reads.begin(slot) => {}
            Access::Read(extent) => self.order.handle_read(slot, extent),
            Access::List => self.order.handle_list(slot, group),
            Access::Free => self.order.start(slot),
        }
    }

    fn work(&self, group: GroupId, request: StoreRequest) -> Work {
        match request {
            StoreRequest::Write { extent, run: Run { offset, content: Content::Data(data) }, version } => {
                // The only copy of a payload: from the buffer it arrived in to one that a drive can be given.
                Work::Write { extent, offset, data: AlignedBuf::copy_of(&data).into(), version }
            }
            StoreRequest::Write { extent, run, version } => {
                Work::Zeroes { extent, range: run.range(), version, is_known: false }
            }
            StoreRequest::Patch { extent, runs, version } => Work::patch(extent, runs, version, false),
            StoreRequest::Mend { extent, runs, version } => Work::patch(extent, runs, version, true),
            StoreRequest::Read { extent, range } => Work::Read { extent, range },
            StoreRequest::Checksums { extent } => Work::Checksums { extent },
            StoreRequest::Occupied { extent } => Work::Occupied { extent },
            StoreRequest::Presence { extent, range } => Work::Presence { extent, range },
            StoreRequest::Difference { extent, than } => Work::Difference { extent, than },
            StoreRequest::List { above, after } => {
                let seeks_newest = self.groups.get(&group).is_none_or(|known| known.listed.is_none());
                let cursor = if seeks_newest { None } else { after };
                let (newest, page) = (Version::ZERO, Page::default());
                Work::List(Box::new(Listing { above, after, seeks_newest, cursor, newest, page }))
            }
            StoreRequest::Save { record } => Work::Save { record },
        }
    }

    /// Goes on until nothing can be done without a completed IO.
    pub(super) fn run(&mut self, now: Instant) {
        loop {
            self.begin_jobs();
            while self.in_store < self.in_store_max {
                let Some((slot, kind)) = self.queue.pop_front() else { break };
                self.in_store += 1;
                let request = Request { deadline: Instant::NEVER, kind };
                let taken = self.store.handle_request(now, RequestId(u64::from(slot.0)), request);
                taken.expect("the store is configured to take as many requests as it is given");
            }
            let Some((id, result)) = self.store.poll_completion() else { return };
            self.in_store -= 1;
            let slot = JobId(u32::try_from(id.0).expect("requests are named by jobs"));
            self.handle_completion(slot, result);
        }
    }

    fn begin_jobs(&mut self) {
        loop {
            if let Some(slot) = self.order.poll_start() {
                let is_patch = self.jobs[slot.0 as usize].as_ref().is_some_and(|job| job.work.is_patch());
                if !is_patch || self.patches.begin(slot) {
                    self.begin_job(slot);
                }
            } else if let Some(slot) = self.released.pop_front() {
                self.begin_job(slot);
            } else {
                return;
            }
        }
    }

    /// A job's turn has come. A change behind one that was refused is refused too.
    fn begin_job(&mut self, slot: JobId) {
        let place = &mut self.jobs[slot.0 as usize];
        let job = place.as_ref().expect("a job that starts exists");
        if let Access::Change(extent, _) = job.work.access()
            && let Some(error) = self.refused.get(&extent).copied()
        {
            let job = place.take().expect("it was just there");
            if matches!(job.work, Work::Drop { .. }) {
                return self.finish_drop(slot, &job, extent, false);
            }
            return self.finish(slot, job, Err(error));
        }
        let kind = job.first_request();
        self.queue.push_back((slot, kind));
    }

    fn handle_completion(&mut self, slot: JobId, result: Result<Reply, Error>) {
        let mut job = self.jobs[slot.0 as usize].take().expect("a request of the store belongs to a job");
        if let Work::DeleteVolume(volume) = job.work {
            self.done.push_back(Done::Deleted { volume, result: result.map(drop) });
            return self.release(slot, job.group);
        }
        if let Work::Drop { extent, .. } = job.work {
            return self.finish_drop(slot, &job, extent, result.is_ok());
        }
        if let Work::Forget(forgetting) = &mut job.work {
            let group = job.group;
            let next = self.advance_forgetting(group, forgetting, result);
            let Some(kind) = next else {
                self.release(slot, group);
                return self.end_forgetting(group);
            };
            self.jobs[slot.0 as usize] = Some(job);
            return self.queue.push_back((slot, kind));
        }
        match self.advance(&mut job, result) {
            Step::Next(kind) => {
                self.jobs[slot.0 as usize] = Some(job);
                self.queue.push_back((slot, kind));
            }
            Step::Done(result) => self.finish(slot, job, result),
        }
    }

    fn release(&mut self, slot: JobId, group: GroupId) {
        self.free.push(slot);
        self.groups.get_mut(&group).expect("a job has a group").jobs -= 1;
    }

    fn finish(&mut self, slot: JobId, job: Job, result: StoreResult) {
        let Job { group, id, arrival, work } = job;
        let mut result = result;
        if let Access::Change(extent, sharing) = work.access() {
            match (&result, self.refused.get(&extent)) {
                // It changes no version, so nothing behind it depends on it.
                (Err(_), _) if work.is_mend() => {}
                (Err(error), _) => drop(self.refused.insert(extent, *error)),
                (Ok(_), Some(error)) => {
                    // Its version says more than its content has.
                    result = Err(*error);
                    self.note_damage(extent);
                }
                (Ok(_), None) => {}
            }
            self.order.finish_change(arrival, group, extent, sharing);
            if !self.order.is_changing(extent) {
                self.refused.remove(&extent);
            }
        }
        self.end_whole(&work);
        let tells_more = result.is_ok() && matches!(work, Work::Save { .. } | Work::List(_));
        if result.is_ok() {
            self.note_done(group, work);
        }
        self.release(slot, group);
        if tells_more {
            self.drop_empty(group);
        }
        self.done.push_back(Done::Stored { group, id, result });
    }

    /// What waited for the end of a read of a whole extent, or of a patch, may begin.
    fn end_whole(&mut self, work: &Work) {
        if work.is_patch() {
            self.released.extend(self.patches.end());
        } else if work.reads_whole()
            && let Some(next) = self.reads.end()
            && let Some(job) = &self.jobs[next.0 as usize]
            && let Access::Read(extent) = job.work.access()
        {
            self.order.handle_read(next, extent);
        }
    }

    /// Remembers what a change did to the placement group.
    fn note_done(&mut self, group: GroupId, work: Work) {
        let known = self.groups.get_mut(&group).expect("a job has a group");
        match work {
            Work::Write { version, .. } | Work::Zeroes { version, .. } => {
                known.completed = known.completed.max(version);
            }
            Work::Patch(patch) => {
                known.completed = known.completed.max(patch.version);
                if patch.version < patch.held {
                    // The greatest version may be gone: it is looked for again.
                    (known.listed, known.completed) = (None, Version::ZERO);
                }
                if patch.lost.is_empty() && self.damaged.remove(&patch.extent) {
                    self.done.push_back(Done::Mended(patch.extent));
                }
            }
            Work::Save { record } => self.keep_record(group, record),
            Work::Read { .. } | Work::Checksums { .. } | Work::Occupied { .. } => {}
            Work::Presence { .. } | Work::Difference { .. } => {}
            Work::List(_) | Work::DeleteVolume(_) | Work::Forget(_) | Work::Drop { .. } => {}
        }
    }

    /// A placement group has left the drive and has no request under way. Its record stays on the drive.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.order.forget(group);
        if let Some(known) = self.groups.get_mut(&group) {
            assert!(known.jobs == 0, "a group leaves when nothing of it is under way");
            *known = Known { clean: known.clean, ..Known::default() };
        }
    }
}

/// What a job needs of the order.
enum Access {
    Change(ExtentId, Sharing),
    Read(ExtentId),
    List,
    Free,
}

impl Work {
    fn patch(extent: ExtentId, runs: Vec<Run>, version: Version, is_mend: bool) -> Self {
        let (step, held, content, lost) = (PatchStep::Looks, Version::ZERO, None, LostBlocks::default());
        Self::Patch(Box::new(Patch { extent, runs, version, is_mend, step, held, content, lost }))
    }

    const fn is_patch(&self) -> bool {
        matches!(self, Self::Patch(_))
    }

    /// Whether it reads an extent as a whole, for a copy.
    const fn reads_whole(&self) -> bool {
        matches!(self, Self::Checksums { .. } | Self::Difference { .. })
    }

    fn is_mend(&self) -> bool {
        matches!(self, Self::Patch(patch) if patch.is_mend)
    }

    fn access(&self) -> Access {
        match self {
            Self::Write { extent, .. } => Access::Change(*extent, Sharing::Shared),
            Self::Zeroes { extent, .. } => Access::Change(*extent, Sharing::Alone),
            Self::Patch(patch) => Access::Change(patch.extent, Sharing::Alone),
            Self::Drop { extent, .. } => Access::Change(*extent, Sharing::Shared),
            Self::Read { extent, .. }
            | Self::Checksums { extent }
            | Self::Occupied { extent }
            | Self::Presence { extent, .. }
            | Self::Difference { extent, .. } => Access::Read(*extent),
            Self::List(_) => Access::List,
            Self::Save { .. } | Self::DeleteVolume(_) | Self::Forget(_) => Access::Free,
        }
    }
}

impl Job {
    fn first_request(&self) -> RequestKind {
        let group = self.group;
        match &self.work {
            Work::Write { extent, offset, data, version } => {
                RequestKind::Write { extent: *extent, group, offset: *offset, data: data.clone(), version: *version }
            }
            Work::Zeroes { extent, .. } | Work::Occupied { extent } | Work::Presence { extent, .. } => {
                RequestKind::Checksums { extent: *extent }
            }
            Work::Patch(patch) if patch.needs_content() => RequestKind::Salvage { extent: patch.extent },
            Work::Patch(patch) => RequestKind::Checksums { extent: patch.extent },
            Work::Read { extent, range } => RequestKind::Read { extent: *extent, offset: range.offset, len: range.len },
            Work::Checksums { extent } | Work::Difference { extent, .. } => RequestKind::Salvage { extent: *extent },
            Work::List(listing) => RequestKind::List { group, after: listing.cursor },
            Work::Save { record } => put_record(group, record),
            Work::Forget(forgetting) => forgetting.first_request(group),
            Work::DeleteVolume(volume) => RequestKind::DeleteVolume { volume: *volume },
            Work::Drop { extent, version } => RequestKind::ForgetExtent { extent: *extent, version: *version },
        }
    }
}

fn put_record(group: GroupId, record: &[u8]) -> RequestKind {
    let value = Value::new(record).expect("a member's record is shorter than the store's longest");
    RequestKind::PutRecord { key: key_of_group(group), value }
}

/// Key of the record of a placement group's member: the prefix, set and group, big-endian.
fn key_of_group(group: GroupId) -> Key {
    let mut bytes = RECORD_PREFIX.to_vec();
    bytes.extend_from_slice(&group.set.0.to_be_bytes());
    bytes.extend_from_slice(&group.pg.0.to_be_bytes());
    Key::new(&bytes).expect("16 bytes are a key")
}

fn group_of_key(key: &Key) -> Option<GroupId> {
    let rest: [u8; 8] = key.as_bytes().strip_prefix(RECORD_PREFIX)?.try_into().ok()?;
    let number = |at: usize| rest[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
    Some(GroupId { set: ashlar_placement::map::SetId(number(0)), pg: ashlar_placement::map::PgId(number(4)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_placement::map::{PgId, SetId};

    #[test]
    fn a_records_key_has_golden_bytes() {
        let group = GroupId { set: SetId(0x0102_0304), pg: PgId(0x0506_0708) };
        let key = key_of_group(group);
        assert_eq!(key.as_bytes(), b"replica/\x01\x02\x03\x04\x05\x06\x07\x08");
        assert_eq!(group_of_key(&key), Some(group));
        for other in [&b"replica/"[..], b"replica/1234567", b"replicb/12345678"] {
            assert_eq!(group_of_key(&Key::new(other).unwrap()), None);
        }
    }
}
