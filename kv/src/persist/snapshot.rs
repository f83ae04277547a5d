//! A consistent cut of all keys, written down while writes go on, without a second process.
//!
//! All shards are locked once, for a moment, to begin. After that each step locks one shard for a few hundred keys. What writes
//! change in between is saved before they change it (`keyspace/shard/cut.rs`), so the snapshot is what was there when it began;
//! at the same moment the journal is cut, for the log that goes on from there.
//!
//! Bounds: what waits in memory to be written is at most what writes touch between two steps at one shard. A collection is
//! encoded as a whole.

use std::sync::Arc;

use crate::command::run;
use crate::engine::Engine;
pub use crate::keyspace::Loss;
use crate::keyspace::{Lock, Saved, Shard};
use crate::rdb::{Encoder, Version, Writer, with_facts};
use crate::replicate::{FullSync, Point};
use crate::time::Now;

/// What one step saves of a shard before it lets go of it, bytes.
const STEP_BYTES: usize = 8 << 10;

/// What a snapshot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A file that any server reads.
    Dump,
    /// The log begins with it: the journal is cut.
    LogBase,
    /// Replicas begin with it.
    Replicas,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// All keys are written. [`Snapshot::take`] gives the last bytes.
    Done,
    /// It becomes no snapshot. Begin another.
    Lost(Loss),
}

/// What a snapshot has.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// At least.
    version: Version,
    takes_fields: bool,
    is_log_base: bool,
    has_keys: bool,
    has_functions: bool,
}

/// A snapshot that is being taken.
#[derive(Debug)]
pub struct Snapshot {
    engine: Arc<Engine>,
    /// Nothing after the end.
    writer: Option<Writer>,
    last: Vec<u8>,
    position: u64,
    /// The shard that is walked through.
    shard: usize,
    /// The one behind it whose saved keys are taken next.
    other: usize,
    /// That of the last key in the file.
    database: Option<usize>,
    loss: Option<Loss>,
    keys: u64,
}

impl Snapshot {
    /// Begins: it will be what is there now. `takes_fields` chooses the form that has hashes with fields that expire, which
    /// only Valkey 9 reads.
    ///
    /// # Panics
    /// Another snapshot of this engine is not over.
    #[must_use]
    pub fn begin(engine: Arc<Engine>, purpose: Purpose, takes_fields: bool, now: Now) -> Self {
        let version = if takes_fields { Version::Valkey80 } else { Version::Redis11 };
        let is_log_base = purpose == Purpose::LogBase;
        let plan = Plan { version, takes_fields, is_log_base, has_keys: true, has_functions: true };
        Self::cut(engine, plan, now, |engine| match is_log_base {
            true => (engine.journal.cut(), None, None),
            false => (0, engine.replication.point(&engine.identity), None),
        })
    }

    /// Begins one that replicas begin with; for them the stream of commands goes on from here.
    ///
    /// # Panics
    /// Another snapshot of this engine is not over.
    #[must_use]
    pub fn begin_sync(engine: Arc<Engine>, sync: &FullSync, now: Now) -> Self {
        let plan = Plan {
            version: sync.version(),
            // Who cannot read them must say so itself: without them it would have other data.
            takes_fields: true,
            is_log_base: false,
            has_keys: sync.wants_keys(),
            has_functions: sync.wants_functions(),
        };
        Self::cut(engine, plan, now, |_| {
            let (point, commit) = sync.begin();
            (0, Some(point), commit)
        })
    }

    fn cut(
        engine: Arc<Engine>,
        plan: Plan,
        now: Now,
        at_cut: impl FnOnce(&Engine) -> (u64, Option<Point>, Option<String>),
    ) -> Self {
        let settings = engine.settings();
        let clock = run::access(&settings, now);
        let mut keys = engine.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock);
        let has_fields = plan.has_keys && keys.shards().any(Shard::has_expiring_fields);
        let version = if has_fields && plan.takes_fields { Version::Valkey80 } else { plan.version };
        let encoder = || Encoder::new(settings.compresses, settings.list_fill).of_version(version);
        let (position, point, commit) = at_cut(&engine);
        let copies = engine.migration.copies.show();
        let place = (point.as_ref(), commit.as_deref());
        let mut writer =
            with_facts(now, plan.is_log_base, place, &copies, |facts| Writer::begin(version, encoder(), facts));
        let shards = engine.keyspace.shards();
        if plan.has_keys {
            (0..shards).for_each(|number| keys.shard_at(number).begin_cut(encoder(), clock, plan.takes_fields));
        }
        if plan.has_functions {
            engine.libraries().iter().for_each(|text| writer.library(text));
        }
        drop(keys);
        Self {
            engine,
            writer: Some(writer),
            last: Vec::new(),
            position,
            shard: if plan.has_keys { 0 } else { shards },
            other: 0,
            database: None,
            loss: None,
            keys: 0,
        }
    }

    /// Where the journal was cut.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Keys written so far.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// What was written since it was last taken.
    pub fn take(&mut self) -> Vec<u8> {
        self.writer.as_mut().map_or_else(|| std::mem::take(&mut self.last), Writer::take)
    }

    /// Goes on for a short while. To be called until it is done or lost.
    pub fn step(&mut self) -> Step {
        if self.shard < self.engine.keyspace.shards() {
            self.walk();
            self.relieve();
            return Step::More;
        }
        if let Some(loss) = self.loss {
            return Step::Lost(loss);
        }
        if let Some(writer) = self.writer.take() {
            self.last = writer.end();
        }
        Step::Done
    }

    /// The snapshot cannot be written: the rest is done in vain, as it must be.
    pub fn lose(&mut self) {
        self.loss.get_or_insert(Loss::Refused);
    }

    /// A piece of the shard whose turn it is.
    fn walk(&mut self) {
        let mut shard = self.engine.keyspace.shard(self.shard);
        if let Some(loss) = self.loss {
            shard.lose_cut(loss);
        }
        let is_over = shard.save_some(STEP_BYTES);
        let (saved, loss) = shard.take_saved();
        if is_over {
            shard.end_cut();
            self.shard += 1;
        }
        drop(shard);
        self.write(&saved, loss);
    }

    /// What writes have saved of another shard meanwhile.
    fn relieve(&mut self) {
        self.other += 1;
        if self.other >= self.engine.keyspace.shards() {
            self.other = self.shard + 1;
        }
        if self.other < self.engine.keyspace.shards() {
            let (saved, loss) = self.engine.keyspace.shard(self.other).take_saved();
            self.write(&saved, loss);
        }
    }

    fn write(&mut self, saved: &Saved, loss: Option<Loss>) {
        self.loss = self.loss.or(loss);
        let Some(writer) = self.writer.as_mut().filter(|_| self.loss.is_none()) else { return };
        let mut from = 0;
        for (database, end) in &saved.runs {
            if self.database.replace(*database) != Some(*database) {
                writer.select(*database);
            }
            writer.entries(&saved.bytes[from..*end]);
            from = *end;
        }
        self.keys += saved.keys;
    }
}

impl Drop for Snapshot {
    /// Marks what is left, so that the next snapshot finds all records alike.
    fn drop(&mut self) {
        self.lose();
        while self.shard < self.engine.keyspace.shards() {
            self.walk();
        }
    }
}
