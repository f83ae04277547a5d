//! What a member's roles share: who it is, its durable record, its fences, its outputs, and what its store is doing.

use alloc::collections::{BTreeMap, VecDeque};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::config::{Settings, Witnesses};
use crate::lease::Granted;
use crate::life::{Life, Lives};
use crate::member::{Output, Report};
use crate::message::{Body, Fault, Message};
use crate::record::Record;
use crate::request::{ClientResult, Generation, RequestId, Room, SessionId, StoreId, StoreRequest};

/// Volumes whose attach generation one member remembers.
pub(crate) const FENCES_MAX: usize = 65_536;

/// What a request to the store is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The promise of the present epoch.
    Promise,
    /// The watermark of committed writes.
    Watermark,
    /// The watermark that covers what the last copy had not proven.
    Proven,
    /// The greatest version here, on entering an epoch.
    Newest,
    /// An entry of the primary's stream.
    Entry(u64),
    /// The primary asked for a list behind this extent.
    ListFor(Option<ExtentId>),
    /// The primary asked for checksums.
    ChecksumsFor(ExtentId),
    /// The primary fetches an extent.
    DifferenceFor(ExtentId),
    /// A client's write, by its sequence number.
    Write(u64),
    /// A client's read, by its number.
    Read(u64),
    /// What a client's write finds, by its number.
    Probe(u64),
    /// The own part of the comparison of all acting members.
    MergeList,
    /// The own part of the comparison with a learner, and the number of the question.
    FillList(DriveId, u64),
    /// Checksums of an extent that is to be fetched.
    PullChecksums(ExtentId),
    /// An extent that was fetched.
    PullPatch(ExtentId),
    /// Checksums of a damaged extent.
    MendChecksums(ExtentId),
    /// A damaged extent that was fetched.
    MendPatch(ExtentId),
    /// An extent that is copied to a member.
    Copy(DriveId, ExtentId),
}

/// A request that the store has not completed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) epoch: Epoch,
    pub(crate) purpose: Purpose,
    pub(crate) is_change: bool,
}

/// The shared part.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) group: GroupId,
    pub(crate) drive: DriveId,
    pub(crate) life: Life,
    /// Lives of the others in the present epoch.
    pub(crate) lives: Lives,
    pub(crate) settings: Settings,
    pub(crate) epoch: Epoch,
    /// The drives that may have something of the group, and the epoch at which that is so.
    pub(crate) witnesses: (Epoch, Witnesses),
    pub(crate) record: Record,
    /// The greatest version of an extent that this copy has had in the present epoch.
    pub(crate) newest: Version,
    /// Whether the own drive has room.
    pub(crate) room: Room,
    /// The leases that this member granted to others, or may have granted in an earlier life.
    pub(crate) granted: Granted,
    pub(crate) fences: BTreeMap<VolumeId, Generation>,
    pub(crate) out: VecDeque<Output>,
    pub(crate) pending: BTreeMap<StoreId, Pending>,
    /// Changes that the store has not completed, of any epoch.
    pub(crate) changes: usize,
    next_store: u64,
}

impl Core {
    pub(crate) fn new(
        (group, drive, life): (GroupId, DriveId, Life),
        settings: Settings,
        record: Record,
        now: Instant,
    ) -> Self {
        Self {
            group,
            drive,
            life,
            lives: Lives::default(),
            settings,
            epoch: Epoch::ZERO,
            witnesses: (Epoch::ZERO, Witnesses::default()),
            record,
            newest: Version::ZERO,
            room: Room::default(),
            granted: Granted::new(now + settings.guard),
            fences: BTreeMap::new(),
            out: VecDeque::new(),
            pending: BTreeMap::new(),
            changes: 0,
            next_store: 0,
        }
    }

    pub(crate) fn send(&mut self, to: DriveId, body: Body) {
        let (from, to_life) = (self.life, self.lives.of(to));
        let message = Message { group: self.group, epoch: self.epoch, from, to: to_life, body };
        self.out.push_back(Output::Send { to, message });
    }

    pub(crate) fn store(&mut self, request: StoreRequest, purpose: Purpose) {
        self.next_store += 1;
        let id = StoreId(self.next_store);
        let is_change =
            matches!(request, StoreRequest::Write { .. } | StoreRequest::Patch { .. } | StoreRequest::Mend { .. });
        self.changes += usize::from(is_change);
        if let StoreRequest::Write { version, .. } | StoreRequest::Patch { version, .. } = &request {
            self.newest = self.newest.max(*version);
        }
        self.pending.insert(id, Pending { epoch: self.epoch, purpose, is_change });
        self.out.push_back(Output::Store { id, request });
    }

    /// Whether the store has not completed a request of this epoch for this purpose.
    pub(crate) fn is_storing(&self, purpose: &Purpose) -> bool {
        self.pending.values().any(|pending| pending.epoch == self.epoch && pending.purpose == *purpose)
    }

    /// Every write up to here is at all acting members. This one notes it as far as its own copy goes: the writes behind that may have been of a
    /// volume that was deleted at others, and a record that says more than the copy has makes it look like an earlier state of its drive.
    pub(crate) fn note_clean(&mut self, clean: Version) {
        self.record.clean = self.record.clean.max(clean.min(self.newest));
        debug_assert!(self.changes <= self.pending.len(), "changes are requests to the store");
    }

    pub(crate) fn reply(&mut self, session: SessionId, request: RequestId, result: ClientResult) {
        self.out.push_back(Output::Reply { session, request, result });
    }

    pub(crate) fn report_lost(&mut self, member: DriveId, fault: Fault) {
        let epoch = self.epoch;
        self.out.push_back(Output::Report(Report::Lost { epoch, member, fault }));
    }

    pub(crate) fn report_new_epoch(&mut self) {
        let epoch = self.epoch;
        self.out.push_back(Output::Report(Report::NewEpoch { epoch }));
    }

    /// Raises the fence of a volume. Says the greatest generation known, or nothing if there is no room.
    pub(crate) fn raise_fence(&mut self, volume: VolumeId, generation: Generation) -> Option<Generation> {
        if self.fences.len() >= FENCES_MAX && !self.fences.contains_key(&volume) {
            return None;
        }
        let known = self.fences.entry(volume).or_default();
        *known = generation.max(*known);
        Some(*known)
    }

    /// Writes the record, for this purpose.
    pub(crate) fn save(&mut self, purpose: Purpose) {
        let record = self.record.encode(self.group, self.drive);
        self.store(StoreRequest::Save { record }, purpose);
    }
}
