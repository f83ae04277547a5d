//! Mending: an extent of which a copy cannot be read any more is made whole from another copy, while the group serves.
//!
//! A drive finds damage as it is read, for a client, for a copy or by its scrub. The primary fetches its own copy anew from members
//! that have the same version of the extent: a version stands for one content, so those copies are right, block by block, as far as
//! they can be read. A damaged copy of another member is replaced from the primary's. Meanwhile writes of the extent are refused, to
//! be repeated, so that no version moves on between the question and the answer, and reads that found the damage wait.
//!
//! Where an acting member has another version, it takes over, and this copy is filled like a learner's.
//!
//! Where one member is left to act, a drive that is away may be the only one that has what is damaged. Such are waited for, a few
//! minutes, and what perhaps was not acknowledged can become another version: see [`super::alone`].
//!
//! What nobody can read is *lost*: reads of it are refused, and writes of it make it whole. Copies of the extent have those blocks
//! as lost, so that one of them does not keep a learner from being filled with all the others. A member that joins later may have
//! the version; so a lost extent is looked into again when it is read, after a while, and in the next epoch.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::{Peer, Phase, Primary};
use crate::core_state::{Core, Purpose};
use crate::error::Refusal;
use crate::member::Output;
use crate::message::{Body, Fault};
use crate::planted::Planted;
use crate::request::{Difference, StoreRequest};

/// Extents that are mended at a time. Damage of more is found again.
const MENDS_MAX: usize = 64;
/// Extents that are remembered as lost in part. More are looked into again when their damage is found again.
const LOST_MAX: usize = 4_096;
/// How long damage of such an extent is not looked into again: that costs a read of it at every member.
const LOST_FOR: Duration = Duration::from_secs(30);
/// How often a read waits for a mend. What is damaged again and again is not worth another attempt.
const READ_ATTEMPTS: u32 = 3;

/// Extents of which blocks are lost, and until when that counts as known.
pub(super) type Lost = BTreeMap<ExtentId, Instant>;

/// An extent of which copies are damaged.
#[derive(Debug)]
pub(super) struct Mend {
    /// Whose.
    damaged: BTreeSet<DriveId>,
    /// Who was asked and could not make the primary's copy whole.
    unfit: BTreeSet<DriveId>,
    /// Those of them that lack blocks themselves.
    lossy: BTreeSet<DriveId>,
    /// Reads that found the primary's copy damaged.
    reads: Vec<u64>,
    /// Since when drives that are away are waited for.
    waits_since: Option<Instant>,
    step: Step,
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Earlier writes of the extent are under way, or nobody can be asked before then.
    Waits(Instant),
    ReadsOwnChecksums(DriveId),
    Fetches(DriveId, Vec<Checksum>),
    Stores(DriveId),
    /// The extent becomes what that member has, by this version.
    Becomes(DriveId, Version),
    /// The others get it from here.
    Copies,
}

impl Step {
    const AT_ONCE: Self = Self::Waits(Instant::ORIGIN);
}

impl Primary {
    /// Whether the primary cannot read its own copy of an extent.
    pub(super) fn is_own_damaged(&self, core: &Core, extent: ExtentId) -> bool {
        self.mends.get(&extent).is_some_and(|mend| mend.damaged.contains(&core.drive))
    }

    /// Whether writes of an extent have to wait.
    pub(super) fn is_mending(&self, core: &Core, extent: ExtentId) -> bool {
        self.mends.contains_key(&extent) && !core.settings.bugs.has(Planted::WriteWhileMending)
    }

    /// A copy of an extent is damaged: that of this drive.
    pub(crate) fn handle_damage(&mut self, core: &mut Core, now: Instant, drive: DriveId, extent: ExtentId) {
        if !self.is_lost(now, extent) {
            self.note_damage(core, drive, extent);
            self.advance_mends(core, now);
        }
    }

    /// Whether it is known that nobody can read some blocks of an extent.
    fn is_lost(&self, now: Instant, extent: ExtentId) -> bool {
        self.lost.get(&extent).is_some_and(|until| now < *until)
    }

    /// Whether copies of an extent have what is lost as lost.
    pub(super) fn copies_lost(&self, extent: ExtentId) -> bool {
        self.lost.contains_key(&extent)
    }

