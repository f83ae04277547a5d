//! Copies of extents to other members: ask for the checksums of the other copy, read what differs, send it as a patch.
//!
//! An extent is a few steps away from being equal, and the steps decide what happens to a write that comes meanwhile. Before the
//! difference is read, nothing: the difference will have the write in it. While it is read, the write is held back and
//! sent behind the patch, unless the patch has it already. Afterwards it follows on the stream.
//!
//! The question must find the effect of everything that is on the stream already: an entry that came to the other copy between its
//! answer and the patch would change a block that both had alike. An extent that is copied once more, as it was damaged, waits
//! for that.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::id::DriveId;
use ashlar_wire::time::Instant;

use super::Primary;
use crate::core_state::{Core, Purpose};
use crate::message::Body;
use crate::planted::Planted;
use crate::request::{Content, Difference, StoreRequest};
use crate::stream::Entry;

/// Writes that are held back for one extent. More come when the drive is far too slow: then the copy begins again.
const HELD_MAX: usize = 1_024;

/// Copies to one member.
#[derive(Debug, Default)]
pub(super) struct Copier {
    /// Extents that wait, each until the stream is durable up to this entry.
    queue: BTreeMap<ExtentId, u64>,
    active: BTreeMap<ExtentId, Step>,
    /// Extents that wait until the member's drive has room for more.
    aside: BTreeSet<ExtentId>,
    /// Extents that are known to have their space there, as far as that was of interest: while there is no room for more.
    spacious: BTreeSet<ExtentId>,
    /// Numbers on the stream of patches that are not durable at the member.
    patches: BTreeSet<u64>,
}

#[derive(Debug)]
enum Step {
    /// The other copy's checksums are asked for.
    Asks,
    /// What differs is read here; writes that came meanwhile, and whether the other copy has any blocks.
    Reads { held: Vec<Entry>, is_empty: bool },
    /// Too many came: read once more.
    ReadsInVain,
}

/// What is to be done with a write of an extent, as far as its copy decides that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// Send it on the stream.
    Forward,
    /// Do nothing: the copy will have it in it.
    Leave,
    /// Keep it until the copy is on the stream.
    Hold,
}

impl Copier {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty() && self.aside.is_empty()
    }

    /// Whether all copies that were sent are durable at the member.
    pub(super) fn is_stored(&self) -> bool {
        self.patches.is_empty()
    }

    /// Whether a copy of an extent is not on the stream yet.
    pub(super) fn is_waiting(&self, extent: ExtentId) -> bool {
        self.queue.contains_key(&extent) || self.aside.contains(&extent) || self.active.contains_key(&extent)
    }

    /// Whether a copy of an extent is under way or waits, or any is not durable yet.
    pub(super) fn is_copying(&self, extent: ExtentId) -> bool {
        self.is_waiting(extent) || !self.is_stored()
    }

    /// The primary cannot read an extent: it is copied later.
    pub(super) fn give_back(&mut self, extent: ExtentId) {
        self.active.remove(&extent);
        self.enqueue(extent, 0);
    }

    /// Copies an extent when everything on the stream up to an entry is durable there.
    pub(super) fn enqueue(&mut self, extent: ExtentId, after: u64) {
        let held = self.queue.entry(extent).or_default();
        *held = (*held).max(after);
    }

    /// The next extent to be copied: none of which a copy is under way.
    fn next(&self, durable: u64, unreadable: &BTreeSet<ExtentId>) -> Option<ExtentId> {
        let is_ready = |(extent, after): &(&ExtentId, &u64)| {
            **after <= durable && !unreadable.contains(extent) && !self.active.contains_key(extent)
        };
        self.queue.iter().find(is_ready).map(|(extent, _)| *extent)
    }

    pub(super) fn route(&self, extent: ExtentId) -> Route {
        match self.active.get(&extent) {
            Some(Step::Reads { .. }) => Route::Hold,
            Some(Step::Asks | Step::ReadsInVain) => Route::Leave,
            None if self.queue.contains_key(&extent) || self.aside.contains(&extent) => Route::Leave,
            None => Route::Forward,
        }
    }

    /// Whether it is not known that an extent has its space there.
    pub(super) fn may_need_room(&self, extent: ExtentId) -> bool {
        !self.spacious.contains(&extent)
    }

    /// There is room for what had to wait, if anything had.
    fn end_waiting(&mut self) {
        self.spacious.clear();
        core::mem::take(&mut self.aside).into_iter().for_each(|extent| self.enqueue(extent, 0));
    }

    pub(super) fn hold(&mut self, entry: Entry, extent: ExtentId) {
        let Some(step) = self.active.get_mut(&extent) else { return };
        if let Step::Reads { held, .. } = step {
            held.push(entry);
            if held.len() > HELD_MAX {
                *step = Step::ReadsInVain;
            }
        }
    }
}

