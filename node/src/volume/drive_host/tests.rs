//! Three drives in one thread: messages, IOs and time in a fixed order, so every run is the same.

use core::time::Duration;

use super::*;
use ashlar_placement::map::{PgId, SetId};
use ashlar_placement::rule::Extent;
use ashlar_replica::message::Fault;
use ashlar_replica::request::{Answer, BLOCK_BYTES, Content, EXTENT_BYTES_MAX, Operation, Range, Run};
use ashlar_store::buffer::AlignedBuf;
use ashlar_store::config::Config;
use ashlar_store::format::{Existing, Formatting, NewDrive};
use ashlar_store::io::{Durability, IoKind};
use ashlar_store::layout::LayoutOptions;
use ashlar_store::opening::{Expected, Opening};
use ashlar_wire::id::{ClusterId, ServerId};
use ashlar_wire::version::Version;
use bytes::Bytes;

mod pace;

const DISK_BYTES: usize = 40 << 20;
const CLUSTER: ClusterId = ClusterId::from_bytes([9; 16]);
const GROUP: GroupId = GroupId { set: SetId(1), pg: PgId(7) };
const VOLUME: VolumeId = VolumeId::from_bytes([0x55; 16]);

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn extent(number: u64) -> ExtentId {
    ExtentId { volume: VOLUME, extent: Extent(number) }
}

/// A disk in memory: what it has, and what of that survives a loss of power.
struct Disk {
    current: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<(usize, usize)>,
    fails_writes: bool,
}

impl Disk {
    fn new() -> Self {
        Self { current: vec![0; DISK_BYTES], durable: vec![0; DISK_BYTES], unsynced: Vec::new(), fails_writes: false }
    }

    fn execute(&mut self, io: Io) -> Result<IoOutput, IoError> {
        if self.fails_writes && !matches!(io.kind, IoKind::Read { .. }) {
            return Err(IoError { errno: 5 });
        }
        match io.kind {
            IoKind::Read { offset, len } => {
                let start = usize::try_from(offset).unwrap();
                return Ok(IoOutput::Data(AlignedBuf::copy_of(&self.current[start..start + len])));
            }
            IoKind::Write { offset, data, durability } => {
                let mut at = usize::try_from(offset).unwrap();
                for segment in data {
                    let bytes = segment.bytes();
                    self.current[at..at + bytes.len()].copy_from_slice(bytes);
                    match durability {
                        Durability::Durable => self.durable[at..at + bytes.len()].copy_from_slice(bytes),
                        Durability::Cached => self.unsynced.push((at, bytes.len())),
                    }
                    at += bytes.len();
                }
            }
            IoKind::Sync => {
                for (at, len) in self.unsynced.drain(..) {
                    self.durable[at..at + len].copy_from_slice(&self.current[at..at + len]);
                }
            }
        }
        Ok(IoOutput::Done)
    }

    fn lose_power(&mut self) {
        self.unsynced.clear();
        self.current.clone_from(&self.durable);
    }
}

fn store_config() -> Config {
    Config { scrub_interval: None, ..Config::default() }
}

fn format(disk: &mut Disk, id: DriveId) {
    let options = LayoutOptions { journal_blocks: 1_040, records_max: 64, tombstones_max: 64 };
    let (server, nonce) = (ServerId::from_bytes(*id.as_bytes()), *id.as_bytes());
    let new = NewDrive { cluster: CLUSTER, server, drive: id, nonce, bytes: DISK_BYTES as u64, options };
    let mut formatting = Formatting::new(&new, Existing::Refuse).unwrap();
    while formatting.poll_ready().is_none() {
        let io = formatting.poll_io().expect("formatting goes on");
        let id = io.id;
        formatting.handle_io(id, disk.execute(io));
    }
    formatting.poll_ready().unwrap().unwrap();
}

fn open(now: Instant, disk: &mut Disk, id: DriveId) -> DriveHost {
    let expected = Expected { cluster: CLUSTER, drive: Some(id), bytes: DISK_BYTES as u64 };
    let mut opening = Opening::new(store_config(), expected);
    loop {
        if let Some(ready) = opening.poll_ready(now) {
            let config = HostConfig { jobs_max: 64, ..HostConfig::default() };
            return DriveHost::new(now, ready.unwrap(), config, now.as_nanos() << 8);
        }
        let io = opening.poll_io().expect("opening goes on");
        let id = io.id;
        opening.handle_io(id, disk.execute(io));
    }
}

struct World {
    now: Instant,
    disks: Vec<Disk>,
    hosts: Vec<Option<DriveHost>>,
    messages: VecDeque<(DriveId, DriveId, Message)>,
    replies: BTreeMap<ClientToken, ClientResult>,
    /// The reports since the last look, each once.
    reports: Vec<Report>,
    others: Vec<HostOutput>,
    next_token: u64,
    request: u64,
}

impl World {
    fn new(drives: u8) -> Self {
        let now = Instant::from_nanos(1);
        let mut disks: Vec<Disk> = (0..drives).map(|_| Disk::new()).collect();
        let mut hosts = Vec::new();
        for (number, disk) in (0..drives).zip(&mut disks) {
            format(disk, drive(number));
            hosts.push(Some(open(now, disk, drive(number))));
        }
        let (messages, replies, reports, others) = (VecDeque::new(), BTreeMap::new(), Vec::new(), Vec::new());
        Self { now, disks, hosts, messages, replies, reports, others, next_token: 0, request: 0 }
    }

    fn host(&mut self, number: u8) -> &mut DriveHost {
        self.hosts[usize::from(number)].as_mut().expect("the drive runs")
    }

