//! `DELETE /v1/drives/ID`: a drive is emptied and leaves the cluster; with `?force` it is given up at once, as lost.

use ashlar_node::catalog::{DriveRemoval, RemoveDriveError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::routes::{insists, json, refuse, wrong_query};

/// Where drives are, one below it each.
pub(super) const DRIVES: &str = "/v1/drives/";

/// A drive that leaves, as the admin API answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeavingDrive {
    /// Its whole id.
    pub leaving: String,
}

/// Begins to remove the drive whose id begins as the path says.
pub(super) async fn answer(front: &Front, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let beginning = path.strip_prefix(DRIVES).unwrap_or_default();
    let Some(insists) = insists(query) else { return wrong_query() };
    let how = if insists { DriveRemoval::GiveUp } else { DriveRemoval::Drain };
    let Some(drives) = front.drives.as_ref() else {
        let text = "this server has no drive: ask one that has";
        return refuse(StatusCode::CONFLICT, "no_drives", text);
    };
    match drives.volumes.catalog().remove_drive(beginning, how).await {
        Ok(drive) => {
            tracing::info!(%drive, ?how, "somebody wants this drive removed");
            json(StatusCode::OK, &LeavingDrive { leaving: drive.to_string() })
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
