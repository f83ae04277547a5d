//! Bugs to order: how many seeds it takes until the checkers see one. That they see it is the proof of the checkers.
//!
//! Only with the feature `planted`, which a shipped program does not have. A planted bug may break an assertion of the
//! bus itself, which catches it as well: run this where panics unwind, that is not in the release profile.

use super::options::Options;
use crate::command::{CommandFailure, Outside};
use crate::report::Rows;

/// Without the feature there is nothing to plant.
#[cfg(not(feature = "planted"))]
pub(super) fn command(_: &Options, _: &str, _: &mut Outside<'_>, _: &mut Rows) -> Result<(), CommandFailure> {
    Err(CommandFailure::Wrong("nothing can be planted: build with `--features planted`".into()))
}

#[cfg(feature = "planted")]
pub use self::catch::{Catch, catch};

/// Plants what was asked for.
#[cfg(feature = "planted")]
pub(super) fn command(
    options: &Options,
    name: &str,
    outside: &mut Outside<'_>,
    rows: &mut Rows,
) -> Result<(), CommandFailure> {
    use ashlar_bus::planted::Planted;

    let bugs: Vec<Planted> =
        Planted::ALL.into_iter().filter(|bug| name == "all" || format!("{bug:?}") == name).collect();
    if bugs.is_empty() {
        return Err(CommandFailure::Usage(format!("no bug is called {name}; there are {:?}", Planted::ALL)));
    }
    let seeds_max = options.seeds.unwrap_or(1_000);
    let mut escaped = Vec::new();
    for bug in bugs {
        let mut catches: Vec<Catch> =
            (0..STARTS).map(|start| catch(bug, &options.classes(), options.from + start * STRIDE, seeds_max)).collect();
        catches.sort_by_key(|catch| catch.seeds.unwrap_or(u64::MAX));
        let middle = &catches[STARTS as usize / 2];
        let seeds = middle.seeds.map_or_else(|| format!("not within {seeds_max}"), |seeds| seeds.to_string());
        let worst = catches.last().and_then(|catch| catch.seeds);
        let worst_text = worst.map_or_else(|| format!("not within {seeds_max}"), |seeds| seeds.to_string());
        writeln!(
            outside.err,
            "{:<20} median {seeds:>6} worst {worst_text:>6} seeds: {}",
            format!("{bug:?}"),
            middle.what
        )?;
        rows.add(format!("planted/{bug:?}/median"), middle.seeds.unwrap_or(seeds_max) as f64, "seeds");
        rows.add(
            format!("planted/{bug:?}/caught"),
            catches.iter().filter(|catch| catch.seeds.is_some()).count() as f64,
            "of 9",
        );
        if middle.seeds.is_none() {
            escaped.push(format!("{bug:?}"));
        }
    }
    if escaped.is_empty() { Ok(()) } else { Err(CommandFailure::Wrong(format!("not caught: {}", escaped.join(", ")))) }
}

/// Starting seeds for each bug.
#[cfg(feature = "planted")]
const STARTS: u64 = 9;

/// Seeds from one start to the next.
#[cfg(feature = "planted")]
const STRIDE: u64 = 1_000_000;

#[cfg(feature = "planted")]
mod catch {
    //! The search for the first seed that shows a bug.

    use ashlar_bus::planted::Planted;

    use crate::bus::swarm::{Class, Params, run_seed};

    /// How a bug was caught.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Catch {
        /// Seeds until it was, that one included; `None` if it was not.
        pub seeds: Option<u64>,
        /// What the checkers said.
        pub what: String,
    }

    /// Runs seeds from `from` on, `seeds_max` at most, with faults of `classes`, until the checkers see the bug.
    #[must_use]
    pub fn catch(bug: Planted, classes: &[Class], from: u64, seeds_max: u64) -> Catch {
        for count in 0..seeds_max {
            let params = Params::draw(from + count, classes, None);
            if let Some(failure) = run_seed(&params, Some(bug)).failure {
                return Catch { seeds: Some(count + 1), what: failure.what };
            }
        }
        Catch { seeds: None, what: String::new() }
    }
}
