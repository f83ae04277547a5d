//! Reed-Solomon over bytes, as fast as the memory allows.
//!
//! A *stripe* is M data shards and K parity shards of equal length; any M of the M + K give all others back. Byte `i` of
//! every shard belongs to one codeword, so all operations also work on any equal span of the shards.
//!
//! Invariants
//! - The code is systematic, over the field of 256 elements with polynomial 0x11d, and MDS for every geometry up to 256
//!   shards. Its matrix is the one that klauspost/reedsolomon (and so MinIO) uses by default: shards can be exchanged.
//! - Every kernel gives the same bytes; `cargo test` compares each with the scalar definition.
//! - A refused call has written nothing.
//! - No copies of shards, no threads, no locks, no allocation while shards are computed.
//!
//! Deliberately absent: threads (one block a thread is the caller's to arrange), buffers (shards are borrowed slices),
//! checksums (a shard that is silently wrong is for whoever keeps a checksum of it to name), other matrices.
//!
//! In reading order: [`geometry`](Geometry) (how many shards), `field` (the arithmetic), `points` (the code as
//! interpolation), `transform` (the fast way to encode), [`set`](ShardSet), [`codec`](Codec) (encode, verify, update),
//! [`tiles`](Codec::encode_tiles) (encode what is hashed or sent at once), [`plan`](Plan) (decode what is lost),
//! [`layout`](stride) (where shards lie best), `simd` (the kernels).
#![no_std]

extern crate alloc;

mod codec;
mod error;
mod field;
mod geometry;
mod layout;
mod plan;
mod points;
mod set;
mod simd;
#[cfg(test)]
mod tests;
mod tiles;
mod transform;

pub use codec::{Codec, Stores};
pub use error::Error;
pub use geometry::{Geometry, GeometryError, SHARDS_MAX};
pub use layout::{add, stride};
pub use plan::{Plan, PlanCache};
pub use set::ShardSet;
pub use simd::{Kernel, ParseKernelError};
