//! How one member stands, asks for votes, gives its own, and takes in claims, packet by packet.

use super::single::*;
use super::*;
use crate::ballot::Phase;
use crate::claim::Claim;
use crate::event::{Departure, Role, Unfit};
use crate::member::{Description, MemberRecord};
use crate::packet::{Body, CHOICE, News, Purpose, Reason, Vote, VoteRequest};
use crate::slot::SlotSet;

const G: GroupId = group(1);

/// Server 4 among servers 1 to 8, with a current copy of group 1, which server 1 leads; servers 5 to `last` follow it as well.
fn replica_with(last: u8, voters: &[u8]) -> Single {
    let mut single = Single::setup(4, 8, voters, &[1, 2, 3]);
    for number in 5..=last {
        follow(&mut single, number);
    }
    single.command(Command::Follow { group: G });
    single.command(Command::Offset { group: G, offset: 7, copy: CopyState::Current });
    single.pass(100);
    single.take_sent();
    single.events.clear();
    single
}

fn replica(last: u8) -> Single {
    replica_with(last, &[1, 2, 3])
}

fn follow(single: &mut Single, number: u8) {
    let description = Description { revision: 1, ..record(number, &[1]).description };
    single.join(MemberRecord { description, ..record(number, &[]) });
}

fn stand(base: u64, offset: u64) -> Body {
    Body::Stand { group: G, base: Epoch(base), offset }
}

fn requests(single: &mut Single) -> Vec<VoteRequest> {
    let sent = single.take_sent().into_iter();
    sent.filter_map(|(_, body)| if let Body::Request(request) = body { Some(request) } else { None }).collect()
}

fn stands(single: &Single) -> bool {
    single.bus.ballots.get(&G).is_some_and(|ballot| ballot.purpose == Purpose::Election)
}

/// Until when it waits before it asks for votes, ms from now; nothing if it does not wait.
fn waits(single: &Single) -> Option<u64> {
    let phase = single.bus.ballots.get(&G)?.phase;
    let (Phase::Waiting(at) | Phase::Hearing(at)) = phase else { return None };
    u64::try_from(at.saturating_since(single.now()).as_millis()).ok()
}

#[test]
fn a_replica_stands_where_it_may_and_its_primary_has_failed() {
    type Change = fn(&mut Single);
    let cases: [(&str, bool, Change); 9] = [
        ("it may", true, |_| ()),
        ("it is told not to", false, |single| single.bus.config.stands = false),
        ("it is about to stop", false, |single| single.command(Command::Depart(Departure::Leaves))),
        ("nothing is left to lead", false, |single| {
            let claim = Claim { group: group(2), owner: id(2), epoch: Epoch(4), slots: slots(100, 299) };
            single.hear(2, &Body::News([News::Claim(claim)].into()));
        }),
        ("it has left the group", false, |single| single.command(Command::Unfollow { group: G })),
        ("an operator has chosen it", false, |single| {
            single.command(Command::Failover { group: G, how: crate::event::How::Forced });
            single.bus.ballots.get_mut(&G).unwrap().purpose = Purpose::Election;
        }),
        ("its copy is as old as it may be", true, |single| {
            let copy = CopyState::Since(single.ago(165_000));
            single.command(Command::Offset { group: G, offset: 7, copy });
        }),
        ("its copy is older", false, |single| {
            let copy = CopyState::Since(single.ago(165_001));
            single.command(Command::Offset { group: G, offset: 7, copy });
        }),
        ("its copy is gone", false, |single| {
            single.command(Command::Offset { group: G, offset: 7, copy: CopyState::Missing });
        }),
    ];
    for (name, expected, change) in cases {
        let mut single = replica(6);
        change(&mut single);
        single.take_sent();
        single.life(1, 0, true);
        assert_eq!(
            single.sent_to(|body| matches!(body, Body::Stand { .. })),
            if expected { &[5, 6][..] } else { &[] },
            "{name}"
        );
    }
}

