//! How much there may be of everything, and what a change refuses at its limit.

use ashlar_placement::domains::Conflict;
use ashlar_placement::map::Shape;

use super::*;
use crate::change::VOTERS_CHANGING_MAX;
use crate::plan::failure::{plan_learners, plan_promotion};
use crate::plan::placement::{plan_set, plan_target};
use crate::record::{FEATURE_NAME_BYTES_MAX, FEATURES_MAX, RECORD_NAME_BYTES_MAX, SPACE_BYTES_MAX, VALUE_BYTES_MAX};
use crate::server::{ADDRESS_BYTES_MAX, DriveClass, WEIGHT_BYTES, parity_shards};
use crate::set::Copies;
use crate::volume::{VOLUME_NAME_BYTES_MAX, VolumeRecord};

/// What a text is, its greatest length, and a change that has one.
type TextCase<'c> = (&'static str, usize, &'c dyn Fn(String) -> Change);

#[test]
fn texts_are_neither_empty_nor_too_long() {
    let mut sample = Sample::with_set(3, 1);
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    let cases: [TextCase<'_>; 8] = [
        ("address", ADDRESS_BYTES_MAX, &|address| Change::AddServer(Server { address, ..server(8) })),
        ("address", ADDRESS_BYTES_MAX, &|address| Change::UpdateServer { id: server_id(0), address, release: 1 }),
        ("name of a volume", VOLUME_NAME_BYTES_MAX, &|name| {
            Change::CreateVolume(VolumeRecord { name, ..volume(2, 1, 10) })
        }),
        ("name of a volume", VOLUME_NAME_BYTES_MAX, &|name| Change::RenameVolume {
            id: volume_id(1),
            name: name.replace('a', "b"),
        }),
        ("name of a feature", FEATURE_NAME_BYTES_MAX, &|name| Change::UseFeature(Feature { name, release_min: 1 })),
        ("space of a record", SPACE_BYTES_MAX, &|space| {
            let key = RecordKey { space, ..key("a") };
            Change::PutRecord { key, expected: Expected::Absent, value: vec![] }
        }),
        ("name of a record", RECORD_NAME_BYTES_MAX, &|name| Change::PutRecord {
            key: key(&name),
            expected: Expected::Absent,
            value: vec![],
        }),
        ("name of a record", RECORD_NAME_BYTES_MAX, &|name| {
            let value = vec![0; VALUE_BYTES_MAX];
            Change::PutRecord { key: key(&name), expected: Expected::Anything, value }
        }),
    ];
    for (what, max, change) in cases {
        for len in [0, max + 1] {
            assert_eq!(sample.apply(change("a".repeat(len))), Err(Refusal::BadValue(what)), "{len}");
        }
        sample.must(change("a".repeat(max)));
    }
    check_forms(&sample.state, &sample.state);
}

#[test]
fn features_and_voters_are_few() {
    let mut sample = Sample::new();
    let feature = |number: usize| Change::UseFeature(Feature { name: format!("{number:03}"), release_min: 1 });
    sample.must_all((0..FEATURES_MAX).map(feature));
    assert_eq!(sample.apply(feature(FEATURES_MAX)), Err(Refusal::TooMany { what: "feature", max: 256 }));
    sample.must(feature(0));
    assert!(sample.state.uses("255") && !sample.state.uses("256"));
    assert_eq!(sample.state.features().count(), FEATURES_MAX);
    let one_more = sample.state.export().replacen("proposal ", "feature name=256 release_min=1\nproposal ", 1);
    let too_many = FormError::TooMany { what: "feature", count: 257, max: 256 };
    assert_eq!(State::import(&one_more), Err(too_many));
    let voters = |count: usize| Change::SetVoters((0..count).map(|number| server_id(number as u32)).collect());
    sample.must(voters(VOTERS_CHANGING_MAX));
    assert_eq!(sample.apply(voters(VOTERS_CHANGING_MAX + 1)), Err(Refusal::BadValue("list of voters")));
    assert_eq!(sample.state.voters().len(), VOTERS_CHANGING_MAX);
}

