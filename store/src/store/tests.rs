//! One drive from outside: requests in, answers out, and what the drive was asked for.

use super::*;
use crate::block::{BlockChecksum, BlockRange, BlockSet, EXTENT_BLOCKS, EXTENT_BYTES, LostBlocks};
use crate::buffer::{AlignedBuf, BLOCK_BYTES, Segment};
use crate::error::OpenError;
use crate::format::{Existing, Formatting, NewDrive};
use crate::io::{Durability, IoKind, IoOutput};
use crate::layout::LayoutOptions;
use crate::opening::{Expected, Opening};
use crate::page::PageId;
use crate::planted::Bugs;
use crate::proof::Chance;
use crate::proof::drive::FakeDrive;
use crate::record::{Key, Value};
use crate::request::RequestKind;
use ashlar_placement::map::{GroupId, PgId, SetId};
use ashlar_placement::rule::Extent;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{ClusterId, DriveId, ServerId, VolumeId};
use ashlar_wire::version::Version;
use core::time::Duration;

const GROUP: GroupId = GroupId { set: SetId(1), pg: PgId(2) };

struct Setup {
    drive: FakeDrive,
    chance: Chance,
    store: Store,
    now: Instant,
    next: u64,
    /// Everything that the drive was asked for.
    asked: Vec<IoKind>,
}

fn new_drive(bytes: usize, id: u8) -> NewDrive {
    NewDrive {
        cluster: ClusterId::from_bytes([1; 16]),
        server: ServerId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([id; 16]),
        nonce: [id; 16],
        bytes: bytes as u64,
        options: LayoutOptions { journal_blocks: 1_040, records_max: 4, tombstones_max: 3 },
    }
}

fn config() -> Config {
    Config { requests_max: 40, pages_cached_max: 1, list_max: 3, scrub_interval: None, ..Config::default() }
}

fn format(drive: &mut FakeDrive, new: &NewDrive, existing: Existing) -> Result<Superblock, OpenError> {
    let mut chance = Chance::new(1);
    let mut formatting = Formatting::new(new, existing)?;
    loop {
        while let Some(io) = formatting.poll_io() {
            drive.start(io);
        }
        if let Some(result) = formatting.poll_ready() {
            return result;
        }
        let (io, output) = drive.complete(0, &mut chance);
        formatting.handle_io(io.id, Ok(output));
    }
}

fn open(drive: &mut FakeDrive, config: Config, expected: Expected) -> Result<Store, OpenError> {
    let mut chance = Chance::new(1);
    let mut opening = Opening::with_bugs(config, expected, Bugs::default());
    loop {
        while let Some(io) = opening.poll_io() {
            drive.start(io);
        }
        if let Some(result) = opening.poll_ready(Instant::ORIGIN) {
            return result;
        }
        let (io, output) = drive.complete(0, &mut chance);
        opening.handle_io(io.id, Ok(output));
    }
}

fn expected(new: &NewDrive) -> Expected {
    Expected { cluster: new.cluster, drive: Some(new.drive), bytes: new.bytes }
}

impl Setup {
    /// A drive with about so many slots.
    fn new(slots: usize, config: Config) -> Self {
        let bytes = (1_400 + slots * EXTENT_BLOCKS) * BLOCK_BYTES;
        let mut drive = FakeDrive::new(bytes);
        let new = new_drive(bytes, 3);
        format(&mut drive, &new, Existing::Refuse).unwrap();
        let store = open(&mut drive, config, expected(&new)).unwrap();
        Self { drive, chance: Chance::new(1), store, now: Instant::ORIGIN, next: 0, asked: Vec::new() }
    }

