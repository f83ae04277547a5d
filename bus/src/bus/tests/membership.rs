//! Joining, dying, returning, being forgotten, being cut off.

use super::*;
use crate::event::Health;

#[test]
fn members_introduced_to_one_become_known_to_all() {
    let mut net = Net::new(7);
    net.introduce();
    net.run_until(2_000, "all agree", Net::agrees);
    net.run(60_000);
    for number in net.running() {
        assert!(net.bus(number).members().all(|member| member.health == Health::Alive), "{number}");
        assert!(!net.has_event(number, |event| matches!(event, Event::Suspected { .. })));
    }
}

#[test]
fn a_killed_member_fails_in_time_and_comes_back() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.kill(5);
    let failed =
        |net: &Net| net.running().iter().all(|number| net.bus(*number).member(id(5)).unwrap().health == Health::Failed);
    let took = net.run_until(9_000, "all know the failure", failed);
    assert!(took >= 5_000, "{took}");
    net.start(5);
    let back =
        |net: &Net| net.running().iter().all(|number| net.bus(*number).member(id(5)).unwrap().health == Health::Alive);
    net.run_until(3_000, "all know that it is back", back);
    assert!(net.has_event(1, |event| matches!(event, Event::Recovered { .. })));
    assert_eq!(net.bus(1).member(id(5)).unwrap().address, "server-5:2", "an id is stable across changes of address");
    net.run_until(3_000, "all agree", Net::agrees);
}

#[test]
fn loss_and_pauses_fail_nobody() {
    let mut net = Net::new(6);
    net.lost = 50;
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    for turn in 0..40_u8 {
        // A pause: nothing is delivered to or from it, and then everything at once.
        let paused = turn % 6 + 1;
        let bus = net.servers.get_mut(&paused).unwrap().bus.take();
        net.run(1_000);
        net.servers.get_mut(&paused).unwrap().bus = bus;
        net.run(3_000);
    }
    for number in net.running() {
        assert!(!net.has_event(number, |event| matches!(event, Event::Failed { .. })), "{number}");
    }
    net.run_until(5_000, "all agree", Net::agrees);
}

#[test]
fn the_forgotten_are_kept_out_for_a_while() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.command(2, Command::Forget { id: id(5) });
    let gone = |net: &Net| (1..=4).all(|number| net.bus(number).member(id(5)).is_none());
    net.run_until(1_000, "all have forgotten it", gone);
    assert_eq!(net.try_command(1, Command::Meet { id: id(5), address: "x".into() }), Err(crate::CommandError::KeptOut));
    // It is alive and goes on trying, in vain.
    net.run(55_000);
    assert!(gone(&net) && net.bus(1).counters().refused_kept_out > 0);
    let told = |number| {
        let is_it = |event: &&(u64, Event)| matches!(event.1, Event::ForgottenHere { .. });
        net.servers[&number].events.iter().filter(is_it).count()
    };
    assert_eq!([1, 2, 5].map(told), [0, 0, 1], "it is told, once");
    net.run(10_000);
    net.command(1, Command::Meet { id: id(5), address: "x".into() });
    net.run_until(2_000, "it is back", |net| (1..=4).all(|number| net.bus(number).member(id(5)).is_some()));
    net.run_until(5_000, "all agree", Net::agrees);
    net.run(70_000);
    let knows = |at| net.bus(at).member(id(5)).is_some_and(|member| member.health == Health::Alive);
    assert!((1..=4).all(knows), "what is over is not taken again");
}

