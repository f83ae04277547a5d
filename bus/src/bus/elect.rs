//! Claims and ballots: who owns what, who stands, who votes, who has won.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::durable::Deferred;
use super::{Bus, NEWS_MAX, Place};
use crate::ballot::{Ballot, Facts, Given, Phase};
use crate::claim::{Claim, Heard, next_voted};
use crate::event::{CopyState, Event, Role, Unfit};
use crate::gossip::Subject;
use crate::member::Opinion;
use crate::packet::{Body, CHOICE, News, Purpose, Reason, Vote, VoteRequest};
use crate::planted::Planted;
use crate::rank::{self, rank};
use crate::slot::{GroupId, SlotRange, SlotSet};

/// Replicas of a failed primary wait this long for each other's offsets.
const HEARING: Duration = Duration::from_millis(60);
/// Each attempt waits for votes twice as long as the one before, so often.
const WAIT_DOUBLINGS_MAX: u32 = 4;
/// Up to so many members, a new claim is told to everybody at once, by whoever made it: a hundred and some kilobytes, where
/// handing it on costs all members together several times as much, and time.
const TELL_ALL_MAX: usize = 2_048;

impl Place {
    pub(super) fn new(role: Role) -> Self {
        Self { role, offset: 0, copy: CopyState::Missing, unfit: None, paused: None, told: BTreeMap::new() }
    }
}

impl Bus {
    /// Takes in a claim. `from` said so; it is told if it is wrong about itself.
    pub(super) fn hear_claim(&mut self, now: Instant, from: ServerId, claim: Claim, is_fresh: bool) {
        let own = self.identity.server;
        let (group, owner, epoch) = (claim.group, claim.owner, claim.epoch);
        let is_mine = self.claims.get(group).is_some_and(|known| known.owner == own);
        if is_mine && owner != own && self.bugs.has(Planted::NeverStepDown) {
            return;
        }
        self.current = self.current.max(epoch);
        let force = self.bugs.has(Planted::StaleClaimWins);
        match self.claims.hear(claim, self.config.groups_max, force) {
            Heard::Stands(before) => {
                self.counters.claims_replaced += u64::from(before.is_some());
                if is_fresh && from == owner && self.members.len() <= TELL_ALL_MAX {
                    // Everybody is told first-hand; this is for those whom it did not reach.
                    self.gossip.add_told(Subject::Claim(group), NEWS_MAX);
                } else if is_fresh {
                    self.tell(now, Subject::Claim(group));
                }
                self.event(Event::SlotsChanged { group, primary: owner, epoch });
                self.settle_role(now, group, before.as_ref());
                self.settle_ballot(group, epoch);
                self.note_change(now);
                self.govern.handle_changed(now);
                self.consider_migration(now);
            }
            Heard::Stale if from == owner => {
                self.counters.updates_sent += 1;
                let known = self.claims.get(group).cloned().map(News::Claim);
                self.send(from, &Body::News(known.into_iter().collect()));
            }
            Heard::Full => self.counters.refused_full += 1,
            Heard::Stale | Heard::Known => {}
        }
    }

    /// This member's role in a group follows from the claim that stands.
    fn settle_role(&mut self, now: Instant, group: GroupId, before: Option<&Claim>) {
        let own = self.identity.server;
        let Some(claim) = self.claims.get(group) else { return };
        let (is_owner, epoch) = (claim.owner == own, claim.epoch);
        let was_owner = before.is_some_and(|before| before.owner == own);
        if is_owner || was_owner {
            self.places.entry(group).or_insert_with(|| Place::new(Role::None));
        }
        let Some(place) = self.places.get_mut(&group).filter(|place| place.role != Role::None || is_owner || was_owner)
        else {
            return;
        };
        let role = if is_owner { Role::Primary } else { Role::Replica };
        let (was, ended) = (core::mem::replace(&mut place.role, role), place.paused.take().is_some());
        place.told.clear();
        if was != role {
            // What it has of the data is for its engine to say anew.
            (place.copy, place.unfit) = (CopyState::Missing, None);
        }
        if ended {
            self.event(Event::HandoverEnded { group });
        }
        if was != role {
            self.event(Event::RoleChanged { group, role, epoch });
            self.describe_again(now);
        }
        if role == Role::Replica {
            // Its new primary may have failed by now.
            self.stand_if_failed(now, group);
        }
    }

