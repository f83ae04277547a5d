//! The replicated state: every fact of the catalog at one version, and how a change makes the next.
//!
//! A pure state machine. [`State::apply`] depends on nothing but the state and the command, so every server that applies
//! the same commands in the same order has the same bytes. A change is checked as a whole before anything is written: a
//! refused one leaves no trace, not even a version.
//!
//! A copy is cheap (`table.rs`), so that readers keep a whole version while the next is made.

use ashlar_wire::id::{ClusterId, DriveId, ServerId, VolumeId};

use crate::change::{Applied, CatalogVersion, Change, Command, Outcome, ProposalId};
use crate::codec::pack::encode;
use crate::codec::{Fields, Sink, Source};
use crate::error::{FormError, Refusal, Subject};
use crate::record::{Feature, NamedRecord, RecordKey};
use crate::server::{Drive, Server};
use crate::set::{PgRow, Set};
use crate::table::{Row, Table};
use crate::volume::{DeletedVolume, VolumeName, VolumeRecord};

mod check;
mod machines;
mod names;
mod pgs;
mod sets;
mod snapshot;
mod text;
mod volumes;

/// Most bytes of a catalog in its written form. Changes that would add to a larger one are refused; those that remove
/// something, and configurations of placement groups, are not.
pub const STATE_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a snapshot: a full catalog, and as much again for configurations, which are never refused.
pub const SNAPSHOT_BYTES_MAX: usize = 2 * STATE_BYTES_MAX;
/// Number of latest versions of which the proposals are remembered, so that one that is sent again is not applied again.
pub const PROPOSALS_REMEMBERED: u64 = 16_384;

/// All facts of a catalog at one version. See the head of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    cluster: ClusterId,
    version: CatalogVersion,
    /// Ascending, distinct.
    voters: Vec<ServerId>,
    servers: Table<Server>,
    drives: Table<Drive>,
    sets: Table<Set>,
    /// Placement groups whose configuration has changed since their set was made.
    pgs: Table<PgRow>,
    volumes: Table<VolumeRecord>,
    deleted: Table<DeletedVolume>,
    records: Table<NamedRecord>,
    features: Table<Feature>,
    /// Of the latest [`PROPOSALS_REMEMBERED`] versions.
    proposals: Table<ProposalRow>,
    /// The volumes by name: made from `volumes`.
    volume_names: Table<VolumeName>,
    /// The proposals by id: made from `proposals`.
    proposal_ids: Table<ProposalIdRow>,
}

