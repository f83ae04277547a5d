//! A Valkey-compatible key-value engine.

mod memory;
mod value;
