//! What the object crate needs of the cluster: the owner of a range, drives with shards, drives for new ones.

use core::time::Duration;

use ashlar_catalog::server::{DriveState, ServerState};
use ashlar_catalog::state::State;
use ashlar_grid::CallOptions;
use ashlar_grid::seam::Runtime;
use ashlar_object::api::BoxFuture;
use ashlar_object::cluster::{Chore, Cluster, Moment, ShardReply, ShardRequest, Spread};
use ashlar_object::index::key::BucketId;
use ashlar_object::index::{Reply, Request};
use ashlar_object::record::PartId;
use ashlar_placement::map::GroupId;
use ashlar_placement::rule::choose_pg;
use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{DriveId, ServerId};
use bytes::Bytes;

use super::form::{ToDrive, decode_reply, encode_to_range};
use super::service::{AskRange, GetShard, ObjectNode, PutShard};

/// How long the owner of a range is looked for and waited for. A failover takes less.
const INDEX_MAX: Duration = Duration::from_secs(20);
/// How long one owner may take.
const OWNER_MAX: Duration = Duration::from_secs(8);
/// Pause before the owner is looked for again.
const RETRY: Duration = Duration::from_millis(30);
/// How long a drive may take for a shard.
const SHARD_MAX: Duration = Duration::from_secs(5);
/// Most shards of a stripe.
const STRIPE_MAX: usize = 16;

/// Parity by the number of drives: as many may be lost.
const fn parity(drives: usize) -> u8 {
    match drives {
        0 | 1 => 0,
        2 | 3 => 1,
        4 | 5 => 2,
        6 | 7 => 3,
        _ => 4,
    }
}

/// Drives for the shards of a part: the rendezvous order of all drives, each server's share as equal as can be.
fn choose(state: &State, part: PartId) -> Option<Spread> {
    let is_used = |server: ServerId| {
        state.server(server).is_some_and(|server| matches!(server.state, ServerState::Joining | ServerState::Active))
    };
    let mut drives: Vec<(u64, DriveId, ServerId)> = state
        .drives()
        .filter(|drive| drive.state == DriveState::Active && is_used(drive.server))
        .map(|drive| {
            let weight = checksum(Salt::new(&[b"drives of a part", &part.0]), drive.id.as_bytes()).0;
            (weight, drive.id, drive.server)
        })
        .collect();
    drives.sort_unstable();
    let count = drives.len().min(STRIPE_MAX);
    let mut chosen: Vec<(DriveId, ServerId)> = Vec::with_capacity(count);
    while chosen.len() < count {
        let load = |server: ServerId| chosen.iter().filter(|(_, other)| *other == server).count();
        let least = (0..drives.len()).min_by_key(|at| (load(drives[*at].2), drives[*at].0))?;
        let (_, drive, server) = drives.remove(least);
        chosen.push((drive, server));
    }
    let drives: Vec<DriveId> = chosen.into_iter().map(|(drive, _)| drive).collect();
    (!drives.is_empty()).then(|| Spread { parity: parity(drives.len()), drives })
}

impl<R: Runtime> ObjectNode<R> {
    /// The placement group in whose range a bucket's index lies.
    pub(super) fn range_of(state: &State, bucket: BucketId) -> Option<GroupId> {
        let set = state.sets().next()?;
        let groups = u32::try_from(state.pgs_of(set.id).count()).ok().filter(|groups| *groups > 0)?;
        Some(GroupId { set: set.id, pg: choose_pg(&bucket.0, groups) })
    }

    async fn ask_range(&self, bucket: BucketId, request: Request) -> Reply {
        let Some(node) = self.node() else { return Reply::Unavailable };
        let until = node.runtime().now() + INDEX_MAX;
        let form = request.encode();
        loop {
            let owner = self.catalog().state_now().and_then(|state| {
                let group = Self::range_of(&state, bucket)?;
                Some((group, state.drive(state.pg(group)?.primary)?.server))
            });
            let reply = match owner {
                Some((group, server)) if server == node.id() => self.ask_own(group, request.clone()).await,
                Some((group, server)) => {
                    let options = CallOptions { fail_fast: true, ..CallOptions::within(OWNER_MAX) };
                    let call = node.grid().call::<AskRange>(server, &encode_to_range(group, &form), options).await;
                    let reply = call.ok().and_then(|bytes| Reply::decode(Bytes::from(bytes)).ok());
                    reply.unwrap_or(Reply::Unavailable)
                }
                None => Reply::Unavailable,
            };
            let now = node.runtime().now();
            if reply != Reply::Unavailable || now >= until || self.is_over() {
                return reply;
            }
            node.runtime().sleep_until(now + RETRY).await;
        }
    }

    async fn ask_drive(&self, drive: DriveId, request: ShardRequest) -> ShardReply {
        if let Some(port) = self.blobs_of(drive) {
            return port.ask(request).await;
        }
        let Some(node) = self.node() else { return ShardReply::Unavailable };
        let server = self.catalog().state_now().and_then(|state| state.drive(drive).map(|drive| drive.server));
        let Some(server) = server else { return ShardReply::Unavailable };
        let options = CallOptions { fail_fast: true, ..CallOptions::within(SHARD_MAX) };
        let is_get = matches!(request, ShardRequest::Get { .. });
        let form = ToDrive { drive, request }.encode();
        let call = if is_get {
            node.grid().call::<GetShard>(server, &form, options).await
        } else {
            node.grid().call::<PutShard>(server, &form, options).await
        };
        let reply = call.ok().and_then(|bytes| decode_reply(&Bytes::from(bytes)).ok());
        reply.unwrap_or(ShardReply::Unavailable)
    }
}

impl<R: Runtime> Cluster for ObjectNode<R> {
    fn moment(&self) -> Moment {
        let draw = || self.node().map_or(0, |node| node.draw()).to_be_bytes();
        let mut drawn = [0; 16];
        drawn[..8].copy_from_slice(&draw());
        drawn[8..].copy_from_slice(&draw());
        Moment { now_ms: self.wall_clock_ms(), drawn }
    }

    fn spread(&self, part: PartId) -> Option<Spread> {
        choose(&*self.catalog().state_now()?, part)
    }

    fn shard(&self, drive: DriveId, request: ShardRequest) -> BoxFuture<'static, ShardReply> {
        let service = self.clone();
        Box::pin(async move { service.ask_drive(drive, request).await })
    }

    fn index(&self, bucket: BucketId, request: Request) -> BoxFuture<'static, Reply> {
        let service = self.clone();
        Box::pin(async move { service.ask_range(bucket, request).await })
    }

    fn later(&self, chore: Chore) {
        match chore {
            Chore::Discard(part) => self.discard_later(part),
            Chore::Heal(bucket, key) => self.heal_soon(bucket, key),
        }
    }
}

#[cfg(test)]
mod tests;
