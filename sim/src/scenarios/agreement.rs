//! Whether all servers have one state of the catalog, and whether it is what servers that run lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_catalog::plan::voters::plan_voters;
use ashlar_catalog::server::ServerState;
use ashlar_catalog::state::State;
use ashlar_node::catalog::{CatalogHandle, FIRST_SET};
use ashlar_placement::choose::choose_drives;
use ashlar_wire::id::DriveId;

use super::node::{address, server_id};
use crate::world::ServerNo;

/// The state that all servers that run agree on.
///
/// # Errors
/// The first server that has another one, or is still changing something.
pub(super) fn agreed<'a>(catalogs: impl Iterator<Item = (ServerNo, &'a CatalogHandle)>) -> Result<Arc<State>, String> {
    let mut agreed: Option<(ServerNo, Arc<State>)> = None;
    let mut leaders = BTreeSet::new();
    for (server, handle) in catalogs {
        let begun = handle.state_now().zip(handle.status());
        let (state, status) = begun.ok_or_else(|| format!("the catalog of {server:?} has not begun"))?;
        if !status.is_running {
            return Err(format!("the catalog of {server:?} has stopped"));
        }
        leaders.insert(status.leader.ok_or_else(|| format!("{server:?} knows no leader: {status:?}"))?);
        if status.is_changing_voters || status.voters != state.voters() {
            return Err(format!("{server:?} is changing voters: {status:?}, {:?}", state.voters()));
        }
        let (first, known) = agreed.get_or_insert((server, Arc::clone(&state)));
        if known.version() != state.version() || **known != *state {
            let versions = (known.version().0, state.version().0);
            return Err(format!("{first:?} and {server:?} are at versions {versions:?}: {status:?}"));
        }
    }
    if leaders.len() != 1 {
        return Err(format!("there are several leaders: {leaders:?}"));
    }
    Ok(agreed.ok_or("no server runs")?.1)
}

/// What must be true of a state: `drives` are those that servers have, all of which run but `gone`.
///
/// # Errors
/// What is not as it should be.
pub(super) fn check_state(
    state: &State,
    drives: &BTreeMap<ServerNo, DriveId>,
    gone: Option<ServerNo>,
) -> Result<(), String> {
    let alive = drives.keys().filter(|server| Some(**server) != gone).map(|server| server_id(*server)).collect();
    for (server, id) in drives {
        let known = state.server(server_id(*server)).ok_or_else(|| format!("{server:?} is not known"))?;
        if known.state != ServerState::Active || known.address != address(*server) {
            return Err(format!("{server:?} is known as {known:?}"));
        }
        let drive = state.drive(*id).ok_or_else(|| format!("the drive of {server:?} is not known"))?;
        if drive.set != Some(FIRST_SET) || drive.server != server_id(*server) {
            return Err(format!("the drive of {server:?} is {drive:?}"));
        }
    }
    let planned = plan_voters(state, &alive);
    if state.voters() != planned {
        return Err(format!("the voters are {:?} instead of {planned:?}", state.voters()));
    }
    let gone = gone.and_then(|gone| drives.get(&gone).copied());
    let set = state.set(FIRST_SET).ok_or("there is no set")?;
    for (pg, config) in state.pgs_of(FIRST_SET) {
        let wanted: Vec<_> =
            choose_drives(&set.target, pg).into_iter().map(|index| set.target.drive(index).id).collect();
        let left: Vec<_> = wanted.iter().copied().filter(|drive| Some(*drive) != gone).collect();
        let more = config.acting.iter().filter(|drive| !left.contains(drive)).count();
        // In the place of the one that has stopped, the member stays that it was to replace. Its only member stays, too, and waits.
        let more_max = usize::from(left.len() < wanted.len());
        let is_short = more > more_max || left.iter().any(|drive| !config.acting.contains(drive));
        if is_short || !config.learners.is_empty() || config.acting.is_empty() {
            return Err(format!("placement group {} has {config:?} and should have {left:?}", pg.0));
        }
        if gone.is_some_and(|gone| config.acting.contains(&gone)) && !left.is_empty() {
            return Err(format!("placement group {} still has the server that has stopped: {config:?}", pg.0));
        }
    }
    Ok(())
}
