//! When objects are healed: soon after damage was read, and after placement groups have changed, because servers went or came.
//!
//! The owner of a bucket's range heals the bucket: one task a server, one object at a time, so that it stays beside everything
//! else. Shards that records note as missing are made anew; all shards are asked for where damage was read.

use core::time::Duration;
use std::sync::PoisonError;

use ashlar_catalog::change::{CatalogVersion, Touched};
use ashlar_grid::seam::Runtime;
use ashlar_object::cluster::BucketList;
use ashlar_object::index::key::BucketId;
use ashlar_object::service::ObjectService;
use ashlar_object::service::heal::{HealDepth, Healed};

use super::service::ObjectNode;
use crate::{Node, together};

/// After a change, so long until healing begins: others may follow.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two passes where nothing changes, and until the next try where something could not be healed.
const PASS_EVERY: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_secs(30);
/// Objects that wait to be healed. Further ones are found when they are read again.
const WAITING_MAX: usize = 1_000;

impl<R: Runtime> ObjectNode<R> {
    fn objects(&self) -> ObjectService<Self> {
        ObjectService::new(std::sync::Arc::new(self.clone()), std::sync::Arc::new(self.clone()))
    }

    /// Heals one object beside everything else.
    pub(super) fn heal_soon(&self, bucket: BucketId, key: String) {
        let Some(node) = self.node() else { return };
        let mut waiting = self.healing().lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = !waiting.is_empty();
        if waiting.len() < WAITING_MAX {
            waiting.insert((bucket, key));
        }
        drop(waiting);
        if !is_running {
            let service = self.clone();
            node.runtime().spawn(Box::pin(async move { service.heal_waiting().await }));
        }
    }

    async fn heal_waiting(self) {
        let next = || self.healing().lock().unwrap_or_else(PoisonError::into_inner).first().cloned();
        while let Some((bucket, key)) = next().filter(|_| !self.is_over()) {
            match self.objects().heal_object(bucket, &key).await {
                Ok(true) => tracing::info!(key, "shards of an object were damaged or missing and are made anew"),
                Ok(false) => {}
                Err(error) => tracing::warn!(key, %error, "shards of an object cannot be made anew for now"),
            }
            // Only now: as long as something waits, this task is the one.
            self.healing().lock().unwrap_or_else(PoisonError::into_inner).remove(&(bucket, key));
        }
    }

    /// Heals the buckets whose ranges this server owns, again and again.
    pub(super) async fn heal_always(self, node: Node<R>) {
        let mut version = CatalogVersion(0);
        let mut pause = SETTLE;
        while !self.is_over() {
            let due = node.runtime().now() + pause;
            self.wait_for_change(&node, &mut version, due).await;
            node.runtime().sleep_until(node.runtime().now() + SETTLE).await;
            let healed = self.heal_buckets().await;
            if healed.healed > 0 || healed.failed > 0 {
                let Healed { objects, healed, failed } = healed;
                tracing::info!(objects, healed, failed, "shards that drives had missed are made anew");
            }
            pause = if healed.failed > 0 { RETRY } else { PASS_EVERY };
        }
    }

    /// Ends when a placement group has changed, or at `due`.
    async fn wait_for_change(&self, node: &Node<R>, version: &mut CatalogVersion, due: ashlar_wire::time::Instant) {
        while !self.is_over() {
            let watch = Box::pin(self.catalog().watch(*version));
            let Some(Ok(news)) = together::first(watch, node.runtime().sleep_until(due)).await else { return };
            *version = news.state.version();
            let is_group = |touched: &Touched| matches!(touched, Touched::Group(_) | Touched::All);
            // What is not known any more may have been anything.
            let has_changed = news
                .entries
                .is_none_or(|entries| entries.iter().any(|entry| entry.command.change.touches().iter().any(is_group)));
            if has_changed {
                return;
            }
        }
    }

    async fn heal_buckets(&self) -> Healed {
        let mut all = Healed::default();
        let buckets = BucketList::all(self).await.unwrap_or_default();
        for (_, bucket) in buckets {
            let mut from = None;
            while self.owns(bucket.id) && !self.is_over() {
                let Ok((healed, next)) = self.objects().heal_bucket(bucket.id, from, HealDepth::Noted).await else {
                    all.failed += 1;
                    break;
                };
                all.objects += healed.objects;
                all.healed += healed.healed;
                all.failed += healed.failed;
                from = next;
                if from.is_none() {
                    break;
                }
            }
        }
        all
    }
}