#[test]
fn a_member_that_was_forgotten_while_it_was_away_is_told() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.follow(5, 1);
    net.kill(5);
    net.command(2, Command::Forget { id: id(5) });
    let gone = |net: &Net| (1..=4).all(|number| net.bus(number).member(id(5)).is_none());
    net.run_until(1_000, "all have forgotten it", gone);
    net.run(100);
    // Two processes die at once, before anything else makes them save.
    [1, 4].into_iter().for_each(|number| net.kill(number));
    [1, 4].into_iter().for_each(|number| net.start(number));
    net.run_until(5_000, "they are back", |net| {
        gone(net) && net.running().into_iter().all(|at| net.bus(at).cluster_state().has_quorum)
    });
    // Far longer than it is kept out, and longer than the processes that have forgotten it live.
    net.run(300_000);
    for number in 1..=4 {
        net.kill(number);
        net.start(number);
        net.run(5_000);
    }
    // What was saved said for how long it was kept out then: a restart begins that span again.
    net.run(300_000);
    net.start(5);
    net.run_until(3_000, "it is told", |net| {
        net.has_event(5, |event| matches!(event, Event::ForgottenHere { .. }))
            && net.bus(5).forgotten_by(net.now()).is_some()
    });
    net.run(60_000);
    assert!(gone(&net) && net.bus(5).forgotten_by(net.now()).is_some() && !net.bus(5).cluster_state().has_quorum);
    assert!((1..=4).all(|number| net.bus(number).forgotten_by(net.now()).is_none()));
    assert!(net.bus(1).groups().all(|view| view.replicas.is_empty()), "it has no part");

    net.command(1, Command::Meet { id: id(5), address: "server-5".into() });
    net.run_until(3_000, "it was let in on purpose", |net| {
        let knows = |at| net.bus(at).member(id(5)).is_some_and(|member| member.health == Health::Alive);
        (1..=4).all(knows) && net.bus(5).forgotten_by(net.now()).is_none()
    });
    net.run_until(5_000, "all agree", Net::agrees);
}

#[test]
fn the_word_of_one_that_this_member_was_forgotten_is_nothing_while_others_answer() {
    let mut net = Net::new(4);
    net.introduce();
    // Only the first hears of the wish: the others go on knowing each other.
    net.cut(&[1], &[2, 3, 4]);
    net.command(1, Command::Forget { id: id(4) });
    net.run(100);
    net.cuts.clear();
    net.cut(&[1], &[2, 3]);
    net.run_until(5_000, "it is told", |net| net.has_event(4, |event| matches!(event, Event::ForgottenHere { .. })));
    for _ in 0..50 {
        net.run(200);
        assert_eq!(net.bus(4).forgotten_by(net.now()), None, "two members answer it");
    }
}

#[test]
fn the_wish_that_ended_first_makes_room_for_another() {
    let mut net = Net::with(4, Config { keep_outs_max: 1, keep_out: Duration::from_secs(3), ..Net::new(1).config });
    net.introduce();
    net.kill(4);
    net.command(2, Command::Forget { id: id(4) });
    net.run(1_000);
    net.kill(3);
    assert_eq!(net.try_command(2, Command::Forget { id: id(3) }), Err(crate::CommandError::TooLong));
    net.run(10_000);
    net.command(2, Command::Forget { id: id(3) });
    net.run_until(2_000, "both are forgotten", |net| net.bus(1).members().count() == 2);
}

#[test]
fn a_forgotten_primary_leaves_its_group_to_its_replicas() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.follow(4, 1);
    let before = net.primary(2, 1).1;
    net.kill(1);
    net.command(5, Command::Forget { id: id(1) });
    net.run_until(3_000, "the replica takes over", |net| (2..=5).all(|at| net.primary(at, 1).0 == 4));
    assert!(net.primary(2, 1).1 > before);
    // Without a replica its slots have no owner, and its epoch stays.
    let before = net.primary(5, 2).1;
    net.kill(2);
    net.command(5, Command::Forget { id: id(2) });
    net.run(1_000);
    assert_eq!((net.bus(5).owner(Slot::new(6_000).unwrap()), net.primary(5, 2).1), (None, before));
    assert!(!net.bus(3).may_write(group(3)), "coverage is required");
}

#[test]
fn a_failed_primary_that_was_forgotten_and_comes_back_is_primary_still() {
    let mut net = Net::with(5, Config { keep_out: Duration::from_secs(3), ..Net::new(1).config });
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.follow(4, 1);
    // Its replica hears that it has failed and cannot ask the voters.
    net.cut(&[4], &[2, 3]);
    net.kill(1);
    net.run_until(15_000, "the replica stands", |net| {
        net.has_event(4, |event| matches!(event, Event::Standing { .. }))
    });
    net.command(5, Command::Forget { id: id(1) });
    net.run(100);
    net.start(1);
    net.run(4_000);
    net.command(5, Command::Meet { id: id(1), address: "server-1".into() });
    net.run_until(3_000, "it is back", |net| (2..=5).all(|at| net.bus(at).member(id(1)).is_some()));
    net.cuts.clear();
    net.run_until(9_000, "it writes", |net| net.agrees() && net.writer(1) == Some(1));
    assert!(net.bus(4).ballots.is_empty());
}

