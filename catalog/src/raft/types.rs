//! The types with which openraft is used here.
//!
//! One leader a term, as in the Raft paper, so that a log position is a term and an index. Members are servers; where
//! they are reached is for the host to know.

use std::fmt;
use std::sync::Arc;

use ashlar_wire::id::ServerId;
use openraft::impls::leader_id_std::LeaderId;
use openraft::{EmptyNode, EntryPayload};

use super::runtime::HostRuntime;
use crate::change::{Applied, Command};
use crate::error::Refusal;

/// A command in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged(pub(crate) Arc<Command>);

impl fmt::Display for Logged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a command seen at version {}", self.0.seen.0)
    }
}

/// What became of an entry: none for one that is no command.
pub(crate) type Answer = Option<Result<Applied, Refusal>>;

openraft::declare_raft_types!(
    /// The types of a catalog's Raft group.
    pub(crate) Types:
        D = Logged,
        R = Answer,
        NodeId = ServerId,
        Node = EmptyNode,
        Term = u64,
        LeaderId = LeaderId<u64, ServerId>,
        AsyncRuntime = HostRuntime,
);

/// A position in the log: term and index.
pub(crate) type LogId = openraft::alias::LogIdOf<Types>;
/// A vote.
pub(crate) type Vote = openraft::alias::VoteOf<Types>;
/// An entry of the log.
pub(crate) type Entry = openraft::alias::EntryOf<Types>;
/// What an entry holds.
pub(crate) type Payload = EntryPayload<Logged, ServerId, EmptyNode>;
/// The members of the group.
pub(crate) type Membership = openraft::Membership<ServerId, EmptyNode>;
/// The members, and the entry that made them so.
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;
/// What a snapshot covers.
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<Types>;
/// The bytes of a state: [`State::encode`](crate::state::State::encode).
pub(crate) type SnapshotData = Arc<Vec<u8>>;
/// A snapshot.
pub(crate) type Snapshot = openraft::alias::SnapshotOf<Types, SnapshotData>;
