//! Requests to the blobs of a drive, replies and events.

use core::fmt;
use core::ops::Deref;

use ashlar_wire::id::BlobId;
use ashlar_wire::time::Instant;

use crate::buffer::{BLOCK_BYTES, Segment};
use crate::io::IoError;

/// Most bytes of a blob's header.
pub const HEADER_BYTES_MAX: usize = 512;
/// Most bytes of a blob on a drive with segments of the default size; see
/// [`super::layout::BlobGeometry::blob_bytes_max`].
pub const BLOB_BYTES_MAX: u32 = 4 << 20;

/// One request and how long it is worth doing.
#[derive(Debug, Clone)]
pub struct BlobRequest {
    /// It is dropped if it has not cost an IO by then.
    pub deadline: Instant,
    /// What to do.
    pub kind: BlobRequestKind,
}

/// What can be done with blobs. Every change is durable when it is answered.
#[derive(Debug, Clone)]
pub enum BlobRequestKind {
    /// Stores a blob. A blob with this id, header and data is left as it is, and the put is done; one with other bytes
    /// makes it fail with [`super::BlobError::Conflict`]. The stamp of the first put stays.
    Put(NewBlob),
    /// Stores a blob anew, although it is there: repairs damage. Until the reply the blob is as before. A blob whose
    /// head is whole and has other bytes makes it fail with [`super::BlobError::Conflict`].
    Repair(NewBlob),
    /// Reads bytes of a blob. Every block of 4 KiB is verified before it is returned.
    Get {
        /// Which blob.
        blob: BlobId,
        /// First byte.
        offset: u32,
        /// Bytes; the range must lie in the blob. Zero bytes are the head alone.
        len: u32,
    },
    /// Reads the head of a blob.
    Head {
        /// Which blob.
        blob: BlobId,
    },
    /// Removes a blob; done at once where there is none. Works on a full drive. The blob does not come back after a
    /// crash. Its space becomes free later, by compaction.
    Remove {
        /// Which blob.
        blob: BlobId,
    },
    /// Removes a blob as [`BlobRequestKind::Remove`] does if it has this stamp, and does nothing otherwise. For a collector: a
    /// blob that was stored anew since it was listed has another stamp and stays.
    RemoveStamped {
        /// Which blob.
        blob: BlobId,
        /// The stamp with which it was listed.
        stamp: u64,
    },
    /// Blobs in ascending order of their ids. A put or removal that is not answered may be in it or not.
    List {
        /// Only blobs behind this one.
        after: Option<BlobId>,
        /// Most blobs of the reply; `list_max` and, with headers, `list_headers_max` bound it, too.
        limit: usize,
        /// Whether headers are wanted.
        detail: ListDetail,
    },
}

/// What a list contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListDetail {
    /// Ids, lengths and stamps, from memory: for the collector of unreferenced blobs.
    Brief,
    /// Headers, too, each read from the drive: for rebuilding an index of objects.
    Headers,
}

/// A blob to be stored.
#[derive(Debug, Clone)]
pub struct NewBlob {
    /// Its id, never used before except for the same bytes.
    pub blob: BlobId,
    /// Age of the blob, in whatever unit the caller counts: kept with the blob and listed, so that a collector can spare
    /// what is young. Not looked at otherwise.
    pub stamp: u64,
    /// What the blob says about itself, up to [`HEADER_BYTES_MAX`] bytes: enough to rebuild an index without which the
    /// blob would be lost.
    pub header: Box<[u8]>,
    /// Bytes of the blob; zero is allowed.
    pub len: u32,
    /// The bytes, from the first byte of the first segment on: exactly as many blocks as `len` takes. What stands behind
    /// `len` in the last block is not stored.
    pub data: Vec<Segment>,
}

impl NewBlob {
    /// Blocks that a length takes.
    #[must_use]
    pub const fn blocks_of(len: u32) -> usize {
        (len as usize).div_ceil(BLOCK_BYTES)
    }
}

/// What a request gave.
#[derive(Debug)]
pub enum BlobReply {
    /// The change is durable and visible.
    Done,
    /// The head of a blob.
    Head(BlobHead),
    /// Bytes of a blob, verified.
    Data {
        /// Its head, which comes with the bytes at no cost.
        head: BlobHead,
        /// The bytes, as many as were asked for.
        bytes: BlobBytes,
    },
    /// Blobs of a list.
    Blobs {
        /// Ascending.
        blobs: Vec<ListedBlob>,
        /// Whether there may be more behind the last.
        more: bool,
    },
}

/// What a blob is, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobHead {
    /// Its id.
    pub blob: BlobId,
    /// Its bytes.
    pub len: u32,
    /// What the caller gave when it was put first.
    pub stamp: u64,
    /// What it says about itself.
    pub header: Box<[u8]>,
}

/// A blob in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBlob {
    /// Its id.
    pub blob: BlobId,
    /// Its bytes.
    pub len: u32,
    /// What the caller gave when it was put first.
    pub stamp: u64,
    /// Its header.
    pub header: ListedHeader,
}

/// The header of a blob in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListedHeader {
    /// The list is brief.
    NotAsked,
    /// As it was put.
    Whole(Box<[u8]>),
    /// The drive did not return what was written; also told by an event.
    Damaged,
}

/// Bytes of a blob inside a shared buffer: the drive's answer is passed on without a copy.
#[derive(Clone)]
pub struct BlobBytes {
    segment: Segment,
    start: usize,
    len: usize,
}

impl BlobBytes {
    /// A part of a segment.
    ///
    /// # Panics
    /// When it ends behind the segment.
    pub(super) fn new(segment: Segment, start: usize, len: usize) -> Self {
        assert!(start + len <= segment.bytes().len(), "a part lies in its segment");
        Self { segment, start, len }
    }
}

impl Deref for BlobBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.segment.bytes()[self.start..][..self.len]
    }
}

impl AsRef<[u8]> for BlobBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for BlobBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobBytes({})", self.len)
    }
}

/// What the owner of the redundancy should know without having asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobEvent {
    /// A read, the scrub or compaction found that a blob is not what was written. `Repair` or `Remove` ends that.
    Damage {
        /// Which blob.
        blob: BlobId,
    },
    /// Opening found that a part of the log of a segment is damaged. Blobs that were put there may be missing, with ids
    /// unknown, and blobs that were removed there may be back. Compare a list with what should be here, and collect what
    /// nobody refers to. It is told at every opening until the segment has been compacted.
    Lost {
        /// Which segment.
        segment: u32,
    },
    /// The drive failed a write or sync. Everything is refused from now on.
    Poisoned(IoError),
}

/// Space and number of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobStats {
    /// Blobs.
    pub blobs: usize,
    /// Removed blobs that are remembered until no old record of them is on the drive.
    pub tombstones: usize,
    /// Bytes of data of all blobs.
    pub data_bytes: u64,
    /// Bytes that blobs and tombstones take on the drive.
    pub live_bytes: u64,
    /// Bytes of used segments that compaction can gain, except what the ends of segments leave unused.
    pub dead_bytes: u64,
    /// Bytes that puts can take before compaction has to gain more, an upper bound.
    pub free_bytes: u64,
    /// Segments without content.
    pub free_segments: u32,
    /// Segments in all.
    pub segments: u32,
}
