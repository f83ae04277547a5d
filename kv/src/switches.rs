//! What `DEBUG` turns off and on, for tests of the server from outside.

use std::sync::atomic::{AtomicBool, Ordering};

/// One thing that is on or off.
#[derive(Debug, Default)]
pub(crate) struct Switch(AtomicBool);

impl Switch {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, is_on: bool) {
        self.0.store(is_on, Ordering::Relaxed);
    }
}

/// All of them; all are off at first.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// Keys that have expired stay until they are used (`DEBUG SET-ACTIVE-EXPIRE 0`).
    pub(crate) keeps_expired: Switch,
    /// The engine does not look after itself (`DEBUG PAUSE-CRON 1`).
    pub(crate) rests: Switch,
    /// Scripts may run what they otherwise may not (`DEBUG SET-DISABLE-DENY-SCRIPTS 1`).
    pub(crate) scripts_run_all: Switch,
    /// Payloads are taken whatever their checksum is (`DEBUG SET-SKIP-CHECKSUM-VALIDATION 1`).
    pub(crate) ignores_checksums: Switch,
}
