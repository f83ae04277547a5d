//! Requests to end the process: what clients and signals ask for, and what waiting clients are told if the process goes on.
//!
//! `SHUTDOWN` waits, like a command that waits for a key: it has a reply only if the end is called off. Whoever runs the engine looks
//! for requests, saves what is to be kept while everybody is still served, and calls the end off if that fails.

use std::sync::PoisonError;

use crate::command::run::access;
use crate::engine::Engine;
use crate::keyspace::Lock;
use crate::settings::parameter;
use crate::time::Now;

/// How the process is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shutdown {
    /// With a dump, without one, or with one if any save point is configured.
    pub wants_dump: Option<bool>,
    /// Replicas are not waited for.
    pub is_now: bool,
    /// Even if data cannot be saved.
    pub is_forced: bool,
}

impl Shutdown {
    /// Whether the process goes on if data cannot be saved.
    #[must_use]
    pub fn needs_save(self) -> bool {
        !self.is_forced && self.wants_dump != Some(false)
    }

    /// The request in these words: `save`, `nosave`, `now` and `force`, in any case. Others mean nothing.
    pub(crate) fn of_words<'w>(words: impl Iterator<Item = &'w [u8]>) -> Self {
        let mut request = Self::default();
        for word in words {
            match word.to_ascii_lowercase().as_slice() {
                b"save" => request.wants_dump = Some(true),
                b"nosave" => request.wants_dump = Some(false),
                b"now" => request.is_now = true,
                b"force" => request.is_forced = true,
                _ => {}
            }
        }
        request
    }
}

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// `shutdown-on-sigint` says how.
    Interrupt,
    /// `shutdown-on-sigterm` says how.
    Terminate,
}

impl EndSignal {
    /// As it is known.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

impl Engine {
    /// The process is to end. A request that is there already is replaced.
    pub fn want_stop(&self, request: Shutdown) {
        self.rest.end();
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(request);
    }

    /// The process goes on: writes are taken again, and clients that asked for the end are told of an error. Says whether it was to end.
    pub fn call_off_stop(&self) -> bool {
        let was_wanted = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        self.pause.set_stopping(false);
        self.waiting.reached(self);
        was_wanted
    }

    /// How the process is to end, if it is to. To be asked about ten times a second.
    #[must_use]
    pub fn wants_stop(&self) -> Option<Shutdown> {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a signal ends the process, by the settings.
    #[must_use]
    pub fn shutdown_on(&self, signal: EndSignal) -> Shutdown {
        let name: &[u8] = match signal {
            EndSignal::Interrupt => b"shutdown-on-sigint",
            EndSignal::Terminate => b"shutdown-on-sigterm",
        };
        let text = parameter::find(name).expect("the table has it").show(&self.settings());
        Shutdown::of_words(text.split(|byte| *byte == b' '))
    }

    /// Clients' writes wait from now on, until the process ends or [`Engine::call_off_stop`]. Some may be under way.
    pub fn hold_writes_for_stop(&self) {
        self.pause.set_stopping(true);
        self.rest.end();
    }

    /// Waits until no command runs that was let through before writes were held back. A script may take long.
    pub fn settle_writes(&self, now: Now) {
        let clock = access(&self.settings(), now);
        drop(self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock));
    }
}
