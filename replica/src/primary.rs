//! The primary of one epoch: makes the acting members equal, then orders writes, serves reads, and fills learners.
//!
//! Phases: [`Phase::Adopting`] (every acting member enters the epoch), [`Phase::Merging`] (they are made equal),
//! [`Phase::Waiting`] (leases that this member granted to an earlier primary run out, unless that one has entered this
//! epoch and so serves in no earlier one), [`Phase::Active`]; the first epoch of
//! a group ends in [`Phase::Founded`] instead, and another one is asked for; so does a later one in which nobody has anything.
//! Parts: [`merge`], [`alone`], [`write`], [`probe`], [`read`], [`copy`], [`fill`] and [`mend`], one concern each, all of them methods
//! of [`Primary`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::{DriveId, VolumeId};
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::config::Configuration;
use crate::core_state::{Core, Purpose};
use crate::error::{Error, Refusal};
use crate::lease::Held;
use crate::member::Output;
use crate::members::Members;
use crate::message::{Body, Fault, Standing};
use crate::planted::Planted;
use crate::request::{Generation, Room, StoreReply};
use crate::session::Sessions;
use crate::stream::{Entry, Outgoing, Watermark};
use alone::Unproven;
use copy::Copier;
use fill::Fill;
use mend::{Lost, Mend};
use merge::Merge;
use probe::Probe;
use read::Read;
use write::Write;

mod alone;
mod copy;
mod fill;
mod mend;
mod merge;
mod probe;
mod read;
mod write;

/// How far the primary is.
#[derive(Debug)]
enum Phase {
    Adopting,
    Merging(Merge),
    Waiting,
    Founded,
    Active,
}

/// Another member, as the primary sees it.
#[derive(Debug)]
struct Peer {
    /// What it told of its copy, once it has entered the epoch.
    standing: Option<Standing>,
    stream: Outgoing,
    lease: Held,
    copier: Copier,
    /// Nothing for an acting member.
    fill: Option<Fill>,
    heard: Instant,
    /// Whether its drive has room, as it told last.
    room: Room,
    fault: Option<Fault>,
}

/// The primary.
#[derive(Debug)]
pub(crate) struct Primary {
    configuration: Configuration,
    standing: Standing,
    phase: Phase,
    peers: BTreeMap<DriveId, Peer>,
    /// Those whose acknowledgement a write needs.
    members: Members<DriveId>,
    /// Sequence number of the last write.
    sequence: u64,
    /// Writes that are durable here.
    local: Watermark,
    /// Writes up to this one are acknowledged.
    committed: u64,
    window: VecDeque<Write>,
    /// Bytes of content in the window and in probes.
    window_bytes: usize,
    probes: BTreeMap<u64, Probe>,
    next_probe: u64,
    reads: BTreeMap<u64, Read>,
    next_read: u64,
    /// Extents of which a copy is damaged.
    mends: BTreeMap<ExtentId, Mend>,
    lost: Lost,
    unproven: Unproven,
    sessions: Sessions,
    /// Volumes whose older writes are awaited, with the generation that is to be confirmed.
    fencing: Vec<(VolumeId, Generation)>,
    own_fault: Option<Fault>,
}

impl Primary {
    /// Begins an epoch: asks the others to enter it.
    pub(crate) fn new(core: &mut Core, now: Instant, configuration: Configuration, standing: Standing) -> Self {
        let is_filled = |drive: &DriveId| configuration.learners.contains(drive);
        let all = configuration.acting.iter().chain(&configuration.learners);
        let others = all.filter(|drive| **drive != core.drive);
        let peers = others.map(|drive| (*drive, Peer::new(now, is_filled(drive).then(Fill::default)))).collect();
        let members = Members::new(configuration.acting.clone()).expect("a configuration is valid");
        let mut primary = Self {
            configuration,
            standing,
            phase: Phase::Adopting,
            peers,
            members,
            sequence: 0,
            local: Watermark::default(),
            committed: 0,
            window: VecDeque::new(),
            window_bytes: 0,
            probes: BTreeMap::new(),
            next_probe: 0,
            reads: BTreeMap::new(),
            next_read: 0,
            mends: BTreeMap::new(),
            lost: Lost::new(),
            unproven: Unproven::default(),
            sessions: Sessions::default(),
            fencing: Vec::new(),
            own_fault: None,
        };
        primary.ask_to_adopt(core);
        primary.handle_adoption(core, now);
        primary
    }

