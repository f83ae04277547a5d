//! Agreed failovers message by message, and which replica migrates.

use super::scripted::{Scripted, claim, ms, quiet, record, replica};
use super::*;
use crate::CommandError;
use crate::event::{How, Role};
use crate::packet::{Body, Purpose};

/// The first member is primary of group 1, which 2 and 4 follow.
fn primary() -> Scripted {
    let mut one = Scripted::new(quiet(), &[replica(2, &[1]), record(3), replica(4, &[1])]);
    one.command(Command::Claim { group: group(1), slots: std::vec![SlotRange::ALL] }).unwrap();
    one
}

/// The first member follows group 1, whose primary is 2, as 4 does.
fn follower() -> Scripted {
    let mut one = Scripted::new(quiet(), &[record(2), record(3), replica(4, &[1])]);
    one.news(2, claim(1, 2, 2, &[(0, 99)]));
    one.command(Command::Follow { group: group(1) }).unwrap();
    one
}

fn offset(one: &mut Scripted, offset: u64) {
    one.command(Command::Offset { group: group(1), offset, copy: CopyState::Current }).unwrap();
}

fn unentitled(one: &Scripted) -> u64 {
    one.bus.counters().refused_unentitled
}

#[test]
fn a_primary_pauses_for_the_first_replica_that_asks() {
    let mut one = primary();
    offset(&mut one, 70);
    let ask = Body::HandoverAsk(group(1));
    let told = |offset| Body::HandoverOffset { group: group(1), offset };
    let paused = Event::HandoverPaused { group: group(1) };
    assert_eq!(one.command(Command::Paused { group: group(1) }), Err(CommandError::NotPrimary), "nobody has asked");
    assert_eq!(one.command(Command::Paused { group: group(9) }), Err(CommandError::UnknownGroup));
    // Who asks, what it is told, what happens, and how much was refused by then.
    let steps = [
        (3, Some(None), None, 1),
        (3, Some(None), None, 2),
        (2, None, Some(paused), 2),
        (2, None, None, 2),
        (4, Some(None), None, 3),
    ];
    for (step, (from, answer, event, refused)) in steps.into_iter().enumerate() {
        one.hear(from, &ask);
        assert_eq!(one.sent, Vec::from_iter(answer.map(|offset| (from, told(offset)))), "{step}");
        assert_eq!((&one.events, unentitled(&one)), (&Vec::from_iter(event), refused), "{step}");
    }
    offset(&mut one, 80);
    assert_eq!(one.sent, [], "writes may be in flight still");
    one.command(Command::Paused { group: group(1) }).unwrap();
    assert_eq!(one.sent, [(2, told(Some(80)))]);
    one.hear(2, &ask);
    assert_eq!(one.sent, [(2, told(Some(80)))], "it asks again");
    one.pass(ms(4_999));
    assert_eq!(one.events, []);
    one.pass(ms(1));
    assert_eq!(one.events, [Event::HandoverEnded { group: group(1) }], "five seconds after the first question");
    one.hear(4, &ask);
    assert_eq!(one.events, [Event::HandoverPaused { group: group(1) }], "another one may ask now");
    // A replica has nothing to pause.
    let mut other = follower();
    other.hear(4, &ask);
    assert_eq!((&other.sent[..], unentitled(&other)), (&[(4, told(None))][..], 1));
}

