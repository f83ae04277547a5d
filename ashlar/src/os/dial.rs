//! Connecting to another server: TCP, TLS, HTTP upgrade. Dropping the future closes whatever was opened.

use std::sync::Arc;

use ashlar_grid::seam::{Lane, WireError};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use hyper::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use super::wire::{Io, OsWire};
use super::{tls, websocket};

/// How much of a refusal's body is read for the error's text.
const REFUSAL_BYTES_MAX: usize = 4 << 10;

/// Connects to `address` (`HOST:PORT`) and upgrades to `lane`.
///
/// # Errors
/// Nobody answers there, or whoever does is no server of ours. Retry safe.
pub async fn dial(address: &str, lane: Lane, tls: Option<Arc<ClientConfig>>) -> Result<OsWire, WireError> {
    let stream = connect(address).await?;
    match tls {
        None => {
            let (stream, early) = upgrade(stream, address, lane).await?;
            OsWire::new(Io::Plain(stream), &early, None)
        }
        Some(config) => {
            let stream = secure(stream, config).await?;
            let (stream, early) = upgrade(stream, address, lane).await?;
            OsWire::new(Io::Tls(Box::new(stream)), &early, None)
        }
    }
}

/// A TCP connection to `address`.
///
/// # Errors
/// Nobody answers there. Retry safe.
pub async fn connect(address: &str) -> Result<TcpStream, WireError> {
    TcpStream::connect(address).await.map_err(|error| WireError(format!("cannot connect to {address}: {error}")))
}

/// TLS over `stream`.
///
/// # Errors
/// The other end does not speak TLS, or is not who it should be.
pub async fn secure(stream: TcpStream, config: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, WireError> {
    let name = ServerName::try_from(tls::SERVER_NAME).expect("the name is a DNS name");
    let stream = TlsConnector::from(config).connect(name, stream).await;
    stream.map(TlsStream::Client).map_err(|error| WireError(format!("TLS: {error}")))
}

/// Sends the upgrade request and waits for the switch; gives the stream back, with what came after the answer.
async fn upgrade<S>(stream: S, address: &str, lane: Lane) -> Result<(S, Bytes), WireError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let http = |error: hyper::Error| WireError(format!("{address} does not speak HTTP as expected: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let key = websocket::key();
    let request = request(address, lane, &key)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(http)?;
        let response = check(response, &key).await?;
        // Nothing else will be sent: the connection may end.
        drop(sender);
        hyper::upgrade::on(response).await.map_err(http)
    };
    let (_, upgraded) = tokio::join!(connection.with_upgrades(), exchange);
    let parts = upgraded?.downcast::<TokioIo<S>>().expect("what comes back is what was put in");
    Ok((parts.io.into_inner(), parts.read_buf))
}

fn request(address: &str, lane: Lane, key: &str) -> Result<Request<Empty<Bytes>>, WireError> {
    Request::get(websocket::path(lane))
        .header(HOST, address)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_PROTOCOL, websocket::PROTOCOL)
        .header(SEC_WEBSOCKET_KEY, key)
        .body(Empty::new())
        .map_err(|error| WireError(format!("{address} cannot be asked: {error}")))
}

async fn check(response: Response<Incoming>, key: &str) -> Result<Response<Incoming>, WireError> {
    let status = response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        return Err(WireError(format!("upgrade refused: {status}: {}", message(&body))));
    }
    let is_header = |name, expected: &str| response.headers().get(name).is_some_and(|value| value == expected);
    if !is_header(SEC_WEBSOCKET_ACCEPT, &websocket::accept(key)) {
        return Err(WireError("upgrade answered with a wrong Sec-WebSocket-Accept".into()));
    }
    if !is_header(SEC_WEBSOCKET_PROTOCOL, websocket::PROTOCOL) {
        return Err(WireError(format!("the other end does not speak {}", websocket::PROTOCOL)));
    }
    Ok(response)
}

/// What a refusal says: the message of ours, or the text as it is.
fn message(body: &[u8]) -> String {
    let value = serde_json::from_slice::<serde_json::Value>(body).ok();
    let message = value.as_ref().and_then(|value| value["message"].as_str()).map(str::to_owned);
    message.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned())
}
