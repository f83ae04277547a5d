//! All keys: sixteen thousand slots in every database, in shards behind locks.
//!
//! In reading order: [`slot`] (which slot a key belongs to), `record` (how a key lies in memory), `shard` (a run of slots in all
//! databases), `access` (when a key was used, for eviction), `locked` (the shards that a command holds, and what it does with keys).

mod access;
mod locked;
mod record;
mod shard;
pub mod slot;
#[cfg(test)]
mod tests;

pub(crate) use access::{AccessClock, Policy};
pub(crate) use locked::{Expired, Found, Key, Keys, Keyspace, Lock, Manner, Noted, WrongKind};
pub(crate) use record::{Kind, Record};
pub use shard::Loss;
pub(crate) use shard::{Choice, Counts, Expiry, Reaped, Saved, Shard};
pub use slot::Slot;
