//! Primaries that agree to go: they pause, the replica catches up, then it stands.

use alloc::vec::Vec;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::durable::Deferred;
use super::{Bus, MEET_EVERY};
use crate::claim::{Claim, next_unvoted};
use crate::event::{CommandError, CopyState, Event, How, Role};
use crate::packet::Body;
use crate::slot::GroupId;

/// A replica on its way to become primary with its primary's consent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handover {
    until: Instant,
    ask_at: Instant,
    /// The primary is not asked before the copy goes so far: it has offered the group.
    offered: Option<u64>,
    /// How far the paused primary's copy goes, once it has told.
    target: Option<u64>,
}

/// A primary's pause for a replica that is to become primary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    pub(super) until: Instant,
    /// Who asked.
    who: ServerId,
    /// Writes in flight have ended: how far its copy goes is final.
    is_settled: bool,
}

impl Handover {
    pub(super) fn due(&self) -> Instant {
        self.until.min(self.ask_at)
    }
}

impl Bus {
    pub(super) fn failover(&mut self, now: Instant, group: GroupId, how: How) -> Result<(), CommandError> {
        let claim = self.claims.get(group).ok_or(CommandError::UnknownGroup)?;
        let owner = claim.owner;
        let place = self.places.get(&group).ok_or(CommandError::NotReplica)?;
        if place.role != Role::Replica {
            return Err(CommandError::NotReplica);
        }
        if self.handovers.contains_key(&group) {
            return Err(CommandError::Busy);
        }
        match how {
            How::Agreed => {
                let until = now + self.config.handover_max;
                self.handovers
                    .insert(group, Handover { until, ask_at: now + MEET_EVERY / 2, offered: None, target: None });
                self.send(owner, &Body::HandoverAsk(group));
            }
            How::Forced => self.begin_by_hand(now, group),
            How::Takeover => {
                let slots = self.claims.held(claim);
                let epoch = next_unvoted(self.current.max(claim.epoch));
                self.current = self.current.max(epoch);
                let claim = Claim { group, owner: self.identity.server, epoch, slots };
                self.durable.defer(Deferred::Claim { claim, elected: false, until: None });
            }
        }
        Ok(())
    }

    /// The primary, which is about to stop, offers this replica the group.
    pub(super) fn handle_offer(&mut self, now: Instant, from: ServerId, group: GroupId, offset: u64) {
        let is_primary = self.claims.get(group).is_some_and(|claim| claim.owner == from);
        let is_replica = self.places.get(&group).is_some_and(|place| place.role == Role::Replica);
        if !is_primary || !is_replica || !self.may_lead() {
            self.counters.refused_unentitled += 1;
            return;
        }
        if self.handovers.contains_key(&group) {
            return;
        }
        let until = now + self.config.handover_max;
        self.handovers.insert(group, Handover { until, ask_at: until, offered: Some(offset), target: None });
        self.event(Event::HandoverOffered { group });
        self.advance_handover(now, group);
    }

    /// A replica asks this primary to pause.
    pub(super) fn handle_handover_ask(&mut self, now: Instant, from: ServerId, group: GroupId) {
        let follows = self.members.get(from).is_some_and(|member| member.description.follows.contains(&group));
        let until = now + self.config.handover_max;
        let place = self.places.get_mut(&group).filter(|place| follows && place.role == Role::Primary);
        let Some(place) = place.filter(|place| place.paused.is_none_or(|pause| pause.who == from)) else {
            self.counters.refused_unentitled += 1;
            return self.send(from, &Body::HandoverOffset { group, offset: None });
        };
        match place.paused {
            Some(Pause { is_settled: true, .. }) => {
                let offset = Some(place.offset);
                self.send(from, &Body::HandoverOffset { group, offset });
            }
            // It asks again.
            Some(_) => {}
            None => {
                place.paused = Some(Pause { until, who: from, is_settled: false });
                self.event(Event::HandoverPaused { group });
            }
        }
    }

    /// The writes of a paused primary have ended: what it last told of its copy is what the replica needs.
    pub(super) fn settle_pause(&mut self, group: GroupId) -> Result<(), CommandError> {
        let place = self.places.get_mut(&group).ok_or(CommandError::UnknownGroup)?;
        let pause = place.paused.as_mut().ok_or(CommandError::NotPrimary)?;
        pause.is_settled = true;
        let (who, offset) = (pause.who, Some(place.offset));
        self.send(who, &Body::HandoverOffset { group, offset });
        Ok(())
    }

