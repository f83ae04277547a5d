//! The catalog in the admin API: how it stands, as this server sees it, and all of it as text.
//!
//! `GET /v1/catalog` and `GET /v1/catalog/export`. The text has sealed keys and passwords' hashes, so it needs the admin token.

use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::raft::catalog::CatalogStatus;
use ashlar_catalog::state::State;
use ashlar_node::catalog::CatalogHandle;
use ashlar_wire::id::ServerId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::routes::{json, refuse, with_type};
use crate::os::clock;

/// How the catalog stands, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogView {
    /// The server that leads it, as far as this one knows.
    pub leader: Option<String>,
    /// The leader's term.
    pub term: u64,
    /// Version of this server's copy; greater after each change.
    pub version: u64,
    /// The servers that vote: a majority of them is needed for any change.
    pub voters: Vec<String>,
    /// Servers that get every change and do not vote.
    pub learners: Vec<String>,
    /// Whether the voters are being changed.
    pub changing: bool,
    /// Whether it runs on this server; a failed drive stops it.
    pub runs: bool,
}

impl From<CatalogStatus> for CatalogView {
    fn from(status: CatalogStatus) -> Self {
        let ids = |servers: &[ServerId]| servers.iter().map(ServerId::to_string).collect();
        Self {
            leader: status.leader.map(|leader| leader.to_string()),
            term: status.term,
            version: status.version.0,
            voters: ids(&status.voters),
            learners: ids(&status.learners),
            changing: status.is_changing_voters,
            runs: status.is_running,
        }
    }
}

fn handle(front: &Front) -> Option<CatalogHandle> {
    front.drives.as_ref().map(|drives| drives.volumes.catalog().clone())
}

/// How long it is asked what was decided last, before this server tells what it knew before.
const ASK_MAX: Duration = Duration::from_secs(2);

/// What the catalog says now, for people who ask at any server.
pub(super) async fn state(catalog: &CatalogHandle) -> Result<Arc<State>, Response<Full<Bytes>>> {
    let text =
        "this server has started and does not know yet what was decided meanwhile: ask again, or ask another server";
    let refusal = |_| refuse(StatusCode::SERVICE_UNAVAILABLE, "catalog_unavailable", text);
    catalog.recent_state(clock::sleep(ASK_MAX)).await.map_err(refusal)
}

fn absent(front: &Front) -> Response<Full<Bytes>> {
    if front.drives.is_none() {
        return refuse(StatusCode::CONFLICT, "no_drives", "this server has no drive, and no catalog: ask one that has");
    }
    refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the catalog of this server has not begun")
}

/// How it stands.
pub(super) fn show(front: &Front) -> Response<Full<Bytes>> {
    match handle(front).and_then(|catalog| catalog.status()) {
        Some(status) => json(StatusCode::OK, &CatalogView::from(status)),
        None => absent(front),
    }
}

/// All of it, as this server knows it.
pub(super) fn export(front: &Front) -> Response<Full<Bytes>> {
    match handle(front).and_then(|catalog| catalog.state_now()) {
        Some(state) => with_type(StatusCode::OK, "text/plain; charset=utf-8", state.export().into()),
        None => absent(front),
    }
}
