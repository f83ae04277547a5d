//! The catalog as a Raft group: openraft over two small seams, without a runtime of its own.
//!
//! [`catalog::Catalog`] is what a server holds: it proposes, reads and follows. It needs a [`host::Host`] (time, tasks,
//! chance, messages) and a [`host::Storage`] (a log and a snapshot that last). A single server is a group of one voter;
//! further ones come as learners and are made voters.
//!
//! In reading order: [`host`] (the seams), `sync` and `runtime` (what openraft needs of a runtime, over the seams),
//! `types`, `form` and `message` (written forms), `log`, `machine`, `network` (openraft's storage and network over the
//! seams), `pieces` (a snapshot in pieces), [`catalog`], [`recover`] (the way back from a lost quorum).

pub mod catalog;
mod form;
pub mod host;
mod log;
mod machine;
mod message;
mod network;
mod pieces;
pub mod recover;
mod runtime;
#[cfg(test)]
mod sample;
pub(crate) mod sync;
mod types;
