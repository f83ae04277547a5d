//! What the grid needs from the world: a connection's bytes, threads, and everything else.
//!
//! The program implements them over sockets and tokio, the simulator over a fake world; nothing in this crate knows
//! which one it runs on.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::IoSlice;

use ashlar_wire::time::Instant;

/// A future that a seam hands over.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Which of a peer's connections: each pair of servers has one for small messages and a pool for bulk payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The one connection for calls, streams and small payloads (`/ashlar/grid/v1`).
    Small,
    /// A pooled connection for payloads of 64 KiB and more (`/ashlar/bulk/v1`).
    Bulk,
}

/// Why a connection could not be made or ended. The text is for people; no code branches on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for WireError {}

/// One connection after its HTTP upgrade: ordered bytes both ways, and nothing above them.
pub trait Wire: Send + Unpin + 'static {
    /// Hands at most one batch of received bytes (up to 128 KiB) to `sink` and returns its length; 0 is the peer's
    /// orderly end. The bytes may be changed in place (unmasking) and are gone afterwards.
    ///
    /// # Errors
    /// The connection is lost; every later call fails too.
    fn poll_read(&mut self, cx: &mut Context<'_>, sink: &mut dyn FnMut(&mut [u8])) -> Poll<Result<usize, WireError>>;

    /// Whether it is this connection's turn to write; if not, the task is woken when it is, which it is soon whatever others
    /// do. Where there are many connections to write to, messages of several callers meet while one waits, and leave in one
    /// write.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Writes a prefix of `bufs` and returns its length, at least 1. Accepted means queued in the kernel, not
    /// received by the peer.
    ///
    /// # Errors
    /// The connection is lost; every later call fails too.
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize, WireError>>;

    /// Bytes accepted by [`Wire::poll_write`] that the peer's kernel has not acknowledged yet; `None` where this
    /// cannot be known.
    fn unacked_bytes(&self) -> Option<u64>;

    /// 32 bytes that both ends of this very channel know and nobody between them (the TLS exporter); zeroes without TLS.
    fn channel_binding(&self) -> [u8; 32];
}

/// Where tasks run.
pub trait Threads {
    /// A number for the current thread, for what threads had better keep apart in memory; 0 where tasks of this world do not run.
    /// Two threads may have one number, and are slower then.
    fn thread_number(&self) -> usize {
        0
    }

    /// Runs `task` to its end beside the caller; on its thread, if that has a number.
    fn spawn(&self, task: BoxFuture<()>);
}

/// The world around the grid: tasks, time, dialing, chance.
pub trait Runtime: Threads + Send + Sync + 'static {
    /// The connections of this world.
    type Wire: Wire;

    /// Monotonic time.
    fn now(&self) -> Instant;

    /// The same, up to some tens of milliseconds behind: for what is far off, where this is cheaper to have.
    fn now_coarse(&self) -> Instant {
        self.now()
    }

    /// Completes at `at` or a little later; never before.
    fn sleep_until(&self, at: Instant) -> BoxFuture<()>;

    /// Connects to `addr` (`host:port`) and completes the HTTP upgrade for `lane`. The caller bounds its time by
    /// dropping the future, which closes whatever was opened.
    fn dial(&self, addr: &str, lane: Lane) -> BoxFuture<Result<Self::Wire, WireError>>;

    /// Fills `bytes` with chance that nobody can foresee (in the simulator: the seed's).
    fn random(&self, bytes: &mut [u8]);
}