#[test]
fn a_replica_stands_against_nobody_who_is_only_suspected_or_unknown() {
    let copy = |copy| Command::Offset { group: G, offset: 7, copy };
    let mut single = replica(6);
    single.bus.members.get_mut(id(1)).unwrap().opinion = crate::member::Opinion::Suspected;
    single.command(copy(CopyState::Missing));
    single.command(copy(CopyState::Current));
    assert!(!stands(&single), "it is suspected");
    single.claim(1, 77, 4);
    single.command(copy(CopyState::Missing));
    single.command(copy(CopyState::Current));
    assert!(!stands(&single), "nobody knows it here, and nobody has forgotten it");
    // A primary that is known to have failed already.
    single.life(8, 0, true);
    single.claim(1, 8, 6);
    assert!(stands(&single));
    single.take_sent();
    single.bus.stand_if_failed(single.now(), G);
    single.drain();
    assert_eq!(single.sent_to(|body| matches!(body, Body::Stand { .. })), [], "once");
}

#[test]
fn an_election_ends_when_that_very_primary_is_back() {
    let mut single = replica(4);
    [1, 8].into_iter().for_each(|number| single.life(number, 0, true));
    for (number, goes_on) in [(8, true), (1, false)] {
        single.life(number, 1, false);
        assert_eq!(stands(&single), goes_on, "{number}");
    }
}

#[test]
fn replicas_hear_each_other_and_stand_by_rank() {
    // What the fellow tells before the failure and behind it, and when the first vote is asked for.
    let cases = [
        (None, None, 60),
        (Some(stand(2, 9)), None, 200),
        (Some(stand(2, 5)), None, 0),
        (Some(stand(1, 9)), None, 60),
        (None, Some(stand(2, 9)), 200),
        (None, Some(stand(2, 5)), 0),
        // Of equals the one goes first whose zone has fewer living primaries: server 1 has failed.
        (None, Some(stand(2, 7)), 0),
    ];
    for (before, behind, expected) in cases {
        let mut single = replica(5);
        before.iter().for_each(|body| single.hear(5, body));
        single.life(1, 0, true);
        behind.iter().for_each(|body| single.hear(5, body));
        let start = single.ms;
        while !single.events.iter().any(|event| matches!(event, Event::Standing { .. })) {
            assert!(single.ms < start + 1_000);
            single.pass(1);
        }
        let took = (single.ms - start).saturating_sub(u64::from(expected == 0));
        assert_eq!(took, expected, "{before:?}, {behind:?}");
    }
}

#[test]
fn a_replica_tells_its_fellows_once_how_much_it_has() {
    let cases: [(u8, u64, CopyState, bool, Option<u64>); 6] = [
        (5, 2, CopyState::Current, false, Some(7)),
        (5, 2, CopyState::Missing, false, Some(0)),
        (5, 2, CopyState::Current, true, Some(0)),
        (5, 1, CopyState::Current, false, None),
        (8, 2, CopyState::Current, false, None),
        (5, 4, CopyState::Current, false, None),
    ];
    for (from, base, copy, is_unfit, expected) in cases {
        let mut single = replica(6);
        single.command(Command::Offset { group: G, offset: 7, copy });
        if is_unfit {
            single.bus.places.get_mut(&G).unwrap().unfit = Some((Epoch(2), Unfit::NoCopy));
        }
        single.take_sent();
        let refused = single.bus.counters().refused_unentitled;
        single.hear(from, &stand(base, 3));
        let case = format!("{from} {base} {copy:?} {is_unfit}");
        assert_eq!(
            single.take_sent(),
            expected.map(|offset| (from, stand(base, offset))).into_iter().collect::<Vec<_>>(),
            "{case}"
        );
        assert_eq!(single.bus.counters().refused_unentitled - refused, u64::from(from == 8), "{case}");
        single.hear(from, &stand(base, 4));
        assert_eq!(single.take_sent(), [], "{case}");
    }
    let mut bystander = Single::setup(4, 8, &[1, 2, 3], &[1, 2, 3]);
    follow(&mut bystander, 5);
    bystander.hear(5, &stand(2, 3));
    assert_eq!(bystander.bus.counters().refused_unentitled, 1);
}

