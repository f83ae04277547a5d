//! Written form of commands: a version, then MessagePack values. Described in `docs/formats.md`.

use ashlar_placement::map::SetId;
use ashlar_wire::id::DriveId;

use super::{Applied, CatalogVersion, Change, Command, Outcome, ProposalId, VOTERS_CHANGING_MAX};
use crate::codec::pack::{decode, encode};
use crate::codec::{Fields, Sink, Source, read_list, read_server, read_volume, words, write_list};
use crate::error::FormError;
use crate::record::{Expected, Feature, RecordKey, VALUE_BYTES_MAX};
use crate::server::{ADDRESS_BYTES_MAX, Drive, DriveClass, DriveState, Server, ServerState};
use crate::set::{Copies, read_map, read_steps, write_map, write_steps};
use crate::volume::{Generation, VOLUME_NAME_BYTES_MAX, VolumeRecord, read_parts, write_parts};

/// Version of the form.
const VERSION: u64 = 1;

words! {
    /// Kinds of changes; their order is that of their numbers.
    ChangeKind {
        AddServer = "add_server",
        UpdateServer = "update_server",
        SetServerState = "set_server_state",
        RemoveServer = "remove_server",
        AddDrive = "add_drive",
        SetDriveState = "set_drive_state",
        SetDriveSize = "set_drive_size",
        ReleaseDrive = "release_drive",
        RemoveDrive = "remove_drive",
        CreateSet = "create_set",
        SetTarget = "set_target",
        ConfigurePgs = "configure_pgs",
        CreateVolume = "create_volume",
        ResizeVolume = "resize_volume",
        RenameVolume = "rename_volume",
        AttachVolume = "attach_volume",
        DetachVolume = "detach_volume",
        DeleteVolume = "delete_volume",
        ForgetVolume = "forget_volume",
        PutRecord = "put_record",
        RemoveRecord = "remove_record",
        UseFeature = "use_feature",
        SetVoters = "set_voters",
        JumpEpochs = "jump_epochs",
        GiveUpMissing = "give_up_missing",
    }
}

impl Command {
    /// The written form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what [`Command::encode`] wrote, all of it. Whether it can be applied is for the state to say.
    ///
    /// # Errors
    /// The writer's: cut, of another version, or beyond a limit. No retry helps.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormError> {
        decode(bytes)
    }
}

impl Fields for Command {
    fn write(&self, out: &mut impl Sink) {
        out.uint("form", VERSION);
        out.id("proposal", &self.id.0);
        out.uint("seen", self.seen.0);
        self.change.write(out);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        let version = from.uint("form")?;
        if version != VERSION {
            return Err(FormError::UnknownVersion(version));
        }
        let id = ProposalId(from.id("proposal")?);
        Ok(Self { id, seen: CatalogVersion(from.uint("seen")?), change: Change::read(from)? })
    }
}

impl Change {
    const fn kind(&self) -> ChangeKind {
        match self {
            Self::AddServer(_) => ChangeKind::AddServer,
            Self::UpdateServer { .. } => ChangeKind::UpdateServer,
            Self::SetServerState { .. } => ChangeKind::SetServerState,
            Self::RemoveServer(_) => ChangeKind::RemoveServer,
            Self::AddDrive(_) => ChangeKind::AddDrive,
            Self::SetDriveState { .. } => ChangeKind::SetDriveState,
            Self::SetDriveSize { .. } => ChangeKind::SetDriveSize,
            Self::ReleaseDrive(_) => ChangeKind::ReleaseDrive,
            Self::RemoveDrive(_) => ChangeKind::RemoveDrive,
            Self::CreateSet { .. } => ChangeKind::CreateSet,
            Self::SetTarget { .. } => ChangeKind::SetTarget,
            Self::ConfigurePgs(_) => ChangeKind::ConfigurePgs,
            Self::CreateVolume(_) => ChangeKind::CreateVolume,
            Self::ResizeVolume { .. } => ChangeKind::ResizeVolume,
            Self::RenameVolume { .. } => ChangeKind::RenameVolume,
            Self::AttachVolume { .. } => ChangeKind::AttachVolume,
            Self::DetachVolume { .. } => ChangeKind::DetachVolume,
            Self::DeleteVolume(_) => ChangeKind::DeleteVolume,
            Self::ForgetVolume(_) => ChangeKind::ForgetVolume,
            Self::PutRecord { .. } => ChangeKind::PutRecord,
            Self::RemoveRecord { .. } => ChangeKind::RemoveRecord,
            Self::UseFeature(_) => ChangeKind::UseFeature,
            Self::SetVoters(_) => ChangeKind::SetVoters,
            Self::JumpEpochs(_) => ChangeKind::JumpEpochs,
            Self::GiveUpMissing(_) => ChangeKind::GiveUpMissing,
        }
    }

