//! Where connections come in: a listener of one kind, and what makes a connection of what it accepts.

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use ashlar_kv::Link;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::socket::Socket;
use super::tls::TlsSocket;
use crate::os::{clock, sockets};

/// A client that takes longer for its side of the TLS handshake is left alone.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// One worker's listener.
pub enum Door {
    /// Plain TCP.
    Tcp(std::net::TcpListener),
    /// TLS over TCP.
    Tls(std::net::TcpListener, Arc<ServerConfig>),
    /// A unix socket, and where it lies.
    Unix(std::os::unix::net::UnixListener, String),
}

/// A listener on the current worker.
pub(super) trait Entrance {
    /// What the kernel gives.
    type Raw: Send + 'static;
    /// What a connection lives on.
    type Socket: Socket;

    /// The next one. Cancel-safe.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Raw>>;

    /// Makes it a stream that requests can come by.
    fn greet(
        raw: Self::Raw,
        keepalive: Option<Duration>,
    ) -> impl Future<Output = io::Result<(Self::Socket, Link)>> + Send;
}

/// Plain TCP.
pub(super) struct Plain(pub(super) TcpListener);

impl Entrance for Plain {
    type Raw = TcpStream;
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        Ok(self.0.accept().await?.0)
    }

    async fn greet(raw: TcpStream, keepalive: Option<Duration>) -> io::Result<(TcpStream, Link)> {
        let link = tcp_link(&raw, keepalive)?;
        Ok((raw, link))
    }
}

fn tcp_link(stream: &TcpStream, keepalive: Option<Duration>) -> io::Result<Link> {
    // A refused option costs speed only.
    stream.set_nodelay(true).ok();
    sockets::keep_alive(stream, keepalive)?;
    Ok(Link {
        peer: stream.peer_addr()?.to_string(),
        local: stream.local_addr()?.to_string(),
        descriptor: stream.as_raw_fd(),
        is_unix: false,
        is_tls: false,
        is_server: false,
    })
}

/// TLS over TCP.
pub(super) struct Encrypted(pub(super) TcpListener, pub(super) TlsAcceptor);

impl Entrance for Encrypted {
    type Raw = (TcpStream, TlsAcceptor);
    type Socket = TlsSocket;

    async fn accept(&self) -> io::Result<Self::Raw> {
        Ok((self.0.accept().await?.0, self.1.clone()))
    }

    async fn greet((stream, acceptor): Self::Raw, keepalive: Option<Duration>) -> io::Result<(TlsSocket, Link)> {
        let link = tcp_link(&stream, keepalive)?;
        let shaken = clock::within(HANDSHAKE_MAX, acceptor.accept(stream)).await;
        let (stream, tls) = shaken.ok_or(io::ErrorKind::TimedOut)??.into_inner();
        Ok((TlsSocket::new(stream, tls), Link { is_tls: true, ..link }))
    }
}

/// A unix socket. All connections of it have the same address at both ends.
pub(super) struct Local(pub(super) UnixListener, pub(super) Arc<str>);

impl Entrance for Local {
    type Raw = (UnixStream, Arc<str>);
    type Socket = UnixStream;

    async fn accept(&self) -> io::Result<Self::Raw> {
        Ok((self.0.accept().await?.0, Arc::clone(&self.1)))
    }

    async fn greet((stream, path): Self::Raw, _: Option<Duration>) -> io::Result<(UnixStream, Link)> {
        let address = format!("{path}:0");
        let descriptor = stream.as_raw_fd();
        Ok((
            stream,
            Link { peer: address.clone(), local: address, descriptor, is_unix: true, is_tls: false, is_server: false },
        ))
    }
}
