//! The catalog's log and snapshot as files of the data directory.
//!
//! The log is appended to, a frame for all steps that wait, and each step is answered when its frame is synced. The snapshot is
//! written whole and renamed into its place. One thread does both, in the order of the calls. Once so much of the log is purged
//! that little of it is still needed, what is needed is written to a new file that takes the place of the old one.
//!
//! A frame that a crash has torn is cut off at the next start: nobody was told that it was durable. Damage before the last
//! frame is refused: the catalog must not go on without what it has promised. After a write has failed, all later ones do:
//! what the drive has is not known then.

mod form;

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use ashlar_catalog::raft::host::{BoxFuture, LogWrite, Storage, StorageError, StoredLog};
use ashlar_catalog::state::SNAPSHOT_BYTES_MAX;
use ashlar_node::catalog::stored::take_step;
use ashlar_wire::id::{ClusterId, ServerId};
use tokio::sync::oneshot;
use tracing::{info, warn};

use self::form::{Bad, FRAME_BYTES_MAX, HEAD_BYTES, Kind, Owner, encode_step};
use super::files::{self, Creation, Readers};

/// Folder of the data directory.
const FOLDER: &str = "catalog";
const LOG: &str = "log";
const SNAPSHOT: &str = "snapshot";
/// A longer log is not read.
const LOG_BYTES_MAX: u64 = 1 << 30;
/// A log is written anew when it has this much more than twice what is needed.
const SURPLUS_BYTES: u64 = 4 << 20;
/// Writes that wait for the drive.
const WRITES_MAX: usize = 16_384;

/// Why the catalog's files cannot be used. No retry helps until somebody has done something about it.
#[derive(Debug)]
pub enum OpenError {
    /// The operating system refuses.
    Io(PathBuf, io::Error),
    /// A file is damaged: at this byte.
    Damaged(PathBuf, u64),
    /// A file is of another server or cluster.
    OfAnother(PathBuf),
    /// A file is of a later release.
    Later(PathBuf, u32),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Damaged(path, at) => write!(
                f,
                "{} is damaged at byte {at}: what this server has promised to the catalog is not known any more. If other servers run, \
                 have them forget this one (ashlar forget), and let it join with an empty data directory; if there are none, put the file back from a backup",
                path.display()
            ),
            Self::OfAnother(path) => {
                write!(f, "{} is of another server or cluster: put back the right one", path.display())
            }
            Self::Later(path, version) => {
                write!(f, "{} has form {version}, of a later release: start that release", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

fn bad(path: &Path, bad: Bad) -> OpenError {
    let path = path.to_owned();
    match bad {
        Bad::Head => OpenError::Damaged(path, 0),
        Bad::Damaged(at) => OpenError::Damaged(path, at as u64),
        Bad::Owner => OpenError::OfAnother(path),
        Bad::Version(version) => OpenError::Later(path, version),
    }
}

type Answer = oneshot::Sender<Result<(), StorageError>>;

enum Order {
    Load(oneshot::Sender<StoredLog>),
    Step(LogWrite, Answer),
    Snapshot(Vec<u8>, Answer),
}

/// See the head of this file. The files are used until it is dropped.
#[derive(Debug)]
pub struct CatalogStorage {
    orders: mpsc::SyncSender<Order>,
}

impl CatalogStorage {
    /// Opens the files in a data directory, and makes them if there are none. Blocks.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(data: &Path, cluster: ClusterId, server: ServerId) -> Result<Self, OpenError> {
        let writer = Writer::open(&data.join(FOLDER), Owner { cluster, server })?;
        let (orders, waiting) = mpsc::sync_channel(WRITES_MAX);
        let started = thread::Builder::new().name("catalog-log".into()).spawn(move || writer.run(&waiting));
        started.map_err(|error| OpenError::Io(data.join(FOLDER), error))?;
        Ok(Self { orders })
    }

    /// Whether a data directory has a catalog.
    #[must_use]
    pub fn is_in(data: &Path) -> bool {
        data.join(FOLDER).is_dir()
    }

    fn order(&self, make: impl FnOnce(Answer) -> Order) -> BoxFuture<Result<(), StorageError>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.try_send(make(answer));
        Box::pin(async move {
            sent.map_err(|error| match error {
                mpsc::TrySendError::Full(_) => StorageError(format!("more than {WRITES_MAX} writes wait")),
                mpsc::TrySendError::Disconnected(_) => gone(),
            })?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }
}

fn gone() -> StorageError {
    StorageError("its thread has ended".into())
}

impl Storage for CatalogStorage {
    fn load(&self) -> BoxFuture<Result<StoredLog, StorageError>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.try_send(Order::Load(answer));
        Box::pin(async move {
            sent.map_err(|_| gone())?;
            answered.await.map_err(|_| gone())
        })
    }

    fn write(&self, step: LogWrite) -> BoxFuture<Result<(), StorageError>> {
        self.order(move |answer| Order::Step(step, answer))
    }

    fn save_snapshot(&self, snapshot: Vec<u8>) -> BoxFuture<Result<(), StorageError>> {
        self.order(move |answer| Order::Snapshot(snapshot, answer))
    }
}

/// The thread's side.
struct Writer {
    folder: PathBuf,
    owner: Owner,
    log: File,
    /// Bytes of the log.
    len: u64,
    /// What the files say.
    stored: StoredLog,
    /// The first write that has failed.
    failed: Option<StorageError>,
}

impl Writer {
    fn open(folder: &Path, owner: Owner) -> Result<Self, OpenError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Io(path, error)
        };
        files::make_directory(folder).map_err(io(folder))?;
        let (path, snapshot) = (folder.join(LOG), folder.join(SNAPSHOT));
        let mut stored = StoredLog::default();
        if let Some(bytes) =
            files::read_bytes(&snapshot, SNAPSHOT_BYTES_MAX as u64 + (1 << 20)).map_err(io(&snapshot))?
        {
            stored.snapshot = Some(owner.read_snapshot(&bytes).map_err(|error| bad(&snapshot, error))?);
        }
        let bytes = match files::read_bytes(&path, LOG_BYTES_MAX).map_err(io(&path))? {
            Some(bytes) => bytes,
            // Whole from the first moment, so that a head that is not whole is damage.
            None => {
                let head = owner.head(Kind::Log);
                files::write_whole(&path, &head, Readers::Owner).map_err(io(&path))?;
                head
            }
        };
        let (steps, len) = owner.read_log(&bytes).map_err(|error| bad(&path, error))?;
        for step in steps {
            take_step(&mut stored, step).map_err(|_| OpenError::Damaged(path.clone(), len as u64))?;
        }
        let log = files::create(&path, Creation::Append).map_err(io(&path))?;
        if len < bytes.len() {
            info!(file = %path.display(), bytes = bytes.len() - len, "the end of the catalog's log, which a crash has torn, is cut off");
            log.set_len(len as u64).and_then(|()| log.sync_all()).map_err(io(&path))?;
        }
        Ok(Self { folder: folder.to_owned(), owner, log, len: len as u64, stored, failed: None })
    }

