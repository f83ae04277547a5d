//! Bugs to order: those that objects know, at all servers of a world. Only with the feature `planted`.

#[cfg(feature = "planted")]
use ashlar_object::planted::{self, Planted};

/// Their names, in the order of their numbers.
#[cfg(feature = "planted")]
pub(in crate::scenarios) fn bugs() -> Vec<String> {
    Planted::ALL.iter().map(|bug| format!("{bug:?}")).collect()
}

/// There are none.
#[cfg(not(feature = "planted"))]
pub(in crate::scenarios) const fn bugs() -> Vec<String> {
    Vec::new()
}

/// All servers on this thread have this bug from now on, or none.
#[cfg(feature = "planted")]
pub(in crate::scenarios) fn plant(bug: Option<usize>) {
    planted::plant(bug.map(|number| Planted::ALL[number]));
}

/// There are none.
#[cfg(not(feature = "planted"))]
pub(in crate::scenarios) const fn plant(_bug: Option<usize>) {}
