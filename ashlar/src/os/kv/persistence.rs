//! What the key-value engine keeps on files: dumps, and the append log.
//!
//! Two threads beside those that serve. One syncs the append log, and writes to it what the threads that serve do not write
//! themselves before they reply ([`log`]); the other takes snapshots, one at a time: dumps, and what the log begins with ([`saver`]).

mod aside;
mod courtesy;
mod log;
mod opening;
mod replicas;
mod saver;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ashlar_kv::persist::snapshot::Purpose;
use ashlar_kv::persist::{Files, Keeper, LogError, NewBase, OpenEnd};
use ashlar_kv::rdb::ImportOptions;
use ashlar_kv::{Engine, Shutdown};
use tokio::sync::watch;

use self::log::LogThread;
use self::saver::Saver;
use super::folder::Folder;
use super::foreign;
use crate::failure::Failure;
use crate::os::{clock, files, random, rdb};

/// Tells connections that the log's thread has written, synced, or given up for now.
type Released = Arc<watch::Sender<()>>;

/// The threads that keep an engine's data.
#[derive(Debug)]
pub(super) struct Persistence {
    engine: Arc<Engine>,
    released: watch::Receiver<()>,
    saver: Saver,
}

impl Persistence {
    /// Reads what is there into an engine that nobody uses yet, and keeps it from now on.
    ///
    /// # Errors
    /// A file cannot be read, is damaged, or is in use. Nothing was written then but what recovery does.
    pub(super) fn start(engine: &Arc<Engine>) -> Result<Self, Failure> {
        let files = engine.files();
        let dump = dump_path(&files);
        let (sender, released) = watch::channel(());
        let sender = Arc::new(sender);
        let log = if files.is_log_on {
            Some(recover(engine, &files, &dump, &sender)?)
        } else {
            load_dump(engine, &dump)?;
            None
        };
        aside::look(engine, &files);
        engine.saves().serve(clock::now_both().unix_ms().div_euclid(1_000));
        let saver = Saver::start(Arc::clone(engine), log, sender)?;
        Ok(Self { engine: Arc::clone(engine), released, saver })
    }

    /// Changes when the log's thread has written, synced, or given up for now: connections that wait look again then.
    #[must_use]
    pub(super) fn released(&self) -> watch::Receiver<()> {
        self.released.clone()
    }

    /// Keys have come without commands: a log begins anew, with them.
    ///
    /// # Errors
    /// They are not on files. Nobody may be served.
    pub(super) fn take_in(&self) -> Result<(), Failure> {
        if self.engine.files().is_log_on && !self.engine.saves().take_and_wait(Purpose::LogBase) {
            return Err(Failure::world(
                "what was imported cannot be written to the append log",
                "see the log for the reason",
            ));
        }
        Ok(())
    }

    /// Writes what is left, when no command runs any more. Without a wish, a dump is written if any save point is configured; none if
    /// [`save_finally`] was done and nothing has changed since.
    ///
    /// # Errors
    /// Something is not on files that should be. The process ends nevertheless.
    pub(super) fn stop(self, request: Shutdown) -> Result<(), Failure> {
        let log = self.saver.stop();
        let files = self.engine.files();
        let is_part = self.engine.is_loading();
        let has_dump = self.engine.saves().has_final_dump(self.engine.changes());
        let dumped = if !is_part && wants_dump(request, &files) && !has_dump {
            let path = dump_path(&files);
            let written = saver::write_dump(&self.engine, &path, &|| false);
            written.map(drop).map_err(|why| {
                Failure::world(format!("cannot write {}: {why}", path.display()), "free some space there")
            })
        } else {
            Ok(())
        };
        let Some(mut log) = log else { return dumped };
        let based = if log.lacks_base { log.rewrite(&self.engine, &|| false).map(drop) } else { Ok(()) };
        let based =
            based.map_err(|why| Failure::world(format!("the append log has no base: {why}"), "free some space there"));
        dumped.and(based).and(log.stop())
    }
}

