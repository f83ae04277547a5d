//! Drives that leave: those of servers that are given up, and those that nothing in a set refers to any more.
//!
//! A drive that is given up ([`DriveState::Failed`]) stays in the catalog: its id is refused when it comes back, so that what
//! is on it never mixes with what was made anew elsewhere.

use std::collections::BTreeSet;

use ashlar_placement::map;
use ashlar_wire::id::DriveId;

use crate::change::Change;
use crate::server::{Drive, DriveState, ServerState};
use crate::set::Set;
use crate::state::State;

/// Gives up the drives of servers that are given up.
#[must_use]
pub fn plan_given_up(state: &State) -> Vec<Change> {
    let is_due = |drive: &&Drive| {
        drive.state != DriveState::Failed
            && state.server(drive.server).is_some_and(|server| server.state == ServerState::Dead)
    };
    let give_up = |drive: &Drive| Change::SetDriveState { id: drive.id, state: DriveState::Failed };
    state.drives().filter(is_due).map(give_up).collect()
}

/// Takes drives out of their sets that the target map gives nothing and that are members of no placement group.
///
/// Draws the tables of every set that has such a drive, and of its companion.
#[must_use]
pub fn plan_release(state: &State) -> Vec<Change> {
    let mut changes = Vec::new();
    for home in state.sets().filter(|set| !set.id.is_companion()) {
        let sets: Vec<&Set> = state.sets().filter(|set| set.id.home() == home.id).collect();
        let is_out_of = |set: &Set, drive: DriveId| {
            let due = set.target.find(drive).map(|index| set.target.drive(index).state);
            due.is_none_or(|state| state == map::DriveState::Out)
        };
        let is_out = |drive: &&Drive| drive.set == Some(home.id) && sets.iter().all(|set| is_out_of(set, drive.id));
        let mut leaving: BTreeSet<DriveId> = state.drives().filter(is_out).map(|drive| drive.id).collect();
        if leaving.is_empty() {
            continue;
        }
        for set in sets {
            for (_, config) in state.pgs_of(set.id) {
                leaving.retain(|drive| !config.is_member(*drive));
            }
        }
        changes.extend(leaving.into_iter().map(Change::ReleaseDrive));
    }
    changes
}
