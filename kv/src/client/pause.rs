//! Holding clients back for a while (`CLIENT PAUSE`).
//!
//! A session asks before it runs a command; one that is held back leaves its mailbox here, is told when the pause ends, and
//! reads the same request again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{ClientId, Mailbox};

/// What is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Scope {
    #[default]
    Nothing,
    /// What may change keys or reach replicas.
    Writes,
    All,
}

/// After how long who is held back by a failover, or by the end of the process, asks again, milliseconds.
const LOOK_MS: i64 = 1_000;

/// Who is held back, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The scope as a number: nearly always 0, and then nobody locks.
    scope: AtomicU8,
    held: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scope: Scope,
    until_ms: i64,
    /// Writes are held back because the role goes to another server, for as long as that takes.
    is_failover: bool,
    /// Writes are held back because the process is about to end.
    is_stopping: bool,
    held: BTreeMap<ClientId, Arc<Mailbox>>,
}

impl State {
    /// Whether writes are held back for as long as it takes.
    fn holds_writes(&self) -> bool {
        self.is_failover || self.is_stopping
    }
}

impl Pause {
    /// Whether anything is held back.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.scope.load(Ordering::Relaxed) != 0
    }

    /// Holds back until a time of the monotonic clock in milliseconds. Of a pause that is on already the later end holds, and the wider scope.
    pub(crate) fn begin(&self, scope: Scope, until_ms: i64, now_ms: i64) {
        let mut state = self.state();
        if state.until_ms <= now_ms {
            self.lift(&mut state);
        }
        state.scope = state.scope.max(scope);
        state.until_ms = state.until_ms.max(until_ms);
        self.publish(&state);
        if state.until_ms <= now_ms {
            self.lift(&mut state);
        }
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.lift(&mut self.state());
    }

    /// Ends it if its time is over.
    pub(crate) fn handle_tick(&self, now_ms: i64) {
        if self.is_on() {
            let mut state = self.state();
            if state.scope != Scope::Nothing && state.until_ms <= now_ms {
                self.lift(&mut state);
            }
        }
    }

    /// A failover begins to hold writes back, or ends.
    pub(crate) fn set_failover(&self, is_on: bool) {
        let mut state = self.state();
        state.is_failover = is_on;
        self.publish(&state);
        if !is_on {
            state.held.values().for_each(|mailbox| mailbox.nudge());
        }
    }

    /// Writes are held back from now on because the process is about to end; or it goes on after all.
    pub(crate) fn set_stopping(&self, is_on: bool) {
        let mut state = self.state();
        state.is_stopping = is_on;
        self.publish(&state);
        if !is_on {
            state.held.values().for_each(|mailbox| mailbox.nudge());
        }
    }

    fn publish(&self, state: &State) {
        let scope = if state.holds_writes() { state.scope.max(Scope::Writes) } else { state.scope };
        self.scope.store(scope as u8, Ordering::Relaxed);
    }

    /// Why something is held back, what, and for how many milliseconds, as INFO shows it.
    pub(crate) fn shown(&self, now_ms: i64) -> (&'static str, &'static str, i64) {
        let state = self.state();
        let left_ms = (state.until_ms - now_ms).max(0);
        match state.scope {
            Scope::Nothing | Scope::Writes if state.is_stopping => ("shutdown_in_progress", "write", left_ms),
            Scope::Nothing | Scope::Writes if state.is_failover => ("failover_in_progress", "write", left_ms),
            Scope::All if left_ms > 0 => ("client_pause", "all", left_ms),
            Scope::Writes if left_ms > 0 => ("client_pause", "write", left_ms),
            _ => ("none", "none", 0),
        }
    }

    /// Holds a client back if the pause is about what it wants to do. Returns until when.
    pub(crate) fn hold(&self, client: ClientId, mailbox: &Arc<Mailbox>, may_write: bool, now_ms: i64) -> Option<i64> {
        let mut state = self.state();
        if state.scope != Scope::Nothing && state.until_ms <= now_ms {
            self.lift(&mut state);
        }
        let is_meant = state.scope == Scope::All || state.scope == Scope::Writes && may_write;
        if !(is_meant || state.holds_writes() && may_write) {
            return None;
        }
        state.held.insert(client, Arc::clone(mailbox));
        self.held.store(state.held.len(), Ordering::Relaxed);
        Some(if is_meant { state.until_ms } else { now_ms + LOOK_MS })
    }

    /// A client is held back no more.
    pub(crate) fn release(&self, client: ClientId) {
        let mut state = self.state();
        state.held.remove(&client);
        self.held.store(state.held.len(), Ordering::Relaxed);
    }

    /// How many clients are held back.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn lift(&self, state: &mut State) {
        (state.scope, state.until_ms) = (Scope::Nothing, 0);
        self.publish(state);
        state.held.values().for_each(|mailbox| mailbox.nudge());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
