//! Why a request or a message is not taken: whose fault, and whether a retry is safe.

use alloc::boxed::Box;
use core::fmt;

use ashlar_wire::epoch::Epoch;

use crate::config::Configuration;
use crate::request::{Generation, RequestId};

/// Why a client's request was refused. Except for [`Unknown`](Self::Unknown), a refused write was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    // The caller's fault: no retry helps.
    /// Not whole blocks within an extent.
    BadRange,
    /// The extent is one of another placement group. Said by the member's host, which knows.
    OtherGroup,
    /// A greater attach generation is known: this client has lost the volume.
    Fenced(Generation),
    /// The session has given this request up: `floor` was announced since.
    GivenUp(RequestId),
    /// The request is further ahead of its session's floor than a session may be.
    TooFarAhead,

    // The caller has an old view: retry by the newer configuration.
    /// This is the configuration now.
    Moved(Box<Configuration>),

    // The peers': retry here, later.
    /// This member does not know the epoch yet by which the client came.
    Behind(Epoch),
    /// The members are being made equal, or a lease is missing.
    NotServing,
    /// Fewer members act than writes need.
    TooFewCopies,
    /// A limit is reached: requests in flight, sessions, volumes.
    Busy,
    /// A member's drive has no room for an extent that has no space yet. Reads, discards, and writes to extents that have
    /// theirs are served.
    NoSpace,

    // The outcome is not known: a write was or will be done once, or never. Retry with the same number.
    /// Another configuration came before the request was done.
    Unknown(Box<Configuration>),

    // The drives': no retry helps.
    /// No copy of a block is whole. It can be read again once it was written.
    Damaged,

    // The drive's: another member takes over; retry later.
    /// The primary's drive does not work.
    DriveFailed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRange => f.write_str("a request covers whole blocks within one extent"),
            Self::OtherGroup => f.write_str("the extent is of another placement group"),
            Self::Fenced(generation) => write!(f, "the volume is attached as generation {} by now", generation.0),
            Self::GivenUp(floor) => write!(f, "the session gave up its requests below {}", floor.0),
            Self::TooFarAhead => f.write_str("the session has too many requests outstanding"),
            Self::Moved(configuration) => write!(f, "the placement group is at epoch {} by now", configuration.epoch),
            Self::Behind(epoch) => write!(f, "this member has reached epoch {epoch} only: retry"),
            Self::NotServing => f.write_str("the placement group does not serve yet: retry"),
            Self::TooFewCopies => f.write_str("too few members act for writes: retry"),
            Self::Busy => f.write_str("too many requests: retry later"),
            Self::Damaged => f.write_str("no copy of a block is whole: write it anew"),
            Self::NoSpace => f.write_str("a drive is full: discard something, or add drives"),
            Self::Unknown(configuration) => {
                write!(f, "epoch {} began before the request was done: retry", configuration.epoch)
            }
            Self::DriveFailed => f.write_str("the drive of the primary does not work: retry"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Why a message of a peer, or a configuration, was not taken. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    // The sender's fault.
    /// Of another placement group.
    OtherGroup,
    /// Values that no configuration has.
    BadConfiguration,
    /// Not for a member of this role, or not from one of that role.
    NotForRole,
    /// Of an earlier epoch: refused with the newer one.
    EarlierEpoch(Epoch),
    /// Of a later epoch, of which this member has not heard.
    LaterEpoch(Epoch),
    /// From or for another life than the one that takes part in this epoch.
    OtherLife,
    /// A number or a range that cannot be in its place.
    BadValue(&'static str),
    // Ours.
    /// The store completed a request that was never made, or with the reply to another.
    UnknownCompletion,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherGroup => f.write_str("it is of another placement group"),
            Self::BadConfiguration => f.write_str("it has a configuration that cannot be"),
            Self::NotForRole => f.write_str("its sender or receiver has another role"),
            Self::EarlierEpoch(epoch) => write!(f, "it is of the earlier epoch {epoch}"),
            Self::LaterEpoch(epoch) => write!(f, "it is of the later epoch {epoch}"),
            Self::OtherLife => f.write_str("it is from or for another life of a member"),
            Self::BadValue(what) => write!(f, "it has a bad {what}"),
            Self::UnknownCompletion => f.write_str("the store completed something that was not asked for"),
        }
    }
}

impl core::error::Error for Error {}
