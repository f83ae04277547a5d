//! Slots that come: what the target knows of an import, and what becomes of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashlar_wire::time::Instant;

use super::job::{Job, Stage};
use crate::client::ClientId;
use crate::cluster::control::{Order, Ticket};
use crate::cluster::map::Map;
use crate::engine::Engine;
use crate::error::Error;
use crate::settings::parameter;
use crate::time::Now;

/// After how long at most leave to take slots is too old, and how long a ballot about them may take then.
const SPAN_MAX: Duration = Duration::from_secs(1);
const SPAN_MIN: Duration = Duration::from_millis(100);

/// An import, for the connection that it comes over.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) job: Arc<Job>,
    pub(super) client: ClientId,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// When the source was last heard of.
    heard_at: Instant,
    /// When it was last told that all is here, and the position of that in the stream for replicas.
    complete: Option<(Instant, u64)>,
}

impl Import {
    pub(super) fn new(job: Arc<Job>, client: ClientId, now: Now) -> Self {
        let state = State { heard_at: now.instant, complete: None };
        Self { job, client, state: Mutex::new(state) }
    }

    /// The source was heard of.
    pub(crate) fn note_heard(&self, now: Now) {
        self.change(|state| state.heard_at = now.instant);
        self.job.note_heard(now);
    }

    /// All is here, at this position of the stream for replicas. Leave to take the slots is good for a short while from now on.
    pub(crate) fn note_complete(&self, position: u64, now: Now) {
        self.change(|state| state.complete = Some((now.instant, position)));
        self.job.enter(Stage::Complete, now);
    }

    /// The slots were taken, or will never be.
    pub(crate) fn note_taken(&self, outcome: &Result<(), String>, now: Now) {
        match outcome {
            Ok(()) => self.job.end(Stage::Success, "", now),
            Err(why) => self.job.end(Stage::Failed, why, now),
        };
    }

    pub(super) fn is_silent(&self, span: Duration, now: Now) -> bool {
        self.change(|state| now.instant.saturating_since(state.heard_at) > span)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Engine {
    /// Takes the slots of an import, as its source has allowed. When this fails they are not taken, and never will be by this
    /// leave.
    ///
    /// Nothing is returned if they are taken, and the ticket of the order if that is pending.
    ///
    /// # Errors
    /// Why not, as the source is told.
    pub(crate) fn take_slots(&self, import: &Arc<Import>, now: Now) -> Result<Option<Ticket>, Error> {
        let refuse = |why: &str| {
            import.job.end(Stage::Failed, why, now);
            Err(Error::text(format!("ERR {why}")))
        };
        let cluster = self.cluster().expect("an import belongs to a cluster");
        let Some((since, position)) = import.change(|state| state.complete.take()) else {
            return refuse("Leave was given before it was asked for");
        };
        let span = span_of(self);
        if now.instant.saturating_since(since) > span {
            return refuse("Leave came too late");
        }
        if self.replication.is_quorum() {
            return refuse("The target's writes are acknowledged by a majority now");
        }
        if !self.replication.have_all(position) {
            return refuse("Replicas of the target do not have all keys");
        }
        if !owns_all(&cluster.map(), &import.job) {
            return refuse("Slots are no longer owned by source node");
        }
        if !import.job.enter(Stage::Granted, now) {
            return refuse("The import is over");
        }
        let ranges = import.job.slots.ranges();
        match cluster.submit(Order::Take { ranges, until: since + span * 2 }, Some(import)) {
            Ok(outcome) => {
                import.note_taken(&outcome, now);
                outcome.map(|()| None).map_err(|why| Error::text(format!("ERR {why}")))
            }
            Err(ticket) => Ok(Some(ticket)),
        }
    }
}

/// Whether the source of an import owns all of its slots.
pub(super) fn owns_all(map: &Map, job: &Job) -> bool {
    job.slots.slots().all(|slot| map.owner(slot).is_some_and(|owner| owner.name == job.source))
}

/// How long leave to take slots waits, and how long a ballot about them may take then: a part of the time after which a silent node may
/// be replaced by another, so that whatever a source has allowed is decided before.
pub(crate) fn span_of(engine: &Engine) -> Duration {
    let timeout_ms = number(engine, b"cluster-node-timeout");
    Duration::from_millis(timeout_ms / 3).clamp(SPAN_MIN, SPAN_MAX)
}

/// A parameter that is a number.
pub(super) fn number(engine: &Engine, name: &[u8]) -> u64 {
    let found = parameter::find(name).expect("the table has it");
    let text = found.show(&engine.settings());
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
