//! The operating system: sockets, TLS, files, processes, threads, clock. Everything else sees it through seams.
//!
//! Here and in `front` stand the only uses of tokio, `std::net`, `std::fs` and `std::thread`; here stands the only
//! `unsafe` of the program, one operation a block.

#![allow(unsafe_code, reason = "the calls that std does not offer; each has its safety argument and a test")]

pub mod clock;
pub mod datadir;
pub mod dial;
pub mod files;
pub mod heap;
pub mod logs;
pub mod process;
pub mod random;
pub mod runtime;
pub mod signals;
pub mod sockets;
mod spin;
pub mod tls;
pub mod websocket;
pub mod wire;
pub mod workers;
