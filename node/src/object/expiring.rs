//! When objects are deleted by the rules of their buckets: in rounds, by the server that owns the bucket's range.
//!
//! One task a server, one page of one bucket at a time with a pause behind it, so that it stays beside everything else. A bucket
//! whose owner changes in the middle of a round is looked at by the next owner in its own round.

use core::time::Duration;

use ashlar_grid::seam::Runtime;
use ashlar_object::cluster::BucketList;
use ashlar_object::index::key::BucketId;
use ashlar_object::s3::expire::{Expired, Round, expire_uploads};
use ashlar_object::s3::lifecycle::Lifecycle;

use super::service::ObjectNode;
use crate::Node;

/// Between two rounds, where a day is not shorter than this.
const ROUND_EVERY: Duration = Duration::from_secs(3_600);
/// Between two pages of up to 1,000 versions.
const PAGE_PAUSE: Duration = Duration::from_millis(200);

impl<R: Runtime> ObjectNode<R> {
    /// Deletes what has ended in the buckets whose ranges this server owns, again and again.
    pub(super) async fn expire_always(self, node: Node<R>) {
        let pause = Duration::from_millis(self.day().ms).min(ROUND_EVERY);
        while !self.is_over() {
            node.runtime().sleep_until(node.runtime().now() + pause).await;
            let buckets = BucketList::all(&self).await.unwrap_or_default();
            for (name, bucket) in buckets {
                if let Some(rules) = Lifecycle::of(&bucket.attributes, self.day()) {
                    self.expire_bucket(&node, (&name, bucket.id), &rules).await;
                }
            }
        }
    }

    async fn expire_bucket(&self, node: &Node<R>, (name, id): (&str, BucketId), rules: &Lifecycle) {
        let service = self.api();
        let (mut round, mut expired) = (Round::default(), Expired::default());
        let mut is_more = true;
        while is_more && self.owns(id) && !self.is_over() {
            match round.page(&service, name, rules, self.wall_clock_ms()).await {
                Ok((page, more)) => (expired, is_more) = (expired.and(page), more),
                Err(error) => {
                    tracing::debug!(bucket = name, %error, "objects that have ended are deleted in a later round");
                    return;
                }
            }
            if is_more {
                node.runtime().sleep_until(node.runtime().now() + PAGE_PAUSE).await;
            }
        }
        if self.owns(id) && !self.is_over() {
            match expire_uploads(&service, name, rules, self.wall_clock_ms()).await {
                Ok(uploads) => expired = expired.and(uploads),
                Err(error) => tracing::debug!(bucket = name, %error, "uploads are given up in a later round"),
            }
        }
        let Expired { ended, locked, failed } = expired;
        if ended > 0 || failed > 0 {
            tracing::info!(bucket = name, ended, locked, failed, "objects have ended by the rules of their bucket");
        }
    }
}
