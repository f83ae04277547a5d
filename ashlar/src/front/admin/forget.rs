//! `DELETE /v1/members/ID`: a member that left for good is removed from the whole cluster.
//!
//! The method matters: a page in somebody's browser cannot send it to this machine without asking first, and is refused.

use ashlar_bus::CommandError;
use ashlar_wire::id::ServerId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::Front;
use super::routes::{insists, json, refuse, wrong_query};
use ashlar_node::membership::ForgetError;

#[derive(Serialize)]
struct Forgotten {
    forgotten: String,
}

/// Forgets the member of this id.
pub(super) async fn answer(front: &Front, name: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let Ok(id) = name.parse::<ServerId>() else {
        return refuse(StatusCode::BAD_REQUEST, "malformed_id", "a server's id has 32 hexadecimal digits");
    };
    let Some(insists) = insists(query) else { return wrong_query() };
    match front.node.forget(id, insists).await {
        Ok(()) => {
            tracing::info!(server = %id, "somebody wants this member forgotten");
            json(StatusCode::OK, &Forgotten { forgotten: id.to_string() })
        }
        Err(ForgetError::Alive) => {
            let text = "this member is alive: stop it first, or insist with ?force (ashlar forget --force)";
            refuse(StatusCode::CONFLICT, "alive", text)
        }
        Err(ForgetError::Busy) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "too much waits for the bus of this server, or it stops: ask another server",
        ),
        Err(ForgetError::Refused(CommandError::UnknownMember)) => {
            refuse(StatusCode::NOT_FOUND, "unknown_member", "no member has this id")
        }
        Err(ForgetError::Refused(error)) => refuse(StatusCode::CONFLICT, "refused", &error.to_string()),
    }
}
