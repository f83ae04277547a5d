//! Large clusters: thousands of members, each group's primary and replicas on members of their own.
//!
//! [`Layout`] says who does what, [`form`] brings a cluster up from memories that it writes itself, and [`again`] goes on from it any number of times, each time with other chances. `timeline`
//! measures, `kill`, `split` and `soak` are what happens then, and `curve` is many kills.
//!
//! Not here: the checkers of small clusters. A large world checks that a group has one primary in an epoch, that nobody
//! who runs is declared failed where nothing was cut, and that all agree in the end.

mod curve;
mod form;
mod kill;
mod soak;
mod split;
mod timeline;

pub use self::curve::{Point, SHARES, curve};
pub use self::form::{Formed, Layout, again, form};
pub use self::kill::{KillReport, Victims, kill};
pub use self::soak::{SoakOptions, SoakReport, idle_traffic, soak};
pub use self::split::{SplitReport, split};
pub use self::timeline::Timeline;

pub(crate) const MILLI_NS: u64 = 1_000_000;
pub(crate) const SECOND_NS: u64 = 1_000 * MILLI_NS;
