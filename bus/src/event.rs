//! What a [`Bus`](crate::Bus) is told to do, what it does, what it shows, and how it refuses.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use ashlar_wire::epoch::Epoch;
use ashlar_wire::id::{Incarnation, ServerId};
use ashlar_wire::time::Instant;

use crate::packet::Purpose;
use crate::slot::{GroupId, SlotRange, SlotSet, Zone};

/// A version of the durable state. Greater is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// What the caller has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a datagram: best effort, may be lost, doubled, reordered. At most `Config::packet_bytes_max` bytes.
    Send {
        /// To whom.
        to: ServerId,
        /// A packet.
        bytes: Vec<u8>,
    },
    /// Put the whole durable state on stable storage in place of the last one, then call `Bus::handle_persisted`.
    /// Whatever depends on it is withheld until then. At most one is under way at a time.
    Persist {
        /// Which version it is.
        ticket: Ticket,
        /// A saved record, for the next life.
        bytes: Vec<u8>,
    },
    /// Something has happened here.
    Event(Event),
}

/// What this member does in a replica group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It owns the group's slots.
    Primary,
    /// It follows the group's primary.
    Replica,
    /// It has nothing to do with the group any more.
    None,
}

/// What a replica has of its group's data, as its engine says. Only a replica whose copy is whole and recent stands for election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyState {
    /// No whole copy came from a primary of the group in this life.
    #[default]
    Missing,
    /// Whole, and the primary is heard.
    Current,
    /// Whole as of then: the primary was not heard since.
    Since(Instant),
}

/// Why a replica of a failed primary does not stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It has no whole copy of the group's data.
    NoCopy,
    /// Its copy was that old when the primary failed, which is more than `Config::copy_age_max`.
    Stale {
        /// How old, without the one timeout that it takes to find a failure.
        age: Duration,
    },
}

/// How a failure became known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedBy {
    /// This voter counted a majority of suspicions, its own included.
    Quorum {
        /// Voters of the present set that suspect.
        reports: u16,
        /// Voters of the present set.
        voters: u16,
    },
    /// Another member told.
    News,
}

/// What has happened at this member, for its node, its metrics and the checkers of the simulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member became known.
    MemberJoined {
        /// Which.
        id: ServerId,
        /// Where it is reached.
        address: String,
    },
    /// A known member is reached elsewhere now.
    AddressChanged {
        /// Which.
        id: ServerId,
        /// Where.
        address: String,
    },
    /// A known member says something else about itself than before: what it follows, where it is, its services.
    Described {
        /// Which.
        id: ServerId,
    },
    /// This member suspects another (PFAIL): it has been silent for the member timeout.
    Suspected {
        /// Which.
        id: ServerId,
    },
    /// It is not suspected any more.
    Unsuspected {
        /// Which.
        id: ServerId,
    },
    /// A member has failed (FAIL).
    Failed {
        /// Which.
        id: ServerId,
        /// How that became known.
        by: FailedBy,
    },
    /// A member has stopped in order, as it says itself.
    Left {
        /// Which.
        id: ServerId,
    },
    /// A member that had stopped in order has begun another life, or goes on after all.
    Returned {
        /// Which.
        id: ServerId,
    },
    /// A failed member is back.
    Recovered {
        /// Which.
        id: ServerId,
    },
    /// A member was forgotten: it is none any more.
    Forgotten {
        /// Which.
        id: ServerId,
    },
    /// A wish was heard that a server be forgotten, be it a member or not: it is kept out from now on.
    KeptOut {
        /// Which.
        id: ServerId,
        /// Tells this wish from others about the same server.
        tag: u32,
        /// For how long still.
        left: Duration,
    },
    /// This member itself was forgotten, as a member that keeps it out says. Told once for each wish; nothing else follows
    /// from it here: whether to go, or to wait and join again, is for the node.
    ForgottenHere {
        /// Who keeps it out.
        by: ServerId,
        /// For how long still.
        left: Duration,
    },
    /// This member's role in a group is another one now.
    RoleChanged {
        /// In which group.
        group: GroupId,
        /// What it does there now.
        role: Role,
        /// Since which epoch of the group.
        epoch: Epoch,
    },
    /// A group's claim is another one now: its primary, its epoch or its slots.
    SlotsChanged {
        /// Which group.
        group: GroupId,
        /// Its primary.
        primary: ServerId,
        /// The epoch of the claim.
        epoch: Epoch,
    },
    /// This member stands in a ballot.
    Standing {
        /// For which group.
        group: GroupId,
        /// For which epoch.
        epoch: Epoch,
    },
    /// The group's primary has failed, and this replica does not stand: told once for each claim and reason.
    NotStanding {
        /// For which group.
        group: GroupId,
        /// Why not.
        why: Unfit,
    },
    /// This member has won a ballot of a majority, and its claim is durable.
    Elected {
        /// For which group.
        group: GroupId,
        /// For which epoch.
        epoch: Epoch,
    },
    /// This voter has given its vote, durably.
    Voted {
        /// For which group.
        group: GroupId,
        /// For which epoch.
        epoch: Epoch,
        /// To whom.
        candidate: ServerId,
        /// What for.
        purpose: Purpose,
        /// Under which set of voters: its [`VotersView::fingerprint`].
        voters: u64,
    },
    /// A primary pauses its writes for an agreed failover: let writes in flight end, give the final offset with
    /// `Command::Offset`, and then `Command::Paused`.
    HandoverPaused {
        /// In which group.
        group: GroupId,
    },
    /// The primary, which is about to stop, has offered the group to this replica: it asks for the pause as soon as its copy goes far
    /// enough.
    HandoverOffered {
        /// In which group.
        group: GroupId,
    },
    /// The primary has paused its writes for this replica, which takes over as soon as it has everything.
    HandoverGranted {
        /// In which group.
        group: GroupId,
    },
    /// The pause has ended; if this member is still primary, it goes on.
    HandoverEnded {
        /// In which group.
        group: GroupId,
    },
    /// Whether this member may count on a majority of the voters has changed.
    QuorumChanged {
        /// Whether it may.
        held: bool,
    },
    /// Whether this member may act upon what it owns has changed: see [`ClusterState::is_confirmed`].
    ConfirmedChanged {
        /// Whether it may.
        confirmed: bool,
    },
    /// The voters are others now, or the change to them is complete.
    VotersChanged {
        /// Which set.
        epoch: Epoch,
        /// Whether the set before it has a say no more.
        complete: bool,
    },
    /// A message on a channel that this member subscribes to.
    Published {
        /// The channel.
        channel: Vec<u8>,
        /// The message.
        message: Vec<u8>,
        /// Who published it.
        from: ServerId,
    },
}

