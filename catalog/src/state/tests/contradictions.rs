//! States whose records contradict each other: no change makes one, and one that is read is refused.

use ashlar_placement::domains::Conflict;
use ashlar_placement::map::Shape;

use super::*;
use crate::plan::failure::{plan_learners, plan_promotion};
use crate::plan::placement::{plan_set, plan_target};
use crate::server::{DriveClass, WEIGHT_BYTES};
use crate::set::{Copies, PgRow};
use crate::volume::{DELETED_MAX, DeletedVolume, VolumeRecord};

/// A state with records of every kind: five servers, drive 9 in no set, a placement group that has changed.
fn sample() -> Sample {
    let mut sample = Sample::with_set(5, 8);
    sample.must(Change::AddDrive(drive(9, 0)));
    let mut leave = step(&sample.state, group(1, 3));
    let outside = (0..5).map(drive_id).find(|drive| !leave.acting.contains(drive)).unwrap();
    leave.acting.remove(0);
    (leave.primary, leave.learners) = (leave.acting[0], vec![outside]);
    sample.must(Change::ConfigurePgs(vec![leave]));
    for number in [1, 2] {
        sample.must(Change::CreateVolume(volume(number, 1, 10)));
    }
    sample.must(Change::AttachVolume { id: volume_id(1), server: server_id(0), fence: None });
    sample.must(Change::DeleteVolume(volume_id(2)));
    sample.must(Change::PutRecord { key: key("one"), expected: Expected::Absent, value: b"1".to_vec() });
    sample.must(Change::UseFeature(Feature { name: "snapshots".into(), release_min: 1 }));
    sample.must(Change::SetVoters(vec![server_id(0), server_id(1)]));
    sample
}

fn insert<R: Row>(table: &mut Table<R>, row: R) {
    table.insert(row);
}

/// What becomes of a state that is written after this change, and read.
fn read_after(state: &State, change: &dyn Fn(&mut State)) -> Result<(), FormError> {
    let mut state = state.clone();
    change(&mut state);
    State::decode(&state.encode()).map(drop)
}

/// A change of the state, and why it is refused then.
type Case<'c> = (&'c dyn Fn(&mut State), Option<Refusal>);

