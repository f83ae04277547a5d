//! Written forms of Raft's values: log entries, votes, snapshots and messages. Described in `docs/formats.md`.
//!
//! MessagePack values without names, by the same field codec as the catalog's records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ashlar_wire::id::ServerId;
use openraft::EmptyNode;
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::vote::RaftLeaderId as _;

use super::types::{Entry, LogId, Logged, Membership, Payload, SnapshotMeta, StoredMembership, Types, Vote};
use crate::change::{Command, VOTERS_MAX};
use crate::codec::pack::{PackSink, PackSource};
use crate::codec::{Fields, Sink, Source, read_list, read_server, words, write_list};
use crate::error::FormError;
use crate::server::SERVERS_MAX;
use crate::state::SNAPSHOT_BYTES_MAX;

/// Version of the forms in logs and snapshots.
const VERSION: u64 = 1;
/// Most entries of one message.
pub(crate) const ENTRIES_MAX: usize = 256;
/// Voter lists in force at a time: two while one replaces another.
const CONFIGS_MAX: usize = 2;

words! {
    /// Kinds of entries.
    PayloadKind {
        Blank = "blank",
        Command = "command",
        Members = "members",
    }
}

pub(crate) fn write_log_id(out: &mut impl Sink, id: &LogId) {
    out.uint("term", id.committed_leader_id().term);
    out.uint("index", id.index());
}

pub(crate) fn read_log_id(from: &mut impl Source) -> Result<LogId, FormError> {
    let term = from.uint("term")?;
    Ok(LogId::new_term_index(term, from.uint("index")?))
}

pub(crate) fn write_log_position(out: &mut impl Sink, id: Option<&LogId>) {
    write_list(out, "log ids", id.map_or(&[][..], std::slice::from_ref), write_log_id);
}

pub(crate) fn read_log_position(from: &mut impl Source) -> Result<Option<LogId>, FormError> {
    Ok(read_list(from, "log ids", 1, read_log_id)?.pop())
}

pub(crate) fn write_vote(out: &mut impl Sink, vote: &Vote) {
    out.uint("term", vote.leader_id.term());
    out.id("server", vote.leader_id.node_id().as_bytes());
    out.uint("committed", u64::from(vote.committed));
}

pub(crate) fn read_vote(from: &mut impl Source) -> Result<Vote, FormError> {
    let term = from.uint("term")?;
    let leader_id = LeaderId { term, voted_for: read_server(from, "server")? };
    match from.uint("committed")? {
        value @ 0..=1 => Ok(Vote { leader_id, committed: value == 1 }),
        value => Err(FormError::BadNumber { what: "flag", value }),
    }
}

fn write_members(out: &mut impl Sink, members: &Membership) {
    let write_servers = |out: &mut _, servers: Vec<ServerId>| {
        write_list(out, "servers", &servers, |out, server| Sink::id(out, "server", server.as_bytes()));
    };
    write_list(out, "configs", members.get_joint_config(), |out, config| {
        write_servers(out, config.iter().copied().collect());
    });
    write_servers(out, members.nodes().map(|(server, _)| *server).collect());
}

fn read_members(from: &mut impl Source) -> Result<Membership, FormError> {
    let configs = read_list(from, "configs", CONFIGS_MAX, |from| read_servers(from, VOTERS_MAX))?;
    let all = read_servers(from, SERVERS_MAX)?;
    let all: BTreeMap<ServerId, EmptyNode> = all.into_iter().map(|server| (server, EmptyNode {})).collect();
    if configs.is_empty() && all.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, all).map_err(|_| FormError::NotThis)
}

fn read_servers(from: &mut impl Source, max: usize) -> Result<BTreeSet<ServerId>, FormError> {
    let servers = read_list(from, "servers", max, |from| read_server(from, "server"))?;
    if servers.is_sorted_by(|one, next| one < next) {
        Ok(servers.into_iter().collect())
    } else {
        Err(FormError::OutOfOrder("server"))
    }
}

fn write_stored_members(out: &mut impl Sink, members: &StoredMembership) {
    write_log_position(out, members.log_id().as_ref());
    write_members(out, members.membership());
}