    /// A ballot for a claim that is over, or for slots that have changed hands, ends.
    fn settle_ballot(&mut self, group: GroupId, epoch: Epoch) {
        let own = self.identity.server;
        let owner = self.claims.get(group).map(|claim| claim.owner);
        let is_over = |ballot: &mut Ballot| match ballot.purpose {
            Purpose::Slots => owner != Some(own),
            Purpose::Election | Purpose::ByHand => epoch > ballot.base,
            Purpose::Voters => false,
        };
        if self.ballots.get_mut(&group).is_some_and(is_over) {
            self.ballots.remove(&group);
        }
        self.handovers.remove(&group);
    }

    /// Slots of this member that others have taken are given up, so that they do not come back to it by accident.
    pub(super) fn trim_overlapped(&mut self, now: Instant) {
        let own = self.identity.server;
        let primary = self.places.iter().filter(|(_, place)| place.role == Role::Primary);
        let is_overlapped = |group: &GroupId| {
            let claim = self.claims.get(*group).filter(|claim| claim.owner == own);
            claim.is_some_and(|claim| self.claims.is_overlapped(claim))
        };
        let overlapped = primary.map(|(group, _)| *group).filter(is_overlapped);
        for group in overlapped.collect::<Vec<_>>() {
            if !self.ballots.contains_key(&group) && self.voters.set().is_some() {
                self.begin_slots(now, group, SlotSet::EMPTY, SlotSet::EMPTY);
            }
        }
    }

    /// What this member says about itself has changed.
    pub(super) fn describe_again(&mut self, now: Instant) {
        let description = self.own_description();
        let own = self.identity.server;
        let place = self.members.place(own).expect("a member knows itself");
        let before = &self.members.at(place).description;
        let is_same = before.follows == description.follows
            && before.interest == description.interest
            && before.services == description.services;
        if is_same {
            return;
        }
        self.members.describe(place, description);
        self.tell(now, Subject::Member(own));
        self.note_change(now);
    }

    /// A primary has failed: this member stands in those of its groups where it is a replica.
    pub(super) fn stand_against(&mut self, now: Instant, failed: ServerId) {
        let groups: Vec<GroupId> = self.places.keys().copied().collect();
        for group in groups {
            if self.claims.get(group).is_some_and(|claim| claim.owner == failed) {
                self.stand_if_failed(now, group);
            }
        }
    }

    pub(super) fn stand_if_failed(&mut self, now: Instant, group: GroupId) {
        let Some(claim) = self.claims.get(group) else { return };
        let Some(place) = self.places.get(&group).filter(|place| place.role == Role::Replica) else { return };
        let owner = self.members.get(claim.owner);
        let is_suspected = owner.is_some_and(|owner| owner.opinion == Opinion::Suspected);
        let is_gone = owner.is_none() && self.keep_outs.contains_key(&claim.owner)
            || is_suspected && self.bugs.has(Planted::VoteWithoutFailure);
        if !is_gone && owner.is_none_or(|owner| !owner.life.failed) {
            return;
        }
        let is_busy = self.ballots.get(&group).is_some_and(|ballot| ballot.purpose == Purpose::Election);
        if is_busy || !self.may_lead() || self.claims.owned_by(group) == 0 {
            return;
        }
        let failed_at = owner.map_or(now, |owner| owner.failed_at);
        if let Some(why) = self.unfit(place, failed_at) {
            return self.abstain(group, claim.epoch, why);
        }
        let (base, failed) = (claim.epoch, owner.map(|owner| (owner.id, owner.life.refuted)));
        let (offset, told) = (place.offset, place.told.clone());
        let mut ballot = Ballot::new(Purpose::Election, base, Phase::Hearing(now + HEARING), failed_at);
        ballot.failed = failed;
        ballot.offsets = told.into_iter().filter(|(_, told)| told.0 == base).map(|(id, told)| (id, told.1)).collect();
        let fellows = self.fellows(group);
        self.send_to_all(fellows.iter().copied(), &Body::Stand { group, base, offset });
        self.ballots.insert(group, ballot);
        self.hear_fellows(now, group, &fellows);
    }

