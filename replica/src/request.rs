//! What clients ask for, and what a member asks its own drive's store for.
//!
//! Contents are shared buffers ([`Bytes`]): nothing in this crate copies data.
//!
//! What a store has to hold:
//! - A write or a patch takes effect with its version as a whole or not at all, also across a crash.
//! - Requests about one extent take effect in the order in which they were submitted. After a crash an extent has the
//!   effect of a prefix of them, which has every completed one in it.
//! - A read or a list sees everything that was submitted before it, and may see what was submitted later.
//! - Completion of a write, a patch or a record means that it is on stable storage.
//! - A change that is refused has no effect, and neither has any other change of its extent that was submitted before the
//!   refusal was told: what an extent has stays the effect of a prefix.

use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::version::Version;
use bytes::Bytes;

use crate::error::Refusal;

/// Unit of atomic writes and of comparison: offsets and lengths are multiples of it.
pub const BLOCK_BYTES: u32 = 4_096;
/// Largest extent. It is versioned, compared and copied as a whole.
pub const EXTENT_BYTES_MAX: u32 = 1 << 20;
/// Blocks of the largest extent.
pub const BLOCKS_MAX: usize = (EXTENT_BYTES_MAX / BLOCK_BYTES) as usize;
/// Entries of one page of a list.
pub const PAGE_MAX: usize = 512;

/// One connection of a client, drawn by chance when it begins. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One request of a session: 1, 2, 3 and so on. A repeated request keeps its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Attachment of a volume, counted by the catalog. A greater one fences the smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

/// Part of an extent, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub offset: u32,
    /// How long it is.
    pub len: u32,
}

impl Range {
    /// Bytes of the bits that stand for its blocks.
    #[must_use]
    pub const fn presence_len(self) -> usize {
        (self.len / BLOCK_BYTES).div_ceil(8) as usize
    }

    /// Whether it has whole blocks, at least one, within the largest extent.
    #[must_use]
    pub fn is_valid(self) -> bool {
        let end = self.offset.checked_add(self.len);
        let is_whole = self.offset.is_multiple_of(BLOCK_BYTES) && self.len.is_multiple_of(BLOCK_BYTES);
        is_whole && self.len > 0 && end.is_some_and(|end| end <= EXTENT_BYTES_MAX)
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.offset < other.offset + other.len && other.offset < self.offset + self.len
    }
}

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Data(Bytes),
    /// So many zeroes; also what a discard writes.
    Zeroes(u32),
    /// Blocks of which no copy is left. Only patches have such: reads of them fail until they are written. For each block, the
    /// checksum by which a drive knows its content again, if anybody still knows that; it is the same on all drives.
    Lost(Vec<Option<u32>>),
}

impl Content {
    /// Its length in bytes; that of data that no extent could hold is `u32::MAX`.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Data(data) => u32::try_from(data.len()).unwrap_or(u32::MAX),
            Self::Zeroes(len) => *len,
            Self::Lost(sums) => u32::try_from(sums.len()).unwrap_or(u32::MAX).saturating_mul(BLOCK_BYTES),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Content at its place in an extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Where it begins.
    pub offset: u32,
    /// What stands there.
    pub content: Content,
}

impl Run {
    /// Whether its content is lost.
    #[must_use]
    pub const fn is_lost(&self) -> bool {
        matches!(self.content, Content::Lost(_))
    }

    /// The bytes that it covers.
    #[must_use]
    pub fn range(&self) -> Range {
        Range { offset: self.offset, len: self.content.len() }
    }
}

/// What a client wants done with an extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Return these bytes. What was never written is zeroes.
    Read(Range),
    /// Write this. Answered when it is on stable storage at every acting member.
    Write(Run),
    /// Return which blocks of these bytes are stored: a bit for each block, the lowest bit of a byte first. A block that is
    /// not reads as zeroes. As current as a read.
    Presence(Range),
}

/// A request of a client.
///
/// A client has at most one write outstanding per block, and holds overlapping ones back (the initiator of a volume
/// does): then a write that is repeated in a later epoch writes a value that nothing has replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRequest {
    /// The client's connection.
    pub session: SessionId,
    /// Number of the request in it.
    pub request: RequestId,
    /// Every request of the session below this number has been answered or given up. Late copies of those are refused.
    pub floor: RequestId,
    /// The attachment for which the client works.
    pub generation: Generation,
    /// Epoch of the configuration by which the client found this member.
    pub epoch: Epoch,
    /// Which extent.
    pub extent: ExtentId,
    /// What to do.
    pub operation: Operation,
}

/// The answer to a request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The bytes that were asked for, or the bits of [`Operation::Presence`]. No later read of them returns an older value.
    Read(Bytes),
    /// On stable storage at every acting member; every later read sees it.
    Written,
}

/// What a client gets.
pub type ClientResult = Result<Answer, Refusal>;

/// Names one request to the store until its completion. Unique in the life of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u64);

