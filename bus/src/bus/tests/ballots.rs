//! Elections, manual failovers, claims, changes of voters, migration, memory.

use super::*;
use crate::event::{CommandError, CopyState, Health, How, Role, Unfit};

fn three_primaries(extra: u8) -> Net {
    let mut net = Net::new(3 + extra);
    net.introduce();
    net.share_slots(&[1, 2, 3], &[1, 2, 3]);
    net
}

#[test]
fn a_replica_takes_over_from_a_killed_primary() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.kill(1);
    let took = net.run_until(9_000, "the replica may write", |net| net.bus(4).may_write(group(1)));
    assert!((5_000..=7_500).contains(&took), "{took}");
    net.run_until(2_000, "all know", |net| net.running().iter().all(|at| net.primary(*at, 1) == net.primary(4, 1)));
    assert!(net.has_event(4, |event| matches!(event, Event::RoleChanged { role: Role::Primary, .. })));
    assert_eq!(net.primary(2, 1).1 % 2, 0, "what was voted for is even");
    net.start(1);
    net.run_until(4_000, "the old primary is a replica", |net| {
        net.bus(2).member(id(1)).unwrap().follows == [group(1)] && net.agrees()
    });
    assert_eq!(net.writer(1), Some(4));
}

#[test]
fn the_replica_with_the_most_data_wins() {
    for best in [4, 5, 6] {
        let mut net = three_primaries(3);
        for replica in [4, 5, 6] {
            net.follow(replica, 1);
            let offset = if replica == best { 100 } else { u64::from(replica) };
            net.command(replica, Command::Offset { group: group(1), offset, copy: CopyState::Current });
        }
        net.kill(1);
        net.run_until(9_000, "a replica may write", |net| net.writer(1).is_some());
        assert_eq!(net.writer(1), Some(best));
        net.run(5_000);
        assert_eq!(net.writer(1), Some(best));
    }
}

#[test]
fn elections_of_all_groups_run_in_parallel() {
    let config = Config { member_timeout: Duration::from_secs(5), ..Config::default() };
    let mut net = Net::with(20, config);
    net.introduce();
    net.share_slots(&(1..=8).collect::<Vec<_>>(), &[1, 2, 3, 4, 5, 9, 10, 11, 12]);
    (1..=4).for_each(|number| net.follow(number + 12, number.into()));
    (1..=4).for_each(|number| net.kill(number));
    let took = net.run_until(9_000, "all slots are served", |net| {
        (1..=4).all(|number| net.bus(number + 12).may_write(group(number.into())))
    });
    assert!(took <= 8_000, "{took}");
}

#[test]
fn a_lossy_network_only_delays_elections() {
    let mut net = three_primaries(2);
    net.follow(4, 1);
    net.follow(5, 1);
    net.lost = 150;
    net.kill(1);
    net.run_until(20_000, "a replica may write", |net| net.writer(1).is_some());
    let elected: Vec<_> = [4, 5]
        .iter()
        .flat_map(|at| net.servers[at].events.iter())
        .filter_map(|(_, event)| if let Event::Elected { epoch, .. } = event { Some(*epoch) } else { None })
        .collect();
    assert_eq!(elected.iter().collect::<BTreeSet<_>>().len(), elected.len(), "one winner an epoch");
}

#[test]
fn an_agreed_failover_waits_for_the_last_write() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.command(1, Command::Offset { group: group(1), offset: 100, copy: CopyState::Current });
    net.command(4, Command::Offset { group: group(1), offset: 90, copy: CopyState::Current });
    net.command(4, Command::Failover { group: group(1), how: How::Agreed });
    net.run(1_000);
    assert!(!net.bus(1).may_write(group(1)) && net.writer(1).is_none(), "the primary has paused");
    // A write was in flight: what was told before the pause is not all.
    net.command(4, Command::Offset { group: group(1), offset: 100, copy: CopyState::Current });
    net.run(1_000);
    assert!(net.writer(1).is_none(), "nobody has said that writes have ended");
    net.command(1, Command::Offset { group: group(1), offset: 110, copy: CopyState::Current });
    net.command(1, Command::Paused { group: group(1) });
    net.run(500);
    assert!(net.writer(1).is_none(), "the replica lacks the last write");
    net.command(4, Command::Offset { group: group(1), offset: 110, copy: CopyState::Current });
    let took = net.run_until(1_000, "the replica has taken over", |net| net.writer(1) == Some(4));
    assert!(took <= 200, "{took}");
    net.run(3_000);
    assert_eq!(net.bus(2).member(id(1)).unwrap().follows, [group(1)]);
}