impl State {
    /// The catalog of a cluster before its first change.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            version: CatalogVersion::default(),
            voters: Vec::new(),
            servers: Table::default(),
            drives: Table::default(),
            sets: Table::default(),
            pgs: Table::default(),
            volumes: Table::default(),
            deleted: Table::default(),
            records: Table::default(),
            features: Table::default(),
            proposals: Table::default(),
            volume_names: Table::default(),
            proposal_ids: Table::default(),
        }
    }

    /// Applies a command, or what it gave if it has been applied already.
    ///
    /// # Errors
    /// The proposer's fault; the state is then as it was. [`Refusal::is_stale`] says whether reading the state again and
    /// deciding anew may help.
    pub fn apply(&mut self, command: &Command) -> Result<Applied, Refusal> {
        if let Some(applied) = self.applied(command.id) {
            return Ok(applied);
        }
        let age = self.version.0.checked_sub(command.seen.0);
        if age.is_none_or(|age| age >= PROPOSALS_REMEMBERED) {
            return Err(Refusal::Expired);
        }
        self.check_room(&command.change)?;
        let outcome = self.apply_change(&command.change, self.version.next())?;
        self.version = self.version.next();
        let applied = Applied { version: self.version, outcome };
        self.remember(command.id, applied);
        Ok(applied)
    }

    fn apply_change(&mut self, change: &Change, version: CatalogVersion) -> Result<Outcome, Refusal> {
        match change {
            Change::AddServer(server) => self.add_server(server)?,
            Change::UpdateServer { id, address, release } => self.update_server(*id, address, *release)?,
            Change::SetServerState { id, state } => self.set_server_state(*id, *state)?,
            Change::RemoveServer(id) => self.remove_server(*id)?,
            Change::AddDrive(drive) => self.add_drive(drive)?,
            Change::SetDriveState { id, state } => self.set_drive_state(*id, *state)?,
            Change::GiveUpMissing(id) => self.give_up_missing(*id)?,
            Change::SetDriveSize { id, size_bytes } => self.set_drive_size(*id, *size_bytes)?,
            Change::ReleaseDrive(id) => self.release_drive(*id)?,
            Change::RemoveDrive(id) => self.remove_drive(*id)?,
            Change::CreateSet { id, class, copies, map } => self.create_set(*id, *class, *copies, map)?,
            Change::SetTarget { id, map } => self.set_target(*id, map)?,
            Change::ConfigurePgs(steps) => self.configure_pgs(steps)?,
            Change::CreateVolume(volume) => self.create_volume(volume)?,
            Change::ResizeVolume { id, expected_bytes, size_bytes, parts } => {
                self.resize_volume(*id, *expected_bytes, *size_bytes, parts)?;
            }
            Change::RenameVolume { id, name } => self.rename_volume(*id, name)?,
            Change::AttachVolume { id, server, fence } => {
                return self.attach_volume(*id, *server, *fence).map(Outcome::Attached);
            }
            Change::DetachVolume { id, generation } => self.detach_volume(*id, *generation)?,
            Change::DeleteVolume(id) => self.delete_volume(*id, version)?,
            Change::ForgetVolume(id) => self.forget_volume(*id)?,
            Change::PutRecord { key, expected, value } => self.put_record(key, *expected, value, version)?,
            Change::RemoveRecord { key, expected } => self.remove_record(key, *expected)?,
            Change::UseFeature(feature) => self.use_feature(feature)?,
            Change::SetVoters(voters) => self.set_voters(voters)?,
            Change::JumpEpochs(by) => self.jump_epochs(*by)?,
        }
        Ok(Outcome::Done)
    }

    /// Refuses what would make the catalog too large. A change adds at most twice its own length (a set's map).
    fn check_room(&self, change: &Change) -> Result<(), Refusal> {
        let adds = matches!(
            change,
            Change::AddServer(_)
                | Change::UpdateServer { .. }
                | Change::AddDrive(_)
                | Change::CreateSet { .. }
                | Change::SetTarget { .. }
                | Change::CreateVolume(_)
                | Change::ResizeVolume { .. }
                | Change::RenameVolume { .. }
                | Change::PutRecord { .. }
                | Change::UseFeature(_)
        );
        if adds && self.bytes() + 2 * encode(change).len() > STATE_BYTES_MAX {
            return Err(Refusal::TooMany { what: "bytes of the catalog", max: STATE_BYTES_MAX });
        }
        Ok(())
    }

    fn applied(&self, id: ProposalId) -> Option<Applied> {
        let row = self.proposal_ids.get(&id)?;
        self.proposals.get(&row.version).map(|row| row.applied)
    }

    fn remember(&mut self, id: ProposalId, applied: Applied) {
        self.proposals.insert(ProposalRow { id, applied });
        self.proposal_ids.insert(ProposalIdRow { id, version: applied.version });
        while let Some(oldest) = self.proposals.first().cloned() {
            if self.version.0 - oldest.applied.version.0 < PROPOSALS_REMEMBERED {
                break;
            }
            self.proposals.remove(&oldest.applied.version);
            self.proposal_ids.remove(&oldest.id);
        }
    }

    /// Bytes of all records in their written form.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.servers.bytes()
            + self.drives.bytes()
            + self.sets.bytes()
            + self.pgs.bytes()
            + self.volumes.bytes()
            + self.deleted.bytes()
            + self.records.bytes()
            + self.features.bytes()
            + self.proposals.bytes()
    }

    /// The cluster.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The number of changes that made this state.
    #[must_use]
    pub const fn version(&self) -> CatalogVersion {
        self.version
    }

    /// The servers that vote, ascending; while voters change, the old and the new ones.
    #[must_use]
    pub fn voters(&self) -> &[ServerId] {
        &self.voters
    }

    /// Every server, ascending by id.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter()
    }

    /// One server.
    #[must_use]
    pub fn server(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(&id)
    }

    /// Every drive, ascending by id.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        self.drives.iter()
    }

    /// One drive.
    #[must_use]
    pub fn drive(&self, id: DriveId) -> Option<&Drive> {
        self.drives.get(&id)
    }

    /// Every volume, ascending by id.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.iter()
    }

    /// One volume.
    #[must_use]
    pub fn volume(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.volumes.get(&id)
    }

    /// The volume with this name.
    #[must_use]
    pub fn volume_named(&self, name: &str) -> Option<&VolumeRecord> {
        self.volume_names.get(&name.to_owned()).and_then(|row| self.volumes.get(&row.id))
    }

    /// Every deleted volume of which drives may still hold something, ascending by id.
    pub fn deleted_volumes(&self) -> impl Iterator<Item = &DeletedVolume> {
        self.deleted.iter()
    }

    /// Whether this is the id of a deleted volume of which drives may still hold something.
    #[must_use]
    pub fn is_deleted(&self, id: VolumeId) -> bool {
        self.deleted.get(&id).is_some()
    }

    /// One named record.
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<&NamedRecord> {
        self.records.get(key)
    }

    /// Every record of a space, ascending by name.
    pub fn records_of<'a>(&'a self, space: &'a str) -> impl Iterator<Item = &'a NamedRecord> {
        // The empty name stands before all others.
        let first = RecordKey { space: space.to_owned(), name: String::new() };
        self.records.iter_from(first).take_while(move |record| record.key.space == space)
    }

    /// Every feature in use, ascending by name.
    pub fn features(&self) -> impl Iterator<Item = &Feature> {
        self.features.iter()
    }

    /// Whether a feature is in use.
    #[must_use]
    pub fn uses(&self, feature: &str) -> bool {
        self.features.get(&feature.to_owned()).is_some()
    }
}

