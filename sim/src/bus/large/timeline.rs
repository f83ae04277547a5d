//! What happened when in a large cluster: suspicions, failures, elections, and which groups take writes.

use std::collections::BTreeMap;

use ashlar_bus::event::{Event, FailedBy, Role};
use ashlar_bus::slot::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;

use super::form::Layout;
use crate::bus::world::{Scene, Watch, World, number_of};

/// The first and the last of something, and how often it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// When it was first.
    pub first_ns: Option<u64>,
    /// When it was last.
    pub last_ns: Option<u64>,
    /// How often.
    pub count: u64,
}

impl Times {
    fn add(&mut self, now_ns: u64) {
        self.first_ns = self.first_ns.or(Some(now_ns));
        self.last_ns = Some(now_ns);
        self.count += 1;
    }
}

/// Watches a large world.
#[derive(Debug, Clone)]
pub struct Timeline {
    /// The group of which each member says that it is the primary, and whether it takes writes.
    primary_of: Vec<Option<(GroupId, bool)>>,
    /// At how many members each group takes writes.
    served: Vec<u32>,
    served_count: u32,
    /// Since when all do.
    all_served_ns: Option<u64>,
    is_down: Vec<bool>,
    primaries: BTreeMap<(GroupId, Epoch), ServerId>,
    violation: Option<String>,
    /// Suspicions of members that are down.
    pub suspicions: Times,
    /// Suspicions of members that run.
    pub false_suspicions: Times,
    /// Failures of members that are down, declared by a quorum.
    pub declared: Times,
    /// Failures of members that are down, becoming known to someone.
    pub known: Times,
    /// Failures of members that run, declared by a quorum.
    pub false_failures: Times,
    /// The dead of whom each member does not know yet that they have failed, all together.
    pub unknown: u64,
    /// Elections.
    pub elections: Times,
    /// Claims seen to change.
    pub claims: Times,
}

impl Timeline {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            primary_of: vec![None; layout.members as usize],
            served: vec![0; layout.groups() as usize],
            served_count: 0,
            all_served_ns: None,
            is_down: vec![true; layout.members as usize],
            primaries: BTreeMap::new(),
            violation: None,
            suspicions: Times::default(),
            false_suspicions: Times::default(),
            declared: Times::default(),
            known: Times::default(),
            false_failures: Times::default(),
            unknown: 0,
            elections: Times::default(),
            claims: Times::default(),
        }
    }

    /// Forgets what happened, not what is.
    pub fn begin(&mut self) {
        for times in [
            &mut self.suspicions,
            &mut self.false_suspicions,
            &mut self.declared,
            &mut self.known,
            &mut self.false_failures,
            &mut self.elections,
            &mut self.claims,
        ] {
            *times = Times::default();
        }
    }

    /// What must never be and was, in words.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Since when every group takes writes somewhere, if every group does.
    pub fn all_served_ns(&self) -> Option<u64> {
        self.all_served_ns
    }

    /// Groups that take writes nowhere.
    pub fn unserved(&self) -> u32 {
        self.served.len() as u32 - self.served_count
    }

    /// Groups that take writes at more than one member.
    pub fn served_twice(&self) -> u32 {
        self.served.iter().filter(|count| **count > 1).count() as u32
    }

    /// Whether every group takes writes at exactly one member, asked of all of them.
    pub fn are_all_served(&self, world: &World<Self>) -> bool {
        let mut writers = vec![0; self.served.len()];
        for (no, held) in (0..).zip(&self.primary_of) {
            if let (Some((group, _)), Some(bus)) = (held, world.bus(no)) {
                writers[place(*group)] += u32::from(bus.may_write(*group));
            }
        }
        writers.iter().all(|count| *count == 1)
    }

    fn writes(&mut self, now_ns: u64, member: u32, writes: bool) {
        let Some((group, before)) = &mut self.primary_of[member as usize] else { return };
        if core::mem::replace(before, writes) == writes {
            return;
        }
        let count = &mut self.served[place(*group)];
        if writes {
            *count += 1;
            self.served_count += u32::from(*count == 1);
        } else {
            *count -= 1;
            self.served_count -= u32::from(*count == 0);
        }
        let all = self.served_count as usize == self.served.len();
        self.all_served_ns = if all { self.all_served_ns.or(Some(now_ns)) } else { None };
    }

    fn is_down(&self, id: ServerId) -> bool {
        number_of(id).is_some_and(|no| self.is_down[no as usize])
    }

    fn role(&mut self, scene: &Scene<'_>, group: GroupId, role: Role, epoch: Epoch) {
        let held = self.primary_of[scene.member as usize].is_some_and(|(held, _)| held == group);
        if role != Role::Primary {
            if held {
                self.writes(scene.now_ns, scene.member, false);
                self.primary_of[scene.member as usize] = None;
            }
            return;
        }
        let me = scene.bus.identity().server;
        let first = *self.primaries.entry((group, epoch)).or_insert(me);
        if first != me && self.violation.is_none() {
            self.violation = Some(format!("group {group} has two primaries in epoch {epoch}"));
        }
        if !held {
            self.writes(scene.now_ns, scene.member, false);
            self.primary_of[scene.member as usize] = Some((group, false));
        }
    }
}

fn place(group: GroupId) -> usize {
    usize::try_from(group.0 - 1).expect("groups are numbered from 1")
}

impl Watch for Timeline {
    fn started(&mut self, scene: &Scene<'_>) {
        self.is_down[scene.member as usize] = false;
        let me = scene.bus.identity().server;
        let held = scene.bus.groups().find(|view| view.primary == me).map(|view| (view.group, false));
        self.primary_of[scene.member as usize] = held;
    }

    fn stopped(&mut self, now_ns: u64, member: u32) {
        self.writes(now_ns, member, false);
        self.primary_of[member as usize] = None;
        self.is_down[member as usize] = true;
    }

    fn event(&mut self, scene: &Scene<'_>, event: &Event) {
        let now_ns = scene.now_ns;
        match event {
            Event::Suspected { id } if self.is_down(*id) => self.suspicions.add(now_ns),
            Event::Suspected { .. } => self.false_suspicions.add(now_ns),
            Event::Failed { id, by } => {
                let by_quorum = matches!(by, FailedBy::Quorum { .. });
                if self.is_down(*id) {
                    self.known.add(now_ns);
                    self.unknown = self.unknown.saturating_sub(1);
                    if by_quorum {
                        self.declared.add(now_ns);
                    }
                } else if by_quorum {
                    self.false_failures.add(now_ns);
                }
            }
            Event::Elected { .. } => self.elections.add(now_ns),
            Event::SlotsChanged { .. } => self.claims.add(now_ns),
            Event::RoleChanged { group, role, epoch } => self.role(scene, *group, *role, *epoch),
            _ => {}
        }
    }

    fn settled(&mut self, scene: &Scene<'_>) {
        if let Some((group, _)) = self.primary_of[scene.member as usize] {
            self.writes(scene.now_ns, scene.member, scene.bus.may_write(group));
        }
    }

    fn is_over(&self) -> bool {
        self.violation.is_some()
    }
}
