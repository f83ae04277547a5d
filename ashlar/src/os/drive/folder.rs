//! Directory of a drive: its lock, its file, formatting and opening.
//!
//! A new file is formatted under another name and renamed when it is whole. So a file of the right name without a
//! superblock is damage, never a reason to format, and nothing that a user may still want is overwritten.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ashlar_store::OpenError;
use ashlar_store::blob::Blobs;
use ashlar_store::blob::config::BlobConfig;
use ashlar_store::blob::format::{BlobFormatting, NewBlobArea};
use ashlar_store::blob::layout::SEGMENT_BLOCKS;
use ashlar_store::blob::opening::BlobOpening;
use ashlar_store::config::Config;
use ashlar_store::format::{Existing, Formatting, NewDrive};
use ashlar_store::layout::LayoutOptions;
use ashlar_store::opening::{Expected, Opening};
use ashlar_store::store::Store;
use ashlar_wire::id::DriveId;

use super::executor::DriveFile;
use super::{DriveIds, FileAccess};
use crate::failure::Failure;
use crate::os::files::{self, Creation};
use crate::os::{clock, random};

/// Locks of the two users of a drive: extents and blobs.
pub(super) const LOCK: &str = "lock";
pub(super) const BLOBS_LOCK: &str = "blobs.lock";
const EXTENTS: &str = "extents";
const UNFINISHED: &str = "extents.new";
const BLOBS: &str = "blobs";
const BLOBS_UNFINISHED: &str = "blobs.new";
/// What is written at a time to allocate a new file.
const PIECE_BYTES: u64 = 1 << 20;

/// A drive's directory, held by this process.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    _lock: File,
}

