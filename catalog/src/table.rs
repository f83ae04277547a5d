//! Sorted table with cheap copies: pages of rows behind `Arc`, copied when they are written.
//!
//! Readers hold a whole catalog for as long as they like while the next version is made. A copy of a table costs a
//! pointer for each page; a change copies one page and the list of pages. A table of 65,536 rows has 1,024 to 2,048
//! pages, so that a change costs some microseconds.
//!
//! A table knows how many bytes its rows have in the written form, so that the size of the catalog has a limit.

use std::sync::Arc;

use crate::codec::Fields;
use crate::codec::pack::encode;

/// Rows of a page; a full one is cut in halves.
const PAGE_ROWS_MAX: usize = 64;

/// A record that stands in a table under its own key.
pub(crate) trait Row: Fields + Clone + PartialEq {
    /// What it is found by.
    type Key: Ord;

    /// The kind of record, as in the text form.
    const KIND: &'static str;
    /// Most rows of the table.
    const ROWS_MAX: usize;

    /// Its key.
    fn key(&self) -> Self::Key;
}

/// Rows in ascending order of their keys. See the head of this module.
#[derive(Debug, Clone)]
pub(crate) struct Table<R> {
    /// None is empty. Ascending within and across.
    pages: Vec<Arc<Vec<R>>>,
    len: usize,
    /// Of all rows, in their written form.
    bytes: usize,
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0, bytes: 0 }
    }
}

/// Tables are equal when their rows are, however they lie on pages.
impl<R: Row> PartialEq for Table<R> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<R: Row> Eq for Table<R> {}

impl<R: Row> Table<R> {
    /// Number of rows.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all rows in their written form.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Every row, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.pages.iter().flat_map(|page| page.iter())
    }

    /// The row with this key.
    pub(crate) fn get(&self, key: &R::Key) -> Option<&R> {
        let page = &self.pages[self.page_of(key)?];
        page.binary_search_by(|row| row.key().cmp(key)).ok().map(|place| &page[place])
    }

    /// Puts a row in its place, and gives back the one that it replaces.
    pub(crate) fn insert(&mut self, row: R) -> Option<R> {
        self.bytes += encode(&row).len();
        let key = row.key();
        let Some(at) = self.page_of(&key) else {
            self.len += 1;
            self.pages.push(Arc::new(vec![row]));
            return None;
        };
        let page = Arc::make_mut(&mut self.pages[at]);
        match page.binary_search_by(|one| one.key().cmp(&key)) {
            Ok(place) => {
                let replaced = core::mem::replace(&mut page[place], row);
                self.bytes -= encode(&replaced).len();
                Some(replaced)
            }
            Err(place) => {
                page.insert(place, row);
                self.len += 1;
                if page.len() > PAGE_ROWS_MAX {
                    let behind = page.split_off(page.len() / 2);
                    self.pages.insert(at + 1, Arc::new(behind));
                }
                None
            }
        }
    }

    /// Takes a row out.
    pub(crate) fn remove(&mut self, key: &R::Key) -> Option<R> {
        let at = self.page_of(key)?;
        let place = self.pages[at].binary_search_by(|row| row.key().cmp(key)).ok()?;
        let page = Arc::make_mut(&mut self.pages[at]);
        let removed = page.remove(place);
        self.bytes -= encode(&removed).len();
        self.len -= 1;
        self.merge(at);
        Some(removed)
    }

    /// The first row.
    pub(crate) fn first(&self) -> Option<&R> {
        self.pages.first().and_then(|page| page.first())
    }

    /// The last row.
    pub(crate) fn last(&self) -> Option<&R> {
        self.pages.last().and_then(|page| page.last())
    }

    /// Every row from `key` on, ascending.
    pub(crate) fn iter_from(&self, key: R::Key) -> impl Iterator<Item = &R> {
        let at = self.page_of(&key).unwrap_or(0);
        self.pages[at..].iter().flat_map(|page| page.iter()).skip_while(move |row| row.key() < key)
    }

    /// The page in which a key stands or would stand; none without pages.
    fn page_of(&self, key: &R::Key) -> Option<usize> {
        let behind = self.pages.partition_point(|page| page[0].key() <= *key);
        if self.pages.is_empty() { None } else { Some(behind.saturating_sub(1)) }
    }

    /// Takes an empty page out, and joins a small one with a neighbour if both fit half a page.
    fn merge(&mut self, at: usize) {
        if self.pages[at].is_empty() {
            self.pages.remove(at);
            return;
        }
        for first in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let together = self.pages.get(first + 1).map(|next| self.pages[first].len() + next.len());
            if together.is_some_and(|rows| rows <= PAGE_ROWS_MAX / 2) {
                let next = self.pages.remove(first + 1);
                Arc::make_mut(&mut self.pages[first]).extend(next.iter().cloned());
            }
        }
    }
}

#[cfg(test)]
mod tests;
