//! Which path answers what to whom.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::connections::Permit;
use super::refusals::Why;
use super::{Front, Origin, Stream, drives, forget, groups, health, host, metrics, objects, secret, upgrade, volumes};
use crate::os::{clock, websocket};

/// How long a wrong admin token waits for its refusal. With the limit of connections of one address this bounds how many
/// tokens somebody can try; the right one is never kept waiting.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_secs(1);

/// Answers one request.
pub(super) async fn answer<S: Stream>(
    front: Arc<Front>,
    request: Request<Incoming>,
    origin: Origin,
    permit: Arc<Permit>,
) -> Response<Full<Bytes>> {
    let is_get = request.method() == Method::GET || request.method() == Method::HEAD;
    let path = request.uri().path().to_owned();
    let lane = websocket::lane(&path);
    if origin.is_brief && !path.starts_with(HEALTH) {
        let text = "this server has too many connections, in all or from your address: only /health is answered now";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", text);
    }
    if !is_known(&path) && lane.is_none() {
        let text = "there is nothing here: see /health/live, /health/ready, /health/cluster, /metrics, /v1/status, \
                    /v1/mesh, /v1/members/ID, /v1/secret, /v1/s3/key, /v1/s3/keys, /v1/volumes";
        return refuse(StatusCode::NOT_FOUND, "not_found", text);
    }
    let change = change_of(&path);
    let is_allowed = change.as_ref().map_or(is_get, |change| change.allows(&path, request.method()));
    if !is_allowed {
        return wrong_method(change, &path);
    }
    if let Some(lane) = lane {
        if front.is_tls_required && !origin.is_tls {
            let text = "servers of this cluster speak TLS to each other: start the other one with tls = on";
            return refuse(StatusCode::FORBIDDEN, "tls_required", text);
        }
        return upgrade::answer::<S>(request, Some(permit), move |wire| front.node.accept(wire, lane));
    }
    // Between servers the hello decides. A browser of this machine, or of an unencrypted network, can be made to ask.
    let is_reachable_by_pages = origin.is_loopback || path.starts_with(API) && !origin.is_tls;
    if is_reachable_by_pages && !host::is_own(&request, &front.advertised) {
        return foreign_host(&front, &request, origin);
    }
    let asked = match (change, path.starts_with(API)) {
        (Some(Change::Volume), _) if is_get => Asked::Api,
        (Some(_), _) => Asked::Change,
        // It opens everything, so whoever reads it must be allowed to change everything.
        (None, _) if path == objects::KEY => Asked::Change,
        (None, true) => Asked::Api,
        (None, false) => Asked::Page,
    };
    let token = token_of(&request, &front.token);
    match admission(front.is_tls_required, origin, asked, token) {
        Admission::Granted => match change {
            Some(Change::Drive) => drives::answer(&front, &path, request.uri().query()).await,
            Some(Change::Forget) => forget::answer(&front, &path, request.uri().query()).await,
            Some(Change::Secret) => secret::answer(&front, request.uri().query()).await,
            Some(Change::Volume) => volumes::answer(&front, request.method(), &path, request.uri().query()).await,
            Some(Change::UserKey) => objects::create(&front, &path, request.uri().query()).await,
            Some(Change::KeyDeletion) => objects::delete(&front, &path).await,
            None => read(&front, &path).await,
        },
        Admission::NeedsTls => {
            refuse(StatusCode::FORBIDDEN, "tls_required", "plain HTTP is for this machine only: use https")
        }
        Admission::NeedsToken => {
            if token == Token::Wrong {
                front.refusals.note_token(origin.from, clock::now());
                clock::sleep(WRONG_TOKEN_PAUSE).await;
            }
            unauthorized(token)
        }
    }
}

/// Where everybody may ask, however many connections there are.
const HEALTH: &str = "/health/";

/// What the admin token opens.
const API: &str = "/v1/";

