//! What the engine needs of the world outside: facts about the process and its machine, a clock, and the configuration file.
//!
//! The program lends a [`Host`]. An engine without one, as in tests, has [`NoHost`].

use std::fmt::Debug;
use std::time::Duration;

use ashlar_wire::time::Instant;

/// What is known of the process and its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The process's number.
    pub process: u32,
    /// The program's file.
    pub executable: String,
    /// The configuration file; empty if there is none.
    pub config_file: String,
    /// Name and release of the operating system.
    pub system: String,
    /// Kind of processor (`x86_64`).
    pub machine: String,
    /// Memory of the process that is in the machine's memory, bytes.
    pub resident_bytes: u64,
    /// Memory of the machine, bytes.
    pub memory_bytes: u64,
    /// CPU time so far, in the kernel and in the program.
    pub cpu: (Duration, Duration),
    /// The same of children that have ended.
    pub cpu_children: (Duration, Duration),
    /// Threads that serve clients.
    pub workers: usize,
}

/// A certificate of TLS, as far as `INFO` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Its serial number: hexadecimal, whole bytes, capital letters.
    pub serial: String,
    /// When it expires, in seconds since 1970.
    pub expires_s: i64,
}

/// The certificates of TLS towards clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// What clients are shown.
    pub server: Option<Certificate>,
    /// Of the authorities that may sign certificates of clients, the one that expires first.
    pub authority: Option<Certificate>,
}

/// The world outside.
pub trait Host: Send + Sync + Debug {
    /// What is known now.
    fn facts(&self) -> Facts;

    /// The time now, of the same clock as all other times.
    fn now(&self) -> Instant;

    /// Rests for so long on the calling thread, for `DEBUG SLEEP`.
    fn sleep(&self, span: Duration);

    /// The whole path of a folder that is there, for files of the engine; `path` may begin at the folder `from`.
    ///
    /// # Errors
    /// Why it cannot be used. Retry safe.
    fn folder(&self, from: &str, path: &str) -> Result<String, String>;

    /// Replaces the configuration file by what `edit` makes of it. When it returns, the new text is durable; if it fails, the
    /// old text is still there.
    ///
    /// # Errors
    /// Why it cannot be read or written. Retry safe.
    fn rewrite(&self, edit: &dyn Fn(&str) -> String) -> Result<(), String>;
}

/// No world outside: nothing is known, and time stands still.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoHost;

impl Host for NoHost {
    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn now(&self) -> Instant {
        Instant::ORIGIN
    }

    fn sleep(&self, _span: Duration) {}

    fn folder(&self, _from: &str, path: &str) -> Result<String, String> {
        Ok(path.to_owned())
    }

    fn rewrite(&self, _edit: &dyn Fn(&str) -> String) -> Result<(), String> {
        Err("there is no file".to_owned())
    }
}
