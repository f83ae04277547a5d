//! Choosing the drives of a placement group, and the table of all of them.
//!
//! Each seat is drawn on its own: every drive draws a number for (set, placement group, seat), and the first to arrive
//! at its rate takes the seat (`draw.rs`). A drive whose conflict domain already has a lower seat is passed over
//! and the next in rank is taken: the redraw of the conflict rule. Because seats are drawn apart, a drive that leaves
//! changes its own seat and no other, but for the rare seat whose second in rank now conflicts; pins hold even those
//! ([`crate::balance`]). So the shard of an object that is in seat 5 stays in seat 5.
//!
//! Seat 0 is the preferred primary. Whether it serves is for the catalog to say.
//!
//! Follows CRUSH (Weil, 2006) in drawing with redraws from a map that all have, and departs from it in having no
//! hierarchy: drives draw against all others, so a change of weight inside one domain moves nothing between others.

use alloc::vec;
use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;

use crate::domains::{Domains, shares};
use crate::draw::{Arrival, mix, mix_step, name};
use crate::map::{Drive, DriveIndex, DriveState, Map, PgId, SetId, Shape};

/// A drive that is not out, ready to draw.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    name: u64,
    rate: u64,
    index: DriveIndex,
}

/// A map made ready for choosing: a few tens of bytes for each drive. Costs a nanosecond or two for each drive and seat.
#[derive(Debug)]
pub(crate) struct Chooser {
    set: SetId,
    shape: Shape,
    candidates: Vec<Candidate>,
    /// By place in the map, as are `names` and `parts`.
    domains: Domains,
    names: Vec<u64>,
    parts: Vec<u64>,
}

impl Chooser {
    pub(crate) fn new(map: &Map) -> Self {
        let domains = Domains::new(map.shape().conflict, map.drives());
        let shares = shares(map.shape(), map.drives(), &domains);
        let names: Vec<u64> = map.drives().iter().map(|drive| name("drive", drive.id.as_bytes())).collect();
        let holding = map.drives().iter().enumerate().filter(|(_, drive)| drive.state != DriveState::Out);
        let candidates = holding.map(|(place, _)| Candidate {
            name: names[place],
            rate: shares[place].rate,
            index: DriveIndex::new(place),
        });
        Self {
            set: map.set(),
            shape: map.shape(),
            candidates: candidates.collect(),
            domains,
            names,
            parts: shares.iter().map(|share| share.part).collect(),
        }
    }

    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) const fn domains(&self) -> &Domains {
        &self.domains
    }

    /// The part of all placement groups in which each drive shall have a seat, in units of 2^-63, by place in the map.
    pub(crate) fn parts(&self) -> &[u64] {
        &self.parts
    }

    /// Draws the seats of a placement group, pins aside.
    pub(crate) fn choose(&self, pg: PgId, seats: &mut [DriveIndex]) {
        for seat in 0..seats.len() {
            let (taken, rest) = seats.split_at_mut(seat);
            let is_free = |index| !taken.iter().any(|other| self.domains.is_same(*other, index));
            // A map has at least as many domains as seats, so some drive's domain is free.
            rest[0] = self.choose_seat(pg, seat, is_free).expect("there are as many domains as seats");
        }
    }

    /// The first drive to arrive at a seat among those that may take it.
    pub(crate) fn choose_seat(&self, pg: PgId, seat: usize, may: impl Fn(DriveIndex) -> bool) -> Option<DriveIndex> {
        let key = self.seat_key(pg, seat);
        let (mut first, mut chosen) = (Arrival::NEVER, None);
        let mut limit = first.limit();
        for candidate in &self.candidates {
            let x = mix(key ^ candidate.name);
            if limit.admits(x, candidate.rate) && may(candidate.index) {
                let arrival = Arrival::new(x, candidate.rate);
                if arrival.is_before(first) {
                    (first, chosen) = (arrival, Some(candidate.index));
                    limit = first.limit();
                }
            }
        }
        chosen
    }

    /// The number that a drive draws for a seat; of two of its own, it arrives sooner at the seat with the smaller.
    pub(crate) fn number(&self, pg: PgId, seat: usize, index: DriveIndex) -> u64 {
        mix(self.seat_key(pg, seat) ^ self.names[index.get()])
    }

    /// Draws every seat of every placement group, pins aside.
    pub(crate) fn choose_all(&self) -> Vec<DriveIndex> {
        let mut seats = vec![DriveIndex::VACANT; self.shape.table_len()];
        for (pg, seats) in (0..).zip(seats.chunks_exact_mut(self.shape.width())) {
            self.choose(PgId(pg), seats);
        }
        seats
    }

    #[inline]
    fn seat_key(&self, pg: PgId, seat: usize) -> u64 {
        let group = mix_step(u64::from(self.set.0), u64::from(pg.0));
        mix_step(group, seat as u64)
    }
}

