//! The HTTP listener of a server: health, metrics, status, and the upgrade that makes a connection one of the grid's.
//!
//! Each worker accepts from a listener of its own and keeps what it accepts. The first byte tells TLS from plain HTTP, so
//! one port serves both; with encryption on, plain HTTP is for this machine only. Everything that a stranger can make
//! the server wait for or keep has a limit here. What changes something needs the admin token, from this machine too: other
//! users of it reach the port as well.

pub mod buckets;
pub mod catalog;
mod connections;
pub mod drives;
mod forget;
pub mod groups;
mod health;
mod host;
pub mod metrics;
pub mod objects;
mod refusals;
pub mod routes;
mod secret;
mod table;
pub(super) mod upgrade;
pub mod volumes;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsStream};

use connections::{Admitted, CONNECTIONS_MAX, Connections, Permit};
use metrics::Source;
use refusals::{Refusals, Why};

use crate::front::s3::account::Accounting;
use crate::os::clock;
use crate::os::kv::Observer;
use crate::os::runtime::OsRuntime;
use crate::os::tls;
use crate::os::wire::Io;
use ashlar_node::Node;
use ashlar_node::object::ObjectNode;
use ashlar_node::volume::service::VolumeService;

/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// How long a client may take for its first byte.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(10);

/// How long a TLS handshake may take.
const TLS_HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// How long the head of a request may take, the pause before it included.
const HEAD_MAX: Duration = Duration::from_secs(30);

/// How long each step of a connection beyond the limits may take: first byte, TLS handshake, head, answer.
const BRIEF_STEP_MAX: Duration = Duration::from_secs(2);

/// Pause after the operating system refused to accept, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all workers' listeners share.
pub struct Front {
    /// The server behind it.
    pub node: Node<OsRuntime>,
    /// How TLS is answered.
    pub tls: Arc<ServerConfig>,
    /// Whether connections between servers must be encrypted.
    pub is_tls_required: bool,
    /// Opens the admin API.
    pub token: String,
    /// The key-value engines of the server, if it has some.
    pub engines: Option<Observer>,
    /// What lies on the server's drive, if it has one.
    pub drives: Option<DriveServices>,
    /// Where other servers reach this one: a name in it may stand in `Host` headers.
    pub advertised: String,
    connections: Connections,
    refusals: Refusals,
}

/// The services over the drive of a server.
#[derive(Clone)]
pub struct DriveServices {
    /// Volumes.
    pub volumes: VolumeService<OsRuntime>,
    /// Objects, if there is room for them.
    pub objects: Option<ObjectNode<OsRuntime>>,
    /// Who is told what S3 requests come to.
    pub accounting: Accounting,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Whether it comes from this machine.
    pub is_loopback: bool,
    /// Whether it is encrypted.
    pub is_tls: bool,
    /// Whether it is beyond the limits of connections, and may ask about health only.
    pub is_brief: bool,
    /// The address.
    pub from: IpAddr,
}

impl Front {
    /// The front of `node`.
    #[must_use]
    pub fn new(
        node: Node<OsRuntime>,
        tls: Arc<ServerConfig>,
        is_tls_required: bool,
        token: String,
        engines: Option<Observer>,
        drives: Option<DriveServices>,
        advertised: String,
    ) -> Self {
        let (connections, refusals) = (Connections::new(), Refusals::default());
        Self { node, tls, is_tls_required, token, engines, drives, advertised, connections, refusals }
    }

    /// Whose metrics are told, in this order.
    fn sources(&self) -> Vec<&dyn Source> {
        let mut sources: Vec<&dyn Source> = Vec::new();
        sources.extend(self.engines.as_ref().map(|engines| engines as &dyn Source));
        if let Some(DriveServices { volumes, objects, accounting, .. }) = &self.drives {
            sources.push(volumes);
            sources.extend(objects.as_ref().map(|objects| objects as &dyn Source));
            sources.push(accounting);
        }
        sources.push(&self.refusals);
        sources
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// Accepts on the current worker until told to stop; what was accepted goes on.
    ///
    /// # Errors
    /// The listener cannot be used on this worker.
    pub async fn serve(
        self: Arc<Self>,
        listener: std::net::TcpListener,
        mut stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|&stop| stop) => return Ok(()),
            };
            match accepted {
                Ok((stream, from)) => self.admit(stream, from),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    clock::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let admitted = self.connections.admit(from.ip());
        if !matches!(admitted, Some(Admitted::Full(_)))
            && let Some(total) = self.refusals.note(Why::Connections, clock::now())
        {
            let (open, max) = (self.connections(), CONNECTIONS_MAX);
            tracing::warn!(%from, open, max, total, "too many connections, in all or from this address");
        }
        let (permit, is_brief) = match admitted {
            Some(Admitted::Full(permit)) => (permit, false),
            Some(Admitted::Brief(permit)) => (permit, true),
            None => return,
        };
        let is_loopback = from.ip().to_canonical().is_loopback();
        let origin = Origin { is_loopback, is_tls: false, is_brief, from: from.ip() };
        tokio::spawn(self.clone().converse(stream, origin, Arc::new(permit)));
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, origin: Origin, permit: Arc<Permit>) {
        let from = origin.from;
        let step_max = |usual: Duration| if origin.is_brief { BRIEF_STEP_MAX } else { usual };
        let mut first = [0];
        let Some(Ok(1)) = clock::within(step_max(FIRST_BYTE_MAX), stream.peek(&mut first)).await else { return };
        // Small answers at once; an error means that the connection is gone, which shows below.
        stream.set_nodelay(true).ok();
        if first[0] != tls::FIRST_BYTE {
            return self.speak_http(stream, origin, permit).await;
        }
        let handshake = TlsAcceptor::from(self.tls.clone()).accept(stream);
        match clock::within(step_max(TLS_HANDSHAKE_MAX), handshake).await {
            Some(Ok(stream)) => {
                let origin = Origin { is_tls: true, ..origin };
                self.speak_http(TlsStream::Server(stream), origin, permit).await;
            }
            Some(Err(error)) => tracing::debug!(%from, %error, "TLS handshake failed"),
            None => tracing::debug!(%from, "TLS handshake took too long"),
        }
    }

    async fn speak_http<S: Stream>(self: Arc<Self>, stream: S, origin: Origin, permit: Arc<Permit>) {
        let service = service_fn(|request| {
            let (front, permit) = (self.clone(), permit.clone());
            async move { Ok::<_, core::convert::Infallible>(routes::answer::<S>(front, request, origin, permit).await) }
        });
        let mut builder = http1::Builder::new();
        let head_max = if origin.is_brief { BRIEF_STEP_MAX } else { HEAD_MAX };
        builder.timer(TokioTimer::new()).header_read_timeout(head_max);
        builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).keep_alive(!origin.is_brief);
        let exchange = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let ended = if origin.is_brief {
            // The head, and an answer to somebody who reads it.
            clock::within(BRIEF_STEP_MAX * 2, exchange).await.unwrap_or(Ok(()))
        } else {
            exchange.await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "HTTP connection ended");
        }
    }
}

/// What HTTP is spoken over, and what it becomes after an upgrade.
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static {
    /// The stream as a wire's lower half.
    fn into_io(self) -> Io;
}

impl Stream for TcpStream {
    fn into_io(self) -> Io {
        Io::Plain(self)
    }
}

impl Stream for TlsStream<TcpStream> {
    fn into_io(self) -> Io {
        Io::Tls(Box::new(self))
    }
}
