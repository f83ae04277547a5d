//! The one program: a server, the commands around it, and everything that touches the operating system.
//!
//! Invariants: tokio, sockets, files and threads are used in [`os`] and [`front`] only; the crate `ashlar_node` knows the
//! world through seams; secrets never come from arguments and are never printed.
//! Deliberately absent: storage and protocol logic, which live in the crates below, and failure detection beyond one
//! connection.
//!
//! Entry points: [`cli::run`] for a command line, [`os::server::run`] for one server. Modules in reading order:
//! [`failure`], [`config`], [`os`], [`front`], [`cli`].

pub mod bench;
pub mod cli;
pub mod config;
pub mod failure;
pub mod front;
pub mod os;
