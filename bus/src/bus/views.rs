//! What is shown to the node, to metrics and to checkers. Reading changes nothing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::Bus;
use crate::config::Identity;
use crate::counters::Counters;
use crate::event::{ClusterState, Departure, GroupView, Health, MemberView, Role, VotersView};
use crate::member::Member;
use crate::planted::Planted;
use crate::slot::{GroupId, Slot};

impl Bus {
    /// Who this member is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All known members, this one included, in no order.
    pub fn members(&self) -> impl Iterator<Item = MemberView<'_>> {
        self.members.iter().map(|member| self.view(member))
    }

    /// One member.
    #[must_use]
    pub fn member(&self, id: ServerId) -> Option<MemberView<'_>> {
        self.members.get(id).map(|member| self.view(member))
    }

    fn view<'a>(&self, member: &'a Member) -> MemberView<'a> {
        let is_accused = member.id == self.identity.server && self.standing.accused_since.is_some();
        MemberView {
            id: member.id,
            incarnation: member.incarnation,
            address: &member.description.address,
            zone: member.description.zone,
            health: if is_accused { Health::Failed } else { member.health() },
            has_left: member.departure == Departure::Left,
            is_voter: self.voters.has_say(member.id),
            follows: &member.description.follows,
            services: &member.description.services,
            interest: &member.description.interest,
            heard_at: member.heard_at,
        }
    }

    /// Who says that this member was forgotten, if no member takes it for one any more: none was heard for the member timeout.
    #[must_use]
    pub fn forgotten_by(&self, now: Instant) -> Option<ServerId> {
        let own = self.identity.server;
        let is_heard = |member: &Member| {
            let is_recent = now.saturating_since(member.heard_at) < self.config.member_timeout;
            member.id != own && member.heard_at > Instant::ORIGIN && is_recent
        };
        self.forgotten_by.filter(|_| !self.members.iter().any(is_heard))
    }

    /// All known groups, in the order of their ids. Takes time in proportion to members and slots.
    pub fn groups(&self) -> impl Iterator<Item = GroupView> {
        let mut replicas: BTreeMap<GroupId, Vec<ServerId>> = BTreeMap::new();
        for member in self.members.sorted() {
            for group in &member.description.follows {
                replicas.entry(*group).or_default().push(member.id);
            }
        }
        self.claims.iter().map(move |claim| GroupView {
            group: claim.group,
            primary: claim.owner,
            epoch: claim.epoch,
            slots: self.claims.held(claim),
            replicas: replicas.remove(&claim.group).unwrap_or_default(),
        })
    }

    /// The primary of a group and the epoch of its claim.
    #[must_use]
    pub fn primary(&self, group: GroupId) -> Option<(ServerId, Epoch)> {
        self.claims.get(group).map(|claim| (claim.owner, claim.epoch))
    }

    /// Which member owns a slot. None where its owner was forgotten, until somebody else takes it.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<(GroupId, ServerId, Epoch)> {
        let claim = self.claims.owner(slot).filter(|claim| self.members.place(claim.owner).is_some());
        claim.map(|claim| (claim.group, claim.owner, claim.epoch))
    }

    /// What was counted in this life.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether this member may take writes for a group, as of the last `handle_*`: it is the group's primary, a majority
    /// of the voters is in reach, its claims were confirmed since that is so, no handover pauses it, nobody thinks that it has
    /// failed, and every slot has a living owner where the configuration wants that.
    #[must_use]
    pub fn may_write(&self, group: GroupId) -> bool {
        let place = self.places.get(&group);
        let is_open = place.is_some_and(|place| place.role == Role::Primary && place.paused.is_none());
        let is_covered = self.standing.covered || !self.config.require_full_coverage;
        is_open && (self.standing.writable && is_covered || self.bugs.has(Planted::WriteWithoutQuorum))
    }

    /// Until when a majority of the voters counts as in reach, unless more is heard: whoever serves checks it by its own clock, since
    /// a process that was stopped goes on with what it knew before. [`Instant::NEVER`] where no other has a say.
    #[must_use]
    pub fn in_reach_until(&self, now: Instant) -> Instant {
        let (own, timeout) = (self.identity.server, self.config.member_timeout);
        let is_always = self.reach.majority_at(&self.voters, own, now) == Some(now);
        if is_always { Instant::NEVER } else { self.reach.held_until(&self.voters, own, timeout, now).unwrap_or(now) }
    }

    /// How many slots have an owner that has failed or was forgotten.
    pub(super) fn slots_failed(&self) -> u16 {
        let forgotten = self.keep_outs.keys().copied().filter(|id| self.members.place(*id).is_none());
        self.members.failed().chain(forgotten).map(|id| self.claims.owned_by_server(id)).sum()
    }

    /// Whether the cluster serves. Takes time in proportion to the members that have failed.
    #[must_use]
    pub fn cluster_state(&self) -> ClusterState {
        let (slots_assigned, slots_failed) = (self.claims.assigned(), self.slots_failed());
        let has_quorum = self.standing.held_since.is_some();
        let is_covered = self.standing.covered || !self.config.require_full_coverage;
        let is_up = has_quorum && is_covered;
        ClusterState {
            has_quorum,
            is_confirmed: self.standing.writable,
            slots_assigned,
            slots_failed,
            serves_writes: is_up && self.standing.writable,
            serves_reads: is_up || self.config.allow_reads_when_down,
        }
    }

    /// Who votes.
    #[must_use]
    pub fn voters(&self) -> VotersView<'_> {
        let set = self.voters.set();
        VotersView {
            epoch: self.voters.epoch(),
            voters: self.voters.present(),
            previous: self.voters.previous(),
            floor: self.voters.floor(),
            fingerprint: self.voters.fingerprint(),
            forgetful: set.map_or(&[], |set| &set.forgetful),
            previous_forgetful: set.map_or(&[], |set| &set.previous_forgetful),
        }
    }

    /// Whether this member votes but gives no vote, because the set counts on memory that it has lost. A later set that
    /// counts on what there is ends that.
    #[must_use]
    pub fn abstains(&self) -> bool {
        self.voters.set().is_some_and(|set| !set.trusts(self.identity.server, self.memory_since))
    }

    /// The greatest epoch that this member knows of.
    #[must_use]
    pub fn current_epoch(&self) -> Epoch {
        self.current
    }

    /// The greatest epoch in which this member has voted for a group; zero if it never did.
    #[must_use]
    pub fn voted_epoch(&self, group: GroupId) -> Epoch {
        self.votes.epoch(group)
    }

    /// Fingerprints of what this member knows: members with their lives, and claims with voters. Two members that agree have
    /// equal ones.
    #[must_use]
    pub fn digests(&self) -> (u64, u64) {
        (self.members.digest(), self.claims_digest())
    }
}
