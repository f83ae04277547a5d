//! Compaction.

use super::*;

/// A setup whose compaction does not pause.
fn setup() -> Setup {
    Setup::new(BlobConfig { compaction_bytes_per_s: u64::MAX, ..config() })
}

#[test]
fn what_is_dead_becomes_free_and_what_lives_stays() {
    let mut setup = setup();
    // Blobs that come and go around some that stay.
    for round in 0..30 {
        setup.put(100 + round % 4, 9_000).ok();
        setup.put(1 + round, 9_000).unwrap();
        setup.remove(1 + round).unwrap();
    }
    setup.settle();
    let stats = setup.blobs.stats();
    assert_eq!(stats.blobs, 4);
    assert!(stats.free_segments >= 7, "{stats:?}");
    for _ in 0..2 {
        for number in 100..104 {
            assert_eq!(setup.get(number, 0, 9_000).unwrap(), data_of(number, 9_000));
        }
        setup.reopen();
    }
}

#[test]
fn tombstones_go_when_the_last_record_is_erased() {
    let mut setup = setup();
    for number in 1..=60 {
        setup.put(number, 9_000).unwrap();
        setup.remove(number).unwrap();
    }
    setup.settle();
    let stats = setup.blobs.stats();
    // Those of the open segment are left.
    assert!(stats.tombstones < 20, "{stats:?}");
    setup.reopen();
    assert_eq!(setup.list(), Vec::<u8>::new());
    assert!(setup.blobs.stats().tombstones < 20);
}

#[test]
fn compaction_keeps_its_pace() {
    let mut setup = Setup::new(BlobConfig { compaction_bytes_per_s: 1 << 20, ..config() });
    for number in 1..=12 {
        setup.put(number, 20_000).unwrap();
    }
    (1..=10).filter(|number| number % 3 > 0).for_each(|number| drop(setup.remove(number).unwrap()));
    let moved = |setup: &mut Setup| {
        let large = setup.asked.iter().filter(|io| matches!(io, IoKind::Read { len, .. } if *len > 20_000)).count();
        setup.asked.clear();
        large
    };
    let first = moved(&mut setup);
    assert!(first <= 1, "{first}");
    // 28 KiB take about 27 ms.
    setup.pass(Duration::from_millis(5));
    assert_eq!(moved(&mut setup), 0);
    setup.pass(Duration::from_millis(100));
    assert_eq!(moved(&mut setup), 1);
    setup.settle();
    assert_eq!(setup.list(), [3, 6, 9, 11, 12]);
}

#[test]
fn a_segment_of_which_too_little_is_dead_is_left_alone() {
    for (percent, moves) in [(60, true), (95, false)] {
        let mut setup = Setup::new(BlobConfig { compaction_dead_percent_min: percent, ..config() });
        (1..=12).for_each(|number| drop(setup.put(number, 20_000).unwrap()));
        let before = setup.blobs.index.live(id(2)).unwrap().segment;
        [1, 3, 4, 5, 6, 7, 8].into_iter().for_each(|number| drop(setup.remove(number).unwrap()));
        setup.settle();
        assert_eq!(setup.blobs.index.live(id(2)).unwrap().segment != before, moves, "{percent}");
    }
}

#[test]
fn damage_moves_along() {
    let mut setup = setup();
    (1..=12).for_each(|number| drop(setup.put(number, 20_000).unwrap()));
    let segment = setup.blobs.index.live(id(2)).unwrap().segment;
    let held = setup.blobs.index.live(id(2)).unwrap().log_entry(id(2));
    let start = usize::try_from(setup.blobs.geometry.offset(segment, 0)).unwrap();
    setup.drive.flip(start + held.span().data + 10_000, 1);
    [1, 3, 4, 5, 6, 7].into_iter().for_each(|number| drop(setup.remove(number).unwrap()));
    setup.settle();
    assert_ne!(setup.blobs.index.live(id(2)).unwrap().segment, segment);
    assert!(core::iter::from_fn(|| setup.blobs.poll_event()).any(|event| event == BlobEvent::Damage { blob: id(2) }));
    setup.reopen();
    assert_eq!(setup.get(2, 0, 8_000).unwrap(), data_of(2, 20_000)[..8_000]);
    assert_eq!(setup.get(2, 0, 20_000), Err(BlobError::Damaged));
}

#[test]
fn a_segment_is_not_erased_while_it_is_read() {
    let mut setup = setup();
    (1..=12).for_each(|number| drop(setup.put(number, 20_000).unwrap()));
    setup.submit(BlobRequestKind::Get { blob: id(2), offset: 0, len: 20_000 });
    let mut reads = Vec::new();
    while let Some(io) = setup.blobs.poll_io() {
        reads.push(io);
    }
    for number in 1..=8 {
        setup.submit(BlobRequestKind::Remove { blob: id(number) });
    }
    setup.complete_all();
    setup.pass(Duration::from_secs(1));
    let is_mark = |io: &IoKind| matches!(io, IoKind::Write { data, .. } if data[0].bytes()[..7] == *b"asgm\0\x01\x01");
    assert_eq!(setup.asked.iter().filter(|io| is_mark(io)).count(), 0);
    for io in reads {
        setup.drive.start(io);
    }
    setup.complete_all();
    assert_eq!(setup.asked.iter().filter(|io| is_mark(io)).count(), 2);
    let replies: Vec<_> = core::iter::from_fn(|| setup.blobs.poll_reply()).map(|(_, reply)| reply.unwrap()).collect();
    assert!(
        replies.iter().any(|reply| matches!(reply, BlobReply::Data { bytes, .. } if **bytes == *data_of(2, 20_000)))
    );
}

#[test]
fn a_segment_whose_summary_is_damaged_is_compacted() {
    let mut setup = setup();
    (1..=12).for_each(|number| drop(setup.put(number, 20_000).unwrap()));
    let segment = setup.blobs.index.live(id(1)).unwrap().segment;
    let last_block = setup.blobs.geometry.offset(segment, SEGMENT_BLOCKS - 1);
    setup.drive.flip(usize::try_from(last_block).unwrap() + 70, 1);
    for _ in 0..2 {
        setup.reopen();
        assert_eq!((setup.list(), setup.blobs.poll_event()), ((1..=12).collect(), None));
    }
    (1..=7).filter(|number| *number != 2).for_each(|number| drop(setup.remove(number).unwrap()));
    setup.settle();
    assert_ne!(setup.blobs.index.live(id(2)).unwrap().segment, segment);
    setup.reopen();
    assert_eq!(setup.list(), [2, 8, 9, 10, 11, 12]);
    assert_eq!(setup.get(2, 0, 20_000).unwrap(), data_of(2, 20_000));
}