    /// Says whether it will be mended. With too many mends under way it will when it is found again.
    fn note_damage(&mut self, core: &Core, drive: DriveId, extent: ExtentId) -> bool {
        let is_member = drive == core.drive || self.peers.contains_key(&drive);
        let has_room = self.mends.len() < MENDS_MAX || self.mends.contains_key(&extent);
        if !matches!(self.phase, Phase::Active) || !is_member || !has_room {
            return false;
        }
        let mend = self.mends.entry(extent).or_insert_with(Mend::new);
        if mend.damaged.insert(drive) && drive == core.drive && mend.step == Step::Copies {
            // Nothing can be copied from here before it is whole.
            mend.step = Step::AT_ONCE;
        }
        true
    }

    /// The store could not read what it was asked for. Says whether that will be mended; otherwise this copy cannot be relied upon.
    pub(crate) fn handle_unreadable(&mut self, core: &mut Core, now: Instant, purpose: &Purpose) -> bool {
        let is_taken = match purpose {
            Purpose::Read(number) => self.handle_unreadable_read(core, *number),
            Purpose::Copy(drive, extent) => {
                self.handle_unreadable_copy(core, now, *drive, *extent);
                true
            }
            Purpose::MendPatch(extent) => {
                if let Some(mend) = self.mends.get_mut(extent)
                    && let Step::Stores(holder) | Step::Becomes(holder, _) = mend.step
                {
                    mend.unfit.insert(holder);
                    mend.step = Step::AT_ONCE;
                }
                true
            }
            _ => false,
        };
        if is_taken {
            self.handle_progress(core, now);
        }
        is_taken
    }

    /// A copy to another member found damage here.
    pub(super) fn handle_unreadable_copy(&mut self, core: &mut Core, now: Instant, drive: DriveId, extent: ExtentId) {
        if let Some(peer) = self.peers.get_mut(&drive) {
            peer.copier.give_back(extent);
        }
        let was_lost = self.copies_lost(extent);
        self.note_damage(core, core.drive, extent);
        if was_lost && let Some(mend) = self.mends.get_mut(&extent) {
            // Not even what can be read of it is known: not at once again.
            mend.step = Step::Waits(now + core.settings.silence);
        }
        if !matches!(self.phase, Phase::Active) {
            // Members are being made equal: another one has to take over.
            self.own_fault = Some(Fault::Damaged);
        }
    }

    fn handle_unreadable_read(&mut self, core: &mut Core, number: u64) -> bool {
        let Some(read) = self.reads.get_mut(&number) else { return true };
        let extent = read.extent;
        read.attempts += 1;
        let is_last = read.is_last || read.attempts > READ_ATTEMPTS;
        if !read.is_last && is_last && self.backups().next().is_some() {
            // The drive does not keep what it is mended with: another member takes over.
            self.own_fault = Some(Fault::Damaged);
            return true;
        }
        if is_last || !self.note_damage(core, core.drive, extent) {
            let refusal = if is_last { Refusal::Damaged } else { Refusal::Busy };
            self.refuse_read(core, number, refusal);
            return true;
        }
        if let Some(mend) = self.mends.get_mut(&extent) {
            mend.reads.push(number);
        }
        true
    }

    /// Goes on with every extent that is being mended.
    pub(super) fn advance_mends(&mut self, core: &mut Core, now: Instant) {
        let extents: Vec<ExtentId> = self.mends.keys().copied().collect();
        for extent in extents {
            self.advance_mend(core, now, extent);
        }
    }

    fn advance_mend(&mut self, core: &mut Core, now: Instant, extent: ExtentId) {
        let Some(mend) = self.mends.get(&extent) else { return };
        match mend.step {
            Step::Waits(until) if now >= until && !self.is_written(extent) => self.begin_mend(core, now, extent),
            Step::Copies if !self.is_copied(extent) => drop(self.mends.remove(&extent)),
            _ => {}
        }
    }

    /// Whether a write of an extent is under way.
    fn is_written(&self, extent: ExtentId) -> bool {
        let is_probed = self.probes.values().any(|probe| probe.request.extent == extent);
        is_probed || self.window.iter().any(|write| write.extent == extent)
    }

