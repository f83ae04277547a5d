//! Bytes in memory: what values and keys are built from. Nothing here knows a key, a client or a reply.
//!
//! In reading order: [`arena`] (cells of bytes, named by handles of 32 bits), [`index`] (a hash table of handles), [`hash_key`] (what its hashes are made with), [`tree`]
//! (handles in an order), [`packed`] (a short sequence in one buffer), `slab` (values under numbers), `gauge` (how much of it all is spare).

pub mod arena;
#[cfg(test)]
pub(crate) mod draws;
pub(crate) mod gauge;
pub mod hash_key;
pub mod index;
pub mod packed;
pub(crate) mod slab;
pub mod tree;

// Handles, lengths and orders of 32 bits are used as places in slices.
const _: () = assert!(usize::BITS >= 64, "sizes and places need 64 bits");
