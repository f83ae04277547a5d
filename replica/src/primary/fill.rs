//! Filling of learners while writes go on.
//!
//! Walks through the lists of the learner and of the primary, and copies every extent whose versions differ. Writes to
//! extents behind the walk are forwarded; the walk meets the others later. When everything is copied, the learner *joins*:
//! writes and leases need it from then on. Once it has everything from before that moment, and has noted durably that it
//! is whole, it is certified: reported to the catalog, which may add it at any time from then on, whether the primary
//! hears of that or not. So only another epoch takes a certified learner's vote away.
//!
//! A learner whose drive is low on room gets what has its space there already, and waits with the rest until it has some.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::copy::Route;
use super::{Peer, Phase, Primary};
use crate::core_state::{Core, Purpose};
use crate::member::{Output, Report};
use crate::members::MEMBERS_MAX;
use crate::message::{Body, Fault};
use crate::planted::Planted;
use crate::request::{Page, StoreRequest};
use crate::stream::Entry;
use crate::walk::{Compared, Found, Walk};

/// Extents that may be written while one page is listed; more, and the page is listed again.
const TOUCHED_MAX: usize = 4_096;

/// How far a learner is.
#[derive(Debug, Default)]
pub(super) struct Fill {
    stage: Stage,
    walk: Option<Walk>,
    /// Number of the own list that counts.
    question: u64,
    /// Extents beyond the walk that were written since the own list was asked for.
    touched: BTreeSet<ExtentId>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Extents up to this one are seen; none at first.
    #[default]
    Begins,
    Walking(ExtentId),
    /// All have been seen, and are being copied.
    Copying,
    /// It counts for writes above this sequence number, and needs the stream up to this entry.
    Joining {
        index: u64,
        sequence: u64,
    },
    Certified {
        sequence: u64,
    },
}

impl Fill {
    pub(super) const fn is_required(&self) -> bool {
        matches!(self.stage, Stage::Joining { .. } | Stage::Certified { .. })
    }

    /// Writes up to this one do not wait for the learner.
    pub(super) const fn joined_at(&self) -> u64 {
        match self.stage {
            Stage::Joining { sequence, .. } | Stage::Certified { sequence } => sequence,
            Stage::Begins | Stage::Walking(_) | Stage::Copying => u64::MAX,
        }
    }

    fn has_seen(&self, extent: ExtentId) -> bool {
        match self.stage {
            Stage::Begins => false,
            Stage::Walking(horizon) => extent <= horizon,
            Stage::Copying | Stage::Joining { .. } | Stage::Certified { .. } => true,
        }
    }
}

impl Primary {
    /// Whether a write goes to a peer, and when.
    pub(super) fn route(&mut self, core: &mut Core, drive: DriveId, extent: ExtentId) -> Route {
        let Some(peer) = self.peers.get_mut(&drive) else { return Route::Leave };
        if peer.fill.as_ref().is_none_or(|fill| fill.has_seen(extent)) {
            let route = peer.copier.route(extent);
            if route == Route::Forward && peer.lacks_room() && peer.copier.may_need_room(extent) {
                // As if it had to be copied: then it is found whether there is space for it.
                let after = peer.stream.end();
                peer.copier.enqueue(extent, after);
                return Route::Leave;
            }
            return route;
        }
        let Some(fill) = &mut peer.fill else { return Route::Leave };
        if fill.walk.as_ref().is_some_and(Walk::is_own_asked) {
            fill.touched.insert(extent);
            if fill.touched.len() > TOUCHED_MAX {
                fill.ask_own(core, drive);
            }
        }
        Route::Leave
    }

    /// Goes on with every learner.
    pub(super) fn advance_fills(&mut self, core: &mut Core, now: Instant) {
        if !matches!(self.phase, Phase::Active) {
            return;
        }
        let learners: Vec<DriveId> = self.configuration.learners.clone();
        for learner in learners {
            self.advance_fill(core, now, learner);
        }
    }

    fn advance_fill(&mut self, core: &mut Core, now: Instant, learner: DriveId) {
        let places = MEMBERS_MAX.saturating_sub(self.members.all().len());
        let (sequence, clean) = (self.sequence, Self::clean(core));
        let Some(peer) = self.peers.get_mut(&learner) else { return };
        let Peer { standing, fill: Some(fill), copier, stream, lease, fault, .. } = peer else { return };
        if standing.is_none() || fault.is_some() {
            return;
        }
        if stream.is_full() && !fill.is_required() {
            *fault = Some(Fault::Lags);
            return;
        }
        let is_early = core.settings.bugs.has(Planted::CertifyEarly) && matches!(fill.stage, Stage::Walking(_));
        // Writes wait for it from then on, and would wait for copies that it has not stored.
        let is_filled = fill.stage == Stage::Copying && copier.is_idle() && copier.is_stored() || is_early;
        match fill.stage {
            Stage::Begins if fill.walk.is_none() => fill.begin_page(core, learner, None),
            _ if is_filled && places > 0 => {
                fill.walk = None;
                let index = stream.push(now, Entry::Whole);
                core.send(learner, Body::Apply { index, clean, entry: Entry::Whole });
                fill.stage = Stage::Joining { index, sequence };
                let nonce = lease.ask(now);
                core.send(learner, Body::Lease { nonce, clean });
                self.update_members();
            }
            Stage::Joining { index, sequence } if stream.durable() >= index && lease.holds(now) => {
                fill.stage = Stage::Certified { sequence };
                core.report_caught_up(learner);
                self.update_members();
            }
            _ => {}
        }
    }

