//! A Valkey-compatible key-value engine.
#![forbid(unsafe_code)]

pub mod command;
pub mod keyspace;
pub mod memory;
mod resp;
pub mod value;
