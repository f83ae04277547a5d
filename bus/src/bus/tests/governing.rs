//! Who votes, as one member hears, sets and chooses it.

use super::single::*;
use super::*;
use crate::event::CommandError;
use crate::member::{Description, MemberRecord};
use crate::packet::{Beat, Body, CHOICE, EPOCH_MAX, Purpose};
use crate::voters::{Origin, VoterSet};

fn hear(single: &mut Single, set: &VoterSet) {
    single.bus.hear_voters(single.now(), set, false);
    single.drain();
}

#[test]
fn other_voters_begin_with_nothing_and_ask_each_other_at_once() {
    let age = |single: &Single| single.bus.beat_for(id(2), single.now()).quorum_age;
    // (own number, the next voters), then who is asked.
    for (own, voters, asked) in [(1, &[1, 2, 4][..], &[2, 4][..]), (5, &[1, 2, 4], &[])] {
        let mut single = Single::setup(own, 6, &[1, 2, 3], &[]);
        single.bus.reach.handle_age(single.now(), 0);
        single.take_sent();
        let next = VoterSet { epoch: Epoch(3), after: Epoch(2), ..told(voters, &[]) };
        single.silent = (1..=6).collect();
        hear(&mut single, &next);
        assert_eq!((single.probed(), age(&single)), (asked.into(), Beat::AGE_MAX), "{own}");
        // The same set with a higher floor changes nothing of that.
        single.bus.reach.handle_age(single.now(), 0);
        hear(&mut single, &VoterSet { floor: Epoch(7), ..next.clone() });
        assert_eq!((single.probed(), age(&single), single.bus.voters().floor), ([].into(), 0, Epoch(7)), "{own}");
        // Another set of the same epoch, and an earlier one, move nothing.
        let refused = single.bus.counters().refused_unentitled;
        hear(&mut single, &VoterSet { voters: [id(6)].into(), ..next.clone() });
        assert_eq!(single.bus.counters().refused_unentitled, refused + 1);
        hear(&mut single, &told(&[6], &[]));
        assert_eq!(single.bus.counters().refused_unentitled, refused + 1);
        assert_eq!(single.bus.voters().voters, voters.iter().map(|number| id(*number)).collect::<Vec<_>>());
    }
}

#[test]
fn going_over_is_told_again_and_again_once_that_very_set_is_stored() {
    let mut single = Single::setup(1, 6, &[1, 2, 3], &[]);
    single.stores = false;
    let adopted = |body: &Body| matches!(body, Body::Adopted(_));
    let next = VoterSet { epoch: Epoch(3), after: Epoch(2), ..told(&[1, 4, 5], &[1, 2, 3]) };
    let last = VoterSet { epoch: Epoch(4), after: Epoch(3), ..told(&[1, 4, 6], &[1, 4, 5]) };
    hear(&mut single, &next);
    hear(&mut single, &last);
    single.store();
    assert_eq!(single.sent_to(adopted), [], "only the one before is stored");
    single.store();
    assert_eq!(single.sent_to(adopted), [4, 5, 6]);
    single.stores = true;
    for ms in [499, 1, 499, 1] {
        single.pass(ms);
        assert_eq!(single.sent_to(adopted), if ms == 1 { &[4, 5, 6][..] } else { &[] });
    }
    hear(&mut single, &VoterSet { previous: [].into(), ..last });
    single.pass(2_000);
    assert_eq!(single.sent_to(adopted), [], "it is complete");
}

#[test]
fn a_voter_that_lost_its_memory_tells_an_epoch_beyond_any_that_it_can_have_voted_in() {
    for (memory_since, least, from) in [(1, 0, Epoch::ZERO), (2, 1 << 32, Epoch(3))] {
        let mut single = Single::setup(1, 6, &[1, 2, 3], &[]);
        single.bus.memory_since = Incarnation(memory_since);
        hear(&mut single, &VoterSet { epoch: Epoch(3), after: Epoch(2), ..told(&[1, 4, 5], &[1, 2, 3]) });
        let sent = single.take_sent();
        let told = sent.iter().find_map(|(_, body)| if let Body::Adopted(told) = body { Some(*told) } else { None });
        let told = told.expect("it goes over all the same");
        assert_eq!((told.known, told.from), (Epoch(single.bus.current_epoch().0 + least), from), "{memory_since}");
    }
}

#[test]
fn voters_that_are_set_are_checked() {
    let mut single = Single::setup(1, 6, &[], &[]);
    single.join(MemberRecord {
        description: Description {
            revision: 1,
            memory_since: Incarnation(3),
            incarnation: Incarnation(3),
            ..record(4, &[]).description
        },
        ..record(4, &[])
    });
    single.bus.config.voters_max = 3;
    let set = |single: &mut Single, epoch, voters: &[u8]| {
        let voters = voters.iter().map(|number| id(*number)).collect();
        single.bus.handle_command(single.now(), Command::SetVoters { epoch, voters })
    };
    for (epoch, voters) in [
        (Epoch(5), &[][..]),
        (Epoch(5), &[1, 2, 3, 4]),
        (Epoch(5), &[2, 1, 2]),
        (EPOCH_MAX.next(), &[1, 2]),
        (Epoch::ZERO, &[1, 2]),
    ] {
        assert_eq!(set(&mut single, epoch, voters), Err(CommandError::BadVoters), "{epoch:?} {voters:?}");
    }
    assert_eq!(single.bus.voters().voters, []);
    assert_eq!(set(&mut single, Epoch(5), &[4, 2, 1]), Ok(()));
    assert_eq!(single.bus.voters().voters, [1, 2, 4].map(id));
    assert_eq!(single.bus.voters().forgetful, [(id(4), Incarnation(3))], "with what memory it has");
    assert_eq!(set(&mut single, Epoch(5), &[1, 2, 4]), Ok(()), "it is so already");
    assert_eq!(set(&mut single, Epoch(6), &[1, 2, 9]), Err(CommandError::UnknownMember));
    assert_eq!(set(&mut single, EPOCH_MAX, &[1]), Ok(()));
}

