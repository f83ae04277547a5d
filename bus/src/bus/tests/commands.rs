//! What the node wants: which of it is refused, and what follows from the rest.

use super::scripted::{Scripted, claim, ms, quiet, record};
use super::*;
use crate::CommandError;
use crate::event::Role;
use crate::member::SERVICES_BYTES_MAX;
use crate::packet::{Body, CHOICE};

fn slots(first: u16, last: u16) -> Vec<SlotRange> {
    std::vec![SlotRange::new(first, last).unwrap()]
}

#[test]
fn lengths_and_counts_have_limits_and_may_reach_them() {
    use Command::{Describe, Meet, Publish, Subscribe};
    let config = Config {
        address_bytes_max: 9,
        members_max: 2,
        channel_bytes_max: 3,
        channels_max: 2,
        message_bytes_max: 5,
        ..quiet()
    };
    let mut one = Scripted::new(config, &[]);
    let meet = |number: u8, length| Meet { id: id(number), address: "x".repeat(length) };
    let subscribe = |length, byte: u8| Subscribe { channel: std::vec![byte; length] };
    let publish = |channel, message| Publish { channel: std::vec![1; channel], message: std::vec![2; message] };
    let describe = |length| Describe { services: std::vec![3; length] };
    let cases = [
        ("an address that is too long", meet(2, 10), false),
        ("the longest address", meet(2, 9), true),
        ("a short one", meet(3, 1), true),
        ("a server too many", meet(4, 1), false),
        ("a channel that is too long", subscribe(4, 1), false),
        ("the longest channel", subscribe(3, 1), true),
        ("a short one", subscribe(1, 1), true),
        ("a channel too many", subscribe(1, 2), false),
        ("a message that is too long", publish(1, 6), false),
        ("the longest message", publish(1, 5), true),
        ("the name of a channel that is too long", publish(4, 1), false),
        ("the longest name and message", publish(3, 5), true),
        ("too much to tell", describe(SERVICES_BYTES_MAX + 1), false),
        ("just as much", describe(SERVICES_BYTES_MAX), true),
        ("nothing", describe(0), true),
    ];
    for (name, command, is_taken) in cases {
        let expected = if is_taken { Ok(()) } else { Err(CommandError::TooLong) };
        assert_eq!(one.command(command), expected, "{name}");
    }
    // What fits no packet is too long as well: the shortest packet has room for 6,016 bytes of it.
    let mut one = Scripted::new(Config { packet_bytes_max: 0, ..quiet() }, &[]);
    assert_eq!(one.command(publish(1_000, 5_017)), Err(CommandError::TooLong));
    assert_eq!(one.command(publish(1_000, 5_016)), Ok(()));
    assert_eq!(one.command(publish(16, 6_000)), Ok(()));
}

#[test]
fn a_server_is_asked_each_second_until_it_answers_or_has_not_for_long() {
    let mut one = Scripted::new(quiet(), &[record(2)]);
    let meet = |number| Command::Meet { id: id(number), address: format!("server-{number}") };
    assert_eq!(one.command(meet(1)), Err(CommandError::Oneself));
    assert_eq!(one.command(meet(2)), Ok(()));
    assert_eq!((one.sent.len(), one.bus.meeting_address(id(2))), (0, None), "it is a member already");
    let asked = |one: &Scripted| one.receivers(|body| matches!(body, Body::Meet(_)));
    assert_eq!(one.command(meet(3)), Ok(()));
    assert_eq!((asked(&one), one.bus.meeting_address(id(3))), (std::vec![3], Some("server-3")));
    one.pass(ms(999));
    assert_eq!(asked(&one), []);
    one.pass(ms(1));
    assert_eq!(asked(&one), [3]);
    one.pass(ms(297_999));
    assert_eq!(asked(&one).len(), 297);
    one.pass(ms(10_000));
    assert_eq!((asked(&one).len(), one.bus.meeting_address(id(3))), (1, None), "it was asked 300 times");
    // An answer ends it.
    assert_eq!(one.command(meet(4)), Ok(()));
    one.hear(4, &Body::Meet(record(4)));
    one.pass(ms(5_000));
    assert_eq!((asked(&one), one.bus.meeting_address(id(4))), (std::vec![], None));
}

#[test]
fn only_its_primary_changes_the_slots_of_a_group() {
    let mut one = Scripted::new(Config { groups_max: 3, ..quiet() }, &[record(2)]);
    one.news(2, claim(7, 2, 3, &[(0, 9)]));
    let wants = |of: GroupId| Command::Claim { group: of, slots: slots(20, 29) };
    let gives = |of: u64| Command::Release { group: group(of), slots: slots(25, 29) };
    let takes = |until| Command::Take { group: group(8), slots: slots(0, 4), until };
    let now = one.now;
    let cases = [
        (wants(CHOICE), Err(CommandError::UnknownGroup)),
        (wants(group(7)), Err(CommandError::NotPrimary)),
        (gives(7), Err(CommandError::NotPrimary)),
        (gives(8), Err(CommandError::UnknownGroup)),
        (takes(now), Err(CommandError::TooLate)),
        (wants(group(8)), Ok(())),
        (gives(8), Ok(())),
        (takes(now + ms(1)), Ok(())),
        (wants(group(9)), Ok(())),
        (wants(group(10)), Err(CommandError::TooLong)),
        (wants(group(9)), Ok(())),
    ];
    for (command, expected) in cases {
        assert_eq!(one.command(command.clone()), expected, "{command:?}");
    }
    let views: Vec<_> = one.bus.groups().map(|view| (view.group.0, number(view.primary), view.epoch.0)).collect();
    assert_eq!(views, [(7, 2, 3), (8, 1, 9), (9, 1, 13)], "what nobody voted for is odd and later than all before");
    let held = |of: usize| one.bus.groups().nth(of).unwrap().slots.ranges().to_vec();
    assert_eq!(held(1), [slots(0, 4)].concat(), "the later group has the others");
    assert_eq!(held(2), slots(20, 29));
}

