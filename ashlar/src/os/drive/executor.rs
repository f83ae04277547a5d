//! Execution of one IO of a drive by system calls that block.
//!
//! The file is opened twice: once plainly, once so that a write is durable when the call returns (`O_DSYNC`). A durable
//! write is thus one call. Buffers, offsets and lengths are multiples of 4 KiB, as direct access wants them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use ashlar_store::buffer::{AlignedBuf, BLOCK_BYTES};
use ashlar_store::io::{Durability, IoError, IoKind, IoOutput};

use super::FileAccess;

/// What the operating system gave no number for: an IO error.
const EIO: i32 = 5;

/// The open file of a drive.
#[derive(Debug)]
pub(super) struct DriveFile {
    plain: File,
    durable: File,
    access: FileAccess,
}

impl DriveFile {
    pub(super) const fn new(plain: File, durable: File, access: FileAccess) -> Self {
        Self { plain, durable, access }
    }

    pub(super) const fn access(&self) -> FileAccess {
        self.access
    }

    /// Executes an IO. Nothing is tried again: what fails is the store's to judge.
    pub(super) fn execute(&self, kind: &IoKind) -> Result<IoOutput, IoError> {
        self.try_execute(kind).map_err(|error| IoError { errno: error.raw_os_error().unwrap_or(EIO) })
    }

    fn try_execute(&self, kind: &IoKind) -> io::Result<IoOutput> {
        match kind {
            IoKind::Read { offset, len } => {
                let mut buf = AlignedBuf::zeroed(len / BLOCK_BYTES);
                self.plain.read_exact_at(&mut buf, *offset)?;
                return Ok(IoOutput::Data(buf));
            }
            IoKind::Write { offset, data, durability } => {
                let file = match durability {
                    Durability::Cached => &self.plain,
                    Durability::Durable => &self.durable,
                };
                let mut at = *offset;
                for segment in data {
                    file.write_all_at(segment.bytes(), at)?;
                    at += segment.bytes().len() as u64;
                }
            }
            IoKind::Sync => self.plain.sync_data()?,
        }
        Ok(IoOutput::Done)
    }
}
