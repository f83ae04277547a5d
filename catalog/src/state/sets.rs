//! Changes of sets: their drives and their maps.

use std::sync::Arc;

use ashlar_placement::map::{self, Map, PgId, SetId};
use ashlar_wire::epoch::Epoch;

use super::{State, check_rows, known};
use crate::error::{Refusal, Subject};
use crate::server::DriveClass;
use crate::set::{Copies, MAP_BYTES_MAX, PGS_MAX, Set};

impl State {
    /// Every set, ascending by id.
    pub fn sets(&self) -> impl Iterator<Item = &Set> {
        self.sets.iter()
    }

    /// One set.
    #[must_use]
    pub fn set(&self, id: SetId) -> Option<&Set> {
        self.sets.get(&id)
    }

    pub(super) fn create_set(
        &mut self,
        id: SetId,
        class: DriveClass,
        copies: Copies,
        map: &Arc<Map>,
    ) -> Result<(), Refusal> {
        if self.sets.get(&id).is_some() {
            return Err(Refusal::Exists(Subject::Set(id)));
        }
        check_rows(&self.sets)?;
        check_copies(copies, map)?;
        if id.is_companion() {
            known(self.sets.get(&id.home()), Subject::Set(id.home()))?;
        }
        let pgs: u64 = self.sets.iter().map(|set| u64::from(set.first.shape().pgs)).sum();
        if pgs + u64::from(map.shape().pgs) > PGS_MAX as u64 {
            return Err(Refusal::TooMany { what: "placement groups", max: PGS_MAX });
        }
        self.check_map(id, class, map)?;
        let (first, target) = (map.clone(), map.clone());
        self.sets.insert(Set { id, class, copies, first_epoch: Epoch::ZERO.next(), first, target });
        self.take_drives(id, map);
        Ok(())
    }

    pub(super) fn set_target(&mut self, id: SetId, map: &Arc<Map>) -> Result<(), Refusal> {
        let mut set = known(self.sets.get(&id), Subject::Set(id))?.clone();
        if map.epoch() <= set.target.epoch() {
            return Err(Refusal::StaleMap { current: set.target.epoch() });
        }
        if !set.may_become(map.shape()) {
            return Err(Refusal::BadValue("shape of a set"));
        }
        self.check_map(id, set.class, map)?;
        let missing = self.drives.iter().find(|drive| drive.set == Some(id) && map.find(drive.id).is_none());
        if let Some(drive) = missing {
            return Err(Refusal::InUse(Subject::Drive(drive.id)));
        }
        set.target = map.clone();
        self.sets.insert(set);
        self.take_drives(id, map);
        Ok(())
    }

    /// Refuses a map that is of another set, or whose drives are not as the catalog knows them.
    fn check_map(&self, id: SetId, class: DriveClass, map: &Map) -> Result<(), Refusal> {
        if map.set() != id {
            return Err(Refusal::BadValue("set of a map"));
        }
        if map.encode().len() > MAP_BYTES_MAX {
            return Err(Refusal::TooMany { what: "bytes of a map", max: MAP_BYTES_MAX });
        }
        for placed in map.drives() {
            let drive = known(self.drives.get(&placed.id), Subject::Drive(placed.id))?;
            if drive.set.is_some_and(|set| set != id.home()) {
                return Err(Refusal::InUse(Subject::Drive(drive.id)));
            }
            let lacks_home = drive.set.is_none() && placed.state != map::DriveState::Out;
            if id.is_companion() && lacks_home {
                return Err(Refusal::BadState(Subject::Drive(drive.id)));
            }
            let server = known(self.servers.get(&drive.server), Subject::Server(drive.server))?;
            let stands = (placed.server, placed.rack, placed.zone) == (server.id, server.rack, server.zone);
            if !stands || drive.class != class {
                return Err(Refusal::BadState(Subject::Drive(drive.id)));
            }
        }
        Ok(())
    }

    /// Every set that lies on the drives of this one, itself and its companion.
    pub(super) fn sets_at(&self, home: SetId) -> impl Iterator<Item = &Set> {
        self.sets.iter().filter(move |set| set.id.home() == home)
    }

    /// Gives the drives of a checked map to its set. A drive that is out and in no set stays outside.
    fn take_drives(&mut self, id: SetId, map: &Map) {
        if id.is_companion() {
            return;
        }
        for placed in map.drives().iter().filter(|placed| placed.state != map::DriveState::Out) {
            let drive = self.drives.get(&placed.id).expect("a checked map has known drives").clone();
            if drive.set != Some(id) {
                self.drives.insert(crate::server::Drive { set: Some(id), ..drive });
            }
        }
    }
}

pub(super) fn check_copies(copies: Copies, map: &Map) -> Result<(), Refusal> {
    let allowed = 1..=map.shape().width;
    if allowed.contains(&copies.write_min) && allowed.contains(&copies.acting_min) {
        Ok(())
    } else {
        Err(Refusal::BadValue("number of copies"))
    }
}

/// Whether the set has this placement group.
pub(super) fn has_pg(set: &Set, pg: PgId) -> bool {
    pg.0 < set.first.shape().pgs
}
