//! Tables in memory: what extents, records and deleted volumes are, as of the newest durable batch.
//!
//! [`Tables::apply`] is the one place where state changes, for requests as for recovery. It never decides: an entry says
//! which cell becomes what. Data that is durable in the journal only is in the overlay.

use std::collections::BTreeMap;

use ashlar_wire::checksum::Salt;
use ashlar_wire::id::VolumeId;

use crate::block::{BlockSet, EXTENT_BLOCKS};
use crate::buffer::{AlignedBuf, Segment};
use crate::journal::batch::BatchSeq;
use crate::journal::entry::{Data, Entry, Others, Put};
use crate::layout::Geometry;
use crate::page::{
    CellId, EXTENTS_PER_PAGE, ExtentBlocks, ExtentInfo, Page, PageBody, PageId, RECORDS_PER_PAGE, TOMBSTONES_PER_PAGE,
};
use crate::record::{Key, Value};

/// A page of the extent table in memory.
#[derive(Debug, Default)]
pub(crate) struct ExtentPage {
    pub(crate) cells: [ExtentBlocks; EXTENTS_PER_PAGE as usize],
    /// The newest batch that changed it since it was loaded.
    pub(crate) changed: BatchSeq,
    /// Operations that need it.
    pub(crate) pins: usize,
}

/// A block whose newest data is not in its slot yet.
#[derive(Debug, Clone)]
pub(crate) struct OverlayBlock {
    pub(crate) data: Segment,
    pub(crate) sequence: BatchSeq,
}

/// A change of a cell of the extent table, for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtentChange {
    pub(crate) cell: CellId,
    pub(crate) before: Option<ExtentInfo>,
    pub(crate) after: Option<ExtentInfo>,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Tables {
    geometry: Geometry,
    /// One for each cell.
    pub(crate) infos: Vec<Option<ExtentInfo>>,
    /// Pages in memory. A changed page is always among them.
    pub(crate) pages: BTreeMap<PageId, ExtentPage>,
    pub(crate) records: Vec<Option<(Key, Value)>>,
    pub(crate) tombstones: Vec<Option<VolumeId>>,
    pub(crate) overlay: BTreeMap<(CellId, usize), OverlayBlock>,
    /// Pages that differ from the drive, and the newest batch that changed them.
    pub(crate) dirty: BTreeMap<PageId, BatchSeq>,
    /// For each page the number of its newest write.
    pub(crate) written: Vec<u64>,
    /// For each page whether its second copy is known to be whole, as that is the one that was read; otherwise the first is.
    is_second_whole: Vec<bool>,
    /// Where the search for a page to evict begins, so that none is evicted more often than others.
    hand: PageId,
}

impl Tables {
    pub(crate) fn new(geometry: Geometry) -> Self {
        let pages = geometry.pages();
        let tombstone_pages = pages - geometry.extent_pages() - geometry.record_pages();
        Self {
            geometry,
            infos: vec![None; (geometry.extent_pages() * EXTENTS_PER_PAGE) as usize],
            pages: BTreeMap::new(),
            records: vec![None; (geometry.record_pages() * RECORDS_PER_PAGE) as usize],
            tombstones: vec![None; (tombstone_pages * TOMBSTONES_PER_PAGE) as usize],
            overlay: BTreeMap::new(),
            dirty: BTreeMap::new(),
            written: vec![0; pages as usize],
            is_second_whole: vec![false; pages as usize],
            hand: PageId(0),
        }
    }

    fn record_page(&self, cell: u32) -> PageId {
        PageId(self.geometry.extent_pages() + cell / RECORDS_PER_PAGE)
    }

    fn tombstone_page(&self, cell: u32) -> PageId {
        PageId(self.geometry.extent_pages() + self.geometry.record_pages() + cell / TOMBSTONES_PER_PAGE)
    }

    pub(crate) fn is_extent_page(&self, page: PageId) -> bool {
        page.0 < self.geometry.extent_pages()
    }

    /// The page that an entry changes; none if it names a cell that does not exist.
    pub(crate) fn page_of(&self, entry: &Entry) -> Option<PageId> {
        match entry {
            Entry::Put(Put { cell, .. }) | Entry::Clear { cell, .. } | Entry::DropExtent { cell } => {
                (cell.0 < self.geometry.cells).then(|| cell.page())
            }
            Entry::PutRecord { cell, .. } | Entry::DropRecord { cell } => {
                (*cell < self.geometry.records_max).then(|| self.record_page(*cell))
            }
            Entry::PutTombstone { cell, .. } | Entry::DropTombstone { cell } => {
                (*cell < self.geometry.tombstones_max).then(|| self.tombstone_page(*cell))
            }
        }
    }

    /// A copy of a page that is whole: the one that was read. The other may be what an interrupted write left.
    pub(crate) fn whole_copy(&self, page: PageId) -> usize {
        usize::from(self.is_second_whole[page.0 as usize])
    }

