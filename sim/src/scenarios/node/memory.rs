//! What a simulated server remembers over its lives: every write takes time, and a crash loses those that were not done.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_grid::hello::Secrets;
use ashlar_grid::seam::{Runtime as _, Threads as _};
use ashlar_node::Memory;
use ashlar_wire::id::{ClusterId, ServerId};

use crate::rng::Rng;
use crate::world::SimRuntime;

/// Longest time that a write takes, in most worlds.
const WRITE_NS_MAX: u64 = 30_000_000;

/// What has been written.
#[derive(Debug, Clone, Default)]
pub(in crate::scenarios) struct Written {
    /// Where members were.
    pub(in crate::scenarios) members: Vec<(ServerId, String)>,
    /// The bus's durable state.
    pub(in crate::scenarios) bus: Vec<u8>,
}

/// The drive of one server, for all its lives.
#[derive(Debug, Clone, Default)]
pub(in crate::scenarios) struct Drive(Arc<Mutex<Written>>);

impl Drive {
    pub(in crate::scenarios) fn read(&self) -> Written {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One life's way to the drive. Writes are done in the order of the calls, as the program's own thread does them.
pub(in crate::scenarios) struct DriveMemory {
    drive: Drive,
    runtime: SimRuntime,
    chance: Mutex<Rng>,
    /// When the last write is done.
    free_at_ns: Mutex<u64>,
}

impl DriveMemory {
    pub(in crate::scenarios) fn new(drive: Drive, runtime: SimRuntime, rng: Rng) -> Self {
        Self { drive, runtime, chance: Mutex::new(rng), free_at_ns: Mutex::new(0) }
    }

    /// Does `write` after all writes before it, then `done`. Both are lost with this life.
    fn write(&self, write: impl FnOnce(&mut Written) + Send + 'static, done: impl FnOnce(Duration) + Send + 'static) {
        let took_ns = self.chance.lock().unwrap_or_else(PoisonError::into_inner).magnitude(1_000..=WRITE_NS_MAX);
        let now = self.runtime.now();
        let at = {
            let mut free_at_ns = self.free_at_ns.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at_ns = now.as_nanos().max(*free_at_ns) + took_ns;
            ashlar_wire::time::Instant::from_nanos(*free_at_ns)
        };
        let (drive, runtime) = (self.drive.clone(), self.runtime.clone());
        self.runtime.spawn(Box::pin(async move {
            runtime.sleep_until(at).await;
            write(&mut drive.lock());
            done(at.saturating_since(now));
        }));
    }
}

impl Memory for DriveMemory {
    fn remember(&self, members: Vec<(ServerId, String)>) {
        self.write(move |written| written.members = members, |_| {});
    }

    fn keep(&self, state: Vec<u8>, stored: Box<dyn FnOnce(Duration) + Send>) {
        self.write(move |written| written.bus = state, stored);
    }

    fn keep_secrets(&self, _: ClusterId, _: &Secrets, stored: Box<dyn FnOnce(Result<(), String>) + Send>) {
        // No secret is replaced in this scenario.
        stored(Err("this drive keeps no secrets".to_owned()));
    }
}
