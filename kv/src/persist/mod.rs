//! What survives the process: the append log, and the snapshots that it begins with.
//!
//! In reading order: [`files`] (what is configured), [`folder`] (the few things done with files), `record` (how a batch lies in a segment), `manifest` (which files
//! are the log), [`log`] (writing, rotating, recovering it), [`journal`] (what commands append to, in memory), [`replay`]
//! (commands of the log run again), `writer` (the log, shared by the threads that write to it), [`keeper`] (its thread), [`opening`] (how it is turned on), [`snapshot`] (a consistent cut of all keys while writes go on).
//!
//! Model
//! - Commands append to the journal while their keys are locked, so the journal has one order that every key agrees with.
//! - No reply leaves before the log's file has what it tells of. The thread that is about to reply writes all that waits, as one
//!   batch for all threads; another thread syncs the file. With `appendfsync always` that one also writes: group commit.
//! - Everything in the log carries the time at which it ran. Run again with the same time, a command does the same.
//! - A rewrite cuts the journal and all keys at one moment: the snapshot has what came before, a new segment what comes after.
//!   When the snapshot is durable the manifest names both, and what was before is removed.

pub mod files;
pub mod folder;
pub mod journal;
pub mod keeper;
pub mod log;
mod manifest;
pub mod opening;
mod record;
pub mod replay;
pub mod saves;
pub mod snapshot;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

pub use files::Files;
pub use folder::{Folder, Syncer};
pub use journal::Journal;
pub use keeper::{Keeper, NewBase};
pub use log::{Log, LogError, OpenEnd};
pub use opening::{NotOpened, Opener};
pub use replay::Replay;
pub use saves::{Load, SavePoint, Saves};
pub use snapshot::Snapshot;
