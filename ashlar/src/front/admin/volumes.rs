//! `GET /v1/volumes` lists volumes, `PUT /v1/volumes/NAME?bytes=N` creates one.

use ashlar_catalog::change::Change;
use ashlar_catalog::error::RefusalKind;
use ashlar_catalog::raft::catalog::Error;
use ashlar_catalog::state::State;
use ashlar_catalog::volume::{VOLUME_NAME_BYTES_MAX, VolumeClass, VolumeRecord};
use ashlar_placement::part::Part;
use ashlar_placement::rule::ExtentSize;
use ashlar_wire::id::VolumeId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::routes::{json, refuse};
use crate::os::random;

/// All volumes; one below it each.
pub(super) const VOLUMES: &str = "/v1/volumes";

/// A volume, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeView {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// The server that it is attached to, if it is to one.
    pub attached: Option<String>,
}

impl From<&VolumeRecord> for VolumeView {
    fn from(volume: &VolumeRecord) -> Self {
        Self {
            name: volume.name.clone(),
            id: volume.id.to_string(),
            bytes: volume.size_bytes,
            attached: volume.attached.map(|server| server.to_string()),
        }
    }
}

/// The name of the volume that a path is about.
pub(super) fn name_in(path: &str) -> Option<&str> {
    path.strip_prefix(VOLUMES)?.strip_prefix('/')
}

/// Lists all volumes.
pub(super) async fn list(front: &Front) -> Response<Full<Bytes>> {
    let Some(volumes) = front.drives.as_ref().map(|drives| &drives.volumes) else { return no_volumes() };
    match volumes.catalog().state().await {
        Ok(state) => json(StatusCode::OK, &state.volumes().map(VolumeView::from).collect::<Vec<_>>()),
        Err(error) => unavailable(&error),
    }
}

/// Creates the volume that the path names.
pub(super) async fn create(front: &Front, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let Some(volumes) = front.drives.as_ref().map(|drives| &drives.volumes) else { return no_volumes() };
    let name = name_in(path).unwrap_or_default();
    let is_name = !name.is_empty()
        && name.len() <= VOLUME_NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        let text = "a volume's name has parts, digits, `-`, `_` and `.`, up to 255 of them";
        return refuse(StatusCode::BAD_REQUEST, "malformed_name", text);
    }
    let bytes = query.and_then(|query| query.strip_prefix("bytes=")).and_then(|bytes| bytes.parse::<u64>().ok());
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(4_096)) else {
        return refuse(StatusCode::BAD_REQUEST, "malformed_size", "give ?bytes=N, a multiple of 4096 above 0");
    };
    let state = match volumes.catalog().state().await {
        Ok(state) => state,
        Err(error) => return unavailable(&error),
    };
    let Some(record) = record(&state, name, bytes) else {
        let text = "there is no set of drives yet: volumes can be created once as many servers have a drive as there are to be copies";
        return refuse(StatusCode::CONFLICT, "no_drives", text);
    };
    let view = VolumeView::from(&record);
    match volumes.catalog().propose(Change::CreateVolume(record)).await {
        Ok(_) => json(StatusCode::OK, &view),
        Err(Error::Refused(refused)) if refused.kind == RefusalKind::Exists => {
            refuse(StatusCode::CONFLICT, "exists", "a volume of this name exists")
        }
        Err(Error::Refused(refused)) => refuse(StatusCode::CONFLICT, "refused", &Error::Refused(refused).to_string()),
        Err(error) => unavailable(&error),
    }
}

/// A new volume in the first set.
fn record(state: &State, name: &str, bytes: u64) -> Option<VolumeRecord> {
    let set = state.sets().next()?.id;
    let extent_size = ExtentSize::DEFAULT;
    Some(VolumeRecord {
        id: VolumeId::from_bytes(random::bytes()),
        name: name.to_owned(),
        class: VolumeClass::Ssd,
        extent_size,
        size_bytes: bytes,
        parts: vec![Part { set, extents: bytes.div_ceil(extent_size.bytes()) }],
        generation: ashlar_catalog::volume::Generation(0),
        attached: None,
    })
}

fn no_volumes() -> Response<Full<Bytes>> {
    refuse(StatusCode::CONFLICT, "no_volumes", "this server has no drive: start it with --drive-mib")
}

fn unavailable(error: &Error) -> Response<Full<Bytes>> {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "catalog_unavailable", &format!("the catalog cannot be asked: {error}"))
}
