//! The map of a set: its drives, where they stand, and what one placement group looks like.
//!
//! A map is all that a client needs to know where data lives. Most of it is the list of drives, from which every
//! placement group's drives are drawn ([`crate::choose`]). The rest are *pins*: placement groups whose drives are
//! written out, because the draw alone would fill some drives more than others, or would move data that may stay
//! ([`crate::balance`]). About one placement group in fifteen is pinned in a fresh map.
//!
//! A map that exists is valid: enough conflict domains, servers within one rack, racks within one zone, pins without
//! conflict. So everything that is computed from it needs no error of its own.
//!
//! Not here: who is alive. A drive that is out has been put out by somebody.

use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId};

use crate::domains::{Conflict, Domains};
use crate::error::Error;

mod form;

/// Most drives of one map.
pub const DRIVES_MAX: usize = 16_384;
/// Most placement groups of one map.
pub const PGS_MAX: u32 = 1 << 20;
/// Most seats of one placement group.
pub const SEATS_MAX: usize = 32;
/// Most seats of all placement groups together: the table takes two bytes for each.
pub const TABLE_MAX: usize = 1 << 22;

// A drive's place in the list is written in 16 bits, and one value of them means that there is no drive.
const _: () = assert!(DRIVES_MAX < u16::MAX as usize);

/// One set: an independent unit of scale with its own map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SetId(pub u32);

/// Set in the numbers of companions.
const COMPANION: u32 = 1 << 31;

impl SetId {
    /// The companion of a set: on the same drives, with placement groups and copies of its own.
    #[must_use]
    pub const fn companion(self) -> Self {
        Self(self.0 | COMPANION)
    }

    /// Whether it is the companion of another set.
    #[must_use]
    pub const fn is_companion(self) -> bool {
        self.0 & COMPANION != 0
    }

    /// The set that has the drives: of a companion the other one.
    #[must_use]
    pub const fn home(self) -> Self {
        Self(self.0 & !COMPANION)
    }
}

/// One placement group of a set, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId(pub u32);

impl PgId {
    /// The place in a table.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        // 32 bits always fit: there is no smaller machine among ours.
        self.0 as usize
    }
}

/// One placement group, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId {
    /// Its set.
    pub set: SetId,
    /// Its number in the set.
    pub pg: PgId,
}

/// One rack, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rack(pub u32);

/// One zone, unique in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Zone(pub u32);

/// How much a drive shall hold in proportion to others, 1 and more. Any unit that all drives of a set share; GiB is
/// usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Weight(pub u32);

/// What a drive may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriveState {
    /// Holds its share.
    In,
    /// Keeps what it holds and is given nothing more.
    Full,
    /// Holds nothing: failed, or being emptied. The same as not being in the map.
    Out,
}

/// One drive, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    /// Who it is. Its draws depend on nothing else, so it may move to another server and keep its data.
    pub id: DriveId,
    /// The server that it is in.
    pub server: ServerId,
    /// The rack of that server.
    pub rack: Rack,
    /// The zone of that rack.
    pub zone: Zone,
    /// Its share.
    pub weight: Weight,
    /// Whether it holds anything.
    pub state: DriveState,
}

/// The place of a drive in [`Map::drives`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveIndex(pub(crate) u16);

impl DriveIndex {
    /// No drive: a seat that nobody holds yet, inside this crate only.
    pub(crate) const VACANT: Self = Self(u16::MAX);

    /// The index of a place below [`DRIVES_MAX`].
    pub(crate) fn new(place: usize) -> Self {
        Self(u16::try_from(place).expect("a map has at most 16,384 drives"))
    }

    /// The place in [`Map::drives`].
    #[inline]
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// How a set is cut: the half of the rule R that all its volumes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of placement groups, 1 to [`PGS_MAX`]; some hundreds of seats for each drive spread well.
    pub pgs: u32,
    /// Drives of a placement group, 1 to [`SEATS_MAX`]: copies of a volume's extent, or shards of an object's block.
    pub width: u8,
    /// What two seats of one placement group must not share.
    pub conflict: Conflict,
}

impl Shape {
    /// Seats of one placement group, as a size.
    #[inline]
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width as usize
    }

    /// Seats of all placement groups.
    #[inline]
    pub(crate) const fn table_len(&self) -> usize {
        PgId(self.pgs).index() * self.width()
    }

    fn check(&self) -> Result<(), Error> {
        if self.pgs == 0 {
            return Err(Error::Missing("placement group"));
        }
        if self.width == 0 {
            return Err(Error::Missing("seat"));
        }
        check_max("placement groups", PgId(self.pgs).index(), PgId(PGS_MAX).index())?;
        check_max("seats of a placement group", self.width(), SEATS_MAX)?;
        check_max("seats", self.table_len(), TABLE_MAX)
    }
}

fn check_max(what: &'static str, count: usize, max: usize) -> Result<(), Error> {
    // Sizes of this machine fit 64 bits.
    if count > max { Err(Error::TooMany { what, count: count as u64, max: max as u64 }) } else { Ok(()) }
}

/// Placement groups whose drives are written out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Pins {
    /// Ascending.
    pgs: Vec<PgId>,
    /// For each of them, as many as there are seats.
    seats: Vec<DriveIndex>,
}