fn read_stored_members(from: &mut impl Source) -> Result<StoredMembership, FormError> {
    let log_id = read_log_position(from)?;
    Ok(StoredMembership::new(log_id, read_members(from)?))
}

fn write_entry(out: &mut impl Sink, entry: &Entry) {
    write_log_id(out, &entry.log_id);
    match &entry.payload {
        Payload::Blank => PayloadKind::Blank.write(out, "payload"),
        Payload::Normal(command) => {
            PayloadKind::Command.write(out, "payload");
            command.0.write(out);
        }
        Payload::Membership(members) => {
            PayloadKind::Members.write(out, "payload");
            write_members(out, members);
        }
    }
}

fn read_entry(from: &mut impl Source) -> Result<Entry, FormError> {
    let log_id = read_log_id(from)?;
    let payload = match PayloadKind::read(from, "payload")? {
        PayloadKind::Blank => Payload::Blank,
        PayloadKind::Command => Payload::Normal(Logged(Arc::new(Command::read(from)?))),
        PayloadKind::Members => Payload::Membership(read_members(from)?),
    };
    Ok(Entry { log_id, payload })
}

fn write_meta(out: &mut impl Sink, meta: &SnapshotMeta) {
    write_log_position(out, meta.last_log_id.as_ref());
    write_stored_members(out, &meta.last_membership);
}

fn read_meta(from: &mut impl Source) -> Result<SnapshotMeta, FormError> {
    let last_log_id = read_log_position(from)?;
    Ok(SnapshotMeta { last_log_id, last_membership: read_stored_members(from)? })
}

fn versioned(write: impl FnOnce(&mut PackSink)) -> Vec<u8> {
    let mut out = PackSink::default();
    out.uint("form", VERSION);
    write(&mut out);
    out.0
}

fn unversioned<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut PackSource<'_>) -> Result<T, FormError>,
) -> Result<T, FormError> {
    let mut from = PackSource::new(bytes);
    let version = from.uint("form")?;
    if version != VERSION {
        return Err(FormError::UnknownVersion(version));
    }
    let value = read(&mut from)?;
    from.finish()?;
    Ok(value)
}

/// An entry as the storage holds it.
pub(crate) fn encode_entry(entry: &Entry) -> Vec<u8> {
    versioned(|out| write_entry(out, entry))
}

/// Reads what [`encode_entry`] wrote.
pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, FormError> {
    unversioned(bytes, |from| read_entry(from))
}

/// A vote as the storage holds it.
pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    versioned(|out| write_vote(out, vote))
}

/// Reads what [`encode_vote`] wrote.
pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, FormError> {
    unversioned(bytes, |from| read_vote(from))
}

/// A log position as the storage holds it.
pub(crate) fn encode_log_id(id: &LogId) -> Vec<u8> {
    versioned(|out| write_log_id(out, id))
}

/// Reads what [`encode_log_id`] wrote.
pub(crate) fn decode_log_id(bytes: &[u8]) -> Result<LogId, FormError> {
    unversioned(bytes, |from| read_log_id(from))
}

/// A snapshot as the storage holds it: what it covers, then the bytes of the state, which have a checksum of their own.
pub(crate) fn encode_snapshot(meta: &SnapshotMeta, data: &[u8]) -> Vec<u8> {
    versioned(|out| {
        write_meta(out, meta);
        out.bytes("state", data);
    })
}

/// Reads what [`encode_snapshot`] wrote.
pub(crate) fn decode_snapshot(bytes: &[u8]) -> Result<(SnapshotMeta, Vec<u8>), FormError> {
    unversioned(bytes, |from| {
        let meta = read_meta(from)?;
        Ok((meta, from.bytes("state", SNAPSHOT_BYTES_MAX)?))
    })
}

pub(crate) fn write_append(out: &mut impl Sink, request: &AppendEntriesRequest<Types>) {
    write_vote(out, &request.vote);
    write_log_position(out, request.prev_log_id.as_ref());
    write_list(out, "entries", &request.entries, write_entry);
    write_log_position(out, request.leader_commit.as_ref());
}

