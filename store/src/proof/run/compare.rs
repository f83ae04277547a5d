//! Comparison of everything on the drive with the model, after a recovery or at rest.

use super::*;

impl Run {
    /// Compares everything after a recovery, and takes what was found for what is.
    pub(super) fn compare_all(&mut self) -> Result<(), String> {
        let volumes: Vec<(VolumeId, VolumeState)> =
            self.model.volumes.iter().map(|(id, state)| (*id, *state)).collect();
        for (volume, state) in volumes {
            let extent = ExtentId { volume, extent: Extent(0) };
            let probe = self.demand(RequestKind::Checksums { extent })?;
            let is_deleted = matches!(probe, Err(Error::VolumeDeleted));
            match (state, is_deleted) {
                (VolumeState::Live, true) => return Err(format!("volume {volume} was deleted by nobody")),
                (VolumeState::Deleted, false) => return Err(format!("deleted volume {volume} is back")),
                (VolumeState::Forgetting, false) => self.drop_volume(volume),
                (VolumeState::Deleting, false) => drop(self.model.volumes.insert(volume, VolumeState::Live)),
                (_, true) => drop(self.model.volumes.insert(volume, VolumeState::Deleted)),
                (VolumeState::Live, false) => {}
            }
        }
        let extents: Vec<ExtentId> = self.model.extents.keys().copied().collect();
        for id in extents {
            if self.model.volumes[&id.volume] == VolumeState::Live {
                self.compare_extent(id)?;
            }
        }
        self.compare_lists()?;
        self.compare_records()
    }

    pub(super) fn compare_extent(&mut self, id: ExtentId) -> Result<(), String> {
        let reply = self.demand(RequestKind::Salvage { extent: id })?;
        let Ok(Reply::Salvaged { data, version, lost }) = reply else {
            return Err(format!("after recovery, read of {id:?}: {reply:?}"));
        };
        let extent = self.model.extents.get_mut(&id).expect("chosen from it");
        if extent.forgetting && version == Version::ZERO {
            extent.forget();
        }
        let compared = extent.compare(extent.acknowledged, version, BlockRange::WHOLE, &data, &lost);
        compared.map_err(|what| format!("after recovery, {id:?}: {what}"))?;
        self.counts.survived += extent.settle(version);
        Ok(())
    }

    pub(super) fn compare_lists(&mut self) -> Result<(), String> {
        for group in 0..VOLUMES {
            let group = GroupId { set: SetId(7), pg: PgId(u32::from(group)) };
            let mut found = Vec::new();
            let mut after = None;
            loop {
                let Ok(Reply::Extents { extents, more }) = self.demand(RequestKind::List { group, after })? else {
                    return Err("a list is refused".into());
                };
                after = extents.last().map(|(id, _)| *id);
                found.extend(extents);
                if !more {
                    break;
                }
            }
            let of_group = self.model.extents.iter().filter(|(id, extent)| {
                let is_live = self.model.volumes[&id.volume] == VolumeState::Live;
                is_live && group_of(**id) == group && extent.base != Version::ZERO
            });
            let expected: Vec<_> = of_group.map(|(id, extent)| (*id, extent.base)).collect();
            if found != expected {
                return Err(format!("the list of {group:?} is {found:?}, expected {expected:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn compare_records(&mut self) -> Result<(), String> {
        let Ok(Reply::Records { records, .. }) = self.demand(RequestKind::Scan { after: None })? else {
            return Err("a scan is refused".into());
        };
        let mut found: BTreeMap<u8, Value> =
            records.into_iter().map(|(key, value)| (key.as_bytes()[1], value)).collect();
        for (name, record) in &mut self.model.records {
            let value = found.remove(name);
            let is_allowed = |allowed: &Option<u64>| allowed.map(record_value) == value;
            let Some(held) = record.values.iter().copied().find(is_allowed) else {
                return Err(format!("record {name} is none of {:?}", record.values));
            };
            record.values = vec![held];
        }
        self.model.busy_records.clear();
        if found.is_empty() { Ok(()) } else { Err(format!("records that nobody made: {:?}", found.keys())) }
    }

    /// No slot is lost: those that are not free have data.
    pub(super) fn check_space(&mut self) -> Result<(), String> {
        let is_live = |id: &ExtentId| self.model.volumes[&id.volume] == VolumeState::Live;
        let used = self.model.extents.iter().filter(|(id, extent)| is_live(id) && extent.has_data()).count();
        let slots = self.store().superblock().geometry.slots as usize;
        let free =
            usize::try_from(self.store().free_bytes()).expect("a small drive") / block_bytes(EXTENT_BLOCKS) as usize;
        let expected = (slots - used).saturating_sub(crate::index::SLOTS_RESERVED);
        if free == expected { Ok(()) } else { Err(format!("{free} slots are free, expected {expected}")) }
    }
}
