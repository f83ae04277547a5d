//! Failed servers and drives leave acting lists; servers that return come back as learners.

use std::collections::BTreeSet;

use ashlar_placement::choose::PgTable;
use ashlar_placement::map::{self, GroupId, PgId, SetId};
use ashlar_wire::id::{DriveId, ServerId};

use crate::change::Change;
use crate::server::{Drive, DriveState};
use crate::set::{PG_STEPS_MAX, PgConfig, PgStep, Set, Settled};
use crate::state::State;

/// Takes every member on a failed server, and every drive that is away or given up, out of its placement group, at the next epoch
/// of each. The first acting member that stays becomes primary where the primary leaves. An acting list keeps the set's least number of
/// members. Where all have failed, all stay that are not given up, and at least one: each has everything that was acknowledged, and
/// the placement group goes on with the first that is back.
///
/// Draws the table of every set.
#[must_use]
pub fn plan_failure(state: &State, failed: &BTreeSet<ServerId>) -> Vec<Change> {
    let is_given_up = |drive: DriveId| state.drive(drive).is_some_and(|drive| drive.state == DriveState::Failed);
    let is_lost = |drive: &Drive| drive.state.is_away() || failed.contains(&drive.server);
    let is_failed = |drive: DriveId| is_given_up(drive) || state.drive(drive).is_some_and(is_lost);
    let mut steps = Vec::new();
    for set in state.sets() {
        for (pg, config) in state.pgs_of(set.id) {
            // Of those that have failed all together, any may be the first that is back.
            let waits = config.acting.iter().all(|drive| is_failed(*drive));
            let leaves = |drive: DriveId| if waits { is_given_up(drive) } else { is_failed(drive) };
            let learns = |drive: DriveId| !is_failed(drive);
            steps.extend(step_without(GroupId { set: set.id, pg }, set, &config, leaves, learns));
        }
    }
    batches(steps)
}

fn step_without(
    group: GroupId,
    set: &Set,
    old: &PgConfig,
    is_failed: impl Fn(DriveId) -> bool,
    learns: impl Fn(DriveId) -> bool,
) -> Option<PgStep> {
    let alive = old.acting.iter().filter(|drive| !is_failed(**drive)).count();
    let acting_min = usize::from(set.copies.acting_min).max(1);
    // Those that stay although they have failed: the primary first, so that it need not change.
    let mut kept = acting_min.saturating_sub(alive);
    let mut stays = BTreeSet::new();
    for drive in [old.primary].iter().chain(&old.acting).filter(|drive| is_failed(**drive)) {
        if kept > 0 && stays.insert(*drive) {
            kept -= 1;
        }
    }
    let remains = |drive: &&DriveId| !is_failed(**drive) || stays.contains(*drive);
    let acting: Vec<DriveId> = old.acting.iter().filter(remains).copied().collect();
    let learners: Vec<DriveId> = old.learners.iter().filter(|drive| learns(**drive)).copied().collect();
    if acting == old.acting && learners == old.learners {
        return None;
    }
    let first = acting.iter().find(|drive| !is_failed(**drive)).or(acting.first());
    let primary = if acting.contains(&old.primary) && (!is_failed(old.primary) || alive == 0) {
        old.primary
    } else {
        *first.expect("an acting list keeps a member")
    };
    let (certified, settled) = (Vec::new(), Settled::No);
    Some(PgStep { group, expected: old.epoch, acting, primary, learners, certified, settled })
}

/// Makes learners of the drives on these servers that should hold data of a placement group and do not: members that
/// return, and drives that a new map has chosen. At most `steps_max` placement groups, so that repair has a budget. A group of which all
/// acting drives are given up has nothing to fill another one with, and keeps none waiting for it.
///
/// Draws two tables of every set.
#[must_use]
pub fn plan_learners(state: &State, alive: &BTreeSet<ServerId>, steps_max: usize) -> Vec<Change> {
    let is_there = |drive: &Drive| alive.contains(&drive.server) && !drive.state.is_away();
    let is_alive = |drive: DriveId| state.drive(drive).is_some_and(is_there);
    let mut steps = Vec::new();
    for set in state.sets() {
        let target = PgTable::new((*set.target).clone());
        for (pg, config) in state.pgs_of(set.id) {
            if steps.len() == steps_max {
                return batches(steps);
            }
            let due = due_drives(state, set.id, &target, pg);
            let mut learners = config.learners.clone();
            if state.is_given_up(&config) {
                learners.clear();
            } else {
                learners.extend(due.into_iter().filter(|drive| is_alive(*drive) && !config.is_member(*drive)));
                learners.truncate(target.map().shape().width());
            }
            if learners != config.learners {
                let group = GroupId { set: set.id, pg };
                let PgConfig { epoch: expected, acting, primary, .. } = config;
                let (certified, settled) = (Vec::new(), Settled::No);
                steps.push(PgStep { group, expected, acting, primary, learners, certified, settled });
            }
        }
    }
    batches(steps)
}

/// What comes back with a server: [`plan_learners`] for it alone.
#[must_use]
pub fn plan_return(state: &State, server: ServerId, steps_max: usize) -> Vec<Change> {
    plan_learners(state, &BTreeSet::from([server]), steps_max)
}