#[test]
fn an_agreed_failover_that_cannot_end_is_given_up() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.command(1, Command::Offset { group: group(1), offset: 100, copy: CopyState::Current });
    net.command(4, Command::Failover { group: group(1), how: How::Agreed });
    net.run(500);
    assert!(!net.bus(1).may_write(group(1)));
    net.run(6_000);
    assert_eq!(net.writer(1), Some(1));
    net.run(10_000);
    assert_eq!(net.writer(1), Some(1));
}

#[test]
fn a_forced_failover_needs_voters_and_a_takeover_none() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.command(4, Command::Failover { group: group(1), how: How::Forced });
    net.run_until(1_000, "the replica has taken over", |net| net.primary(4, 1).0 == 4);
    net.run_until(4_000, "the old primary follows", |net| net.bus(4).member(id(1)).unwrap().follows == [group(1)]);
    net.kill(2);
    net.kill(3);
    net.run(1_000);
    net.command(1, Command::Failover { group: group(1), how: How::Forced });
    net.run(5_000);
    assert_eq!(net.primary(1, 1).0, 4, "no majority, no ballot");
    net.command(1, Command::Failover { group: group(1), how: How::Takeover });
    net.run_until(1_000, "it holds without a ballot", |net| net.primary(4, 1).0 == 1);
    assert_eq!(net.primary(1, 1).1 % 2, 1, "what was not voted for is odd");
}

#[test]
fn slots_move_with_a_greater_epoch_and_do_not_come_back() {
    let mut net = three_primaries(0);
    let before = net.primary(1, 1).1;
    net.command(2, Command::Claim { group: group(2), slots: std::vec![SlotRange::new(0, 99).unwrap()] });
    net.run_until(1_000, "all know the new owner", |net| (1..=3).all(|at| net.owner_of(at, 50) == Some(2)));
    net.run_until(4_000, "the old owner has given them up", |net| net.primary(2, 1).1 > before);
    net.command(2, Command::Release { group: group(2), slots: std::vec![SlotRange::new(0, 9).unwrap()] });
    net.run_until(1_000, "they have no owner", |net| (1..=3).all(|at| net.owner_of(at, 5).is_none()));
    assert_eq!(net.owner_of(3, 50), Some(2));
    assert!((1..=3).all(|at| net.owner_of(at, 100) == Some(1)));
    assert!(!net.bus(1).may_write(group(1)), "coverage is required");
}

#[test]
fn a_claim_with_terms_is_decided_in_time_or_never() {
    let mut net = three_primaries(0);
    let slots = || std::vec![SlotRange::new(0, 99).unwrap()];
    let take = |until| Command::Take { group: group(2), slots: slots(), until };
    assert_eq!(net.try_command(2, take(net.now())), Err(CommandError::TooLate));
    // Nobody hears of it before its time is over, and nobody does afterwards.
    net.cut(&[2], &[1, 3]);
    let until = net.now() + Duration::from_millis(300);
    net.command(2, take(until));
    net.run(400);
    let tries = net.bus(2).counters().ballots_begun;
    net.cuts.clear();
    net.run(10_000);
    assert!((1..=3).all(|at| net.owner_of(at, 50) == Some(1)));
    assert_eq!(net.bus(2).counters().ballots_begun, tries, "it has ended");
    // Slots that a third one got meanwhile are not those that it asked for.
    net.cut(&[2], &[1, 3]);
    let until = net.now() + Duration::from_secs(20);
    net.command(2, take(until));
    net.command(3, Command::Claim { group: group(3), slots: slots() });
    net.run_until(2_000, "the third one has them", |net| net.owner_of(1, 50) == Some(3));
    net.cuts.clear();
    net.run(15_000);
    assert!((1..=3).all(|at| net.owner_of(at, 50) == Some(3)));
    net.command(1, Command::Claim { group: group(1), slots: slots() });
    net.run_until(5_000, "they are back", |net| (1..=3).all(|at| net.owner_of(at, 50) == Some(1)));
    // In time it is like any other.
    let until = net.now() + Duration::from_secs(2);
    net.command(2, take(until));
    net.run_until(1_000, "all know the new owner", |net| (1..=3).all(|at| net.owner_of(at, 50) == Some(2)));
}

