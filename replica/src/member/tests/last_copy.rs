//! The last copy: what it does not serve yet, what becomes another version, and whom it waits for.

use super::*;

/// The version of the extent at the last copy, written while the second drive acted.
const HERE: Version = Version { epoch: Epoch(2), sequence: 4 };
const LOST: Output = Output::Lost { extent: ExtentId { volume: VolumeId::from_bytes([0; 16]), extent: Extent(0) } };
/// The version of it at the second drive.
const THERE: Version = Version { epoch: Epoch(2), sequence: 3 };

fn alone(epoch: u64, learners: &[u8]) -> Configuration {
    Configuration { min_copies: 2, ..configuration(epoch, &[1], learners) }
}

/// The first drive, which acts alone, with one extent above its watermark.
struct World {
    last: Member,
    now: u64,
    /// Above the watermark.
    extents: u64,
    /// Of the first one.
    version: Version,
    has_saved: bool,
}

impl World {
    fn new(learners: &[u8]) -> Self {
        Self::with(1, learners)
    }

    /// So many extents are above the watermark.
    fn with(extents: u64, learners: &[u8]) -> Self {
        let mut record = Record { clean: Version { sequence: 2, ..HERE }, ..Record::NEW };
        record.promise.accept(Epoch(2), drive(1)).unwrap();
        let identity = (GROUP, drive(1), life(1));
        let last = Member::new(at(0), identity, Settings::default(), Some(&record.encode(GROUP, drive(1))));
        let mut world = Self { last, now: 0, extents, version: HERE, has_saved: true };
        let witnesses = Witnesses { all: vec![drive(1), drive(2)], last_to_leave: Some(drive(2)) };
        world.last.handle_witnesses(Epoch(3), &witnesses);
        world.last.handle_configuration(at(1), &alone(3, learners)).unwrap();
        world.run(1);
        world.tick(1_100);
        world
    }

    /// What it does at this time, while its store does what it is asked for.
    fn run(&mut self, now: u64) -> Vec<Output> {
        let mut others = Vec::new();
        self.now = now;
        while let Some(output) = self.last.poll_output() {
            let Output::Store { id, request } = output else {
                others.push(output);
                continue;
            };
            let reply = match &request {
                StoreRequest::List { above, after } if *above < HERE => StoreReply::List(self.page(*after)),
                StoreRequest::List { .. } => StoreReply::List(Page { newest: HERE, ..Page::default() }),
                StoreRequest::Difference { .. } => {
                    StoreReply::Difference(Difference { version: self.version, runs: Vec::new() })
                }
                _ => reply_to(&request),
            };
            if let StoreRequest::Patch { version, .. } = &request {
                self.version = *version;
            }
            let is_watermark = matches!(request, StoreRequest::Save { .. });
            if is_watermark && !self.has_saved {
                others.push(Output::Store { id, request });
                continue;
            }
            let is_damaged = matches!(request, StoreRequest::Mend { version, .. } if version != HERE);
            let result = if is_damaged { Err(StoreError::Damaged) } else { Ok(reply) };
            self.last.handle_stored(at(now), id, result).unwrap();
        }
        others
    }

    fn page(&self, after: Option<ExtentId>) -> Page {
        let first = after.map_or(0, |last| last.extent.0 + 1);
        let end = self.extents.min(first + crate::request::PAGE_MAX as u64);
        let entry = |number| (ExtentId { extent: Extent(number), ..ExtentId::default() }, HERE);
        Page { entries: (first..end).map(entry).collect(), has_more: end < self.extents, newest: HERE }
    }

    fn tick(&mut self, now: u64) -> Vec<Output> {
        self.last.handle_timeout(at(now));
        self.run(now)
    }

    fn hear(&mut self, from: u8, body: Body) -> Vec<Output> {
        self.last.handle_message(at(self.now), drive(from), message(3, from, 1, body)).unwrap();
        self.run(self.now)
    }

    /// A learner takes part, whose watermark is this.
    fn adopt(&mut self, from: u8, clean: Version) -> Vec<Output> {
        let standing = Standing { clean, newest: THERE, is_partial: true, room: Room::Enough };
        self.hear(from, Body::Adopted(standing))
    }

    fn serves(&mut self) -> bool {
        let read = Operation::Read(Range { offset: 0, len: 4_096 });
        let number = self.now;
        self.last.handle_client(at(self.now), &ClientRequest { operation: read, ..write(3, number) });
        let said = self.run(self.now);
        let result = said.iter().find_map(|output| match output {
            Output::Reply { result, .. } => Some(result.clone()),
            _ => None,
        });
        match result {
            Some(Ok(Answer::Read(_))) => true,
            Some(Err(Refusal::NotServing)) => false,
            other => panic!("{other:?} {said:?}"),
        }
    }

    /// The extent cannot be read here, and what is fetched from a member in its stead is of this version.
    fn fetch(&mut self, from: u8, version: Version) -> Vec<Output> {
        let run = Run { offset: 0, content: Content::Zeroes(4_096) };
        let difference = Difference { version, runs: vec![run] };
        self.hear(from, Body::Fetched { extent: ExtentId::default(), difference })
    }

