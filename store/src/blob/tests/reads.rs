//! Puts, reads and lists.

use super::*;

#[test]
fn what_was_put_is_read_before_and_after_a_crash() {
    let lens = [0, 1, 4_095, 4_096, 4_097, 5_999, 6_000, 6_001, 8_192, 20_000, 32_768];
    let mut setup = Setup::new(config());
    for (number, len) in (1..).zip(lens) {
        assert!(matches!(setup.put(number, len), Ok(BlobReply::Done)));
    }
    for _ in 0..2 {
        for (number, len) in (1..).zip(lens) {
            let expected = data_of(number, len);
            assert_eq!(setup.get(number, 0, len).unwrap(), expected);
            for (offset, part) in [(0, len.min(1)), (len / 2, len / 3), (len.saturating_sub(1), len.min(1))] {
                let part_expected = &expected[offset as usize..][..part as usize];
                assert_eq!(setup.get(number, offset, part).unwrap(), part_expected, "{number}: {offset} + {part}");
            }
            let head = setup.ask(BlobRequestKind::Head { blob: id(number) }).unwrap();
            let BlobReply::Head(head) = head else { panic!("a head was asked for") };
            assert_eq!((head.len, head.stamp, head.header), (len, 100 + u64::from(number), header_of(number)));
            assert_eq!(setup.get(number, len, 1), Err(BlobError::OutsideBlob { len }));
            assert_eq!(setup.get(number, u32::MAX, 2), Err(BlobError::OutsideBlob { len }));
        }
        setup.reopen();
    }
    assert_eq!(setup.get(99, 0, 1), Err(BlobError::NoSuchBlob));
    assert!(matches!(setup.ask(BlobRequestKind::Head { blob: id(99) }), Err(BlobError::NoSuchBlob)));
}

#[test]
fn puts_that_gather_share_one_write() {
    let mut setup = Setup::new(config());
    setup.submit(BlobRequestKind::Put(blob(1, 100)));
    setup.start_ios();
    for number in 2..12 {
        setup.submit(BlobRequestKind::Put(blob(number, 100)));
    }
    setup.asked.clear();
    setup.complete_all();
    let writes: Vec<u64> = setup.asked.iter().filter_map(blocks_written).collect();
    // Behind the empty batch that was in flight: eleven blobs of a hundred bytes and their headers of some bytes each.
    assert_eq!(writes, [1]);
    while setup.blobs.poll_reply().is_some() {}
    assert_eq!(setup.list(), (1..12).collect::<Vec<u8>>());
    let is_durable = |io: &IoKind| !matches!(io, IoKind::Write { durability: Durability::Cached, .. });
    assert!(setup.asked.iter().all(is_durable));
}

fn blocks_written(io: &IoKind) -> Option<u64> {
    match io {
        IoKind::Write { data, .. } => Some(data.iter().map(|segment| segment.blocks() as u64).sum()),
        _ => None,
    }
}

#[test]
fn large_data_reaches_the_drive_without_a_copy() {
    let mut setup = Setup::new(config());
    let new = blob(1, 32_768);
    let start = new.data[0].bytes().as_ptr();
    setup.submit(BlobRequestKind::Put(new));
    setup.start_ios();
    let IoKind::Write { data, .. } = &setup.asked[0] else { panic!("an empty batch comes first") };
    assert_eq!(data.iter().map(Segment::blocks).sum::<usize>(), 2);
    setup.complete_all();
    let IoKind::Write { data, .. } = &setup.asked[1] else { panic!("a put is written") };
    assert!(data.iter().any(|segment| segment.bytes().as_ptr() == start));
}

#[test]
fn a_repeated_put_is_done_and_another_is_refused() {
    let mut setup = Setup::new(config());
    setup.put(1, 10_000).unwrap();
    let before = setup.blobs.stats();
    let mut again = blob(1, 10_000);
    again.stamp = 7;
    assert!(matches!(setup.ask(BlobRequestKind::Put(again)), Ok(BlobReply::Done)));
    assert_eq!(setup.blobs.stats(), before);
    let mut other_header = blob(1, 10_000);
    other_header.header = vec![2].into();
    let mut other_data = blob(1, 10_000);
    other_data.data = blob(2, 10_000).data;
    for other in [other_header, other_data, blob(1, 9_999)] {
        assert!(matches!(setup.ask(BlobRequestKind::Put(other.clone())), Err(BlobError::Conflict)));
        assert!(matches!(setup.ask(BlobRequestKind::Repair(other)), Err(BlobError::Conflict)));
    }
    let BlobReply::Head(head) = setup.ask(BlobRequestKind::Head { blob: id(1) }).unwrap() else { panic!() };
    assert_eq!(head.stamp, 101);
    // Both at once: the second finds the first.
    setup.submit(BlobRequestKind::Put(blob(2, 10)));
    setup.submit(BlobRequestKind::Put(blob(2, 11)));
    setup.submit(BlobRequestKind::Remove { blob: id(2) });
    setup.submit(BlobRequestKind::Put(blob(2, 12)));
    setup.complete_all();
    let replies: Vec<bool> = core::iter::from_fn(|| setup.blobs.poll_reply()).map(|(_, reply)| reply.is_ok()).collect();
    assert_eq!(replies, [true, false, true, true]);
    assert_eq!(setup.get(2, 0, 12).unwrap(), data_of(2, 12));
}