    /// Why a replica whose primary failed at `failed_at` must not take its place, if it must not. The age of the copy counts until
    /// then: a primary that has failed takes no writes, however long the ballot lasts.
    fn unfit(&self, place: &Place, failed_at: Instant) -> Option<Unfit> {
        match place.copy {
            _ if self.bugs.has(Planted::StandWithoutCopy) => None,
            CopyState::Missing => Some(Unfit::NoCopy),
            CopyState::Current => None,
            CopyState::Since(_) if self.bugs.has(Planted::StandStale) => None,
            CopyState::Since(at) => {
                // As in Valkey: a failure takes one timeout to be found, which is no fault of the copy.
                let age = failed_at.saturating_since(at).saturating_sub(self.config.member_timeout);
                self.config.copy_age_max.filter(|max| age > *max).map(|_| Unfit::Stale { age })
            }
        }
    }

    /// Ends an election in which this member must not stand any more: the primary may have been back for a while. Says whether it did.
    fn end_unfit(&mut self, now: Instant, group: GroupId) -> bool {
        if self.ballots.get(&group).is_none_or(|ballot| ballot.purpose != Purpose::Election) {
            return false;
        }
        let Some((claim, place)) = self.claims.get(group).zip(self.places.get(&group)) else { return false };
        let failed_at = self.members.get(claim.owner).map_or(now, |owner| owner.failed_at);
        let (base, unfit) = (claim.epoch, self.unfit(place, failed_at));
        if let Some(why) = unfit {
            self.ballots.remove(&group);
            self.abstain(group, base, why);
        }
        unfit.is_some()
    }

    /// Tells the node once why this member does not stand.
    fn abstain(&mut self, group: GroupId, base: Epoch, why: Unfit) {
        let Some(place) = self.places.get_mut(&group) else { return };
        if place.unfit.replace((base, why)) != Some((base, why)) {
            self.event(Event::NotStanding { group, why });
        }
    }

    /// What this replica has of its group's data is another thing now: it may stand for a primary that has failed, or not any more.
    pub(super) fn handle_copy(&mut self, now: Instant, group: GroupId, copy: CopyState) {
        let Some(place) = self.places.get_mut(&group) else { return };
        let before = core::mem::replace(&mut place.copy, copy);
        if before == copy || place.role != Role::Replica {
            return;
        }
        let is_open = |ballot: &Ballot| ballot.purpose == Purpose::Election && ballot.phase != Phase::Won;
        if copy == CopyState::Missing && self.ballots.get(&group).is_some_and(is_open) {
            self.ballots.remove(&group);
        }
        self.stand_if_failed(now, group);
    }

    /// Living replicas of a group without this one.
    fn fellows(&self, group: GroupId) -> Vec<ServerId> {
        let is_fellow = |member: &&crate::member::Member| {
            !member.life.failed && member.id != self.identity.server && member.description.follows.contains(&group)
        };
        self.members.iter().filter(is_fellow).map(|member| member.id).collect()
    }

