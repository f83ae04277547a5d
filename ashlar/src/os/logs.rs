//! Structured logs to standard error.

use std::io;
use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Starts logging for the whole process; a second call has no effect. `levels` was checked by the configuration.
pub fn start(levels: &str, is_json: bool) {
    let levels = Targets::from_str(levels).unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // An error means that somebody started it already.
    if is_json {
        tracing_subscriber::registry().with(lines.json().with_filter(levels)).try_init().ok();
    } else {
        tracing_subscriber::registry().with(lines.with_filter(levels)).try_init().ok();
    }
}
