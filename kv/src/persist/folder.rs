//! The few things that are done with files.

use std::io;

/// Makes a file durable when it is called. An error means that what was appended since the last time may be lost. Not safe to
/// retry: the kernel may have dropped it.
pub type Syncer = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// One directory and the files in it, which nobody else writes. Names are plain: no separators.
pub trait Folder {
    /// Reads from a place on; returns how many bytes, 0 at the end.
    ///
    /// # Errors
    /// There is no such file (`NotFound`), or it cannot be read.
    fn read_at(&mut self, name: &str, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes behind what a file has; makes it if there is none. Not durable on return.
    ///
    /// # Errors
    /// The file may have any beginning of `bytes` now: whoever goes on must use another file.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// What makes a file durable: its name and everything appended so far. It may run on any thread, beside further appends.
    fn syncer(&mut self, name: &str) -> Syncer;

    /// Gives a file new content, all or nothing, durable on return.
    ///
    /// # Errors
    /// The file has its old content, or the new one. Safe to retry.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// How many files there are beside these, and removes them if `remove`.
    ///
    /// # Errors
    /// Some are left. Safe to retry.
    fn others(&mut self, names: &[&str], remove: bool) -> io::Result<usize>;
}
