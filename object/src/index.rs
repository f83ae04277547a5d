//! Ordered map of one range of the object index, as a replicated state machine over the extents of a placement group.
//!
//! The server that has the placement group's primary owns the range: it keeps the map in memory and appends every change to
//! a log that lies in extents of the same placement group. The replica protocol gives the log what it needs: a write is
//! atomic, durable at every acting copy when it completes, and refused once another configuration has a primary elsewhere.
//! So the range needs no agreement of its own.
//!
//! A [`Range`] is a value: requests and completed IOs in, IOs and replies out. Changes that arrive while a batch is written
//! share the next batch (group commit). A read is answered from memory once the placement group has confirmed that this
//! server still has the primary, by an IO that began after the read was evaluated: reads share these too.
//!
//! Invariants
//! - A commit is checked and applied in the order of the log; a reply to it leaves after its batch is durable.
//! - Reads see every commit that was answered before they came, and no commit that could still be lost.
//! - After an IO has failed, nothing is answered but [`Reply::Unavailable`]: another owner may have begun.
//! - Writes that find no room end nothing: their commits are answered by [`Reply::Full`], and the log goes on where it was.
//!
//! Deliberately absent: splitting of ranges, and maps that are larger than memory. Opening reads the whole log.
//!
//! Modules: [`key`] (what objects and uploads are called in the map), [`request`] (what is asked and answered, with the
//! written form), [`usage`] (how much buckets have), [`log`] (batches, streams, the head), [`range`] (the state machine).

pub mod key;
pub mod log;
pub mod range;
pub mod request;
pub mod usage;

pub use range::Range;
pub use request::{Change, Check, Entry, Line, Reply, Request};
pub use usage::Usage;
