//! Bytes in memory.
