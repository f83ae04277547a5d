//! What changes do, what they refuse, and what holds after any sequence of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arbtest::arbtest;
use ashlar_placement::map::{GroupId, Map, SetId};
use ashlar_placement::part::Part;
use ashlar_wire::epoch::Epoch;

use super::*;
use crate::feed::Feed;
use crate::record::Expected;
use crate::sample::{
    Sample, any_change, drive, drive_id, group, id, key, server, server_id, target_of, volume, volume_id,
};
use crate::server::{DriveState, ServerState};
use crate::set::{PgConfig, PgStep, Settled};
use crate::volume::Generation;

mod contradictions;
mod limits;

/// Every placement group's epoch, and every volume's generation.
fn fences(state: &State) -> (BTreeMap<GroupId, PgConfig>, BTreeMap<VolumeId, Generation>) {
    let pgs = state.sets().flat_map(|set| {
        let set_id = set.id;
        state.pgs_of(set_id).map(move |(pg, config)| (GroupId { set: set_id, pg }, config))
    });
    (pgs.collect(), state.volumes().map(|volume| (volume.id, volume.generation)).collect())
}

#[test]
fn any_sequence_of_changes_keeps_what_always_holds() {
    arbtest(|u| {
        let mut sample = if u.arbitrary()? { Sample::with_set(u.int_in_range(3..=7)?, 4) } else { Sample::new() };
        let mut twin = State::new(sample.state.cluster());
        for command in &sample.commands {
            twin.apply(command).unwrap();
        }
        let mut feed = Feed::new(sample.state.version());
        let start = sample.state.clone();
        while !u.is_empty() {
            let change = any_change(u, &sample.state)?;
            let before = sample.state.clone();
            let applied = sample.apply(change.clone());
            let command = sample.commands.last().unwrap();
            assert_eq!(twin.apply(command), applied, "equal states give equal answers");
            sample.state.check().unwrap_or_else(|refusal| panic!("{change:?}: {refusal}"));
            match applied {
                Ok(applied) => {
                    assert!(applied.version > before.version() && applied.version == sample.state.version());
                    feed.push(applied.version, Arc::new(command.clone()));
                    assert_eq!(sample.state.clone().apply(command), Ok(applied), "once, and answered again");
                }
                Err(_) => assert_eq!(sample.state, before, "a refused change leaves no trace: {change:?}"),
            }
            check_fences(&before, &sample.state);
        }
        check_forms(&sample.state, &twin);
        let mut follower = start.clone();
        for entry in feed.since(start.version()).unwrap() {
            assert_eq!(follower.apply(&entry.command).unwrap().version, entry.version);
        }
        assert_eq!(follower.encode(), sample.state.encode(), "the feed makes the same state");
        Ok(())
    });
}

fn check_fences(before: &State, after: &State) {
    let (old_pgs, old_volumes) = fences(before);
    let (pgs, volumes) = fences(after);
    for (group, old) in old_pgs {
        let new = &pgs[&group];
        assert!(new.epoch > old.epoch || *new == old, "a configuration changes only with its epoch: {group:?}");
        let may_act = |drive: &DriveId| old.acting.contains(drive) || old.learners.contains(drive);
        assert!(new.acting.iter().all(may_act), "nobody acts who was not a member: {group:?}");
    }
    for (id, old) in old_volumes {
        assert!(volumes.get(&id).is_none_or(|new| *new >= old), "{id}");
        assert!(volumes.contains_key(&id) || after.is_deleted(id), "{id} has left a record");
    }
}