/// How a replica is to become primary by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The primary pauses, the replica catches up, then a ballot: nothing is lost.
    Agreed,
    /// A ballot without asking the primary.
    Forced,
    /// No ballot at all: for when a majority of the voters is gone for good. The only way to a claim that was not voted
    /// for once there are voters.
    Takeover,
}

/// Whether a member is about to stop in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Departure {
    /// It goes on.
    #[default]
    Stays,
    /// It is about to stop: it stands in no election, nobody offers it a group, and what it leads it offers to replicas.
    Leaves,
    /// It has stopped: it takes no writes any more in this life, and voters need no time of silence to find that it has failed.
    Left,
}

/// What a member is told by its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Introduce a server to this member's cluster.
    Meet {
        /// Which.
        id: ServerId,
        /// Where it is reached.
        address: String,
    },
    /// Remove a member everywhere, and keep it out for a while.
    Forget {
        /// Which.
        id: ServerId,
    },
    /// This member becomes the primary of a new group, or adds slots to a group whose primary it is. With voters this takes a
    /// ballot, else it holds at once.
    Claim {
        /// Which group.
        group: GroupId,
        /// Slots to own from now on, beside those that it has.
        slots: Vec<SlotRange>,
    },
    /// The same for slots that are other groups' now, if it is decided and stored by then and they are theirs by the same claims until
    /// then. A ballot that is not won by then is over.
    Take {
        /// Which group.
        group: GroupId,
        /// Slots to own from now on, beside those that it has.
        slots: Vec<SlotRange>,
        /// Until when.
        until: Instant,
    },
    /// This member gives up slots of a group whose primary it is.
    Release {
        /// Which group.
        group: GroupId,
        /// Which slots.
        slots: Vec<SlotRange>,
    },
    /// This member becomes a replica of a group.
    Follow {
        /// Which group.
        group: GroupId,
    },
    /// This member stops following a group.
    Unfollow {
        /// Which group.
        group: GroupId,
    },
    /// How far this member's copy of a group's data goes.
    Offset {
        /// Which group.
        group: GroupId,
        /// Bytes of the group's replication log.
        offset: u64,
        /// Whether a replica's copy is whole, and how old it is. Of a primary it says nothing.
        copy: CopyState,
    },
    /// This primary has paused for an agreed failover: it takes no writes, and the offset that it gave last is the final one.
    Paused {
        /// Which group.
        group: GroupId,
    },
    /// This replica is to become the primary of its group.
    Failover {
        /// Which group.
        group: GroupId,
        /// In which way.
        how: How,
    },
    /// This member is about to stop in order, has stopped, or goes on after all. [`Bus::led_groups`](crate::Bus::led_groups) says what
    /// it leads still.
    Depart(Departure),
    /// From now on these vote. All sets of one epoch must be the same, so they come from one authority. The first set may name
    /// anybody, later ones members only.
    SetVoters {
        /// Greater than that of the set before.
        epoch: Epoch,
        /// Up to `Config::voters_max`, none twice; best an odd number.
        voters: Vec<ServerId>,
    },
    /// Hear the messages of a channel.
    Subscribe {
        /// Its name.
        channel: Vec<u8>,
    },
    /// Hear them no more.
    Unsubscribe {
        /// Its name.
        channel: Vec<u8>,
    },
    /// Hear the messages of every channel, as subscribers to patterns need; or no more.
    SubscribeAll {
        /// Whether to.
        wanted: bool,
    },
    /// Tell all members of this one's services.
    Describe {
        /// In whatever form they are told; up to [`SERVICES_BYTES_MAX`](crate::member::SERVICES_BYTES_MAX).
        services: Vec<u8>,
    },
    /// Send a message to all who subscribe to a channel.
    Publish {
        /// Its name.
        channel: Vec<u8>,
        /// The message.
        message: Vec<u8>,
    },
}