    /// Whether a damaged copy of an extent is still being replaced.
    fn is_copied(&self, extent: ExtentId) -> bool {
        let Some(mend) = self.mends.get(&extent) else { return false };
        let copied = mend.damaged.iter().filter_map(|drive| self.peers.get(drive));
        copied.filter(|peer| peer.is_required()).any(|peer| peer.copier.is_copying(extent))
    }

    fn begin_mend(&mut self, core: &mut Core, now: Instant, extent: ExtentId) {
        let Some(mend) = self.mends.get(&extent) else { return };
        if !mend.damaged.contains(&core.drive) {
            return self.copy_to_damaged(core, extent);
        }
        if let Some(holder) = self.holder(mend) {
            self.step_to(extent, Step::ReadsOwnChecksums(holder));
            core.store(StoreRequest::Checksums { extent }, Purpose::MendChecksums(extent));
        } else if self.has_other_version(mend) && !self.lacks_members() {
            self.own_fault = Some(Fault::Damaged);
        } else if self.lacks_members() || self.awaits_witnesses(core, now, extent) {
            let later = now + core.settings.silence;
            if let Some(mend) = self.mends.get_mut(&extent) {
                (mend.unfit, mend.lossy) = (BTreeSet::new(), BTreeSet::new());
                mend.step = Step::Waits(later);
            }
        } else {
            self.give_up(core, now, extent);
        }
    }

    fn copy_to_damaged(&mut self, core: &mut Core, extent: ExtentId) {
        let Some(mend) = self.mends.get(&extent) else { return };
        let behind: Vec<DriveId> = mend.damaged.iter().copied().filter(|drive| *drive != core.drive).collect();
        for drive in behind {
            self.queue_copy(drive, extent);
        }
        self.step_to(extent, Step::Copies);
        self.advance_copies(core);
    }

    /// Who has not been asked: an acting member if one is there.
    fn holder(&self, mend: &Mend) -> Option<DriveId> {
        let is_asked = |drive: &DriveId| mend.unfit.contains(drive);
        let mut fit = self
            .peers
            .iter()
            .filter(|(drive, peer)| peer.standing.is_some() && peer.fault.is_none() && !is_asked(drive));
        let first = fit.clone().find(|(_, peer)| peer.fill.is_none());
        first.or_else(|| fit.next()).map(|(drive, _)| *drive)
    }

    /// Whether somebody who may have it is not there: a member has not entered the epoch yet, or an acting one is about to be
    /// taken out, or there are fewer members than copies that writes need. Like writes, reads of the damage wait for those.
    fn lacks_members(&self) -> bool {
        let is_out = |peer: &Peer| peer.standing.is_none() || peer.fill.is_none() && peer.fault.is_some();
        self.peers.len() + 1 < usize::from(self.configuration.min_copies) || self.peers.values().any(is_out)
    }

    /// Whether the last copy waits for drives that are away and may have what it cannot read. Asks the catalog for them.
    fn awaits_witnesses(&mut self, core: &mut Core, now: Instant, extent: ExtentId) -> bool {
        if !self.lacks_witnesses(core) {
            return false;
        }
        let Some(mend) = self.mends.get_mut(&extent) else { return false };
        if mend.waits_since.is_none() {
            core.out.push_back(Output::Awaits { extent });
        }
        let since = *mend.waits_since.get_or_insert(now);
        let waits = now.saturating_since(since) < core.settings.awaited;
        if waits {
            core.report_lost(core.drive, Fault::Damaged);
        }
        waits
    }

    /// Whether an acting member could be asked and has another version than the primary.
    fn has_other_version(&self, mend: &Mend) -> bool {
        self.backups().any(|(drive, _)| mend.unfit.contains(&drive) && !mend.lossy.contains(&drive))
    }

