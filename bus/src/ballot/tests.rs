//! What one voter says to one request, and what a candidate counts.

use ashlar_wire::id::Incarnation;

use super::*;
use crate::claim::Claim;
use crate::member::{Description, Life, MemberRecord};
use crate::voters::{Origin, VoterSet};

const NOW: Instant = Instant::from_nanos(100_000_000_000);

fn id(number: u8) -> ServerId {
    ServerId::from_bytes([number; 16])
}

fn slots(ranges: &[(u16, u16)]) -> SlotSet {
    SlotSet::from_ranges(ranges.iter().map(|&(first, last)| SlotRange::new(first, last).unwrap()))
}

fn set_of(voters: impl Iterator<Item = u8>) -> VoterSet {
    VoterSet {
        epoch: Epoch(1),
        origin: Origin::Told,
        after: Epoch::ZERO,
        floor: Epoch(3),
        voters: voters.map(id).collect(),
        previous: Vec::new(),
        forgetful: Vec::new(),
        previous_forgetful: Vec::new(),
    }
}

/// Server 1, which votes. Servers 1 to 3 are the primaries of groups 1 to 3 since epoch 10, with slots 0 to 99, 100 to 199 and 200 to
/// 299; servers 4 and 5 follow group 3, and server 3 has failed.
struct Voter {
    voters: Voters,
    claims: Claims,
    members: Members,
    votes: Votes,
    abstains: bool,
    groups_max: usize,
    now: Instant,
}

impl Voter {
    fn new() -> Self {
        let mut voters = Voters::default();
        voters.hear(&set_of(1..=5), id(1));
        let mut claims = Claims::default();
        let mut members = Members::default();
        for number in 1..=5_u8 {
            let group = GroupId(number.into());
            if number <= 3 {
                let first = u16::from(number - 1) * 100;
                let claim = Claim { group, owner: id(number), epoch: Epoch(10), slots: slots(&[(first, first + 99)]) };
                claims.hear(claim, 10, false);
            }
            let follows = if number > 3 { [GroupId(3)].into() } else { [].into() };
            let description = Description { incarnation: Incarnation(1), follows, ..Description::default() };
            let life = Life { refuted: 0, failed: number == 3 };
            members.insert(MemberRecord { id: id(number), description, life }, NOW);
        }
        let votes = Votes::default();
        Self { voters, claims, members, votes, abstains: false, groups_max: 10, now: NOW }
    }

