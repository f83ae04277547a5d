//! A stream of the grid as the connection on which a replica follows its primary.
//!
//! The thread that keeps the link waits here with a runtime of its own; the stream's connection lives on the server's workers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ashlar_grid::stream::ClientStream;
use ashlar_kv::network::{Broken, Line};
use ashlar_wire::id::ServerId;
use tokio::runtime::{Builder, Runtime};

use crate::os::clock;
use ashlar_node::keyvalue::ReplicationStreams;

/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// A stream to an engine of another server.
pub(super) struct StreamLine {
    runtime: Runtime,
    stream: ClientStream,
    replication_streams: Arc<ReplicationStreams>,
    /// What came and was not read yet, and how much of it was.
    came: (Vec<u8>, usize),
    /// Where the other end is for clients.
    place: String,
}

impl fmt::Debug for StreamLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamLine").field("place", &self.place).finish_non_exhaustive()
    }
}

impl StreamLine {
    /// One to the engine of that server which clients reach at this place.
    pub(super) fn open(
        replication_streams: &Arc<ReplicationStreams>,
        server: ServerId,
        (host, port): (&str, u16),
        span: Duration,
    ) -> Result<Self, Broken> {
        let runtime = Builder::new_current_thread().enable_time().build().map_err(|_| Broken::Gone)?;
        let opening = replication_streams.open(server, port).ok_or(Broken::Gone)?;
        let opened = wait(&runtime, span, opening)?;
        let stream = opened.map_err(|_| Broken::Gone)?;
        let place = format!("{host}:{port}");
        Ok(Self { runtime, stream, replication_streams: Arc::clone(replication_streams), came: (Vec::new(), 0), place })
    }

    /// No stream outlasts its server.
    fn check(&self) -> Result<(), Broken> {
        if self.replication_streams.is_over() { Err(Broken::Gone) } else { Ok(()) }
    }
}

/// What the future gives within so long.
fn wait<F: Future>(runtime: &Runtime, span: Duration, future: F) -> Result<F::Output, Broken> {
    runtime.block_on(clock::within(span, future)).ok_or(Broken::TooLate)
}

impl Line for StreamLine {
    fn write(&mut self, bytes: &[u8], span: Duration) -> Result<(), Broken> {
        self.check()?;
        for message in bytes.chunks(MESSAGE_BYTES_MAX) {
            wait(&self.runtime, span, self.stream.sender.send(message))?.map_err(|_| Broken::Gone)?;
        }
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], span: Duration) -> Result<usize, Broken> {
        self.check()?;
        while self.came.1 == self.came.0.len() {
            let came = wait(&self.runtime, span, self.stream.receiver.receive())?;
            self.came = (came.ok().flatten().ok_or(Broken::Gone)?, 0);
        }
        let (bytes, taken) = &mut self.came;
        let count = room.len().min(bytes.len() - *taken);
        room[..count].copy_from_slice(&bytes[*taken..*taken + count]);
        *taken += count;
        Ok(count)
    }

    fn ends(&self) -> (String, String) {
        (self.place.clone(), String::new())
    }
}
