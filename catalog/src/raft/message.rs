//! Messages between catalogs, and their answers. Described in `docs/formats.md`.

use ashlar_wire::id::ServerId;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};

use super::form::{
    SnapshotChunk, read_append, read_appended, read_vote, read_vote_request, read_voted, write_append, write_appended,
    write_vote, write_vote_request, write_voted,
};
use super::types::{Types, Vote};
use crate::change::{Applied, Command, VOTERS_MAX};
use crate::codec::pack::{decode, encode};
use crate::codec::{Fields, Sink, Source, read_list, read_server, words, write_list};
use crate::error::{FormError, RefusalKind, Refused};

/// Version of the form.
const VERSION: u64 = 1;
/// Most bytes of the reason of a refusal.
const REASON_BYTES_MAX: usize = 1_024;

words! {
    /// Kinds of messages.
    MessageKind {
        Append = "append",
        Vote = "vote",
        PreVote = "pre_vote",
        Snapshot = "snapshot",
        Propose = "propose",
        AddLearner = "add_learner",
        ChangeVoters = "change_voters",
        Remove = "remove",
        ReadIndex = "read_index",
    }
}

/// What one catalog wants of another.
#[derive(Debug)]
pub(crate) enum Message {
    /// Take these entries.
    Append(AppendEntriesRequest<Types>),
    /// Vote for me.
    Vote(VoteRequest<Types>),
    /// Would you vote for me?
    PreVote(VoteRequest<Types>),
    /// Take this piece of a snapshot.
    Snapshot(SnapshotChunk),
    /// Lead this to a commit. The others below as well.
    Propose(Command),
    /// A server that gets the log.
    AddLearner(ServerId),
    /// The servers that vote.
    ChangeVoters(Vec<ServerId>),
    /// A server that gets the log no more.
    Remove(ServerId),
    /// How far is the log decided?
    ReadIndex,
}

impl Message {
    /// The written form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what [`Message::encode`] wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormError> {
        decode(bytes)
    }
}

fn check_version(from: &mut impl Source) -> Result<(), FormError> {
    match from.uint("form")? {
        VERSION => Ok(()),
        other => Err(FormError::UnknownVersion(other)),
    }
}

impl Fields for Message {
    fn write(&self, out: &mut impl Sink) {
        out.uint("form", VERSION);
        let kind = match self {
            Self::Append(_) => MessageKind::Append,
            Self::Vote(_) => MessageKind::Vote,
            Self::PreVote(_) => MessageKind::PreVote,
            Self::Snapshot(_) => MessageKind::Snapshot,
            Self::Propose(_) => MessageKind::Propose,
            Self::AddLearner(_) => MessageKind::AddLearner,
            Self::ChangeVoters(_) => MessageKind::ChangeVoters,
            Self::Remove(_) => MessageKind::Remove,
            Self::ReadIndex => MessageKind::ReadIndex,
        };
        kind.write(out, "message");
        match self {
            Self::Append(request) => write_append(out, request),
            Self::Vote(request) | Self::PreVote(request) => write_vote_request(out, request),
            Self::Snapshot(chunk) => chunk.write(out),
            Self::Propose(command) => command.write(out),
            Self::AddLearner(server) | Self::Remove(server) => out.id("server", server.as_bytes()),
            Self::ChangeVoters(servers) => {
                write_list(out, "servers", servers, |out, server| out.id("server", server.as_bytes()));
            }
            Self::ReadIndex => {}
        }
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        check_version(from)?;
        Ok(match MessageKind::read(from, "message")? {
            MessageKind::Append => Self::Append(read_append(from)?),
            MessageKind::Vote => Self::Vote(read_vote_request(from)?),
            MessageKind::PreVote => Self::PreVote(read_vote_request(from)?),
            MessageKind::Snapshot => Self::Snapshot(SnapshotChunk::read(from)?),
            MessageKind::Propose => Self::Propose(Command::read(from)?),
            MessageKind::AddLearner => Self::AddLearner(read_server(from, "server")?),
            MessageKind::ChangeVoters => {
                Self::ChangeVoters(read_list(from, "servers", VOTERS_MAX, |from| read_server(from, "server"))?)
            }
            MessageKind::Remove => Self::Remove(read_server(from, "server")?),
            MessageKind::ReadIndex => Self::ReadIndex,
        })
    }
}

