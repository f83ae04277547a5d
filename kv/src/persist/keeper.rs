//! The work of the log's thread: syncing, rotating, retrying, and writing what no other thread writes.
//!
//! Sans-IO but for the folder: [`Keeper::turn`] writes what waits in the journal, makes the file durable when that is due, and
//! says when it wants to be called again. Threads that reply write as well (see `writer`), beside a sync. An append to the
//! journal wakes the keeper, unless it looks again soon by itself.

use std::sync::Arc;
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::journal::Taken;
use super::log::{LogError, Recovered, Report};
use super::writer::{Progress, Writer};
use super::{Folder, Log, Replay};
use crate::engine::Engine;
use crate::rdb::ImportOptions;
use crate::settings::LogSync;
use crate::time::Now;

/// How long `everysec` lets the log be ahead of what is durable.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How long nothing was appended before the log says how far it is durable.
const MARK_AFTER: Duration = Duration::from_secs(1);
/// How long what nobody is told of may wait to be written, while there is something to write again and again.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Pause after the file system refused.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Writes an engine's journal to its log.
#[derive(Debug)]
pub struct Keeper<F> {
    engine: Arc<Engine>,
    writer: Arc<Writer<F>>,
    synced: Instant,
    /// Where the log ended when the keeper last looked, and since when.
    seen: (u64, Instant),
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

impl<F: Folder + Send + 'static> Keeper<F> {
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
        Ok((Self::new(engine, log, now.instant), report))
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
        Ok(Self::new(engine, log, now))
    }

    fn new(engine: Arc<Engine>, log: Log<F>, now: Instant) -> Self {
        let (seen, writer) = ((log.end(), now), Arc::new(Writer::new(log)));
        engine.journal.attach(Arc::clone(&writer) as _);
        Self { engine, writer, synced: now, seen, is_refused: false }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// [`LogError::Lost`] and [`LogError::Damaged`]: the process must end, since nobody knows what is durable.
    pub fn turn(&mut self, now: Instant) -> Result<Turn, LogError> {
        let sync = self.engine.settings().log_sync;
        match self.write(sync, now) {
            Ok(has_more) => {
                self.is_refused = false;
                self.engine.journal.refuse(None);
                Ok(Turn { again: self.again(sync, has_more, now), refused: None })
            }
            Err(error @ LogError::Refused { .. }) => {
                self.engine.journal.refuse(Some(error.to_string()));
                let is_first = !std::mem::replace(&mut self.is_refused, true);
                Ok(Turn { again: Some(now + RETRY_AFTER), refused: is_first.then_some(error) })
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether something was written since the last time.
    fn write(&mut self, sync: LogSync, now: Instant) -> Result<bool, LogError> {
        self.write_waiting()?;
        let end = self.look(Log::end);
        let has_more = self.seen.0 != end;
        if has_more {
            self.seen = (end, now);
        }
        let is_due = match sync {
            LogSync::Always => true,
            LogSync::EverySecond => now >= self.synced + SYNC_EVERY,
            LogSync::No => false,
        };
        if is_due && self.look(Log::durable) < end {
            self.sync()?;
        }
        if is_due {
            self.synced = now;
        }
        let durable = self.look(Log::durable);
        self.engine.journal.note_durable(durable);
        self.engine.note_durable(durable);
        if now >= self.seen.1 + MARK_AFTER {
            self.writer.lock().log().mark()?;
        }
        Ok(has_more)
    }

    /// Writes what waits, and does what other threads have left: a cut, and what follows an append that failed.
    fn write_waiting(&self) -> Result<(), LogError> {
        loop {
            let mut slot = self.writer.lock();
            if slot.write(&self.engine.journal)? == Progress::Done {
                return Ok(());
            }
            let (mut log, mut undone) = slot.take_out();
            drop(slot);
            let done = finish_undone(&mut log, &mut undone);
            self.writer.lock().put_back(log, undone, &self.engine.journal);
            done?;
        }
    }

    /// Writes what waits and makes everything durable, whatever `appendfsync` says.
    ///
    /// # Errors
    /// [`LogError::Refused`]: the file system does not take it now; it is kept, and tried again. Otherwise the process must end.
    pub fn sync_now(&mut self, now: Instant) -> Result<(), LogError> {
        self.write_waiting()?;
        if self.look(Log::durable) < self.look(Log::end) {
            self.sync()?;
        }
        self.synced = now;
        Ok(())
    }

    /// Waits for the drive, while other threads go on writing.
    fn sync(&self) -> Result<(), LogError> {
        let pending = self.writer.lock().log().begin_sync();
        let durable = pending.run()?;
        self.writer.lock().log().note_durable(durable);
        Ok(())
    }

    fn again(&self, sync: LogSync, has_more: bool, now: Instant) -> Option<Instant> {
        // As long as there is something to write, the keeper looks again without being woken for each command.
        let looks = sync != LogSync::Always && has_more;
        let is_waiting = self.engine.journal.attend(looks);
        let (is_behind, wants_mark) = self.look(|log| (log.durable() < log.end(), log.wants_mark()));
        let looked = looks.then(|| now + LOOK_EVERY);
        let synced = (is_behind && sync == LogSync::EverySecond).then(|| self.synced + SYNC_EVERY);
        let marked = wants_mark.then(|| self.seen.1 + MARK_AFTER);
        let missed = (is_waiting && !looks).then_some(now);
        [looked, synced, marked, missed].into_iter().flatten().min()
    }

    /// The log begins with a snapshot from now on; what was before it is removed.
    ///
    /// # Errors
    /// Nothing has changed; safe to retry.
    pub fn install(&mut self, base: &NewBase) -> Result<(), LogError> {
        self.writer.lock().log().install_base(base)
    }

    /// Looks at the log, which no other thread writes to meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&Log<F>) -> T) -> T {
        look(self.writer.lock().log())
    }

    /// Writes what is left, durably, and closes the log.
    ///
    /// # Errors
    /// What was not acknowledged may be lost.
    pub fn finish(mut self, now: Instant) -> Result<(), LogError> {
        self.engine.journal.stop();
        self.write(LogSync::Always, now)?;
        let (log, _) = self.writer.lock().take_out();
        self.engine.journal.release(log.end());
        log.close()
    }
}

/// Does what was left undone. What is done of it is not done again.
fn finish_undone<F: Folder>(log: &mut Log<F>, undone: &mut Option<Taken>) -> Result<(), LogError> {
    let Some(taken) = undone else {
        // Nothing is missing; the file has part of a mark.
        return log.rotate().map(drop);
    };
    log.append(&taken.batch)?;
    taken.batch = Vec::new();
    if taken.then_cut {
        log.rotate()?;
    }
    *undone = None;
    Ok(())
}
