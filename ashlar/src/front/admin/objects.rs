//! `GET /v1/s3/key`: the root key of the object service. It needs the admin token, from this machine too.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Front;
use super::routes::{json, refuse};

/// The root key.
pub(super) const KEY: &str = "/v1/s3/key";

/// A key of the object service, as the admin API shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// What a client is called.
    pub access_key: String,
    /// With what it signs.
    pub secret_key: String,
}

/// The root key.
pub(super) fn key(front: &Front) -> Response<Full<Bytes>> {
    let Some(objects) = front.drives.as_ref().and_then(|drives| drives.objects.as_ref()) else {
        let text = "this server keeps no objects: start it with --drive-mib and --object-mib";
        return refuse(StatusCode::CONFLICT, "no_objects", text);
    };
    match objects.root_key() {
        Some(root) => json(StatusCode::OK, &KeyView { access_key: root.access_key, secret_key: root.secret_key }),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "no_key", "the catalog has no key yet: ask again"),
    }
}
