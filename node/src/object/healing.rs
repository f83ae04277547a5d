//! When objects are healed: soon after damage was read, and after drives or placement groups have changed.
//!
//! The owner of a bucket's range heals the bucket: one task a server, one object at a time, so that it stays beside everything
//! else. Shards that records note as missing, and those on drives that leave, are made anew; all shards are asked for where
//! damage was read. Whoever has read damage, or put an object that a drive missed, heals that one soon, and again if it fails.
//!
//! A pass begins when the catalog has changed drives, servers or placement groups, when a drive that did not answer the last
//! pass answers again, and every ten minutes. While a drive is away it costs one call for no bytes every few seconds.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError};

use ashlar_catalog::change::{CatalogVersion, Touched};
use ashlar_grid::seam::Runtime;
use ashlar_object::api::Error;
use ashlar_object::cluster::{BucketList, Cluster, ShardReply, ShardRequest};
use ashlar_object::index::key::BucketId;
use ashlar_object::service::ObjectService;
use ashlar_object::service::heal::{HealDepth, HealPass, Healed};
use ashlar_wire::id::{BlobId, DriveId};
use ashlar_wire::time::Instant;

use super::buckets::buckets_of;
use super::service::ObjectNode;
use crate::{Node, together};

/// After a change, so long until healing begins: others may follow.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two passes where nothing changes.
const PASS_EVERY: Duration = Duration::from_secs(600);
/// The first pause after a pass in which something failed; each further one doubles it, up to [`PASS_EVERY`].
const RETRY_MIN: Duration = Duration::from_secs(30);
/// How often drives that are away are asked whether they are back.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// How often the progress of a pass is told.
const TELL_EVERY: Duration = Duration::from_secs(30);
/// Objects that wait to be healed. Further ones are found when they are read again.
const WAITING_MAX: usize = 1_000;

/// How often objects that wait are looked through for those whose time has come.
const WAITING_EVERY: Duration = Duration::from_secs(1);
/// After the first try that failed; each further pause is twice as long.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Tries of one object: the last comes about eight minutes after the first.
const TRIES_MAX: u32 = 9;

/// An object that waits to be healed.
#[derive(Debug)]
pub(super) struct Waiting {
    /// When it is tried next.
    at: Instant,
    tries: u32,
    depth: HealDepth,
}

/// Objects that wait, by bucket and key.
pub(super) type WaitingObjects = BTreeMap<(BucketId, String), Waiting>;

impl Waiting {
    const fn new(at: Instant) -> Self {
        Self { at, tries: 0, depth: HealDepth::Noted }
    }

    fn deepen(&mut self, depth: HealDepth) {
        if depth == HealDepth::Every {
            self.depth = depth;
        }
    }

    /// After a try that failed: when the next one is due. False if there is none.
    fn put_off(&mut self, now: Instant) -> bool {
        self.at = now + AGAIN_AFTER * (1 << self.tries);
        self.tries += 1;
        self.tries < TRIES_MAX
    }
}

/// A pass over all buckets of this server.
struct Pass {
    /// Objects that have to be healed, as far as records note it.
    due: u64,
    healed: Healed,
    found: HealPass,
    tell_at: Instant,
}

impl<R: Runtime> ObjectNode<R> {
    pub(super) fn objects(&self) -> ObjectService<Self> {
        ObjectService::new(std::sync::Arc::new(self.clone()), std::sync::Arc::new(self.clone()))
    }

    /// Heals one object beside everything else, and tries again for a while if that fails.
    pub(super) fn heal_soon(&self, bucket: BucketId, key: String, depth: HealDepth) {
        let Some(node) = self.node() else { return };
        let mut waiting = self.healing();
        let is_running = !waiting.is_empty();
        if waiting.len() < WAITING_MAX {
            waiting.entry((bucket, key)).or_insert(Waiting::new(node.runtime().now())).deepen(depth);
        }
        drop(waiting);
        if !is_running {
            let (service, node) = (self.clone(), node.clone());
            node.clone().runtime().spawn(Box::pin(async move { service.heal_waiting(&node).await }));
        }
    }

