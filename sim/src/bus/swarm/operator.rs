//! Who forms the cluster: an operator with a list of wishes, who repeats what has not come true.
//!
//! Every member is to be known, every group claimed at its home, every slot owned, and every group followed by the
//! members that it was meant for. An operator repeats a wish after a while only, so that what the bus has to do by
//! itself, it has to do by itself.

use ashlar_bus::slot::{GroupId, SLOTS, Slot, SlotRange};
use ashlar_bus::{Bus, Command};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;

use super::params::{Class, Params};
use crate::bus::check::Checker;
use crate::bus::world::{World, address_of};

/// The wishes.
#[derive(Debug)]
pub(super) struct Operator {
    groups: Vec<GroupId>,
    members: u32,
    replicas: u32,
    patience_ns: u64,
    /// When each member was last introduced.
    met_ns: Vec<Option<u64>>,
    /// The epoch of the voters that were told last, and which set that is, if they were taken.
    voters_epoch: u64,
    voters_told: Option<u64>,
    /// When the operator last told the same ones anew.
    voters_told_ns: u64,
    /// Voters are told one set at a time, as an authority ought to.
    is_careful: bool,
}

impl Operator {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            groups: (1..=u64::from(params.groups)).map(GroupId).collect(),
            members: params.members,
            replicas: params.replicas,
            patience_ns: 2 * params.config.member_timeout.as_nanos() as u64,
            met_ns: vec![None; params.members as usize],
            voters_epoch: 1_000,
            voters_told: None,
            voters_told_ns: 0,
            // Sets that were told at once and do not know of each other come to an end, unless a voter of the set before loses
            // its memory: it may have gone over to one of them. So says the head of the bus's `voters`.
            is_careful: params.classes.iter().any(|class| matches!(class, Class::Rot | Class::Wipe)),
        }
    }

    /// Tells a member that these vote from now on.
    pub(super) fn tell_voters(&mut self, world: &mut World<Checker>, member: u32, voters: Vec<ServerId>) {
        let Some(view) = world.bus(member).map(Bus::voters) else { return };
        let is_last = self.voters_told.is_none_or(|told| told == view.fingerprint && world.watch().is_complete(told));
        if self.is_careful && !is_last {
            return;
        }
        self.voters_epoch += 1;
        let set = Command::SetVoters { epoch: Epoch(self.voters_epoch), voters };
        if world.command(member, set).is_ok() {
            self.voters_told = world.bus(member).map(|bus| bus.voters().fingerprint);
        }
    }

    pub(super) fn groups(&self) -> &[GroupId] {
        &self.groups
    }

    /// A member has come back with nothing, or was forgotten: it has to be introduced again.
    pub(super) fn is_new(&mut self, member: u32) {
        self.met_ns[member as usize] = None;
    }

    /// Asks for what has not come true.
    pub(super) fn tend(&mut self, world: &mut World<Checker>) {
        let Some(anchor) = (0..self.members).find(|no| world.bus(*no).is_some()) else { return };
        for member in 0..self.members {
            self.introduce(world, anchor, member);
        }
        for at in 0..self.groups.len() {
            self.see_to_group(world, at as u32);
        }
        self.see_to_slots(world, anchor);
    }

    /// Where no majority of the voters remembers its votes, nobody can be elected until voters are told anew: that is what
    /// an authority is asked to do then. The same ones do. Where a majority remembers, the bus has to manage by itself.
    /// To be called when everything has healed, so that all get to know the last set that is left.
    pub(super) fn see_to_voters(&mut self, world: &mut World<Checker>) {
        let anchor = (0..self.members).find(|no| world.bus(*no).is_some());
        let Some((anchor, view)) = anchor.and_then(|no| Some((no, world.bus(no)?.voters()))) else { return };
        let remembers = |id: &ServerId| world.number_of(*id).is_some_and(|no| world.watch().remembers(no, &view));
        let remembering = view.voters.iter().filter(|id| remembers(id)).count();
        let recently = world.now_ns() - self.voters_told_ns < self.patience_ns;
        let mut running = (0..self.members).filter_map(|no| world.bus(no));
        let all_know = running.all(|bus| bus.voters().fingerprint == view.fingerprint);
        if !all_know || view.voters.is_empty() || remembering > view.voters.len() / 2 || recently {
            return;
        }
        let voters = view.voters.to_vec();
        (self.voters_told_ns, self.voters_told) = (world.now_ns(), None);
        self.tell_voters(world, anchor, voters);
    }

    fn introduce(&mut self, world: &mut World<Checker>, anchor: u32, member: u32) {
        let id = world.id(member);
        let knows = |one: u32, other| world.bus(one).is_some_and(|bus| bus.member(other).is_some());
        let known = knows(anchor, id) && knows(member, world.id(anchor));
        let recently = self.met_ns[member as usize].is_some_and(|met_ns| world.now_ns() - met_ns < self.patience_ns);
        if member == anchor || known || recently || world.bus(member).is_none() {
            return;
        }
        let (by, other) = if knows(anchor, id) { (member, anchor) } else { (anchor, member) };
        let meet = Command::Meet { id: world.id(other), address: address_of(other) };
        if world.command(by, meet).is_ok() {
            self.met_ns[member as usize] = Some(world.now_ns());
        }
    }

    fn see_to_group(&self, world: &mut World<Checker>, at: u32) {
        let group = self.groups[at as usize];
        // A group that somebody knows is not made anew, and none is made by a home that is apart from the others.
        let mut running = (0..self.members).filter_map(|no| world.bus(no));
        let is_known = running.any(|bus| bus.groups().any(|view| view.group == group));
        let home_is_in = (0..self.members).all(|no| world.bus(no).is_none_or(|bus| bus.member(world.id(at)).is_some()));
        for step in 0..=self.replicas {
            let member = (at + step) % self.members;
            let Some(bus) = world.bus(member) else { continue };
            let view = bus.groups().find(|view| view.group == group);
            let command = match view {
                None if step == 0 && !is_known && home_is_in => {
                    Some(Command::Claim { group, slots: vec![self.share(at)] })
                }
                None => None,
                Some(view) => {
                    let me = bus.identity().server;
                    let has_part = view.primary == me || view.replicas.contains(&me);
                    (!has_part).then_some(Command::Follow { group })
                }
            };
            if let Some(command) = command {
                let _asked_again_if_refused = world.command(member, command);
            }
        }
    }

    fn see_to_slots(&self, world: &mut World<Checker>, anchor: u32) {
        let Some(bus) = world.bus(anchor) else { return };
        let everybody_claimed = self.groups.iter().all(|group| bus.groups().any(|view| view.group == *group));
        if bus.cluster_state().slots_assigned == SLOTS || !everybody_claimed {
            return;
        }
        let unowned = (0..SLOTS).filter_map(Slot::new).filter(|slot| bus.owner(*slot).is_none());
        let ranges = unowned.fold(Vec::new(), |mut ranges: Vec<SlotRange>, slot| {
            match ranges.last_mut() {
                Some(last) if last.last.number() + 1 == slot.number() => last.last = slot,
                _ => ranges.push(SlotRange { first: slot, last: slot }),
            }
            ranges
        });
        let primary = bus.groups().find(|view| view.group == self.groups[0]).map(|view| view.primary);
        let Some(primary) = primary.and_then(|id| world.number_of(id)).filter(|no| world.bus(*no).is_some()) else {
            return;
        };
        let _asked_again_if_refused = world.command(primary, Command::Claim { group: self.groups[0], slots: ranges });
    }

    fn share(&self, at: u32) -> SlotRange {
        let slots = u32::from(SLOTS);
        let bound = |at: u32| (slots * at / self.groups.len() as u32) as u16;
        SlotRange::new(bound(at), bound(at + 1) - 1).expect("there are fewer groups than slots")
    }
}
