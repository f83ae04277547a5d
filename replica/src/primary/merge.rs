//! Merge: a new primary makes the acting members equal in every extent in which they may differ, before it serves.
//!
//! Every acting member has everything up to the greatest watermark of any of them. What is newer is listed by all and
//! compared page by page. The greatest version of an extent is right: it has every acknowledged write in it, and every
//! write that anybody may have read. The primary fetches it if it has less itself, and then brings the others to it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::{Phase, Primary};
use crate::core_state::{Core, Purpose};
use crate::message::{Body, Fault, Standing};
use crate::planted::Planted;
use crate::request::{Difference, Page, StoreRequest};
use crate::walk::{Compared, Found, Walk};

/// The first epoch of a group: every member gets its record, and nothing is served. So a member without a record in a
/// later epoch has lost its drive's data, and is not taken for a new one.
const FOUNDING: Epoch = Epoch(1);
/// Below every version that an extent can have.
const FIRST: Version = Version { epoch: Epoch::ZERO, sequence: 1 };
/// Extents that are fetched at a time.
const PULLS_MAX: usize = 4;

/// A merge, at one page.
#[derive(Debug)]
pub(super) struct Merge {
    /// Only greater versions are compared.
    above: Version,
    /// The page that is being listed; nothing once it is compared. A late page of another member finds no walk then.
    walk: Option<Walk>,
    /// Something that a page showed is not there any more: all is listed again.
    is_outdated: bool,
    /// Where the next page begins; nothing if this is the last one.
    next: Option<ExtentId>,
    /// Extents that the primary lacks.
    pulls: BTreeMap<ExtentId, Pull>,
}

/// An extent that is fetched from another member.
#[derive(Debug)]
struct Pull {
    holder: DriveId,
    version: Version,
    /// Members that get it afterwards.
    behind: Vec<DriveId>,
    step: PullStep,
}

#[derive(Debug, PartialEq, Eq)]
enum PullStep {
    Waits,
    ReadsOwnChecksums,
    Fetches(Vec<Checksum>),
    Stores,
}

impl Primary {
    /// A peer has entered the epoch, or this member is the only one: begins the merge once all acting members are there.
    pub(super) fn handle_adoption(&mut self, core: &mut Core, now: Instant) {
        if !matches!(self.phase, Phase::Adopting) {
            return;
        }
        if self.is_in_doubt() {
            return self.settle_doubt(core);
        }
        if !self.check_standings(core) {
            return;
        }
        if !self.backups().all(|(_, peer)| peer.standing.is_some()) {
            return;
        }
        // A list above zero does not tell the versions of damaged extents.
        let above = self.floor().max(FIRST);
        self.phase =
            Phase::Merging(Merge { above, walk: None, is_outdated: false, next: None, pulls: BTreeMap::new() });
        if core.settings.bugs.has(Planted::ServeWithoutMerge) {
            self.phase = Phase::Waiting;
            return;
        }
        self.begin_page(core, None);
        self.advance_merge(core, now);
    }

    /// Whether this copy is partial and holds nothing, and the others that have told say the same. Either all that act have
    /// lost their data, or the group has never begun: its configuration changed before anybody had entered an epoch.
    pub(super) fn is_in_doubt(&self) -> bool {
        let told = self.peers.values().filter_map(|peer| peer.standing);
        matches!(self.phase, Phase::Adopting) && told.chain([self.standing]).all(|standing| standing.is_blank())
    }

    /// Nothing is acknowledged in an epoch before every acting member has entered it. So if the drives with which the group
    /// began, and those that acted since it was settled, are all there, and like everybody else have nothing, nothing was
    /// acknowledged, unless each of them has lost its data: this copy counts as whole from the next epoch on. With one copy
    /// only, a loss cannot be told from a beginning.
    /// Until that is known the member asks for its own removal, as those that have not answered may have the data.
    pub(super) fn settle_doubt(&mut self, core: &mut Core) {
        let has_told = |drive: &DriveId| self.peers.get(drive).is_some_and(|peer| peer.standing.is_some());
        let is_known = |drive: &DriveId| *drive == core.drive || has_told(drive);
        let (epoch, witnesses) = &core.witnesses;
        let are_witnesses_told = *epoch == core.epoch && witnesses.all.len() > 1;
        if !are_witnesses_told || !witnesses.all.iter().chain(self.peers.keys()).all(is_known) {
            return core.report_lost(core.drive, Fault::Blank);
        }
        core.record.is_partial = false;
        self.standing.is_partial = false;
        self.phase = Phase::Founded;
        core.report_new_epoch();
    }