impl Pins {
    /// Adds the list of a placement group behind all that are there.
    pub(crate) fn push(&mut self, pg: PgId, seats: &[DriveIndex]) {
        assert!(self.pgs.last().is_none_or(|last| *last < pg), "pins are made in ascending order");
        self.pgs.push(pg);
        self.seats.extend_from_slice(seats);
    }
}

/// The drives of a set and its shape, at one epoch. See the head of this module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    set: SetId,
    epoch: Epoch,
    shape: Shape,
    /// Ascending by id, at most [`DRIVES_MAX`].
    drives: Vec<Drive>,
    /// Without conflict, on drives that are not out.
    pins: Pins,
}

impl Map {
    /// The map of these drives, in any order, with nothing pinned: every list is as drawn. For even filling and few
    /// moves hand it to [`crate::balance::balance`].
    ///
    /// # Errors
    /// The caller's: a limit is passed, a drive stands twice or has no weight, a server or rack is split, or there are
    /// [too few domains](Error::TooFewDomains).
    pub fn new(set: SetId, epoch: Epoch, shape: Shape, mut drives: Vec<Drive>) -> Result<Self, Error> {
        shape.check()?;
        check_max("drives", drives.len(), DRIVES_MAX)?;
        drives.sort_unstable_by_key(|drive| drive.id);
        check_drives(&drives)?;
        let domains = Domains::new(shape.conflict, &drives).count();
        if domains < shape.width() {
            return Err(Error::TooFewDomains { domains, seats: shape.width() });
        }
        Ok(Self { set, epoch, shape, drives, pins: Pins::default() })
    }

    /// The set.
    #[must_use]
    pub const fn set(&self) -> SetId {
        self.set
    }

    /// Which map of the set this is; a greater one replaces it.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The same map as the one of another epoch: for changes that concern no drive.
    #[must_use]
    pub fn with_epoch(&self, epoch: Epoch) -> Self {
        Self { epoch, ..self.clone() }
    }

    /// How the set is cut.
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Every drive, those that are out too, ascending by id.
    #[must_use]
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// The drive at a place.
    ///
    /// # Panics
    /// When the index is of another map.
    #[inline]
    #[must_use]
    pub fn drive(&self, index: DriveIndex) -> &Drive {
        &self.drives[index.get()]
    }

    /// Where a drive stands in this map.
    #[must_use]
    pub fn find(&self, id: DriveId) -> Option<DriveIndex> {
        self.drives.binary_search_by_key(&id, |drive| drive.id).ok().map(DriveIndex::new)
    }

    /// Every placement group whose list is written out, ascending, and its drives.
    pub fn pins(&self) -> impl ExactSizeIterator<Item = (PgId, &[DriveIndex])> {
        self.pins.pgs.iter().copied().zip(self.pins.seats.chunks_exact(self.shape.width()))
    }

    /// The list that is written out for a placement group, if it is.
    pub(crate) fn pin_of(&self, pg: PgId) -> Option<&[DriveIndex]> {
        let place = self.pins.pgs.binary_search(&pg).ok()?;
        let seats = self.shape.width();
        Some(&self.pins.seats[place * seats..][..seats])
    }

    /// The same map with other pins.
    ///
    /// # Errors
    /// [`Error::BadPin`] and [`Error::TooMany`] (a placement group that there is not).
    pub(crate) fn with_pins(mut self, pins: Pins) -> Result<Self, Error> {
        assert_eq!(pins.seats.len(), pins.pgs.len() * self.shape.width(), "a list for each pinned group");
        let domains = Domains::new(self.shape.conflict, &self.drives);
        self.pins = pins;
        for (pg, seats) in self.pins() {
            check_max("placement groups", pg.index() + 1, PgId(self.shape.pgs).index())?;
            let holds = |index: DriveIndex| self.drive(index).state != DriveState::Out;
            let conflicts = |place: usize| seats[..place].iter().any(|other| domains.is_same(*other, seats[place]));
            if !seats.iter().all(|index| holds(*index)) || (1..seats.len()).any(conflicts) {
                return Err(Error::BadPin(pg));
            }
        }
        Ok(self)
    }
}

fn check_drives(drives: &[Drive]) -> Result<(), Error> {
    if let Some(pair) = drives.windows(2).find(|pair| pair[0].id == pair[1].id) {
        return Err(Error::DuplicateDrive(pair[0].id));
    }
    if let Some(drive) = drives.iter().find(|drive| drive.weight.0 == 0) {
        return Err(Error::ZeroWeight(drive.id));
    }
    let mut servers: Vec<_> = drives.iter().map(|drive| (drive.server, drive.rack)).collect();
    let mut racks: Vec<_> = drives.iter().map(|drive| (drive.rack, drive.zone)).collect();
    if let Some(server) = find_split(&mut servers) {
        return Err(Error::SplitServer(server));
    }
    find_split(&mut racks).map_or(Ok(()), |rack| Err(Error::SplitRack(rack)))
}

/// The first that stands in two places.
fn find_split<T: Ord + Copy, P: Ord + Copy>(places: &mut Vec<(T, P)>) -> Option<T> {
    places.sort_unstable();
    places.dedup();
    places.windows(2).find(|pair| pair[0].0 == pair[1].0).map(|pair| pair[0].0)
}

#[cfg(test)]
mod tests;