    pub(super) fn healing(&self) -> MutexGuard<'_, WaitingObjects> {
        self.waiting_objects().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Heals what waits until nothing does. As long as something waits, this task is the one.
    async fn heal_waiting(self, node: &Node<R>) {
        while !self.is_over() {
            // Each drive is asked once a round whether it is there.
            let mut pass = HealPass::default();
            let now = node.runtime().now();
            let due: Vec<_> =
                self.healing().iter().filter(|(_, it)| it.at <= now).map(|(key, it)| (key.clone(), it.depth)).collect();
            let mut failed: Vec<(BucketId, String, Error)> = Vec::new();
            for ((bucket, key), depth) in due {
                let healed = self.objects().heal_object(bucket, &key, depth, &mut pass).await;
                if healed == Ok(true) {
                    let bucket = self.bucket_name(bucket);
                    tracing::info!(bucket, key, "shards of an object were damaged or missing and are made anew");
                }
                let of = (bucket, key);
                if let Some(error) = self.note_healed(node, &of, depth, healed.err()) {
                    failed.push((of.0, of.1, error));
                }
            }
            if let Some((bucket, key, error)) = failed.first() {
                let (bucket, objects) = (self.bucket_name(*bucket), failed.len());
                tracing::warn!(bucket, key, objects, %error, "shards of objects cannot be made anew for now: tried again; the first one is named");
            }
            if self.healing().is_empty() {
                return;
            }
            node.runtime().sleep_until(node.runtime().now() + WAITING_EVERY).await;
        }
    }

    fn bucket_name(&self, bucket: BucketId) -> String {
        let state = self.catalog().state_now();
        let name =
            state.and_then(|state| buckets_of(&state).find(|(_, record)| record.id == bucket).map(|(name, _)| name));
        name.unwrap_or_default()
    }

    /// What was healed waits no more, nor what has been tried often enough: a pass over its bucket finds it. Why it failed, for the
    /// first time.
    fn note_healed(
        &self,
        node: &Node<R>,
        key: &(BucketId, String),
        depth: HealDepth,
        failed: Option<Error>,
    ) -> Option<Error> {
        let mut waiting = self.healing();
        let entry = waiting.get_mut(key)?;
        let Some(error) = failed else {
            // Meanwhile somebody may have asked for more.
            if entry.depth == depth {
                waiting.remove(key);
            }
            return None;
        };
        let is_first = entry.tries == 0;
        if !entry.put_off(node.runtime().now()) {
            let bucket = self.bucket_name(key.0);
            tracing::warn!(bucket, key = key.1, %error, "shards of an object cannot be made anew: a pass may find it, every ten minutes");
            waiting.remove(key);
        }
        is_first.then_some(error)
    }

    /// Heals the buckets whose ranges this server owns, again and again.
    pub(super) async fn heal_always(self, node: Node<R>) {
        let mut version = CatalogVersion(0);
        let mut away = BTreeSet::new();
        let (mut pause, mut retry) = (SETTLE, RETRY_MIN);
        while !self.is_over() {
            let due = node.runtime().now() + pause;
            self.wait_for_reason(&node, &mut version, due, &away).await;
            node.runtime().sleep_until(node.runtime().now() + SETTLE).await;
            let (healed, drives) = self.heal_buckets(&node).await;
            away = drives.away();
            if healed.failed > 0 {
                (pause, retry) = (retry, (retry * 2).min(PASS_EVERY));
            } else {
                (pause, retry) = (PASS_EVERY, RETRY_MIN);
            }
        }
    }

