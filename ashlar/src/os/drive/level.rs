//! How full a drive is, as its own thread last said it: whoever asks waits for nobody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ashlar_node::volume::space::Room;

/// See the head of this file. What is read may be a moment old.
#[derive(Debug, Default)]
pub(super) struct Level {
    bytes: AtomicU64,
    free: AtomicU64,
    has_failed: AtomicBool,
}

impl Level {
    /// Of a drive that can hold so many bytes of data.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes: AtomicU64::new(bytes), ..Self::default() }
    }

    /// So many bytes can still be written.
    pub(super) fn set_free(&self, bytes: u64) {
        self.free.store(bytes, Ordering::Relaxed);
    }

    /// The drive has failed a write or a sync.
    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    pub(super) fn room(&self) -> Room {
        Room { bytes: self.bytes.load(Ordering::Relaxed), free: self.free.load(Ordering::Relaxed) }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}