#[test]
fn a_minority_stops_writing_and_all_agree_after_healing() {
    let mut net = Net::new(6);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.follow(4, 1);
    net.follow(5, 2);
    net.cut(&[1, 6], &[2, 3, 4, 5]);
    let took = net.run_until(6_000, "the minority stops", |net| !net.bus(1).may_write(group(1)));
    assert!(took <= 5_000, "{took}");
    assert_eq!(net.primary(1, 1).0, 1, "nobody was elected before");
    net.run_until(8_000, "its replica takes over", |net| net.bus(4).may_write(group(1)));
    net.run(10_000);
    assert!(!net.bus(1).may_write(group(1)) && net.bus(2).may_write(group(2)));
    net.cuts.clear();
    net.run_until(8_000, "all agree", |net| net.agrees() && net.primary(1, 1).0 == 4);
    net.run(30_000);
    assert!(net.agrees() && net.writer(1) == Some(4));
    let healthy = |number: &u8| net.bus(*number).members().all(|member| member.health == Health::Alive);
    assert!(net.running().iter().all(healthy));
}

#[test]
fn one_way_silence_of_a_link_fails_nobody() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net.cuts.extend([(1, 2), (4, 1)]);
    net.run(40_000);
    for number in net.running() {
        assert!(!net.has_event(number, |event| matches!(event, Event::Failed { .. })), "{number}");
    }
}

#[test]
fn voters_choose_themselves_where_nobody_tells() {
    let mut net = Net::new(5);
    net.introduce();
    net.run_until(8_000, "voters are chosen", |net| {
        net.running().iter().all(|number| net.bus(*number).voters().voters.len() == 5) && net.agrees()
    });
    net.run(10_000);
    assert!(net.bus(1).voters().epoch <= Epoch(3), "a choice that is good is kept");
    net.kill(1);
    net.run_until(12_000, "the dead voter is replaced", |net| {
        net.running().iter().all(|number| {
            let voters = net.bus(*number).voters();
            voters.previous.is_empty() && voters.voters.len() == 3 && !voters.voters.contains(&id(1))
        })
    });
}

#[test]
fn a_server_that_comes_and_goes_keeps_nobody_from_choosing_voters() {
    let mut net = Net::new(5);
    net.introduce();
    for _ in 0..15 {
        net.kill(5);
        net.run(500);
        net.start(5);
        net.run(500);
    }
    for number in 1..=4 {
        assert_ne!(net.bus(number).voters().voters, [], "{number}");
    }
}

#[test]
fn only_the_founder_chooses_the_first_voters() {
    let mut net = Net::new(4);
    net.servers.remove(&1);
    for number in [3, 4] {
        net.command(2, Command::Meet { id: id(number), address: format!("server-{number}") });
    }
    net.run(20_000);
    for number in 2..=4 {
        assert_eq!(net.bus(number).members().count(), 3, "they know each other");
        assert_eq!(net.bus(number).voters().voters, [], "{number} waits for the founder");
    }
    net.start(1);
    net.introduce();
    net.run_until(15_000, "voters are chosen once the founder is there", |net| {
        net.running().iter().all(|number| net.bus(*number).voters().voters.len() >= 3) && net.agrees()
    });
}

#[test]
fn a_choice_that_too_many_voters_passed_by_is_made_again() {
    use crate::voters::{Origin, VoterSet};
    let mut net = Net::new(5);
    net.introduce();
    let chosen =
        |net: &Net| net.running().iter().all(|number| net.bus(*number).voters().voters.len() == 5) && net.agrees();
    net.run_until(8_000, "voters are chosen", chosen);
    // 5 has won its ballot, then another one won a later ballot and died.
    let set = net.bus(5).voters.set().unwrap().clone();
    for number in 1..=3 {
        let bus = net.servers.get_mut(&number).unwrap().bus.as_mut().unwrap();
        bus.votes.restore(crate::packet::CHOICE, crate::ballot::Given { epoch: Epoch(9), candidate: id(4) });
    }
    let (epoch, previous) = (set.epoch.next(), set.voters.clone());
    let set = VoterSet { epoch, after: set.epoch, origin: Origin::Chosen, previous, ..set };
    let now = net.now();
    net.servers.get_mut(&5).unwrap().bus.as_mut().unwrap().hear_voters(now, &set, true);
    net.run(1_000);
    assert!(!net.bus(5).voters().previous.is_empty() && !net.agrees());
    net.run_until(20_000, "voters are chosen again", |net| chosen(net) && net.bus(5).voters().previous.is_empty());
    assert!(net.bus(5).voters().epoch > Epoch(9));
}

