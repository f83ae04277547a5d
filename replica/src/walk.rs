//! Walk through the lists of extents of several members, page by page, to find where their versions differ.
//!
//! The other members' pages come first and the own one last: an own write that is submitted after the own list was asked
//! for may be missing in it, so its user notes such writes from that moment on.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_placement::rule::ExtentId;
use ashlar_wire::id::DriveId;
use ashlar_wire::version::Version;

use crate::request::Page;

/// How far a walk's own list is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Own {
    /// The others' pages are not all there.
    Waits,
    /// Asked for.
    Asked,
    /// There.
    Here(Page),
}

/// One walk, at one page.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) above: Version,
    pub(crate) after: Option<ExtentId>,
    others: BTreeMap<DriveId, Option<Page>>,
    own: Own,
}

/// What one page of a walk says.
#[derive(Debug)]
pub(crate) struct Compared {
    /// Extents that some list has, with the version in each list that has them, ascending.
    pub(crate) extents: Vec<Found>,
    /// All extents up to this one have been seen; all there are, if nothing.
    pub(crate) horizon: Option<ExtentId>,
}

/// One extent and who has which version of it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) extent: ExtentId,
    /// Version zero if it is not in the list.
    pub(crate) own: Version,
    /// Members that are not here do not have it in their lists.
    pub(crate) others: BTreeMap<DriveId, Version>,
}

impl Walk {
    /// A page behind `after` of the extents with versions greater than `above`, of this member and of others.
    pub(crate) fn new(above: Version, after: Option<ExtentId>, others: impl Iterator<Item = DriveId>) -> Self {
        Self { above, after, others: others.map(|drive| (drive, None)).collect(), own: Own::Waits }
    }

    /// Members whose page is missing.
    pub(crate) fn missing(&self) -> impl Iterator<Item = DriveId> {
        self.others.iter().filter(|(_, page)| page.is_none()).map(|(drive, _)| *drive)
    }

    /// Another member's page arrived.
    pub(crate) fn handle_page(&mut self, from: DriveId, after: Option<ExtentId>, page: Page) {
        let is_behind = page.entries.first().is_none_or(|(first, _)| Some(*first) > after);
        if let Some(place) = self.others.get_mut(&from)
            && after == self.after
            && is_behind
            && place.is_none()
        {
            *place = Some(page);
        }
    }

    /// Whether the own list is to be asked for now. Says so once.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_due = self.own == Own::Waits && self.missing().next().is_none();
        if is_due {
            self.own = Own::Asked;
        }
        is_due
    }

    /// The own list has been asked for.
    pub(crate) fn is_own_asked(&self) -> bool {
        self.own == Own::Asked
    }

    /// The own list came: what all of them say together.
    pub(crate) fn handle_own(&mut self, page: Page) -> Compared {
        self.own = Own::Here(page);
        let Own::Here(own) = &self.own else { unreachable!("it was set above") };
        let pages = || self.others.values().flatten().chain([own]);
        let ends = pages().filter(|page| page.has_more).filter_map(|page| page.entries.last());
        let horizon = ends.map(|(extent, _)| *extent).min();
        let mut found: BTreeMap<ExtentId, Found> = BTreeMap::new();
        let seen = |extent: &ExtentId| horizon.is_none_or(|horizon| *extent <= horizon);
        let place = |extent: ExtentId| Found { extent, ..Found::default() };
        for (extent, version) in own.entries.iter().filter(|(extent, _)| seen(extent)) {
            found.entry(*extent).or_insert_with(|| place(*extent)).own = *version;
        }
        for (drive, page) in &self.others {
            let entries = page.iter().flat_map(|page| &page.entries);
            for (extent, version) in entries.filter(|(extent, _)| seen(extent)) {
                found.entry(*extent).or_insert_with(|| place(*extent)).others.insert(*drive, *version);
            }
        }
        Compared { extents: found.into_values().collect(), horizon }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ashlar_placement::rule::Extent;
    use ashlar_wire::epoch::Epoch;

    fn extent(number: u64) -> ExtentId {
        ExtentId { extent: Extent(number), ..ExtentId::default() }
    }

    fn page(entries: &[(u64, u64)], has_more: bool) -> Page {
        let version = |sequence| Version { epoch: Epoch(1), sequence };
        let entries = entries.iter().map(|(number, sequence)| (extent(*number), version(*sequence))).collect();
        Page { entries, has_more, newest: Version::ZERO }
    }

    #[test]
    fn a_page_reaches_as_far_as_the_shortest_list() {
        let drives = [1, 2].map(|number| DriveId::from_bytes([number; 16]));
        let mut walk = Walk::new(Version::ZERO, Some(extent(0)), drives.into_iter());
        assert!(!walk.take_turn());
        walk.handle_page(drives[0], None, page(&[(9, 9)], false));
        walk.handle_page(drives[0], Some(extent(0)), page(&[(0, 9)], false));
        assert_eq!(walk.missing().count(), 2, "an answer to another question");
        walk.handle_page(drives[0], Some(extent(0)), page(&[(1, 1), (4, 2)], true));
        walk.handle_page(drives[1], Some(extent(0)), page(&[(2, 1), (3, 1), (5, 1)], false));
        assert!(walk.take_turn() && !walk.take_turn() && walk.is_own_asked());
        let compared = walk.handle_own(page(&[(1, 3), (6, 1)], true));
        assert_eq!(compared.horizon, Some(extent(4)));
        let found: Vec<_> = compared.extents.iter().map(|found| (found.extent, found.own.sequence)).collect();
        assert_eq!(found, vec![(extent(1), 3), (extent(2), 0), (extent(3), 0), (extent(4), 0)]);
        let others: Vec<_> = compared.extents.iter().map(|found| found.others.len()).collect();
        assert_eq!(others, [1, 1, 1, 1]);
    }
}
