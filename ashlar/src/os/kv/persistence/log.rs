//! The thread of the append log: syncs it, and writes what no other thread writes.

use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

use ashlar_kv::Engine;
use ashlar_kv::persist::{Keeper, Log, LogError, NewBase};

use super::{Folder, Released, saver};
use crate::failure::Failure;
use crate::os::clock;

/// What the thread is asked to do.
#[derive(Debug)]
enum Order {
    /// Something was appended.
    Write,
    /// The log is to begin with this; how that went.
    Install(NewBase, Sender<Result<(), String>>),
    /// Everything is to become durable, now; how that went.
    Sync(Sender<Result<(), String>>),
    /// Everything is to become durable. The thread ends.
    Stop,
}

/// Whoever may ask.
#[derive(Debug, Clone)]
pub(super) struct Orders(Sender<Order>);

/// Where orders arrive, and another who may ask.
#[derive(Debug)]
pub(super) struct Inbox(Receiver<Order>, Orders);

/// Orders and where they arrive, before there is a thread: the log is recovered first.
pub(super) fn channel() -> (Orders, Inbox) {
    let (sender, receiver) = mpsc::channel();
    let orders = Orders(sender);
    (orders.clone(), Inbox(receiver, orders))
}

impl Orders {
    /// Something was appended.
    pub(super) fn write(&self) {
        // Nobody takes it once the engine stops: nothing is appended then either.
        self.0.send(Order::Write).ok();
    }

    /// Has the log begin with a base; waits until that is so.
    ///
    /// # Errors
    /// It does not, in words. Safe to retry with another base.
    pub(super) fn install(&self, base: NewBase) -> Result<(), String> {
        let (done, result) = mpsc::channel();
        let stopping = || "the engine stops".to_owned();
        self.0.send(Order::Install(base, done)).map_err(|_| stopping())?;
        result.recv().map_err(|_| stopping())?
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct LogThread {
    orders: Orders,
    folder: Folder,
    /// Nothing else than a new base makes recovery find this log.
    pub(super) lacks_base: bool,
    thread: JoinHandle<Result<(), LogError>>,
}

impl LogThread {
    /// Starts it. `folder` is the log's, for bases.
    ///
    /// # Errors
    /// There are no threads.
    pub(super) fn start(
        engine: &Arc<Engine>,
        keeper: Keeper<Folder>,
        inbox: Inbox,
        folder: Folder,
        released: Released,
    ) -> Result<Self, Failure> {
        let (orders, lacks_base) = (inbox.1.clone(), !keeper.look(Log::is_named));
        let engine = Arc::clone(engine);
        let thread =
            thread::Builder::new().name("kv-log".into()).spawn(move || keep(&engine, keeper, &inbox, &released));
        let thread = thread.map_err(|error| super::super::cannot_start(&error))?;
        Ok(Self { orders, folder, lacks_base, thread })
    }

    /// Takes a new base, and has the log begin with it.
    ///
    /// # Errors
    /// The log is what it was. In words; safe to retry.
    pub(super) fn rewrite(&mut self, engine: &Arc<Engine>, is_given_up: &dyn Fn() -> bool) -> Result<u64, String> {
        let base = saver::write_base(engine, &mut self.folder, is_given_up).map_err(|why| why.to_string())?;
        self.orders.install(base.clone())?;
        self.lacks_base = false;
        Ok(base.keys)
    }

    /// Makes everything durable that was appended so far.
    ///
    /// # Errors
    /// The file system refused, in words. Safe to retry.
    pub(super) fn sync(&self) -> Result<(), String> {
        let (done, result) = mpsc::channel();
        let stopping = || "the engine stops".to_owned();
        self.orders.0.send(Order::Sync(done)).map_err(|_| stopping())?;
        result.recv().map_err(|_| stopping())?
    }

    /// Makes everything durable and ends the thread.
    ///
    /// # Errors
    /// What was acknowledged without waiting for the drive may be lost.
    pub(super) fn stop(self) -> Result<(), Failure> {
        self.orders.0.send(Order::Stop).ok();
        let ended = self.thread.join().unwrap_or(Ok(()));
        ended.map_err(|error| {
            Failure::world(format!("the append log: {error}"), "look at the drive before the next start")
        })
    }
}

fn keep(engine: &Engine, mut keeper: Keeper<Folder>, inbox: &Inbox, released: &Released) -> Result<(), LogError> {
    let mut again = Some(clock::now());
    loop {
        let order = match again {
            Some(at) => inbox.0.recv_timeout(at.saturating_since(clock::now())),
            None => inbox.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Stop) => {
                let finished = keeper.finish(clock::now());
                released.send_replace(());
                return finished;
            }
            Ok(Order::Install(base, done)) => {
                let installed = if keeper.look(|log| log.begins_at(base.position)) {
                    keeper.install(&base).map_err(|error| error.to_string())
                } else {
                    Err("the log has not come as far as the snapshot".to_owned())
                };
                // Whoever asked may have been told to stop meanwhile.
                done.send(installed).ok();
            }
            Ok(Order::Sync(done)) => {
                let synced = keeper.sync_now(clock::now());
                if let Err(error) = &synced
                    && !matches!(error, LogError::Refused { .. })
                {
                    die(error);
                }
                // Whoever asked may have been told to stop meanwhile.
                done.send(synced.map_err(|error| error.to_string())).ok();
            }
            Ok(Order::Write) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("the inbox holds a sender"),
        }
        match keeper.turn(clock::now()) {
            Ok(turn) => {
                again = turn.again;
                if let Some(error) = turn.refused {
                    tracing::error!(%error, "writes are refused until the append log can be written");
                }
            }
            Err(error) => die(&error),
        }
        released.send_replace(());
        let (since_base, base) = keeper.look(|log| (log.bytes_since_base(), log.base_bytes()));
        engine.saves().note_log(since_base, base);
    }
}

/// Nobody knows what is durable: only a new start finds out.
fn die(error: &LogError) -> ! {
    tracing::error!(%error, "the engine ends: start it again to recover what is durable");
    process::exit(1)
}