    fn configure(&mut self, epoch: u64, acting: &[u8], learners: &[u8]) {
        let configuration = Configuration {
            group: GROUP,
            epoch: serving(epoch),
            acting: acting.iter().copied().map(drive).collect(),
            primary: drive(acting[0]),
            learners: learners.iter().copied().map(drive).collect(),
            min_copies: 2,
        };
        let now = self.now;
        for host in self.hosts.iter_mut().flatten() {
            host.handle_configuration(now, &configuration, &Witnesses::default()).unwrap();
        }
        self.settle();
    }

    /// Everything that can happen without time.
    fn settle(&mut self) {
        loop {
            let mut is_idle = true;
            for number in 0..self.hosts.len() {
                is_idle &= !self.step(number);
            }
            if let Some((from, to, message)) = self.messages.pop_front() {
                is_idle = false;
                let place = usize::from(to.as_bytes()[0]);
                if let Some(host) = self.hosts[place].as_mut() {
                    let _ = host.handle_message(self.now, from, message);
                }
            }
            if is_idle {
                return;
            }
        }
    }

    fn step(&mut self, number: usize) -> bool {
        let Some(host) = self.hosts[number].as_mut() else { return false };
        let mut has_work = false;
        while let Some(io) = host.poll_io() {
            let id = io.id;
            host.handle_io(self.now, id, self.disks[number].execute(io));
            has_work = true;
        }
        let from = host.drive();
        while let Some(output) = host.poll_output() {
            has_work = true;
            match output {
                HostOutput::Send { to, message } => self.messages.push_back((from, to, message)),
                HostOutput::Reply { token, result } => drop(self.replies.insert(token, result)),
                HostOutput::Report { group, report } => {
                    if group == GROUP && !self.reports.contains(&report) {
                        self.reports.push(report);
                    }
                }
                other => self.others.push(other),
            }
        }
        has_work
    }