/// Whether the process ends with a dump.
fn wants_dump(request: Shutdown, files: &Files) -> bool {
    request.wants_dump.unwrap_or(!files.save_points.is_empty())
}

/// Saves everything that must outlast the process, while the engine still serves. Writes are held back. Takes as long as a dump does.
///
/// # Errors
/// Something is not on files. Retry safe once the cause is gone.
pub(super) fn save_finally(engine: &Engine, request: Shutdown) -> Result<(), Failure> {
    let files = engine.files();
    let has_dump = wants_dump(request, &files);
    if !has_dump && !files.is_log_on {
        return Ok(());
    }
    engine.saves().save_finally(has_dump).map_err(|what| {
        let remedy = format!("make {} writable and free space there", files.directory);
        Failure::world(what, remedy)
    })
}

/// Where dumps are written.
fn dump_path(files: &Files) -> PathBuf {
    Path::new(&files.directory).join(&files.dump_name)
}

/// Reads the append log again in place of all data, while nobody is served. Returns its thread, as it was recovered.
fn load_log(engine: &Arc<Engine>, files: &Files, released: &Released) -> Result<LogThread, Failure> {
    let manifest = log_root(files)?.join("manifest");
    if !files::exists(&manifest) {
        return Err(Failure::world(format!("there is no {}", manifest.display()), "see `appendonly`"));
    }
    engine.forget_data(clock::now_both());
    recover(engine, files, &dump_path(files), released)
}

fn load_dump(engine: &Engine, path: &Path) -> Result<u64, Failure> {
    if !files::exists(path) {
        return Ok(0);
    }
    let begin = clock::now();
    let options = ImportOptions { is_own: true, ..ImportOptions::default() };
    let imported = rdb::import_with(engine, path, options)?;
    if let Some(point) = &imported.point {
        engine.restore_point(point, clock::now_both());
    }
    let seconds = clock::now().saturating_since(begin).as_secs_f64();
    let (keys, expired, empty) = (imported.keys, imported.expired, imported.empty);
    tracing::info!(keys, expired, empty, "DB loaded from disk: {seconds:.3} seconds");
    Ok(imported.keys)
}

/// The directory of the log, unless another program's log is there.
fn log_root(files: &Files) -> Result<PathBuf, Failure> {
    let root = Path::new(&files.directory).join(&files.log_folder);
    foreign::refuse_log(&root)?;
    Ok(root)
}

/// Recovers the log, or begins one; with what a dump has, if there was no log.
fn recover(engine: &Arc<Engine>, files: &Files, dump: &Path, released: &Released) -> Result<LogThread, Failure> {
    let root = log_root(files)?;
    let is_new = !files::exists(&root.join("manifest"));
    if is_new {
        foreign::refuse_old_log(files)?;
    }
    let folder = Folder::take(&root)?;
    foreign::keep_away(&root, files)?;
    let beside = folder.beside();
    let keys = if is_new { load_dump(engine, dump)? } else { 0 };
    let (orders, inbox) = log::channel();
    let begin = clock::now();
    let wake = Box::new(move || orders.write());
    let recovered = Keeper::recover(Arc::clone(engine), folder, random::bytes(), wake, clock::now_both());
    let (mut keeper, report) = recovered.map_err(|error| {
        Failure::world(format!("the append log in {} cannot be used: {error}", root.display()), remedy(&error))
    })?;
    if let Some(end) = &report.open_end {
        tell_of_open_end(end, &root, files)?;
    }
    if !is_new {
        let seconds = clock::now().saturating_since(begin).as_secs_f64();
        let (batches, bytes) = (report.batches, report.bytes);
        tracing::info!(batches, bytes, "DB loaded from append only file: {seconds:.3} seconds");
    }
    if keys > 0 {
        begin_with_dump(engine, &mut keeper, beside.beside())?;
    }
    LogThread::start(engine, keeper, inbox, beside, Arc::clone(released))
}