    /// Once all fellows have told how much they have, the rank is known.
    fn hear_fellows(&mut self, now: Instant, group: GroupId, fellows: &[ServerId]) {
        let Some(ballot) = self.ballots.get(&group) else { return };
        let Phase::Hearing(until) = ballot.phase else { return };
        let all_told = fellows.iter().all(|id| ballot.offsets.contains_key(id));
        if !all_told && now < until {
            return;
        }
        let delay = if fellows.is_empty() { Duration::ZERO } else { self.config.rank_delay * self.own_rank(group) };
        if let Some(ballot) = self.ballots.get_mut(&group) {
            ballot.phase = Phase::Waiting(now + delay);
        }
        self.advance_ballot(now, group);
    }

    /// How many replicas should stand before this one.
    fn own_rank(&self, group: GroupId) -> u32 {
        let (Some(ballot), Some(place)) = (self.ballots.get(&group), self.places.get(&group)) else { return 0 };
        let zone_primaries = |zone| {
            let owners = self.claims.iter().filter_map(|claim| self.members.get(claim.owner));
            owners.filter(|owner| !owner.life.failed && owner.description.zone == zone).count()
        };
        let standing = |id, offset| {
            let zone = self.members.get(id).map(|member| member.description.zone).unwrap_or_default();
            rank::Standing { offset, zone_primaries: zone_primaries(zone), id }
        };
        let others: Vec<_> = ballot.offsets.iter().map(|(id, offset)| standing(*id, *offset)).collect();
        rank(&standing(self.identity.server, place.offset), &others)
    }

    pub(super) fn handle_stand(&mut self, now: Instant, from: ServerId, group: GroupId, base: Epoch, offset: u64) {
        let follows = self.members.get(from).is_some_and(|member| member.description.follows.contains(&group));
        let Some(place) = self.places.get_mut(&group).filter(|place| follows && place.role == Role::Replica) else {
            self.counters.refused_unentitled += 1;
            return;
        };
        let is_first = place.told.insert(from, (base, offset)).is_none_or(|before| before.0 != base);
        // Who does not stand is waited for by nobody.
        let own_offset = if place.copy == CopyState::Missing || place.unfit.is_some() { 0 } else { place.offset };
        let known = self.claims.get(group).map(|claim| claim.epoch);
        if let Some(ballot) = self.ballots.get_mut(&group).filter(|ballot| ballot.base == base) {
            ballot.offsets.insert(from, offset);
        }
        if is_first && known == Some(base) {
            self.send(from, &Body::Stand { group, base, offset: own_offset });
        }
        let fellows = self.fellows(group);
        self.hear_fellows(now, group, &fellows);
    }

    /// A ballot for slots of a group whose primary this member is, or for a new group.
    pub(super) fn begin_slots(&mut self, now: Instant, group: GroupId, taken: SlotSet, given_up: SlotSet) {
        let base = self.claims.get(group).map_or(Epoch::ZERO, |claim| claim.epoch);
        let mut ballot = Ballot::new(Purpose::Slots, base, Phase::Waiting(now), now);
        ballot.change = (taken, given_up);
        self.ballots.insert(group, ballot);
        self.advance_ballot(now, group);
    }

    /// A ballot about the next set of voters.
    pub(super) fn begin_choice(&mut self, now: Instant) {
        let ballot = Ballot::new(Purpose::Voters, self.voters.epoch(), Phase::Waiting(now), now);
        self.ballots.insert(CHOICE, ballot);
        self.advance_ballot(now, CHOICE);
    }

    /// A ballot by hand: the primary has agreed, or is not asked.
    pub(super) fn begin_by_hand(&mut self, now: Instant, group: GroupId) {
        let base = self.claims.get(group).map_or(Epoch::ZERO, |claim| claim.epoch);
        self.ballots.insert(group, Ballot::new(Purpose::ByHand, base, Phase::Waiting(now), now));
        self.advance_ballot(now, group);
    }

    pub(super) fn tick_ballots(&mut self, now: Instant) {
        let due = self.ballots.iter().filter(|(_, ballot)| ballot.due() <= now);
        for group in due.map(|(group, _)| *group).collect::<Vec<_>>() {
            match self.ballots.get(&group).map(|ballot| ballot.phase) {
                Some(Phase::Hearing(_)) => self.hear_fellows(now, group, &[]),
                Some(Phase::Asking(_)) => self.retry_ballot(now, group),
                Some(Phase::Waiting(_)) => self.advance_ballot(now, group),
                Some(Phase::Won) | None => {}
            }
        }
    }