    fn submit(&mut self, kind: RequestKind) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.store.handle_request(self.now, id, Request { deadline: Instant::NEVER, kind }).unwrap();
        id
    }

    fn start_ios(&mut self) {
        while let Some(io) = self.store.poll_io() {
            self.asked.push(io.kind.clone());
            self.drive.start(io);
        }
    }

    /// Completes everything, in order.
    fn complete_all(&mut self) {
        self.start_ios();
        while self.drive.in_flight() > 0 {
            let (io, output) = self.drive.complete(0, &mut self.chance);
            self.store.handle_io(self.now, io.id, Ok(output));
            self.start_ios();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.store.handle_timeout(self.now);
        self.complete_all();
    }

    fn settle(&mut self) {
        for _ in 0..4 {
            self.pass(Duration::from_secs(2));
        }
        assert!(self.store.is_settled());
    }

    fn ask(&mut self, kind: RequestKind) -> Result<Reply, Error> {
        let id = self.submit(kind);
        self.complete_all();
        let (answered, result) = self.store.poll_completion().expect("everything was completed");
        assert_eq!(answered, id);
        result
    }

    fn write(&mut self, extent: u64, first: usize, blocks: usize, fill: u8, sequence: u64) -> Result<Reply, Error> {
        self.ask(write(extent, first, blocks, fill, sequence))
    }

    fn read(&mut self, extent: u64) -> Result<(Vec<u8>, u64), Error> {
        let reply = self.ask(read(extent))?;
        let Reply::Data { data, version } = reply else { panic!("a read gives data") };
        Ok((data.chunks_exact(BLOCK_BYTES).map(|block| block[0]).collect(), version.sequence))
    }

    /// First bytes of the blocks, version, and what is lost.
    fn salvage(&mut self, extent: u64) -> (Vec<u8>, u64, Vec<usize>) {
        let reply = self.ask(RequestKind::Salvage { extent: id(extent) }).unwrap();
        let Reply::Salvaged { data, version, lost } = reply else { panic!("salvage gives what there is") };
        let values = data.chunks_exact(BLOCK_BYTES).map(|block| block[0]).collect();
        (values, version.sequence, lost.iter().collect())
    }
}

fn id(extent: u64) -> ExtentId {
    ExtentId { volume: VolumeId::from_bytes([9; 16]), extent: Extent(extent) }
}

fn version(sequence: u64) -> Version {
    Version { epoch: Epoch(1), sequence }
}

fn segment(blocks: usize, fill: u8) -> Segment {
    let mut buf = AlignedBuf::zeroed(blocks);
    buf.fill(fill);
    buf.into()
}

fn write(extent: u64, first: usize, blocks: usize, fill: u8, sequence: u64) -> RequestKind {
    let (offset, data) = (u32::try_from(first * BLOCK_BYTES).unwrap(), segment(blocks, fill));
    RequestKind::Write { extent: id(extent), group: GROUP, offset, data, version: version(sequence) }
}

fn read(extent: u64) -> RequestKind {
    RequestKind::Read { extent: id(extent), offset: 0, len: u32::try_from(EXTENT_BYTES).unwrap() }
}

fn clear(extent: u64, sequence: u64) -> RequestKind {
    let len = u32::try_from(EXTENT_BYTES).unwrap();
    RequestKind::Clear { extent: id(extent), offset: 0, len, version: version(sequence) }
}

#[test]
fn what_is_written_is_read_with_its_version_before_and_after_write_back() {
    let mut setup = Setup::new(8, config());
    assert_eq!(setup.read(1).unwrap(), (vec![0; 256], 0));
    setup.write(1, 2, 1, 7, 5).unwrap();
    setup.write(1, 100, 40, 8, 6).unwrap();
    let mut blocks = vec![0; 256];
    blocks[2] = 7;
    blocks[100..140].fill(8);
    assert_eq!(setup.read(1).unwrap(), (blocks.clone(), 6));
    setup.settle();
    assert_eq!(setup.read(1).unwrap(), (blocks.clone(), 6));
    setup.ask(RequestKind::Clear { extent: id(1), offset: 0x2000, len: 0x1000, version: version(7) }).unwrap();
    blocks[2] = 0;
    assert_eq!(setup.read(1).unwrap(), (blocks, 7));
}

#[test]
fn a_torn_batch_is_not_completed_by_a_later_one() {
    let (config, new) = (config(), new_drive((1_400 + 8 * EXTENT_BLOCKS) * BLOCK_BYTES, 3));
    let mut setup = Setup::new(8, config);
    setup.write(1, 0, 1, 7, 5).unwrap();
    setup.asked.clear();
    setup.write(1, 0, 1, 8, 6).unwrap();
    let Some(IoKind::Write { offset, .. }) = setup.asked.first() else { panic!("a batch is written") };
    // The last sector of its entries, which has none, did not reach the drive.
    let lacking = usize::try_from(*offset).unwrap() + BLOCK_BYTES - 1;
    setup.drive.flip(lacking, 0xff);
    setup.store = open(&mut setup.drive, config, expected(&new)).unwrap();
    assert_eq!(setup.read(1).unwrap(), ([vec![7], vec![0; 255]].concat(), 5));
    // It does so with another batch, of which nothing else does.
    setup.drive.flip(lacking, 0xff);
    setup.store = open(&mut setup.drive, config, expected(&new)).unwrap();
    assert_eq!(setup.read(1).unwrap(), ([vec![7], vec![0; 255]].concat(), 5));
}

