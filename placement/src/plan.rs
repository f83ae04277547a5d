//! The moves that lead from one table to the next: as few as there can be, in an order that is safe at every step.
//!
//! A move first fills the new drive and only then lets the old one go, so a placement group never has fewer holders than
//! seats. The old holders stand in distinct conflict domains, and so do the new ones; on the way, a move that would bring
//! a seat into the domain of another seat's drive waits for that one to leave. Where moves wait for each other in a
//! circle they are made *together*: all new drives are filled before any old one is let go, so that the old holders stay
//! a whole set without conflict until the new ones are.
//!
//! What two seats hold makes a difference. Copies of an extent are alike, so a drive that is in both lists need not move
//! whatever its seats are. Shards of an object differ, so a drive in another seat has other data.
//!
//! Not here: throttling, retries, and whether a move is still wanted. A plan is recomputed from the tables; a cursor into
//! it is a place, not a promise.

use alloc::vec::Vec;

use ashlar_wire::id::DriveId;

use crate::choose::PgTable;
use crate::error::Error;
use crate::map::{Drive, PgId};

/// What the seats of a placement group hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// The same, as copies of extents are.
    Copies,
    /// Each its own, as shards of objects are.
    Shards,
}

/// One step of a plan: fill `to`, then let `from` go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// The placement group.
    pub pg: PgId,
    /// The seat. Of copies: the seat that `to` has afterwards, or for a seat that goes away the one that `from` had.
    pub seat: u8,
    /// Who holds it; none for a seat that is new.
    pub from: Option<DriveId>,
    /// Who shall hold it; none for a seat that goes away.
    pub to: Option<DriveId>,
    /// Whether `from` may go only when all moves of this placement group that say so have filled their `to`.
    pub together: bool,
}

/// Where a plan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    pg: u32,
    /// Moves of that placement group that have been given out.
    given: u8,
}

/// Some moves of a plan, and where the others begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// At most as many as were asked for, placement group by placement group; within each, in the order to make them.
    pub moves: Vec<Move>,
    /// Where the plan goes on; none at its end.
    pub next: Option<Cursor>,
}

/// The moves from one table to another, at most `moves_max` of them (at least 1), from `cursor` on; `Cursor::default()`
/// is the beginning. A cursor is good for the two tables that it came from.
///
/// # Errors
/// The caller's: the tables are of different sets, or cut differently.
pub fn plan_moves(
    from: &PgTable,
    to: &PgTable,
    holding: Holding,
    cursor: Cursor,
    moves_max: usize,
) -> Result<Moves, Error> {
    if from.set() != to.set() {
        return Err(Error::OtherSet { expected: from.set(), given: to.set() });
    }
    if from.map().shape().pgs != to.map().shape().pgs {
        return Err(Error::OtherPgs);
    }
    let moves_max = moves_max.max(1);
    let mut moves = Vec::new();
    for pg in cursor.pg..to.map().shape().pgs {
        let skip = if pg == cursor.pg { usize::from(cursor.given) } else { 0 };
        let of_pg = Group::new(from, to, PgId(pg), holding).plan();
        for (place, one) in of_pg.into_iter().enumerate().skip(skip) {
            if moves.len() == moves_max {
                let given = u8::try_from(place).expect("a placement group has at most 64 moves");
                return Ok(Moves { moves, next: Some(Cursor { pg, given }) });
            }
            moves.push(one);
        }
    }
    Ok(Moves { moves, next: None })
}

/// One seat's change.
#[derive(Debug, Clone, Copy)]
struct Change<'a> {
    seat: usize,
    from: Option<&'a Drive>,
    to: Option<&'a Drive>,
}

/// One placement group on its way.
struct Group<'a> {
    pg: PgId,
    /// The table whose conflict rule holds.
    to: &'a PgTable,
    /// Who holds a seat, as the moves so far leave it.
    holders: Vec<&'a Drive>,
    /// What has not been planned yet.
    changes: Vec<Change<'a>>,
}