    /// Works until nobody can give orders any more.
    fn run(mut self, orders: &mpsc::Receiver<Order>) {
        let mut next = None;
        while let Some(order) = next.take().or_else(|| orders.recv().ok()) {
            match order {
                // Whoever asked may have gone; so below.
                Order::Load(answer) => drop(answer.send(self.stored.clone())),
                Order::Snapshot(bytes, answer) => drop(answer.send(self.attempt(|writer| writer.save_snapshot(bytes)))),
                Order::Step(step, answer) => {
                    let (mut steps, mut answers, mut content) = (Vec::new(), vec![answer], Vec::new());
                    encode_step(&step, &mut content);
                    steps.push(step);
                    // All that wait go to the drive together.
                    while content.len() < FRAME_BYTES_MAX / 2 && next.is_none() {
                        match orders.try_recv() {
                            Ok(Order::Step(step, answer)) => {
                                encode_step(&step, &mut content);
                                steps.push(step);
                                answers.push(answer);
                            }
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    let done = self.attempt(|writer| writer.append(&content, steps));
                    answers.into_iter().for_each(|answer| drop(answer.send(done.clone())));
                }
            }
        }
    }

    /// Does a write, unless one has failed before.
    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> Result<(), StorageError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        write(self).map_err(|error| {
            let failed = StorageError(format!("{}: {error}", self.folder.display()));
            warn!(%failed, "the drive has failed: the catalog of this server stops");
            self.failed = Some(failed.clone());
            failed
        })
    }

    fn append(&mut self, content: &[u8], steps: Vec<LogWrite>) -> io::Result<()> {
        let offset = usize::try_from(self.len).expect("a log is shorter than memory");
        let frame = self.owner.frame(Kind::Log, offset, content);
        if content.len() > FRAME_BYTES_MAX || self.len + frame.len() as u64 > LOG_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the catalog's log is too long"));
        }
        self.log.write_all(&frame)?;
        self.log.sync_data()?;
        self.len += frame.len() as u64;
        let purges = steps.iter().any(|step| step.purge.is_some());
        for step in steps {
            take_step(&mut self.stored, step).map_err(|gap| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("entry {} comes where {} is due", gap.found, gap.due),
                )
            })?;
        }
        if purges { self.renew() } else { Ok(()) }
    }

    /// Writes what is needed to a new file, if that is worth it.
    fn renew(&mut self) -> io::Result<()> {
        let needed: usize = self.stored.entries.iter().map(|(_, bytes)| bytes.len() + 16).sum();
        if self.len < 2 * needed as u64 + SURPLUS_BYTES {
            return Ok(());
        }
        let mut file = self.owner.head(Kind::Log);
        for content in self.frames() {
            let frame = self.owner.frame(Kind::Log, file.len(), &content);
            file.extend(frame);
        }
        let path = self.folder.join(LOG);
        files::write_whole(&path, &file, Readers::Owner)?;
        self.log = files::create(&path, Creation::Append)?;
        self.len = file.len() as u64;
        Ok(())
    }

    /// What the log says, in as few frames as there can be.
    fn frames(&self) -> Vec<Vec<u8>> {
        let StoredLog { vote, committed, purged, entries, .. } = &self.stored;
        let first = entries.first().map_or(0, |(index, _)| index.saturating_sub(1));
        let purge = purged.clone().map(|purged| (first, purged));
        let mut last = Vec::new();
        let facts = LogWrite { purge, vote: vote.clone(), committed: committed.clone(), ..LogWrite::default() };
        encode_step(&facts, &mut last);
        let mut frames = Vec::new();
        for entry in entries {
            let step = LogWrite { append: vec![entry.clone()], ..LogWrite::default() };
            encode_step(&step, &mut last);
            if last.len() >= FRAME_BYTES_MAX / 2 {
                frames.push(std::mem::take(&mut last));
            }
        }
        frames.push(last);
        frames
    }

    fn save_snapshot(&mut self, snapshot: Vec<u8>) -> io::Result<()> {
        let file = self.owner.write_snapshot(&snapshot);
        files::write_whole(&self.folder.join(SNAPSHOT), &file, Readers::Owner)?;
        self.stored.snapshot = Some(snapshot);
        Ok(())
    }
}

const _: () = assert!(HEAD_BYTES + FRAME_BYTES_MAX < LOG_BYTES_MAX as usize);

#[cfg(test)]
mod tests;
