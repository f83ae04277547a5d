//! A Valkey-compatible key-value engine.
#![forbid(unsafe_code)]

mod acl;
mod ahead;
mod client;
pub mod cluster;
mod command;
mod content;
mod engine;
mod error;
mod evict;
mod expire;
pub mod figures;
mod glob;
pub mod host;
mod identity;
pub mod keyspace;
pub mod memory;
mod monitor;
pub mod network;
mod notify;
pub mod persist;
mod pubsub;
pub mod rdb;
pub mod replicate;
mod resp;
mod rest;
mod script;
mod serve;
mod session;
mod settings;
mod shutdown;
mod statistics;
mod switches;
mod time;
mod tracking;
mod unlogged;
pub mod value;
mod waiting;

pub use acl::AclFile;
pub use ahead::Fetch;
pub use client::{ClientId, Link, Mailbox, Rejected};
pub use content::Content;
pub use engine::{Engine, EngineConfig};
pub use evict::Allocator;
pub use host::{Certificate, Certificates, Facts, Host, NoHost};
pub use network::Network;
pub use notify::Notify;
pub use script::pattern;
pub use session::{Next, Session};
pub use settings::file::{Directive, WrongLine, read as read_config};
pub use settings::kept;
pub use shutdown::{EndSignal, Shutdown};
pub use time::Now;

#[cfg(test)]
pub(crate) mod tests;
