//! Drive of a server: a directory, the thread that owns its [`DriveHost`], and the threads that execute its IOs.
//!
//! ```text
//! lock         held by the one process that uses the drive
//! extents      superblocks, journal, tables and data, preallocated
//! extents.new  the same while it is formatted; renamed when it is whole
//! blobs.lock, blobs, blobs.new   the same for shards of objects (`blobs`)
//! ```
//!
//! The owner waits at one inbox for what others send and for completed IOs, and takes everything there is at once:
//! changes that arrive while a batch of the journal is written share the next one. IOs go to a small pool of threads,
//! whose system calls block. What the drive wants done goes to a function that the starter gives. It runs on the
//! owner's thread, so it must not wait.
//!
//! Deliberately absent: io_uring, block devices, and moving a drive to another size.
//!
//! Parts: `folder` (directory, formatting, opening), `executor` (one IO), `pool` (the threads), `inbox`, `level` (how full it is); `blobs` (shards of
//! objects, which have threads of their own).

pub mod blobs;
mod executor;
mod folder;
mod inbox;
mod level;
mod pool;

use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ashlar_node::volume::drive_host::{DriveHost, HostConfig, HostOutput};
use ashlar_node::volume::drive_port::{DriveInput, DrivePort};
use ashlar_node::volume::space::Room;
use ashlar_wire::id::{ClusterId, DriveId, ServerId};

use super::{clock, random};
use crate::failure::Failure;
use folder::Folder;
use inbox::{Completion, Inbox};
use level::Level;
use pool::Pool;

/// Threads that execute the IOs of one drive. Each has one IO at a time.
pub const IO_THREADS: usize = 4;

/// Whose drive it is.
#[derive(Debug, Clone, Copy)]
pub struct DriveIds {
    /// The cluster: a drive of another one is refused.
    pub cluster: ClusterId,
    /// The server that formats the drive if it is new.
    pub server: ServerId,
    /// The id of the drive if it is new, never used before. One that was formatted keeps its own.
    pub new_drive: DriveId,
}

/// Why an input was not taken. Nothing was done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveRefusal {
    /// The load's: as many inputs wait as may. A retry is safe, later.
    Busy,
    /// Ours: the drive was stopped. No retry helps.
    Stopped,
}

/// How the file of a drive is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Past the kernel's page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache: the file system does not offer direct access. As durable, and slower.
    Buffered,
}

/// Starts drives.
#[derive(Debug)]
pub struct DriveThread;

impl DriveThread {
    /// Whether a directory has a drive.
    #[must_use]
    pub fn is_at(directory: &Path) -> bool {
        Folder::has_drive(directory)
    }

    /// Opens the drive in a directory, or makes one of `bytes` bytes there, and starts its threads. `outputs` is called
    /// on the drive's thread with all that the drive wants done, in order, whenever there is something.
    ///
    /// # Errors
    /// The directory cannot be used, is in use, belongs to another cluster, was written by a newer program, is damaged,
    /// too small, or the file system is full. Retry safe: an interrupted formatting begins anew.
    pub fn open_or_format(
        dir: &Path,
        ids: DriveIds,
        bytes: u64,
        outputs: impl FnMut(DriveId, Vec<HostOutput>) + Send + 'static,
    ) -> Result<DriveHandle, Failure> {
        let folder = Folder::take(dir, folder::LOCK)?;
        let (file, store) = folder.open_or_format(ids, bytes)?;
        let access = file.access();
        let life = u64::from_ne_bytes(random::bytes());
        let host = DriveHost::new(clock::now(), store, HostConfig::default(), life);
        let drive = host.drive();
        let level = Arc::new(Level::new(host.store().data_bytes()));
        let inbox = Arc::new(Inbox::default());
        let pool = Pool::start(&Arc::new(file), &inbox, IO_THREADS).map_err(no_thread)?;
        let shown = Arc::clone(&level);
        let owner = Owner { host, pool, inbox: Arc::clone(&inbox), outputs, level: shown, _folder: folder };
        let thread = thread::Builder::new().name("drive".into()).spawn(move || owner.run()).map_err(no_thread)?;
        Ok(DriveHandle { inbox, thread: Some(thread), drive, access, level })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn no_thread(error: std::io::Error) -> Failure {
    Failure::world(format!("cannot start a thread for a drive: {error}"), "check the limits of threads and memory")
}

/// A drive that runs. It stops when this value is dropped.
#[derive(Debug)]
pub struct DriveHandle {
    inbox: Arc<Inbox<DriveInput>>,
    thread: Option<JoinHandle<()>>,
    drive: DriveId,
    access: FileAccess,
    level: Arc<Level>,
}

impl DriveHandle {
    /// Which drive it is.
    #[must_use]
    pub const fn drive(&self) -> DriveId {
        self.drive
    }

    /// How its file is read and written.
    #[must_use]
    pub const fn access(&self) -> FileAccess {
        self.access
    }

    /// Space for extents, as of a moment ago.
    #[must_use]
    pub fn room(&self) -> Room {
        self.level.room()
    }

    /// Whether the drive has failed a write or a sync, and is not used any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.level.has_failed()
    }

    /// Tells the drive something. Never waits for the drive.
    ///
    /// # Errors
    /// [`DriveRefusal`].
    pub fn send(&self, input: DriveInput) -> Result<(), DriveRefusal> {
        self.inbox.send(input)
    }

    /// Tells the drive several things at once. Those for which there is no room are lost. Never waits for the drive.
    pub fn send_all(&self, inputs: Vec<DriveInput>) {
        self.inbox.send_all(inputs);
    }

    /// Stops the drive and waits for its threads. Everything acknowledged is durable; what is under way may be done or
    /// not, as at a loss of power. Another process can open the drive afterwards.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.inbox.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl DrivePort for DriveHandle {
    fn send(&self, input: DriveInput) -> bool {
        Self::send(self, input).is_ok()
    }

    fn send_all(&self, inputs: Vec<DriveInput>) {
        Self::send_all(self, inputs);
    }
}

impl Drop for DriveHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the drive's own thread holds.
struct Owner<F> {
    host: DriveHost,
    pool: Pool,
    inbox: Arc<Inbox<DriveInput>>,
    outputs: F,
    level: Arc<Level>,
    /// Its lock is released last, when no IO is under way any more.
    _folder: Folder,
}

impl<F: FnMut(DriveId, Vec<HostOutput>)> Owner<F> {
    fn run(mut self) {
        loop {
            // First what the drive wants: it may have begun something when it was opened.
            self.pool.execute(core::iter::from_fn(|| self.host.poll_io()));
            self.level.set_free(self.host.store().free_bytes());
            let outputs: Vec<HostOutput> = core::iter::from_fn(|| self.host.poll_output()).collect();
            if outputs.iter().any(|output| matches!(output, HostOutput::Poisoned(_))) {
                self.level.fail();
            }
            if !outputs.is_empty() {
                (self.outputs)(self.host.drive(), outputs);
            }
            let Some(batch) = self.inbox.wait(self.host.poll_timeout()) else { break };
            let now = clock::now();
            for Completion { id, result } in batch.completions {
                self.host.handle_io(now, id, result);
            }
            batch.inputs.into_iter().for_each(|input| self.host.handle_input(clock::now(), input));
            if self.host.poll_timeout().is_some_and(|due| due <= now) {
                self.host.handle_timeout(now);
            }
        }
        self.pool.stop();
    }
}

#[cfg(test)]
mod tests;
