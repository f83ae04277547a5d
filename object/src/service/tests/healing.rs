//! Shards that were missed, lost or damaged are made anew, and those on drives that leave move.

use super::*;
use crate::record::ShardOwner;

/// One pass over a bucket.
pub(super) fn heal(service: &ObjectService<Memory>, bucket: BucketId, depth: heal::HealDepth) -> Healed {
    let (mut healed, mut from, mut drives) = (Healed::default(), None, heal::HealPass::default());
    loop {
        let (step, next) = run(service.heal_bucket(bucket, from, depth, &mut drives)).unwrap();
        healed = healed.and(step);
        from = next;
        if from.is_none() {
            return healed;
        }
    }
}

#[test]
fn shards_that_were_missed_lost_or_damaged_are_made_anew() {
    let (memory, service) = Memory::with_drives(5);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[0]);
    let bytes = pattern((2 << 20) + 99);
    put(&service, "missed", &bytes);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let heal = |depth| heal(&service, bucket, depth);
    memory.world().reads = 0;
    assert_eq!(memory.world().noted, ["missed"], "it is healed soon");
    let asked = &mut heal::HealPass::default();
    let noted = heal::HealDepth::Noted;
    assert_eq!(run(service.heal_object(bucket, "missed", noted, asked)), Err(Error::Unavailable));
    assert_eq!(heal(heal::HealDepth::Noted), Healed { objects: 1, waiting: 1, ..Healed::default() });
    assert_eq!(memory.world().reads, 0, "the drive is still away: nothing is read for it");
    memory.world().down.clear();
    put(&service, "whole", b"whole");
    assert_eq!(memory.world().noted.len(), 1);
    delete_if(&service, "whole", None, &Condition::default()).unwrap();
    assert_eq!(heal(heal::HealDepth::Noted), Healed { objects: 1, healed: 1, ..Healed::default() });
    assert_eq!(heal(heal::HealDepth::Noted), Healed { objects: 1, ..Healed::default() });
    assert_eq!(memory.world().drives[&drives[0]].len(), 3);
    // Whatever two drives have lost is found by asking, or when it is read.
    let whole = memory.world().drives.clone();
    for lost in [[0, 1], [1, 4], [3, 4], [0, 2]] {
        for drive in lost {
            memory.world().drives.get_mut(&drives[drive]).unwrap().clear();
        }
        assert!(read(&service, "missed", None).unwrap() == bytes);
        assert_eq!(heal(heal::HealDepth::Every), Healed { objects: 1, healed: 1, ..Healed::default() });
        assert!(memory.world().drives == whole, "shards are the same as before");
    }
    assert!(memory.world().to_heal.iter().all(|key| key == "missed") && !memory.world().to_heal.is_empty());
    for drive in &drives[..3] {
        memory.world().drives.get_mut(drive).unwrap().clear();
    }
    assert_eq!(heal(heal::HealDepth::Every), Healed { objects: 1, failed: 1, ..Healed::default() });
    let (every, mut asked) = (heal::HealDepth::Every, heal::HealPass::default());
    assert_eq!(run(service.heal_object(bucket, "missed", every, &mut asked)), Err(Error::Damaged));
    assert_eq!(run(service.heal_object(bucket, "none", every, &mut asked)), Ok(false));
}

