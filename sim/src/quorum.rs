//! A shard whose writes a majority acknowledges: real key-value engines, and links between them, in a world that fails.
//!
//! In reading order: `world` (nodes, links, what fails, and whoever decides who is primary: by chance, at any time), `pipe` (one link
//! from a replica to a primary), `client` (who writes and reads, and what each was told), `history` (whether that can be the history of
//! registers), `command` (seeds by the thousand, planted bugs).
//!
//! What is checked: the history of each key is linearisable, over all failovers (Herlihy and Wing, 1990). Writes whose clients were
//! told nothing may have been done or not. Nothing here knows how engines reach that: an engine that forgets, or tells too soon, or
//! serves too long, shows in what clients were told.

mod client;
pub(crate) mod command;
mod faults;
mod pipe;
mod world;

pub(crate) use world::{Outcome, run_seed};
