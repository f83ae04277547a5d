//! Maps from hostile bytes: an error, or a map that is written and read the same, whose placements hold the conflict
//! rule, and from which the next map can be balanced.
#![no_main]

use ashlar_placement::balance::balance;
use ashlar_placement::choose::{PgTable, choose_drives};
use ashlar_placement::map::{DriveState, Map, PgId};

/// More than this is slow and shows nothing new.
const TABLE_MAX: usize = 512;

fn check_rule(table: &PgTable) {
    let shape = table.map().shape();
    for pg in (0..shape.pgs).map(PgId) {
        let drives: Vec<_> = table.drives(pg).collect();
        for (seat, drive) in drives.iter().enumerate() {
            assert_ne!(drive.state, DriveState::Out);
            assert!(!drives[..seat].iter().any(|other| shape.conflict.is_between(other, drive)));
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(map) = Map::decode(bytes) else { return };
    let written = map.encode();
    assert!(written.len() <= bytes.len(), "the written form is the shortest");
    assert_eq!(Map::decode(&written).as_ref(), Ok(&map));

    let shape = map.shape();
    let seats = usize::try_from(shape.pgs).expect("32 bits fit") * shape.width();
    if seats > TABLE_MAX || map.epoch().0 == u64::MAX {
        return;
    }
    let table = PgTable::new(map.clone());
    check_rule(&table);
    for pg in (0..shape.pgs).map(PgId) {
        assert_eq!(choose_drives(&map, pg), table.seats(pg));
    }
    if let Ok(next) = balance(Some(&table), map.with_epoch(map.epoch().next())) {
        check_rule(&next);
        assert_eq!(PgTable::new(next.map().clone()), next);
    }
});