    /// Those whose acknowledgements count: the acting members, and learners that have joined.
    fn update_members(&mut self) {
        let joined = self.peers.iter().filter(|(_, peer)| peer.fill.as_ref().is_some_and(Fill::is_required));
        let next = self.configuration.acting.iter().copied().chain(joined.map(|(drive, _)| *drive)).collect();
        self.members = self.members.towards(next).expect("learners join while there is room");
    }

    pub(super) fn handle_learner_page(&mut self, core: &mut Core, from: DriveId, after: Option<ExtentId>, page: Page) {
        let Some(fill) = self.peers.get_mut(&from).and_then(|peer| peer.fill.as_mut()) else { return };
        let Some(walk) = &mut fill.walk else { return };
        walk.handle_page(from, after, page);
        if walk.take_turn() {
            fill.ask_own(core, from);
        }
    }

    pub(super) fn handle_fill_list(&mut self, core: &mut Core, learner: DriveId, question: u64, page: Page) {
        let Some(Peer { fill: Some(fill), copier, .. }) = self.peers.get_mut(&learner) else { return };
        if question != fill.question {
            return;
        }
        let Some(mut walk) = fill.walk.take() else { return };
        let Compared { extents, horizon } = walk.handle_own(page);
        let has_seen = |extent: &ExtentId| horizon.is_none_or(|horizon| *extent <= horizon);
        let touched = core::mem::take(&mut fill.touched);
        // The primary's own is listed without a version where it is damaged: the learner's cannot be compared with that.
        let differs = |found: &&Found| {
            let is_own_damaged = found.own == Version::ZERO && !core.settings.bugs.has(Planted::SkipDamagedInFill);
            is_own_damaged || found.others.get(&learner).copied().unwrap_or_default() != found.own
        };
        let differing = extents.iter().filter(differs);
        let differing = differing.map(|found| found.extent).chain(touched.into_iter().filter(has_seen));
        differing.for_each(|extent| copier.enqueue(extent, 0));
        match horizon {
            Some(horizon) => {
                fill.stage = Stage::Walking(horizon);
                fill.begin_page(core, learner, Some(horizon));
            }
            None => fill.stage = Stage::Copying,
        }
        self.advance_copies(core);
    }

    /// Repeats questions and reports.
    pub(super) fn ask_again_fills(&self, core: &mut Core) {
        for (drive, peer) in &self.peers {
            let Some(fill) = &peer.fill else { continue };
            if let Some(walk) = fill.walk.as_ref().filter(|walk| walk.missing().next().is_some()) {
                core.send(*drive, Body::List { above: walk.above, after: walk.after });
            }
            if matches!(fill.stage, Stage::Certified { .. }) {
                core.report_caught_up(*drive);
            }
        }
    }

    /// Sends a write to every peer that is to have it now.
    pub(super) fn forward(&mut self, core: &mut Core, now: Instant, extent: ExtentId, entry: &Entry) {
        let drives: Vec<DriveId> = self.peers.keys().copied().collect();
        for drive in drives {
            match self.route(core, drive, extent) {
                Route::Forward => self.push(core, now, drive, entry.clone()),
                Route::Leave => {}
                Route::Hold => {
                    if let Some(peer) = self.peers.get_mut(&drive) {
                        peer.copier.hold(entry.clone(), extent);
                    }
                }
            }
        }
    }
}

impl Fill {
    fn begin_page(&mut self, core: &mut Core, learner: DriveId, after: Option<ExtentId>) {
        let above = Version::ZERO;
        core.send(learner, Body::List { above, after });
        self.walk = Some(Walk::new(above, after, [learner].into_iter()));
    }

    /// Asks for the own list, anew if it was asked for before: writes from here on are noted.
    fn ask_own(&mut self, core: &mut Core, learner: DriveId) {
        self.touched.clear();
        self.question += 1;
        let after = self.walk.as_ref().and_then(|walk| walk.after);
        let request = StoreRequest::List { above: Version::ZERO, after };
        core.store(request, Purpose::FillList(learner, self.question));
    }
}

impl Core {
    fn report_caught_up(&mut self, learner: DriveId) {
        let epoch = self.epoch;
        self.out.push_back(Output::Report(Report::CaughtUp { epoch, learner }));
    }
}
