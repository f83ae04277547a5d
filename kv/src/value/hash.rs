//! Hashes: fields and their values.
