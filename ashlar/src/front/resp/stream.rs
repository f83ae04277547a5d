//! A connection that comes by a stream of the grid: that of another server's replica.
//!
//! The stream lives with the grid's connection on a worker of the server, the session on a thread of the key-value service, so that
//! neither holds up the other. Between them lie two short queues of messages.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ashlar_grid::stream::{Receiver, Sender, ServerStream};
use ashlar_kv::Link;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::socket::Socket;
use super::{Connection, Service};

/// Messages that lie in a queue.
const MESSAGES_MAX: usize = 8;
/// Bytes of one message.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// How long what an ended session has left behind may take to leave.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The session's end of the two queues.
pub(super) struct Piped {
    comes: mpsc::Receiver<Vec<u8>>,
    leaves: mpsc::Sender<Vec<u8>>,
    /// What came and was not read yet, and how much of it was.
    came: (Vec<u8>, usize),
}

impl Socket for Piped {
    async fn writable(&self) -> io::Result<()> {
        self.leaves.reserve().await.map(drop).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.came.1 == self.came.0.len() {
            let Some(message) = ready!(self.comes.poll_recv(cx)) else { return Poll::Ready(Ok(0)) };
            self.came = (message, 0);
        }
        let (came, taken) = &mut self.came;
        let count = bytes.len().min(came.len() - *taken);
        bytes[..count].copy_from_slice(&came[*taken..*taken + count]);
        *taken += count;
        Poll::Ready(Ok(count))
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let count = bytes.len().min(MESSAGE_BYTES_MAX);
        match self.leaves.try_reserve() {
            Ok(room) => {
                room.send(bytes[..count].to_vec());
                Ok(count)
            }
            Err(mpsc::error::TrySendError::Full(())) => Err(io::ErrorKind::WouldBlock.into()),
            Err(mpsc::error::TrySendError::Closed(())) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn gone(&mut self) -> io::Result<()> {
        self.leaves.closed().await;
        Ok(())
    }
}

/// Serves who speaks on the stream, with a session on that thread's runtime. Completes when either side has ended.
pub async fn visit(service: Service, stream: ServerStream, link: Link, thread: Handle) {
    let (to, comes) = mpsc::channel(MESSAGES_MAX);
    let (leaves, from) = mpsc::channel(MESSAGES_MAX);
    thread.spawn(async move {
        let piped = Piped { comes, leaves, came: (Vec::new(), 0) };
        // Who finds too many clients is not told why; it tries again.
        if let Ok(connection) = Connection::new(service, piped, link)
            && let Err(error) = connection.live().await
        {
            tracing::debug!(%error, "connection lost");
        }
    });
    let ServerStream { sender, receiver } = stream;
    let (inward, mut outward) = (pin!(carry_in(receiver, to)), pin!(carry_out(from, sender)));
    tokio::select! {
        () = inward => {}
        () = &mut outward => return,
    }
    // Nothing comes any more: the session ends, and says what it still has to say.
    crate::os::clock::within(FLUSH_MAX, outward).await;
}

async fn carry_in(mut receiver: Receiver, to: mpsc::Sender<Vec<u8>>) {
    while let Ok(Some(message)) = receiver.receive().await {
        if to.send(message).await.is_err() {
            return;
        }
    }
}

async fn carry_out(mut from: mpsc::Receiver<Vec<u8>>, mut sender: Sender) {
    while let Some(message) = from.recv().await {
        if sender.send(&message).await.is_err() {
            return;
        }
    }
    // The other side sees the end by the handler's return all the same.
    sender.finish().await.ok();
}