#[test]
fn versions_rise_and_duplicates_are_done() {
    let mut setup = Setup::new(8, config());
    setup.write(1, 0, 1, 7, 5).unwrap();
    assert!(matches!(setup.write(1, 0, 1, 9, 5), Ok(Reply::Done)));
    assert_eq!(setup.write(1, 0, 1, 9, 4).unwrap_err(), Error::StaleVersion { held: version(5) });
    assert_eq!(setup.write(1, 0, 1, 9, 0).unwrap_err(), Error::StaleVersion { held: version(5) });
    assert_eq!(setup.ask(clear(1, 4)).unwrap_err(), Error::StaleVersion { held: version(5) });
    assert_eq!(setup.read(1).unwrap().0[0], 7);
    let zero =
        RequestKind::Write { extent: id(2), group: GROUP, offset: 0, data: segment(1, 1), version: Version::ZERO };
    assert_eq!(setup.ask(zero).unwrap_err(), Error::ZeroVersion);
    let (held, other) = (GROUP, GroupId { pg: PgId(9), ..GROUP });
    let foreign =
        RequestKind::Write { extent: id(1), group: other, offset: 0, data: segment(1, 1), version: version(6) };
    assert_eq!(setup.ask(foreign).unwrap_err(), Error::OtherGroup { held });

    // A duplicate of a write in flight is done when that one is.
    let first = setup.submit(write(1, 0, 1, 8, 6));
    let second = setup.submit(write(1, 0, 1, 8, 6));
    assert!(setup.store.poll_completion().is_none());
    setup.complete_all();
    let answered: Vec<_> = core::iter::from_fn(|| setup.store.poll_completion()).map(|(id, _)| id).collect();
    assert_eq!(answered, [first, second]);
}

#[test]
fn writes_that_gather_share_one_batch() {
    let mut setup = Setup::new(8, Config { pages_cached_max: 100, ..config() });
    setup.write(1, 0, 1, 1, 1).unwrap();
    setup.asked.clear();
    for index in 0..30 {
        setup.submit(write(1, 0, 1, 1, 2 + index));
    }
    setup.complete_all();
    let answers = core::iter::from_fn(|| setup.store.poll_completion()).map(|(_, result)| result.unwrap());
    assert_eq!(answers.count(), 30);
    let blocks: Vec<usize> = setup.asked.iter().map(durable_blocks).collect();
    // The first alone, everything behind it together.
    assert_eq!(blocks, [2, 1 + 29]);
}

fn durable_blocks(io: &IoKind) -> usize {
    match io {
        IoKind::Write { data, durability: Durability::Durable, .. } => data.iter().map(Segment::blocks).sum(),
        _ => 0,
    }
}

#[test]
fn the_data_of_a_large_write_reaches_the_drive_without_a_copy_and_before_its_entry() {
    let mut setup = Setup::new(8, config());
    let data = segment(256, 5);
    let address = data.bytes().as_ptr();
    setup.submit(RequestKind::Write { extent: id(1), group: GROUP, offset: 0, data, version: version(1) });
    setup.complete_all();
    let writes: Vec<_> = setup.asked.iter().filter(|io| durable_blocks(io) > 0).collect();
    let IoKind::Write { data, .. } = writes[0] else { panic!("a write") };
    assert_eq!((writes.len(), data[0].bytes().as_ptr()), (2, address));
    assert_eq!((durable_blocks(writes[0]), durable_blocks(writes[1])), (256, 1));
}

