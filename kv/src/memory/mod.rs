//! Bytes in memory.

pub mod packed;
