//! What the node wants.

use alloc::string::String;
use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::durable::Deferred;
use super::{Bus, Meeting, Place};
use crate::ballot::Terms;
use crate::claim::{Claim, next_unvoted};
use crate::event::{Command, CommandError, CopyState, Event, Role};
use crate::member::SERVICES_BYTES_MAX;
use crate::packet::{Body, CHOICE, Forgetting};
use crate::pubsub::wants;
use crate::slot::{GroupId, SlotRange, SlotSet};

impl Bus {
    /// The node wants something.
    ///
    /// # Errors
    /// See [`CommandError`]; nothing has changed then.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.notice_stall(now);
        let done = self.obey(now, command);
        self.finish(now);
        done
    }

    fn obey(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Meet { id, address } => self.meet(now, id, address),
            Command::Forget { id } => self.forget_by_hand(now, id),
            Command::Claim { group, slots } => self.claim(now, group, slots),
            Command::Take { group, slots, until } => self.take(now, group, slots, until),
            Command::Release { group, slots } => self.release(now, group, slots),
            Command::Follow { group } => self.follow(now, group),
            Command::Unfollow { group } => self.unfollow(now, group),
            Command::Offset { group, offset, copy } => self.set_offset(now, group, offset, copy),
            Command::Paused { group } => self.settle_pause(group),
            Command::Failover { group, how } => self.failover(now, group, how),
            Command::Depart(departure) => {
                self.depart(now, departure);
                Ok(())
            }
            Command::SetVoters { epoch, voters } => self.set_voters(now, epoch, voters),
            Command::Subscribe { channel } => self.subscribe(now, channel),
            Command::Unsubscribe { channel } => {
                self.channels.remove(&channel);
                self.describe_again(now);
                Ok(())
            }
            Command::SubscribeAll { wanted } => {
                self.hears_all = wanted;
                self.describe_again(now);
                Ok(())
            }
            Command::Publish { channel, message } => self.publish(&channel, &message),
            Command::Describe { services } => self.describe(now, services),
        }
    }

    fn meet(&mut self, now: Instant, id: ServerId, address: String) -> Result<(), CommandError> {
        if id == self.identity.server {
            return Err(CommandError::Oneself);
        }
        if address.len() > self.config.address_bytes_max || self.meetings.len() >= self.config.members_max {
            return Err(CommandError::TooLong);
        }
        if self.is_kept_out(id, now) {
            return Err(CommandError::KeptOut);
        }
        if self.members.place(id).is_none() {
            self.meetings.insert(id, Meeting { address, next: now, tries: 0 });
            self.tick_meetings(now);
        }
        Ok(())
    }

    /// Where a server is reached that is being introduced.
    #[must_use]
    pub fn meeting_address(&self, id: ServerId) -> Option<&str> {
        self.meetings.get(&id).map(|meeting| meeting.address.as_str())
    }

    fn forget_by_hand(&mut self, now: Instant, id: ServerId) -> Result<(), CommandError> {
        if id == self.identity.server {
            return Err(CommandError::Oneself);
        }
        if self.members.place(id).is_none() {
            // Somebody else may have wished so a moment ago, and everybody has heard of that.
            return if self.is_kept_out(id, now) { Ok(()) } else { Err(CommandError::UnknownMember) };
        }
        if !self.keep_outs.contains_key(&id) && !self.has_room_for_wish(now) {
            return Err(CommandError::TooLong);
        }
        let tag = u32::try_from(self.chance.next_u64() >> 32).unwrap_or(0);
        let left_ms = u64::try_from(self.config.keep_out.as_millis()).unwrap_or(u64::MAX);
        self.forget(now, Forgetting { id, tag, left_ms });
        Ok(())
    }

    fn claim(&mut self, now: Instant, group: GroupId, ranges: Vec<SlotRange>) -> Result<(), CommandError> {
        let slots = SlotSet::from_ranges(ranges);
        if group == CHOICE {
            return Err(CommandError::UnknownGroup);
        }
        let known = self.claims.get(group);
        if known.is_some_and(|claim| claim.owner != self.identity.server) {
            return Err(CommandError::NotPrimary);
        }
        let groups = self.claims.len() + self.ballots.len() + self.durable.claims().count();
        if known.is_none() && groups >= self.config.groups_max {
            return Err(CommandError::TooLong);
        }
        self.change_slots(now, group, slots, SlotSet::EMPTY)
    }

    /// A claim whose ballot has terms.
    fn take(
        &mut self,
        now: Instant,
        group: GroupId,
        ranges: Vec<SlotRange>,
        until: Instant,
    ) -> Result<(), CommandError> {
        if until <= now {
            return Err(CommandError::TooLate);
        }
        let slots = SlotSet::from_ranges(ranges.iter().copied());
        let terms = Terms { until, owners: self.owners_of(&slots) };
        self.claim(now, group, ranges)?;
        if let Some(ballot) = self.ballots.get_mut(&group) {
            ballot.terms = Some(terms);
        }
        Ok(())
    }

    fn release(&mut self, now: Instant, group: GroupId, ranges: Vec<SlotRange>) -> Result<(), CommandError> {
        let known = self.claims.get(group).ok_or(CommandError::UnknownGroup)?;
        if known.owner != self.identity.server {
            return Err(CommandError::NotPrimary);
        }
        self.change_slots(now, group, SlotSet::EMPTY, SlotSet::from_ranges(ranges))
    }

    /// With voters a ballot decides; before there are any, a claim is a beginning that nobody could contest.
    fn change_slots(
        &mut self,
        now: Instant,
        group: GroupId,
        taken: SlotSet,
        given_up: SlotSet,
    ) -> Result<(), CommandError> {
        let is_pending = self.durable.claims().any(|claim| claim.group == group);
        if self.ballots.contains_key(&group) || is_pending {
            return Err(CommandError::Busy);
        }
        if self.voters.set().is_some() {
            self.begin_slots(now, group, taken, given_up);
            return Ok(());
        }
        let known = self.claims.get(group);
        let base = known.map_or(Epoch::ZERO, |claim| claim.epoch);
        let held = known.map_or(SlotSet::EMPTY, |claim| self.claims.held(claim));
        let slots = held.union(&taken).without(&given_up);
        let epoch = next_unvoted(self.current.max(base));
        self.current = self.current.max(epoch);
        let claim = Claim { group, owner: self.identity.server, epoch, slots };
        self.durable.defer(Deferred::Claim { claim, elected: false, until: None });
        Ok(())
    }

    /// Becomes a replica; the group need not be known yet.
    pub(super) fn follow(&mut self, now: Instant, group: GroupId) -> Result<(), CommandError> {
        if self.claims.get(group).is_some_and(|claim| claim.owner == self.identity.server) {
            return Err(CommandError::NotReplica);
        }
        let followed = self.places.values().filter(|place| place.role == Role::Replica).count();
        let place = self.places.entry(group).or_insert_with(|| Place::new(Role::None));
        if place.role == Role::Replica {
            return Ok(());
        }
        if followed >= self.config.follows_max {
            return Err(CommandError::TooLong);
        }
        (place.role, place.copy, place.unfit) = (Role::Replica, CopyState::Missing, None);
        // Whoever is killed a moment later stands for the group after its restart.
        self.durable.need();
        let epoch = self.claims.get(group).map_or(Epoch::ZERO, |claim| claim.epoch);
        self.event(Event::RoleChanged { group, role: Role::Replica, epoch });
        self.describe_again(now);
        self.stand_if_failed(now, group);
        Ok(())
    }

    pub(super) fn unfollow(&mut self, now: Instant, group: GroupId) -> Result<(), CommandError> {
        let place = self.places.get_mut(&group).filter(|place| place.role == Role::Replica);
        place.ok_or(CommandError::NotReplica)?.role = Role::None;
        self.durable.need();
        self.ballots.remove(&group);
        self.handovers.remove(&group);
        let epoch = self.claims.get(group).map_or(Epoch::ZERO, |claim| claim.epoch);
        self.event(Event::RoleChanged { group, role: Role::None, epoch });
        self.describe_again(now);
        Ok(())
    }

    fn describe(&mut self, now: Instant, services: Vec<u8>) -> Result<(), CommandError> {
        if services.len() > SERVICES_BYTES_MAX {
            return Err(CommandError::TooLong);
        }
        self.services = services.into();
        self.describe_again(now);
        Ok(())
    }

    fn subscribe(&mut self, now: Instant, channel: Vec<u8>) -> Result<(), CommandError> {
        if channel.len() > self.config.channel_bytes_max || self.channels.len() >= self.config.channels_max {
            return Err(CommandError::TooLong);
        }
        self.channels.insert(channel);
        self.describe_again(now);
        Ok(())
    }

    fn publish(&mut self, channel: &[u8], message: &[u8]) -> Result<(), CommandError> {
        let too_long = channel.len() > self.config.channel_bytes_max || message.len() > self.config.message_bytes_max;
        if too_long || channel.len() + message.len() > self.packet_room() {
            return Err(CommandError::TooLong);
        }
        let own = self.identity.server;
        let hears = |member: &&crate::member::Member| {
            member.id != own && !member.life.failed && wants(&member.description.interest, channel)
        };
        let listeners: Vec<ServerId> = self.members.iter().filter(hears).map(|member| member.id).collect();
        self.send_to_all(listeners, &Body::Publish { channel: channel.into(), message: message.into() });
        self.deliver(own, channel, message);
        Ok(())
    }

    /// Hands a message to this member's subscribers.
    pub(super) fn deliver(&mut self, from: ServerId, channel: &[u8], message: &[u8]) {
        if self.hears_all || self.channels.contains(channel) {
            self.event(Event::Published { channel: channel.to_vec(), message: message.to_vec(), from });
        }
    }
}
