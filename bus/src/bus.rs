//! The machine that joins all parts.

use alloc::collections::VecDeque;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use crate::config::{Config, Identity};
use crate::counters::Counters;
use crate::event::{
    ClusterState, Command, CommandError, GroupView, MemberView, Output, RestoreError, Ticket, VotersView,
};
use crate::slot::{GroupId, Slot};

/// One member's whole bus state.
#[derive(Debug)]
pub struct Bus {
    config: Config,
    identity: Identity,
    counters: Counters,
    outputs: VecDeque<Output>,
    next: Instant,
    #[cfg(feature = "planted")]
    planted: Option<crate::planted::Planted>,
}

impl Bus {
    /// A member that begins a life at `now`. `saved` is what the last [`Output::Persist`] of an earlier life held that
    /// reached stable storage, or `None` for a new member. `seed` is the randomness of this life.
    ///
    /// # Errors
    /// The saved record is not this member's memory. Not safe to retry: without its memory it must not start.
    pub fn new(
        config: Config,
        identity: Identity,
        saved: Option<&[u8]>,
        seed: u64,
        now: Instant,
    ) -> Result<Self, RestoreError> {
        let _ = (saved, seed);
        Ok(Self {
            next: now + config.probe_interval,
            config,
            identity,
            counters: Counters::default(),
            outputs: VecDeque::new(),
            #[cfg(feature = "planted")]
            planted: None,
        })
    }

    /// Breaks a rule from now on, for the proof that checkers see it.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.planted = Some(bug);
    }

    /// A packet came from `from`, which the transport has authenticated. Bytes that are no valid packet for this member
    /// are counted and refused; no state moves.
    pub fn handle_packet(&mut self, now: Instant, from: ServerId, bytes: &[u8]) {
        let _ = (now, from, bytes);
    }

    /// Time has passed. To be called at or after [`Bus::next_tick`].
    pub fn handle_tick(&mut self, now: Instant) {
        self.next = now + self.config.probe_interval;
    }

    /// When to call [`Bus::handle_tick`] next. May change with every other call.
    #[must_use]
    pub fn next_tick(&self) -> Instant {
        self.next
    }

    /// The node wants something.
    ///
    /// # Errors
    /// See [`CommandError`]; nothing has changed then.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let _ = (now, command);
        Ok(())
    }

    /// Every [`Output::Persist`] up to `ticket` is on stable storage.
    pub fn handle_persisted(&mut self, now: Instant, ticket: Ticket) {
        let _ = (now, ticket);
    }

    /// What to do next; to be drained after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Who this member is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// All known members, this one included.
    pub fn members(&self) -> impl Iterator<Item = MemberView<'_>> {
        core::iter::empty()
    }

    /// One member.
    #[must_use]
    pub fn member(&self, id: ServerId) -> Option<MemberView<'_>> {
        self.members().find(|member| member.id == id)
    }

    /// All known groups, in the order of their ids.
    pub fn groups(&self) -> impl Iterator<Item = GroupView> {
        core::iter::empty()
    }

    /// Who owns a slot.
    #[must_use]
    pub fn owner(&self, slot: Slot) -> Option<(GroupId, ServerId, Epoch)> {
        let _ = slot;
        None
    }

    /// What was counted in this life.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether this member may take writes for a group, as of the last `handle_*`: it is the group's primary, a majority
    /// of the voters is in reach, no handover pauses it, and the cluster serves.
    #[must_use]
    pub fn may_write(&self, group: GroupId) -> bool {
        let _ = group;
        false
    }

    /// Whether the cluster serves.
    #[must_use]
    pub fn cluster_state(&self) -> ClusterState {
        ClusterState {
            has_quorum: false,
            slots_assigned: 0,
            slots_failed: 0,
            serves_writes: false,
            serves_reads: false,
        }
    }

    /// Who votes.
    #[must_use]
    pub fn voters(&self) -> VotersView<'_> {
        VotersView { epoch: Epoch::ZERO, voters: &[], previous: &[], floor: Epoch::ZERO }
    }

    /// The greatest epoch that this member knows of.
    #[must_use]
    pub fn current_epoch(&self) -> Epoch {
        Epoch::ZERO
    }

    /// Fingerprints of what this member knows: members with their health as told by all, and claims. Two members that
    /// agree have equal ones.
    #[must_use]
    pub fn digests(&self) -> (u64, u64) {
        (0, 0)
    }
}