    /// The blocks of an extent whose page is in memory.
    pub(crate) fn blocks(&self, cell: CellId) -> &ExtentBlocks {
        let page = self.pages.get(&cell.page()).expect("the page of an extent in use is in memory");
        &page.cells[cell.index_in_page()]
    }

    fn blocks_mut(&mut self, cell: CellId) -> &mut ExtentBlocks {
        let page = self.pages.get_mut(&cell.page()).expect("the page of an extent in use is in memory");
        &mut page.cells[cell.index_in_page()]
    }

    /// Does what an entry says. `data` are the blocks of an inline put. The page of an extent must be in memory.
    pub(crate) fn apply(&mut self, entry: &Entry, data: Option<&Segment>, sequence: BatchSeq) -> Option<ExtentChange> {
        let page = self.page_of(entry).expect("an entry names a cell of its table");
        self.dirty.insert(page, sequence);
        if let Some(page) = self.pages.get_mut(&page) {
            page.changed = sequence;
        }
        match entry {
            Entry::Put(put) => Some(self.apply_put(put, data, sequence)),
            Entry::Clear { cell, id, version, blocks } => {
                let before = self.infos[cell.0 as usize];
                // Only at recovery the cell may be another extent's, a later one; it will be dropped again.
                let info = before.filter(|info| info.id == *id)?;
                self.clear_blocks(*cell, blocks);
                let slot = info.slot.filter(|_| !self.blocks(*cell).present.is_empty());
                let after = Some(ExtentInfo { version: *version, slot, ..info });
                self.infos[cell.0 as usize] = after;
                Some(ExtentChange { cell: *cell, before, after })
            }
            Entry::DropExtent { cell } => {
                let before = self.infos[cell.0 as usize].take();
                self.clear_blocks(*cell, &BlockSet::of(crate::block::BlockRange::WHOLE));
                Some(ExtentChange { cell: *cell, before, after: None })
            }
            Entry::PutRecord { cell, key, value } => {
                self.records[*cell as usize] = Some((key.clone(), value.clone()));
                None
            }
            Entry::DropRecord { cell } => {
                self.records[*cell as usize] = None;
                None
            }
            Entry::PutTombstone { cell, volume } => {
                self.tombstones[*cell as usize] = Some(*volume);
                None
            }
            Entry::DropTombstone { cell } => {
                self.tombstones[*cell as usize] = None;
                None
            }
        }
    }

    fn apply_put(&mut self, put: &Put, data: Option<&Segment>, sequence: BatchSeq) -> ExtentChange {
        let before = self.infos[put.cell.0 as usize];
        if put.others == Others::Clear || before.is_none_or(|info| info.id != put.id) {
            self.clear_blocks(put.cell, &BlockSet::of(crate::block::BlockRange::WHOLE));
        }
        let after = Some(ExtentInfo { id: put.id, group: put.group, version: put.version, slot: put.slot });
        self.infos[put.cell.0 as usize] = after;
        for (index, (block, sum)) in put.blocks.iter().zip(&put.checksums).enumerate() {
            let blocks = self.blocks_mut(put.cell);
            blocks.present.insert(block);
            blocks.checksums[block] = *sum;
            match put.data {
                Data::Inline => {
                    let data = data.expect("an inline put has data").part(index, 1);
                    self.overlay.insert((put.cell, block), OverlayBlock { data, sequence });
                }
                Data::InSlot => drop(self.overlay.remove(&(put.cell, block))),
            }
        }
        ExtentChange { cell: put.cell, before, after }
    }

    fn clear_blocks(&mut self, cell: CellId, set: &BlockSet) {
        let blocks = self.blocks_mut(cell);
        let cleared = blocks.present.and(set);
        blocks.present = blocks.present.without(set);
        cleared.iter().for_each(|block| blocks.checksums[block] = crate::block::BlockChecksum(0));
        let stale: Vec<_> = self.overlay.range((cell, 0)..(cell, EXTENT_BLOCKS)).map(|(place, _)| *place).collect();
        stale.iter().filter(|(_, block)| set.contains(*block)).for_each(|place| drop(self.overlay.remove(place)));
    }

