//! From one map to the next: even filling and few moves, as a pure function.
//!
//! Drawing alone fills drives unevenly: with 300 seats a drive, one in three is off by more than 6 %. And it moves a
//! little more than it must when the map changes. [`balance`] repairs both by pinning placement groups: it starts from
//! what each seat holds under the previous map and changes as few seats as it can so that every drive is within one part
//! in a hundred of what it is due (or at the nearest whole number). Whatever then differs from the draw is pinned.
//!
//! In order:
//! 1. A seat keeps its drive, unless that drive is out or now conflicts. What is left are vacant seats: these must move.
//! 2. A vacant seat takes its drawn drive, unless that one has enough; then the next in rank that has not.
//! 3. A drive that has too little takes seats: first those that have just been filled, whose data moves anyway; then
//!    those that were drawn for it; then any, from the fullest.
//! 4. A drive that still has too much gives seats: to drives that they were drawn for, or to the emptiest.
//!
//! A fresh map is a previous map in which every seat was vacant. Everything is decided by integers and in a fixed order,
//! so every server computes the same pins, though only one needs to: the pins are part of the map.
//!
//! Follows Ceph's `upmap` balancer in listing exceptions to a computed placement. Departs from it in taking the previous
//! placement as the start, not the drawn one; in choosing where data that must move goes so that it repairs what is
//! uneven; and in working in one bounded pass.
//!
//! Not here: when to move, and how fast. That is [`crate::plan`] and its user.

use alloc::vec;
use alloc::vec::Vec;

use crate::choose::{Chooser, PgTable};
use crate::error::Error;
use crate::map::{DriveIndex, DriveState, Map, PgId, Pins};

mod filling;

use filling::Filling;

/// A drive is left alone while its seats are within one part in this many of what it is due.
pub const TOLERANCE: u64 = 100;

/// The map `next`, pinned so that drives are filled by weight and as little as possible moves away from `previous`, and
/// its table. Pins that `next` has are forgotten. Without a previous table nothing holds data yet.
///
/// The shape may change in its seats (data moves for added ones only) and in its conflict rule (data moves where the new
/// rule is broken), not in its number of placement groups. Drives that are full are given nothing that they do not have.
///
/// # Errors
/// The caller's: [`Error::OtherSet`], [`Error::OtherPgs`], [`Error::StaleEpoch`] when `next` does not follow `previous`;
/// [`Error::NoRoom`] when only full drives could take a seat. No retry helps.
pub fn balance(previous: Option<&PgTable>, next: Map) -> Result<PgTable, Error> {
    let chooser = Chooser::new(&next);
    let held = match previous {
        None => vec![DriveIndex::VACANT; next.shape().table_len()],
        Some(previous) => {
            check_succession(previous.map(), &next)?;
            held_seats(previous, &next, &chooser)
        }
    };
    let drawn = chooser.choose_all();
    let mut filling = Filling::new(&next, &chooser, &drawn, held);
    filling.fill_vacant()?;
    filling.raise_poor();
    filling.lower_rich();
    let seats = filling.into_seats();
    let width = next.shape().width();
    let mut pins = Pins::default();
    for (pg, (seats, drawn)) in (0..).zip(seats.chunks_exact(width).zip(drawn.chunks_exact(width))) {
        if seats != drawn {
            pins.push(PgId(pg), seats);
        }
    }
    let map = next.with_pins(pins).expect("no step puts two seats in one domain or takes a drive that is out");
    Ok(PgTable::known(map, seats))
}

fn check_succession(previous: &Map, next: &Map) -> Result<(), Error> {
    if previous.set() != next.set() {
        return Err(Error::OtherSet { expected: previous.set(), given: next.set() });
    }
    if previous.shape().pgs != next.shape().pgs {
        return Err(Error::OtherPgs);
    }
    if previous.epoch() >= next.epoch() { Err(Error::StaleEpoch) } else { Ok(()) }
}

/// Which seats keep their drive, as places in `next`; the others are vacant.
fn held_seats(previous: &PgTable, next: &Map, chooser: &Chooser) -> Vec<DriveIndex> {
    let places: Vec<DriveIndex> = previous.map().drives().iter().map(|drive| place_in(next, drive.id)).collect();
    let width = next.shape().width();
    let mut held = vec![DriveIndex::VACANT; next.shape().table_len()];
    for (pg, held) in (0..).zip(held.chunks_exact_mut(width)) {
        for (seat, before) in previous.seats(PgId(pg)).iter().enumerate().take(width) {
            let drive = places[before.get()];
            let conflicts =
                |other: &DriveIndex| *other != DriveIndex::VACANT && chooser.domains().is_same(*other, drive);
            if drive != DriveIndex::VACANT && !held.iter().any(conflicts) {
                held[seat] = drive;
            }
        }
    }
    held
}

fn place_in(map: &Map, id: ashlar_wire::id::DriveId) -> DriveIndex {
    let holds = |index: &DriveIndex| map.drive(*index).state != DriveState::Out;
    map.find(id).filter(holds).unwrap_or(DriveIndex::VACANT)
}

#[cfg(test)]
mod tests;
