//! Opening the append log while the engine serves, so that whoever turns it on is told whether that is possible.

use std::fmt::Debug;

use super::Files;

/// Who opens the append log. The program lends one; without it, as in tests, the log is only configured.
pub trait Opener: Send + Sync + Debug {
    /// A log is open when this returns, or is about to be by who has its directory: what commands do from now on is in it once it
    /// has a base. Called while settings cannot be read.
    ///
    /// # Errors
    /// It cannot be opened, and who can do something about it was told why. Retry safe.
    fn open(&self, files: &Files) -> Result<(), NotOpened>;

    /// The settings did not change after all: it is closed again.
    fn take_back(&self);
}

/// The append log could not be opened. The file system's fault, or that of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotOpened;