#[test]
fn a_voter_that_is_left_alone_goes_on_when_it_is_told_to() {
    let mut net = Net::new(3);
    net.introduce();
    let three =
        |net: &Net| net.running().iter().all(|number| net.bus(*number).voters().voters.len() == 3) && net.agrees();
    net.run_until(8_000, "voters are chosen", three);
    net.run(1_000);
    let before = net.bus(3).voters().epoch;
    (1..=3).for_each(|number| net.kill(number));
    let server = net.servers.get_mut(&3).unwrap();
    let cluster = ClusterId::from_bytes([9; 16]);
    let identity =
        Identity { cluster, server: id(3), incarnation: Incarnation(1), zone: Zone(1), address: "server-3".into() };
    let bytes = server.saved.take().unwrap();
    let mut saved = crate::saved::Saved::decode(&bytes, &identity, &net.config).unwrap();
    saved.go_on_alone();
    net.servers.get_mut(&3).unwrap().saved = Some(saved.encode());
    net.start(3);
    net.run(20_000);
    assert_eq!(net.bus(3).voters().voters, [id(3)], "those that are gone are not chosen");
    assert!(net.bus(3).voters().epoch > before);
    assert!(net.bus(3).standing.held_since.is_some(), "a majority is in reach");
    // One of them comes back all the same, with what it knew.
    net.start(1);
    net.run_until(30_000, "it takes up the voters of the one that went on", |net| {
        net.agrees() && net.bus(1).voters().epoch > before && net.bus(1).voters().voters.contains(&id(3))
    });
}

#[test]
fn messages_reach_subscribers_only() {
    let mut net = Net::new(4);
    net.introduce();
    net.command(2, Command::Subscribe { channel: b"news".to_vec() });
    net.command(3, Command::Subscribe { channel: b"other".to_vec() });
    net.command(4, Command::SubscribeAll { wanted: true });
    net.run(2_000);
    let sent = net.bus(1).counters().packets_sent;
    net.command(1, Command::Publish { channel: b"news".to_vec(), message: b"hello".to_vec() });
    assert_eq!(net.bus(1).counters().packets_sent - sent, 2);
    net.run(10);
    let heard = |number| net.has_event(number, |event| matches!(event, Event::Published { .. }));
    assert_eq!([1, 2, 3, 4].map(heard), [false, true, false, true]);
}

#[test]
fn whoever_wishes_what_was_wished_before_is_content() {
    let mut net = Net::new(4);
    net.introduce();
    net.kill(4);
    net.command(1, Command::Forget { id: id(4) });
    net.run_until(1_000, "2 has heard of it", |net| net.bus(2).member(id(4)).is_none());
    net.command(2, Command::Forget { id: id(4) });
    let stranger = net.try_command(2, Command::Forget { id: id(9) });
    assert_eq!(stranger, Err(crate::CommandError::UnknownMember));
}

#[test]
fn members_that_lost_what_they_knew_and_found_each_other_are_found_by_the_rest() {
    let mut net = Net::new(5);
    net.introduce();
    net.run(5_000);
    for number in [1, 2] {
        net.kill(number);
        net.servers.get_mut(&number).unwrap().saved = None;
    }
    net.run(20_000);
    [1, 2].into_iter().for_each(|number| net.start(number));
    // Before anybody else reaches them.
    net.command(2, Command::Meet { id: id(1), address: "server-1:2".into() });
    net.run_until(1_000, "they know each other", |net| net.bus(1).members().count() == 2);
    net.run_until(30_000, "all know all", |net| {
        let alive = |at: u8| net.bus(at).members().filter(|member| member.health == Health::Alive).count();
        (1..=5).all(|at| alive(at) == 5)
    });
}

