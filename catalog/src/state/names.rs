//! Changes of named records, features and voters, and the jump of all epochs.

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;

use super::{State, check_rows, check_text, known};
use crate::change::{CatalogVersion, VOTERS_CHANGING_MAX};
use crate::error::{Refusal, Subject};
use crate::record::{
    Expected, FEATURE_NAME_BYTES_MAX, Feature, NamedRecord, RECORD_NAME_BYTES_MAX, RecordKey, SPACE_BYTES_MAX,
    VALUE_BYTES_MAX,
};
use crate::server::ServerState;
use crate::set::{PgRow, Set};
use crate::volume::{Generation, VolumeRecord};

impl State {
    pub(super) fn put_record(
        &mut self,
        key: &RecordKey,
        expected: Expected,
        value: &[u8],
        version: CatalogVersion,
    ) -> Result<(), Refusal> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refusal::TooMany { what: "bytes of a record", max: VALUE_BYTES_MAX });
        }
        let old = self.records.get(key).map(|record| record.revision);
        check_expected(expected, old)?;
        if old.is_none() {
            check_rows(&self.records)?;
        }
        self.records.insert(NamedRecord { key: key.clone(), revision: version, value: value.to_vec() });
        Ok(())
    }

    pub(super) fn remove_record(&mut self, key: &RecordKey, expected: Expected) -> Result<(), Refusal> {
        check_expected(expected, self.records.get(key).map(|record| record.revision))?;
        known(self.records.remove(key), Subject::Name).map(drop)
    }

    pub(super) fn use_feature(&mut self, feature: &Feature) -> Result<(), Refusal> {
        check_text("name of a feature", &feature.name, FEATURE_NAME_BYTES_MAX)?;
        match self.features.get(&feature.name) {
            Some(known) if known == feature => return Ok(()),
            Some(_) => return Err(Refusal::Exists(Subject::Feature)),
            None => check_rows(&self.features)?,
        }
        let counts = |server: &ServerState| *server != ServerState::Dead;
        let old = self.servers.iter().find(|one| counts(&one.state) && one.release < feature.release_min);
        if let Some(server) = old {
            return Err(Refusal::TooOld(server.id));
        }
        self.features.insert(feature.clone());
        Ok(())
    }

    pub(super) fn set_voters(&mut self, voters: &[ServerId]) -> Result<(), Refusal> {
        if voters.len() > VOTERS_CHANGING_MAX || !voters.is_sorted_by(|one, next| one < next) {
            return Err(Refusal::BadValue("list of voters"));
        }
        self.voters = voters.to_vec();
        Ok(())
    }

    /// See [`crate::change::Change::JumpEpochs`].
    pub(super) fn jump_epochs(&mut self, by: u32) -> Result<(), Refusal> {
        let by = u64::from(by);
        // Far from the end, so that nothing below overflows and the state goes on for as long as a cluster does.
        let epochs = self.sets.iter().map(|set| set.first_epoch.0).chain(self.pgs.iter().map(|row| row.config.epoch.0));
        let generations = self.volumes.iter().map(|volume| volume.generation.0);
        let greatest = epochs.chain(generations).chain([self.version.0]).max().unwrap_or(0);
        if greatest > u64::MAX / 2 {
            return Err(Refusal::BadValue("epoch"));
        }
        let raised = |epoch: Epoch| Epoch(epoch.0 + by);
        let sets: Vec<Set> = self.sets.iter().cloned().collect();
        let pgs: Vec<PgRow> = self.pgs.iter().cloned().collect();
        let volumes: Vec<VolumeRecord> = self.volumes.iter().cloned().collect();
        for set in sets {
            self.sets.insert(Set { first_epoch: raised(set.first_epoch), ..set });
        }
        for mut row in pgs {
            row.config.epoch = raised(row.config.epoch);
            self.pgs.insert(row);
        }
        for volume in volumes {
            let generation = Generation(volume.generation.0 + by);
            self.volumes.insert(VolumeRecord { generation, ..volume });
        }
        self.version = CatalogVersion(self.version.0 + by);
        Ok(())
    }
}

pub(super) fn check_key(key: &RecordKey) -> Result<(), Refusal> {
    check_text("space of a record", &key.space, SPACE_BYTES_MAX)?;
    check_text("name of a record", &key.name, RECORD_NAME_BYTES_MAX)
}

fn check_expected(expected: Expected, current: Option<CatalogVersion>) -> Result<(), Refusal> {
    let fits = match expected {
        Expected::Anything => true,
        Expected::Absent => current.is_none(),
        Expected::Revision(revision) => current == Some(revision),
    };
    if fits { Ok(()) } else { Err(Refusal::StaleRevision { current }) }
}
