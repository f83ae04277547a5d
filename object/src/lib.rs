//! S3 objects over erasure-coded shards.
//!
//! Invariants
//! - A put is one commit of one record that refers to shards that are durable already: readers and crashes see the old
//!   object or the new one, never neither and never a mixture.
//! - What was acknowledged is on as many drives as give it back, and on all of its drives where they could be reached.
//! - A list shows every put and delete that was answered before it began; of conditional writers one wins.
//!
//! - Shards that a record names are removed by nobody; those that none names are collected after a long while.
//!
//! Deliberately absent: sockets, drives, clocks and threads (the program's and the node's).
//!
//! In reading order: [`api`] (what a protocol's front asks for), [`cluster`] (what the service needs of its cluster),
//! [`lock`] (what keeps a version from deletion), [`cipher`] (encryption), [`record`] (values of the index), [`index`] (the ordered map that says which objects a bucket has), `stripe` (blocks as
//! shards), [`service`] (puts, gets, lists and uploads; healing, collecting); [`s3`] (the S3 protocol over the seam [`api`]).
#![forbid(unsafe_code)]

pub mod api;
pub mod cipher;
pub mod cluster;
pub mod cursor;
mod flight;
pub mod index;
pub mod lock;
#[cfg(any(test, feature = "memory"))]
pub mod memory;
pub mod planted;
pub mod record;
pub mod s3;
pub mod service;
mod stripe;
