//! Collectors of this server's drives: shards without a record are removed, and a drive that is emptied is told to be empty.
//!
//! One task a drive, at a bounded pace; see [`Collector`] for what it removes and when.

use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::change::Change;
use ashlar_catalog::server::{DriveState, ServerState};
use ashlar_grid::seam::Runtime;
use ashlar_object::planted::{self, Planted};
use ashlar_object::service::collect::{Collector, CollectorConfig, DriveUse, Left};
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
/// Passes over a drive that is being emptied after which shards that are named there as before stay there, and between two lines of the
/// log about that.
const STAYS: u32 = 4;
const TELL_AGAIN: u32 = 20;
/// Pause after a drive or an index has not answered.
const RETRY: Duration = Duration::from_secs(30);

/// What was left on a drive that is being emptied, and for how many passes it was the same.
#[derive(Debug, Default)]
struct Told {
    left: Left,
    passes: u32,
}

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
        let mut told = Told::default();
        while !self.is_over() {
            let pause = match self.use_of(drive) {
                Some((drive_use, is_released)) => {
                    let step = collector.step(&self.objects(), &*port, drive_use).await;
                    let is_leaving = drive_use == DriveUse::Leaving;
                    match step {
                        Ok(step) if step.is_whole => {
                            let left = collector.left();
                            if step.removed > 0 {
                                let (removed, left) = (step.removed, left.all());
                                tracing::info!(%drive, removed, left, "shards that nothing refers to are removed");
                            }
                            if is_leaving {
                                self.tell_left(drive, left, &mut told);
                            }
                            if is_leaving && is_released && left.all() == 0 {
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

    /// Tells what is left on a drive that is being emptied, if that has changed, or nothing changes it.
    fn tell_left(&self, drive: DriveId, left: Left, told: &mut Told) {
        let Left { named, moved, orphans } = left;
        let is_news = left != told.left;
        *told = Told { left, passes: if is_news { 0 } else { told.passes + 1 } };
        // Nothing has to be made anew, and yet records name shards here, as they did before.
        let stays = named > 0 && told.passes % TELL_AGAIN == STAYS && self.to_heal() == 0;
        match self.drives_without_spare().filter(|_| stays) {
            Some(others) => tracing::warn!(
                %drive,
                left = named,
                others,
                "shards are left on the drive that is being emptied: each other drive has a shard of their objects already; add a drive, or give this one up with `ashlar drives remove ID --lost`: those objects are one shard short then"
            ),
            _ if !is_news => {}
            _ if named > 0 => {
                tracing::info!(%drive, left = named, moved, "shards are left on the drive that is being emptied");
            }
            _ if moved > 0 => tracing::info!(
                %drive,
                moved,
                "all shards on the drive that is being emptied are on others, too; what was there goes ten minutes after it has moved"
            ),
            _ if orphans > 0 => tracing::info!(
                %drive,
                orphans,
                "no object has a shard on the drive that is being emptied; what was left by puts and deletions that a stop has cut off goes after seven hours, or at once with `ashlar drives remove ID --lost`"
            ),
            _ => {}
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
