//! Is a majority of the voters in reach? What a primary must know to go on taking writes.
//!
//! Whoever has answers from a majority of the voters knows that they were in reach when it asked. It tells the age of that
//! knowledge with every answer, and whoever gets an answer knows the same, as of its own question, that much older. So the
//! knowledge spreads over the whole cluster with the probes that go round anyway, and no primary needs to ask all voters
//! itself. Only answers to own probes count: they show that the way is open in both directions.
//!
//! Without fresh knowledge a primary stops taking writes before the voters on the other side of a partition can have
//! declared it failed: after nine tenths of the member timeout, where they wait for the whole of it.
//!
//! A few voters ask all others in turn, so often that each asks all within a quarter of the member timeout; the others do the
//! same only while what they have learned is old, somebody is doubted, or somebody knows something else. So what voters of a
//! cluster that is well ask each other does not grow with the square of their number.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::packet::Beat;
use crate::voters::{Voters, majority};

/// Voters are asked no more often than this.
const PULSE_MIN: Duration = Duration::from_millis(40);

/// What is known about the voters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach {
    /// When the last answered question went to each voter, sorted by voter.
    asked: Vec<(ServerId, Instant)>,
    /// A majority was in reach then.
    majority_at: Option<Instant>,
    /// Until when knowledge from before a change of voters is enough.
    carried_until: Option<Instant>,
    cursor: usize,
    next_pulse: Option<Instant>,
}

impl Reach {
    /// A voter has answered a probe that was sent at `asked_at`.
    pub(crate) fn handle_voter(
        &mut self,
        voters: &Voters,
        own: ServerId,
        voter: ServerId,
        asked_at: Instant,
        now: Instant,
    ) {
        match self.asked.binary_search_by_key(&voter, |asked| asked.0) {
            Ok(place) => self.asked[place].1 = asked_at,
            Err(place) => self.asked.insert(place, (voter, asked_at)),
        }
        let lists = [voters.present(), voters.previous()];
        let times = lists.iter().filter(|list| !list.is_empty()).map(|list| self.majority_of(list, own, now));
        // `None` is the least, so a majority that is missing anywhere is missing.
        self.raise(times.min().flatten());
    }

    fn majority_of(&self, list: &[ServerId], own: ServerId, now: Instant) -> Option<Instant> {
        let needed = majority(list.len());
        if self.asked.len() + 1 < needed {
            return None;
        }
        // Both lists are sorted.
        let mut asked = self.asked.iter().peekable();
        let mut time = |id: &ServerId| {
            while asked.next_if(|asked| asked.0 < *id).is_some() {}
            if *id == own { Some(now) } else { asked.next_if(|asked| asked.0 == *id).map(|asked| asked.1) }
        };
        let mut times: Vec<Instant> = list.iter().filter_map(&mut time).collect();
        if times.len() < needed {
            return None;
        }
        let (_, time, _) = times.select_nth_unstable_by(needed - 1, |one, other| other.cmp(one));
        Some(*time)
    }

    /// An answer to a probe that was sent at `asked_at` told this age.
    pub(crate) fn handle_age(&mut self, asked_at: Instant, age: u64) {
        if age < Beat::AGE_MAX {
            let nanos = asked_at.as_nanos().checked_sub(age.saturating_mul(AGE_UNIT_NANOS));
            self.raise(nanos.map(Instant::from_nanos));
        }
    }

    fn raise(&mut self, at: Option<Instant>) {
        self.majority_at = self.majority_at.max(at);
    }

    /// When a majority was last known to be in reach.
    pub(crate) fn majority_at(&self, voters: &Voters, own: ServerId, now: Instant) -> Option<Instant> {
        let is_alone = |list: &[ServerId]| list.is_empty() || list == [own];
        let alone = !voters.present().is_empty() && is_alone(voters.present()) && is_alone(voters.previous());
        if alone { Some(now) } else { self.majority_at }
    }

    /// Until when a majority counts as in reach.
    pub(crate) fn held_until(
        &self,
        voters: &Voters,
        own: ServerId,
        timeout: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let known = self.majority_at(voters, own, now).map(|at| at + lease(timeout));
        known.max(self.carried_until).filter(|until| *until > now)
    }

    /// The same as an age to tell.
    pub(crate) fn age(&self, voters: &Voters, own: ServerId, now: Instant) -> u64 {
        let age = self.majority_at(voters, own, now).map(|at| now.saturating_since(at).as_nanos());
        let units = age.and_then(|nanos| u64::try_from(nanos.div_ceil(AGE_UNIT_NANOS.into())).ok());
        units.unwrap_or(Beat::AGE_MAX).min(Beat::AGE_MAX)
    }

    /// Others vote now. What was known of those before is told to nobody any more, and is enough here for a short while only:
    /// they had a say in the change, so whoever heard them hears of it, and need not stop for it.
    pub(crate) fn handle_voters_changed(&mut self, voters: &Voters, own: ServerId, timeout: Duration, now: Instant) {
        let until = self.majority_at.map(|at| at + lease(timeout)).max(self.carried_until);
        self.carried_until = until.map(|until| until.min(now + timeout / 4));
        self.majority_at = None;
        self.asked.retain(|asked| voters.has_say(asked.0));
        self.next_pulse = voters.has_say(own).then_some(now);
    }

    /// When this voter should ask another one; never for those that do not vote.
    pub(crate) fn next_pulse(&self) -> Instant {
        self.next_pulse.unwrap_or(Instant::NEVER)
    }

