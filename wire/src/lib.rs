//! Everything that is written to a socket or a drive, and nothing else.
//!
//! Words that all crates share: who a server is ([`id`]), what time means ([`time`]), how bytes are proved whole
//! ([`checksum`]), how a secret is held ([`secret`]), how a value is packed ([`pack`]). No clock, no socket, no
//! thread: `no_std` with `alloc`.
#![no_std]

extern crate alloc;

pub mod id;
pub mod time;