#[test]
fn replicas_migrate_to_orphaned_primaries() {
    let mut net = three_primaries(4);
    net.follow(4, 1);
    net.follow(5, 2);
    net.follow(6, 2);
    net.follow(7, 2);
    net.kill(4);
    net.run_until(20_000, "a replica has come", |net| net.bus(1).member(id(5)).unwrap().follows == [group(1)]);
    net.run(15_000);
    let follows = |number| net.bus(1).member(id(number)).unwrap().follows.to_vec();
    assert_eq!((follows(6), follows(7)), (std::vec![group(2)], std::vec![group(2)]), "one is enough");
}

#[test]
fn the_orphans_primary_is_not_its_own_replica() {
    let mut net = three_primaries(3);
    net.follow(4, 1);
    for replica in [1, 5, 6] {
        net.follow(replica, 2);
    }
    net.kill(4);
    net.run_until(20_000, "a replica has come", |net| net.bus(2).member(id(5)).unwrap().follows == [group(1)]);
    assert_eq!(net.bus(2).member(id(1)).unwrap().follows, [group(2)]);
}

#[test]
fn voters_change_while_everything_goes_on() {
    let mut net = three_primaries(4);
    net.follow(4, 1);
    let voters = [5, 6, 7].map(id).to_vec();
    net.command(2, Command::SetVoters { epoch: Epoch(2), voters });
    let done = |net: &Net| {
        net.running()
            .iter()
            .all(|at| net.bus(*at).voters().epoch == Epoch(2) && net.bus(*at).voters().previous.is_empty())
    };
    net.run_until(2_000, "the change is complete", done);
    net.run_until(2_000, "all agree", Net::agrees);
    // The old voters have no say any more.
    net.kill(2);
    net.kill(3);
    net.kill(1);
    net.run_until(9_000, "elected by the new voters", |net| net.primary(4, 1).0 == 4);
    assert!(net.primary(4, 1).1 > net.bus(4).voters().floor.0);
    let voters = [4].map(id).to_vec();
    assert_eq!(net.try_command(4, Command::SetVoters { epoch: Epoch(2), voters }), Err(CommandError::StaleVoters));
}

#[test]
fn a_change_of_voters_waits_for_a_majority_of_the_old_ones() {
    let mut net = three_primaries(3);
    net.follow(4, 1);
    net.cut(&[2, 3], &[1, 4, 5, 6]);
    net.run(100);
    net.command(1, Command::SetVoters { epoch: Epoch(2), voters: [4, 5, 6].map(id).to_vec() });
    net.run(3_000);
    assert_eq!(net.bus(4).voters().previous.len(), 3, "two of the old voters have not gone over");
    assert_eq!(
        net.try_command(1, Command::SetVoters { epoch: Epoch(3), voters: [4].map(id).to_vec() }),
        Err(CommandError::VotersPending)
    );
    net.kill(1);
    net.run(15_000);
    assert_eq!(net.primary(4, 1).0, 1, "neither side alone can elect");
    net.cuts.clear();
    net.run_until(15_000, "complete and elected", |net| net.bus(4).may_write(group(1)) || net.primary(4, 1).0 == 4);
    assert!(net.bus(4).voters().previous.is_empty());
}