    /// By which claims slots are owned.
    pub(super) fn owners_of(&self, slots: &SlotSet) -> Vec<(SlotRange, GroupId, Epoch)> {
        self.claims.owned_runs(slots).map(|(run, owner)| (run, owner.group, owner.epoch)).collect()
    }

    /// Ends a ballot whose terms are not met any more. Says whether it did.
    fn end_unmet(&mut self, now: Instant, group: GroupId) -> bool {
        let Some(ballot) = self.ballots.get(&group) else { return false };
        let Some(terms) = &ballot.terms else { return false };
        let is_unmet = terms.until <= now || self.owners_of(&ballot.change.0) != terms.owners;
        if is_unmet {
            self.ballots.remove(&group);
        }
        is_unmet
    }

    /// Asks for votes if the time has come.
    fn advance_ballot(&mut self, now: Instant, group: GroupId) {
        if self.end_unmet(now, group) || self.end_unfit(now, group) {
            return;
        }
        let Some(ballot) = self.ballots.get(&group) else { return };
        if !matches!(ballot.phase, Phase::Waiting(at) if at <= now) {
            return;
        }
        if self.voters.set().is_none() {
            return self.retry_ballot(now, group);
        }
        let (purpose, base, failed) = (ballot.purpose, ballot.base, ballot.failed);
        let held = self.claims.get(group).map_or(SlotSet::EMPTY, |claim| self.claims.held(claim));
        let (wanted, given_up) = &ballot.change;
        let taken = wanted.without(&held);
        let slots = held.union(&taken).without(given_up);
        let asks_again = self.bugs.has(Planted::CountVoteTwice) && ballot.attempts > 0;
        let epoch = if asks_again { ballot.epoch } else { self.next_epoch(group, ballot.known.max(base)) };
        // Drives or links may be slower than anybody thought.
        let until = now + self.config.ballot_wait * 2_u32.pow(ballot.attempts.min(WAIT_DOUBLINGS_MAX));
        let offset = self.places.get(&group).map_or(0, |place| place.offset);
        let voters = self.voters.fingerprint();
        let request = VoteRequest { group, purpose, epoch, base, voters, offset, failed, slots: slots.clone(), taken };
        if let Some(ballot) = self.ballots.get_mut(&group) {
            if asks_again { ballot.ask_again(until) } else { ballot.begin(epoch, slots, until) }
        }
        self.counters.ballots_begun += 1;
        if purpose != Purpose::Voters {
            self.current = self.current.max(epoch);
            self.event(Event::Standing { group, epoch });
        }
        let own = self.identity.server;
        let own_vote = self.voters.has_say(own).then(|| self.decide(now, own, &request));
        if purpose == Purpose::Slots && own_vote == Some(Err(Reason::SlotTaken)) {
            // What others voted for would bind them for nothing: two that want slots of each other would go on to keep each other, and
            // the replicas of a third group, from them.
            return self.retry_ballot(now, group);
        }
        self.send_to_all(self.other_voters(), &Body::Request(request.clone()));
        if own_vote == Some(Ok(())) {
            self.durable.defer(Deferred::OwnVote(request));
        }
    }

    /// The epoch of the next attempt: epochs of groups and of sets of voters are counted apart.
    fn next_epoch(&self, group: GroupId, known: Epoch) -> Epoch {
        if group == CHOICE {
            return known.max(self.voters.epoch()).max(self.votes.epoch(CHOICE)).next();
        }
        next_voted(known.max(self.current).max(self.voters.floor()))
    }

