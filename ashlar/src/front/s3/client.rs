//! A client of S3 for measurements: one connection that sends one signed request after the other.
//!
//! Deliberately absent: TLS, redirects, retries. What fails is the measurement's to count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::seam::WireError;
use ashlar_object::s3::Method;
use ashlar_object::s3::date::amz_date;
use ashlar_object::s3::encoding::to_hex;
use ashlar_object::s3::head::RequestHead;
use ashlar_object::s3::signature::{ALGORITHM, SERVICE, Scope, SigningKey, canonical_request, sha256, string_to_sign};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::CONTENT_LENGTH;
use hyper_util::rt::TokioIo;

use crate::os::{clock, dial};

/// How long one request may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Digits of a date that are its day.
const DAY_LEN: usize = 8;
/// The longest body that is kept: a page of a list, or an error.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Whom to ask, and as whom.
#[derive(Clone)]
pub struct S3Target {
    /// `HOST:PORT`.
    pub address: String,
    /// The key's id.
    pub access_key: String,
    /// The key.
    pub secret_key: String,
    /// The region that is signed.
    pub region: String,
    /// Whether the SHA-256 of each body is signed too, and so checked by the server.
    pub signs_bodies: bool,
}

impl fmt::Debug for S3Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Target").field("address", &self.address).finish_non_exhaustive()
    }
}

/// An answer.
#[derive(Debug)]
pub struct S3Answer {
    /// HTTP status.
    pub status: u16,
    /// How long its body is.
    pub len: u64,
    /// The body of an error, or one that was asked to be kept; up to 8 MiB.
    pub body: Vec<u8>,
}

/// See the head of this file.
pub struct S3Connection {
    target: Arc<S3Target>,
    sender: SendRequest<Full<Bytes>>,
    key: SigningKey,
    scope: Scope,
}

impl fmt::Debug for S3Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Connection").field("target", &self.target).finish_non_exhaustive()
    }
}

impl S3Connection {
    /// Connects. To be called on a runtime, which drives the connection from then on.
    ///
    /// # Errors
    /// Nobody answers there. Retry safe.
    pub async fn open(target: &Arc<S3Target>) -> Result<Self, WireError> {
        let stream = dial::connect(&target.address).await?;
        stream.set_nodelay(true).map_err(|error| WireError(format!("no option of a socket can be set: {error}")))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| broken(target, &error))?;
        // Its error comes out at the request that waits.
        tokio::spawn(async move { drop(connection.await) });
        let scope = Scope { day: today(), region: target.region.clone(), service: SERVICE };
        let key = SigningKey::derive(&target.secret_key, &scope);
        Ok(Self { target: Arc::clone(target), sender, key, scope })
    }

    /// Sends a request and waits for its answer, whose body is kept if `keeps`. Dropping the future breaks the connection.
    ///
    /// # Errors
    /// The connection is broken, or there was no answer in 60 s: open another one. What was asked may have been done.
    pub async fn ask(&mut self, method: Method, path: &str, body: Bytes, keeps: bool) -> Result<S3Answer, WireError> {
        let request = self.request(method, path, body)?;
        let target = Arc::clone(&self.target);
        let exchange = async {
            let response = self.sender.send_request(request).await.map_err(|error| broken(&target, &error))?;
            let status = response.status().as_u16();
            read(&target, status, response.into_body(), keeps || status >= 300).await
        };
        let late = || WireError(format!("{} did not answer within {} s", target.address, ANSWER_MAX.as_secs()));
        clock::within(ANSWER_MAX, exchange).await.ok_or_else(late)?
    }

    fn request(&mut self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, WireError> {
        let date = amz_date(now_ms());
        if date[..DAY_LEN] != self.scope.day {
            self.scope.day = date[..DAY_LEN].to_owned();
            self.key = SigningKey::derive(&self.target.secret_key, &self.scope);
        }
        let payload = if self.target.signs_bodies { to_hex(&sha256(&body)) } else { "UNSIGNED-PAYLOAD".to_owned() };
        let headers: Vec<(String, String)> = [
            ("host", self.target.address.clone()),
            ("x-amz-content-sha256", payload.clone()),
            ("x-amz-date", date.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let head = RequestHead::new(method, path, headers).map_err(|error| WireError(format!("{path}: {error:?}")))?;
        let names: Vec<&str> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
        let text = string_to_sign(&date, &self.scope, &canonical_request(&head, &names, &payload));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={}",
            self.target.access_key,
            self.scope.text(),
            names.join(";"),
            self.key.sign(&text).to_hex()
        );
        let mut request = Request::builder().method(method.name()).uri(path).header("authorization", authorization);
        for (name, value) in &head.headers {
            request = request.header(name, value);
        }
        if method == Method::Put {
            // It is left out of a request without a body otherwise.
            request = request.header(CONTENT_LENGTH, body.len());
        }
        request.body(Full::new(body)).map_err(|error| WireError(error.to_string()))
    }
}

/// The day as scopes name it.
fn today() -> String {
    amz_date(now_ms())[..DAY_LEN].to_owned()
}

/// Milliseconds since 1970 (UTC).
fn now_ms() -> u64 {
    u64::try_from(clock::now_both().unix_us / 1_000).unwrap_or_default()
}

async fn read(target: &S3Target, status: u16, mut body: Incoming, keeps: bool) -> Result<S3Answer, WireError> {
    let mut answer = S3Answer { status, len: 0, body: Vec::new() };
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| broken(target, &error))?;
        let Ok(data) = frame.into_data() else { continue };
        answer.len += data.len() as u64;
        if keeps && answer.body.len() + data.len() <= KEPT_BYTES_MAX {
            answer.body.extend_from_slice(&data);
        }
    }
    Ok(answer)
}

fn broken(target: &S3Target, error: &hyper::Error) -> WireError {
    WireError(format!("{} does not answer in HTTP: {error}", target.address))
}
