//! Connections that do nothing while others are measured: what each takes of the server's memory, and whether it is served after all.

use super::Study;
use super::login::say;
use super::replies::Scanner;
use super::request::plain;
use crate::bench::report::Row;
use crate::failure::Failure;
use crate::os::clock;
use crate::os::poll::Stream;
use crate::os::process;

/// Connections that have said who they are, and nothing since.
#[derive(Debug)]
pub struct Idle {
    streams: Vec<Stream>,
    opened_per_s: f64,
    /// By how much the server's memory grew for each, if its process is known.
    bytes_each: Option<f64>,
}

impl Idle {
    /// Opens as many as the study wants.
    ///
    /// # Errors
    /// The server cannot be reached, or there may be no more. Retry safe.
    pub fn open(study: &Study) -> Result<Self, Failure> {
        let resident = || study.of_processes(process::resident_of);
        let (began, before) = (clock::now(), resident());
        let mut streams = Vec::with_capacity(study.idle);
        for primary in study.primaries.iter().cycle().take(study.idle) {
            streams.push(study.login.open(&primary.target)?);
        }
        let opened_per_s = study.idle as f64 / clock::now().saturating_since(began).as_secs_f64();
        let grown = before.zip(resident()).map(|(before, after)| after as f64 - before as f64);
        Ok(Self { streams, opened_per_s, bytes_each: grown.map(|bytes| bytes / study.idle.max(1) as f64) })
    }

    /// Asks for a reply on each, one after the other.
    ///
    /// # Errors
    /// One of them has none.
    pub fn row(mut self, study: &Study) -> Result<Row, Failure> {
        let (ping, began) = (plain(&["PING"]), clock::now());
        for (stream, primary) in self.streams.iter_mut().zip(study.primaries.iter().cycle()) {
            say(stream, &primary.target, &ping, &mut Scanner::default())?;
        }
        let count = self.streams.len() as f64;
        let mut row = Row::new("idle", count, "connections")
            .with("opened_per_s", self.opened_per_s)
            .with("served_per_s", count / clock::now().saturating_since(began).as_secs_f64());
        if let Some(bytes) = self.bytes_each {
            row = row.with("server_bytes_each", bytes);
        }
        Ok(row)
    }
}
