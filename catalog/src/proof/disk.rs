//! A drive that loses at a crash what was not synced: the in-memory twin of a storage.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::world::World;
use crate::raft::host::{BoxFuture, LogWrite, Storage, StorageError, StoredLog};
use crate::raft::sync::oneshot;

/// What a drive does wrong on purpose, to show that the proof sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// Nothing.
    None,
    /// It says that a write is durable before it is.
    NotDurable,
    /// It forgets votes.
    NoVotes,
}

enum Write {
    Step(LogWrite),
    Snapshot(Vec<u8>),
}

#[derive(Default)]
struct Content {
    durable: StoredLog,
    /// In the order of their calls.
    pending: VecDeque<Write>,
    /// Counts crashes: a sync that was under way at one does nothing after it.
    crashes: u64,
}

/// See the head of this module.
#[derive(Clone)]
pub(super) struct Disk {
    world: Arc<World>,
    lie: Lie,
    content: Arc<Mutex<Content>>,
}

impl Disk {
    pub(super) fn new(world: Arc<World>, lie: Lie) -> Self {
        Self { world, lie, content: Arc::default() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().expect("one thread")
    }

    /// Keeps what is durable and some of what was under way, in order.
    pub(super) fn crash(&self) {
        let len = self.content().pending.len() as u64;
        let kept = if self.lie == Lie::NotDurable { 0 } else { self.world.below(len + 1) };
        let mut content = self.content();
        content.crashes += 1;
        let pending = std::mem::take(&mut content.pending);
        pending.into_iter().take(usize::try_from(kept).expect("a short queue")).for_each(|write| content.keep(write));
    }

    /// Forgets everything: another drive in its place.
    pub(super) fn wipe(&self) {
        let mut content = self.content();
        *content = Content { crashes: content.crashes + 1, ..Content::default() };
    }

    fn put(&self, write: Write) -> BoxFuture<Result<(), StorageError>> {
        let crashes = {
            let mut content = self.content();
            content.pending.push_back(write);
            content.crashes
        };
        let slowness = if self.lie == Lie::NotDurable { 300 } else { 1 };
        let latency = Duration::from_millis(slowness * (1 + self.world.below(5)));
        let disk = self.clone();
        let (sender, done) = oneshot::channel();
        let sync = async move {
            disk.world.sleep(latency).await;
            let mut content = disk.content();
            if content.crashes == crashes {
                // Whatever was called before is durable too.
                while let Some(write) = content.pending.pop_front() {
                    content.keep(write);
                }
            }
            drop(content);
            // Whoever wrote may have gone.
            let _ = sender.send(());
        };
        self.world.spawn(None, Box::pin(sync));
        let honest = self.lie != Lie::NotDurable;
        Box::pin(async move {
            if honest && done.await.is_err() {
                return Err(StorageError("the drive is gone".into()));
            }
            Ok(())
        })
    }
}

impl Content {
    fn keep(&mut self, write: Write) {
        let step = match write {
            Write::Snapshot(bytes) => {
                self.durable.snapshot = Some(bytes);
                return;
            }
            Write::Step(step) => step,
        };
        let stored = &mut self.durable;
        if let Some(from) = step.truncate_from {
            stored.entries.retain(|(index, _)| *index < from);
        }
        for (index, bytes) in step.append {
            if let Some((last, _)) = stored.entries.last() {
                assert_eq!(*last + 1, index, "a log has no gap");
            }
            stored.entries.push((index, bytes));
        }
        if let Some((upto, purged)) = step.purge {
            stored.entries.retain(|(index, _)| *index > upto);
            stored.purged = Some(purged);
        }
        stored.vote = step.vote.or(stored.vote.take());
        stored.committed = step.committed.or(stored.committed.take());
    }
}

impl Storage for Disk {
    fn load(&self) -> BoxFuture<Result<StoredLog, StorageError>> {
        let stored = self.content().durable.clone();
        Box::pin(async move { Ok(stored) })
    }

    fn write(&self, mut step: LogWrite) -> BoxFuture<Result<(), StorageError>> {
        if self.lie == Lie::NoVotes {
            step.vote = None;
        }
        self.put(Write::Step(step))
    }

    fn save_snapshot(&self, snapshot: Vec<u8>) -> BoxFuture<Result<(), StorageError>> {
        self.put(Write::Snapshot(snapshot))
    }
}
