//! What makes a map, and its golden bytes.

use alloc::vec;

use arbtest::arbtest;
use ashlar_wire::pack::PackError;

use super::*;
use crate::balance::balance;
use crate::sample::{any_map, any_shape, drive, drives, id, map, shape};

const EPOCH: Epoch = Epoch(7);

fn new(shape: Shape, drives: Vec<Drive>) -> Result<Map, Error> {
    Map::new(SetId(1), EPOCH, shape, drives)
}

#[test]
fn shapes_have_limits() {
    let one = drives(40, 1);
    let of = |pgs, seats| new(shape(pgs, seats, Conflict::Drive), one.clone()).err();
    let too_many = |what, count, max| Some(Error::TooMany { what, count, max });
    let cases = [
        (of(0, 1), Some(Error::Missing("placement group"))),
        (of(1, 0), Some(Error::Missing("seat"))),
        (of(1, 32), None),
        (of(1, 33), too_many("seats of a placement group", 33, 32)),
        (of(1 << 20, 4), None),
        (of(1 << 20, 5), too_many("seats", 5 << 20, 1 << 22)),
        (of((1 << 20) + 1, 1), too_many("placement groups", (1 << 20) + 1, 1 << 20)),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn drives_must_fit_together() {
    let shape = shape(10, 2, Conflict::Server);
    let twice = [drives(4, 1), vec![drive(2, 1, 1)]].concat();
    assert_eq!(new(shape, twice), Err(Error::DuplicateDrive(DriveId::from_bytes(id(2)))));

    let mut weightless = drives(4, 1);
    weightless[3].weight = Weight(0);
    assert_eq!(new(shape, weightless), Err(Error::ZeroWeight(DriveId::from_bytes(id(3)))));

    let mut split = drives(4, 2);
    split[1].rack = Rack(9);
    assert_eq!(new(shape, split), Err(Error::SplitServer(ServerId::from_bytes(id(0)))));

    let mut split = drives(4, 1);
    split[1].zone = Zone(9);
    assert_eq!(new(shape, split), Err(Error::SplitRack(Rack(0))));

    let many = (0..=16_384).map(|number| drive(number, 1, 1)).collect();
    assert_eq!(new(shape, many), Err(Error::TooMany { what: "drives", count: 16_385, max: 16_384 }));
}

#[test]
fn too_few_domains_are_an_error_and_never_two_seats_in_one() {
    let of = |seats, conflict| new(shape(10, seats, conflict), drives(100, 2)).err();
    let cases = [(100, Conflict::Drive, 100), (3, Conflict::Zone, 3), (10, Conflict::Rack, 10)];
    for (domains, conflict, seats) in cases {
        if seats <= 32 {
            assert_eq!(of(seats, conflict), None, "{conflict:?}");
        }
        let error = Error::TooFewDomains { domains, seats: usize::from(seats) + 1 };
        if seats < 32 {
            assert_eq!(of(seats + 1, conflict), Some(error), "{conflict:?}");
        }
    }
    let mut out = drives(3, 1);
    out[0].state = DriveState::Out;
    assert_eq!(
        new(shape(1, 3, Conflict::Drive), out),
        Err(Error::TooFewDomains { domains: 2, seats: 3 }),
        "a drive that is out counts for nothing"
    );
}

#[test]
fn the_order_of_drives_means_nothing() {
    let mut reversed = drives(10, 1);
    reversed.reverse();
    assert_eq!(map(1, shape(5, 2, Conflict::Drive), &reversed), map(1, shape(5, 2, Conflict::Drive), &drives(10, 1)));
}

/// Three drives, the last two placement groups pinned.
fn golden_map() -> Map {
    let mut drives = drives(3, 1);
    drives[1].weight = Weight(70_000);
    drives[2].state = DriveState::Full;
    let mut pins = Pins::default();
    pins.push(PgId(1), &[DriveIndex(2), DriveIndex(0)]);
    pins.push(PgId(300), &[DriveIndex(0), DriveIndex(1)]);
    new(shape(301, 2, Conflict::Server), drives).unwrap().with_pins(pins).unwrap()
}

#[test]
fn golden_bytes() {
    let ids = |number: u8| [[0xc4, 16].as_slice(), &[0; 15], &[number]].concat();
    let drive = |number: u8, rest: &[u8]| [&[0x96], ids(number).as_slice(), &ids(number), rest].concat();
    let golden = [
        b"\xaaashlar map".as_slice(),
        // Version, set, epoch, placement groups, seats, conflict rule.
        &[1, 1, 7, 0xcd, 0x01, 0x2d, 2, 2],
        // Drives: id, server, rack, zone, weight, state.
        &[3],
        &drive(0, &[0, 0, 0xcd, 0x0f, 0xa0, 1]),
        &drive(1, &[0, 0, 0xce, 0x00, 0x01, 0x11, 0x70, 1]),
        &drive(2, &[0, 0, 0xcd, 0x0f, 0xa0, 2]),
        // Pins: gap, places of drives.
        &[2, 1, 2, 0, 0xcd, 0x01, 0x2a, 0, 1],
    ]
    .concat();
    assert_eq!(golden_map().encode(), golden);
    assert_eq!(Map::decode(&golden), Ok(golden_map()));
    for cut in 0..golden.len() {
        assert_eq!(Map::decode(&golden[..cut]), Err(Error::Pack(PackError::Truncated)), "cut at {cut}");
    }
    assert_eq!(Map::decode(&[golden.as_slice(), &[0]].concat()), Err(Error::TrailingBytes));
}

/// The golden bytes with one of them changed.
#[test]
fn bytes_that_are_no_map() {
    let golden = golden_map().encode();
    let (version, pgs, conflict, drives, pins) = (11, 15, 18, 19, golden.len() - 9);
    let second_id = drives + 1 + 43 + 3 + 15;
    assert_eq!((golden[version], golden[pgs], golden[conflict], golden[drives], golden[pins]), (1, 1, 2, 3, 2));
    let bad = |what, value| Error::BadNumber { what, value };
    let cases = [
        (1, b'A', Error::NotAMap),
        (version, 2, Error::UnknownVersion(2)),
        (conflict, 5, bad("conflict rule", 5)),
        (second_id, 0, Error::OutOfOrder("drives")),
        (drives + 43, 4, bad("state", 4)),
        // Drive 2 is out, but pinned.
        (pins - 1, 3, Error::BadPin(PgId(1))),
        (pins + 2, 3, bad("place of a drive", 3)),
        (pins + 2, 0, Error::BadPin(PgId(1))),
        (pins + 6, 0xff, bad("gap between pins", 0x1ff)),
    ];
    for (at, byte, error) in cases {
        let mut bytes = golden.clone();
        bytes[at] = byte;
        assert_eq!(Map::decode(&bytes), Err(error), "{byte:#x} at {at}");
    }
    let many = [&golden[..drives], &[0xce, 0xff, 0xff, 0xff, 0xff]].concat();
    let error = Error::TooMany { what: "drives", count: 0xffff_ffff, max: 16_384 };
    assert_eq!(Map::decode(&many), Err(error), "nothing is allocated for what is only announced");
}

#[test]
fn any_map_is_read_as_it_was_written() {
    arbtest(|u| {
        let shape = any_shape(u)?;
        let Ok(map) = any_map(u, 3, shape)? else { return Ok(()) };
        assert_eq!(Map::decode(&map.encode()).as_ref(), Ok(&map));
        if let Ok(table) = balance(None, map) {
            assert_eq!(Map::decode(&table.map().encode()).as_ref(), Ok(table.map()));
        }
        Ok(())
    });
}
