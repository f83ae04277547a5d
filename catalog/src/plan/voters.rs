//! Voters: one, three or five of them, spread over zones.
//!
//! Two voters are worse than one: both must live. So the number is odd, and grows with the servers that there are, not
//! with those that are alive at the moment: a voter that fails is replaced if another server can vote, and kept if none
//! can.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_placement::map::Zone;
use ashlar_wire::id::ServerId;

use crate::server::{Server, ServerState};
use crate::state::State;

/// Most voters that are planned: a majority of five survives two failures, and each further one delays every change.
pub const VOTERS_PLANNED_MAX: usize = 5;

/// The servers that should vote, ascending, given who is alive: voters that are alive stay, zones with fewer voters come
/// first. Empty if no server is active.
#[must_use]
pub fn plan_voters(state: &State, alive: &BTreeSet<ServerId>) -> Vec<ServerId> {
    let may_vote: Vec<&Server> = state.servers().filter(|server| server.state == ServerState::Active).collect();
    let count = match may_vote.len() {
        0..=2 => may_vote.len().min(1),
        3..=4 => 3,
        _ => VOTERS_PLANNED_MAX,
    };
    let is_voter = |server: &Server| state.voters().contains(&server.id);
    let mut chosen = BTreeSet::new();
    let mut of_zone: BTreeMap<Zone, usize> = BTreeMap::new();
    while chosen.len() < count {
        let rest = may_vote.iter().filter(|server| !chosen.contains(&server.id));
        let rank = |server: &&&Server| {
            let is_alive = alive.contains(&server.id);
            // A dead server that does not vote is the last choice: it could not even join.
            let class = match (is_alive, is_voter(server)) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            };
            (class, of_zone.get(&server.zone).copied().unwrap_or(0), !is_voter(server), server.id)
        };
        let next = rest.min_by_key(rank).expect("there are at least as many servers as voters");
        chosen.insert(next.id);
        *of_zone.entry(next.zone).or_default() += 1;
    }
    chosen.into_iter().collect()
}
