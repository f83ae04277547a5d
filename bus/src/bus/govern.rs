//! Voters come and go: sets that are told, going over to them, completing them, and choosing one where nobody tells.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::Bus;
use super::durable::Deferred;
use crate::event::{CommandError, Event};
use crate::gossip::Subject;
use crate::packet::{Body, CHOICE, EPOCH_MAX};
use crate::probe::Cause;
use crate::voters::{Adoption, Candidate, FIRST_LIFE, FORGETFUL_MAX, Heard, Origin, VoterSet, choose_voters};

/// Voters are chosen when nothing has changed for this long.
const CHOOSE_AFTER: Duration = Duration::from_secs(2);
/// They are chosen this long after a change whatever else changes: a server that comes and goes all the time keeps nobody from it.
const CHOOSE_WITHIN: Duration = Duration::from_secs(10);
/// A voter that lost its memory has voted in no epoch so far beyond those that it hears of.
const EPOCHS_FORGOTTEN: u64 = 1 << 32;
/// Going over to a new set is told this often, until the set is complete.
const ADOPT_EVERY: Duration = Duration::from_millis(500);

/// What this member knows about its own part in voting.
#[derive(Debug, Clone, Default)]
pub(super) struct Govern {
    /// When to look whether voters must be chosen, and slots given up that others have taken.
    choose_at: Option<Instant>,
    /// It is not put off beyond this.
    choose_before: Option<Instant>,
    adopt_at: Option<Instant>,
    /// A choice was heard of to which this voter may not go over. If too many may not, it can never be complete, and whoever
    /// made it waits for ever: somebody has to choose again.
    is_stuck: bool,
}

impl Govern {
    /// Members, lives or claims have changed: other voters may be better.
    pub(super) fn handle_changed(&mut self, now: Instant) {
        let latest = *self.choose_before.get_or_insert(now + CHOOSE_WITHIN);
        self.choose_at = Some(latest.min(now + CHOOSE_AFTER));
    }

    pub(super) fn next_tick(&self) -> Instant {
        let at = self.choose_at.unwrap_or(Instant::NEVER);
        at.min(self.adopt_at.unwrap_or(Instant::NEVER))
    }
}

impl Bus {
    /// Takes in a set of voters.
    pub(super) fn hear_voters(&mut self, now: Instant, set: &VoterSet, is_fresh: bool) {
        // A vote for a later choice was a promise.
        let is_bound = !set.is_complete() && self.votes.epoch(CHOICE) > set.epoch && set.after == self.voters.epoch();
        if is_bound {
            self.choose_again(now);
        }
        let heard = if is_bound { Heard::Conflict } else { self.voters.hear(set, self.identity.server) };
        match heard {
            Heard::Stands | Heard::Completed => {}
            Heard::Conflict => {
                self.counters.refused_unentitled += 1;
                return;
            }
            Heard::Known | Heard::Stale => return,
        }
        self.handle_governed(now, set, heard, is_fresh);
    }

    /// This voter promised to wait for a later choice than one that was made. If nobody makes that, it does, some time later
    /// than others who think the same.
    fn choose_again(&mut self, now: Instant) {
        self.govern.is_stuck = true;
        let at = now + CHOOSE_AFTER + self.chance.span(CHOOSE_AFTER * 2);
        self.govern.choose_at = Some(self.govern.choose_at.unwrap_or(at));
    }

    /// The voters are others now, or the change to them is complete.
    fn handle_governed(&mut self, now: Instant, set: &VoterSet, heard: Heard, is_fresh: bool) {
        let (epoch, complete) = (set.epoch, self.voters.previous().is_empty());
        self.current = self.current.max(self.voters.floor());
        for place in 0..self.members.len() {
            let is_voter = self.voters.has_say(self.members.at(place).id);
            self.members.at_mut(place).is_voter = is_voter;
        }
        self.ballots.remove(&CHOICE);
        self.govern.is_stuck = false;
        if heard == Heard::Stands {
            let timeout = self.config.member_timeout;
            self.reach.handle_voters_changed(&self.voters, self.identity.server, timeout, now);
            self.suspicion.handle_voters_changed(now);
            self.restart_ballots(now);
        }
        self.event(Event::VotersChanged { epoch, complete });
        if is_fresh {
            self.tell(now, Subject::Voters);
        }
        self.note_change(now);
        self.govern.handle_changed(now);
        // Whoever votes must not go back to the set before, whatever happens.
        self.durable.need();
        self.go_over();
        if heard == Heard::Stands && self.is_voter() {
            // They should find out quickly that they are a majority.
            for voter in self.other_voters() {
                self.probe(voter, Cause::Turn, false, now);
            }
        }
    }

