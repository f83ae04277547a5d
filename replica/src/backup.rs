//! A backup or a learner: applies the primary's stream, grants it leases, and answers questions about its copy.
//!
//! A learner's copy is whole once everything before [`Entry::Whole`] is durable. Its record says so from then on, and the
//! entry counts as durable when the record is.

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::core_state::{Core, Purpose};
use crate::error::Error;
use crate::message::{Body, Fault, Standing};
use crate::planted::Planted;
use crate::request::{Difference, StoreReply, StoreRequest};
use crate::stream::{Entry, Incoming};

/// Whether the member's acknowledgement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It does: it has every acknowledged write.
    Backup,
    /// It is being filled.
    Learner,
}

/// A member that is not primary, in one epoch.
#[derive(Debug)]
pub(crate) struct Backup {
    primary: DriveId,
    kind: Kind,
    standing: Standing,
    incoming: Incoming,
    /// Number of the entry that says that the copy is whole, until all before it is durable.
    whole_at: Option<u64>,
    /// The watermark that came first with that entry: everything up to there is in the copies before it.
    whole_to: Option<Version>,
    /// When the primary was heard last, or the epoch was entered.
    heard: Instant,
    /// The primary's removal has been asked for: it gets no lease in this epoch any more.
    has_given_up: bool,
}

impl Backup {
    pub(crate) fn new(now: Instant, primary: DriveId, kind: Kind, standing: Standing) -> Self {
        let incoming = Incoming::default();
        Self { primary, kind, standing, incoming, whole_at: None, whole_to: None, heard: now, has_given_up: false }
    }

    /// Tells the primary that this member takes part.
    pub(crate) fn answer_adopt(&self, core: &mut Core) {
        let standing = Standing { room: core.room, ..self.standing };
        core.send(self.primary, Body::Adopted(standing));
    }

    /// A message of this epoch from the primary.
    pub(crate) fn handle(&mut self, core: &mut Core, now: Instant, body: Body) -> Result<(), Error> {
        if self.has_given_up {
            return Ok(());
        }
        self.heard = now;
        match body {
            Body::Adopt(_) => self.answer_adopt(core),
            Body::Lease { nonce, clean } => {
                core.granted.grant(now, self.primary, now + core.settings.guard);
                self.note_clean(core, clean);
                let progress = self.incoming.progress();
                let room = core.room;
                core.send(self.primary, Body::Leased { nonce, progress, room });
            }
            Body::Apply { index, clean, entry } => {
                self.check(core, &entry)?;
                self.note_clean(core, clean);
                if matches!(entry, Entry::Whole) && !core.settings.bugs.has(Planted::NoteNothingWhenWhole) {
                    self.whole_to.get_or_insert(clean);
                }
                self.apply(core, index, entry);
            }
            // Questions come again until they are answered: a slow drive is not to answer each of them.
            Body::List { above, after } if !core.is_storing(&Purpose::ListFor(after)) => {
                core.store(StoreRequest::List { above, after }, Purpose::ListFor(after));
            }
            Body::Inquire { extent } if !core.is_storing(&Purpose::ChecksumsFor(extent)) => {
                core.store(StoreRequest::Checksums { extent }, Purpose::ChecksumsFor(extent));
            }
            Body::List { .. } | Body::Inquire { .. } => {}
            Body::Fetch { extent, sums } => {
                core.store(StoreRequest::Difference { extent, than: sums }, Purpose::DifferenceFor(extent));
            }
            _ => return Err(Error::NotForRole),
        }
        Ok(())
    }

    /// Every write up to `clean` is at all acting members: at this one too, if it acts and its copy is what they hold it for.
    fn note_clean(&self, core: &mut Core, clean: Version) {
        if self.kind == Kind::Backup && !self.standing.is_partial {
            core.note_clean(clean);
        }
    }