    fn standings(&self) -> impl Iterator<Item = Standing> {
        self.backups().filter_map(|(_, peer)| peer.standing).chain([self.standing])
    }

    /// Every acting member has everything up to here, unless it says that its copy is partial: then it says nothing of others.
    fn floor(&self) -> Version {
        let whole = self.standings().filter(|standing| !standing.is_partial);
        whole.map(|standing| standing.clean).max().unwrap_or_default()
    }

    /// Whether all copies known so far can be what the members hold them for. A copy whose greatest version is below the floor is an
    /// earlier state of its drive, because every write goes to every acting member.
    fn check_standings(&mut self, core: &mut Core) -> bool {
        let floor = self.floor();
        let ignores = core.settings.bugs.has(Planted::IgnoreBlank);
        let is_bad = |standing: Standing| (standing.is_partial || standing.newest < floor) && !ignores;
        if is_bad(self.standing) {
            self.own_fault = Some(Fault::Blank);
            return false;
        }
        let mut is_good = true;
        for (drive, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.fill.is_none()) {
            if peer.standing.is_some_and(is_bad) {
                is_good = false;
                peer.fault = Some(Fault::Blank);
                core.report_lost(*drive, Fault::Blank);
            }
        }
        is_good
    }

    fn begin_page(&mut self, core: &mut Core, after: Option<ExtentId>) {
        let Phase::Merging(Merge { above, .. }) = self.phase else { return };
        let backups: Vec<DriveId> = self.backups().map(|(drive, _)| drive).collect();
        for drive in &backups {
            core.send(*drive, Body::List { above, after });
        }
        let mut walk = Walk::new(above, after, backups.into_iter());
        if walk.take_turn() {
            core.store(StoreRequest::List { above, after }, Purpose::MergeList);
        }
        if let Phase::Merging(merge) = &mut self.phase {
            merge.walk = Some(walk);
            // A list from the beginning is a new look at everything.
            merge.is_outdated &= after.is_some();
        }
    }

    /// Another member's page arrived, for the merge or for its own filling.
    pub(super) fn handle_listed(&mut self, core: &mut Core, from: DriveId, after: Option<ExtentId>, page: Page) {
        let is_learner = self.peers.get(&from).is_some_and(|peer| peer.fill.is_some());
        if is_learner {
            return self.handle_learner_page(core, from, after, page);
        }
        let Phase::Merging(Merge { walk: Some(walk), .. }) = &mut self.phase else { return };
        walk.handle_page(from, after, page);
        if walk.take_turn() {
            let (above, after) = (walk.above, walk.after);
            core.store(StoreRequest::List { above, after }, Purpose::MergeList);
        }
    }

    pub(super) fn handle_merge_list(&mut self, core: &mut Core, page: Page) {
        let Phase::Merging(merge) = &mut self.phase else { return };
        let Some(mut walk) = merge.walk.take() else { return };
        let Compared { extents, horizon } = walk.handle_own(page);
        merge.next = horizon;
        let backups: Vec<DriveId> = self.backups().map(|(drive, _)| drive).collect();
        let rolls_back = core.settings.bugs.has(Planted::RollBack);
        for found in extents {
            self.plan_extent(&found, &backups, rolls_back);
            self.doubt(core, found.extent, found.own);
        }
        self.advance_copies(core);
    }

    /// Who gets an extent from whom.
    fn plan_extent(&mut self, found: &Found, backups: &[DriveId], rolls_back: bool) {
        let version_of = |drive: &DriveId| found.others.get(drive).copied().unwrap_or_default();
        let versions = || backups.iter().map(version_of).chain([found.own]);
        let right = if rolls_back { versions().min() } else { versions().max() }.unwrap_or_default();
        let behind: Vec<DriveId> = backups.iter().copied().filter(|drive| version_of(drive) != right).collect();
        if found.own == right {
            for drive in behind {
                self.queue_copy(drive, found.extent);
            }
            return;
        }
        let holder = backups.iter().copied().find(|drive| version_of(drive) == right);
        let holder = holder.expect("somebody has the chosen version");
        let pull = Pull { holder, version: right, behind, step: PullStep::Waits };
        if let Phase::Merging(merge) = &mut self.phase {
            merge.pulls.insert(found.extent, pull);
        }
    }

