//! Between the journal in memory and the log on files: what one thread does, again and again.
//!
//! Sans-IO but for the folder: [`Keeper::turn`] takes what has gathered, writes it, makes it durable when it is due, and says when it
//! wants to be called again. Whoever appends to the journal wakes it earlier.

use std::sync::Arc;
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::journal::Taken;
use super::log::{LogError, Recovered, Report};
use super::{Folder, Log, Replay};
use crate::engine::Engine;
use crate::rdb::ImportOptions;
use crate::settings::LogSync;
use crate::time::Now;

/// How long `everysec` lets the log be ahead of what is durable.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How long nothing was appended before the log says how far it is durable.
const MARK_AFTER: Duration = Duration::from_secs(1);
/// Pause after the file system refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Writes an engine's journal to its log.
#[derive(Debug)]
pub struct Keeper<F> {
    engine: Arc<Engine>,
    log: Log<F>,
    /// What was taken from the journal and is not in the log.
    taken: Option<Taken>,
    synced: Instant,
    appended: Instant,
    /// The file system refused the last time.
    is_refused: bool,
}

/// A snapshot that the log may begin with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewBase {
    /// Its file, durable.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// As [`super::log::BaseChecksum`] has it.
    pub checksum: u64,
    /// Where the journal was cut when it was begun.
    pub position: u64,
    /// Keys in it.
    pub keys: u64,
}

/// What a turn came to.
#[derive(Debug, Default)]
pub struct Turn {
    /// When to call again, if nothing is appended before.
    pub again: Option<Instant>,
    /// Why the file system refused, the first time of several in a row. It is tried again.
    pub refused: Option<LogError>,
}

impl<F: Folder> Keeper<F> {
    /// Recovers the log of a folder into an engine that nobody uses yet, or begins one with this id; from then on the engine's
    /// journal is on. `wake` is called, with locks held, when there is something to write: it must only schedule.
    ///
    /// # Errors
    /// See [`LogError`]. The engine has some of the data then, and must not be used.
    pub fn recover(
        engine: Arc<Engine>,
        folder: F,
        id: [u8; 16],
        wake: Box<dyn Fn() + Send + Sync>,
        now: Now,
    ) -> Result<(Self, Report), LogError> {
        let mut replay = Replay::new(Arc::clone(&engine));
        // What had expired by now may have been changed when it had not.
        let options = ImportOptions { keeps_expired: true, ..ImportOptions::default() };
        let mut base = Some(engine.import_rdb(options));
        let (log, report) = Log::open(folder, id, &mut |found| match found {
            Recovered::Base(bytes) => {
                let base = base.as_mut().ok_or("there are two bases")?;
                base.handle_bytes(bytes, now).map_err(|error| error.to_string())
            }
            Recovered::BaseEnd => {
                let base = base.take().ok_or("there are two bases")?;
                base.finish().map(drop).map_err(|error| error.to_string())
            }
            Recovered::Batch(batch) => replay.handle_batch(batch, now),
        })?;
        drop(base);
        engine.journal.start(log.end(), wake);
        let (synced, appended) = (now.instant, now.instant);
        Ok((Self { engine, log, taken: None, synced, appended, is_refused: false }, report))
    }

    /// Begins a log for an engine that is in use: its journal is on from now on. Recovery finds the log once it has a base; what
    /// was in the folder before is found until then.
    ///
    /// # Errors
    /// See [`LogError`]; nothing has changed.
    pub fn begin(
        engine: Arc<Engine>,
        folder: F,
        id: [u8; 16],
        wake: Box<dyn Fn() + Send + Sync>,
        now: Instant,
    ) -> Result<Self, LogError> {
        let log = Log::supersede(folder, id, engine.journal.end())?;
        engine.journal.start(log.end(), wake);
        Ok(Self { engine, log, taken: None, synced: now, appended: now, is_refused: false })
    }

    /// Writes what has gathered.
    ///
    /// # Errors
    /// [`LogError::Lost`] and [`LogError::Damaged`]: the process must end, since nobody knows what is durable.
    pub fn turn(&mut self, now: Instant) -> Result<Turn, LogError> {
        let sync = self.engine.settings().log_sync;
        match self.write(sync, now) {
            Ok(()) => {
                self.is_refused = false;
                self.engine.journal.refuse(None);
                Ok(Turn { again: self.again(sync), refused: None })
            }
            Err(error @ LogError::Refused { .. }) => {
                self.engine.journal.refuse(Some(error.to_string()));
                let is_first = !std::mem::replace(&mut self.is_refused, true);
                Ok(Turn { again: Some(now + RETRY_AFTER), refused: is_first.then_some(error) })
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, sync: LogSync, now: Instant) -> Result<(), LogError> {
        let mut taken = match self.taken.take() {
            Some(taken) => taken,
            None => self.engine.journal.take(),
        };
        let appended = self.log.append(&taken.batch);
        if appended.is_ok() && !taken.batch.is_empty() {
            (taken.batch, self.appended) = (Vec::new(), now);
        }
        let cut = if appended.is_ok() && taken.then_cut { self.log.rotate().map(drop) } else { Ok(()) };
        if let Err(error) = appended.and(cut) {
            self.taken = Some(taken);
            return Err(error);
        }
        let is_due = match sync {
            LogSync::Always => true,
            LogSync::EverySecond => now >= self.synced + SYNC_EVERY,
            LogSync::No => false,
        };
        if is_due && self.log.durable() < self.log.end() {
            self.log.sync()?;
        }
        if is_due {
            self.synced = now;
        }
        let released = if sync == LogSync::Always { self.log.durable() } else { self.log.end() };
        self.engine.journal.release(released);
        self.engine.note_durable(self.log.durable());
        if now >= self.appended + MARK_AFTER {
            self.log.mark()?;
        }
        Ok(())
    }

    fn again(&self, sync: LogSync) -> Option<Instant> {
        let is_behind = self.log.durable() < self.log.end();
        if is_behind && sync == LogSync::EverySecond {
            return Some(self.synced + SYNC_EVERY);
        }
        self.log.wants_mark().then(|| self.appended + MARK_AFTER)
    }

    /// The log begins with a snapshot from now on; what was before it is removed.
    ///
    /// # Errors
    /// Nothing has changed; safe to retry.
    pub fn install(&mut self, base: &NewBase) -> Result<(), LogError> {
        self.log.install_base(base)
    }

    /// The log.
    pub fn log(&self) -> &Log<F> {
        &self.log
    }

    /// Writes what is left, durably, and closes the log.
    ///
    /// # Errors
    /// What was not acknowledged may be lost.
    pub fn finish(mut self, now: Instant) -> Result<(), LogError> {
        self.engine.journal.stop();
        self.write(LogSync::Always, now)?;
        self.engine.journal.release(self.log.end());
        self.log.close()
    }
}
