//! What the thread does that moves slots: one migration to other nodes after another, and what is left behind by any.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::export::Export;
use super::import::{number, owns_all};
use super::job::{Job, Operation, Stage};
use super::{Import, SlotTable};
use crate::client::Farewell;
use crate::cluster::map::Map;
use crate::cluster::orders::Renewal;
use crate::engine::Engine;
use crate::replicate::Upstream;
use crate::time::Now;

/// How long it is rested if nobody wants anything.
const REST: Duration = Duration::from_millis(100);
/// The same while the engine rests.
const REST_AT_REST: Duration = Duration::from_secs(2);
/// Slots that are tidied in one step.
const SLOTS_TURN: usize = 64;

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing for so long, or until [`Migrator::poll_news`] is ready.
    Rest(Duration),
    /// Connect, and say [`Migrator::handle_connected`] or [`Migrator::handle_broken`].
    Dial {
        /// Where to.
        target: Upstream,
        /// How long it may take.
        span: Duration,
    },
    /// Send this, or say [`Migrator::handle_broken`].
    Send(Vec<u8>),
    /// Read what comes within so long, and [`Migrator::handle_bytes`]; nothing may come.
    Receive(Duration),
    /// Close the connection, if there is one.
    HangUp,
}

/// Moves slots of one engine, for the thread that has the connections.
#[derive(Debug)]
pub struct Migrator {
    engine: Arc<Engine>,
    export: Option<Export>,
    has_line: bool,
    /// What is sent before anything else.
    first: Vec<u8>,
    /// Doubtful slots whose claim is being renewed.
    doubts: Option<(SlotTable, Renewal)>,
}

impl Migrator {
    /// That of an engine. There must be one only.
    #[must_use]
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine, export: None, has_line: false, first: Vec::new(), doubts: None }
    }

    /// What to do next.
    pub fn next_step(&mut self, now: Now) -> Step {
        let Some(map) = self.engine.map() else { return Step::Rest(REST) };
        if self.engine.is_loading() {
            return Step::Rest(REST);
        }
        if let Some(span) = self.engine.make_sure_of_slots(&map, &mut self.doubts) {
            return Step::Rest(span);
        }
        let tidies = self.tidy(&map, now);
        if self.export.is_none() {
            if std::mem::take(&mut self.has_line) {
                return Step::HangUp;
            }
            self.export = self.next_export().map(|job| Export::new(job, now));
        }
        let Some(export) = &mut self.export else {
            return Step::Rest(match tidies {
                true => Duration::ZERO,
                false if self.engine.is_resting() => REST_AT_REST,
                false => REST,
            });
        };
        let granted = export.grant(&self.engine, now);
        if !self.first.is_empty() || granted.is_some() {
            return Step::Send(granted.unwrap_or_else(|| std::mem::take(&mut self.first)));
        }
        match export.next_step(&self.engine, &map, now) {
            Some(Step::HangUp) => {
                self.has_line = false;
                Step::HangUp
            }
            Some(step) => step,
            None => {
                (self.export, self.has_line) = (None, false);
                self.first.clear();
                Step::HangUp
            }
        }
    }

    /// Ready once there may be something to do since this was last ready. One task asks.
    pub fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        self.engine.migration.news.poll_notified(cx)
    }

    /// There is a connection.
    pub fn handle_connected(&mut self, now: Now) {
        self.has_line = true;
        if let Some(export) = &mut self.export {
            self.first = export.handle_connected(&self.engine, now);
        }
    }

    /// These bytes came.
    pub fn handle_bytes(&mut self, bytes: &[u8], now: Now) {
        if let Some(export) = &mut self.export {
            export.handle_bytes(&self.engine, bytes, now);
        }
    }

    /// No connection could be made, or it is gone: why, in words.
    pub fn handle_broken(&mut self, why: &str, now: Now) {
        self.has_line = false;
        self.first.clear();
        if let Some(export) = &mut self.export {
            export.handle_broken(why, now);
        }
    }

    /// The one that waits longest.
    fn next_export(&self) -> Option<Arc<Job>> {
        let jobs = self.engine.migration.jobs();
        let mut waiting = jobs.into_iter().rev();
        waiting.find(|job| job.operation == Operation::Export && job.stage().is_under_way())
    }

    /// Ends imports that lead to nothing, and removes what is left behind. Says whether more is to be done at once.
    fn tidy(&self, map: &Map, now: Now) -> bool {
        let engine = &*self.engine;
        engine.migration.imports().iter().for_each(|import| engine.judge_import(import, map, now));
        let jobs_max = number(engine, b"cluster-slot-migration-log-max-len");
        engine.migration.trim(usize::try_from(jobs_max).unwrap_or(usize::MAX));
        engine.settle_copies(map, now)
    }
}

