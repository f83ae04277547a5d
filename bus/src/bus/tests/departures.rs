//! Members that stop in order: what they lead goes to replicas first, and nobody waits for their silence.

use super::single::{Single, record};
use super::*;
use crate::ballot::{Ballot, Phase};
use crate::claim::Claim;
use crate::event::{Departure, Health, Role};
use crate::member::{Description, MemberRecord};
use crate::packet::{Body, Purpose};
use crate::slot::SlotSet;

/// Three members; the first leads all slots, the second follows it.
fn led() -> Net {
    let mut net = Net::new(3);
    net.introduce();
    net.share_slots(&[1], &[1, 2, 3]);
    net.follow(2, 1);
    net
}

/// Primaries that pause end their writes at once.
fn settle(net: &mut Net, number: u8) {
    if net.has_event(number, |event| matches!(event, Event::HandoverPaused { .. })) {
        net.try_command(number, Command::Paused { group: group(1) }).ok();
    }
}

fn leads_nothing(net: &Net, number: u8) -> bool {
    net.bus(number).led_groups().next().is_none()
}

#[test]
fn a_group_is_handed_over_before_its_primary_stops() {
    let mut net = led();
    net.command(1, Command::Offset { group: group(1), offset: 700, copy: CopyState::Current });
    net.command(1, Command::Depart(Departure::Leaves));
    net.run(300);
    assert!(!net.has_event(1, |event| matches!(event, Event::HandoverPaused { .. })), "the copy is not near yet");
    assert_eq!(net.bus(1).led_groups().collect::<Vec<_>>(), [(group(1), true)]);
    net.command(2, Command::Offset { group: group(1), offset: 700, copy: CopyState::Current });
    net.run(20);
    settle(&mut net, 1);
    let took = net.run_until(1_000, "the replica has taken over", |net| leads_nothing(net, 1));
    assert!(took < 500, "no election had to be waited for: {took} ms");
    let at = |number, is_it: fn(&Event) -> bool| {
        let found = net.servers[&number].events.iter().find(|(_, event)| is_it(event));
        found.map(|(ms, _)| *ms).expect("it was told")
    };
    let granted = at(2, |event| matches!(event, Event::HandoverGranted { .. }));
    let gone = at(1, |event| matches!(event, Event::RoleChanged { role: Role::Replica, .. }));
    assert!(granted < gone, "the new primary's engine is told before the old one sends clients there");
    assert_eq!((1..=3).map(|at| net.primary(at, 1).0).collect::<Vec<_>>(), [2, 2, 2]);
    net.run_until(2_000, "the new primary takes writes", |net| net.writer(1) == Some(2));

    net.command(1, Command::Depart(Departure::Left));
    let took = net.run_until(1_000, "a majority has declared it", |net| {
        [2, 3]
            .iter()
            .all(|at| net.bus(*at).member(id(1)).is_some_and(|one| one.has_left && one.health == Health::Failed))
    });
    assert!(took < 500, "no silence had to be waited for: {took} ms");
    net.kill(1);
    net.run(100);
    net.start(1);
    net.run_until(2_000, "it is welcome", |net| {
        [2, 3]
            .iter()
            .all(|at| net.bus(*at).member(id(1)).is_some_and(|one| !one.has_left && one.health == Health::Alive))
    });
    assert!([2, 3].iter().all(|at| net.has_event(*at, |event| *event == Event::Returned { id: id(1) })));
    net.run_until(2_000, "it follows", |net| net.bus(2).groups().any(|view| view.replicas == [id(1)]));
    assert_eq!(net.writer(1), Some(2));
}

#[test]
fn a_replica_that_has_just_restarted_takes_over_as_soon_as_it_may_write() {
    let mut net = led();
    net.command(1, Command::Offset { group: group(1), offset: 700, copy: CopyState::Current });
    net.kill(2);
    net.start(2);
    net.run_until(2_000, "it follows again", |net| {
        net.bus(2).member(id(1)).is_some_and(|one| one.health == Health::Alive)
            && net.bus(1).led_groups().eq([(group(1), true)])
    });
    net.command(2, Command::Offset { group: group(1), offset: 700, copy: CopyState::Current });
    net.command(1, Command::Depart(Departure::Leaves));
    net.run_until(500, "it is offered the group", |net| {
        net.has_event(2, |event| matches!(event, Event::HandoverOffered { .. }))
    });
    assert!(!net.bus(2).cluster_state().is_confirmed, "it takes no writes yet");
    net.run_until(1_000, "it takes writes", |net| net.bus(2).cluster_state().is_confirmed);
    net.run(20);
    settle(&mut net, 1);
    net.run_until(500, "it has taken over without another word about its copy", |net| leads_nothing(net, 1));
}

