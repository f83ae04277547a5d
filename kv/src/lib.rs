//! A Valkey-compatible key-value engine.
#![forbid(unsafe_code)]

pub mod command;
mod resp;