    fn ask_to_adopt(&self, core: &mut Core) {
        for (drive, _) in self.peers.iter().filter(|(_, peer)| peer.standing.is_none()) {
            core.send(*drive, Body::Adopt(self.configuration.clone()));
        }
    }

    /// Ends the epoch: everything under way is answered with `refusal`.
    pub(crate) fn end(&mut self, core: &mut Core, refusal: &Refusal) {
        for write in self.window.drain(..) {
            core.reply(write.session, write.request, Err(refusal.clone()));
        }
        for Probe { request, .. } in core::mem::take(&mut self.probes).into_values() {
            core.reply(request.session, request.request, Err(refusal.clone()));
        }
        for read in core::mem::take(&mut self.reads).into_values() {
            core.reply(read.session, read.request, Err(refusal.clone()));
        }
        for (volume, generation) in self.fencing.drain(..) {
            core.out.push_back(Output::Fenced { volume, generation });
        }
    }

    /// What is wrong with this member itself.
    pub(crate) const fn own_fault(&self) -> Option<Fault> {
        self.own_fault
    }

    /// Acting members other than this one.
    fn backups(&self) -> impl Iterator<Item = (DriveId, &Peer)> {
        self.peers.iter().filter(|(_, peer)| peer.fill.is_none()).map(|(drive, peer)| (*drive, peer))
    }

    /// Whether every member whose acknowledgement counts has granted a lease that holds.
    fn holds_lease(&self, now: Instant) -> bool {
        self.peers.values().filter(|peer| peer.is_required()).all(|peer| peer.lease.holds(now))
    }

    pub(crate) fn is_serving(&self, core: &Core, now: Instant) -> bool {
        let is_leased = self.holds_lease(now) || core.settings.bugs.has(Planted::ReadWithoutLease);
        matches!(self.phase, Phase::Active) && is_leased
    }

    /// Watermark that goes with leases and writes.
    fn clean(core: &Core) -> Version {
        core.record.clean
    }

    /// A message of this epoch from another member.
    pub(crate) fn handle_message(
        &mut self,
        core: &mut Core,
        now: Instant,
        from: DriveId,
        body: Body,
    ) -> Result<(), Error> {
        let peer = self.peers.get_mut(&from).ok_or(Error::NotForRole)?;
        peer.heard = now;
        match body {
            Body::Adopted(standing) => {
                // Who has entered this epoch serves by no lease of an earlier one, now or later.
                core.granted.end(from);
                peer.room = standing.room;
                if peer.standing.is_none() {
                    peer.standing = Some(standing);
                    self.handle_adoption(core, now);
                }
            }
            Body::Leased { nonce, progress, room } => {
                peer.room = room;
                peer.lease.handle_granted(nonce, core.settings.lease);
                if core.settings.bugs.has(Planted::LeaseFromAnswer) {
                    peer.lease.extend(now + core.settings.lease);
                }
                if !peer.stream.handle_progress(now, progress) {
                    return Err(Error::BadValue("progress"));
                }
                self.handle_progress(core, now);
            }
            Body::Applied(progress) => {
                if !peer.stream.handle_progress(now, progress) {
                    return Err(Error::BadValue("progress"));
                }
                self.handle_progress(core, now);
            }
            Body::Listed { after, page } => self.handle_listed(core, from, after, page),
            Body::Checksums { extent, sums } => self.handle_checksums(core, from, extent, sums),
            Body::Fetched { extent, difference } => self.handle_fetched(core, now, from, extent, difference),
            Body::Damaged { extent } => self.handle_unreadable_there(core, now, from, extent),
            Body::Failed(fault) => {
                peer.fault = Some(fault);
                core.report_lost(from, fault);
            }
            _ => return Err(Error::NotForRole),
        }
        Ok(())
    }

    /// A stream or a lease has gone on: whatever waited for that goes on too.
    fn handle_progress(&mut self, core: &mut Core, now: Instant) {
        self.commit(core);
        self.advance_copies(core);
        self.advance_merge(core, now);
        self.advance_fills(core, now);
        self.advance_mends(core, now);
        self.advance_proofs(core, now);
        self.release_reads(core, now);
    }