#[test]
fn an_election_ends_with_the_copy_and_an_operators_choice_does_not() {
    for (purpose, copy, ends) in [
        (Purpose::Election, CopyState::Missing, true),
        (Purpose::ByHand, CopyState::Missing, false),
        (Purpose::Election, CopyState::Since(Instant::from_nanos(1)), true),
        (Purpose::ByHand, CopyState::Since(Instant::from_nanos(1)), false),
        (Purpose::Election, CopyState::Current, false),
    ] {
        let mut single = replica(4);
        single.life(1, 0, true);
        single.pass(10);
        let ballot = single.bus.ballots.get_mut(&G).unwrap();
        ballot.purpose = purpose;
        let epoch = ballot.epoch;
        single.command(Command::Offset { group: G, offset: 7, copy });
        let goes_on = single.bus.ballots.get(&G).map(|ballot| ballot.epoch);
        assert_eq!(goes_on, (copy != CopyState::Missing || !ends).then_some(epoch), "{purpose:?} {copy:?}");
        single.pass(2_000);
        assert_eq!(!single.bus.ballots.contains_key(&G), ends, "{purpose:?} {copy:?}");
        let tells = single.events.iter().any(|event| matches!(event, Event::NotStanding { .. }));
        assert_eq!(tells, copy != CopyState::Current, "{purpose:?} {copy:?}");
    }
    // What is won is won.
    let mut single = replica(4);
    single.life(1, 0, true);
    single.pass(10);
    single.stores = false;
    let epoch = requests(&mut single)[0].epoch;
    [2, 3].into_iter().for_each(|from| single.hear(from, &granted(epoch)));
    single.command(Command::Offset { group: G, offset: 7, copy: CopyState::Missing });
    assert_eq!(single.bus.ballots[&G].phase, Phase::Won);
}

fn granted(epoch: Epoch) -> Body {
    Body::Vote(Vote { group: G, epoch, refused: None, known: Epoch::ZERO })
}

#[test]
fn the_winner_tells_all_that_live_and_follows_the_order_of_storing() {
    let mut single = replica(5);
    single.life(8, 0, true);
    single.life(1, 0, true);
    single.pass(70);
    let epoch = requests(&mut single)[0].epoch;
    let refused = single.bus.counters().refused_unasked;
    single.hear(2, &granted(Epoch(epoch.0 + 2)));
    assert_eq!(single.bus.counters().refused_unasked - refused, 1, "nobody asked in that epoch");
    single.hear(2, &granted(epoch));
    assert_eq!(single.bus.primary(G), Some((id(1), Epoch(2))));
    single.hear(3, &granted(epoch));
    assert_eq!(single.bus.primary(G), Some((id(4), epoch)));
    let told = single.sent_to(
        |body| matches!(body, Body::News(news) if matches!(&news[0], News::Claim(claim) if claim.owner == id(4))),
    );
    assert_eq!(told, [1, 2, 3, 5, 6, 7], "the old primary too, since it may live after all");
    let counters = single.bus.counters();
    assert_eq!((counters.ballots_begun, counters.ballots_won, counters.time_to_ballot.count), (1, 1, 1));
}

