//! Why the catalog refuses a change, and why bytes are no catalog: whose fault.

use core::fmt;

use ashlar_placement::map::{GroupId, SetId};
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};
use ashlar_wire::pack::PackError;

use crate::change::CatalogVersion;
use crate::codec::words;
use crate::volume::Generation;

/// What a change names or lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A server.
    Server(ServerId),
    /// A drive.
    Drive(DriveId),
    /// A set.
    Set(SetId),
    /// A placement group.
    Group(GroupId),
    /// A volume.
    Volume(VolumeId),
    /// A named record or a name.
    Name,
    /// A feature gate.
    Feature,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(id) => write!(f, "server {id}"),
            Self::Drive(id) => write!(f, "drive {id}"),
            Self::Set(set) => write!(f, "set {}", set.0),
            Self::Group(group) => write!(f, "placement group {}.{}", group.set.0, group.pg.0),
            Self::Volume(id) => write!(f, "volume {id}"),
            Self::Name => f.write_str("the name"),
            Self::Feature => f.write_str("the feature"),
        }
    }
}

/// Why the catalog refused a change. A refused change has changed nothing. All are the proposer's fault; the first group
/// goes away when the proposer reads the state again and decides anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    // The state has moved on: read it and decide again.
    /// The placement group has another epoch than the change expects.
    StaleEpoch {
        /// The placement group.
        group: GroupId,
        /// Its epoch now.
        current: Epoch,
    },
    /// The volume has another generation than the change expects.
    StaleGeneration {
        /// Its generation now.
        current: Generation,
    },
    /// The record has another revision than the change expects: that of now, or none if there is no such record.
    StaleRevision {
        /// Its revision now.
        current: Option<CatalogVersion>,
    },
    /// The map or the parts do not follow those of now.
    StaleMap {
        /// Epoch of the set's map now.
        current: Epoch,
    },
    /// The proposal was made at a version so old (or of another history) that the catalog cannot know whether it has
    /// been applied already.
    Expired,
    /// The volume is attached to another server.
    Attached(ServerId),

    // The proposer's: no retry helps until something else has changed.
    /// There is no such thing.
    Unknown(Subject),
    /// There is one already.
    Exists(Subject),
    /// It is still needed: a server with drives or a vote, a drive that holds data, an attached volume.
    InUse(Subject),
    /// It is not in a state that allows this.
    BadState(Subject),
    /// An acting list would be empty, too short, too long, or without its primary.
    BadActing(GroupId),
    /// An acting list would have a member that was neither acting nor a certified learner.
    NotCertified {
        /// The placement group.
        group: GroupId,
        /// The drive.
        drive: DriveId,
    },
    /// Two members of a placement group are one drive or share a conflict domain.
    Conflict {
        /// The placement group.
        group: GroupId,
        /// The second of the two.
        drive: DriveId,
    },
    /// The values make no placement map or volume.
    Placement(ashlar_placement::Error),
    /// A value has no meaning in its place.
    BadValue(&'static str),
    /// A server runs a release that does not know this feature.
    TooOld(ServerId),
    /// A limit of the catalog is passed.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}

impl Refusal {
    /// Whether the same intention may succeed after the state has been read again.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self.kind(), RefusalKind::Stale)
    }
}

words! {
    /// What kind of refusal it is: enough to decide what to do, for whoever is not at the server that refused.
    pub RefusalKind {
        /// The state has moved on: read it and decide again.
        Stale = "stale",
        /// There is no such thing.
        Unknown = "unknown",
        /// There is one already.
        Exists = "exists",
        /// It is still needed.
        InUse = "in_use",
        /// It is not in a state that allows this.
        BadState = "bad_state",
        /// A value that cannot be.
        BadValue = "bad_value",
        /// A limit is passed.
        TooMany = "too_many",
    }
}

impl Refusal {
    /// What kind of refusal it is.
    #[must_use]
    pub const fn kind(&self) -> RefusalKind {
        match self {
            Self::StaleEpoch { .. }
            | Self::StaleGeneration { .. }
            | Self::StaleRevision { .. }
            | Self::StaleMap { .. }
            | Self::Expired
            | Self::Attached(_) => RefusalKind::Stale,
            Self::Unknown(_) => RefusalKind::Unknown,
            Self::Exists(_) => RefusalKind::Exists,
            Self::InUse(_) => RefusalKind::InUse,
            Self::BadState(_) | Self::NotCertified { .. } | Self::TooOld(_) => RefusalKind::BadState,
            Self::BadActing(_) | Self::Conflict { .. } | Self::Placement(_) | Self::BadValue(_) => {
                RefusalKind::BadValue
            }
            Self::TooMany { .. } => RefusalKind::TooMany,
        }
    }
}

