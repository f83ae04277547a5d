//! Who owns what: the claims of replica groups on slots.
//!
//! A *claim* is one sentence: "in this epoch, this server is the primary of this group, which has these slots". It is
//! never altered, only replaced by one with a greater epoch, so any order of news gives the same table everywhere.
//!
//! - In a group the claim with the greater epoch stands. Two claims of one epoch cannot come out of ballots; if operators
//!   made them, that of the smaller server id stands.
//! - A slot that two groups claim belongs to the one with the greater epoch; at equal epochs (elections of different
//!   groups in parallel) to the one with the smaller group id. The loser's claim goes on to name the slot until its
//!   owner trims it.
//!
//! Epochs that were voted for are even, those that were not (the first claims of a cluster without voters, takeovers) are
//! odd, so that a takeover never shares an epoch with an election.
//!
//! Follows Valkey's configuration epochs, but for the tie-breaks: Valkey lets the smaller id move to a new epoch.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;

use crate::fingerprint::fingerprint;
use crate::slot::{GroupId, SLOTS, Slot, SlotRange, SlotSet};

/// In this epoch, this server is the primary of this group, which has these slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Which group.
    pub group: GroupId,
    /// Its primary.
    pub owner: ServerId,
    /// Since when.
    pub epoch: Epoch,
    /// What it has.
    pub slots: SlotSet,
}

impl Claim {
    /// Whether it stands against `other` of the same group.
    #[must_use]
    pub fn beats(&self, other: &Self) -> bool {
        (self.epoch, Reverse(self.owner)) > (other.epoch, Reverse(other.owner))
    }

    fn hash(&self) -> u64 {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.group.0.to_le_bytes());
        bytes[8..24].copy_from_slice(self.owner.as_bytes());
        bytes[24..].copy_from_slice(&self.epoch.0.to_le_bytes());
        fingerprint(&bytes)
    }
}

/// The least epoch after `known` that a ballot may decide.
#[must_use]
pub const fn next_voted(known: Epoch) -> Epoch {
    let next = known.next();
    if next.0.is_multiple_of(2) { next } else { next.next() }
}

/// The least epoch after `known` that is taken without a ballot.
#[must_use]
pub const fn next_unvoted(known: Epoch) -> Epoch {
    let next = known.next();
    if !next.0.is_multiple_of(2) { next } else { next.next() }
}

/// What became of a claim that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It stands now, in place of this one.
    Stands(Option<Claim>),
    /// It was known.
    Known,
    /// A greater one is known.
    Stale,
    /// There is no room for another group.
    Full,
}

#[derive(Debug, Clone)]
struct Entry {
    claim: Claim,
    hash: u64,
    /// How many slots it owns.
    owned: u16,
}

/// Stands for no group in the table of slots.
const NOBODY: u16 = u16::MAX;

/// All claims that stand, and who owns each slot by them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// In the order in which groups became known. None is ever removed, not even when its owner is forgotten, so that no
    /// epoch goes back.
    entries: Vec<Entry>,
    places: BTreeMap<GroupId, u16>,
    /// For each slot the place of the group that owns it. Empty before the first claim.
    owners: Box<[u16]>,
    /// How many slots each server owns; none with zero.
    by_owner: BTreeMap<ServerId, u16>,
    /// Servers that began or ceased to own slots since that was last asked.
    turned: Vec<ServerId>,
    assigned: u16,
    digest: u64,
}

impl Claims {
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// How many slots have an owner.
    pub(crate) fn assigned(&self) -> u16 {
        self.assigned
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, group: GroupId) -> Option<&Claim> {
        self.places.get(&group).map(|place| &self.entries[usize::from(*place)].claim)
    }