fn check_forms(state: &State, twin: &State) {
    assert_eq!(state.encode(), twin.encode(), "equal commands make equal bytes");
    let bytes: usize = state.servers.iter().map(|row| encode(row).len()).sum();
    assert_eq!(state.servers.bytes(), bytes);
    let read = State::decode(&state.encode()).unwrap();
    assert_eq!(&read, state);
    assert_eq!(read.bytes(), state.bytes());
    let text = state.export();
    let imported = State::import(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(imported.encode(), state.encode(), "{text}");
}

#[test]
fn a_proposal_is_applied_once_or_refused_as_too_old() {
    let mut sample = Sample::new();
    let command = sample.command(Change::AddServer(server(1)));
    let applied = sample.state.apply(&command).unwrap();
    sample.commands.push(command.clone());
    sample.must(Change::RemoveServer(server_id(1)));
    assert_eq!(sample.state.apply(&command), Ok(applied));
    assert_eq!(sample.state.server(server_id(1)), None, "not applied a second time");

    for number in 0..PROPOSALS_REMEMBERED {
        let value = number.to_be_bytes().to_vec();
        sample.must(Change::PutRecord { key: key("one"), expected: Expected::Anything, value });
    }
    assert_eq!(sample.state.apply(&command), Err(Refusal::Expired), "forgotten, but not taken for a new one");
    assert_eq!(sample.state.proposals.len() as u64, PROPOSALS_REMEMBERED);
    let future = Command { seen: CatalogVersion(u64::MAX), ..sample.command(Change::SetVoters(vec![])) };
    assert_eq!(sample.state.apply(&future), Err(Refusal::Expired));
}

fn step(state: &State, group: GroupId) -> PgStep {
    let config = state.pg(group).unwrap();
    PgStep {
        group,
        expected: config.epoch,
        acting: config.acting,
        primary: config.primary,
        learners: config.learners,
        certified: Vec::new(),
        settled: Settled::No,
    }
}

#[test]
fn configurations_change_by_compare_and_set() {
    let mut sample = Sample::with_set(4, 8);
    let group = group(1, 3);
    let first = sample.state.pg(group).unwrap();
    assert_eq!((first.epoch, first.acting.len(), first.primary), (Epoch(1), 3, first.acting[0]));
    let outside = (0..4).map(drive_id).find(|drive| !first.acting.contains(drive)).unwrap();

    // The primary leaves, and a drive that never held anything is to be filled.
    let mut leave = step(&sample.state, group);
    leave.acting.remove(0);
    leave.primary = leave.acting[0];
    leave.learners = vec![outside];
    sample.must(Change::ConfigurePgs(vec![leave.clone()]));
    let second = sample.state.pg(group).unwrap();
    assert_eq!((second.epoch, second.acting.len()), (Epoch(2), 2));
    assert_eq!((second.learners, second.previous), (vec![outside], vec![first.acting[0]]));
    assert_eq!(sample.state.pgs_changed(), 1);

    let stale = sample.apply(Change::ConfigurePgs(vec![leave]));
    assert_eq!(stale, Err(Refusal::StaleEpoch { group, current: Epoch(2) }));

    let mut join = step(&sample.state, group);
    join.acting.push(outside);
    join.learners.clear();
    let refused = sample.apply(Change::ConfigurePgs(vec![join.clone()]));
    assert_eq!(refused, Err(Refusal::NotCertified { group, drive: outside }));
    join.certified = vec![outside];
    join.settled = Settled::Yes;
    sample.must(Change::ConfigurePgs(vec![join]));
    let third = sample.state.pg(group).unwrap();
    assert_eq!((third.epoch, third.acting.len(), third.previous), (Epoch(3), 3, vec![]));
}

#[test]
fn bad_configurations() {
    let mut sample = Sample::with_set(4, 8);
    let group = group(1, 0);
    let good = step(&sample.state, group);
    let outside = (0..4).map(drive_id).find(|drive| !good.acting.contains(drive)).unwrap();
    let with = |change: &dyn Fn(&mut PgStep)| {
        let mut step = good.clone();
        change(&mut step);
        vec![step]
    };
    let unknown = drive_id(77);
    let cases = [
        (with(&|step| step.acting.clear()), Refusal::BadActing(group)),
        (with(&|step| step.primary = outside), Refusal::BadActing(group)),
        (with(&|step| step.acting.push(outside)), Refusal::BadActing(group)),
        (with(&|step| step.acting[2] = step.acting[0]), Refusal::Conflict { group, drive: good.acting[0] }),
        (with(&|step| step.acting[2] = outside), Refusal::NotCertified { group, drive: outside }),
        (with(&|step| step.certified = vec![outside]), Refusal::NotCertified { group, drive: outside }),
        (with(&|step| step.learners = vec![step.acting[1]]), Refusal::Conflict { group, drive: good.acting[1] }),
        (with(&|step| step.learners = vec![unknown]), Refusal::Unknown(Subject::Drive(unknown))),
        (with(&|step| step.group.pg.0 = 8), Refusal::Unknown(Subject::Group(crate::sample::group(1, 8)))),
        (with(&|step| step.group.set = SetId(2)), Refusal::Unknown(Subject::Set(SetId(2)))),
        (vec![], Refusal::BadValue("order of steps")),
        (vec![good.clone(), good.clone()], Refusal::BadValue("order of steps")),
    ];
    for (steps, refusal) in cases {
        assert_eq!(sample.apply(Change::ConfigurePgs(steps.clone())), Err(refusal), "{steps:?}");
    }
    let too_many: Vec<PgStep> =
        (0..257).map(|pg| PgStep { group: crate::sample::group(1, pg), ..good.clone() }).collect();
    let refusal = Refusal::TooMany { what: "steps", max: 256 };
    assert_eq!(sample.apply(Change::ConfigurePgs(too_many)), Err(refusal));
    // One bad step of two, and neither is done.
    let both = vec![good.clone(), PgStep { expected: Epoch(9), ..step(&sample.state, crate::sample::group(1, 1)) }];
    assert!(sample.apply(Change::ConfigurePgs(both)).is_err());
    assert_eq!(sample.state.pgs_changed(), 0);
}

#[test]
fn volumes_are_fenced_by_generations() {
    let mut sample = Sample::with_set(3, 4);
    let id = volume_id(1);
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    assert_eq!(sample.state.volume_named("volume 1").map(|volume| volume.id), Some(id));
    assert_eq!(sample.apply(Change::CreateVolume(volume(1, 1, 10))), Err(Refusal::Exists(Subject::Volume(id))));
    let attach = |server, fence| Change::AttachVolume { id, server: server_id(server), fence };
    assert_eq!(sample.must(attach(0, None)).outcome, Outcome::Attached(Generation(1)));
    assert_eq!(sample.apply(attach(1, None)), Err(Refusal::Attached(server_id(0))));
    assert_eq!(
        sample.must(attach(0, None)).outcome,
        Outcome::Attached(Generation(2)),
        "the same server, started again"
    );
    let stale = Refusal::StaleGeneration { current: Generation(2) };
    assert_eq!(sample.apply(attach(1, Some(Generation(1)))), Err(stale));
    assert_eq!(sample.must(attach(1, Some(Generation(2)))).outcome, Outcome::Attached(Generation(3)), "by force");
    let late = sample.apply(Change::DetachVolume { id, generation: Generation(2) });
    assert_eq!(late, Err(Refusal::StaleGeneration { current: Generation(3) }));
    assert_eq!(sample.apply(Change::DeleteVolume(id)), Err(Refusal::InUse(Subject::Volume(id))));
    sample.must(Change::DetachVolume { id, generation: Generation(3) });
    sample.must(Change::DeleteVolume(id));
    assert!(sample.state.is_deleted(id) && sample.state.volume_named("volume 1").is_none());
    let again = sample.apply(Change::CreateVolume(volume(1, 1, 10)));
    assert_eq!(again, Err(Refusal::Exists(Subject::Volume(id))), "an id is never used again");
    sample.must(Change::ForgetVolume(id));
    assert!(!sample.state.is_deleted(id));
}

#[test]
fn a_renamed_volume_is_found_by_its_new_name_alone() {
    let mut sample = Sample::with_set(3, 4);
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    sample.must(Change::CreateVolume(volume(2, 1, 10)));
    let rename = |number, name: &str| Change::RenameVolume { id: volume_id(number), name: name.to_owned() };
    assert_eq!(sample.apply(rename(1, "volume 2")), Err(Refusal::Exists(Subject::Name)));
    assert_eq!(sample.apply(rename(3, "new")), Err(Refusal::Unknown(Subject::Volume(volume_id(3)))));
    sample.must(rename(1, "new"));
    assert_eq!(sample.state.volume_named("new").map(|volume| (volume.id, &*volume.name)), Some((volume_id(1), "new")));
    assert!(sample.state.volume_named("volume 1").is_none());
    sample.must(rename(2, "volume 1"));
    sample.state.check().unwrap();
}

#[test]
fn resized_volumes_keep_their_extents_where_they_are() {
    let mut sample = Sample::with_set(4, 4);
    sample.must(Change::AddDrive(drive(5, 0)));
    let shape = target_of(&sample.state, 1).shape();
    let one = ashlar_placement::map::Shape { pgs: 2, width: 1, ..shape };
    let copies = crate::set::Copies { write_min: 1, acting_min: 1 };
    let class = crate::server::DriveClass::Ssd;
    let second = crate::plan::placement::plan_set(&sample.state, SetId(2), one, class, copies, &[drive_id(5)]);
    sample.must(second.unwrap());
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    let part = |set, extents| Part { set: SetId(set), extents };
    let mut resize = |expected: u64, parts: &[Part]| {
        let extents: u64 = parts.iter().map(|part| part.extents).sum();
        let (expected_bytes, size_bytes) = (expected << 20, extents << 20);
        sample.apply(Change::ResizeVolume { id: volume_id(1), expected_bytes, size_bytes, parts: parts.to_vec() })
    };
    assert!(resize(10, &[part(1, 10), part(2, 5)]).is_ok());
    assert_eq!(resize(10, &[part(1, 10)]), Err(Refusal::StaleGeneration { current: Generation(0) }));
    let moved = Err(Refusal::BadValue("parts of a volume"));
    assert_eq!(resize(15, &[part(1, 11), part(2, 5)]), moved);
    assert_eq!(resize(15, &[part(2, 5), part(1, 10)]), moved);
    assert_eq!(resize(15, &[part(1, 10), part(3, 5)]), moved);
    assert!(resize(15, &[part(1, 10), part(2, 3), part(2, 2), part(1, 7)]).is_ok());
    let parts: Vec<Part> = vec![part(1, 10), part(2, 5), part(1, 7)];
    assert!(resize(22, &[part(1, 4)]).is_ok());
    assert_eq!(resize(4, &[part(1, 0)]).map(drop), Err(Refusal::Placement(ashlar_placement::Error::Missing("extent"))));
    assert!(resize(4, &parts[..1]).is_ok());
    assert_eq!(sample.state.volume(volume_id(1)).unwrap().parts, parts[..1]);
}

#[test]
fn records_change_by_compare_and_set() {
    let mut sample = Sample::new();
    let put = |expected, value: &[u8]| Change::PutRecord { key: key("one"), expected, value: value.to_vec() };
    let first = sample.must(put(Expected::Absent, b"1")).version;
    let stale = Err(Refusal::StaleRevision { current: Some(first) });
    assert_eq!(sample.apply(put(Expected::Absent, b"2")), stale);
    assert_eq!(sample.apply(put(Expected::Revision(CatalogVersion(0)), b"2")), stale);
    let second = sample.must(put(Expected::Revision(first), b"2")).version;
    assert!(second > first);
    sample.must(Change::RemoveRecord { key: key("one"), expected: Expected::Revision(second) });
    sample.must(put(Expected::Absent, b"3"));
    let late = sample.apply(put(Expected::Revision(second), b"4"));
    assert!(matches!(late, Err(Refusal::StaleRevision { .. })), "made again is another record");
    sample.must(Change::PutRecord {
        key: RecordKey { space: "object/user".into(), name: "a".into() },
        expected: Expected::Anything,
        value: vec![],
    });
    let names: Vec<&str> = sample.state.records_of("object/bucket").map(|record| record.key.name.as_str()).collect();
    assert_eq!(names, ["one"]);
    let large = vec![0; crate::record::VALUE_BYTES_MAX + 1];
    let refused = Refusal::TooMany { what: "bytes of a record", max: 65_536 };
    assert_eq!(sample.apply(put(Expected::Anything, &large)), Err(refused));
}

#[test]
fn features_wait_for_the_oldest_server() {
    let mut sample = Sample::with_set(3, 1);
    let feature = |release_min| Change::UseFeature(Feature { name: "snapshots".into(), release_min });
    assert_eq!(sample.apply(feature(2)), Err(Refusal::TooOld(server_id(0))));
    for number in 0..2 {
        let (id, address) = (server_id(number), "a:1".to_owned());
        sample.must(Change::UpdateServer { id, address, release: 2 });
    }
    sample.must(Change::SetServerState { id: server_id(2), state: ServerState::Dead });
    sample.must(feature(2));
    assert!(sample.state.uses("snapshots"));
    sample.must(feature(2));
    assert_eq!(sample.apply(feature(1)), Err(Refusal::Exists(Subject::Feature)), "it needs another release");
    let back = sample.apply(Change::SetServerState { id: server_id(2), state: ServerState::Joining });
    assert_eq!(back, Err(Refusal::TooOld(server_id(2))));
    assert_eq!(sample.apply(Change::AddServer(server(8))), Err(Refusal::TooOld(server_id(8))));
}

#[test]
fn voters_are_each_named_once() {
    let mut sample = Sample::with_set(3, 1);
    let voters = |numbers: &[u32]| Change::SetVoters(numbers.iter().map(|number| server_id(*number)).collect());
    sample.must(voters(&[0, 1, 2]));
    for wrong in [&[0, 0][..], &[1, 0]] {
        assert_eq!(sample.apply(voters(wrong)), Err(Refusal::BadValue("list of voters")), "{wrong:?}");
    }
}

#[test]
fn a_missing_drive_that_may_be_the_last_with_its_data_is_not_given_up() {
    let is_missing = |number| Change::SetDriveState { id: drive_id(number), state: DriveState::Missing };
    let go_on = |sample: &mut Sample| {
        let changes = crate::plan::failure::plan_failure(&sample.state, &BTreeSet::new());
        sample.must_all(changes);
    };
    let in_use = |number| Err(Refusal::InUse(Subject::Drive(drive_id(number))));
    let mut sample = Sample::with_set(3, 8);
    sample.must(is_missing(0));
    assert_eq!(sample.apply(Change::GiveUpMissing(drive_id(0))), in_use(0), "no placement group has gone on yet");
    go_on(&mut sample);
    sample.must(Change::GiveUpMissing(drive_id(0)));
    assert_eq!(sample.state.drive(drive_id(0)).unwrap().state, DriveState::Failed);
    sample.must(is_missing(1));
    go_on(&mut sample);
    sample.must(Change::GiveUpMissing(drive_id(1)));
    sample.must(is_missing(2));
    go_on(&mut sample);
    assert_eq!(sample.apply(Change::GiveUpMissing(drive_id(2))), in_use(2), "it acts alone");
    sample.must(Change::SetDriveState { id: drive_id(2), state: DriveState::Failed });
    assert_eq!(sample.apply(Change::GiveUpMissing(drive_id(77))), Err(Refusal::Unknown(Subject::Drive(drive_id(77)))));
}

#[test]
fn no_drive_is_given_up_while_more_are_missing_than_objects_can_lose() {
    for (drives, max) in [(3, 1), (4, 2), (6, 3), (9, 4), (16, 4)] {
        let mut sample = Sample::with_set(drives, 1);
        let too_many = Err(Refusal::TooMany { what: "missing drives", max });
        let members = sample.state.pg(group(1, 0)).unwrap().acting;
        let mut others = (0..drives).map(drive_id).filter(|drive| !members.contains(drive));
        // Of the members all but one go missing first.
        let mut missing: Vec<DriveId> = members[1..].to_vec();
        missing.extend(others.by_ref());
        missing.truncate(max + 1);
        for id in &missing {
            sample.must(Change::SetDriveState { id: *id, state: DriveState::Missing });
        }
        let changes = crate::plan::failure::plan_failure(&sample.state, &BTreeSet::new());
        sample.must_all(changes);
        assert_eq!(sample.apply(Change::GiveUpMissing(missing[0])), too_many, "{drives} drives");
        sample.must(Change::SetDriveState { id: missing[max], state: DriveState::Active });
        sample.must(Change::GiveUpMissing(missing[0]));
    }
}

#[test]
fn a_missing_drive_that_is_elsewhere_is_not_given_up() {
    let mut sample = Sample::with_set(4, 8);
    let id = drive_id(3);
    let set_state = |state| Change::SetDriveState { id, state };
    let bad_state = Err(Refusal::BadState(Subject::Drive(id)));
    assert_eq!(sample.apply(set_state(DriveState::Misplaced)), bad_state, "its own server has it");
    sample.must(set_state(DriveState::Missing));
    sample.must(set_state(DriveState::Misplaced));
    assert_eq!(sample.apply(set_state(DriveState::Missing)), bad_state, "its own server knows less");
    assert_eq!(sample.apply(Change::GiveUpMissing(id)), bad_state);
    assert_eq!(sample.apply(set_state(DriveState::Broken)), bad_state);
    sample.must(set_state(DriveState::Active));
    sample.must(set_state(DriveState::Broken));
    assert_eq!(sample.apply(set_state(DriveState::Misplaced)), bad_state, "its own server has it");
    sample.must(set_state(DriveState::Missing));
    sample.must(set_state(DriveState::Draining));
    assert_eq!(sample.apply(set_state(DriveState::Missing)), bad_state, "it is to be emptied all the same");
    sample.must(set_state(DriveState::Failed));
    assert_eq!(sample.apply(set_state(DriveState::Missing)), bad_state, "given up once");
}

#[test]
fn drives_leave_a_set_when_nothing_is_left_on_them() {
    let mut sample = Sample::with_set(4, 8);
    let leaving = drive_id(0);
    let in_use = Err(Refusal::InUse(Subject::Drive(leaving)));
    assert_eq!(sample.apply(Change::RemoveDrive(leaving)), in_use);
    sample.must(Change::SetDriveState { id: leaving, state: DriveState::Draining });
    let target = crate::plan::placement::plan_target(&sample.state, SetId(1), &[]).unwrap().unwrap();
    sample.must(target);
    assert_eq!(sample.apply(Change::ReleaseDrive(leaving)), in_use, "it still holds data");
    let alive = (0..4).map(server_id).collect();
    let changes = crate::plan::failure::plan_learners(&sample.state, &alive, 100);
    sample.must_all(changes);
    for pg in 0..8 {
        let learners = sample.state.pg(group(1, pg)).unwrap().learners;
        if let Some(step) = crate::plan::failure::plan_promotion(&sample.state, group(1, pg), &learners) {
            sample.must(Change::ConfigurePgs(vec![step]));
        }
        let config = sample.state.pg(group(1, pg)).unwrap();
        assert!(!config.is_member(leaving) && config.acting.len() == 3 && config.previous.is_empty());
    }
    sample.must(Change::ReleaseDrive(leaving));
    sample.must(Change::RemoveDrive(leaving));
    sample.must(Change::RemoveServer(server_id(0)));
    let read = State::decode(&sample.state.encode()).unwrap();
    assert_eq!(read, sample.state, "the first map still names the drive");
}

#[test]
fn maps_must_fit_the_catalog() {
    let mut sample = Sample::with_set(4, 8);
    let map = target_of(&sample.state, 1);
    let set = |map: Map| Change::SetTarget { id: SetId(1), map: Arc::new(map) };
    assert_eq!(sample.apply(set((*map).clone())), Err(Refusal::StaleMap { current: Epoch(1) }));
    let fewer = Map::new(SetId(1), Epoch(2), map.shape(), map.drives()[1..].to_vec()).unwrap();
    assert_eq!(sample.apply(set(fewer)), Err(Refusal::InUse(Subject::Drive(drive_id(0)))));
    let mut moved = map.drives().to_vec();
    moved[0].zone.0 = 9;
    moved[0].rack.0 = 9;
    let moved = Map::new(SetId(1), Epoch(2), map.shape(), moved).unwrap();
    assert_eq!(sample.apply(set(moved)), Err(Refusal::BadState(Subject::Drive(drive_id(0)))));
    let other = Map::new(SetId(2), Epoch(2), map.shape(), map.drives().to_vec()).unwrap();
    assert_eq!(sample.apply(set(other)), Err(Refusal::BadValue("set of a map")));
    sample.must(set(map.with_epoch(Epoch(2))));
}

#[test]
fn sets_together_have_a_bounded_number_of_placement_groups() {
    let mut sample = Sample::with_set(3, 4);
    sample.must(Change::AddDrive(drive(5, 0)));
    let most = u32::try_from(crate::set::PGS_MAX).unwrap();
    let refused = Refusal::TooMany { what: "placement groups", max: crate::set::PGS_MAX };
    let shape = target_of(&sample.state, 1).shape();
    for (pgs, expected) in [(most + 1, Some(&refused)), (most - 3, Some(&refused)), (most - 4, None)] {
        let shape = ashlar_placement::map::Shape { pgs, width: 1, ..shape };
        let copies = crate::set::Copies { write_min: 1, acting_min: 1 };
        let class = crate::server::DriveClass::Ssd;
        let planned =
            crate::plan::placement::plan_set(&sample.state, SetId(2), shape, class, copies, &[drive_id(5)]).unwrap();
        assert_eq!(sample.apply(planned).as_ref().err(), expected, "{pgs}");
    }
    assert_eq!(State::decode(&sample.state.encode()), Ok(sample.state), "as many as there may be");
}

#[test]
fn a_jump_fences_everything_that_was_handed_out() {
    let mut sample = Sample::with_set(3, 2);
    sample.must(Change::CreateVolume(volume(1, 1, 1)));
    sample.must(Change::AttachVolume { id: volume_id(1), server: server_id(0), fence: None });
    let mut leave = step(&sample.state, group(1, 0));
    leave.acting.truncate(2);
    sample.must(Change::ConfigurePgs(vec![leave]));
    let version = sample.state.version();
    let applied = sample.must(Change::JumpEpochs(1_000));
    assert_eq!(applied.version.0, version.0 + 1_001);
    let epochs = [0, 1].map(|pg| sample.state.pg(group(1, pg)).unwrap().epoch);
    assert_eq!(epochs, [Epoch(1_002), Epoch(1_001)], "also of one that has no record");
    assert_eq!(sample.state.volume(volume_id(1)).unwrap().generation, Generation(1_001));
    sample.state.check().unwrap();
}

#[test]
fn a_full_catalog_still_takes_what_makes_it_smaller() {
    let mut sample = Sample::with_set(3, 2);
    let mut number = 0;
    let refusal = loop {
        let name = format!("{number:0>512}");
        let key = RecordKey { space: "s".into(), name };
        let value = vec![0; crate::record::VALUE_BYTES_MAX];
        number += 1;
        if let Err(refusal) = sample.apply(Change::PutRecord { key, expected: Expected::Absent, value }) {
            break refusal;
        }
        sample.commands.clear();
        sample.commands.resize(number, sample.command(Change::SetVoters(vec![])));
    };
    assert_eq!(refusal, Refusal::TooMany { what: "bytes of the catalog", max: STATE_BYTES_MAX });
    assert!(sample.state.bytes() > STATE_BYTES_MAX - (256 << 10) && sample.state.bytes() <= STATE_BYTES_MAX);
    let one = step(&sample.state, group(1, 0));
    sample.must(Change::ConfigurePgs(vec![one]));
    let key = RecordKey { space: "s".into(), name: format!("{:0>512}", 0) };
    sample.must(Change::RemoveRecord { key, expected: Expected::Anything });
}

#[test]
fn golden_bytes() {
    let mut sample = Sample::with_set(3, 1);
    sample.must(Change::PutRecord { key: key("b"), expected: Expected::Absent, value: b"v".to_vec() });
    let bytes = sample.state.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = "ae6173686c617220636174616c6f6701c41000000000000000000000000000000007080003c41000000000000000000000000000\
         000000ad7365727665722d303a3739343600000102c41000000000000000000000000000000001ad7365727665722d313a373934\
         3600000102c41000000000000000000000000000000002ad7365727665722d323a373934360101010203c4100000000000000000\
         0000000000000100c4100000000000000000000000000000000002cf0000001900000000010101c4100000000000000000000000\
         0000000101c4100000000000000000000000000000000102cf0000001900000000010101c4100000000000000000000000000000\
         0102c4100000000000000000000000000000000202cf0000001900000000010101010102020101c48eaa6173686c6172206d6170\
         0101010103020396c41000000000000000000000000000000100c410000000000000000000000000000000000000640196c41000\
         000000000000000000000000000101c410000000000000000000000000000000010000640196c410000000000000000000000000\
         00000102c4100000000000000000000000000000000201016401000000000001ad6f626a6563742f6275636b6574a16208c40176\
         0008c410000000000000000000000000ffff00000101c410000000000000000000000000ffff00010201c4100000000000000000\
         00000000ffff00020301c410000000000000000000000000ffff00030401c410000000000000000000000000ffff00040501c410\
         000000000000000000000000ffff00050601c410000000000000000000000000ffff00060701c410000000000000000000000000\
         ffff0007080169d691f70464b7ae";
    assert_eq!(hex, golden);
}

#[test]
fn golden_text() {
    let mut sample = Sample::with_set(3, 1);
    sample.must(Change::PutRecord { key: key("ü b"), expected: Expected::Absent, value: b"v".to_vec() });
    let golden = "ashlar catalog 1\n\
         catalog cluster=00000000000000000000000000000007 version=8 voters=0\n\
         server id=00000000000000000000000000000000 address=server-0:7946 zone=0 rack=0 release=1 state=active\n\
         server id=00000000000000000000000000000001 address=server-1:7946 zone=0 rack=0 release=1 state=active\n\
         server id=00000000000000000000000000000002 address=server-2:7946 zone=1 rack=1 release=1 state=active\n\
         drive id=00000000000000000000000000000100 server=00000000000000000000000000000000 class=ssd bytes=107374182400 state=active sets=1 set=1\n\
         drive id=00000000000000000000000000000101 server=00000000000000000000000000000001 class=ssd bytes=107374182400 state=active sets=1 set=1\n\
         drive id=00000000000000000000000000000102 server=00000000000000000000000000000002 class=ssd bytes=107374182400 state=active sets=1 set=1\n\
         set id=1 class=ssd write_min=2 acting_min=1 epoch=1 \
         first=aa6173686c6172206d61700101010103020396c41000000000000000000000000000000100c410000000000000000000000000000000000000640196c41000000000000000000000000000000101c410000000000000000000000000000000010000640196c41000000000000000000000000000000102c410000000000000000000000000000000020101640100 target=0\n\
         record space=object/bucket name=%c3%bc%20b revision=8 value=76\n\
         proposal proposal=000000000000000000000000ffff0000 version=1 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0001 version=2 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0002 version=3 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0003 version=4 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0004 version=5 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0005 version=6 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0006 version=7 outcome=done\n\
         proposal proposal=000000000000000000000000ffff0007 version=8 outcome=done\n\
         end records=16\n";
    assert_eq!(sample.state.export(), golden);
}

#[test]
fn damaged_snapshots_are_refused() {
    let mut sample = Sample::with_set(3, 4);
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    let bytes = sample.state.encode();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x10;
        assert!(State::decode(&damaged).is_err(), "byte {place}");
        assert!(State::decode(&bytes[..place]).is_err(), "cut at {place}");
    }
}

