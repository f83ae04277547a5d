//! What drives of this server have damaged or lost is found and made anew, before anybody reads it.
//!
//! A drive tells which blobs are damaged: those that its scrub, its compaction or a read came upon. The head of such a blob says
//! whose shard it is, and that part is healed. What has no whole head, or is not there at all, can tell nothing: then the records
//! of all buckets are compared with the heads on the drive. This is done soon after the start, too, for a drive may have come
//! back as it was some time ago, and then once a day.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use ashlar_grid::seam::Runtime;
use ashlar_object::cluster::BucketList;
use ashlar_object::index::key::BucketId;
use ashlar_object::record::{KeyBeginning, ShardOwner};
use ashlar_object::service::heal::{HealDepth, HealPass, Healed};
use ashlar_store::blob::BlobEvent;
use ashlar_wire::id::{BlobId, DriveId};

use super::BlobPort;
use super::service::ObjectNode;
use crate::Node;

/// How often a drive is asked what it has found.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// From the start to the first comparison.
const FIRST_CHECK: Duration = Duration::from_secs(60);
/// Between two comparisons of records and drive.
const CHECK_EVERY: Duration = Duration::from_secs(24 * 3_600);
/// Until one is tried again that could not be brought to its end, or after which something is lost still; each further one
/// doubles it, up to [`CHECK_EVERY`].
const RETRY_MIN: Duration = Duration::from_secs(60);
/// Between two pages of a comparison, of 200 objects each.
const PAGE_PAUSE: Duration = Duration::from_millis(200);
/// Blobs that wait to be healed. Where there are more, the drive is compared with the records.
const BLOBS_MAX: usize = 1_000;

/// What a drive has found to be damaged since it was asked last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Damage {
    blobs: BTreeSet<BlobId>,
    /// There is more: too many to be named, or blobs whose names are lost.
    has_more: bool,
}

impl Damage {
    /// Notes what blobs have told.
    pub fn note(&mut self, event: &BlobEvent) {
        match event {
            BlobEvent::Damage { blob } if self.blobs.len() < BLOBS_MAX => drop(self.blobs.insert(*blob)),
            BlobEvent::Damage { .. } | BlobEvent::Lost { .. } => self.has_more = true,
            // Nothing can be made anew on a drive that takes nothing.
            BlobEvent::Poisoned(_) => {}
        }
    }
}

impl<R: Runtime> ObjectNode<R> {
    /// Heals what one drive has damaged or lost, again and again.
    pub(super) async fn heal_damage(self, node: Node<R>, drive: DriveId, port: Arc<dyn BlobPort>) {
        let now = || node.runtime().now();
        let (mut check_at, mut not_before, mut retry) = (now() + FIRST_CHECK, now(), RETRY_MIN);
        while !self.is_over() {
            node.runtime().sleep_until(now() + LOOK_EVERY).await;
            if self.use_of(drive).is_none() {
                // The catalog does not know it yet, or it is given up.
                continue;
            }
            let Damage { blobs, has_more } = port.take_damage();
            let mut is_check_due = has_more;
            for blob in blobs {
                is_check_due |= !self.heal_blob(&*port, blob).await;
            }
            if is_check_due {
                check_at = check_at.min(not_before);
            }
            if check_at <= now() {
                let is_whole = self.check_drive(&node, drive).await;
                let pause = if is_whole { CHECK_EVERY } else { retry };
                retry = if is_whole { RETRY_MIN } else { (retry * 2).min(CHECK_EVERY) };
                check_at = now() + pause;
                // What could not be healed a moment ago is not looked for again at once.
                not_before = if is_whole { now() } else { check_at };
            }
        }
    }

    /// Heals the part that a blob belongs to. Whether it is whole now, or nobody's.
    async fn heal_blob(&self, port: &dyn BlobPort, blob: BlobId) -> bool {
        let owner = port.header(blob).await.and_then(|header| ShardOwner::decode(&header).ok());
        let Some(owner) = owner.filter(|owner| matches!(owner.key, KeyBeginning::Whole(_))) else { return false };
        match self.objects().heal_shard(&owner).await {
            Ok(true) => tracing::info!(%blob, "a damaged shard is made anew"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%blob, %error, "a damaged shard is not made anew yet: the next comparison of records with the drive tries again");
                return false;
            }
        }
        true
    }

    /// Compares all records with the heads of shards on a drive, and heals what is missing there. Whether all of it was done.
    async fn check_drive(&self, node: &Node<R>, drive: DriveId) -> bool {
        let (mut healed, mut pass) = (Healed::default(), HealPass::default());
        let Ok(buckets) = BucketList::all(self).await else { return false };
        let mut is_whole = true;
        for (_, bucket) in buckets {
            let checked = self.check_bucket(node, (bucket.id, drive), &mut healed, &mut pass).await;
            is_whole &= checked;
        }
        let Healed { objects, healed, waiting, lacking, failed } = healed;
        if healed + waiting + failed > 0 {
            tracing::info!(%drive, objects, healed, waiting, lacking, failed, "records were compared with the shards on a drive");
        }
        is_whole && failed == 0
    }

    async fn check_bucket(
        &self,
        node: &Node<R>,
        (bucket, drive): (BucketId, DriveId),
        healed: &mut Healed,
        pass: &mut HealPass,
    ) -> bool {
        let mut from = None;
        while !self.is_over() {
            let step = self.objects().heal_bucket(bucket, from, HealDepth::Drive(drive), pass).await;
            let Ok((more, next)) = step else { return false };
            *healed = healed.and(more);
            from = next;
            if from.is_none() {
                return true;
            }
            node.runtime().sleep_until(node.runtime().now() + PAGE_PAUSE).await;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_store::io::IoError;

    #[test]
    fn what_cannot_be_named_asks_for_a_comparison() {
        let blob = |number: u32| BlobId::from_bytes(core::array::from_fn(|at| number.to_be_bytes()[at % 4]));
        let mut damage = Damage::default();
        damage.note(&BlobEvent::Poisoned(IoError { errno: 5 }));
        assert_eq!(damage, Damage::default());
        for number in 0..1_000 {
            damage.note(&BlobEvent::Damage { blob: blob(number) });
        }
        assert_eq!((damage.blobs.len(), damage.has_more), (1_000, false));
        damage.note(&BlobEvent::Damage { blob: blob(1_000) });
        assert_eq!((damage.blobs.len(), damage.has_more), (1_000, true));
        let mut damage = Damage::default();
        damage.note(&BlobEvent::Lost { segment: 3 });
        assert!(damage.has_more);
    }
}
