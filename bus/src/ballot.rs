//! Standing, voting, winning: one ballot per replica group, all in parallel.
//!
//! A voter gives at most one vote per group and epoch, and none in an epoch that is not greater than every one it has voted in
//! or knows a claim of. A vote is durable before it leaves. So two candidates of one group cannot both have a majority
//! in one epoch, whatever is lost, doubled, delayed or restarted. A refusal says why and which epoch is known, so that
//! the candidate's next attempt is not a guess.
//!
//! Here are the rules, as values: `Votes` decides for a voter, `Ballot` counts for a candidate. Who sends what is in
//! `bus/elect.rs`. Unlike Valkey, where a voter votes once per epoch in the whole cluster, elections of different groups do
//! not wait for each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::claim::Claims;
use crate::member::Members;
use crate::packet::{CHOICE, Purpose, Reason, VoteRequest};
use crate::planted::{Bugs, Planted};
use crate::slot::{GroupId, SlotRange, SlotSet};
use crate::voters::{Tally, Voters};

/// What a voter knows when it decides.
pub(crate) struct Facts<'a> {
    pub(crate) own: ServerId,
    pub(crate) voters: &'a Voters,
    pub(crate) claims: &'a Claims,
    pub(crate) members: &'a Members,
    /// Whether this voter has lost its memory of the votes of the present set.
    pub(crate) abstains: bool,
    /// Groups for which votes are remembered.
    pub(crate) groups_max: usize,
    pub(crate) now: Instant,
    pub(crate) bugs: Bugs,
}

/// A vote that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// In which epoch.
    pub epoch: Epoch,
    /// To whom.
    pub candidate: ServerId,
}

/// A better candidate is waited for this long.
const BETTER_TIME: Duration = Duration::from_secs(1);

/// All votes that this member has given: the last one for each group. Durable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Votes {
    given: BTreeMap<GroupId, Given>,
    /// The most data that a refused candidate had, of whom it was, and when. Not durable.
    best: BTreeMap<GroupId, (u64, ServerId, Instant)>,
    /// What was voted for a moment ago and may be claimed any moment. Not durable.
    promises: BTreeMap<GroupId, Promise>,
    /// When the last vote about a choice of voters was given. Not durable.
    choice_at: Option<Instant>,
}

/// Slots that a candidate got this voter's vote for.
#[derive(Debug, Clone)]
struct Promise {
    epoch: Epoch,
    slots: SlotSet,
    taken: SlotSet,
    at: Instant,
}

/// Within this time the claim, or the choice, of a won ballot is known.
const PROMISE_TIME: Duration = Duration::from_secs(2);

impl Votes {
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (GroupId, Given)> {
        self.given.iter().map(|(group, given)| (*group, *given))
    }

    /// Takes a vote out of a saved record.
    pub(crate) fn restore(&mut self, group: GroupId, given: Given) {
        self.given.insert(group, given);
    }

    /// The greatest epoch that this member has voted in for a group.
    pub(crate) fn epoch(&self, group: GroupId) -> Epoch {
        self.given.get(&group).map_or(Epoch::ZERO, |given| given.epoch)
    }

    /// Decides about a request, and remembers a vote that is given; the caller makes it durable before it leaves.
    pub(crate) fn decide(
        &mut self,
        candidate: ServerId,
        request: &VoteRequest,
        facts: &Facts<'_>,
    ) -> Result<(), Reason> {
        check_standing(candidate, request, facts)?;
        if request.purpose == Purpose::Voters {
            return self.decide_choice(candidate, request, facts);
        }
        check_claims(candidate, request, facts)?;
        self.check_epoch(candidate, request, facts)?;
        self.check_rank(candidate, request, facts)?;
        self.check_promises(request, facts.now)?;
        if self.given.len() >= facts.groups_max && !self.given.contains_key(&request.group) {
            return Err(Reason::NoRoom);
        }
        let is_planted = facts.bugs != Bugs::default();
        debug_assert!(is_planted || self.epoch(request.group) < request.epoch, "one vote in an epoch of a group");
        let key = if facts.bugs.has(Planted::VoteWithoutGroup) { GroupId(0) } else { request.group };
        self.given.insert(key, Given { epoch: request.epoch, candidate });
        let (slots, taken) = (request.slots.clone(), request.taken.clone());
        self.promises.insert(request.group, Promise { epoch: request.epoch, slots, taken, at: facts.now });
        Ok(())
    }

