//! Plans are minimal, safe at every step, and the same in pieces.

use alloc::collections::BTreeMap;
use alloc::vec;

use arbtest::arbitrary::{Result as AnyResult, Unstructured};
use arbtest::arbtest;
use ashlar_wire::epoch::Epoch;

use super::*;
use crate::balance::balance;
use crate::domains::Conflict;
use crate::map::{Map, SetId};
use crate::sample::{any_map, any_shape, changed, drive, drives, id, ids, map, shape};

fn all_moves(from: &PgTable, to: &PgTable, holding: Holding) -> Vec<Move> {
    let all = plan_moves(from, to, holding, Cursor::default(), usize::MAX).unwrap();
    assert_eq!(all.next, None);
    all.moves
}

/// Makes the moves of one placement group one by one, and checks what must hold on the way.
fn check_group(from: &PgTable, to: &PgTable, pg: u32, holding: Holding, moves: &[Move]) {
    let find = |id: &DriveId| {
        let in_map = |table: &PgTable| table.map().find(*id).map(|index| *table.map().drive(index));
        in_map(to).or_else(|| in_map(from)).unwrap()
    };
    let conflict = to.map().shape().conflict;
    let conflicts = |holders: &[DriveId]| {
        let pair =
            |place: usize| holders[..place].iter().any(|one| conflict.is_between(&find(one), &find(&holders[place])));
        (0..holders.len()).filter(|place| pair(*place)).count()
    };
    let (old, new) = (ids(from, pg), ids(to, pg));
    let least = old.len().min(new.len());
    let allowed = conflicts(&old);
    let mut holders = old.clone();
    let (apart, together): (Vec<Move>, Vec<Move>) = moves.iter().partition(|one| !one.together);
    for one in &apart {
        // Filled before the old one goes: from here on, one holder more than before.
        holders.extend(one.to);
        holders.retain(|holder| Some(*holder) != one.from);
        assert!(holders.len() >= least && conflicts(&holders) <= allowed, "{one:?} of {moves:?}");
    }
    // All that go together are filled first: until then the old holders are whole, and they are without conflict.
    assert!(together.len() != 1 || allowed > 0, "one alone waits for nobody");
    let mut left: Vec<DriveId> =
        holders.into_iter().filter(|id| together.iter().all(|one| one.from != Some(*id))).collect();
    left.extend(together.iter().filter_map(|one| one.to));
    let mut expected = new.clone();
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected, "the plan leads where it should");
    check_seats(&old, &new, holding, moves);
}

/// As few moves as there can be, each with the seat that the new list gives.
fn check_seats(old: &[DriveId], new: &[DriveId], holding: Holding, moves: &[Move]) {
    let coming = moves.iter().filter_map(|one| one.to.map(|to| (one.seat, to)));
    let count = match holding {
        Holding::Copies => new.iter().filter(|id| !old.contains(id)).count(),
        Holding::Shards => new.iter().enumerate().filter(|(seat, id)| old.get(*seat) != Some(id)).count(),
    };
    assert_eq!(coming.clone().count(), count, "no more data moves than must");
    assert!(coming.clone().all(|(seat, to)| new[usize::from(seat)] == to));
    if holding == Holding::Copies {
        assert!(moves.iter().all(|one| !one.together), "copies never wait in a circle");
    }
}

fn check(from: &PgTable, to: &PgTable, holding: Holding) {
    let moves = all_moves(from, to, holding);
    assert!(moves.windows(2).all(|pair| pair[0].pg <= pair[1].pg));
    let mut groups: BTreeMap<u32, Vec<Move>> = BTreeMap::new();
    moves.iter().for_each(|one| groups.entry(one.pg.0).or_default().push(*one));
    for pg in 0..to.map().shape().pgs {
        check_group(from, to, pg, holding, groups.get(&pg).map_or(&[], Vec::as_slice));
    }
    for moves_max in [1, 2, 7] {
        let (mut pieces, mut cursor) = (Vec::new(), Some(Cursor::default()));
        while let Some(at) = cursor {
            let piece = plan_moves(from, to, holding, at, moves_max).unwrap();
            assert!(piece.moves.len() <= moves_max);
            pieces.extend(piece.moves);
            cursor = piece.next;
        }
        assert_eq!(pieces, moves, "in pieces of {moves_max}");
    }
}

#[test]
fn a_drive_that_leaves_is_replaced_seat_by_seat() {
    let shape = shape(500, 3, Conflict::Server);
    let mut all = drives(30, 3);
    let before = balance(None, map(1, shape, &all)).unwrap();
    let gone = all.remove(4).id;
    let after = balance(Some(&before), map(2, shape, &all)).unwrap();
    for holding in [Holding::Copies, Holding::Shards] {
        check(&before, &after, holding);
        let moves = all_moves(&before, &after, holding);
        assert!(!moves.is_empty() && moves.iter().all(|one| one.from == Some(gone) && !one.together));
        assert!(all_moves(&after, &after, holding).is_empty());
    }
}