    /// All claims, in the order of groups.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.places.values().map(|place| &self.entries[usize::from(*place)].claim)
    }

    /// How many slots a server owns.
    pub(crate) fn owned_by_server(&self, owner: ServerId) -> u16 {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    /// Servers that own slots, sorted.
    pub(crate) fn owners(&self) -> impl Iterator<Item = ServerId> {
        self.by_owner.keys().copied()
    }

    /// Servers that began or ceased to own slots since the last call.
    pub(crate) fn take_turned(&mut self) -> Vec<ServerId> {
        core::mem::take(&mut self.turned)
    }

    /// How many slots a group owns.
    pub(crate) fn owned_by(&self, group: GroupId) -> u16 {
        self.places.get(&group).map_or(0, |place| self.entries[usize::from(*place)].owned)
    }

    /// All claims with their fingerprints.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = (&Claim, u64)> {
        self.entries.iter().map(|entry| (&entry.claim, entry.hash))
    }

    /// The claim by which a slot is owned.
    pub(crate) fn owner(&self, slot: Slot) -> Option<&Claim> {
        let place = *self.owners.get(slot.index())?;
        self.entries.get(usize::from(place)).map(|entry| &entry.claim)
    }

    /// The slots of a claim that no stronger claim has taken.
    pub(crate) fn held(&self, claim: &Claim) -> SlotSet {
        if self.get(claim.group) == Some(claim) && !self.is_overlapped(claim) {
            return claim.slots.clone();
        }
        let held = self.owned_runs(&claim.slots).filter(|(_, owner)| owner.group == claim.group);
        SlotSet::from_ranges(held.map(|(run, _)| run))
    }

    /// The slots of a set that have an owner, run by run, with the claims by which they are owned.
    pub(crate) fn owned_runs(&self, slots: &SlotSet) -> impl Iterator<Item = (SlotRange, &Claim)> {
        let mut ranges = slots.ranges().iter().copied();
        let mut rest: Option<SlotRange> = None;
        core::iter::from_fn(move || {
            loop {
                let range = rest.take().or_else(|| ranges.next())?;
                let (run, after) = range.split_at(run_len(self.owners.get(range.indexes()).unwrap_or_default()));
                rest = after;
                if let Some(owner) = self.owner(run.first) {
                    return Some((run, owner));
                }
            }
        })
    }

    /// Whether a claim has lost some of its slots to stronger ones.
    pub(crate) fn is_overlapped(&self, claim: &Claim) -> bool {
        self.owned_by(claim.group) < claim.slots.count()
    }

    /// Takes a claim if it stands against the one that is known. `force`: even if it does not.
    pub(crate) fn hear(&mut self, claim: Claim, groups_max: usize, force: bool) -> Heard {
        if self.owners.is_empty() {
            self.owners = vec![NOBODY; usize::from(SLOTS)].into_boxed_slice();
        }
        let hash = claim.hash();
        let Some(&place) = self.places.get(&claim.group) else {
            let place = u16::try_from(self.entries.len()).unwrap_or(NOBODY);
            if self.entries.len() >= groups_max || place == NOBODY {
                return Heard::Full;
            }
            self.places.insert(claim.group, place);
            self.digest ^= hash;
            self.entries.push(Entry { claim, hash, owned: 0 });
            self.settle(place, &SlotSet::EMPTY);
            return Heard::Stands(None);
        };
        let entry = &mut self.entries[usize::from(place)];
        if claim == entry.claim {
            return Heard::Known;
        }
        if !claim.beats(&entry.claim) && !force {
            return if entry.claim.beats(&claim) { Heard::Stale } else { Heard::Known };
        }
        self.digest ^= hash ^ entry.hash;
        entry.hash = hash;
        let owned = i32::from(entry.owned);
        let (from, to) = (entry.claim.owner, claim.owner);
        let before = core::mem::replace(&mut entry.claim, claim);
        self.count_owned(from, -owned);
        self.count_owned(to, owned);
        self.settle(place, &before.slots);
        Heard::Stands(Some(before))
    }

    /// Decides anew who owns the slots of the claim in `place` and those that it had before.
    fn settle(&mut self, place: u16, before: &SlotSet) {
        let slots = self.entries[usize::from(place)].claim.slots.clone();
        for slot in before.without(&slots).iter() {
            if self.owners[slot.index()] == place {
                let heir = self.strongest(slot);
                self.assign(slot.index()..slot.index() + 1, place, heir);
            }
        }
        for range in slots.ranges() {
            self.settle_range(place, range.indexes());
        }
        debug_assert!(
            self.entries[usize::from(place)].owned <= slots.count(),
            "a group owns nothing that it does not claim"
        );
        debug_assert!(self.assigned <= SLOTS, "a slot has one owner");
    }

    /// Gives the claim in `place` what it is due of a range: run by run of slots that have one owner now.
    fn settle_range(&mut self, place: u16, range: core::ops::Range<usize>) {
        let mut rest = range;
        while !rest.is_empty() {
            let owner = self.owners[rest.start];
            let run = run_len(&self.owners[rest.clone()]);
            // Where it is the owner, its epoch can only have grown, unless a planted bug forces an older claim in.
            if owner != place && (owner == NOBODY || self.strength(place) > self.strength(owner)) {
                self.assign(rest.start..rest.start + run, owner, place);
            }
            rest.start += run;
        }
    }

    /// Slots that all belong to `before` go to `place`.
    fn assign(&mut self, run: core::ops::Range<usize>, before: u16, place: u16) {
        let count = u16::try_from(run.len()).expect("there are 16,384 slots");
        self.owners[run].fill(place);
        self.assigned += if place == NOBODY { 0 } else { count };
        self.assigned -= if before == NOBODY { 0 } else { count };
        if let Some(entry) = self.entries.get_mut(usize::from(place)) {
            entry.owned += count;
            let owner = entry.claim.owner;
            self.count_owned(owner, i32::from(count));
        }
        if let Some(entry) = self.entries.get_mut(usize::from(before)) {
            entry.owned -= count;
            let owner = entry.claim.owner;
            self.count_owned(owner, -i32::from(count));
        }
    }

    fn count_owned(&mut self, owner: ServerId, change: i32) {
        let count = self.by_owner.entry(owner).or_default();
        let before = *count;
        *count = u16::try_from(i32::from(before) + change).expect("a server owns some of 16,384 slots");
        let after = *count;
        if after == 0 {
            self.by_owner.remove(&owner);
        }
        if (before == 0) != (after == 0) {
            self.turned.push(owner);
        }
    }

    fn strength(&self, place: u16) -> (Epoch, Reverse<GroupId>) {
        let claim = &self.entries[usize::from(place)].claim;
        (claim.epoch, Reverse(claim.group))
    }

    fn strongest(&self, slot: Slot) -> u16 {
        let places = self.places.values().copied();
        let claiming = places.filter(|place| self.entries[usize::from(*place)].claim.slots.contains(slot));
        claiming.max_by_key(|place| self.strength(*place)).unwrap_or(NOBODY)
    }
}

