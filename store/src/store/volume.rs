//! Deleted volumes, and records.
//!
//! A deleted volume leaves a small record, so that a server that returns cannot bring its extents back. Its extents are
//! dropped a few at a time after the answer, and after an interruption once more.

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::VolumeId;
use ashlar_wire::time::Instant;
use ashlar_wire::version::Version;
use core::ops::Bound;

use super::Store;
use super::operation::{Flow, Operation, Owner};
use crate::error::Error;
use crate::gate::OpId;
use crate::journal::entry::Entry;
use crate::record::Key;
use crate::request::{Reply, Request, RequestKind};

impl Store {
    /// Changes of records and of the table of deleted volumes. The operation has its gate alone.
    pub(super) fn change_table(&mut self, id: OpId, operation: &mut Operation) -> Flow {
        let entry = match &operation.kind {
            RequestKind::DeleteVolume { volume } => self.plan_tombstone(*volume),
            RequestKind::ForgetVolume { volume } => self.plan_forgetting(*volume),
            RequestKind::PutRecord { key, value } => {
                let held = self.index.records.get(key).copied();
                match held.or_else(|| self.index.free_records.pop_first()) {
                    Some(cell) => Ok(Some(Entry::PutRecord { cell, key: key.clone(), value: value.clone() })),
                    None => Err(Error::TooManyRecords),
                }
            }
            RequestKind::DeleteRecord { key } => {
                Ok(self.index.records.get(key).map(|cell| Entry::DropRecord { cell: *cell }))
            }
            _ => unreachable!("only changes of these tables come here"),
        };
        match entry {
            Ok(Some(entry)) => {
                self.enqueue(id, operation, entry, None);
                Flow::Wait
            }
            Ok(None) => Flow::Done(Ok(Reply::Done)),
            Err(error) => error.into(),
        }
    }

    fn plan_tombstone(&mut self, volume: VolumeId) -> Result<Option<Entry>, Error> {
        if self.index.tombstones.contains_key(&volume) {
            return Ok(None);
        }
        let cell = self.index.free_tombstones.pop_first().ok_or(Error::TooManyTombstones)?;
        Ok(Some(Entry::PutTombstone { cell, volume }))
    }

    fn plan_forgetting(&self, volume: VolumeId) -> Result<Option<Entry>, Error> {
        if self.index.of_volume(volume).next().is_some() || self.gates.is_volume_used(volume) {
            return Err(Error::Busy);
        }
        Ok(self.index.tombstones.get(&volume).map(|cell| Entry::DropTombstone { cell: *cell }))
    }

    /// Follows a durable change of these tables in the index.
    pub(super) fn index_table_change(&mut self, entry: &Entry) {
        match entry {
            Entry::PutRecord { cell, key, .. } => drop(self.index.records.insert(key.clone(), *cell)),
            Entry::DropRecord { cell } => {
                self.index.records.retain(|_, held| held != cell);
                self.index.free_records.insert(*cell);
            }
            Entry::PutTombstone { cell, volume } => {
                self.index.tombstones.insert(*volume, *cell);
                self.index.doomed.insert(*volume);
            }
            Entry::DropTombstone { cell } => {
                self.index.tombstones.retain(|_, held| held != cell);
                self.index.free_tombstones.insert(*cell);
            }
            Entry::Put(_) | Entry::Clear { .. } | Entry::DropExtent { .. } => {}
        }
    }

    /// Begins to drop extents of deleted volumes, a few at a time.
    pub(super) fn drop_doomed(&mut self) {
        while self.drops < self.config.drops_max {
            let Some(volume) = self.index.doomed.first().copied() else { return };
            let mut extents = self.index.of_volume(volume);
            // One whose page is damaged stays; it is refused and hidden like the others.
            let next = extents.find(|id| {
                let page = self.index.by_extent[id].page();
                !self.gates.is_used(*id) && !self.damaged.contains(&page)
            });
            match next {
                Some(extent) => {
                    drop(extents);
                    self.drops += 1;
                    let kind = RequestKind::ForgetExtent { extent, version: Version::ZERO };
                    self.start(Owner::Drop, Request { deadline: Instant::NEVER, kind });
                    let id = self.ready.pop_back().expect("it was just started");
                    self.step(id);
                }
                None => {
                    let is_done = !self.gates.is_volume_used(volume);
                    drop(extents);
                    if !is_done {
                        return;
                    }
                    self.index.doomed.remove(&volume);
                }
            }
        }
    }

    pub(super) fn list(&self, group: GroupId, after: Option<ExtentId>) -> Reply {
        let first = match after {
            Some(id) => Bound::Excluded((group, id)),
            None => Bound::Included((group, ExtentId::default())),
        };
        let behind = self.index.by_group.range((first, Bound::Unbounded));
        let of_group = behind.take_while(|(held, _)| *held == group).map(|(_, id)| *id);
        let mut shown = of_group.filter(|id| !self.index.tombstones.contains_key(&id.volume));
        let version = |id: ExtentId| {
            let cell = self.index.by_extent[&id];
            self.tables.infos[cell.0 as usize].expect("a cell in the index is used").version
        };
        let extents = shown.by_ref().take(self.config.list_max).map(|id| (id, version(id))).collect();
        Reply::Extents { extents, more: shown.next().is_some() }
    }

    pub(super) fn scan(&self, after: Option<&Key>) -> Reply {
        let first = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let mut behind = self.index.records.range((first, Bound::Unbounded));
        let value = |cell: u32| {
            let (_, value) = self.tables.records[cell as usize].as_ref().expect("a cell in the index is used");
            value.clone()
        };
        let taken = behind.by_ref().take(self.config.list_max);
        let records = taken.map(|(key, cell)| (key.clone(), value(*cell))).collect();
        Reply::Records { records, more: behind.next().is_some() }
    }
}
