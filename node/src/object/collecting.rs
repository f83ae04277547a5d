//! Collectors of this server's drives: shards without a record are removed, and a drive that is emptied is told to be empty.
//!
//! One task a drive, at a bounded pace; see [`Collector`] for what it removes and when.

use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::change::Change;
use ashlar_catalog::server::{DriveState, ServerState};
use ashlar_grid::seam::Runtime;
use ashlar_object::planted::{self, Planted};
use ashlar_object::service::collect::{Collector, CollectorConfig, DriveUse};
use ashlar_wire::id::DriveId;

use super::BlobPort;
use super::service::ObjectNode;
use crate::Node;

/// Between two steps: about 60 shards a second.
const STEP_EVERY: Duration = Duration::from_millis(500);
/// The same on a drive that is being emptied.
const LEAVING_STEP_EVERY: Duration = Duration::from_millis(50);
/// Between two passes over a drive.
const PASS_EVERY: Duration = Duration::from_secs(600);
/// The same on a drive that is being emptied.
const LEAVING_PASS_EVERY: Duration = Duration::from_secs(30);
/// Pause after a drive or an index has not answered.
const RETRY: Duration = Duration::from_secs(30);

impl<R: Runtime> ObjectNode<R> {
    /// How a drive is used now, and whether its placement groups have left it.
    pub(super) fn use_of(&self, drive: DriveId) -> Option<(DriveUse, bool)> {
        let state = self.catalog().state_now()?;
        let known = state.drive(drive)?;
        let server = state.server(known.server)?.state;
        let leaves = known.state == DriveState::Draining || server == ServerState::Draining;
        match known.state {
            DriveState::Failed => None,
            _ if leaves => Some((DriveUse::Leaving, known.set.is_none())),
            _ => Some((DriveUse::InUse, false)),
        }
    }

    /// Collects what is not named on one drive, again and again.
    pub(super) async fn collect_always(self, node: Node<R>, drive: DriveId, port: Arc<dyn BlobPort>) {
        let mut config = CollectorConfig::default();
        if planted::has(Planted::CollectAtOnce) {
            config.orphan_after = Duration::ZERO;
        }
        let mut collector = Collector::new(drive, config);
        while !self.is_over() {
            let pause = match self.use_of(drive) {
                Some((drive_use, is_released)) => {
                    let step = collector.step(&self.objects(), &*port, drive_use).await;
                    let is_leaving = drive_use == DriveUse::Leaving;
                    match step {
                        Ok(step) if step.is_whole => {
                            let left = collector.blobs().unwrap_or_default().saturating_sub(step.removed);
                            if step.removed > 0 {
                                let removed = step.removed;
                                tracing::info!(%drive, removed, left, "shards that nothing refers to are removed");
                            } else if is_leaving {
                                self.tell_left(drive, left);
                            }
                            if is_leaving && is_released && left == 0 {
                                self.tell_empty(drive).await;
                            }
                            if is_leaving { LEAVING_PASS_EVERY } else { PASS_EVERY }
                        }
                        Ok(_) if is_leaving => LEAVING_STEP_EVERY,
                        Ok(_) => STEP_EVERY,
                        Err(_) => RETRY,
                    }
                }
                // The catalog does not know it yet, or it is given up.
                None => RETRY,
            };
            node.runtime().sleep_until(node.runtime().now() + pause).await;
        }
    }

    fn tell_left(&self, drive: DriveId, left: u64) {
        match self.drives_without_spare() {
            Some(others) if left > 0 => tracing::warn!(
                %drive,
                left,
                others,
                "shards are left on the drive that is being emptied: each other drive has a shard of their objects already; add a drive, or give this one up with `ashlar drives remove ID --lost`: those objects are one shard short then"
            ),
            _ => tracing::info!(%drive, left, "shards are left on the drive that is being emptied"),
        }
    }

    /// An emptied drive is given up: whatever comes to it from now on is made anew elsewhere.
    async fn tell_empty(&self, drive: DriveId) {
        let change = Change::SetDriveState { id: drive, state: DriveState::Failed };
        match self.catalog().propose(change).await {
            Ok(_) => {
                tracing::info!(%drive, "the drive is empty and belongs to the cluster no more: it can be taken away");
            }
            Err(error) => tracing::debug!(%drive, %error, "the drive is empty, and the catalog does not know it yet"),
        }
    }
}
