//! How a command fails: what went wrong, what to do about it, and the exit code that scripts can rely on.
//!
//! This is the outermost error of the program: its two texts are for people, and only [`Fault`] is for code.

use core::fmt;

/// Whose fault a failed command is; decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Arguments or configuration: exit code 2. A retry fails in the same way.
    Usage,
    /// The machine, a drive, a peer: exit code 1. A retry may succeed once the cause is gone.
    World,
}

/// Why a command ended without doing what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Decides the exit code.
    pub fault: Fault,
    /// What went wrong and where.
    pub what: String,
    /// What the reader can do about it.
    pub remedy: String,
}

impl Failure {
    /// Wrong arguments or configuration.
    pub fn usage(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { fault: Fault::Usage, what: what.into(), remedy: remedy.into() }
    }

    /// Something outside the program refused.
    pub fn world(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { fault: Fault::World, what: what.into(), remedy: remedy.into() }
    }

    /// What the process returns to its parent.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self.fault {
            Fault::Usage => 2,
            Fault::World => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n  what to do: {}", self.remedy) }
    }
}

impl core::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_and_what_to_do() {
        let failure = Failure::usage("no data directory", "give one with --data DIR");
        assert_eq!(failure.to_string(), "error: no data directory\n  what to do: give one with --data DIR");
        assert_eq!((failure.exit_code(), Failure::world("x", "").exit_code()), (2, 1));
        assert_eq!(Failure::world("x", "").to_string(), "error: x");
    }
}
