//! Messages between the members of a placement group.
//!
//! Every message names its placement group and epoch, and the lives of its sender and its receiver. The transport authenticates servers; it may lose messages, double
//! them, delay them and change their order. Written form: [`form`].

use alloc::vec::Vec;

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::checksum::Checksum;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::version::Version;

use crate::config::Configuration;
use crate::life::Life;
use crate::request::{Difference, Page, Room};
use crate::stream::{Entry, Progress};

pub mod form;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its placement group.
    pub group: GroupId,
    /// Epoch of the sender.
    pub epoch: Epoch,
    /// Life of the sender.
    pub from: Life,
    /// Life of the receiver; none where the sender does not know it yet.
    pub to: Option<Life>,
    /// What it says.
    pub body: Body,
}

/// What a member tells of its copy when it enters an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Every write up to this version is at all acting members, as far as this member knows.
    pub clean: Version,
    /// The greatest version of any extent.
    pub newest: Version,
    /// The copy may lack what the acting members acknowledged: its drive has lost data, or it has not been filled to the
    /// end.
    pub is_partial: bool,
    /// Whether its drive has room.
    pub room: Room,
}

impl Standing {
    /// Whether the copy may lack something and shows nothing that was ever written.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.is_partial && self.clean == Version::ZERO && self.newest == Version::ZERO
    }
}

/// Why a member cannot take part any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is silent.
    Silent,
    /// It answers, and does not do its writes.
    Lags,
    /// Its drive failed.
    DriveFailed,
    /// Its drive is full.
    DriveFull,
    /// An extent that is needed from it is damaged.
    Damaged,
    /// Its drive is empty, or is an earlier state of itself.
    Blank,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Primary to member: this is the configuration, and I am its primary. Take part.
    Adopt(Configuration),
    /// Member to primary: I take part, nothing of an earlier epoch is under way here, and this is my copy.
    Adopted(Standing),
    /// To the sender of a message of an earlier epoch: this is the configuration by now.
    Newer(Configuration),
    /// Primary to member: grant me a lease. Every write up to `clean` is at all acting members.
    Lease {
        /// Number of the question.
        nonce: u64,
        /// Watermark of committed writes.
        clean: Version,
    },
    /// Member to primary: granted.
    Leased {
        /// Number of the question.
        nonce: u64,
        /// How far the stream has come.
        progress: Progress,
        /// Whether its drive has room.
        room: Room,
    },
    /// Primary to member: the next change of the stream.
    Apply {
        /// Its number in the stream, from 1.
        index: u64,
        /// Watermark of committed writes.
        clean: Version,
        /// The change.
        entry: Entry,
    },
    /// Member to primary: the stream has come so far.
    Applied(Progress),
    /// Primary to member: list your extents of greater versions than `above`, behind `after`.
    List {
        /// Only greater versions.
        above: Version,
        /// Only greater ids.
        after: Option<ExtentId>,
    },
    /// Member to primary: a part of the list.
    Listed {
        /// As asked.
        after: Option<ExtentId>,
        /// The part.
        page: Page,
    },
    /// Primary to member: what are the checksums of this extent's blocks?
    Inquire {
        /// Which extent.
        extent: ExtentId,
    },
    /// Member to primary: these.
    Checksums {
        /// Which extent.
        extent: ExtentId,
        /// One per block.
        sums: Vec<Checksum>,
    },
    /// Primary to member: give me what differs from these checksums in this extent.
    Fetch {
        /// Which extent.
        extent: ExtentId,
        /// One per block.
        sums: Vec<Checksum>,
    },
    /// Member to primary: this.
    Fetched {
        /// Which extent.
        extent: ExtentId,
        /// What differs.
        difference: Difference,
    },
    /// Member to primary: I cannot take part any more.
    Failed(Fault),
    /// Member to primary: my copy of this extent is damaged. Repeated until it is replaced.
    Damaged {
        /// Which extent.
        extent: ExtentId,
    },
}

impl Body {
    /// Whether it may be the first thing that a life is told, by a sender that does not know it yet.
    pub(crate) const fn is_opening(&self) -> bool {
        matches!(self, Self::Adopt(_) | Self::Newer(_) | Self::Failed(_))
    }

    /// Whether primaries send it; the others are sent to primaries, except `Newer`.
    pub(crate) const fn is_from_primary(&self) -> bool {
        matches!(
            self,
            Self::Adopt(_)
                | Self::Lease { .. }
                | Self::Apply { .. }
                | Self::List { .. }
                | Self::Inquire { .. }
                | Self::Fetch { .. }
        )
    }
}
