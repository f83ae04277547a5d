//! Connections to an engine: a session as a task of its server, and two queues of bytes between it and its client.
//!
//! Bytes arrive whole and at once, so that only what servers say to each other is late or lost; a client that waits for a server which
//! stands still or dies is told nothing.

use core::future::poll_fn;
use core::task::{Context, Poll};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::seam::BoxFuture;
use ashlar_grid::stream::ServerStream;
use ashlar_kv::{Engine, Link, Mailbox, Next, Notify, Session};
use ashlar_node::keyvalue::host::EngineHost;

/// Bytes of one message of a stream.
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    state: Mutex<State>,
    /// Wakes the server's end.
    server: Notify,
    /// Wakes the client's end.
    client: Notify,
}

#[derive(Debug, Default)]
struct State {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    is_closed: bool,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client sends.
    pub(super) fn send(&self, bytes: &[u8]) {
        self.lock().to_server.extend_from_slice(bytes);
        self.server.notify();
    }

    /// The client takes what came, at least one byte; nothing once the connection is closed.
    pub(super) async fn receive(&self) -> Option<Vec<u8>> {
        poll_fn(|cx| {
            loop {
                let mut state = self.lock();
                if !state.to_client.is_empty() {
                    return Poll::Ready(Some(core::mem::take(&mut state.to_client)));
                }
                if state.is_closed {
                    return Poll::Ready(None);
                }
                drop(state);
                if self.client.poll_notified(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Either end closes.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.server.notify();
        self.client.notify();
    }

    fn reply(&self, bytes: &[u8]) {
        self.lock().to_client.extend_from_slice(bytes);
        self.client.notify();
    }
}

/// Closes the connection when the server's end goes, however it does.
struct ServerEnd(Arc<Pipe>);

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Who connects.
pub(super) fn link(peer: String, is_server: bool) -> Link {
    Link { peer, local: String::new(), descriptor: -1, is_unix: false, is_tls: false, is_server }
}

/// The server's end of a connection, from its beginning to its end.
pub(super) async fn serve(engine: Arc<Engine>, pipe: Arc<Pipe>, link: Link, host: Arc<dyn EngineHost>) {
    let end = ServerEnd(pipe);
    let woken = Arc::new(Notify::default());
    let wake = Arc::clone(&woken);
    let mailbox = Arc::new(Mailbox::new(Box::new(move || wake.notify())));
    let Ok(session) = Session::open(engine, mailbox, link, host.now()) else { return };
    let mut serving = Serving { session, rest: Vec::new(), pipe: Arc::clone(&end.0), host };
    let mut next = Next::Read;
    loop {
        let is_held = serving.flush(next);
        next = match next {
            Next::Drop => return,
            Next::Close if !is_held => return,
            Next::More if !is_held => serving.run(),
            waits => {
                let deadline = if let Next::Wait(deadline) = waits { deadline } else { None };
                let reads = waits == Next::Read && !is_held;
                let mut timer = deadline.map(|at| serving.host.sleep(at.saturating_since(serving.host.now().instant)));
                match poll_fn(|cx| serving.poll_event(&woken, reads, timer.as_mut(), cx)).await {
                    Event::Closed => return,
                    Event::Came => serving.run(),
                    Event::Woken => {
                        let mailed = serving.session.handle_mail();
                        if matches!(waits, Next::Wait(_)) && mailed == Next::Read { serving.run() } else { mailed }
                    }
                    Event::Time => {
                        let waited = serving.session.handle_time(serving.host.now());
                        if waited == Next::Read { serving.run() } else { waited }
                    }
                }
            }
        };
    }
}

enum Event {
    Closed,
    Came,
    Woken,
    Time,
}

struct Serving {
    session: Session,
    /// What came and was not run yet.
    rest: Vec<u8>,
    pipe: Arc<Pipe>,
    host: Arc<dyn EngineHost>,
}

impl Serving {
    /// Sends replies that may leave. Says whether some may not.
    fn flush(&mut self, next: Next) -> bool {
        if next == Next::Drop || self.session.replies().is_empty() {
            return false;
        }
        if self.session.is_held() {
            return true;
        }
        let count = self.session.replies().len();
        self.pipe.reply(self.session.replies());
        self.session.handle_sent(count);
        false
    }

    fn run(&mut self) -> Next {
        let (taken, next) = self.session.feed(&self.rest, self.host.now());
        self.rest.drain(..taken);
        next
    }

    fn poll_event(
        &mut self,
        woken: &Notify,
        reads: bool,
        timer: Option<&mut BoxFuture<()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Event> {
        if woken.poll_notified(cx).is_ready() {
            return Poll::Ready(Event::Woken);
        }
        if timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Event::Time);
        }
        loop {
            let mut state = self.pipe.lock();
            if state.is_closed {
                return Poll::Ready(Event::Closed);
            }
            if reads && !state.to_server.is_empty() {
                self.rest.append(&mut state.to_server);
                return Poll::Ready(Event::Came);
            }
            drop(state);
            if self.pipe.server.poll_notified(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Serves another server's replica on a stream of the grid.
pub(super) async fn serve_stream(engine: Arc<Engine>, stream: ServerStream, peer: String, host: Arc<dyn EngineHost>) {
    let pipe = Arc::<Pipe>::default();
    let ServerStream { mut sender, mut receiver } = stream;
    let (inward, outward) = (Arc::clone(&pipe), Arc::clone(&pipe));
    let mut served: BoxFuture<()> = Box::pin(serve(engine, Arc::clone(&pipe), link(peer, true), host));
    let mut comes: BoxFuture<()> = Box::pin(async move {
        while let Ok(Some(message)) = receiver.receive().await {
            inward.send(&message);
        }
        inward.close();
    });
    let mut leaves: BoxFuture<()> = Box::pin(async move {
        while let Some(bytes) = outward.receive().await {
            for message in bytes.chunks(MESSAGE_BYTES_MAX) {
                if sender.send(message).await.is_err() {
                    return outward.close();
                }
            }
        }
        sender.finish().await.ok();
    });
    let (mut is_served, mut has_come) = (false, false);
    poll_fn(|cx| {
        is_served = is_served || served.as_mut().poll(cx).is_ready();
        has_come = has_come || comes.as_mut().poll(cx).is_ready();
        // What the session has said before it ended leaves.
        leaves.as_mut().poll(cx)
    })
    .await;
}