fn check_all(state: &State, cases: &[Case<'_>]) {
    for (place, (change, refusal)) in cases.iter().enumerate() {
        let expected = refusal.map_or(Ok(()), |refusal| Err(FormError::Inconsistent(refusal)));
        assert_eq!(read_after(state, *change), expected, "case {place}");
    }
}

#[test]
fn records_of_every_kind_come_back() {
    let sample = sample();
    let mut twin = State::new(sample.state.cluster());
    for command in &sample.commands {
        twin.apply(command).unwrap();
    }
    check_forms(&sample.state, &twin);
    let deleted: Vec<VolumeId> = sample.state.deleted_volumes().map(|row| row.id).collect();
    assert_eq!(deleted, [volume_id(2)]);
    let state = &sample.state;
    let machines = bytes_of(&state.servers) + bytes_of(&state.drives) + bytes_of(&state.sets) + bytes_of(&state.pgs);
    let data = bytes_of(&state.volumes) + bytes_of(&state.deleted) + bytes_of(&state.records);
    let rest = bytes_of(&state.features) + bytes_of(&state.proposals);
    assert_eq!(state.bytes(), machines + data + rest, "the catalog is as large as its records");
}

fn bytes_of<R: Row>(table: &Table<R>) -> usize {
    assert_ne!(table.len(), 0, "{}", R::KIND);
    table.iter().map(|row| encode(row).len()).sum()
}

#[test]
fn servers_and_drives() {
    let state = sample().state;
    let voters = |count: u32| (0..count).map(server_id).collect::<Vec<_>>();
    let put = |state: &mut State, change: &dyn Fn(&mut Drive)| {
        let mut drive = drive(9, 0);
        change(&mut drive);
        state.drives.insert(drive);
    };
    check_all(
        &state,
        &[
            (&|_| {}, None),
            (&|state| state.voters = voters(14), None),
            (&|state| state.voters = vec![server_id(1), server_id(1)], Some(Refusal::BadValue("list of voters"))),
            (
                &|state| insert(&mut state.servers, Server { address: String::new(), ..server(1) }),
                Some(Refusal::BadValue("address")),
            ),
            (&|state| put(state, &|drive| drive.size_bytes = WEIGHT_BYTES), None),
            (
                &|state| put(state, &|drive| drive.size_bytes = WEIGHT_BYTES - 1),
                Some(Refusal::BadValue("size of a drive")),
            ),
            (
                &|state| put(state, &|drive| drive.server = server_id(7)),
                Some(Refusal::Unknown(Subject::Server(server_id(7)))),
            ),
            (&|state| put(state, &|drive| drive.set = Some(SetId(9))), Some(Refusal::Unknown(Subject::Set(SetId(9))))),
            (
                &|state| put(state, &|drive| drive.set = Some(SetId(1))),
                Some(Refusal::Unknown(Subject::Drive(drive_id(9)))),
            ),
        ],
    );
}

#[test]
fn sets() {
    let state = sample().state;
    let set = state.set(SetId(1)).unwrap().clone();
    let map = |set_id, epoch, shape| Arc::new(Map::new(set_id, epoch, shape, set.first.drives().to_vec()).unwrap());
    let shape = set.first.shape();
    let put = |state: &mut State, change: &dyn Fn(&mut Set)| {
        let mut set = set.clone();
        change(&mut set);
        state.sets.insert(set);
    };
    let copies = |write_min, acting_min| Copies { write_min, acting_min };
    let (maps, copies_refused) =
        (Some(Refusal::BadValue("maps of a set")), Some(Refusal::BadValue("number of copies")));
    let other_shape = Shape { pgs: shape.pgs + 1, ..shape };
    check_all(
        &state,
        &[
            (&|state| put(state, &|set| set.target = map(SetId(1), Epoch(2), shape)), None),
            (&|state| put(state, &|set| set.first = map(SetId(1), Epoch(2), shape)), maps),
            (&|state| put(state, &|set| set.first = map(SetId(2), Epoch(1), shape)), maps),
            (&|state| put(state, &|set| set.target = map(SetId(2), Epoch(2), shape)), maps),
            (&|state| put(state, &|set| set.target = map(SetId(1), Epoch(2), other_shape)), maps),
            (&|state| put(state, &|set| set.first_epoch = Epoch::ZERO), maps),
            (&|state| put(state, &|set| set.copies = copies(3, 3)), None),
            (&|state| put(state, &|set| set.copies = copies(0, 1)), copies_refused),
            (&|state| put(state, &|set| set.copies = copies(4, 1)), copies_refused),
            (&|state| put(state, &|set| set.copies = copies(1, 0)), copies_refused),
            (&|state| put(state, &|set| set.copies = copies(1, 4)), copies_refused),
            (&|state| insert(&mut state.drives, drive(0, 0)), Some(Refusal::Unknown(Subject::Drive(drive_id(0))))),
        ],
    );
}

#[test]
fn configurations_of_placement_groups() {
    let state = sample().state;
    let good = state.pgs.get(&group(1, 3)).unwrap().clone();
    let (first, last, learner) = (good.config.acting[0], good.config.acting[1], good.config.learners[0]);
    let previous = good.config.previous[0];
    let others: Vec<DriveId> = (0..5).map(drive_id).filter(|drive| *drive != first).collect();
    let with = |change: &'static dyn Fn(&mut PgRow, &[DriveId])| {
        let (good, drives) = (good.clone(), [&[first], &others[..]].concat());
        move |state: &mut State| {
            let mut row = good.clone();
            change(&mut row, &drives);
            state.pgs.insert(row);
        }
    };
    let bad = Some(Refusal::BadActing(group(1, 3)));
    let conflict = |drive| Some(Refusal::Conflict { group: group(1, 3), drive });
    let unknown = |subject| Some(Refusal::Unknown(subject));
    check_all(
        &state,
        &[
            (&with(&|row, _| row.config.epoch = Epoch(1)), None),
            (&with(&|row, _| row.config.epoch = Epoch(0)), bad),
            (&with(&|row, _| row.group.pg.0 = 8), Some(Refusal::BadActing(group(1, 8)))),
            (&with(&|row, _| row.group.set = SetId(2)), unknown(Subject::Set(SetId(2)))),
            (&with(&|row, _| row.config.acting.clear()), bad),
            (&with(&|row, drives| row.config.primary = drives[4]), bad),
            (&with(&|row, drives| act(row, &drives[..3], &[])), None),
            (&with(&|row, drives| act(row, &drives[..4], &[])), bad),
            (&with(&|row, drives| act(row, &drives[..1], &drives[1..4])), None),
            (&with(&|row, drives| act(row, &drives[..1], &drives[1..5])), bad),
            (&with(&|row, _| row.config.learners = row.config.acting[1..].to_vec()), conflict(last)),
            (&with(&|row, _| row.config.learners.extend_from_within(..)), conflict(learner)),
            (&with(&|row, _| row.config.previous.extend_from_within(..)), conflict(previous)),
            (&with(&|row, _| row.config.previous = row.config.acting[..1].to_vec()), conflict(first)),
            (&with(&|row, _| row.config.learners = vec![drive_id(77)]), unknown(Subject::Drive(drive_id(77)))),
            (
                &with(&|row, _| row.config.learners = vec![drive_id(9)]),
                Some(Refusal::BadState(Subject::Drive(drive_id(9)))),
            ),
        ],
    );
}

