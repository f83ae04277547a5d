//! Which path answers what to whom.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::{Front, Origin, Stream, forget, health, metrics, secret, upgrade};
use crate::os::{process, websocket};

/// Answers one request.
pub(super) async fn answer<S: Stream>(
    front: Arc<Front>,
    request: Request<Incoming>,
    origin: Origin,
    permit: Arc<OwnedSemaphorePermit>,
) -> Response<Full<Bytes>> {
    let is_get = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path().to_owned();
    let lane = websocket::lane(&path);
    if !is_known(&path) && lane.is_none() {
        let text = "there is nothing here: see /health/live, /health/ready, /health/cluster, /metrics, /v1/status, \
                    /v1/mesh, /v1/members/ID, /v1/secret";
        return refuse(StatusCode::NOT_FOUND, "not_found", text);
    }
    let change = change_of(&path);
    let is_allowed = change.as_ref().map_or(is_get, |change| change.method() == request.method());
    if !is_allowed {
        return wrong_method(change);
    }
    if let Some(lane) = lane {
        if front.is_tls_required && !origin.is_tls {
            let text = "servers of this cluster speak TLS to each other: start the other one with tls = on";
            return refuse(StatusCode::FORBIDDEN, "tls_required", text);
        }
        return upgrade::answer::<S>(request, Some(permit), move |wire| front.node.accept(wire, lane));
    }
    match admission(front.is_tls_required, origin, path.starts_with("/v1/"), || has_token(&request, &front.token)) {
        Admission::Granted => match change {
            Some(Change::Forget) => forget::answer(&front, &path, request.uri().query()).await,
            Some(Change::Secret) => secret::answer(&front, request.uri().query()).await,
            None => read(&front, &path).await,
        },
        Admission::NeedsTls => {
            refuse(StatusCode::FORBIDDEN, "tls_required", "plain HTTP is for this machine only: use https")
        }
        Admission::NeedsToken => unauthorized(),
    }
}

/// Who may read what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Granted,
    NeedsTls,
    NeedsToken,
}

/// This machine does everything. Others read over TLS where it is on, and the admin API with the token only.
fn admission(is_tls_required: bool, origin: Origin, is_api: bool, has_token: impl FnOnce() -> bool) -> Admission {
    match origin {
        Origin { is_loopback: true, .. } => Admission::Granted,
        Origin { is_tls: false, .. } if is_tls_required => Admission::NeedsTls,
        _ if is_api && !has_token() => Admission::NeedsToken,
        _ => Admission::Granted,
    }
}

/// What changes something. A page in somebody's browser cannot ask this machine for it with these methods and without
/// being asked who it is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Forget,
    Secret,
}

impl Change {
    fn method(self) -> Method {
        match self {
            Self::Forget => Method::DELETE,
            Self::Secret => Method::PUT,
        }
    }
}

fn change_of(path: &str) -> Option<Change> {
    match path {
        secret::SECRET => Some(Change::Secret),
        path => path.starts_with(forget::MEMBERS).then_some(Change::Forget),
    }
}

fn wrong_method(change: Option<Change>) -> Response<Full<Bytes>> {
    let (text, allowed) = match change {
        Some(Change::Forget) => ("only DELETE is allowed here", "DELETE"),
        Some(Change::Secret) => ("only PUT is allowed here", "PUT"),
        None => ("only GET is allowed here", "GET, HEAD"),
    };
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn unauthorized() -> Response<Full<Bytes>> {
    let text = "other machines need the token from admin.token in the data directory, as Authorization: Bearer TOKEN";
    let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthorized", text);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn is_known(path: &str) -> bool {
    let is_page = matches!(path, "/health/live" | "/health/ready" | "/health/cluster" | "/metrics");
    is_page || matches!(path, "/v1/status" | "/v1/mesh") || change_of(path).is_some()
}

async fn read(front: &Front, path: &str) -> Response<Full<Bytes>> {
    match path {
        "/health/live" => health::live(),
        "/health/ready" => health::ready(front).await,
        "/health/cluster" => health::cluster(front).await,
        "/metrics" => {
            let text = metrics::text(&front.node.status().await, process::facts(), front.connections());
            with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        "/v1/status" => json(StatusCode::OK, &front.node.status().await),
        _ => json(StatusCode::OK, &front.node.mesh().await),
    }
}

fn has_token<B>(request: &Request<B>, token: &str) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // Hashes of both are compared, so the time taken tells nothing about the token.
    blake3::hash(given.trim().as_bytes()) == blake3::hash(token.as_bytes())
}

#[derive(Serialize)]
struct Refusal<'a> {
    error: &'a str,
    message: &'a str,
}

/// A refusal as JSON: a word for programs, a sentence for people.
pub(super) fn refuse(status: StatusCode, error: &str, message: &str) -> Response<Full<Bytes>> {
    json(status, &Refusal { error, message })
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let text = serde_json::to_vec(value).expect("our own values have text keys and no cycles");
    with_type(status, "application/json", text.into())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_read_what() {
        use Admission::{Granted, NeedsTls, NeedsToken};
        // (TLS on, from this machine, over TLS, admin API, with token)
        let cases = [
            ((true, true, false, true, false), Granted),
            ((false, true, false, true, false), Granted),
            ((true, false, false, false, false), NeedsTls),
            ((true, false, false, true, true), NeedsTls),
            ((true, false, true, false, false), Granted),
            ((true, false, true, true, false), NeedsToken),
            ((true, false, true, true, true), Granted),
            ((false, false, false, false, false), Granted),
            ((false, false, false, true, false), NeedsToken),
            ((false, false, false, true, true), Granted),
        ];
        for (case @ (is_tls_required, is_loopback, is_tls, is_api, has_token), expected) in cases {
            let origin = Origin { is_loopback, is_tls };
            assert_eq!(admission(is_tls_required, origin, is_api, || has_token), expected, "{case:?}");
        }
    }

    #[test]
    fn tokens() {
        let cases =
            [("Bearer abc", true), ("Bearer abd", false), ("Bearer ", false), ("abc", false), ("Basic abc", false)];
        for (header, expected) in cases {
            let request = Request::get("/").header(AUTHORIZATION, header).body(()).unwrap();
            assert_eq!(has_token(&request, "abc"), expected, "{header}");
        }
        assert!(!has_token(&Request::new(()), "abc"));
    }
}
