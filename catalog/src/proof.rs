//! Proof of the catalog's promises: whole groups on a virtual clock, net and drives, from one seed.
//!
//! [`run`] starts a group, proposes changes from every server while servers crash, messages are lost and the net is
//! split, then heals everything and checks. The same seed gives the same run.
//!
//! Checked at any time: no two servers have different states of one version; a server's version never falls while it
//! lives. Checked in the end: every acknowledged change is there, once, as it was acknowledged; all servers have equal
//! bytes; the group takes changes again.
//!
//! Not checked: damage of what is durable, time that runs at different speeds.

mod disk;
mod group;
mod history;
mod world;

pub use group::{Planted, Report, run, run_caught_up, run_lost_tail, run_recovery};

#[cfg(test)]
mod tests;
