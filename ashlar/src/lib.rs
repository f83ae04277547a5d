//! The one program: a server, the commands around it, and everything that touches the operating system.
//!
//! Invariants: tokio, sockets, files and threads are used in [`os`] and [`front`] only; what stands between them
//! (`node`) would run on a fake world as well. Deliberately absent: storage logic; it lives in the crates below.
//!
//! Entry points: [`cli::run`] for a command line, `os::server::run` for one server. Modules in reading order:
//! [`failure`], [`config`].

pub mod cli;
pub mod config;
pub mod failure;
pub mod front;
pub mod node;
pub mod os;