    /// Goes on with the merge: fetches, the next page, the end.
    pub(super) fn advance_merge(&mut self, core: &mut Core, now: Instant) {
        if let Phase::Merging(merge) = &mut self.phase {
            for (extent, pull) in merge.pulls.iter_mut().take(PULLS_MAX) {
                if pull.step == PullStep::Waits {
                    pull.step = PullStep::ReadsOwnChecksums;
                    core.store(StoreRequest::Checksums { extent: *extent }, Purpose::PullChecksums(*extent));
                }
            }
            let (is_compared, is_pulled, next) = (merge.walk.is_none(), merge.pulls.is_empty(), merge.next);
            let is_outdated = merge.is_outdated;
            let is_copied = self.backups().all(|(_, peer)| peer.copier.is_idle() && peer.stream.owed_since().is_none());
            if !is_compared || !is_pulled || !is_copied {
                return;
            }
            match next {
                None if is_outdated => return self.begin_page(core, None),
                Some(_) => return self.begin_page(core, next),
                None => self.phase = Phase::Waiting,
            }
        }
        let ignores = core.settings.bugs.has(Planted::NoWaitForGrant);
        if matches!(self.phase, Phase::Waiting) && (core.granted.are_over(now) || ignores) {
            self.limit_doubt();
            if self.unproven.is_empty() {
                // All are equal, up to the greatest version that anybody has. What had it may have gone with its volume meanwhile.
                let newest = self.standings().map(|standing| standing.newest).max().unwrap_or_default();
                core.note_clean(newest);
            }
            self.phase = if core.epoch == FOUNDING { Phase::Founded } else { Phase::Active };
        }
    }

    pub(super) fn handle_own_checksums(&mut self, core: &mut Core, extent: ExtentId, sums: Vec<Checksum>) {
        let Phase::Merging(merge) = &mut self.phase else { return };
        if let Some(pull) = merge.pulls.get_mut(&extent) {
            pull.step = PullStep::Fetches(sums.clone());
            core.send(pull.holder, Body::Fetch { extent, sums });
        }
    }

    pub(super) fn handle_fetched(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: DriveId,
        extent: ExtentId,
        difference: Difference,
    ) {
        let Phase::Merging(merge) = &mut self.phase else {
            return self.handle_mend_fetched(core, from, extent, difference);
        };
        let Some(pull) = merge.pulls.get_mut(&extent) else { return };
        let is_awaited = matches!(pull.step, PullStep::Fetches(_)) && pull.holder == from;
        if is_awaited && difference.has_lost() {
            return self.handle_unreadable_there(core, now, from, extent);
        }
        if is_awaited && difference.version < pull.version {
            // It was dropped there, or its volume was deleted, after it was listed. Others may have it still.
            merge.pulls.remove(&extent);
            merge.is_outdated = true;
            self.advance_merge(core, now);
        } else if is_awaited && difference.version == pull.version {
            pull.step = PullStep::Stores;
            let Difference { version, runs } = difference;
            core.store(StoreRequest::Patch { extent, runs, version }, Purpose::PullPatch(extent));
        }
    }

    /// Whether an extent is being fetched from a member for the merge.
    pub(super) fn is_pulled_from(&self, holder: DriveId, extent: ExtentId) -> bool {
        let Phase::Merging(merge) = &self.phase else { return false };
        merge.pulls.get(&extent).is_some_and(|pull| pull.holder == holder)
    }

    /// A fetched extent is durable here: the others get it now.
    pub(super) fn handle_pulled(&mut self, extent: ExtentId) {
        let Phase::Merging(merge) = &mut self.phase else { return };
        let behind = merge.pulls.remove(&extent).map(|pull| pull.behind).unwrap_or_default();
        for drive in behind {
            self.queue_copy(drive, extent);
        }
    }

    /// Repeats questions whose answers have not come.
    pub(super) fn ask_again_merge(&mut self, core: &mut Core) {
        let Phase::Merging(merge) = &self.phase else { return };
        for (walk, drive) in merge.walk.iter().flat_map(|walk| walk.missing().map(move |drive| (walk, drive))) {
            core.send(drive, Body::List { above: walk.above, after: walk.after });
        }
        for (extent, pull) in &merge.pulls {
            if let PullStep::Fetches(sums) = &pull.step {
                core.send(pull.holder, Body::Fetch { extent: *extent, sums: sums.clone() });
            }
        }
    }
}