words! {
    /// Kinds of answers.
    ReplyKind {
        Appended = "appended",
        Voted = "voted",
        ChunkTaken = "chunk_taken",
        SnapshotTaken = "snapshot_taken",
        Applied = "applied",
        Done = "done",
        Index = "index",
        Refused = "refused",
        NotLeader = "not_leader",
        Unavailable = "unavailable",
    }
}

/// What a catalog answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To entries.
    Appended(AppendEntriesResponse<Types>),
    /// To a vote, and to a question for one.
    Voted(VoteResponse<Types>),
    /// The next piece is welcome.
    ChunkTaken,
    /// The whole snapshot is installed, or this vote is greater than the sender's.
    SnapshotTaken(Vote),
    /// The proposal is committed and applied.
    Applied(Applied),
    /// The members are changed.
    Done,
    /// Everything up to this place of the log is decided.
    Index(u64),
    /// The state refuses the proposal.
    Refused(Refused),
    /// Another server leads, if one does.
    NotLeader(Option<ServerId>),
    /// Nothing can be said now; asking again does no harm.
    Unavailable,
}

impl Reply {
    /// The written form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads what [`Reply::encode`] wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FormError> {
        decode(bytes)
    }
}

impl Fields for Reply {
    fn write(&self, out: &mut impl Sink) {
        out.uint("form", VERSION);
        let kind = match self {
            Self::Appended(_) => ReplyKind::Appended,
            Self::Voted(_) => ReplyKind::Voted,
            Self::ChunkTaken => ReplyKind::ChunkTaken,
            Self::SnapshotTaken(_) => ReplyKind::SnapshotTaken,
            Self::Applied(_) => ReplyKind::Applied,
            Self::Done => ReplyKind::Done,
            Self::Index(_) => ReplyKind::Index,
            Self::Refused(_) => ReplyKind::Refused,
            Self::NotLeader(_) => ReplyKind::NotLeader,
            Self::Unavailable => ReplyKind::Unavailable,
        };
        kind.write(out, "reply");
        match self {
            Self::Appended(response) => write_appended(out, response),
            Self::Voted(response) => write_voted(out, response),
            Self::SnapshotTaken(vote) => write_vote(out, vote),
            Self::Applied(applied) => applied.write(out),
            Self::Refused(refused) => {
                refused.kind.write(out, "kind");
                out.text("reason", &refused.reason);
            }
            Self::NotLeader(leader) => {
                write_list(out, "leader", leader.as_slice(), |out, server| out.id("server", server.as_bytes()));
            }
            Self::Index(index) => out.uint("index", *index),
            Self::ChunkTaken | Self::Done | Self::Unavailable => {}
        }
    }

    fn read(from: &mut impl Source) -> Result<Self, FormError> {
        check_version(from)?;
        Ok(match ReplyKind::read(from, "reply")? {
            ReplyKind::Appended => Self::Appended(read_appended(from)?),
            ReplyKind::Voted => Self::Voted(read_voted(from)?),
            ReplyKind::ChunkTaken => Self::ChunkTaken,
            ReplyKind::SnapshotTaken => Self::SnapshotTaken(read_vote(from)?),
            ReplyKind::Applied => Self::Applied(Applied::read(from)?),
            ReplyKind::Done => Self::Done,
            ReplyKind::Index => Self::Index(from.uint("index")?),
            ReplyKind::Refused => {
                let kind = RefusalKind::read(from, "kind")?;
                Self::Refused(Refused { kind, reason: from.text("reason", REASON_BYTES_MAX)? })
            }
            ReplyKind::NotLeader => {
                Self::NotLeader(read_list(from, "leader", 1, |from| read_server(from, "server"))?.pop())
            }
            ReplyKind::Unavailable => Self::Unavailable,
        })
    }
}