    /// Lets this much time go by, in steps of the drives' time-outs.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let due = self.hosts.iter().flatten().filter_map(DriveHost::poll_timeout).min();
            let Some(due) = due.filter(|due| *due <= end) else { break };
            self.now = self.now.max(due);
            for host in self.hosts.iter_mut().flatten() {
                host.handle_timeout(self.now);
            }
            self.settle();
        }
        self.now = end;
    }

    fn ask(&mut self, number: u8, epoch: u64, extent: ExtentId, operation: Operation) -> ClientToken {
        self.ask_of(GROUP, number, epoch, extent, operation)
    }

    fn ask_of(
        &mut self,
        group: GroupId,
        number: u8,
        epoch: u64,
        extent: ExtentId,
        operation: Operation,
    ) -> ClientToken {
        self.request += 1;
        self.next_token += 1;
        let request = ClientRequest {
            session: SessionId(1),
            request: RequestId(self.request),
            floor: RequestId(self.request),
            generation: Generation(1),
            epoch: serving(epoch),
            extent,
            operation,
        };
        let (now, token) = (self.now, ClientToken(self.next_token));
        self.host(number).handle_client(now, token, group, &request);
        token
    }

    fn write(&mut self, number: u8, epoch: u64, at: (u64, u32), content: Content) -> Option<ClientResult> {
        let run = Run { offset: at.1 * BLOCK_BYTES, content };
        let token = self.ask(number, epoch, extent(at.0), Operation::Write(run));
        self.settle();
        self.replies.remove(&token)
    }

    fn read(&mut self, number: u8, epoch: u64, at: u64, range: Range) -> Option<ClientResult> {
        let token = self.ask(number, epoch, extent(at), Operation::Read(range));
        self.settle();
        self.replies.remove(&token)
    }

    /// The next message of the primary, drive 0, to another one.
    fn primary_says(&mut self, to: u8, epoch: Epoch) -> Message {
        self.now = self.now + Settings::default().tick;
        let now = self.now;
        let host = self.host(0);
        host.handle_timeout(now);
        let outputs = core::iter::from_fn(|| host.poll_output());
        let sent = outputs.filter_map(|output| match output {
            HostOutput::Send { to: receiver, message } if receiver == drive(to) => Some(message),
            _ => None,
        });
        sent.last().filter(|message| message.epoch == epoch).expect("a primary asks for leases")
    }

    /// Version and content of an extent by a drive's own store.
    fn copy(&mut self, number: u8, extent: ExtentId) -> (Version, Vec<u8>) {
        let now = self.now;
        let (disk, host) = (&mut self.disks[usize::from(number)], self.hosts[usize::from(number)].as_mut().unwrap());
        let kind = ashlar_store::request::RequestKind::Read { extent, offset: 0, len: EXTENT_BYTES_MAX };
        let request = ashlar_store::request::Request { deadline: Instant::NEVER, kind };
        let store = &mut host.adapter.store;
        store.handle_request(now, ashlar_store::request::RequestId(u64::MAX - 1), request).unwrap();
        while let Some(io) = store.poll_io() {
            let id = io.id;
            store.handle_io(now, id, disk.execute(io));
        }
        match store.poll_completion() {
            Some((_, Ok(ashlar_store::request::Reply::Data { data, version }))) => (version, data.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    /// Drives have the same. An extent without blocks may be on some of them and be dropped by others.
    fn assert_equal(&mut self, numbers: &[u8], extents: core::ops::Range<u64>) {
        for extent in extents.map(extent) {
            let mut copy = |number: &u8| {
                let (version, data) = self.copy(*number, extent);
                (data.iter().any(|byte| *byte != 0).then_some(version), data)
            };
            let copies: Vec<_> = numbers.iter().map(&mut copy).collect();
            for (copy, number) in copies.iter().zip(numbers) {
                assert!(*copy == copies[0], "drive {number} differs in extent {}", extent.extent.0);
            }
        }
    }
}

fn data(value: u8, blocks: u32) -> Content {
    Content::Data(vec![value; (blocks * BLOCK_BYTES) as usize].into())
}

const WRITTEN: Option<ClientResult> = Some(Ok(Answer::Written));

fn read_result(pieces: &[(u8, u32)]) -> Option<ClientResult> {
    let bytes = pieces.iter().flat_map(|(value, blocks)| vec![*value; (blocks * BLOCK_BYTES) as usize]);
    Some(Ok(Answer::Read(Bytes::from_iter(bytes))))
}

/// The epoch of this number, from 1, in which a group serves: the first of all only founds it.
fn serving(number: u64) -> Epoch {
    Epoch(number + 1)
}

fn started(drives: u8) -> World {
    let mut world = World::new(drives);
    world.configure(0, &[0, 1, 2], &[]);
    world.configure(1, &[0, 1, 2], &[]);
    world.reports.clear();
    world.pass(Duration::from_secs(2));
    assert!(world.now > Instant::from_nanos(1) && world.reports.is_empty(), "{:?}", world.reports);
    let now = world.now;
    assert!(world.host(0).is_serving(now, GROUP));
    world
}

#[test]
fn three_copies_are_written_and_read() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 3), data(7, 2)), WRITTEN);
    assert_eq!(world.write(0, 1, (1, 4), data(8, 40)), WRITTEN);
    assert_eq!(world.write(0, 1, (1, 5), Content::Zeroes(2 * BLOCK_BYTES)), WRITTEN);
    assert_eq!(world.write(0, 1, (2, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);
    let range = Range { offset: 2 * BLOCK_BYTES, len: 6 * BLOCK_BYTES };
    assert_eq!(world.read(0, 1, 1, range), read_result(&[(0, 1), (7, 1), (8, 1), (0, 2), (8, 1)]));
    assert_eq!(world.read(0, 1, 3, range), read_result(&[(0, 6)]), "never written");
    world.assert_equal(&[0, 1, 2], 1..4);
    let (version, _) = world.copy(2, extent(2));
    assert_eq!(version, Version::ZERO, "zeroes over nothing leave nothing");
    assert!(matches!(world.read(1, 1, 1, range), Some(Err(Refusal::Moved(_)))), "a backup does not serve");
}

#[test]
fn a_primary_tells_which_blocks_are_stored() {
    let mut world = started(3);
    let ask = |world: &mut World, at: u64, range: Range| {
        let token = world.ask(0, 1, extent(at), Operation::Presence(range));
        world.settle();
        world.replies.remove(&token)
    };
    let bits = |bits: &'static [u8]| Some(Ok(Answer::Read(Bytes::from_static(bits))));
    let range = Range { offset: 2 * BLOCK_BYTES, len: 9 * BLOCK_BYTES };
    assert_eq!(ask(&mut world, 1, range), bits(&[0, 0]), "never written");
    assert_eq!(world.write(0, 1, (1, 3), data(7, 7)), WRITTEN);
    assert_eq!(world.write(0, 1, (1, 10), data(0, 1)), WRITTEN);
    assert_eq!(ask(&mut world, 1, range), bits(&[0b1111_1110, 1]), "zeroes that were written as data are stored");
    assert_eq!(world.write(0, 1, (1, 4), Content::Zeroes(2 * BLOCK_BYTES)), WRITTEN);
    assert_eq!(ask(&mut world, 1, range), bits(&[0b1111_0010, 1]), "others are not");
    // Whoever may not serve a read does not tell this either.
    world.hosts[1] = None;
    world.hosts[2] = None;
    world.pass(Duration::from_secs(5));
    let told = ask(&mut world, 1, range);
    assert!(!matches!(told, Some(Ok(_))), "{told:?}");
}

#[test]
fn a_drive_that_was_lost_returns_as_a_learner_and_is_filled() {
    let mut world = started(3);
    for number in 0..4 {
        assert_eq!(world.write(0, 1, (number, 2), data(1, 20)), WRITTEN);
    }
    world.hosts[2] = None;
    assert_eq!(world.write(0, 1, (0, 1), data(2, 3)), None, "the third drive has to have it");
    let token = ClientToken(world.next_token);
    world.pass(Duration::from_secs(3));
    let lost = Report::Lost { epoch: serving(1), member: drive(2), fault: Fault::Silent };
    assert!(world.reports.contains(&lost), "{:?}", world.reports);
    world.reports.clear();
    world.configure(2, &[0, 1], &[]);
    assert!(matches!(world.replies.remove(&token), Some(Err(Refusal::Unknown(_)))));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.write(0, 2, (0, 1), data(3, 3)), WRITTEN);
    assert_eq!(world.write(0, 2, (9, 0), data(4, 256)), WRITTEN);
    assert_eq!(world.write(0, 2, (1, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);

    world.disks[2].lose_power();
    world.hosts[2] = Some(open(world.now, &mut world.disks[2], drive(2)));
    world.configure(3, &[0, 1], &[2]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(3), learner: drive(2) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    assert_eq!(world.write(0, 3, (2, 9), data(5, 1)), WRITTEN);
    world.reports.clear();
    world.configure(4, &[0, 1, 2], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.reports, []);
    assert_eq!(world.write(0, 4, (3, 0), data(6, 1)), WRITTEN);
    world.assert_equal(&[0, 1, 2], 0..10);
    let range = Range { offset: 0, len: 5 * BLOCK_BYTES };
    assert_eq!(world.read(0, 4, 0, range), read_result(&[(0, 1), (3, 3), (1, 1)]));
    // And it is as good as the others: it serves alone what they acknowledged.
    world.configure(5, &[2, 1], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.read(2, 5, 3, range), read_result(&[(6, 1), (0, 1), (1, 3)]));
}

#[test]
fn a_learner_goes_back_to_an_earlier_version() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 4)), WRITTEN);
    // The primary alone has this, and an extent more.
    world.hosts[1] = None;
    world.hosts[2] = None;
    assert_eq!(world.write(0, 1, (1, 1), data(2, 1)), None);
    assert_eq!(world.write(0, 1, (2, 1), data(2, 1)), None);
    assert_eq!(world.copy(0, extent(2)).0.sequence, 3);
    world.hosts[0] = None;
    for number in 0..3 {
        let place = usize::from(number);
        world.disks[place].lose_power();
        world.hosts[place] = Some(open(world.now, &mut world.disks[place], drive(number)));
    }
    world.messages.clear();
    world.configure(2, &[1, 2], &[]);
    world.pass(Duration::from_secs(3));
    world.configure(3, &[1, 2], &[0]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(3), learner: drive(0) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.assert_equal(&[0, 1, 2], 1..3);
    assert_eq!(world.copy(0, extent(1)).0.sequence, 1);
    assert_eq!(world.copy(0, extent(2)).0.sequence, 0);
}

