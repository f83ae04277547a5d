//! The collector among puts, deaths, uploads and healings: nothing that is named goes, and in the end no orphan is left.

use arbtest::arbitrary::{Result as Drawn, Unstructured};
use arbtest::arbtest;

use super::healing::heal;
use super::*;
use crate::api::{ListedVersion, Versioning, Versions, VersionsRequest};
use crate::record::PartRecord;
use crate::service::collect::{Collector, CollectorConfig, DriveUse, Left, ListedShard, ShardStore};

const HOUR: Duration = Duration::from_secs(3_600);

struct Shards(Memory, DriveId);

impl ShardStore for Shards {
    fn list(&self, after: Option<BlobId>, limit: usize) -> BoxFuture<'_, Option<Vec<ListedShard>>> {
        Box::pin(async move {
            turn().await;
            let world = self.0.world();
            let behind = world.drives[&self.1].keys().filter(|blob| after.is_none_or(|after| **blob > after));
            let listed = |blob: &BlobId| {
                let (stamp, header) = world.heads[&(self.1, *blob)].clone();
                ListedShard { blob: *blob, stamp, header: Some(header) }
            };
            Some(behind.take(limit.min(3)).map(listed).collect())
        })
    }

    fn header(&self, blob: BlobId) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            turn().await;
            self.0.world().heads.get(&(self.1, blob)).map(|(_, header)| header.clone())
        })
    }

    fn remove(&self, blob: BlobId, stamp: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            turn().await;
            let mut world = self.0.world();
            if world.heads[&(self.1, blob)].0 == stamp {
                world.drives.get_mut(&self.1).unwrap().remove(&blob);
            }
            true
        })
    }
}

impl Memory {
    fn pass_time(&self, span: Duration) {
        let mut world = self.world();
        world.now = world.now + span;
    }

    fn drive_use(&self, drive: DriveId) -> DriveUse {
        if self.world().leaving.contains(&drive) { DriveUse::Leaving } else { DriveUse::InUse }
    }
}

/// Whole passes of one collector, each some time after the one before.
fn collect(memory: &Memory, service: &ObjectService<Memory>, collector: &mut Collector, drive: DriveId, passes: u32) {
    let shards = Shards(memory.clone(), drive);
    for _ in 0..passes {
        loop {
            match run(collector.step(service, &shards, memory.drive_use(drive))) {
                Ok(step) if !step.is_whole => {}
                _ => break,
            }
        }
        memory.pass_time(HOUR);
    }
}

fn all_parts(service: &ObjectService<Memory>) -> Vec<PartContent> {
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let mut parts = Vec::new();
    let mut from = key::object(bucket, b"");
    loop {
        let scan = crate::index::request::Scan {
            from,
            to: key::end(bucket),
            fold: Vec::new(),
            fold_after: 0,
            lines_max: 1_000,
        };
        let Reply::Page { lines, next } = run(service.cluster.index(bucket, Request::Scan(scan))) else {
            panic!("the index answers")
        };
        for line in lines {
            let crate::index::Line::Entry(_, entry) = line else { continue };
            match PartRecord::decode(&entry.value) {
                Ok(record) => parts.push(record.content),
                Err(_) => {
                    parts.extend(ObjectRecord::decode(&entry.value).map(|record| record.parts).unwrap_or_default());
                }
            }
        }
        match next {
            Some(next) => from = next,
            None => return parts,
        }
    }
}

/// Every shard that a record names, and that is not noted as missing, is on its drive.
fn check_named(memory: &Memory, parts: &[PartContent]) {
    let world = memory.world();
    for part in parts {
        for (number, drive) in (0..).zip(&part.spread.drives).filter(|(number, _)| !part.missing.contains(number)) {
            for block in 0..part.blocks() {
                assert!(
                    world.drives[drive].contains_key(&part.blob(block, number)),
                    "shard {number} of {part:?} is gone"
                );
            }
        }
    }
}

/// No shard lies on a drive where no record names it.
fn check_no_orphan(memory: &Memory, parts: &[PartContent]) {
    let named: BTreeSet<(DriveId, BlobId)> = parts
        .iter()
        .flat_map(|part| (0..part.blocks()).map(move |block| (part, block)))
        .flat_map(|(part, block)| {
            part.spread.drives.iter().zip(0..).map(move |(drive, number)| (*drive, part.blob(block, number)))
        })
        .collect();
    for (drive, blobs) in &memory.world().drives {
        for blob in blobs.keys() {
            assert!(named.contains(&(*drive, *blob)), "{blob} is an orphan on {drive}");
        }
    }
}