/// Why a command was refused. Nothing has changed; all are the caller's fault or a matter of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandError {
    /// The server is not a member. Safe to retry once it is.
    UnknownMember,
    /// Nobody has claimed the group, or this member has no part in it. Safe to retry once it has.
    UnknownGroup,
    /// Only the group's primary can do this.
    NotPrimary,
    /// Only a replica of the group can do this.
    NotReplica,
    /// A server can neither meet nor forget itself.
    Oneself,
    /// The server was forgotten a moment ago. Safe to retry later.
    KeptOut,
    /// The set of voters is empty, too long, or names a server twice.
    BadVoters,
    /// The epoch is not greater than that of the present voters.
    StaleVoters,
    /// The last change of voters is not complete. Safe to retry later.
    VotersPending,
    /// A ballot or handover for this group is under way. Safe to retry later.
    Busy,
    /// The time until which it was to be done is over.
    TooLate,
    /// A name, address, message or table is longer than its limit.
    TooLong,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownMember => "no such member is known",
            Self::UnknownGroup => "the group is not known, or this member has no part in it",
            Self::NotPrimary => "this member is not the group's primary",
            Self::NotReplica => "this member is not a replica of the group",
            Self::Oneself => "a member can neither meet nor forget itself",
            Self::KeptOut => "the server was forgotten a moment ago and is still kept out",
            Self::BadVoters => "voters must be at least one, not too many, and each named once",
            Self::StaleVoters => "the epoch is not greater than that of the present voters",
            Self::VotersPending => "the last change of voters is not complete",
            Self::Busy => "a ballot or handover for this group is under way",
            Self::TooLate => "the time for it is over",
            Self::TooLong => "a limit is exceeded",
        })
    }
}

impl core::error::Error for CommandError {}

/// Why a saved record is not the memory of this member. A member must not start without its memory: it could vote twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// The bytes are not a saved record, or were altered, cut or mixed up.
    Damaged,
    /// A later program wrote it.
    NewerVersion {
        /// Its version.
        version: u8,
    },
    /// It belongs to another cluster.
    OtherCluster,
    /// It belongs to another server.
    OtherServer,
    /// A later life wrote it.
    LaterLife {
        /// Which.
        incarnation: Incarnation,
    },
    /// It is whole, but has more of something than the limits allow.
    TooLong,
    /// The address in the identity is longer than its limit.
    AddressTooLong,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("the saved bus state is damaged"),
            Self::NewerVersion { version } => {
                write!(f, "the saved bus state has version {version}, which a later program wrote")
            }
            Self::OtherCluster => f.write_str("the saved bus state belongs to another cluster"),
            Self::OtherServer => f.write_str("the saved bus state belongs to another server"),
            Self::LaterLife { incarnation } => {
                write!(f, "the saved bus state was written in life {incarnation}, later than this one")
            }
            Self::TooLong => f.write_str("the saved bus state exceeds the limits of this configuration"),
            Self::AddressTooLong => f.write_str("the address of this server is too long"),
        }
    }
}

impl core::error::Error for RestoreError {}

/// How a member is seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// Nothing speaks against it.
    Alive,
    /// It did not answer and is being watched.
    Doubted,
    /// It has been silent for the member timeout (PFAIL).
    Suspected,
    /// A majority of the voters has said so (FAIL).
    Failed,
}

