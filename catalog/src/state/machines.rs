//! Changes of servers and drives.

use ashlar_placement::map;
use ashlar_wire::id::{DriveId, ServerId};

use super::{State, check_rows, check_text, known};
use crate::error::{Refusal, Subject};
use crate::server::{ADDRESS_BYTES_MAX, Drive, DriveState, Server, ServerState, WEIGHT_BYTES, parity_shards};
use crate::set::Set;

impl State {
    pub(super) fn add_server(&mut self, server: &Server) -> Result<(), Refusal> {
        if self.servers.get(&server.id).is_some() {
            return Err(Refusal::Exists(Subject::Server(server.id)));
        }
        check_rows(&self.servers)?;
        check_text("address", &server.address, ADDRESS_BYTES_MAX)?;
        self.check_release(server.id, server.release)?;
        self.servers.insert(server.clone());
        Ok(())
    }

    pub(super) fn update_server(&mut self, id: ServerId, address: &str, release: u32) -> Result<(), Refusal> {
        let mut server = known(self.servers.get(&id), Subject::Server(id))?.clone();
        check_text("address", address, ADDRESS_BYTES_MAX)?;
        self.check_release(id, release)?;
        server.address = address.to_owned();
        server.release = release;
        self.servers.insert(server);
        Ok(())
    }

    pub(super) fn set_server_state(&mut self, id: ServerId, state: ServerState) -> Result<(), Refusal> {
        let mut server = known(self.servers.get(&id), Subject::Server(id))?.clone();
        let comes_back = server.state == ServerState::Dead && state != ServerState::Dead;
        if comes_back && state != ServerState::Joining {
            return Err(Refusal::BadState(Subject::Server(id)));
        }
        if comes_back {
            // While it was given up, features may have come into use that it does not know.
            self.check_release(id, server.release)?;
        }
        server.state = state;
        self.servers.insert(server);
        Ok(())
    }

    pub(super) fn remove_server(&mut self, id: ServerId) -> Result<(), Refusal> {
        known(self.servers.get(&id), Subject::Server(id))?;
        let attached = self.volumes.iter().any(|volume| volume.attached == Some(id));
        if attached || self.voters.contains(&id) || self.drives.iter().any(|drive| drive.server == id) {
            return Err(Refusal::InUse(Subject::Server(id)));
        }
        self.servers.remove(&id);
        Ok(())
    }

    pub(super) fn add_drive(&mut self, drive: &Drive) -> Result<(), Refusal> {
        if self.drives.get(&drive.id).is_some() {
            return Err(Refusal::Exists(Subject::Drive(drive.id)));
        }
        check_rows(&self.drives)?;
        let server = known(self.servers.get(&drive.server), Subject::Server(drive.server))?;
        if server.state == ServerState::Dead {
            return Err(Refusal::BadState(Subject::Server(server.id)));
        }
        check_size(drive.size_bytes)?;
        if drive.set.is_some() {
            return Err(Refusal::BadValue("set of a new drive"));
        }
        self.drives.insert(drive.clone());
        Ok(())
    }

    fn change_drive(&mut self, id: DriveId, change: impl FnOnce(&mut Drive)) -> Result<(), Refusal> {
        let mut drive = known(self.drives.get(&id), Subject::Drive(id))?.clone();
        change(&mut drive);
        self.drives.insert(drive);
        Ok(())
    }

    /// A drive that is given up stays so: what was on it is made anew elsewhere. Where a missing one is, another server may say.
    pub(super) fn set_drive_state(&mut self, id: DriveId, state: DriveState) -> Result<(), Refusal> {
        use DriveState::{Active, Broken, Draining, Failed, Full, Misplaced, Missing};
        let drive = known(self.drives.get(&id), Subject::Drive(id))?;
        let may_be = match state {
            Active | Full | Draining => drive.state != Failed,
            Failed => true,
            Missing => matches!(drive.state, Active | Full | Broken | Missing),
            Misplaced => matches!(drive.state, Missing | Misplaced),
            Broken => matches!(drive.state, Active | Full | Broken),
        };
        if !may_be {
            return Err(Refusal::BadState(Subject::Drive(id)));
        }
        self.change_drive(id, |drive| drive.state = state)
    }

    pub(super) fn give_up_missing(&mut self, id: DriveId) -> Result<(), Refusal> {
        let drive = known(self.drives.get(&id), Subject::Drive(id))?;
        if drive.state == DriveState::Misplaced {
            return Err(Refusal::BadState(Subject::Drive(id)));
        }
        let acts = |set: &Set| self.pgs_of(set.id).any(|(_, config)| config.acting.contains(&id));
        if drive.set.is_some_and(|home| self.sets_at(home).any(acts)) {
            return Err(Refusal::InUse(Subject::Drive(id)));
        }
        let count = |is_one: &dyn Fn(&Drive) -> bool| self.drives.iter().filter(|drive| is_one(drive)).count();
        let missing = count(&|drive| drive.state == DriveState::Missing);
        let max = usize::from(parity_shards(count(&|drive| drive.state != DriveState::Failed))).max(1);
        if missing > max {
            return Err(Refusal::TooMany { what: "missing drives", max });
        }
        self.set_drive_state(id, DriveState::Failed)
    }

    pub(super) fn set_drive_size(&mut self, id: DriveId, size_bytes: u64) -> Result<(), Refusal> {
        check_size(size_bytes)?;
        self.change_drive(id, |drive| drive.size_bytes = size_bytes)
    }

    pub(super) fn release_drive(&mut self, id: DriveId) -> Result<(), Refusal> {
        let drive = known(self.drives.get(&id), Subject::Drive(id))?;
        let Some(home) = drive.set else { return Err(Refusal::BadState(Subject::Drive(id))) };
        let is_due =
            |set: &Set| set.target.find(id).is_some_and(|index| set.target.drive(index).state != map::DriveState::Out);
        let is_member = |set: &Set| self.pgs_of(set.id).any(|(_, config)| config.is_member(id));
        if self.sets_at(home).any(|set| is_due(set) || is_member(set)) {
            return Err(Refusal::InUse(Subject::Drive(id)));
        }
        self.change_drive(id, |drive| drive.set = None)
    }

    pub(super) fn remove_drive(&mut self, id: DriveId) -> Result<(), Refusal> {
        let drive = known(self.drives.get(&id), Subject::Drive(id))?;
        if drive.set.is_some() {
            return Err(Refusal::InUse(Subject::Drive(id)));
        }
        self.drives.remove(&id);
        Ok(())
    }

    /// Refuses a release that does not know a feature in use.
    fn check_release(&self, id: ServerId, release: u32) -> Result<(), Refusal> {
        let knows_all = self.features.iter().all(|feature| feature.release_min <= release);
        if knows_all { Ok(()) } else { Err(Refusal::TooOld(id)) }
    }

    /// A drive as placement sees it, at its weight and state of now. The drives of a server that is being emptied or is
    /// given up are out.
    pub(crate) fn placed_drive(&self, id: DriveId) -> Option<map::Drive> {
        let drive = self.drives.get(&id)?;
        let server = self.servers.get(&drive.server)?;
        let leaves = matches!(server.state, ServerState::Draining | ServerState::Dead);
        Some(map::Drive {
            id,
            server: server.id,
            rack: server.rack,
            zone: server.zone,
            weight: drive.weight(),
            state: if leaves { map::DriveState::Out } else { drive.state.in_map() },
        })
    }
}

const fn check_size(size_bytes: u64) -> Result<(), Refusal> {
    if size_bytes < WEIGHT_BYTES { Err(Refusal::BadValue("size of a drive")) } else { Ok(()) }
}