impl Engine {
    /// Bytes that may be left to send when writes are held (`slot-migration-max-failover-repl-bytes`); nothing for any number.
    pub(super) fn migration_left_max(&self) -> Option<u64> {
        let found = crate::settings::parameter::find(b"slot-migration-max-failover-repl-bytes").expect("it is there");
        let text = found.show(&self.settings());
        std::str::from_utf8(&text).ok().and_then(|text| text.parse::<u64>().ok())
    }

    /// Whoever was this node before, or its primary, may have given leave to take slots that it owns by the map: a target that took them
    /// may have died before anybody heard of that. Once its claim is renewed, this node's is the greater one. Until then writes
    /// to these slots wait. For how long to rest before the next attempt; nothing if all is sure.
    fn make_sure_of_slots(&self, map: &Map, doubts: &mut Option<(SlotTable, Renewal)>) -> Option<Duration> {
        let (cluster, migration) = (self.cluster()?, &self.migration);
        let doubtful = migration.copies.doubtful(map);
        if doubtful.is_empty() {
            return None;
        }
        migration.hold.doubt(doubtful.clone());
        if !map.service().is_up {
            return Some(REST);
        }
        // Only slots that were doubtful when the renewal began are trusted by it.
        let (doubtful, renewal) = doubts.get_or_insert_with(|| (doubtful, Renewal::default()));
        let Some(outcome) = renewal.poll(cluster) else { return Some(REST) };
        let doubtful = std::mem::take(doubtful);
        *doubts = None;
        if let Err(refusal) = outcome {
            tracing::warn!(
                refusal,
                "slots that may have been given away cannot be claimed anew yet: writes to them wait"
            );
            return Some(REST);
        }
        migration.copies.trust(&doubtful);
        migration.hold.doubt(migration.copies.doubtful(&cluster.map()));
        Some(Duration::ZERO)
    }

    /// An import for which there is no reason any more ends.
    fn judge_import(&self, import: &Import, map: &Map, now: Now) {
        let job = &import.job;
        if !job.stage().is_under_way() || job.stage() == Stage::Granted {
            return;
        }
        let silence_max = Duration::from_secs(self.settings().replication.timeout_s.unsigned_abs());
        let why = match () {
            () if map.own().is_replica() => "Target node is a replica now",
            () if job.slots.slots().any(|slot| map.holds(slot)) => {
                "Slots were unexpectedly assigned to myself during import"
            }
            () if !owns_all(map, job) => "Slots are no longer owned by source node",
            () if import.is_silent(silence_max, now) => "Timed out after too long with no interaction",
            () => return,
        };
        if job.end(Stage::Failed, why, now) {
            self.dismiss(import.client, Farewell::Dismissed);
        }
    }

    /// Keys that are only copies go where another node owns their slots, and are none where this node does. Says whether more is to be
    /// done at once.
    pub(super) fn settle_copies(&self, map: &Map, now: Now) -> bool {
        let jobs = self.migration.jobs();
        if self.migration.copies.is_any() && !map.own().is_replica() && !self.role.is_replica() && map.service().is_up {
            let mut left = self.migration.copies.table();
            let is_open = |job: &&Arc<Job>| job.stage().is_under_way();
            jobs.iter().filter(is_open).for_each(|job| left.remove(&job.slots));
            let gave = |slot| {
                let mut given = jobs.iter().filter(|job| job.operation == Operation::Export);
                given.any(|job| job.stage() == Stage::Success && job.slots.has(slot))
            };
            let mut done = Vec::new();
            for slot in left.slots().filter(|slot| map.owner(*slot).is_some()).take(SLOTS_TURN) {
                // The map may have changed meanwhile, and may not say who owns the slot for a moment.
                let is_over = self.drop_keys(slot, gave(slot), false, now);
                if is_over && (!self.has_keys_in(slot) || self.map().is_some_and(|map| map.holds(slot))) {
                    done.push(slot.number());
                }
            }
            if !done.is_empty() {
                self.end_copies(SlotTable::of(&crate::cluster::map::SlotRange::gather(done)), now);
                return true;
            }
            if left.slots().any(|slot| map.owner(slot).is_some()) {
                return true;
            }
        }
        let copies = self.migration.copies.table();
        let is_clean = |job: &&Arc<Job>| job.stage() == Stage::CleaningUp && !copies.overlaps(&job.slots);
        jobs.iter().filter(is_clean).for_each(|job| job.note_clean(now));
        false
    }
}
