//! The audit log: a file of lines, written by a thread of its own.
//!
//! Whoever serves a request does not wait for the drive: lines wait in memory, and those beyond its limit are lost, counted and
//! said. The file may be moved away at any time, as `logrotate` does: the next lines go to a new one at the same path. Lines are
//! handed to the operating system within moments, not synced: they survive the end of the process, not the loss of power.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::clock;

/// Bytes of lines that may wait for the drive.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Lines that come within this time are written together.
const GATHER: Duration = Duration::from_millis(20);
/// A trouble of the same kind is logged again after this time.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Keys, addresses and names of users are not everybody's.
const MODE: u32 = 0o600;

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    lost: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() >= WAITING_BYTES_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let is_first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        waiting.bytes.push(b'\n');
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Waits for lines; nothing once it is closed and all were taken.
    fn take(&self) -> Option<Vec<u8>> {
        let mut waiting = self.lock();
        while waiting.bytes.is_empty() && !waiting.is_closed {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let gathered = self.changed.wait_timeout_while(waiting, GATHER, |waiting| !waiting.is_closed);
        let (mut waiting, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        let bytes = core::mem::take(&mut waiting.bytes);
        (!bytes.is_empty()).then_some(bytes)
    }
}

/// See the head of this file. Dropped, it writes what waits.
pub struct AuditLog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl AuditLog {
    /// Opens the file at `path`, or makes it, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened for writing, or the operating system gives no more threads.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut target = Target { path: path.to_owned(), file: Some(open(path)?), is_torn: false, said: None };
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let work = move || {
            while let Some(bytes) = theirs.take() {
                let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
                if let Err(error) = target.write(&bytes) {
                    let total = theirs.lost.fetch_add(lines, Ordering::Relaxed) + lines;
                    target.say(&error, total);
                }
            }
        };
        let thread = Some(thread::Builder::new().name("audit-log".into()).spawn(work)?);
        Ok(Self { shared, thread })
    }

    /// Writes a line soon. `line` has no end of its own and holds none.
    pub fn put(&self, line: &[u8]) {
        self.shared.put(line);
    }

    /// Lines that were lost, because the drive was too slow or refused them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic was told by its hook, and there is nobody else to tell.
            thread.join().ok();
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

/// Where lines go.
struct Target {
    path: PathBuf,
    file: Option<File>,
    /// The last line in the file may have no end.
    is_torn: bool,
    said: Option<Instant>,
}

impl Target {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if !self.is_there() {
            (self.file, self.is_torn) = (None, false);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => open(&self.path)?,
        };
        if self.is_torn {
            file.write_all(b"\n")?;
        }
        self.is_torn = true;
        let written = file.write_all(lines);
        self.is_torn = written.is_err();
        self.file = Some(file);
        written
    }

    /// Whether the file that is open is the one at the path.
    fn is_there(&self) -> bool {
        let same = |file: &File| -> io::Result<bool> {
            let (ours, there) = (file.metadata()?, self.path.metadata()?);
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        self.file.as_ref().is_some_and(|file| same(file).unwrap_or(false))
    }

    fn say(&mut self, error: &io::Error, total: u64) {
        let now = clock::now();
        if self.said.is_none_or(|said| now >= said + SAY_EVERY) {
            self.said = Some(now);
            let path = self.path.display();
            tracing::error!(%path, %error, total, "lines of the audit log are lost: make room or let the file be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::os::files::tests::Scratch;

    fn lines(path: &Path) -> Vec<String> {
        fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_appended_and_a_file_that_was_moved_is_begun_anew() {
        let folder = Scratch::new();
        let path = folder.0.join("audit.log");
        fs::write(&path, "old\n").expect("a file");
        let log = AuditLog::open(&path).expect("the log");
        log.put(b"one");
        while lines(&path).len() < 2 {
            thread::yield_now();
        }
        let moved = folder.0.join("audit.log.1");
        fs::rename(&path, &moved).expect("the file is moved");
        log.put(b"two");
        log.put(b"three");
        drop(log);
        assert_eq!(
            (lines(&moved), lines(&path)),
            (vec!["old".into(), "one".into()], vec!["two".into(), "three".into()])
        );
    }

    #[test]
    fn lines_beyond_the_limit_are_lost_and_counted() {
        let shared = Shared::default();
        let line = vec![b'x'; WAITING_BYTES_MAX / 4];
        (0..5).for_each(|_| shared.put(&line));
        assert_eq!((shared.lock().bytes.len(), shared.lost.load(Ordering::Relaxed)), (3 * (line.len() + 1), 2));
    }

    #[test]
    fn what_a_full_drive_refuses_is_counted() {
        let log = AuditLog::open(Path::new("/dev/full")).expect("the log");
        log.put(b"one");
        log.put(b"two");
        while log.lost() < 2 {
            thread::yield_now();
        }
        drop(log);
        assert!(AuditLog::open(Path::new("/nowhere/audit.log")).is_err());
    }

    #[test]
    fn a_line_that_was_torn_spoils_no_other() {
        let folder = Scratch::new();
        let path = folder.0.join("audit.log");
        fs::write(&path, "{\"half").expect("a file");
        let mut target = Target { path: path.clone(), file: Some(open(&path).expect("it")), is_torn: true, said: None };
        target.write(b"whole\n").expect("room");
        assert_eq!(lines(&path), ["{\"half", "whole"]);
    }
}
