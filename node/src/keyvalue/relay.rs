//! Lines of messages over the grid: one stream to each server that listens.
//!
//! A stream shares the connection with all calls, behind the bus's packets, and takes a small window of it. Where there is no connection
//! for a moment the line waits; what waits longer than that is dropped, as whoever comes back has missed more than this.

use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::sync::{Arc, Weak};

use ashlar_grid::CallOptions;
use ashlar_grid::error::Refusal;
use ashlar_grid::handler::HandlerId;
use ashlar_grid::seam::Runtime;
use ashlar_grid::stream::{ClientStream, ServerStream};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::super::{Node, WeakNode};
use super::messages::{Line, Messages, Relay};
use super::published::{MessageReader, VERSION};

/// A stream of messages to subscribers of a server's engines; it answers nothing.
pub(super) const MESSAGES: HandlerId = HandlerId::new(12);

/// Bytes of one message of a stream. Between two of them others have their turn.
const PIECE_BYTES: usize = 16 * 1024;
/// Bytes on their way to one server.
const WINDOW_BYTES: u32 = 256 * 1024;
/// A stream ends after so long, and the next one begins.
const STREAM_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a line waits for a connection.
const CONNECTION_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often it is looked for one.
const CONNECTION_LOOK: Duration = Duration::from_millis(20);

/// Carries lines on the node's workers. It keeps neither the node nor the messages, both of which keep it.
pub(crate) struct GridRelay<R: Runtime> {
    pub(crate) node: WeakNode<R>,
    pub(crate) messages: Weak<Messages>,
}

impl<R: Runtime> Relay for GridRelay<R> {
    fn relay(&self, server: ServerId, line: Arc<Line>) {
        let Some((node, messages)) = self.node.upgrade().zip(self.messages.upgrade()) else { return };
        node.clone().runtime().spawn(Box::pin(relay(node, messages, server, line)));
    }

    fn now(&self) -> Instant {
        self.node.upgrade().map_or(Instant::ORIGIN, |node| node.runtime().now())
    }
}

async fn relay<R: Runtime>(node: Node<R>, messages: Arc<Messages>, server: ServerId, line: Arc<Line>) {
    let (mut stream, mut batch) = (None, Vec::new());
    loop {
        batch.clear();
        batch.shrink_to(2 * PIECE_BYTES);
        let Some(count) = poll_fn(|cx| line.poll_take(cx, &mut batch)).await else { break };
        if !send(&node, server, &mut stream, &batch).await {
            messages.count_dropped(count + line.clear());
        }
    }
    if let Some(mut stream) = stream {
        // What was sent arrives.
        let _ = stream.sender.finish().await;
    }
}

/// Sends whole messages; says whether they are on their way.
async fn send<R: Runtime>(
    node: &Node<R>,
    server: ServerId,
    stream: &mut Option<ClientStream>,
    messages: &[u8],
) -> bool {
    let mut pieces = messages.chunks(PIECE_BYTES);
    let first = pieces.next().unwrap_or_default();
    let is_begun = match stream {
        Some(open) => open.sender.send(first).await.is_ok(),
        None => false,
    };
    if !is_begun {
        // A stream that has ended took nothing of it: another one may take all.
        *stream = open(node, server).await;
        let Some(open) = stream else { return false };
        if open.sender.send(first).await.is_err() {
            *stream = None;
            return false;
        }
    }
    let Some(open) = stream else { return false };
    for piece in pieces {
        if open.sender.send(piece).await.is_err() {
            *stream = None;
            return false;
        }
    }
    true
}

/// A new stream to a server, once there is a connection.
async fn open<R: Runtime>(node: &Node<R>, server: ServerId) -> Option<ClientStream> {
    let options = CallOptions {
        timeout: Some(STREAM_MAX),
        fail_fast: true,
        window: (WINDOW_BYTES, WINDOW_BYTES),
        ..CallOptions::default()
    };
    let until = node.runtime().now() + CONNECTION_WAIT_MAX;
    loop {
        if let Ok(stream) = node.grid().open_stream(server, MESSAGES, &[VERSION], options).await {
            return Some(stream);
        }
        if node.runtime().now() >= until {
            return None;
        }
        node.runtime().sleep_until(node.runtime().now() + CONNECTION_LOOK).await;
    }
}

/// Takes the messages of another server, until it has no more or this server stops.
pub(crate) async fn receive(
    messages: Arc<Messages>,
    version: Vec<u8>,
    mut stream: ServerStream,
) -> Result<(), Refusal> {
    if version != [VERSION] {
        return Err(Refusal::new(1, "messages of another version"));
    }
    let work = async {
        let mut reader = MessageReader::default();
        while let Ok(Some(piece)) = stream.receiver.receive().await {
            reader.feed(&piece);
            while let Some(published) = reader.next_message().map_err(|_| Refusal::new(2, "this is no message"))? {
                messages.deliver(&published);
            }
            give_way().await;
        }
        Ok(())
    };
    messages.ending.cut(work).await.unwrap_or(Ok(()))
}

/// Lets other tasks of the thread run.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if core::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