/// A change counts twice its length, and may fill the catalog to the last byte.
#[test]
fn a_change_needs_room_for_twice_its_length() {
    let mut sample = Sample::new();
    let put = |name: &str, len: usize| {
        let key = RecordKey { space: "s".into(), name: name.into() };
        Change::PutRecord { key, expected: Expected::Anything, value: vec![1; len] }
    };
    // Of a value that is shorter than the longest one, so that two bytes say its length.
    let around = encode(&put("name", VALUE_BYTES_MAX - 1)).len() - (VALUE_BYTES_MAX - 1);
    let room = |sample: &Sample| STATE_BYTES_MAX - sample.state.bytes();
    let mut number = 0;
    while room(&sample) >= 2 * (around + VALUE_BYTES_MAX + 2) {
        number += 1;
        sample.must(put(&format!("{number:04}"), VALUE_BYTES_MAX));
        // The test need not keep what it has proposed.
        sample.commands.last_mut().unwrap().change = Change::SetVoters(vec![]);
    }
    let mut len = 1;
    while len == 1 || !room(&sample).is_multiple_of(2) {
        sample.must(put("odd", len));
        len += 1;
    }
    let largest = room(&sample) / 2 - around;
    assert!((1 << 14..VALUE_BYTES_MAX).contains(&largest), "{largest}");
    let refused = Err(Refusal::TooMany { what: "bytes of the catalog", max: STATE_BYTES_MAX });
    assert_eq!(sample.apply(put("name", largest + 1)), refused);
    sample.must(put("name", largest));
}

#[test]
fn epochs_do_not_jump_from_beyond_half_of_what_they_can_be() {
    let half = u64::MAX / 2;
    let text = |version| {
        let cluster = ClusterId::from_bytes(id(7));
        format!("ashlar catalog 1\ncatalog cluster={cluster} version={version} voters=0\nend records=0\n")
    };
    for (version, expected) in [(half - 1, true), (half, true), (half + 1, false), (half + 2, false)] {
        let mut sample = Sample::new();
        sample.state = State::import(&text(version)).unwrap();
        let done = sample.apply(Change::JumpEpochs(5)).map(|applied| applied.version.0);
        assert_eq!(done, if expected { Ok(version + 6) } else { Err(Refusal::BadValue("epoch")) }, "{version}");
    }
}

#[test]
fn a_server_is_removed_when_nothing_needs_it() {
    let mut sample = Sample::with_set(3, 1);
    sample.must_all((4..8).map(|number| Change::AddServer(server(number))));
    sample.must(Change::AddDrive(drive(4, 4)));
    sample.must(Change::SetVoters(vec![server_id(5)]));
    sample.must(Change::CreateVolume(volume(1, 1, 10)));
    sample.must(Change::AttachVolume { id: volume_id(1), server: server_id(6), fence: None });
    for number in 4..7 {
        let refused = Err(Refusal::InUse(Subject::Server(server_id(number))));
        assert_eq!(sample.apply(Change::RemoveServer(server_id(number))), refused, "{number}");
    }
    sample.must(Change::RemoveServer(server_id(7)));
    let unknown = Err(Refusal::Unknown(Subject::Server(server_id(7))));
    assert_eq!(sample.apply(Change::RemoveServer(server_id(7))), unknown);
    // What a server was needed for goes, and then it can go.
    sample.must(Change::RemoveDrive(drive_id(4)));
    sample.must(Change::SetVoters(vec![]));
    sample.must(Change::DetachVolume { id: volume_id(1), generation: Generation(1) });
    sample.must_all((4..7).map(|number| Change::RemoveServer(server_id(number))));
    assert_eq!(sample.state.servers().count(), 3);
}

#[test]
fn a_drive_has_a_size() {
    let mut sample = Sample::with_set(3, 1);
    let resize = |id, size_bytes| Change::SetDriveSize { id, size_bytes };
    let bad = Err(Refusal::BadValue("size of a drive"));
    for size_bytes in [WEIGHT_BYTES, 5 * WEIGHT_BYTES] {
        sample.must(resize(drive_id(0), size_bytes));
        assert_eq!(sample.state.drive(drive_id(0)).unwrap().size_bytes, size_bytes);
        assert_eq!(sample.apply(resize(drive_id(0), WEIGHT_BYTES - 1)), bad);
    }
    assert_eq!(sample.apply(resize(drive_id(7), WEIGHT_BYTES)), Err(Refusal::Unknown(Subject::Drive(drive_id(7)))));
    let small = Drive { size_bytes: WEIGHT_BYTES - 1, ..drive(7, 0) };
    assert_eq!(sample.apply(Change::AddDrive(small)), bad);
    sample.must(Change::AddDrive(Drive { size_bytes: WEIGHT_BYTES, ..drive(7, 0) }));
}

/// Of two drives one may be lost, of eight and more four.
#[test]
fn as_many_drives_may_be_lost_as_objects_have_parity() {
    let shards = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100].map(parity_shards);
    assert_eq!(shards, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4]);
}