impl Primary {
    pub(super) fn queue_copy(&mut self, drive: DriveId, extent: ExtentId) {
        if let Some(peer) = self.peers.get_mut(&drive) {
            let after = peer.stream.end();
            peer.copier.enqueue(extent, after);
        }
    }

    /// Begins as many copies as may be under way.
    pub(super) fn advance_copies(&mut self, core: &mut Core) {
        let unreadable: BTreeSet<ExtentId> =
            self.mends.keys().copied().filter(|extent| self.is_own_damaged(core, *extent)).collect();
        for (drive, peer) in &mut self.peers {
            if !peer.lacks_room() {
                peer.copier.end_waiting();
            }
            let durable = peer.stream.durable();
            peer.copier.patches = peer.copier.patches.split_off(&(durable + 1));
            while peer.copier.active.len() + peer.copier.patches.len() < core.settings.copies_max {
                let Some(extent) = peer.copier.next(durable, &unreadable) else { break };
                peer.copier.queue.remove(&extent);
                peer.copier.active.insert(extent, Step::Asks);
                core.send(*drive, Body::Inquire { extent });
            }
        }
    }

    pub(super) fn handle_checksums(&mut self, core: &mut Core, from: DriveId, extent: ExtentId, sums: Vec<Checksum>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if let Some(step @ Step::Asks) = peer.copier.active.get_mut(&extent) {
            *step = Step::Reads { held: Vec::new(), is_empty: sums.is_empty() };
            core.store(StoreRequest::Difference { extent, than: sums }, Purpose::Copy(from, extent));
        }
    }

    pub(super) fn handle_copy(
        &mut self,
        core: &mut Core,
        now: Instant,
        drive: DriveId,
        extent: ExtentId,
        difference: Difference,
    ) {
        if difference.has_lost() && !self.copies_lost(extent) {
            return self.handle_unreadable_copy(core, now, drive, extent);
        }
        let Some(peer) = self.peers.get_mut(&drive) else { return };
        let lacks_room = peer.lacks_room();
        let (held, is_empty) = match peer.copier.active.remove(&extent) {
            Some(Step::Reads { held, is_empty }) => (held, is_empty),
            _ => return peer.copier.enqueue(extent, 0),
        };
        let Difference { version, runs } = difference;
        if lacks_room && is_empty && runs.iter().any(|run| !matches!(run.content, Content::Zeroes(_))) {
            peer.copier.aside.insert(extent);
            return;
        }
        if lacks_room && !is_empty {
            peer.copier.spacious.insert(extent);
        }
        self.push(core, now, drive, Entry::Patch { version, extent, runs });
        if let Some(peer) = self.peers.get_mut(&drive) {
            let index = peer.stream.end();
            peer.copier.patches.insert(index);
        }
        let forgets = core.settings.bugs.has(Planted::ForgetWritesDuringCopy);
        for entry in held.into_iter().filter(|_| !forgets) {
            if matches!(&entry, Entry::Write { version: written, .. } if *written > version) {
                self.push(core, now, drive, entry);
            }
        }
        if let Some(peer) = self.peers.get_mut(&drive)
            && peer.copier.queue.contains_key(&extent)
        {
            // It is to be copied once more.
            let after = peer.stream.end();
            peer.copier.enqueue(extent, after);
        }
    }

    /// Repeats questions whose answers have not come.
    pub(super) fn ask_again_copies(&self, core: &mut Core) {
        for (drive, peer) in &self.peers {
            for (extent, _) in peer.copier.active.iter().filter(|(_, step)| matches!(step, Step::Asks)) {
                core.send(*drive, Body::Inquire { extent: *extent });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_placement::rule::Extent;

    /// What is damaged once more while it is copied, or has entries on the stream, waits.
    #[test]
    fn an_extent_is_copied_once_at_a_time_and_after_its_entries() {
        let (extent, none) = (ExtentId { extent: Extent(3), ..ExtentId::default() }, BTreeSet::new());
        let mut copier = Copier::default();
        copier.enqueue(extent, 5);
        copier.enqueue(extent, 4);
        assert_eq!((copier.next(4, &none), copier.next(5, &none)), (None, Some(extent)));
        assert_eq!(copier.next(5, &[extent].into()), None, "the primary cannot read it");
        copier.active.insert(extent, Step::Asks);
        assert_eq!(copier.next(9, &none), None, "a copy of it is under way");
        copier.give_back(extent);
        assert_eq!(copier.next(9, &none), Some(extent));
    }
}
