//! What waits for storage, and what comes back out of it.

use super::single::*;
use super::*;
use crate::ballot::Given;
use crate::packet::{Body, CHOICE, Purpose, Vote, VoteRequest};
use crate::saved::Saved;
use crate::slot::SlotSet;

/// A vote that server 2 asks for.
fn request(single: &Single, epoch: u64) -> Body {
    Body::Request(VoteRequest {
        group: group(2),
        purpose: Purpose::Slots,
        epoch: Epoch(epoch),
        base: Epoch(2),
        voters: single.bus.voters.fingerprint(),
        offset: 0,
        failed: None,
        slots: slots(200, 209),
        taken: SlotSet::EMPTY,
    })
}

fn is_vote(body: &Body) -> bool {
    matches!(body, Body::Vote(_))
}

fn saved(single: &Single) -> Saved {
    let (_, bytes) = single.unstored.as_ref().expect("something is to be stored");
    Saved::decode(bytes, single.bus.identity(), &single.bus.config).unwrap()
}

#[test]
fn what_depends_on_a_version_waits_for_that_very_version() {
    let mut single = Single::setup(1, 4, &[1, 2, 3], &[2]);
    single.stores = false;
    let before = single.bus.counters().persists;
    single.command(Command::Follow { group: group(2) });
    let first = saved(&single);
    single.hear(2, &request(&single, 4));
    single.hear(2, &request(&single, 6));
    assert_eq!(single.bus.counters().persists - before, 1, "one version is under way at a time");
    assert_eq!(saved(&single), first);
    assert_eq!(first.votes, []);
    let (ticket, _) = single.unstored.clone().unwrap();
    single.bus.handle_persisted(single.now(), Ticket(ticket.0 - 1));
    single.drain();
    assert_eq!(
        (single.bus.counters().persists - before, single.sent_to(is_vote)),
        (1, [].into()),
        "that is an earlier one"
    );
    single.store();
    assert_eq!((single.bus.counters().persists - before, single.sent_to(is_vote)), (2, [].into()));
    assert_eq!(saved(&single).votes, [(group(2), Given { epoch: Epoch(6), candidate: id(2) })]);
    assert_eq!(single.bus.counters().votes_given, 0);
    single.store();
    assert_eq!((single.bus.counters().votes_given, single.sent_to(is_vote)), (2, [2, 2].into()));
}

#[test]
fn a_claim_that_was_won_in_time_and_stored_too_late_is_none() {
    for (after_ms, holds) in [(199, true), (200, false)] {
        let mut single = Single::setup(4, 4, &[1, 2, 3], &[2]);
        let until = single.now() + Duration::from_millis(200);
        single.command(Command::Take { group: group(4), slots: [SlotRange::new(400, 409).unwrap()].into(), until });
        single.stores = false;
        let epoch = single.bus.ballots[&group(4)].epoch;
        for from in [1, 2] {
            single.hear(from, &Body::Vote(Vote { group: group(4), epoch, refused: None, known: Epoch::ZERO }));
        }
        let groups: Vec<_> = saved(&single).claims.iter().map(|claim| (claim.group, claim.epoch)).collect();
        assert_eq!(groups, [(group(2), Epoch(2)), (group(4), epoch)], "it is stored before it holds");
        assert_eq!(single.bus.primary(group(4)), None);
        single.pass(after_ms);
        single.store();
        assert_eq!(single.bus.primary(group(4)), holds.then_some((id(4), epoch)), "{after_ms}");
        assert!(single.bus.ballots.is_empty());
        if !holds {
            let groups: Vec<_> = saved(&single).claims.iter().map(|claim| claim.group).collect();
            assert_eq!(groups, [group(2)], "what is stored next has it no more");
        }
    }
    // A claim in place of an earlier one of its group is stored alone.
    let mut single = Single::setup(1, 4, &[1], &[1, 2]);
    single.stores = false;
    single.command(Command::Claim { group: group(1), slots: [SlotRange::new(300, 309).unwrap()].into() });
    single.store();
    let groups: Vec<_> = saved(&single).claims.iter().map(|claim| (claim.group, claim.epoch > Epoch(2))).collect();
    assert_eq!(groups, [(group(2), false), (group(1), true)]);
}

#[test]
fn memory_is_taken_up_again() {
    let mut memory = Saved::new(CLUSTER, id(1));
    memory.incarnation = Incarnation(1);
    memory.current = Epoch(5);
    memory.voters = Some(told(&[2, 3, 4], &[]));
    memory.votes = [(group(2), 20), (CHOICE, 90)]
        .map(|(group, epoch)| (group, Given { epoch: Epoch(epoch), candidate: id(2) }))
        .into();
    memory.members = [2, 3, 4].map(|number| record(number, &[])).into();
    memory.claims =
        [crate::claim::Claim { group: group(3), owner: id(3), epoch: Epoch(4), slots: slots(300, 399) }].into();
    memory.places = [(group(3), 77)].into();
    let mut single = Single::with(1, config(), Some(&memory.encode()));
    assert_eq!(single.bus.current_epoch(), Epoch(20), "epochs of choices are counted apart");
    assert_eq!((single.bus.voted_epoch(group(2)), single.bus.voted_epoch(CHOICE)), (Epoch(20), Epoch(90)));
    single.command(Command::Failover { group: group(3), how: crate::event::How::Forced });
    let sent = single.take_sent();
    let asked = sent.iter().find_map(|(_, body)| if let Body::Request(request) = body { Some(request) } else { None });
    assert_eq!(asked.map(|request| (request.offset, request.epoch)), Some((77, Epoch(22))));
}
