//! What the object crate needs of the cluster: the owner of a range, drives with shards, drives for new ones.

use core::time::Duration;
use std::collections::BTreeSet;

use ashlar_catalog::server::{Drive, DriveState, ServerState, parity_shards};
use ashlar_catalog::state::State;
use ashlar_grid::seam::Runtime;
use ashlar_object::api::{BoxFuture, Redundancy};
use ashlar_object::cluster::{Chore, Cluster, Moment, Placed, Placing, ShardReply, ShardRequest, Spread};
use ashlar_object::index::key::BucketId;
use ashlar_object::index::{Reply, Request};
use ashlar_object::planted::{self, Planted};
use ashlar_object::record::{PartId, ShardNames};
use ashlar_object::service::heal::HealDepth;
use ashlar_placement::map::GroupId;
use ashlar_wire::checksum::{Salt, checksum};
use ashlar_wire::id::{DriveId, ServerId};
use ashlar_wire::time::Instant;
use bytes::Bytes;

use super::buckets::buckets_of;
use super::form::{DriveCall, ToDrive, decode_reply, encode_to_range};
use super::index_set::{INDEX_SET, bucket_id, range_of};
use super::relay::{Asked, NoAnswer, ask_elsewhere, ask_shard, direct};
use super::service::ObjectNode;
use crate::{Node, together};

/// How long the owner of a range is looked for and waited for. A failover takes less.
const INDEX_MAX: Duration = Duration::from_secs(20);
/// How long one owner may take.
pub(super) const OWNER_MAX: Duration = Duration::from_secs(8);
/// Pause before the owner is looked for again.
const RETRY: Duration = Duration::from_millis(30);
/// How long a drive may take for a shard.
const SHARD_MAX: Duration = Duration::from_secs(5);
/// Most shards of a stripe.
const STRIPE_MAX: usize = 16;

/// Whether a drive is given up, by itself or with its server.
fn is_given_up(state: &State, drive: DriveId) -> bool {
    let Some(drive) = state.drive(drive) else { return true };
    let server = state.server(drive.server).map(|server| server.state);
    drive.state == DriveState::Failed || matches!(server, None | Some(ServerState::Dead))
}

/// Whether a drive is given nothing new and loses what it has: given up, being emptied, or of such a server.
fn leaves(state: &State, drive: DriveId) -> bool {
    let is_drained = |drive: &Drive| {
        let server = state.server(drive.server).map(|server| server.state);
        drive.state == DriveState::Draining || server == Some(ServerState::Draining)
    };
    is_given_up(state, drive) || state.drive(drive).is_some_and(is_drained)
}

/// Drives that may be given shards, in the rendezvous order of a part.
fn ranked(state: &State, part: PartId) -> Vec<(DriveId, ServerId)> {
    let usable = state.drives().filter(|drive| drive.state == DriveState::Active && !leaves(state, drive.id));
    let mut drives: Vec<(u64, DriveId, ServerId)> = usable
        .map(|drive| {
            let weight = checksum(Salt::new(&[b"drives of a part", &part.0]), drive.id.as_bytes()).0;
            (weight, drive.id, drive.server)
        })
        .collect();
    drives.sort_unstable();
    drives.into_iter().map(|(_, drive, server)| (drive, server)).collect()
}

/// Takes the drive of the server that has the fewest of the chosen ones; of several the first one. Drives of servers that are
/// gone come last.
fn take_next(
    drives: &mut Vec<(DriveId, ServerId)>,
    chosen: &[ServerId],
    gone: &BTreeSet<ServerId>,
) -> Option<(DriveId, ServerId)> {
    let load = |server: ServerId| chosen.iter().filter(|other| **other == server).count();
    let least = (0..drives.len()).min_by_key(|at| (gone.contains(&drives[*at].1), load(drives[*at].1), *at))?;
    Some(drives.remove(least))
}

/// Drives for the shards of a new part: the rendezvous order of all drives, each server's share as equal as can be. A stripe
/// is as wide as all drives allow: one that is gone for now gets its shard when it is back.
fn choose(state: &State, gone: &BTreeSet<ServerId>, part: PartId, redundancy: Redundancy) -> Option<Spread> {
    let mut drives = ranked(state, part);
    let count = drives.len().min(STRIPE_MAX);
    let (mut chosen, mut servers) = (Vec::with_capacity(count), Vec::with_capacity(count));
    while chosen.len() < count {
        let (drive, server) = take_next(&mut drives, &servers, gone)?;
        chosen.push(drive);
        servers.push(server);
    }
    let parity = redundancy.parity(parity_shards(chosen.len()));
    (!chosen.is_empty()).then_some(Spread { parity, drives: chosen })
}

/// The spread of a part that lies on the drives `now`: each that leaves is replaced by one that has no shard of it, by the
/// rule of [`choose`]. One for which there is no other stays.
fn replace(state: &State, gone: &BTreeSet<ServerId>, part: PartId, now: &Spread) -> Spread {
    let mut next = now.clone();
    let leaving: Vec<usize> = (0..now.drives.len()).filter(|at| leaves(state, now.drives[*at])).collect();
    if leaving.is_empty() {
        return next;
    }
    let mut drives = ranked(state, part);
    drives.retain(|(drive, _)| !now.drives.contains(drive));
    let stays = (0..now.drives.len()).filter(|at| !leaving.contains(at));
    let mut servers: Vec<ServerId> =
        stays.filter_map(|at| state.drive(now.drives[at]).map(|drive| drive.server)).collect();
    for at in leaving {
        let Some((drive, server)) = take_next(&mut drives, &servers, gone) else { break };
        next.drives[at] = drive;
        servers.push(server);
    }
    next
}

