//! The same servers on a fake world: one thread, one seed, one history.
//!
//! Code written against [`ashlar_grid::seam`] runs here unchanged, on fake time, fake tasks and a fake network, and
//! meets in seconds what a cluster meets in years. Everything that happens follows from one seed; the running hash of
//! all events ([`Control::event_hash`]) proves it: the same seed twice gives the same hash.
//!
//! Invariants: no thread, no socket, no file, no clock of the host; the world's state is never locked while code of a
//! server runs or is dropped; every buffer and list has a limit, and a run ends at its event limit at the latest.
//!
//! Deliberately absent: datagrams, TLS. The network is TCP after its connection set-up: ordered bytes that are late,
//! stuck, reset or lost with their connection, but never changed, unless a test asks for it. Drives belong to the
//! scenarios that have them.
//!
//! In reading order: [`rng`] chance, `clock` time, `executor` tasks, `trace` hash and tail, [`world`] all of it
//! together, [`net`] links and connections, [`swarm`] many worlds with faults, [`scenarios`] what is put into them, `bars` how well
//! many of them must go.
//! [`bus`] stands apart: membership has no tasks and no connections, so thousands of members have a leaner world;
//! and so do `quorum` and [`replay`]: key-value engines, which have neither.

mod bars;
pub mod bus;
mod clock;
pub mod command;
mod executor;
mod history;
pub mod net;
mod quorum;
pub mod replay;
mod report;
pub mod rng;
pub mod scenarios;
pub mod swarm;
mod sweep;
mod trace;
pub mod world;

pub use bars::{Bar, Bars};
pub use clock::DRIFT_PPM_MAX;
pub use trace::Event;
pub use world::{Control, Halt, Kill, ServerNo, SimRuntime, Stop, World, WorldOptions};
