//! Bytes in memory.

#[cfg(test)]
pub(crate) mod draws;
pub mod packed;
