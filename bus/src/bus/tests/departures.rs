//! Members that stop in order: what they lead goes to replicas first, and nobody waits for their silence.

use super::*;
use crate::event::{Departure, Health, Role};

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