    /// The store has completed a request of this epoch.
    pub(crate) fn handle_stored(
        &mut self,
        core: &mut Core,
        now: Instant,
        purpose: Purpose,
        reply: StoreReply,
    ) -> Result<(), Error> {
        match (purpose, reply) {
            (Purpose::Write(sequence), StoreReply::Done) => self.local.insert(sequence),
            (Purpose::Probe(number), StoreReply::Occupied(is_occupied)) => {
                self.handle_probe(core, now, number, is_occupied);
            }
            (Purpose::Read(number), StoreReply::Read(data)) => self.handle_read(core, number, data),
            (Purpose::MergeList, StoreReply::List(page)) => self.handle_merge_list(core, page),
            (Purpose::FillList(learner, question), StoreReply::List(page)) => {
                self.handle_fill_list(core, learner, question, page);
            }
            (Purpose::PullChecksums(extent), StoreReply::Checksums(sums)) => {
                self.handle_own_checksums(core, extent, sums);
            }
            (Purpose::PullPatch(extent), StoreReply::Done) => self.handle_pulled(extent),
            (Purpose::MendChecksums(extent), StoreReply::Checksums(sums)) => {
                self.handle_mend_checksums(core, extent, sums);
            }
            (Purpose::MendPatch(extent), StoreReply::Done) => self.handle_mended(core, extent),
            (Purpose::Proven, StoreReply::Done) => self.handle_proven(),
            (Purpose::Copy(drive, extent), StoreReply::Difference(difference)) => {
                self.handle_copy(core, now, drive, extent, difference);
            }
            _ => return Err(Error::UnknownCompletion),
        }
        self.handle_progress(core, now);
        Ok(())
    }

    /// Sends an entry on the stream to a peer.
    fn push(&mut self, core: &mut Core, now: Instant, drive: DriveId, entry: Entry) {
        let clean = Self::clean(core);
        let peer = self.peers.get_mut(&drive).expect("entries are pushed to peers");
        let index = peer.stream.push(now, entry.clone());
        core.send(drive, Body::Apply { index, clean, entry });
    }

    /// Periodic work.
    pub(crate) fn tick(&mut self, core: &mut Core, now: Instant) {
        self.ask_to_adopt(core);
        if self.is_in_doubt() {
            return self.settle_doubt(core);
        }
        let clean = Self::clean(core);
        let patience = core.settings.tick.saturating_mul(2);
        for (drive, peer) in &mut self.peers {
            if peer.standing.is_some() {
                let nonce = peer.lease.ask(now);
                core.send(*drive, Body::Lease { nonce, clean });
            }
            for (index, entry) in peer.stream.resend(now, patience) {
                core.send(*drive, Body::Apply { index, clean, entry: entry.clone() });
            }
            if let Some(fault) = peer.find_fault(core, now) {
                core.report_lost(*drive, fault);
            }
        }
        self.ask_again_merge(core);
        self.ask_again_copies(core);
        self.ask_again_fills(core);
        self.ask_again_mends(core);
        if self.sessions.is_full() || matches!(self.phase, Phase::Founded) {
            core.report_new_epoch();
        }
        self.handle_progress(core, now);
    }
}

impl Peer {
    fn new(now: Instant, fill: Option<Fill>) -> Self {
        Self {
            standing: None,
            stream: Outgoing::default(),
            lease: Held::default(),
            copier: Copier::default(),
            fill,
            heard: now,
            room: Room::default(),
            fault: None,
        }
    }

    /// Whether its drive has no room for extents that have no space there yet, and nothing depends on it.
    fn lacks_room(&self) -> bool {
        self.room == Room::Low && !self.is_required()
    }

    /// Whether writes and leases need this peer.
    fn is_required(&self) -> bool {
        self.fill.as_ref().is_none_or(Fill::is_required)
    }

    /// Why the peer's removal is to be asked for now, if it is.
    fn find_fault(&self, core: &Core, now: Instant) -> Option<Fault> {
        let is_silent = now.saturating_since(self.heard) > core.settings.silence;
        let lags = self.stream.owed_since().is_some_and(|since| now.saturating_since(since) > core.settings.lag);
        let silent = is_silent.then_some(Fault::Silent);
        self.fault.or(silent).or_else(|| lags.then_some(Fault::Lags))
    }
}
