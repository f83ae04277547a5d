//! The listener of a benchmark's servers: the grid's upgrade, and what calls are compared with: an echo over plain HTTP,
//! and one over bare TCP.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use ashlar_grid::seam::Lane;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::header::HOST;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::admin::upgrade;
use crate::bench::cluster::PAYLOAD_BYTES;
use crate::bench::load::{Results, Tally};
use crate::failure::Failure;
use crate::os::wire::OsWire;
use crate::os::{sockets, websocket};

/// Longest body that is echoed, bytes.
const ECHO_BYTES_MAX: usize = 64 << 10;

/// A listening socket on loopback.
pub struct Socket {
    /// Where it listens.
    pub address: String,
    listener: StdListener,
}

/// A free port of loopback.
///
/// # Errors
/// There is none.
pub fn bind() -> Result<Socket, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = sockets::listen(address, 1)?.swap_remove(0);
    let address = listener.local_addr().map_err(|error| Failure::world(error.to_string(), ""))?.to_string();
    Ok(Socket { address, listener })
}

/// Accepts until stopped.
pub struct Listening(JoinHandle<()>);

impl Listening {
    /// Accepts no more.
    pub fn stop(&self) {
        self.0.abort();
    }
}

/// What is done with an upgraded connection.
pub type Accept = Arc<dyn Fn(OsWire, Lane) + Send + Sync>;

/// Serves `socket` on the worker `handle`; upgraded connections go to `accept`.
#[must_use]
pub fn listen(handle: &Handle, socket: Socket, accept: Accept) -> Listening {
    Listening(handle.spawn(async move {
        let Ok(listener) = TcpListener::from_std(socket.listener) else { return };
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, accept.clone()));
        }
    }))
}

async fn converse(stream: TcpStream, accept: Accept) {
    // An error means that the connection is gone, which shows below.
    stream.set_nodelay(true).ok();
    let service = service_fn(|request: Request<Incoming>| {
        let accept = accept.clone();
        async move {
            Ok::<_, core::convert::Infallible>(match websocket::lane(request.uri().path()) {
                Some(lane) => upgrade::answer::<TcpStream>(request, None, move |wire| accept(wire, lane)),
                None => echo(request).await,
            })
        }
    });
    // The other end closed it: nobody is left to be told.
    let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = Limited::new(request.into_body(), ECHO_BYTES_MAX).collect().await;
    let mut response = Response::new(Full::default());
    match body {
        Ok(body) => *response.body_mut() = Full::new(body.to_bytes()),
        Err(_) => *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE,
    }
    response
}

/// Starts a caller that posts a payload again and again over one HTTP connection of its own.
pub fn spawn_caller(handle: &Handle, address: String, mut tally: Tally, results: Results) {
    handle.spawn(async move {
        if let Err(error) = post_until_over(&address, &mut tally).await {
            tracing::warn!(%error, address, "HTTP caller ended early");
            tally.failed();
        }
        // The receiver waits for every caller.
        let _ = results.send(tally);
    });
}

async fn post_until_over(address: &str, tally: &mut Tally) -> Result<(), Box<dyn core::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let payload = Bytes::from(vec![5; PAYLOAD_BYTES]);
    tally.begin();
    loop {
        let request = Request::post("/echo").header(HOST, address).body(Full::new(payload.clone()))?;
        let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        if !(if answer.len() == PAYLOAD_BYTES { tally.done(1) } else { tally.failed() }) {
            return Ok(());
        }
    }
}

/// Serves `socket` on the worker `handle` with the least that can be: whatever comes goes back.
#[must_use]
pub fn listen_raw(handle: &Handle, socket: Socket) -> Listening {
    Listening(handle.spawn(async move {
        let Ok(listener) = TcpListener::from_std(socket.listener) else { return };
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // The other end closed it: nobody is left to be told.
                let _ = echo_raw(&stream).await;
            });
        }
    }))
}

async fn echo_raw(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; PAYLOAD_BYTES];
    loop {
        let len = receive(stream, &mut bytes).await?;
        if len == 0 {
            return Ok(());
        }
        send(stream, &bytes[..len]).await?;
    }
}

async fn receive(stream: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    stream.async_io(Interest::READABLE, || stream.try_read(bytes)).await
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let len = stream.async_io(Interest::WRITABLE, || stream.try_write(bytes)).await?;
        bytes = &bytes[len..];
    }
    Ok(())
}

/// Starts a caller that sends a payload and waits for its echo, again and again, over one TCP connection of its own.
pub fn spawn_raw_caller(handle: &Handle, address: String, mut tally: Tally, results: Results) {
    handle.spawn(async move {
        if let Err(error) = call_raw_until_over(&address, &mut tally).await {
            tracing::warn!(%error, address, "TCP caller ended early");
            tally.failed();
        }
        // The receiver waits for every caller.
        let _ = results.send(tally);
    });
}

async fn call_raw_until_over(address: &str, tally: &mut Tally) -> io::Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut bytes = [5; PAYLOAD_BYTES];
    tally.begin();
    loop {
        send(&stream, &bytes).await?;
        let mut received = 0;
        while received < PAYLOAD_BYTES {
            match receive(&stream, &mut bytes[received..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => received += len,
            }
        }
        if !tally.done(1) {
            return Ok(());
        }
    }
}