#[test]
fn what_a_cut_off_put_leaves_goes_after_a_long_while() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().forgets = true;
    put(&service, "key", &pattern(1_200_000));
    // The server dies: nothing is committed, nothing discarded.
    let mut body = Given { is_cut: true, ..given(&pattern(2_500_000)) };
    let request = PutRequest { bucket: "bucket".into(), key: "other".into(), ..PutRequest::default() };
    assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
    put(&service, &"long".repeat(200), &pattern(5_000));
    put(&service, &format!("{}x", "long".repeat(200)), &pattern(5_000));
    put(&service, &"long".repeat(200), &pattern(6_000));
    let drive = DriveId::from_bytes([1; 16]);
    let mut collector = Collector::new(drive, CollectorConfig::default());
    let before = memory.world().drives[&drive].len();
    collect(&memory, &service, &mut collector, drive, 7);
    assert_eq!((memory.world().drives[&drive].len(), collector.candidates()), (before, 3));
    assert_eq!(collector.left(), Left { named: before as u64 - 3, moved: 0, orphans: 3 });
    memory.world().is_index_away = true;
    collect(&memory, &service, &mut collector, drive, 9);
    assert_eq!(memory.world().drives[&drive].len(), before, "without the index nothing is removed");
    memory.world().is_index_away = false;
    collect(&memory, &service, &mut collector, drive, 1);
    assert_eq!((memory.world().drives[&drive].len(), collector.candidates()), (before - 3, 0));
    assert_eq!(collector.left(), Left { named: before as u64 - 3, moved: 0, orphans: 0 });
    let parts = all_parts(&service);
    check_named(&memory, &parts);
    assert!(read(&service, "key", None).unwrap() == pattern(1_200_000));
}

#[test]
fn a_candidate_that_somebody_else_removes_is_left_no_more() {
    let (memory, service) = Memory::with_drives(1);
    let drive = DriveId::from_bytes([1; 16]);
    memory.world().forgets = true;
    put(&service, "kept", &pattern(1_000));
    for bytes in [1_000, 2_000, 3_000, 4_000] {
        put(&service, "key", &pattern(bytes));
    }
    let mut collector = Collector::new(drive, CollectorConfig::default());
    collect(&memory, &service, &mut collector, drive, 1);
    assert_eq!(collector.left(), Left { named: 2, moved: 0, orphans: 3 });
    let candidates: Vec<BlobId> = memory.world().drives[&drive].keys().copied().collect();
    for (gone, left) in [(candidates[1], 2), (candidates[3], 1), (candidates[2], 0)] {
        memory.world().drives.get_mut(&drive).unwrap().remove(&gone);
        collect(&memory, &service, &mut collector, drive, 1);
        assert_eq!(collector.left(), Left { named: 2, moved: 0, orphans: left });
    }
}

#[test]
fn two_who_make_shards_anew_for_one_drive_are_not_in_each_others_way() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    put(&service, "key", &pattern(700_000));
    let part = all_parts(&service).remove(0);
    // Another one took drive 0 for the place of shard 1, and its record came second.
    let (named, other) = (part.blob(0, 0), part.blob(0, 1));
    assert_ne!(named, other);
    {
        let mut world = memory.world();
        let data = world.drives[&drives[1]][&other].clone();
        let head = world.heads[&(drives[1], other)].clone();
        world.heads.insert((drives[0], other), head);
        world.drives.get_mut(&drives[0]).unwrap().insert(other, data);
    }
    assert!(read(&service, "key", None).unwrap() == pattern(700_000));
    let mut collector = Collector::new(drives[0], CollectorConfig::default());
    collect(&memory, &service, &mut collector, drives[0], 10);
    assert_eq!(memory.world().drives[&drives[0]].keys().copied().collect::<Vec<_>>(), [named]);
    assert!(read(&service, "key", None).unwrap() == pattern(700_000));
}