/// Every copy of one block is damaged: reads of it fail, everything else is served and copied, and a write makes it whole.
#[test]
fn what_no_copy_has_whole_is_an_error_until_it_is_written() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(9, 256)), WRITTEN);
    assert_eq!(world.write(0, 1, (1, 4), data(7, 1)), WRITTEN);
    world.pass(Duration::from_secs(2));
    (0..3).for_each(|number| damage(&mut world, number));
    let range = |first: u32| Range { offset: first * BLOCK_BYTES, len: BLOCK_BYTES };
    let Content::Data(sevens) = data(7, 1) else { unreachable!() };
    assert_eq!(world.read(0, 1, 1, range(0)), Some(Err(Refusal::Damaged)));
    assert_eq!(world.read(0, 1, 1, range(4)), Some(Ok(Answer::Read(sevens.clone()))));
    let extent = extent(1);
    assert!(world.others.contains(&HostOutput::Lost { extent }), "{:?}", world.others);
    assert_eq!(world.reports, [], "nobody was taken out");
    // A learner has the block as lost too, and is whole otherwise.
    world.configure(2, &[0, 1], &[]);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.write(0, 2, (2, 5), data(6, 1)), WRITTEN);
    world.configure(3, &[0, 1], &[2]);
    world.pass(Duration::from_secs(4));
    let caught_up = Report::CaughtUp { epoch: serving(3), learner: drive(2) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.configure(4, &[2, 0], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.read(2, 4, 1, range(0)), Some(Err(Refusal::Damaged)));
    assert_eq!(world.read(2, 4, 1, range(4)), Some(Ok(Answer::Read(sevens))));
    assert_eq!(world.write(2, 4, (1, 0), data(5, 1)), WRITTEN);
    let Content::Data(fives) = data(5, 1) else { unreachable!() };
    assert_eq!(world.read(2, 4, 1, range(0)), Some(Ok(Answer::Read(fives))));
}

/// Changes a bit of the only extent of nines on a drive, in its first block.
fn damage(world: &mut World, number: u8) {
    damage_block(world, number, 0);
}

fn damage_block(world: &mut World, number: u8, behind: usize) {
    let disk = &mut world.disks[usize::from(number)];
    let block = BLOCK_BYTES as usize;
    let place = disk.current.chunks(block).position(|bytes| bytes.iter().all(|byte| *byte == 9)).unwrap();
    disk.current[(place + behind) * block + 100] ^= 1;
}

/// Each copy has lost another block: together they have all.
#[test]
fn copies_of_one_version_are_put_together_block_by_block() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(9, 256)), WRITTEN);
    world.pass(Duration::from_secs(2));
    (0..3).for_each(|number| damage_block(&mut world, number, usize::from(number) * 7));
    let extent = extent(1);
    for number in 0..3 {
        assert!(world.host(number).adapter.note_damage(extent));
    }
    world.pass(Duration::from_secs(1));
    let range = Range { offset: 0, len: EXTENT_BYTES_MAX };
    let Content::Data(nines) = data(9, 256) else { unreachable!() };
    assert_eq!(world.read(0, 1, 1, range), Some(Ok(Answer::Read(nines))));
    world.assert_equal(&[0, 1, 2], 1..2);
    assert!(!world.others.contains(&HostOutput::Lost { extent }), "{:?}", world.others);
}

