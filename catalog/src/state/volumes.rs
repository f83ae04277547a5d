//! Changes of volumes, and the fence that lets one server at a time write.

use ashlar_placement::part::Part;
use ashlar_wire::id::{ServerId, VolumeId};

use super::{State, check_rows, check_text, known};
use crate::change::CatalogVersion;
use crate::error::{Refusal, Subject};
use crate::server::ServerState;
use crate::volume::{
    DeletedVolume, Generation, VOLUME_NAME_BYTES_MAX, VolumeName, VolumeRecord, is_same_as_far, joined,
};

impl State {
    pub(super) fn create_volume(&mut self, volume: &VolumeRecord) -> Result<(), Refusal> {
        if self.volumes.get(&volume.id).is_some() || self.deleted.get(&volume.id).is_some() {
            return Err(Refusal::Exists(Subject::Volume(volume.id)));
        }
        check_rows(&self.volumes)?;
        // Each volume will leave a record when it is deleted.
        if self.volumes.len() + self.deleted.len() >= crate::volume::DELETED_MAX {
            return Err(Refusal::TooMany { what: "volumes and deleted volumes", max: crate::volume::DELETED_MAX });
        }
        if volume.generation != Generation(0) || volume.attached.is_some() {
            return Err(Refusal::BadValue("attachment of a new volume"));
        }
        self.check_volume(volume)?;
        self.check_name(&volume.name)?;
        self.volume_names.insert(VolumeName { name: volume.name.clone(), id: volume.id });
        self.volumes.insert(VolumeRecord { parts: joined(&volume.parts), ..volume.clone() });
        Ok(())
    }

    pub(super) fn resize_volume(
        &mut self,
        id: VolumeId,
        expected_bytes: u64,
        size_bytes: u64,
        parts: &[Part],
    ) -> Result<(), Refusal> {
        let old = known(self.volumes.get(&id), Subject::Volume(id))?;
        if old.size_bytes != expected_bytes {
            return Err(Refusal::StaleGeneration { current: old.generation });
        }
        if !is_same_as_far(&old.parts, parts) {
            return Err(Refusal::BadValue("parts of a volume"));
        }
        let volume = VolumeRecord { size_bytes, parts: joined(parts), ..old.clone() };
        self.check_volume(&volume)?;
        self.volumes.insert(volume);
        Ok(())
    }

    pub(super) fn rename_volume(&mut self, id: VolumeId, name: &str) -> Result<(), Refusal> {
        let mut volume = known(self.volumes.get(&id), Subject::Volume(id))?.clone();
        self.check_name(name)?;
        self.volume_names.remove(&volume.name);
        self.volume_names.insert(VolumeName { name: name.to_owned(), id });
        volume.name = name.to_owned();
        self.volumes.insert(volume);
        Ok(())
    }

    pub(super) fn attach_volume(
        &mut self,
        id: VolumeId,
        server: ServerId,
        fence: Option<Generation>,
    ) -> Result<Generation, Refusal> {
        let mut volume = known(self.volumes.get(&id), Subject::Volume(id))?.clone();
        let host = known(self.servers.get(&server), Subject::Server(server))?;
        if host.state == ServerState::Dead {
            return Err(Refusal::BadState(Subject::Server(server)));
        }
        if fence.is_some_and(|fenced| fenced != volume.generation) {
            return Err(Refusal::StaleGeneration { current: volume.generation });
        }
        let other = volume.attached.filter(|other| *other != server && fence.is_none());
        if let Some(other) = other {
            return Err(Refusal::Attached(other));
        }
        // Also for the same server: a process that started again must not meet its own late writes.
        let generation = volume.generation.0.checked_add(1).map(Generation);
        volume.generation = generation.ok_or(Refusal::BadValue("generation"))?;
        volume.attached = Some(server);
        let generation = volume.generation;
        self.volumes.insert(volume);
        Ok(generation)
    }

    pub(super) fn detach_volume(&mut self, id: VolumeId, generation: Generation) -> Result<(), Refusal> {
        let mut volume = known(self.volumes.get(&id), Subject::Volume(id))?.clone();
        if volume.generation != generation || volume.attached.is_none() {
            return Err(Refusal::StaleGeneration { current: volume.generation });
        }
        volume.attached = None;
        self.volumes.insert(volume);
        Ok(())
    }

    pub(super) fn delete_volume(&mut self, id: VolumeId, version: CatalogVersion) -> Result<(), Refusal> {
        let volume = known(self.volumes.get(&id), Subject::Volume(id))?;
        if volume.attached.is_some() {
            return Err(Refusal::InUse(Subject::Volume(id)));
        }
        let name = volume.name.clone();
        self.volumes.remove(&id);
        self.volume_names.remove(&name);
        self.deleted.insert(DeletedVolume { id, deleted: version });
        Ok(())
    }

    pub(super) fn forget_volume(&mut self, id: VolumeId) -> Result<(), Refusal> {
        known(self.deleted.remove(&id), Subject::Volume(id)).map(drop)
    }

    /// Refuses a volume whose size, name or parts cannot be.
    pub(super) fn check_volume(&self, volume: &VolumeRecord) -> Result<(), Refusal> {
        check_text("name of a volume", &volume.name, VOLUME_NAME_BYTES_MAX)?;
        volume.placed()?;
        let unknown = volume.parts.iter().find(|part| self.sets.get(&part.set).is_none());
        unknown.map_or(Ok(()), |part| Err(Refusal::Unknown(Subject::Set(part.set))))
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        check_text("name of a volume", name, VOLUME_NAME_BYTES_MAX)?;
        let taken = self.volume_names.get(&name.to_owned()).is_some();
        if taken { Err(Refusal::Exists(Subject::Name)) } else { Ok(()) }
    }
}
