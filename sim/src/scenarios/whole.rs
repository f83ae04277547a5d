//! What scenarios of whole servers have in common: connections that are accepted, and the end of a run.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::Node;
use ashlar_node::membership::view::BusStatus;
use ashlar_wire::id::ServerId;

use super::node::address;
use crate::world::{Control, ServerNo, SimRuntime};

/// How often it is looked how the bus stands.
const LOOK: Duration = Duration::from_millis(100);
/// How long servers take to leave and close.
pub(super) const WIND_DOWN_NS_MAX: u64 = 30_000_000_000;

/// The node takes connections at its server's address, until the life ends.
pub(super) fn accept(runtime: &SimRuntime, node: &Node<SimRuntime>) {
    let listener = runtime.listen(&address(runtime.server())).expect("a new life has its address for itself");
    let node = node.clone();
    runtime.spawn(Box::pin(async move {
        loop {
            let (wire, lane) = listener.accept().await;
            node.accept(wire, lane);
        }
    }));
}

/// What a node's bus says of itself, from time to time.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Arc<BusStatus>>>);

impl Seen {
    pub(super) fn watch(runtime: &SimRuntime, node: &Node<SimRuntime>) -> Self {
        let seen = Self::default();
        let (node, clock, shown) = (node.clone(), runtime.clone(), seen.clone());
        runtime.spawn(Box::pin(async move {
            loop {
                let status = node.bus().await;
                *shown.0.lock().unwrap_or_else(PoisonError::into_inner) = status;
                clock.sleep_until(clock.now() + LOOK).await;
            }
        }));
        seen
    }

    pub(super) fn status(&self) -> Arc<BusStatus> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are voters. Before, nobody is found to have failed, and the first ones are chosen by one server alone.
    pub(super) fn knows_voters(&self) -> bool {
        !self.status().voters.is_empty()
    }
}

/// How long the others stay when the first server leaves, longer than it may take to drain: what they keep open with it must not hold it
/// up.
const STAY: Duration = Duration::from_secs(11);

/// In how many of a million runs they do; in the others all leave at once.
const STAY_PPM: u32 = 125_000;

/// When each of `servers` begins to leave.
pub(super) fn leave_times(control: &Control, servers: impl Iterator<Item = ServerNo>) -> Vec<(ServerNo, Duration)> {
    let later = if control.rng("leave", 0).chance(STAY_PPM) { STAY } else { Duration::ZERO };
    servers.zip(core::iter::once(Duration::ZERO).chain(core::iter::repeat(later))).collect()
}

/// Which lives have left in order, and the peers with whom something had not ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Drained(Arc<OnceLock<Vec<ServerId>>>);

impl Drained {
    /// Nothing is left to be done; something was cut with the `unsettled`.
    pub(super) fn set(&self, unsettled: Vec<ServerId>) {
        drop(self.0.set(unsettled));
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}

/// Once all servers were asked to leave, each comes to an end of that, and nothing is cut.
///
/// # Errors
/// The first server that does not, or that had to cut something.
pub(super) fn check_drained<L>(lives: &BTreeMap<ServerNo, L>, drained: impl Fn(&L) -> &Drained) -> Result<(), String> {
    for (server, life) in lives {
        match drained(life).0.get().map(Vec::as_slice) {
            None => return Err(format!("{server:?} does not come to an end of its draining")),
            Some([]) => {}
            Some(unsettled) => {
                return Err(format!("{server:?} is drained, and something with {unsettled:?} had not ended"));
            }
        }
    }
    Ok(())
}