    /// A learner tells its checksums of the extent: the number and the version of the patch that it gets.
    fn copy(&mut self, to: u8) -> (u64, Version) {
        let said = self.hear(to, Body::Checksums { extent: ExtentId::default(), sums: Vec::new() });
        let patch = said.iter().find_map(|output| match output {
            Output::Send { message: Message { body: Body::Apply { index, entry, .. }, .. }, .. } => {
                Some((*index, entry))
            }
            _ => None,
        });
        let Some((index, Entry::Patch { version, .. })) = patch else { panic!("{said:?}") };
        (index, *version)
    }

    fn damage(&mut self) -> Vec<Output> {
        self.last.handle_damage(at(self.now), ExtentId::default());
        self.run(self.now)
    }
}

fn asks(said: &[Output], what: impl Fn(&Body) -> bool) -> bool {
    said.iter().any(|output| matches!(output, Output::Send { message, .. } if what(&message.body)))
}

#[test]
fn what_only_the_last_copy_has_is_served_when_another_drive_has_it() {
    let mut world = World::new(&[2]);
    assert!(!world.serves(), "nobody else may have it");
    world.adopt(2, THERE);
    let asked = world.tick(1_200);
    assert!(asks(&asked, |body| matches!(body, Body::Inquire { .. })), "{asked:?}");
    let (index, _) = world.copy(2);
    assert!(!world.serves(), "it is on its way");
    world.has_saved = false;
    let said = world.hear(2, Body::Applied(Progress { received: index, durable: index }));
    let save = said.iter().find_map(|output| match output {
        Output::Store { id, request: StoreRequest::Save { record } } => Some((*id, record.clone())),
        _ => None,
    });
    let (id, record) = save.unwrap();
    let again = world.tick(1_400);
    let is_save = |output: &Output| matches!(output, Output::Store { request: StoreRequest::Save { .. }, .. });
    assert!(!again.iter().any(is_save), "it is under way: {again:?}");
    assert_eq!(Record::decode(&record, GROUP, drive(1)).unwrap().clean, HERE);
    assert!(!world.serves(), "a later life would not know that it was served");
    world.last.handle_stored(at(world.now), id, Ok(StoreReply::Done)).unwrap();
    assert!(world.serves());
}

#[test]
fn what_is_below_the_watermark_is_served_by_the_last_copy() {
    let mut world = World::new(&[2]);
    let other = ExtentId { extent: Extent(1), ..ExtentId::default() };
    let read = Operation::Read(Range { offset: 0, len: 4_096 });
    world.last.handle_client(at(world.now), &ClientRequest { extent: other, operation: read, ..write(3, 1) });
    let said = world.run(world.now);
    assert!(matches!(&said[..], [Output::Reply { result: Ok(Answer::Read(_)), .. }]), "{said:?}");
}

#[test]
fn more_than_a_few_extents_are_not_held_back() {
    for (extents, is_served) in [(4_096, false), (4_097, true)] {
        let mut world = World::with(extents, &[2]);
        assert_eq!(world.serves(), is_served, "{extents}");
    }
}

#[test]
fn where_one_copy_acknowledges_writes_there_is_nothing_to_prove() {
    let mut world = World::new(&[2]);
    let next = Configuration { min_copies: 1, ..alone(4, &[2]) };
    world.last.handle_configuration(at(2_000), &next).unwrap();
    world.run(2_000);
    world.tick(3_200);
    let read = Operation::Read(Range { offset: 0, len: 4_096 });
    world.last.handle_client(at(3_200), &ClientRequest { operation: read, ..write(4, 1) });
    let said = world.run(3_200);
    assert!(matches!(&said[..], [Output::Reply { result: Ok(Answer::Read(_)), .. }]), "{said:?}");
}

/// Runs the mend of the extent up to the answer of the second drive, whose watermark is this.
fn damaged(clean: Version) -> (World, Vec<Output>) {
    let mut world = World::new(&[2]);
    world.adopt(2, clean);
    let asked = world.damage();
    assert!(asks(&asked, |body| matches!(body, Body::Fetch { .. })), "{asked:?}");
    let said = world.fetch(2, THERE);
    (world, said)
}

#[test]
fn what_nobody_acknowledged_becomes_what_the_last_one_to_leave_has() {
    // That lacks the last write, or has one more, which was not acknowledged either.
    for there in [THERE, Version { sequence: HERE.sequence + 1, ..HERE }] {
        let mut world = World::new(&[2]);
        world.adopt(2, THERE);
        world.damage();
        world.fetch(2, there);
        let said = world.tick(1_300);
        assert!(!said.contains(&LOST), "{said:?}");
        assert!(!world.serves(), "no other drive has its new version");
        let (index, version) = world.copy(2);
        assert_eq!(version, Version { epoch: Epoch(3), sequence: 1 });
        world.has_saved = false;
        let said = world.hear(2, Body::Applied(Progress { received: index, durable: index }));
        let Some(Output::Store { id, request: StoreRequest::Save { record } }) = said.first() else {
            panic!("{said:?}")
        };
        assert_eq!(
            Record::decode(record, GROUP, drive(1)).unwrap().clean,
            version,
            "the watermark covers what it has become"
        );
        world.last.handle_stored(at(world.now), *id, Ok(StoreReply::Done)).unwrap();
        assert!(world.serves());
    }
}