#[test]
fn nothing_goes_that_a_lost_or_newer_index_would_name() {
    let (memory, service) = Memory::with_drives(1);
    let drive = DriveId::from_bytes([1; 16]);
    put(&service, "key", &pattern(1_000));
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let object = key::object(bucket, b"key");
    let change = |key: &[u8], value: Option<&'static [u8]>| {
        let changes = vec![Change { key: key.to_vec(), value: value.map(Bytes::from_static) }];
        run(service.cluster.index(bucket, Request::Commit { checks: Vec::new(), changes }));
    };
    // The index is empty, as one that was lost.
    change(&object, None);
    let mut collector = Collector::new(drive, CollectorConfig::default());
    collect(&memory, &service, &mut collector, drive, 20);
    assert_eq!((memory.shards(), collector.candidates()), (1, 1));
    // Something stands in it that this program does not know.
    change(&key::object(bucket, b"new"), Some(b"\x07newer"));
    collect(&memory, &service, &mut collector, drive, 20);
    assert_eq!(memory.shards(), 1);
    change(&key::object(bucket, b"new"), None);
    // The bucket is being deleted.
    run(service.seal(bucket)).unwrap();
    collect(&memory, &service, &mut collector, drive, 20);
    assert_eq!(memory.shards(), 0);
}

#[test]
fn shards_of_versions_stay_and_those_without_a_record_go() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().forgets = true;
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    let long = "long".repeat(200);
    let names = ["key", "zero\0", &long, &format!("{long}x")];
    for bytes in [3_000_usize, 4_000, 5_000] {
        for key in names {
            put(&service, key, &pattern(bytes));
        }
    }
    // One is marked as deleted, one loses its newest version.
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    run(delete_version(&service, "zero\0", 0));
    // The server dies in a put.
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
    let mut body = Given { is_cut: true, ..given(&pattern(2_500_000)) };
    assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    let collect_all = |passes| {
        for drive in &drives {
            let mut collector = Collector::new(*drive, CollectorConfig::default());
            collect(&memory, &service, &mut collector, *drive, passes);
        }
    };
    collect_all(7);
    let before = memory.shards();
    collect_all(9);
    let parts = all_parts(&service);
    assert_eq!(parts.len(), 11);
    assert_eq!((before, memory.shards()), (33 + 3 + 6, 33));
    check_named(&memory, &parts);
    check_no_orphan(&memory, &parts);
    // A drive leaves for another one: its shards move, also those of versions.
    memory.world().drives.insert(DriveId::from_bytes([4; 16]), BTreeMap::new());
    memory.world().leaving.insert(drives[0]);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    heal(&service, bucket, heal::HealDepth::Noted);
    let mut collector = Collector::new(drives[0], CollectorConfig::default());
    collect(&memory, &service, &mut collector, drives[0], 1);
    assert_eq!(collector.left(), Left { named: 0, moved: 11, orphans: 0 });
    collect_all(9);
    assert!(memory.world().drives[&drives[0]].is_empty());
    let parts = all_parts(&service);
    check_named(&memory, &parts);
    check_no_orphan(&memory, &parts);
}

#[test]
fn a_record_that_moves_between_two_keys_while_it_is_looked_for_is_found() {
    arbtest(|u| {
        let (memory, service) = Memory::with_drives(1);
        run(service.set_state("bucket", Versioning::Enabled)).unwrap();
        put(&service, "key", &pattern(1_000));
        let drive = DriveId::from_bytes([1; 16]);
        let mut collector = Collector::new(drive, CollectorConfig::default());
        let shards = Shards(memory.clone(), drive);
        let (mut is_current, mut passes) = (true, 0);
        // What is found by no pass is due in the third.
        while passes < 3 {
            let mut step = Box::pin(collector.step(&service, &shards, DriveUse::InUse));
            let done = loop {
                if let Poll::Ready(done) = step.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    break done.unwrap();
                }
                if u.arbitrary()? {
                    if is_current {
                        delete_if(&service, "key", None, &Condition::default()).unwrap();
                    } else {
                        run(delete_version(&service, "key", 0));
                    }
                    is_current = !is_current;
                }
            };
            if done.is_whole {
                passes += 1;
                memory.pass_time(HOUR * 4);
            }
        }
        check_named(&memory, &all_parts(&service));
        Ok(())
    })
    .budget_ms(2_000);
}

