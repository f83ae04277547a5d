//! Bugs to order: those that the members of placement groups and the stores of drives know, at all servers of a world.
//!
//! Only with the feature `planted`, which a shipped program does not have. Without it every question is answered by the compiler.

use ashlar_replica::Settings;
use ashlar_store::config::Config;
use ashlar_store::opening::{Expected, Opening};

#[cfg(feature = "planted")]
use self::with_bugs::planted;

#[cfg(feature = "planted")]
mod with_bugs {
    use ashlar_replica::planted as replica;
    use ashlar_store::planted as store;

    thread_local! {
        static BUG: core::cell::Cell<Option<usize>> = const { core::cell::Cell::new(None) };
    }

    /// Their names, in the order of their numbers.
    pub(in crate::scenarios) fn bugs() -> Vec<String> {
        let replicas = replica::Planted::ALL.iter().map(|bug| format!("{bug:?}"));
        replicas.chain(store::BUGS.iter().map(|bug| format!("{bug:?}"))).collect()
    }

    /// All servers on this thread have this bug from now on, or none.
    pub(in crate::scenarios) fn plant(bug: Option<usize>) {
        BUG.set(bug);
    }

    /// What is planted now.
    pub(super) fn planted() -> (replica::Bugs, store::Bugs) {
        let Some(number) = BUG.get() else { return Default::default() };
        let in_store = |number| store::Bugs::plant(store::BUGS[number]);
        match replica::Planted::ALL.get(number) {
            Some(bug) => (replica::Bugs::new(Some(*bug)), store::Bugs::default()),
            None => (replica::Bugs::default(), in_store(number - replica::Planted::ALL.len())),
        }
    }
}

#[cfg(feature = "planted")]
pub(in crate::scenarios) use self::with_bugs::{bugs, plant};

/// There are none.
#[cfg(not(feature = "planted"))]
pub(in crate::scenarios) const fn bugs() -> Vec<String> {
    Vec::new()
}

/// There are none.
#[cfg(not(feature = "planted"))]
pub(in crate::scenarios) const fn plant(_bug: Option<usize>) {}

/// The time-outs of members, with their bug.
#[cfg(feature = "planted")]
pub(super) fn settings() -> Settings {
    Settings { bugs: planted().0, ..Settings::default() }
}

/// The time-outs of members.
#[cfg(not(feature = "planted"))]
pub(super) fn settings() -> Settings {
    Settings::default()
}

/// Begins to open a drive, with the bug of its store.
#[cfg(feature = "planted")]
pub(super) fn opening(config: Config, expected: Expected) -> Opening {
    Opening::with_bugs(config, expected, planted().1)
}

/// Begins to open a drive.
#[cfg(not(feature = "planted"))]
pub(super) fn opening(config: Config, expected: Expected) -> Opening {
    Opening::new(config, expected)
}