    pub(super) fn handle_handover_offset(&mut self, now: Instant, from: ServerId, group: GroupId, offset: Option<u64>) {
        let is_primary = self.claims.get(group).is_some_and(|claim| claim.owner == from);
        let Some(handover) = self.handovers.get_mut(&group).filter(|_| is_primary) else {
            self.counters.refused_unasked += 1;
            return;
        };
        match offset {
            Some(offset) => {
                let before = handover.target.replace(handover.target.map_or(offset, |known| known.max(offset)));
                if before.is_none() {
                    self.event(Event::HandoverGranted { group });
                }
            }
            None => {
                self.handovers.remove(&group);
            }
        }
        self.advance_handover(now, group);
    }

    /// This member may serve writes from now on, which may be all that a group on offer waited for.
    pub(super) fn advance_handovers(&mut self, now: Instant) {
        for group in self.handovers.keys().copied().collect::<Vec<GroupId>>() {
            self.advance_handover(now, group);
        }
    }

    /// Stands once this copy goes as far as that of the paused primary.
    fn advance_handover(&mut self, now: Instant, group: GroupId) {
        self.ask_for_offered(now, group);
        let target = self.handovers.get(&group).and_then(|handover| handover.target);
        // A primary without a stream is at offset 0, as is a replica that has nothing.
        let has = |target| {
            self.places.get(&group).is_some_and(|place| place.copy != CopyState::Missing && place.offset >= target)
        };
        let has_all = target.is_some_and(has);
        if has_all && !self.ballots.contains_key(&group) {
            self.begin_by_hand(now, group);
        }
    }

    /// Asks the primary to pause that has offered the group, once so little is missing that the pause is short. Of several replicas
    /// the first one that has it gets the pause.
    fn ask_for_offered(&mut self, now: Instant, group: GroupId) {
        let Some((owner, place)) = self.claims.get(group).map(|claim| claim.owner).zip(self.places.get(&group)) else {
            return;
        };
        // Whoever has come back a moment ago may not serve writes yet: it would take over and refuse them.
        let is_writable = self.standing.writable;
        let is_near = |offset: u64| is_writable && place.copy == CopyState::Current && place.offset >= offset;
        let Some(handover) = self.handovers.get_mut(&group).filter(|handover| handover.offered.is_some_and(is_near))
        else {
            return;
        };
        (handover.offered, handover.ask_at) = (None, now + MEET_EVERY / 2);
        self.send(owner, &Body::HandoverAsk(group));
    }

    /// How far this member's copy of a group's data goes, and whether it is one.
    pub(super) fn set_offset(
        &mut self,
        now: Instant,
        group: GroupId,
        offset: u64,
        copy: CopyState,
    ) -> Result<(), CommandError> {
        let place = self.places.get_mut(&group).filter(|place| place.role != Role::None);
        let place = place.ok_or(CommandError::UnknownGroup)?;
        place.offset = offset;
        self.handle_copy(now, group, copy);
        self.advance_handover(now, group);
        Ok(())
    }

    pub(super) fn tick_handovers(&mut self, now: Instant) {
        let groups = self.handovers.iter().filter(|(_, handover)| handover.due() <= now).map(|(group, _)| *group);
        for group in groups.collect::<Vec<_>>() {
            let Some(handover) = self.handovers.get_mut(&group) else { continue };
            if handover.until <= now {
                self.handovers.remove(&group);
                // A ballot that was begun with consent has none any more.
                self.ballots
                    .retain(|other, ballot| *other != group || ballot.purpose != crate::packet::Purpose::ByHand);
                continue;
            }
            handover.ask_at = now + MEET_EVERY / 2;
            if let Some(owner) = self.claims.get(group).map(|claim| claim.owner) {
                self.send(owner, &Body::HandoverAsk(group));
            }
        }
        let over = self.places.iter_mut().filter(|(_, place)| place.paused.is_some_and(|pause| pause.until <= now));
        let over: Vec<GroupId> = over
            .map(|(group, place)| {
                place.paused = None;
                *group
            })
            .collect();
        for group in over {
            self.event(Event::HandoverEnded { group });
        }
    }
}
