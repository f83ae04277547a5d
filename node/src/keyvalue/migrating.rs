//! Moves slots of an engine to other nodes, and tidies up what moving leaves behind.
//!
//! What is to be done, the engine says ([`Step`]); this task does it: it connects, sends and reads. It runs on a thread of its own, because
//! copying keys may take long.

use core::future::poll_fn;
use core::time::Duration;
use std::sync::Arc;

use ashlar_kv::Engine;
use ashlar_kv::cluster::migration::{Migrator, Step};
use ashlar_kv::network::Broken;

use super::following::connect;
use super::host::{Connection, EngineHost, within};
use super::replication_streams::ReplicationStreams;

/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;
/// Bytes that are sent at a time, and how long the other side may take to take them.
const SEND_BYTES: usize = 64 << 10;
const SEND_MAX: Duration = Duration::from_secs(5);

/// Moves slots for ever: whoever runs it drops it.
pub async fn move_slots(engine: Arc<Engine>, streams: Option<Arc<ReplicationStreams>>, host: Arc<dyn EngineHost>) {
    let mut link = MigratorLink { migrator: Migrator::new(engine), streams, host, connection: None };
    loop {
        let step = link.migrator.next_step(link.host.now());
        if let Err(why) = link.take(step).await {
            link.connection = None;
            link.migrator.handle_broken(why, link.host.now());
        }
    }
}

struct MigratorLink {
    migrator: Migrator,
    /// How engines of other servers are reached; nothing where they are by plain connections.
    streams: Option<Arc<ReplicationStreams>>,
    host: Arc<dyn EngineHost>,
    connection: Option<Box<dyn Connection>>,
}

impl MigratorLink {
    /// Does one thing.
    async fn take(&mut self, step: Step) -> Result<(), &'static str> {
        const NO_CONNECTION: &str = "there is no connection";
        let host = &*self.host;
        match step {
            Step::Rest(span) => drop(within(host, span, poll_fn(|cx| self.migrator.poll_news(cx))).await),
            Step::Dial { target, span } => {
                let connected = connect(host, self.streams.as_ref(), &target, span).await;
                self.connection = Some(connected.map_err(|broken| match broken {
                    Broken::TooLate => "it does not answer",
                    Broken::Gone => "it cannot be reached",
                })?);
                self.migrator.handle_connected(host.now());
            }
            Step::Send(bytes) => {
                let connection = self.connection.as_mut().ok_or(NO_CONNECTION)?;
                for piece in bytes.chunks(SEND_BYTES) {
                    let sent = within(host, SEND_MAX, connection.write(piece)).await;
                    sent.and_then(Result::ok).ok_or("it takes nothing any more")?;
                }
            }
            Step::Receive(span) => {
                let mut room = [0; READ_BYTES];
                let connection = self.connection.as_mut().ok_or(NO_CONNECTION)?;
                match within(host, span, connection.read(&mut room)).await {
                    Some(Ok(count)) => self.migrator.handle_bytes(&room[..count], host.now()),
                    Some(Err(Broken::Gone)) => return Err("it has closed the connection"),
                    Some(Err(Broken::TooLate)) | None => {}
                }
            }
            Step::HangUp => self.connection = None,
        }
        Ok(())
    }
}