#[test]
fn a_new_volume_is_attached_nowhere_and_its_parts_are_joined() {
    let mut sample = Sample::with_set(3, 1);
    let attached = Refusal::BadValue("attachment of a new volume");
    for wrong in [
        VolumeRecord { generation: Generation(1), ..volume(1, 1, 10) },
        VolumeRecord { attached: Some(server_id(0)), ..volume(1, 1, 10) },
    ] {
        assert_eq!(sample.apply(Change::CreateVolume(wrong)), Err(attached));
    }
    let part = |extents| Part { set: SetId(1), extents };
    let parts = vec![part(4), part(5), part(1)];
    sample.must(Change::CreateVolume(VolumeRecord { parts, ..volume(1, 1, 10) }));
    assert_eq!(sample.state.volume(volume_id(1)).unwrap().parts, [part(10)]);
}

#[test]
fn sets_keep_their_shape_and_have_enough_copies() {
    let mut sample = Sample::with_set(4, 8);
    let map = target_of(&sample.state, 1);
    let other = Shape { pgs: 9, ..map.shape() };
    let other = Map::new(SetId(1), Epoch(2), other, map.drives().to_vec()).unwrap();
    let refused = sample.apply(Change::SetTarget { id: SetId(1), map: Arc::new(other) });
    assert_eq!(refused, Err(Refusal::BadValue("shape of a set")));
    sample.must(Change::AddDrive(drive(8, 0)));
    sample.must(Change::AddDrive(drive(9, 1)));
    let shape = Shape { pgs: 2, width: 2, conflict: Conflict::Server };
    let plan = |sample: &Sample, write_min, acting_min| {
        let copies = Copies { write_min, acting_min };
        plan_set(&sample.state, SetId(2), shape, DriveClass::Ssd, copies, &[drive_id(8), drive_id(9)]).unwrap()
    };
    for (write_min, acting_min) in [(0, 1), (1, 0), (3, 1), (1, 3)] {
        let planned = plan(&sample, write_min, acting_min);
        assert_eq!(sample.apply(planned), Err(Refusal::BadValue("number of copies")), "{write_min} {acting_min}");
    }
    // A companion has drives of its set alone.
    let companion = SetId(1).companion();
    let copies = Copies { write_min: 1, acting_min: 1 };
    let named = [drive_id(0), drive_id(1), drive_id(8)];
    let planned = plan_set(&sample.state, companion, shape, DriveClass::Ssd, copies, &named).unwrap();
    assert_eq!(sample.apply(planned), Err(Refusal::BadState(Subject::Drive(drive_id(8)))));
    let planned = plan_set(&sample.state, companion, shape, DriveClass::Ssd, copies, &named[..2]).unwrap();
    sample.must(planned);
    let planned = plan(&sample, 2, 2);
    sample.must(planned);
}

#[test]
fn members_on_one_server_do_not_act_together() {
    let mut sample = Sample::with_set(3, 4);
    sample.must(Change::AddDrive(drive(8, 0)));
    let target = plan_target(&sample.state, SetId(1), &[drive_id(8)]).unwrap().unwrap();
    sample.must(target);
    let mut learn = step(&sample.state, group(1, 0));
    learn.learners = vec![drive_id(8)];
    sample.must(Change::ConfigurePgs(vec![learn]));
    let mut join = step(&sample.state, group(1, 0));
    (join.learners, join.certified) = (vec![], vec![drive_id(8)]);
    join.acting = vec![drive_id(0), drive_id(1), drive_id(8)];
    join.primary = drive_id(0);
    let refused = sample.apply(Change::ConfigurePgs(vec![join.clone()]));
    assert_eq!(refused, Err(Refusal::Conflict { group: group(1, 0), drive: drive_id(8) }));
    join.acting[0] = drive_id(2);
    join.primary = drive_id(2);
    sample.must(Change::ConfigurePgs(vec![join]));
}

#[test]
fn a_placement_group_of_which_all_acting_drives_are_given_up_is_lost() {
    let mut sample = Sample::with_set(4, 8);
    let all = (0..4).map(server_id).collect();
    for pg in 0..8 {
        let config = sample.state.pg(group(1, pg)).unwrap();
        assert!(!sample.state.is_given_up(&config));
    }
    let lost = sample.state.pg(group(1, 0)).unwrap().acting;
    for (count, id) in lost.iter().enumerate() {
        assert!(!sample.state.is_given_up(&sample.state.pg(group(1, 0)).unwrap()), "{count} drives are given up");
        sample.must(Change::SetDriveState { id: *id, state: DriveState::Failed });
    }
    assert!(sample.state.is_given_up(&sample.state.pg(group(1, 0)).unwrap()));
    let changes = plan_learners(&sample.state, &all, usize::MAX);
    sample.must_all(changes);
    let config = sample.state.pg(group(1, 0)).unwrap();
    assert_eq!((config.acting, config.learners), (lost, vec![]), "nothing can fill another drive");
    assert_eq!(plan_promotion(&sample.state, group(1, 0), &[]), None);
}