#[test]
fn a_replica_asks_its_primary_again_and_again_for_a_while() {
    let mut one = follower();
    let failover = |how| Command::Failover { group: group(1), how };
    let unknown = Command::Failover { group: group(9), how: How::Agreed };
    assert_eq!(one.command(unknown), Err(CommandError::UnknownGroup));
    let is_ask = |body: &Body| *body == Body::HandoverAsk(group(1));
    one.command(failover(How::Agreed)).unwrap();
    assert_eq!(one.receivers(is_ask), [2]);
    assert_eq!(one.command(failover(How::Forced)), Err(CommandError::Busy));
    for _ in 0..9 {
        one.pass(ms(499));
        assert_eq!(one.receivers(is_ask), []);
        one.pass(ms(1));
        assert_eq!(one.receivers(is_ask), [2]);
    }
    one.pass(ms(2_000));
    assert_eq!(one.receivers(is_ask), [], "five seconds are over");
    assert_eq!(one.command(failover(How::Agreed)), Ok(()));
    let mut stranger = Scripted::new(quiet(), &[record(2)]);
    stranger.news(2, claim(1, 2, 2, &[(0, 99)]));
    assert_eq!(stranger.command(failover(How::Agreed)), Err(CommandError::NotReplica), "it has no part in the group");
    let mut own = primary();
    assert_eq!(own.command(failover(How::Agreed)), Err(CommandError::NotReplica), "it has the place already");
}

#[test]
fn a_replica_stands_once_it_has_what_its_paused_primary_has() {
    let told = |offset| Body::HandoverOffset { group: group(1), offset };
    let stands = |one: &Scripted| one.bus.ballots.get(&group(1)).map(|ballot| ballot.purpose);
    let granted = [Event::HandoverGranted { group: group(1) }];
    let mut one = follower();
    one.hear(2, &told(Some(5)));
    assert_eq!(one.bus.counters().refused_unasked, 1, "nobody has asked");
    one.command(Command::Failover { group: group(1), how: How::Agreed }).unwrap();
    one.hear(4, &told(Some(5)));
    assert_eq!((one.bus.counters().refused_unasked, &one.events[..]), (2, &[][..]), "it is not the primary");
    one.hear(2, &told(Some(50)));
    assert_eq!(one.events, granted);
    one.hear(2, &told(Some(40)));
    assert_eq!(one.events, [], "an older answer that was overtaken");
    for (offset, copy, expected) in [
        (49, CopyState::Current, None),
        (50, CopyState::Missing, None),
        (50, CopyState::Current, Some(Purpose::ByHand)),
    ] {
        one.command(Command::Offset { group: group(1), offset, copy }).unwrap();
        assert_eq!(stands(&one), expected, "{offset} {copy:?}");
    }
    // Without the consent there is no ballot any more, but other groups' ballots go on.
    one.command(Command::Claim { group: group(5), slots: std::vec![] }).unwrap();
    one.bus.begin_by_hand(one.now, group(6));
    one.bus.begin_slots(one.now, group(7), crate::slot::SlotSet::EMPTY, crate::slot::SlotSet::EMPTY);
    one.pass(ms(5_000));
    assert_eq!(one.bus.ballots.keys().map(|group| group.0).collect::<Vec<_>>(), [6, 7]);
    // A primary that does not pause ends it.
    one.command(Command::Failover { group: group(1), how: How::Agreed }).unwrap();
    one.hear(2, &told(None));
    assert!(one.bus.handovers.is_empty() && stands(&one).is_none());
    // The first copy that is complete is told to whoever waits for it, from the beginning.
    let mut one = follower();
    offset(&mut one, 50);
    one.command(Command::Failover { group: group(1), how: How::Agreed }).unwrap();
    one.hear(2, &told(Some(50)));
    assert_eq!((stands(&one), one.events.first()), (Some(Purpose::ByHand), Some(&granted[0])));
}