    fn retry_ballot(&mut self, now: Instant, group: GroupId) {
        let Some(ballot) = self.ballots.get_mut(&group) else { return };
        self.counters.ballots_lost += u64::from(ballot.attempts > 0);
        self.votes.handle_given_up(group, Given { epoch: ballot.epoch, candidate: self.identity.server });
        let longest = self.config.ballot_retry_max * ballot.attempts.clamp(1, 8);
        let delay = self.config.ballot_retry_max / 5 + self.chance.span(longest);
        ballot.phase = Phase::Waiting(now + delay);
    }

    fn decide(&mut self, now: Instant, candidate: ServerId, request: &VoteRequest) -> Result<(), Reason> {
        let facts = Facts {
            own: self.identity.server,
            voters: &self.voters,
            claims: &self.claims,
            members: &self.members,
            abstains: self.abstains() && !self.bugs.has(Planted::VoteWithoutMemory),
            groups_max: self.config.groups_max,
            now,
            bugs: self.bugs,
        };
        let decision = self.votes.decide(candidate, request, &facts);
        if decision.is_ok() && request.purpose != Purpose::Voters {
            self.current = self.current.max(request.epoch);
        }
        decision
    }

    /// Somebody asks for this member's vote.
    pub(super) fn handle_request(&mut self, now: Instant, from: ServerId, request: &VoteRequest) {
        // The candidate tells that the primary has failed, in case that news has not come here yet.
        if let Some((id, refuted)) = request.failed {
            let life = crate::member::Life { refuted, failed: true };
            self.learn_all(now, from, alloc::vec![News::Life(id, life)], true);
        }
        let decision = self.decide(now, from, request);
        let claim_epoch = self.claims.get(request.group).map_or(Epoch::ZERO, |claim| claim.epoch);
        let decided = if request.group == CHOICE { self.voters.epoch() } else { self.voters.floor() };
        let promised = match decision {
            Err(Reason::SlotTaken) => self.votes.promised(),
            Err(Reason::StaleEpoch) if request.takes_nothing() => self.votes.greatest(request.group),
            _ => Epoch::ZERO,
        };
        let known = self.votes.epoch(request.group).max(claim_epoch).max(decided).max(promised);
        let vote = Vote { group: request.group, epoch: request.epoch, refused: decision.err(), known };
        let Err(reason) = decision else {
            let (purpose, voters) = (request.purpose, self.voters.fingerprint());
            return self.durable.defer(Deferred::Vote { candidate: from, vote, purpose, voters });
        };
        self.counters.votes_refused += 1;
        if matches!(reason, Reason::PrimaryAlive | Reason::NotReplica) {
            self.votes.handle_refused(from, request, now);
        }
        self.send(from, &Body::Vote(vote));
        self.update_candidate(from, request, reason);
    }

    /// A candidate was refused because it does not know something: it is told.
    fn update_candidate(&mut self, from: ServerId, request: &VoteRequest, reason: Reason) {
        let news: Vec<News> = match reason {
            Reason::OtherVoters | Reason::NotVoter => {
                self.voters.set().cloned().map(Box::new).map(News::Voters).into_iter().collect()
            }
            Reason::StaleClaim => self.claims.get(request.group).cloned().map(News::Claim).into_iter().collect(),
            Reason::SlotTaken => {
                let owners = request.slots.ranges().iter().filter_map(|range| self.claims.owner(range.first));
                owners.filter(|owner| owner.group != request.group).take(1).cloned().map(News::Claim).collect()
            }
            Reason::PrimaryAlive => {
                let owner = self.claims.get(request.group).and_then(|claim| self.members.get(claim.owner));
                owner.map(|owner| News::Life(owner.id, owner.life)).into_iter().collect()
            }
            _ => Vec::new(),
        };
        if !news.is_empty() {
            self.counters.updates_sent += 1;
            self.send(from, &Body::News(news));
        }
    }