#[test]
fn removed_blobs_stay_removed() {
    let mut setup = Setup::new(config());
    (1..=5).for_each(|number| drop(setup.put(number, 3_000).unwrap()));
    setup.remove(2).unwrap();
    setup.remove(4).unwrap();
    assert_eq!(setup.list(), [1, 3, 5]);
    let writes = setup.asked.len();
    setup.remove(4).unwrap();
    setup.remove(9).unwrap();
    assert_eq!(setup.asked.len(), writes);
    setup.reopen();
    assert_eq!(setup.list(), [1, 3, 5]);
    assert_eq!(setup.get(2, 0, 1), Err(BlobError::NoSuchBlob));
    setup.put(2, 50).unwrap();
    setup.reopen();
    assert_eq!(setup.get(2, 0, 50).unwrap(), data_of(2, 50));
}

#[test]
fn lists_have_limits_and_headers() {
    let mut setup = Setup::new(config());
    (1..=8).rev().for_each(|number| drop(setup.put(number, u32::from(number) * 1_000).unwrap()));
    let list = |setup: &mut Setup, after: Option<u8>, limit, detail| {
        let kind = BlobRequestKind::List { after: after.map(id), limit, detail };
        let BlobReply::Blobs { blobs, more } = setup.ask(kind).unwrap() else { panic!("a list gives blobs") };
        (blobs, more)
    };
    let (blobs, more) = list(&mut setup, None, 100, ListDetail::Brief);
    assert_eq!((blobs.len(), more), (5, true));
    let (blobs, more) = list(&mut setup, Some(3), 100, ListDetail::Brief);
    assert_eq!((blobs.len(), more), (5, false));
    assert_eq!(blobs[0], ListedBlob { blob: id(4), len: 4_000, stamp: 104, header: ListedHeader::NotAsked });
    let (blobs, more) = list(&mut setup, Some(5), 2, ListDetail::Headers);
    assert!(more);
    let expected = [6, 7].map(|number: u8| ListedBlob {
        blob: id(number),
        len: u32::from(number) * 1_000,
        stamp: 100 + u64::from(number),
        header: ListedHeader::Whole(header_of(number)),
    });
    assert_eq!(blobs, expected);
    let (blobs, more) = list(&mut setup, None, 100, ListDetail::Headers);
    assert_eq!((blobs.len(), more), (3, true));
    let (blobs, more) = list(&mut setup, Some(8), 100, ListDetail::Headers);
    assert_eq!((blobs.len(), more), (0, false));
}

#[test]
fn a_blob_that_was_stored_anew_is_not_what_was_listed() {
    let mut setup = Setup::new(config());
    setup.put(1, 20_000).unwrap();
    setup.put(2, 50).unwrap();
    let remove = |setup: &mut Setup, number, stamp| {
        let done = setup.ask(BlobRequestKind::RemoveStamped { blob: id(number), stamp });
        assert!(matches!(done, Ok(BlobReply::Done)));
    };
    remove(&mut setup, 1, 100);
    assert_eq!(setup.list(), [1, 2], "another stamp");
    // In the order in which they came, whatever is under way.
    setup.submit(BlobRequestKind::Repair(NewBlob { stamp: 555, ..blob(1, 20_000) }));
    setup.submit(BlobRequestKind::RemoveStamped { blob: id(1), stamp: 101 });
    setup.complete_all();
    setup.reopen();
    assert_eq!(setup.get(1, 0, 20_000).unwrap(), data_of(1, 20_000), "it has the stamp of the repair");
    remove(&mut setup, 1, 555);
    remove(&mut setup, 2, 102);
    remove(&mut setup, 3, 0);
    setup.reopen();
    assert_eq!(setup.list(), Vec::<u8>::new());
}
