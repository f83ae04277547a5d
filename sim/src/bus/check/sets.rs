//! Sets of voters, as members told of them: what a vote or a suspicion counts under.

use std::collections::BTreeMap;

use ashlar_bus::event::VotersView;
use ashlar_wire::id::{Incarnation, ServerId};

use crate::bus::world::number_of;

/// Some members, as bits by number.
pub(super) type Mask = u16;

/// The mask of one member.
pub(super) fn bit(member: u32) -> Mask {
    1 << member
}

/// Some ids as a mask.
pub(super) fn mask(ids: &[ServerId]) -> Mask {
    ids.iter().filter_map(|id| number_of(*id)).fold(0, |mask, no| mask | bit(no))
}

/// Whether some of a set are a majority of it.
pub(super) fn is_majority(some: Mask, of: Mask) -> bool {
    (some & of).count_ones() > of.count_ones() / 2
}

/// One set.
#[derive(Debug, Clone, Default)]
pub(super) struct Set {
    voters: Mask,
    /// The set before; empty if nobody was heard of that still asked it.
    previous: Mask,
    /// Somebody knew that the set before has no say any more. That is so for everybody from then on.
    pub(super) is_complete: bool,
    forgetful: BTreeMap<u32, Incarnation>,
    previous_forgetful: BTreeMap<u32, Incarnation>,
    /// The first set of those that came after each other up to this one.
    first: u64,
}

impl Set {
    /// Whether some may decide under this set.
    pub(super) fn is_enough(&self, some: Mask) -> bool {
        is_majority(some, self.voters) && (self.is_complete || is_majority(some, self.previous))
    }

    /// Whether the set counts on no more memory of a voter than what began with the life `since`.
    fn trusts(&self, member: u32, since: Incarnation) -> bool {
        let trusts = |voters: Mask, forgetful: &BTreeMap<u32, Incarnation>| {
            voters & bit(member) == 0 || since <= forgetful.get(&member).copied().unwrap_or(Incarnation(1))
        };
        trusts(self.voters, &self.forgetful) && (self.is_complete || trusts(self.previous, &self.previous_forgetful))
    }
}

/// All sets that anybody told of, by their fingerprints.
#[derive(Debug, Default)]
pub(super) struct Sets {
    known: BTreeMap<u64, Set>,
}

impl Sets {
    /// A member has such voters now, and had `before`. Whoever tells of a set first has made it, after the one that it had.
    pub(super) fn note(&mut self, view: &VotersView<'_>, before: u64) {
        let first = self.known.get(&before).map_or(view.fingerprint, |set| set.first);
        let set = self.known.entry(view.fingerprint).or_insert_with(|| Set { first, ..Set::default() });
        let numbers = |list: &[(ServerId, Incarnation)]| {
            list.iter().filter_map(|(id, since)| Some((number_of(*id)?, *since))).collect()
        };
        (set.voters, set.forgetful) = (mask(view.voters), numbers(view.forgetful));
        if view.previous.is_empty() {
            set.is_complete = true;
        } else {
            (set.previous, set.previous_forgetful) = (mask(view.previous), numbers(view.previous_forgetful));
        }
    }

    pub(super) fn get(&self, fingerprint: u64) -> Option<&Set> {
        self.known.get(&fingerprint)
    }

    /// Tells apart clusters that began without each other: the first of the sets that led to this one.
    pub(super) fn cluster(&self, fingerprint: u64) -> u64 {
        self.get(fingerprint).map_or(0, |set| set.first)
    }

    /// Whether a voter's memory, which began with the life `since`, is all that the set counts on.
    pub(super) fn trusts(&self, fingerprint: u64, member: u32, since: Incarnation) -> bool {
        self.get(fingerprint).is_some_and(|set| set.trusts(member, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_decide_until_one_is_complete() {
        let mut set = Set { voters: 0b00111, previous: 0b11100, ..Set::default() };
        let cases = [(0b00011, false, true), (0b01101, true, true), (0b11100, false, false), (0b11011, true, true)];
        for (some, pending, complete) in cases {
            set.is_complete = false;
            assert_eq!(set.is_enough(some), pending, "{some:b}");
            set.is_complete = true;
            assert_eq!(set.is_enough(some), complete, "{some:b}");
        }
        assert!(!Set::default().is_enough(!0), "nobody decides where there are no voters");
    }

    #[test]
    fn memory_is_trusted_as_far_as_it_is_known() {
        let mut set = Set { voters: 0b11, previous: 0b10, ..Set::default() };
        set.forgetful.insert(1, Incarnation(3));
        let trusts =
            |set: &Set| [(0, 1), (0, 2), (1, 3), (1, 4), (2, 9)].map(|(no, since)| set.trusts(no, Incarnation(since)));
        assert_eq!(trusts(&set), [true, false, false, false, true]);
        set.previous_forgetful.insert(1, Incarnation(3));
        assert_eq!(trusts(&set), [true, false, true, false, true]);
    }
}