    /// Takes a page that was read, from this copy. `Keep` in memory is the caller's choice for pages of extents; others always are.
    pub(crate) fn install(&mut self, page: Page, copy: usize, residence: Residence) {
        self.is_second_whole[page.id.0 as usize] = copy == 1;
        self.written[page.id.0 as usize] = page.sequence;
        match page.body {
            PageBody::Extents(cells) => {
                let mut resident = ExtentPage::default();
                for (index, cell) in cells.into_iter().enumerate() {
                    let at = (page.id.0 * EXTENTS_PER_PAGE) as usize + index;
                    let (info, blocks) = cell.unzip();
                    self.infos[at] = info;
                    resident.cells[index] = blocks.unwrap_or_default();
                }
                if residence == Residence::Memory {
                    self.pages.insert(page.id, resident);
                }
            }
            PageBody::Records(cells) => {
                let first = (page.id.0 - self.geometry.extent_pages()) * RECORDS_PER_PAGE;
                self.records[first as usize..][..cells.len()].clone_from_slice(&cells);
            }
            PageBody::Tombstones(cells) => {
                let before = self.geometry.extent_pages() + self.geometry.record_pages();
                let first = (page.id.0 - before) * TOMBSTONES_PER_PAGE;
                self.tombstones[first as usize..][..cells.len()].clone_from_slice(&cells);
            }
        }
    }

    /// Whether a page that was read has the kind that its place demands, and nothing in cells behind the table's end.
    pub(crate) fn fits(&self, page: &Page) -> bool {
        let (extent_pages, record_pages) = (self.geometry.extent_pages(), self.geometry.record_pages());
        let is_empty_behind = |used: u32, per_page: u32, index: u32, limit: u32| {
            (0..per_page).all(|cell| index * per_page + cell < limit || used & (1 << cell) == 0)
        };
        match &page.body {
            PageBody::Extents(cells) => {
                let used = cells.iter().rev().fold(0, |used, cell| used << 1 | u32::from(cell.is_some()));
                page.id.0 < extent_pages && is_empty_behind(used, EXTENTS_PER_PAGE, page.id.0, self.geometry.cells)
            }
            PageBody::Records(cells) => {
                let used = cells.iter().rev().fold(0, |used, cell| used << 1 | u32::from(cell.is_some()));
                (extent_pages..extent_pages + record_pages).contains(&page.id.0)
                    && is_empty_behind(used, RECORDS_PER_PAGE, page.id.0 - extent_pages, self.geometry.records_max)
            }
            PageBody::Tombstones(cells) => {
                let first = page.id.0.checked_sub(extent_pages + record_pages).map(|index| index * TOMBSTONES_PER_PAGE);
                let limit = self.geometry.tombstones_max;
                first.is_some_and(|first| (first..).zip(cells).all(|(cell, id)| cell < limit || id.is_none()))
            }
        }
    }

    /// The written form of a page as it is now.
    pub(crate) fn encode_page(&self, id: PageId, salt: Salt) -> AlignedBuf {
        let extent_pages = self.geometry.extent_pages();
        let body = if self.is_extent_page(id) {
            let page = self.pages.get(&id).expect("a changed page is in memory");
            PageBody::Extents(core::array::from_fn(|index| {
                let info = self.infos[id.0 as usize * EXTENTS_PER_PAGE as usize + index];
                info.map(|info| (info, page.cells[index].clone()))
            }))
        } else if id.0 < extent_pages + self.geometry.record_pages() {
            let first = (id.0 - extent_pages) as usize * RECORDS_PER_PAGE as usize;
            PageBody::Records(core::array::from_fn(|index| self.records[first + index].clone()))
        } else {
            let index = id.0 - extent_pages - self.geometry.record_pages();
            let first = (index * TOMBSTONES_PER_PAGE) as usize;
            PageBody::Tombstones(self.tombstones[first..][..TOMBSTONES_PER_PAGE as usize].to_vec())
        };
        let mut buf = AlignedBuf::zeroed(1);
        Page { id, sequence: self.written[id.0 as usize], body }.encode_into(salt, &mut buf);
        buf
    }

    /// A page without anything, as formatting writes it.
    pub(crate) fn encode_empty(geometry: &Geometry, id: PageId, salt: Salt, bytes: &mut [u8]) {
        let body = if id.0 < geometry.extent_pages() {
            PageBody::Extents([None, None, None])
        } else if id.0 < geometry.extent_pages() + geometry.record_pages() {
            PageBody::Records([None, None, None])
        } else {
            PageBody::Tombstones(vec![None; TOMBSTONES_PER_PAGE as usize])
        };
        Page { id, sequence: 1, body }.encode_into(salt, bytes);
    }

    /// Removes clean pages that nobody uses until at most `max` are in memory.
    pub(crate) fn evict(&mut self, max: usize) {
        let excess = self.pages.len().saturating_sub(max);
        if excess == 0 {
            return;
        }
        let around = self.pages.range(self.hand..).chain(self.pages.range(..self.hand));
        let unused = around.filter(|(id, page)| page.pins == 0 && !self.dirty.contains_key(id));
        let victims: Vec<PageId> = unused.map(|(id, _)| *id).take(excess).collect();
        victims.iter().for_each(|id| drop(self.pages.remove(id)));
        self.hand = victims.last().map_or(self.hand, |last| PageId(last.0 + 1));
    }
}

/// Whether a page of extents that was read stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    /// It stays.
    Memory,
    /// Only what is known of its extents does.
    Drive,
}
