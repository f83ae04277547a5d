//! The link of an engine to the primary that it follows, if it follows one.
//!
//! What is to be done, the engine says ([`Step`]); this task does it: it connects, sends, reads, and keeps a dump in a file until it is
//! whole. It runs on a thread of its own, because applying what comes may take long.

use core::future::poll_fn;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use ashlar_kv::network::Broken;
use ashlar_kv::replicate::{Follower, Step, Upstream};
use ashlar_kv::{Engine, Link};

use super::host::{Connection, DumpFile, EngineHost, within};
use super::planted::{self, Planted};
use super::replication_streams::ReplicationStreams;
use crate::together;

/// Bytes that are read at a time, of a connection and of the file.
const READ_BYTES: usize = 256 << 10;
/// How long a connection may take to take what is sent.
const SEND_MAX: Duration = Duration::from_secs(5);

/// Keeps the link for ever: whoever runs it drops it.
pub async fn follow(engine: Arc<Engine>, streams: Option<Arc<ReplicationStreams>>, host: Arc<dyn EngineHost>) {
    let follower = Follower::new(Arc::clone(&engine));
    let room = vec![0; READ_BYTES];
    let mut link = FollowerLink { engine, follower, streams, host, connection: None, file: None, room };
    loop {
        let step = link.follower.next_step(link.host.now());
        if let Err(why) = link.take(step).await {
            if planted::has(Planted::FollowOnce) {
                core::future::pending::<()>().await;
            }
            link.hang_up();
            link.follower.handle_broken(&why, link.host.now());
        }
    }
}

struct FollowerLink {
    engine: Arc<Engine>,
    follower: Follower,
    /// How engines of other servers are reached; nothing where they follow each other by plain connections.
    streams: Option<Arc<ReplicationStreams>>,
    host: Arc<dyn EngineHost>,
    connection: Option<Box<dyn Connection>>,
    file: Option<Box<dyn DumpFile>>,
    room: Vec<u8>,
}

/// A connection to that engine.
pub(super) async fn connect(
    host: &dyn EngineHost,
    streams: Option<&Arc<ReplicationStreams>>,
    upstream: &Upstream,
    span: Duration,
) -> Result<Box<dyn Connection>, Broken> {
    let connected = match (upstream, streams) {
        (Upstream::Server { id, host: name, port }, Some(streams)) => {
            within(host, span, streams.connect(*id, name, *port)).await
        }
        _ => {
            let (name, port) = upstream.place();
            within(host, span, host.connect(name, port)).await
        }
    };
    connected.ok_or(Broken::TooLate)?
}

impl FollowerLink {
    /// Does one thing.
    async fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Rest(span) => {
                let changed = poll_fn(|cx| self.follower.poll_changed(cx));
                within(&*self.host, span, changed).await;
            }
            Step::Dial { upstream, span } => {
                let (host, port) = upstream.place();
                let connected = connect(&*self.host, self.streams.as_ref(), &upstream, span).await;
                let connection = connected.map_err(|broken| match broken {
                    Broken::TooLate => format!("{host}:{port} does not answer"),
                    Broken::Gone => format!("{host}:{port} cannot be reached"),
                })?;
                let (peer, local) = connection.ends();
                self.connection = Some(connection);
                let link = Link { peer, local, descriptor: -1, is_unix: false, is_tls: false, is_server: false };
                self.follower.handle_connected(link, self.host.now());
            }
            Step::Send(bytes) => {
                // The primary is told only of what the death of this process does not undo.
                self.engine.write_log();
                let connection = self.connection.as_mut().ok_or("there is no connection")?;
                let sent = within(&*self.host, SEND_MAX, connection.write(&bytes)).await;
                sent.and_then(Result::ok).ok_or_else(|| "it takes nothing any more".to_owned())?;
            }
            Step::Receive(span) => self.receive(span).await?,
            Step::Keep(bytes) => {
                self.keep(&bytes).map_err(|error| format!("the dump cannot be kept in a file: {error}"))?;
            }
            Step::Load => self.load().map_err(|error| format!("the dump cannot be read from its file: {error}"))?,
            Step::HangUp => self.hang_up(),
        }
        Ok(())
    }

    /// Reads what comes, until the role changes or the time is over.
    async fn receive(&mut self, span: Duration) -> Result<(), String> {
        let connection = self.connection.as_mut().ok_or("there is no connection")?;
        let changed = poll_fn(|cx| self.follower.poll_changed(cx));
        let read = together::first(connection.read(&mut self.room), changed);
        match within(&*self.host, span, read).await.flatten() {
            Some(Ok(count)) => self.follower.handle_bytes(&self.room[..count], self.host.now()),
            Some(Err(Broken::Gone)) => return Err("it has closed the connection".to_owned()),
            Some(Err(Broken::TooLate)) | None => {}
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.host.dump_file()?),
        };
        file.append(bytes)
    }

    fn load(&mut self) -> io::Result<()> {
        let count = match &mut self.file {
            None => 0,
            Some(file) => file.read(&mut self.room)?,
        };
        self.follower.handle_kept(&self.room[..count], self.host.now());
        if count == 0 {
            self.file = None;
        }
        Ok(())
    }

    fn hang_up(&mut self) {
        (self.connection, self.file) = (None, None);
    }
}