fn foreign_host<B>(front: &Front, request: &Request<B>, origin: Origin) -> Response<Full<Bytes>> {
    let host = request.headers().get(HOST).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let host = host.unwrap_or_default();
    if let Some(total) = front.refusals.note(Why::Host, clock::now()) {
        tracing::warn!(from = %origin.from, host = %host.escape_default(), total, "a request for another host was refused");
    }
    let text = "the Host header names another server: ask by IP address, as localhost, or by the name in `advertise`";
    refuse(StatusCode::MISDIRECTED_REQUEST, "foreign_host", text)
}

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Health or metrics.
    Page,
    /// To read from the admin API.
    Api,
    /// To change something.
    Change,
}

/// The admin token in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Right,
    Wrong,
    Absent,
}

/// Who may read what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Granted,
    NeedsTls,
    NeedsToken,
}

/// This machine reads everything. Others read over TLS where it is on, and the admin API with the token only. Nobody
/// changes anything without the token: all users of this machine reach the port.
fn admission(is_tls_required: bool, origin: Origin, asked: Asked, token: Token) -> Admission {
    let needs_token = match asked {
        Asked::Page => false,
        Asked::Api => !origin.is_loopback,
        Asked::Change => true,
    };
    match origin {
        Origin { is_loopback: false, is_tls: false, .. } if is_tls_required => Admission::NeedsTls,
        _ if needs_token && token != Token::Right => Admission::NeedsToken,
        _ => Admission::Granted,
    }
}

/// What changes something, or does where it is not read with GET (a volume). A page in somebody's browser cannot ask this machine for it with these methods and without
/// being asked who it is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Drive,
    Forget,
    Secret,
    Volume,
    UserKey,
    KeyDeletion,
}

impl Change {
    fn allows(self, path: &str, method: &Method) -> bool {
        match self {
            Self::Drive | Self::Forget | Self::KeyDeletion => method == Method::DELETE,
            Self::Secret | Self::UserKey => method == Method::PUT,
            Self::Volume => volumes::methods_at(path).1.contains(method),
        }
    }
}

fn change_of(path: &str) -> Option<Change> {
    match path {
        secret::SECRET => Some(Change::Secret),
        path if volumes::is_of_one(path) => Some(Change::Volume),
        path if path.starts_with(drives::DRIVES) => Some(Change::Drive),
        path if objects::user_in(path).is_some() => Some(Change::UserKey),
        path if objects::key_in(path).is_some() => Some(Change::KeyDeletion),
        path => path.starts_with(forget::MEMBERS).then_some(Change::Forget),
    }
}

fn wrong_method(change: Option<Change>, path: &str) -> Response<Full<Bytes>> {
    let (text, allowed) = match change {
        Some(Change::Drive | Change::Forget | Change::KeyDeletion) => {
            ("only DELETE is allowed here", &[Method::DELETE][..])
        }
        Some(Change::Secret | Change::UserKey) => ("only PUT is allowed here", &[Method::PUT][..]),
        Some(Change::Volume) => volumes::methods_at(path),
        None => ("only GET is allowed here", &[Method::GET, Method::HEAD][..]),
    };
    let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let allowed = HeaderValue::from_str(&allowed).expect("names of methods are letters");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text);
    response.headers_mut().insert(ALLOW, allowed);
    response
}

/// Whether a query insists: `?force`. `None` for any other query, which somebody meant something by.
pub(super) fn insists(query: Option<&str>) -> Option<bool> {
    match query {
        None | Some("") => Some(false),
        Some("force") => Some(true),
        Some(_) => None,
    }
}

/// The answer to a query that nobody knows. Nothing was done.
pub(super) fn wrong_query() -> Response<Full<Bytes>> {
    refuse(StatusCode::BAD_REQUEST, "malformed_query", "the only query here is ?force, without a value")
}

