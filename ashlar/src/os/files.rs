//! Files that are written: small ones that must be whole after a crash (written beside, synced, renamed into place), long ones that go
//! to the drive while they are written, and directories.
//!
//! Everything that holds data of users or of the cluster is opened for writing by [`create`] or [`write_whole`], and directories are made by
//! [`make_directory`]: only the owner may read them from the moment they are there, whatever the process's mask says.
#![cfg_attr(
    target_os = "linux",
    allow(
        unsafe_code,
        reason = "std does not offer to begin writing without waiting for the drive, or to reserve space"
    )
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// No file that is read as a whole is longer: configuration, keys, lists of peers.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// Permissions of files, and of directories, of which nobody but the owner may read anything.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Its owner only: data and secrets.
    Owner,
    /// Whoever the process's mask allows: results that a person asked for.
    Others,
}

/// How a file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// It takes the place of one that may be there. It can be read too.
    New,
    /// It goes on behind what is there, if it is there.
    Append,
    /// It is only locked: its content stays as it is.
    Lock,
}

/// Opens a file for writing that only its owner can read. One that is there and is gone on with keeps its permissions.
///
/// # Errors
/// It cannot be made or written. Retry safe.
pub fn create(path: &Path, creation: Creation) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    match creation {
        Creation::New => {
            remove(path)?;
            options.read(true).write(true).create_new(true).open(path)
        }
        Creation::Append => options.create(true).append(true).open(path),
        Creation::Lock => options.create(true).truncate(false).write(true).open(path),
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Replaces `path` by a file with this content: after a crash it is the old one or the new one, whole. Durable when
/// this returns.
///
/// # Errors
/// The old file is still there. Retry safe.
pub fn write_whole(path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    write_whole_by(&path.with_added_extension("new"), path, content, readers)
}

/// The same for a file that several processes replace: each writes to a file of its own first. One that is killed meanwhile leaves that
/// behind.
///
/// # Errors
/// As for [`write_whole`].
pub fn write_whole_shared(path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    let own = path.with_added_extension(format!("{}.new", std::process::id()));
    write_whole_by(&own, path, content, readers)
}

fn write_whole_by(beside: &Path, path: &Path, content: &[u8], readers: Readers) -> io::Result<()> {
    let mut file = match readers {
        Readers::Owner => create(beside, Creation::New)?,
        Readers::Others => remove(beside).and_then(|()| File::create_new(beside))?,
    };
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Of a long file, so many bytes go to the drive at a time. Handing them over takes the core for as long as it takes: a quarter of a
/// millisecond, where handing over a file of a gigabyte at its end takes seconds.
const BEGUN_BYTES: u64 = 128 << 10;

/// Sends a long file to the drive while it is written, so that little is left to be synced at its end.
#[derive(Debug, Default)]
pub struct Trickle {
    /// Bytes that the drive was given, from the beginning of the file.
    begun: u64,
    written: u64,
}

impl Trickle {
    /// So many bytes more were written, behind those before. Nothing is durable by this, and no drive is waited for.
    pub fn handle_written(&mut self, file: &File, bytes: usize) {
        self.written += bytes as u64;
        if self.written - self.begun >= BEGUN_BYTES {
            begin_writing(file, self.begun, self.written - self.begun);
            self.begun = self.written;
        }
    }
}

/// Has the drive begin with a part of a file, where the operating system has a call for that.
#[cfg(target_os = "linux")]
fn begin_writing(file: &File, from: u64, bytes: u64) {
    let offset = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    // SAFETY: takes an open descriptor, and no memory. What it refuses, the sync at the end does.
    let _ =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset(from), offset(bytes), libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(not(target_os = "linux"))]
fn begin_writing(_file: &File, _from: u64, _bytes: u64) {}

/// Takes so many bytes of space for a new file, which reads as zeroes: it cannot run out of space while it is written.
///
/// # Errors
/// The file system is full, or does not offer this ([`io::ErrorKind::Unsupported`]). Retry safe.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: takes an open descriptor, and no memory.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The drive refused. Retry safe.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

/// The text of a small file; `None` if there is no such file.
///
/// # Errors
/// It cannot be read, is longer than [`FILE_BYTES_MAX`] or not UTF-8.
pub fn read_text(path: &Path) -> io::Result<Option<String>> {
    let Some(bytes) = read_bytes(path, FILE_BYTES_MAX)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()));
    text.map(Some)
}