#[test]
fn arbitrary_bytes_make_no_state_or_one_that_holds() {
    let good = Sample::with_set(3, 2).state.encode();
    arbtest(|u| {
        let mut bytes = good[..good.len() - 8].to_vec();
        for _ in 0..u.int_in_range(1..=4)? {
            let place = u.int_in_range(0..=bytes.len() - 1)?;
            bytes[place] = u.arbitrary()?;
        }
        // With the right checksum, so that what lies behind it is tried too.
        let cluster = ClusterId::from_bytes(id(7));
        let salt = ashlar_wire::checksum::Salt::new(&[b"catalog", cluster.as_bytes()]);
        let sum = ashlar_wire::checksum::checksum(salt, &bytes);
        bytes.extend_from_slice(&sum.0.to_be_bytes());
        if let Ok(state) = State::decode(&bytes) {
            assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
            assert_eq!(State::import(&state.export()), Ok(state));
        }
        Ok(())
    });
}

#[test]
fn texts_are_read_strictly() {
    let text = Sample::with_set(3, 1).state.export();
    let imported = |text: &str| State::import(text);
    assert!(imported(&text.replace('\n', "\n\n# a comment\n")).is_ok());
    let cases = [
        (text.replace("ashlar catalog 1", "ashlar catalog 2"), FormError::UnknownVersion(2)),
        (text.replace("ashlar catalog", "something else"), FormError::NotThis),
        (String::new(), FormError::NotThis),
        (text.replacen("state=active", "state=well", 1), FormError::BadText { line: 3, what: "state" }),
        (text.replacen("zone=0", "zone=+0", 1), FormError::BadText { line: 3, what: "zone" }),
        (
            text.replacen("end records=", "end records=1", 1),
            FormError::BadText { line: 17, what: "end after the last record" },
        ),
        (text.replacen("end", "fin", 1), FormError::BadText { line: 17, what: "end after the last record" }),
        (format!("{text}end records=0"), FormError::TrailingBytes),
    ];
    for (text, error) in cases {
        assert_eq!(imported(&text), Err(error), "{text}");
    }
}

