//! What the catalog needs from its server: a [`Host`] (time, tasks, chance, peers) and a [`Storage`] (log, snapshot).
//!
//! The program implements them over its runtime, the grid and a drive; tests over a virtual clock in one thread.

use core::fmt;
use core::future::Future;
use core::pin::Pin;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

/// A future that a seam hands over.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A message that has not been answered: whether it was received is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unanswered;

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server did not answer")
    }
}

impl core::error::Error for Unanswered {}

/// The world around a catalog.
pub trait Host: Send + Sync + 'static {
    /// Monotonic time.
    fn now(&self) -> Instant;

    /// Completes at `at` or a little later; never before.
    fn sleep_until(&self, at: Instant) -> BoxFuture<()>;

    /// Runs `task` to its end beside the caller.
    fn spawn(&self, task: BoxFuture<()>);

    /// A number that nobody can foresee (in a simulation: the seed's).
    fn random(&self) -> u64;

    /// Sends a message to the catalog of another server, which gives it to [`Catalog::handle`], and waits for its
    /// answer. The host bounds the time; dropping the future gives the answer up.
    ///
    /// [`Catalog::handle`]: super::catalog::Catalog::handle
    fn call(&self, to: ServerId, message: Vec<u8>) -> BoxFuture<Result<Vec<u8>, Unanswered>>;
}

/// The drive has failed: what was to be durable is not. Final; the catalog stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageError(
    /// For people.
    pub String,
);

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the catalog's log cannot be written: {}", self.0)
    }
}

impl core::error::Error for StorageError {}

/// One step of the log, which becomes durable as a whole or not at all. The parts take effect in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogWrite {
    /// Forget every entry from this index on.
    pub truncate_from: Option<u64>,
    /// Entries behind all others: index and bytes. Indexes have no gap.
    pub append: Vec<(u64, Vec<u8>)>,
    /// Forget every entry up to this index, itself too; and what [`StoredLog::purged`] says then.
    pub purge: Option<(u64, Vec<u8>)>,
    /// The vote: replaces the one before.
    pub vote: Option<Vec<u8>>,
    /// What is committed: replaces what was before.
    pub committed: Option<Vec<u8>>,
}

/// What a storage holds: all that was made durable, perhaps more, in the order in which it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLog {
    /// The latest vote.
    pub vote: Option<Vec<u8>>,
    /// What was committed, as far as it was written.
    pub committed: Option<Vec<u8>>,
    /// What came with the latest purge.
    pub purged: Option<Vec<u8>>,
    /// The entries, ascending.
    pub entries: Vec<(u64, Vec<u8>)>,
    /// The latest snapshot.
    pub snapshot: Option<Vec<u8>>,
}

/// Where a catalog's log and its snapshot last. Writes take effect in the order of the calls, whenever their futures are
/// polled; a crash keeps every completed one and any number of those that follow, in that order.
pub trait Storage: Send + Sync + 'static {
    /// Everything that is there. Called once, before all else.
    fn load(&self) -> BoxFuture<Result<StoredLog, StorageError>>;

    /// Writes a step of the log, and completes when it is durable.
    fn write(&self, step: LogWrite) -> BoxFuture<Result<(), StorageError>>;

    /// Replaces the snapshot as a whole, and completes when it is durable. A crash before that leaves the old or the new
    /// one.
    fn save_snapshot(&self, snapshot: Vec<u8>) -> BoxFuture<Result<(), StorageError>>;
}
