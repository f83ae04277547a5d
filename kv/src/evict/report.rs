//! What memory is used for, as `MEMORY STATS` and `INFO` tell it.

use std::sync::Arc;

use crate::client::card::{Card, ClientClass};
use crate::client::describe::memory;
use crate::engine::Engine;
use crate::keyspace::Keys;

/// The tables of one database, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatabaseBytes {
    pub(crate) database: usize,
    /// Of all keys.
    pub(crate) main: u64,
    /// Of those that expire.
    pub(crate) expires: u64,
}

/// What memory is used for, bytes unless said otherwise.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) used: u64,
    /// What the allocator has given, also for free cells of arenas.
    pub(crate) allocated: u64,
    pub(crate) resident: u64,
    pub(crate) peak: u64,
    pub(crate) start: u64,
    pub(crate) clients: u64,
    pub(crate) replicas: u64,
    /// What is kept of the stream for replicas, and what may be for such that come back.
    pub(crate) backlog: u64,
    pub(crate) backlog_max: u64,
    /// What waits for the log.
    pub(crate) log: u64,
    pub(crate) scripts: u64,
    pub(crate) databases: Vec<DatabaseBytes>,
    /// Keys, a number.
    pub(crate) keys: u64,
}

impl Report {
    /// What is not data.
    pub(crate) fn overhead(&self) -> u64 {
        let tables: u64 = self.databases.iter().map(|tables| tables.main + tables.expires).sum();
        self.start + self.clients + self.replicas + self.backlog + self.log + self.scripts + tables
    }

    /// What is data.
    pub(crate) fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead())
    }

    /// How much of what was taken since the start is data, percent.
    pub(crate) fn dataset_percent(&self) -> f64 {
        let taken = self.used.saturating_sub(self.start).max(1);
        ratio(self.dataset(), taken) * 100.0
    }

    /// How much of the peak is in use, percent.
    pub(crate) fn peak_percent(&self) -> f64 {
        ratio(self.used, self.peak) * 100.0
    }

    /// Data of one key, on average.
    pub(crate) fn bytes_per_key(&self) -> u64 {
        self.dataset().checked_div(self.keys).unwrap_or(0)
    }
}

/// How many times one number of bytes is another.
#[expect(clippy::cast_precision_loss, reason = "it is shown with a few digits")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

impl Engine {
    /// What memory is used for. All shards are held.
    pub(crate) fn report_memory(&self, keys: &Keys<'_>) -> Report {
        let (used, peak) = self.used_memory_and_peak();
        let allocator = self.memory.allocator();
        let allocated = allocator.map_or(used, |allocator| (allocator.live_bytes)());
        let bytes = |bytes: usize| bytes as u64;
        let databases = (0..self.keyspace.databases()).filter_map(|database| {
            let tables = keys.shards().map(|shard| shard.index_bytes(database));
            let (main, expires) = tables.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (main > 0).then_some(DatabaseBytes { database, main: bytes(main), expires: bytes(expires) })
        });
        let databases: Vec<DatabaseBytes> = databases.collect();
        let count = databases.iter().flat_map(|tables| keys.shards().map(|shard| shard.keys(tables.database)));
        let (replicas, clients): (Vec<Arc<Card>>, Vec<Arc<Card>>) =
            self.clients.all().into_iter().partition(|card| ClientClass::of(card.marks()) == ClientClass::Replica);
        let taken = |cards: &[Arc<Card>]| cards.iter().map(|card| memory(card)).sum();
        Report {
            used,
            allocated,
            resident: allocator.map_or(allocated, |allocator| (allocator.resident_bytes)()),
            peak,
            start: self.memory.start_bytes(),
            clients: taken(&clients),
            replicas: taken(&replicas),
            backlog: self.replication.figures().memory,
            backlog_max: self.settings().replication.backlog_bytes,
            log: self.uncounted_memory() - self.replication.excess_bytes(),
            scripts: self.scripts.eval_figures()[1] as u64,
            keys: bytes(count.sum()),
            databases,
        }
    }
}