/// The only whole copy of a block is of an earlier version of the extent, and the block has not changed since.
#[test]
fn a_damaged_block_is_known_again_in_a_copy_of_another_version() {
    let mut world = started(4);
    assert_eq!(world.write(0, 1, (1, 0), data(9, 256)), WRITTEN);
    world.configure(2, &[0, 1], &[]);
    assert_eq!(world.write(0, 2, (1, 4), data(6, 1)), WRITTEN);
    world.pass(Duration::from_secs(2));
    (0..2).for_each(|number| damage_block(&mut world, number, 1));
    let range = Range { offset: 0, len: 5 * BLOCK_BYTES };
    assert_eq!(world.read(0, 2, 1, range), Some(Err(Refusal::Damaged)));
    // A copy that gets the block as lost is told what would be its content.
    world.configure(3, &[0, 1], &[3]);
    world.pass(Duration::from_secs(4));
    let caught_up = Report::CaughtUp { epoch: serving(3), learner: drive(3) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.configure(4, &[3, 0], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.read(3, 4, 1, range), Some(Err(Refusal::Damaged)));
    world.hosts[1] = None;
    world.configure(5, &[3, 0], &[2]);
    world.pass(Duration::from_secs(40));
    assert_eq!(world.read(3, 5, 1, range), read_result(&[(9, 4), (6, 1)]));
    world.assert_equal(&[0, 2, 3], 1..2);
}

#[test]
fn a_damaged_copy_is_made_whole_from_another_while_it_serves() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(9, 256)), WRITTEN);
    world.pass(Duration::from_secs(2));
    damage(&mut world, 0);
    let range = Range { offset: 0, len: EXTENT_BYTES_MAX };
    let Content::Data(nines) = data(9, 256) else { unreachable!() };
    assert_eq!(world.read(0, 1, 1, range), Some(Ok(Answer::Read(nines))), "not the damaged bytes");
    let (extent, others) = (extent(1), core::mem::take(&mut world.others));
    assert_eq!(others, [HostOutput::Damage { extent }, HostOutput::Mended { extent }]);
    world.assert_equal(&[0, 1, 2], 1..2);
    // A copy that is not the primary's, which the scrub has looked at.
    damage(&mut world, 2);
    world.host(2).adapter.note_damage(extent);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.others, [HostOutput::Mended { extent }]);
    world.assert_equal(&[0, 1, 2], 1..2);
    assert_eq!(world.reports, [], "nobody was taken out");
    assert_eq!(world.write(0, 1, (2, 0), data(8, 1)), WRITTEN);
}

#[test]
fn members_come_and_go_with_their_configurations() {
    let mut world = started(4);
    assert_eq!(world.host(3).groups().count(), 0);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), WRITTEN);
    world.configure(2, &[0, 1], &[3]);
    assert_eq!((world.host(2).groups().count(), world.host(3).groups().count()), (0, 1));
    let (from, to) = (Life::drawn(1), None);
    let message = Message { group: GROUP, epoch: serving(2), from, to, body: Body::Failed(Fault::Silent) };
    let now = world.now;
    assert_eq!(world.host(2).handle_message(now, drive(0), message), Err(HostError::UnknownGroup));
    assert_eq!(world.read(2, 2, 1, Range { offset: 0, len: 4096 }), Some(Err(Refusal::Behind(Epoch::ZERO))));
    world.host(3).config.members_max = 1;
    let other = GroupId { pg: PgId(8), ..GROUP };
    let (acting, primary) = (vec![drive(3)], drive(3));
    let configuration =
        Configuration { group: other, epoch: Epoch(1), acting, primary, learners: Vec::new(), min_copies: 1 };
    assert_eq!(
        world.host(3).handle_configuration(now, &configuration, &Witnesses::default()),
        Err(HostError::TooManyMembers)
    );
    // The drive remembers what it promised.
    world.configure(3, &[0, 1, 2], &[]);
    assert_eq!(world.host(2).groups().count(), 1);
}

#[test]
fn requests_beyond_the_limit_are_refused() {
    let mut world = started(3);
    let jobs_max = 64;
    let tokens: Vec<ClientToken> = (0..=jobs_max)
        .map(|number| {
            let run = Run { offset: number / 4 * BLOCK_BYTES, content: data(1, 1) };
            world.ask(0, 1, extent(u64::from(number % 4)), Operation::Write(run))
        })
        .collect();
    assert_eq!(world.host(0).adapter.jobs(), 64);
    world.settle();
    let results: Vec<_> = tokens.iter().map(|token| world.replies.remove(token)).collect();
    assert_eq!(results[64], Some(Err(Refusal::Busy)));
    // As the primary would say it, which has sent the backup a message before.
    let sent = world.primary_says(1, serving(1));
    let list = Message { body: Body::List { above: Version::ZERO, after: None }, ..sent.clone() };
    let lease = Message { body: Body::Lease { nonce: 9, clean: Version::ZERO }, ..sent };
    let now = world.now;
    world.host(1).config.jobs_max = 0;
    assert_eq!(world.host(1).handle_message(now, drive(0), list), Err(HostError::Busy));
    assert_eq!(world.host(1).handle_message(now, drive(0), lease), Ok(()));
    assert!(results[..64].iter().all(|result| *result == WRITTEN));
}

