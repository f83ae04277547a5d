//! Who is alive, who is suspect, who owns what, and who was elected.
//!
//! One [`Bus`] is one member's whole state, as a value: packets, time and commands in; packets, durable state and events out.
#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod bus;
pub mod config;
pub mod counters;
pub mod event;
#[cfg(feature = "planted")]
pub mod planted;
pub mod slot;
pub mod voters;

pub use bus::Bus;
pub use config::{Config, Identity};
pub use counters::Counters;
pub use event::{Command, CommandError, Event, Output, RestoreError, Ticket};