/// A refusal as other servers hear of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What kind it is.
    pub kind: RefusalKind,
    /// For people.
    pub reason: String,
}

impl Refused {
    /// Members that a group cannot have.
    pub(crate) fn members(error: &impl ToString) -> Self {
        Self { kind: RefusalKind::BadValue, reason: error.to_string() }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { kind: refusal.kind(), reason: refusal.to_string() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<ashlar_placement::Error> for Refusal {
    fn from(error: ashlar_placement::Error) -> Self {
        Self::Placement(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StaleEpoch { group, current } => write!(f, "{} is at epoch {current}", Subject::Group(*group)),
            Self::StaleGeneration { current } => write!(f, "the volume is at generation {}", current.0),
            Self::StaleRevision { current: Some(current) } => write!(f, "the record is at revision {}", current.0),
            Self::StaleRevision { current: None } => f.write_str("there is no such record"),
            Self::StaleMap { current } => write!(f, "the map does not follow that of epoch {current}"),
            Self::Expired => f.write_str("the proposal is too old to be told from a repeated one"),
            Self::Attached(server) => write!(f, "the volume is attached to server {server}"),
            Self::Unknown(subject) => write!(f, "{subject} is not known"),
            Self::Exists(subject) => write!(f, "{subject} exists already"),
            Self::InUse(subject) => write!(f, "{subject} is in use"),
            Self::BadState(subject) => write!(f, "the state of {subject} does not allow this"),
            Self::BadActing(group) => write!(f, "no acting list for {}", Subject::Group(*group)),
            Self::NotCertified { group, drive } => {
                write!(f, "drive {drive} is no certified learner of {}", Subject::Group(*group))
            }
            Self::Conflict { group, drive } => {
                write!(f, "drive {drive} conflicts with another member of {}", Subject::Group(*group))
            }
            Self::Placement(error) => error.fmt(f),
            Self::BadValue(what) => write!(f, "not a good value: {what}"),
            Self::TooOld(server) => write!(f, "server {server} runs a release that does not know the feature"),
            Self::TooMany { what, max } => write!(f, "at most {max} {what} are allowed"),
        }
    }
}

impl core::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Placement(error) => Some(error),
            _ => None,
        }
    }
}

/// Why bytes or a text are no catalog or no change: the writer's fault. No retry helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormError {
    /// The bytes are not the values that are due.
    Pack(PackError),
    /// The bytes are of something else.
    NotThis,
    /// A version of the written form that this program does not know.
    UnknownVersion(u64),
    /// A number has no meaning in its place.
    BadNumber {
        /// The place.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// More is announced than is allowed.
    TooMany {
        /// What.
        what: &'static str,
        /// How many are announced.
        count: u64,
        /// How many there may be.
        max: usize,
    },
    /// Records do not ascend by their key.
    OutOfOrder(&'static str),
    /// A line of a text is wrong.
    BadText {
        /// Number of the line, from 1.
        line: usize,
        /// What should stand there.
        what: &'static str,
    },
    /// The bytes are damaged, or of another cluster.
    Checksum,
    /// Something follows the end.
    TrailingBytes,
    /// Records contradict each other.
    Inconsistent(Refusal),
    /// The bytes of a placement map are no map.
    Map(ashlar_placement::Error),
}

impl From<PackError> for FormError {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

impl From<Refusal> for FormError {
    fn from(refusal: Refusal) -> Self {
        Self::Inconsistent(refusal)
    }
}

impl fmt::Display for FormError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack(error) => error.fmt(f),
            Self::NotThis => f.write_str("these are not the bytes that are due"),
            Self::UnknownVersion(version) => write!(f, "version {version} of this form is not known"),
            Self::BadNumber { what, value } => write!(f, "{value} is no {what}"),
            Self::TooMany { what, count, max } => write!(f, "{count} {what} where at most {max} are allowed"),
            Self::OutOfOrder(what) => write!(f, "the records of kind {what} are not in ascending order"),
            Self::BadText { line, what } => write!(f, "line {line}: no good {what}"),
            Self::Checksum => f.write_str("the checksum is wrong: damaged, or of another cluster"),
            Self::TrailingBytes => f.write_str("something follows the end"),
            Self::Inconsistent(refusal) => write!(f, "records contradict each other: {refusal}"),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FormError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Pack(error) => Some(error),
            Self::Map(error) => Some(error),
            Self::Inconsistent(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
