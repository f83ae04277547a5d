//! `PUT /v1/secret`: the cluster's secret is replaced at all its servers.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};

use super::Front;
use super::routes::{json, refuse};
use crate::node::secret::RotateError;

/// What is replaced.
pub(super) const SECRET: &str = "/v1/secret";

/// The query with which members that do not answer are left out.
const FORCE: &str = "force";

/// Replaces the secret, or finishes what an earlier request began.
pub(super) async fn answer(front: &Front, query: Option<&str>) -> Response<Full<Bytes>> {
    let error = match front.node.rotate_secret(query == Some(FORCE)).await {
        Ok(rotation) => return json(StatusCode::OK, &rotation),
        Err(error) => error,
    };
    let (status, word) = match &error {
        RotateError::NeedsTls => (StatusCode::CONFLICT, "needs_tls"),
        RotateError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        RotateError::Absent(_) => (StatusCode::CONFLICT, "absent"),
        RotateError::Elsewhere(_) => (StatusCode::CONFLICT, "elsewhere"),
        RotateError::Refused(_) => (StatusCode::CONFLICT, "refused"),
    };
    refuse(status, word, &error.to_string())
}