    /// A voter of the previous set says so, once that is durable.
    fn go_over(&mut self) {
        self.govern.adopt_at = None;
        if self.voters.previous().binary_search(&self.identity.server).is_ok() {
            self.durable.defer(Deferred::Adopted(self.voters.fingerprint()));
        }
    }

    /// Having gone over to the set with this fingerprint is durable.
    pub(super) fn tell_adopted(&mut self, now: Instant, voters: u64) {
        if voters != self.voters.fingerprint() || self.voters.previous().is_empty() {
            return;
        }
        self.govern.adopt_at = Some(now + ADOPT_EVERY);
        let (own, since) = (self.identity.server, self.memory_since);
        let remembers = self.voters.set().is_none_or(|set| set.previous_trusts(own, since));
        let forgotten = if remembers { 0 } else { EPOCHS_FORGOTTEN };
        let known = Epoch(self.current.0.saturating_add(forgotten).min(EPOCH_MAX.0));
        let Some(adoption) = self.voters.adoption(known, remembers) else { return };
        let mut others = self.voters.everybody();
        others.retain(|id| *id != own);
        self.send_to_all(others, &Body::Adopted(adoption));
        self.count_adopted(now, own, known);
    }

    pub(super) fn handle_adopted(&mut self, now: Instant, from: ServerId, adoption: Adoption) {
        if adoption.voters == self.voters.fingerprint() && self.voters.previous().binary_search(&from).is_ok() {
            return self.count_adopted(now, from, adoption.known);
        }
        self.counters.refused_unentitled += 1;
        self.voters.handle_passed(from, &adoption);
        if let Some(rival) = self.voters.leading_rival() {
            self.voters.follow_rival(&rival);
            self.handle_governed(now, &rival, Heard::Stands, true);
        }
    }

    fn count_adopted(&mut self, now: Instant, from: ServerId, known: Epoch) {
        if let Some(complete) = self.voters.handle_adopted(from, known) {
            self.hear_voters(now, &complete, true);
        }
    }

    pub(super) fn tick_govern(&mut self, now: Instant) {
        if self.govern.adopt_at.is_some_and(|at| at <= now) {
            self.tell_adopted(now, self.voters.fingerprint());
        }
        if self.govern.choose_at.is_some_and(|at| at <= now) {
            (self.govern.choose_at, self.govern.choose_before) = (None, None);
            self.consider_choosing(now);
            self.trim_overlapped(now);
        }
    }

    /// Sets the voters, as an authority tells.
    pub(super) fn set_voters(
        &mut self,
        now: Instant,
        epoch: Epoch,
        mut voters: Vec<ServerId>,
    ) -> Result<(), CommandError> {
        voters.sort_unstable();
        let has_double = voters.windows(2).any(|pair| pair[0] == pair[1]);
        let limit = self.config.voters_max.min(VOTERS_LIMIT);
        if voters.is_empty() || voters.len() > limit || has_double || epoch > EPOCH_MAX || epoch == Epoch::ZERO {
            return Err(CommandError::BadVoters);
        }
        let Some(known) = self.voters.set() else {
            self.become_governed(now, epoch, Origin::Told, voters);
            return Ok(());
        };
        if epoch == known.epoch && voters == known.voters {
            return Ok(());
        }
        if epoch <= known.epoch {
            return Err(CommandError::StaleVoters);
        }
        if !known.is_complete() {
            return Err(CommandError::VotersPending);
        }
        // What is not known of a voter's memory would be guessed, and it might abstain for ever.
        if voters.iter().any(|id| self.members.place(*id).is_none()) {
            return Err(CommandError::UnknownMember);
        }
        self.become_governed(now, epoch, Origin::Told, voters);
        Ok(())
    }