    /// Ends when a placement group, a server or a drive has changed, when a drive that was away answers, or at `due`.
    async fn wait_for_reason(
        &self,
        node: &Node<R>,
        version: &mut CatalogVersion,
        due: Instant,
        away: &BTreeSet<DriveId>,
    ) {
        let next_probe = || if away.is_empty() { due } else { due.min(node.runtime().now() + PROBE_EVERY) };
        let mut probe_at = next_probe();
        while !self.is_over() {
            let watch = Box::pin(self.catalog().watch(*version));
            match together::first(watch, node.runtime().sleep_until(probe_at)).await {
                Some(Ok(news)) => {
                    *version = news.state.version();
                    let is_reason = |touched: &Touched| {
                        matches!(touched, Touched::Group(_) | Touched::Drive(_) | Touched::Server(_) | Touched::All)
                    };
                    // What is not known any more may have been anything.
                    let has_changed = news.entries.is_none_or(|entries| {
                        entries.iter().any(|entry| entry.command.change.touches().iter().any(is_reason))
                    });
                    if has_changed {
                        return;
                    }
                }
                Some(Err(_)) => return,
                None if node.runtime().now() >= due || self.is_any_back(away).await => return,
                None => probe_at = next_probe(),
            }
        }
    }

    /// Whether one of these drives answers. What it has does not matter.
    async fn is_any_back(&self, away: &BTreeSet<DriveId>) -> bool {
        for drive in away {
            let probe = ShardRequest::Get { blob: BlobId::from_bytes([0; 16]), offset: 0, len: 0 };
            if self.shard(*drive, probe).await != ShardReply::Unavailable {
                return true;
            }
        }
        false
    }

    async fn heal_buckets(&self, node: &Node<R>) -> (Healed, HealPass) {
        let buckets: Vec<BucketId> =
            BucketList::all(self).await.unwrap_or_default().into_iter().map(|(_, bucket)| bucket.id).collect();
        let tell_at = node.runtime().now() + TELL_EVERY;
        let mut pass = Pass { due: 0, healed: Healed::default(), found: HealPass::default(), tell_at };
        let mut with_due = Vec::new();
        for bucket in buckets {
            let due = self.count_due(bucket, &mut pass).await;
            pass.due += due;
            if due > 0 {
                with_due.push(bucket);
            }
        }
        self.note_unhealed(pass.due);
        if pass.due > 0 {
            tracing::info!(objects = pass.due, "objects have shards that are missing or on drives that leave");
        }
        for bucket in with_due {
            self.heal_owned(node, bucket, &mut pass).await;
        }
        let Healed { healed, waiting, lacking, failed, .. } = pass.healed;
        self.note_unhealed(waiting + lacking + failed);
        if healed + waiting + lacking + failed > 0 {
            let away = pass.found.away().len();
            tracing::info!(healed, waiting, lacking, failed, drives_away = away, "shards of objects are made anew");
        }
        (pass.healed, pass.found)
    }

    /// How many objects of a bucket have to be healed, if this server owns its index.
    async fn count_due(&self, bucket: BucketId, pass: &mut Pass) -> u64 {
        let (mut from, mut due) = (None, 0);
        while self.owns(bucket) && !self.is_over() {
            let Ok((more, next)) = self.objects().count_to_heal(bucket, from).await else {
                pass.healed.failed += 1;
                break;
            };
            due += more;
            from = next;
            if from.is_none() {
                break;
            }
        }
        due
    }

    async fn heal_owned(&self, node: &Node<R>, bucket: BucketId, pass: &mut Pass) {
        let mut from = None;
        while self.owns(bucket) && !self.is_over() {
            let step = self.objects().heal_bucket(bucket, from, HealDepth::Noted, &mut pass.found).await;
            let Ok((healed, next)) = step else {
                pass.healed.failed += 1;
                return;
            };
            pass.healed = pass.healed.and(healed);
            let left = pass.due.saturating_sub(pass.healed.healed);
            self.note_unhealed(left);
            if node.runtime().now() >= pass.tell_at {
                pass.tell_at = node.runtime().now() + TELL_EVERY;
                tracing::info!(healed = pass.healed.healed, left, "shards of objects are being made anew");
            }
            from = next;
            if from.is_none() {
                return;
            }
        }
    }
}
