use super::*;
use crate::member::{Description, Life};
use crate::slot::{SlotRange, SlotSet, Zone};
use crate::voters::Origin;
use alloc::format;
use alloc::string::String;
use alloc::vec;

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn identity() -> Identity {
    Identity {
        cluster: ClusterId::from_bytes([0xc1; 16]),
        server: id(1),
        incarnation: Incarnation(4),
        zone: Zone(1),
        address: String::from("host:1"),
    }
}

fn saved() -> Saved {
    let description = Description { incarnation: Incarnation(2), address: "b".into(), ..Description::default() };
    Saved {
        incarnation: Incarnation(3),
        current: Epoch(9),
        memory_since: Incarnation(1),
        refuted: 2,
        voters: Some(VoterSet {
            epoch: Epoch(2),
            origin: Origin::Chosen,
            after: Epoch(1),
            floor: Epoch(1),
            voters: vec![id(1)],
            previous: Vec::new(),
            forgetful: Vec::new(),
            previous_forgetful: Vec::new(),
        }),
        voters_from: Epoch(1),
        votes: vec![(GroupId(7), Given { epoch: Epoch(8), candidate: id(3) })],
        claims: vec![Claim {
            group: GroupId(7),
            owner: id(2),
            epoch: Epoch(6),
            slots: SlotSet::from_ranges(SlotRange::new(0, 1)),
        }],
        members: vec![MemberRecord { id: id(2), description, life: Life { refuted: 1, failed: true } }],
        kept_out: vec![Forgetting { id: id(4), tag: 2, left_ms: 300 }],
        places: vec![(GroupId(7), 1_000)],
        ..Saved::new(identity().cluster, id(1))
    }
}

#[test]
fn golden_bytes() {
    let ones = |number: u8| format!("{number:02x}").repeat(16);
    let expected = [
        "4153484c5242555302",
        &ones(0xc1),
        &ones(1),
        "03090102",
        "0102000101 01",
        &ones(1),
        "00000001",
        "010708",
        &ones(3),
        "0107",
        &ones(2),
        "060100000001",
        "01",
        &ones(2),
        "020001010000a16200c400c400",
        "01",
        &ones(4),
        "02cd012c",
        "0107cd03e8",
        "003836fe19e4908e",
    ];
    let bytes: String = saved().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes, expected.concat().replace(' ', ""));
    assert_eq!(Saved::decode(&saved().encode(), &identity(), &Config::default()), Ok(saved()));
}

#[test]
fn every_damaged_bit_and_every_cut_is_noticed() {
    let (good, config) = (saved().encode(), Config::default());
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        let read = Saved::decode(&bytes, &identity(), &config);
        assert!(matches!(read, Err(RestoreError::Damaged | RestoreError::NewerVersion { .. })), "bit {bit}: {read:?}");
    }
    for (version, expected) in
        [(SAVED_VERSION + 1, RestoreError::NewerVersion { version: SAVED_VERSION + 1 }), (1, RestoreError::Damaged)]
    {
        let mut bytes = good.clone();
        bytes[8] = version;
        assert_eq!(Saved::decode(&bytes, &identity(), &config), Err(expected));
    }
    for end in 0..good.len() {
        assert_eq!(Saved::decode(&good[..end], &identity(), &config), Err(RestoreError::Damaged), "cut at {end}");
    }
}

#[test]
fn someone_elses_memory_is_refused() {
    let (good, config) = (saved().encode(), Config::default());
    let check = |identity: Identity, config: &Config, expected| {
        assert_eq!(Saved::decode(&good, &identity, config).err(), expected);
    };
    check(identity(), &config, None);
    check(Identity { incarnation: Incarnation(3), ..identity() }, &config, None);
    let later = RestoreError::LaterLife { incarnation: Incarnation(3) };
    check(Identity { incarnation: Incarnation(2), ..identity() }, &config, Some(later));
    check(Identity { server: id(2), ..identity() }, &config, Some(RestoreError::OtherServer));
    check(
        Identity { cluster: ClusterId::from_bytes([1; 16]), ..identity() },
        &config,
        Some(RestoreError::OtherCluster),
    );
    check(identity(), &Config { members_max: 0, ..Config::default() }, Some(RestoreError::TooLong));
}

#[test]
fn whoever_goes_on_alone_votes_beyond_all_that_the_others_can_have_decided() {
    let lost = 1 << 32;
    let with = |change: fn(&mut Saved)| {
        let mut saved = saved();
        change(&mut saved);
        saved.go_on_alone();
        let set = saved.voters.clone().unwrap();
        assert_eq!((&set.voters, set.is_complete(), set.origin), (&vec![id(1)], true, Origin::Chosen));
        assert!(saved.members.iter().all(|member| member.life.failed));
        assert_eq!(saved.voters_from, Epoch::ZERO);
        (set.after.0, set.floor.0, set.epoch.0, saved.current.0, set.forgetful)
    };
    let beyond = |known: u64, after| (after, known + lost, known + lost + 1, known + lost, Vec::new());
    assert_eq!(with(|_| ()), beyond(9, 2));
    assert_eq!(with(|saved| saved.members[0].life.failed = false), beyond(9, 2));
    assert_eq!(with(|saved| saved.votes[0].1.epoch = Epoch(20)), beyond(20, 2));
    assert_eq!(with(|saved| saved.claims[0].epoch = Epoch(30)), beyond(30, 2));
    assert_eq!(with(|saved| saved.voters = None), beyond(9, 0));
    assert_eq!(with(|saved| saved.voters.as_mut().unwrap().epoch = Epoch(40)), beyond(40, 40));
    let end = EPOCH_MAX.0;
    assert_eq!(with(|saved| saved.current = EPOCH_MAX), (2, end - 1, end, end, Vec::new()), "and no further");
    let forgetful = with(|saved| saved.memory_since = Incarnation(2)).4;
    assert_eq!(forgetful, vec![(id(1), Incarnation(2))], "it counts on the memory that there is");
}
