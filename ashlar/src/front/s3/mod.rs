//! S3 over HTTP/1.1: a thin edge between hyper and the service of `ashlar_object::s3`.
//!
//! The edge converts heads and bodies and bounds what a stranger can make it wait for or keep: connections, bytes and time of a
//! head, pauses inside bodies in both directions. Signatures, operations and errors are the service's. Bodies are streams with
//! back-pressure: hyper reads from a socket only when the object service takes the next buffer, and the other way round.
//!
//! Deliberately absent: HTTP/2, which S3 clients do not use.

pub mod account;
mod bodies;
pub mod client;
pub mod figures;
mod stall;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ashlar_object::s3::{IncomingRequest, Method, Response as S3Response, S3Service};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HeaderMap, HeaderName, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::account::{Account, Accounting};
use hyper::body::Body as _;

use self::bodies::{IncomingBody, OutgoingBody};
use self::stall::StallGuard;
use crate::os::wakes::Gathered;
use crate::os::{clock, random, tls};

/// Connections of all clients, on all workers.
pub const CONNECTIONS_MAX: usize = 2_048;

/// Bytes of a request's head, and of what is read ahead of a body. With [`CONNECTIONS_MAX`] it bounds the memory of all clients.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 128;

/// How long a client may take for its first byte and a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// How long the head of a request may take, the pause before it included.
const HEAD_MAX: Duration = Duration::from_secs(60);

/// How long a client may stop in the middle of what it sends or receives.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a request waits until this server knows who may do what, as after a new leader of the catalog was elected.
const RIGHTS_WAIT_MAX: Duration = Duration::from_secs(10);

/// How often it is looked.
const RIGHTS_LOOK: Duration = Duration::from_millis(50);

/// Bytes of a refused body that are read so that the client sees the refusal; beyond them the connection is closed.
const DISCARDED_BYTES_MAX: u64 = 1 << 20;

/// How long that may take.
const DISCARD_MAX: Duration = Duration::from_secs(2);

/// Pause after the operating system refused to accept, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection.
#[derive(Clone, Copy)]
struct Peer {
    from: SocketAddr,
    is_encrypted: bool,
}

/// What all workers' listeners share.
pub struct S3Front {
    s3: S3Service,
    /// With it, connections may begin with TLS; without it, none do.
    tls: Option<Arc<ServerConfig>>,
    connections: Arc<Semaphore>,
    requests: AtomicU64,
    accounting: Accounting,
    /// Makes names of requests differ between servers and runs.
    seed: u64,
}