    fn apply(&mut self, core: &mut Core, index: u64, entry: Entry) {
        self.incoming.accept(index, entry);
        let is_unordered = core.settings.bugs.has(Planted::ApplyAsArrived);
        loop {
            let next = if is_unordered { self.incoming.next_as_arrived() } else { self.incoming.next() };
            let Some((index, entry)) = next else { break };
            if let Entry::Write { extent, generation, .. } = &entry {
                // Without room the fence is what the server tells.
                core.raise_fence(extent.volume, *generation);
            }
            let request = match entry {
                Entry::Write { version, extent, run, .. } => StoreRequest::Write { extent, run, version },
                Entry::Patch { version, extent, runs } => StoreRequest::Patch { extent, runs, version },
                Entry::Whole => {
                    self.whole_at = Some(index);
                    continue;
                }
            };
            core.store(request, Purpose::Entry(index));
            if core.settings.bugs.has(Planted::AcknowledgeBeforeDurable) {
                self.incoming.handle_done(index);
            }
        }
        self.note_whole(core);
        core.send(self.primary, Body::Applied(self.incoming.progress()));
    }

    /// Notes durably that the copy is whole, once everything before that entry is durable.
    fn note_whole(&mut self, core: &mut Core) {
        if let Some(index) = self.whole_at
            && self.incoming.progress().durable + 1 == index
        {
            self.whole_at = None;
            core.record.is_partial = false;
            // The extents that had the greatest versions may have gone with a deleted volume: nothing else shows then that this copy is not
            // an earlier state of its drive.
            core.record.clean = core.record.clean.max(self.whole_to.take().unwrap_or_default());
            core.save(Purpose::Entry(index));
        }
    }

    /// The store has completed a request of this epoch.
    pub(crate) fn handle_stored(&mut self, core: &mut Core, purpose: Purpose, reply: StoreReply) -> Result<(), Error> {
        let body = match (purpose, reply) {
            (Purpose::Entry(index), StoreReply::Done) => {
                if !core.settings.bugs.has(Planted::AcknowledgeBeforeDurable) {
                    self.incoming.handle_done(index);
                }
                self.note_whole(core);
                Body::Applied(self.incoming.progress())
            }
            (Purpose::ListFor(after), StoreReply::List(page)) => Body::Listed { after, page },
            (Purpose::ChecksumsFor(extent), StoreReply::Checksums(sums)) => Body::Checksums { extent, sums },
            (Purpose::DifferenceFor(extent), StoreReply::Difference(difference)) => {
                Body::Fetched { extent, difference }
            }
            _ => return Err(Error::UnknownCompletion),
        };
        core.send(self.primary, body);
        Ok(())
    }

    /// Nothing of what was asked for can be read. The primary asks another member.
    pub(crate) fn handle_unreadable(&self, core: &mut Core, purpose: &Purpose) -> bool {
        let Purpose::DifferenceFor(extent) = purpose else { return false };
        let difference = Difference::of_nothing();
        core.send(self.primary, Body::Fetched { extent: *extent, difference });
        self.tell_damage(core, *extent);
        true
    }

    /// Tells the primary that the copy of an extent is damaged here.
    pub(crate) fn tell_damage(&self, core: &mut Core, extent: ExtentId) {
        core.send(self.primary, Body::Damaged { extent });
    }

    /// Periodic work.
    pub(crate) fn tick(&mut self, core: &mut Core, now: Instant) {
        if self.standing.is_partial && self.kind == Kind::Backup {
            // It must not outlive the members that have the data, so it asks for its own removal and for no other.
            return core.report_lost(core.drive, Fault::Blank);
        }
        let is_silent = now.saturating_since(self.heard) > core.settings.silence;
        if self.kind == Kind::Backup && is_silent {
            // The lease that the primary may hold is over: silence is at least as long as the guard.
            self.has_given_up = true;
            core.report_lost(self.primary, Fault::Silent);
        }
    }

    /// Whether an entry can be one of this epoch.
    fn check(&self, core: &Core, entry: &Entry) -> Result<(), Error> {
        let is_good = match entry {
            Entry::Write { version, run, .. } => {
                version.epoch == core.epoch && run.range().is_valid() && !run.is_lost()
            }
            Entry::Patch { version, runs, .. } => {
                version.epoch <= core.epoch && runs.iter().all(|run| run.range().is_valid())
            }
            Entry::Whole => self.kind == Kind::Learner,
        };
        if is_good || core.settings.bugs.has(Planted::NoEpochCheck) { Ok(()) } else { Err(Error::BadValue("entry")) }
    }
}