    /// A vote, or a refusal, came.
    pub(super) fn handle_vote(&mut self, now: Instant, from: ServerId, vote: &Vote) {
        let asking = |ballot: &&mut Ballot| matches!(ballot.phase, Phase::Asking(_)) && ballot.epoch == vote.epoch;
        let Some(ballot) = self.ballots.get_mut(&vote.group).filter(asking) else {
            self.counters.refused_unasked += 1;
            return;
        };
        match vote.refused {
            None => {
                ballot.handle_granted(&self.voters, from, self.bugs);
                self.check_won(now, vote.group);
            }
            Some(_) => {
                ballot.handle_refused(&self.voters, from, vote.known);
                if ballot.is_lost(&self.voters, self.members.failed()) {
                    self.retry_ballot(now, vote.group);
                }
            }
        }
    }

    /// This member's own vote is durable.
    pub(super) fn count_own_vote(&mut self, now: Instant, request: &VoteRequest) {
        let (own, group, epoch) = (self.identity.server, request.group, request.epoch);
        self.note_vote(group, epoch, own, request.purpose, request.voters);
        let Some(ballot) = self.ballots.get_mut(&group).filter(|ballot| ballot.epoch == epoch) else { return };
        if matches!(ballot.phase, Phase::Asking(_)) && request.voters == self.voters.fingerprint() {
            ballot.handle_granted(&self.voters, own, self.bugs);
            self.check_won(now, group);
        }
    }

    /// A vote is durable.
    pub(super) fn note_vote(
        &mut self,
        group: GroupId,
        epoch: Epoch,
        candidate: ServerId,
        purpose: Purpose,
        voters: u64,
    ) {
        self.counters.votes_given += 1;
        if group != CHOICE {
            self.event(Event::Voted { group, epoch, candidate, purpose, voters });
        }
    }

    fn check_won(&mut self, now: Instant, group: GroupId) {
        if self.end_unmet(now, group) {
            return;
        }
        let Some(ballot) = self.ballots.get_mut(&group).filter(|ballot| ballot.is_won(&self.voters, self.bugs)) else {
            return;
        };
        ballot.phase = Phase::Won;
        self.counters.ballots_won += 1;
        if ballot.purpose == Purpose::Voters {
            let epoch = ballot.epoch;
            self.ballots.remove(&group);
            return self.choose(now, epoch);
        }
        if ballot.purpose == Purpose::Election {
            self.counters.time_to_ballot.add(now.saturating_since(ballot.begun_at));
        }
        let until = ballot.terms.as_ref().map(|terms| terms.until);
        let claim = Claim { group, owner: self.identity.server, epoch: ballot.epoch, slots: ballot.slots.clone() };
        self.durable.defer(Deferred::Claim { claim, elected: true, until });
    }

    /// A claim of this member is durable: from now on it holds, and everybody hears of it.
    pub(super) fn make_claim(&mut self, now: Instant, claim: Claim, elected: bool) {
        let (group, epoch) = (claim.group, claim.epoch);
        self.ballots.remove(&group);
        if elected {
            self.event(Event::Elected { group, epoch });
        }
        let before = self.claims.get(group).map(|before| before.owner);
        self.hear_claim(now, self.identity.server, claim.clone(), true);
        let mut concerned = self.other_voters();
        if self.members.len() <= TELL_ALL_MAX {
            concerned.extend(self.members.iter().filter(|member| !member.life.failed).map(|member| member.id));
        }
        concerned.extend(self.fellows(group));
        concerned.extend(before);
        concerned.sort_unstable();
        concerned.dedup();
        concerned.retain(|id| *id != self.identity.server);
        self.send_to_all(concerned, &Body::News(alloc::vec![News::Claim(claim)]));
    }

    /// The set of voters is another one: ballots under the old one are over, and begin anew.
    pub(super) fn restart_ballots(&mut self, now: Instant) {
        for ballot in self.ballots.values_mut().filter(|ballot| matches!(ballot.phase, Phase::Asking(_))) {
            ballot.phase = Phase::Waiting(now);
        }
    }
}
