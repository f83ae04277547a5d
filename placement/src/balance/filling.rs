//! The work of [`super::balance`]: who holds which seat, how full each drive is, and the steps that change it.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::TOLERANCE;
use crate::choose::{Chooser, Due};
use crate::error::Error;
use crate::map::{DriveIndex, DriveState, Map, PgId};

/// The number of a seat among all seats of all placement groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seat(u32);

impl Seat {
    fn new(place: usize) -> Self {
        Self(u32::try_from(place).expect("a table has at most 2^22 seats"))
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a drive is due, and how far from it the drive may be.
#[derive(Debug, Clone, Copy)]
struct Band {
    due: u64,
    least: u32,
    most: u32,
}

impl Band {
    fn new(due: Due) -> Self {
        let whole = |units: u64| u32::try_from(units / Due::ONE).expect("at most one seat of 2^20 placement groups");
        let up = |units: u64| whole(units + Due::ONE - 1);
        let slack = due.0 / TOLERANCE;
        // At the nearest whole numbers where the tolerance is less than one seat.
        let least = up(due.0 - slack).min(whole(due.0));
        let most = whole(due.0 + slack).max(up(due.0));
        Self { due: due.0.max(1), least, most }
    }

    /// How full a drive with so many seats is, in units that compare between drives.
    const fn level(&self, seats: u32) -> u64 {
        // At most 2^20 seats: no overflow.
        ((seats as u64) << 40) / self.due
    }
}

/// Which seats a drive may take from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// Those whose data moves anyway.
    Moving,
    /// Those of a drive that has too much.
    FromRich,
    Any,
}

pub(super) struct Filling<'a> {
    map: &'a Map,
    chooser: &'a Chooser,
    width: usize,
    /// Who was drawn for each seat.
    drawn: &'a [DriveIndex],
    /// Who holds each seat's data now.
    held: Vec<DriveIndex>,
    /// Who shall hold it.
    seats: Vec<DriveIndex>,
    /// By drive: its seats in `seats`, in no order.
    seats_of: Vec<Vec<Seat>>,
    /// By drive: how many of these it does not hold yet.
    moving: Vec<u32>,
    bands: Vec<Band>,
    /// Every drive that is not out, by how full it is.
    levels: BTreeSet<(u64, DriveIndex)>,
}

impl<'a> Filling<'a> {
    pub(super) fn new(map: &'a Map, chooser: &'a Chooser, drawn: &'a [DriveIndex], held: Vec<DriveIndex>) -> Self {
        let drives = map.drives().len();
        let shape = chooser.shape();
        let mut seats_of = vec![Vec::new(); drives];
        for (place, drive) in held.iter().enumerate().filter(|(_, drive)| **drive != DriveIndex::VACANT) {
            seats_of[drive.get()].push(Seat::new(place));
        }
        let mut filling = Self {
            map,
            chooser,
            width: shape.width(),
            drawn,
            seats: held.clone(),
            held,
            seats_of,
            moving: vec![0; drives],
            bands: chooser.parts().iter().map(|part| Band::new(Due::new(shape, *part))).collect(),
            levels: BTreeSet::new(),
        };
        let holding = (0..drives).map(DriveIndex::new).filter(|drive| map.drive(*drive).state != DriveState::Out);
        filling.levels = holding.map(|drive| (filling.level(drive), drive)).collect();
        filling
    }

    pub(super) fn into_seats(self) -> Vec<DriveIndex> {
        self.seats
    }

    fn count(&self, drive: DriveIndex) -> u32 {
        u32::try_from(self.seats_of[drive.get()].len()).expect("a table has at most 2^22 seats")
    }

    fn band(&self, drive: DriveIndex) -> &Band {
        &self.bands[drive.get()]
    }

    fn level(&self, drive: DriveIndex) -> u64 {
        self.band(drive).level(self.count(drive))
    }

    /// How full the drive would be with one more seat.
    fn level_with_one(&self, drive: DriveIndex) -> u64 {
        self.band(drive).level(self.count(drive) + 1)
    }