#[test]
fn objects_with_thousands_of_versions_take_steps_of_their_own() {
    let (memory, service) = Memory::with_drives(1);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    for _ in 0..2_100 {
        put(&service, "key", &pattern(1_000));
    }
    let drive = DriveId::from_bytes([1; 16]);
    let mut collector = Collector::new(drive, CollectorConfig::default());
    let step = run(collector.step(&service, &Shards(memory.clone(), drive), DriveUse::InUse)).unwrap();
    assert_eq!((step.looked_at, collector.candidates()), (1, 0));
}

#[test]
fn records_of_an_object_that_fill_several_pages_are_all_searched() {
    let (memory, service) = Memory::with_drives(1);
    run(service.set_state("bucket", Versioning::Enabled)).unwrap();
    // A hundred and thirty of these records are more than a page of the index.
    let attributes = Attributes(vec![("n".into(), "v".repeat(8_000))]);
    for _ in 0..140 {
        let attributes = attributes.clone();
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), attributes, ..PutRequest::default() };
        run(service.put(request, &mut given(b"x"))).unwrap();
    }
    let drive = DriveId::from_bytes([1; 16]);
    let mut collector = Collector::new(drive, CollectorConfig::default());
    memory.world().asked = 0;
    collect(&memory, &service, &mut collector, drive, 1);
    assert_eq!(collector.left(), Left { named: 140, moved: 0, orphans: 0 });
    assert!(memory.world().asked <= 140 * 4, "two pages, twice: {}", memory.world().asked);
}

#[test]
fn on_a_drive_that_leaves_moved_shards_go_soon_and_others_after_a_long_while() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().forgets = true;
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    put(&service, "key", &pattern(1_000));
    put(&service, "replaced", &pattern(1_000));
    put(&service, "replaced", &pattern(2_000));
    memory.world().drives.insert(DriveId::from_bytes([4; 16]), BTreeMap::new());
    memory.world().leaving.insert(drives[0]);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    heal(&service, bucket, heal::HealDepth::Noted);
    let mut collector = Collector::new(drives[0], CollectorConfig::default());
    let mut left = |passes| {
        collect(&memory, &service, &mut collector, drives[0], passes);
        collector.left()
    };
    let all = left(1);
    assert_eq!((all, all.all()), (Left { named: 0, moved: 2, orphans: 1 }, 3));
    assert_eq!(left(1), Left { named: 0, moved: 0, orphans: 1 });
    assert_eq!(left(5), Left { named: 0, moved: 0, orphans: 1 });
    assert_eq!(left(1), Left::default());
    let some = Left { named: 2, moved: 3, orphans: 4 };
    assert_eq!(some.all(), 9);
}

#[test]
fn a_moved_part_that_no_record_names_any_more_waits_anew() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().forgets = true;
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    put(&service, "kept", &pattern(1_000));
    put(&service, "key", &pattern(1_000));
    memory.world().drives.insert(DriveId::from_bytes([4; 16]), BTreeMap::new());
    memory.world().leaving.insert(drives[0]);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    heal(&service, bucket, heal::HealDepth::Noted);
    let mut collector = Collector::new(drives[0], CollectorConfig::default());
    collect(&memory, &service, &mut collector, drives[0], 1);
    // All blobs have been looked at again when one of the objects is deleted; the moved shards are due.
    let step = run(collector.step(&service, &Shards(memory.clone(), drives[0]), DriveUse::Leaving)).unwrap();
    assert_eq!((step.looked_at, step.is_whole), (2, false));
    delete_if(&service, "key", None, &Condition::default()).unwrap();
    collect(&memory, &service, &mut collector, drives[0], 1);
    assert_eq!((collector.left().all(), memory.world().drives[&drives[0]].len()), (1, 1));
    collect(&memory, &service, &mut collector, drives[0], 7);
    assert_eq!(memory.world().drives[&drives[0]].len(), 1, "it waits since it was found without a record");
    collect(&memory, &service, &mut collector, drives[0], 1);
    assert_eq!(memory.world().drives[&drives[0]].len(), 0);
}