#[test]
fn an_offered_group_is_asked_for_once_the_copy_is_near() {
    let offer = |offset| Body::HandoverOffer { group: group(1), offset };
    let is_ask = |body: &Body| *body == Body::HandoverAsk(group(1));
    let mut one = follower();
    one.hear(4, &offer(9));
    assert_eq!(unentitled(&one), 1, "it is not the primary");
    one.command(Command::Unfollow { group: group(1) }).unwrap();
    one.hear(2, &offer(9));
    assert_eq!(unentitled(&one), 2, "this one is no replica");
    one.command(Command::Follow { group: group(1) }).unwrap();
    one.command(Command::Depart(crate::event::Departure::Leaves)).unwrap();
    one.hear(2, &offer(9));
    assert_eq!(unentitled(&one), 3, "this one is about to stop too");
    one.command(Command::Depart(crate::event::Departure::Stays)).unwrap();
    one.hear(2, &offer(9));
    assert_eq!((&one.events[..], unentitled(&one)), (&[Event::HandoverOffered { group: group(1) }][..], 3));
    one.hear(2, &offer(10));
    assert_eq!(one.events, [], "once");
    for (writable, offset, copy, asks) in [
        (true, 8, CopyState::Current, false),
        (true, 9, CopyState::Since(one.now), false),
        (false, 9, CopyState::Current, false),
        (true, 9, CopyState::Current, true),
        (true, 10, CopyState::Current, false),
    ] {
        one.bus.standing.writable = writable;
        one.command(Command::Offset { group: group(1), offset, copy }).unwrap();
        assert_eq!(one.receivers(is_ask), Vec::from_iter(asks.then_some(2)), "{writable} {offset} {copy:?}");
    }
    one.pass(ms(499));
    assert_eq!(one.receivers(is_ask), []);
    one.pass(ms(1));
    assert_eq!(one.receivers(is_ask), [2], "again, as the answer may be lost");
    one.pass(ms(10_000));
    assert_eq!(one.receivers(is_ask).len(), 8, "for five seconds after the offer");
    assert!(one.bus.handovers.is_empty());
}

/// A group and its primary. Groups below 50 have a slot, the others none.
type Owned = (u64, u8);

/// Which groups the first member follows after it has looked for orphans. `replicas`: who follows what, and whether it has failed.
fn migrated(config: &Config, owned: &[Owned], replicas: &[(u8, u64, bool)], follows: &[u64]) -> Vec<u64> {
    let members = (2..=9).map(|number| {
        let of = replicas.iter().filter(|(replica, _, _)| *replica == number);
        let groups: Vec<u64> = of.clone().map(|(_, group, _)| *group).collect();
        let mut record = replica(number, &groups);
        record.life.failed = of.clone().any(|(_, _, failed)| *failed);
        record
    });
    let members: Vec<_> = members.collect();
    let mut one = Scripted::new(Config { follows_max: 9, ..config.clone() }, &members);
    for (group, owner) in owned {
        let slot = u16::try_from(*group).unwrap();
        let slots = [(slot, slot)];
        one.news(*owner, claim(*group, *owner, 2, if *group < 50 { &slots } else { &[] }));
    }
    for of in follows {
        one.command(Command::Follow { group: group(*of) }).unwrap();
    }
    one.bus.config.follows_max = config.follows_max;
    one.bus.standing.held_since = Some(one.now);
    one.bus.migrate_at = Some(one.now);
    one.bus.tick_migration(one.now);
    let follows = one.bus.places.iter().filter(|(_, place)| place.role == Role::Replica);
    follows.map(|(group, _)| group.0).collect()
}

