use super::*;

fn id(number: u8) -> BlobId {
    BlobId::from_bytes([number; 16])
}

fn put(number: u8, place: u32) -> LogEntry {
    let (stamp, len, header_len) = (u64::from(number), 100, 3);
    LogEntry { blob: id(number), stamp, len, header_len, kind: EntryKind::Packed, place: Place(place) }
}

fn removal(number: u8) -> LogEntry {
    LogEntry::removal(id(number))
}

#[test]
fn a_tombstone_goes_with_the_last_record_that_it_covers() {
    let mut index = Index::default();
    assert_eq!(index.apply(&put(1, 10), 0), None);
    let footprint = put(1, 10).footprint();
    // Moved twice, then removed.
    assert_eq!(index.apply(&put(1, 20), 1), Some(Released { segment: 0, bytes: footprint }));
    assert_eq!(index.apply(&put(1, 30), 2), Some(Released { segment: 1, bytes: footprint }));
    assert_eq!(index.apply(&removal(1), 3), Some(Released { segment: 2, bytes: footprint }));
    assert_eq!((index.live_count(), index.len(), index.data_bytes()), (0, 1, 0));
    assert_eq!(index.live(id(1)), None);
    assert_eq!((index.forget_copy(id(1)), index.forget_copy(id(1))), (None, None));
    // A tombstone is moved, too.
    let tombstone = removal(1).footprint();
    assert_eq!(index.apply(&removal(1), 4), Some(Released { segment: 3, bytes: tombstone }));
    assert_eq!(index.forget_copy(id(1)), Some(Released { segment: 4, bytes: tombstone }));
    assert_eq!((index.len(), index.forget_copy(id(1))), (0, None));
}

#[test]
fn a_new_put_takes_over_old_records() {
    let mut index = Index::default();
    index.apply(&put(1, 10), 0);
    index.apply(&removal(1), 0);
    index.apply(&put(1, 20), 1);
    index.apply(&removal(1), 1);
    assert_eq!(index.forget_copy(id(1)), None);
    assert_eq!(index.forget_copy(id(1)).map(|released| released.segment), Some(1));
}

#[test]
fn counts_that_overflow_keep_the_tombstone() {
    let mut index = Index::default();
    for place in 0..300 {
        index.apply(&put(1, place), 0);
    }
    index.apply(&removal(1), 0);
    (0..300).for_each(|_| assert_eq!(index.forget_copy(id(1)), None));
    assert_eq!(index.len(), 1);
}

#[test]
fn recovery_takes_the_newest_whatever_comes_first() {
    let lives = [5_u64, 1, 9];
    let history: [(u32, Vec<LogEntry>); 3] = [
        (1, vec![put(1, 1), put(2, 2), put(3, 3)]),
        (0, vec![removal(1), put(2, 4)]),
        (2, vec![removal(2), put(2, 5)]),
    ];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut index = Index::default();
        for (segment, entries) in order.map(|at: usize| &history[at]) {
            for entry in entries {
                index.recover(entry, *segment, |other| lives[other as usize] < lives[*segment as usize]);
            }
        }
        let found: Vec<(u32, LogEntry)> = index.finish_recovery().collect();
        assert_eq!(found, [(0, removal(1)), (2, put(2, 5)), (1, put(3, 3))], "{order:?}");
        assert_eq!((index.live_count(), index.data_bytes()), (2, 200));
        // Three records of the second, one of the first.
        assert!(index.forget_copy(id(1)).is_some());
        assert_eq!((index.forget_copy(id(2)), index.forget_copy(id(2))), (None, None));
    }
    let mut index = Index::default();
    index.recover(&removal(7), 0, |_| true);
    assert_eq!(index.finish_recovery().count(), 0);
}