/// How many equal ones stand in front.
fn run_len(owners: &[u16]) -> usize {
    const TOGETHER: usize = 64;
    let Some(first) = owners.first() else { return 0 };
    let is_same = |chunk: &&[u16]| chunk.iter().fold(true, |all, owner| all & (owner == first));
    let same = owners.chunks_exact(TOGETHER).take_while(is_same).count() * TOGETHER;
    same + owners[same..].iter().take_while(|owner| *owner == first).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(group: u64, owner: u8, epoch: u64, ranges: &[(u16, u16)]) -> Claim {
        let slots = SlotSet::from_ranges(ranges.iter().map(|&(first, last)| SlotRange::new(first, last).unwrap()));
        Claim { group: GroupId(group), owner: ServerId::from_bytes([owner; 16]), epoch: Epoch(epoch), slots }
    }

    /// Owners by group of slots 0, 10, 20, 30 after `claims` came in every order.
    fn check(claims: &[Claim], expected: [Option<u64>; 4]) {
        let mut chance = crate::chance::Chance::new(1);
        for _ in 0..30 {
            let mut order = claims.to_vec();
            chance.shuffle(&mut order);
            let mut table = Claims::default();
            for claim in order {
                table.hear(claim, 100, false);
            }
            let owners = [0, 10, 20, 30].map(|slot| table.owner(Slot::new(slot).unwrap()).map(|claim| claim.group.0));
            assert_eq!(owners, expected);
            let assigned = (0..SLOTS).filter_map(Slot::new).filter(|slot| table.owner(*slot).is_some()).count();
            assert_eq!(usize::from(table.assigned()), assigned);
            assert_eq!(table.by_owner.values().map(|owned| usize::from(*owned)).sum::<usize>(), assigned);
        }
    }

    #[test]
    fn conflicts_end_the_same_way_in_any_order() {
        check(&[claim(1, 1, 2, &[(0, 15)]), claim(2, 2, 4, &[(10, 25)])], [Some(1), Some(2), Some(2), None]);
        check(&[claim(1, 1, 2, &[(0, 15)]), claim(2, 2, 2, &[(10, 25)])], [Some(1), Some(1), Some(2), None]);
        // Released slots fall to whoever else claims them.
        let released = [claim(1, 1, 2, &[(0, 30)]), claim(2, 2, 4, &[(10, 30)]), claim(2, 2, 6, &[(30, 30)])];
        check(&released, [Some(1), Some(1), Some(1), Some(2)]);
        // The same epoch twice, which only operators can bring about.
        check(&[claim(1, 1, 3, &[(0, 0)]), claim(1, 2, 3, &[(10, 10)])], [Some(1), None, None, None]);
    }

    #[test]
    fn stale_claims_are_known_as_such() {
        let mut table = Claims::default();
        assert_eq!(table.hear(claim(1, 1, 2, &[(0, 9)]), 2, false), Heard::Stands(None));
        assert_eq!(table.hear(claim(1, 1, 2, &[(0, 9)]), 2, false), Heard::Known);
        let digest = table.digest();
        assert_eq!(table.hear(claim(1, 2, 4, &[(0, 9)]), 2, false), Heard::Stands(Some(claim(1, 1, 2, &[(0, 9)]))));
        assert_ne!(table.digest(), digest);
        assert_eq!(table.hear(claim(1, 1, 2, &[(0, 9)]), 2, false), Heard::Stale);
        assert_eq!(table.hear(claim(2, 1, 2, &[(5, 20)]), 2, false), Heard::Stands(None));
        assert_eq!(table.hear(claim(3, 1, 2, &[]), 2, false), Heard::Full);
        assert_eq!(table.held(&claim(2, 1, 2, &[(5, 20)])).ranges(), [SlotRange::new(10, 20).unwrap()]);
        assert!(table.is_overlapped(table.get(GroupId(2)).unwrap()));
        assert!(!table.is_overlapped(table.get(GroupId(1)).unwrap()));
    }

    #[test]
    fn of_two_claims_of_one_epoch_and_owner_the_first_one_heard_stays() {
        let (one, other) = (claim(1, 1, 3, &[(0, 0)]), claim(1, 1, 3, &[(10, 10)]));
        assert!(!one.beats(&other) && !other.beats(&one));
        let mut table = Claims::default();
        table.hear(one.clone(), 2, false);
        assert_eq!(table.hear(other, 2, false), Heard::Known);
        assert_eq!(table.get(GroupId(1)), Some(&one));
    }

    #[test]
    fn the_digest_follows_from_the_claims_that_stand() {
        let claims = [claim(1, 1, 2, &[(0, 9)]), claim(2, 2, 2, &[]), claim(1, 3, 4, &[]), claim(2, 2, 6, &[(3, 3)])];
        let digest = |claims: &[Claim]| {
            let mut table = Claims::default();
            claims.iter().for_each(|claim| {
                table.hear(claim.clone(), 9, false);
            });
            assert_eq!(table.hashes().fold(0, |all, (_, hash)| all ^ hash), table.digest());
            assert!(table.hashes().map(|(claim, _)| claim.group).eq(table.iter().map(|claim| claim.group)));
            (table.len(), table.digest())
        };
        let all = digest(&claims);
        assert_eq!(all, digest(&claims[2..]));
        let parts = [&claims[..1], &claims[..2], &claims[..3], &claims[1..2], &claims[2..3]].map(digest);
        assert!(parts.iter().all(|part| *part != all && part.1 != 0));
        assert_eq!([parts[0], parts[2]].map(|part| part.0), [1, 2]);
    }

    #[test]
    fn servers_turn_when_they_begin_or_cease_to_own_slots() {
        let server = |number| ServerId::from_bytes([number; 16]);
        let mut table = Claims::default();
        let steps: [(Claim, &[u8], &[u8], u16); 6] = [
            (claim(1, 1, 2, &[(0, 9)]), &[1], &[1], 10),
            (claim(1, 1, 4, &[(0, 19)]), &[], &[1], 20),
            (claim(2, 2, 4, &[]), &[], &[1], 20),
            (claim(2, 2, 6, &[(5, 19), (50, 59)]), &[2], &[1, 2], 30),
            (claim(1, 3, 8, &[(0, 19)]), &[1, 3], &[2, 3], 30),
            (claim(2, 2, 10, &[]), &[2], &[3], 20),
        ];
        for (claim, turned, owners, assigned) in steps {
            let step = alloc::format!("{claim:?}");
            table.hear(claim, 9, false);
            let found = table.take_turned();
            assert!(turned.iter().all(|number| found.contains(&server(*number))), "{step}: {found:?}");
            assert_eq!(table.take_turned(), [], "each is told once");
            assert!(table.owners().eq(owners.iter().map(|number| server(*number))), "{step}");
            assert_eq!(table.assigned(), assigned, "{step}");
        }
        assert_eq!(table.owned_by(GroupId(1)), table.owned_by_server(server(3)));
        assert_eq!(table.owner(Slot::new(50).unwrap()), None, "nobody else claims what was given up");
    }

    #[test]
    fn a_claim_that_does_not_stand_holds_what_its_group_owns_of_it() {
        let mut table = Claims::default();
        table.hear(claim(1, 1, 4, &[(0, 9)]), 2, false);
        let held = |ranges: &[(u16, u16)]| table.held(&claim(1, 1, 2, ranges)).count();
        assert_eq!([held(&[(40, 45)]), held(&[(5, 14)]), held(&[(0, 99)])], [0, 5, 10]);
    }

    #[test]
    fn runs_cover_what_is_owned() {
        let mut table = Claims::default();
        let wanted = SlotSet::from_ranges([SlotRange::new(5, 200), SlotRange::new(300, 16_383)].into_iter().flatten());
        assert_eq!(table.owned_runs(&wanted).count(), 0);
        table.hear(claim(1, 1, 2, &[(0, 99), (350, 400)]), 2, false);
        table.hear(claim(2, 2, 4, &[(90, 150)]), 2, false);
        let runs: Vec<_> = table
            .owned_runs(&wanted)
            .map(|(run, owner)| (run.first.number(), run.last.number(), owner.group.0))
            .collect();
        assert_eq!(runs, [(5, 89, 1), (90, 150, 2), (350, 400, 1)]);
        assert_eq!((run_len(&[]), run_len(&[1]), run_len(&[7; 200]), run_len(&[7, 7, 8])), (0, 1, 200, 2));
        let mixed = |parts: &[(usize, u16)]| {
            run_len(&parts.iter().flat_map(|(count, owner)| vec![*owner; *count]).collect::<Vec<_>>())
        };
        let cases: [&[(usize, u16)]; 3] =
            [&[(64, 7), (1, 8), (99, 7)], &[(100, 7), (2, 8), (98, 7)], &[(100, 7), (100, 8)]];
        assert_eq!(cases.map(mixed), [64, 100, 100]);
    }

    #[test]
    fn ballots_and_takeovers_never_share_an_epoch() {
        for known in 0..10 {
            let (voted, unvoted) = (next_voted(Epoch(known)), next_unvoted(Epoch(known)));
            assert!(voted.0 % 2 == 0 && unvoted.0 % 2 == 1 && voted.0 > known && unvoted.0 > known);
            assert!(voted.0.max(unvoted.0) == known + 2);
        }
    }
}
