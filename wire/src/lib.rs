//! Everything that is written to a socket or a drive, and nothing else.
//!
//! The words that all crates share. Invariants: a written form has one shortest encoding, golden bytes in its tests and a
//! limit for everything that is announced; identity goes into every checksum; nothing here prints a secret.
//!
//! Deliberately absent: clocks, sockets, files, threads, randomness (`no_std` with `alloc`), and any protocol: those live
//! with the state machines that speak them.
//!
//! In reading order: [`id`] (who is who), [`time`] (a point of monotonic time as a value), [`pack`] (MessagePack
//! primitives), [`checksum`] (proof that bytes are whole and meant), [`secret`] (what must not be seen).
#![no_std]

extern crate alloc;

pub mod checksum;
pub mod id;
pub mod pack;
pub mod secret;
pub mod time;
