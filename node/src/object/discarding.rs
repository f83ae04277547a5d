//! Shards that nothing refers to any more, as their object was replaced or deleted: they are removed after a while, so that whoever reads
//! them can end.
//!
//! A queue in memory, and one task as long as something waits. What a stop of the server cuts off is found by the collectors, hours
//! later: so a burst of deletions shortens the while before it fills the queue.

use core::time::Duration;
use std::collections::BTreeMap;

use ashlar_grid::seam::Runtime;
use ashlar_object::api;
use ashlar_object::cluster::{Cluster as _, ShardRequest};
use ashlar_object::planted::{self, Planted};
use ashlar_object::record::PartContent;
use ashlar_wire::time::Instant;

use super::service::ObjectNode;
use crate::{Node, together};

/// How long shards stay at least.
const GRACE_MIN: Duration = Duration::from_secs(60);
/// And at most.
const GRACE_MAX: Duration = Duration::from_secs(1_800);
/// Whoever reads an object faster than that, in bytes a second, comes to its end.
const READ_RATE_MIN: u64 = 4 << 20;
/// Parts that wait; beyond that their shards are left to the collectors.
const WAITING_MAX: usize = 100_000;
/// Parts beyond which those that are due first go at once.
const WAITING_IN_PEACE_MAX: usize = 80_000;
/// Parts whose shards are removed at a time.
const PARTS_AT_A_TIME: usize = 32;
/// How often the task looks whether too many wait.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Parts that wait, in the order in which they are due.
#[derive(Debug, Default)]
pub(super) struct Discards {
    waiting: BTreeMap<(Instant, u64), PartContent>,
    /// How many there were.
    added: u64,
    is_running: bool,
}

/// How long the shards of an object of so many bytes stay.
fn grace(of_bytes: u64) -> Duration {
    (GRACE_MIN + Duration::from_secs(of_bytes / READ_RATE_MIN)).min(GRACE_MAX)
}

impl Discards {
    /// A part waits from now on, unless too many do. Whether a task has to begin.
    fn add(&mut self, due: Instant, part: PartContent) -> bool {
        if self.waiting.len() < WAITING_MAX {
            self.added += 1;
            self.waiting.insert((due, self.added), part);
        }
        !core::mem::replace(&mut self.is_running, true)
    }

    /// Parts that go now, [`PARTS_AT_A_TIME`] at most; if none do, when to look again. Nothing if none waits: the task ends.
    fn take(&mut self, now: Instant) -> Option<Result<Vec<PartContent>, Instant>> {
        let too_many = self.waiting.len().saturating_sub(WAITING_IN_PEACE_MAX);
        let mut taken = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let (due, _) = *first.key();
            if taken.len() >= PARTS_AT_A_TIME || (due > now && taken.len() >= too_many) {
                return Some(if taken.is_empty() { Err(due.min(now + LOOK_EVERY)) } else { Ok(taken) });
            }
            taken.push(first.remove());
        }
        self.is_running = !taken.is_empty();
        self.is_running.then_some(Ok(taken))
    }
}

impl<R: Runtime> ObjectNode<R> {
    /// Removes the shards of a part of an object of so many bytes after a while.
    pub(super) fn discard_later(&self, part: PartContent, of_bytes: u64) {
        let Some(node) = self.node() else { return };
        let grace = if planted::has(Planted::DiscardAtOnce) { Duration::ZERO } else { grace(of_bytes) };
        if self.discards().add(node.runtime().now() + grace, part) {
            let (service, node) = (self.clone(), node.clone());
            node.clone().runtime().spawn(Box::pin(async move { service.discard_waiting(&node).await }));
        }
    }

    /// As long as something waits, this task is the one.
    async fn discard_waiting(&self, node: &Node<R>) {
        while !self.is_over() {
            let next = self.discards().take(node.runtime().now());
            match next {
                Some(Ok(parts)) => {
                    let parts = parts.iter().map(|part| Box::pin(self.discard(part)) as together::Pending<'_, ()>);
                    together::all(parts.collect()).await;
                }
                Some(Err(at)) => node.runtime().sleep_until(at).await,
                None => return,
            }
        }
    }

    async fn discard(&self, part: &PartContent) {
        for block in 0..part.blocks() {
            let removals = part.spread.drives.iter().zip(0..).map(|(drive, number)| {
                let remove = ShardRequest::Remove(part.blob(block, number));
                Box::pin(self.shard(*drive, remove)) as api::BoxFuture<'static, _>
            });
            together::all(removals.collect()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_object::cluster::Spread;
    use ashlar_object::record::{PartId, ShardNames};

    fn part(number: usize) -> PartContent {
        let id = PartId(core::array::from_fn(|at| number.to_be_bytes()[at % 8]));
        let spread = Spread { parity: 0, drives: Vec::new() };
        let names = ShardNames::OfShard;
        PartContent { id, bytes: 1, is_encrypted: false, spread, number: 1, names, missing: Vec::new() }
    }

    fn at(seconds: u64) -> Instant {
        Instant::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn parts_go_when_they_are_due_and_the_task_ends_with_them() {
        let mut discards = Discards::default();
        assert!(discards.add(at(60), part(1)));
        assert!(!discards.add(at(61), part(2)));
        assert_eq!(discards.take(at(1)), Some(Err(at(2))));
        assert_eq!(discards.take(at(60)), Some(Ok(vec![part(1)])));
        assert_eq!(discards.take(at(60)), Some(Err(at(61))));
        assert_eq!(discards.take(at(70)), Some(Ok(vec![part(2)])));
        assert_eq!(discards.take(at(70)), None);
        assert!(discards.add(at(80), part(3)), "the next one begins a task");
        for number in 0..2 * PARTS_AT_A_TIME {
            discards.add(at(80), part(number));
        }
        for left in [PARTS_AT_A_TIME, PARTS_AT_A_TIME, 1] {
            assert_eq!(discards.take(at(80)).and_then(Result::ok).map(|parts| parts.len()), Some(left));
        }
        assert_eq!(discards.take(at(80)), None);
    }

    #[test]
    fn large_objects_stay_for_longer_and_keep_nothing_else_waiting() {
        assert_eq!([0, 4 << 20, 1 << 30, u64::MAX].map(grace).map(|it| it.as_secs()), [60, 61, 316, 1_800]);
        let mut discards = Discards::default();
        discards.add(at(316), part(1));
        discards.add(at(60), part(2));
        discards.add(at(60), part(3));
        assert_eq!(discards.take(at(60)), Some(Ok(vec![part(2), part(3)])));
        assert_eq!(discards.take(at(60)), Some(Err(at(61))));
        assert_eq!(discards.take(at(316)), Some(Ok(vec![part(1)])));
    }

    #[test]
    fn a_burst_of_deletions_goes_early_and_a_greater_one_is_bounded() {
        let mut discards = Discards::default();
        for number in 0..WAITING_IN_PEACE_MAX + 2 {
            discards.add(at(60), part(number));
        }
        assert_eq!(discards.take(at(1)), Some(Ok(vec![part(0), part(1)])));
        assert_eq!(discards.take(at(1)), Some(Err(at(2))));
        for number in 0..WAITING_MAX {
            discards.add(at(60), part(number));
        }
        assert_eq!(discards.waiting.len(), WAITING_MAX);
    }
}