impl S3Front {
    /// The front of an S3 service, which tells `accounting` what requests come to.
    #[must_use]
    pub fn new(s3: S3Service, tls: Option<Arc<ServerConfig>>, accounting: Accounting) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (requests, seed) = (AtomicU64::new(0), u64::from_le_bytes(random::bytes()));
        Self { s3, tls, connections, requests, accounting, seed }
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        CONNECTIONS_MAX - self.connections.available_permits()
    }

    /// Accepts on the current worker until told to stop; then until the requests that are running have ended, which the caller bounds.
    ///
    /// # Errors
    /// The listener cannot be used on this worker.
    pub async fn serve(
        self: Arc<Self>,
        listener: std::net::TcpListener,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let for_clients = stop.clone();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|&stop| stop) => break,
            };
            match accepted {
                Ok((stream, from)) => {
                    let Ok(permit) = self.connections.clone().try_acquire_owned() else {
                        tracing::warn!(%from, max = CONNECTIONS_MAX, "too many S3 connections: one is closed");
                        continue;
                    };
                    let (front, stop) = (self.clone(), for_clients.clone());
                    connections.spawn(Gathered::new(Box::pin(async move {
                        front.converse(stream, from, stop).await;
                        drop(permit);
                    })));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an S3 connection");
                    clock::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
        Ok(())
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, from: SocketAddr, mut stop: watch::Receiver<bool>) {
        // Small answers at once; an error means that the connection is gone, which shows below.
        stream.set_nodelay(true).ok();
        let Some(config) = &self.tls else {
            return self.speak_http(stream, Peer { from, is_encrypted: false }, stop).await;
        };
        let mut first = [0];
        let peeked = tokio::select! {
            peeked = clock::within(HANDSHAKE_MAX, stream.peek(&mut first)) => peeked,
            _ = stop.wait_for(|&stop| stop) => None,
        };
        let Some(Ok(1)) = peeked else { return };
        if first[0] != tls::FIRST_BYTE {
            return self.speak_http(stream, Peer { from, is_encrypted: false }, stop).await;
        }
        match clock::within(HANDSHAKE_MAX, TlsAcceptor::from(config.clone()).accept(stream)).await {
            Some(Ok(stream)) => self.speak_http(stream, Peer { from, is_encrypted: true }, stop).await,
            Some(Err(error)) => tracing::debug!(%from, %error, "TLS handshake of an S3 client failed"),
            None => tracing::debug!(%from, "TLS handshake of an S3 client took too long"),
        }
    }

    async fn speak_http<S>(self: &Arc<Self>, stream: S, peer: Peer, mut stop: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let front = self.clone();
            async move { Ok::<_, core::convert::Infallible>(front.answer(request, peer).await) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
        // A client may end its half of the connection behind its request.
        builder.half_close(true);
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).keep_alive(true);
        let stream = StallGuard::new(stream, PAUSE_MAX);
        let mut exchange = core::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = exchange.as_mut() => Some(ended),
            _ = stop.wait_for(|&stop| stop) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                exchange.as_mut().graceful_shutdown();
                exchange.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(from = %peer.from, %error, "S3 connection ended");
        }
    }

    /// Waits a while until this server knows who may do what. If it does not then, the service refuses.
    async fn await_rights(&self) {
        let until = clock::now() + RIGHTS_WAIT_MAX;
        while !self.s3.are_rights_known() && clock::now() < until {
            clock::sleep(RIGHTS_LOOK).await;
        }
    }

    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<OutgoingBody> {
        let (head, body) = request.into_parts();
        let is_expecting = head.headers.contains_key(EXPECT);
        // No `100 Continue` goes before the answer then, and clients that wait for one take the next answer for it.
        let is_uninvited = is_expecting && body.is_end_stream();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let incoming = IncomingRequest {
            method: Method::named(head.method.as_str()),
            target,
            headers: headers_of(&head.headers),
            peer: Some(peer.from.ip().to_canonical()),
            is_encrypted: peer.is_encrypted,
            now_ms: u64::try_from(clock::now_both().unix_us / 1_000).unwrap_or(0),
            id: self.request_id(),
        };
        let mut account = Account::begin(&self.accounting, &incoming);
        let mut body = IncomingBody::new(body, PAUSE_MAX);
        self.await_rights().await;
        let (reply, subject) = self.s3.handle(incoming, &mut body).await;
        account.note_reply(subject, reply.status, body.received());
        // A client that waits for `100 Continue` has sent nothing, and must not be invited to now.
        let is_read = body.has_ended()
            || (!is_expecting || body.is_asked())
                && clock::within(DISCARD_MAX, body.discard(DISCARDED_BYTES_MAX)).await.unwrap_or(false);
        let mut response = response_of(reply, account);
        if !is_read || is_uninvited {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn request_id(&self) -> String {
        // An odd factor permutes the numbers, so that none comes twice.
        let number = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:016X}", self.seed.wrapping_add(number))
    }
}

/// Headers as the service takes them. hyper has made their names lower-case.
fn headers_of(headers: &HeaderMap) -> Vec<(String, String)> {
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    headers.iter().map(pair).collect()
}

fn response_of(reply: S3Response, account: Account) -> Response<OutgoingBody> {
    let S3Response { status, headers, body } = reply;
    let mut response = Response::new(OutgoingBody::new(body, account));
    *response.status_mut() = StatusCode::from_u16(status).expect("the service answers with a status of HTTP");
    for (name, value) in &headers {
        // A value that came in through XML or a query may hold what no header can.
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            (Ok(name), Ok(value)) => drop(response.headers_mut().append(name, value)),
            _ => tracing::debug!(name = name.as_ref(), "a header is left out: HTTP cannot hold it"),
        }
    }
    response.headers_mut().insert(SERVER, HeaderValue::from_static("Ashlar"));
    response
}

#[cfg(test)]
mod tests;