fn unauthorized(token: Token) -> Response<Full<Bytes>> {
    let text = match token {
        Token::Wrong => {
            "this is not the admin token of this server: it is in admin.token in the server's data directory"
        }
        Token::Right | Token::Absent => {
            "this needs the token from admin.token in the server's data directory, as Authorization: Bearer TOKEN"
        }
    };
    let mut response = refuse(StatusCode::UNAUTHORIZED, "unauthorized", text);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn is_known(path: &str) -> bool {
    let is_page = matches!(path, "/health/live" | "/health/ready" | "/health/cluster" | "/metrics");
    is_page
        || matches!(path, "/v1/status" | "/v1/mesh" | volumes::VOLUMES | drives::LIST | groups::LIST)
        || matches!(path, objects::KEY | objects::KEYS)
        || change_of(path).is_some()
}

async fn read(front: &Front, path: &str) -> Response<Full<Bytes>> {
    match path {
        "/health/live" => health::live(),
        "/health/ready" => health::ready(front).await,
        "/health/cluster" => health::cluster(front).await,
        "/metrics" => {
            let text = metrics::text(front).await;
            with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        volumes::VOLUMES => volumes::list(front).await,
        drives::LIST => drives::list(front).await,
        groups::LIST => groups::list(front).await,
        objects::KEY => objects::key(front),
        objects::KEYS => objects::list(front),
        "/v1/status" => json(StatusCode::OK, &front.node.status().await),
        _ => json(StatusCode::OK, &front.node.mesh().await),
    }
}

fn token_of<B>(request: &Request<B>, token: &str) -> Token {
    let Some(given) = request.headers().get(AUTHORIZATION) else { return Token::Absent };
    let given = given.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    // Hashes of both are compared, so the time taken tells nothing about the token.
    let is_right = blake3::hash(given.trim().as_bytes()) == blake3::hash(token.as_bytes());
    if is_right && !token.is_empty() { Token::Right } else { Token::Wrong }
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
        use Asked::{Api, Change, Page};
        use Token::{Absent, Right, Wrong};
        // (TLS on, from this machine, over TLS, what, with which token)
        let cases = [
            ((true, true, false, Api, Absent), Granted),
            ((false, true, false, Api, Wrong), Granted),
            ((true, true, false, Change, Absent), NeedsToken),
            ((true, true, true, Change, Wrong), NeedsToken),
            ((false, true, false, Change, Absent), NeedsToken),
            ((true, true, false, Change, Right), Granted),
            ((true, false, false, Page, Absent), NeedsTls),
            ((true, false, false, Api, Right), NeedsTls),
            ((true, false, false, Change, Right), NeedsTls),
            ((true, false, true, Page, Absent), Granted),
            ((true, false, true, Api, Absent), NeedsToken),
            ((true, false, true, Api, Right), Granted),
            ((true, false, true, Change, Wrong), NeedsToken),
            ((true, false, true, Change, Right), Granted),
            ((false, false, false, Page, Absent), Granted),
            ((false, false, false, Api, Absent), NeedsToken),
            ((false, false, false, Api, Right), Granted),
            ((false, false, false, Change, Absent), NeedsToken),
            ((false, false, false, Change, Right), Granted),
        ];
        for (case @ (is_tls_required, is_loopback, is_tls, asked, token), expected) in cases {
            let origin = Origin { is_loopback, is_tls, is_brief: false, from: core::net::Ipv4Addr::LOCALHOST.into() };
            assert_eq!(admission(is_tls_required, origin, asked, token), expected, "{case:?}");
        }
    }

    #[test]
    fn only_one_query_insists() {
        for (query, expected) in [(None, Some(false)), (Some(""), Some(false)), (Some("force"), Some(true))] {
            assert_eq!(insists(query), expected, "{query:?}");
        }
        for other in ["force=true", "force=false", "FORCE", "force&force", "forced", "%66orce"] {
            assert_eq!(insists(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn tokens() {
        let cases =
            [("Bearer abc", true), ("Bearer abd", false), ("Bearer ", false), ("abc", false), ("Basic abc", false)];
        for (header, expected) in cases {
            let request = Request::get("/").header(AUTHORIZATION, header).body(()).unwrap();
            assert_eq!(token_of(&request, "abc") == Token::Right, expected, "{header}");
            assert_eq!(token_of(&request, ""), Token::Wrong, "an empty token opens nothing: {header}");
        }
        assert_eq!(token_of(&Request::new(()), "abc"), Token::Absent);
        assert_eq!(token_of(&Request::new(()), ""), Token::Absent);
    }
}