#[test]
fn nobody_is_chosen_who_does_not_answer() {
    // Few members are all looked at; of many some are drawn.
    for count in [5, 40] {
        let mut net = Net::new(count);
        net.introduce();
        net.kill(2);
        net.run_until(15_000, "it has failed", |net| net.bus(1).member(id(2)).unwrap().health == Health::Failed);
        net.kill(3);
        let doubted = |net: &Net| net.bus(1).member(id(3)).unwrap().health != Health::Alive;
        net.run_until(5_000, "it is doubted", doubted);
        assert_ne!(net.bus(1).member(id(3)).unwrap().health, Health::Failed);
        let bus = net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap();
        for _ in 0..200 {
            let chosen = bus.choose_members(3, |chosen| chosen != id(4));
            let distinct: BTreeSet<_> = chosen.iter().copied().collect();
            assert!([1, 2, 3, 4].iter().all(|number| !distinct.contains(&id(*number))), "{distinct:?}");
            assert!(distinct.len() == chosen.len() && chosen.len() <= 3);
            assert!(count == 40 || chosen.len() == 1);
        }
    }
}

/// When a member that lost and found the others again refuted its failure, ms after it heard of it.
fn refuted_after(net: &mut Net, number: u8, others: &[u8]) -> u64 {
    net.cut(&[number], others);
    net.run_until(30_000, "it is given up", |net| {
        others.iter().all(|at| net.bus(*at).member(id(number)).unwrap().health == Health::Failed)
    });
    net.cuts.clear();
    net.run_until(5_000, "it hears of that", |net| {
        net.bus(number).standing.accused_since.is_some() || is_back(net, number)
    });
    net.run_until(30_000, "it is back", |net| is_back(net, number))
}

fn is_back(net: &Net, number: u8) -> bool {
    net.bus(number).counters().refutations > 0
}

#[test]
fn a_primary_leaves_its_replica_time_to_take_its_place() {
    let mut net = Net::new(5);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    for number in [4, 5] {
        net.follow(number, 1);
        // A copy that must not stand: nobody takes the place.
        net.command(number, Command::Offset { group: group(1), offset: 0, copy: CopyState::Missing });
    }
    let after = refuted_after(&mut net, 1, &[2, 3, 4, 5]);
    assert!((9_000..=11_000).contains(&after), "{after}: twice the timeout");
    net.run_until(10_000, "all is as before", |net| net.agrees() && net.bus(1).may_write(group(1)));
    // Who has no slots, or no replica, loses nothing.
    for (number, others) in [(5, [1, 2, 3, 4]), (4, [1, 2, 3, 5]), (3, [1, 2, 4, 5])] {
        let after = refuted_after(&mut net, number, &others);
        assert!(after <= 100, "{number}: {after}");
        net.run_until(10_000, "all is as before", Net::agrees);
    }
}

#[test]
fn a_primary_that_was_away_writes_nothing_before_it_knows_what_others_know() {
    let config = Config { member_timeout: Duration::from_secs(5), rejoin_delay: Duration::ZERO, ..Config::default() };
    for (seed, restarts) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut net = Net::with(3, config.clone());
        net.chance = Chance::new(seed);
        net.introduce();
        net.share_slots(&[1, 2, 3], &[2]);
        if restarts {
            net.kill(1);
        } else {
            net.cut(&[1], &[2, 3]);
        }
        net.command(2, Command::Claim { group: group(2), slots: std::vec![SlotRange::new(0, 99).unwrap()] });
        net.run_until(2_000, "the slots have moved", |net| [2, 3].iter().all(|at| net.owner_of(*at, 50) == Some(2)));
        // Nobody speaks of it any more.
        net.run(30_000);
        net.cuts.clear();
        net.lost = 600;
        if restarts {
            net.start(1);
        }
        net.run_until(60_000, "it writes", |net| net.bus(1).may_write(group(1)));
        assert_eq!(net.owner_of(1, 50), Some(2));
    }
}

#[test]
fn the_last_voter_that_lives_writes_alone() {
    let mut net = Net::new(2);
    net.introduce();
    net.share_slots(&[1], &[1]);
    net.kill(2);
    net.run_until(20_000, "it has failed", |net| net.bus(1).member(id(2)).unwrap().health == Health::Failed);
    net.run(1_000);
    net.kill(1);
    net.start(1);
    net.run_until(20_000, "it writes", |net| net.bus(1).may_write(group(1)));
}