    /// The voter to ask now.
    pub(crate) fn take_pulse(&mut self, voters: &Voters, timeout: Duration, now: Instant) -> Option<ServerId> {
        let everybody = voters.everybody();
        let count = u32::try_from(everybody.len()).unwrap_or(u32::MAX).max(1);
        self.next_pulse = Some(now + (timeout / 4 / count).max(PULSE_MIN));
        self.cursor = (self.cursor + 1) % everybody.len().max(1);
        everybody.get(self.cursor).copied()
    }
}

/// Ages are told in units of 10 ms.
const AGE_UNIT_NANOS: u64 = 10_000_000;

/// How old the knowledge may be while writes are taken.
pub(crate) fn lease(member_timeout: Duration) -> Duration {
    member_timeout * 9 / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voters::{Origin, VoterSet};
    use ashlar_wire::epoch::Epoch;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(100_000_000_000 + ms * 1_000_000)
    }

    fn id(number: u8) -> ServerId {
        ServerId::from_bytes([number; 16])
    }

    fn voters(present: &[u8], previous: &[u8]) -> Voters {
        let mut voters = Voters::default();
        let ids = |numbers: &[u8]| numbers.iter().map(|number| id(*number)).collect();
        voters.hear(
            &VoterSet {
                epoch: Epoch(1),
                origin: Origin::Told,
                after: Epoch::ZERO,
                floor: Epoch::ZERO,
                voters: ids(present),
                previous: ids(previous),
                forgetful: Vec::new(),
                previous_forgetful: Vec::new(),
            },
            id(1),
        );
        voters
    }

    #[test]
    fn the_majority_is_as_old_as_its_oldest_needed_answer() {
        let (voters, mut reach) = (voters(&[1, 2, 3, 4, 5], &[]), Reach::default());
        let known = |reach: &Reach, now| reach.majority_at(&voters, id(1), now);
        reach.handle_voter(&voters, id(1), id(2), at(10), at(11));
        assert_eq!(known(&reach, at(11)), None);
        reach.handle_voter(&voters, id(1), id(3), at(20), at(21));
        assert_eq!(known(&reach, at(21)), Some(at(10)));
        reach.handle_voter(&voters, id(1), id(4), at(30), at(31));
        assert_eq!(known(&reach, at(31)), Some(at(20)));
        assert_eq!(reach.age(&voters, id(1), at(41)), 3, "ages are rounded up");
        reach.handle_age(at(40), 1);
        assert_eq!(known(&reach, at(41)), Some(at(30)));
        let long_after = at(Beat::AGE_MAX * 10 + 40);
        reach.handle_age(long_after, Beat::AGE_MAX);
        assert_eq!(known(&reach, at(41)), Some(at(30)), "that is no age but never");
        reach.handle_age(long_after, Beat::AGE_MAX - 1);
        assert_eq!(known(&reach, at(51)), Some(at(50)));
    }

    #[test]
    fn a_change_of_voters_needs_both_majorities() {
        let (voters, mut reach) = (voters(&[1, 2, 3], &[4, 5, 6]), Reach::default());
        reach.handle_voter(&voters, id(1), id(2), at(10), at(11));
        reach.handle_voter(&voters, id(1), id(4), at(12), at(13));
        assert_eq!(reach.majority_at(&voters, id(1), at(13)), None);
        reach.handle_voter(&voters, id(1), id(5), at(14), at(15));
        assert_eq!(reach.majority_at(&voters, id(1), at(15)), Some(at(10)));
    }

    #[test]
    fn a_lone_voter_is_its_own_majority_and_nobody_is_without_voters() {
        let reach = Reach::default();
        assert_eq!(reach.age(&voters(&[1], &[]), id(1), at(5)), 0);
        assert_eq!(reach.age(&voters(&[1], &[]), id(2), at(5)), Beat::AGE_MAX);
        assert_eq!(reach.age(&Voters::default(), id(1), at(5)), Beat::AGE_MAX);
    }

    #[test]
    fn knowledge_of_earlier_voters_lasts_a_quarter_of_the_timeout_and_is_not_told() {
        let (voters, mut reach) = (voters(&[1, 2, 3], &[]), Reach::default());
        let timeout = Duration::from_secs(10);
        let held = |reach: &Reach, ms| reach.held_until(&voters, id(1), timeout, at(ms)).is_some();
        reach.handle_voter(&voters, id(1), id(2), at(0), at(1));
        assert!(held(&reach, 8_999) && !held(&reach, 9_000));
        for (changed, lasts) in [(1_000, 3_500), (8_000, 9_000), (9_500, 0)] {
            let mut reach = reach.clone();
            reach.handle_voters_changed(&voters, id(1), timeout, at(changed));
            assert_eq!(reach.age(&voters, id(1), at(changed)), Beat::AGE_MAX);
            assert!(lasts == 0 || held(&reach, lasts - 1), "{changed}");
            assert!(!held(&reach, lasts.max(changed)), "{changed}");
            // Another change prolongs nothing.
            reach.handle_voters_changed(&voters, id(1), timeout, at(changed + 100));
            assert!(!held(&reach, lasts.max(changed + 100)), "{changed}");
        }
    }

    #[test]
    fn all_voters_are_asked_within_a_quarter_of_the_timeout() {
        let (voters, mut reach) = (voters(&[1, 2, 3, 4, 5], &[]), Reach::default());
        let timeout = Duration::from_secs(10);
        reach.handle_voters_changed(&voters, id(1), timeout, at(0));
        let asked: alloc::collections::BTreeSet<_> = (0..5)
            .filter_map(|turn| {
                let now = reach.next_pulse();
                assert_eq!(now, at(turn * 500));
                reach.take_pulse(&voters, timeout, now)
            })
            .collect();
        assert_eq!(asked.len(), 5);
        reach.take_pulse(&voters, Duration::from_millis(500), at(9_000));
        assert_eq!(reach.next_pulse(), at(9_040), "the least distance");
    }
}
