//! Written forms of commands.

use std::collections::BTreeSet;

use arbtest::arbtest;
use ashlar_wire::epoch::Epoch;

use super::*;
use crate::codec::pack::{decode, encode};
use crate::error::FormError;
use crate::sample::{
    Sample, any_change, drive, drive_id, group, id, key, server, server_id, target_of, volume, volume_id,
};
use crate::set::Settled;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let command = Command { id: ProposalId(id(1)), seen: CatalogVersion(300), change: Change::AddServer(server(2)) };
    let golden = "01c41000000000000000000000000000000001cd012c01c41000000000000000000000000000000002ad7365727665722d32\
         3a3739343601010102";
    assert_eq!(hex(&command.encode()), golden);
    assert_eq!(Command::decode(&command.encode()), Ok(command));
}

fn changes_of_machines() -> Vec<(Change, Touched)> {
    let sample = Sample::with_set(3, 2);
    let (server_1, drive_2) = (Touched::Server(server_id(1)), Touched::Drive(drive_id(2)));
    let (set, id) = (Touched::Set(SetId(1)), drive_id(2));
    let copies = Copies { write_min: 2, acting_min: 1 };
    let map = || target_of(&sample.state, 1);
    let step = PgStep {
        group: group(1, 0),
        expected: Epoch(7),
        acting: vec![drive_id(1), id],
        primary: id,
        learners: vec![drive_id(3)],
        certified: vec![drive_id(4), drive_id(5)],
        settled: Settled::Yes,
    };
    vec![
        (Change::AddServer(server(1)), server_1.clone()),
        (Change::UpdateServer { id: server_id(1), address: "a:1".into(), release: 9 }, server_1.clone()),
        (Change::SetServerState { id: server_id(1), state: ServerState::Draining }, server_1.clone()),
        (Change::RemoveServer(server_id(1)), server_1),
        (Change::AddDrive(Drive { set: Some(SetId(4)), ..drive(2, 1) }), drive_2.clone()),
        (Change::SetDriveState { id, state: DriveState::Broken }, drive_2.clone()),
        (Change::GiveUpMissing(id), drive_2.clone()),
        (Change::SetDriveSize { id, size_bytes: 1 << 40 }, drive_2.clone()),
        (Change::ReleaseDrive(id), drive_2.clone()),
        (Change::RemoveDrive(id), drive_2),
        (Change::CreateSet { id: SetId(1), class: DriveClass::Nvme, copies, map: map() }, set.clone()),
        (Change::SetTarget { id: SetId(1), map: map() }, set),
        (Change::ConfigurePgs(vec![step]), Touched::Group(group(1, 0))),
    ]
}

fn changes_of_data() -> Vec<(Change, Touched)> {
    let (id, generation) = (volume_id(1), Generation(6));
    let (volume_1, record) = (Touched::Volume(id), Touched::Record(key("a")));
    let parts = vec![Part { set: SetId(1), extents: 4 }, Part { set: SetId(2), extents: 5 }];
    let resize = Change::ResizeVolume { id, expected_bytes: 7, size_bytes: 8, parts };
    let feature = Feature { name: "snapshots".into(), release_min: 3 };
    let expected = Expected::Revision(CatalogVersion(5));
    vec![
        (Change::CreateVolume(VolumeRecord { attached: Some(server_id(1)), ..volume(1, 2, 3) }), volume_1.clone()),
        (resize, volume_1.clone()),
        (Change::RenameVolume { id, name: "new".into() }, volume_1.clone()),
        (Change::AttachVolume { id, server: server_id(2), fence: None }, volume_1.clone()),
        (Change::AttachVolume { id, server: server_id(2), fence: Some(generation) }, volume_1.clone()),
        (Change::DetachVolume { id, generation }, volume_1.clone()),
        (Change::DeleteVolume(id), volume_1.clone()),
        (Change::ForgetVolume(id), volume_1),
        (Change::PutRecord { key: key("a"), expected: Expected::Absent, value: vec![1, 2] }, record.clone()),
        (Change::PutRecord { key: key("a"), expected: Expected::Anything, value: vec![] }, record.clone()),
        (Change::RemoveRecord { key: key("a"), expected }, record),
        (Change::UseFeature(feature), Touched::Feature("snapshots".into())),
        (Change::SetVoters(vec![server_id(1), server_id(2)]), Touched::Voters),
        (Change::JumpEpochs(9), Touched::All),
    ]
}

#[test]
fn every_change_comes_back_and_says_what_it_touches() {
    let all = [changes_of_machines(), changes_of_data()].concat();
    let kinds: BTreeSet<u8> = all
        .iter()
        .map(|(change, touched)| {
            let command = Command { id: ProposalId(id(1)), seen: CatalogVersion(1), change: change.clone() };
            let bytes = command.encode();
            assert_eq!(Command::decode(&bytes).as_ref(), Ok(&command));
            assert_eq!(Command::decode(&[&bytes[..], &[0]].concat()), Err(FormError::TrailingBytes));
            assert_eq!(change.touches(), std::slice::from_ref(touched), "{change:?}");
            // Behind the form, the id and the version that was seen.
            bytes[20]
        })
        .collect();
    assert!(kinds.into_iter().eq(1..=25), "every kind has a change here");
}

#[test]
fn outcomes_and_back() {
    for outcome in [Outcome::Done, Outcome::Attached(Generation(6))] {
        let applied = Applied { version: CatalogVersion(300), outcome };
        assert_eq!(decode(&encode(&applied)), Ok(applied));
    }
}

#[test]
fn commands_and_back() {
    arbtest(|u| {
        let mut sample = if u.arbitrary()? { Sample::with_set(4, 4) } else { Sample::new() };
        while !u.is_empty() {
            let change = any_change(u, &sample.state)?;
            let command = sample.command(change.clone());
            let bytes = command.encode();
            assert!(bytes.len() <= COMMAND_BYTES_MAX);
            assert_eq!(Command::decode(&bytes).as_ref(), Ok(&command));
            assert!(!change.touches().is_empty());
            let cut = u.int_in_range(0..=bytes.len() - 1)?;
            assert!(Command::decode(&bytes[..cut]).is_err());
            assert_eq!(Command::decode(&[&bytes[..], &[0]].concat()), Err(FormError::TrailingBytes));
            let _ = sample.apply(change);
        }
        Ok(())
    });
}

#[test]
fn arbitrary_bytes() {
    arbtest(|u| {
        let mut bytes = vec![1, 0xc4, 16];
        bytes.extend_from_slice(&u.arbitrary::<[u8; 16]>()?);
        bytes.extend_from_slice(u.bytes(u.len())?);
        if let Ok(command) = Command::decode(&bytes) {
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
        Ok(())
    });
    assert_eq!(Command::decode(&[2]), Err(FormError::UnknownVersion(2)));
}