#[test]
fn a_restarted_member_remembers() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.kill(1);
    net.run_until(9_000, "elected", |net| net.primary(2, 1).0 == 4);
    net.run(6_000);
    let before: Vec<_> = (2..=3).map(|at| (net.bus(at).voted_epoch(group(1)), net.bus(at).current_epoch())).collect();
    assert!(before.iter().any(|(voted, _)| *voted > Epoch::ZERO));
    for number in 2..=4 {
        net.kill(number);
        net.start(number);
    }
    let after: Vec<_> = (2..=3).map(|at| (net.bus(at).voted_epoch(group(1)), net.bus(at).current_epoch())).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| before.0 == after.0 && before.1 <= after.1));
    assert_eq!((net.primary(3, 1), net.bus(3).members().count()), (net.primary(4, 1), 4));
    assert!(!net.bus(4).may_write(group(1)), "nobody writes before a majority was heard");
    net.run_until(5_000, "all goes on", |net| net.bus(4).may_write(group(1)) && net.bus(2).may_write(group(2)));
    assert!(net.bus(4).member(id(4)).unwrap().incarnation == Incarnation(2));
}

#[test]
fn a_vote_is_durable_before_it_leaves() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.persist_ms = 100_000;
    net.kill(1);
    net.run(20_000);
    assert_eq!(net.primary(4, 1).0, 1);
    let voted = |net: &Net| [2, 3].iter().any(|at| net.has_event(*at, |event| matches!(event, Event::Voted { .. })));
    assert!(!voted(&net) && net.bus(4).counters().ballots_begun > 0);
    net.persist_ms = 1;
    net.run_until(120_000, "elected", |net| net.primary(4, 1).0 == 4);
    assert!(voted(&net));
}

#[test]
fn a_voter_without_memory_abstains() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.kill(2);
    net.servers.get_mut(&2).unwrap().saved = None;
    net.start(2);
    net.command(1, Command::Meet { id: id(2), address: "again".into() });
    net.run(3_000);
    net.kill(1);
    net.run(15_000);
    assert_eq!(net.primary(4, 1).0, 1, "one voter is dead, one has lost its votes");
    assert!(net.bus(4).counters().ballots_lost > 0 || net.bus(4).counters().ballots_begun == 0);
    // With a majority of those who remember, a new set counts on what there is.
    net.start(1);
    net.run_until(8_000, "all agree", Net::agrees);
    net.command(3, Command::SetVoters { epoch: Epoch(2), voters: [1, 2, 3].map(id).to_vec() });
    net.run_until(2_000, "the set is complete", |net| {
        net.bus(2).voters().epoch == Epoch(2) && net.bus(2).voters().previous.is_empty() && net.agrees()
    });
    let writer = net.primary(3, 1).0;
    net.kill(writer);
    net.kill(if writer == 1 { 3 } else { 1 });
    net.start(if writer == 1 { 3 } else { 1 });
    net.run_until(12_000, "elected with the vote of the one that lost its memory", |net| net.primary(2, 1).0 != writer);
}

#[test]
fn slots_that_move_together_out_of_one_group_all_arrive() {
    let mut net = three_primaries(0);
    for round in 0..20_u16 {
        // Both take from the first group, whose owner trims its claim meanwhile.
        let slots = |first| std::vec![SlotRange::new(first, first + 9).unwrap()];
        let (one, other) = (round * 40, round * 40 + 20);
        net.command(2, Command::Claim { group: group(2), slots: slots(one) });
        net.run(u64::from(round));
        let now = net.now();
        net.servers.get_mut(&1).unwrap().bus.as_mut().unwrap().trim_overlapped(now);
        net.drain(1);
        net.command(3, Command::Claim { group: group(3), slots: slots(other) });
        net.run_until(5_000, "both have arrived, and nothing is under way", |net| {
            let arrived = (1..=3).all(|at| net.owner_of(at, one) == Some(2) && net.owner_of(at, other) == Some(3));
            arrived && net.agrees() && (1..=3).all(|at| net.bus(at).ballots.is_empty())
        });
    }
    net.run(2_000);
    let arrived = |round: &u16| net.owner_of(1, round * 40) == Some(2) && net.owner_of(1, round * 40 + 20) == Some(3);
    assert!((0..20).all(|round| arrived(&round)));
}