    /// The fields of changes of servers, drives and sets. Others are those of [`Change::write_data`].
    fn write_machines(&self, out: &mut impl Sink) {
        match self {
            Self::AddServer(server) => server.write(out),
            Self::UpdateServer { id, address, release } => {
                out.id("server", id.as_bytes());
                out.text("address", address);
                out.uint("release", u64::from(*release));
            }
            Self::SetServerState { id, state } => {
                out.id("server", id.as_bytes());
                state.write(out, "state");
            }
            Self::RemoveServer(id) => out.id("server", id.as_bytes()),
            Self::AddDrive(drive) => drive.write(out),
            Self::SetDriveState { id, state } => {
                out.id("drive", id.as_bytes());
                state.write(out, "state");
            }
            Self::SetDriveSize { id, size_bytes } => {
                out.id("drive", id.as_bytes());
                out.uint("bytes", *size_bytes);
            }
            Self::GiveUpMissing(id) | Self::ReleaseDrive(id) | Self::RemoveDrive(id) => out.id("drive", id.as_bytes()),
            Self::CreateSet { id, class, copies, map } => {
                out.uint("set", u64::from(id.0));
                class.write(out, "class");
                out.uint("write_min", u64::from(copies.write_min));
                out.uint("acting_min", u64::from(copies.acting_min));
                write_map(out, "map", map);
            }
            Self::SetTarget { id, map } => {
                out.uint("set", u64::from(id.0));
                write_map(out, "map", map);
            }
            Self::ConfigurePgs(steps) => write_steps(out, steps),
            _ => self.write_data(out),
        }
    }

    fn write_data(&self, out: &mut impl Sink) {
        match self {
            Self::CreateVolume(volume) => volume.write(out),
            Self::ResizeVolume { id, expected_bytes, size_bytes, parts } => {
                out.id("volume", id.as_bytes());
                out.uint("expected", *expected_bytes);
                out.uint("bytes", *size_bytes);
                write_parts(out, parts);
            }
            Self::RenameVolume { id, name } => {
                out.id("volume", id.as_bytes());
                out.text("name", name);
            }
            Self::AttachVolume { id, server, fence } => {
                out.id("volume", id.as_bytes());
                out.id("server", server.as_bytes());
                write_list(out, "fence", fence.as_slice(), |out, generation| out.uint("generation", generation.0));
            }
            Self::DetachVolume { id, generation } => {
                out.id("volume", id.as_bytes());
                out.uint("generation", generation.0);
            }
            Self::DeleteVolume(id) | Self::ForgetVolume(id) => out.id("volume", id.as_bytes()),
            Self::PutRecord { key, expected, value } => {
                key.write(out);
                expected.write(out);
                out.bytes("value", value);
            }
            Self::RemoveRecord { key, expected } => {
                key.write(out);
                expected.write(out);
            }
            Self::UseFeature(feature) => feature.write(out),
            Self::SetVoters(voters) => {
                write_list(out, "voters", voters, |out, server| out.id("server", server.as_bytes()));
            }
            Self::JumpEpochs(by) => out.uint("by", u64::from(*by)),
            _ => unreachable!("changes of machines are written by write_machines"),
        }
    }

