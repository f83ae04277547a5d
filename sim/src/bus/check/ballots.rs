//! Votes and elections.

use ashlar_bus::Bus;
use ashlar_bus::packet::Purpose;
use ashlar_bus::saved::Saved;
use ashlar_bus::slot::GroupId;
use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::sets::bit;
use super::{Checker, slow};
use crate::bus::world::{Scene, number_of};

/// A vote, and under which set of voters it was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastVote {
    pub(super) epoch: Epoch,
    pub(super) candidate: ServerId,
    pub(super) voters: u64,
}

/// Who has voted for one candidate under one set of voters.
#[derive(Debug)]
pub(super) struct Given {
    voters: u64,
    by: super::Mask,
}

impl Checker {
    pub(super) fn voted(&mut self, scene: &Scene<'_>, group: GroupId, vote: LastVote, purpose: Purpose) {
        let (voter, LastVote { epoch, candidate, voters }) = (scene.member, vote);
        self.counts.votes += 1;
        let known = &mut self.known[voter as usize];
        known.voted_under.insert(voters);
        // A voter's memory binds it whatever the set. Without that memory it votes where nobody counts on it: under another set,
        // which the votes that it may have given do not count for, and which names the life in which its new memory began.
        let last = known.votes.insert(group, vote);
        let (is_lost, since) = (known.lost_under.contains(&voters), known.memory_since);
        if let Some(LastVote { epoch: before, candidate: to, .. }) = last {
            self.expect(epoch > before, || {
                let [now, then] = [candidate, to].map(|id| number_of(id).unwrap_or(u32::MAX));
                format!("{voter} votes twice in group {group}: epoch {epoch} for {now}, after {before} for {then}")
            });
        }
        let is_trusted = since.is_some_and(|since| self.sets.trusts(voters, voter, since));
        self.expect(!is_lost && is_trusted, || {
            format!("{voter} votes in group {group}, epoch {epoch} under voters that count on memory that it has lost")
        });
        let ballot = self.ballots.entry((group, epoch, candidate)).or_default();
        match ballot.iter_mut().find(|given| given.voters == voters) {
            Some(given) => given.by |= bit(voter),
            None => ballot.push(Given { voters, by: bit(voter) }),
        }
        let saved = scene.durable.and_then(|bytes| Saved::decode(bytes, scene.bus.identity(), &self.rules.config).ok());
        let kept = saved.is_some_and(|saved| saved.votes.iter().any(|(of, vote)| *of == group && vote.epoch >= epoch));
        self.expect(kept, || format!("{voter} tells of its vote in group {group}, epoch {epoch} before it is durable"));
        self.voted_with_reason(scene, group, vote, purpose);
    }

    /// What the voter saw when it decided must be a reason to vote.
    fn voted_with_reason(&mut self, scene: &Scene<'_>, group: GroupId, vote: LastVote, purpose: Purpose) {
        let (voter, known) = (scene.member, &self.known[scene.member as usize]);
        // The vote was decided before it was written; what the voter has heard since is no part of it.
        let since_ns = known.freeze.before(scene.now_ns, self.rules.decision_ns());
        let candidate = number_of(vote.candidate).unwrap_or(u32::MAX);
        let has_asked = self.known.get(candidate as usize).is_some_and(|known| known.asked.contains(&group));
        let claim = known.claims.get(&group);
        let is_new = claim.is_some_and(|told| told.at_ns >= since_ns);
        let primary = claim.and_then(|told| self.inside(told.primary));
        // A primary votes on its own replacement once others have told it that it has failed.
        let heard_ns = since_ns.saturating_sub(self.rules.flight_ns_max);
        let is_gone = primary.is_some_and(|no| match no == voter {
            true => self.known.iter().any(|other| other.views[no as usize].failed.held_since(heard_ns)),
            false => known.views[no as usize].gone.held_since(since_ns),
        });
        let holds = match purpose {
            Purpose::Election => is_new || is_gone,
            Purpose::ByHand => has_asked,
            Purpose::Slots => is_new || primary.is_none_or(|no| no == candidate),
            // Such a vote is told of by nobody.
            Purpose::Voters => false,
        };
        self.expect(holds, || {
            let epoch = vote.epoch;
            format!(
                "{voter} votes for {candidate} in group {group} of {primary:?}, epoch {epoch}, {purpose:?}: no reason"
            )
        });
    }

