//! What an engine calls itself: the run, and the history of its data.

use std::sync::{Mutex, PoisonError};

/// What replicas are told where there is no second history.
pub(crate) const NO_HISTORY: &str = "0000000000000000000000000000000000000000";

/// Names that nobody else has.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Of this run (`run_id`): 40 letters.
    pub(crate) run: String,
    /// Of the data's history (`master_replid`).
    history: Mutex<String>,
}

impl Identity {
    /// Names from bytes that nobody else knows.
    pub(crate) fn new(secret: &[u8]) -> Self {
        let name = |purpose: &[u8]| {
            use sha1::Digest;
            let sum: [u8; 20] = sha1::Sha1::new().chain_update(purpose).chain_update(secret).finalize().into();
            sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        Self { run: name(b"run"), history: Mutex::new(name(b"history")) }
    }

    /// What the history is called.
    pub(crate) fn history(&self) -> String {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new history begins, named by chance.
    pub(crate) fn change_history(&self, one: u64, two: u64) {
        let name = format!("{one:016x}{two:016x}{:08x}", one.rotate_left(17) >> 32);
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}
