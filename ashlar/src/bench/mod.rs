//! `ashlar bench`: the published figures, on your machine.
//!
//! Each benchmark gives rows of named cases: a table for people, or one JSON object with `--json`. Progress goes to
//! standard error. Case names stay from release to release.

pub mod cluster;
pub mod erasure;
pub mod grid;
pub mod kv;
pub mod load;
pub mod memory;
pub mod object;
pub mod report;
pub mod slow;

use std::time::Duration;

/// What a benchmark run is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Done within 60 s: shorter cases, fewer of them.
    pub quick: bool,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// How long each case is measured; `None` is the benchmark's own choice.
    pub span: Option<Duration>,
    /// Worker threads; as many as cores by default.
    pub workers: usize,
}

impl Options {
    /// Whether `case` is wanted.
    #[must_use]
    pub fn wants(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    /// How long a case is measured.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.span.unwrap_or(if self.quick { Duration::from_millis(700) } else { Duration::from_secs(3) })
    }
}
