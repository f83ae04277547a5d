//! `PUT /v1/secret`: the cluster's secret is replaced at all its servers.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};

use super::Front;
use super::routes::{insists, json, refuse, wrong_query};
use ashlar_node::secret::RotateError;

/// Replaces the secret, or finishes what an earlier request began.
pub(super) async fn answer(front: &Front, query: Option<&str>) -> Response<Full<Bytes>> {
    let Some(insists) = insists(query) else { return wrong_query() };
    let error = match front.node.rotate_secret(insists).await {
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