#[test]
fn full_drives_refuse_new_data_and_serve_the_rest() {
    let mut world = started(3);
    let mut number = 0;
    let refused = loop {
        let result = world.write(0, 1, (number, 0), data(1, 1));
        if result != WRITTEN {
            break result;
        }
        number += 1;
        // Primaries hear of the others' room with leases.
        world.pass(Duration::from_millis(200));
    };
    assert_eq!(refused, Some(Err(Refusal::NoSpace)));
    assert!(number > 8, "{number}");
    assert_eq!(world.write(0, 1, (0, 1), data(2, 1)), WRITTEN, "it has its space");
    assert_eq!(world.read(0, 1, 0, Range { offset: 0, len: 8_192 }), read_result(&[(1, 1), (2, 1)]));
    for discarded in 1..6 {
        assert_eq!(world.write(0, 1, (discarded, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);
    }
    world.pass(Duration::from_secs(5));
    assert_eq!(world.write(0, 1, (number, 0), data(3, 1)), WRITTEN, "there is room again");
    assert_eq!(world.reports, [], "no copy was lost");
    world.assert_equal(&[0, 1, 2], 0..number + 1);
}

/// Drives are full. One was away while extents that it has were overwritten and discarded: nothing of that needs room there.
#[test]
fn what_has_its_space_on_a_full_drive_is_filled_there() {
    let mut world = started(3);
    let mut number = 0;
    while world.write(0, 1, (number, 0), data(1, 2)) == WRITTEN {
        number += 1;
        world.pass(Duration::from_millis(200));
    }
    assert!(number > 8, "{number}");
    world.configure(2, &[0, 1], &[]);
    world.pass(Duration::from_secs(3));
    for discarded in 0..3 {
        assert_eq!(world.write(0, 2, (discarded, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);
    }
    for overwritten in 3..8 {
        assert_eq!(world.write(0, 2, (overwritten, 1), data(2, 1)), WRITTEN);
    }
    world.reports.clear();
    world.configure(3, &[0, 1], &[2]);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.write(0, 3, (8, 1), data(3, 1)), WRITTEN, "while it is filled");
    world.pass(Duration::from_secs(5));
    let caught_up = Report::CaughtUp { epoch: serving(3), learner: drive(2) };
    assert_eq!(world.reports.iter().find(|report| **report != caught_up), None, "{:?}", world.reports);
    assert!(world.reports.contains(&caught_up));
    world.assert_equal(&[0, 1, 2], 0..number);
}

#[test]
fn discarded_extents_take_no_place_once_every_copy_knows() {
    let mut world = started(3);
    let free: Vec<usize> = (0..3).map(|number| world.host(number).store().free_extents()).collect();
    for round in 1..3 {
        for number in 0..8 {
            assert_eq!(world.write(0, 1, (number, 0), data(1, 1)), WRITTEN);
        }
        for number in 0..8 {
            assert_eq!(world.write(0, 1, (number, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);
        }
        // Watermarks travel with the next write, and are saved from time to time.
        world.pass(Duration::from_secs(6));
        assert_eq!(world.write(0, 1, (8, 0), data(round, 1)), WRITTEN);
        world.pass(Duration::from_secs(6));
        for number in 0..3 {
            let taken = free[usize::from(number)] - world.host(number).store().free_extents();
            // The last one that was written, and the one that has the greatest version of those that were discarded at most.
            assert!(taken <= 2, "drive {number} keeps {taken} places in round {round}");
        }
    }
    // A drive that slept through the discards has them all the same when it is back.
    for number in 0..8 {
        assert_eq!(world.write(0, 1, (number, 0), data(1, 1)), WRITTEN);
    }
    world.configure(2, &[0, 1], &[]);
    world.pass(Duration::from_secs(3));
    for number in 0..8 {
        assert_eq!(world.write(0, 2, (number, 0), Content::Zeroes(EXTENT_BYTES_MAX)), WRITTEN);
    }
    for _ in 0..2 {
        assert_eq!(world.write(0, 2, (8, 0), data(4, 1)), WRITTEN);
        world.pass(Duration::from_secs(6));
    }
    assert_eq!(world.copy(2, extent(3)).1[0], 1, "it was away");
    assert!(world.host(0).store().group_of(extent(3)).is_none());
    world.configure(3, &[0, 1], &[2]);
    world.pass(Duration::from_secs(3));
    world.configure(4, &[0, 1, 2], &[]);
    world.pass(Duration::from_secs(3));
    world.assert_equal(&[0, 1, 2], 0..9);
    assert!(world.host(2).store().group_of(extent(3)).is_none(), "it was told that nothing is there");
}

#[test]
fn a_drive_without_room_leaves_with_what_was_acknowledged_and_returns_when_it_has_some() {
    let mut world = started(3);
    world.host(2).config.room_low = 0;
    // The third drive has less room than the others, of another placement group.
    let other = GroupId { pg: PgId(8), ..GROUP };
    let mut filler = 1_000;
    while world.host(2).store().free_bytes() > 0 {
        let run = Run { offset: 0, content: data(9, 1) };
        let version = Version { epoch: Epoch(1), sequence: filler };
        let host = world.host(2);
        let request = ashlar_replica::request::StoreRequest::Write { extent: extent(filler), run, version };
        host.adapter.handle_request(other, ashlar_replica::request::StoreId(filler), request);
        host.adapter.run(Instant::from_nanos(1));
        while let Some(io) = world.host(2).poll_io() {
            let id = io.id;
            let result = world.disks[2].execute(io);
            world.host(2).adapter.store.handle_io(Instant::from_nanos(1), id, result);
            world.host(2).adapter.run(Instant::from_nanos(1));
        }
        while world.host(2).adapter.poll_done().is_some() {}
        filler += 1;
    }
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), None, "the third drive has no room, and nobody was told");
    let lost = Report::Lost { epoch: serving(1), member: drive(2), fault: Fault::DriveFull };
    assert!(world.reports.contains(&lost), "{:?}", world.reports);
    world.configure(2, &[0, 1], &[2]);
    world.reports.clear();
    world.pass(Duration::from_secs(3));
    assert_eq!(world.write(0, 2, (1, 0), data(1, 1)), WRITTEN);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.reports, [], "it waits for room, and nothing changes");
    let now = world.now;
    world.host(2).config.room_low = 2_048;
    // The other placement group's extents go.
    for number in 1_000..filler {
        let version = Version { epoch: Epoch(2), sequence: number };
        let run = Run { offset: 0, content: Content::Zeroes(EXTENT_BYTES_MAX) };
        let request = ashlar_replica::request::StoreRequest::Write { extent: extent(number), run, version };
        world.host(2).adapter.handle_request(other, ashlar_replica::request::StoreId(number), request);
        while world.host(2).adapter.jobs_of(other) > 0 {
            world.host(2).adapter.run(now);
            while let Some(io) = world.host(2).poll_io() {
                let id = io.id;
                let result = world.disks[2].execute(io);
                world.host(2).adapter.store.handle_io(now, id, result);
            }
        }
        while world.host(2).adapter.poll_done().is_some() {}
    }
    world.pass(Duration::from_secs(5));
    let caught_up = Report::CaughtUp { epoch: serving(2), learner: drive(2) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
}

#[test]
fn a_refused_change_takes_what_waits_behind_it_with_it() {
    let mut world = started(3);
    let now = world.now;
    let mut number = 0;
    let mut ask = |world: &mut World, contents: &[Content]| {
        number += 1;
        for (sequence, content) in (1..).zip(contents) {
            let run = Run { offset: 0, content: content.clone() };
            let version = Version { epoch: Epoch(1), sequence };
            let request = ashlar_replica::request::StoreRequest::Write { extent: extent(number), run, version };
            world.host(0).adapter.handle_request(GROUP, ashlar_replica::request::StoreId(sequence), request);
        }
        let mut results = Vec::new();
        while results.len() < contents.len() {
            world.host(0).adapter.run(now);
            while let Some(io) = world.host(0).poll_io() {
                let id = io.id;
                let result = world.disks[0].execute(io);
                world.host(0).adapter.store.handle_io(now, id, result);
            }
            world.host(0).adapter.run(now);
            while let Some(done) = world.host(0).adapter.poll_done() {
                if let Done::Stored { result, .. } = done {
                    results.push(result.is_ok());
                }
            }
        }
        (number, results)
    };
    while ask(&mut world, &[data(1, 1)]).1 == [true] {}
    let (refused, results) = ask(&mut world, &[data(1, 1), Content::Zeroes(BLOCK_BYTES)]);
    assert_eq!(results, [false, false], "zeroes alone would find room");
    assert_eq!(world.host(0).store().group_of(extent(refused)), None);
    assert_eq!(ask(&mut world, &[Content::Zeroes(BLOCK_BYTES)]).1, [true]);
}

#[test]
fn a_request_for_an_extent_of_another_group_is_refused_without_effect() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), WRITTEN);
    let other = GroupId { pg: PgId(8), ..GROUP };
    for epoch in [1, 2] {
        let (acting, primary) = (vec![drive(0)], drive(0));
        let learners = Vec::new();
        let configuration =
            Configuration { group: other, epoch: Epoch(epoch), acting, primary, learners, min_copies: 1 };
        let now = world.now;
        world.host(0).handle_configuration(now, &configuration, &Witnesses::default()).unwrap();
        world.settle();
    }
    world.pass(Duration::from_secs(3));
    for operation in [
        Operation::Write(Run { offset: 0, content: data(9, 1) }),
        Operation::Write(Run { offset: 0, content: Content::Zeroes(BLOCK_BYTES) }),
        Operation::Read(Range { offset: 0, len: BLOCK_BYTES }),
    ] {
        let token = world.ask_of(other, 0, 1, extent(1), operation);
        world.settle();
        assert_eq!(world.replies.remove(&token), Some(Err(Refusal::OtherGroup)));
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.reports, []);
    let now = world.now;
    assert!(world.host(0).is_serving(now, GROUP) && world.host(0).is_serving(now, other));
    assert_eq!(world.read(0, 1, 1, Range { offset: 0, len: 4_096 }), read_result(&[(1, 1)]));
}