    /// The candidate that got this vote has given its attempt up: what was voted for will not be claimed, and binds nobody. Each of two
    /// that want slots of each other votes for itself first; else both would refuse the other for ever.
    pub(crate) fn handle_given_up(&mut self, group: GroupId, vote: Given) {
        let is_bound = self.promises.get(&group).is_some_and(|promise| promise.epoch == vote.epoch);
        if is_bound && self.given.get(&group) == Some(&vote) {
            self.promises.remove(&group);
        }
    }

    /// The greatest epoch in which this voter has lately voted about slots. A candidate that wants slots beyond it is late for
    /// nobody; without that word, two that want the same slots could refuse each other for ever, each in epochs of its own.
    pub(crate) fn promised(&self) -> Epoch {
        self.promises.values().map(|promise| promise.epoch).max().unwrap_or(Epoch::ZERO)
    }

    /// The greatest epoch that this member has voted in for any group but this one.
    pub(crate) fn greatest(&self, but: GroupId) -> Epoch {
        let others = self.given.iter().filter(|(group, _)| **group != but && **group != CHOICE);
        others.map(|(_, given)| given.epoch).max().unwrap_or(Epoch::ZERO)
    }

    /// A vote for a choice of voters is a promise to go over to no competitor with a smaller epoch. So a candidate has some
    /// time in which no other gets the vote: else two that stand at once may leave a choice that too many passed by.
    fn decide_choice(&mut self, candidate: ServerId, request: &VoteRequest, facts: &Facts<'_>) -> Result<(), Reason> {
        let given = self.given.get(&request.group);
        let waits = given.is_some_and(|given| given.candidate != candidate)
            && self.choice_at.is_some_and(|at| facts.now < at + PROMISE_TIME);
        let is_later = request.epoch > facts.voters.epoch() && given.is_none_or(|given| given.epoch < request.epoch);
        let is_new = is_later && !waits;
        if facts.voters.previous().is_empty() && is_new {
            self.given.insert(request.group, Given { epoch: request.epoch, candidate });
            self.choice_at = Some(facts.now);
            return Ok(());
        }
        Err(Reason::StaleEpoch)
    }

    /// Slots go from one group to another in the order in which this voter has voted, although the two groups' ballots know
    /// nothing of each other: who keeps a slot must not have lost it, and who takes one must have the greater epoch.
    fn check_promises(&mut self, request: &VoteRequest, now: Instant) -> Result<(), Reason> {
        self.promises.retain(|_, promise| now < promise.at + PROMISE_TIME);
        let kept = request.slots.without(&request.taken);
        for (group, promise) in self.promises.iter().filter(|(group, _)| **group != request.group) {
            // Of what was taken before its claim, it keeps what it has taken from the taker since.
            let is_newer = (promise.epoch, Reverse(*group)) > (request.base, Reverse(request.group));
            let loses = is_newer && kept.overlaps(&promise.taken);
            let is_late = request.epoch <= promise.epoch && request.taken.overlaps(&promise.slots);
            // Of two that take the same slot in one epoch, the smaller group gets it in any case.
            if loses || is_late && (request.epoch < promise.epoch || *group < request.group) {
                return Err(Reason::SlotTaken);
            }
        }
        Ok(())
    }

    fn check_epoch(&self, candidate: ServerId, request: &VoteRequest, facts: &Facts<'_>) -> Result<(), Reason> {
        if facts.bugs.has(Planted::VoteTwice) {
            return Ok(());
        }
        let given = self.given.get(&request.group);
        // Not even the same candidate gets it again: each attempt has an epoch of its own, and one that has lost its memory
        // could be elected twice in one epoch, to different slots.
        let again = given.is_some_and(|given| given.epoch == request.epoch && given.candidate == candidate);
        let again = again && facts.bugs.has(Planted::CountVoteTwice);
        // Slots that were voted to another may be claimed by it although nobody has heard of that: whoever only keeps what it has is sure
        // of it afterwards.
        if request.takes_nothing() && self.greatest(request.group) >= request.epoch {
            return Err(Reason::StaleEpoch);
        }
        let is_new = given.is_none_or(|given| given.epoch < request.epoch) && request.epoch > facts.voters.floor();
        if again || is_new || facts.bugs.has(Planted::AcceptOldEpoch) { Ok(()) } else { Err(Reason::StaleEpoch) }
    }