    /// Whoever stands in an election has a whole copy, which was not too old when the primary failed.
    pub(super) fn standing(&mut self, scene: &Scene<'_>, group: GroupId) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        let known = &self.known[member as usize];
        let Some(primary) = scene.bus.primary(group).map(|(id, _)| id).filter(|id| *id != me) else { return };
        if known.asked.contains(&group) {
            return;
        }
        let fact = known.copies.get(&group).copied();
        self.expect(fact.is_some_and(|fact| fact.is_whole), || {
            format!("{member} stands for group {group} without a whole copy of its data")
        });
        let (Some(fact), Some(max), Some(no)) = (fact, self.rules.config.copy_age_max, self.inside(primary)) else {
            return;
        };
        let gone_at_ns = self.known[member as usize].views[no as usize].gone_at_ns;
        let age_ns = gone_at_ns.saturating_sub(fact.heard_ns);
        let max_ns = slow(max.as_nanos() as u64 + self.rules.timeout_ns());
        self.expect(age_ns <= max_ns + self.rules.decision_ns(), || {
            format!("{member} stands for group {group} with a copy that was {age_ns} ns old, of {max:?} at most")
        });
    }

    pub(super) fn elected(&mut self, scene: &Scene<'_>, group: GroupId, epoch: Epoch) {
        let (member, me) = (scene.member, scene.bus.identity().server);
        self.counts.elections += 1;
        self.known[member as usize].elected.insert(group, epoch);
        // Votes count together if they were given under one set; under that set they also count for the set before it.
        // They are used up by that: who is elected again needs others.
        let ballot = self.ballots.remove(&(group, epoch, me)).unwrap_or_default();
        let won = ballot.iter().find(|given| self.sets.get(given.voters).is_some_and(|set| set.is_enough(given.by)));
        let Some(cluster) = won.map(|given| self.sets.cluster(given.voters)) else {
            let counts: Vec<u32> = ballot.iter().map(|given| given.by.count_ones()).collect();
            return self.violated(|| {
                format!("{member} is elected in group {group}, epoch {epoch} by {counts:?} votes: no majority")
            });
        };
        let is_first = self.elections.insert((group, epoch, cluster));
        self.expect(is_first, || {
            format!("{member} is elected in group {group}, epoch {epoch}, which was decided before")
        });
        self.serve(group, epoch, me, cluster);
        let kept = self.shadow(scene).is_some_and(|shadow| self.keeps(&shadow, me, group, epoch));
        self.expect(kept, || {
            format!("{member} tells of its election in group {group}, epoch {epoch} before it is durable")
        });
    }

    /// A bus that begins with what is on this member's disk now.
    fn shadow(&self, scene: &Scene<'_>) -> Option<Bus> {
        let identity = scene.bus.identity().clone();
        Bus::new(self.rules.config.clone(), identity, Some(scene.durable?), 1, Instant::ORIGIN).ok()
    }

    /// Whether that bus knows itself as the group's primary in that epoch, or somebody in a later one, or whom another cluster
    /// elected in the same one before the two met.
    pub(super) fn keeps(&self, bus: &Bus, me: ServerId, group: GroupId, epoch: Epoch) -> bool {
        let Some((primary, known)) = bus.primary(group) else { return false };
        let primaries = self.primaries.get(&(group, known)).map(Vec::as_slice).unwrap_or_default();
        known > epoch || known == epoch && (primary == me || primaries.iter().any(|(one, _)| *one == primary))
    }
}
