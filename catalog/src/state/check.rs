//! What holds of every state: checked of one that was read, and of each that tests make.

use std::collections::BTreeSet;

use ashlar_placement::map::{DriveState, GroupId, PgId};
use ashlar_wire::epoch::Epoch;

use super::names::check_key;
use super::pgs::find_repeated;
use super::sets::{check_copies, has_pg};
use super::{PROPOSALS_REMEMBERED, State, check_text, known};
use crate::change::{CatalogVersion, VOTERS_CHANGING_MAX};
use crate::error::{Refusal, Subject};
use crate::record::FEATURE_NAME_BYTES_MAX;
use crate::server::{ADDRESS_BYTES_MAX, WEIGHT_BYTES};
use crate::set::{PGS_MAX, PgConfig, Set};
use crate::volume::DELETED_MAX;

impl State {
    /// Refuses a state whose records contradict each other. What changes make never does.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        self.check_machines()?;
        self.sets.iter().try_for_each(|set| self.check_set(set))?;
        let pgs: u64 = self.sets.iter().map(|set| u64::from(set.first.shape().pgs)).sum();
        if pgs > PGS_MAX as u64 {
            return Err(Refusal::TooMany { what: "placement groups", max: PGS_MAX });
        }
        for row in self.pgs.iter() {
            let set = known(self.sets.get(&row.group.set), Subject::Set(row.group.set))?;
            self.check_config(row.group, set, &row.config)?;
        }
        self.check_volumes()?;
        self.check_names()
    }

    fn check_machines(&self) -> Result<(), Refusal> {
        if self.voters.len() > VOTERS_CHANGING_MAX || !self.voters.is_sorted_by(|one, next| one < next) {
            return Err(Refusal::BadValue("list of voters"));
        }
        for server in self.servers.iter() {
            check_text("address", &server.address, ADDRESS_BYTES_MAX)?;
        }
        for drive in self.drives.iter() {
            known(self.servers.get(&drive.server), Subject::Server(drive.server))?;
            if drive.size_bytes < WEIGHT_BYTES {
                return Err(Refusal::BadValue("size of a drive"));
            }
            if let Some(set) = drive.set {
                let set = known(self.sets.get(&set), Subject::Set(set))?;
                known(set.target.find(drive.id), Subject::Drive(drive.id))?;
                if set.class != drive.class {
                    return Err(Refusal::BadState(Subject::Drive(drive.id)));
                }
            }
        }
        Ok(())
    }

    fn check_set(&self, set: &Set) -> Result<(), Refusal> {
        let (first, target) = (&set.first, &set.target);
        let fits = first.set() == set.id && target.set() == set.id && set.may_become(target.shape());
        if !fits || first.epoch() > target.epoch() || set.first_epoch == Epoch::ZERO {
            return Err(Refusal::BadValue("maps of a set"));
        }
        check_copies(set.copies, first)?;
        let is_of_set = |id| self.drives.get(&id).is_some_and(|drive| drive.set == Some(set.id.home()));
        let strangers = target.drives().iter().find(|drive| drive.state != DriveState::Out && !is_of_set(drive.id));
        if let Some(drive) = strangers {
            return Err(Refusal::Unknown(Subject::Drive(drive.id)));
        }
        // Placement groups without a record lie by the first map: none may name a drive that the set has no more.
        let released = first.drives().iter().any(|drive| drive.state != DriveState::Out && !is_of_set(drive.id));
        if released {
            self.pgs_of(set.id)
                .try_for_each(|(pg, config)| self.check_config(GroupId { set: set.id, pg }, set, &config))?;
        }
        Ok(())
    }

    fn check_config(&self, group: GroupId, set: &Set, config: &PgConfig) -> Result<(), Refusal> {
        let width_max = set.width_max();
        let fits = (1..=width_max).contains(&config.acting.len()) && config.learners.len() <= width_max;
        let has = has_pg(set, PgId(group.pg.0)) && config.epoch >= set.first_epoch;
        if !has || !fits || !config.acting.contains(&config.primary) {
            return Err(Refusal::BadActing(group));
        }
        let members: Vec<_> = config.acting.iter().chain(&config.learners).copied().collect();
        let previous_acts = config.previous.iter().find(|drive| config.acting.contains(drive)).copied();
        if let Some(drive) = find_repeated(&members).or(find_repeated(&config.previous)).or(previous_acts) {
            return Err(Refusal::Conflict { group, drive });
        }
        for member in members {
            let drive = known(self.drives.get(&member), Subject::Drive(member))?;
            if drive.set != Some(group.set.home()) {
                return Err(Refusal::BadState(Subject::Drive(member)));
            }
        }
        self.check_conflicts(group, set, &config.acting)
    }

    fn check_volumes(&self) -> Result<(), Refusal> {
        let mut names = BTreeSet::new();
        for volume in self.volumes.iter() {
            self.check_volume(volume)?;
            if self.deleted.get(&volume.id).is_some() {
                return Err(Refusal::Exists(Subject::Volume(volume.id)));
            }
            if !names.insert(&volume.name) {
                return Err(Refusal::Exists(Subject::Name));
            }
            if crate::volume::joined(&volume.parts) != volume.parts {
                return Err(Refusal::BadValue("parts of a volume"));
            }
            if let Some(server) = volume.attached {
                known(self.servers.get(&server), Subject::Server(server))?;
            }
        }
        if self.volumes.len() + self.deleted.len() > DELETED_MAX {
            return Err(Refusal::TooMany { what: "volumes and deleted volumes", max: DELETED_MAX });
        }
        let versions = self.deleted.iter().map(|row| row.deleted);
        self.check_past(versions)
    }

    fn check_names(&self) -> Result<(), Refusal> {
        for record in self.records.iter() {
            check_key(&record.key)?;
        }
        self.check_past(self.records.iter().map(|record| record.revision))?;
        for feature in self.features.iter() {
            check_text("name of a feature", &feature.name, FEATURE_NAME_BYTES_MAX)?;
        }
        self.check_past(self.proposals.iter().map(|row| row.applied.version))?;
        let oldest = self.proposals.first().map(|row| row.applied.version.0);
        let fits = oldest.is_none_or(|oldest| self.version.0 - oldest < PROPOSALS_REMEMBERED);
        if !fits || self.proposals.len() != self.proposal_ids.len() {
            return Err(Refusal::BadValue("proposals"));
        }
        Ok(())
    }

    /// Nothing was made by a version that there has not been.
    fn check_past(&self, mut versions: impl Iterator<Item = CatalogVersion>) -> Result<(), Refusal> {
        if versions.all(|version| version <= self.version) { Ok(()) } else { Err(Refusal::BadValue("version")) }
    }
}
