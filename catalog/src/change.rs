//! Changes of the catalog, and the commands that carry them.
//!
//! A [`Change`] is one fact that servers agree on; it is applied as a whole or refused as a whole. A [`Command`] is a
//! change with the id of its proposal, so that a proposal that is sent again (its leader failed before it answered) is
//! applied once.

use std::sync::Arc;

use ashlar_placement::map::{GroupId, Map, SetId};
use ashlar_placement::part::Part;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};

use crate::record::{Expected, Feature, RecordKey};
use crate::server::{Drive, DriveClass, DriveState, Server, ServerState};
use crate::set::{Copies, PgStep};
use crate::volume::{Generation, VolumeRecord};

mod form;

/// Most bytes of a command in its written form: a map is the largest thing in one.
pub const COMMAND_BYTES_MAX: usize = crate::set::MAP_BYTES_MAX + (64 << 10);
/// Most voters.
pub const VOTERS_MAX: usize = 7;
/// Most servers that vote while one list of voters replaces another.
pub const VOTERS_CHANGING_MAX: usize = 2 * VOTERS_MAX;

/// Number of changes that were applied to a catalog so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CatalogVersion(pub u64);

impl CatalogVersion {
    /// The version after this one.
    ///
    /// # Panics
    /// After 2^64 - 1 changes: a value that large is damage, not age.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a catalog has fewer than 2^64 changes"))
    }
}

/// One intention of a proposer: 16 bytes of chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub [u8; 16]);

/// A change and who wants it, as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The intention. The same id is applied at most once.
    pub id: ProposalId,
    /// The version of the catalog that the proposer saw when it first sent this. It stays the same when it is sent again.
    pub seen: CatalogVersion,
    /// What to change.
    pub change: Change,
}

/// One change of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new server. It must know every feature that is in use.
    AddServer(Server),
    /// A server has another address or runs another release.
    UpdateServer {
        /// The server.
        id: ServerId,
        /// Its address.
        address: String,
        /// Its release, which must know every feature that is in use.
        release: u32,
    },
    /// What a server is for.
    SetServerState {
        /// The server.
        id: ServerId,
        /// What it is for.
        state: ServerState,
    },
    /// Forgets a server that has neither drives nor a vote.
    RemoveServer(ServerId),
    /// A new drive, which is in no set.
    AddDrive(Drive),
    /// What a drive may be given. Refused for one that is given up (`failed`), except to say so again. Only one that should hold its
    /// share goes missing or breaks, and only a missing one is misplaced.
    SetDriveState {
        /// The drive.
        id: DriveId,
        /// What it may be given.
        state: DriveState,
    },
    /// A drive that is missing is given up (`failed`), as its data are elsewhere. Refused for one that is misplaced, while a placement
    /// group has it as an acting member (none of the others serves without it, and it may be the last that has some data), and while
    /// more drives are missing than an object may lose shards.
    GiveUpMissing(DriveId),
    /// A drive has another size.
    SetDriveSize {
        /// The drive.
        id: DriveId,
        /// Its size in bytes.
        size_bytes: u64,
    },
    /// Takes a drive out of its set. Refused while a placement group of the set has it as a member. Searches them all.
    ReleaseDrive(DriveId),
    /// Forgets a drive that is in no set.
    RemoveDrive(DriveId),
    /// A new set. Its placement groups begin by this map, and its drives belong to it from now on.
    CreateSet {
        /// The set; the map says it too.
        id: SetId,
        /// What its drives are made of.
        class: DriveClass,
        /// How many copies it needs.
        copies: Copies,
        /// Its drives and their placement.
        map: Arc<Map>,
    },
    /// A set's data should lie by another map, whose epoch is greater. Nothing moves by this alone.
    SetTarget {
        /// The set; the map says it too.
        id: SetId,
        /// All drives of the set, and perhaps new ones.
        map: Arc<Map>,
    },
    /// Configurations of up to [`PG_STEPS_MAX`](crate::set::PG_STEPS_MAX) placement groups: all or none.
    ConfigurePgs(Vec<PgStep>),
    /// A new volume, not attached and of generation 0.
    CreateVolume(VolumeRecord),
    /// A volume has another size and further or fewer parts at its end.
    ResizeVolume {
        /// The volume.
        id: VolumeId,
        /// Its size in bytes before the change.
        expected_bytes: u64,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its parts. Extents that were there stay in their set.
        parts: Vec<Part>,
    },
    /// Another name for a volume.
    RenameVolume {
        /// The volume.
        id: VolumeId,
        /// Its name.
        name: String,
    },
    /// Attaches a volume to a server, at the next fencing generation.
    AttachVolume {
        /// The volume.
        id: VolumeId,
        /// The server.
        server: ServerId,
        /// The generation that is fenced, if the volume may be taken from another server.
        fence: Option<Generation>,
    },
    /// Ends an attachment.
    DetachVolume {
        /// The volume.
        id: VolumeId,
        /// The generation of the attachment; the change is refused at any other.
        generation: Generation,
    },
    /// Deletes a volume that is not attached. Its id is remembered.
    DeleteVolume(VolumeId),
    /// Forgets a deleted volume: no drive holds anything of it any more.
    ForgetVolume(VolumeId),
    /// Writes a named record.
    PutRecord {
        /// The record.
        key: RecordKey,
        /// What it must be before.
        expected: Expected,
        /// Its value.
        value: Vec<u8>,
    },
    /// Removes a named record.
    RemoveRecord {
        /// The record.
        key: RecordKey,
        /// What it must be before.
        expected: Expected,
    },
    /// Uses a feature for good. Every server that is not given up must know it.
    UseFeature(Feature),
    /// Which servers vote, as Raft has decided. Only the glue to Raft makes this change.
    SetVoters(Vec<ServerId>),
    /// Raises every epoch of a placement group, every generation and the version, after an older copy of the catalog was
    /// taken for the newest: what the lost changes have handed out is fenced.
    JumpEpochs(u32),
}

