//! Who is alive, who is suspect, who owns what, and who was elected.
//!
//! One [`Bus`] is one member's whole state, as a value: packets, time and commands in; packets, durable state and events out.
#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod ballot;
pub mod bus;
mod chance;
pub mod claim;
pub mod config;
pub mod counters;
pub mod event;
mod fingerprint;
mod gossip;
pub mod member;
pub mod packet;
pub mod planted;
mod probe;
pub mod pubsub;
pub mod rank;
mod reach;
pub mod saved;
pub mod slot;
mod suspicion;
mod sync;
pub mod voters;

pub use bus::Bus;
pub use config::{Config, Identity};
pub use counters::Counters;
pub use event::{Command, CommandError, Event, Output, RestoreError, Ticket};