    /// A candidate with less data than one that was refused a moment ago waits for it, once.
    fn check_rank(&mut self, candidate: ServerId, request: &VoteRequest, facts: &Facts<'_>) -> Result<(), Reason> {
        if request.purpose != Purpose::Election {
            return Ok(());
        }
        let best = self.best.get(&request.group).filter(|best| facts.now < best.2 + BETTER_TIME);
        let lives = |id| facts.members.get(id).is_some_and(|member| !member.life.failed);
        if best.is_some_and(|(offset, id, _)| *offset > request.offset && *id != candidate && lives(*id)) {
            return Err(Reason::BetterCandidate);
        }
        Ok(())
    }

    /// A candidate was refused for a reason that will pass.
    pub(crate) fn handle_refused(&mut self, candidate: ServerId, request: &VoteRequest, now: Instant) {
        self.best.retain(|_, best| now < best.2 + BETTER_TIME);
        let best = self.best.entry(request.group).or_insert((request.offset, candidate, now));
        if request.offset >= best.0 {
            *best = (request.offset, candidate, now);
        }
    }
}

/// Whether the candidate may stand before this voter at all.
fn check_standing(candidate: ServerId, request: &VoteRequest, facts: &Facts<'_>) -> Result<(), Reason> {
    if !facts.voters.has_say(facts.own) {
        return Err(Reason::NotVoter);
    }
    if request.voters != facts.voters.fingerprint() && !facts.bugs.has(Planted::SkipOldVoters) {
        return Err(Reason::OtherVoters);
    }
    if facts.abstains {
        return Err(Reason::NoMemory);
    }
    if request.purpose == Purpose::Voters {
        return if facts.voters.has_say(candidate) { Ok(()) } else { Err(Reason::NotReplica) };
    }
    let Some(claim) = facts.claims.get(request.group) else {
        return if request.purpose == Purpose::Slots { Ok(()) } else { Err(Reason::NotReplica) };
    };
    if request.purpose == Purpose::Slots {
        // A group that its primary has lost is not taken through this door.
        return if claim.owner == candidate { Ok(()) } else { Err(Reason::StaleClaim) };
    }
    let member = facts.members.get(candidate).ok_or(Reason::NotReplica)?;
    if !member.description.follows.contains(&request.group) {
        return Err(Reason::NotReplica);
    }
    let lives = facts.members.get(claim.owner).is_some_and(|owner| !owner.life.failed);
    if request.purpose == Purpose::Election && lives && !facts.bugs.has(Planted::VoteWithoutFailure) {
        return Err(Reason::PrimaryAlive);
    }
    Ok(())
}

/// Whether the candidate knows what this voter knows about the group and the slots.
fn check_claims(candidate: ServerId, request: &VoteRequest, facts: &Facts<'_>) -> Result<(), Reason> {
    if facts.bugs.has(Planted::AcceptOldEpoch) {
        return Ok(());
    }
    if let Some(claim) = facts.claims.get(request.group) {
        if claim.epoch > request.base && !(claim.owner == candidate && claim.epoch < request.epoch) {
            return Err(Reason::StaleClaim);
        }
        if claim.epoch >= request.epoch {
            return Err(Reason::StaleEpoch);
        }
    }
    if request.purpose != Purpose::Slots && !request.taken.is_empty() {
        return Err(Reason::SlotTaken);
    }
    // What it keeps must not have gone to another since its claim; what it takes needs a greater epoch.
    let kept = request.slots.without(&request.taken);
    let taken = request.slots.without(&kept);
    for (slots, limit) in [(kept, request.base), (taken, request.epoch)] {
        let mut owners = facts.claims.owned_runs(&slots).map(|(_, owner)| owner);
        if owners.any(|owner| owner.group != request.group && owner.epoch >= limit) {
            return Err(Reason::SlotTaken);
        }
    }
    Ok(())
}

/// Where a ballot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the other replicas to tell how much they have.
    Hearing(Instant),
    /// Waiting for its turn, or for a new attempt.
    Waiting(Instant),
    /// Votes were asked for.
    Asking(Instant),
    /// Won: the claim is being made durable.
    Won,
}