#[test]
fn a_full_drive_reads_discards_replaces_and_deletes() {
    let mut setup = Setup::new(6, config());
    let mut extents = 0;
    while setup.write(extents, 0, 256, 1, 1).is_ok() {
        extents += 1;
    }
    assert_eq!(setup.write(extents, 0, 1, 1, 1).unwrap_err(), Error::Full);
    assert_eq!((setup.store.free_bytes(), extents > 3), (0, true));
    // Overwriting is no new data, whole or in part.
    setup.write(0, 0, 256, 2, 2).unwrap();
    setup.write(0, 7, 100, 3, 3).unwrap();
    let blocks = BlockSet::of(BlockRange { first: 0, count: 1 });
    let data = Some(segment(1, 4));
    setup.ask(replace(2, blocks, LostBlocks::default(), data)).unwrap();
    assert_eq!(setup.read(1).unwrap().0[..2], [4, 0]);
    setup.ask(clear(0, 4)).unwrap();
    assert_eq!(setup.read(0).unwrap(), (vec![0; 256], 4));
    setup.write(extents, 0, 1, 1, 1).unwrap();
    setup.ask(RequestKind::DeleteVolume { volume: id(0).volume }).unwrap();
    setup.settle();
    assert_eq!(setup.store.free_bytes(), extents * EXTENT_BYTES as u64);
}

#[test]
fn above_the_limit_requests_are_refused_and_later_taken() {
    let mut setup = Setup::new(6, config());
    for index in 0..40 {
        setup.submit(write(1, 0, 1, 1, 1 + index));
    }
    let request = Request { deadline: Instant::NEVER, kind: read(1) };
    assert_eq!(setup.store.handle_request(setup.now, RequestId(99), request.clone()), Err(Error::Busy));
    setup.complete_all();
    assert_eq!(setup.store.handle_request(setup.now, RequestId(99), request), Ok(()));
}

#[test]
fn no_more_ios_are_given_out_than_the_drive_shall_have() {
    let mut setup = Setup::new(8, Config { ios_max: 3, pages_cached_max: 100, ..config() });
    (0..6).for_each(|extent| drop(setup.write(extent, 0, 1, 1, 1).unwrap()));
    for extent in 0..6 {
        setup.submit(write(extent, 1, 100, 1, 2));
    }
    setup.start_ios();
    assert_eq!(setup.drive.in_flight(), 3);
    setup.complete_all();
    assert_eq!(core::iter::from_fn(|| setup.store.poll_completion()).filter(|(_, result)| result.is_ok()).count(), 6);
}

#[test]
fn what_expires_before_it_costs_an_io_is_dropped() {
    let mut setup = Setup::new(6, config());
    setup.write(1, 0, 20, 1, 1).unwrap();
    setup.settle();
    setup.asked.clear();
    for kind in [write(1, 0, 1, 2, 2), read(1), clear(1, 2)] {
        let request = Request { deadline: setup.now, kind };
        setup.store.handle_request(setup.now, RequestId(77), request).unwrap();
        assert!(matches!(setup.store.poll_completion(), Some((_, Err(Error::Expired)))));
    }
    setup.complete_all();
    assert!(setup.asked.is_empty());
    assert_eq!(setup.read(1).unwrap().1, 1);
}

#[test]
fn a_failed_write_or_sync_poisons_the_drive() {
    for fails in [|io: &IoKind| durable_blocks(io) > 0, |io: &IoKind| matches!(io, IoKind::Sync)] {
        let mut setup = Setup::new(6, config());
        setup.submit(write(1, 0, 1, 2, 2));
        let mut failed = false;
        for _ in 0..40 {
            while let Some(io) = setup.store.poll_io() {
                if fails(&io.kind) {
                    setup.store.handle_io(setup.now, io.id, Err(IoError { errno: 5 }));
                    failed = true;
                } else {
                    setup.drive.start(io);
                }
            }
            if setup.drive.in_flight() > 0 {
                let (io, output) = setup.drive.complete(0, &mut setup.chance);
                setup.store.handle_io(setup.now, io.id, Ok(output));
            } else {
                setup.now = setup.now + Duration::from_secs(1);
                setup.store.handle_timeout(setup.now);
            }
        }
        assert!(failed);
        let poisoned = Error::Poisoned(IoError { errno: 5 });
        let _ = setup.store.poll_completion();
        assert_eq!(setup.store.poll_event(), Some(Event::Poisoned(IoError { errno: 5 })));
        setup.submit(read(1));
        assert!(matches!(setup.store.poll_completion(), Some((_, Err(error))) if error == poisoned));
        assert!(setup.store.poll_io().is_none() && setup.store.poll_timeout().is_none());
    }
}

