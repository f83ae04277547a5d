//! What to tell, and how often.
//!
//! News is a *subject* here, not a text: what is told about it is read from the tables when it is told, so it is always
//! the latest. Fresh news leaves at once to a few members (the caller takes [`Gossip::take_fresh`]), and from then on rides on
//! probes and answers: the least told first, among those the most recent, up to a number of bytes. Each piece is told
//! about three times the logarithm of the number of members, then dropped; all of it is dropped as soon as so many peers in
//! a row turn out to know the same. Who missed it finds out by the fingerprints on every probe, see
//! [`sync`](crate::sync).
//!
//! Follows the piggy-backing of SWIM (Das, Gupta, Motivala 2002) and the eager rumours of Karp and others (2000).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

use ashlar_wire::id::ServerId;

use crate::slot::GroupId;

/// What a piece of news is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A member's description and life.
    Member(ServerId),
    /// A member's life alone.
    Life(ServerId),
    /// A group's claim.
    Claim(GroupId),
    /// Who votes.
    Voters,
    /// A member that is kept out.
    Forget(ServerId),
}

/// Least told first, then most recent.
type Rank = (u32, Reverse<u64>);

/// The news that this member still tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gossip {
    queue: BTreeMap<Rank, Subject>,
    ranks: BTreeMap<Subject, Rank>,
    /// What has not left at once yet.
    fresh: BTreeSet<Subject>,
    count: u64,
    /// Peers in a row that knew the same.
    agreed: u32,
}

/// What all were told counts as told so often.
const TOLD_ALREADY: u32 = 6;
/// So many peers in a row that know the same make news old.
const AGREED_MAX: u32 = 8;

impl Gossip {
    /// Something has changed, and others should hear of it soon. At most `subjects_max` pieces are kept; beyond, the most told
    /// one gives way.
    pub(crate) fn add(&mut self, subject: Subject, subjects_max: usize) {
        self.add_ranked(subject, 0, subjects_max);
        if self.fresh.len() < subjects_max {
            self.fresh.insert(subject);
        }
    }

    /// The same of something that all were told at once already: other news goes first.
    pub(crate) fn add_told(&mut self, subject: Subject, subjects_max: usize) {
        self.add_ranked(subject, TOLD_ALREADY, subjects_max);
    }

    fn add_ranked(&mut self, subject: Subject, told: u32, subjects_max: usize) {
        self.drop(subject);
        self.agreed = 0;
        if let Some((&rank, &most_told)) = self.queue.last_key_value().filter(|_| self.queue.len() >= subjects_max) {
            self.queue.remove(&rank);
            self.ranks.remove(&most_told);
        }
        self.count += 1;
        let rank = (told, Reverse(self.count));
        self.queue.insert(rank, subject);
        self.ranks.insert(subject, rank);
    }

    /// There is nothing to tell about it any more.
    pub(crate) fn drop(&mut self, subject: Subject) {
        if let Some(rank) = self.ranks.remove(&subject) {
            self.queue.remove(&rank);
        }
        self.fresh.remove(&subject);
    }

    /// Whether something waits to leave at once.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// What has not left at once yet.
    pub(crate) fn take_fresh(&mut self) -> Vec<Subject> {
        core::mem::take(&mut self.fresh).into_iter().collect()
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_quiet(&self) -> bool {
        self.queue.is_empty()
    }

    /// A peer knows the same as this member, or not. Says whether it is the last of so many in a row that do.
    pub(crate) fn handle_compared(&mut self, is_same: bool) -> bool {
        self.agreed = if is_same { self.agreed + 1 } else { 0 };
        let all_agree = self.agreed >= AGREED_MAX;
        if all_agree {
            self.agreed = 0;
            self.queue.clear();
            self.ranks.clear();
        }
        all_agree
    }

    /// Offers news to `tell` in the order in which it should be told, until that answers that there is no room for a piece.
    /// A piece is dropped after it was told `tells_max` times, or when `tell` knows nothing of it any more.
    pub(crate) fn tell(&mut self, tells_max: u32, mut tell: impl FnMut(Subject) -> Told) {
        let mut told = Vec::new();
        for (&rank, &subject) in &self.queue {
            match tell(subject) {
                Told::Yes => told.push((rank, subject, true)),
                Told::Gone => told.push((rank, subject, false)),
                Told::NoRoom => break,
            }
        }
        for (rank, subject, again) in told {
            self.queue.remove(&rank);
            let next = (rank.0 + 1, rank.1);
            if again && next.0 < tells_max {
                self.queue.insert(next, subject);
                self.ranks.insert(subject, next);
            } else {
                self.ranks.remove(&subject);
            }
        }
    }
}

/// What became of an offered piece of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It was told.
    Yes,
    /// There is nothing to tell about it any more.
    Gone,
    /// The packet is full.
    NoRoom,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(gossip: &mut Gossip, room: usize) -> Vec<u64> {
        let mut out = Vec::new();
        gossip.tell(3, |subject| {
            if out.len() == room {
                return Told::NoRoom;
            }
            let Subject::Claim(GroupId(number)) = subject else { panic!("only claims were added") };
            out.push(number);
            Told::Yes
        });
        out
    }