#[test]
fn a_put_that_takes_too_long_is_refused_before_its_shards_may_go() {
    let (memory, service) = Memory::with_drives(1);
    struct Slow(Given, Memory);
    impl Body for Slow {
        fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>, Error>> {
            self.1.pass_time(HOUR / 2);
            self.0.next()
        }
        fn digest(&mut self) -> BodyDigest {
            self.0.digest()
        }
    }
    let slow = |pieces: usize| {
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        let mut body = Slow(given(&pattern(70_000 * pieces)), memory.clone());
        run(service.put(request, &mut body)).map(|object| object.bytes)
    };
    // Half an hour for each piece, and twice for the end.
    assert_eq!(slow(9), Ok(630_000));
    assert_eq!(slow(10), Err(Error::BodyLost), "six hours");
    assert_eq!(memory.shards(), 1);
}

#[test]
fn what_is_put_while_the_list_of_a_drive_takes_hours_is_new() {
    let (memory, service) = Memory::with_drives(3);
    memory.world().forgets = true;
    // An empty index could be a lost one.
    put(&service, "kept", &pattern(5_000));
    let drive = DriveId::from_bytes([1; 16]);
    let mut collector = Collector::new(drive, CollectorConfig::default());
    let shards = Shards(memory.clone(), drive);
    {
        let mut step = Box::pin(collector.step(&service, &shards, DriveUse::InUse));
        assert!(step.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // The process is stopped here; when it goes on a put comes first, which is not committed yet.
        memory.pass_time(HOUR * 12);
        let mut body = Given { is_cut: true, ..given(&pattern(2_500_000)) };
        let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
        assert_eq!(run(service.put(request, &mut body)), Err(Error::BodyLost));
        assert!(run(step).is_ok_and(|step| step.looked_at > 0));
    }
    let before = memory.shards();
    collect(&memory, &service, &mut collector, drive, 2);
    assert_eq!(memory.shards(), before);
    collect(&memory, &service, &mut collector, drive, 8);
    assert!(memory.shards() < before, "it goes when it is old");
}

type Task = BoxFuture<'static, ()>;

/// Something that a client or a server begins.
fn begin(u: &mut Unstructured<'_>, memory: &Memory, service: &ObjectService<Memory>) -> Drawn<Task> {
    let key = format!("key-{}", u.int_in_range(0..=3)?);
    let len = *u.choose(&[1_usize, 4_000, 1_048_577])?;
    let (service, memory) = (service.clone(), memory.clone());
    Ok(match u.int_in_range(0..=13)? {
        0..=3 => Box::pin(async move {
            let request = PutRequest { bucket: "bucket".into(), key, ..PutRequest::default() };
            drop(service.put(request, &mut given(&pattern(len))).await);
        }),
        4 => Box::pin(async move {
            let (condition, attributes) = (&Condition::default(), &Attributes::default());
            let request = DeleteRequest {
                target: Target::current("bucket", &key),
                condition,
                attributes,
                bypass: Bypass::Denied,
                permit: Permit::ALWAYS,
            };
            drop(Objects::delete(&service, request).await);
        }),
        5..=7 => {
            let (twice, ends) = (u.arbitrary::<bool>()?, u.int_in_range(0..=2)?);
            Box::pin(async move {
                let Ok(upload) = service.begin("bucket", &key, Attributes::default(), Lock::default(), None).await
                else {
                    return;
                };
                let mut parts = Vec::new();
                for _ in 0..=u8::from(twice) {
                    let part =
                        service.put_part("bucket", &key, &upload, 2, &unencrypted, &mut given(&pattern(len))).await;
                    parts = part.map(|part| vec![(2, part.etag)]).unwrap_or_default();
                }
                match ends {
                    0 => drop(service.abort("bucket", &key, &upload).await),
                    1 => drop(service.complete("bucket", &key, &upload, completion(parts)).await),
                    _ => {}
                }
            })
        }
        8 => {
            let state = *u.choose(&[Versioning::Enabled, Versioning::Enabled, Versioning::Suspended])?;
            Box::pin(async move { drop(service.set_state("bucket", state).await) })
        }
        9..=11 => {
            let number: usize = u.int_in_range(0..=5)?;
            Box::pin(async move { delete_version(&service, &key, number).await })
        }
        _ => {
            let old = DriveId::from_bytes([u.int_in_range(1..=4)?; 16]);
            // Of four drives one may leave, so that another one is free for its shards.
            if memory.world().leaving.is_empty() {
                memory.world().leaving.insert(old);
            }
            Box::pin(async move {
                let Ok((bucket, _)) = service.bucket("bucket").await else { return };
                let mut drives = heal::HealPass::default();
                drop(service.heal_bucket(bucket, None, heal::HealDepth::Noted, &mut drives).await);
            })
        }
    })
}

/// Deletes one of the versions of a key: an older one, a mark, or the current one, so that the one behind it takes its place.
async fn delete_version(service: &ObjectService<Memory>, key: &str, number: usize) {
    let request = VersionsRequest { prefix: key.into(), limit: 100, ..VersionsRequest::default() };
    let Ok(page) = service.versions_page("bucket", &request).await else { return };
    let versions: Vec<VersionId> = page
        .entries
        .iter()
        .filter_map(|entry| match entry {
            ListedVersion::Object(object, _) => object.version,
            ListedVersion::Marker(marker, _) => Some(marker.version),
            ListedVersion::Prefix(_) => None,
        })
        .collect();
    let Some(version) = versions.get(number.min(versions.len().saturating_sub(1))) else { return };
    let (condition, attributes) = (&Condition::default(), &Attributes::default());
    let target = Target { version: Some(*version), ..Target::current("bucket", key) };
    let request = DeleteRequest { target, condition, attributes, bypass: Bypass::Denied, permit: Permit::ALWAYS };
    drop(Objects::delete(service, request).await);
}

fn collector_task(memory: &Memory, service: &ObjectService<Memory>, drive: DriveId) -> Task {
    let (memory, service) = (memory.clone(), service.clone());
    Box::pin(async move {
        let mut collector = Collector::new(drive, CollectorConfig::default());
        let shards = Shards(memory.clone(), drive);
        loop {
            drop(collector.step(&service, &shards, memory.drive_use(drive)).await);
        }
    })
}

#[test]
fn nothing_named_goes_and_no_orphan_is_left_whatever_happens_when() {
    arbtest(|u| {
        let (memory, service) = Memory::with_drives(3);
        // A fourth drive: parts that are put before it is there do not have it.
        put(&service, "kept", &pattern(5_000));
        memory.world().drives.insert(DriveId::from_bytes([4; 16]), BTreeMap::new());
        memory.world().forgets = true;
        let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
        let mut tasks: Vec<Task> = drives.iter().map(|drive| collector_task(&memory, &service, *drive)).collect();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..u.int_in_range(0..=400)? {
            match u.int_in_range(0..=19)? {
                0..=2 if tasks.len() < 12 => tasks.push(begin(u, &memory, &service)?),
                // The server of this one dies, and with it what it was doing.
                3 if tasks.len() > 4 => drop(tasks.remove(u.int_in_range(4..=tasks.len() - 1)?)),
                4 => memory.pass_time(HOUR * u.int_in_range(0..=4)?),
                5 => {
                    let is_away = u.arbitrary()?;
                    memory.world().is_index_away = is_away;
                }
                _ if u.is_empty() => break,
                _ => {
                    let at = u.int_in_range(0..=tasks.len() - 1)?;
                    for _ in 0..u.int_in_range(1..=20)? {
                        if tasks[at].as_mut().poll(&mut cx).is_ready() {
                            drop(tasks.remove(at));
                            break;
                        }
                    }
                }
            }
        }
        // Everything that is still under way dies, time passes, and the rest is collected.
        drop(tasks);
        memory.world().is_index_away = false;
        check_named(&memory, &all_parts(&service));
        let (bucket, _) = run(service.bucket("bucket")).unwrap();
        heal(&service, bucket, heal::HealDepth::Noted);
        for drive in &drives {
            let mut collector = Collector::new(*drive, CollectorConfig::default());
            collect(&memory, &service, &mut collector, *drive, 10);
        }
        let parts = all_parts(&service);
        check_named(&memory, &parts);
        check_no_orphan(&memory, &parts);
        let world = memory.world();
        for drive in &world.leaving {
            let holds = parts.iter().any(|part| part.spread.drives.contains(drive) && part.spread.drives.len() == 4);
            assert!(holds || world.drives[drive].is_empty(), "a drive that leaves becomes empty");
        }
        Ok(())
    })
    .budget_ms(8_000);
}
