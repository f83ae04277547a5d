//! Why a map, a rule or a plan cannot be: whose fault.
//!
//! Everything in this crate is a pure function, so no error here goes away by asking again: a retry needs other values.

use core::fmt;

use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::pack::PackError;

use crate::map::{PgId, Rack, SetId};

/// Why values do not fit together. The first group is the caller's fault; the second that of whoever wrote the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    // The caller's: values that make no map, volume or plan.
    /// A limit of this crate is passed: there are `count` of `what`, where `max` are allowed.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: u64,
        /// How many there may be.
        max: u64,
    },
    /// There must be at least one of these.
    Missing(
        /// What is missing.
        &'static str,
    ),
    /// One drive stands twice in the map.
    DuplicateDrive(DriveId),
    /// A drive without weight. A drive that shall hold nothing is out.
    ZeroWeight(DriveId),
    /// A server's drives stand in two racks.
    SplitServer(ServerId),
    /// A rack's servers stand in two zones.
    SplitRack(Rack),
    /// Fewer conflict domains have a drive that is not out than a placement group has seats. Nothing falls back to two
    /// seats in one domain.
    TooFewDomains {
        /// How many domains there are.
        domains: usize,
        /// How many are needed.
        seats: usize,
    },
    /// Only drives that take nothing more could hold a seat of this placement group.
    NoRoom(PgId),
    /// Two maps are not of the same set.
    OtherSet {
        /// The set that was expected.
        expected: SetId,
        /// The set that was given.
        given: SetId,
    },
    /// Two maps cut their sets into different numbers of placement groups; placement groups are never split.
    OtherPgs,
    /// A map does not follow the previous one: its epoch is not greater.
    StaleEpoch,
    /// Not a power of two from 64 KiB to 1 GiB.
    BadExtentSize(u64),
    /// The offset lies behind the end of the volume.
    BehindEnd {
        /// The offset, bytes.
        offset: u64,
        /// The size of the volume, bytes.
        size: u64,
    },

    // The writer's: bytes that are no map.
    /// The bytes are not the values that stand in a map.
    Pack(PackError),
    /// The bytes are not those of a map.
    NotAMap,
    /// A version of the written form that this program does not know.
    UnknownVersion(u64),
    /// A number has no meaning in its place.
    BadNumber {
        /// The place.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// Drives or pins are not in ascending order.
    OutOfOrder(&'static str),
    /// A pinned list has a drive that is out, or two drives of one conflict domain.
    BadPin(PgId),
    /// Something follows the map.
    TrailingBytes,
}

impl From<PackError> for Error {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { what, count, max } => write!(f, "{count} {what} where at most {max} are allowed"),
            Self::Missing(what) => write!(f, "there must be at least one of: {what}"),
            Self::DuplicateDrive(id) => write!(f, "drive {id} stands twice in the map"),
            Self::ZeroWeight(id) => write!(f, "drive {id} has no weight"),
            Self::SplitServer(id) => write!(f, "the drives of server {id} stand in two racks"),
            Self::SplitRack(rack) => write!(f, "the servers of rack {} stand in two zones", rack.0),
            Self::TooFewDomains { domains, seats } => {
                write!(f, "{seats} seats need as many conflict domains, and there are {domains}")
            }
            Self::NoRoom(pg) => write!(f, "every drive that placement group {} could use is full", pg.0),
            Self::OtherSet { expected, given } => write!(f, "a map of set {} where {} is due", given.0, expected.0),
            Self::OtherPgs => f.write_str("the maps have different numbers of placement groups"),
            Self::StaleEpoch => f.write_str("the epoch of the map is not greater than that of the previous one"),
            Self::BadExtentSize(bytes) => {
                write!(f, "an extent of {bytes} bytes is no power of two from 64 KiB to 1 GiB")
            }
            Self::BehindEnd { offset, size } => write!(f, "offset {offset} in a volume of {size} bytes"),
            Self::Pack(error) => error.fmt(f),
            Self::NotAMap => f.write_str("these are not the bytes of a map"),
            Self::UnknownVersion(version) => write!(f, "version {version} of the map's written form is not known"),
            Self::BadNumber { what, value } => write!(f, "{value} is no {what}"),
            Self::OutOfOrder(what) => write!(f, "the {what} are not in ascending order"),
            Self::BadPin(pg) => write!(f, "the list pinned for placement group {} breaks the conflict rule", pg.0),
            Self::TrailingBytes => f.write_str("something follows the map"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Pack(error) => Some(error),
            _ => None,
        }
    }
}
