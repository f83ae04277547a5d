//! The bus on a fake world: thousands of real [`ashlar_bus::Bus`] values, one thread, virtual time.
//!
//! A world of its own beside the grid's: a bus is a value without tasks or connections, so nothing here needs an
//! executor, and a step costs about as much as the bus itself. Same seed, same run, bit for bit.
//!
//! In reading order: [`world`] what is due next and who is called, `clock` other rates, `net` links, `queue` and
//! `journal` the order of things and its proof, `check` what must hold at every step, [`swarm`] small clusters under
//! all faults, [`large`] ones that lose half their primaries, [`picture`] the curve beside the anchor's.

mod agree;
mod check;
mod clock;
mod command;
mod journal;
pub mod large;
mod member;
mod net;
mod options;
pub mod picture;
pub mod planted;
mod queue;
mod reach;
pub mod swarm;
mod sweep;
pub mod world;

pub use check::{Checker, Counts};
pub use clock::RATE_PPM_MAX;
pub use command::command;
pub use member::Traffic;
pub use net::Links;
pub use options::HELP;