/// A member, as it is seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberView<'a> {
    /// Which.
    pub id: ServerId,
    /// Its greatest known life.
    pub incarnation: Incarnation,
    /// Where it is reached.
    pub address: &'a str,
    /// What it may be lost together with.
    pub zone: Zone,
    /// How it is seen.
    pub health: Health,
    /// It has stopped in order, as it said itself to this member, and has not begun another life since.
    pub has_left: bool,
    /// Whether it votes.
    pub is_voter: bool,
    /// The groups that it follows.
    pub follows: &'a [GroupId],
    /// What it tells of its services.
    pub services: &'a [u8],
    /// The channels whose messages it wants to hear; see [`wants`](crate::pubsub::wants).
    pub interest: &'a [u8],
    /// When it last gave a sign of life here; the origin of time if it never did.
    pub heard_at: Instant,
}

/// A replica group, as it is seen from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Which.
    pub group: GroupId,
    /// Its primary.
    pub primary: ServerId,
    /// The epoch of the primary's claim.
    pub epoch: Epoch,
    /// The slots that it claims and nobody claims with a greater epoch.
    pub slots: SlotSet,
    /// Members that follow it and are not its primary, sorted.
    pub replicas: Vec<ServerId>,
}

/// Who votes, as it is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VotersView<'a> {
    /// Which set.
    pub epoch: Epoch,
    /// The voters, sorted.
    pub voters: &'a [ServerId],
    /// The set before, sorted, while a majority of it is needed too; else empty.
    pub previous: &'a [ServerId],
    /// Epochs up to this were decided by earlier sets.
    pub floor: Epoch,
    /// Tells sets apart, whether complete or not; zero without one.
    pub fingerprint: u64,
    /// Voters that ever lost their memory, and with which life the one began that the set counts on; sorted.
    pub forgetful: &'a [(ServerId, Incarnation)],
    /// The same of the set before.
    pub previous_forgetful: &'a [(ServerId, Incarnation)],
}

/// Whether the cluster serves, as it is seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether a majority of the voters is in reach.
    pub has_quorum: bool,
    /// Whether what this member owns was confirmed since then, so that it may act upon it.
    pub is_confirmed: bool,
    /// Slots with an owner.
    pub slots_assigned: u16,
    /// Slots whose owner has failed.
    pub slots_failed: u16,
    /// Whether commands that write are to be served at all.
    pub serves_writes: bool,
    /// Whether commands that read are to be served at all.
    pub serves_reads: bool,
}

/// The longest and the last of some spans of time, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spans {
    /// How many there were.
    pub count: u64,
    /// The last one.
    pub last: Duration,
    /// The longest one.
    pub longest: Duration,
    /// All together.
    pub sum: Duration,
}

impl Spans {
    pub(crate) fn add(&mut self, span: Duration) {
        self.count += 1;
        self.last = span;
        self.longest = self.longest.max(span);
        self.sum += span;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;

    #[test]
    fn every_error_says_something_of_its_own() {
        use CommandError::{
            BadVoters, Busy, KeptOut, NotPrimary, NotReplica, Oneself, StaleVoters, TooLate, TooLong, UnknownGroup,
            UnknownMember, VotersPending,
        };
        let commands = [
            UnknownMember,
            UnknownGroup,
            NotPrimary,
            NotReplica,
            Oneself,
            KeptOut,
            BadVoters,
            StaleVoters,
            VotersPending,
            Busy,
            TooLate,
            TooLong,
        ];
        let restored = [
            RestoreError::Damaged,
            RestoreError::NewerVersion { version: 77 },
            RestoreError::OtherCluster,
            RestoreError::OtherServer,
            RestoreError::LaterLife { incarnation: Incarnation(88) },
            RestoreError::TooLong,
            RestoreError::AddressTooLong,
        ];
        let texts: Vec<String> =
            commands.iter().map(ToString::to_string).chain(restored.iter().map(ToString::to_string)).collect();
        assert!(texts.iter().all(|text| text.len() > 10), "{texts:?}");
        assert_eq!(texts.iter().collect::<BTreeSet<_>>().len(), commands.len() + restored.len());
        assert!(texts[13].contains("77") && texts[16].contains("88"));
    }

    #[test]
    fn spans_keep_the_last_the_longest_and_the_sum() {
        let mut spans = Spans::default();
        [3, 5, 1].into_iter().for_each(|seconds| spans.add(Duration::from_secs(seconds)));
        let [last, longest, sum] = [1, 5, 9].map(Duration::from_secs);
        assert_eq!(spans, Spans { count: 3, last, longest, sum });
    }
}
