//! Why a request for a blob failed: whose fault it is, and whether a retry is safe.
//!
//! Apart from [`crate::Error`], whose users name each of its variants: extents and blobs fail in different ways.

use core::fmt;

use crate::io::IoError;

/// Why a request failed. The first group is the caller's fault, the second that of the load, the third the drive's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobError {
    // The caller's: a retry needs other values.
    /// The header has more than 512 bytes.
    HeaderTooLong,
    /// The blob has more bytes than the geometry of the drive allows, 4 MiB as a rule.
    TooLong {
        /// Most bytes.
        bytes_max: u32,
    },
    /// The segments have not as many blocks as the length takes.
    WrongLength,
    /// No blob has this id.
    NoSuchBlob,
    /// The range ends behind the blob.
    OutsideBlob {
        /// Bytes of the blob.
        len: u32,
    },
    /// A blob with this id and other bytes is stored. Nothing was changed.
    Conflict,

    // The load's: a retry is safe, later or after something was removed.
    /// Too many requests or bytes are in progress; the limits are `requests_max` and `put_bytes_max`.
    Busy,
    /// The deadline passed before the request cost an IO. Nothing was changed.
    Expired,
    /// No space for another blob now. Removals and reads still work; compaction may gain space.
    Full,
    /// No memory for another blob; the limit is `blobs_max`.
    TooManyBlobs,

    // The drive's: the data has to come from elsewhere.
    /// What the drive returned is not what was written. `Repair` replaces it.
    Damaged,
    /// The drive failed a read of this blob. `Repair` may replace it.
    ReadFailed(IoError),
    /// The drive failed a write or sync; nothing is served any more. It is unknown whether a change that gets this
    /// answer is durable.
    Poisoned(IoError),
}

impl BlobError {
    /// Whether the same request can succeed later on the same drive.
    #[must_use]
    pub const fn retry_is_safe(&self) -> bool {
        matches!(self, Self::Busy | Self::Expired | Self::Full | Self::TooManyBlobs)
    }
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderTooLong => f.write_str("a blob's header has at most 512 bytes"),
            Self::TooLong { bytes_max } => write!(f, "a blob has at most {bytes_max} bytes"),
            Self::WrongLength => f.write_str("the blocks given are not those of the blob's length"),
            Self::NoSuchBlob => f.write_str("no blob has this id"),
            Self::OutsideBlob { len } => write!(f, "the range ends behind the blob's {len} bytes"),
            Self::Conflict => f.write_str("a blob with this id has other bytes"),
            Self::Busy => f.write_str("too many requests are in progress; try again later"),
            Self::Expired => f.write_str("the deadline passed before the request was begun"),
            Self::Full => f.write_str("the drive has no room for this blob; remove something or try again later"),
            Self::TooManyBlobs => f.write_str("the drive has as many blobs as its index may hold"),
            Self::Damaged => f.write_str("the drive returned other bytes than were written; repair the blob"),
            Self::ReadFailed(error) => write!(f, "{error}; repair the blob"),
            Self::Poisoned(error) => write!(f, "{error}; it is not used any more, replace it"),
        }
    }
}

impl core::error::Error for BlobError {}
