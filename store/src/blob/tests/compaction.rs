//! Compaction.

use super::*;

/// A rig whose compaction does not pause.
fn rig() -> Rig {
    Rig::new(BlobConfig { compaction_bytes_per_s: u64::MAX, ..config() })
}

#[test]
fn what_is_dead_becomes_free_and_what_lives_stays() {
    let mut rig = rig();
    // Blobs that come and go around some that stay.
    for round in 0..30 {
        rig.put(100 + round % 4, 9_000).ok();
        rig.put(1 + round, 9_000).unwrap();
        rig.remove(1 + round).unwrap();
    }
    rig.settle();
    let stats = rig.blobs.stats();
    assert_eq!(stats.blobs, 4);
    assert!(stats.free_segments >= 7, "{stats:?}");
    for _ in 0..2 {
        for number in 100..104 {
            assert_eq!(rig.get(number, 0, 9_000).unwrap(), data_of(number, 9_000));
        }
        rig.reopen();
    }
}

#[test]
fn tombstones_go_when_the_last_record_is_erased() {
    let mut rig = rig();
    for number in 1..=60 {
        rig.put(number, 9_000).unwrap();
        rig.remove(number).unwrap();
    }
    rig.settle();
    let stats = rig.blobs.stats();
    // Those of the open segment are left.
    assert!(stats.tombstones < 20, "{stats:?}");
    rig.reopen();
    assert_eq!(rig.list(), Vec::<u8>::new());
    assert!(rig.blobs.stats().tombstones < 20);
}

#[test]
fn compaction_keeps_its_pace() {
    let mut rig = Rig::new(BlobConfig { compaction_bytes_per_s: 1 << 20, ..config() });
    for number in 1..=12 {
        rig.put(number, 20_000).unwrap();
    }
    (1..=10).filter(|number| number % 3 > 0).for_each(|number| drop(rig.remove(number).unwrap()));
    let moved = |rig: &mut Rig| {
        let large = rig.asked.iter().filter(|io| matches!(io, IoKind::Read { len, .. } if *len > 20_000)).count();
        rig.asked.clear();
        large
    };
    let first = moved(&mut rig);
    assert!(first <= 1, "{first}");
    // 28 KiB take about 27 ms.
    rig.pass(Duration::from_millis(5));
    assert_eq!(moved(&mut rig), 0);
    rig.pass(Duration::from_millis(100));
    assert_eq!(moved(&mut rig), 1);
    rig.settle();
    assert_eq!(rig.list(), [3, 6, 9, 11, 12]);
}

#[test]
fn a_segment_of_which_too_little_is_dead_is_left_alone() {
    for (percent, moves) in [(60, true), (95, false)] {
        let mut rig = Rig::new(BlobConfig { compaction_dead_percent_min: percent, ..config() });
        (1..=12).for_each(|number| drop(rig.put(number, 20_000).unwrap()));
        let before = rig.blobs.index.live(id(2)).unwrap().segment;
        [1, 3, 4, 5, 6, 7, 8].into_iter().for_each(|number| drop(rig.remove(number).unwrap()));
        rig.settle();
        assert_eq!(rig.blobs.index.live(id(2)).unwrap().segment != before, moves, "{percent}");
    }
}

#[test]
fn damage_moves_along() {
    let mut rig = rig();
    (1..=12).for_each(|number| drop(rig.put(number, 20_000).unwrap()));
    let segment = rig.blobs.index.live(id(2)).unwrap().segment;
    let held = rig.blobs.index.live(id(2)).unwrap().log_entry(id(2));
    let start = usize::try_from(rig.blobs.geometry.offset(segment, 0)).unwrap();
    rig.drive.flip(start + held.span().data + 10_000, 1);
    [1, 3, 4, 5, 6, 7].into_iter().for_each(|number| drop(rig.remove(number).unwrap()));
    rig.settle();
    assert_ne!(rig.blobs.index.live(id(2)).unwrap().segment, segment);
    assert!(core::iter::from_fn(|| rig.blobs.poll_event()).any(|event| event == BlobEvent::Damage { blob: id(2) }));
    rig.reopen();
    assert_eq!(rig.get(2, 0, 8_000).unwrap(), data_of(2, 20_000)[..8_000]);
    assert_eq!(rig.get(2, 0, 20_000), Err(BlobError::Damaged));
}

#[test]
fn a_segment_is_not_erased_while_it_is_read() {
    let mut rig = rig();
    (1..=12).for_each(|number| drop(rig.put(number, 20_000).unwrap()));
    rig.submit(BlobRequestKind::Get { blob: id(2), offset: 0, len: 20_000 });
    let mut reads = Vec::new();
    while let Some(io) = rig.blobs.poll_io() {
        reads.push(io);
    }
    for number in 1..=8 {
        rig.submit(BlobRequestKind::Remove { blob: id(number) });
    }
    rig.complete_all();
    rig.pass(Duration::from_secs(1));
    let is_mark = |io: &IoKind| matches!(io, IoKind::Write { data, .. } if data[0].bytes()[..7] == *b"asgm\0\x01\x01");
    assert_eq!(rig.asked.iter().filter(|io| is_mark(io)).count(), 0);
    for io in reads {
        rig.drive.start(io);
    }
    rig.complete_all();
    assert_eq!(rig.asked.iter().filter(|io| is_mark(io)).count(), 2);
    let replies: Vec<_> = core::iter::from_fn(|| rig.blobs.poll_reply()).map(|(_, reply)| reply.unwrap()).collect();
    assert!(
        replies.iter().any(|reply| matches!(reply, BlobReply::Data { bytes, .. } if **bytes == *data_of(2, 20_000)))
    );
}

#[test]
fn a_segment_whose_summary_is_damaged_is_compacted() {
    let mut rig = rig();
    (1..=12).for_each(|number| drop(rig.put(number, 20_000).unwrap()));
    let segment = rig.blobs.index.live(id(1)).unwrap().segment;
    let last_block = rig.blobs.geometry.offset(segment, SEGMENT_BLOCKS - 1);
    rig.drive.flip(usize::try_from(last_block).unwrap() + 70, 1);
    for _ in 0..2 {
        rig.reopen();
        assert_eq!((rig.list(), rig.blobs.poll_event()), ((1..=12).collect(), None));
    }
    (1..=7).filter(|number| *number != 2).for_each(|number| drop(rig.remove(number).unwrap()));
    rig.settle();
    assert_ne!(rig.blobs.index.live(id(2)).unwrap().segment, segment);
    rig.reopen();
    assert_eq!(rig.list(), [2, 8, 9, 10, 11, 12]);
    assert_eq!(rig.get(2, 0, 20_000).unwrap(), data_of(2, 20_000));
}