#[test]
fn each_attempt_waits_twice_as_long_for_votes() {
    let mut single = replica(4);
    single.life(1, 0, true);
    let (mut begun, mut known) = (Vec::new(), 0);
    while begun.len() < 9 {
        single.pass(1);
        let attempts = single.bus.counters().ballots_begun;
        if attempts > known {
            (known, _) = (attempts, begun.push(single.ms));
            assert_eq!(single.bus.counters().ballots_lost, attempts - 1);
        }
    }
    let votes = [500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000, 8_000];
    let excess: Vec<u64> = begun.windows(2).zip(votes).map(|(pair, wait)| pair[1] - pair[0] - wait).collect();
    let is_within = |(attempts, excess): (u64, &u64)| (30..=31 + 150 * attempts).contains(excess);
    assert!((1..).zip(&excess).all(is_within) && excess[4..].iter().any(|excess| *excess > 180), "{excess:?}");
    // Without voters nobody can be asked, and nothing is lost.
    let mut single = replica_with(4, &[]);
    single.life(1, 0, true);
    single.pass(1_000);
    let counters = single.bus.counters();
    assert!(stands(&single) && waits(&single).is_some_and(|wait| wait <= 180));
    assert_eq!((counters.ballots_begun, counters.ballots_lost), (0, 0));
    // With them it begins at once.
    let now = single.now();
    single.bus.hear_voters(now, &told(&[1, 2, 3], &[]), false);
    single.pass(180);
    assert_eq!(single.bus.counters().ballots_begun, 1);
    single.take_sent();
    single.bus.hear_voters(
        single.now(),
        &crate::voters::VoterSet { epoch: Epoch(3), after: Epoch(2), ..told(&[2, 3, 6], &[]) },
        false,
    );
    single.pass(0);
    assert_eq!(requests(&mut single).first().map(|request| request.voters), Some(single.bus.voters.fingerprint()));
}

#[test]
fn an_own_vote_that_is_stored_late_does_not_count() {
    let mut single = Single::setup(1, 3, &[1], &[]);
    single.stores = false;
    let begun = single.bus.counters().votes_given;
    single.command(Command::Claim { group: G, slots: [SlotRange::new(0, 9).unwrap()].into() });
    single.pass(510);
    assert!(waits(&single).is_some(), "the time for votes is over");
    single.store();
    single.store();
    assert_eq!(single.bus.primary(G), None);
    single.stores = true;
    single.pass(500);
    assert_eq!(single.bus.primary(G).map(|(owner, _)| owner), Some(id(1)));
    assert!(single.bus.counters().votes_given - begun >= 2);
}

#[test]
fn a_claim_with_terms_ends_when_they_are_not_met() {
    for changes in [true, false] {
        let mut single = Single::setup(4, 8, &[1, 2, 3], &[1, 2, 3]);
        let until = single.now() + Duration::from_secs(2);
        single.command(Command::Take { group: group(4), slots: [SlotRange::new(150, 159).unwrap()].into(), until });
        single.pass(100);
        assert!(!single.bus.ballots.is_empty());
        if changes {
            single.claim(1, 2, 4);
            single.pass(1_500);
        } else {
            single.pass(5_000);
        }
        assert!(single.bus.ballots.is_empty(), "{changes}");
    }
}

fn news(body: &Body) -> &[News] {
    if let Body::News(news) = body { news } else { &[] }
}

