//! The key-value service's doors: RESP over TCP, TLS and unix sockets, and over streams of the grid for replicas.
//!
//! A connection lives and dies on one worker. What came is run where it lies, in room that the connections of a thread share,
//! and the replies leave with one write; only when the kernel takes no more does the connection wait to write. While a command of the
//! client waits, its further requests stay in the kernel. Requests that make many bytes of replies run in turns, between which other
//! connections are served, and wait while the client does not take its replies.

mod door;
mod room;
mod socket;
mod stream;
mod tls;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ashlar_kv::{Engine, Link, Mailbox, Next, Rejected, Session};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;

pub use door::Door;
use door::{Encrypted, Entrance, Local, Plain};
use socket::Socket;
pub use stream::visit;

use crate::os::clock;

/// Room for a request that has not come whole which a connection keeps for the next one, bytes.
const REST_BYTES_MAX: usize = 4 << 10;
/// Pause after the operating system refused to accept, for instance for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every connection needs.
#[derive(Debug, Clone)]
pub struct Service {
    /// Where commands run.
    pub engine: Arc<Engine>,
    /// Changes when the thread of the append log has written, synced, or given up for now.
    pub released: watch::Receiver<()>,
    /// Which of the workers this is, from 0.
    pub worker: usize,
}

/// Accepts on the current worker until told to stop.
///
/// # Errors
/// The listener cannot be used on this worker.
pub async fn serve(service: Service, door: Door, stop: watch::Receiver<bool>) -> io::Result<()> {
    match door {
        Door::Tcp(listener) => accept(service, Plain(TcpListener::from_std(listener)?), stop).await,
        Door::Tls(listener, config) => {
            let entrance = Encrypted(TcpListener::from_std(listener)?, TlsAcceptor::from(config));
            accept(service, entrance, stop).await;
        }
        Door::Unix(listener, path) => {
            accept(service, Local(UnixListener::from_std(listener)?, path.into()), stop).await;
        }
    }
    Ok(())
}

