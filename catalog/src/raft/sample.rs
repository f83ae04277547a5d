//! A storage and a host for tests: everything is done at once, and time stands still.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::host::{BoxFuture, Host, LogWrite, Storage, StorageError, StoredLog, Unanswered};

/// Polls a future that has nothing to wait for.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[derive(Default)]
struct Content {
    stored: StoredLog,
    writes: Vec<LogWrite>,
    snapshots: usize,
    has_failed: bool,
}

/// A storage in memory; copies share it.
#[derive(Clone, Default)]
pub(super) struct Memory(Arc<Mutex<Content>>);

impl Memory {
    pub(super) fn new(stored: StoredLog) -> Self {
        let memory = Self::default();
        memory.0.lock().unwrap().stored = stored;
        memory
    }

    pub(super) fn stored(&self) -> StoredLog {
        self.0.lock().unwrap().stored.clone()
    }

    /// The steps since the last call, oldest first.
    pub(super) fn take_writes(&self) -> Vec<LogWrite> {
        std::mem::take(&mut self.0.lock().unwrap().writes)
    }

    /// How often a snapshot was saved.
    pub(super) fn snapshots(&self) -> usize {
        self.0.lock().unwrap().snapshots
    }

    /// From now on nothing can be written.
    pub(super) fn fail(&self) {
        self.0.lock().unwrap().has_failed = true;
    }

    fn change(&self, change: impl FnOnce(&mut Content)) -> BoxFuture<Result<(), StorageError>> {
        let mut content = self.0.lock().unwrap();
        if content.has_failed {
            return Box::pin(std::future::ready(Err(StorageError("no drive".into()))));
        }
        change(&mut content);
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Storage for Memory {
    fn load(&self) -> BoxFuture<Result<StoredLog, StorageError>> {
        Box::pin(std::future::ready(Ok(self.stored())))
    }

    fn write(&self, step: LogWrite) -> BoxFuture<Result<(), StorageError>> {
        self.change(|content| {
            content.writes.push(step.clone());
            let stored = &mut content.stored;
            stored.entries.retain(|(index, _)| step.truncate_from.is_none_or(|from| *index < from));
            stored.entries.extend(step.append);
            if let Some((upto, purged)) = step.purge {
                stored.entries.retain(|(index, _)| *index > upto);
                stored.purged = Some(purged);
            }
            stored.vote = step.vote.or(stored.vote.take());
            stored.committed = step.committed.or(stored.committed.take());
        })
    }

    fn save_snapshot(&self, snapshot: Vec<u8>) -> BoxFuture<Result<(), StorageError>> {
        self.change(|content| {
            content.stored.snapshot = Some(snapshot);
            content.snapshots += 1;
        })
    }
}

/// A host at a point of time, whose tasks have nothing to wait for.
pub(super) struct Still {
    pub(super) now: Instant,
    /// How long somebody wants to sleep who has to wait for it.
    pub(super) sleeps: Mutex<Vec<Instant>>,
}

impl Still {
    pub(super) fn new(now_ns: u64) -> Arc<Self> {
        Arc::new(Self { now: Instant::from_nanos(now_ns), sleeps: Mutex::default() })
    }
}

impl Host for Still {
    fn now(&self) -> Instant {
        self.now
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        if at <= self.now {
            return Box::pin(std::future::ready(()));
        }
        self.sleeps.lock().unwrap().push(at);
        Box::pin(std::future::pending())
    }

    fn spawn(&self, task: BoxFuture<()>) {
        at_once(task);
    }

    fn random(&self) -> u64 {
        0x0102_0304_0506_0708
    }

    fn call(&self, _: ServerId, _: Vec<u8>) -> BoxFuture<Result<Vec<u8>, Unanswered>> {
        Box::pin(std::future::ready(Err(Unanswered)))
    }
}