/// Server 1, which votes with 2 and 3, as a request of each sort comes; what it answers, and what it tells beside that.
#[test]
fn a_refusal_says_which_epoch_is_known_and_what_the_candidate_lacks() {
    let mut single = Single::setup(1, 8, &[1, 2, 3], &[2, 3]);
    single.claim(1, 1, 10);
    let description = Description { revision: 1, ..record(5, &[3]).description };
    single.join(MemberRecord { description, ..record(5, &[]) });
    let voters = single.bus.voters.fingerprint();
    let request = |number, purpose, epoch, taken: SlotSet| VoteRequest {
        group: group(number),
        purpose,
        epoch: Epoch(epoch),
        base: Epoch(2),
        voters,
        offset: 0,
        failed: None,
        slots: slots(u16::try_from(number).unwrap() * 100, u16::try_from(number).unwrap() * 100 + 99).union(&taken),
        taken,
    };
    let (keep, more, other) = (SlotSet::EMPTY, slots(900, 909), slots(100, 109));
    let election = request(3, Purpose::Election, 8, keep.clone());
    let choice = VoteRequest { group: CHOICE, slots: keep.clone(), ..request(3, Purpose::Voters, 2, keep.clone()) };
    let mut ask = |from: u8, request: VoteRequest, refused: Option<Reason>, known: u64| {
        let before = *single.bus.counters();
        single.take_sent();
        let (group, epoch) = (request.group, request.epoch);
        let current = single.bus.current_epoch();
        single.hear(from, &Body::Request(request));
        let sent = single.take_sent();
        let vote = Vote { group, epoch, refused, known: Epoch(known) };
        assert_eq!(sent[0], (from, Body::Vote(vote)), "{refused:?}");
        let told: Vec<News> = sent[1..].iter().flat_map(|(_, body)| news(body).to_vec()).collect();
        let after = single.bus.counters();
        let is_refused = u64::from(refused.is_some());
        assert_eq!(
            (after.votes_refused - before.votes_refused, after.votes_given - before.votes_given),
            (is_refused, 1 - is_refused)
        );
        assert_eq!(after.updates_sent - before.updates_sent, u64::from(!told.is_empty()), "{refused:?}");
        let raised = if refused.is_none() && group != CHOICE { current.max(epoch) } else { current };
        assert_eq!(single.bus.current_epoch(), raised, "{refused:?}");
        assert!(told.len() <= 1 && sent.len() == 1 + told.len());
        told.into_iter().next()
    };
    let told = ask(5, VoteRequest { voters: voters ^ 1, ..election.clone() }, Some(Reason::OtherVoters), 2);
    assert!(matches!(told, Some(News::Voters(set)) if set.epoch == Epoch(2)));
    let told = ask(
        5,
        VoteRequest { base: Epoch(1), purpose: Purpose::ByHand, ..election.clone() },
        Some(Reason::StaleClaim),
        2,
    );
    assert!(matches!(told, Some(News::Claim(claim)) if claim.group == group(3)));
    let told = ask(5, election, Some(Reason::PrimaryAlive), 2);
    assert_eq!(told, Some(News::Life(id(3), crate::member::Life::default())));
    assert_eq!(ask(5, request(9, Purpose::Election, 8, keep.clone()), Some(Reason::NotReplica), 0), None);
    assert_eq!(ask(2, request(9, Purpose::Election, 40, keep.clone()), Some(Reason::NotReplica), 0), None);
    assert_eq!(ask(2, choice.clone(), Some(Reason::StaleEpoch), 2), None);
    assert_eq!(ask(2, VoteRequest { epoch: Epoch(90), ..choice }, None, 90), None);
    assert_eq!(ask(3, request(3, Purpose::Slots, 20, more.clone()), None, 20), None);
    let told = ask(2, request(2, Purpose::Slots, 4, other), Some(Reason::SlotTaken), 20);
    assert!(matches!(told, Some(News::Claim(claim)) if claim.group == group(1)));
    assert_eq!(ask(2, request(2, Purpose::Slots, 6, keep.clone()), Some(Reason::StaleEpoch), 20), None);
    assert_eq!(ask(2, request(2, Purpose::Slots, 40, keep), None, 40), None);
    assert_eq!(ask(3, request(3, Purpose::Slots, 20, more), Some(Reason::StaleEpoch), 20), None);
}

