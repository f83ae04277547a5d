//! Configurations of placement groups: reading them, and changing them by compare-and-set.

use ashlar_placement::choose::{PgTable, choose_drives};
use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_wire::id::DriveId;

use super::sets::has_pg;
use super::{State, known};
use crate::error::{Refusal, Subject};
use crate::server::DriveState;
use crate::set::{MEMBERS_MAX, PG_STEPS_MAX, PgConfig, PgRow, PgStep, Set, Settled};

impl State {
    /// The configuration of a placement group. One that has never changed is drawn from the set's first map, which costs
    /// a microsecond for a thousand drives and seat.
    #[must_use]
    pub fn pg(&self, group: GroupId) -> Option<PgConfig> {
        let set = self.sets.get(&group.set).filter(|set| has_pg(set, group.pg))?;
        if let Some(row) = self.pgs.get(&group) {
            return Some(row.config.clone());
        }
        Some(first_config(set, founders(set, group.pg)))
    }

    /// Whether all acting drives of a placement group are given up: what it had is lost, and no drive serves it again.
    #[must_use]
    pub fn is_given_up(&self, config: &PgConfig) -> bool {
        let is_kept = |drive: &DriveId| self.drive(*drive).is_some_and(|drive| drive.state != DriveState::Failed);
        !config.acting.iter().any(is_kept)
    }

    /// The drives that may have something of a placement group beside its learners, each once: those with which it began, as the
    /// set's first map says, those that act, and those that acted since it was settled. Empty for a group that began with one copy, of which a loss
    /// cannot be told from a beginning. None for an unknown group.
    #[must_use]
    pub fn witnesses(&self, group: GroupId) -> Option<Vec<DriveId>> {
        let PgConfig { acting, previous, .. } = self.pg(group)?;
        let mut all = founders(self.sets.get(&group.set)?, group.pg);
        if all.len() < 2 {
            return Some(Vec::new());
        }
        for drive in acting.into_iter().chain(previous) {
            if !all.contains(&drive) {
                all.push(drive);
            }
        }
        Some(all)
    }

    /// Every placement group of a set with its configuration, ascending; none for an unknown set. Draws the whole table
    /// of the set's first map: about a second for 1,000 drives and 100,000 placement groups.
    pub fn pgs_of(&self, id: SetId) -> impl Iterator<Item = (PgId, PgConfig)> {
        let set = self.sets.get(&id);
        let table = set.map(|set| PgTable::new((*set.first).clone()));
        let pgs = set.map_or(0, |set| set.first.shape().pgs);
        (0..pgs).map(PgId).filter_map(move |pg| {
            let config = match self.pgs.get(&GroupId { set: id, pg }) {
                Some(row) => row.config.clone(),
                None => first_config(set?, table.as_ref()?.drives(pg).map(|drive| drive.id).collect()),
            };
            Some((pg, config))
        })
    }

    /// Placement groups whose configuration has changed since their set was made.
    #[must_use]
    pub const fn pgs_changed(&self) -> usize {
        self.pgs.len()
    }

    pub(super) fn configure_pgs(&mut self, steps: &[PgStep]) -> Result<(), Refusal> {
        if steps.is_empty() || !steps.is_sorted_by(|one, next| one.group < next.group) {
            return Err(Refusal::BadValue("order of steps"));
        }
        if steps.len() > PG_STEPS_MAX {
            return Err(Refusal::TooMany { what: "steps", max: PG_STEPS_MAX });
        }
        let rows: Result<Vec<PgRow>, Refusal> = steps.iter().map(|step| self.configured(step)).collect();
        for row in rows? {
            self.pgs.insert(row);
        }
        Ok(())
    }