#[test]
fn a_claim_that_is_not_stored_or_decided_keeps_the_next_one_waiting() {
    let mut one = Scripted::new(quiet(), &[record(2)]);
    let wants = |of: u64| Command::Claim { group: group(of), slots: slots(20, 29) };
    // Nothing is stored meanwhile.
    assert_eq!(one.bus.handle_command(one.now, wants(8)), Ok(()));
    assert_eq!(one.bus.handle_command(one.now, wants(8)), Err(CommandError::Busy));
    assert_eq!(one.bus.handle_command(one.now, wants(9)), Ok(()), "another group waits for nothing");
    one.drain();
    assert_eq!(one.command(wants(8)), Ok(()));
    // With voters, each claim is a ballot; here nobody answers.
    one.command(Command::SetVoters { epoch: Epoch(1), voters: [1, 2].map(id).to_vec() }).unwrap();
    assert_eq!(one.command(wants(8)), Ok(()));
    assert_eq!(one.command(wants(8)), Err(CommandError::Busy));
    let mut full = Scripted::new(Config { groups_max: 2, ..quiet() }, &[]);
    assert_eq!(full.bus.handle_command(full.now, wants(1)), Ok(()));
    assert_eq!(full.bus.handle_command(full.now, wants(2)), Ok(()));
    assert_eq!(
        full.bus.handle_command(full.now, wants(3)),
        Err(CommandError::TooLong),
        "what is not stored yet counts"
    );
    let mut full = Scripted::new(Config { groups_max: 2, ..quiet() }, &[record(2)]);
    full.command(Command::SetVoters { epoch: Epoch(1), voters: [1, 2].map(id).to_vec() }).unwrap();
    assert_eq!([1, 2].map(|of| full.command(wants(of))), [Ok(()); 2]);
    assert_eq!(full.command(wants(3)), Err(CommandError::TooLong), "so does a ballot");
}

#[test]
fn groups_are_followed_up_to_a_number() {
    let mut one = Scripted::new(Config { follows_max: 2, ..quiet() }, &[record(2)]);
    one.command(Command::Claim { group: group(1), slots: slots(0, 9) }).unwrap();
    let follow = |of: u64| Command::Follow { group: group(of) };
    let role = |group, role, epoch| Event::RoleChanged { group, role, epoch };
    one.news(2, claim(7, 2, 5, &[]));
    let cases = [
        (1, Err(CommandError::NotReplica), None),
        (7, Ok(()), Some(role(group(7), Role::Replica, Epoch(5)))),
        (7, Ok(()), None),
        (8, Ok(()), Some(role(group(8), Role::Replica, Epoch::ZERO))),
        (9, Err(CommandError::TooLong), None),
        (8, Ok(()), None),
    ];
    for (of, expected, event) in cases {
        assert_eq!(one.command(follow(of)), expected, "{of}");
        assert_eq!(one.events, Vec::from_iter(event), "{of}");
    }
    assert_eq!(one.bus.member(id(1)).unwrap().follows, [group(7), group(8)]);
    let unfollow = |of: u64| Command::Unfollow { group: group(of) };
    assert_eq!([1, 9].map(|of| one.command(unfollow(of))), [Err(CommandError::NotReplica); 2]);
    assert_eq!(one.command(unfollow(7)), Ok(()));
    assert_eq!(one.events, [role(group(7), Role::None, Epoch(5))]);
    assert_eq!(one.command(follow(9)), Ok(()), "there is room again");
    let offset = |of: u64| Command::Offset { group: group(of), offset: 5, copy: CopyState::Current };
    assert_eq!([7, 8, 6].map(|of| one.command(offset(of)).is_ok()), [false, true, false]);
}

#[test]
fn messages_go_to_living_subscribers_and_to_oneself() {
    let wants = |number: u8, channel: &[u8]| {
        let mut record = record(number);
        record.description.interest = crate::pubsub::encode_interest(&BTreeSet::from([channel.to_vec()]), false);
        record
    };
    let mut failed = wants(4, b"news");
    failed.life.failed = true;
    let mut one = Scripted::new(quiet(), &[wants(2, b"news"), wants(3, b"other"), failed]);
    let publish = || Command::Publish { channel: b"news".to_vec(), message: b"hello".to_vec() };
    let heard = |from| Event::Published { channel: b"news".to_vec(), message: b"hello".to_vec(), from: id(from) };
    let message = Body::Publish { channel: b"news"[..].into(), message: b"hello"[..].into() };
    let subscribe = |channel: &[u8]| Command::Subscribe { channel: channel.to_vec() };
    let steps = [
        (None, false),
        (Some(subscribe(b"other")), false),
        (Some(subscribe(b"news")), true),
        (Some(Command::Unsubscribe { channel: b"news".to_vec() }), false),
        (Some(Command::SubscribeAll { wanted: true }), true),
        (Some(Command::SubscribeAll { wanted: false }), false),
    ];
    for (command, hears) in steps {
        command.clone().map_or(Ok(()), |command| one.command(command)).unwrap();
        one.command(publish()).unwrap();
        assert_eq!(one.sent, [(2, message.clone())], "{command:?}");
        assert_eq!(one.events, Vec::from_iter(hears.then(|| heard(1))), "{command:?}");
        one.hear(3, &message);
        assert_eq!(one.events, Vec::from_iter(hears.then(|| heard(3))), "{command:?}");
        let own = one.bus.member(id(1)).unwrap().interest;
        assert_eq!(crate::pubsub::wants(own, b"news"), hears, "{command:?}");
    }
}