    #[test]
    fn least_told_first_then_most_recent_and_each_so_often() {
        let mut gossip = Gossip::default();
        for number in 1..=3 {
            gossip.add(Subject::Claim(GroupId(number)), 10);
        }
        assert_eq!(gossip.take_fresh().len(), 3);
        assert_eq!(told(&mut gossip, 2), [3, 2]);
        assert_eq!(told(&mut gossip, 2), [1, 3]);
        gossip.add(Subject::Claim(GroupId(2)), 10);
        assert_eq!(gossip.take_fresh(), [Subject::Claim(GroupId(2))]);
        assert_eq!(told(&mut gossip, 9), [2, 1, 3]);
        assert_eq!(told(&mut gossip, 9), [2, 1]);
        assert_eq!(told(&mut gossip, 9), [2]);
        assert!(gossip.is_quiet() && told(&mut gossip, 9).is_empty());
    }

    #[test]
    fn what_all_were_told_already_goes_last_and_not_at_once() {
        let mut gossip = Gossip::default();
        gossip.add(Subject::Claim(GroupId(1)), 10);
        assert!(gossip.has_fresh() && gossip.take_fresh() == [Subject::Claim(GroupId(1))]);
        gossip.add_told(Subject::Claim(GroupId(2)), 10);
        assert!(!gossip.has_fresh() && gossip.take_fresh().is_empty() && !gossip.is_quiet());
        let order = |gossip: &Gossip| gossip.queue.values().copied().collect::<Vec<_>>();
        assert_eq!(order(&gossip), [1, 2].map(|number| Subject::Claim(GroupId(number))));
        gossip.add_told(Subject::Claim(GroupId(1)), 10);
        assert_eq!(order(&gossip), [1, 2].map(|number| Subject::Claim(GroupId(number))), "the most recent first");
        gossip.add(Subject::Claim(GroupId(2)), 10);
        assert_eq!(order(&gossip), [2, 1].map(|number| Subject::Claim(GroupId(number))));
        gossip.drop(Subject::Claim(GroupId(2)));
        assert!(!gossip.has_fresh() && order(&gossip) == [Subject::Claim(GroupId(1))]);
    }

    #[test]
    fn news_that_everybody_knows_is_old() {
        let mut gossip = Gossip::default();
        gossip.add(Subject::Voters, 10);
        for turn in 0..3 * AGREED_MAX {
            gossip.handle_compared(turn % AGREED_MAX != 0);
        }
        assert!(!gossip.is_quiet(), "not all of them knew");
        gossip.handle_compared(true);
        assert!(gossip.is_quiet());
        gossip.add(Subject::Voters, 10);
        assert!(!gossip.is_quiet() && gossip.has_fresh());
    }

    #[test]
    fn the_number_of_pieces_has_a_limit() {
        let mut gossip = Gossip::default();
        for number in 0..100 {
            gossip.add(Subject::Claim(GroupId(number)), 10);
            told(&mut gossip, 1);
        }
        assert!(gossip.queue.len() <= 10 && gossip.ranks.len() == gossip.queue.len() && gossip.fresh.len() <= 10);
        gossip.add(Subject::Voters, 10);
        assert_eq!(gossip.ranks.get(&Subject::Voters).map(|rank| rank.0), Some(0), "the newest is never the one to go");
    }
}
