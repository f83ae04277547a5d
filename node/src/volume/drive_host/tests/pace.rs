//! Copies do not fill the drive's queue: a few extents at a time are read whole or replaced.

use ashlar_replica::request::{StoreId, StoreRequest};

use super::super::pace::WHOLE_MAX;
use super::*;

const EXTENTS: usize = 2 * WHOLE_MAX;

/// Asks a drive for something of each extent, all at once. How many requests its store has had at most; all are answered.
fn in_store_most(world: &mut World, request: impl Fn(ExtentId) -> StoreRequest) -> usize {
    let now = world.now;
    let (host, disk) = (world.hosts[1].as_mut().expect("it runs"), &mut world.disks[1]);
    let adapter = &mut host.adapter;
    for number in 0..EXTENTS as u64 {
        adapter.handle_request(GROUP, StoreId(1_000_000 + number), request(extent(number)));
    }
    adapter.run(now);
    let (mut most, mut done) = (0, 0);
    loop {
        most = most.max(adapter.in_store());
        while let Some(answer) = adapter.poll_done() {
            assert!(matches!(answer, Done::Stored { result: Ok(_), .. }), "{answer:?}");
            done += 1;
        }
        let Some(io) = adapter.store.poll_io() else { break };
        let id = io.id;
        adapter.store.handle_io(now, id, disk.execute(io));
        adapter.run(now);
    }
    assert_eq!((done, adapter.jobs()), (EXTENTS, 0));
    most
}

#[test]
fn a_few_extents_are_copied_at_a_time() {
    let mut world = started(3);
    for number in 0..EXTENTS as u64 {
        assert_eq!(world.write(0, 1, (number, 0), data(1, EXTENT_BYTES_MAX / BLOCK_BYTES)), WRITTEN);
    }
    let checksums = |extent| StoreRequest::Checksums { extent };
    assert_eq!(in_store_most(&mut world, checksums), WHOLE_MAX);
    let difference = |extent| StoreRequest::Difference { extent, than: Vec::new() };
    assert_eq!(in_store_most(&mut world, difference), WHOLE_MAX);
    let version = Version { epoch: serving(2), sequence: 1 };
    let patch = |extent| {
        let runs = vec![Run { offset: 0, content: data(2, 1) }];
        StoreRequest::Patch { extent, runs, version }
    };
    assert_eq!(in_store_most(&mut world, patch), WHOLE_MAX);
    let read = |extent| StoreRequest::Read { extent, range: Range { offset: 0, len: BLOCK_BYTES } };
    assert_eq!(in_store_most(&mut world, read), EXTENTS, "what clients read does not wait for others");
}