#[test]
fn two_that_take_slots_of_each_other_both_get_them() {
    for round in 0..20_u16 {
        // Neither has a majority without the other's vote, and each votes for itself first.
        let mut net = three_primaries(0);
        net.kill(3);
        net.run_until(9_000, "two are left", |net| net.bus(1).member(id(3)).unwrap().health == Health::Failed);
        let take = |number, first: u16| Command::Claim {
            group: group(number),
            slots: std::vec![SlotRange::new(first + round, first + round + 9).unwrap()],
        };
        net.command(1, take(1, 6_000));
        net.command(2, take(2, 1_000));
        net.run_until(15_000, "both have what they wanted", |net| {
            [1, 2]
                .iter()
                .all(|at| net.owner_of(*at, 6_005 + round) == Some(1) && net.owner_of(*at, 1_005 + round) == Some(2))
        });
    }
}

#[test]
fn ballots_that_another_has_decided_end() {
    // A wish of a primary whose place a replica has taken meanwhile.
    let mut net = three_primaries(2);
    net.follow(4, 1);
    net.follow(5, 1);
    net.cut(&[1], &[2, 3, 4, 5]);
    net.command(1, Command::Claim { group: group(1), slots: std::vec![SlotRange::new(6_000, 6_009).unwrap()] });
    net.run_until(20_000, "a replica has taken over", |net| net.primary(2, 1).0 != 1);
    assert!(!net.bus(1).ballots.is_empty());
    net.cuts.clear();
    net.run_until(20_000, "all agree", |net| net.agrees());
    assert!(
        (1..=5).all(|at| net.bus(at).ballots.is_empty()),
        "of the old primary, and of the replica that did not win"
    );
    assert_eq!(net.owner_of(2, 6_005), Some(2));
    // A replica that an operator chose, while the other one was chosen too.
    let (one, two) = if net.primary(2, 1).0 == 4 { (1, 5) } else { (1, 4) };
    net.cut(&[one], &[2, 3]);
    net.run_until(10_000, "both follow", |net| {
        [one, two].iter().all(|at| net.bus(*at).places[&group(1)].role == Role::Replica)
    });
    net.command(one, Command::Failover { group: group(1), how: How::Forced });
    net.command(two, Command::Failover { group: group(1), how: How::Forced });
    net.run_until(10_000, "one of them is primary", |net| net.primary(2, 1).0 == two);
    assert!(net.bus(one).ballots.len() <= 1);
    net.cuts.clear();
    net.run_until(20_000, "all agree", |net| net.agrees());
    assert!((1..=5).all(|at| net.bus(at).ballots.is_empty()));
    assert_eq!(net.primary(one, 1).0, two);
}

#[test]
fn an_operators_choice_goes_on_when_the_old_primary_is_back() {
    let mut net = three_primaries(2);
    net.follow(4, 1);
    // The replica hears of failures, and that they are over, but no voter hears from it.
    net.cut(&[4], &[2, 3]);
    net.kill(1);
    let health = |net: &Net| net.bus(4).member(id(1)).unwrap().health;
    net.run_until(20_000, "so the replica knows", |net| health(net) == Health::Failed);
    net.command(4, Command::Failover { group: group(1), how: How::Forced });
    net.start(1);
    net.cut(&[4], &[1]);
    net.run_until(20_000, "the old primary lives", |net| health(net) == Health::Alive);
    net.run(5_000);
    assert_eq!(net.primary(2, 1).0, 1);
    net.cuts.clear();
    net.run_until(20_000, "the replica has its place", |net| net.primary(2, 1).0 == 4);
}

/// Voters held the first vote, by which slots went away, against whoever kept them by a later claim.
#[test]
fn slots_that_came_back_do_not_keep_a_replica_from_its_place() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    for (number, owner) in [(2, 2), (1, 1)] {
        let slots = std::vec![SlotRange::new(0, 99).unwrap()];
        net.command(number, Command::Claim { group: group(u64::from(number)), slots });
        net.run_until(1_000, "they moved", |net| (1..=4).all(|at| net.owner_of(at, 50) == Some(owner)));
    }
    net.command(4, Command::Failover { group: group(1), how: How::Forced });
    let took = net.run_until(1_000, "the replica has taken over", |net| net.primary(4, 1).0 == 4);
    assert!(took <= 200, "{took}");
    net.run_until(1_000, "all know", |net| (1..=3).all(|at| net.owner_of(at, 50) == Some(4)));
}

