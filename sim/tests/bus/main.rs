//! The bus in its own world: many small clusters under every fault, and a large one at small size.
//!
//! `swarm` runs seeds, `large` kills, splits and soaks a few dozen members, `planted` breaks the bus on purpose (with
//! the feature `planted`) and sees it caught. Not here: 2,000 members, which `ashlar-sim bus` runs on its own.

mod command;
mod large;
#[cfg(feature = "planted")]
mod planted;
mod swarm;
