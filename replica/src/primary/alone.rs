//! The last copy: what perhaps nobody has acknowledged is not served before another drive has it.
//!
//! Where one member is left to act, its copy may have writes that no other one ever got, so that they are neither acknowledged nor
//! were read by anybody. They lie above the watermark, and as far as anybody knows they are good. But if its drive has damaged
//! one, what it has replaced is at another drive only, in an earlier version of the extent, and that had been acknowledged.
//!
//! So extents above the watermark are *unproven*: requests of them are refused, to be repeated. An extent is proven when a learner
//! has it too; those are copied first. One that cannot be read becomes what the drive has that was the last one to leave: it acted
//! until this copy was alone, so what it lacks was not acknowledged, and what it has beyond this copy may have been done; nobody has
//! read the extent since. The extent gets a new version, since other drives may have the one that it had. When all are proven, the
//! watermark covers them, durably, and they are served: in a later epoch nothing that was served is unproven.
//!
//! Where no learner comes for [`crate::config::Settings::awaited`], the other drives may be gone for good, and what this copy has
//! is all that there is: it is served from then on, once the watermark covers it. Nothing is taken from others after that.
//!
//! Where writes are acknowledged by one copy there is nothing to prove, and nobody who could.

use alloc::collections::BTreeMap;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use super::{Peer, Phase, Primary};
use crate::core_state::{Core, Purpose};
use crate::planted::Planted;

/// Extents that may be unproven: those written within the last moments before the others were lost. Of more, none is held back
/// until a learner has it.
const UNPROVEN_MAX: usize = 4_096;

/// What the last copy has and is not to serve yet.
#[derive(Debug, Default)]
pub(super) struct Unproven {
    extents: BTreeMap<ExtentId, Proof>,
    /// Since when no learner has been here.
    lonely_since: Option<Instant>,
    /// All are proven, and the watermark that says so is being saved.
    is_saving: bool,
}

#[derive(Debug)]
struct Proof {
    /// What the extent had here, when the merge found it.
    written: Version,
    /// What it has now.
    version: Version,
    /// Learners that get a copy of it, and the number of the entry by which they have it, once it is on their stream.
    asked: BTreeMap<DriveId, Option<u64>>,
    is_proven: bool,
}

impl Unproven {
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Whether an extent is not to be served yet.
    pub(super) fn has(&self, extent: ExtentId) -> bool {
        self.extents.contains_key(&extent)
    }
}

impl Primary {
    /// Whether this copy is the only one that acts, although writes need more.
    pub(super) fn is_alone(&self) -> bool {
        self.configuration.acting.len() == 1 && !self.configuration.has_copies()
    }

    /// The merge of the last copy has found an extent above the watermark.
    pub(super) fn doubt(&mut self, core: &Core, extent: ExtentId, version: Version) {
        if self.is_alone() && !core.settings.bugs.has(Planted::ServeUnproven) {
            let proof = Proof { written: version, version, asked: BTreeMap::new(), is_proven: false };
            self.unproven.extents.insert(extent, proof);
        }
    }

    /// The merge of the last copy has found all of them.
    pub(super) fn limit_doubt(&mut self) {
        if self.unproven.extents.len() > UNPROVEN_MAX {
            self.unproven.extents.values_mut().for_each(|proof| proof.is_proven = true);
        }
    }

    /// Copies what is unproven to learners, and takes what they have for proven.
    pub(super) fn advance_proofs(&mut self, core: &mut Core, now: Instant) {
        if self.unproven.is_empty() || self.unproven.is_saving || !matches!(self.phase, Phase::Active) {
            return;
        }
        let is_filled = |peer: &Peer| peer.fill.is_some() && peer.standing.is_some() && peer.fault.is_none();
        if self.peers.values().any(is_filled) {
            self.unproven.lonely_since = None;
        } else {
            let since = *self.unproven.lonely_since.get_or_insert(now);
            let is_given_up = now.saturating_since(since) >= core.settings.awaited;
            self.unproven.extents.values_mut().for_each(|proof| proof.is_proven |= is_given_up);
        }
        let mut is_any_asked = false;
        for (extent, proof) in self.unproven.extents.iter_mut().filter(|(_, proof)| !proof.is_proven) {
            for (drive, peer) in self.peers.iter_mut().filter(|(_, peer)| is_filled(peer)) {
                let Some(index) = proof.asked.get_mut(drive) else {
                    proof.asked.insert(*drive, None);
                    peer.copier.enqueue(*extent, 0);
                    is_any_asked = true;
                    continue;
                };
                if index.is_none() && !peer.copier.is_waiting(*extent) {
                    *index = Some(peer.stream.end());
                }
                proof.is_proven |= index.is_some_and(|index| peer.stream.durable() >= index);
            }
        }
        if is_any_asked {
            self.advance_copies(core);
        }
        if self.unproven.extents.values().all(|proof| proof.is_proven) {
            let newest = self.unproven.extents.values().map(|proof| proof.version).max().unwrap_or_default();
            core.note_clean(newest);
            self.unproven.is_saving = true;
            core.save(Purpose::Proven);
        }
    }

    /// The watermark covers what was unproven.
    pub(super) fn handle_proven(&mut self) {
        self.unproven = Unproven::default();
    }

    /// Whether an extent that cannot be read here may become what a member has of it, which is another version: earlier or later.
    pub(super) fn may_become(&self, core: &Core, member: DriveId, extent: ExtentId, version: Version) -> bool {
        let Some(proof) = self.unproven.extents.get(&extent).filter(|proof| !proof.is_proven) else { return false };
        let Some(standing) = self.peers.get(&member).and_then(|peer| peer.standing) else { return false };
        // A drive that lost its data has no watermark, or data that are older.
        let has_data = standing.clean > Version::ZERO && standing.newest >= standing.clean;
        let (epoch, witnesses) = &core.witnesses;
        let acted_before = *epoch == core.epoch && witnesses.last_to_leave == Some(member);
        has_data && acted_before && version != proof.written
    }

    /// The version of an extent that has become what another member has.
    pub(super) fn next_version(&mut self, core: &Core) -> Version {
        // Nobody writes while this copy is alone.
        self.sequence += 1;
        Version { epoch: core.epoch, sequence: self.sequence }
    }

    /// An extent has become what another member has, by this version: learners get that.
    pub(super) fn handle_become(&mut self, extent: ExtentId, version: Version) {
        if let Some(proof) = self.unproven.extents.get_mut(&extent) {
            proof.version = version;
            for (drive, index) in &mut proof.asked {
                *index = None;
                if let Some(peer) = self.peers.get_mut(drive) {
                    peer.copier.enqueue(extent, 0);
                }
            }
        }
    }

    /// Whether drives may have what cannot be read here and have not been asked, as they are away.
    pub(super) fn lacks_witnesses(&self, core: &Core) -> bool {
        let (epoch, witnesses) = &core.witnesses;
        let is_here = |drive: &&DriveId| {
            **drive == core.drive || self.peers.get(*drive).is_some_and(|peer| peer.standing.is_some())
        };
        let is_away = witnesses.all.iter().any(|drive| !is_here(&drive));
        self.configuration.acting.len() == 1 && (*epoch < core.epoch || is_away)
    }
}