pub(crate) fn read_append(from: &mut impl Source) -> Result<AppendEntriesRequest<Types>, FormError> {
    Ok(AppendEntriesRequest {
        vote: read_vote(from)?,
        prev_log_id: read_log_position(from)?,
        entries: read_list(from, "entries", ENTRIES_MAX, |from| read_entry(from))?,
        leader_commit: read_log_position(from)?,
    })
}

words! {
    /// Kinds of answers to entries.
    AppendedKind {
        Success = "success",
        Partial = "partial",
        Conflict = "conflict",
        HigherVote = "higher_vote",
    }
}

pub(crate) fn write_appended(out: &mut impl Sink, response: &AppendEntriesResponse<Types>) {
    match response {
        AppendEntriesResponse::Success => AppendedKind::Success.write(out, "appended"),
        AppendEntriesResponse::PartialSuccess(position) => {
            AppendedKind::Partial.write(out, "appended");
            write_log_position(out, position.as_ref());
        }
        AppendEntriesResponse::Conflict => AppendedKind::Conflict.write(out, "appended"),
        AppendEntriesResponse::HigherVote(vote) => {
            AppendedKind::HigherVote.write(out, "appended");
            write_vote(out, vote);
        }
    }
}

pub(crate) fn read_appended(from: &mut impl Source) -> Result<AppendEntriesResponse<Types>, FormError> {
    Ok(match AppendedKind::read(from, "appended")? {
        AppendedKind::Success => AppendEntriesResponse::Success,
        AppendedKind::Partial => AppendEntriesResponse::PartialSuccess(read_log_position(from)?),
        AppendedKind::Conflict => AppendEntriesResponse::Conflict,
        AppendedKind::HigherVote => AppendEntriesResponse::HigherVote(read_vote(from)?),
    })
}

pub(crate) fn write_vote_request(out: &mut impl Sink, request: &VoteRequest<Types>) {
    write_vote(out, &request.vote);
    write_log_position(out, request.last_log_id.as_ref());
    out.uint("transfer", u64::from(request.leadership_transfer));
}

pub(crate) fn read_vote_request(from: &mut impl Source) -> Result<VoteRequest<Types>, FormError> {
    let vote = read_vote(from)?;
    let last_log_id = read_log_position(from)?;
    let leadership_transfer = from.uint("transfer")? == 1;
    Ok(VoteRequest { leadership_transfer, ..VoteRequest::new(vote, last_log_id) })
}

pub(crate) fn write_voted(out: &mut impl Sink, response: &VoteResponse<Types>) {
    write_vote(out, &response.vote);
    write_log_position(out, response.last_log_id.as_ref());
    out.uint("granted", u64::from(response.vote_granted));
}

pub(crate) fn read_voted(from: &mut impl Source) -> Result<VoteResponse<Types>, FormError> {
    let vote = read_vote(from)?;
    let last_log_id = read_log_position(from)?;
    let vote_granted = from.uint("granted")? == 1;
    Ok(VoteResponse { vote, vote_granted, last_log_id })
}

/// A piece of a snapshot on its way to another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotChunk {
    /// The sender's vote: an old leader's snapshot is refused.
    pub(crate) vote: Vote,
    /// What the snapshot covers.
    pub(crate) meta: SnapshotMeta,
    /// Bytes of the whole state.
    pub(crate) len: u64,
    /// Offset of the piece.
    pub(crate) offset: u64,
    /// The piece.
    pub(crate) data: Vec<u8>,
}

/// Most bytes of a piece.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;

impl Fields for SnapshotChunk {
    fn write(&self, out: &mut impl Sink) {
        write_vote(out, &self.vote);
        write_meta(out, &self.meta);
        out.uint("len", self.len);
        out.uint("offset", self.offset);
        out.bytes("data", &self.data);
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        let vote = read_vote(from)?;
        let meta = read_meta(from)?;
        let len = from.uint("len")?;
        let offset = from.uint("offset")?;
        Ok(Self { vote, meta, len, offset, data: from.bytes("data", CHUNK_BYTES_MAX)? })
    }
}

#[cfg(test)]
mod tests;
