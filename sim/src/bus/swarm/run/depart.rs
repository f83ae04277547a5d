//! Members that stop in order and come back, as servers do at a rolling restart.
//!
//! A member offers what it leads to its replicas, waits until they have taken it or for as long as a node waits, says goodbye, and ends a moment
//! later. Among faults that may go wrong in any way, and only what holds at every step is asked for. Where all is well one member does so once
//! more, and then no group that has a replica is without a primary that takes writes for as long as a silence would have to last.

use ashlar_bus::Command;
use ashlar_bus::event::{Departure, GroupView};
use ashlar_bus::slot::GroupId;
use ashlar_wire::id::Incarnation;

use super::{Going, Run, Step};
use crate::bus::check::Checker;
use crate::bus::world::World;

/// How long a node waits at most for replicas, in member timeouts.
const OFFERS_TIMEOUTS_MAX: u64 = 2;

/// How often it is looked how far a departure is, in a member timeout.
const LOOKS_PER_TIMEOUT: u64 = 40;

/// A member on its way out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    member: u32,
    /// Whoever has crashed meanwhile leaves no more.
    life: Incarnation,
    /// Until when it waits for replicas.
    until_ns: u64,
    down_ns: u64,
}

impl Leaving {
    /// The same life still runs, and can do something.
    fn goes_on(&self, world: &World<Checker>) -> bool {
        world.bus(self.member).is_some_and(|bus| bus.identity().incarnation == self.life)
    }
}

impl Run<'_> {
    /// A member begins to stop.
    pub(super) fn depart(&mut self, member: u32, down_ns: u64) {
        let Some(life) = self.world.bus(member).map(|bus| bus.identity().incarnation) else { return };
        let until_ns = self.world.now_ns() + OFFERS_TIMEOUTS_MAX * self.timeout_ns();
        let leaving = Leaving { member, life, until_ns, down_ns };
        self.tell_departure(member, Departure::Leaves);
        self.after(self.look_ns(), Step::Leave(leaving));
    }

    /// Says goodbye once nobody is left who could take over what the member leads.
    pub(super) fn leave(&mut self, leaving: Leaving) {
        if !leaving.goes_on(&self.world) {
            return;
        }
        let waits = self.world.now_ns() < leaving.until_ns;
        let is_frozen = self.world.is_paused(leaving.member);
        let bus = self.world.bus(leaving.member).expect("it goes on");
        if is_frozen || waits && bus.led_groups().any(|(_, has_heir)| has_heir) {
            return self.after(self.look_ns(), Step::Leave(leaving));
        }
        self.tell_departure(leaving.member, Departure::Left);
        self.after(self.look_ns(), Step::End(leaving));
    }

    /// Ends the life of a member that has said goodbye.
    pub(super) fn end(&mut self, leaving: Leaving) {
        if leaving.goes_on(&self.world) {
            self.kill(leaving.member, leaving.down_ns);
        }
    }

    /// Everything heals: a member that is on its way out goes on after all.
    pub(super) fn stay(&mut self, leaving: Leaving) {
        if leaving.goes_on(&self.world) {
            self.tell_departure(leaving.member, Departure::Stays);
        }
    }

    fn tell_departure(&mut self, member: u32, departure: Departure) {
        let now_ns = self.world.now_ns();
        self.world.watch_mut().departing(now_ns, member, departure);
        let _never_refused = self.world.command(member, Command::Depart(departure));
    }

    /// Whether somebody that runs does not know all members.
    fn is_anybody_forgotten(&self) -> bool {
        let mut running = (0..self.params.members).filter_map(|no| self.world.bus(no));
        running.any(|bus| bus.members().count() != self.params.members as usize)
    }

    /// Groups with slots that others can serve without this member. Where slots without a living owner stop all writes, these are all or none.
    fn kept_without(&self, member: u32) -> Vec<GroupId> {
        let bus = self.world.bus(member).expect("everybody runs");
        let lost: Vec<GroupId> = bus.led_groups().filter(|(_, has_heir)| !has_heir).map(|(group, _)| group).collect();
        if self.params.config.require_full_coverage && !lost.is_empty() {
            return Vec::new();
        }
        let kept = bus.groups().filter(|view| !view.slots.is_empty() && !lost.contains(&view.group));
        kept.map(|view| view.group).collect()
    }

    /// Whether somebody may write to the group, or there is nothing to write to: others have taken all of its slots, for which no
    /// replica stands.
    fn is_served(&self, group: GroupId) -> bool {
        let running = || (0..self.params.members).filter_map(|no| self.world.bus(no));
        let is_empty = |view: GroupView| view.group == group && view.slots.is_empty();
        running().any(|bus| bus.may_write(group)) || running().all(|bus| bus.groups().any(is_empty))
    }

    fn look_ns(&self) -> u64 {
        self.timeout_ns() / LOOKS_PER_TIMEOUT
    }

    /// One member stops in order while everything else is well, and comes back.
    pub(super) fn let_one_go(&mut self) -> Going {
        self.until_copied("before one stops")?;
        let Some(member) = self.choose_victim() else { return Ok(()) };
        let mut watched = self.kept_without(member);
        self.world.note(|| format!("{member} stops in order while all is well"));
        let down_ns = 2 * self.timeout_ns();
        self.depart(member, down_ns);
        let end_ns = self.world.now_ns() + (OFFERS_TIMEOUTS_MAX + 1) * self.timeout_ns() + down_ns;
        let mut served_ns = vec![self.world.now_ns(); watched.len()];
        while self.world.now_ns() < end_ns {
            self.strike_until(self.world.now_ns() + self.look_ns())?;
            let now_ns = self.world.now_ns();
            if self.is_anybody_forgotten() {
                // An operator's wish from before, which the member had saved while it lasted and tells the others of once more when it is
                // back: voters may be among the forgotten.
                watched.clear();
            }
            for (group, served_ns) in watched.iter().zip(&mut served_ns) {
                if self.is_served(*group) {
                    *served_ns = now_ns;
                }
                if now_ns - *served_ns >= self.timeout_ns() {
                    return Err(format!(
                        "group {group} is without a primary for a member timeout while {member} stops in order"
                    ));
                }
            }
        }
        self.steps.clear();
        self.start(member)?;
        self.until_agreed("after its return in order", &[])
    }
}