    fn become_governed(&mut self, now: Instant, epoch: Epoch, origin: Origin, voters: Vec<ServerId>) {
        let floor = self.voters.floor();
        let forgetful = self.forgetful_of(&voters);
        let known = self.voters.set().map(|set| (set.voters.clone(), set.forgetful.clone()));
        let (previous, previous_forgetful) = known.unwrap_or_default();
        let after = self.voters.epoch();
        let set = VoterSet { epoch, origin, after, floor, voters, previous, forgetful, previous_forgetful };
        self.hear_voters(now, &set, true);
    }

    /// Those of `voters` that ever lost their memory, and in which life the present one began.
    fn forgetful_of(&self, voters: &[ServerId]) -> Vec<(ServerId, Incarnation)> {
        let since = |id: &ServerId| self.members.get(*id).map(|member| (*id, member.description.memory_since));
        voters.iter().filter_map(since).filter(|(_, since)| *since > FIRST_LIFE).take(FORGETFUL_MAX).collect()
    }

    /// Where nobody ever told the voters, the first living voter chooses them; before there are any, whoever founds the cluster does.
    /// Members that meet before that one runs would choose voters beside its own, and two sets without a common past never become one.
    fn consider_choosing(&mut self, now: Instant) {
        let own = self.identity.server;
        let known = self.voters.set();
        if known.is_some_and(|set| set.origin == Origin::Told || !set.is_complete())
            || self.ballots.contains_key(&CHOICE)
        {
            return;
        }
        let lives = |id: &ServerId| self.members.get(*id).is_some_and(|member| !member.life.failed);
        let first = match known {
            Some(set) => set.voters.iter().copied().find(lives),
            None => self.config.founds.then_some(own),
        };
        let is_turn = first == Some(own) || self.govern.is_stuck && self.is_voter();
        if !is_turn || known.is_some() && self.standing.held_since.is_none() {
            // It may be this member's turn later, when a majority is in reach again.
            self.govern.choose_at = is_turn.then_some(now + CHOOSE_AFTER);
            return;
        }
        let wanted = self.wanted_voters();
        let is_good = known.is_some_and(|set| {
            let has_owners = self.owners().all(|id| set.voters.binary_search(&id).is_ok());
            let has_room = self.owners().count() <= wanted.len();
            let is_alive = set.voters.len() == wanted.len() && set.voters.iter().all(lives);
            let is_as_wanted = set.voters == wanted || is_alive && (has_owners || !has_room);
            is_as_wanted && set.forgetful == self.forgetful_of(&set.voters) && !self.govern.is_stuck
        });
        // Of three voters one may be away, and a second one once the first is back. A single voter must never be away.
        let is_least = known.is_some_and(|set| {
            let are_members = set.voters.iter().all(|id| self.members.place(*id).is_some());
            wanted.len() < VOTERS_MIN && set.voters.len() >= VOTERS_MIN && are_members && !self.govern.is_stuck
        });
        match known {
            _ if wanted.is_empty() || is_good || is_least => {}
            Some(_) => self.begin_choice(now),
            None => self.become_governed(now, Epoch(1), Origin::Chosen, wanted),
        }
    }

    /// The ballot about the next set is won: nobody else may give one of this epoch.
    pub(super) fn choose(&mut self, now: Instant, epoch: Epoch) {
        let wanted = self.wanted_voters();
        if !wanted.is_empty() && epoch > self.voters.epoch() {
            self.become_governed(now, epoch, Origin::Chosen, wanted);
        }
    }

    /// Living primaries with slots, sorted.
    fn owners(&self) -> impl Iterator<Item = ServerId> {
        self.claims.owners().filter(|id| self.members.get(*id).is_some_and(|member| !member.life.failed))
    }

    fn wanted_voters(&self) -> Vec<ServerId> {
        let owners: Vec<ServerId> = self.owners().collect();
        let living = self.members.iter().filter(|member| !member.life.failed);
        let candidates: Vec<Candidate> = living
            .map(|member| Candidate {
                id: member.id,
                zone: member.description.zone,
                owns_slots: owners.binary_search(&member.id).is_ok(),
            })
            .collect();
        choose_voters(&candidates, self.config.voters_chosen_max.min(self.config.voters_max))
    }
}

/// Fewer voters could not lose one: members that are merely away stay voters rather than that.
const VOTERS_MIN: usize = 3;

/// Places of voters are bits of a number.
const VOTERS_LIMIT: usize = 128;