#[test]
fn a_replica_goes_where_there_is_none_if_its_group_can_spare_it() {
    let living = |number, of| (number, of, false);
    let failed = |number, of| (number, of, true);
    // The primaries of the groups, their other replicas, what this member follows, and what it follows then.
    type Case<'a> = (&'a str, &'a [Owned], &'a [(u8, u64, bool)], &'a [u64], &'a [u64]);
    let two = [(1, 2), (2, 3)];
    let cases: [Case<'_>; 14] = [
        ("the orphan gets it", &two, &[failed(4, 1), living(5, 2)], &[2], &[1]),
        ("its group would have none", &two, &[failed(4, 1), failed(5, 2)], &[2], &[2]),
        ("a replica is left", &two, &[failed(4, 1), living(6, 1), living(5, 2)], &[2], &[2]),
        ("the group never had one", &two, &[living(5, 2)], &[2], &[2]),
        ("its primary is unknown", &[(1, 2), (2, 3)], &[failed(4, 9), living(5, 2)], &[2], &[2]),
        ("its primary has failed", &[(1, 8), (2, 3)], &[failed(4, 1), failed(8, 7), living(5, 2)], &[2], &[2]),
        ("it has no slots", &[(50, 2), (2, 3)], &[failed(4, 50), living(5, 2)], &[2], &[2]),
        ("the giver's primary has failed", &[(1, 2), (2, 8)], &[failed(4, 1), failed(8, 7), living(5, 2)], &[2], &[2]),
        (
            "a larger group gives",
            &[(1, 2), (2, 3), (3, 9)],
            &[failed(4, 1), living(5, 2), living(6, 3), living(7, 3), living(5, 3)],
            &[2],
            &[2],
        ),
        (
            "the larger group is its own",
            &[(1, 2), (2, 3), (3, 9)],
            &[failed(4, 1), living(5, 2), living(6, 2), living(7, 3), living(8, 3)],
            &[2],
            &[1],
        ),
        (
            "of equal ones the first gives",
            &[(1, 2), (2, 3), (3, 9)],
            &[failed(4, 1), living(5, 2), living(6, 3), living(7, 3)],
            &[2],
            &[1],
        ),
        (
            "and no later one",
            &[(1, 2), (2, 3), (3, 9)],
            &[failed(4, 1), living(5, 2), living(6, 2), living(7, 3)],
            &[3],
            &[3],
        ),
        ("others stay as they are", &[(1, 2), (2, 3), (3, 9)], &[failed(4, 1), living(5, 2)], &[2, 3], &[1, 3]),
        ("nothing is amiss", &two, &[living(4, 1), living(5, 2), living(6, 2)], &[2], &[2]),
    ];
    for (name, owned, replicas, follows, expected) in cases {
        assert_eq!(migrated(&quiet(), owned, replicas, follows), expected, "{name}");
    }
    let wider = Config { migration_barrier: 2, ..quiet() };
    let orphan = [failed(4, 1), living(5, 2), living(6, 2)];
    assert_eq!(migrated(&wider, &two, &orphan[..2], &[2]), [2], "two are kept");
    assert_eq!(migrated(&wider, &two, &orphan, &[2]), [1]);
    let full = Config { follows_max: 1, ..quiet() };
    assert_eq!(migrated(&full, &two, &orphan, &[2]), [1], "one goes and one comes");
    assert_eq!(migrated(&full, &two, &orphan, &[2, 5]), [2, 5], "it follows too many already");
}

#[test]
fn orphans_are_looked_for_five_seconds_after_the_last_change() {
    let mut orphan = replica(4, &[1]);
    orphan.life.failed = true;
    for (migrates, has_quorum, follows, expected) in
        [(true, true, true, Some(1)), (false, true, true, None), (true, false, true, None), (true, true, false, None)]
    {
        let config = Config { migrates, ..quiet() };
        let mut one = Scripted::new(config, &[record(2), record(3), orphan.clone(), replica(5, &[2])]);
        one.news(2, claim(1, 2, 2, &[(0, 9)]));
        one.news(3, claim(2, 3, 2, &[(10, 19)]));
        if follows {
            one.command(Command::Follow { group: group(2) }).unwrap();
        }
        if has_quorum {
            one.command(Command::SetVoters { epoch: Epoch(1), voters: std::vec![id(1)] }).unwrap();
        }
        one.pass(ms(1_000));
        one.member(3, record(6));
        let moved = |one: &Scripted| one.bus.places.get(&group(1)).map(|_| 1);
        let case = (migrates, has_quorum, follows);
        one.pass(ms(4_999));
        assert_eq!(moved(&one), None, "{case:?}");
        one.pass(ms(1));
        assert_eq!(moved(&one), expected, "{case:?}");
        let is_told = |body: &Body| matches!(body, Body::News(_));
        one.pass(ms(10));
        assert_eq!(!one.receivers(is_told).is_empty(), expected.is_some(), "{case:?}");
    }
}
