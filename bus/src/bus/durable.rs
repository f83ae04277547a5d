//! What must be on stable storage before it is acted upon.
//!
//! Whatever depends on durable state (a vote, a claim of one's own, going over to other voters) is *deferred*: it names the
//! version of the state that it needs and happens when that version is said to be stored. At most one version is under
//! way; what changes meanwhile goes into the next one, so many votes share one write. Changes that nobody depends on are
//! saved within a while.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::{Bus, KeptOut, NEWS_MAX, Place};
use crate::claim::Claim;
use crate::event::{Output, Role, Ticket};
use crate::gossip::Subject;
use crate::packet::{Body, CHOICE, Purpose, Vote, VoteRequest};
use crate::planted::Planted;
use crate::saved::{Saved, Writer};

/// What happens once a version is stored.
#[derive(Debug, Clone)]
pub(super) enum Deferred {
    /// A vote for another member leaves.
    Vote {
        candidate: ServerId,
        vote: Vote,
        purpose: Purpose,
        /// The set under which it was decided.
        voters: u64,
    },
    /// This member's own vote in a ballot of its own counts.
    OwnVote(VoteRequest),
    /// A claim of this member is told. `elected`: by a ballot of a majority.
    Claim {
        /// It.
        claim: Claim,
        /// Whether voters have decided it.
        elected: bool,
        /// It must be stored by then, or it is none.
        until: Option<Instant>,
    },
    /// This voter has gone over to the set with this fingerprint.
    Adopted(u64),
}

/// Versions of the durable state.
#[derive(Debug, Clone, Default)]
pub(super) struct Durable {
    /// The last version that was handed out.
    issued: u64,
    /// The version under way.
    pending: Option<Ticket>,
    /// Something in it has changed that others wait for.
    is_needed: bool,
    /// Something has changed that nobody waits for.
    save_at: Option<Instant>,
    deferred: VecDeque<(Ticket, Deferred)>,
}

impl Durable {
    /// The state has changed; the version that will hold the change.
    pub(super) fn need(&mut self) -> Ticket {
        self.is_needed = true;
        Ticket(self.issued + 1)
    }

    /// The state has changed; it should be stored within a while.
    pub(super) fn need_soon(&mut self, now: Instant, within: Duration) {
        self.save_at = Some(self.save_at.unwrap_or(now + within));
    }

    /// The same, and this waits for it.
    pub(super) fn defer(&mut self, what: Deferred) {
        let ticket = self.need();
        self.deferred.push_back((ticket, what));
    }

    /// Own claims that are not told yet.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.deferred.iter().filter_map(|(_, what)| match what {
            Deferred::Claim { claim, .. } => Some(claim),
            _ => None,
        })
    }

    /// When to store what nobody waits for.
    pub(super) fn next_save(&self) -> Instant {
        self.save_at.filter(|_| self.pending.is_none()).unwrap_or(Instant::NEVER)
    }
}

impl Bus {
    /// Hands out the durable state if it must be stored and no version is under way.
    pub(super) fn persist(&mut self, now: Instant) {
        if self.durable.pending.is_none() && (self.durable.is_needed || now >= self.durable.next_save()) {
            self.durable.issued += 1;
            let ticket = Ticket(self.durable.issued);
            (self.durable.pending, self.durable.is_needed, self.durable.save_at) = (Some(ticket), false, None);
            self.counters.persists += 1;
            let bytes = self.save(now);
            self.outputs.push_back(Output::Persist { ticket, bytes });
        }
        if self.bugs.has(Planted::SkipPersistWait) {
            self.run_deferred(now, Ticket(u64::MAX));
        }
    }

    pub(super) fn persisted(&mut self, now: Instant, ticket: Ticket) {
        if self.durable.pending.is_none_or(|pending| ticket < pending) {
            return;
        }
        self.durable.pending = None;
        self.run_deferred(now, ticket);
    }

