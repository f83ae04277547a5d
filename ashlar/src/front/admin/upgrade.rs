//! The server's half of the upgrade: who asks rightly gets a connection of the grid, which then asks who it is.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use hyper::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;

use super::Stream;
use super::routes::refuse;
use crate::os::websocket;
use crate::os::wire::{Held, OsWire};

/// Answers a request for an upgrade; the connection that it becomes goes to `then`, together with `permit`.
pub(in crate::front) fn answer<S: Stream>(
    request: Request<Incoming>,
    permit: Option<Held>,
    then: impl FnOnce(OsWire) + Send + 'static,
) -> Response<Full<Bytes>> {
    let key = match key(&request) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    let accept = HeaderValue::try_from(websocket::accept(&key)).expect("base64 is a header's value");
    let speaks_ours = contains(request.headers(), &SEC_WEBSOCKET_PROTOCOL, websocket::PROTOCOL);
    tokio::spawn(take_over::<S>(request, permit, then));
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if speaks_ours {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(websocket::PROTOCOL));
    }
    response
}

async fn take_over<S: Stream>(request: Request<Incoming>, permit: Option<Held>, then: impl FnOnce(OsWire)) {
    let upgraded = match hyper::upgrade::on(request).await {
        Ok(upgraded) => upgraded,
        Err(error) => return tracing::debug!(%error, "upgrade ended early"),
    };
    let parts = upgraded.downcast::<TokioIo<S>>().expect("what comes back is what HTTP was spoken over");
    match OsWire::new(parts.io.into_inner().into_io(), &parts.read_buf, permit) {
        Ok(wire) => then(wire),
        Err(error) => tracing::debug!(%error, "upgrade ended early"),
    }
}

/// The client's key, if the request is an upgrade to WebSocket (RFC 6455, section 4.2.1).
fn key(request: &Request<Incoming>) -> Result<String, Box<Response<Full<Bytes>>>> {
    let headers = request.headers();
    let is_upgrade = request.version() == Version::HTTP_11
        && contains(headers, &CONNECTION, "upgrade")
        && contains(headers, &UPGRADE, "websocket");
    if !is_upgrade {
        let mut response = refuse(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            "this address is for WebSocket connections between servers",
        );
        response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        return Err(Box::new(response));
    }
    if !contains(headers, &SEC_WEBSOCKET_VERSION, "13") {
        let text = "only version 13 of WebSocket is spoken here";
        let mut response = refuse(StatusCode::UPGRADE_REQUIRED, "websocket_version", text);
        response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(Box::new(response));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok()).filter(|key| websocket::is_key(key));
    key.map(str::to_owned).ok_or_else(|| {
        let text = "Sec-WebSocket-Key has to be 16 bytes in base64";
        Box::new(refuse(StatusCode::BAD_REQUEST, "websocket_key", text))
    })
}

/// Whether one of the comma-separated words of a header is `word`, whatever its case.
fn contains(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