/// The offset of an extent's first block on the drive.
fn data_offset(setup: &Setup, extent: u64) -> usize {
    let cell = setup.store.index.by_extent[&id(extent)];
    let slot = setup.store.tables.infos[cell.0 as usize].unwrap().slot.unwrap();
    usize::try_from(setup.store.geometry.slot_offset(slot, 0)).unwrap()
}

#[test]
fn damaged_blocks_are_reported_by_reads_and_scrub_and_repaired_by_replacement() {
    let mut setup = Setup::new(6, Config { scrub_interval: Some(Duration::from_secs(9)), ..config() });
    setup.write(1, 0, 256, 1, 1).unwrap();
    setup.write(2, 0, 256, 1, 1).unwrap();
    let at = data_offset(&setup, 1);
    setup.drive.flip(at + 5_000, 1);
    assert_eq!(setup.read(1).unwrap_err(), Error::Damaged);
    assert_eq!(setup.store.poll_event(), Some(Event::Damage { extent: id(1) }));
    let other = RequestKind::Read { extent: id(1), offset: 0x2000, len: 0x1000 };
    assert!(setup.ask(other).is_ok());
    assert!(setup.read(2).is_ok());
    (0..3).for_each(|_| setup.pass(Duration::from_secs(10)));
    assert_eq!(setup.store.poll_event(), Some(Event::Damage { extent: id(1) }));
    let (blocks, data) = (BlockSet::of(BlockRange::WHOLE), Some(segment(256, 1)));
    setup.ask(replace(1, blocks, LostBlocks::default(), data)).unwrap();
    assert_eq!(setup.read(1).unwrap(), (vec![1; 256], 1));
    (0..3).for_each(|_| setup.pass(Duration::from_secs(10)));
    assert_eq!(setup.store.poll_event(), None);
}

fn replace(version_of: u64, blocks: BlockSet, lost: LostBlocks, data: Option<Segment>) -> RequestKind {
    RequestKind::Replace { extent: id(1), group: GROUP, version: version(version_of), blocks, lost, data }
}

#[test]
fn lost_blocks_are_damaged_until_they_are_written() {
    let mut setup = Setup::new(6, config());
    let (blocks, mut lost) = (BlockSet::of(BlockRange { first: 2, count: 5 }), LostBlocks::default());
    let sum = BlockChecksum::of(id(1), 3, AlignedBuf::copy_of(&[7; BLOCK_BYTES]).block(0));
    lost.insert(3, Some(sum));
    lost.insert(4, None);
    setup.ask(replace(1, blocks, lost, Some(segment(5, 1)))).unwrap();
    setup.settle();
    let new = new_drive(setup.drive.bytes(), 3);
    setup.store = open(&mut setup.drive, config(), expected(&new)).unwrap();
    assert_eq!(setup.read(1).unwrap_err(), Error::Damaged);
    let mut expected = vec![0_u8; 256];
    [2, 5, 6].into_iter().for_each(|block| expected[block] = 1);
    let reply = setup.ask(RequestKind::Salvage { extent: id(1) }).unwrap();
    let Reply::Salvaged { lost, .. } = reply else { panic!("salvage gives what there is") };
    assert_eq!(lost.sum(3), Some(sum), "by which the content is known again");
    assert_ne!(lost.sum(4), Some(BlockChecksum::of(id(1), 4, &[0; BLOCK_BYTES])), "of nothing");
    assert_eq!(setup.salvage(1), (expected.clone(), 1, vec![3, 4]));
    setup.write(1, 3, 1, 9, 2).unwrap();
    expected[3] = 9;
    assert_eq!(setup.salvage(1), (expected.clone(), 2, vec![4]));
    setup.ask(RequestKind::Clear { extent: id(1), offset: 0x4000, len: 0x1000, version: version(3) }).unwrap();
    assert_eq!(setup.salvage(1), (expected.clone(), 3, vec![]));
    assert_eq!(setup.read(1).unwrap(), (expected, 3));
}