    fn read_machines(kind: ChangeKind, from: &mut impl Source) -> Result<Self, FormError> {
        let read_drive = |from: &mut _| Source::id(from, "drive").map(DriveId::from_bytes);
        Ok(match kind {
            ChangeKind::AddServer => Self::AddServer(Server::read(from)?),
            ChangeKind::UpdateServer => Self::UpdateServer {
                id: read_server(from, "server")?,
                address: from.text("address", ADDRESS_BYTES_MAX)?,
                release: from.uint32("release")?,
            },
            ChangeKind::SetServerState => {
                Self::SetServerState { id: read_server(from, "server")?, state: ServerState::read(from, "state")? }
            }
            ChangeKind::RemoveServer => Self::RemoveServer(read_server(from, "server")?),
            ChangeKind::AddDrive => Self::AddDrive(Drive::read(from)?),
            ChangeKind::SetDriveState => {
                Self::SetDriveState { id: read_drive(from)?, state: DriveState::read(from, "state")? }
            }
            ChangeKind::SetDriveSize => Self::SetDriveSize { id: read_drive(from)?, size_bytes: from.uint("bytes")? },
            ChangeKind::GiveUpMissing => Self::GiveUpMissing(read_drive(from)?),
            ChangeKind::ReleaseDrive => Self::ReleaseDrive(read_drive(from)?),
            ChangeKind::RemoveDrive => Self::RemoveDrive(read_drive(from)?),
            ChangeKind::CreateSet => Self::CreateSet {
                id: SetId(from.uint32("set")?),
                class: DriveClass::read(from, "class")?,
                copies: Copies { write_min: from.uint8("write_min")?, acting_min: from.uint8("acting_min")? },
                map: read_map(from, "map")?,
            },
            ChangeKind::SetTarget => Self::SetTarget { id: SetId(from.uint32("set")?), map: read_map(from, "map")? },
            ChangeKind::ConfigurePgs => Self::ConfigurePgs(read_steps(from)?),
            _ => return Self::read_data(kind, from),
        })
    }

    fn read_data(kind: ChangeKind, from: &mut impl Source) -> Result<Self, FormError> {
        Ok(match kind {
            ChangeKind::CreateVolume => Self::CreateVolume(VolumeRecord::read(from)?),
            ChangeKind::ResizeVolume => Self::ResizeVolume {
                id: read_volume(from)?,
                expected_bytes: from.uint("expected")?,
                size_bytes: from.uint("bytes")?,
                parts: read_parts(from)?,
            },
            ChangeKind::RenameVolume => {
                Self::RenameVolume { id: read_volume(from)?, name: from.text("name", VOLUME_NAME_BYTES_MAX)? }
            }
            ChangeKind::AttachVolume => Self::AttachVolume {
                id: read_volume(from)?,
                server: read_server(from, "server")?,
                fence: read_list(from, "fence", 1, |from| from.uint("generation").map(Generation))?.pop(),
            },
            ChangeKind::DetachVolume => {
                Self::DetachVolume { id: read_volume(from)?, generation: Generation(from.uint("generation")?) }
            }
            ChangeKind::DeleteVolume => Self::DeleteVolume(read_volume(from)?),
            ChangeKind::ForgetVolume => Self::ForgetVolume(read_volume(from)?),
            ChangeKind::PutRecord => Self::PutRecord {
                key: RecordKey::read(from)?,
                expected: Expected::read(from)?,
                value: from.bytes("value", VALUE_BYTES_MAX)?,
            },
            ChangeKind::RemoveRecord => {
                Self::RemoveRecord { key: RecordKey::read(from)?, expected: Expected::read(from)? }
            }
            ChangeKind::UseFeature => Self::UseFeature(Feature::read(from)?),
            ChangeKind::SetVoters => {
                Self::SetVoters(read_list(from, "voters", VOTERS_CHANGING_MAX, |from| read_server(from, "server"))?)
            }
            ChangeKind::JumpEpochs => Self::JumpEpochs(from.uint32("by")?),
            _ => unreachable!("changes of machines are read by read_machines"),
        })
    }
}

impl Fields for Change {
    fn write(&self, out: &mut impl Sink) {
        self.kind().write(out, "change");
        self.write_machines(out);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        let kind = ChangeKind::read(from, "change")?;
        Self::read_machines(kind, from)
    }
}

words! {
    /// The kinds of [`Outcome`].
    OutcomeKind {
        Done = "done",
        Attached = "attached",
    }
}

impl Fields for Applied {
    fn write(&self, out: &mut impl Sink) {
        out.uint("version", self.version.0);
        match self.outcome {
            Outcome::Done => OutcomeKind::Done.write(out, "outcome"),
            Outcome::Attached(generation) => {
                OutcomeKind::Attached.write(out, "outcome");
                out.uint("generation", generation.0);
            }
        }
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        let version = CatalogVersion(from.uint("version")?);
        let outcome = match OutcomeKind::read(from, "outcome")? {
            OutcomeKind::Done => Outcome::Done,
            OutcomeKind::Attached => Outcome::Attached(Generation(from.uint("generation")?)),
        };
        Ok(Self { version, outcome })
    }
}