#[test]
fn of_several_replicas_one_takes_over() {
    let mut net = led();
    net.follow(3, 1);
    for replica in [2, 3] {
        net.command(replica, Command::Offset { group: group(1), offset: 5, copy: CopyState::Current });
    }
    net.command(1, Command::Depart(Departure::Leaves));
    net.run_until(1_000, "one asks", |net| net.has_event(1, |event| matches!(event, Event::HandoverPaused { .. })));
    settle(&mut net, 1);
    net.run_until(1_000, "one has taken over", |net| leads_nothing(net, 1));
    net.run_until(2_000, "it takes writes", |net| net.writer(1).is_some_and(|writer| writer != 1));
}

#[test]
fn members_that_stop_together_offer_each_other_nothing_and_accuse_nobody() {
    let mut net = led();
    for number in 1..=2 {
        net.command(number, Command::Offset { group: group(1), offset: 700, copy: CopyState::Current });
    }
    // Not at the same instant: the signals come one after another.
    for number in 1..=3 {
        net.command(number, Command::Depart(Departure::Leaves));
        net.run(80);
    }
    net.run(500);
    assert!(!net.has_event(1, |event| matches!(event, Event::HandoverPaused { .. })), "the replica stops as well");
    assert_eq!(net.bus(1).led_groups().collect::<Vec<_>>(), [(group(1), false)], "there is no heir");
    for number in 1..=3 {
        net.command(number, Command::Depart(Departure::Left));
    }
    net.run(50);
    (1..=3).for_each(|number| net.kill(number));
    net.run(100);
    (1..=3).for_each(|number| net.start(number));
    net.run_until(3_000, "the primary takes writes again", |net| net.writer(1) == Some(1));
    assert!((1..=3).all(|at| !net.has_event(at, |event| matches!(event, Event::Failed { .. }))), "nobody has failed");
}

#[test]
fn a_primary_that_says_goodbye_with_slots_is_replaced_without_a_time_of_silence() {
    let mut net = led();
    net.command(1, Command::Depart(Departure::Left));
    assert_eq!(net.writer(1), None, "it takes no writes any more");
    let took = net.run_until(2_000, "the replica was elected", |net| net.primary(2, 1).0 == 2);
    assert!(took < 1_000, "{took} ms");
    // It may still be running, and its answers are no signs of life.
    net.run(2_000);
    assert_eq!(net.writer(1), Some(2));
    assert!(net.bus(3).member(id(1)).unwrap().has_left);
}

#[test]
fn a_goodbye_of_an_earlier_life_is_refused() {
    let mut net = led();
    net.record = Some(Vec::new());
    net.command(1, Command::Depart(Departure::Left));
    net.run(10);
    let goodbyes = net.record.take().unwrap();
    net.kill(1);
    net.start(1);
    net.run_until(12_000, "it is alive again", |net| {
        net.bus(3).member(id(1)).is_some_and(|one| !one.has_left && one.health == Health::Alive)
    });
    for (to, from, bytes) in goodbyes.into_iter().filter(|(_, from, _)| *from == 1) {
        net.push(1, Due::Packet { to, from, bytes });
    }
    net.run(500);
    assert!([2, 3].iter().all(|at| !net.bus(*at).member(id(1)).unwrap().has_left));
}

#[test]
fn a_member_that_goes_on_after_all_is_a_member_again() {
    let mut net = led();
    net.command(3, Command::Depart(Departure::Left));
    net.run_until(1_000, "it was declared", |net| net.bus(1).member(id(3)).unwrap().health == Health::Failed);
    net.command(3, Command::Depart(Departure::Stays));
    net.run_until(3_000, "it refutes that", |net| {
        [1, 2].iter().all(|at| {
            let one = net.bus(*at).member(id(3)).unwrap();
            !one.has_left && one.health == Health::Alive
        })
    });
}

#[test]
fn three_voters_stay_voters_while_one_is_away() {
    let mut net = Net::new(3);
    net.introduce();
    net.run_until(8_000, "voters are chosen", |net| {
        net.running().iter().all(|number| net.bus(*number).voters().voters.len() == 3) && net.agrees()
    });
    net.command(1, Command::Depart(Departure::Left));
    net.run(200);
    net.kill(1);
    net.run(6_000);
    assert_eq!(net.bus(2).voters().voters.len(), 3, "a single voter could not be away in its turn");
    net.start(1);
    net.run_until(3_000, "it is back", |net| net.bus(3).member(id(1)).unwrap().health == Health::Alive);
    net.run(500);
    net.command(2, Command::Depart(Departure::Left));
    net.run(200);
    net.kill(2);
    net.run(10_000);
    assert!([1, 3].iter().all(|at| net.bus(*at).cluster_state().has_quorum));
}

