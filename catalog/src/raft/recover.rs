//! The way back from a lost quorum: one server goes on alone, by an operator's explicit command.
//!
//! When a majority of voters is gone for good, nothing can be committed any more. [`recover`] makes the log of one server
//! a group of its own: every entry that it has is applied, committed or not (those that were acknowledged stand in the
//! logs of a majority, of which this server may be the last), then all epochs, generations and versions jump ahead, so
//! that whatever the lost servers have handed out is fenced. [`install`] does the same with a state from an export.
//!
//! Term and index jump as well, so that a server of the old group that comes back takes the new group's snapshot.
//! An operator must not count on it: start such a server with an empty log. Two old servers that come back together could
//! elect each other, and openraft stopped in an assertion of its own in 2 of 270 seeds in which an old log returned.

use std::sync::Arc;

use ashlar_wire::id::{ClusterId, ServerId};
use openraft::EmptyNode;
use openraft::impls::leader_id_std::LeaderId;

use super::catalog::Error;
use super::form::{decode_snapshot, encode_log_id, encode_snapshot, encode_vote};
use super::host::{LogWrite, Storage};
use super::log::LogContent;
use super::machine::command_of_members;
use super::types::{LogId, Membership, Payload, SnapshotMeta, StoredMembership, Vote};
use crate::change::{Change, Command, ProposalId};
use crate::state::State;

/// How far terms and indexes of the log jump: more than any group comes to before an operator gives it up.
const LOG_JUMP: u64 = 1 << 32;

/// What was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The state with which the server goes on.
    pub state: State,
    /// Entries that were applied although it was not known that they were committed.
    pub uncommitted: usize,
}

/// Makes the server `me` the only voter of its own log. The catalog must not run. All epochs jump by `jump`: more than
/// what the lost servers may have added to any of them since this one heard of it.
///
/// # Errors
/// [`Error::Storage`], [`Error::Damaged`]; [`Error::Refused`] for a jump too far. A crash half-way leaves the old log or
/// the new one.
pub async fn recover(
    storage: Arc<dyn Storage>,
    cluster: ClusterId,
    me: ServerId,
    jump: u32,
) -> Result<Recovered, Error> {
    let stored = storage.load().await?;
    let content = LogContent::decode(&stored)?;
    let (mut state, applied) = match stored.snapshot.as_deref().map(decode_snapshot).transpose()? {
        Some((meta, data)) => (State::decode(&data)?, meta.last_log_id),
        None => (State::new(cluster), None),
    };
    let mut uncommitted = 0;
    for entry in content.entries.values().filter(|entry| Some(entry.log_id) > applied) {
        uncommitted += usize::from(Some(entry.log_id) > content.committed);
        // What the state refuses now, it would have refused then: all servers apply the same.
        match &entry.payload {
            Payload::Blank => {}
            Payload::Normal(logged) => {
                let _ = state.apply(&logged.0);
            }
            Payload::Membership(members) => {
                let command = command_of_members(&entry.log_id, members, state.version());
                let _ = state.apply(&command);
            }
        }
    }
    let last = content.last().max(applied);
    let term = content.vote.map_or(0, |vote| vote.leader_id.term).max(last.map_or(0, |last| term_of(&last)));
    let state = write_group(&*storage, state, me, jump, term, last.map_or(0, |last| last.index())).await?;
    Ok(Recovered { state, uncommitted })
}

/// Makes the server `me` the only voter of a group that begins with this state, whatever its log holds. The catalog must
/// not run. All epochs jump by `jump`, as for [`recover`]; by 0 for an exact copy in a cluster that is gone.
///
/// # Errors
/// As for [`recover`].
pub async fn install(storage: Arc<dyn Storage>, state: State, me: ServerId, jump: u32) -> Result<State, Error> {
    let content = LogContent::decode(&storage.load().await?)?;
    let last = content.last();
    let term = content.vote.map_or(0, |vote| vote.leader_id.term).max(last.map_or(0, |last| term_of(&last)));
    write_group(&*storage, state, me, jump, term, last.map_or(0, |last| last.index())).await
}

fn term_of(id: &LogId) -> u64 {
    id.committed_leader_id().term
}

async fn write_group(
    storage: &dyn Storage,
    mut state: State,
    me: ServerId,
    jump: u32,
    term: u64,
    index: u64,
) -> Result<State, Error> {
    let at = LogId::new_term_index(term.saturating_add(LOG_JUMP), index.saturating_add(LOG_JUMP));
    let members = Membership::from(std::collections::BTreeMap::from([(me, EmptyNode {})]));
    let mut id = *b"recover\0\0\0\0\0\0\0\0\0";
    id[8..].copy_from_slice(&at.index().to_be_bytes());
    let jumped = Command { id: ProposalId(id), seen: state.version(), change: Change::JumpEpochs(jump) };
    state.apply(&jumped).map_err(|refusal| Error::Refused(refusal.into()))?;
    let voters = command_of_members(&at, &members, state.version());
    state.apply(&voters).map_err(|refusal| Error::Refused(refusal.into()))?;
    let meta = SnapshotMeta { last_log_id: Some(at), last_membership: StoredMembership::new(Some(at), members) };
    // The snapshot covers every index of the old log, so from here on a start takes it; then the old log goes.
    storage.save_snapshot(encode_snapshot(&meta, &state.encode())).await?;
    let vote = Vote { leader_id: LeaderId { term: term.saturating_add(LOG_JUMP), voted_for: me }, committed: false };
    let step = LogWrite {
        truncate_from: Some(0),
        purge: Some((at.index(), encode_log_id(&at))),
        vote: Some(encode_vote(&vote)),
        committed: Some(encode_log_id(&at)),
        ..LogWrite::default()
    };
    storage.write(step).await?;
    Ok(state)
}

#[cfg(test)]
mod tests;