fn act(row: &mut PgRow, acting: &[DriveId], learners: &[DriveId]) {
    (row.config.acting, row.config.learners) = (acting.to_vec(), learners.to_vec());
    row.config.previous.clear();
}

#[test]
fn volumes() {
    let state = sample().state;
    let put = |state: &mut State, change: &dyn Fn(&mut VolumeRecord)| {
        let mut volume = state.volume(volume_id(1)).unwrap().clone();
        change(&mut volume);
        state.volumes.insert(volume);
    };
    let part = |set, extents| Part { set: SetId(set), extents };
    check_all(
        &state,
        &[
            (&|state| put(state, &|volume| volume.size_bytes -= 1), None),
            (&|state| put(state, &|volume| volume.size_bytes += 1), Some(Refusal::BadValue("size of a volume"))),
            (&|state| put(state, &|volume| volume.name.clear()), Some(Refusal::BadValue("name of a volume"))),
            (&|state| put(state, &|volume| volume.id = volume_id(3)), Some(Refusal::Exists(Subject::Name))),
            (
                &|state| {
                    put(state, &|volume| (volume.id, volume.name) = (volume_id(2), "volume 2".into()));
                },
                Some(Refusal::Exists(Subject::Volume(volume_id(2)))),
            ),
            (
                &|state| put(state, &|volume| volume.parts = vec![part(1, 4), part(1, 6)]),
                Some(Refusal::BadValue("parts of a volume")),
            ),
            (
                &|state| put(state, &|volume| volume.parts = vec![part(9, 10)]),
                Some(Refusal::Unknown(Subject::Set(SetId(9)))),
            ),
            (&|state| put(state, &|volume| volume.attached = None), None),
            (
                &|state| put(state, &|volume| volume.attached = Some(server_id(7))),
                Some(Refusal::Unknown(Subject::Server(server_id(7)))),
            ),
        ],
    );
}

