//! A Valkey-compatible key-value engine.
#![forbid(unsafe_code)]

mod client;
mod command;
mod engine;
mod error;
mod glob;
pub mod keyspace;
pub mod memory;
pub mod persist;
mod pubsub;
pub mod rdb;
mod resp;
mod serve;
mod session;
mod settings;
mod time;
pub mod value;
mod waiting;

pub use client::{ClientId, Link, Mailbox, TooManyClients};
pub use engine::{Engine, EngineConfig};
pub use session::{Next, Session};
pub use time::Now;

#[cfg(test)]
mod tests;