#[test]
fn what_is_proven_was_read_from_every_drive() {
    let (memory, service) = Memory::with_drives(5);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    for number in 0..40 {
        put(&service, &format!("key-{number:02}"), &pattern(99));
    }
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let proven = heal::HealDepth::Proven;
    let (step, next) = run(service.heal_bucket(bucket, None, proven, &mut heal::HealPass::default())).unwrap();
    assert_eq!((step.objects, next.is_some()), (16, true), "steps are short: they are told, and can be stopped");
    let whole = memory.world().drives.clone();
    memory.world().drives.get_mut(&drives[0]).unwrap().clear();
    memory.world().down.insert(drives[1]);
    let mut asked = heal::HealPass::default();
    run(service.heal_bucket(bucket, None, proven, &mut asked)).unwrap();
    let named = asked.unwhole();
    let first = heal::Unwhole { key: "key-00".into(), version: None, why: heal::Lack::Waits };
    assert_eq!((named.len(), &named[0]), (16, &first));
    let waiting = Healed { objects: 40, waiting: 40, ..Healed::default() };
    assert_eq!(heal(&service, bucket, proven), waiting, "a drive does not answer");
    assert!(memory.world().drives == whole, "what the other one has lost is made anew");
    memory.world().drives.get_mut(&drives[0]).unwrap().clear();
    memory.world().down.clear();
    assert_eq!(heal(&service, bucket, proven), Healed { objects: 40, healed: 40, ..Healed::default() });
    assert_eq!(heal(&service, bucket, proven), Healed { objects: 40, ..Healed::default() });
}

#[test]
fn so_many_unwhole_objects_are_named_and_all_are_counted() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[2]);
    for number in 0..=heal::UNWHOLE_MAX {
        put(&service, &format!("key-{number:03}"), b"1");
    }
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let count = || run(service.count_to_heal(bucket, None)).unwrap();
    assert_eq!(count(), (101, None));
    let mut asked = heal::HealPass::default();
    let (step, next) = run(service.heal_bucket(bucket, None, heal::HealDepth::Noted, &mut asked)).unwrap();
    assert_eq!(asked.away(), BTreeSet::from([drives[2]]));
    assert_eq!((step.waiting, next, asked.unwhole().len()), (101, None, heal::UNWHOLE_MAX));
    // Nobody can have the shards of a drive that is given up: nothing is to be healed.
    memory.world().leaving.insert(drives[2]);
    assert_eq!(count(), (0, None));
    memory.world().leaving.clear();
    memory.world().down.clear();
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted).healed, 101);
    assert_eq!(count(), (0, None));
}

#[test]
fn a_shard_that_its_drive_has_no_room_for_stays_missing() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().full.insert(drives[1]);
    put(&service, "key", &pattern(5_000));
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let mut asked = heal::HealPass::default();
    let healed = run(service.heal_bucket(bucket, None, heal::HealDepth::Noted, &mut asked)).unwrap().0;
    assert_eq!(healed, Healed { objects: 1, failed: 1, ..Healed::default() });
    assert_eq!(asked.unwhole(), [heal::Unwhole { key: "key".into(), version: None, why: heal::Lack::Failed }]);
    let object = || run(service.heal_object(bucket, "key", heal::HealDepth::Noted, &mut heal::HealPass::default()));
    assert_eq!(object(), Err(Error::Full));
    memory.world().full.clear();
    assert_eq!([object(), object()], [Ok(true), Ok(false)]);
}

#[test]
fn shards_stay_where_they_are_if_the_cluster_names_places_for_another_kind_of_part() {
    let (memory, service) = Memory::with_drives(3);
    put(&service, "key", &pattern(5_000));
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let Spread { parity, drives } = run(service.record(bucket, "key")).unwrap().unwrap().0.parts[0].spread.clone();
    let turned: Vec<DriveId> = [drives[1], drives[2], drives[0]].into();
    for (parity, drives, moves) in [
        (parity, turned.clone(), 1),
        (parity + 1, turned.clone(), 0),
        (parity, turned[..2].to_vec(), 0),
        (parity + 1, turned[..2].to_vec(), 0),
    ] {
        memory.world().goal = Some(Spread { parity, drives });
        assert_eq!(run(service.count_to_heal(bucket, None)), Ok((moves, None)));
    }
}