/// What to do when the log cannot be recovered.
fn remedy(error: &LogError) -> &'static str {
    use std::io::ErrorKind;
    match error {
        LogError::Damaged { .. } => "restore the directory from a copy; to begin without its data, move it away",
        LogError::NotApplied { .. } => {
            "nothing is lost: change the setting that it names, or start the version that wrote it"
        }
        LogError::Refused { error, .. } => match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "nothing is lost: free space there, then start again",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "nothing is lost: let the program's user write there, then start again"
            }
            _ => "no damage was found: look at the drive and its file system, then start again",
        },
        LogError::Lost { .. } => "look at the drive, then start again",
    }
}

/// Says what is known of the end of a log that its process did not close, and what follows for acknowledged writes.
fn tell_of_open_end(end: &OpenEnd, root: &Path, files: &Files) -> Result<(), Failure> {
    let OpenEnd { file, used_bytes, cut_bytes } = end;
    if *cut_bytes == 0 {
        tracing::info!(
            file,
            used_bytes,
            "the append log was not closed, and ends behind a whole record. Whether there was more cannot be known: see `An open end` in \
             docs/operating/kv-engine.md"
        );
        return Ok(());
    }
    if !files.takes_torn_log {
        let what = format!(
            "{file} of the append log in {} ends within a record: whole records end at byte {used_bytes}, {cut_bytes} bytes follow",
            root.display()
        );
        return Err(Failure::world(what, "set `aof-load-truncated yes` to go on without what follows"));
    }
    tracing::warn!(
        file,
        used_bytes,
        cut_bytes,
        "the append log ended within a record, which was cut off. With `appendfsync always` no acknowledged write was in it, unless the \
         file was changed from outside or the drive lost what it had synced; with `everysec` and `no` writes may be lost if the \
         machine died: see `An open end` in docs/operating/kv-engine.md"
    );
    Ok(())
}

/// Begins a log for an engine that is in use. It is found at the next start once it has a base.
fn begin(engine: &Arc<Engine>, files: &Files, released: &Released) -> Result<LogThread, Failure> {
    let root = log_root(files)?;
    let folder = Folder::take(&root)?;
    foreign::keep_away(&root, files)?;
    let beside = folder.beside();
    let (orders, inbox) = log::channel();
    let wake = Box::new(move || orders.write());
    let begun = Keeper::begin(Arc::clone(engine), folder, random::bytes(), wake, clock::now());
    let keeper = begun.map_err(|error| {
        let what = format!("no append log can be begun in {}: {error}", root.display());
        Failure::world(what, "move what is there away, or make room")
    })?;
    LogThread::start(engine, keeper, inbox, beside, Arc::clone(released))
}

/// What came from a dump is part of the log before anybody is served.
fn begin_with_dump(engine: &Arc<Engine>, keeper: &mut Keeper<Folder>, mut folder: Folder) -> Result<(), Failure> {
    let failed = |why: &dyn core::fmt::Display| {
        Failure::world(format!("the append log cannot begin with the dump: {why}"), "free some space there")
    };
    let base: NewBase = saver::write_base(engine, &mut folder, &|| false).map_err(|why| failed(&why))?;
    keeper.turn(clock::now()).map_err(|error| failed(&error))?;
    keeper.install(&base).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_damage_is_answered_with_a_copy() {
        let refused = |number: i32| {
            let error = io::Error::from_raw_os_error(number);
            remedy(&LogError::Refused { what: "replace", file: "manifest".to_owned(), error })
        };
        for full in [libc::ENOSPC, libc::EDQUOT] {
            assert!(refused(full).contains("free space"), "{full}");
        }
        for denied in [libc::EACCES, libc::EPERM, libc::EROFS] {
            assert!(refused(denied).contains("write there"), "{denied}");
        }
        assert!(refused(libc::EIO).contains("drive"));
        let damaged = LogError::Damaged { file: "log-1".to_owned(), offset: 0, what: String::new() };
        assert!(remedy(&damaged).contains("from a copy"));
    }
}
