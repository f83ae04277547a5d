//! What the tasks of an engine need of the process: time, plain connections, a file for a dump, and a place for the engine's identity.

use core::time::Duration;
use std::io;

use ashlar_grid::seam::BoxFuture;
use ashlar_kv::Now;
use ashlar_kv::network::Broken;

use super::assignment::EngineInfo;
use crate::together;

/// A future that borrows what it works on.
pub type BoxFutureOf<'a, T> = core::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The process around one engine.
pub trait EngineHost: Send + Sync {
    /// The time, monotonic and of day.
    fn now(&self) -> Now;

    /// Completes after so long.
    fn sleep(&self, span: Duration) -> BoxFuture<()>;

    /// Connects to a server that is not of this cluster, or to an engine whose cluster has no streams. The caller bounds the time.
    fn connect(&self, host: &str, port: u16) -> BoxFuture<Result<Box<dyn Connection>, Broken>>;

    /// A new empty file, in which a dump lies until it is whole. It is gone when this is dropped.
    ///
    /// # Errors
    /// The drive's fault. Retry safe.
    fn dump_file(&self) -> io::Result<Box<dyn DumpFile>>;

    /// Remembers which engine this is, and in which group. Durable on return; false if it could not be written.
    fn keep_engine_info(&self, info: &EngineInfo) -> bool;
}

/// A connection to another engine: ordered bytes both ways. A future that is dropped half-way leaves the connection of no use, except that
/// of [`Connection::read`], which loses nothing.
pub trait Connection: Send {
    /// Sends all of it.
    fn write<'c>(&'c mut self, bytes: &'c [u8]) -> BoxFutureOf<'c, Result<(), Broken>>;

    /// Takes some of what came, at least one byte, and says how much.
    fn read<'c>(&'c mut self, room: &'c mut [u8]) -> BoxFutureOf<'c, Result<usize, Broken>>;

    /// Between whom it is, as people write it: the other end and ours.
    fn ends(&self) -> (String, String);
}

/// A dump that is written whole, then read from its beginning.
pub trait DumpFile: Send {
    /// Appends.
    ///
    /// # Errors
    /// The drive's fault. The file is of no use any more.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads on, from the beginning at first; 0 at the end.
    ///
    /// # Errors
    /// The drive's fault. The file is of no use any more.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;
}

/// What the future gives within so long; dropped if it takes longer.
pub(super) async fn within<T>(host: &dyn EngineHost, span: Duration, future: impl Future<Output = T>) -> Option<T> {
    together::first(future, host.sleep(span)).await
}
