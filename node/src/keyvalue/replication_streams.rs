//! Streams of the grid on which replicas follow primaries of other servers: authenticated and encrypted as all that servers say to each
//! other is.
//!
//! The node opens them and lets them in; the key-value service speaks on them, as a client and a server of its protocol do on a
//! connection. Each message is some of the bytes, cut anywhere. The stream's initial payload says whom it is for: the engine's port for
//! clients, two bytes, the higher one first.

use core::time::Duration;
use std::sync::{Arc, OnceLock};

use ashlar_grid::CallOptions;
use ashlar_grid::error::{Reason, Refusal, StreamError};
use ashlar_grid::handler::HandlerId;
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_grid::stream::{ClientStream, ServerStream};
use ashlar_kv::network::Broken;
use ashlar_wire::id::ServerId;

use super::host::{BoxFutureOf, Connection};
use crate::WeakNode;
use crate::ending::Ending;

/// A stream on which a replica follows a primary, in the engines' own protocol.
pub(super) const FOLLOW: HandlerId = HandlerId::new(13);

/// There is no engine at that port.
const NO_ENGINE: u32 = 2;

/// Opens a stream to the engine that has this port at a server.
type Opener = Box<dyn Fn(ServerId, u16) -> BoxFuture<Result<ClientStream, StreamError>> + Send + Sync>;
/// Speaks on a stream from that address to the engine that has this port, until it ends; nothing if there is no such engine.
pub type Host = Box<dyn Fn(&str, u16, ServerStream) -> Option<BoxFuture<()>> + Send + Sync>;

/// Where the node and the key-value service give each other streams.
#[derive(Default)]
pub struct ReplicationStreams {
    opener: OnceLock<Opener>,
    host: OnceLock<Host>,
    ending: Ending,
}

impl core::fmt::Debug for ReplicationStreams {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ReplicationStreams").finish_non_exhaustive()
    }
}

impl ReplicationStreams {
    /// Streams of other servers' replicas go to this from now on. Only the first call does anything.
    pub fn host(&self, host: Host) {
        drop(self.host.set(host));
    }

    /// Streams are opened on this node's grid from now on. Only the first call does anything.
    pub(crate) fn open_on<R: Runtime>(&self, node: WeakNode<R>) {
        let opener = move |server, port: u16| -> BoxFuture<Result<ClientStream, StreamError>> {
            let node = node.clone();
            Box::pin(async move {
                // It lasts as long as somebody follows; where there is no connection, whoever asks tries again.
                let options = CallOptions { fail_fast: true, ..CallOptions::within(Duration::MAX) };
                let node = node.upgrade().ok_or(StreamError::NotExecuted(Reason::Draining))?;
                node.grid().open_stream(server, FOLLOW, &port.to_be_bytes(), options).await
            })
        };
        drop(self.opener.set(Box::new(opener)));
    }

    /// A stream to the engine that has this port at a server; nothing before the node has started and once it stops.
    fn open(&self, server: ServerId, port: u16) -> Option<BoxFuture<Result<ClientStream, StreamError>>> {
        if self.ending.is_reached() {
            return None;
        }
        self.opener.get().map(|open| open(server, port))
    }

    /// A connection to the engine that has this port at a server. `name` is how people write the server's address.
    pub(super) async fn connect(
        self: &Arc<Self>,
        server: ServerId,
        name: &str,
        port: u16,
    ) -> Result<Box<dyn Connection>, Broken> {
        let opening = self.open(server, port).ok_or(Broken::Gone)?;
        let stream = opening.await.map_err(|_| Broken::Gone)?;
        let place = format!("{name}:{port}");
        Ok(Box::new(StreamConnection { stream, streams: Arc::clone(self), came: Vec::new(), taken: 0, place }))
    }

    /// Another server has opened a stream. Completes with it, or when this server stops.
    pub(crate) async fn take(&self, from: &str, initial: &[u8], stream: ServerStream) -> Result<(), Refusal> {
        let port = <[u8; 2]>::try_from(initial).ok().map(u16::from_be_bytes);
        let talk = port.and_then(|port| self.host.get()?(from, port, stream));
        let talk = talk.ok_or_else(|| Refusal::new(NO_ENGINE, "no engine of this server has that port"))?;
        self.ending.cut(talk).await;
        Ok(())
    }

    /// The server stops: all streams end, and none is opened any more.
    pub(crate) fn close(&self) {
        self.ending.reach();
    }
}

/// Bytes of one message of a stream.
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// A stream to an engine of another server, as a connection.
struct StreamConnection {
    stream: ClientStream,
    streams: Arc<ReplicationStreams>,
    /// The message that came last, and how much of it was read.
    came: Vec<u8>,
    taken: usize,
    place: String,
}

impl StreamConnection {
    /// No stream outlasts its server.
    fn check(&self) -> Result<(), Broken> {
        if self.streams.ending.is_reached() { Err(Broken::Gone) } else { Ok(()) }
    }
}

impl Connection for StreamConnection {
    fn write<'c>(&'c mut self, bytes: &'c [u8]) -> BoxFutureOf<'c, Result<(), Broken>> {
        Box::pin(async move {
            self.check()?;
            for message in bytes.chunks(MESSAGE_BYTES_MAX) {
                self.stream.sender.send(message).await.map_err(|_| Broken::Gone)?;
            }
            Ok(())
        })
    }

    fn read<'c>(&'c mut self, room: &'c mut [u8]) -> BoxFutureOf<'c, Result<usize, Broken>> {
        Box::pin(async move {
            self.check()?;
            while self.taken == self.came.len() {
                let came = self.streams.ending.cut(self.stream.receiver.receive()).await;
                (self.came, self.taken) = (came.and_then(Result::ok).flatten().ok_or(Broken::Gone)?, 0);
            }
            let count = room.len().min(self.came.len() - self.taken);
            room[..count].copy_from_slice(&self.came[self.taken..self.taken + count]);
            self.taken += count;
            Ok(count)
        })
    }

    fn ends(&self) -> (String, String) {
        (self.place.clone(), String::new())
    }
}