/// Refuses one more row than a table may have.
fn check_rows<R: Row>(table: &Table<R>) -> Result<(), Refusal> {
    if table.len() < R::ROWS_MAX { Ok(()) } else { Err(Refusal::TooMany { what: R::KIND, max: R::ROWS_MAX }) }
}

/// Refuses a text that is empty or too long.
fn check_text(what: &'static str, text: &str, max: usize) -> Result<(), Refusal> {
    if text.is_empty() || text.len() > max { Err(Refusal::BadValue(what)) } else { Ok(()) }
}

fn known<T>(found: Option<T>, subject: Subject) -> Result<T, Refusal> {
    found.ok_or(Refusal::Unknown(subject))
}

/// A proposal that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProposalRow {
    id: ProposalId,
    applied: Applied,
}

impl Row for ProposalRow {
    type Key = CatalogVersion;
    const KIND: &'static str = "proposal";
    const ROWS_MAX: usize = PROPOSALS_REMEMBERED as usize;

    fn key(&self) -> CatalogVersion {
        self.applied.version
    }
}

impl Fields for ProposalRow {
    fn write(&self, out: &mut impl Sink) {
        out.id("proposal", &self.id.0);
        self.applied.write(out);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { id: ProposalId(from.id("proposal")?), applied: Applied::read(from)? })
    }
}

/// Where a proposal is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProposalIdRow {
    id: ProposalId,
    version: CatalogVersion,
}

impl Row for ProposalIdRow {
    type Key = ProposalId;
    const KIND: &'static str = "proposal id";
    const ROWS_MAX: usize = PROPOSALS_REMEMBERED as usize;

    fn key(&self) -> ProposalId {
        self.id
    }
}

impl Fields for ProposalIdRow {
    fn write(&self, out: &mut impl Sink) {
        out.id("proposal", &self.id.0);
        out.uint("version", self.version.0);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        Ok(Self { id: ProposalId(from.id("proposal")?), version: CatalogVersion(from.uint("version")?) })
    }
}

#[cfg(test)]
mod tests;
