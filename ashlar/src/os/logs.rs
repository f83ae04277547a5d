//! Structured logs to standard error.

use std::io;
use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Starts logging for the whole process; a second call has no effect. `levels` was checked by the configuration.
pub fn start(levels: &str, is_json: bool) {
    let levels = Targets::from_str(levels).unwrap_or_else(|_| Targets::new().with_default(tracing::Level::INFO));
    let levels = without_repetitions(levels);
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    // An error means that somebody started it already.
    if is_json {
        tracing_subscriber::registry().with(lines.json().with_filter(levels)).try_init().ok();
    } else {
        tracing_subscriber::registry().with(lines.with_filter(levels)).try_init().ok();
    }
}

/// Of openraft errors only, unless its name stands there: it warns of a server that is away several times a second, which the bus tells
/// once.
fn without_repetitions(levels: Targets) -> Targets {
    const LIBRARY: &str = "openraft";
    if levels.iter().any(|(target, _)| target.starts_with(LIBRARY)) {
        return levels;
    }
    let level = levels.default_level().unwrap_or(LevelFilter::OFF).min(LevelFilter::ERROR);
    levels.with_target(LIBRARY, level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_library_that_repeats_itself_is_heard_by_its_name_only() {
        let tells = |levels: &str, target: &str, level: Level| {
            without_repetitions(Targets::from_str(levels).unwrap()).would_enable(target, &level)
        };
        let heartbeat = "openraft::core::heartbeat";
        assert!(!tells("info", heartbeat, Level::WARN) && tells("info", heartbeat, Level::ERROR));
        assert!(tells("info", "ashlar_node::catalog", Level::INFO));
        assert!(tells("info,openraft=debug", heartbeat, Level::DEBUG));
        assert!(!tells("off", heartbeat, Level::ERROR));
    }
}
