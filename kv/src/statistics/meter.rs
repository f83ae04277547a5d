//! What one client's commands did since it was last told to the statistics.

use ashlar_wire::time::Instant;

use super::{CommandCounts, Counts};
use crate::command::spec::table::COMMANDS_COUNT;
use crate::engine::Engine;
use crate::settings::LogSettings;

/// Commands that share one reading of the clock.
const SHARED_MAX: usize = 16;
/// Replies of a command that took longer to write than can be shared, bytes.
const LARGE_REPLY_BYTES: usize = 16 << 10;
/// Notes that are kept before they are told.
const NOTES_MAX: usize = 64;
/// Who wants to know of commands that take less than this wants each timed by itself, microseconds.
const EXACT_BELOW_US: i64 = 1_000;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    /// It was refused before it ran.
    Rejected,
}

#[derive(Debug, Clone, Copy)]
struct Note {
    command: u16,
    outcome: Outcome,
    nanos: u64,
}

/// A command that ran, as the meter sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ran {
    /// Its number.
    pub(crate) command: u16,
    pub(crate) outcome: Outcome,
    /// Whether it always does the same work.
    pub(crate) is_steady: bool,
    /// Bytes of its reply.
    pub(crate) reply_bytes: usize,
    /// When it began, if others ran inside it.
    pub(crate) begun: Option<Instant>,
}

/// Notes of one client.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Which worker's counters they go to.
    pub(crate) worker: usize,
    notes: Vec<Note>,
    /// The last so many have no time yet.
    untimed: usize,
    /// When the first of those began.
    since: Instant,
    /// Whether more requests of the batch follow.
    pub(crate) has_more: bool,
    /// Bytes of the request that runs.
    pub(crate) request_bytes: usize,
    batch: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            worker: 0,
            notes: Vec::new(),
            untimed: 0,
            since: Instant::ORIGIN,
            has_more: false,
            request_bytes: 0,
            batch: 0,
            bytes_in: 0,
            bytes_out: 0,
            reads: 0,
            writes: 0,
        }
    }
}

impl Meter {
    /// A batch of requests was read.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = now;
    }

    /// The time now; commands until now have theirs.
    pub(crate) fn read(&mut self, engine: &Engine) -> Instant {
        let now = engine.host.now();
        let share = now.saturating_since(self.since).as_nanos() / u128::try_from(self.untimed.max(1)).unwrap_or(1);
        let nanos = u64::try_from(share).unwrap_or(u64::MAX);
        let timed = self.notes.len() - self.untimed;
        self.notes[timed..].iter_mut().for_each(|note| note.nanos = nanos);
        self.untimed = 0;
        self.since = now;
        now
    }

    /// A command begins that may take long: those before it have their time, and none of its.
    #[inline]
    pub(crate) fn settle(&mut self, engine: &Engine) {
        if self.untimed > 0 {
            self.read(engine);
        }
    }

    /// A command ran. Says how long it took, in nanoseconds, if that is known of it alone.
    #[inline]
    pub(crate) fn note(&mut self, engine: &Engine, logs: &LogSettings, ran: Ran) -> Option<u64> {
        let Ran { command, outcome, is_steady, reply_bytes, begun } = ran;
        self.notes.push(Note { command, outcome, nanos: 0 });
        self.untimed += 1;
        let wants_exact =
            (0..EXACT_BELOW_US).contains(&logs.slower_than_us) || logs.latency_ms > 0 || logs.counts_slots;
        let may_share = self.has_more
            && is_steady
            && !wants_exact
            && begun.is_none()
            && reply_bytes < LARGE_REPLY_BYTES
            && self.untimed < SHARED_MAX;
        if may_share {
            return None;
        }
        let is_alone = self.untimed == 1;
        let now = self.read(engine);
        let last = self.notes.last_mut().expect("it was put there");
        if let Some(begun) = begun {
            last.nanos = u64::try_from(now.saturating_since(begun).as_nanos()).unwrap_or(u64::MAX);
        }
        let nanos = last.nanos;
        if self.notes.len() >= NOTES_MAX {
            self.flush(engine, logs.counts_latency);
        }
        (is_alone || begun.is_some()).then_some(nanos)
    }

    /// A command was refused.
    pub(crate) fn reject(&mut self, command: u16) {
        let at = self.notes.len() - self.untimed;
        self.notes.insert(at, Note { command, outcome: Outcome::Rejected, nanos: 0 });
    }

    /// Tells the statistics.
    pub(crate) fn flush(&mut self, engine: &Engine, counts_latency: bool) {
        self.settle(engine);
        let mut counts = engine.statistics.lane(self.worker);
        counts.take(&self.notes, counts_latency);
        self.batch += self.notes.len() as u64;
        let totals = &mut counts.totals;
        totals.bytes_in += std::mem::take(&mut self.bytes_in);
        totals.bytes_out += std::mem::take(&mut self.bytes_out);
        totals.reads += std::mem::take(&mut self.reads);
        totals.writes += std::mem::take(&mut self.writes);
        totals.batch_max = totals.batch_max.max(self.batch);
        self.notes.clear();
        if !self.has_more {
            self.batch = 0;
        }
    }
}

impl Counts {
    fn take(&mut self, notes: &[Note], counts_latency: bool) {
        if self.commands.is_empty() && !notes.is_empty() {
            self.commands = vec![CommandCounts::default(); COMMANDS_COUNT];
        }
        for note in notes {
            let counts = &mut self.commands[usize::from(note.command)];
            if note.outcome == Outcome::Rejected {
                counts.rejected += 1;
                continue;
            }
            counts.calls += 1;
            counts.nanos += note.nanos;
            counts.failed += u64::from(note.outcome == Outcome::Failed);
            self.totals.commands += 1;
            self.totals.nanos += note.nanos;
            if counts_latency {
                counts.spans.get_or_insert_default().add(note.nanos);
            }
        }
    }
}