/// Part of the catalog that a change has touched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// A server, which may be gone.
    Server(ServerId),
    /// A drive, which may be gone.
    Drive(DriveId),
    /// A set: its drives and its maps.
    Set(SetId),
    /// The configuration of a placement group.
    Group(GroupId),
    /// A volume, which may be gone.
    Volume(VolumeId),
    /// A named record, which may be gone.
    Record(RecordKey),
    /// A feature.
    Feature(String),
    /// The list of voters.
    Voters,
    /// Everything.
    All,
}

impl Change {
    /// What this change touches, in the order in which it does.
    #[must_use]
    pub fn touches(&self) -> Vec<Touched> {
        match self {
            Self::AddServer(server) => vec![Touched::Server(server.id)],
            Self::UpdateServer { id, .. } | Self::SetServerState { id, .. } | Self::RemoveServer(id) => {
                vec![Touched::Server(*id)]
            }
            Self::AddDrive(drive) => vec![Touched::Drive(drive.id)],
            Self::SetDriveState { id, .. }
            | Self::GiveUpMissing(id)
            | Self::SetDriveSize { id, .. }
            | Self::ReleaseDrive(id)
            | Self::RemoveDrive(id) => vec![Touched::Drive(*id)],
            Self::CreateSet { id, .. } | Self::SetTarget { id, .. } => vec![Touched::Set(*id)],
            Self::ConfigurePgs(steps) => steps.iter().map(|step| Touched::Group(step.group)).collect(),
            Self::CreateVolume(volume) => vec![Touched::Volume(volume.id)],
            Self::ResizeVolume { id, .. }
            | Self::RenameVolume { id, .. }
            | Self::AttachVolume { id, .. }
            | Self::DetachVolume { id, .. }
            | Self::DeleteVolume(id)
            | Self::ForgetVolume(id) => vec![Touched::Volume(*id)],
            Self::PutRecord { key, .. } | Self::RemoveRecord { key, .. } => vec![Touched::Record(key.clone())],
            Self::UseFeature(feature) => vec![Touched::Feature(feature.name.clone())],
            Self::SetVoters(_) => vec![Touched::Voters],
            Self::JumpEpochs(_) => vec![Touched::All],
        }
    }
}

/// What an applied change has given its proposer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing but that it is done.
    Done,
    /// The generation of an attachment.
    Attached(Generation),
}

/// A change that is applied: part of every later version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The version that it made: for a record its revision.
    pub version: CatalogVersion,
    /// What it has given.
    pub outcome: Outcome,
}

#[cfg(test)]
mod tests;