/// What a ballot depends on that is good for a short time only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) until: Instant,
    /// By whom slots are owned, and since when.
    pub(crate) owners: Vec<(SlotRange, GroupId, Epoch)>,
}

/// One ballot in which this member stands.
#[derive(Debug, Clone)]
pub(crate) struct Ballot {
    pub(crate) purpose: Purpose,
    /// The primary that has failed, and at which `refuted`.
    pub(crate) failed: Option<(ServerId, u64)>,
    /// The epoch of the claim that it would replace; zero where there is none.
    pub(crate) base: Epoch,
    /// The epoch of the present attempt.
    pub(crate) epoch: Epoch,
    /// What it would claim in the present attempt.
    pub(crate) slots: SlotSet,
    /// Slots to take and slots to give up, beside what it has.
    pub(crate) change: (SlotSet, SlotSet),
    /// How much the other replicas have, as far as they told.
    pub(crate) offsets: BTreeMap<ServerId, u64>,
    pub(crate) phase: Phase,
    pub(crate) begun_at: Instant,
    pub(crate) attempts: u32,
    /// When it ends undecided, and by which claims slots must be owned until then.
    pub(crate) terms: Option<Terms>,
    granted: Tally,
    refused: Tally,
    /// The greatest epoch that a refusal told.
    pub(crate) known: Epoch,
    /// Votes of voters that were counted before, by a planted bug.
    extra: u32,
}

impl Ballot {
    pub(crate) fn new(purpose: Purpose, base: Epoch, phase: Phase, now: Instant) -> Self {
        Self {
            purpose,
            failed: None,
            base,
            epoch: Epoch::ZERO,
            slots: SlotSet::EMPTY,
            change: (SlotSet::EMPTY, SlotSet::EMPTY),
            offsets: BTreeMap::new(),
            phase,
            begun_at: now,
            attempts: 0,
            terms: None,
            granted: Tally::default(),
            refused: Tally::default(),
            known: Epoch::ZERO,
            extra: 0,
        }
    }

    /// A new attempt begins.
    pub(crate) fn begin(&mut self, epoch: Epoch, slots: SlotSet, until: Instant) {
        (self.epoch, self.slots, self.phase) = (epoch, slots, Phase::Asking(until));
        self.attempts += 1;
        (self.granted, self.refused, self.extra) = (Tally::default(), Tally::default(), 0);
    }

    /// Asks for votes again in the same epoch, as a planted bug does.
    pub(crate) fn ask_again(&mut self, until: Instant) {
        self.phase = Phase::Asking(until);
    }

    /// A vote came for the present attempt. Whether it is the first of this voter.
    pub(crate) fn handle_granted(&mut self, voters: &Voters, from: ServerId, bugs: Bugs) -> bool {
        let first = voters.add(&mut self.granted, from);
        self.extra += u32::from(!first && bugs.has(Planted::CountVoteTwice));
        first
    }

    /// A refusal came for the present attempt.
    pub(crate) fn handle_refused(&mut self, voters: &Voters, from: ServerId, known: Epoch) {
        self.known = self.known.max(known);
        voters.add(&mut self.refused, from);
    }

    /// Whether a majority has given its vote.
    pub(crate) fn is_won(&self, voters: &Voters, bugs: Bugs) -> bool {
        let needed = crate::voters::majority(voters.present().len());
        let counted = usize::try_from(self.granted.present.count_ones() + self.extra).unwrap_or(0);
        voters.is_majority(self.granted, bugs) || self.extra > 0 && counted >= needed
    }

    /// Whether so many have refused, or have `failed` before they voted, that no majority is left.
    pub(crate) fn is_lost(&self, voters: &Voters, failed: impl Iterator<Item = ServerId>) -> bool {
        let (mut left, mut missing) = (Tally::default(), self.refused);
        for id in voters.everybody() {
            voters.add(&mut left, id);
        }
        for id in failed {
            voters.add(&mut missing, id);
        }
        let left = Tally {
            present: left.present & (!missing.present | self.granted.present),
            previous: left.previous & (!missing.previous | self.granted.previous),
        };
        !voters.is_majority(left, Bugs::default())
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Instant {
        match self.phase {
            Phase::Hearing(at) | Phase::Waiting(at) | Phase::Asking(at) => at,
            Phase::Won => Instant::NEVER,
        }
    }
}

#[cfg(test)]
mod tests;
