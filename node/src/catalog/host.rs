//! The world as a catalog sees it: the node's runtime, and the grid to other servers.

use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::raft::host::{Host, Unanswered};
use ashlar_grid::CallOptions;
use ashlar_grid::error::{CallError, Reason};
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::calls::{Brought, Depart, Departing, Introduce, Introduced, Messages, TakeBrought, TakeReport};
use super::reports::{Report, ReportError};
use crate::{WeakNode, detour};

/// How long a message may take there and back.
const CALL_MAX: Duration = Duration::from_secs(2);
/// The least time after which a message counts as unanswered: a server that is away is not asked in a circle.
const UNANSWERED_MIN: Duration = Duration::from_millis(100);

/// What the reconciler and the handle ask of other servers, beside Raft.
pub(super) trait Peers: Send + Sync {
    /// How the server stands to the catalog; `None` if it does not answer.
    fn introduce(&self, server: ServerId) -> BoxFuture<Option<Introduced>>;

    /// Brings a report to the leader.
    fn report(&self, leader: ServerId, report: Report) -> BoxFuture<Result<(), ReportError>>;

    /// Tells the leader that this server is about to stop; whether nothing is left that others can take over.
    fn depart(&self, leader: ServerId) -> BoxFuture<Result<bool, ReportError>>;

    /// Servers that this one has met, in this life or before.
    fn met(&self) -> Vec<ServerId>;
}

/// See the head of this file.
pub(super) struct GridHost<R: Runtime> {
    pub(super) runtime: Arc<R>,
    pub(super) node: WeakNode<R>,
}

impl<R: Runtime> Host for GridHost<R> {
    fn now(&self) -> Instant {
        self.runtime.now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        self.runtime.sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.runtime.spawn(task);
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.runtime.random(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    fn call(&self, to: ServerId, message: Vec<u8>) -> BoxFuture<Result<Vec<u8>, Unanswered>> {
        let (node, runtime) = (self.node.clone(), Arc::clone(&self.runtime));
        Box::pin(async move {
            let earliest = runtime.now() + UNANSWERED_MIN;
            if let Some(node) = node.upgrade()
                && let Ok(answer) = detour::call::<R, Messages>(&node, to, &message, CALL_MAX).await
            {
                return Ok(answer);
            }
            runtime.sleep_until(earliest).await;
            Err(Unanswered)
        })
    }
}

impl<R: Runtime> Peers for GridHost<R> {
    fn introduce(&self, server: ServerId) -> BoxFuture<Option<Introduced>> {
        let node = self.node.clone();
        Box::pin(async move { detour::call::<R, Introduce>(&node.upgrade()?, server, &(), CALL_MAX).await.ok() })
    }

    fn report(&self, leader: ServerId, report: Report) -> BoxFuture<Result<(), ReportError>> {
        let node = self.node.clone();
        Box::pin(async move {
            let node = node.upgrade().ok_or(ReportError::NoLeader)?;
            let options = CallOptions { fail_fast: true, ..CallOptions::within(CALL_MAX) };
            let answered = match node.grid().call::<TakeReport>(leader, &report, options).await {
                Err(error) if detour::is_cut(&error) => {
                    let brought = Brought { from: node.id(), report };
                    detour::call::<R, TakeBrought>(&node, leader, &brought, CALL_MAX).await
                }
                answered => answered,
            };
            answered.map_err(|error| report_error(&error))
        })
    }

    fn depart(&self, leader: ServerId) -> BoxFuture<Result<bool, ReportError>> {
        let node = self.node.clone();
        Box::pin(async move {
            let node = node.upgrade().ok_or(ReportError::NoLeader)?;
            let departing = Departing { server: node.id() };
            let answered = detour::call::<R, Depart>(&node, leader, &departing, CALL_MAX).await;
            answered.map(|departed| departed.is_done).map_err(|error| report_error(&error))
        })
    }

    fn met(&self) -> Vec<ServerId> {
        let node = self.node.upgrade();
        node.map(|node| node.0.known().met.keys().copied().collect()).unwrap_or_default()
    }
}

fn report_error(error: &CallError) -> ReportError {
    match error {
        CallError::Refused(refusal) => ReportError::from_code(refusal.code),
        // A leader of an earlier release.
        _ if error.reason() == Some(Reason::UnknownHandler) => ReportError::NotEntitled,
        _ => ReportError::NoLeader,
    }
}
