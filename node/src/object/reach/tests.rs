use super::*;

#[test]
fn parity_grows_with_the_drives() {
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 16].map(parity_shards), [0, 1, 1, 2, 2, 3, 3, 4, 4]);
}

use ashlar_catalog::change::{Change, Command, ProposalId};
use ashlar_catalog::server::{Drive, DriveClass, Server};
use ashlar_placement::map::{Rack, Zone};
use ashlar_wire::id::ClusterId;
use std::collections::BTreeSet;

fn server_id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn drive_id(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

struct World {
    state: State,
    changes: u8,
}

impl World {
    /// As many servers with drives as numbers are given: 10 times the server's number, and one more for each further.
    fn new(drives: &[u8]) -> Self {
        let mut world = Self { state: State::new(ClusterId::from_bytes([9; 16])), changes: 0 };
        for (server, count) in (1..).zip(drives) {
            let (id, address, zone, rack) = (server_id(server), format!("host-{server}:1"), Zone(0), Rack(0));
            world.make(Change::AddServer(Server { id, address, zone, rack, release: 1, state: ServerState::Active }));
            (0..*count).for_each(|number| world.add_drive(server * 10 + number, server));
        }
        world
    }

    fn make(&mut self, change: Change) {
        self.changes += 1;
        let command = Command { id: ProposalId([self.changes; 16]), seen: self.state.version(), change };
        self.state.apply(&command).unwrap();
    }

    fn add_drive(&mut self, id: u8, server: u8) {
        let (id, server, class) = (drive_id(id), server_id(server), DriveClass::Ssd);
        self.make(Change::AddDrive(Drive {
            id,
            server,
            class,
            size_bytes: 1 << 30,
            state: DriveState::Active,
            set: None,
        }));
    }

    fn set(&mut self, id: u8, state: DriveState) {
        self.make(Change::SetDriveState { id: drive_id(id), state });
    }
}

#[test]
fn reduced_redundancy_takes_the_same_drives_with_half_the_parity() {
    for (drives, parity) in [(1, [0, 0]), (3, [1, 1]), (4, [2, 1]), (6, [3, 2]), (8, [4, 2]), (16, [4, 2])] {
        let world = World::new(&[drives]);
        let choose = |redundancy| choose(&world.state, &BTreeSet::new(), PartId([1; 12]), redundancy).unwrap();
        let [usual, reduced] = [Redundancy::Usual, Redundancy::Reduced].map(choose);
        assert_eq!([usual.parity, reduced.parity], parity, "{drives} drives");
        assert_eq!(usual.drives, reduced.drives);
    }
}

#[test]
fn drives_that_leave_are_given_nothing_new() {
    let mut world = World::new(&[1, 1, 1, 1]);
    world.set(10, DriveState::Failed);
    world.set(20, DriveState::Draining);
    let part = PartId([1; 12]);
    let drives: BTreeSet<DriveId> =
        choose(&world.state, &BTreeSet::new(), part, Redundancy::Usual).unwrap().drives.into_iter().collect();
    assert_eq!(drives, BTreeSet::from([drive_id(30), drive_id(40)]));
    world.make(Change::SetServerState { id: server_id(3), state: ServerState::Dead });
    assert_eq!(choose(&world.state, &BTreeSet::new(), part, Redundancy::Usual).unwrap().drives, [drive_id(40)]);
    world.make(Change::SetServerState { id: server_id(4), state: ServerState::Draining });
    assert_eq!(choose(&world.state, &BTreeSet::new(), part, Redundancy::Usual), None);
}

#[test]
fn a_drive_that_leaves_is_replaced_where_it_stood() {
    let mut world = World::new(&[1, 1, 1]);
    let part = PartId([1; 12]);
    let now = choose(&world.state, &BTreeSet::new(), part, Redundancy::Usual).unwrap();
    assert_eq!(replace(&world.state, &BTreeSet::new(), part, &now), now);
    world.set(20, DriveState::Full);
    assert_eq!(replace(&world.state, &BTreeSet::new(), part, &now), now, "a full drive keeps what it has");
    world.set(20, DriveState::Failed);
    assert_eq!(replace(&world.state, &BTreeSet::new(), part, &now), now, "there is no other drive");
    world.add_drive(21, 2);
    let next = replace(&world.state, &BTreeSet::new(), part, &now);
    let expected: Vec<DriveId> =
        now.drives.iter().map(|drive| if *drive == drive_id(20) { drive_id(21) } else { *drive }).collect();
    assert_eq!(next, Spread { parity: now.parity, drives: expected });
    assert_eq!(replace(&world.state, &BTreeSet::new(), part, &next), next);
}

#[test]
fn drives_of_servers_that_are_gone_come_last() {
    let world = World::new(&[6, 6, 6, 6]);
    let gone = BTreeSet::from([server_id(2)]);
    for number in 0..8 {
        let part = PartId([number; 12]);
        let spread = choose(&world.state, &gone, part, Redundancy::Usual).unwrap();
        assert_eq!(spread.drives.len(), STRIPE_MAX);
        let of_gone = |drive: &DriveId| (20..26).any(|number| *drive == drive_id(number));
        assert!(!spread.drives.iter().any(of_gone), "there are eighteen others: {spread:?}");
    }
    let world = World::new(&[1, 1, 1]);
    let spread = choose(&world.state, &gone, PartId([4; 12]), Redundancy::Usual).unwrap();
    assert_eq!((spread.drives.len(), spread.drives[2]), (3, drive_id(20)), "as wide as the drives allow");
}

#[test]
fn replacements_stand_on_the_servers_that_have_the_fewest_shards() {
    let mut world = World::new(&[1, 1, 1]);
    let part = PartId([3; 12]);
    let now = choose(&world.state, &BTreeSet::new(), part, Redundancy::Usual).unwrap();
    // Two more on the first server, one on a fourth.
    world.add_drive(11, 1);
    world.add_drive(12, 1);
    world.make(Change::AddServer(Server {
        id: server_id(4),
        address: "host-4:1".into(),
        zone: Zone(0),
        rack: Rack(0),
        release: 1,
        state: ServerState::Active,
    }));
    world.add_drive(40, 4);
    world.set(30, DriveState::Failed);
    let next = replace(&world.state, &BTreeSet::new(), part, &now);
    assert!(next.drives.contains(&drive_id(40)) && !next.drives.contains(&drive_id(30)), "{next:?}");
    // With another one gone the first server takes a second shard.
    world.set(20, DriveState::Draining);
    let last = replace(&world.state, &BTreeSet::new(), part, &next);
    let added: Vec<&DriveId> = last.drives.iter().filter(|drive| !next.drives.contains(drive)).collect();
    assert!(matches!(added[..], [drive] if [drive_id(11), drive_id(12)].contains(drive)), "{last:?}");
    assert_eq!(last.drives.iter().collect::<BTreeSet<_>>().len(), 3, "no drive twice");
}
