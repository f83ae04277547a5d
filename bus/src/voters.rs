//! Who votes, and how that changes without two majorities that do not meet.
//!
//! A set of voters is a value with an epoch. It comes from one authority ([`Command::SetVoters`](crate::Command)), or, where
//! nobody ever gave one, the smallest living voter chooses it.
//!
//! The rule of change, from set A (complete) to set B:
//! 1. B says which set it comes *after*, and carries it as its *previous* set. While it does, every decision (failure, ballot,
//!    being in reach) needs a majority of B **and** a majority of A.
//! 2. A voter takes part under one set at a time, durably. A request names the set that its candidate counts; under another
//!    set no vote is given. A voter goes over from A to a set that comes after A, or after a later one, and to no other: so
//!    a set that somebody with old knowledge made goes nowhere.
//! 3. When a majority of A has durably gone over to B, no ballot under A can be won any more, and B is *complete*: A has no say
//!    from then on. Those voters told the greatest epoch they knew or voted in; the greatest of these is B's *floor*. Every
//!    epoch that A has decided is at most the floor, and voters under B refuse those. So what A decided stays decided.
//! 4. A set that follows B can only be given once B is complete.
//!
//! Two sets after A can compete if two give them at once. An authority does not. Voters that choose sets themselves first win a
//! ballot of A for the new set's epoch; a voter that gave its vote for an epoch goes over to no set after A with a smaller
//! one. So if B is ever complete, no other set after A can be; and if B got stuck, a later one replaces it. Sets that were
//! told all the same, to several members that did not know of each other, are *rivals*: a voter of A stays with the one to
//! which it went over first, until so many others have gone to greater ones without ever having been with its own
//! that this can never be complete; then it goes over to the greatest rival. Nobody goes back to a smaller one.
//!
//! A voter that has lost its memory may have voted and not know it. A set names those of its voters that ever lost their
//! memory, and with which life the present one began; under a set that counts on more memory than a voter has, it
//! abstains. It can go over to the next set, since it never votes under the old one again; for the votes that it may
//! have given, it tells an epoch far beyond any that it can have voted in. Under a set that counts on what there is, it
//! votes again.
//!
//! Clusters that began apart have sets that know nothing of each other. When they meet, the set of the greater epoch, then
//! the longer, then the one with the greater fingerprint stands: until they have met they are two clusters, with two
//! majorities.
//!
//! The idea is Raft's joint consensus (Ongaro 2014), cut down to a register that one authority writes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};

use crate::fingerprint::fingerprint;
use crate::planted::{Bugs, Planted};
use crate::slot::Zone;

/// A member that could vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub id: ServerId,
    /// What it may be lost together with.
    pub zone: Zone,
    /// Whether it is the primary of a group with slots.
    pub owns_slots: bool,
}

/// Chooses as many voters as there are candidates, but an odd number up to `max`: all that own slots, filled up with others
/// as witnesses; where owners are more than `max`, owners and others in turn, so that the loss of many primaries leaves
/// a majority. Spread over zones as evenly as can be. The order of `candidates` does not matter.
#[must_use]
pub fn choose_voters(candidates: &[Candidate], max: usize) -> Vec<ServerId> {
    let owners = candidates.iter().filter(|candidate| candidate.owns_slots).count();
    let wanted = candidates.len().min(max);
    let wanted = wanted - usize::from(wanted.is_multiple_of(2) && wanted > 0);
    let mut rest: Vec<&Candidate> = candidates.iter().collect();
    rest.sort_unstable_by_key(|candidate| candidate.id);
    rest.dedup_by_key(|candidate| candidate.id);
    let mut by_zone: BTreeMap<Zone, usize> = BTreeMap::new();
    let mut chosen = Vec::with_capacity(wanted);
    while chosen.len() < wanted && !rest.is_empty() {
        let owner_turn = owners <= max || chosen.len() % 2 == 0;
        let load = |candidate: &&Candidate| by_zone.get(&candidate.zone).copied().unwrap_or(0);
        let best = rest
            .iter()
            .enumerate()
            .min_by_key(|(_, candidate)| (candidate.owns_slots != owner_turn, load(candidate), candidate.id));
        let Some((place, _)) = best else { break };
        let candidate = rest.remove(place);
        *by_zone.entry(candidate.zone).or_default() += 1;
        chosen.push(candidate.id);
    }
    chosen.sort_unstable();
    chosen
}

/// Where a set comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Voters chose it themselves, because nobody told them.
    Chosen,
    /// An authority told it; from then on voters choose none themselves.
    Told,
}

/// A set of voters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterSet {
    /// Which set; the greater one stands.
    pub epoch: Epoch,
    /// Where it comes from.
    pub origin: Origin,
    /// The epoch of the set before; zero for the first one. Less than `epoch`.
    pub after: Epoch,
    /// Epochs up to this were decided by earlier sets.
    pub floor: Epoch,
    /// The voters: sorted, none twice, at least one.
    pub voters: Vec<ServerId>,
    /// The set before, while a majority of it is needed too; else empty. Sorted.
    pub previous: Vec<ServerId>,
    /// Voters whose memory did not begin with their first life, and with which it did; sorted. Under this set such a voter
    /// votes as long as that is still so.
    pub forgetful: Vec<(ServerId, Incarnation)>,
    /// The same of the previous set.
    pub previous_forgetful: Vec<(ServerId, Incarnation)>,
}

