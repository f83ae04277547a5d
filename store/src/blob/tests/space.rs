//! Full areas.

use super::*;
use crate::blob::entry::ENTRY_LEN;

impl Setup {
    /// Puts blobs from a number on until there is no room; says how many there were.
    fn fill(&mut self, len: u32) -> u8 {
        for number in 1..=u8::MAX {
            match self.put(number, len) {
                Ok(_) => {}
                Err(BlobError::Full) => return number - 1,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("it is never full");
    }
}

#[test]
fn a_full_area_reads_removes_and_takes_puts_again() {
    let mut setup = Setup::new(config());
    let count = setup.fill(20_000);
    // Three of ten segments are kept, and each of the others holds ten such blobs, of six blocks with their heads.
    assert!((68..=70).contains(&count), "{count}");
    assert!(setup.blobs.stats().free_bytes < 2 * 7 * 4_096);
    assert_eq!(setup.put(200, 20_000).unwrap_err(), BlobError::Full);
    setup.reopen();
    assert_eq!(setup.get(1, 0, 20_000).unwrap(), data_of(1, 20_000));
    for number in 1..=count {
        setup.remove(number).unwrap();
    }
    setup.settle();
    let stats = setup.blobs.stats();
    assert_eq!((stats.blobs, stats.data_bytes), (0, 0));
    assert!(stats.live_bytes < 1_000, "tombstones alone: {stats:?}");
    assert!(stats.free_segments >= 8 && stats.tombstones <= 12, "{stats:?}");
    assert_eq!(setup.fill(20_000), count);
}

#[test]
fn what_is_removed_from_a_closed_segment_is_dead() {
    let mut setup = Setup::new(BlobConfig { compaction_dead_percent_min: 100, ..config() });
    // Ten of six blocks each fill a segment of 64; each is named where it lies and at the end.
    (1..=12).for_each(|number| drop(setup.put(number, 20_000).unwrap()));
    let dead = |setup: &Setup| setup.blobs.stats().dead_bytes;
    let before = dead(&setup);
    assert!(before < 4 * 4_096, "what no record fitted into: {before}");
    for removed in 1..=3 {
        setup.remove(u8::try_from(removed).unwrap()).unwrap();
        assert_eq!(dead(&setup), before + removed * (6 * 4_096 + 2 * ENTRY_LEN as u64));
    }
}

#[test]
fn small_blobs_can_be_removed_from_a_full_area() {
    let mut setup = Setup::new(config());
    let mut puts = 0_u32;
    // Many ids: four bytes each.
    let id_of = |number: u32| BlobId::from_bytes(core::array::from_fn(|at| number.to_be_bytes()[at % 4]));
    loop {
        let mut batch = Vec::new();
        for _ in 0..32 {
            let new = NewBlob { blob: id_of(puts), stamp: 0, header: Box::default(), len: 0, data: Vec::new() };
            batch.push(setup.submit(BlobRequestKind::Put(new)));
            puts += 1;
        }
        setup.complete_all();
        let replies: Vec<_> = core::iter::from_fn(|| setup.blobs.poll_reply()).collect();
        if replies.iter().any(|(_, reply)| reply.is_err()) {
            break;
        }
    }
    assert!(puts > 3_000, "{puts}");
    // One by one: each removal takes a block.
    for number in (0..puts).rev() {
        assert!(setup.ask(BlobRequestKind::Remove { blob: id_of(number) }).is_ok(), "{number} of {puts}");
    }
    setup.settle();
    let stats = setup.blobs.stats();
    assert!(stats.blobs == 0 && stats.free_segments >= 8, "{stats:?}");
}

#[test]
fn packed_blobs_take_little_more_than_their_bytes() {
    let mut setup = Setup::new(config());
    for round in 0..8_u8 {
        for number in 0..16 {
            setup.submit(BlobRequestKind::Put(blob(round * 16 + number + 1, 2_000)));
        }
        setup.complete_all();
    }
    let written: usize = setup
        .asked
        .iter()
        .map(|io| match io {
            IoKind::Write { data, .. } => data.iter().map(|segment| segment.bytes().len()).sum(),
            _ => 0,
        })
        .sum();
    let stats = setup.blobs.stats();
    assert_eq!((stats.blobs, stats.data_bytes), (128, 256_000));
    assert!(written < 256_000 * 13 / 10, "{written}");
    assert!(stats.live_bytes < 256_000 * 12 / 10, "{stats:?}");
}