/// A table whose only placement group has these drives.
fn table_of(drives: &[Drive], seats: &[u32]) -> PgTable {
    let shape = shape(1, u8::try_from(seats.len()).unwrap(), Conflict::Server);
    let map = map(1, shape, drives);
    let seats = seats.iter().map(|number| map.find(DriveId::from_bytes(id(*number))).unwrap()).collect();
    PgTable::known(map, seats)
}

#[test]
fn moves_wait_for_each_other() {
    // Servers: 0 and 1, 2 and 3, 4 and 5, 6 and 7.
    let drives: Vec<Drive> = (0..8).map(|number| drive(number, 2, 1)).collect();
    let plan = |from: &[u32], to: &[u32], holding| {
        let (from, to) = (table_of(&drives, from), table_of(&drives, to));
        check(&from, &to, holding);
        let number = |id: Option<DriveId>| id.map(|id| id.as_bytes()[15]);
        let moves = all_moves(&from, &to, holding);
        moves.into_iter().map(|one| (one.seat, number(one.from), number(one.to), one.together)).collect::<Vec<_>>()
    };
    let one = |seat, from, to, together| (seat, Some(from), Some(to), together);
    use Holding::{Copies, Shards};
    // Seat 0 may come to the server of 2 only when 2 has left it.
    assert_eq!(plan(&[0, 2], &[3, 4], Shards), [one(1, 2, 4, false), one(0, 0, 3, false)]);
    // Copies are paired so that nobody waits.
    assert_eq!(plan(&[0, 2], &[3, 4], Copies), [one(0, 2, 3, false), one(1, 0, 4, false)]);
    // Two seats that change places: nothing for copies, a circle for shards.
    assert_eq!(plan(&[0, 2], &[2, 0], Copies), []);
    assert_eq!(plan(&[0, 2], &[2, 0], Shards), [one(0, 0, 2, true), one(1, 2, 0, true)]);
    assert_eq!(plan(&[0, 2, 4], &[3, 1, 7], Shards), [one(2, 4, 7, false), one(0, 0, 3, true), one(1, 2, 1, true)]);
    // More seats, and fewer.
    assert_eq!(plan(&[0, 2], &[0, 2, 4], Shards), [(2, None, Some(4), false)]);
    assert_eq!(plan(&[0, 2, 4], &[0, 6], Copies), [one(1, 2, 6, false), (2, Some(4), None, false)]);
}

#[test]
fn plans_are_between_tables_of_one_set() {
    let of =
        |set, pgs| PgTable::new(Map::new(SetId(set), Epoch(1), shape(pgs, 1, Conflict::Drive), drives(2, 1)).unwrap());
    let plan = |from: &PgTable, to: &PgTable| plan_moves(from, to, Holding::Copies, Cursor::default(), 1).err();
    let other = Error::OtherSet { expected: SetId(1), given: SetId(2) };
    assert_eq!(plan(&of(1, 5), &of(2, 5)), Some(other));
    assert_eq!(plan(&of(1, 5), &of(1, 6)), Some(Error::OtherPgs));
}

/// Two tables of one set: balanced after a change, or with hardly anything in common.
fn any_tables(u: &mut Unstructured<'_>) -> AnyResult<Option<(PgTable, PgTable)>> {
    let shape = any_shape(u)?;
    let Ok(first) = any_map(u, 1, shape)? else { return Ok(None) };
    let drives = changed(u, first.drives())?;
    let Ok(second) = Map::new(first.set(), Epoch(2), shape, drives) else { return Ok(None) };
    let from = PgTable::new(first);
    let to = if u.arbitrary()? { balance(Some(&from), second).ok() } else { Some(PgTable::new(second)) };
    Ok(to.map(|to| (from, to)))
}

#[test]
fn any_plan_is_safe() {
    arbtest(|u| {
        if let Some((from, to)) = any_tables(u)? {
            check(&from, &to, Holding::Copies);
            check(&from, &to, Holding::Shards);
        }
        Ok(())
    });
}

#[test]
fn any_shuffled_group_is_safe() {
    arbtest(|u| {
        let drives: Vec<Drive> = (0..12).map(|number| drive(number, 2, 1)).collect();
        let any_list = |u: &mut Unstructured<'_>| -> AnyResult<Vec<u32>> {
            let mut servers: Vec<u32> = (0..6).collect();
            let mut list = vec![];
            for _ in 0..4 {
                let server = servers.swap_remove(u.int_in_range(0..=servers.len() - 1)?);
                list.push(server * 2 + u.int_in_range(0..=1)?);
            }
            Ok(list)
        };
        let (from, to) = (table_of(&drives, &any_list(u)?), table_of(&drives, &any_list(u)?));
        check(&from, &to, Holding::Copies);
        check(&from, &to, Holding::Shards);
        Ok(())
    });
}
