//! Golden placements; draws by weight; the conflict rule.

use arbtest::arbtest;

use super::*;
use crate::domains::Conflict;
use crate::map::Weight;
use crate::sample::{any_map, any_shape, check_rule, drive, drives, ids, map, moved, shape};

/// Where data lives must never change between versions: if this fails, every cluster's data would move.
#[test]
fn golden_placements() {
    let mut all = drives(60, 3);
    // 20 servers, 4 racks.
    all.iter_mut().step_by(4).for_each(|drive| drive.weight = Weight(12_000));
    let by = |conflict, seats| PgTable::new(map(1, shape(1_000, seats, conflict), &all));
    let places = |table: &PgTable, pg| table.seats(PgId(pg)).iter().map(|index| index.get()).collect::<Vec<_>>();
    let table = by(Conflict::Server, 3);
    let golden: [(u32, &[usize]); 5] =
        [(0, &[23, 9, 57]), (1, &[3, 7, 49]), (2, &[15, 7, 37]), (500, &[43, 11, 59]), (999, &[51, 38, 56])];
    for (pg, seats) in golden {
        assert_eq!(places(&table, pg), seats, "{pg}");
    }
    assert_eq!(places(&by(Conflict::Rack, 4), 77), [4, 28, 32, 47]);
    assert_eq!(places(&by(Conflict::Drive, 6), 77), [4, 28, 32, 0, 34, 12]);
    let fold = |table: &PgTable| {
        let seats = (0..1_000).flat_map(|pg| places(table, pg));
        seats.fold(0_u64, |sum, place| mix(sum ^ place as u64))
    };
    assert_eq!(fold(&table), 0x7163_52ff_844f_0648);
    let balanced = crate::balance::balance(None, table.map().clone()).unwrap();
    assert_eq!(fold(&balanced), 0x9937_ee83_7426_ff64, "pins too");
}

/// Two kinds of servers, one with three times as many drives, so that rates and parts differ.
#[test]
fn drives_win_in_proportion_to_their_weight() {
    let mut all: Vec<Drive> = (0..40).map(|number| drive(number, 1, 1_000)).collect();
    for (place, drive) in all.iter_mut().enumerate() {
        let server = if place < 10 { place } else { 10 + (place - 10) / 3 };
        drive.server = ashlar_wire::id::ServerId::from_bytes(crate::sample::id(u32::try_from(server).unwrap()));
        (drive.rack, drive.zone) = Default::default();
    }
    let table = PgTable::new(map(1, shape(40_000, 3, Conflict::Server), &all));
    let fill = table.fill();
    let seats = |fill: &[Fill]| fill.iter().map(|fill| u64::from(fill.seats)).sum::<u64>();
    let due = |fill: &[Fill]| fill.iter().map(|fill| fill.due.0 / Due::ONE).sum::<u64>();
    // 30,000 and 90,000 are due; by chance they are off by 200 or so. Without the logarithm of parts it would be 1,600.
    assert!(due(&fill[..10]).abs_diff(30_000) < 20);
    assert!(seats(&fill[..10]).abs_diff(30_000) < 600, "{}", seats(&fill[..10]));
    for fill in &fill {
        // 3,000 each, with a standard deviation of 53.
        assert!(u64::from(fill.seats).abs_diff(3_000) < 270, "{fill:?}");
    }
}

#[test]
fn sets_draw_apart() {
    let map_of = |set| Map::new(SetId(set), Epoch(1), shape(1_000, 1, Conflict::Drive), drives(100, 10)).unwrap();
    let (one, two) = (PgTable::new(map_of(1)), PgTable::new(map_of(2)));
    let same = (0..1_000).filter(|pg| ids(&one, *pg) == ids(&two, *pg)).count();
    assert!(same < 40, "{same} of 1,000 by chance 10");
}

/// Even without balance: a seat changes because its drive has left, or because the new drive of a lower seat has come
/// into its domain.
#[test]
fn a_drive_that_leaves_takes_nobody_with_it() {
    let mut all = drives(500, 10);
    let shape = shape(20_000, 3, Conflict::Server);
    let before = PgTable::new(map(1, shape, &all));
    let gone = all.remove(123).id;
    let after = PgTable::new(map(2, shape, &all));
    let (moves, own) = moved(&before, &after, |old, _| old == gone);
    assert!(own > 80 && moves <= own + own / 4, "{moves} moves for {own} seats");
}

#[test]
fn one_placement_group_is_chosen_as_in_the_table() {
    let map = map(1, shape(500, 3, Conflict::Rack), &drives(60, 2));
    let table = crate::balance::balance(None, map).unwrap();
    assert!(table.map().pins().len() > 0);
    for pg in (0..500).map(PgId) {
        assert_eq!(choose_drives(table.map(), pg), table.seats(pg));
    }
}

#[test]
#[should_panic(expected = "numbered from 0")]
fn there_is_no_placement_group_behind_the_last() {
    let _ = choose_drives(&map(1, shape(5, 1, Conflict::Drive), &drives(1, 1)), PgId(5));
}

/// No two seats in one domain, ever.
#[test]
fn any_map_holds_the_rule() {
    let mut maps = 0;
    arbtest(|u| {
        let shape = any_shape(u)?;
        if let Ok(map) = any_map(u, 1, shape)? {
            maps += 1;
            check_rule(&PgTable::new(map));
        }
        Ok(())
    });
    assert!(maps > 100, "{maps} maps only");
}
