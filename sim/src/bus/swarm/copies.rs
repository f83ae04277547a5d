//! A model of the data behind the roles: primaries take writes, replicas copy them while the link between the two is open.
//!
//! A write is a number that nobody else has. What a member has of a group is a list of writes, on its drive: it survives a crash,
//! not the loss of the disk. A replica that reaches its primary takes what it lacks. If it has writes that the primary lacks, its
//! list is replaced, and what it had is kept aside, as the engine does it. So with elections that choose well, every write
//! that a primary took is with the group's primary in the end or was kept aside.
//!
//! Each member's bus is told what its engine would tell: how far the copy goes, whether it is whole, and since when the primary is
//! silent. The checker is told the same ([`CopyFact`]) and compares elections with it.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_bus::Command;
use ashlar_bus::event::CopyState;
use ashlar_bus::slot::GroupId;
use ashlar_wire::id::Incarnation;

use crate::bus::check::Checker;
use crate::bus::world::World;

/// Writes of one group: after so many its primaries take no more.
const WRITES_MAX: usize = 2_000;

/// What the checker knows of a replica's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bus) struct CopyFact {
    /// A whole copy came in this life.
    pub(in crate::bus) is_whole: bool,
    /// When the primary was last heard.
    pub(in crate::bus) heard_ns: u64,
}

/// What one member has of one group.
#[derive(Debug, Default)]
struct Copy {
    writes: Vec<u32>,
    /// In which life a whole copy came, and from whom in which of its lives the stream comes.
    whole_in: Option<Incarnation>,
    stream: Option<(u32, Incarnation)>,
    heard_ns: u64,
}

/// All copies of a world.
#[derive(Debug, Default)]
pub(super) struct Copies {
    copies: BTreeMap<(u32, GroupId), Copy>,
    next: u32,
    /// Writes that primaries took, of each group, but for those that only a lost disk had.
    taken: BTreeMap<GroupId, BTreeSet<u32>>,
    kept_aside: BTreeMap<GroupId, BTreeSet<u32>>,
}

impl Copies {
    /// One step: primaries take a write each, then replicas copy.
    pub(super) fn flow(&mut self, world: &mut World<Checker>, groups: &[GroupId], members: u32) {
        for group in groups {
            for member in 0..members {
                self.write(world, member, *group);
            }
            for member in 0..members {
                self.copy(world, member, *group);
            }
        }
    }

    /// A member's disk is gone.
    pub(super) fn disk_lost(&mut self, member: u32) {
        let lost: Vec<(GroupId, Vec<u32>)> = self
            .copies
            .iter()
            .filter(|((no, _), _)| *no == member)
            .map(|((_, group), copy)| (*group, copy.writes.clone()))
            .collect();
        self.copies.retain(|(no, _), _| *no != member);
        for (group, writes) in lost {
            let elsewhere: BTreeSet<u32> = self
                .copies
                .iter()
                .filter(|((_, other), _)| *other == group)
                .flat_map(|(_, copy)| &copy.writes)
                .copied()
                .collect();
            let taken = self.taken.entry(group).or_default();
            writes.iter().filter(|write| !elsewhere.contains(write)).for_each(|write| {
                taken.remove(write);
            });
        }
    }

    /// Every write that a primary took is with its group's primary or was kept aside, or a copy that has not met the primary has it.
    ///
    /// # Errors
    /// One is gone.
    pub(super) fn check(&self) -> Result<(), String> {
        for (group, taken) in &self.taken {
            let mut left: BTreeSet<u32> = self.kept_aside.get(group).cloned().unwrap_or_default();
            let copies = self.copies.iter().filter(|((_, other), _)| other == group);
            left.extend(copies.flat_map(|(_, copy)| &copy.writes));
            let gone = taken.difference(&left).count();
            if gone > 0 {
                return Err(format!(
                    "{gone} of {} writes of group {group} are gone and were not kept aside",
                    taken.len()
                ));
            }
        }
        Ok(())
    }

    fn write(&mut self, world: &World<Checker>, member: u32, group: GroupId) {
        let Some(bus) = world.bus(member).filter(|_| !world.is_paused(member)) else { return };
        if !bus.may_write(group) {
            return;
        }
        let copy = self.copies.entry((member, group)).or_default();
        // What it serves is its own; whoever follows another later has no copy of that one's.
        (copy.whole_in, copy.stream) = (None, None);
        if copy.writes.len() < WRITES_MAX {
            copy.writes.push(self.next);
            self.taken.entry(group).or_default().insert(self.next);
            self.next += 1;
        }
    }

    /// A replica takes what it lacks, if it reaches its primary, and its bus is told how it is.
    fn copy(&mut self, world: &mut World<Checker>, member: u32, group: GroupId) {
        let Some(bus) = world.bus(member).filter(|_| !world.is_paused(member)) else { return };
        let (me, life) = (bus.identity().server, bus.identity().incarnation);
        if bus.member(me).is_none_or(|own| !own.follows.contains(&group)) {
            return;
        }
        let primary = bus.primary(group).and_then(|(id, _)| world.number_of(id));
        let stream = primary.and_then(|no| {
            let other = world
                .bus(no)
                .filter(|_| !world.is_paused(no) && world.is_open(member, no) && world.is_open(no, member))?;
            let serves = other.primary(group).is_some_and(|(id, _)| id == other.identity().server);
            serves.then(|| (no, other.identity().incarnation))
        });
        let theirs = stream.and_then(|(no, _)| self.copies.get(&(no, group))).map(|copy| copy.writes.clone());
        let copy = self.copies.entry((member, group)).or_default();
        if copy.whole_in != Some(life) {
            copy.stream = None;
        }
        if let (Some(stream), theirs) = (stream, theirs.unwrap_or_default()) {
            if !theirs.starts_with(&copy.writes) {
                self.kept_aside.entry(group).or_default().extend(&copy.writes);
            }
            (copy.writes, copy.stream, copy.whole_in) = (theirs, Some(stream), Some(life));
            copy.heard_ns = world.now_ns();
        } else {
            copy.stream = None;
        }
        self.tell(world, member, group, life);
    }

    fn tell(&self, world: &mut World<Checker>, member: u32, group: GroupId, life: Incarnation) {
        let Some(copy) = self.copies.get(&(member, group)) else { return };
        let is_whole = copy.whole_in == Some(life);
        world.watch_mut().note_copy(member, group, CopyFact { is_whole, heard_ns: copy.heard_ns });
        let state = match (is_whole, copy.stream) {
            (false, _) => CopyState::Missing,
            (true, Some(_)) => CopyState::Current,
            (true, None) => CopyState::Since(world.local(member, copy.heard_ns)),
        };
        let offset = copy.writes.len() as u64;
        // It is told again each time: a bus whose role has changed asks anew.
        let _refused_or_not = world.command(member, Command::Offset { group, offset, copy: state });
    }
}
