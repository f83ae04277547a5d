//! The key-value engine alone: listeners, workers, signals.

pub mod doors;
mod folder;
mod host;
mod persistence;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ashlar_kv::{Allocator, Engine, EngineConfig};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::persistence::Persistence;
use super::signals::Signals;
use super::{clock, heap, process, random, rdb};
use crate::failure::Failure;
use crate::front::resp::{self, Door, Service};
use doors::{Doors, Listening, Open};
use host::ProcessHost;

/// Locks for each worker: so many that two workers seldom want the same one.
const SHARDS_PER_WORKER: usize = 16;

/// How often the engine looks after itself.
const TICK: Duration = Duration::from_millis(100);

/// How the engine runs.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where clients connect.
    pub doors: Doors,
    /// Threads; each serves the connections that it accepts.
    pub workers: usize,
    /// Databases.
    pub databases: usize,
    /// An RDB file whose keys are there from the start.
    pub import: Option<PathBuf>,
    /// Settings by the names of Valkey's configuration, in the order in which they are made.
    pub settings: Vec<(String, String)>,
}

/// Serves until a signal comes. Says where it listens with `started`, once all doors are open.
///
/// # Errors
/// The address is taken, or the operating system gives no threads. Retry safe once the cause is gone.
pub fn run(plan: &Plan, started: impl FnOnce(&[Listening])) -> Result<(), Failure> {
    if let Err(error) = process::raise_descriptor_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let workers = plan.workers.max(1);
    let shards = (workers * SHARDS_PER_WORKER).next_power_of_two().min(1 << 10);
    let config = EngineConfig { secret: random::bytes(), shards, databases: plan.databases };
    let engine = Arc::new(Engine::with_host(&config, Arc::new(ProcessHost::new(workers, None))));
    count_memory(&engine);
    for (name, value) in &plan.settings {
        engine.configure(name, value).map_err(|why| {
            Failure::usage(
                format!("`{name} {value}` cannot be set: {why}"),
                "see docs/kv-parameters.md for what there is",
            )
        })?;
    }
    let persistence = Persistence::start(&engine)?;
    if let Some(path) = &plan.import {
        let imported = rdb::import(&engine, path)?;
        let libraries = imported.libraries.len();
        tracing::info!(imported.keys, imported.expired, imported.empty, libraries, "imported");
    }
    let Open { doors, listening, file: _file } = plan.doors.open(workers)?;
    let (stop, stopped) = watch::channel(false);
    let mut threads = Vec::with_capacity(workers);
    for (index, doors) in doors.into_iter().enumerate() {
        let service = Service { engine: Arc::clone(&engine), released: persistence.released() };
        let stopped = stopped.clone();
        let body = move || work(&service, doors, &stopped);
        let thread = thread::Builder::new().name(format!("kv-{index}")).spawn(body);
        threads.push(thread.map_err(|error| cannot_start(&error))?);
    }
    let control = Builder::new_current_thread().enable_all().build().map_err(|error| cannot_start(&error))?;
    let result = control.block_on(async {
        let mut signals = Signals::new().map_err(|error| cannot_start(&error))?;
        started(&listening);
        let name = loop {
            tokio::select! {
                name = signals.next() => break name,
                () = clock::sleep(TICK) => engine.handle_tick(clock::now_both()),
            }
        };
        tracing::info!(signal = name, "stopping");
        Ok(())
    });
    stop.send_replace(true);
    for thread in threads {
        // A worker that panicked has ended the process already.
        thread.join().ok();
    }
    result.and(persistence.stop(None))
}

/// The engine's memory is that of the process.
fn count_memory(engine: &Engine) {
    engine.count_memory_with(Allocator {
        live_bytes: heap::live_bytes,
        resident_bytes: || process::facts().resident_bytes,
        purge: heap::purge,
    });
}

fn work(service: &Service, doors: Vec<Door>, stopped: &watch::Receiver<bool>) {
    let served = Builder::new_current_thread().enable_all().build();
    let served = served.and_then(|runtime| {
        let result = runtime.block_on(async {
            // Each door on a task of its own, so that none holds up another.
            let mut tasks = JoinSet::new();
            for door in doors {
                tasks.spawn(resp::serve(service.clone(), door, stopped.clone()));
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap_or_else(|error| Err(io::Error::other(error)))?;
            }
            Ok(())
        });
        runtime.shutdown_background();
        result
    });
    if let Err(error) = served {
        tracing::error!(%error, "a worker cannot listen");
    }
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::world(format!("the engine cannot start: {error}"), "check the limits of this user (ulimit -a)")
}
