//! The log, shared by all threads that write to it.
//!
//! A thread that is about to reply takes the lock, takes all that waits in the journal, and writes it with one append: what
//! other threads have appended goes with it, so they find it written when they get the lock. Syncing happens outside the lock.
//! What takes long, and what follows an append that failed, is the keeper's alone: it takes the log out meanwhile, and others
//! wait for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Folder;
use super::journal::{Journal, Taken, WriteOut};
use super::log::{Log, LogError};

/// Room that is kept for the next batch, bytes.
const SPARE_BYTES_MAX: usize = 1 << 20;

/// The log behind a lock.
#[derive(Debug)]
pub(super) struct Writer<F>(Mutex<Slot<F>>);

#[derive(Debug)]
pub(super) struct Slot<F> {
    /// Nothing while the keeper has it.
    log: Option<Log<F>>,
    /// What was taken from the journal and could not be written, or a cut that was not made yet. The keeper is needed.
    undone: Option<Taken>,
    spare: Vec<u8>,
}

/// How far a write came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The file has everything that was appended before.
    Done,
    /// The keeper must do something first.
    NeedsKeeper,
}

impl<F: Folder> Writer<F> {
    pub(super) fn new(log: Log<F>) -> Self {
        Self(Mutex::new(Slot { log: Some(log), undone: None, spare: Vec::new() }))
    }

    /// The log, which is there unless the keeper has taken it out.
    pub(super) fn lock(&self) -> MutexGuard<'_, Slot<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Folder> Slot<F> {
    /// Appends to the file what waits in the journal.
    ///
    /// # Errors
    /// The file system refused: what was taken is kept for the keeper.
    pub(super) fn write(&mut self, journal: &Journal) -> Result<Progress, LogError> {
        let Some(log) = self.log.as_mut().filter(|log| self.undone.is_none() && !log.is_broken()) else {
            return Ok(Progress::NeedsKeeper);
        };
        let mut taken = journal.take_for(std::mem::take(&mut self.spare));
        if let Err(error) = log.append(&taken.batch) {
            self.undone = Some(taken);
            return Err(error);
        }
        journal.note_written(log.end());
        self.spare = std::mem::take(&mut taken.batch);
        self.spare.clear();
        self.spare.shrink_to(SPARE_BYTES_MAX);
        if taken.then_cut {
            self.undone = Some(taken);
            return Ok(Progress::NeedsKeeper);
        }
        Ok(Progress::Done)
    }

    /// The log, for whoever does not write what waits.
    pub(super) fn log(&mut self) -> &mut Log<F> {
        self.log.as_mut().expect("only the keeper takes it out")
    }

    /// Takes the log out: others wait for the keeper until it is back.
    pub(super) fn take_out(&mut self) -> (Log<F>, Option<Taken>) {
        (self.log.take().expect("only the keeper takes it out"), self.undone.take())
    }

    /// The log is back; what was not done is tried again.
    pub(super) fn put_back(&mut self, log: Log<F>, undone: Option<Taken>, journal: &Journal) {
        journal.note_written(log.end());
        (self.log, self.undone) = (Some(log), undone);
    }
}

impl<F: Folder + Send> WriteOut for Writer<F> {
    fn write_out(&self, journal: &Journal, position: u64) -> bool {
        let mut slot = self.lock();
        if journal.has(position, false) {
            return true;
        }
        let written = slot.write(journal);
        drop(slot);
        if let Err(error) = written {
            // The thread that is woken sees whether the refusal still holds.
            journal.refuse(Some(error.to_string()));
            journal.wake();
        }
        journal.has(position, false)
    }
}
