//! Requests to a store and its replies.

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::VolumeId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;

use crate::block::{BlockChecksum, BlockSet, LostBlocks};
use crate::buffer::{AlignedBuf, Segment};
use crate::io::IoError;
use crate::record::{Key, Value};

/// Names a request from its start to its completion; chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One request and how long it is worth doing.
#[derive(Debug, Clone)]
pub struct Request {
    /// It is dropped if it has not cost an IO by then.
    pub deadline: Instant,
    /// What to do.
    pub kind: RequestKind,
}

/// What a store can do. Every change is durable when it is answered.
#[derive(Debug, Clone)]
pub enum RequestKind {
    /// Writes blocks of an extent, which is made if it does not exist.
    Write {
        /// The extent.
        extent: ExtentId,
        /// Its placement group.
        group: GroupId,
        /// First byte, a multiple of 4 KiB.
        offset: u32,
        /// Whole blocks.
        data: Segment,
        /// The extent's new version. Below the extent's it is refused; equal to it, it is a duplicate and done.
        version: Version,
    },
    /// Makes blocks absent, so that they read as zeroes. An extent without blocks keeps its version and needs no space
    /// for data. An extent that does not exist is left so.
    Clear {
        /// The extent.
        extent: ExtentId,
        /// First byte, a multiple of 4 KiB.
        offset: u32,
        /// Bytes, a multiple of 4 KiB.
        len: u32,
        /// As for a write.
        version: Version,
    },
    /// Replaces an extent whole: what is not in `blocks` is absent. Also at the version that the extent has, to repair
    /// damage.
    Replace {
        /// The extent.
        extent: ExtentId,
        /// Its placement group.
        group: GroupId,
        /// The extent's new version, not below the one it has.
        version: Version,
        /// The blocks that it has from now on.
        blocks: BlockSet,
        /// Those of them whose content is lost: what `data` has for them is of no account, and reads of them are
        /// [`Error::Damaged`](crate::Error::Damaged) until they are written. Their checksums are kept.
        lost: LostBlocks,
        /// Their data, ascending, without gaps. None if there are no blocks.
        data: Option<Segment>,
    },
    /// Removes an extent without data, version and all, once no other copy can be behind any more.
    ForgetExtent {
        /// The extent.
        extent: ExtentId,
        /// Its version; an extent with a later one is kept.
        version: Version,
    },
    /// Reads blocks. An extent that does not exist reads as zeroes with version zero.
    Read {
        /// The extent.
        extent: ExtentId,
        /// First byte, a multiple of 4 KiB.
        offset: u32,
        /// Bytes, a multiple of 4 KiB.
        len: u32,
    },
    /// Reads all blocks of an extent and says which of them cannot be read, or are not what was written there. An extent
    /// that does not exist reads as zeroes with version zero.
    Salvage {
        /// The extent.
        extent: ExtentId,
    },
    /// The checksums of all blocks, for comparing copies. They bind volume, extent and offset and are the same on all
    /// drives.
    Checksums {
        /// The extent.
        extent: ExtentId,
    },
    /// The extents of a placement group, ascending, up to `list_max`.
    List {
        /// The placement group.
        group: GroupId,
        /// Only extents behind this one.
        after: Option<ExtentId>,
    },
    /// Deletes all extents of a volume and refuses it from now on. Their space becomes free after the reply.
    DeleteVolume {
        /// The volume.
        volume: VolumeId,
    },
    /// Forgets that a volume was deleted, once no drive can return with its extents any more. `Busy` while extents of it
    /// are still being dropped.
    ForgetVolume {
        /// The volume.
        volume: VolumeId,
    },
    /// Sets a record.
    PutRecord {
        /// Its name.
        key: Key,
        /// Its content.
        value: Value,
    },
    /// Removes a record, if it exists.
    DeleteRecord {
        /// Its name.
        key: Key,
    },
    /// The records, ascending by key, up to `list_max`.
    Scan {
        /// Only keys behind this one.
        after: Option<Key>,
    },
}

/// What a request gave.
#[derive(Debug)]
pub enum Reply {
    /// The change is durable and visible.
    Done,
    /// Blocks that were read.
    Data {
        /// The bytes, as many as were asked for.
        data: AlignedBuf,
        /// The extent's version.
        version: Version,
    },
    /// What can be read of an extent.
    Salvaged {
        /// The bytes of all 256 blocks; zeroes for what is absent or lost.
        data: AlignedBuf,
        /// The extent's version.
        version: Version,
        /// Blocks that the extent has and that cannot be read.
        lost: LostBlocks,
    },
    /// Checksums of an extent.
    Checksums {
        /// For each of the 256 blocks, none if it is absent.
        blocks: Vec<Option<BlockChecksum>>,
        /// The extent's version.
        version: Version,
    },
    /// Extents of a placement group.
    Extents {
        /// Ascending, with their versions.
        extents: Vec<(ExtentId, Version)>,
        /// Whether there may be more behind the last.
        more: bool,
    },
    /// Records.
    Records {
        /// Ascending.
        records: Vec<(Key, Value)>,
        /// Whether there may be more behind the last.
        more: bool,
    },
}

/// What the owner of the redundancy should know without having asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A read or the scrub found damage. `Replace` repairs it, from another copy.
    Damage {
        /// Where.
        extent: ExtentId,
    },
    /// The drive failed a write or sync. Everything is refused from now on.
    Poisoned(IoError),
}