/// Server 1, which leads group 1 with the replicas 4 to 7, among servers 1 to 8.
fn leader() -> Single {
    let mut single = Single::setup(1, 8, &[1, 2, 3], &[1, 2]);
    for replica in 4..=7 {
        let description = Description { revision: 1, ..record(replica, &[1]).description };
        single.join(MemberRecord { description, ..record(replica, &[]) });
    }
    single
}

#[test]
fn who_leaves_tells_all_that_live_and_offers_again_and_again_to_those_that_stay() {
    let mut single = leader();
    single.life(5, 0, true);
    single.hear(6, &Body::Departure(Departure::Leaves));
    // A group without slots, one that it follows, and one whose writes are paused are not offered.
    let empty = Claim { group: group(9), owner: id(1), epoch: Epoch(2), slots: SlotSet::EMPTY };
    single.bus.hear_claim(single.now(), id(1), empty, false);
    single.command(Command::Follow { group: group(2) });
    let description = Description { revision: 2, ..record(7, &[1, 2, 9]).description };
    single.join(MemberRecord { description, ..record(7, &[]) });
    single.pass(100);
    single.take_sent();
    single.command(Command::Depart(Departure::Leaves));
    assert_eq!(single.sent_to(|body| *body == Body::Departure(Departure::Leaves)), [2, 3, 4, 6, 7, 8]);
    single.command(Command::Depart(Departure::Leaves));
    assert_eq!(single.take_sent(), [], "that is known");
    assert_eq!(single.bus.led_groups().collect::<Vec<_>>(), [(group(1), true)]);
    let offers =
        |single: &mut Single| single.sent_to(|body| *body == Body::HandoverOffer { group: group(1), offset: 0 });
    for (ms, expected) in [(249, &[][..]), (1, &[4, 7]), (499, &[]), (1, &[4, 7]), (499, &[]), (1, &[4, 7])] {
        single.pass(ms);
        let offered: Vec<u8> = single.sent_to(|body| matches!(body, Body::HandoverOffer { .. }));
        assert_eq!(offered, expected, "{ms}");
    }
    single.hear(4, &Body::HandoverAsk(group(1)));
    single.pass(500);
    assert_eq!(offers(&mut single), [], "it is under way");
    single.pass(6_000);
    assert!(offers(&mut single).contains(&4), "nothing came of it");
    single.command(Command::Depart(Departure::Stays));
    single.pass(2_000);
    assert_eq!(offers(&mut single), []);
}

#[test]
fn who_has_left_ends_what_it_could_not_serve() {
    let cases = [
        (Purpose::Election, false, false),
        (Purpose::ByHand, false, false),
        (Purpose::ByHand, true, true),
        (Purpose::Slots, false, true),
        (Purpose::Voters, false, true),
    ];
    for (purpose, is_won, is_kept) in cases {
        for (departure, is_kept) in [(Departure::Left, is_kept), (Departure::Leaves, true)] {
            let mut single = leader();
            let now = single.now();
            let phase = if is_won { Phase::Won } else { Phase::Waiting(now + Duration::from_secs(1)) };
            single.bus.ballots.insert(group(1), Ballot::new(purpose, Epoch(2), phase, now));
            single.command(Command::Depart(departure));
            assert_eq!(single.bus.ballots.contains_key(&group(1)), is_kept, "{purpose:?} {departure:?}");
        }
    }
}

#[test]
fn a_goodbye_is_a_suspicion_and_a_return_ends_it() {
    let is_left = Event::Left { id: id(5) };
    let suspected = Event::Suspected { id: id(5) };
    let returned = Event::Returned { id: id(5) };
    for (stops, expected) in [(false, &[suspected, is_left.clone()][..]), (true, &[is_left])] {
        let mut single = leader();
        if stops {
            single.command(Command::Depart(Departure::Leaves));
        }
        single.hear(5, &Body::Departure(Departure::Leaves));
        single.hear(5, &Body::Departure(Departure::Stays));
        assert!(!single.has(&returned), "it never left");
        single.events.clear();
        for _ in 0..2 {
            single.hear(5, &Body::Departure(Departure::Left));
        }
        assert_eq!(single.events, expected, "members that stop together accuse nobody");
        assert_eq!(single.bus.counters().suspicions, u64::from(!stops));
        single.hear(5, &Body::Departure(Departure::Stays));
        assert!(single.has(&returned));
    }
}
