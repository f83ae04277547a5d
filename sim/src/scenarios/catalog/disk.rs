//! A catalog's storage in memory: every write takes time, and a crash keeps what was done and some of what was under way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_catalog::raft::host::{BoxFuture, LogWrite, Storage, StorageError, StoredLog};
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::catalog::stored::take_step;
use ashlar_wire::time::Instant;

use crate::rng::Rng;
use crate::world::SimRuntime;

/// Longest time that a write takes, in most worlds.
const WRITE_NS_MAX: u64 = 30_000_000;

enum Write {
    Step(LogWrite),
    Snapshot(Vec<u8>),
}

#[derive(Default)]
struct Content {
    durable: StoredLog,
    /// In the order of their calls, each with its number.
    pending: VecDeque<(u64, Write)>,
    last: u64,
}

impl Content {
    /// Everything up to this write is durable.
    fn keep(&mut self, upto: u64) {
        while let Some((_, write)) = self.pending.pop_front_if(|(number, _)| *number <= upto) {
            match write {
                Write::Snapshot(bytes) => self.durable.snapshot = Some(bytes),
                Write::Step(step) => take_step(&mut self.durable, step).expect("the catalog's log has no gap"),
            }
        }
    }
}

/// The drive of one server, for all its lives.
#[derive(Clone, Default)]
pub(in crate::scenarios) struct Disk(Arc<Mutex<Content>>);

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life has ended: of what was under way, some first part is kept.
    pub(in crate::scenarios) fn crash(&self, rng: &mut Rng) {
        let mut content = self.lock();
        let kept = rng.below(content.pending.len() as u64 + 1);
        if let Some((number, _)) = kept.checked_sub(1).and_then(|last| content.pending.get(last as usize)) {
            let upto = *number;
            content.keep(upto);
        }
        content.pending.clear();
    }
}

/// One life's way to the drive.
pub(in crate::scenarios) struct DiskStorage {
    disk: Disk,
    runtime: SimRuntime,
    chance: Mutex<Rng>,
    /// When the last write is done.
    free_at_ns: Mutex<u64>,
}

impl DiskStorage {
    pub(in crate::scenarios) fn new(disk: Disk, runtime: SimRuntime, rng: Rng) -> Self {
        Self { disk, runtime, chance: Mutex::new(rng), free_at_ns: Mutex::new(0) }
    }

    fn put(&self, write: Write) -> BoxFuture<Result<(), StorageError>> {
        let took_ns = self.chance.lock().unwrap_or_else(PoisonError::into_inner).magnitude(1_000..=WRITE_NS_MAX);
        let at = {
            let mut free_at_ns = self.free_at_ns.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at_ns = self.runtime.now().as_nanos().max(*free_at_ns) + took_ns;
            Instant::from_nanos(*free_at_ns)
        };
        let number = {
            let mut content = self.disk.lock();
            content.last += 1;
            let number = content.last;
            content.pending.push_back((number, write));
            number
        };
        let done = |disk: Disk, runtime: SimRuntime| async move {
            runtime.sleep_until(at).await;
            disk.lock().keep(number);
        };
        // It is written whether or not somebody waits.
        self.runtime.spawn(Box::pin(done(self.disk.clone(), self.runtime.clone())));
        let waits = done(self.disk.clone(), self.runtime.clone());
        Box::pin(async move {
            waits.await;
            Ok(())
        })
    }
}

impl Storage for DiskStorage {
    fn load(&self) -> BoxFuture<Result<StoredLog, StorageError>> {
        let stored = self.disk.lock().durable.clone();
        Box::pin(core::future::ready(Ok(stored)))
    }

    fn write(&self, step: LogWrite) -> BoxFuture<Result<(), StorageError>> {
        self.put(Write::Step(step))
    }

    fn save_snapshot(&self, snapshot: Vec<u8>) -> BoxFuture<Result<(), StorageError>> {
        self.put(Write::Snapshot(snapshot))
    }
}
