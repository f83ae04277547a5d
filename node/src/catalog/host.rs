//! The world as a catalog sees it: the node's runtime, and the grid to other servers.

use core::time::Duration;
use std::sync::Arc;

use ashlar_catalog::raft::host::{Host, Unanswered};
use ashlar_grid::CallOptions;
use ashlar_grid::error::CallError;
use ashlar_grid::seam::{BoxFuture, Runtime};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::calls::{Introduce, Introduced, Messages, TakeReport};
use super::reports::{Report, ReportError};
use crate::WeakNode;

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

    /// Servers that this one has met, in this life or before.
    fn met(&self) -> Vec<ServerId>;
}

/// See the head of this file.
pub(super) struct GridHost<R: Runtime> {
    pub(super) runtime: Arc<R>,
    pub(super) node: WeakNode<R>,
}

fn options() -> CallOptions<'static> {
    CallOptions { fail_fast: true, ..CallOptions::within(CALL_MAX) }
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
            let grid = node.upgrade().map(|node| node.grid().clone());
            if let Some(grid) = grid
                && let Ok(answer) = grid.call::<Messages>(to, &message, options()).await
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
        Box::pin(async move {
            let grid = node.upgrade()?.grid().clone();
            grid.call::<Introduce>(server, &(), options()).await.ok()
        })
    }

    fn report(&self, leader: ServerId, report: Report) -> BoxFuture<Result<(), ReportError>> {
        let node = self.node.clone();
        Box::pin(async move {
            let grid = node.upgrade().ok_or(ReportError::NoLeader)?.grid().clone();
            match grid.call::<TakeReport>(leader, &report, options()).await {
                Ok(()) => Ok(()),
                Err(CallError::Refused(refusal)) => Err(ReportError::from_code(refusal.code)),
                Err(_) => Err(ReportError::NoLeader),
            }
        })
    }

    fn met(&self) -> Vec<ServerId> {
        let node = self.node.upgrade();
        node.map(|node| node.0.known().met.keys().copied().collect()).unwrap_or_default()
    }
}