impl Folder {
    /// Takes a directory for this process; makes it if it is not there.
    ///
    /// # Errors
    /// Another process has it, or it cannot be made.
    pub(super) fn take(root: &Path, lock: &str) -> Result<Self, Failure> {
        files::make_directory(root).map_err(|error| cannot("make", root, &error))?;
        let path = root.join(lock);
        let lock = files::create(&path, Creation::Lock).map_err(|error| cannot("open", &path, &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { root: root.into(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::world(
                format!("the drive {} is in use by another process", root.display()),
                "stop that process, or give this server a drive of its own",
            )),
            Err(TryLockError::Error(error)) => Err(cannot("lock", &path, &error)),
        }
    }

    /// Whether there is a drive, used or not.
    pub(super) fn has_drive(root: &Path) -> bool {
        files::exists(&root.join(EXTENTS))
    }

    /// Opens the drive; formats it first if there is none.
    pub(super) fn open_or_format(&self, ids: DriveIds, bytes: u64) -> Result<(DriveFile, Store), Failure> {
        let path = self.root.join(EXTENTS);
        if !files::exists(&path) {
            self.format(ids, bytes)?;
        }
        let file = open_file(&path)?;
        let store = self.open(&file, &path, ids)?;
        self.tell_other_size(&path, "drive_mib", bytes)?;
        Ok((file, store))
    }

    fn open(&self, file: &DriveFile, path: &Path, ids: DriveIds) -> Result<Store, Failure> {
        let expected = Expected { cluster: ids.cluster, drive: None, bytes: size_of(path)? };
        let mut opening = Opening::new(Config::default(), expected);
        loop {
            if let Some(ready) = opening.poll_ready(clock::now()) {
                return ready.map_err(|error| self.refuse(error));
            }
            let io = opening.poll_io().expect("opening that is not ready has something to read");
            opening.handle_io(io.id, file.execute(&io.kind));
        }
    }

    fn format(&self, ids: DriveIds, bytes: u64) -> Result<(), Failure> {
        let DriveIds { cluster, server, new_drive } = ids;
        let options = LayoutOptions::default();
        let new = NewDrive { cluster, server, drive: new_drive, nonce: random::bytes(), bytes, options };
        // Before space is taken: it may be too small.
        let mut formatting = Formatting::new(&new, Existing::Overwrite).map_err(|error| self.refuse(error))?;
        let (path, unfinished) = (self.root.join(EXTENTS), self.root.join(UNFINISHED));
        allocate(&unfinished, bytes).map_err(|error| {
            fs::remove_file(&unfinished).ok();
            no_space(&unfinished, bytes, &error)
        })?;
        let file = open_file(&unfinished)?;
        while formatting.poll_ready().is_none() {
            let io = formatting.poll_io().expect("formatting that is not done has something to write");
            formatting.handle_io(io.id, file.execute(&io.kind));
        }
        formatting.poll_ready().expect("it is done").map_err(|error| self.refuse(error))?;
        self.finish(&unfinished, &path)
    }

    /// Opens the blobs of a drive; formats their file first if there is none.
    pub(super) fn open_or_format_blobs(
        &self,
        ids: DriveIds,
        drive: DriveId,
        bytes: u64,
    ) -> Result<(DriveFile, Blobs), Failure> {
        let path = self.root.join(BLOBS);
        if !files::exists(&path) {
            self.format_blobs(ids, drive, bytes)?;
        }
        let file = open_file(&path)?;
        self.tell_other_size(&path, "object_mib", bytes)?;
        let expected = Expected { cluster: ids.cluster, drive: Some(drive), bytes: size_of(&path)? };
        let mut opening = BlobOpening::new(BlobConfig::default(), expected);
        loop {
            if let Some(ready) = opening.poll_ready(clock::now()) {
                return Ok((file, ready.map_err(|error| self.refuse(error))?));
            }
            let io = opening.poll_io().expect("opening that is not ready has something to read");
            opening.handle_io(io.id, file.execute(&io.kind));
        }
    }

    fn format_blobs(&self, ids: DriveIds, drive: DriveId, bytes: u64) -> Result<(), Failure> {
        let DriveIds { cluster, server, .. } = ids;
        let new = NewBlobArea { cluster, server, drive, nonce: random::bytes(), bytes, segment_blocks: SEGMENT_BLOCKS };
        let mut formatting = BlobFormatting::new(&new, Existing::Overwrite).map_err(|error| self.refuse(error))?;
        let (path, unfinished) = (self.root.join(BLOBS), self.root.join(BLOBS_UNFINISHED));
        reserve(&unfinished, bytes).map_err(|error| {
            fs::remove_file(&unfinished).ok();
            no_space(&unfinished, bytes, &error)
        })?;
        let file = open_file(&unfinished)?;
        while formatting.poll_ready().is_none() {
            let io = formatting.poll_io().expect("formatting that is not done has something to write");
            formatting.handle_io(io.id, file.execute(&io.kind));
        }
        formatting.poll_ready().expect("it is done").map_err(|error| self.refuse(error))?;
        self.finish(&unfinished, &path)
    }

    /// Says it if a setting asks for another size than a file has: it keeps that for life.
    fn tell_other_size(&self, path: &Path, key: &str, bytes: u64) -> Result<(), Failure> {
        let has = size_of(path)?;
        if has != bytes {
            let (folder, asked_mib, has_mib) = (self.root.display(), bytes >> 20, has >> 20);
            tracing::warn!(
                %folder,
                key,
                asked_mib,
                has_mib,
                "the setting changes nothing: a drive keeps the size that it was made with; for another one remove it and make a new one"
            );
        }
        Ok(())
    }

    /// A file that is whole gets its name.
    fn finish(&self, unfinished: &Path, path: &Path) -> Result<(), Failure> {
        fs::rename(unfinished, path).map_err(|error| cannot("rename", unfinished, &error))?;
        files::sync_directory(&self.root).map_err(|error| cannot("sync", &self.root, &error))
    }

    /// What is wrong with the drive, for people.
    fn refuse(&self, error: OpenError) -> Failure {
        let what = format!("the drive {} cannot be used: {error}", self.root.display());
        let remedy = match error {
            OpenError::TooSmall { .. } | OpenError::BadLayout(_) => "give the drive more space",
            OpenError::ForeignCluster(_) | OpenError::OtherDrive(_) | OpenError::AlreadyFormatted(_) => {
                "use another directory, or remove this one if nobody needs its data"
            }
            OpenError::NewerFormat(_) => "start the newer program again",
            OpenError::WrongSize { .. } => "restore the file's size",
            OpenError::NotFormatted | OpenError::Damaged(_) => {
                "check the machine's drive; then remove the directory, and the cluster fills a new one from other copies"
            }
            OpenError::Io(_) => "check the machine's drive and its log",
        };
        Failure::world(what, remedy)
    }
}

/// Makes a file of zeroes of this size. All of its space is taken: a drive that has its file cannot run out of space
/// while it writes. Written before, a block is later written in place without a change of the file system's own records.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = files::create(path, Creation::New)?;
    // First, because it fails before others find the file system full.
    match files::reserve(&file, bytes) {
        Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            return Err(error);
        }
        // Not every file system can do it; what else is wrong shows when it is written.
        _ => {}
    }
    let piece = vec![0; usize::try_from(PIECE_BYTES).expect("a piece fits into memory")];
    let mut left = bytes;
    while left > 0 {
        let len = left.min(PIECE_BYTES);
        io::Write::write_all(&mut file, &piece[..usize::try_from(len).expect("at most a piece")])?;
        left -= len;
    }
    file.sync_all()
}

/// Makes a file of this size of which all space is taken, and nothing is written where the file system can do that: a log of long
/// appends gains little from space that was written before.
fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    let file = files::create(path, Creation::New)?;
    match files::reserve(&file, bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => allocate(path, bytes),
        reserved => reserved.and_then(|()| file.sync_all()),
    }
}

/// Opens a file that is there for direct access, or buffered where the file system refuses that.
fn open_file(path: &Path) -> Result<DriveFile, Failure> {
    let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let open_both = |flags| open(flags).and_then(|plain| Ok((plain, open(flags | libc::O_DSYNC)?)));
    // std sets O_CLOEXEC on every file.
    match open_both(libc::O_DIRECT) {
        Ok((plain, durable)) => Ok(DriveFile::new(plain, durable, FileAccess::Direct)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let (plain, durable) = open_both(0).map_err(|error| cannot("open", path, &error))?;
            Ok(DriveFile::new(plain, durable, FileAccess::Buffered))
        }
        Err(error) => Err(cannot("open", path, &error)),
    }
}

fn size_of(path: &Path) -> Result<u64, Failure> {
    Ok(fs::metadata(path).map_err(|error| cannot("look at", path, &error))?.len())
}

fn no_space(path: &Path, bytes: u64, error: &io::Error) -> Failure {
    let what = format!("cannot take {} MiB for the drive in {}: {error}", bytes >> 20, path.display());
    Failure::world(what, "make the drive smaller, or free space on the file system")
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::world(format!("cannot {what} {}: {error}", path.display()), "check the path and who may write there")
}
