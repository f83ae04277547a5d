//! The append log is turned on by the thread of the client that asks for it, which is told whether that went well.
//!
//! The directory of the log has one owner at a time in this process: the thread that takes snapshots, where it has a log or is
//! working there, or else who opens one. What was opened lies here until that thread looks. It never waits for settings while it has the
//! lock, and who opens has both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ashlar_kv::Engine;
use ashlar_kv::persist::{Files, NotOpened, Opener};

use super::Released;
use super::log::LogThread;

/// Shared by who opens and the thread that takes snapshots.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    engine: Weak<Engine>,
    released: Released,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// It is to be on, although the settings may not say so yet.
    is_wanted: bool,
    /// The thread that takes snapshots has the directory.
    is_taken: bool,
    opened: Option<LogThread>,
}

impl Opening {
    /// For an engine whose log was not opened by this.
    pub(super) fn of(engine: &Arc<Engine>, released: Released) -> Self {
        Self { engine: Arc::downgrade(engine), released, state: Arc::default() }
    }

    /// Whether the log is to be on, of which the settings said `is_on` a moment ago. `log` is what the thread that takes
    /// snapshots has; it gets what was opened, and has the directory from now on if there is something to do.
    pub(super) fn is_wanted(&self, is_on: bool, log: &mut Option<LogThread>) -> bool {
        let mut state = self.state();
        state.is_wanted &= !is_on;
        let is_wanted = is_on || state.is_wanted;
        *log = log.take().or_else(|| state.opened.take());
        state.is_taken = is_wanted || log.is_some();
        is_wanted
    }

    /// The thread that takes snapshots has the directory from now on, and gets what was opened.
    pub(super) fn take_place(&self, log: &mut Option<LogThread>) {
        let mut state = self.state();
        *log = log.take().or_else(|| state.opened.take());
        state.is_taken = true;
    }

    /// It does not need the directory any more, unless it has a log.
    pub(super) fn give_up_place(&self, log: Option<&LogThread>) {
        self.state().is_taken = log.is_some();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opener for Opening {
    fn open(&self, files: &Files) -> Result<(), NotOpened> {
        let engine = self.engine.upgrade().ok_or(NotOpened)?;
        let mut state = self.state();
        if !state.is_taken && state.opened.is_none() {
            let opened = super::begin(&engine, files, &self.released);
            state.opened = Some(opened.map_err(|failure| {
                tracing::error!("{failure}");
                NotOpened
            })?);
            tracing::info!("an append log is begun: it counts when it has a base");
        }
        state.is_wanted = true;
        Ok(())
    }

    fn take_back(&self) {
        self.state().is_wanted = false;
    }
}
