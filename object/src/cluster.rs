//! What the object service needs of its cluster: time and chance, drives for shards, the index, the list of buckets.

use ashlar_wire::id::{BlobId, DriveId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use crate::api::{Attributes, BoxFuture, Redundancy};
use crate::index::key::BucketId;
use crate::index::{Reply, Request};
use crate::record::{PartContent, PartId, ShardNames};

/// Most shards of a stripe, data and parity.
pub const SHARDS_MAX: usize = 32;

/// A moment, and chance that is given once.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Milliseconds since 1970 (UTC).
    pub now_ms: u64,
    /// The same on this server's monotonic clock: for spans.
    pub at: Instant,
    /// Never the same twice.
    pub drawn: [u8; 16],
    /// The id of a bucket that is made now, of that chance.
    pub bucket: BucketId,
}

/// Drives of the shards of one part, in the order of the shards: data first, then parity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread {
    /// How many of the shards are parity: as many drives may be lost.
    pub parity: u8,
    /// A drive for each shard, no drive twice.
    pub drives: Vec<DriveId>,
}

/// What drives are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing<'a> {
    /// A new part.
    New(Redundancy),
    /// A part that lies there.
    Lying(&'a Spread),
}

/// Where the shards of a part should lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Their drives.
    pub spread: Spread,
    /// Numbers of the shards whose drive is given up, and for which there is no other: each has one of the part already.
    pub lacking: Vec<u8>,
    /// How shards of a new part are called: by block and number, once all servers know that.
    pub names: ShardNames,
}

/// What a drive is asked about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardRequest {
    /// Keep this. Durable when it is done.
    Put {
        /// Its name on the drive.
        blob: BlobId,
        /// When it was made, in milliseconds since 1970 (UTC).
        stamp: u64,
        /// What it says about itself.
        header: Bytes,
        /// The shard.
        data: Bytes,
        /// It takes the place of a damaged one.
        is_repair: bool,
    },
    /// Read these bytes of it.
    Get {
        /// Its name on the drive.
        blob: BlobId,
        /// First byte.
        offset: u32,
        /// How many bytes.
        len: u32,
    },
    /// Forget it. Done also if it is not there.
    Remove(BlobId),
}

/// What has become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardReply {
    /// It is kept, or forgotten.
    Done,
    /// The bytes, verified.
    Data(Bytes),
    /// The drive has no such shard.
    Missing,
    /// The drive did not return what was written.
    Damaged,
    /// The drive has no room.
    Full,
    /// The drive cannot be reached, or has failed. Whether it was kept or forgotten is not known.
    Unavailable,
}

/// What can wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chore {
    /// Nothing refers to this any more: its shards are to be removed, after a while in which whoever reads it can end.
    Discard {
        /// What nothing refers to.
        part: PartContent,
        /// Bytes of the object that it was a part of: the more, the longer it may be read. None if nobody can have read it.
        of_bytes: u64,
    },
    /// Shards of this object are missing or damaged: every drive is to be asked for its own, and what lacks to be made anew.
    Heal(BucketId, String),
    /// The same for shards that the object's record notes as missing: drives that did not take theirs when it was put.
    HealNoted(BucketId, String),
}

/// The cluster, for objects. Five methods.
pub trait Cluster: Send + Sync + 'static {
    /// Now.
    fn moment(&self) -> Moment;

    /// Drives for the shards of a part. Of a new one: nothing while too few are known. Of one that lies somewhere:
    /// the same ones in the same places, but for those that are given up or being emptied, in the
    /// place of which stand others if there are any.
    fn spread(&self, part: PartId, placing: Placing<'_>) -> Option<Placed>;

    /// Asks a drive about a shard. Ends within seconds, whatever has become of the drive's server.
    fn shard(&self, drive: DriveId, request: ShardRequest) -> BoxFuture<'static, ShardReply>;

    /// Asks the owner of a bucket's index, whoever that is now. [`Reply::Unavailable`] if none has answered in time.
    fn index(&self, bucket: BucketId, request: Request) -> BoxFuture<'static, Reply>;

    /// Does this later, beside everything else; or never, if there is too much to do or the server dies.
    fn later(&self, chore: Chore);
}

/// A bucket as the catalog has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketRecord {
    /// Its id.
    pub id: BucketId,
    /// When it was made, in milliseconds since 1970 (UTC).
    pub created_ms: u64,
    /// What it says about itself.
    pub attributes: Attributes,
}

/// Why the list of buckets was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketListError {
    /// A bucket of this name exists.
    Exists,
    /// No bucket has this name and id.
    Unknown,
    /// The bucket has another record by now.
    Changed,
    /// The catalog has not answered. The change may take effect later.
    Unavailable,
}

/// The list of all buckets. Five methods.
pub trait BucketList: Send + Sync + 'static {
    /// The bucket of a name.
    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BucketRecord>, BucketListError>>;

    /// All of them, ascending by name.
    fn all(&self) -> BoxFuture<'_, Result<Vec<(String, BucketRecord)>, BucketListError>>;

    /// Adds one.
    fn add<'a>(&'a self, name: &'a str, bucket: BucketRecord) -> BoxFuture<'a, Result<(), BucketListError>>;

    /// Puts a record in the place of the one that was seen; [`BucketListError::Changed`] if that is not there any more. Told by
    /// [`BucketList::find`] of this server when it is done.
    fn replace<'a>(
        &'a self,
        name: &'a str,
        seen: &'a BucketRecord,
        bucket: BucketRecord,
    ) -> BoxFuture<'a, Result<(), BucketListError>>;

    /// Removes this one.
    fn remove<'a>(&'a self, name: &'a str, bucket: BucketId) -> BoxFuture<'a, Result<(), BucketListError>>;
}