/// What a member asks the store of its drive for, about its own placement group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRequest {
    /// Write this to an extent, which has this version then. Completes with [`StoreReply::Done`] when durable.
    Write {
        /// Which extent.
        extent: ExtentId,
        /// What, and where.
        run: Run,
        /// Its version from then on.
        version: Version,
    },
    /// Write all of this at once to an extent, which has this version then, greater or smaller than before. What is lost elsewhere
    /// and whole here stays in an extent of the same version, as a version stands for one content, and else where its checksum is
    /// that of what is lost. Version
    /// zero with no bytes but zeroes removes the extent. Completes with [`StoreReply::Done`] when durable.
    Patch {
        /// Which extent.
        extent: ExtentId,
        /// What differs.
        runs: Vec<Run>,
        /// Its version from then on.
        version: Version,
    },
    /// Write all of this at once to an extent of which this is the version, and stays it. If it has another one, only those of the
    /// blocks are written that are damaged there and whose content is known again by its checksum: they have not changed since.
    /// [`StoreError::Damaged`] if blocks of it are damaged still. Completes with [`StoreReply::Done`] when durable.
    Mend {
        /// Which extent.
        extent: ExtentId,
        /// What was damaged.
        runs: Vec<Run>,
        /// The version of the copy that they are from.
        version: Version,
    },
    /// Read these bytes; zeroes where nothing was written.
    Read {
        /// Which extent.
        extent: ExtentId,
        /// Which bytes.
        range: Range,
    },
    /// The extents with a version greater than `above` and an id greater than `after`, ascending, up to [`PAGE_MAX`].
    /// `above` zero lists damaged extents too, as version zero.
    List {
        /// Only greater versions.
        above: Version,
        /// Only greater ids; from the first one if nothing.
        after: Option<ExtentId>,
    },
    /// The checksums of the content of an extent's blocks, read and verified; none if there is no such extent or it has no
    /// blocks. A damaged block has a checksum that it would have in no state.
    Checksums {
        /// Which extent.
        extent: ExtentId,
    },
    /// Version and content, as of one moment, of the blocks of an extent whose checksum differs from these; all that
    /// are behind the last one are compared with zeroes. What cannot be read here is [`Content::Lost`], whatever the
    /// checksum is.
    Difference {
        /// Which extent.
        extent: ExtentId,
        /// The checksums of the copy that is to become equal.
        than: Vec<Checksum>,
    },
    /// Whether an extent has any block that may be other than zeroes, and so its space on the drive.
    Occupied {
        /// Which extent.
        extent: ExtentId,
    },
    /// Which blocks of these bytes are stored: completes with [`StoreReply::Read`] of the bits of [`Operation::Presence`].
    Presence {
        /// Which extent.
        extent: ExtentId,
        /// Which bytes.
        range: Range,
    },
    /// Replace the one small record of this placement group. Completes with [`StoreReply::Done`] when durable.
    Save {
        /// The record: up to [`crate::record::RECORD_BYTES_MAX`] bytes.
        record: Vec<u8>,
    },
}

/// A part of the list of extents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Extents with their versions, ascending by id.
    pub entries: Vec<(ExtentId, Version)>,
    /// There are more behind the last one.
    pub has_more: bool,
    /// The greatest version of any extent of the placement group on this drive.
    pub newest: Version,
}

/// Blocks of an extent that differ from another copy's, or are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Version of the extent; zero if there is none.
    pub version: Version,
    /// The blocks.
    pub runs: Vec<Run>,
}

impl Difference {
    /// What can be said of an extent of which nothing can be read.
    #[must_use]
    pub fn of_nothing() -> Self {
        let content = Content::Lost(alloc::vec![None; (EXTENT_BYTES_MAX / BLOCK_BYTES) as usize]);
        Self { version: Version::ZERO, runs: alloc::vec![Run { offset: 0, content }] }
    }

    /// Whether blocks cannot be read.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.runs.iter().any(Run::is_lost)
    }
}

/// What the store completes a request with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreReply {
    /// A write, patch or record is durable.
    Done,
    /// The bytes, or the bits.
    Read(Bytes),
    /// A page of the list.
    List(Page),
    /// The checksums.
    Checksums(Vec<Checksum>),
    /// The blocks.
    Difference(Difference),
    /// Whether the extent has blocks.
    Occupied(bool),
}

/// Whether a drive has room for extents that have no space yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Room {
    /// It has, also for everything that may be under way.
    #[default]
    Enough,
    /// It has little or none. Extents that have their space can be written.
    Low,
}

/// Why the store did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreError {
    /// The drive failed: nothing of it can be relied upon any more. Never retried.
    Failed,
    /// No space for this write.
    Full,
    /// A checksum does not fit the bytes.
    Damaged,
}

/// How a request to the store ended.
pub type StoreResult = Result<StoreReply, StoreError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range = |offset, len| Range { offset, len };
        assert!(range(0, BLOCK_BYTES).is_valid() && range(0, EXTENT_BYTES_MAX).is_valid());
        for (offset, len) in
            [(0, 0), (1, BLOCK_BYTES), (0, 1), (EXTENT_BYTES_MAX, BLOCK_BYTES), (u32::MAX - 4_095, 8_192)]
        {
            assert!(!range(offset, len).is_valid(), "{offset} {len}");
        }
        assert!(range(0, 8_192).overlaps(range(4_096, 4_096)) && range(4_096, 4_096).overlaps(range(0, 8_192)));
        assert!(!range(0, 4_096).overlaps(range(4_096, 4_096)) && !range(4_096, 4_096).overlaps(range(0, 4_096)));
        assert!(Content::Zeroes(0).is_empty() && !Content::Zeroes(BLOCK_BYTES).is_empty());
    }
}
