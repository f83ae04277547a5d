//! How old what this server knows of keys, policies and buckets may be.
//!
//! These are records of the catalog, and a server judges requests by its own copy. A server that is cut off from the leader, or was stopped
//! for a while, has one that may be old: whoever was locked out meanwhile would be let in. So it asks the leader every second how far the
//! log is decided, and has its copy show that. A copy that has not been found current for [`RIGHTS_AGE_MAX`] judges nothing.

use core::sync::atomic::Ordering;
use core::time::Duration;

use ashlar_grid::seam::Runtime;
use ashlar_wire::time::Instant;

use super::service::ObjectNode;
use crate::{Node, together};

/// The oldest copy by which requests are judged.
pub const RIGHTS_AGE_MAX: Duration = Duration::from_secs(5);
/// How often the leader is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The same while it does not answer.
const RETRY: Duration = Duration::from_millis(200);
/// How long it is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(2);

impl<R: Runtime> ObjectNode<R> {
    /// Whether keys, policies and buckets are known here as they were [`RIGHTS_AGE_MAX`] ago, or later.
    #[must_use]
    pub fn are_rights_current(&self) -> bool {
        let Some(node) = self.node() else { return false };
        let known = Instant::from_nanos(self.rights_known_ns().load(Ordering::Acquire));
        known > Instant::ORIGIN && known + RIGHTS_AGE_MAX >= node.runtime().now()
    }

    /// Keeps them current.
    pub(super) async fn keep_rights(self, node: Node<R>) {
        while !self.is_over() {
            let began = node.runtime().now();
            let answer =
                together::first(self.catalog().catch_up(), node.runtime().sleep_until(began + ANSWER_MAX)).await;
            let pause = if answer.is_some_and(|answer| answer.is_ok()) {
                // What was decided before the question is known: later changes may be, or not.
                self.rights_known_ns().store(began.as_nanos(), Ordering::Release);
                ASK_EVERY
            } else {
                RETRY
            };
            node.runtime().sleep_until(node.runtime().now() + pause).await;
        }
    }
}
