//! A client of the admin API: one request, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::seam::WireError;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{clock, dial};

/// The longest answer that is read.
const BODY_BYTES_MAX: usize = 64 << 20;

/// How long one question may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Where to ask, and as whom.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// `HOST:PORT`.
    pub address: String,
    /// Encrypted in this way, or plain.
    pub tls: Option<Arc<ClientConfig>>,
    /// The admin token.
    pub token: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Asks for `path`.
///
/// # Errors
/// Nobody answers there, or not in time. Retry safe.
pub async fn get(target: &Target, path: &str) -> Result<Answer, WireError> {
    request(target, Method::GET, path).await
}

/// Asks to remove what is at `path`.
///
/// # Errors
/// Nobody answers there, or not in time; then it may have been done. Safe to repeat.
pub async fn delete(target: &Target, path: &str) -> Result<Answer, WireError> {
    request(target, Method::DELETE, path).await
}

/// Asks to do what `path` names.
///
/// # Errors
/// Nobody answers there, or not in time; then it may have been done.
pub async fn put(target: &Target, path: &str) -> Result<Answer, WireError> {
    request(target, Method::PUT, path).await
}

async fn request(target: &Target, method: Method, path: &str) -> Result<Answer, WireError> {
    let exchange = async {
        let stream = dial::connect(&target.address).await?;
        match &target.tls {
            None => ask(stream, target, method, path).await,
            Some(config) => ask(dial::secure(stream, config.clone()).await?, target, method, path).await,
        }
    };
    let late = || WireError(format!("{} did not answer within {} s", target.address, ANSWER_MAX.as_secs()));
    clock::within(ANSWER_MAX, exchange).await.ok_or_else(late)?
}

async fn ask<S>(stream: S, target: &Target, method: Method, path: &str) -> Result<Answer, WireError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let http = |error: hyper::Error| WireError(format!("{} does not answer in HTTP: {error}", target.address));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let mut request = Request::builder().method(method).uri(path).header(HOST, &target.address);
    if let Some(token) = &target.token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| WireError(error.to_string()))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(http)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| WireError(format!("the answer broke off: {error}")))?.to_bytes().to_vec();
        drop(sender);
        Ok(Answer { status, body })
    };
    tokio::join!(exchange, connection).0
}