    fn is_moving(&self, seat: Seat) -> bool {
        self.seats[seat.index()] != self.held[seat.index()]
    }

    fn pg(&self, seat: Seat) -> PgId {
        // At most 32 seats.
        PgId(seat.0 / self.width as u32)
    }

    /// Whether the drive may have the seat as far as it and the other seats of the placement group are concerned.
    fn may_take(&self, drive: DriveIndex, seat: Seat) -> bool {
        let place = seat.index();
        let may_receive = match self.map.drive(drive).state {
            DriveState::In => true,
            DriveState::Full => self.held[place] == drive,
            DriveState::Out => false,
        };
        let first = place - place % self.width;
        let domains = self.chooser.domains();
        let conflicts = |other: usize| {
            let holder = self.seats[other];
            other != place && holder != DriveIndex::VACANT && domains.is_same(holder, drive)
        };
        may_receive && self.seats[place] != drive && !(first..first + self.width).any(conflicts)
    }

    fn give(&mut self, seat: Seat, to: DriveIndex) {
        let from = self.seats[seat.index()];
        for drive in [from, to].into_iter().filter(|drive| *drive != DriveIndex::VACANT) {
            self.levels.remove(&(self.level(drive), drive));
        }
        if from != DriveIndex::VACANT {
            let seats = &mut self.seats_of[from.get()];
            let place = seats.iter().position(|held| *held == seat).expect("a drive knows its seats");
            seats.swap_remove(place);
            self.moving[from.get()] -= u32::from(self.held[seat.index()] != from);
            self.levels.insert((self.level(from), from));
        }
        self.seats[seat.index()] = to;
        self.seats_of[to.get()].push(seat);
        self.moving[to.get()] += u32::from(self.held[seat.index()] != to);
        self.levels.insert((self.level(to), to));
    }

    /// Step 2: every vacant seat gets a drive.
    pub(super) fn fill_vacant(&mut self) -> Result<(), Error> {
        for place in 0..self.seats.len() {
            if self.seats[place] == DriveIndex::VACANT {
                let seat = Seat::new(place);
                let drive = self.choose_for(seat).ok_or(Error::NoRoom(self.pg(seat)))?;
                self.give(seat, drive);
            }
        }
        Ok(())
    }

    fn choose_for(&self, seat: Seat) -> Option<DriveIndex> {
        let has_room = |drive: DriveIndex| self.count(drive) < self.band(drive).most && self.may_take(drive, seat);
        let drawn = self.drawn[seat.index()];
        if has_room(drawn) {
            return Some(drawn);
        }
        let next_in_rank = || self.chooser.choose_seat(self.pg(seat), seat.index() % self.width, has_room);
        let emptiest = || self.levels.iter().map(|(_, drive)| *drive).find(|drive| self.may_take(*drive, seat));
        next_in_rank().or_else(emptiest)
    }

    /// Step 3: drives that have too little take seats, the emptiest first.
    pub(super) fn raise_poor(&mut self) {
        let poor: Vec<DriveIndex> =
            self.levels.iter().map(|(_, drive)| *drive).filter(|drive| self.is_poor(*drive)).collect();
        for take in [Take::Moving, Take::FromRich] {
            for &drive in &poor {
                while self.is_poor(drive) && self.take_one(drive, take) {}
            }
        }
        let drawn = self.drawn_elsewhere(&poor);
        for (&drive, drawn) in poor.iter().zip(drawn) {
            self.take_drawn(drive, drawn);
            while self.is_poor(drive) && self.take_one(drive, Take::Any) {}
        }
    }

    fn is_poor(&self, drive: DriveIndex) -> bool {
        self.map.drive(drive).state == DriveState::In && self.count(drive) < self.band(drive).least
    }