impl<'a> Group<'a> {
    fn new(from: &'a PgTable, to: &'a PgTable, pg: PgId, holding: Holding) -> Self {
        let mut group = Self { pg, to, holders: Vec::new(), changes: Vec::new() };
        // Most placement groups are the same; a drive's place may differ from map to map, its id does not.
        let is_same = from.drives(pg).map(|drive| drive.id).eq(to.drives(pg).map(|drive| drive.id));
        if is_same {
            return group;
        }
        // Where an old drive stands, the new map knows better.
        let today = |drive: &'a Drive| to.map().find(drive.id).map_or(drive, |index| to.map().drive(index));
        group.holders = from.drives(pg).map(today).collect();
        let new: Vec<&Drive> = to.drives(pg).collect();
        group.changes = match holding {
            Holding::Shards => shard_changes(&group.holders, &new),
            Holding::Copies => group.copy_changes(&new),
        };
        group
    }

    fn conflicts(&self, one: &Drive, other: &Drive) -> bool {
        self.to.map().shape().conflict.is_between(one, other)
    }

    /// Who goes and who comes, paired: first those of one domain, so that no other pair has to wait; then those of one
    /// seat; then in order.
    fn copy_changes(&self, new: &[&'a Drive]) -> Vec<Change<'a>> {
        let differs = |drive: &Drive, others: &[&Drive]| !others.iter().any(|other| other.id == drive.id);
        let seats = |drives: &[&'a Drive]| drives.iter().copied().enumerate().collect::<Vec<_>>();
        let mut going = seats(&self.holders);
        going.retain(|(_, drive)| differs(drive, new));
        let mut coming = seats(new);
        coming.retain(|(_, drive)| differs(drive, &self.holders));
        let mut changes = Vec::new();
        let by_domain = |(_, goes): &(usize, &Drive), (_, comes): &(usize, &Drive)| self.conflicts(goes, comes);
        pair(&mut going, &mut coming, &mut changes, by_domain);
        pair(&mut going, &mut coming, &mut changes, |(old, _), (new, _)| old == new);
        pair(&mut going, &mut coming, &mut changes, |_, _| true);
        changes.extend(coming.into_iter().map(|(seat, to)| Change { seat, from: None, to: Some(to) }));
        changes.extend(going.into_iter().map(|(seat, from)| Change { seat, from: Some(from), to: None }));
        changes
    }

    fn plan(mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        while !self.changes.is_empty() {
            let ready = self.changes.iter().position(|change| self.is_ready(change));
            let Some(ready) = ready else {
                let rest = core::mem::take(&mut self.changes);
                moves.extend(rest.iter().map(|change| self.one(change, true)));
                break;
            };
            let change = self.changes.remove(ready);
            moves.push(self.one(&change, false));
            if let Some(from) = change.from {
                let place = self.holders.iter().position(|holder| holder.id == from.id);
                self.holders.remove(place.expect("who goes was a holder"));
            }
            self.holders.extend(change.to);
        }
        moves
    }

    /// Whether the change brings its drive into nobody's domain but that of the drive it replaces.
    fn is_ready(&self, change: &Change<'_>) -> bool {
        let Some(to) = change.to else { return true };
        let leaves = |holder: &Drive| change.from.is_some_and(|from| from.id == holder.id);
        !self.holders.iter().any(|holder| !leaves(holder) && self.conflicts(holder, to))
    }

    fn one(&self, change: &Change<'_>, together: bool) -> Move {
        Move {
            pg: self.pg,
            seat: u8::try_from(change.seat).expect("a placement group has at most 32 seats"),
            from: change.from.map(|drive| drive.id),
            to: change.to.map(|drive| drive.id),
            together,
        }
    }
}

/// Every seat whose drive changes.
fn shard_changes<'a>(old: &[&'a Drive], new: &[&'a Drive]) -> Vec<Change<'a>> {
    let seats = 0..old.len().max(new.len());
    let changes = seats.map(|seat| Change { seat, from: old.get(seat).copied(), to: new.get(seat).copied() });
    changes.filter(|change| change.from.map(|drive| drive.id) != change.to.map(|drive| drive.id)).collect()
}

/// Moves pairs that fit out of two lists.
fn pair<'a>(
    going: &mut Vec<(usize, &'a Drive)>,
    coming: &mut Vec<(usize, &'a Drive)>,
    changes: &mut Vec<Change<'a>>,
    fits: impl Fn(&(usize, &'a Drive), &(usize, &'a Drive)) -> bool,
) {
    going.retain(|goes| {
        let Some(place) = coming.iter().position(|comes| fits(goes, comes)) else { return true };
        let (seat, to) = coming.remove(place);
        changes.push(Change { seat, from: Some(goes.1), to: Some(to) });
        false
    });
}

#[cfg(test)]
mod tests;
