//! A Valkey-compatible key-value engine.

pub mod memory;
pub mod value;