#[test]
fn names_and_versions() {
    let state = sample().state;
    let now = state.version();
    let record = |key: RecordKey, revision| NamedRecord { key, revision, value: vec![] };
    let (version, proposals) = (Some(Refusal::BadValue("version")), Some(Refusal::BadValue("proposals")));
    let deleted = |deleted| DeletedVolume { id: volume_id(2), deleted };
    let proposal = |number, version| {
        let applied = Applied { version, outcome: Outcome::Done };
        ProposalRow { id: ProposalId(id(number)), applied }
    };
    let known = state.proposals.first().unwrap().id;
    check_all(
        &state,
        &[
            (&|state| insert(&mut state.records, record(key("one"), now)), None),
            (&|state| insert(&mut state.records, record(key("one"), now.next())), version),
            (&|state| insert(&mut state.records, record(key(""), now)), Some(Refusal::BadValue("name of a record"))),
            (
                &|state| insert(&mut state.records, record(RecordKey { space: String::new(), ..key("a") }, now)),
                Some(Refusal::BadValue("space of a record")),
            ),
            (
                &|state| insert(&mut state.features, Feature { name: String::new(), release_min: 1 }),
                Some(Refusal::BadValue("name of a feature")),
            ),
            (&|state| insert(&mut state.deleted, deleted(now)), None),
            (&|state| insert(&mut state.deleted, deleted(now.next())), version),
            (&|state| insert(&mut state.proposals, proposal(1, now)), None),
            (&|state| insert(&mut state.proposals, proposal(1, now.next())), version),
            (&|state| insert(&mut state.proposals, ProposalRow { id: known, ..proposal(1, now) }), proposals),
        ],
    );
}

/// A placement group without a record lies where the first map says: that drive must not have left the set.
#[test]
fn a_placement_group_that_lies_on_a_released_drive_has_a_record() {
    let mut sample = Sample::new();
    for number in 0..2 {
        sample.must(Change::AddServer(server(number)));
        sample.must(Change::AddDrive(drive(number, number)));
    }
    let shape = Shape { pgs: 2, width: 1, conflict: Conflict::Drive };
    let copies = Copies { write_min: 1, acting_min: 1 };
    sample.must(plan_set(&sample.state, SetId(1), shape, DriveClass::Ssd, copies, &[drive_id(0)]).unwrap());
    sample.must(Change::SetDriveState { id: drive_id(0), state: DriveState::Draining });
    let target = plan_target(&sample.state, SetId(1), &[drive_id(1)]).unwrap().unwrap();
    sample.must(target);
    let changes = plan_learners(&sample.state, &[server_id(1)].into(), 2);
    sample.must_all(changes);
    for pg in 0..2 {
        let step = plan_promotion(&sample.state, group(1, pg), &[drive_id(1)]).unwrap();
        sample.must(Change::ConfigurePgs(vec![step]));
    }
    sample.must(Change::ReleaseDrive(drive_id(0)));
    let forget = |state: &mut State| drop(state.pgs.remove(&group(1, 1)));
    let released = Some(Refusal::BadState(Subject::Drive(drive_id(0))));
    check_all(&sample.state, &[(&|_| {}, None), (&forget, released)]);
    sample.must(Change::RemoveDrive(drive_id(0)));
    check_all(&sample.state, &[(&|_| {}, None), (&forget, Some(Refusal::Unknown(Subject::Drive(drive_id(0)))))]);
}

#[test]
fn volumes_and_deleted_volumes_together_have_a_limit() {
    let mut sample = Sample::with_set(3, 1);
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    let refused = Refusal::TooMany { what: "volumes and deleted volumes", max: DELETED_MAX };
    let deleted = |number| DeletedVolume { id: volume_id(number), deleted: CatalogVersion(1) };
    let most = u32::try_from(DELETED_MAX).unwrap();
    (2..most).for_each(|number| insert(&mut sample.state.deleted, deleted(number)));
    sample.must(Change::CreateVolume(volume(most, 1, 10)));
    assert_eq!(read_after(&sample.state, &|_| {}), Ok(()));
    assert_eq!(sample.apply(Change::CreateVolume(volume(most + 1, 1, 10))), Err(refused));
    sample.must(Change::DeleteVolume(volume_id(most)));
    assert_eq!(sample.apply(Change::CreateVolume(volume(most + 1, 1, 10))), Err(refused));
    let one_more = |state: &mut State| insert(&mut state.deleted, deleted(most + 1));
    assert_eq!(read_after(&sample.state, &one_more), Err(FormError::Inconsistent(refused)));
}