impl<R: Runtime> ObjectNode<R> {
    /// How many drives take shards, if there are buckets and so few drives that objects may have a shard on each of them, so that none
    /// could take another one's.
    pub fn drives_without_spare(&self) -> Option<usize> {
        let state = self.catalog().state_now()?;
        let count = ranked(&state, PartId([0; 12])).len();
        (count <= STRIPE_MAX && buckets_of(&state).next().is_some()).then_some(count)
    }

    /// Asks the owner of a bucket's range, and asks again while nobody answers. A commit that may have been carried out is not
    /// repeated: its record could have been replaced meanwhile, and the shards that it names be on their way to be removed.
    async fn ask_range(&self, bucket: BucketId, request: Request) -> Reply {
        let Some(node) = self.node() else { return Reply::Unavailable };
        let until = node.runtime().now() + INDEX_MAX;
        let is_commit = matches!(request, Request::Commit { .. });
        let may_repeat = |failed| failed == NoAnswer::NotDone || !is_commit || planted::has(Planted::RepeatCommits);
        loop {
            let group = self.catalog().state_now().and_then(|state| range_of(&state, bucket));
            let answer = match group {
                Some(group) => match self.ask_owner(&node, group, &request).await {
                    // The owner cannot be reached from here, or is another one by now, which this server has not heard of.
                    Err(failed) if may_repeat(failed) => ask_elsewhere(&node, group, &request, OWNER_MAX).await,
                    answer => answer,
                },
                None => Err(NoAnswer::NotDone),
            };
            let now = node.runtime().now();
            match answer {
                Ok(reply) => return reply,
                Err(failed) if !may_repeat(failed) || now >= until || self.is_over() => return Reply::Unavailable,
                Err(_) => node.runtime().sleep_until(now + RETRY).await,
            }
        }
    }

    /// Asks the owner of a range once, as this server knows it.
    pub(super) async fn ask_owner(&self, node: &Node<R>, group: GroupId, request: &Request) -> Result<Reply, NoAnswer> {
        let state = self.catalog().state_now();
        let owner = state.and_then(|state| Some(state.drive(state.pg(group)?.primary)?.server));
        let reply = match owner {
            None => return Err(NoAnswer::NotDone),
            Some(server) if server == node.id() => {
                if !self.owns_group(group) {
                    return Err(NoAnswer::NotDone);
                }
                let timer = node.runtime().sleep_until(node.runtime().now() + OWNER_MAX);
                together::first(self.ask_own(group, request.clone()), timer).await
            }
            Some(server) => {
                let payload = encode_to_range(group, &request.encode());
                let answer = direct(node, server, &Asked::Range(payload), OWNER_MAX).await?;
                Reply::decode(Bytes::from(answer)).ok()
            }
        };
        // An owner that has lost its placement group may have carried it out before.
        reply.filter(|reply| *reply != Reply::Unavailable).ok_or(NoAnswer::Unknown)
    }

    async fn ask_drive(&self, drive: DriveId, request: ShardRequest) -> ShardReply {
        if let Some(port) = self.blobs_of(drive) {
            return port.ask(request).await;
        }
        let Some(node) = self.node() else { return ShardReply::Unavailable };
        let server = self.catalog().state_now().and_then(|state| state.drive(drive).map(|drive| drive.server));
        let Some(server) = server else { return ShardReply::Unavailable };
        let is_read = matches!(request, ShardRequest::Get { .. });
        let request = DriveCall::Own(ToDrive { drive, request });
        let asked = if is_read { Asked::GetShard(request) } else { Asked::PutShard(request) };
        let answer = ask_shard(&node, server, &asked, SHARD_MAX).await;
        let reply = answer.ok().and_then(|bytes| decode_reply(&Bytes::from(bytes)).ok());
        reply.unwrap_or(ShardReply::Unavailable)
    }
}

impl<R: Runtime> Cluster for ObjectNode<R> {
    fn moment(&self) -> Moment {
        let draw = || self.node().map_or(0, |node| node.draw()).to_be_bytes();
        let mut drawn = [0; 16];
        drawn[..8].copy_from_slice(&draw());
        drawn[8..].copy_from_slice(&draw());
        let at = self.node().map_or(Instant::ORIGIN, |node| node.runtime().now());
        let bucket = bucket_id(self.catalog().state_now().as_deref(), drawn);
        Moment { now_ms: self.wall_clock_ms(), at, drawn, bucket }
    }

    fn spread(&self, part: PartId, placing: Placing<'_>) -> Option<Placed> {
        let state = self.catalog().state_now()?;
        let spread = match placing {
            Placing::New(redundancy) => choose(&state, &self.catalog().failed_servers(), part, redundancy)?,
            Placing::Lying(now) => replace(&state, &self.catalog().failed_servers(), part, now),
        };
        let given_up = (0..).zip(&spread.drives).filter(|(_, drive)| is_given_up(&state, **drive));
        let names = if state.set(INDEX_SET).is_some() { ShardNames::OfShard } else { ShardNames::OfBlock };
        Some(Placed { lacking: given_up.map(|(number, _)| number).collect(), spread, names })
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
            Chore::Discard { part, of_bytes } => self.discard_later(part, of_bytes),
            Chore::Heal(bucket, key) => self.heal_soon(bucket, key, HealDepth::Every),
            Chore::HealNoted(bucket, key) => self.heal_soon(bucket, key, HealDepth::Noted),
        }
    }
}

#[cfg(test)]
mod tests;
