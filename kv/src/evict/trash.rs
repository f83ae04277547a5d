//! What was taken out and takes long to give back: dropped by the tick, so that no client waits for it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::value::Object;

/// An object of more parts than this is dropped later.
const PARTS_MAX: usize = 64;
/// Pieces that wait; more are dropped at once.
const PIECES_MAX: usize = 1 << 16;

/// What waits to be dropped.
#[derive(Default)]
pub(crate) struct Trash {
    pieces: Mutex<Vec<Box<dyn Send>>>,
    /// Objects in it (`lazyfree_pending_objects`).
    pending: AtomicUsize,
    /// Objects that were in it (`lazyfreed_objects`).
    freed: AtomicU64,
}

impl Trash {
    /// Drops what was behind a key: later if it is large.
    pub(crate) fn throw(&self, object: Object) {
        if object.parts() > PARTS_MAX {
            self.throw_all(1, Box::new(object));
        }
    }

    /// Drops something that holds so many objects, later.
    pub(crate) fn throw_all(&self, objects: usize, piece: Box<dyn Send>) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.len() < PIECES_MAX {
            self.pending.fetch_add(objects, Ordering::Relaxed);
            pieces.push(piece);
        }
    }

    /// Drops everything.
    pub(crate) fn empty(&self) {
        let pieces = std::mem::take(&mut *self.pieces.lock().unwrap_or_else(PoisonError::into_inner));
        if pieces.is_empty() {
            return;
        }
        let objects = self.pending.load(Ordering::Relaxed);
        drop(pieces);
        // What came meanwhile is counted as waiting once more, until the next time.
        self.pending.fetch_sub(objects, Ordering::Relaxed);
        self.freed.fetch_add(objects as u64, Ordering::Relaxed);
    }

    /// Objects that wait, and objects that were dropped.
    pub(crate) fn counts(&self) -> (usize, u64) {
        (self.pending.load(Ordering::Relaxed), self.freed.load(Ordering::Relaxed))
    }

    /// Counts those that were dropped from zero again.
    pub(crate) fn forget_freed(&self) {
        self.freed.store(0, Ordering::Relaxed);
    }
}

impl fmt::Debug for Trash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trash").field("pending", &self.pending).finish_non_exhaustive()
    }
}
