//! In which place of the table each member stands.
//!
//! Open addressing with linear probing (Knuth, The Art of Computer Programming 3, 6.4). A cell holds a place and no id: the
//! ids stand in the table of members, which is read next anyway. So a look-up reads one cell and one member, where a
//! tree of 2,000 ids is read in a dozen places, and most packets begin with a look-up.
//!
//! The hash has no secret: ids are those of authenticated servers, and their number has a limit.

use alloc::vec;
use alloc::vec::Vec;

use ashlar_wire::id::ServerId;

/// Places by id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// A place and one more; zero where there is none. None or a power of two, at least half of them zero.
    cells: Vec<u32>,
    /// How many are not zero.
    used: usize,
}

/// Fewest cells.
const CELLS_MIN: usize = 16;

impl Index {
    /// The place of `id`, if it has one. `id_at` tells whose a place is.
    pub(crate) fn find(&self, id: ServerId, id_at: impl Fn(usize) -> ServerId) -> Option<usize> {
        let mut at = self.cells.len().checked_sub(1)? & spread(id);
        while let Some(place) = place_in(self.cells[at]) {
            if id_at(place) == id {
                return Some(place);
            }
            at = (at + 1) & (self.cells.len() - 1);
        }
        None
    }

    /// Puts `id` in `place`; it has none yet.
    pub(crate) fn insert(&mut self, id: ServerId, place: usize, id_at: impl Fn(usize) -> ServerId) {
        if (self.used + 1) * 2 > self.cells.len() {
            let count = (self.cells.len() * 2).max(CELLS_MIN);
            let places = core::mem::replace(&mut self.cells, vec![0; count]);
            places.into_iter().filter_map(place_in).for_each(|place| self.put(id_at(place), place));
        }
        self.put(id, place);
        self.used += 1;
    }

    /// Begins anew: these have the places from 0 on.
    pub(crate) fn rebuild(&mut self, ids: impl Iterator<Item = ServerId>) {
        self.cells.fill(0);
        self.used = 0;
        for (place, id) in ids.enumerate() {
            self.put(id, place);
            self.used += 1;
        }
    }

    fn put(&mut self, id: ServerId, place: usize) {
        let mut at = spread(id) & (self.cells.len() - 1);
        while self.cells[at] != 0 {
            at = (at + 1) & (self.cells.len() - 1);
        }
        self.cells[at] = u32::try_from(place + 1).expect("the number of members has a limit far below 2^32");
    }
}

fn place_in(cell: u32) -> Option<usize> {
    usize::try_from(cell).ok()?.checked_sub(1)
}

/// Spreads ids that differ in a few bits only. The upper half of the product depends on all bits of the id.
fn spread(id: ServerId) -> usize {
    let number = u128::from_be_bytes(*id.as_bytes());
    let folded = (number >> 64 ^ number << 1) & u128::from(u64::MAX);
    usize::try_from((folded * 0x9e37_79b9_7f4a_7c15) >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ServerId {
        let mut bytes = [7; 16];
        bytes[12..].copy_from_slice(&number.to_be_bytes());
        ServerId::from_bytes(bytes)
    }

    #[test]
    fn every_id_has_its_place_and_no_other_has_one() {
        let (mut index, mut ids) = (Index::default(), Vec::new());
        assert_eq!(index.find(id(0), |_| id(0)), None);
        for number in 0..1_000 {
            index.insert(id(number), ids.len(), |place| ids[place]);
            ids.push(id(number));
            let wanted = (ids.len() * 2).next_power_of_two().max(CELLS_MIN);
            assert_eq!(index.cells.len(), wanted, "half of the cells are empty, and no more than needed");
        }
        let check = |index: &Index, ids: &[ServerId]| {
            for (place, id) in ids.iter().enumerate() {
                assert_eq!(index.find(*id, |place| ids[place]), Some(place));
            }
            assert_eq!(index.find(id(1_000), |place| ids[place]), None);
            assert!(index.cells.len() >= ids.len() * 2);
        };
        check(&index, &ids);
        ids.swap_remove(500);
        index.rebuild(ids.iter().copied());
        assert_eq!(index.find(id(500), |place| ids[place]), None);
        check(&index, &ids);
        for number in 2_000..2_200 {
            index.insert(id(number), ids.len(), |place| ids[place]);
            ids.push(id(number));
        }
        check(&index, &ids);
    }

    #[test]
    fn ids_that_fall_into_one_cell_are_all_found() {
        // The last cell: those after the first one stand at the beginning of the table.
        let mut same = (0..).map(id).filter(|id| spread(*id) % CELLS_MIN == CELLS_MIN - 1);
        let ids: Vec<ServerId> = same.by_ref().take(8).collect();
        let mut index = Index::default();
        for (place, id) in ids.iter().enumerate() {
            index.insert(*id, place, |place| ids[place]);
        }
        assert_eq!(index.cells.len(), CELLS_MIN);
        for (place, id) in ids.iter().enumerate() {
            assert_eq!(index.find(*id, |place| ids[place]), Some(place));
        }
        assert_eq!(index.find(same.next().unwrap(), |place| ids[place]), None);
    }

    #[test]
    fn ids_that_differ_little_are_far_apart() {
        // They may differ at their end or at their beginning.
        for turns in [0, 4] {
            let turned = |number| {
                let mut bytes = *id(number).as_bytes();
                bytes.rotate_right(turns);
                ServerId::from_bytes(bytes)
            };
            let mut cells: Vec<usize> = (0..2_000).map(|number| spread(turned(number)) & 4_095).collect();
            cells.sort_unstable();
            cells.dedup();
            assert!(cells.len() > 1_400, "{} of 2,000 ids have a cell of their own", cells.len());
        }
    }
}