    /// Nobody can read what is damaged.
    fn give_up(&mut self, core: &mut Core, now: Instant, extent: ExtentId) {
        let Some(mend) = self.mends.get_mut(&extent) else { return };
        mend.damaged.remove(&core.drive);
        // What those lack may be whole here.
        mend.damaged.append(&mut mend.lossy);
        let reads = core::mem::take(&mut mend.reads);
        if self.lost.len() >= LOST_MAX {
            self.lost.retain(|_, until| now < *until);
            if self.lost.len() >= LOST_MAX {
                self.lost.pop_first();
            }
        }
        self.lost.insert(extent, now + LOST_FOR);
        core.out.push_back(Output::Lost { extent });
        // A write that was under way may have made their blocks whole.
        for number in reads {
            if let Some(read) = self.reads.get_mut(&number) {
                read.is_last = true;
                core.store(StoreRequest::Read { extent, range: read.range }, Purpose::Read(number));
            }
        }
        self.copy_to_damaged(core, extent);
    }

    fn refuse_read(&mut self, core: &mut Core, number: u64, refusal: Refusal) {
        if let Some(read) = self.reads.remove(&number) {
            core.reply(read.session, read.request, Err(refusal));
        }
    }

    fn step_to(&mut self, extent: ExtentId, step: Step) {
        if let Some(mend) = self.mends.get_mut(&extent) {
            mend.step = step;
        }
    }

    pub(super) fn handle_mend_checksums(&mut self, core: &mut Core, extent: ExtentId, sums: Vec<Checksum>) {
        let Some(mend) = self.mends.get_mut(&extent) else { return };
        if let Step::ReadsOwnChecksums(holder) = mend.step {
            mend.step = Step::Fetches(holder, sums.clone());
            core.send(holder, Body::Fetch { extent, sums });
        }
    }

    pub(super) fn handle_mend_fetched(
        &mut self,
        core: &mut Core,
        from: DriveId,
        extent: ExtentId,
        difference: Difference,
    ) {
        let becomes = !difference.has_lost() && self.may_become(core, from, extent, difference.version);
        let Some(mend) = self.mends.get_mut(&extent) else { return };
        if !matches!(&mend.step, Step::Fetches(holder, _) if *holder == from) {
            return;
        }
        if difference.has_lost() {
            mend.lossy.insert(from);
        }
        mend.step = Step::Stores(from);
        let Difference { mut version, mut runs } = difference;
        runs.retain(|run| !run.is_lost());
        if becomes {
            version = self.next_version(core);
            self.step_to(extent, Step::Becomes(from, version));
        }
        let request = if becomes || core.settings.bugs.has(Planted::MendFromAnyVersion) {
            StoreRequest::Patch { extent, runs, version }
        } else {
            StoreRequest::Mend { extent, runs, version }
        };
        core.store(request, Purpose::MendPatch(extent));
    }

    /// The primary's copy is whole again: reads that waited go on.
    pub(super) fn handle_mended(&mut self, core: &mut Core, extent: ExtentId) {
        self.lost.remove(&extent);
        let Some(mend) = self.mends.get_mut(&extent) else { return };
        mend.damaged.remove(&core.drive);
        let done = core::mem::replace(&mut mend.step, Step::AT_ONCE);
        for number in core::mem::take(&mut mend.reads) {
            if let Some(read) = self.reads.get(&number) {
                core.store(StoreRequest::Read { extent, range: read.range }, Purpose::Read(number));
            }
        }
        if let Step::Becomes(_, version) = done {
            self.handle_become(extent, version);
        }
        self.advance_copies(core);
    }

    /// A member's copy of an extent is damaged. One that it was to be fetched from for the merge is of no use for that.
    pub(super) fn handle_unreadable_there(&mut self, core: &mut Core, now: Instant, from: DriveId, extent: ExtentId) {
        if self.is_pulled_from(from, extent) {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.fault = Some(Fault::Damaged);
            }
            core.report_lost(from, Fault::Damaged);
        }
        self.handle_damage(core, now, from, extent);
    }

    /// Repeats questions whose answers have not come.
    pub(super) fn ask_again_mends(&self, core: &mut Core) {
        for (extent, mend) in &self.mends {
            if let Step::Fetches(holder, sums) = &mend.step {
                core.send(*holder, Body::Fetch { extent: *extent, sums: sums.clone() });
            }
        }
    }
}

impl Mend {
    fn new() -> Self {
        Self {
            damaged: BTreeSet::new(),
            unfit: BTreeSet::new(),
            lossy: BTreeSet::new(),
            reads: Vec::new(),
            waits_since: None,
            step: Step::AT_ONCE,
        }
    }
}