/// Voters that a set can name as having lost their memory; more than that abstain.
pub const FORGETFUL_MAX: usize = 32;
/// The first life of a server.
pub const FIRST_LIFE: Incarnation = Incarnation(1);

/// How many of `count` are a majority.
#[must_use]
pub const fn majority(count: usize) -> usize {
    count / 2 + 1
}

impl VoterSet {
    /// Whether the set before has no say any more.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.previous.is_empty()
    }

    /// Tells sets apart, whether complete or not.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut bytes = Vec::with_capacity(16 + self.voters.len() * 16);
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.after.0.to_le_bytes());
        self.voters.iter().for_each(|id| bytes.extend_from_slice(id.as_bytes()));
        for (id, since) in &self.forgetful {
            bytes.extend_from_slice(id.as_bytes());
            bytes.extend_from_slice(&since.0.to_le_bytes());
        }
        fingerprint(&bytes)
    }

    /// Whether a voter whose memory began with the life `since` may vote: not if a set that has a say counts on an older
    /// memory of it.
    #[must_use]
    pub fn trusts(&self, id: ServerId, since: Incarnation) -> bool {
        is_trusted(&self.voters, &self.forgetful, id, since) && self.previous_trusts(id, since)
    }

    /// The same of the previous set alone.
    #[must_use]
    pub fn previous_trusts(&self, id: ServerId, since: Incarnation) -> bool {
        is_trusted(&self.previous, &self.previous_forgetful, id, since)
    }

    /// The order of rivals.
    fn rank(&self) -> (Epoch, u64) {
        (self.epoch, self.fingerprint())
    }

    /// Fingerprint of all that members should agree on.
    fn state_hash(&self) -> u64 {
        self.fingerprint() ^ fingerprint(&[u8::from(self.is_complete())]) ^ fingerprint(&self.floor.0.to_le_bytes())
    }
}

fn is_trusted(list: &[ServerId], forgetful: &[(ServerId, Incarnation)], id: ServerId, since: Incarnation) -> bool {
    let place = forgetful.binary_search_by_key(&id, |voter| voter.0);
    list.binary_search(&id).is_err() || since <= place.map_or(FIRST_LIFE, |place| forgetful[place].1)
}

/// What became of a set that was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It stands now.
    Stands,
    /// It was known here, and is complete now, or its floor is higher.
    Completed,
    /// Nothing new.
    Known,
    /// A greater one is known.
    Stale,
    /// Another one of its epoch is known.
    Conflict,
}

/// Places of voters, as bits.
pub(crate) type Places = u128;

/// Some of the voters, of both sets that may have a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) present: Places,
    pub(crate) previous: Places,
}

impl Tally {
    /// Those of both.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self { present: self.present | other.present, previous: self.previous | other.previous }
    }
}

/// Who votes, as it is known here.
#[derive(Debug, Clone, Default)]
pub(crate) struct Voters {
    set: Option<VoterSet>,
    fingerprint: u64,
    hash: u64,
    /// Voters of the previous set that have gone over, and the greatest epoch that they told.
    adopted: Places,
    adopted_floor: Epoch,
    /// The epoch of the rival from which this member came to its set; zero if it came from the set before, and the epoch of its
    /// own set if nothing is known. Durable.
    from: Epoch,
    /// The greatest rival with a greater epoch.
    rival: Option<VoterSet>,
    /// Voters of the previous set that have passed this set by.
    gone: Places,
}

/// A voter of the set before has gone over to a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adoption {
    /// Fingerprint of that set.
    pub voters: u64,
    /// Its epoch.
    pub epoch: Epoch,
    /// The epoch of the set before.
    pub after: Epoch,
    /// The epoch of the rival that it was with; zero for none, `epoch` if it does not know.
    pub from: Epoch,
    /// The greatest epoch that it knows or voted in.
    pub known: Epoch,
}

fn position(list: &[ServerId], id: ServerId) -> Option<usize> {
    list.binary_search(&id).ok()
}

impl Voters {
    pub(crate) fn set(&self) -> Option<&VoterSet> {
        self.set.as_ref()
    }

    pub(crate) fn present(&self) -> &[ServerId] {
        self.set.as_ref().map_or(&[], |set| &set.voters)
    }

    pub(crate) fn previous(&self) -> &[ServerId] {
        self.set.as_ref().map_or(&[], |set| &set.previous)
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.set.as_ref().map_or(Epoch::ZERO, |set| set.epoch)
    }

    pub(crate) fn floor(&self) -> Epoch {
        self.set.as_ref().map_or(Epoch::ZERO, |set| set.floor)
    }

    /// Tells sets apart, whether complete or not; zero without one.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Half of it.
    pub(crate) fn short_fingerprint(&self) -> u32 {
        u32::try_from(self.fingerprint >> 32).expect("half of 64 bits are 32")
    }

    /// Fingerprint of all that members should agree on.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether it has a vote in the present or the previous set.
    pub(crate) fn has_say(&self, id: ServerId) -> bool {
        position(self.present(), id).is_some() || position(self.previous(), id).is_some()
    }

