//! Table pages of extents in memory: loaded when an operation needs one, evicted when nobody does.

use super::Store;
use super::submit::{Purpose, Urgency};
use crate::buffer::{AlignedBuf, BLOCK_BYTES};
use crate::gate::OpId;
use crate::io::{IoError, IoKind};
use crate::page::{Page, PageId};
use crate::tables::Residence;

/// A page that is being read.
#[derive(Debug, Default)]
pub(super) struct Loading {
    waiting: Vec<OpId>,
}

impl Store {
    /// Reads a page; the operation is ready again when it is in memory or found damaged.
    pub(super) fn load(&mut self, page: PageId, id: OpId) {
        let is_new = !self.loading.contains_key(&page);
        self.loading.entry(page).or_default().waiting.push(id);
        if is_new {
            self.read_page(page, 0);
        }
    }

    fn read_page(&mut self, page: PageId, copy: usize) {
        let kind = IoKind::Read { offset: self.geometry.page_offset(page, copy), len: BLOCK_BYTES };
        self.submissions.submit(Urgency::Request, Purpose::Page { page, copy }, kind);
    }

    pub(super) fn finish_page(&mut self, id: PageId, copy: usize, result: Result<AlignedBuf, IoError>) {
        let page = result.ok().and_then(|bytes| Page::decode(self.page_salt, id, &bytes));
        // An older copy is whole, but a write to it was lost.
        let newest = self.tables.written[id.0 as usize];
        match page.filter(|page| page.sequence == newest && self.tables.fits(page)) {
            Some(page) => self.tables.install(page, copy, Residence::Memory),
            None if copy == 0 => return self.read_page(id, 1),
            None => drop(self.damaged.insert(id)),
        }
        let loading = self.loading.remove(&id).expect("a page that was read was asked for");
        self.ready.extend(loading.waiting);
    }
}