    fn ask(&mut self, candidate: u8, request: &VoteRequest) -> Result<(), Reason> {
        let facts = Facts {
            own: id(1),
            voters: &self.voters,
            claims: &self.claims,
            members: &self.members,
            abstains: self.abstains,
            groups_max: self.groups_max,
            now: self.now,
            bugs: Bugs::default(),
        };
        self.votes.decide(id(candidate), request, &facts)
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// A replica of group 3 wants the place of its primary.
    fn election(&self, epoch: u64, offset: u64) -> VoteRequest {
        VoteRequest {
            group: GroupId(3),
            purpose: Purpose::Election,
            epoch: Epoch(epoch),
            base: Epoch(10),
            voters: self.voters.fingerprint(),
            offset,
            failed: Some((id(3), 0)),
            slots: slots(&[(200, 299)]),
            taken: SlotSet::EMPTY,
        }
    }

    /// The primary of a group, 1 or 2, wants slots beside those that it has.
    fn wish(&self, group: u64, epoch: u64, taken: (u16, u16)) -> VoteRequest {
        let first = u16::try_from(group - 1).unwrap() * 100;
        VoteRequest {
            group: GroupId(group),
            purpose: Purpose::Slots,
            failed: None,
            slots: slots(&[(first, first + 99), taken]),
            taken: slots(&[taken]),
            ..self.election(epoch, 0)
        }
    }

    fn choice(&self, epoch: u64) -> VoteRequest {
        VoteRequest {
            group: CHOICE,
            purpose: Purpose::Voters,
            base: Epoch(1),
            failed: None,
            slots: SlotSet::EMPTY,
            ..self.election(epoch, 0)
        }
    }
}

#[test]
fn who_may_not_stand_is_told_why() {
    let mut voter = Voter::new();
    let election = voter.election(12, 7);
    assert_eq!(voter.ask(2, &election), Err(Reason::NotReplica));
    assert_eq!(voter.ask(9, &election), Err(Reason::NotReplica), "nobody knows it");
    let other = VoteRequest { voters: election.voters ^ 1, ..election.clone() };
    assert_eq!(voter.ask(4, &other), Err(Reason::OtherVoters));
    let unknown = VoteRequest { group: GroupId(7), base: Epoch::ZERO, ..election.clone() };
    assert_eq!(voter.ask(4, &unknown), Err(Reason::NotReplica));
    let unaware = VoteRequest { base: Epoch(8), ..election.clone() };
    assert_eq!(voter.ask(4, &unaware), Err(Reason::StaleClaim));
    let late = VoteRequest { epoch: Epoch(10), ..election.clone() };
    assert_eq!(voter.ask(4, &late), Err(Reason::StaleEpoch));
    let greedy = VoteRequest { slots: slots(&[(199, 299)]), taken: slots(&[(199, 199)]), ..election.clone() };
    assert_eq!(voter.ask(4, &greedy), Err(Reason::SlotTaken), "a replica takes a place and nothing else");
    let foreign = VoteRequest { slots: slots(&[(199, 299)]), ..election.clone() };
    assert_eq!(voter.ask(4, &foreign), Err(Reason::SlotTaken), "another group has the first one");
    voter.abstains = true;
    assert_eq!(voter.ask(4, &election), Err(Reason::NoMemory));
    voter.abstains = false;
    let place = voter.members.place(id(3)).unwrap();
    voter.members.set_life(place, Life { refuted: 1, failed: false }, NOW);
    assert_eq!(voter.ask(4, &election), Err(Reason::PrimaryAlive));
    let by_hand = VoteRequest { purpose: Purpose::ByHand, failed: None, ..election };
    assert_eq!(voter.ask(4, &by_hand), Ok(()), "its primary has agreed, or is not asked");
}

#[test]
fn a_voter_votes_once_in_an_epoch_of_a_group() {
    let mut voter = Voter::new();
    let election = voter.election(12, 7);
    assert_eq!(voter.ask(4, &election), Ok(()));
    assert_eq!(voter.votes.epoch(GroupId(3)), Epoch(12));
    for candidate in [4, 5] {
        assert_eq!(voter.ask(candidate, &election), Err(Reason::StaleEpoch), "{candidate}");
    }
    assert_eq!(voter.ask(5, &voter.election(14, 7)), Ok(()));
    let mut early = Voter::new();
    early.claims = Claims::default();
    let first = VoteRequest { epoch: Epoch(3), base: Epoch::ZERO, ..early.wish(1, 3, (300, 309)) };
    assert_eq!(early.ask(1, &first), Err(Reason::StaleEpoch), "earlier voters have decided about this epoch");
    assert_eq!(early.ask(1, &VoteRequest { epoch: Epoch(4), ..first }), Ok(()));
}

#[test]
fn votes_are_remembered_for_so_many_groups() {
    let mut voter = Voter::new();
    voter.groups_max = 1;
    assert_eq!(voter.ask(4, &voter.election(12, 7)), Ok(()));
    assert_eq!(voter.ask(1, &voter.wish(1, 14, (300, 309))), Err(Reason::NoRoom));
    assert_eq!(voter.ask(4, &voter.election(16, 7)), Ok(()), "it is one of them");
}

#[test]
fn who_has_less_waits_for_who_has_more() {
    let mut voter = Voter::new();
    let (less, more) = (voter.election(12, 7), voter.election(12, 8));
    // The one with more was refused for something that passes.
    voter.votes.handle_refused(id(5), &more, NOW);
    voter.votes.handle_refused(id(4), &less, NOW);
    assert_eq!(voter.ask(4, &less), Err(Reason::BetterCandidate));
    let by_hand = VoteRequest { purpose: Purpose::ByHand, ..less.clone() };
    assert_eq!(voter.ask(4, &by_hand), Ok(()), "an operator's choice waits for nobody");
    assert_eq!(voter.ask(4, &voter.election(14, 8)), Ok(()), "it has as much");
    assert_eq!(voter.ask(5, &voter.election(16, 3)), Ok(()), "nobody waits for itself");
    voter.pass(BETTER_TIME);
    assert_eq!(voter.ask(4, &voter.election(18, 7)), Ok(()), "it has waited");
    let mut voter = Voter::new();
    voter.votes.handle_refused(id(5), &voter.election(12, 8), NOW);
    let place = voter.members.place(id(5)).unwrap();
    voter.members.set_life(place, Life { refuted: 0, failed: true }, NOW);
    assert_eq!(voter.ask(4, &voter.election(12, 7)), Ok(()), "the one with more has failed");
}

#[test]
fn the_latest_of_equals_is_waited_for_as_long() {
    let mut voter = Voter::new();
    voter.votes.handle_refused(id(5), &voter.election(12, 8), NOW);
    voter.pass(BETTER_TIME / 2);
    let request = voter.election(12, 8);
    voter.votes.handle_refused(id(5), &request, voter.now);
    let worse = voter.election(12, 5);
    voter.votes.handle_refused(id(4), &worse, voter.now);
    voter.pass(BETTER_TIME / 2);
    assert_eq!(voter.ask(4, &voter.election(12, 7)), Err(Reason::BetterCandidate));
    voter.pass(BETTER_TIME / 2);
    assert_eq!(voter.ask(4, &voter.election(12, 7)), Ok(()));
}

#[test]
fn whom_nobody_waits_for_any_more_hides_no_other() {
    let mut voter = Voter::new();
    voter.votes.handle_refused(id(5), &voter.election(12, 8), NOW);
    voter.pass(BETTER_TIME);
    let less = voter.election(12, 7);
    voter.votes.handle_refused(id(4), &less, voter.now);
    assert_eq!(voter.ask(5, &voter.election(12, 6)), Err(Reason::BetterCandidate));
}

#[test]
fn a_primary_need_not_know_its_own_latest_claim() {
    let mut voter = Voter::new();
    let wish = |voter: &Voter, epoch| VoteRequest { base: Epoch(8), ..voter.wish(1, epoch, (300, 309)) };
    let wishes = [9, 10, 12].map(|epoch| wish(&voter, epoch));
    let answers = wishes.map(|wish| voter.ask(1, &wish));
    // Slots that it kept by the earlier claim may not be its own any more by the later one, but here all of them are.
    assert_eq!(answers, [Err(Reason::StaleClaim), Err(Reason::StaleClaim), Ok(())]);
}

#[test]
fn slots_belong_to_the_greater_epoch() {
    let mut voter = Voter::new();
    assert_eq!(voter.ask(2, &voter.wish(1, 12, (300, 309))), Err(Reason::StaleClaim), "not its group");
    assert_eq!(voter.ask(1, &voter.wish(1, 10, (100, 109))), Err(Reason::StaleEpoch));
    // Group 2 has claimed slot 100 once more, and what group 1 wants of it needs a greater epoch.
    let claim = Claim { group: GroupId(2), owner: id(2), epoch: Epoch(14), slots: slots(&[(50, 59), (100, 199)]) };
    voter.claims.hear(claim, 10, false);
    let wish = voter.wish(1, 14, (100, 109));
    let kept = slots(&[(0, 49), (60, 99)]);
    let wish = VoteRequest { slots: kept.union(&wish.taken), ..wish };
    assert_eq!(voter.ask(1, &wish), Err(Reason::SlotTaken));
    let unaware = voter.wish(1, 16, (100, 109));
    assert_eq!(voter.ask(1, &unaware), Err(Reason::SlotTaken), "it has lost 50 to 59");
    assert_eq!(voter.ask(1, &VoteRequest { epoch: Epoch(16), ..wish }), Ok(()));
}

#[test]
fn what_was_voted_for_binds_until_its_claim_is_known() {
    let mut voter = Voter::new();
    // Group 2 gets slots of groups 1 and 3.
    let both = VoteRequest { taken: slots(&[(0, 9), (200, 209)]), ..voter.wish(2, 12, (0, 9)) };
    let both = VoteRequest { slots: both.slots.union(&both.taken), ..both };
    assert_eq!(voter.ask(2, &both), Ok(()));
    assert_eq!(voter.votes.promised(), Epoch(12));
    assert_eq!(voter.ask(1, &voter.wish(1, 14, (300, 309))), Err(Reason::SlotTaken), "it keeps 0 to 9");
    assert_eq!(voter.ask(4, &voter.election(14, 7)), Err(Reason::SlotTaken), "it keeps 200 to 209");
    // Whoever holds them by a later claim than that keeps them.
    let later = VoteRequest { base: Epoch(13), ..voter.election(16, 7) };
    assert_eq!(voter.ask(4, &later), Ok(()));
    // Whoever takes them needs a greater epoch.
    let back = |epoch| VoteRequest { slots: slots(&[(10, 99), (0, 9)]), ..voter.wish(1, epoch, (0, 9)) };
    let (late, later) = (back(11), back(14));
    assert_eq!(voter.ask(1, &late), Err(Reason::SlotTaken));
    assert_eq!(
        voter.ask(1, &VoteRequest { taken: SlotSet::EMPTY, slots: slots(&[(10, 99)]), ..later.clone() }),
        Err(Reason::StaleEpoch),
        "whoever keeps what it has is sure of it afterwards"
    );
    assert_eq!(voter.ask(1, &later), Ok(()));
    let mut voter = Voter::new();
    assert_eq!(voter.ask(2, &both), Ok(()));
    voter.pass(PROMISE_TIME);
    assert_eq!(voter.ask(1, &voter.wish(1, 14, (300, 309))), Ok(()), "nothing came of it");
    assert_eq!(voter.votes.promised(), Epoch(14));
}

#[test]
fn in_one_epoch_the_smaller_group_gets_a_slot() {
    for (first, second, answer) in [(1, 2, Err(Reason::SlotTaken)), (2, 1, Ok(()))] {
        let mut voter = Voter::new();
        assert_eq!(voter.ask(first, &voter.wish(first.into(), 12, (300, 309))), Ok(()));
        assert_eq!(voter.ask(second, &voter.wish(second.into(), 12, (305, 314))), answer, "{first}, {second}");
    }
}

#[test]
fn a_vote_binds_nobody_once_its_attempt_is_given_up() {
    let mut voter = Voter::new();
    assert_eq!(voter.ask(2, &voter.wish(2, 12, (0, 9))), Ok(()));
    let wish = voter.wish(1, 14, (300, 309));
    for (epoch, candidate) in [(11, 2), (12, 1)] {
        voter.votes.handle_given_up(GroupId(2), Given { epoch: Epoch(epoch), candidate: id(candidate) });
        assert_eq!(voter.ask(1, &wish), Err(Reason::SlotTaken), "{epoch}, {candidate}");
    }
    voter.votes.handle_given_up(GroupId(2), Given { epoch: Epoch(12), candidate: id(2) });
    assert_eq!(voter.ask(1, &wish), Ok(()));
}

#[test]
fn a_choice_of_voters_has_time_to_become_known() {
    let mut voter = Voter::new();
    assert_eq!(voter.ask(9, &voter.choice(2)), Err(Reason::NotReplica), "it does not vote");
    assert_eq!(voter.ask(2, &voter.choice(1)), Err(Reason::StaleEpoch));
    assert_eq!(voter.ask(2, &voter.choice(2)), Ok(()));
    assert_eq!(voter.ask(2, &voter.choice(2)), Err(Reason::StaleEpoch));
    assert_eq!(voter.ask(4, &voter.choice(3)), Err(Reason::StaleEpoch), "another one has the vote for now");
    assert_eq!(voter.ask(2, &voter.choice(3)), Ok(()));
    voter.pass(PROMISE_TIME);
    assert_eq!(voter.ask(4, &voter.choice(3)), Err(Reason::StaleEpoch));
    assert_eq!(voter.ask(4, &voter.choice(4)), Ok(()));
    let mut pending = Voter::new();
    let previous = (1..=3).map(id).collect();
    let next = VoterSet { epoch: Epoch(5), after: Epoch(1), previous, ..set_of(1..=5) };
    pending.voters.hear(&next, id(1));
    assert_eq!(pending.ask(2, &pending.choice(6)), Err(Reason::StaleEpoch), "the last change is not over");
}

#[test]
fn the_greatest_vote_of_other_groups_is_without_choices() {
    let mut votes = Votes::default();
    for (group, epoch) in [(GroupId(1), 12), (GroupId(2), 18), (GroupId(3), 14), (CHOICE, 90)] {
        votes.restore(group, Given { epoch: Epoch(epoch), candidate: id(1) });
    }
    assert_eq!(votes.greatest(GroupId(1)), Epoch(18));
    assert_eq!(votes.greatest(GroupId(2)), Epoch(14));
    assert_eq!(votes.iter().len(), 4);
}

#[test]
fn who_has_failed_is_not_waited_for() {
    let mut voters = Voters::default();
    voters.hear(&set_of(1..=7), id(1));
    let mut ballot = Ballot::new(Purpose::Slots, Epoch(1), Phase::Waiting(Instant::ORIGIN), Instant::ORIGIN);
    let nobody = core::iter::empty;
    let failed = || [id(5), id(6), id(7)].into_iter();
    ballot.handle_granted(&voters, id(1), Bugs::default());
    assert!(!ballot.is_lost(&voters, failed()), "three others may vote for it");
    ballot.handle_refused(&voters, id(2), Epoch(1));
    assert!(!ballot.is_lost(&voters, nobody()));
    assert!(ballot.is_lost(&voters, failed()), "two others and itself are no majority of seven");
    // Who failed behind its vote has voted.
    ballot.handle_granted(&voters, id(7), Bugs::default());
    assert!(!ballot.is_lost(&voters, failed()));
}

/// A ballot with these votes and refusals while voters 1 to 5 follow after 6 to 8: won, lost, or open.
fn outcome(granted: &[u8], refused: &[u8]) -> &'static str {
    let mut voters = Voters::default();
    voters.hear(
        &VoterSet { epoch: Epoch(5), after: Epoch(1), previous: [6, 7, 8].map(id).into(), ..set_of(1..=5) },
        id(1),
    );
    let mut ballot = Ballot::new(Purpose::Slots, Epoch(1), Phase::Waiting(NOW), NOW);
    ballot.begin(Epoch(2), SlotSet::EMPTY, NOW);
    for (place, number) in granted.iter().enumerate() {
        let is_first = !granted[..place].contains(number);
        assert_eq!(ballot.handle_granted(&voters, id(*number), Bugs::default()), is_first, "{number}");
    }
    refused.iter().for_each(|number| ballot.handle_refused(&voters, id(*number), Epoch(1)));
    match (ballot.is_won(&voters, Bugs::default()), ballot.is_lost(&voters, core::iter::empty())) {
        (true, false) => "won",
        (false, true) => "lost",
        (false, false) => "open",
        (true, true) => "both",
    }
}

#[test]
fn a_ballot_is_won_and_lost_by_each_set_that_has_a_say() {
    let cases: [(&[u8], &[u8], &str); 10] = [
        (&[], &[], "open"),
        (&[1, 2, 3], &[], "open"),
        (&[6, 7, 8], &[], "open"),
        (&[1, 2, 2, 2, 6, 7], &[], "open"),
        (&[1, 2, 3, 6, 7], &[], "won"),
        (&[1, 2, 3, 6, 7], &[4, 5, 8], "won"),
        (&[], &[1, 2, 6], "open"),
        (&[1, 2], &[3, 4, 5], "lost"),
        (&[1, 2, 3, 4, 5], &[6, 7], "lost"),
        (&[7, 8], &[6, 7, 8], "open"),
    ];
    for (granted, refused, expected) in cases {
        assert_eq!(outcome(granted, refused), expected, "{granted:?} {refused:?}");
    }
}
