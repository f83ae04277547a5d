//! The catalog as a service of the node: one Raft group of the whole cluster, and the reconciler that keeps it true.
//!
//! Every server holds a copy of the catalog and follows it; one, three or five of them vote. Who is alive the bus says, what
//! drives there are their servers say, whether members of placement groups have caught up or are lost the volumes say
//! ([`CatalogHandle::report`]): at the leader, the `reconciler` turns all that into changes.
//!
//! Invariants
//! - One cluster has one catalog. A server founds one only if it was not told to join, has no log, and nobody whom it has met
//!   knows of one. A server with a catalog of another name is left out, and that is told.
//! - Nothing here decides: every change is a proposal that the catalog checks against its own state.
//! - Voters are changed only while more than half of the old and of the new ones are alive.
//!
//! Deliberately absent: handing the leadership of the catalog over before a server stops (a new leader is there two seconds later), and
//! racks (each zone is one). A server that is told to leave its cluster keeps its catalog's folder.
//!
//! In reading order: [`CatalogService`], `handle` (what other services use), `service` (calls and the beginning), `agent`
//! (the bus), `reconciler` and `plan` (what should be changed), `drives` (those that leave), `departures` (servers that are about to stop), [`reports`], `calls` (written forms), `host` (the catalog's
//! world over the node's), `context` (what they share), [`stored`] (for storages), `notify`, `shared` (one question for all that ask it).

mod agent;
mod calls;
mod context;
mod departures;
mod drives;
mod handle;
mod host;
mod notify;
mod plan;
mod reconciler;
pub mod reports;
mod service;
mod shared;
pub mod stored;

use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::raft::catalog::Catalog;
use ashlar_catalog::raft::host::Storage;
use ashlar_catalog::record::RecordKey;
use ashlar_placement::domains::Conflict;
use ashlar_wire::id::ServerId;

use self::calls::Membership;
use self::context::CatalogContext;
pub use self::drives::{DriveHere, DriveRemoval, MISSING_MAX, RemoveDriveError};
pub use self::handle::{CatalogHandle, RegisterError};
pub(crate) use self::plan::fills;
pub use self::plan::{FAILURE_GRACE, FILLING_MAX, FIRST_SET, RETURN_GRACE, VOTERS_GRACE};

/// The release of this program, as the catalog's gates of features know it. Grows with each release that knows a new feature.
pub const RELEASE: u32 = 2;
/// Space and name of the record that names the catalog: 16 bytes of chance.
const GROUP_NAME_KEY: (&str, &str) = ("catalog", "group");
/// Between two rounds of questions to other servers.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a server is told about the first set, which the catalog makes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogOptions {
    /// Copies of everything: 1 to 3. The set is made once there are as many drives that `apart` allows together.
    pub copies: u8,
    /// What two copies must not share: a server, or a drive alone. Fixed once the set is made.
    pub apart: Conflict,
    /// Its placement groups. Fixed once it is made; some hundreds for each drive that the set will ever have spread well.
    pub pgs: u32,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self { copies: 3, apart: Conflict::Server, pgs: 512 }
    }
}

/// The catalog of one server. Copies are the same.
#[derive(Clone)]
pub struct CatalogService(Arc<CatalogContext>);

impl CatalogService {
    /// The service over a storage, which nobody else writes.
    #[must_use]
    pub fn new(options: CatalogOptions, storage: Arc<dyn Storage>) -> Self {
        Self(Arc::new(CatalogContext::new(options, storage)))
    }

    /// What other services use.
    #[must_use]
    pub fn handle(&self) -> CatalogHandle {
        CatalogHandle(Arc::clone(&self.0))
    }
}

/// Of which catalog this server's is.
fn membership_of(catalog: &Catalog, me: ServerId) -> Membership {
    let (space, name) = GROUP_NAME_KEY;
    let state = catalog.state();
    let named = state.record(&RecordKey { space: space.into(), name: name.into() });
    let status = catalog.status();
    match named.map(|record| record.value.as_slice().try_into()) {
        Some(Ok(name)) => Membership::Named(name),
        _ if status.last_index.is_some() && status.applied_index.is_none() && !status.voters.contains(&me) => {
            Membership::Given
        }
        // A log that is not applied yet, or a name that somebody has overwritten.
        _ if status.last_index.is_some() || named.is_some() => Membership::Unnamed,
        _ => Membership::None,
    }
}

/// Waits until one of both is done.
async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let is_done = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
