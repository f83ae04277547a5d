//! Voters come and go: sets that are told, going over to them, completing them, and choosing one where nobody tells.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use super::Bus;
use super::durable::Deferred;
use crate::config::{Config, Identity};
use crate::event::{CommandError, Event};
use crate::gossip::Subject;
use crate::packet::Body;
use crate::voters::{Candidate, Heard, Origin, VoterSet, choose_voters};

/// Voters are chosen when nothing has changed for this long.
const CHOOSE_AFTER: Duration = Duration::from_secs(2);
/// Going over to a new set is told this often, until the set is complete.
const ADOPT_EVERY: Duration = Duration::from_millis(500);

/// What this member knows about its own part in voting.
#[derive(Debug, Default)]
pub(super) struct Govern {
    /// It abstains under sets up to this one.
    abstain_through: Epoch,
    /// Until when sets that it hears of are ones of which it may have lost its votes. Only after a loss of memory.
    forgetful_until: Option<Instant>,
    /// When to look whether voters must be chosen.
    choose_at: Option<Instant>,
    adopt_at: Option<Instant>,
}

impl Govern {
    /// A life without memory. Unless it is the first one, votes may have been given that are not remembered.
    pub(super) fn handle_no_memory(&mut self, identity: &Identity, config: &Config, now: Instant) {
        if identity.incarnation > Incarnation(1) {
            self.forgetful_until = Some(now + config.member_timeout);
        }
    }

    /// What an earlier life remembered.
    pub(super) fn handle_memory(&mut self, abstain_through: Epoch) {
        self.abstain_through = abstain_through;
    }

    /// Members, lives or claims have changed: other voters may be better.
    pub(super) fn handle_changed(&mut self, now: Instant) {
        self.choose_at = Some(now + CHOOSE_AFTER);
    }

    pub(super) fn abstain_through(&self) -> Epoch {
        self.abstain_through
    }

    /// Whether it abstains under the set of this epoch.
    pub(super) fn abstains(&self, epoch: Epoch) -> bool {
        epoch <= self.abstain_through
    }

    pub(super) fn next_tick(&self) -> Instant {
        let at = self.choose_at.unwrap_or(Instant::NEVER);
        at.min(self.adopt_at.unwrap_or(Instant::NEVER))
    }

    fn handle_heard(&mut self, epoch: Epoch, now: Instant) {
        if self.forgetful_until.is_some_and(|until| now < until) {
            self.abstain_through = self.abstain_through.max(epoch);
        }
    }
}

impl Bus {
    /// Takes in a set of voters.
    pub(super) fn hear_voters(&mut self, now: Instant, set: &VoterSet, is_fresh: bool) {
        let heard = self.voters.hear(set);
        match heard {
            Heard::Stands => self.govern.handle_heard(set.epoch, now),
            Heard::Completed => {}
            Heard::Conflict => {
                self.counters.refused_unentitled += 1;
                return;
            }
            Heard::Known | Heard::Stale => return,
        }
        let (epoch, complete) = (set.epoch, self.voters.previous().is_empty());
        self.current = self.current.max(self.voters.floor());
        for place in 0..self.members.len() {
            let is_voter = self.voters.has_say(self.members.at(place).id);
            self.members.at_mut(place).is_voter = is_voter;
        }
        if heard == Heard::Stands {
            self.reach.handle_voters_changed(&self.voters, self.identity.server, now);
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
        let known = self.current;
        let mut others = self.voters.everybody();
        others.retain(|id| *id != self.identity.server);
        self.send_to_all(others, &Body::Adopted { voters, known });
        self.count_adopted(now, self.identity.server, known);
    }

    pub(super) fn handle_adopted(&mut self, now: Instant, from: ServerId, voters: u64, known: Epoch) {
        if voters != self.voters.fingerprint() || self.voters.previous().binary_search(&from).is_err() {
            self.counters.refused_unentitled += 1;
            return;
        }
        self.count_adopted(now, from, known);
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
            self.govern.choose_at = None;
            self.consider_choosing(now);
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
        if voters.is_empty() || voters.len() > limit || has_double || epoch > crate::packet::EPOCH_MAX {
            return Err(CommandError::BadVoters);
        }
        let Some(known) = self.voters.set() else {
            self.become_governed(now, epoch, Origin::Told, voters, Vec::new());
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
        let previous = known.voters.clone();
        self.become_governed(now, epoch, Origin::Told, voters, previous);
        Ok(())
    }

    fn become_governed(
        &mut self,
        now: Instant,
        epoch: Epoch,
        origin: Origin,
        voters: Vec<ServerId>,
        previous: Vec<ServerId>,
    ) {
        let floor = self.voters.floor();
        // A change of the epoch alone changes nobody's mind.
        let previous = if previous == voters { Vec::new() } else { previous };
        self.hear_voters(now, &VoterSet { epoch, origin, floor, voters, previous }, true);
    }

    /// Where nobody ever told the voters, the first living voter chooses them; before there are any, the member with the
    /// smallest id does.
    fn consider_choosing(&mut self, now: Instant) {
        let own = self.identity.server;
        let known = self.voters.set();
        if known.is_some_and(|set| set.origin == Origin::Told || !set.is_complete()) {
            return;
        }
        let lives = |id: &ServerId| self.members.get(*id).is_some_and(|member| !member.life.failed);
        let first = match known {
            Some(set) => set.voters.iter().copied().find(lives),
            None => self.members.sorted().next().map(|member| member.id),
        };
        if first != Some(own) || known.is_some() && self.standing.held_since.is_none() {
            // It may be this member's turn later, when a majority is in reach again.
            self.govern.choose_at = (first == Some(own)).then_some(now + CHOOSE_AFTER);
            return;
        }
        let wanted = self.wanted_voters();
        let is_good = known.is_some_and(|set| {
            let owners_in = self.owners().all(|id| set.voters.binary_search(&id).is_ok());
            let room = self.owners().count() <= self.config.voters_chosen_max;
            set.voters.len() == wanted.len() && set.voters.iter().all(lives) && (owners_in || !room)
        });
        // The choice of the same ones again, such as three of four owners, would change their epoch and nothing else.
        let is_same = known.is_some_and(|set| set.voters == wanted);
        if wanted.is_empty() || is_good || is_same {
            return;
        }
        let epoch = known.map_or(Epoch(1), |set| set.epoch.next());
        let previous = known.map(|set| set.voters.clone()).unwrap_or_default();
        self.become_governed(now, epoch, Origin::Chosen, wanted, previous);
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

/// Places of voters are bits of a number.
const VOTERS_LIMIT: usize = 128;