#[test]
fn it_does_not_become_the_copy_of_a_drive_that_lost_data() {
    // Its data are older than its watermark.
    let (mut world, mut said) = damaged(Version { sequence: 9, ..HERE });
    said.extend(world.tick(1_300));
    assert!(said.contains(&LOST), "{said:?}");
    assert!(!world.serves(), "it is served when a learner has the rest of it");
    // Or it has none.
    let mut world = World::new(&[2]);
    let standing = Standing { clean: Version::ZERO, newest: Version::ZERO, is_partial: true, room: Room::Enough };
    world.hear(2, Body::Adopted(standing));
    world.damage();
    let mut said = world.fetch(2, Version::ZERO);
    said.extend(world.tick(1_300));
    assert!(said.contains(&LOST), "{said:?}");
}

#[test]
fn it_does_not_become_the_copy_of_a_drive_that_left_earlier() {
    for last_to_leave in [None, Some(drive(3))] {
        let mut world = World::new(&[2]);
        world.last.handle_witnesses(Epoch(3), &Witnesses { all: vec![drive(1), drive(2)], last_to_leave });
        world.adopt(2, THERE);
        world.damage();
        let mut said = world.fetch(2, THERE);
        said.extend(world.tick(1_300));
        assert!(said.contains(&LOST), "{last_to_leave:?}");
    }
    // Or it was the last one to leave at another epoch.
    let mut world = World::new(&[2]);
    world.last.handle_configuration(at(2_000), &alone(4, &[2])).unwrap();
    world.run(2_000);
    world.tick(3_200);
    let standing = Standing { clean: THERE, newest: THERE, is_partial: true, room: Room::Enough };
    world.last.handle_message(at(3_200), drive(2), message(4, 2, 1, Body::Adopted(standing))).unwrap();
    world.run(3_200);
    world.damage();
    let difference = Difference { version: THERE, runs: Vec::new() };
    let fetched = message(4, 2, 1, Body::Fetched { extent: ExtentId::default(), difference });
    world.last.handle_message(at(3_200), drive(2), fetched).unwrap();
    let said = world.run(3_200);
    assert!(said.contains(&Output::Awaits { extent: ExtentId::default() }), "{said:?}");
}

#[test]
fn the_last_copy_waits_for_drives_that_are_away_before_it_gives_up() {
    let mut world = World::new(&[3]);
    world.adopt(3, Version::ZERO);
    world.damage();
    let awaits = Output::Awaits { extent: ExtentId::default() };
    let report = Report::Lost { epoch: Epoch(3), member: drive(1), fault: Fault::Damaged };
    let mut told = world.fetch(3, Version::ZERO);
    assert!(told.contains(&awaits) && told.contains(&Output::Report(report)), "{told:?}");
    let awaited = u64::try_from(Settings::default().awaited.as_millis()).unwrap();
    for now in (2_000..awaited + 900).step_by(1_000) {
        told.extend(world.tick(now));
        // The learner stays, and has nothing.
        let nonce = told.iter().rev().find_map(|output| match output {
            Output::Send { message: Message { body: Body::Lease { nonce, .. }, .. }, .. } => Some(*nonce),
            _ => None,
        });
        let progress = Progress { received: 0, durable: 0 };
        world.hear(3, Body::Leased { nonce: nonce.unwrap(), progress, room: Room::Enough });
        told.extend(world.fetch(3, Version::ZERO));
    }
    assert_eq!(told.iter().filter(|output| **output == awaits).count(), 1);
    assert!(!told.contains(&LOST));
    for now in [awaited + 2_100, awaited + 4_200] {
        told.extend(world.tick(now));
        told.extend(world.fetch(3, Version::ZERO));
    }
    assert!(told.contains(&LOST));
}

#[test]
fn the_last_copy_serves_what_it_has_when_nobody_comes() {
    let awaited = u64::try_from(Settings::default().awaited.as_millis()).unwrap();
    let mut world = World::new(&[]);
    world.has_saved = false;
    assert!(world.tick(1_000 + awaited).is_empty());
    let said = world.tick(1_100 + awaited);
    let Some(Output::Store { id, request: StoreRequest::Save { record } }) = said.first() else { panic!("{said:?}") };
    assert_eq!(Record::decode(record, GROUP, drive(1)).unwrap().clean, HERE);
    assert!(!world.serves(), "a later life would not know that it was served");
    world.last.handle_stored(at(world.now), *id, Ok(StoreReply::Done)).unwrap();
    assert!(world.serves());
    // Not while a learner is there: it will have it.
    let mut world = World::new(&[2]);
    world.tick(awaited);
    world.adopt(2, THERE);
    world.tick(1_100 + awaited);
    assert!(!world.serves());
}