    fn run_deferred(&mut self, now: Instant, ticket: Ticket) {
        // What runs may defer more, for later versions.
        while let Some((_, what)) = self.durable.deferred.pop_front_if(|(needed, _)| *needed <= ticket) {
            match what {
                Deferred::Vote { candidate, vote, purpose, voters } => {
                    self.note_vote(vote.group, vote.epoch, candidate, purpose, voters);
                    self.send(candidate, &Body::Vote(vote));
                }
                Deferred::OwnVote(request) => self.count_own_vote(now, &request),
                Deferred::Claim { claim, until, .. } if until.is_some_and(|until| until <= now) => {
                    // It was stored too late: what is stored next has it no more.
                    self.ballots.remove(&claim.group);
                    self.durable.need();
                }
                Deferred::Claim { claim, elected, .. } => self.make_claim(now, claim, elected),
                Deferred::Adopted(voters) => self.tell_adopted(now, voters),
            }
        }
    }

    /// The durable state, written.
    fn save(&self, now: Instant) -> Vec<u8> {
        let mut writer = Writer::new(self.identity.cluster, self.identity.server, self.identity.incarnation);
        let own = self.members.get(self.identity.server).expect("a member knows itself");
        writer.numbers(self.current, self.memory_since, own.life.refuted);
        writer.voters(self.voters.set(), self.voters.from());
        let votes = self.votes.iter().filter(|_| !self.bugs.has(Planted::ForgetVotes));
        let count = if self.bugs.has(Planted::ForgetVotes) { 0 } else { self.votes.iter().len() };
        writer.votes(count, votes);
        let own_claims: Vec<&Claim> = self.durable.claims().collect();
        let kept = |claim: &&Claim| own_claims.iter().all(|own| own.group != claim.group);
        writer.count(self.claims.iter().filter(kept).count() + own_claims.len());
        self.claims.iter().filter(kept).for_each(|claim| writer.claim(claim));
        own_claims.iter().for_each(|claim| writer.claim(claim));
        writer.count(self.members.len() - 1);
        for member in self.members.iter().filter(|member| member.id != self.identity.server) {
            writer.member(member.id, &member.description, member.life);
        }
        let keep_outs = self.keep_outs.iter().filter(|_| !self.bugs.has(Planted::ForgetKeepOuts));
        let kept_out: Vec<_> = keep_outs.map(|(id, kept)| kept.forgetting(*id, now)).collect();
        writer.kept_out(&kept_out);
        let places = self.places.iter().filter(|(_, place)| place.role != Role::None);
        writer.places(places.clone().count(), places.map(|(group, place)| (*group, place.offset)));
        writer.finish()
    }

    /// Takes up the memory of an earlier life. Nothing of it is news.
    pub(super) fn restore(&mut self, memory: Saved, now: Instant) {
        self.current = memory.current;
        for (group, given) in memory.votes {
            if group != CHOICE {
                self.current = self.current.max(given.epoch);
            }
            self.votes.restore(group, given);
        }
        for (group, offset) in memory.places {
            let place = Place { offset, ..Place::new(Role::Replica) };
            self.places.insert(group, place);
        }
        for forgetting in memory.kept_out {
            let until = now + Duration::from_millis(forgetting.left_ms);
            self.keep_outs.insert(forgetting.id, KeptOut { tag: forgetting.tag, until, heard: None });
        }
        let own = self.identity.server;
        for record in memory.members.into_iter().filter(|record| record.id != own) {
            let change = self.members.merge(record, now);
            debug_assert!(change.joined || !change.is_news(), "a saved record names a member once");
        }
        for place in 0..self.members.len() {
            self.prober.handle_added(place, &mut self.chance);
        }
        if let Some(set) = memory.voters {
            self.hear_voters(now, &set, false);
            self.voters.restore_from(memory.voters_from);
        }
        for claim in memory.claims {
            self.hear_claim(now, own, claim, false);
        }
        self.describe_again(now);
        self.gossip.add(Subject::Member(own), NEWS_MAX);
        self.standing.matched = false;
    }
}
