//! Which path answers what to whom.

use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::seam::Lane;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::connections::Permit;
use super::refusals::Why;
use super::table::{self, Asked, Endpoint, Found};
use super::{
    Front, Origin, Stream, buckets, catalog, drives, forget, groups, health, host, metrics, objects, secret, upgrade,
    volumes,
};
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
    let path = request.uri().path().to_owned();
    if origin.is_brief && !path.starts_with(HEALTH) {
        let text = "this server has too many connections, in all or from your address: only /health is answered now";
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", text);
    }
    if let Some(lane) = websocket::lane(&path) {
        return connect::<S>(&front, request, origin, permit, lane);
    }
    let (route, part) = match table::find(request.method(), &path) {
        Found::Here(route, part) => (route, part),
        Found::OtherMethods(methods) => return wrong_method(&methods),
        Found::Nothing => {
            let text = format!("there is nothing here: see {}", table::paths().join(", "));
            return refuse(StatusCode::NOT_FOUND, "not_found", &text);
        }
    };
    // A browser of this machine, or of an unencrypted network, can be made to ask.
    let is_reachable_by_pages = origin.is_loopback || path.starts_with(API) && !origin.is_tls;
    if is_reachable_by_pages && !host::is_own(&request, &front.advertised) {
        return foreign_host(&front, &request, origin);
    }
    let token = token_of(&request, &front.token);
    match admission(front.is_tls_required, origin, route.asked, token) {
        Admission::Granted => run(&front, route.endpoint, part, request.uri().query()).await,
        Admission::NeedsTls => refuse(
            StatusCode::FORBIDDEN,
            "tls_required",
            "plain HTTP is answered at loopback addresses only (127.0.0.1, ::1): use one of them on this machine, or https",
        ),
        Admission::NeedsToken => {
            if token == Token::Wrong {
                front.refusals.note_token(origin.from, clock::now());
                clock::sleep(WRONG_TOKEN_PAUSE).await;
            }
            unauthorized(token)
        }
    }
}

/// Another server wants a connection of the grid. The hello decides whether it gets one.
fn connect<S: Stream>(
    front: &Front,
    request: Request<Incoming>,
    origin: Origin,
    permit: Arc<Permit>,
    lane: Lane,
) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return wrong_method(&[&Method::GET]);
    }
    if front.is_tls_required && !origin.is_tls {
        let text = "servers of this cluster speak TLS to each other: start the other one with tls = on";
        return refuse(StatusCode::FORBIDDEN, "tls_required", text);
    }
    let node = front.node.clone();
    upgrade::answer::<S>(request, Some(permit), move |wire| node.accept(wire, lane))
}

/// Answers what the table has found, to somebody who may ask for it.
async fn run(front: &Front, endpoint: Endpoint, part: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    match endpoint {
        Endpoint::Live => health::live(),
        Endpoint::Ready => health::ready(front).await,
        Endpoint::Cluster => health::cluster(front).await,
        Endpoint::Metrics => {
            let text = metrics::text(front).await;
            with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        Endpoint::Status => json(StatusCode::OK, &front.node.status().await),
        Endpoint::Mesh => json(StatusCode::OK, &front.node.mesh().await),
        Endpoint::Forget => forget::answer(front, part, query).await,
        Endpoint::RotateSecret => secret::answer(front, query).await,
        Endpoint::Drives => drives::list(front).await,
        Endpoint::RemoveDrive => drives::remove(front, part, query).await,
        Endpoint::Groups => groups::list(front).await,
        Endpoint::Catalog => catalog::show(front),
        Endpoint::ExportCatalog => catalog::export(front),
        Endpoint::Volumes => volumes::list(front).await,
        Endpoint::Volume => volumes::show(front, part).await,
        Endpoint::CreateVolume => volumes::create(front, part, query).await,
        Endpoint::ResizeVolume => volumes::resize(front, part, query).await,
        Endpoint::DeleteVolume => volumes::delete(front, part).await,
        Endpoint::DetachVolume => volumes::detach(front, part, query).await,
        Endpoint::RootKey => objects::key(front),
        Endpoint::ReplaceRootKey => objects::replace_key(front).await,
        Endpoint::UserKeys => objects::list(front),
        Endpoint::KmsKeys => objects::kms_keys(front),
        Endpoint::CreateKmsKey => objects::create_kms_key(front, part).await,
        Endpoint::CreateUserKey => objects::create(front, part, query).await,
        Endpoint::DeleteUserKey => objects::delete(front, part).await,
        Endpoint::UserPolicy => objects::policy(front, part),
        Endpoint::SetUserPolicy => objects::set_policy(front, part, query).await,
        Endpoint::RemoveUserPolicy => objects::remove_policy(front, part).await,
        Endpoint::Buckets => buckets::list(front).await,
        Endpoint::SetQuota => buckets::set_quota(front, part, query).await,
        Endpoint::RemoveQuota => buckets::remove_quota(front, part).await,
        Endpoint::Healing => buckets::healing(front, part),
        Endpoint::BeginHealing => buckets::begin_healing(front, part).await,
        Endpoint::StopHealing => buckets::stop_healing(front, part),
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

fn wrong_method(methods: &[&Method]) -> Response<Full<Bytes>> {
    let head = methods.contains(&&Method::GET).then_some(&Method::HEAD);
    let allowed: Vec<&str> = methods.iter().copied().chain(head).map(Method::as_str).collect();
    let allowed = HeaderValue::from_str(&allowed.join(", ")).expect("names of methods are letters");
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &wrong_method_text(methods));
    response.headers_mut().insert(ALLOW, allowed);
    response
}

fn wrong_method_text(methods: &[&Method]) -> String {
    let names: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
    match names.split_last() {
        Some((last, others @ [_, ..])) => format!("only {} and {last} are allowed here", others.join(", ")),
        _ => format!("only {} is allowed here", names.concat()),
    }
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

pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
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
    fn methods_that_are_allowed_are_named() {
        for (methods, allow, text) in [
            (&[&Method::GET][..], "GET, HEAD", "only GET is allowed here"),
            (&[&Method::PUT], "PUT", "only PUT is allowed here"),
            (
                &[&Method::GET, &Method::PUT, &Method::DELETE],
                "GET, PUT, DELETE, HEAD",
                "only GET, PUT and DELETE are allowed here",
            ),
        ] {
            let response = wrong_method(methods);
            assert_eq!(response.headers()[ALLOW], allow);
            assert_eq!(wrong_method_text(methods), text);
        }
    }

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
