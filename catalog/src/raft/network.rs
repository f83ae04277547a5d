//! Raft's network over [`Host::call`].
//!
//! A snapshot goes in pieces, each a call of its own, so that it never holds up heartbeats for long.

use std::future::Future;
use std::sync::Arc;

use ashlar_wire::id::ServerId;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{AsyncRuntime as _, EmptyNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::host::Host;
use super::message::{Message, Reply};
use super::pieces::pieces;
use super::runtime::HostRuntime;
use super::types::{Snapshot, SnapshotData, Types, Vote};

/// Makes links to other servers.
pub(crate) struct Network(pub(crate) Arc<dyn Host>);

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: ServerId, _: &EmptyNode) -> Link {
        Link { host: self.0.clone(), target }
    }
}

/// The way to one server.
pub(crate) struct Link {
    host: Arc<dyn Host>,
    target: ServerId,
}

fn unreachable(reason: impl ToString) -> Unreachable<Types> {
    Unreachable::from_string(reason)
}

impl Link {
    async fn ask(&self, message: Message) -> Result<Reply, Unreachable<Types>> {
        let bytes = self.host.call(self.target, message.encode()).await.map_err(unreachable)?;
        Reply::decode(&bytes).map_err(unreachable)
    }

    async fn ask_for_vote(&self, message: Message) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(message).await? {
            Reply::Voted(response) => Ok(response),
            other => Err(unreachable(format!("{other:?}")).into()),
        }
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        snapshot: Snapshot,
    ) -> Result<SnapshotResponse<Types>, Unreachable<Types>> {
        for piece in pieces(vote, &snapshot) {
            match self.ask(Message::Snapshot(piece)).await? {
                Reply::SnapshotTaken(vote) => return Ok(SnapshotResponse::new(vote)),
                Reply::ChunkTaken => {}
                other => return Err(unreachable(format!("{other:?}"))),
            }
        }
        Err(unreachable("no piece was taken for the last one"))
    }
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        match self.ask(Message::Append(request)).await? {
            Reply::Appended(response) => Ok(response),
            other => Err(unreachable(format!("{other:?}")).into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(Message::Vote(request)).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(Message::PreVote(request)).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        match HostRuntime::select2(cancel, self.send_snapshot(vote, snapshot)).await {
            openraft::async_runtime::Select2::First(closed) => Err(closed.into()),
            openraft::async_runtime::Select2::Second(sent) => Ok(sent?),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        None
    }
}
