//! Everything that is written to a socket or a drive, and nothing else.
//!
//! The words that all crates share. A value has a place here when two servers, or a server and its own drive of
//! last year, must agree on its bytes.
//!
//! Invariants
//! - No clock, no socket, no thread, no chance: `no_std` with `alloc`. What varies comes in as an argument.
//! - A number that a peer announces is checked against a limit before anything is read, and never sizes an allocation.
//! - Every written form has golden bytes in the tests beside it: a change that breaks them needs a new version.
//! - A secret never shows: not in `Debug`, not in an error, not in memory after its end.
//!
//! Deliberately absent: serde (it stays in configuration and control messages of higher crates), signed and floating
//! numbers and maps in [`pack`] (no header needs them), wall-clock time, an error type for the whole crate (each
//! module fails in its own few ways).
//!
//! Modules in reading order
//! - [`id`]: who a server is, and which of its lives.
//! - [`epoch`]: which turn of ownership, which version, which features.
//! - [`time`]: monotonic time as a value.
//! - [`limit`]: how much of anything, tied together at compile time.
//! - [`pack`]: how a value is written, in MessagePack.
//! - [`checksum`]: how bytes are proved whole and in their place.
//! - [`secret`]: how a secret is held, named and proved.
#![no_std]

extern crate alloc;

pub mod checksum;
pub mod epoch;
pub mod id;
pub mod limit;
pub mod pack;
pub mod secret;
pub mod time;

mod hex;