/// Makes learners of the drives with which a placement group began and of those that acted before, as far as they are on
/// these servers: for a group in which every acting member says that its copy lacks something. They may have it, or show
/// that nobody ever had anything. Other learners give way to them. `None` when nothing would change.
#[must_use]
pub fn plan_witnesses(state: &State, group: GroupId, alive: &BTreeSet<ServerId>) -> Option<PgStep> {
    let (set, config) = (state.set(group.set)?, state.pg(group)?);
    let is_usable = |drive: &Drive| !drive.state.is_away() && drive.state != DriveState::Failed;
    let is_there = |drive: &Drive| alive.contains(&drive.server) && is_usable(drive);
    let may_learn = |drive: &Drive| is_there(drive) && drive.set == Some(group.set.home());
    let mut learners = state.witnesses(group)?;
    learners.retain(|drive| !config.acting.contains(drive) && state.drive(*drive).is_some_and(may_learn));
    if learners.iter().all(|drive| config.learners.contains(drive)) {
        return None;
    }
    let others: Vec<DriveId> = config.learners.iter().filter(|drive| !learners.contains(drive)).copied().collect();
    learners.extend(others);
    learners.truncate(set.width_max());
    let PgConfig { epoch: expected, acting, primary, learners: before, .. } = config;
    let (certified, settled) = (Vec::new(), Settled::No);
    (learners != before).then_some(PgStep { group, expected, acting, primary, learners, certified, settled })
}

/// The drives that should hold a placement group and may be filled, seat by seat.
fn due_drives(state: &State, set: SetId, target: &PgTable, pg: PgId) -> Vec<DriveId> {
    let may_hold = |drive: &map::Drive| {
        let known = state.drive(drive.id).filter(|known| known.set == Some(set.home()));
        known.is_some() && state.placed_drive(drive.id).is_some_and(|placed| placed.state != map::DriveState::Out)
    };
    target.drives(pg).filter(|drive| may_hold(drive)).map(|drive| drive.id).collect()
}

/// The step by which learners that its primary has certified join a placement group. Once every drive of the target map
/// acts, the others leave, the preferred drive becomes primary, and the placement group is settled. `None` when nothing
/// would change, or for an unknown placement group or a drive that is no learner.
#[must_use]
pub fn plan_promotion(state: &State, group: GroupId, certified: &[DriveId]) -> Option<PgStep> {
    let set = state.set(group.set)?;
    let old = state.pg(group)?;
    if !certified.iter().all(|drive| old.learners.contains(drive)) {
        return None;
    }
    let target: Vec<DriveId> = ashlar_placement::choose::choose_drives(&set.target, group.pg)
        .iter()
        .map(|index| set.target.drive(*index).id)
        .collect();
    let mut acting: Vec<DriveId> = old.acting.iter().chain(certified).copied().collect();
    if target.iter().all(|drive| acting.contains(drive)) {
        acting.clone_from(&target);
    } else {
        drop_strangers(state, set, &target, &mut acting);
    }
    let settled = if acting == target { Settled::Yes } else { Settled::No };
    let keeps = acting.contains(&old.primary) && settled == Settled::No;
    let primary = if keeps { old.primary } else { *acting.first()? };
    let learners: Vec<DriveId> = old.learners.iter().filter(|drive| !certified.contains(drive)).copied().collect();
    let is_as_it_was = acting == old.acting && primary == old.primary && learners == old.learners;
    if is_as_it_was && (settled == Settled::No || old.previous.is_empty()) {
        return None;
    }
    let certified = certified.to_vec();
    Some(PgStep { group, expected: old.epoch, acting, primary, learners, certified, settled })
}

/// Settles placement groups in which every drive of the target map acts, and that count others as former members still, or have
/// more members than the map is wide: the map has changed since. Only where all acting drives are on these servers.
#[must_use]
pub fn plan_settled(state: &State, alive: &BTreeSet<ServerId>) -> Vec<Change> {
    let is_alive = |drive: &DriveId| state.drive(*drive).is_some_and(|drive| alive.contains(&drive.server));
    let mut steps = Vec::new();
    for set in state.sets() {
        for (pg, config) in state.pgs_of(set.id) {
            let is_due = !config.previous.is_empty() || config.acting.len() > set.target.shape().width();
            if config.learners.is_empty() && is_due && config.acting.iter().all(is_alive) {
                let step = plan_promotion(state, GroupId { set: set.id, pg }, &[]);
                steps.extend(step.filter(|step| step.settled == Settled::Yes));
            }
        }
    }
    batches(steps)
}

/// Drops members that the target map does not know: those that conflict with one that it knows, then as many as are too
/// many, the latest first.
fn drop_strangers(state: &State, set: &Set, target: &[DriveId], acting: &mut Vec<DriveId>) {
    let shape = set.target.shape();
    let wanted: Vec<map::Drive> =
        acting.iter().filter(|id| target.contains(id)).filter_map(|id| state.placed_drive(*id)).collect();
    acting.retain(|id| {
        let conflicts = |drive: map::Drive| wanted.iter().any(|other| shape.conflict.is_between(other, &drive));
        target.contains(id) || !state.placed_drive(*id).is_some_and(conflicts)
    });
    while acting.len() > shape.width() {
        let Some(place) = acting.iter().rposition(|id| !target.contains(id)) else { break };
        acting.remove(place);
    }
}

fn batches(steps: Vec<PgStep>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        changes.push(Change::ConfigurePgs(steps.by_ref().take(PG_STEPS_MAX).collect()));
    }
    changes
}
