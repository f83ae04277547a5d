//! Healing of a bucket that an operator asks for: every shard of every object is read, and what is damaged or missing is made anew.
//!
//! The server that was asked does it, whoever owns the bucket's index: one bucket at a time, one object at a time, beside
//! everything else. How far it is can be asked there until another one is begun; nothing of it outlives the server, and
//! beginning again is safe.

use core::time::Duration;
use std::sync::{MutexGuard, PoisonError};

use ashlar_grid::seam::Runtime;
use ashlar_object::cluster::BucketList;
use ashlar_object::index::key::BucketId;
use ashlar_object::service::heal::{HealDepth, HealPass, UNWHOLE_MAX};
pub use ashlar_object::service::heal::{Healed, Lack, Unwhole};

use super::service::ObjectNode;
use crate::Node;

/// Between two tries of a step whose index has not answered.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Tries of one step.
const TRIES_MAX: u32 = 30;

/// How far the healing of a bucket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketHealing {
    /// The name of the bucket.
    pub bucket: String,
    /// What was found and done until now.
    pub healed: Healed,
    /// The first of what is not whole, [`UNWHOLE_MAX`] at most.
    pub unwhole: Vec<Unwhole>,
    /// Whether it goes on.
    pub state: HealingState,
}

/// Whether the healing of a bucket goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealingState {
    /// It goes on.
    Running,
    /// All objects were looked at.
    Done,
    /// An operator has stopped it.
    Stopped,
    /// The owner of the bucket's index has not answered for a minute.
    Failed,
}

/// Why no healing begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealingRefusal {
    /// No bucket has this name: the caller's fault.
    NoSuchBucket,
    /// This server heals another bucket, which is named: one that is done, or stopped, is in nobody's way.
    Busy(String),
    /// The list of buckets cannot be read. A retry is safe.
    Unavailable,
}

/// The healing that was asked for last, and how many there were: a task that was stopped notices that it is not the one any more.
#[derive(Debug, Default)]
pub(super) struct Asked {
    number: u64,
    last: Option<BucketHealing>,
}

impl<R: Runtime> ObjectNode<R> {
    /// Begins to heal a bucket. One that is being healed already goes on.
    ///
    /// # Errors
    /// [`HealingRefusal`].
    pub async fn begin_healing(&self, bucket: &str) -> Result<BucketHealing, HealingRefusal> {
        let Some(node) = self.node() else { return Err(HealingRefusal::Unavailable) };
        let found = BucketList::find(self, bucket).await.map_err(|_| HealingRefusal::Unavailable)?;
        let id = found.ok_or(HealingRefusal::NoSuchBucket)?.id;
        let mut asked = self.asked();
        if let Some(last) = asked.last.as_ref().filter(|last| last.state == HealingState::Running) {
            return if last.bucket == bucket {
                Ok(last.clone())
            } else {
                Err(HealingRefusal::Busy(last.bucket.clone()))
            };
        }
        asked.number += 1;
        let number = asked.number;
        let (healed, state) = (Healed::default(), HealingState::Running);
        let begun = BucketHealing { bucket: bucket.to_owned(), healed, unwhole: Vec::new(), state };
        asked.last = Some(begun.clone());
        drop(asked);
        let (service, of) = (self.clone(), node.clone());
        node.runtime().spawn(Box::pin(async move { service.heal_whole(&of, number, id).await }));
        Ok(begun)
    }

    /// How far the healing of a bucket is; nothing if this server was not asked to heal it since it started, or another one since.
    #[must_use]
    pub fn bucket_healing(&self, bucket: &str) -> Option<BucketHealing> {
        self.asked().last.clone().filter(|last| last.bucket == bucket)
    }

    /// Stops the healing of a bucket behind the objects at hand. What is healed stays healed.
    pub fn stop_healing(&self, bucket: &str) -> Option<BucketHealing> {
        let mut asked = self.asked();
        let last = asked.last.as_mut().filter(|last| last.bucket == bucket)?;
        if last.state == HealingState::Running {
            last.state = HealingState::Stopped;
        }
        Some(last.clone())
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked_healing().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what has become of the healing of this number; false if it does not go on.
    fn note_asked(&self, number: u64, (step, unwhole): (Healed, Vec<Unwhole>), state: HealingState) -> bool {
        let mut asked = self.asked();
        let is_last = asked.number == number;
        let Some(last) = asked.last.as_mut().filter(|_| is_last) else { return false };
        last.healed = last.healed.and(step);
        last.unwhole.extend(unwhole);
        last.unwhole.truncate(UNWHOLE_MAX);
        if last.state == HealingState::Running {
            last.state = state;
        }
        last.state == HealingState::Running
    }

    async fn heal_whole(self, node: &Node<R>, number: u64, bucket: BucketId) {
        let (mut from, mut tries) = (None, 0);
        loop {
            if self.is_over() || !self.note_asked(number, Default::default(), HealingState::Running) {
                return;
            }
            // Drives are asked anew in each step: one may have come back.
            let mut pass = HealPass::default();
            let step = self.objects().heal_bucket(bucket, from.clone(), HealDepth::Proven, &mut pass).await;
            match step {
                Ok((healed, next)) => {
                    let state = if next.is_some() { HealingState::Running } else { HealingState::Done };
                    self.note_asked(number, (healed, pass.unwhole()), state);
                    (from, tries) = (next, 0);
                }
                Err(_) if tries < TRIES_MAX => {
                    tries += 1;
                    node.runtime().sleep_until(node.runtime().now() + AGAIN_AFTER).await;
                }
                Err(_) => {
                    self.note_asked(number, Default::default(), HealingState::Failed);
                }
            }
        }
    }
}