/// A text may be written by hand, for a cluster that lost its quorum: what it says has to fit together.
#[test]
fn texts_whose_records_contradict_each_other_are_refused() {
    let mut sample = Sample::with_set(3, 1);
    sample.must(Change::SetVoters(vec![server_id(0), server_id(1)]));
    let text = sample.state.export();
    let (first, second) = ("0".repeat(32), format!("{:032x}", 1));
    let without_first_proposal: String =
        text.lines().filter(|line| !line.contains("ffff0000")).map(|line| format!("{line}\n")).collect();
    let later = |version: u64| {
        let later = without_first_proposal.replacen("version=8", &format!("version={version}"), 1);
        later.replacen("end records=15", "end records=14", 1)
    };
    let remembered = PROPOSALS_REMEMBERED;
    let drive_0 = Subject::Drive(drive_id(0));
    let cases = [
        (text.clone(), None),
        (
            text.replacen(&format!("={first} server={second}"), &format!("={first} server={first}"), 1),
            Some(Refusal::BadValue("list of voters")),
        ),
        (text.replacen("class=ssd bytes", "class=hdd bytes", 1), Some(Refusal::BadState(drive_0))),
        (text.replacen("bytes=107374182400", "bytes=1", 1), Some(Refusal::BadValue("size of a drive"))),
        (text.replacen("epoch=1 first", "epoch=0 first", 1), Some(Refusal::BadValue("maps of a set"))),
        (later(remembered + 1), None),
        (later(remembered + 2), Some(Refusal::BadValue("proposals"))),
    ];
    for (text, refusal) in cases {
        let imported = State::import(&text);
        assert_eq!(
            imported.map(drop),
            refusal.map_or(Ok(()), |refusal| Err(FormError::Inconsistent(refusal))),
            "{text}"
        );
    }
}
