//! Index of the tables, and free space: found from the tables at opening, then kept with every change.

use std::collections::{BTreeMap, BTreeSet};

use ashlar_placement::map::GroupId;
use ashlar_placement::rule::{Extent, ExtentId};
use ashlar_wire::id::VolumeId;

use crate::error::OpenError;
use crate::layout::{Geometry, SlotId};
use crate::page::CellId;
use crate::record::Key;
use crate::tables::{ExtentChange, Tables};

/// Slots that only an extent which exists may take: to be replaced or overwritten whole. So a full drive can be repaired.
pub(crate) const SLOTS_RESERVED: usize = 2;

/// Which slots may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// More data.
    Growth,
    /// The new place of an extent that has a slot, which becomes free by it.
    Move,
}

/// Where everything is, and what is free.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) by_extent: BTreeMap<ExtentId, CellId>,
    pub(crate) by_group: BTreeSet<(GroupId, ExtentId)>,
    /// Those of them that have no data.
    pub(crate) empty: BTreeSet<(GroupId, ExtentId)>,
    pub(crate) records: BTreeMap<Key, u32>,
    pub(crate) tombstones: BTreeMap<VolumeId, u32>,
    /// Deleted volumes that may have extents still.
    pub(crate) doomed: BTreeSet<VolumeId>,
    pub(crate) free_cells: BTreeSet<CellId>,
    free_slots: BTreeSet<SlotId>,
    pub(crate) free_records: BTreeSet<u32>,
    pub(crate) free_tombstones: BTreeSet<u32>,
    /// Slots into which write-back writes just now, and how often.
    writing: BTreeMap<SlotId, usize>,
    /// Free slots into which it writes still: a late write would destroy the data of a new owner.
    quarantine: BTreeSet<SlotId>,
}

impl Index {
    /// The index of tables as recovery found them.
    ///
    /// # Errors
    /// [`OpenError::Damaged`]: two cells claim the same name or slot, or a slot does not exist.
    pub(crate) fn build(tables: &Tables, geometry: &Geometry) -> Result<Self, OpenError> {
        const TWICE: OpenError = OpenError::Damaged("tables: something stands in two cells");
        let mut index = Self {
            free_slots: (0..geometry.slots).map(SlotId).collect(),
            free_cells: (0..geometry.cells).map(CellId).collect(),
            free_records: (0..geometry.records_max).collect(),
            free_tombstones: (0..geometry.tombstones_max).collect(),
            ..Self::default()
        };
        for (cell, volume) in (0..).zip(&tables.tombstones) {
            let Some(volume) = volume else { continue };
            index.free_tombstones.remove(&cell);
            if index.tombstones.insert(*volume, cell).is_some() {
                return Err(TWICE);
            }
        }
        for (cell, record) in (0..).zip(&tables.records) {
            let Some((key, _)) = record else { continue };
            index.free_records.remove(&cell);
            if index.records.insert(key.clone(), cell).is_some() {
                return Err(TWICE);
            }
        }
        for (cell, info) in (0..).map(CellId).zip(&tables.infos) {
            let Some(info) = info else { continue };
            index.free_cells.remove(&cell);
            let slot_ok = info.slot.is_none_or(|slot| index.free_slots.remove(&slot));
            if index.by_extent.insert(info.id, cell).is_some() || !slot_ok {
                return Err(TWICE);
            }
            index.by_group.insert((info.group, info.id));
            if info.slot.is_none() {
                index.empty.insert((info.group, info.id));
            }
            if index.tombstones.contains_key(&info.id.volume) {
                index.doomed.insert(info.id.volume);
            }
        }
        Ok(index)
    }

    /// The extents of a volume.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = ExtentId> {
        let (first, last) = (ExtentId { volume, extent: Extent(0) }, ExtentId { volume, extent: Extent(u64::MAX) });
        self.by_extent.range(first..=last).map(|(id, _)| *id)
    }

    /// Takes a free slot.
    pub(crate) fn take_slot(&mut self, purpose: Purpose) -> Option<SlotId> {
        let kept = if purpose == Purpose::Growth { SLOTS_RESERVED } else { 0 };
        if self.free_slots.len() <= kept { None } else { self.free_slots.pop_first() }
    }

    /// A slot that nothing durable names is free, as soon as nothing is being written to it.
    pub(crate) fn release_slot(&mut self, slot: SlotId) {
        let is_new =
            if self.writing.contains_key(&slot) { self.quarantine.insert(slot) } else { self.free_slots.insert(slot) };
        assert!(is_new, "a slot is freed once");
    }

    /// Free slots, those of the reserve too.
    pub(crate) fn free_slot_count(&self) -> usize {
        self.free_slots.len()
    }

    /// Whether write-back writes into a slot just now.
    pub(crate) fn is_writing(&self, slot: SlotId) -> bool {
        self.writing.contains_key(&slot)
    }

    pub(crate) fn begin_writing(&mut self, slot: SlotId) {
        *self.writing.entry(slot).or_default() += 1;
    }

    pub(crate) fn end_writing(&mut self, slot: SlotId) {
        let count = self.writing.get_mut(&slot).expect("what ends has begun");
        *count -= 1;
        if *count == 0 {
            self.writing.remove(&slot);
            if self.quarantine.remove(&slot) {
                self.free_slots.insert(slot);
            }
        }
    }

    /// Follows a durable change of a cell.
    pub(crate) fn update(&mut self, change: ExtentChange) {
        let ExtentChange { cell, before, after } = change;
        if let Some(info) = before {
            self.by_extent.remove(&info.id);
            self.by_group.remove(&(info.group, info.id));
            self.empty.remove(&(info.group, info.id));
        }
        match after {
            Some(info) => {
                self.by_extent.insert(info.id, cell);
                self.by_group.insert((info.group, info.id));
                if info.slot.is_none() {
                    self.empty.insert((info.group, info.id));
                }
                self.free_cells.remove(&cell);
                if self.tombstones.contains_key(&info.id.volume) {
                    self.doomed.insert(info.id.volume);
                }
            }
            None => drop(self.free_cells.insert(cell)),
        }
        let (old, new) = (before.and_then(|info| info.slot), after.and_then(|info| info.slot));
        if let Some(slot) = old.filter(|_| old != new) {
            self.release_slot(slot);
        }
        if let Some(slot) = new {
            assert!(!self.free_slots.contains(&slot), "a slot with data is not free");
        }
    }
}
