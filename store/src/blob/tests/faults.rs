//! Bad requests, limits, damage and failing drives.

use super::*;
use crate::io::IoError;

const EIO: IoError = IoError { errno: 5 };

impl Setup {
    /// Where a blob's data begins in the area.
    fn place_of(&self, number: u8) -> usize {
        let held = self.blobs.index.live(id(number)).unwrap();
        let start = usize::try_from(self.blobs.geometry.offset(held.segment, 0)).unwrap();
        start + held.log_entry(id(number)).span().data
    }

    fn segment_of(&self, number: u8) -> u32 {
        self.blobs.index.live(id(number)).unwrap().segment
    }

    /// Passes time in which reads of what lies at `place` fail.
    fn pass_unread(&mut self, place: usize, time: Duration) {
        self.pass_unread_from(&[place], time);
    }

    /// Passes time in which reads of what lies at any of these places fail.
    fn pass_unread_from(&mut self, places: &[usize], time: Duration) {
        let fails = |io: &IoKind| matches!(io, IoKind::Read { offset, len } if places.iter().any(|place| (*offset..offset + *len as u64).contains(&(*place as u64))));
        let end = self.now + time;
        loop {
            self.complete_with(fails);
            match self.blobs.poll_timeout().filter(|due| *due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
            self.blobs.handle_timeout(self.now);
        }
        self.now = end;
        core::iter::from_fn(|| self.blobs.poll_reply()).for_each(|(_, reply)| drop(reply.unwrap()));
    }

    fn events(&mut self) -> Vec<BlobEvent> {
        core::iter::from_fn(|| self.blobs.poll_event()).collect()
    }

    /// Completes everything; IOs that `fails` picks fail.
    fn complete_with(&mut self, fails: impl Fn(&IoKind) -> bool) {
        self.start_ios();
        while self.drive.in_flight() > 0 {
            let (io, output) = self.drive.complete(0, &mut self.chance);
            let result = if fails(&io.kind) { Err(EIO) } else { Ok(output) };
            self.blobs.handle_io(self.now, io.id, result);
            self.start_ios();
        }
    }
}

/// Bytes from the head of a blob to its data.
fn held_head_distance(setup: &Setup, number: u8) -> usize {
    let span = setup.blobs.index.live(id(number)).unwrap().log_entry(id(number)).span();
    span.data - span.head
}

#[test]
fn bad_requests_are_refused() {
    let mut setup = Setup::new(config());
    let mut long_header = blob(1, 10);
    long_header.header = vec![0; 513].into();
    assert_eq!(setup.ask(BlobRequestKind::Put(long_header)).unwrap_err(), BlobError::HeaderTooLong);
    assert_eq!(setup.put(1, 32_769).unwrap_err(), BlobError::TooLong { bytes_max: 32_768 });
    for len in [0, 4_096, 8_193] {
        let mut wrong = blob(1, 5_000);
        wrong.len = len;
        assert_eq!(setup.ask(BlobRequestKind::Put(wrong)).unwrap_err(), BlobError::WrongLength);
    }
    assert!(setup.list().is_empty() && setup.asked.is_empty());
}

#[test]
fn requests_and_their_bytes_have_limits() {
    let mut setup = Setup::new(BlobConfig { requests_max: 3, put_bytes_max: 20_000, ..config() });
    let request = |kind| BlobRequest { deadline: Instant::NEVER, kind };
    let put = |number, len| request(BlobRequestKind::Put(blob(number, len)));
    let mut ask = |id, request| setup.blobs.handle_request(Instant::ORIGIN, RequestId(id), request);
    // One that is alone may be larger.
    assert_eq!(ask(1, put(1, 32_000)), Ok(()));
    assert_eq!(ask(2, put(2, 1)), Err(BlobError::Busy));
    setup.complete_all();
    let mut ask = |id, request| setup.blobs.handle_request(Instant::ORIGIN, RequestId(id), request);
    assert_eq!((ask(3, put(3, 9_000)), ask(4, put(4, 9_000))), (Ok(()), Ok(())));
    assert_eq!(ask(5, put(5, 2_001)), Err(BlobError::Busy));
    assert_eq!(ask(6, put(6, 2_000)), Ok(()));
    assert_eq!(ask(7, request(BlobRequestKind::Remove { blob: id(1) })), Err(BlobError::Busy));
    setup.complete_all();
    assert_eq!(core::iter::from_fn(|| setup.blobs.poll_reply()).filter(|(_, reply)| reply.is_ok()).count(), 4);
}

#[test]
fn the_index_has_a_limit() {
    let mut setup = Setup::new(BlobConfig { blobs_max: 3, ..config() });
    (1..=3).for_each(|number| drop(setup.put(number, 10).unwrap()));
    assert_eq!(setup.put(4, 10).unwrap_err(), BlobError::TooManyBlobs);
    setup.put(3, 10).unwrap();
    // A tombstone counts.
    setup.remove(1).unwrap();
    assert_eq!(setup.put(4, 10).unwrap_err(), BlobError::TooManyBlobs);
}

#[test]
fn what_is_too_late_costs_nothing() {
    // In time at first, but the write that is in flight ends later.
    let mut setup = Setup::new(config());
    setup.submit(BlobRequestKind::Put(blob(1, 10)));
    setup.start_ios();
    let deadline = Instant::from_nanos(5);
    for number in [2, 2, 3] {
        let kind = BlobRequestKind::Put(blob(number, 10));
        setup.blobs.handle_request(setup.now, RequestId(99), BlobRequest { deadline, kind }).unwrap();
    }
    setup.now = Instant::from_nanos(6);
    setup.complete_all();
    let replies: Vec<_> =
        core::iter::from_fn(|| setup.blobs.poll_reply()).map(|(id, reply)| (id.0, reply.err())).collect();
    let expired = Some(BlobError::Expired);
    assert_eq!(replies, [(99, expired), (99, expired), (99, expired), (0, None)]);
    assert_eq!(setup.list(), [1]);
}

#[test]
fn damage_is_an_error_and_an_event_and_is_repaired() {
    let mut setup = Setup::new(config());
    for (number, len) in [(1, 3_000), (2, 20_000), (3, 20_000)] {
        setup.put(number, len).unwrap();
    }
    for (number, at, len) in [(1, 2_999, 3_000), (2, 9_000, 20_000)] {
        let place = setup.place_of(number) + at;
        setup.drive.flip(place, 1);
        assert_eq!(setup.get(number, 0, len), Err(BlobError::Damaged));
        assert_eq!(setup.events(), [BlobEvent::Damage { blob: id(number) }]);
        setup.ask(BlobRequestKind::Repair(blob(number, len))).unwrap();
        assert_eq!(setup.get(number, 0, len).unwrap(), data_of(number, len));
    }
    // Other blocks of a damaged blob are served.
    let place = setup.place_of(3);
    setup.drive.flip(place + 5_000, 1);
    assert_eq!(setup.get(3, 0, 4_096).unwrap(), data_of(3, 20_000)[..4_096]);
    assert_eq!(setup.get(3, 4_096, 1), Err(BlobError::Damaged));
    // A damaged head.
    let head = place - held_head_distance(&setup, 3);
    setup.drive.flip(head, 1);
    assert!(matches!(setup.ask(BlobRequestKind::Head { blob: id(3) }), Err(BlobError::Damaged)));
    assert_eq!(setup.put(3, 20_000).unwrap_err(), BlobError::Damaged);
    let kind = BlobRequestKind::List { after: Some(id(2)), limit: 9, detail: ListDetail::Headers };
    let BlobReply::Blobs { blobs, .. } = setup.ask(kind).unwrap() else { panic!("a list gives blobs") };
    assert_eq!(blobs[0].header, ListedHeader::Damaged);
    setup.ask(BlobRequestKind::Repair(blob(3, 20_000))).unwrap();
    assert_eq!(setup.get(3, 0, 20_000).unwrap(), data_of(3, 20_000));
    // With the tombstone, everything that was damaged goes.
    setup.events();
    setup.reopen();
    assert_eq!((setup.list(), setup.events()), (vec![1, 2, 3], vec![]));
}

#[test]
fn events_that_nobody_takes_are_bounded() {
    let mut setup = Setup::new(config());
    setup.put(1, 100).unwrap();
    let place = setup.place_of(1);
    setup.drive.flip(place, 1);
    for _ in 0..EVENTS_MAX + 2 {
        assert_eq!(setup.get(1, 0, 100), Err(BlobError::Damaged));
    }
    assert_eq!(setup.events(), vec![BlobEvent::Damage { blob: id(1) }; EVENTS_MAX]);
}

#[test]
fn a_damaged_log_is_reported_until_it_is_compacted() {
    let mut setup = Setup::new(config());
    setup.put(1, 100).unwrap();
    setup.put(2, 100).unwrap();
    // The batch of the first: its entries are damaged, so the blob is lost.
    let place = setup.place_of(1) / BLOCK_BYTES * BLOCK_BYTES;
    setup.drive.flip(place + 30, 1);
    for _ in 0..2 {
        setup.reopen();
        assert_eq!((setup.list(), setup.events()), (vec![2], vec![BlobEvent::Lost { segment: 0 }]));
    }
    setup.remove(2).unwrap();
    setup.put(3, 100).unwrap();
    setup.settle();
    setup.reopen();
    assert_eq!((setup.list(), setup.events()), (vec![3], vec![]));
}

#[test]
fn the_last_batch_counts_once_something_is_behind_it() {
    for is_sealed in [false, true] {
        let mut setup = Setup::new(config());
        setup.put(1, 100).unwrap();
        if is_sealed {
            setup.settle();
        }
        let place = setup.place_of(1);
        setup.drive.flip(place, 1);
        setup.reopen();
        // Without anything behind it, it may never have been acknowledged.
        assert_eq!(setup.list(), if is_sealed { vec![1] } else { vec![] });
        assert_eq!(setup.get(1, 0, 100), Err(if is_sealed { BlobError::Damaged } else { BlobError::NoSuchBlob }));
    }
}

#[test]
fn a_failed_read_fails_one_blob() {
    let mut store = Setup::new(config());
    store.put(1, 100).unwrap();
    store.submit(BlobRequestKind::Get { blob: id(1), offset: 0, len: 100 });
    store.complete_with(|_| true);
    assert_eq!(store.blobs.poll_reply().unwrap().1.unwrap_err(), BlobError::ReadFailed(EIO));
    assert_eq!(store.events(), [BlobEvent::Damage { blob: id(1) }]);
    assert_eq!(store.get(1, 0, 100).unwrap(), data_of(1, 100));
}

/// Blobs whose compaction makes no pauses.
fn unpaced() -> Setup {
    Setup::new(BlobConfig { compaction_bytes_per_s: u64::MAX, ..config() })
}

#[test]
fn what_cannot_be_read_stays_alone_in_its_segment_until_it_can() {
    let mut store = unpaced();
    let len = |number| if number == 4 { 7_000 } else { 20_000 };
    (1..=12).for_each(|number| drop(store.put(number, len(number)).unwrap()));
    let segment = store.segment_of(3);
    let of_it: Vec<u8> = (1..=12).filter(|number| store.segment_of(*number) == segment).collect();
    assert!(of_it.starts_with(&[1, 2, 3, 4]), "{of_it:?}");
    for number in [1, 5, 6, 7] {
        store.submit(BlobRequestKind::Remove { blob: id(number) });
    }
    let place = store.place_of(3);
    store.pass_unread(place, Duration::from_secs(50));
    assert_eq!(store.events(), [BlobEvent::Damage { blob: id(3) }]);
    assert!(store.segment_of(2) != segment && store.segment_of(4) != segment, "they were moved");
    assert_eq!(store.segment_of(3), segment);
    for number in [2, 3, 4] {
        assert_eq!(store.get(number, 0, len(number)).unwrap(), data_of(number, len(number)), "{number}");
    }
    // It is tried again later, in vain and then not.
    store.pass_unread(place, Duration::from_secs(20));
    assert_eq!(store.events(), [BlobEvent::Damage { blob: id(3) }]);
    assert_eq!((store.segment_of(3), store.blobs.segments.get(segment).state), (segment, SegmentState::Postponed));
    store.pass_unread(usize::MAX, Duration::from_secs(60));
    assert_eq!(store.events(), []);
    assert_ne!(store.segment_of(3), segment);
    assert_eq!(store.blobs.segments.get(segment).state, SegmentState::Free);
    assert_eq!(store.get(3, 0, 20_000).unwrap(), data_of(3, 20_000));
    store.reopen();
    assert_eq!(store.list(), [2, 3, 4, 8, 9, 10, 11, 12]);
}

#[test]
fn after_many_records_that_cannot_be_read_the_rest_of_a_segment_is_not_tried() {
    let mut store = unpaced();
    (1..=20).for_each(|number| drop(store.put(number, 100).unwrap()));
    (21..=32).for_each(|number| drop(store.put(number, 20_000).unwrap()));
    let segment = store.segment_of(1);
    assert_eq!(store.segment_of(20), segment);
    for number in (21..=32).filter(|number| store.segment_of(*number) == segment).collect::<Vec<_>>() {
        store.submit(BlobRequestKind::Remove { blob: id(number) });
    }
    let places: Vec<usize> = (1..=20).map(|number| store.place_of(number)).collect();
    store.pass_unread_from(&places, Duration::from_secs(50));
    assert_eq!(store.events().len(), 16);
    assert_eq!(store.blobs.segments.get(segment).state, SegmentState::Postponed);
    store.pass_unread(usize::MAX, Duration::from_secs(60));
    assert_eq!((store.events(), store.blobs.segments.get(segment).state), (vec![], SegmentState::Free));
    for number in 1..=20 {
        assert_eq!(store.get(number, 0, 100).unwrap(), data_of(number, 100), "{number}");
    }
}

#[test]
fn a_segment_is_free_once_what_could_not_be_read_is_put_anew() {
    let mut store = unpaced();
    (1..=12).for_each(|number| drop(store.put(number, 20_000).unwrap()));
    let segment = store.segment_of(3);
    for number in [1, 4, 5, 6, 7] {
        store.submit(BlobRequestKind::Remove { blob: id(number) });
    }
    let place = store.place_of(3);
    store.pass_unread(place, Duration::from_secs(1));
    assert_eq!(store.blobs.segments.get(segment).state, SegmentState::Postponed);
    store.ask(BlobRequestKind::Repair(blob(3, 20_000))).unwrap();
    store.pass_unread(place, Duration::from_secs(60));
    assert_eq!(store.blobs.segments.get(segment).state, SegmentState::Free);
}

#[test]
fn a_failed_write_poisons_and_is_not_retried() {
    let mut setup = Setup::new(config());
    setup.put(1, 100).unwrap();
    setup.submit(BlobRequestKind::Put(blob(2, 100)));
    setup.submit(BlobRequestKind::Get { blob: id(1), offset: 0, len: 100 });
    setup.asked.clear();
    setup.complete_with(|io| matches!(io, IoKind::Write { .. }));
    let replies: Vec<_> =
        core::iter::from_fn(|| setup.blobs.poll_reply()).map(|(_, reply)| reply.unwrap_err()).collect();
    assert_eq!(replies, [BlobError::Poisoned(EIO); 2]);
    assert_eq!(setup.events(), [BlobEvent::Poisoned(EIO)]);
    assert_eq!(setup.asked.iter().filter(|io| matches!(io, IoKind::Write { .. })).count(), 1);
    assert_eq!(setup.get(1, 0, 100), Err(BlobError::Poisoned(EIO)));
    setup.pass(Duration::from_secs(1));
    assert_eq!(setup.blobs.poll_timeout(), None);
    assert!(setup.blobs.poll_io().is_none());
}

#[test]
fn opening_refuses_what_is_not_meant() {
    let mut drive = FakeDrive::new(AREA_BYTES);
    let now = Instant::ORIGIN;
    let refused = |drive: &mut FakeDrive, expected| open(drive, config(), expected, now).unwrap_err();
    assert_eq!(refused(&mut drive, expected()), OpenError::NotFormatted);
    assert_eq!(refused(&mut drive, Expected { bytes: 4_096, ..expected() }), OpenError::NotFormatted);
    format(&mut drive, &new_area(), Existing::Refuse).unwrap();
    let again = format(&mut drive, &new_area(), Existing::Refuse);
    assert_eq!(again, Err(OpenError::AlreadyFormatted(new_area().drive)));
    let other = ClusterId::from_bytes([9; 16]);
    let foreign = refused(&mut drive, Expected { cluster: other, ..expected() });
    assert_eq!(foreign, OpenError::ForeignCluster(new_area().cluster));
    let other = refused(&mut drive, Expected { drive: Some(DriveId::from_bytes([9; 16])), ..expected() });
    assert_eq!(other, OpenError::OtherDrive(new_area().drive));
    let bytes = AREA_BYTES as u64 - 4_096;
    let smaller = refused(&mut drive, Expected { bytes, ..expected() });
    assert_eq!(smaller, OpenError::WrongSize { bytes, formatted_bytes: AREA_BYTES as u64 });
    // One superblock is enough.
    drive.flip(100, 1);
    assert!(open(&mut drive, config(), expected(), now).is_ok());
    drive.flip(AREA_BYTES - 1, 1);
    assert_eq!(refused(&mut drive, expected()), OpenError::Damaged("superblock of blobs"));
}

#[test]
fn an_interrupted_formatting_is_no_area() {
    for completed in 0..14 {
        let mut drive = FakeDrive::new(AREA_BYTES);
        let mut chance = Chance::new(completed);
        let mut formatting = BlobFormatting::new(&new_area(), Existing::Refuse).unwrap();
        for _ in 0..completed {
            while let Some(io) = formatting.poll_io() {
                drive.start(io);
            }
            let (io, output) = drive.complete(0, &mut chance);
            formatting.handle_io(io.id, Ok(output));
        }
        assert!(formatting.poll_ready().is_none(), "{completed}");
        drive.crash(&mut chance);
        assert!(open(&mut drive, config(), expected(), Instant::ORIGIN).is_err());
    }
}

#[test]
fn formatting_marks_each_segment_and_syncs_once_all_marks_are_written() {
    let mut drive = FakeDrive::new(AREA_BYTES);
    let mut chance = Chance::new(1);
    let new = new_area();
    let mut formatting = BlobFormatting::new(&new, Existing::Refuse).unwrap();
    // Where was written how many blocks, sync by sync.
    let mut rounds = vec![Vec::new()];
    while formatting.poll_ready().is_none() {
        while let Some(io) = formatting.poll_io() {
            match &io.kind {
                IoKind::Sync => {
                    assert_eq!(drive.in_flight(), 0, "what is not written yet is not synced");
                    rounds.push(Vec::new());
                }
                IoKind::Write { offset, data, .. } => {
                    let blocks: usize = data.iter().map(|part| part.bytes().len() / BLOCK_BYTES).sum();
                    rounds.last_mut().unwrap().push((*offset, blocks));
                }
                _ => {}
            }
            drive.start(io);
        }
        let (io, output) = drive.complete(0, &mut chance);
        formatting.handle_io(io.id, Ok(output));
    }
    let geometry = BlobGeometry::plan(new.bytes, new.segment_blocks).unwrap();
    let last = |segment| geometry.offset(segment, SEGMENT_BLOCKS - 1);
    let segments = SEGMENTS as u32;
    let between = (1..segments).map(|segment| (last(segment - 1), 2));
    let marks: Vec<_> =
        [(geometry.offset(0, 0), 1)].into_iter().chain(between).chain([(last(segments - 1), 1)]).collect();
    let superblocks = geometry.superblock_offsets().map(|offset| (offset, 1)).to_vec();
    assert_eq!(rounds, [superblocks.clone(), marks, superblocks, Vec::new()]);
}

#[test]
fn an_opening_reads_a_segment_without_a_summary_in_pieces_and_nothing_behind_it() {
    let segment_blocks = 300;
    let bytes = (8 + 8 * u64::from(segment_blocks) + 1) * BLOCK_BYTES as u64;
    let new = NewBlobArea { bytes, segment_blocks, ..new_area() };
    let mut drive = FakeDrive::new(usize::try_from(bytes).unwrap());
    format(&mut drive, &new, Existing::Refuse).unwrap();
    let expected = Expected { bytes, ..expected() };
    let blobs = open(&mut drive, config(), expected, Instant::ORIGIN).unwrap();
    let mut setup = Setup { drive, chance: Chance::new(1), blobs, now: Instant::ORIGIN, next: 0, asked: Vec::new() };
    setup.put(1, 9_000).unwrap();
    let segment = setup.blobs.index.live(id(1)).unwrap().segment;
    let start = setup.blobs.geometry.offset(segment, 0);

    let mut opening = BlobOpening::new(config(), expected);
    let mut pieces = Vec::new();
    while opening.poll_ready(setup.now).is_none() {
        while let Some(io) = opening.poll_io() {
            if let IoKind::Read { offset, len } = io.kind
                && len > 16 * BLOCK_BYTES
            {
                pieces.push(((offset - start) / BLOCK_BYTES as u64, len / BLOCK_BYTES));
            }
            setup.drive.start(io);
        }
        let (io, output) = setup.drive.complete(0, &mut setup.chance);
        opening.handle_io(io.id, Ok(output));
    }
    assert_eq!(pieces, [(0, 256), (256, 44)]);
}

#[test]
fn the_scrub_finds_damage_that_nobody_reads() {
    let interval = Duration::from_secs(1);
    let mut setup = Setup::new(BlobConfig { scrub_interval: Some(interval), ..config() });
    (1..=3).for_each(|number| drop(setup.put(number, 9_000).unwrap()));
    let place = setup.place_of(2) + 8_999;
    setup.drive.flip(place, 1);
    setup.asked.clear();
    let mut found = Vec::new();
    for _ in 0..8 {
        setup.pass(interval);
        found.extend(setup.events());
    }
    assert_eq!(found, [BlobEvent::Damage { blob: id(2) }; 2]);
}