    /// Takes seats that were drawn for a drive, the fullest holders' first, while it has too little.
    fn take_drawn(&mut self, drive: DriveIndex, mut drawn: Vec<Seat>) {
        drawn.sort_unstable_by_key(|seat| (core::cmp::Reverse(self.level(self.seats[seat.index()])), *seat));
        for seat in drawn {
            let holder = self.seats[seat.index()];
            let can_give = self.count(holder) > self.band(holder).least;
            if self.is_poor(drive) && can_give && self.may_take(drive, seat) {
                self.give(seat, drive);
            }
        }
    }

    /// For each of these drives, the seats that were drawn for it and that others have.
    fn drawn_elsewhere(&self, drives: &[DriveIndex]) -> Vec<Vec<Seat>> {
        let mut places = vec![None; self.map.drives().len()];
        drives.iter().enumerate().for_each(|(place, drive)| places[drive.get()] = Some(place));
        let mut elsewhere = vec![Vec::new(); drives.len()];
        for (place, (drawn, holder)) in self.drawn.iter().zip(&self.seats).enumerate() {
            if let Some(drive) = places[drawn.get()].filter(|_| drawn != holder) {
                elsewhere[drive].push(Seat::new(place));
            }
        }
        elsewhere
    }

    /// One seat for a drive, from the fullest drive that can spare one. Says whether there was one.
    fn take_one(&mut self, drive: DriveIndex, take: Take) -> bool {
        let level = self.level_with_one(drive);
        let can_give = |from: DriveIndex| match take {
            Take::Moving => self.count(from) > self.band(from).least && self.moving[from.get()] > 0,
            Take::FromRich => self.count(from) > self.band(from).most,
            Take::Any => self.count(from) > self.band(from).least,
        };
        let fuller = self.levels.iter().rev().take_while(|(other, _)| *other > level).map(|(_, from)| *from);
        let found = fuller.filter(|from| can_give(*from)).find_map(|from| self.best_seat(from, drive, take));
        found.inspect(|seat| self.give(*seat, drive)).is_some()
    }

    /// Of the seats that one drive has, the one that another takes with the least harm: moving anyway, then drawn for the
    /// taker, then not as drawn already, then the one at which the taker arrives first.
    fn best_seat(&self, from: DriveIndex, to: DriveIndex, take: Take) -> Option<Seat> {
        let seats = self.seats_of[from.get()].iter().copied();
        let takable = seats.filter(|seat| (take != Take::Moving || self.is_moving(*seat)) && self.may_take(to, *seat));
        takable.min_by_key(|seat| {
            let drawn = self.drawn[seat.index()];
            let number = self.chooser.number(self.pg(*seat), seat.index() % self.width, to);
            (!self.is_moving(*seat), drawn != to, drawn == from, number, *seat)
        })
    }

    /// Step 4: drives that have too much give seats, the fullest first.
    pub(super) fn lower_rich(&mut self) {
        let rich: Vec<DriveIndex> = self.levels.iter().rev().map(|(_, drive)| *drive).collect();
        for drive in rich {
            while self.count(drive) > self.band(drive).most && self.give_one(drive) {}
        }
    }

    /// One seat of a drive for another one that is emptier. Says whether there was one.
    fn give_one(&mut self, drive: DriveIndex) -> bool {
        let found = self.seat_drawn_elsewhere(drive).or_else(|| {
            let level = self.level(drive);
            let emptier = self.levels.iter().map(|(_, to)| *to).filter(|to| self.level_with_one(*to) < level);
            emptier.into_iter().find_map(|to| self.best_seat(drive, to, Take::Any).map(|seat| (seat, to)))
        });
        found.inspect(|(seat, to)| self.give(*seat, *to)).is_some()
    }

    /// A seat that was drawn for another drive which has room, preferably one that moves anyway.
    fn seat_drawn_elsewhere(&self, drive: DriveIndex) -> Option<(Seat, DriveIndex)> {
        let seats = self.seats_of[drive.get()].iter().map(|seat| (*seat, self.drawn[seat.index()]));
        let takable = seats.filter(|(seat, to)| self.count(*to) < self.band(*to).most && self.may_take(*to, *seat));
        takable.min_by_key(|(seat, to)| (!self.is_moving(*seat), self.level(*to), *seat))
    }
}