/// The bytes of a file; `None` if there is no such file.
///
/// # Errors
/// It cannot be read, or is longer than `bytes_max`.
pub fn read_bytes(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let length = file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if length as u64 > bytes_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}

/// The end of a text file that may be long: a log. Starts with a whole line unless lines are very long.
///
/// # Errors
/// It cannot be read.
pub fn read_end(path: &Path) -> io::Result<String> {
    const END_BYTES_MAX: u64 = 16 << 10;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(END_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if length > END_BYTES_MAX { text.split_once('\n').map_or(&*text, |(_, rest)| rest) } else { &*text };
    Ok(whole.to_owned())
}

/// Makes a directory and those above it, unless they are there. Nobody but the owner may look into those that it makes; the others stay
/// as they are.
///
/// # Errors
/// It cannot be made, or is no directory. Retry safe.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.map_err(|error| match error.kind() {
        // What is meant is: something else of that name.
        io::ErrorKind::AlreadyExists => io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"),
        _ => error,
    })
}

/// Names in a directory, in order.
///
/// # Errors
/// It cannot be read. Retry safe.
pub fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The permissions of a file, if users other than its owner may read or write it.
#[must_use]
pub fn open_to_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o066 != 0).then_some(mode)
}

/// Warns of a secret in a file that others of this machine can read or write. Whether somebody did, nobody knows.
pub fn warn_if_open(path: &Path) {
    if let Some(mode) = open_to_others(path) {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "other users of this machine can read this secret: run chmod 600 on the file");
    }
}

/// Whether there is something of that name.
#[must_use]
pub fn exists(path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory of its own for one test, gone afterwards.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Self {
            let name = u128::from_le_bytes(crate::os::random::bytes());
            let path = std::env::temp_dir().join(format!("ashlar-test-{name:032x}"));
            fs::create_dir(&path).expect("the temporary directory can be written");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn replaces_and_keeps_secrets() {
        let scratch = Scratch::new();
        let path = scratch.0.join("a.b");
        assert_eq!(read_text(&path).unwrap(), None);
        write_whole(&path, b"one", Readers::Others).unwrap();
        fs::write(scratch.0.join("a.b.new"), "left by a crash").unwrap();
        write_whole(&path, b"two", Readers::Owner).unwrap();
        assert_eq!(read_text(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(open_to_others(&path), None);
        for mode in [0o640, 0o604, 0o602, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(&path), Some(mode));
        }
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn nobody_else_reads_what_is_made() {
        let scratch = Scratch::new();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = scratch.0.join("a/b");
        make_directory(&folder).unwrap();
        assert_eq!((mode(&scratch.0.join("a")), mode(&folder)), (0o700, 0o700));
        // One that is there stays as its owner wants it.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();
        make_directory(&folder).unwrap();
        assert_eq!(mode(&folder), 0o750);
        for (name, creation, text) in
            [("new", Creation::New, "two"), ("log", Creation::Append, "onetwo"), ("lock", Creation::Lock, "two")]
        {
            let path = folder.join(name);
            create(&path, creation).unwrap().write_all(b"one").unwrap();
            assert_eq!(mode(&path), 0o600, "{name}");
            // Of an earlier version: what replaces it is for its owner only.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            create(&path, creation).unwrap().write_all(b"two").unwrap();
            assert_eq!(mode(&path), if creation == Creation::New { 0o600 } else { 0o644 }, "{name}");
            assert_eq!(read_text(&path).unwrap().as_deref(), Some(text), "{name}");
        }
    }

    #[test]
    fn a_long_file_is_begun_with_in_pieces() {
        let scratch = Scratch::new();
        let path = scratch.0.join("long");
        let (mut file, mut trickle) = (File::create(&path).unwrap(), Trickle::default());
        let piece = vec![7; 40_000];
        for pieces in 1..=20 {
            file.write_all(&piece).unwrap();
            trickle.handle_written(&file, piece.len());
            assert_eq!(trickle.written, pieces * 40_000);
            assert!(trickle.written - trickle.begun < BEGUN_BYTES);
        }
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn refuses_what_is_too_long() {
        let scratch = Scratch::new();
        let path = scratch.0.join("long");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
