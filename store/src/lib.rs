//! Extents, records and blobs on one drive: never torn, never silently wrong.
//!
//! A [`store::Store`] is one drive as a value: requests and the results of IOs go in, IOs and answers come out. One thread
//! owns it, and an io_uring or a pool of threads executes its IOs. A [`blob::Blobs`] is the same for the immutable shards of
//! objects, in a file of its own; what follows is about extents, and [`blob`] has a head of its own.
//!
//! Invariants
//! - Acknowledged means durable. After a crash at any moment every acknowledged change is there, and a change that was not
//!   acknowledged is there whole or not at all.
//! - The versions of an extent rise, and its content is that of its version: all changes up to it and none after.
//! - No live block is overwritten in place before the journal has its new data.
//! - Every block, batch and page has a checksum that binds its identity. What does not match is an error, never data.
//! - What fails to be written or synced poisons the drive; nothing is retried, nothing served any more.
//! - A full drive reads, discards, deletes and replaces.
//! - Whatever changes the tables is an entry, applied by one function, at run time as at recovery.
//!
//! Limits: an extent has up to 1 MiB, whole blocks of 4 KiB; larger extents are refused. An extent of less takes a slot of
//! 1 MiB all the same. All extents' names, placement groups and versions are in memory, about 200 bytes each.
//!
//! Deliberately absent: files, threads, clocks, chance (`now` and a nonce are arguments); replication and repair; the
//! index of objects; snapshots; compression.
//!
//! The way of a write: [`store::Store::handle_request`], `store/change.rs` (which slot, which way), `store/commit.rs` (the
//! batch), `tables.rs` (applied), later `store/write_back.rs`. The way of a start: [`opening::Opening`],
//! `journal/recover.rs`, `tables.rs`, `index.rs`.
//!
//! In reading order: [`buffer`] and [`block`] (memory and sets of blocks), [`io`] (what is asked of the drive),
//! [`request`] (what is asked of the store), [`error`], [`config`], [`record`], [`layout`] (superblock and regions), `page`
//! (tables on the drive), `journal` (entries, batches, ring, recovery), `tables` and `index` (the same in memory), `gate`
//! (order of changes), [`store`] (the machine), [`opening`], [`mod@format`], [`planted`] and `proof` (crash enumerator); then
//! [`blob`].
//!
//! Follows the write-ahead logs of databases with physical entries that are repeated in full (ARIES without undo), and
//! Crucible's extents with versions. Departs from Crucible in that small writes go through a journal, so a torn block is
//! restored and not only detected; and from databases in that table pages are written twice in place instead of through
//! the log, so that a page which rots has a second copy.

pub mod blob;
pub mod block;
pub mod buffer;
pub mod config;
mod cursor;
pub mod error;
pub mod format;
mod gate;
mod index;
pub mod io;
mod journal;
pub mod layout;
pub mod opening;
mod page;
pub mod planted;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
pub mod record;
pub mod request;
pub mod store;
mod tables;

pub use error::{Error, OpenError};
