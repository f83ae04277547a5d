//! The thread that takes snapshots.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ashlar_kv::Engine;
use ashlar_kv::persist::log::BaseChecksum;
use ashlar_kv::persist::snapshot::{Loss, Purpose, Step};
use ashlar_kv::persist::{Files, Folder as _, Load, NewBase, Snapshot};
use ashlar_kv::rdb::ImportOptions;

use super::courtesy::Courtesy;
use super::log::LogThread;
use super::opening::Opening;
use super::{Folder, Released, aside, dump_path, replicas};
use crate::failure::Failure;
use crate::os::files::{self, Creation, Trickle};
use crate::os::{clock, process, rdb};

/// How often the thread looks whether a snapshot is wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same while the engine rests. Whatever is asked for ends that.
const LOOK_AT_REST: Duration = Duration::from_secs(1);
/// The thread goes behind those that serve clients where they want the same core: on one core, a snapshot would take half of it.
const NICENESS: i32 = 10;
/// How often a snapshot is begun again because a database was flushed or swapped meanwhile.
const TRIES_MAX: u32 = 8;

/// Why there is no snapshot.
#[derive(Debug)]
pub(super) enum Why {
    /// Somebody asked for that.
    GivenUp,
    /// Databases are flushed or swapped again and again.
    Flushed,
    /// The file system refused.
    Refused(io::Error),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GivenUp => f.write_str("it was cancelled"),
            Self::Flushed => f.write_str("databases are flushed or swapped all the time"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::Refused(error)
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Saver {
    stop: Sender<()>,
    thread: JoinHandle<Option<LogThread>>,
}

impl Saver {
    /// Starts it; with the log, if there is one.
    ///
    /// # Errors
    /// There are no threads.
    pub(super) fn start(engine: Arc<Engine>, log: Option<LogThread>, released: Released) -> Result<Self, Failure> {
        let (stop, stopped) = mpsc::channel::<()>();
        let opening = Opening::of(&engine, Arc::clone(&released));
        opening.give_up_place(log.as_ref());
        engine.set_log_opener(Box::new(opening.clone()));
        let body = move || {
            process::step_back(NICENESS);
            let mut work = Work { engine, log, opening, released, stopped };
            while work.waits() {
                work.look();
            }
            // What was configured a moment ago counts as well.
            work.switch();
            work.engine.saves().leave();
            work.log
        };
        let thread = thread::Builder::new().name("kv-save".into()).spawn(body);
        Ok(Self { stop, thread: thread.map_err(|error| super::super::cannot_start(&error))? })
    }

    /// Gives up what is being taken, and ends the thread. Returns the log's.
    pub(super) fn stop(self) -> Option<LogThread> {
        drop(self.stop);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or(None)
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

struct Work {
    engine: Arc<Engine>,
    log: Option<LogThread>,
    opening: Opening,
    released: Released,
    stopped: mpsc::Receiver<()>,
}

impl Work {
    /// Waits for the next look. Says whether there is one.
    fn waits(&self) -> bool {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let span = match self.engine.poll_look_wanted(&Context::from_waker(&waker)) {
            Poll::Pending if self.engine.is_resting() => LOOK_AT_REST,
            _ => LOOK_EVERY,
        };
        thread::park_timeout(span);
        !is_over(&self.stopped)
    }

    /// Begins or ends the log, as it is configured.
    fn switch(&mut self) {
        let is_on = self.engine.files().is_log_on;
        match (self.opening.is_wanted(is_on, &mut self.log), self.log.take()) {
            (true, None) => self.begin_log(),
            (false, Some(log)) => end_log(log),
            (_, log) => self.log = log,
        }
        self.opening.give_up_place(self.log.as_ref());
    }

    /// Does what was configured or asked for since the last look.
    fn look(&mut self) {
        self.switch();
        let files = self.engine.files();
        if let Some(has_dump) = self.engine.saves().next_final() {
            let saved = self.save_finally(has_dump, &files);
            self.engine.saves().end_final(saved);
        }
        if let Some(load) = self.engine.saves().next_load() {
            let loaded = self.load(load, &files);
            self.engine.saves().end_load(loaded);
        }
        if self.engine.is_loading() {
            // What is there is a part only.
            return;
        }
        if self.engine.aside().next() {
            let changes = self.engine.changes();
            let kept = aside::keep(&self.engine, &files, &|| is_over(&self.stopped) || is_last(&self.engine));
            self.engine.aside().end(kept.map(|removed| (changes, removed)));
        }
        while let Some(sync) = self.engine.next_full_sync(clock::now_both()) {
            self.engine.saves().begin_other(Purpose::Replicas, now_s());
            let stopped = &self.stopped;
            replicas::synchronise(&self.engine, sync, &files, &|| is_over(stopped) || is_last(&self.engine));
            self.engine.saves().end_other();
        }
        let saves = self.engine.saves();
        let lacks_base = |log: &LogThread| log.lacks_base || self.engine.journal().is_held();
        if self.log.as_ref().is_some_and(lacks_base) && saves.may_take_base(now_s()) {
            saves.want_base();
        }
        let growth = if self.log.is_some() { files.growth_percent } else { 0 };
        let next = saves.next(now_s(), self.engine.changes(), &files.save_points, growth, files.growth_bytes_min);
        if let Some(purpose) = next {
            self.take(purpose, &files);
        }
    }

    /// Saves everything that must outlast the process, while it is still served.
    fn save_finally(&mut self, has_dump: bool, files: &Files) -> Result<(), String> {
        let (engine, stopped) = (&self.engine, &self.stopped);
        let saves = engine.saves();
        let is_given_up = || saves.is_cancelled() || is_over(stopped);
        // What is being loaded is a part only.
        if has_dump && !engine.is_loading() {
            let (changes, path) = (engine.changes(), dump_path(files));
            saves.begin_final_dump(now_s(), changes);
            let written = write_dump(engine, &path, &is_given_up);
            saves.end(written.is_ok(), now_s());
            written.map_err(|why| format!("cannot write {}: {why}", path.display()))?;
            saves.note_final_dump(changes);
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.lacks_base {
            log.rewrite(engine, &is_given_up).map_err(|why| format!("the append log has no base: {why}"))?;
        }
        log.sync().map_err(|why| format!("the append log cannot be written: {why}"))
    }

    fn begin_log(&mut self) {
        match super::begin(&self.engine, &self.engine.files(), &self.released) {
            Ok(log) => {
                tracing::info!("an append log is begun: it counts when it has a base");
                self.log = Some(log);
            }
            Err(failure) => {
                tracing::error!("{failure}");
                self.engine.configure("appendonly", "no").ok();
            }
        }
    }

    fn take(&mut self, purpose: Purpose, files: &Files) {
        let (engine, stopped) = (&self.engine, &self.stopped);
        let begin = clock::now();
        let is_given_up = || engine.saves().is_cancelled() || engine.is_loading() || is_over(stopped);
        if purpose == Purpose::LogBase {
            self.opening.take_place(&mut self.log);
        }
        let taken = match (purpose, &mut self.log) {
            (Purpose::Dump, _) => write_dump(engine, &dump_path(files), &is_given_up).map_err(|why| why.to_string()),
            (Purpose::LogBase, Some(log)) => log.rewrite(engine, &is_given_up),
            (Purpose::LogBase, None) => write_log(engine, &self.released, &is_given_up),
            (Purpose::Replicas, _) => unreachable!("replicas are not waited for with the others"),
        };
        let seconds = clock::now().saturating_since(begin).as_secs_f64();
        let what = if purpose == Purpose::Dump { "DB saved on disk" } else { "append log rewritten" };
        match &taken {
            Ok(keys) => tracing::info!(keys, "{what} ({seconds:.3} seconds)"),
            // Nothing has failed: the process ends, or somebody did not want it any more.
            Err(_) if is_given_up() => tracing::info!("{what}: given up"),
            Err(why) => tracing::error!(%why, "{what}: failed"),
        }
        self.opening.give_up_place(self.log.as_ref());
        self.engine.saves().end(taken.is_ok(), now_s());
    }
}

impl Work {
    /// Reads data from files again, while nobody is served.
    fn load(&mut self, load: Load, files: &Files) -> Result<(), String> {
        self.opening.take_place(&mut self.log);
        self.engine.begin_loading(clock::now_both());
        let loaded = match load {
            Load::Log => self.load_log(files),
            Load::Dump { is_saved, is_flushed, merges } => {
                let loaded = load_dump(&self.engine, files, is_saved, is_flushed, merges);
                if self.log.is_some() && !(is_saved && is_flushed && loaded.is_ok()) {
                    // The log does not know of what is there now.
                    self.engine.saves().want_base();
                }
                loaded
            }
        };
        self.engine.end_loading();
        self.opening.give_up_place(self.log.as_ref());
        loaded
    }

    fn load_log(&mut self, files: &Files) -> Result<(), String> {
        let was_on = self.log.is_some();
        if let Some(mut log) = self.log.take() {
            if log.lacks_base {
                log.rewrite(&self.engine, &|| false)?;
            }
            log.stop().map_err(|failure| failure.to_string())?;
        }
        let log = super::load_log(&self.engine, files, &self.released).map_err(|failure| failure.to_string())?;
        if was_on {
            self.log = Some(log);
            return Ok(());
        }
        log.stop().map_err(|failure| failure.to_string())
    }
}

/// Reads a dump again; nobody is served.
fn load_dump(
    engine: &Arc<Engine>,
    files: &Files,
    is_saved: bool,
    is_flushed: bool,
    merges: bool,
) -> Result<(), String> {
    let path = dump_path(files);
    if is_saved {
        write_dump(engine, &path, &|| false).map_err(|why| why.to_string())?;
    }
    if is_flushed {
        engine.forget_data(clock::now_both());
    }
    let options = ImportOptions { replaces: merges, ..ImportOptions::default() };
    rdb::import_with(engine, &path, options).map(drop).map_err(|failure| failure.to_string())
}

/// Writes an append log with what is there now, although none is kept: nothing follows.
fn write_log(engine: &Arc<Engine>, released: &Released, is_given_up: &dyn Fn() -> bool) -> Result<u64, String> {
    let mut log = super::begin(engine, &engine.files(), released).map_err(|failure| failure.to_string())?;
    let written = log.rewrite(engine, is_given_up);
    let stopped = log.stop().map_err(|failure| failure.to_string());
    written.and_then(|keys| stopped.map(|()| keys))
}

/// Whether everything else gives way to the last save before the end of the process.
fn is_last(engine: &Engine) -> bool {
    engine.saves().is_final_wanted()
}

/// Whether the thread is to end.
fn is_over(stopped: &mpsc::Receiver<()>) -> bool {
    stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected)
}

fn end_log(log: LogThread) {
    match log.stop() {
        Ok(()) => tracing::info!("the append log is closed: what is written from now on is not in it"),
        Err(failure) => tracing::error!("{failure}"),
    }
}

fn now_s() -> i64 {
    clock::now_both().unix_ms().div_euclid(1_000)
}

/// Writes all keys as a new base of the log, durable on return, and cuts the journal where it begins.
///
/// # Errors
/// There is none. A file may be left: recovery and the next base remove it.
pub(super) fn write_base(
    engine: &Arc<Engine>,
    folder: &mut Folder,
    is_given_up: &dyn Fn() -> bool,
) -> Result<NewBase, Why> {
    attempt(|| {
        let name = format!("base-{}.rdb", clock::now_both().unix_us);
        let snapshot = Snapshot::begin(Arc::clone(engine), Purpose::LogBase, true, clock::now_both());
        let (mut checksum, mut length, mut trickle) = (BaseChecksum::default(), 0, Trickle::default());
        let (position, keys) = take(snapshot, is_given_up, &mut |bytes| {
            folder.append(&name, bytes)?;
            checksum.update(bytes);
            length += bytes.len() as u64;
            folder.trickle(&name, bytes.len(), &mut trickle);
            Ok(())
        })?;
        folder.syncer(&name)()?;
        Ok(NewBase { name, length, checksum: checksum.value(), position, keys })
    })
}

/// Writes all keys to a file, which is durable and whole on return or what it was. Returns how many keys.
///
/// # Errors
/// See [`Why`]. Safe to retry.
pub(super) fn write_dump(engine: &Arc<Engine>, path: &Path, is_given_up: &dyn Fn() -> bool) -> Result<u64, Why> {
    let mut takes_fields = false;
    attempt(|| {
        let beside = path.with_added_extension("new");
        let mut file = files::create(&beside, Creation::New)?;
        let snapshot = Snapshot::begin(Arc::clone(engine), Purpose::Dump, takes_fields, clock::now_both());
        let mut trickle = Trickle::default();
        let taken = take(snapshot, is_given_up, &mut |bytes| {
            file.write_all(bytes)?;
            trickle.handle_written(&file, bytes.len());
            Ok(())
        });
        let done = taken.and_then(|(_, keys)| {
            file.sync_all()?;
            fs::rename(&beside, path)?;
            files::sync_directory(path.parent().unwrap_or(Path::new("")))?;
            Ok(keys)
        });
        if let Err(fault) = &done {
            takes_fields |= matches!(fault, Fault::Again(Loss::NeedsValkey));
            // What is left of it is overwritten by the next.
            fs::remove_file(&beside).ok();
        }
        done
    })
}

/// Why an attempt failed.
enum Fault {
    /// Another may not.
    Again(Loss),
    Final(Why),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Final(Why::Refused(error))
    }
}

/// Tries again what was overtaken by a flush.
fn attempt<T>(mut once: impl FnMut() -> Result<T, Fault>) -> Result<T, Why> {
    for _ in 0..TRIES_MAX {
        match once() {
            Ok(done) => return Ok(done),
            Err(Fault::Final(why)) => return Err(why),
            Err(Fault::Again(_)) => {}
        }
    }
    Err(Why::Flushed)
}

/// Takes a snapshot. Returns where the journal was cut, and how many keys there are.
fn take(
    mut snapshot: Snapshot,
    is_given_up: &dyn Fn() -> bool,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(u64, u64), Fault> {
    let mut courtesy = Courtesy::new();
    loop {
        let step = snapshot.step();
        write(&snapshot.take())?;
        courtesy.handle_step();
        match step {
            Step::More if is_given_up() => return Err(Fault::Final(Why::GivenUp)),
            Step::More => {}
            Step::Done => return Ok((snapshot.position(), snapshot.keys())),
            Step::Lost(loss) => return Err(Fault::Again(loss)),
        }
    }
}
