//! The grid's world: time, tasks, dialing and chance of this process.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ashlar_grid::seam::{BoxFuture, Lane, Runtime, Threads, WireError};
use ashlar_wire::time::Instant;
use rustls::ClientConfig;
use tokio::runtime::Handle;

use super::wakes::Gathered;
use super::wire::OsWire;
use super::{clock, dial, random, tls, wakes};

thread_local! {
    static OWN_LANE: Cell<Option<Lane>> = const { Cell::new(None) };
}

/// Says that the current thread is a worker for connections of `lane`: tasks of that lane spawned on it stay on it.
pub(super) fn become_worker(lane: Lane) {
    OWN_LANE.set(Some(lane));
}

/// The world of one server. Connections live on the workers and nowhere else.
#[derive(Debug)]
pub struct OsRuntime {
    lane: Lane,
    workers: Vec<Handle>,
    next: AtomicUsize,
    tls: Option<Arc<ClientConfig>>,
}

impl OsRuntime {
    /// A world for connections of `lane` with these workers, at least one; `is_tls` is how it dials.
    ///
    /// # Panics
    /// Without a worker.
    #[must_use]
    pub fn new(lane: Lane, workers: Vec<Handle>, is_tls: bool) -> Self {
        assert!(!workers.is_empty(), "a server has at least one worker");
        Self { lane, workers, next: AtomicUsize::new(0), tls: is_tls.then(tls::dialer) }
    }
}

impl Threads for OsRuntime {
    fn thread_number(&self) -> usize {
        wakes::number_here()
    }

    /// A worker keeps its tasks; tasks from elsewhere go round the workers.
    fn spawn(&self, task: BoxFuture<()>) {
        let task = Gathered::new(task);
        if OWN_LANE.get() == Some(self.lane) {
            tokio::spawn(task);
        } else {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            self.workers[next % self.workers.len()].spawn(task);
        }
    }
}

impl Runtime for OsRuntime {
    type Wire = OsWire;

    fn now(&self) -> Instant {
        clock::now()
    }

    fn now_coarse(&self) -> Instant {
        clock::now_coarse()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        Box::pin(clock::sleep_until(at))
    }

    fn dial(&self, addr: &str, lane: Lane) -> BoxFuture<Result<OsWire, WireError>> {
        let (addr, tls) = (addr.to_owned(), self.tls.clone());
        Box::pin(async move { dial::dial(&addr, lane, tls).await })
    }

    fn random(&self, bytes: &mut [u8]) {
        random::fill(bytes);
    }
}
