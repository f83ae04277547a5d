//! Members that stop in order: they offer what they lead to replicas, say goodbye, and are found to have failed without a time of silence.
//!
//! A member that is about to stop tells everybody, so that nobody offers it a group meanwhile, and offers each group that it leads
//! to its replicas, again and again until one has taken it: by the same agreement as with an operator's failover (`handover`).
//! When it has stopped taking writes it says so; voters that hear it suspect it at once, and a majority of them declares the failure
//! as ever. So one member's word alone never makes another primary, and a goodbye that is lost costs the usual time of silence.

use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::{Bus, MEET_EVERY};
use crate::ballot::{Ballot, Phase};
use crate::event::{Departure, Event, Role};
use crate::member::{Member, Opinion};
use crate::packet::{Body, Purpose};
use crate::slot::GroupId;

/// How long a member waits before its first offer. Signals to the servers of one machine come well within this.
const OFFER_AFTER: Duration = Duration::from_millis(250);

impl Bus {
    pub(super) fn depart(&mut self, now: Instant, departure: Departure) {
        if core::mem::replace(&mut self.departure, departure) == departure {
            return;
        }
        let own = self.identity.server;
        let others = self.members.iter().filter(|member| !member.life.failed && member.id != own);
        let others: Vec<ServerId> = others.map(|member| member.id).collect();
        self.send_to_all(others, &Body::Departure(departure));
        // Who is told to stop at the same time says so by then, and is offered nothing: roles stay as they are where all stop.
        self.offer_at = (departure == Departure::Leaves).then_some(now + OFFER_AFTER);
        if departure == Departure::Left {
            // What it would win it could not serve.
            let is_kept = |ballot: &Ballot| {
                ballot.phase == Phase::Won || matches!(ballot.purpose, Purpose::Slots | Purpose::Voters)
            };
            self.ballots.retain(|_, ballot| is_kept(ballot));
        }
        self.tick_offers(now);
    }

    /// Whether this member may take a group over.
    pub(super) fn may_lead(&self) -> bool {
        self.config.stands && self.departure == Departure::Stays
    }

    /// Offers each group that this member leads to its replicas.
    pub(super) fn tick_offers(&mut self, now: Instant) {
        if self.offer_at.is_none_or(|at| at > now) {
            return;
        }
        self.offer_at = Some(now + MEET_EVERY / 2);
        let led = self.places.iter().filter(|(group, place)| {
            place.role == Role::Primary && place.paused.is_none() && self.claims.owned_by(**group) > 0
        });
        let led: Vec<(GroupId, u64)> = led.map(|(group, place)| (*group, place.offset)).collect();
        for (group, offset) in led {
            let heirs: Vec<ServerId> = self.heirs(group).map(|member| member.id).collect();
            self.send_to_all(heirs, &Body::HandoverOffer { group, offset });
        }
    }

    /// Living replicas of a group, without this member, that are not about to stop themselves.
    fn heirs(&self, group: GroupId) -> impl Iterator<Item = &Member> {
        let own = self.identity.server;
        self.members.iter().filter(move |member| {
            let is_replica = member.id != own && member.description.follows.contains(&group);
            is_replica && !member.life.failed && member.departure == Departure::Stays
        })
    }

    /// The groups with slots that this member leads, and for each whether there is a replica that may take it over.
    pub fn led_groups(&self) -> impl Iterator<Item = (GroupId, bool)> {
        let own = self.identity.server;
        let led = self.claims.iter().filter(move |claim| claim.owner == own && self.claims.owned_by(claim.group) > 0);
        led.map(|claim| (claim.group, self.heirs(claim.group).next().is_some()))
    }

    /// A member says that it is about to stop, or has stopped, or goes on after all.
    pub(super) fn handle_departure(&mut self, now: Instant, from: ServerId, departure: Departure) {
        let Some(member) = self.members.get_mut(from) else { return };
        let before = core::mem::replace(&mut member.departure, departure);
        if departure != Departure::Left {
            if before == Departure::Left {
                self.event(Event::Returned { id: from });
            }
            return;
        }
        if before == departure {
            return;
        }
        // Members that stop together find out nothing about each other that their next lives would have to take back.
        let suspects =
            !member.life.failed && self.departure == Departure::Stays && self.voters.has_say(self.identity.server);
        if suspects && member.opinion != Opinion::Suspected {
            member.opinion = Opinion::Suspected;
            self.event(Event::Suspected { id: from });
        }
        if suspects {
            self.counters.suspicions += 1;
            self.suspicion.handle_left(from, now);
        }
        self.event(Event::Left { id: from });
    }
}