/// The drives of one placement group, seat by seat; without a table, at the cost of a microsecond for a thousand drives
/// and seat.
///
/// # Panics
/// When the set has no such placement group.
#[must_use]
pub fn choose_drives(map: &Map, pg: PgId) -> Vec<DriveIndex> {
    assert!(pg.0 < map.shape().pgs, "placement groups are numbered from 0 below their number");
    if let Some(pinned) = map.pin_of(pg) {
        return pinned.to_vec();
    }
    let mut seats = vec![DriveIndex::VACANT; map.shape().width()];
    Chooser::new(map).choose(pg, &mut seats);
    seats
}

/// A map and the drives of all its placement groups, for routes in nanoseconds: two bytes a seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgTable {
    map: Map,
    /// The seats of placement group 0, then those of 1, and so on.
    seats: Vec<DriveIndex>,
}

impl PgTable {
    /// Computes the table of a map. 1,000 drives, 100,000 placement groups and 3 seats take about a second.
    #[must_use]
    pub fn new(map: Map) -> Self {
        let mut seats = Chooser::new(&map).choose_all();
        let width = map.shape().width();
        for (pg, pinned) in map.pins() {
            seats[pg.index() * width..][..width].copy_from_slice(pinned);
        }
        Self { map, seats }
    }

    /// What [`PgTable::new`] would compute, by who knows it already.
    pub(crate) fn known(map: Map, seats: Vec<DriveIndex>) -> Self {
        assert_eq!(seats.len(), map.shape().table_len(), "a drive for each seat");
        Self { map, seats }
    }

    /// The map that the table was computed from.
    #[must_use]
    pub const fn map(&self) -> &Map {
        &self.map
    }

    /// The set.
    #[must_use]
    pub const fn set(&self) -> SetId {
        self.map.set()
    }

    /// The epoch of the map.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.map.epoch()
    }

    /// The drives of a placement group, seat by seat.
    ///
    /// # Panics
    /// When the set has no such placement group.
    #[inline]
    #[must_use]
    pub fn seats(&self, pg: PgId) -> &[DriveIndex] {
        let width = self.map.shape().width();
        &self.seats[pg.index() * width..][..width]
    }

    /// The drives of a placement group, seat by seat: the first is the preferred primary.
    ///
    /// # Panics
    /// When the set has no such placement group.
    #[inline]
    pub fn drives(&self, pg: PgId) -> impl ExactSizeIterator<Item = &Drive> {
        self.seats(pg).iter().map(|index| self.map.drive(*index))
    }

    /// How many seats each drive has and how many it should have, by place in the map.
    #[must_use]
    pub fn fill(&self) -> Vec<Fill> {
        let mut counts = vec![0_u32; self.map.drives().len()];
        self.seats.iter().for_each(|index| counts[index.get()] += 1);
        let parts = Chooser::new(&self.map).parts;
        let fill =
            counts.iter().zip(&parts).map(|(&seats, &part)| Fill { seats, due: Due::new(self.map.shape(), part) });
        fill.collect()
    }
}

/// How full a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Placement groups in which it has a seat.
    pub seats: u32,
    /// Placement groups in which it should have one: its share by weight, as far as the conflict rule allows.
    pub due: Due,
}

/// A number of seats with a fraction, in units of 2^-20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Due(pub u64);

impl Due {
    /// Units of one seat.
    pub const ONE: u64 = 1 << 20;

    /// What a drive is due in this shape, at its part of all placement groups in units of 2^-63.
    pub(crate) fn new(shape: Shape, part: u64) -> Self {
        let due = (u128::from(part) * u128::from(shape.pgs)) >> 43;
        Self(u64::try_from(due).expect("at most one seat of 2^20 placement groups"))
    }
}

#[cfg(test)]
mod tests;