#[test]
fn a_claim_is_told_on_by_those_who_did_not_hear_it_from_its_owner() {
    let claim = |number: u64, owner, epoch| {
        let first = u16::try_from(number).unwrap() * 100;
        News::Claim(Claim {
            group: group(number),
            owner: id(owner),
            epoch: Epoch(epoch),
            slots: slots(first, first + 9),
        })
    };
    // (from whom, asked for, whose claim, its epoch), then whether it stands, and what is counted: replaced, told back, refused.
    let cases = [
        (3, false, 3, 4, true, (1, 0, 0)),
        (2, false, 3, 4, true, (1, 0, 0)),
        (2, true, 3, 4, true, (1, 0, 0)),
        (3, true, 3, 4, true, (1, 0, 0)),
        (2, false, 2, 1, false, (0, 1, 0)),
        (3, false, 2, 1, false, (0, 0, 0)),
        (3, false, 1, 2, false, (0, 0, 0)),
    ];
    for (from, asked_for, owner, epoch, stands, counted) in cases {
        let mut single = Single::setup(4, 8, &[1, 2, 3], &[1]);
        let news = claim(1, owner, epoch);
        let case = format!("{from} {asked_for} {owner} {epoch}");
        let body = if asked_for { Body::Records([news].into()) } else { Body::News([news].into()) };
        single.hear(from, &body);
        let back = single.sent_to(
            |body| matches!(body, Body::News(news) if matches!(&news[0], News::Claim(claim) if claim.owner == id(1))),
        );
        assert_eq!(back.len(), usize::from(counted.1 == 1), "{case}");
        assert_eq!(single.bus.primary(G) == Some((id(owner), Epoch(epoch))), stands || owner == 1, "{case}");
        single.pass(20);
        let is_told_on = !single.sent_to(|body| matches!(body, Body::News(_))).is_empty();
        assert_eq!(is_told_on, stands && !asked_for && from != owner, "{case}");
        let rides = single.bus.take_news(single.now(), 9_000).iter().any(|news| matches!(news, News::Claim(_)));
        assert_eq!(rides, stands && !asked_for, "{case}");
        let counters = single.bus.counters();
        assert_eq!((counters.claims_replaced, counters.updates_sent, counters.refused_full), counted, "{case}");
    }
    let mut single = Single::setup(4, 8, &[1, 2, 3], &[1]);
    single.bus.config.groups_max = 1;
    single.hear(2, &Body::News([claim(2, 2, 4)].into()));
    assert_eq!((single.bus.counters().refused_full, single.bus.primary(group(2))), (1, None));
}

#[test]
fn a_role_follows_from_the_claim_that_stands() {
    // A primary that loses its group follows it, without a copy of the data that the new one has.
    let mut single = Single::setup(1, 8, &[2, 3, 4], &[1]);
    single.command(Command::Offset { group: G, offset: 5, copy: CopyState::Current });
    single.claim(1, 2, 4);
    assert!(single.has(&Event::RoleChanged { group: G, role: Role::Replica, epoch: Epoch(4) }));
    single.life(2, 0, true);
    assert!(single.has(&Event::NotStanding { group: G, why: Unfit::NoCopy }));
    // Where only the primary changes, the copy stays what it is.
    let mut single = replica(4);
    single.claim(1, 2, 4);
    assert_eq!(single.events, [Event::SlotsChanged { group: G, primary: id(2), epoch: Epoch(4) }]);
    single.life(2, 0, true);
    assert!(stands(&single));
    // Whoever has left the group has no part in it.
    let mut single = replica(4);
    single.command(Command::Unfollow { group: G });
    single.events.clear();
    single.claim(1, 2, 4);
    assert_eq!(single.events, [Event::SlotsChanged { group: G, primary: id(2), epoch: Epoch(4) }]);
}

#[test]
fn what_others_have_taken_is_given_up_where_voters_can_say_so() {
    for (voters, is_busy, begins) in [(&[2, 3, 4][..], false, true), (&[2, 3, 4], true, false), (&[], false, false)] {
        let mut single = Single::setup(1, 8, voters, &[1]);
        let claim = Claim { group: group(2), owner: id(2), epoch: Epoch(4), slots: slots(150, 249) };
        single.bus.hear_claim(single.now(), id(2), claim, false);
        if is_busy {
            single.command(Command::Claim { group: G, slots: [SlotRange::new(900, 909).unwrap()].into() });
        }
        let begun = single.bus.counters().ballots_begun;
        single.bus.trim_overlapped(single.now());
        assert_eq!(single.bus.counters().ballots_begun - begun, u64::from(begins), "{voters:?} {is_busy}");
        assert_eq!(single.bus.ballots.contains_key(&G), begins || is_busy, "{voters:?} {is_busy}");
    }
}