#[test]
fn a_copy_whose_data_are_older_than_its_record_is_reported() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), WRITTEN);
    assert_eq!(world.write(0, 1, (2, 0), data(1, 1)), WRITTEN);
    let committed = world.copy(1, extent(2)).0;
    // The record says that there was a write which the data of the drive lack.
    let run = Run { offset: 0, content: Content::Zeroes(EXTENT_BYTES_MAX) };
    let (extent, version) = (extent(2), Version::ZERO);
    let request = ashlar_replica::request::StoreRequest::Patch { extent, runs: vec![run], version };
    world.host(1).adapter.handle_request(GROUP, ashlar_replica::request::StoreId(u64::MAX), request);
    while world.host(1).adapter.jobs() > 0 {
        let now = world.now;
        world.host(1).adapter.run(now);
        while let Some(io) = world.host(1).poll_io() {
            let id = io.id;
            let result = world.disks[1].execute(io);
            world.host(1).adapter.store.handle_io(now, id, result);
        }
    }
    while world.host(1).adapter.poll_done().is_some() {}
    let mut record = ashlar_replica::record::Record::NEW;
    record.promise.accept(serving(1), drive(0)).unwrap();
    record.clean = committed;
    world.host(1).adapter.keep_record(GROUP, record.encode(GROUP, drive(1)));
    world.host(1).members.remove(&GROUP);
    world.host(1).adapter.forget(GROUP);
    world.configure(2, &[0, 1, 2], &[]);
    let lost = Report::Lost { epoch: serving(2), member: drive(1), fault: Fault::Blank };
    world.pass(Duration::from_secs(1));
    assert!(world.reports.contains(&lost), "{:?}", world.reports);
}