#[test]
fn what_can_be_read_is_salvaged_where_the_drive_fails_to_read() {
    let mut setup = Setup::new(6, config());
    setup.write(1, 0, 8, 1, 1).unwrap();
    setup.settle();
    let at = data_offset(&setup, 1);
    setup.drive.flip(at + 5_000, 1);
    let unreadable = (at + 3 * BLOCK_BYTES) as u64;
    setup.submit(RequestKind::Salvage { extent: id(1) });
    let reply = loop {
        if let Some((_, reply)) = setup.store.poll_completion() {
            break reply;
        }
        let io = setup.store.poll_io().unwrap();
        let IoKind::Read { offset, len } = io.kind else { panic!("a read") };
        let result = if (offset..offset + len as u64).contains(&unreadable) {
            Err(IoError { errno: 5 })
        } else {
            let start = usize::try_from(offset).unwrap();
            Ok(IoOutput::Data(AlignedBuf::copy_of(&setup.drive.content(start..start + len))))
        };
        setup.store.handle_io(setup.now, io.id, result);
    };
    let Ok(Reply::Salvaged { data, lost, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!(lost.iter().collect::<Vec<_>>(), [1, 3]);
    let values: Vec<u8> = data.chunks(BLOCK_BYTES).take(9).map(|block| block[9]).collect();
    assert_eq!(values, [1, 0, 1, 0, 1, 1, 1, 1, 0]);
    assert_eq!(setup.store.poll_event(), Some(Event::Damage { extent: id(1) }));
}

#[test]
fn a_failed_read_is_that_request_only() {
    let mut setup = Setup::new(6, config());
    setup.write(1, 0, 256, 1, 1).unwrap();
    setup.submit(read(1));
    let io = setup.store.poll_io().unwrap();
    setup.store.handle_io(setup.now, io.id, Err(IoError { errno: 5 }));
    let error = Error::ReadFailed(IoError { errno: 5 });
    assert!(matches!(setup.store.poll_completion(), Some((_, Err(found))) if found == error));
    assert_eq!(setup.read(1).unwrap().0, [1; 256]);
}

#[test]
fn one_damaged_copy_of_a_page_is_repaired_and_two_are_refused() {
    for (copies, is_open) in [(vec![0], true), (vec![1], true), (vec![0, 1], false)] {
        let mut setup = Setup::new(6, config());
        setup.write(1, 0, 256, 1, 1).unwrap();
        setup.settle();
        let geometry = setup.store.geometry;
        let offset = |copy| usize::try_from(geometry.page_offset(PageId(0), copy)).unwrap();
        let places: Vec<usize> = copies.iter().map(|copy| offset(*copy)).collect();
        places.iter().for_each(|at| setup.drive.flip(at + 700, 0x10));
        let new = new_drive(setup.drive.bytes(), 3);
        match open(&mut setup.drive, config(), expected(&new)) {
            Ok(store) => setup.store = store,
            Err(error) => {
                assert_eq!((error, is_open), (OpenError::Damaged("tables: both copies of a page"), false));
                continue;
            }
        }
        assert!(is_open);
        assert_eq!(setup.read(1).unwrap(), (vec![1; 256], 1));
        setup.asked.clear();
        setup.settle();
        let places = [0, 1].map(|copy| geometry.page_offset(PageId(0), copy));
        let steps = setup.asked.iter().filter_map(|kind| match kind {
            IoKind::Write { offset, .. } => places.iter().position(|place| place == offset).map(Some),
            IoKind::Sync => Some(None),
            IoKind::Read { .. } => None,
        });
        let (damaged, whole) = (copies[0], 1 - copies[0]);
        assert_eq!(
            steps.collect::<Vec<_>>(),
            [Some(damaged), None, Some(whole), None],
            "the whole copy is written last"
        );
        let copy = |copy| setup.drive.content(offset(copy)..offset(copy) + BLOCK_BYTES);
        assert_eq!(copy(0), copy(1));
    }
}

#[test]
fn lists_and_scans_come_in_pages() {
    let mut setup = Setup::new(10, config());
    (0..5).for_each(|extent| drop(setup.write(extent, 0, 1, 1, 1 + extent).unwrap()));
    let list = RequestKind::List { group: GROUP, after: None };
    let Ok(Reply::Extents { extents, more }) = setup.ask(list) else { panic!("a list") };
    assert_eq!((extents, more), (vec![(id(0), version(1)), (id(1), version(2)), (id(2), version(3))], true));
    let list = RequestKind::List { group: GROUP, after: Some(id(2)) };
    let Ok(Reply::Extents { extents, more }) = setup.ask(list) else { panic!("a list") };
    assert_eq!((extents, more), (vec![(id(3), version(4)), (id(4), version(5))], false));

    let key = |name: u8| Key::new(&[name]).unwrap();
    let value = Value::new(b"value").unwrap();
    for name in 0..4 {
        setup.ask(RequestKind::PutRecord { key: key(name), value: value.clone() }).unwrap();
    }
    let fifth = RequestKind::PutRecord { key: key(4), value: value.clone() };
    assert_eq!(setup.ask(fifth.clone()).unwrap_err(), Error::TooManyRecords);
    setup.ask(RequestKind::DeleteRecord { key: key(1) }).unwrap();
    setup.ask(fifth).unwrap();
    let Ok(Reply::Records { records, more }) = setup.ask(RequestKind::Scan { after: None }) else { panic!("a scan") };
    assert_eq!((records.len(), more), (3, true));
    let after = Some(records[2].0.clone());
    let Ok(Reply::Records { records, more }) = setup.ask(RequestKind::Scan { after }) else { panic!("a scan") };
    assert_eq!((records, more), (vec![(key(4), value)], false));
}

#[test]
fn a_store_is_not_settled_while_a_write_is_under_way() {
    let mut setup = Setup::new(8, config());
    setup.settle();
    setup.submit(write(1, 0, 4, 1, 1));
    let mut ios = 0;
    for _ in 0..40 {
        setup.start_ios();
        while setup.drive.in_flight() > 0 {
            assert!(!setup.store.is_settled(), "{:?}", setup.asked.last());
            ios += 1;
            let (io, output) = setup.drive.complete(0, &mut setup.chance);
            setup.store.handle_io(setup.now, io.id, Ok(output));
            setup.start_ios();
        }
        setup.now = setup.now + Duration::from_millis(100);
        setup.store.handle_timeout(setup.now);
    }
    assert!(setup.store.is_settled());
    assert!(ios >= 4, "the batch, the data, the table, and what says that they are there: {ios}");
}

#[test]
fn deleted_volumes_stay_deleted_until_they_are_forgotten() {
    let mut setup = Setup::new(8, config());
    let volume = id(0).volume;
    (0..5).for_each(|extent| drop(setup.write(extent, 0, 20, 1, 1).unwrap()));
    assert!(!setup.store.has_deleted_volumes());
    setup.ask(RequestKind::DeleteVolume { volume }).unwrap();
    assert!(setup.store.has_deleted_volumes());
    assert_eq!(setup.read(1).unwrap_err(), Error::VolumeDeleted);
    assert_eq!(setup.write(9, 0, 1, 1, 9).unwrap_err(), Error::VolumeDeleted);
    setup.settle();
    let list = RequestKind::List { group: GROUP, after: None };
    assert!(matches!(setup.ask(list), Ok(Reply::Extents { extents, more: false }) if extents.is_empty()));
    for other in [1, 2] {
        setup.ask(RequestKind::DeleteVolume { volume: VolumeId::from_bytes([other; 16]) }).unwrap();
    }
    let fourth = RequestKind::DeleteVolume { volume: VolumeId::from_bytes([3; 16]) };
    assert_eq!(setup.ask(fourth.clone()).unwrap_err(), Error::TooManyTombstones);
    setup.ask(RequestKind::ForgetVolume { volume }).unwrap();
    setup.ask(fourth).unwrap();
    assert_eq!(setup.read(1).unwrap(), (vec![0; 256], 0));
}

#[test]
fn an_extent_without_data_keeps_its_version_until_it_is_forgotten() {
    let mut setup = Setup::new(8, config());
    setup.write(1, 0, 1, 1, 5).unwrap();
    let forget = |sequence| RequestKind::ForgetExtent { extent: id(1), version: version(sequence) };
    assert_eq!(setup.ask(forget(5)).unwrap_err(), Error::HasData);
    setup.ask(clear(1, 6)).unwrap();
    assert_eq!(setup.write(1, 0, 1, 1, 5).unwrap_err(), Error::StaleVersion { held: version(6) });
    assert_eq!(setup.ask(forget(5)).unwrap_err(), Error::StaleVersion { held: version(6) });
    let group = setup.store.group_of(id(1)).unwrap();
    assert_eq!(setup.store.empty_extents(group).collect::<Vec<_>>(), [(id(1), version(6))]);
    setup.ask(forget(6)).unwrap();
    assert_eq!(setup.store.empty_extents(group).count(), 0);
    assert_eq!(setup.read(1).unwrap(), (vec![0; 256], 0));
}

#[test]
fn checksums_are_the_same_on_two_drives() {
    let sums = |first: usize| {
        let mut setup = Setup::new(8, config());
        setup.write(9, 0, 20, 7, 1).unwrap();
        setup.write(1, first, 20, 7, 1).unwrap();
        let Ok(Reply::Checksums { blocks, .. }) = setup.ask(RequestKind::Checksums { extent: id(1) }) else {
            panic!("checksums")
        };
        blocks
    };
    let one = sums(0);
    assert_eq!(one.iter().flatten().count(), 20);
    assert_eq!(one, sums(0));
    assert_ne!(one, sums(1));
}

#[test]
fn formatting_writes_both_copies_of_each_table_page_before_it_syncs() {
    // So large that its pages are written in several pieces.
    let new = new_drive(256 << 30, 3);
    let mut formatting = Formatting::new(&new, Existing::Overwrite).unwrap();
    let mut in_flight = VecDeque::new();
    // The blocks that were written, sync by sync.
    let mut rounds = vec![BTreeSet::new()];
    let superblock = loop {
        while let Some(io) = formatting.poll_io() {
            match &io.kind {
                IoKind::Sync => {
                    assert!(in_flight.is_empty(), "what is not written yet is not synced");
                    rounds.push(BTreeSet::new());
                }
                IoKind::Write { offset, data, .. } => {
                    let blocks: usize = data.iter().map(|part| part.bytes().len() / BLOCK_BYTES).sum();
                    rounds.last_mut().unwrap().extend((0..blocks).map(|block| offset + (block * BLOCK_BYTES) as u64));
                }
                _ => {}
            }
            in_flight.push_back(io.id);
        }
        if let Some(result) = formatting.poll_ready() {
            break result.unwrap();
        }
        formatting.handle_io(in_flight.pop_front().unwrap(), Ok(IoOutput::Done));
    };
    let geometry = superblock.geometry;
    let page = |copy| (0..geometry.pages()).map(move |page| geometry.page_offset(PageId(page), copy));
    let tables = page(0).chain(page(1)).chain([geometry.journal_offset(0)]).collect();
    let superblocks = BTreeSet::from(geometry.superblock_offsets());
    assert!(rounds == [superblocks.clone(), tables, superblocks, BTreeSet::new()]);
}

#[test]
fn drives_that_are_not_meant_are_refused() {
    let mut setup = Setup::new(6, config());
    let new = new_drive(setup.drive.bytes(), 3);
    let good = expected(&new);
    let foreign = ClusterId::from_bytes([8; 16]);
    let other = DriveId::from_bytes([8; 16]);
    let mut refused = |expected| open(&mut setup.drive, config(), expected).map(|_| ()).unwrap_err();
    assert_eq!(refused(Expected { cluster: foreign, ..good }), OpenError::ForeignCluster(new.cluster));
    assert_eq!(refused(Expected { drive: Some(other), ..good }), OpenError::OtherDrive(new.drive));
    let formatted_bytes = new.bytes;
    let bytes = new.bytes - (1 << 20);
    assert_eq!(refused(Expected { bytes, ..good }), OpenError::WrongSize { bytes, formatted_bytes });
    let again = new_drive(setup.drive.bytes(), 4);
    let held = OpenError::AlreadyFormatted(new.drive);
    assert_eq!(format(&mut setup.drive, &again, Existing::Refuse), Err(held));
    assert!(format(&mut setup.drive, &again, Existing::Overwrite).is_ok());
    let mut empty = FakeDrive::new(8 << 20);
    let bytes = 8 << 20;
    assert!(matches!(open(&mut empty, config(), Expected { bytes, ..good }), Err(OpenError::NotFormatted)));
    let small = new_drive(1 << 20, 3);
    assert!(matches!(Formatting::new(&small, Existing::Refuse), Err(OpenError::TooSmall { .. })));
}