/// Two that take slots of each other, each bound by its vote for the other, asked for votes that bound everybody for nothing: their own
/// was missing.
#[test]
fn votes_for_slots_are_not_asked_for_without_the_own_one() {
    let mut net = three_primaries(0);
    // No vote arrives.
    net.persist_ms = 100_000;
    let take = |number: u8, first: u16| Command::Claim {
        group: group(number.into()),
        slots: std::vec![SlotRange::new(first, first + 9).unwrap()],
    };
    net.cut(&[2], &[3]);
    net.command(2, take(2, 1_000));
    net.run(10);
    net.kill(2);
    let given = |net: &Net| net.bus(3).votes.epoch(group(1));
    let before = given(&net);
    assert!(net.bus(1).votes.epoch(group(2)) > before, "it is bound by its vote");
    net.command(1, take(1, 12_000));
    net.run(1_500);
    assert!(net.bus(1).counters().ballots_begun > 0 && given(&net) == before);
    net.run_until(3_000, "it is bound no more", |net| given(net) > before);
}

#[test]
fn a_lone_server_serves_everything() {
    let mut net = Net::new(1);
    net.command(1, Command::Claim { group: group(1), slots: std::vec![SlotRange::ALL] });
    net.run_until(5_000, "it may write", |net| net.bus(1).may_write(group(1)));
    net.run(60_000);
    assert!(net.bus(1).may_write(group(1)));
    net.kill(1);
    net.start(1);
    net.run_until(2_000, "it may write again", |net| net.bus(1).may_write(group(1)));
}

#[test]
fn a_claim_that_few_heard_of_is_soon_known_to_all() {
    let probe_interval = Duration::from_millis(50);
    let config = Config { member_timeout: Duration::from_secs(1), probe_interval, ..Config::default() };
    let mut longest = 0;
    for seed in 0..50 {
        let mut net = Net::with(5, config.clone());
        net.chance = Chance::new(seed);
        net.introduce();
        net.share_slots(&[1, 2, 3], &[1, 2, 3]);
        net.follow(4, 1);
        net.follow(5, 2);
        let while_ms = net.chance.below(1_000);
        net.run(while_ms.try_into().unwrap());
        net.cut(&[1, 3], &[2, 4, 5]);
        let slots = std::vec![SlotRange::new(6_000, 7_000).unwrap()];
        net.command(1, Command::Claim { group: group(1), slots });
        net.run_until(500, "two of three are enough", |net| net.owner_of(3, 6_500) == Some(1));
        assert_eq!(net.owner_of(2, 6_500), Some(2));
        net.run(100);
        net.kill(1);
        net.start(1);
        // Nobody tells of it any more.
        for number in [1, 3] {
            net.servers.get_mut(&number).unwrap().bus.as_mut().unwrap().gossip = crate::gossip::Gossip::default();
        }
        net.cuts.clear();
        longest =
            longest.max(net.run_until(60_000, "all agree", |net| {
                net.running().iter().all(|at| net.owner_of(*at, 6_500) == Some(1))
            }));
    }
    assert!(longest <= 2_500, "{longest}");
}

#[test]
fn a_renewed_claim_is_greater_than_one_that_nobody_has_heard_of() {
    let mut net = three_primaries(0);
    net.cut(&[1], &[2]);
    let won = net.bus(1).counters().ballots_won;
    let slots = std::vec![SlotRange::new(6_000, 6_100).unwrap()];
    net.command(1, Command::Claim { group: group(1), slots });
    net.run_until(1_000, "1 and 3 are enough", |net| net.bus(1).counters().ballots_won > won);
    net.cut(&[1], &[3]);
    net.run_until(100, "the claim is stored", |net| net.owner_of(1, 6_050) == Some(1));
    net.kill(1);
    // What was voted for a moment ago is taken for claimed; that passes.
    net.run(3_000);
    assert_eq!([2, 3].map(|at| net.owner_of(at, 6_050)), [Some(2); 2]);
    let before = net.primary(2, 2).1;
    net.command(2, Command::Claim { group: group(2), slots: std::vec![] });
    net.run_until(3_000, "the claim is renewed", |net| net.primary(2, 2).1 > before);
    net.start(1);
    net.cuts.clear();
    net.run_until(5_000, "1 is back", Net::agrees);
    net.run(2_000);
    assert_eq!([1, 2, 3].map(|at| net.owner_of(at, 6_050)), [Some(2); 3], "what 2 has served since is not lost");
}