/// Whether server 1, the first voter, begins a ballot about other voters: `members` there are, `owners` of them lead groups,
/// `failed` have failed, and up to three vote.
fn chooses(members: u8, voters: &[u8], owners: &[u8], failed: &[u8], change: fn(&mut Single)) -> bool {
    let mut single = Single::setup(1, members, &[], owners);
    single.bus.config.voters_chosen_max = 3;
    hear(&mut single, &VoterSet { origin: Origin::Chosen, ..told(voters, &[]) });
    failed.iter().for_each(|number| single.life(*number, 0, true));
    change(&mut single);
    single.drain();
    single.take_sent();
    single.pass(2_500);
    let is_choice = |body: &Body| matches!(body, Body::Request(request) if request.purpose == Purpose::Voters);
    assert!(single.bus.standing.held_since.is_some());
    let asks = !single.sent_to(is_choice).is_empty();
    assert_eq!(asks, single.bus.ballots.contains_key(&CHOICE));
    asks
}

#[test]
fn voters_are_chosen_anew_where_others_are_better() {
    let none: fn(&mut Single) = |_| ();
    assert!(!chooses(5, &[1, 2, 3], &[], &[], none), "as anybody would choose");
    assert!(!chooses(5, &[1, 2, 5], &[], &[], none), "others are no better");
    assert!(chooses(3, &[1, 2], &[], &[], none), "another one makes them three");
    assert!(chooses(5, &[1, 2, 5], &[4], &[], none), "who owns slots votes");
    assert!(!chooses(5, &[1, 2, 4], &[4], &[], none));
    assert!(!chooses(5, &[1, 2, 5], &[2, 3, 4, 5], &[], none), "not all owners can");
    assert!(chooses(5, &[1, 2, 5], &[], &[5], none), "one has failed");
    assert!(!chooses(5, &[1, 2, 5], &[4], &[4], none), "an owner that has failed does not vote");
    let forget: fn(&mut Single) = |single| {
        let description = Description {
            revision: 1,
            memory_since: Incarnation(3),
            incarnation: Incarnation(3),
            ..record(2, &[]).description
        };
        single.join(MemberRecord { description, ..record(2, &[]) });
    };
    assert!(chooses(5, &[1, 2, 3], &[], &[], forget), "one has lost its memory");
    // Where fewer than three are left, those that are away stay voters.
    assert!(!chooses(3, &[1, 2, 3], &[], &[3], none));
    assert!(chooses(3, &[1, 2, 9], &[], &[], none), "one is no member any more");
}

#[test]
fn a_choice_that_is_no_later_one_is_none() {
    let mut single = Single::setup(1, 5, &[1, 2, 3], &[]);
    for (epoch, expected) in [(1, 2), (2, 2), (3, 3)] {
        single.bus.choose(single.now(), Epoch(epoch));
        single.drain();
        let voters = single.bus.voters();
        assert_eq!((voters.epoch, voters.previous.is_empty()), (Epoch(expected), epoch < 3), "{epoch}");
    }
}

#[test]
fn those_that_may_not_go_over_to_a_choice_make_another_one_at_different_times() {
    let times: Vec<u64> = (0..20)
        .map(|seed| {
            let mut single = Single::setup(3, 5, &[], &[]);
            single.bus.reseed(seed);
            let set = VoterSet { origin: Origin::Chosen, ..told(&[1, 2, 3], &[]) };
            hear(&mut single, &set);
            single.pass(3_000);
            assert!(!single.bus.ballots.contains_key(&CHOICE), "others come first");
            single.bus.votes.restore(CHOICE, crate::ballot::Given { epoch: Epoch(9), candidate: id(2) });
            let refused = single.bus.counters().refused_unentitled;
            hear(&mut single, &VoterSet { epoch: Epoch(3), after: Epoch(2), previous: set.voters.clone(), ..set });
            assert_eq!((single.bus.voters().epoch, single.bus.counters().refused_unentitled), (Epoch(2), refused + 1));
            let start = single.ms;
            while !single.bus.ballots.contains_key(&CHOICE) {
                assert!(single.ms < start + 7_000);
                single.pass(10);
            }
            single.ms - start
        })
        .collect();
    assert!(times.iter().all(|ms| (2_000..=6_010).contains(ms)), "{times:?}");
    assert!(times.iter().any(|ms| *ms < 3_000) && times.iter().any(|ms| *ms > 5_000), "{times:?}");
}
