//! The IO that a store asks for: reads, writes and syncs of one drive, as values.
//!
//! Whoever executes them may run many at a time and complete them in any order. Offsets, lengths and buffers are
//! multiples of 4 KiB, so that `O_DIRECT` works.

use core::fmt;

use crate::buffer::{AlignedBuf, Segment};

/// Names one IO from its start to its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// What is durable when a write completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing, before a later sync completes.
    Cached,
    /// These bytes, whatever becomes of the power (`FUA`, `O_DSYNC`).
    Durable,
}

/// One operation on the drive.
#[derive(Debug, Clone)]
pub enum IoKind {
    /// Reads `len` bytes from `offset`.
    Read {
        /// Bytes from the start of the drive.
        offset: u64,
        /// Bytes.
        len: usize,
    },
    /// Writes the segments one behind the other from `offset`.
    Write {
        /// Bytes from the start of the drive.
        offset: u64,
        /// What to write.
        data: Vec<Segment>,
        /// What is promised at completion.
        durability: Durability,
    },
    /// Makes every write durable that completed before the sync was polled.
    Sync,
}

/// One operation and its name.
#[derive(Debug, Clone)]
pub struct Io {
    /// Answer to this.
    pub id: IoId,
    /// What to do.
    pub kind: IoKind,
}

/// What an IO gave.
#[derive(Debug)]
pub enum IoOutput {
    /// The bytes of a read, exactly as many as were asked for.
    Data(AlignedBuf),
    /// A write or sync is done.
    Done,
}

impl IoOutput {
    /// The bytes of a read.
    ///
    /// # Panics
    /// When the executor answers a read as a write.
    pub(crate) fn into_data(self, len: usize) -> AlignedBuf {
        match self {
            Self::Data(buf) if buf.len() == len => buf,
            _ => panic!("a read is answered with its bytes"),
        }
    }
}

/// The drive failed an IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    /// The number that the operating system gave, 5 (`EIO`) as a rule.
    pub errno: i32,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the drive failed an operation (errno {})", self.errno)
    }
}

impl core::error::Error for IoError {}
