//! Placement groups go on without a server before it stops, so that nobody waits until it is missed.

use std::collections::BTreeSet;

use ashlar_placement::map::GroupId;
use ashlar_wire::id::{DriveId, ServerId};

use crate::server::{Drive, DriveState};
use crate::set::{PgConfig, PgStep, Set, Settled};
use crate::state::State;

/// The next step of each placement group that has a member on a server that departs.
///
/// First another member becomes primary, where one is on a server that is alive and stays; nothing else changes then, so that the
/// earlier primary enters the new epoch too, and the new one need not wait for leases that it has granted. Then the members on the
/// servers that depart leave, if those that stay are enough for writes. Where they are not, nobody leaves: the copies of servers that
/// stop all together are all there when those start again. Plan again once these steps are taken, until nothing comes.
///
/// Draws the table of every set.
#[must_use]
pub fn plan_departure(state: &State, departing: &BTreeSet<ServerId>, alive: &BTreeSet<ServerId>) -> Vec<PgStep> {
    let departs = |drive: DriveId| state.drive(drive).is_some_and(|drive| departing.contains(&drive.server));
    let is_there = |drive: &Drive| {
        let is_usable = !drive.state.is_away() && drive.state != DriveState::Failed;
        is_usable && alive.contains(&drive.server) && !departing.contains(&drive.server)
    };
    let stays = |drive: DriveId| state.drive(drive).is_some_and(is_there);
    let mut steps = Vec::new();
    for set in state.sets() {
        for (pg, config) in state.pgs_of(set.id) {
            steps.extend(step_without(GroupId { set: set.id, pg }, set, config, departs, stays));
        }
    }
    steps
}

fn step_without(
    group: GroupId,
    set: &Set,
    old: PgConfig,
    departs: impl Fn(DriveId) -> bool,
    stays: impl Fn(DriveId) -> bool,
) -> Option<PgStep> {
    let PgConfig { epoch: expected, mut acting, mut primary, mut learners, .. } = old;
    let staying: Vec<DriveId> = acting.iter().copied().filter(|drive| stays(*drive)).collect();
    if departs(primary) {
        primary = *staying.first()?;
    } else {
        let before = acting.len() + learners.len();
        if staying.len() >= usize::from(set.copies.write_min.max(set.copies.acting_min)) {
            acting.retain(|drive| !departs(*drive));
        }
        learners.retain(|drive| !departs(*drive));
        if acting.len() + learners.len() == before {
            return None;
        }
    }
    let (certified, settled) = (Vec::new(), Settled::No);
    Some(PgStep { group, expected, acting, primary, learners, certified, settled })
}
