//! Why a request to a volume fails, by whose fault, and whether it may be tried again.

use core::fmt;

use ashlar_placement::map::SetId;

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The caller: the request makes no sense here, or comes at the wrong time.
    Caller,
    /// The server that was asked, or the way to it.
    Peer,
    /// Drives: no room, or no copy that is whole.
    Drive,
}

/// Why a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// Part of the range lies behind the end. Nothing was done.
    BehindEnd {
        /// First byte of the range.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// Bytes of the volume.
        size: u64,
    },
    /// A range of no bytes. Nothing was done.
    EmptyRange,
    /// A limit of the initiator is reached. Nothing was done; try again after a completion.
    TooMuchInFlight,
    /// The placement table of a set in which the volume has a part is missing.
    UnknownSet(SetId),
    /// A part that no volume can have: empty, one too many, or too large.
    BadPart,
    /// A placement table that is not of one of the volume's sets, or has another number of placement groups than before.
    OtherTable(SetId),
    /// The volume was attached elsewhere after this attachment, or its deletion began. A read has read nothing; a write may
    /// be done or not. Nothing of this attachment will succeed again.
    Fenced,
    /// The deadline of the request has passed. A write may be done or not, or in part; once a later request to the same
    /// range is answered, it will not be done any more.
    TimedOut,
    /// A server's answer does not fit the request. A write may be done or not.
    BadAnswer,
    /// A server says that no retry makes the request right. Nothing was done. A fault of this program.
    Rejected,
    /// Drives of the placement group have no room. The write is not done, or in part where it spans extents.
    Full,
    /// No copy of a block is whole.
    Damaged,
}

impl Error {
    /// Whose fault it is.
    #[must_use]
    pub const fn fault(self) -> Fault {
        match self {
            Self::BehindEnd { .. }
            | Self::EmptyRange
            | Self::TooMuchInFlight
            | Self::UnknownSet(_)
            | Self::BadPart
            | Self::OtherTable(_)
            | Self::Rejected
            | Self::Fenced => Fault::Caller,
            Self::TimedOut | Self::BadAnswer => Fault::Peer,
            Self::Full | Self::Damaged => Fault::Drive,
        }
    }

    /// Whether the same request may be made again and can succeed. Requests name ranges and contents, so doing one twice
    /// does no harm as long as nobody else writes the same range in between.
    #[must_use]
    pub const fn is_retry_useful(self) -> bool {
        match self {
            Self::TooMuchInFlight | Self::UnknownSet(_) | Self::TimedOut | Self::BadAnswer | Self::Full => true,
            Self::BehindEnd { .. }
            | Self::EmptyRange
            | Self::BadPart
            | Self::OtherTable(_)
            | Self::Fenced
            | Self::Rejected
            | Self::Damaged => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BehindEnd { offset, len, size } => {
                write!(f, "{len} bytes at offset {offset} reach behind the end of a volume of {size} bytes")
            }
            Self::EmptyRange => f.write_str("a range of no bytes"),
            Self::TooMuchInFlight => f.write_str("too many requests or bytes in flight; try again after a completion"),
            Self::UnknownSet(set) => write!(f, "the placement table of set {} is missing", set.0),
            Self::BadPart => f.write_str("an empty part, one part too many, or one that is too large"),
            Self::OtherTable(set) => write!(f, "a placement table of set {} does not fit the volume", set.0),
            Self::Fenced => f.write_str("the volume was attached elsewhere or deleted"),
            Self::TimedOut => f.write_str("the deadline of the request has passed; a write may be done or not"),
            Self::BadAnswer => f.write_str("the server's answer does not fit the request"),
            Self::Rejected => f.write_str("a server refuses the request, and would refuse it again"),
            Self::Full => f.write_str("the drives of the placement group have no room"),
            Self::Damaged => f.write_str("no copy of a block is whole"),
        }
    }
}

impl core::error::Error for Error {}
