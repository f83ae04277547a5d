//! Drives in the admin API.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /v1/drives` | lists the drives of all servers, with how full they are |
//! | `DELETE /v1/drives/ID` | empties a drive and takes it out of the cluster; with `?force` it is given up at once, as lost |

use std::collections::{BTreeMap, BTreeSet};

use ashlar_catalog::server::Drive;
use ashlar_node::catalog::{DriveRemoval, RemoveDriveError};
use ashlar_node::volume::space::{DriveSpace, Room};
use ashlar_wire::id::{DriveId, ServerId};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::routes::{insists, json, refuse, wrong_query};
use super::{Front, catalog};

/// A drive that leaves, as the admin API answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingDrive {
    /// Its whole id.
    pub leaving: String,
    /// The other drives, if objects may have a shard on each of them, so that none can take what this one has of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_spare: Option<usize>,
}

/// Space of one kind on a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomView {
    /// Bytes of data that it can hold.
    pub bytes: u64,
    /// Bytes of data that still can be written, an upper bound.
    pub free: u64,
}

impl From<Room> for RoomView {
    fn from(Room { bytes, free }: Room) -> Self {
        Self { bytes, free }
    }
}

/// A drive, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveView {
    /// Its id.
    pub id: String,
    /// The server that it is in.
    pub server: String,
    /// Where that server is reached.
    pub address: String,
    /// What it is made of.
    pub class: String,
    /// What the cluster does with it: `active`, `full`, `draining`, `failed`, `missing`, `misplaced` or `broken`.
    pub state: String,
    /// Whether it works, as its server says: nothing if the server has not answered in time or has no such drive.
    pub works: Option<bool>,
    /// Space for volumes, as its server says.
    pub volumes: Option<RoomView>,
    /// Space for objects, as its server says; nothing where the drive has none.
    pub objects: Option<RoomView>,
}

/// The drives of all servers.
pub(super) async fn list(front: &Front) -> Response<Full<Bytes>> {
    let Some(drives) = front.drives.as_ref() else { return no_drives() };
    let state = match catalog::state(drives.volumes.catalog()).await {
        Ok(state) => state,
        Err(refusal) => return refusal,
    };
    let known: Vec<&Drive> = state.drives().collect();
    let servers: BTreeSet<ServerId> = known.iter().map(|drive| drive.server).collect();
    let servers: Vec<ServerId> = servers.into_iter().collect();
    let answers = drives.volumes.space_of(&servers).await;
    let told: BTreeMap<DriveId, DriveSpace> =
        answers.into_iter().flatten().flatten().map(|space| (space.drive, space)).collect();
    let view = |drive: &&Drive| {
        let space = told.get(&drive.id);
        DriveView {
            id: drive.id.to_string(),
            server: drive.server.to_string(),
            address: state.server(drive.server).map(|server| server.address.clone()).unwrap_or_default(),
            class: drive.class.to_string(),
            state: drive.state.to_string(),
            works: space.map(|space| !space.has_failed),
            volumes: space.map(|space| space.volumes.into()),
            objects: space.filter(|space| space.objects.bytes > 0).map(|space| space.objects.into()),
        }
    };
    json(StatusCode::OK, &known.iter().map(view).collect::<Vec<DriveView>>())
}

fn no_drives() -> Response<Full<Bytes>> {
    refuse(StatusCode::CONFLICT, "no_drives", "this server has no drive: ask one that has")
}

/// Begins to remove the drive whose id begins so.
pub(super) async fn remove(front: &Front, beginning: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let Some(insists) = insists(query) else { return wrong_query() };
    let how = if insists { DriveRemoval::GiveUp } else { DriveRemoval::Drain };
    let Some(drives) = front.drives.as_ref() else { return no_drives() };
    // Counted before, as this server may hear of the change later.
    let objects = drives.objects.as_ref().filter(|_| how == DriveRemoval::Drain);
    let without_spare =
        objects.and_then(|objects| objects.drives_without_spare()).map(|drives| drives.saturating_sub(1));
    match drives.volumes.catalog().remove_drive(beginning, how).await {
        Ok(drive) => {
            tracing::info!(%drive, ?how, "somebody wants this drive removed");
            json(StatusCode::OK, &LeavingDrive { leaving: drive.to_string(), without_spare })
        }
        Err(error) => {
            let (status, word) = match &error {
                RemoveDriveError::Unknown => (StatusCode::NOT_FOUND, "unknown_drive"),
                RemoveDriveError::Several(_) => (StatusCode::BAD_REQUEST, "several_drives"),
                RemoveDriveError::GivenUp => (StatusCode::CONFLICT, "given_up"),
                RemoveDriveError::TooFewOthers => (StatusCode::CONFLICT, "too_few_others"),
                RemoveDriveError::Catalog(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            };
            refuse(status, word, &error.to_string())
        }
    }
}