#[test]
fn a_replica_that_is_killed_soon_after_it_began_to_follow_stands_later() {
    let mut net = three_primaries(1);
    net.command(4, Command::Follow { group: group(1) });
    net.run(50);
    net.kill(4);
    net.start(4);
    net.run_until(3_000, "it is back", |net| net.agrees() && net.bus(1).member(id(4)).unwrap().follows == [group(1)]);
    net.command(4, Command::Offset { group: group(1), offset: 0, copy: CopyState::Current });
    net.kill(1);
    net.run_until(9_000, "it may write", |net| net.writer(1) == Some(4));
}

#[test]
fn a_replica_without_a_whole_copy_does_not_stand_until_it_has_one() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.kill(4);
    net.start(4);
    net.run_until(3_000, "it is back", |net| net.agrees() && net.bus(1).member(id(4)).unwrap().follows == [group(1)]);
    net.kill(1);
    net.run(20_000);
    let why = |why| move |event: &Event| *event == Event::NotStanding { group: group(1), why };
    assert!(net.has_event(4, why(Unfit::NoCopy)));
    assert!(!net.has_event(4, |event| matches!(event, Event::Standing { .. })));
    // An operator may decide otherwise.
    net.command(4, Command::Failover { group: group(1), how: How::Takeover });
    net.run_until(3_000, "it may write", |net| net.writer(1) == Some(4));
}

#[test]
fn a_replica_that_was_long_cut_off_does_not_stand() {
    for (age_ms, stands) in [(29_000, true), (36_000, false)] {
        let config = Config {
            member_timeout: Duration::from_secs(2),
            copy_age_max: Some(Duration::from_secs(30)),
            ..Config::default()
        };
        let mut net = Net::with(4, config);
        net.introduce();
        net.share_slots(&[1, 2, 3], &[1, 2, 3]);
        net.follow(4, 1);
        let since = net.now();
        net.command(4, Command::Offset { group: group(1), offset: 7, copy: CopyState::Since(since) });
        net.cut(&[4], &[1]);
        // The failure becomes known some two seconds after the death.
        net.run(age_ms - 2_500);
        net.kill(1);
        net.run(6_000);
        assert_eq!(net.writer(1), stands.then_some(4), "{age_ms}");
        let is_stale = |event: &Event| matches!(event, Event::NotStanding { why: Unfit::Stale { .. }, .. });
        assert_eq!(net.has_event(4, is_stale), !stands, "{age_ms}");
        // It stays so.
        net.run(60_000);
        assert_eq!(net.writer(1), stands.then_some(4), "{age_ms}");
    }
}

#[test]
fn a_copy_that_becomes_whole_after_the_failure_stands_then() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.command(4, Command::Offset { group: group(1), offset: 0, copy: CopyState::Missing });
    net.kill(1);
    net.run(9_000);
    assert_eq!(net.writer(1), None);
    net.command(4, Command::Offset { group: group(1), offset: 9, copy: CopyState::Current });
    net.run_until(2_000, "it may write", |net| net.writer(1) == Some(4));
}

#[test]
fn a_handover_to_a_replica_without_a_copy_does_not_happen() {
    let mut net = three_primaries(1);
    net.follow(4, 1);
    net.command(4, Command::Offset { group: group(1), offset: 0, copy: CopyState::Missing });
    net.command(4, Command::Failover { group: group(1), how: How::Agreed });
    net.run(100);
    net.command(1, Command::Paused { group: group(1) });
    net.run(7_000);
    assert_eq!(net.writer(1), Some(1), "both are at offset 0, but the one has all data and the other none");
}
