//! Why a chore did not succeed, by whose fault.

use std::io;

/// The end of a chore that did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The person asked wrongly: exit code 2.
    Usage(String),
    /// The tree, or a tool that was run over it, failed: exit code 1.
    Failed(String),
}

impl Failure {
    /// A failure of the operating system while doing `what`.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}