#[test]
fn an_object_of_parts_is_healed_with_the_headers_of_its_parts() {
    let (memory, service) = Memory::with_drives(3);
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    let one = put_part(&service, &upload, 2, &pattern(usize::try_from(PART_BYTES_MIN).unwrap()));
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[2]);
    let two = put_part(&service, &upload, 7, &pattern(900));
    memory.world().down.clear();
    run(service.complete("bucket", "key", &upload, completion(vec![one, two]))).unwrap();
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let (record, _) = run(service.record(bucket, "key")).unwrap().unwrap();
    assert_eq!(record.parts.iter().map(|part| (part.number, part.missing.len())).collect::<Vec<_>>(), [(2, 0), (7, 1)]);
    assert_eq!(memory.world().noted, ["key"], "once it is an object");
    let healed = heal(&service, bucket, heal::HealDepth::Noted);
    assert_eq!((healed.healed, memory.world().drives[&drives[2]].len()), (1, 6));
}

/// Drive `old` leaves and an empty one comes.
fn replace_drive(memory: &Memory, old: DriveId, new: u8) -> DriveId {
    let new = DriveId::from_bytes([new; 16]);
    let mut world = memory.world();
    world.leaving.insert(old);
    world.drives.insert(new, BTreeMap::new());
    new
}

#[test]
fn shards_of_a_drive_that_was_lost_move_to_another_one() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    let bytes = pattern((3 << 20) + 5);
    put(&service, "key", &bytes);
    put(&service, "empty", b"");
    let upload = run(service.begin("bucket", "up", Attributes::default(), Lock::default(), None)).unwrap();
    run(service.put_part("bucket", "up", &upload, 4, &unencrypted, &mut given(&bytes))).unwrap();
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    memory.world().down.insert(drives[1]);
    memory.world().leaving.insert(drives[1]);
    let count = || run(service.count_to_heal(bucket, None)).unwrap().0;
    assert_eq!(count(), 0, "no other drive can take the shards");
    let lacking = Healed { objects: 3, lacking: 2, ..Healed::default() };
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted), lacking);
    let new = replace_drive(&memory, drives[1], 9);
    assert_eq!(count(), 2);
    assert!(read(&service, "key", None).unwrap() == bytes);
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted), Healed { objects: 3, healed: 2, ..Healed::default() });
    assert_eq!((count(), memory.world().drives[&new].len()), (0, 8));
    let (record, _) = run(service.record(bucket, "key")).unwrap().unwrap();
    assert_eq!(record.parts[0].spread.drives, [drives[0], new, drives[2]]);
    // Now another one may be lost.
    memory.world().down.insert(drives[0]);
    assert!(read(&service, "key", None).unwrap() == bytes);
    run(service.complete("bucket", "up", &upload, completion(vec![(4, record.etag)]))).unwrap();
    assert!(read(&service, "up", None).unwrap() == bytes);
}

#[test]
fn an_object_that_misses_a_shard_and_loses_another_is_whole_again_where_it_can_be() {
    let (memory, service) = Memory::with_drives(5);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    memory.world().down.insert(drives[0]);
    let bytes = pattern(1_500_000);
    put(&service, "key", &bytes);
    memory.world().down.insert(drives[4]);
    let new = replace_drive(&memory, drives[4], 9);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let waiting = Healed { objects: 1, waiting: 1, ..Healed::default() };
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted), waiting);
    let (record, _) = run(service.record(bucket, "key")).unwrap().unwrap();
    assert_eq!((record.parts[0].spread.drives[4], &record.parts[0].missing[..]), (new, &[0][..]), "one of both");
    memory.world().down.remove(&drives[0]);
    assert_eq!(heal(&service, bucket, heal::HealDepth::Noted).healed, 1);
    memory.world().down = BTreeSet::from([drives[1], drives[2]]);
    assert!(read(&service, "key", None).unwrap() == bytes);
}

