//! A Valkey-compatible key-value engine.
#![forbid(unsafe_code)]

pub mod memory;
pub mod value;