async fn accept<E: Entrance>(service: Service, entrance: E, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = entrance.accept() => accepted,
            _ = stop.wait_for(|&stop| stop) => return,
        };
        match accepted {
            Ok(raw) => {
                let service = service.clone();
                tokio::spawn(async move {
                    if let Err(error) = live::<E>(service, raw).await {
                        tracing::debug!(%error, "connection lost");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                clock::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection from its first byte to its last.
async fn live<E: Entrance>(service: Service, raw: E::Raw) -> io::Result<()> {
    let (stream, link) = E::greet(raw, service.engine.keepalive()).await?;
    match Connection::new(service, stream, link) {
        Ok(connection) => connection.live().await,
        // Who does not take it at once is not told.
        Err((mut stream, why)) => stream.try_write(why.reply()).map(|_| stream.close()),
    }
}

struct Connection<S> {
    stream: S,
    session: Session,
    /// What came and was not run yet.
    rest: Vec<u8>,
    woken: Arc<Notify>,
    /// Changes when the thread of the append log has written, synced, or given up for now.
    released: watch::Receiver<()>,
}

impl<S: Socket> Connection<S> {
    /// A connection, if it may come in.
    fn new(Service { engine, released, worker }: Service, stream: S, link: Link) -> Result<Self, (S, Rejected)> {
        let woken = Arc::new(Notify::new());
        let wake = Arc::clone(&woken);
        let mailbox = Arc::new(Mailbox::new(Box::new(move || wake.notify_one())));
        let session = match Session::open(engine, mailbox, link, clock::now_both()) {
            Ok(session) => session.on_worker(worker),
            Err(why) => return Err((stream, why)),
        };
        Ok(Self { stream, session, rest: Vec::new(), woken, released })
    }

    /// Until the client or the session ends it.
    async fn live(mut self) -> io::Result<()> {
        let mut next = Next::Read;
        loop {
            next = self.send(next).await?;
            next = match next {
                Next::Close | Next::Drop => {
                    self.stream.close();
                    return Ok(());
                }
                Next::Read => tokio::select! {
                    biased;
                    came = poll_fn(|cx| room::poll_read(&mut self.stream, &mut self.rest, cx)) => match came? {
                        Some(came) => self.run(came.bytes()),
                        None => return Ok(()),
                    },
                    () = self.woken.notified() => {
                        // Whoever else is ready goes first: what all of them have for a replica or a subscriber leaves at once.
                        tokio::task::yield_now().await;
                        self.session.handle_mail()
                    }
                },
                Next::More => {
                    tokio::task::yield_now().await;
                    self.run(&[])
                }
                Next::Wait(deadline) => {
                    let is_over = async {
                        match deadline {
                            Some(deadline) => clock::sleep_until(deadline).await,
                            None => core::future::pending().await,
                        }
                    };
                    let waited = tokio::select! {
                        () = self.woken.notified() => self.session.handle_mail(),
                        () = is_over => self.session.handle_time(clock::now_both()),
                        gone = self.stream.gone() => return gone,
                    };
                    self.go_on(waited)
                }
            };
        }
    }

    /// After a wait: runs what came behind the command that waited.
    fn go_on(&mut self, waited: Next) -> Next {
        if waited == Next::Read { self.run(&[]) } else { waited }
    }

    /// Runs what came, as far as it is whole.
    fn run(&mut self, came: &[u8]) -> Next {
        room::lend(&mut self.session);
        if self.rest.is_empty() {
            let (taken, next) = self.session.feed(came, clock::now_both());
            self.rest.extend_from_slice(&came[taken..]);
            return next;
        }
        self.rest.extend_from_slice(came);
        let (taken, next) = self.session.feed(&self.rest, clock::now_both());
        self.rest.drain(..taken);
        if self.rest.is_empty() {
            self.rest.shrink_to(REST_BYTES_MAX);
        }
        next
    }

    /// What came while replies had not left yet: what is to be done after them, which was `next` before.
    fn take_mail(&mut self, next: Next) -> Next {
        let mailed = self.session.handle_mail();
        if matches!(next, Next::Wait(_)) { self.go_on(mailed) } else { mailed }
    }

    /// Sends all replies, also those that come while the client is slow to take them, but none before the log has what it
    /// tells, and where a majority of copies must have it, in those. If more can run, some may be left that the client does not take
    /// now. Returns what to do then: `next`, unless something came that changes it.
    async fn send(&mut self, mut next: Next) -> io::Result<Next> {
        while next != Next::Drop && (!self.session.replies().is_empty() || self.stream.is_unsent()) {
            if let Some(position) = self.session.holds() {
                self.wait_for_log(position).await?;
            }
            if self.session.is_held() {
                tokio::select! {
                    () = self.woken.notified() => next = self.take_mail(next),
                    gone = self.stream.gone() => return gone.map(|()| Next::Drop),
                }
                continue;
            }
            match self.stream.try_write(self.session.replies()) {
                Ok(count) => {
                    self.session.handle_sent(count);
                    if !self.session.replies().is_empty() {
                        // A client that takes as fast as this writes does not hold up others.
                        tokio::task::yield_now().await;
                    }
                }
                // What else it has sent may run meanwhile.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && next == Next::More
                        && !self.session.is_untaken() =>
                {
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                    ready = self.stream.writable() => ready?,
                    () = self.woken.notified() => next = self.take_mail(next),
                },
                Err(error) => return Err(error),
            }
        }
        if next != Next::Drop
            && let Some(position) = self.session.is_log_behind()
        {
            self.wait_for_log(position).await?;
        }
        room::take_back(&mut self.session);
        Ok(next)
    }

    /// Until the append log has everything up to a position, or says that it cannot be written.
    async fn wait_for_log(&mut self, position: u64) -> io::Result<()> {
        if !self.session.waits_for_drive() {
            // What comes from other connections of this worker is written with it.
            tokio::task::yield_now().await;
        }
        loop {
            self.released.borrow_and_update();
            if self.session.write_out(position) {
                return Ok(());
            }
            let changed = self.released.changed().await;
            changed.map_err(|_| io::Error::other("the append log is closed"))?;
        }
    }
}