#[test]
fn an_object_that_is_replaced_while_it_is_healed_stays_replaced() {
    let (memory, service) = Memory::with_drives(3);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    put(&service, "key", &pattern(900_000));
    replace_drive(&memory, drives[2], 9);
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let mut asked = heal::HealPass::default();
    let mut body = given(&pattern(70_001));
    let request = PutRequest { bucket: "bucket".into(), key: "key".into(), ..PutRequest::default() };
    let healing: BoxFuture<'_, ()> = Box::pin(async {
        service.heal_bucket(bucket, None, heal::HealDepth::Noted, &mut asked).await.unwrap();
    });
    let putting: BoxFuture<'_, ()> = Box::pin(async {
        service.put(request, &mut body).await.unwrap();
    });
    run(crate::flight::all([healing, putting]));
    assert!(read(&service, "key", None).unwrap() == pattern(70_001));
}

/// A drive loses those of its shards whose numbers are lost.
fn lose(memory: &Memory, drive: DriveId, is_lost: impl Fn(usize) -> bool) {
    let mut number = 0;
    memory.world().drives.get_mut(&drive).unwrap().retain(|_, _| {
        number += 1;
        !is_lost(number - 1)
    });
}

#[test]
fn what_one_drive_has_lost_is_found_by_its_heads() {
    let (memory, service) = Memory::with_drives(5);
    let drives: Vec<DriveId> = memory.world().drives.keys().copied().collect();
    put(&service, "one", &pattern((1 << 20) + 5));
    put(&service, "two", &pattern(70_000));
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    put_part(&service, &upload, 3, &pattern(900));
    let (bucket, _) = run(service.bucket("bucket")).unwrap();
    let whole = memory.world().drives.clone();
    let heal = |drive: usize| heal(&service, bucket, heal::HealDepth::Drive(drives[drive]));
    assert_eq!(heal(4), Healed { objects: 3, ..Healed::default() });
    for lost in 0..4 {
        lose(&memory, drives[4], |number| number == lost);
        assert_eq!(heal(3), Healed { objects: 3, ..Healed::default() }, "another drive was asked");
        assert_eq!(heal(4), Healed { objects: 3, healed: 1, ..Healed::default() });
        assert!(memory.world().drives == whole);
    }
    memory.world().reads = 0;
    heal(4);
    assert_eq!(memory.world().reads, 0, "heads only");
}

#[test]
fn a_damaged_shard_leads_to_the_part_that_it_is_of() {
    let (memory, service) = Memory::with_drives(3);
    let drive = *memory.world().drives.keys().next_back().unwrap();
    put(&service, "key", &pattern((1 << 20) + 5));
    put(&service, "other", &pattern(5));
    let upload = run(service.begin("bucket", "key", Attributes::default(), Lock::default(), None)).unwrap();
    put_part(&service, &upload, 3, &pattern(900));
    let whole = memory.world().drives.clone();
    let heads: Vec<Bytes> = whole[&drive].keys().map(|blob| memory.world().heads[&(drive, *blob)].1.clone()).collect();
    assert_eq!(heads.len(), 4);
    for (number, head) in heads.iter().enumerate() {
        let owner = ShardOwner::decode(head).unwrap();
        assert_eq!(run(service.heal_shard(&owner)), Ok(false));
        lose(&memory, drive, |lost| lost == number);
        assert_eq!(run(service.heal_shard(&owner)), Ok(true));
        assert!(memory.world().drives == whole, "shard {number}");
    }
    // Of what nothing refers to any more nothing is made.
    delete_if(&service, "other", None, &Condition::default()).unwrap();
    for head in &heads {
        assert_eq!(run(service.heal_shard(&ShardOwner::decode(head).unwrap())), Ok(false));
    }
    // As many are lost as give nothing back.
    for lost in memory.world().drives.values_mut().take(2) {
        lost.clear();
    }
    let failed = heads.iter().filter(|head| run(service.heal_shard(&ShardOwner::decode(head).unwrap())).is_err());
    assert_eq!(failed.count(), 3);
}
