//! Everything that is written to a socket or a drive, and nothing else.
//!
//! The words that all crates share. A value has a place here when two servers, or a server and its own drive of last
//! year, must agree on its bytes.
//!
//! Invariants
//! - What varies comes in as an argument: `no_std` with `alloc`, so there is no clock, socket, file, thread or chance.
//! - A written form has one shortest encoding and golden bytes in the tests beside it.
//! - A number that a peer announces is checked against a limit before it means anything, and never sizes an allocation.
//! - Identity goes into every checksum.
//! - A secret never shows: not in `Debug`, not in an error, not in memory after its end.
//!
//! Deliberately absent: any protocol (those live with the state machines that speak them), serde (it stays in
//! configuration and control messages), wall-clock time.
//!
//! In reading order: [`id`] (who is who), [`epoch`] (whose turn it is), [`version`] (which write is later), [`time`] (a
//! point of monotonic time as a value), [`pack`] (MessagePack primitives), [`checksum`] (proof that bytes are whole and
//! meant), [`secret`] (what must not be seen).
#![no_std]

extern crate alloc;

pub mod checksum;
pub mod epoch;
pub mod id;
pub mod pack;
pub mod secret;
pub mod time;
pub mod version;