    /// Everybody who has a say, each once, sorted.
    pub(crate) fn everybody(&self) -> Vec<ServerId> {
        if self.previous().is_empty() {
            return self.present().to_vec();
        }
        let mut ids: Vec<ServerId> = self.present().iter().chain(self.previous()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Adds a voter to some; false if it has no say or was in already.
    pub(crate) fn add(&self, some: &mut Tally, id: ServerId) -> bool {
        let mut added = false;
        for (list, bits) in [(self.present(), &mut some.present), (self.previous(), &mut some.previous)] {
            if let Some(place) = position(list, id) {
                added |= *bits & 1 << place == 0;
                *bits |= 1 << place;
            }
        }
        added
    }

    /// Takes a voter out of some.
    pub(crate) fn take_out(&self, some: &mut Tally, id: ServerId) {
        for (list, bits) in [(self.present(), &mut some.present), (self.previous(), &mut some.previous)] {
            if let Some(place) = position(list, id) {
                *bits &= !(1 << place);
            }
        }
    }

    /// Whether some are a majority of every set that has a say.
    pub(crate) fn is_majority(&self, some: Tally, bugs: Bugs) -> bool {
        let only_present = bugs.has(Planted::SkipOldVoters);
        let reaches = |bits: Places, list: &[ServerId]| {
            let off_by_one = usize::from(bugs.has(Planted::QuorumOffByOne) && list.len() > 1);
            let needed = majority(list.len()) - off_by_one;
            usize::try_from(bits.count_ones()).is_ok_and(|count| count >= needed)
        };
        let Some(set) = &self.set else { return false };
        reaches(some.present, &set.voters)
            && (set.is_complete() || only_present || reaches(some.previous, &set.previous))
    }

    /// How many of the present voters are among some.
    pub(crate) fn count(some: Tally) -> u16 {
        u16::try_from(some.present.count_ones()).expect("there are 128 bits")
    }

    /// Takes a set if it stands against the one that is known, by the rules in the head of this module. `own`: who hears it.
    pub(crate) fn hear(&mut self, heard: &VoterSet, own: ServerId) -> Heard {
        let Some(known) = &self.set else {
            self.replace(heard.clone());
            return Heard::Stands;
        };
        if heard.fingerprint() == self.fingerprint {
            return self.hear_same(heard);
        }
        let floor = heard.floor.max(known.floor);
        let result =
            if heard.is_complete() { compare_complete(known, heard) } else { compare_pending(known, heard, own) };
        if result == Heard::Stands {
            self.replace(VoterSet { floor, ..heard.clone() });
        } else if result == Heard::Conflict && is_rival(known, heard) {
            let is_greater = self.rival.as_ref().is_none_or(|rival| rival.rank() < heard.rank());
            if is_greater {
                self.rival = Some(heard.clone());
            }
        }
        result
    }

    /// The epoch of the rival from which this member came to its set.
    pub(crate) fn from(&self) -> Epoch {
        self.from
    }

    /// Takes that out of a saved record.
    pub(crate) fn restore_from(&mut self, from: Epoch) {
        self.from = from.min(self.epoch());
    }

    /// What this member, a voter of the previous set, tells about having gone over. `remembers`: its memory reaches back so far.
    pub(crate) fn adoption(&self, known: Epoch, remembers: bool) -> Option<Adoption> {
        let set = self.set.as_ref().filter(|set| !set.is_complete())?;
        let from = if remembers { self.from } else { set.epoch };
        Some(Adoption { voters: self.fingerprint, epoch: set.epoch, after: set.after, from, known })
    }

    /// A voter of the previous set may have passed this set by.
    pub(crate) fn handle_passed(&mut self, id: ServerId, adoption: &Adoption) {
        let Some(set) = self.set.as_ref().filter(|set| !set.is_complete() && set.after == adoption.after) else {
            return;
        };
        if let Some(place) = position(&set.previous, id)
            && adoption.from < set.epoch
            && set.epoch < adoption.epoch
        {
            self.gone |= 1 << place;
        }
    }

    /// The rival to follow, once this member's set can never be complete.
    pub(crate) fn leading_rival(&self) -> Option<VoterSet> {
        let rival = self.rival.as_ref()?;
        let left = rival.previous.len() - usize::try_from(self.gone.count_ones()).expect("there are 128 bits");
        (left < majority(rival.previous.len())).then(|| rival.clone())
    }

    /// Goes over to a rival.
    pub(crate) fn follow_rival(&mut self, rival: &VoterSet) {
        let floor = rival.floor.max(self.floor());
        self.replace(VoterSet { floor, ..rival.clone() });
    }

    /// The same set: it may be complete by now, or its floor higher.
    fn hear_same(&mut self, heard: &VoterSet) -> Heard {
        let Some(known) = &self.set else { return Heard::Known };
        let completes = heard.is_complete() && !known.is_complete();
        let raises = heard.is_complete() && heard.floor > known.floor;
        if !completes && !raises {
            return Heard::Known;
        }
        self.replace(VoterSet { floor: heard.floor.max(known.floor), ..heard.clone() });
        Heard::Completed
    }

    fn replace(&mut self, set: VoterSet) {
        self.from = match &self.set {
            // Whoever had no set before was with no rival; a voter without memory says that it does not know.
            None => Epoch::ZERO,
            Some(known) if known.is_complete() => Epoch::ZERO,
            Some(known) if known.after == set.after => known.epoch.min(set.epoch),
            Some(_) => Epoch::ZERO,
        };
        (self.rival, self.gone) = (None, 0);
        self.fingerprint = set.fingerprint();
        self.hash = set.state_hash();
        self.set = Some(set);
        self.adopted = 0;
        self.adopted_floor = Epoch::ZERO;
    }

    /// A voter of the previous set has gone over to the present one. The completed set, once that is a majority.
    pub(crate) fn handle_adopted(&mut self, id: ServerId, known: Epoch) -> Option<VoterSet> {
        let set = self.set.as_ref().filter(|set| !set.is_complete())?;
        let place = position(&set.previous, id)?;
        self.adopted |= 1 << place;
        self.adopted_floor = self.adopted_floor.max(known);
        let count = usize::try_from(self.adopted.count_ones()).expect("there are 128 bits");
        (count >= majority(set.previous.len())).then(|| VoterSet {
            floor: set.floor.max(self.adopted_floor),
            previous: Vec::new(),
            previous_forgetful: Vec::new(),
            ..set.clone()
        })
    }
}

/// Whether a set competes with another one after the same set, and comes later.
fn is_rival(known: &VoterSet, heard: &VoterSet) -> bool {
    let both_pending = !known.is_complete() && !heard.is_complete();
    both_pending && heard.after == known.after && heard.previous == known.previous && heard.rank() > known.rank()
}

/// A complete set against another one that is known.
fn compare_complete(known: &VoterSet, heard: &VoterSet) -> Heard {
    // A set that comes after an older one than this can never be complete.
    let is_later = heard.epoch > known.after;
    let apart = |set: &VoterSet| (set.epoch, set.voters.len(), set.fingerprint());
    match known.is_complete() {
        false if is_later => Heard::Stands,
        true if apart(heard) > apart(known) => Heard::Stands,
        true if heard.epoch == known.epoch => Heard::Conflict,
        _ => Heard::Stale,
    }
}

/// A set that is not complete against another one that is known.
fn compare_pending(known: &VoterSet, heard: &VoterSet, own: ServerId) -> Heard {
    if heard.after >= known.epoch {
        return Heard::Stands;
    }
    if known.is_complete() || heard.after < known.after {
        return Heard::Stale;
    }
    if heard.after > known.after {
        return Heard::Stands;
    }
    // Both come after the same set. One that won a later ballot replaces one that can never be complete; who has no say in
    // the set before only follows.
    let both_chosen = heard.origin == Origin::Chosen && known.origin == Origin::Chosen;
    let is_free = both_chosen || position(&known.previous, own).is_none();
    match heard.epoch > known.epoch {
        true if is_free => Heard::Stands,
        false if heard.epoch < known.epoch && is_free => Heard::Stale,
        _ => Heard::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn ids(numbers: &[u8]) -> Vec<ServerId> {
        numbers.iter().map(|number| id(*number)).collect()
    }

    /// A set that comes after the one of the epoch before.
    fn set(epoch: u64, voters: &[u8], previous: &[u8], floor: u64) -> VoterSet {
        let (voters, previous) = (ids(voters), ids(previous));
        VoterSet {
            epoch: Epoch(epoch),
            after: Epoch(epoch - 1),
            origin: Origin::Told,
            floor: Epoch(floor),
            voters,
            previous,
            forgetful: Vec::new(),
            previous_forgetful: Vec::new(),
        }
    }

    fn is_majority(voters: &Voters, some: &[u8]) -> bool {
        let mut tally = Tally::default();
        some.iter().for_each(|number| {
            voters.add(&mut tally, id(*number));
        });
        voters.is_majority(tally, Bugs::default())
    }

    #[test]
    fn a_change_needs_both_majorities_until_it_is_complete() {
        let mut voters = Voters::default();
        assert!(!is_majority(&voters, &[1, 2, 3]));
        assert_eq!(voters.hear(&set(1, &[1, 2, 3], &[], 0), id(1)), Heard::Stands);
        assert!(is_majority(&voters, &[1, 2]) && !is_majority(&voters, &[1, 4, 5]));
        assert_eq!(voters.hear(&set(2, &[4, 5, 6], &[1, 2, 3], 0), id(1)), Heard::Stands);
        for (some, expected) in [(&[4, 5, 6, 1][..], false), (&[1, 2, 3, 4], false), (&[1, 2, 4, 5], true)] {
            assert_eq!(is_majority(&voters, some), expected, "{some:?}");
        }
        assert_eq!(voters.handle_adopted(id(4), Epoch(90)), None, "not of the previous set");
        assert_eq!(voters.handle_adopted(id(1), Epoch(10)), None);
        assert_eq!(voters.handle_adopted(id(1), Epoch(10)), None, "the same twice");
        let complete = voters.handle_adopted(id(3), Epoch(8)).unwrap();
        assert_eq!(complete, set(2, &[4, 5, 6], &[], 10));
        assert_eq!(voters.hear(&complete, id(1)), Heard::Completed);
        assert!(is_majority(&voters, &[4, 5]) && !is_majority(&voters, &[1, 2, 3]));
        assert_eq!(voters.hear(&set(1, &[1, 2, 3], &[], 0), id(1)), Heard::Stale);
        assert_eq!(voters.hear(&set(2, &[4, 5, 6], &[1, 2, 3], 0), id(1)), Heard::Known);
    }

    #[test]
    fn no_two_majorities_without_a_common_voter_for_any_change() {
        // Every change among sets over five servers, every split of the servers into two sides: never may one side decide
        // under the old set and the other side, of which too few have gone over, under the new one.
        for old in 1_u8..32 {
            for new in 1_u8..32 {
                let list = |bits: u8| (0..5).filter(|bit| bits & 1 << bit != 0).collect::<Vec<u8>>();
                let (mut before, mut after) = (Voters::default(), Voters::default());
                before.hear(&set(1, &list(old), &[], 0), id(1));
                after.hear(&set(2, &list(new), &list(old), 0), id(1));
                for side in 0_u8..32 {
                    let meets = is_majority(&before, &list(side)) && is_majority(&after, &list(!side & 31));
                    assert!(!meets, "{old:05b} {new:05b} {side:05b}");
                }
            }
        }
    }

    #[test]
    fn who_lost_its_memory_votes_under_a_set_that_knows_it() {
        let mut told = set(1, &[1, 2, 3], &[], 0);
        assert!(told.trusts(id(1), FIRST_LIFE) && !told.trusts(id(1), Incarnation(4)));
        let fingerprint = told.fingerprint();
        told.forgetful = alloc::vec![(id(1), Incarnation(4))];
        assert_ne!(told.fingerprint(), fingerprint);
        let cases = [(1, 4, true), (1, 5, false), (2, 1, true), (2, 4, false)];
        for (number, since, expected) in cases {
            assert_eq!(told.trusts(id(number), Incarnation(since)), expected, "{number} {since}");
        }
        told.previous = ids(&[1]);
        assert!(!told.trusts(id(1), Incarnation(4)) && told.trusts(id(2), FIRST_LIFE));
        told.previous_forgetful = told.forgetful.clone();
        assert!(told.trusts(id(1), Incarnation(4)));
    }

    #[test]
    fn a_set_made_from_old_knowledge_goes_nowhere() {
        let after = |after, set: VoterSet| VoterSet { after: Epoch(after), ..set };
        let chosen = |set: VoterSet| VoterSet { origin: Origin::Chosen, ..set };
        let first = set(1, &[1, 2, 3], &[], 0);
        let second = after(1, set(2, &[4, 5, 6], &[], 0));
        let old = after(1, set(3, &[1, 2, 3], &[1, 2, 3], 0));
        let next = after(2, set(4, &[7], &[4, 5, 6], 0));
        let sibling = after(1, set(5, &[8], &[1, 2, 3], 0));
        let cases: [(&str, &[&VoterSet], &VoterSet, Heard); 9] = [
            ("who knows the second does not go over", &[&first, &second], &old, Heard::Stale),
            ("who does not know it may", &[&first], &old, Heard::Stands),
            ("and comes back", &[&first, &old], &second, Heard::Stands),
            ("a set after a later one", &[&first, &old], &next, Heard::Stands),
            ("is not left for an older one", &[&first, &next], &old, Heard::Stale),
            ("competitors that are told", &[&first, &old], &sibling, Heard::Conflict),
            (
                "a competitor that is complete",
                &[&first, &old],
                &VoterSet { previous: Vec::new(), ..sibling.clone() },
                Heard::Stands,
            ),
            (
                "competitors that won ballots",
                &[&chosen(first.clone()), &chosen(old.clone())],
                &chosen(sibling.clone()),
                Heard::Stands,
            ),
            ("in their order", &[&chosen(first.clone()), &chosen(sibling.clone())], &chosen(old.clone()), Heard::Stale),
        ];
        for (name, before, heard, expected) in cases {
            let mut voters = Voters::default();
            before.iter().for_each(|set| assert_eq!(voters.hear(set, id(1)), Heard::Stands, "{name}"));
            assert_eq!(voters.hear(heard, id(1)), expected, "{name}");
        }
    }

    #[test]
    fn of_several_rivals_the_greatest_is_followed() {
        let five = [1, 2, 3, 4, 5];
        let after = |epoch, voters: &[u8]| VoterSet { after: Epoch(1), ..set(epoch, voters, &five, 0) };
        let gone = Adoption { voters: 0, epoch: Epoch(9), after: Epoch(1), from: Epoch::ZERO, known: Epoch::ZERO };
        for order in [[3, 4], [4, 3]] {
            let mut voters = Voters::default();
            voters.hear(&set(1, &five, &[], 0), id(1));
            voters.hear(&after(2, &[1]), id(1));
            for epoch in order {
                assert_eq!(voters.hear(&after(epoch, &[2]), id(1)), Heard::Conflict);
            }
            (2..=4).for_each(|number| voters.handle_passed(id(number), &gone));
            assert_eq!(voters.leading_rival(), Some(after(4, &[2])), "{order:?}");
        }
        // Two complete sets of one epoch are an operator's mistake: nobody goes over.
        let mut voters = Voters::default();
        let (one, other) = (set(2, &[1, 2, 3], &[], 0), set(2, &[4, 5, 6], &[], 0));
        let (one, other) = if one.fingerprint() > other.fingerprint() { (one, other) } else { (other, one) };
        voters.hear(&one, id(1));
        assert_eq!(voters.hear(&other, id(1)), Heard::Conflict);
        assert_eq!(voters.leading_rival(), None);
    }

    #[test]
    fn a_rival_is_followed_when_ones_own_set_can_never_be_complete() {
        let after = |set: VoterSet| VoterSet { after: Epoch(1), ..set };
        let (own, rival) = (after(set(2, &[1], &[1, 2, 3, 4, 5], 0)), after(set(3, &[2], &[1, 2, 3, 4, 5], 0)));
        let mut voters = Voters::default();
        voters.hear(&set(1, &[1, 2, 3, 4, 5], &[], 0), id(1));
        assert_eq!(voters.hear(&own, id(1)), Heard::Stands);
        let adoption = |from: u64, epoch: u64| Adoption {
            voters: 0,
            epoch: Epoch(epoch),
            after: Epoch(1),
            from: Epoch(from),
            known: Epoch::ZERO,
        };
        assert_eq!(voters.hear(&rival, id(1)), Heard::Conflict);
        // With two of five gone the other three can still complete this member's set; with three gone nobody can. Who was with
        // it, or does not know, is not gone.
        let told = [(2, 0, 3), (2, 0, 3), (9, 0, 3), (3, 2, 3), (4, 3, 3), (5, 0, 4)];
        for (number, from, epoch) in told {
            voters.handle_passed(id(number), &adoption(from, epoch));
            assert_eq!(voters.leading_rival(), None, "{number}");
        }
        voters.handle_passed(id(4), &adoption(0, 3));
        assert_eq!(voters.leading_rival(), Some(rival.clone()));
        voters.follow_rival(&rival);
        assert_eq!(voters.adoption(Epoch(9), true).map(|adoption| adoption.from), Some(Epoch(2)));
        assert_eq!(voters.adoption(Epoch(9), false).map(|adoption| adoption.from), Some(Epoch(3)));
        assert_eq!(voters.hear(&own, id(1)), Heard::Conflict, "nobody goes back");
        assert_eq!(voters.leading_rival(), None);
    }

    #[test]
    fn of_two_sets_of_one_epoch_the_complete_one_stands() {
        let mut voters = Voters::default();
        voters.hear(&set(1, &[1, 2, 3], &[], 0), id(1));
        voters.hear(&set(2, &[4, 5], &[1, 2, 3], 0), id(1));
        assert_eq!(voters.hear(&set(2, &[6, 7], &[1, 2, 3], 0), id(1)), Heard::Conflict);
        assert_eq!(voters.present(), ids(&[4, 5]));
        assert_eq!(voters.hear(&set(2, &[6, 7], &[], 4), id(1)), Heard::Stands);
        assert_eq!((voters.present(), voters.floor()), (&ids(&[6, 7])[..], Epoch(4)));
    }

    #[test]
    fn chosen_voters_are_odd_owners_first_and_spread() {
        let candidate = |number: u8, zone: u32, owns_slots| Candidate { id: id(number), zone: Zone(zone), owns_slots };
        let three = [candidate(1, 1, true), candidate(2, 2, true), candidate(3, 3, false)];
        let twenty: Vec<_> = (0..20).map(|number| candidate(number, 1, number == 9)).collect();
        assert!(choose_voters(&twenty, 7).len() == 7 && choose_voters(&twenty, 7).contains(&id(9)));
        assert_eq!(choose_voters(&three, 7), ids(&[1, 2, 3]));
        assert_eq!(choose_voters(&three[..2], 7), ids(&[1]));
        assert_eq!(choose_voters(&three[..1], 7), ids(&[1]));
        assert_eq!(choose_voters(&[], 7), ids(&[]));
        // 30 primaries and 30 replicas in three zones: owners and others, and no zone has a majority.
        let many: Vec<_> = (0..60).map(|number| candidate(number, u32::from(number % 3), number < 30)).collect();
        for max in [3, 7, 8, 21, 60] {
            let chosen = choose_voters(&many, max);
            let expected = max - usize::from(max % 2 == 0);
            assert_eq!(chosen.len(), expected);
            for zone in 0..3 {
                let here = chosen.iter().filter(|id| id.as_bytes()[0] % 3 == zone).count();
                assert!(here * 3 <= expected + 3, "zone {zone} has {here} of {expected}");
            }
            let owners = chosen.iter().filter(|id| id.as_bytes()[0] < 30).count();
            assert!(owners <= majority(expected).max(30), "{owners} of {expected}");
        }
        let mut turned = many.clone();
        turned.reverse();
        assert_eq!(choose_voters(&turned, 7), choose_voters(&many, 7));
    }

    #[test]
    fn owners_and_others_take_turns_where_owners_are_too_many() {
        let candidate = |number: u8, zone: u32, owns_slots| Candidate { id: id(number), zone: Zone(zone), owns_slots };
        let list = |owners: u8| (1..=10).map(|number| candidate(number, 1, number <= owners)).collect::<Vec<_>>();
        for (owners, max, expected) in
            [(3, 3, &[1, 2, 3][..]), (2, 3, &[1, 2, 3]), (4, 3, &[1, 2, 5]), (6, 5, &[1, 2, 3, 7, 8]), (6, 1, &[1])]
        {
            assert_eq!(choose_voters(&list(owners), max), ids(expected), "{owners} {max}");
        }
        let zones = [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3)].map(|(number, zone)| candidate(number, zone, false));
        assert_eq!(choose_voters(&zones, 3), ids(&[1, 4, 5]), "one of each zone");
    }

    #[test]
    fn all_that_members_should_agree_on_is_in_one_number() {
        let mut voters = Voters::default();
        let told = |voters: &Voters| (voters.epoch(), voters.floor(), voters.fingerprint(), voters.hash());
        assert_eq!(told(&voters), (Epoch::ZERO, Epoch::ZERO, 0, 0));
        assert_eq!((voters.short_fingerprint(), voters.everybody()), (0, Vec::new()));
        voters.hear(&set(2, &[1, 2], &[2, 3], 7), id(1));
        // These numbers are compared between members, so they must not change.
        let (fingerprint, pending) = (5_703_892_517_441_009_776, 13_954_841_988_058_438_108);
        assert_eq!(told(&voters), (Epoch(2), Epoch(7), fingerprint, pending));
        assert_eq!(u64::from(voters.short_fingerprint()), fingerprint >> 32);
        assert_eq!(voters.everybody(), ids(&[1, 2, 3]));
        assert_eq!([1, 2, 3, 4].map(|number| voters.has_say(id(number))), [true, true, true, false]);
        // One fact is exchanged for another.
        let complete = pending ^ super::fingerprint(&[0]) ^ super::fingerprint(&[1]);
        let later = complete ^ super::fingerprint(&7_u64.to_le_bytes()) ^ super::fingerprint(&8_u64.to_le_bytes());
        for (floor, hash) in [(7, complete), (8, later)] {
            assert_eq!(voters.hear(&set(2, &[1, 2], &[], floor), id(1)), Heard::Completed);
            assert_eq!(told(&voters), (Epoch(2), Epoch(floor), fingerprint, hash));
        }
        assert_eq!([1, 2, 3].map(|number| voters.has_say(id(number))), [true, true, false]);
        assert_eq!(voters.everybody(), ids(&[1, 2]));
    }

    #[test]
    fn a_voter_counts_once_in_each_set_until_it_is_taken_out() {
        let mut voters = Voters::default();
        voters.hear(&set(2, &[1, 2, 3], &[3, 4, 5], 0), id(1));
        let mut tally = Tally::default();
        let steps = [(1, true), (1, false), (3, true), (3, false), (9, false), (2, true), (5, true), (4, true)];
        for (number, added) in steps {
            assert_eq!(voters.add(&mut tally, id(number)), added, "{number}");
        }
        assert_eq!((Voters::count(tally), tally.previous.count_ones()), (3, 3));
        for number in [3, 9, 2] {
            voters.take_out(&mut tally, id(number));
        }
        assert_eq!((Voters::count(tally), tally.previous.count_ones()), (1, 2));
        assert!(!voters.is_majority(tally, Bugs::default()));
        assert!(voters.add(&mut tally, id(3)) && voters.is_majority(tally, Bugs::default()));
        // A voter of one set may be added where it is in the other one.
        let mut half = Tally { present: 0b100, previous: 0 };
        assert!(voters.add(&mut half, id(3)) && half == Tally { present: 0b100, previous: 1 });
        let other = Tally { present: 0b110, previous: 0b011 };
        assert_eq!(half.with(other), Tally { present: 0b110, previous: 0b011 });
        assert_eq!(other.with(Tally { present: 0b011, previous: 0b100 }), Tally { present: 0b111, previous: 0b111 });
    }

    #[test]
    fn a_floor_never_falls_and_a_complete_set_stays_complete() {
        let (pending, complete) = (|floor| set(2, &[4, 5], &[1, 2, 3], floor), |floor| set(2, &[4, 5], &[], floor));
        // What is known, what is heard, what becomes of that, and the floor then.
        let cases = [
            (pending(5), pending(9), Heard::Known, 5),
            (pending(5), complete(4), Heard::Completed, 5),
            (pending(5), complete(5), Heard::Completed, 5),
            (pending(5), complete(6), Heard::Completed, 6),
            (complete(5), pending(9), Heard::Known, 5),
            (complete(5), complete(4), Heard::Known, 5),
            (complete(5), complete(5), Heard::Known, 5),
            (complete(5), complete(6), Heard::Completed, 6),
            (complete(5), set(3, &[7], &[4, 5], 2), Heard::Stands, 5),
            (complete(5), set(3, &[7], &[4, 5], 8), Heard::Stands, 8),
        ];
        for (known, heard, expected, floor) in cases {
            let mut voters = Voters::default();
            voters.hear(&known, id(1));
            assert_eq!((voters.hear(&heard, id(1)), voters.floor()), (expected, Epoch(floor)), "{known:?} {heard:?}");
            let is_complete = known.is_complete() || heard.is_complete();
            assert_eq!(voters.previous().is_empty(), is_complete && heard.epoch == known.epoch, "{known:?} {heard:?}");
        }
        let forgetful = alloc::vec![(id(1), Incarnation(4))];
        let mut voters = Voters::default();
        voters.hear(&VoterSet { previous_forgetful: forgetful, ..set(2, &[4], &[1], 0) }, id(1));
        assert_eq!(voters.handle_adopted(id(1), Epoch(3)), Some(set(2, &[4], &[], 3)));
    }

    #[test]
    fn what_a_voter_tells_of_the_rival_that_it_was_with() {
        let after = |after, set: VoterSet| VoterSet { after: Epoch(after), ..set };
        let first = set(1, &[1, 2, 3], &[], 0);
        let (second, third) = (after(1, set(2, &[1], &[1, 2, 3], 0)), after(1, set(3, &[2], &[1, 2, 3], 0)));
        let (later, complete) = (after(2, set(4, &[7], &[1], 0)), set(3, &[8], &[], 0));
        let from = |sets: &[&VoterSet]| {
            let mut voters = Voters::default();
            sets.iter().for_each(|set| assert_eq!(voters.hear(set, id(9)), Heard::Stands));
            voters
        };
        assert_eq!(from(&[&first, &second]).from(), Epoch::ZERO, "it comes from the set before");
        assert_eq!(from(&[&first, &second, &third]).from(), Epoch(2), "it was with the second one");
        assert_eq!(from(&[&first, &second, &later]).from(), Epoch::ZERO, "that comes after another set");
        assert_eq!(from(&[&first, &after(0, complete)]).from(), Epoch::ZERO, "a complete set is no rival");
        let mut voters = from(&[&first, &second, &third]);
        for (saved, expected) in [(0, 0), (2, 2), (3, 3), (9, 3)] {
            voters.restore_from(Epoch(saved));
            assert_eq!(voters.from(), Epoch(expected), "{saved}");
            assert_eq!(voters.adoption(Epoch(1), true).map(|told| told.from), Some(Epoch(expected)), "{saved}");
        }
    }

    #[test]
    fn only_a_greater_rival_that_most_went_over_to_is_followed() {
        let before = [1, 2, 3, 4, 5];
        let after = |epoch, previous: &[u8], floor| VoterSet { after: Epoch(1), ..set(epoch, &[1], previous, floor) };
        let gone = |after, epoch| {
            let (after, epoch) = (Epoch(after), Epoch(epoch));
            Adoption { voters: 0, epoch, after, from: Epoch::ZERO, known: Epoch::ZERO }
        };
        let lead = |rival: &VoterSet, adoption: &Adoption| {
            let mut voters = Voters::default();
            voters.hear(&set(1, &before, &[], 0), id(1));
            voters.hear(&after(3, &before, 5), id(1));
            assert_eq!(voters.hear(rival, id(1)), Heard::Conflict);
            (2..=4).for_each(|number| voters.handle_passed(id(number), adoption));
            voters.leading_rival().map(|rival| {
                voters.follow_rival(&rival);
                (voters.epoch().0, voters.floor().0)
            })
        };
        assert_eq!(lead(&after(4, &before, 2), &gone(1, 4)), Some((4, 5)), "its floor does not fall");
        assert_eq!(lead(&after(4, &before, 8), &gone(1, 4)), Some((4, 8)));
        assert_eq!(lead(&after(2, &before, 0), &gone(1, 4)), None, "it is smaller");
        assert_eq!(lead(&after(4, &[1, 2, 3], 0), &gone(1, 4)), None, "it comes after another set");
        assert_eq!(lead(&after(4, &before, 0), &gone(2, 4)), None, "they were voters of another set");
        assert_eq!(lead(&after(4, &before, 0), &gone(1, 3)), None, "they are with this member's own set");
        // Two complete sets of one epoch, however long, lead to nothing.
        let (long, short) = (set(2, &[1, 2, 3], &[], 0), (4..9).map(|number| set(2, &[number], &[], 0)));
        for short in short {
            let mut voters = Voters::default();
            voters.hear(&long, id(1));
            assert_eq!((voters.hear(&short, id(1)), voters.leading_rival()), (Heard::Conflict, None));
        }
    }

    #[test]
    fn sets_of_another_past_or_of_the_same_epoch_do_not_stand() {
        let chosen = |set: VoterSet| VoterSet { origin: Origin::Chosen, after: Epoch(4), ..set };
        let told = |set: VoterSet| VoterSet { origin: Origin::Told, ..chosen(set) };
        let pending = |epoch, voter| set(epoch, &[voter], &[1, 2, 3], 0);
        let cases = [
            ("older than the set before", told(pending(5, 1)), set(3, &[6], &[], 0), Heard::Stale),
            ("the set before", told(pending(5, 1)), set(4, &[1, 2, 3], &[], 0), Heard::Stale),
            ("later than that", told(pending(7, 1)), set(5, &[6], &[], 0), Heard::Stands),
            ("two choices of one epoch", chosen(pending(5, 1)), chosen(pending(5, 2)), Heard::Conflict),
            ("a later choice", chosen(pending(5, 1)), chosen(pending(6, 2)), Heard::Stands),
            ("an earlier choice", chosen(pending(6, 1)), chosen(pending(5, 2)), Heard::Stale),
            ("a choice beside what was told", told(pending(5, 1)), chosen(pending(6, 2)), Heard::Conflict),
            ("what was told beside a choice", chosen(pending(5, 1)), told(pending(6, 2)), Heard::Conflict),
        ];
        for (name, known, heard, expected) in cases {
            let mut voters = Voters::default();
            voters.hear(&known, id(1));
            assert_eq!(voters.hear(&heard, id(1)), expected, "{name}");
        }
    }
}