/// Three drives with a group, and the third one replaced by a fourth, at serving epoch 3.
fn moved_away() -> World {
    let mut world = started(4);
    for number in 0..5 {
        assert_eq!(world.write(0, 1, (number, 0), data(1, 1)), WRITTEN);
    }
    world.configure(2, &[0, 1], &[3]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(2), learner: drive(3) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.configure(3, &[0, 1, 3], &[]);
    world.pass(Duration::from_secs(3));
    world.reports.clear();
    world
}

#[test]
fn extents_of_a_group_that_is_whole_without_the_drive_are_forgotten() {
    let mut world = moved_away();
    let (now, free) = (world.now, world.host(2).store().free_bytes());
    // It took part in the first epoch, and is a member in the present one where it is named.
    world.host(2).handle_left(now, GROUP, serving(1));
    world.host(1).handle_left(now, GROUP, serving(9));
    world.settle();
    assert_eq!((world.copy(2, extent(1)).0.sequence, world.copy(1, extent(1)).0.sequence), (2, 2));
    world.host(2).handle_left(now, GROUP, serving(3));
    world.settle();
    world.pass(Duration::from_secs(5));
    assert!((0..5).all(|number| world.host(2).store().group_of(extent(number)).is_none()));
    assert_eq!(world.host(2).store().free_bytes(), free + (5 << 20));
    let record = |world: &mut World| {
        let host = world.host(2);
        ashlar_replica::record::Record::decode(host.adapter.record(GROUP).unwrap(), GROUP, drive(2)).unwrap()
    };
    assert!(record(&mut world).is_partial && record(&mut world).promise.term == serving(1));
    // Also in the next life of the drive.
    world.disks[2].lose_power();
    world.hosts[2] = Some(open(world.now, &mut world.disks[2], drive(2)));
    assert!(record(&mut world).is_partial);
    world.configure(4, &[0, 1, 3], &[2]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(4), learner: drive(2) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.assert_equal(&[0, 1, 2, 3], 0..5);
}

#[test]
fn a_drive_that_is_named_again_forgets_no_more() {
    let mut world = moved_away();
    let now = world.now;
    world.host(2).handle_left(now, GROUP, serving(3));
    // Some extents are gone when it is named.
    while world.host(2).store().group_of(extent(1)).is_some() {
        let io = world.host(2).poll_io().expect("it goes on");
        let id = io.id;
        let result = world.disks[2].execute(io);
        world.host(2).handle_io(now, id, result);
    }
    assert!(world.host(2).adapter.jobs_of(GROUP) > 0, "it is under way");
    world.configure(4, &[0, 1, 3], &[2]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(4), learner: drive(2) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.assert_equal(&[0, 1, 2, 3], 0..5);
    assert!((0..5).all(|number| world.host(2).store().group_of(extent(number)).is_some()));
}

#[test]
fn a_fence_is_confirmed_when_nothing_older_is_under_way() {
    let mut world = started(3);
    world.hosts[2] = None;
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), None);
    let now = world.now;
    world.host(0).handle_fence(now, VOLUME, Generation(2));
    world.host(1).handle_fence(now, VOLUME, Generation(2));
    world.settle();
    let fenced = HostOutput::Fenced { volume: VOLUME, generation: Generation(2) };
    assert_eq!(world.others, core::slice::from_ref(&fenced), "only the backup");
    assert_eq!(world.write(0, 1, (2, 0), data(1, 1)), Some(Err(Refusal::Fenced(Generation(2)))));
    world.configure(2, &[0, 1], &[]);
    assert_eq!(world.others, [fenced.clone(), fenced], "the write ended with its epoch");
}

#[test]
fn a_deleted_volume_is_gone_and_stays_so() {
    let mut world = started(3);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), WRITTEN);
    let now = world.now;
    for number in 0..3 {
        world.host(number).handle_delete_volume(now, VOLUME);
    }
    world.settle();
    assert_eq!(world.others, vec![HostOutput::Deleted { volume: VOLUME, result: Ok(()) }; 3]);
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), WRITTEN, "without effect");
    assert_eq!(world.read(0, 1, 1, Range { offset: 0, len: 4096 }), read_result(&[(0, 1)]));
    world.configure(2, &[1, 0, 2], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.reports, [], "that the newest extents are gone is no sign of an older drive");
    assert!(world.hosts[1].as_ref().unwrap().is_serving(world.now, GROUP));
}

#[test]
fn a_new_drive_is_filled_where_the_newest_extents_went_with_their_volume() {
    let mut world = started(4);
    assert_eq!(world.write(0, 1, (1, 0), data(2, 1)), WRITTEN);
    world.pass(Duration::from_secs(6));
    let now = world.now;
    for number in 0..4 {
        world.host(number).handle_delete_volume(now, VOLUME);
    }
    world.settle();
    world.reports.clear();
    world.configure(2, &[0, 1], &[3]);
    world.pass(Duration::from_secs(3));
    let caught_up = Report::CaughtUp { epoch: serving(2), learner: drive(3) };
    assert!(world.reports.contains(&caught_up), "{:?}", world.reports);
    world.reports.clear();
    world.configure(3, &[0, 1, 3], &[]);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.reports, []);
    assert!(world.host(0).is_serving(now + Duration::from_secs(3), GROUP));
}

#[test]
fn a_drive_that_fails_says_so_and_its_members_are_reported() {
    let mut world = started(3);
    world.disks[1].fails_writes = true;
    assert_eq!(world.write(0, 1, (1, 0), data(1, 1)), None);
    assert_eq!(world.others, [HostOutput::Poisoned(IoError { errno: 5 })]);
    let lost = Report::Lost { epoch: serving(1), member: drive(1), fault: Fault::DriveFailed };
    assert!(world.reports.contains(&lost), "{:?}", world.reports);
}
