//! Prints the figures of placement: how even, how few moves, how fast. `cargo run --release -p ashlar-placement --example
//! placement_figures [-- CHANGES]`; CHANGES is how often a drive is removed and another added (default 20).
//!
//! Each line with its own case: 1,000 drives in 50 servers and 100,000 placement groups of three, unless it says
//! otherwise. Times are of this machine; everything else is the same on all.
#![expect(clippy::print_stdout, reason = "this program is there to print")]
#![expect(clippy::disallowed_methods, reason = "this program is there to measure time")]

use std::hint::black_box;
use std::time::Instant;

use ashlar_placement::balance::balance;
use ashlar_placement::choose::{Due, PgTable, choose_drives};
use ashlar_placement::domains::Conflict;
use ashlar_placement::map::{Drive, DriveState, Map, PgId, Rack, SetId, Shape, Weight, Zone};
use ashlar_placement::part::{Part, Volume};
use ashlar_placement::plan::{Cursor, Holding, plan_moves};
use ashlar_placement::rule::Rule;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{DriveId, ServerId, VolumeId};

const SET: SetId = SetId(1);

fn id(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn drives(count: u32, drives_per_server: u32, weight_of_server: fn(u32) -> u32) -> Vec<Drive> {
    let drive = |number| {
        let server = number / drives_per_server;
        Drive {
            id: DriveId::from_bytes(id(number)),
            server: ServerId::from_bytes(id(server)),
            rack: Rack(server / 5),
            zone: Zone(server / 20),
            weight: Weight(weight_of_server(server)),
            state: DriveState::In,
        }
    };
    (0..count).map(drive).collect()
}

fn map(epoch: u64, shape: Shape, drives: &[Drive]) -> Map {
    Map::new(SET, Epoch(epoch), shape, drives.to_vec()).expect("the drives fit together")
}

/// The least and greatest deviation from what drives are due, in percent.
fn spread(table: &PgTable) -> (f64, f64) {
    let off = table.fill().into_iter().filter(|fill| fill.due.0 > 0).map(|fill| {
        let due = fill.due.0 as f64 / Due::ONE as f64;
        (f64::from(fill.seats) / due - 1.0) * 100.0
    });
    off.fold((0.0, 0.0), |(least, most): (f64, f64), off| (least.min(off), most.max(off)))
}

fn seats_of(table: &PgTable, id: DriveId) -> u32 {
    let index = table.map().find(id).expect("the drive is in the map");
    table.fill()[index.get()].seats
}

fn moves(from: &PgTable, to: &PgTable) -> usize {
    let plan = plan_moves(from, to, Holding::Shards, Cursor::default(), usize::MAX);
    plan.expect("two tables of one set").moves.len()
}

fn print(case: &str, table: &PgTable, started: Instant) {
    let (least, most) = spread(table);
    let pins = table.map().pins().len();
    let percent = pins as f64 * 100.0 / f64::from(table.map().shape().pgs);
    println!(
        "{case:<40} spread {least:+6.2} % {most:+6.2} %   pins {pins:>6} ({percent:4.1} %)   map {:>7} B   {:>7.1} ms",
        table.map().encode().len(),
        started.elapsed().as_secs_f64() * 1_000.0,
    );
}

/// A fresh map drawn only, then balanced.
fn fresh(case: &str, shape: Shape, drives: &[Drive]) -> PgTable {
    let started = Instant::now();
    print(&format!("{case}, drawn"), &PgTable::new(map(1, shape, drives)), started);
    let started = Instant::now();
    let table = balance(None, map(1, shape, drives)).expect("no drive is full");
    print(&format!("{case}, balanced"), &table, started);
    table
}

/// One drive removed, then another added in its server, again and again.
fn changes(case: &str, mut table: PgTable, mut drives: Vec<Drive>, count: u32) {
    let (mut due, mut moved) = ((0, 0), (0, 0));
    let (mut worst_off, mut worst_extra) = (0.0_f64, (0.0_f64, 0.0_f64));
    let mut epoch = table.epoch().0;
    let shape = table.map().shape();
    let mut next = |drives: &[Drive], previous: &PgTable| {
        epoch += 1;
        let table = balance(Some(previous), map(epoch, shape, drives)).expect("no drive is full");
        let (least, most) = spread(&table);
        worst_off = worst_off.max(most).max(-least);
        table
    };
    let started = Instant::now();
    for change in 0..count {
        let place = (change as usize * 617 + 311) % drives.len();
        let gone = drives.swap_remove(place);
        let without = next(&drives, &table);
        let (own, all) = (seats_of(&table, gone.id) as usize, moves(&table, &without));
        due.0 += own;
        moved.0 += all;
        worst_extra.0 = worst_extra.0.max((all as f64 / own as f64 - 1.0) * 100.0);
        let new = Drive { id: DriveId::from_bytes(id(100_000 + change)), ..gone };
        drives.push(new);
        table = next(&drives, &without);
        let (own, all) = (seats_of(&table, new.id) as usize, moves(&without, &table));
        due.1 += own;
        moved.1 += all;
        worst_extra.1 = worst_extra.1.max((all as f64 / own as f64 - 1.0) * 100.0);
    }
    print(&format!("{case}, {count} removed and added"), &table, started);
    println!("  removing: {} seats were the drives' own, {} moved, at worst {:+.2} %", due.0, moved.0, worst_extra.0);
    println!("  adding:   {} seats were taken, {} moved, at worst {:+.2} %", due.1, moved.1, worst_extra.1);
    println!("  worst deviation of any drive on the way: {worst_off:.2} %");
}

/// Nanoseconds of one route at random offsets.
fn routes(table: &PgTable) {
    let parts = [Part { set: SET, extents: 32 << 20 }];
    let started = Instant::now();
    let volume = Volume::new(VolumeId::from_bytes(id(1)), Rule::default(), &parts).expect("32 TiB");
    println!("creating a volume of {} TiB: {} ns", volume.size() >> 40, started.elapsed().as_nanos());
    let count = 10_000_000_u64;
    let started = Instant::now();
    let mut offset = 0_u64;
    let mut sum = 0_u64;
    for _ in 0..count {
        // The next offset depends on the last route, so that routes do not overlap.
        offset = offset.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(sum | 1);
        let location = volume.locate(offset % volume.size()).expect("inside the volume");
        let route = volume.route(location, table).expect("the table of the set");
        sum = route.drives().fold(0, |sum, drive| sum + u64::from(drive.id.as_bytes()[15]));
    }
    black_box(sum);
    println!(
        "route of a random offset to three drive ids: {:.1} ns",
        started.elapsed().as_nanos() as f64 / count as f64
    );
}

fn main() {
    let count = std::env::args().nth(1).map_or(20, |count| count.parse().expect("a number of changes"));
    let shape = |pgs, seats, conflict| Shape { pgs, width: seats, conflict };
    let alike = |_| 4_000;
    let unlike = |server| 2_000 * (1 + server % 4);

    let all = drives(1_000, 20, alike);
    let big = fresh("1,000 drives", shape(100_000, 3, Conflict::Server), &all);
    routes(&big);
    let started = Instant::now();
    black_box(choose_drives(big.map(), PgId(big.map().shape().pgs - 1)));
    println!("one placement group without a table: {} us", started.elapsed().as_micros());
    let started = Instant::now();
    let bytes = big.map().encode();
    let read = Map::decode(&bytes).expect("what was written");
    println!("written and read again: {} us", started.elapsed().as_micros());
    assert_eq!(PgTable::new(read), big, "the written map gives the same table");
    changes("1,000 drives", big, all, count);

    let all = drives(1_000, 20, unlike);
    let table = fresh("weights 1 to 4", shape(100_000, 3, Conflict::Server), &all);
    changes("weights 1 to 4", table, all, count / 4);

    let all = drives(1_000, 20, alike);
    let table = fresh("distinct racks", shape(100_000, 3, Conflict::Rack), &all);
    changes("distinct racks", table, all, count / 4);

    let all = drives(320, 10, alike);
    let table = fresh("320 drives, 16 seats, 20,000 groups", shape(20_000, 16, Conflict::Server), &all);
    changes("320 drives, 16 seats", table, all, count / 4);

    let all = drives(50, 5, alike);
    let table = fresh("50 drives, 5,000 groups", shape(5_000, 3, Conflict::Server), &all);
    changes("50 drives", table, all, count * 10);

    let all = drives(60, 10, unlike);
    let table = fresh("6 servers of weights 1 to 4", shape(6_000, 3, Conflict::Server), &all);
    changes("6 servers of weights 1 to 4", table, all, count);
}
