//! Model of the catalog: configurations that change by compare-and-set, for the reasons that members report.
//!
//! It takes a lost member out as long as another one acts, and lets it return as a learner after a while. It never acts
//! on a report of another epoch than the present one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;

use crate::config::Configuration;
use crate::member::Report;

/// The catalog's share of one group.
#[derive(Debug, Clone)]
struct Group {
    configuration: Configuration,
    /// Members that were taken out, and when they may return.
    out: BTreeMap<DriveId, u64>,
    /// Drives that have acted and do not, the last to leave behind the others.
    previous: Vec<DriveId>,
    /// The last of them, at each epoch.
    last_to_leave: BTreeMap<Epoch, DriveId>,
}

impl Group {
    fn begin_epoch(&mut self) {
        self.configuration.epoch = self.configuration.epoch.next();
        if let Some(last) = self.previous.last() {
            self.last_to_leave.insert(self.configuration.epoch, *last);
        }
    }
}

/// The catalog.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    groups: BTreeMap<GroupId, Group>,
}

impl Catalog {
    /// A new group.
    pub fn create(&mut self, configuration: Configuration) {
        self.groups.insert(
            configuration.group,
            Group { configuration, out: BTreeMap::new(), previous: Vec::new(), last_to_leave: BTreeMap::new() },
        );
    }

    /// The present configuration of a group.
    #[must_use]
    pub fn configuration(&self, group: GroupId) -> &Configuration {
        &self.groups[&group].configuration
    }

    /// The drive that had left those that act last, at an epoch of a group.
    #[must_use]
    pub fn last_to_leave(&self, group: GroupId, epoch: Epoch) -> Option<DriveId> {
        self.groups[&group].last_to_leave.get(&epoch).copied()
    }

    /// All groups.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupId> {
        self.groups.keys().copied().collect()
    }

    /// A member asks for a change. A member that is taken out may return at `returns_at`.
    pub fn handle_report(&mut self, group: GroupId, report: Report, returns_at: u64) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        let Group { configuration, out, previous, .. } = &mut *of;
        let (Report::Lost { epoch, .. } | Report::CaughtUp { epoch, .. } | Report::NewEpoch { epoch }) = report;
        if epoch != configuration.epoch {
            return;
        }
        match report {
            Report::Lost { member, .. } => {
                let is_acting = configuration.acting.contains(&member);
                if !is_acting && !configuration.learners.contains(&member)
                    || is_acting && configuration.acting.len() == 1
                {
                    return;
                }
                configuration.acting.retain(|drive| *drive != member);
                configuration.learners.retain(|drive| *drive != member);
                if configuration.primary == member {
                    configuration.primary = configuration.acting[0];
                }
                if is_acting {
                    previous.push(member);
                }
                out.insert(member, returns_at);
            }
            Report::CaughtUp { learner, .. } => {
                if !configuration.learners.contains(&learner) {
                    return;
                }
                configuration.learners.retain(|drive| *drive != learner);
                configuration.acting.push(learner);
                previous.retain(|drive| *drive != learner);
            }
            Report::NewEpoch { .. } => {}
        }
        of.begin_epoch();
    }

    /// Makes another acting member the primary, as before the server of the present one is stopped.
    pub fn hand_over(&mut self, group: GroupId, primary: DriveId) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        if of.configuration.acting.contains(&primary) && of.configuration.primary != primary {
            of.configuration.primary = primary;
            of.begin_epoch();
        }
    }

    /// Lets members return whose time has come and that are up.
    pub fn tick(&mut self, now: u64, is_up: impl Fn(DriveId) -> bool) {
        for of in self.groups.values_mut() {
            let Group { configuration, out, .. } = &mut *of;
            let due: Vec<DriveId> =
                out.iter().filter(|(drive, at)| **at <= now && is_up(**drive)).map(|(drive, _)| *drive).collect();
            if due.is_empty() {
                continue;
            }
            for drive in due {
                out.remove(&drive);
                configuration.learners.push(drive);
            }
            of.begin_epoch();
        }
    }

    /// Whether every member of every group acts.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.groups.values().all(|group| group.out.is_empty() && group.configuration.learners.is_empty())
    }
}
