//! Maps of sets: the first one, and the next when drives come, go or change.
//!
//! The map is made by whoever proposes it, and the change carries it: making an even map of 100,000 placement groups
//! takes about a second, which no server should spend while it applies the log.

use std::collections::BTreeSet;
use std::sync::Arc;

use ashlar_placement::balance::balance;
use ashlar_placement::choose::PgTable;
use ashlar_placement::map::{self, Map, SetId, Shape};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::DriveId;

use crate::change::Change;
use crate::error::{Refusal, Subject};
use crate::server::DriveClass;
use crate::set::{Copies, Set};
use crate::state::State;

/// The change that makes a set of these drives, evenly filled; of every active drive of the class that is in no set, or for a
/// companion in the other one, if none are named.
///
/// # Errors
/// The caller's: an unknown drive, or drives and a shape of which no map can be made.
pub fn plan_set(
    state: &State,
    id: SetId,
    shape: Shape,
    class: DriveClass,
    copies: Copies,
    drives: &[DriveId],
) -> Result<Change, Refusal> {
    let free = |drive: &DriveId| {
        let is_in = state.placed_drive(*drive).is_some_and(|placed| placed.state == map::DriveState::In);
        let home = id.is_companion().then_some(id.home());
        state.drive(*drive).is_some_and(|drive| drive.set == home && drive.class == class) && is_in
    };
    let chosen: Vec<DriveId> = match drives {
        [] => state.drives().map(|drive| drive.id).filter(free).collect(),
        named => named.to_vec(),
    };
    let map = Map::new(id, Epoch::ZERO.next(), shape, placed(state, chosen)?)?;
    let table = balance(None, map)?;
    Ok(Change::CreateSet { id, class, copies, map: Arc::new(table.map().clone()) })
}

/// The change that gives a set the map of its drives as they are now, with `added` ones, so that as little as possible
/// moves. `None` if its map says so already.
///
/// # Errors
/// The caller's: an unknown set or drive; too few drives are left, or only full ones.
pub fn plan_target(state: &State, id: SetId, added: &[DriveId]) -> Result<Option<Change>, Refusal> {
    let set = state.set(id).ok_or(Refusal::Unknown(Subject::Set(id)))?;
    plan_reshaped(state, set, added, set.target.shape())
}

/// The same for a companion whose placement groups get another shape: more copies, or a stricter rule where they lie.
///
/// # Errors
/// As for [`plan_target`].
pub fn plan_reshaped(state: &State, set: &Set, added: &[DriveId], shape: Shape) -> Result<Option<Change>, Refusal> {
    let id = set.id;
    let own = state.drives().filter(|drive| drive.set == Some(id.home())).map(|drive| drive.id);
    let drives: BTreeSet<DriveId> = own.chain(added.iter().copied()).collect();
    let next = Map::new(id, set.target.epoch().next(), shape, placed(state, drives)?)?;
    if next.drives() == set.target.drives() && shape == set.target.shape() {
        return Ok(None);
    }
    let previous = PgTable::new((*set.target).clone());
    let table = balance(Some(&previous), next)?;
    Ok(Some(Change::SetTarget { id, map: Arc::new(table.map().clone()) }))
}

fn placed(state: &State, drives: impl IntoIterator<Item = DriveId>) -> Result<Vec<map::Drive>, Refusal> {
    let find = |id| state.placed_drive(id).ok_or(Refusal::Unknown(Subject::Drive(id)));
    drives.into_iter().map(find).collect()
}