    /// What a placement group becomes by a step.
    fn configured(&self, step: &PgStep) -> Result<PgRow, Refusal> {
        let group = step.group;
        let set = known(self.sets.get(&group.set), Subject::Set(group.set))?;
        let old = known(self.pg(group), Subject::Group(group))?;
        if step.expected != old.epoch {
            return Err(Refusal::StaleEpoch { group, current: old.epoch });
        }
        let width_max = set.width_max();
        // A list that is below the minimum already may stay as short as it is.
        let acting_min = usize::from(set.copies.acting_min).min(old.acting.len());
        let fits = (acting_min..=width_max).contains(&step.acting.len()) && step.learners.len() <= width_max;
        if !fits || !step.acting.contains(&step.primary) {
            return Err(Refusal::BadActing(group));
        }
        check_certified(step, &old)?;
        self.check_members(step, &old)?;
        self.check_conflicts(group, set, &step.acting)?;
        let epoch = old.epoch.next();
        let previous = previous_after(step, &old);
        let (acting, learners) = (step.acting.clone(), step.learners.clone());
        Ok(PgRow { group, config: PgConfig { epoch, acting, primary: step.primary, learners, previous } })
    }

    /// No drive twice, and learners that are drives of the set.
    fn check_members(&self, step: &PgStep, old: &PgConfig) -> Result<(), Refusal> {
        let members: Vec<DriveId> = step.acting.iter().chain(&step.learners).copied().collect();
        if let Some(drive) = find_repeated(&members) {
            return Err(Refusal::Conflict { group: step.group, drive });
        }
        for learner in step.learners.iter().filter(|learner| !old.is_member(**learner)) {
            let drive = known(self.drives.get(learner), Subject::Drive(*learner))?;
            if drive.set != Some(step.group.set.home()) {
                return Err(Refusal::BadState(Subject::Drive(*learner)));
            }
        }
        Ok(())
    }

    /// No two acting members in one conflict domain.
    pub(super) fn check_conflicts(&self, group: GroupId, set: &Set, acting: &[DriveId]) -> Result<(), Refusal> {
        let mut placed = Vec::new();
        for id in acting {
            let drive = known(self.placed_drive(*id), Subject::Drive(*id))?;
            if placed.iter().any(|other| set.conflict().is_between(other, &drive)) {
                return Err(Refusal::Conflict { group, drive: *id });
            }
            placed.push(drive);
        }
        Ok(())
    }
}

/// The acting list with which a placement group begins.
fn founders(set: &Set, pg: PgId) -> Vec<DriveId> {
    choose_drives(&set.first, pg).iter().map(|index| set.first.drive(*index).id).collect()
}

/// The configuration with which a placement group begins.
fn first_config(set: &Set, acting: Vec<DriveId>) -> PgConfig {
    let primary = *acting.first().expect("a placement group has a seat");
    PgConfig { epoch: set.first_epoch, acting, primary, learners: Vec::new(), previous: Vec::new() }
}

/// Only learners are certified, and only they join the acting list.
fn check_certified(step: &PgStep, old: &PgConfig) -> Result<(), Refusal> {
    let refuse = |drive: &DriveId| Refusal::NotCertified { group: step.group, drive: *drive };
    if let Some(drive) = step.certified.iter().find(|drive| !old.learners.contains(drive)) {
        return Err(refuse(drive));
    }
    let joins_rightly = |drive: &&DriveId| old.acting.contains(drive) || step.certified.contains(drive);
    step.acting.iter().find(|drive| !joins_rightly(drive)).map_or(Ok(()), |drive| Err(refuse(drive)))
}

pub(super) fn find_repeated(drives: &[DriveId]) -> Option<DriveId> {
    let mut sorted = drives.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// The previous members after a step: those that were and those that leave now, the latest of them.
fn previous_after(step: &PgStep, old: &PgConfig) -> Vec<DriveId> {
    if step.settled == Settled::Yes {
        return Vec::new();
    }
    let gone = old.acting.iter().filter(|drive| !old.previous.contains(drive));
    let mut previous: Vec<DriveId> =
        old.previous.iter().chain(gone).filter(|drive| !step.acting.contains(drive)).copied().collect();
    previous.drain(..previous.len().saturating_sub(MEMBERS_MAX));
    previous
}
