//! Why a request failed or a drive cannot be opened: whose fault it is, and whether a retry is safe.

use core::fmt;

use ashlar_placement::map::GroupId;
use ashlar_wire::id::{ClusterId, DriveId};
use ashlar_wire::version::Version;

use crate::io::IoError;

/// Why a request failed. The first group is the caller's fault, the second that of the load, the third the drive's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    // The caller's: a retry needs other values.
    /// An offset or a length is no multiple of 4 KiB, or the length is zero or not that of the data.
    Misaligned,
    /// The range ends behind 1 MiB: larger extents are not supported by this version.
    OutsideExtent,
    /// The extent has a later version already. Nothing was changed.
    StaleVersion {
        /// What the extent has, or is about to have.
        held: Version,
    },
    /// Version zero is before the first write.
    ZeroVersion,
    /// The extent belongs to another placement group.
    OtherGroup {
        /// Its placement group.
        held: GroupId,
    },
    /// The volume was deleted. Its extents are gone and none can be made.
    VolumeDeleted,
    /// The extent has data, and only an extent without data can be forgotten.
    HasData,
    /// A record's key has no byte or more than 64.
    BadKey,
    /// A record's value has more than 1 KiB.
    ValueTooLong,

    // The load's: a retry is safe, later or after something was deleted.
    /// Too many requests are in progress; the limit is `requests_max`.
    Busy,
    /// The deadline passed before the request cost an IO. Nothing was changed.
    Expired,
    /// No space for more data. Discards, deletes and reads still work.
    Full,
    /// No space for more records.
    TooManyRecords,
    /// No space for more deleted volumes; `ForgetVolume` makes some.
    TooManyTombstones,

    // The drive's: the data has to come from another copy.
    /// What the drive returned is not what was written. A whole replacement repairs it.
    Damaged,
    /// The drive failed a read of this extent. A whole replacement may repair it.
    ReadFailed(IoError),
    /// The drive failed a write or sync; nothing is served any more. It is unknown whether a write that gets this
    /// answer is durable.
    Poisoned(IoError),
}

impl Error {
    /// Whether the same request can succeed later on the same drive.
    #[must_use]
    pub const fn retry_is_safe(&self) -> bool {
        matches!(self, Self::Busy | Self::Expired | Self::Full | Self::TooManyRecords | Self::TooManyTombstones)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned => f.write_str("offset and length are not whole blocks of 4 KiB"),
            Self::OutsideExtent => f.write_str("the range ends behind 1 MiB, the largest extent"),
            Self::StaleVersion { held } => write!(f, "the extent has the later version {held}"),
            Self::ZeroVersion => f.write_str("version zero is before the first write"),
            Self::OtherGroup { held } => {
                write!(f, "the extent belongs to placement group {} of set {}", held.pg.0, held.set.0)
            }
            Self::VolumeDeleted => f.write_str("the volume was deleted"),
            Self::HasData => f.write_str("the extent has data; discard it first"),
            Self::BadKey => f.write_str("a record's key has 1 to 64 bytes"),
            Self::ValueTooLong => f.write_str("a record's value has at most 1 KiB"),
            Self::Busy => f.write_str("too many requests are in progress; try again later"),
            Self::Expired => f.write_str("the deadline passed before the request was begun"),
            Self::Full => f.write_str("the drive is full; delete or move something"),
            Self::TooManyRecords => f.write_str("the drive has no space for another record"),
            Self::TooManyTombstones => f.write_str("the drive remembers as many deleted volumes as it can"),
            Self::Damaged => f.write_str("the drive returned other bytes than were written; repair from another copy"),
            Self::ReadFailed(error) => write!(f, "{error}; repair from another copy"),
            Self::Poisoned(error) => write!(f, "{error}; it is not used any more, replace it"),
        }
    }
}

impl core::error::Error for Error {}

/// Why a drive cannot be formatted or opened. None goes away by itself, except perhaps a failed IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenError {
    // The caller's.
    /// The drive is too small for the layout that was asked for.
    TooSmall {
        /// Bytes that the drive has.
        bytes: u64,
        /// Bytes that it needs at least.
        bytes_min: u64,
    },
    /// A limit of the layout is not met.
    BadLayout(
        /// Which.
        &'static str,
    ),
    /// The drive has been formatted already.
    AlreadyFormatted(DriveId),
    /// There is no superblock.
    NotFormatted,
    /// The drive belongs to another cluster.
    ForeignCluster(ClusterId),
    /// It is another drive than expected.
    OtherDrive(DriveId),
    /// A newer program wrote it.
    NewerFormat(u16),
    /// The drive has not the size that it was formatted with.
    WrongSize {
        /// Bytes that it has.
        bytes: u64,
        /// Bytes that it had.
        formatted_bytes: u64,
    },

    // The drive's.
    /// What was written is not there. The drive has to be formatted and filled from other copies.
    Damaged(
        /// What is damaged.
        &'static str,
    ),
    /// An IO failed.
    Io(IoError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { bytes, bytes_min } => write!(f, "the drive has {bytes} bytes and needs {bytes_min}"),
            Self::BadLayout(what) => write!(f, "the layout is impossible: {what}"),
            Self::AlreadyFormatted(id) => write!(f, "the drive is drive {id} already; wipe it to use it anew"),
            Self::NotFormatted => f.write_str("the drive has no superblock; format it first"),
            Self::ForeignCluster(id) => write!(f, "the drive belongs to cluster {id}; wipe it to use it here"),
            Self::OtherDrive(id) => write!(f, "this is drive {id}; check which device is meant"),
            Self::NewerFormat(version) => {
                write!(f, "the drive has format {version}, a newer program's; start that program instead")
            }
            Self::WrongSize { bytes, formatted_bytes } => {
                write!(f, "the drive has {bytes} bytes and was formatted with {formatted_bytes}; restore its size")
            }
            Self::Damaged(what) => write!(f, "damaged: {what}; format the drive and refill it from other copies"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

#[cfg(test)]
mod tests;
