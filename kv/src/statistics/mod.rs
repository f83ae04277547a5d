//! What the engine counts: commands and how long they took, bytes, connections.
//!
//! Model: a [`meter::Meter`] belongs to one client and notes what its commands did. After a batch of requests it is emptied into
//! the *lane* of the worker that serves the client, a set of counters that no other worker writes; who asks sums up all lanes.
//! A lane's lock is taken once a batch, and nobody else wants it except who asks.
//!
//! **Time.** The clock is read once after each command, not before: a command begins when the one before it has ended, and a
//! batch begins when it was read. Commands that do the same work whatever is there (O(1)) and reply little share one reading
//! with up to 15 others of their batch, in equal parts, unless somebody wants to know of commands faster than a millisecond.
//!
//! In reading order: [`histogram`], [`meter`], [`rates`], [`command_log`] (slow and large commands), [`latency`] (events that took
//! long), [`slots`].

pub(crate) mod command_log;
pub(crate) mod histogram;
pub(crate) mod latency;
pub(crate) mod meter;
pub(crate) mod rates;
pub(crate) mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use self::command_log::CommandLogs;
use self::histogram::Histogram;
use self::latency::Latency;
use self::rates::Rates;
use self::slots::SlotCosts;
use crate::command::spec::table::COMMANDS_COUNT;

/// Workers that have a lane of their own.
const LANES: usize = 64;

/// What was counted of one command.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandCounts {
    /// Those that ran.
    pub(crate) calls: u64,
    /// How long they took together.
    pub(crate) nanos: u64,
    /// Those that were refused before they ran.
    pub(crate) rejected: u64,
    /// Those that ran and replied an error.
    pub(crate) failed: u64,
    /// How long each took, if that is wanted.
    pub(crate) spans: Option<Box<Histogram>>,
}

impl CommandCounts {
    /// Whether there is nothing to tell.
    pub(crate) const fn is_empty(&self) -> bool {
        self.calls == 0 && self.rejected == 0 && self.failed == 0
    }

    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.nanos += other.nanos;
        self.rejected += other.rejected;
        self.failed += other.failed;
        if let Some(spans) = &other.spans {
            self.spans.get_or_insert_default().merge(spans);
        }
    }
}

/// Sums over all commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Commands that ran.
    pub(crate) commands: u64,
    /// Bytes that clients sent.
    pub(crate) bytes_in: u64,
    /// Bytes that clients were sent.
    pub(crate) bytes_out: u64,
    /// Batches of requests.
    pub(crate) reads: u64,
    /// Batches of replies.
    pub(crate) writes: u64,
    /// Time in commands, nanoseconds.
    pub(crate) nanos: u64,
    /// The most commands of one batch.
    pub(crate) batch_max: u64,
}

impl Totals {
    fn merge(&mut self, other: Self) {
        self.commands += other.commands;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.reads += other.reads;
        self.writes += other.writes;
        self.nanos += other.nanos;
        self.batch_max = self.batch_max.max(other.batch_max);
    }
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// By the command's number; empty until something is counted.
    commands: Vec<CommandCounts>,
    totals: Totals,
}

/// Far enough from others that no two workers write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(Mutex<Counts>);

/// All counters.
#[derive(Debug)]
pub(crate) struct Statistics {
    lanes: Box<[Lane]>,
    pub(crate) rates: Mutex<Rates>,
    pub(crate) logs: CommandLogs,
    pub(crate) latency: Latency,
    pub(crate) slots: SlotCosts,
}

impl Default for Statistics {
    fn default() -> Self {
        let lanes = (0..LANES).map(|_| Lane::default()).collect();
        Self {
            lanes,
            rates: Mutex::default(),
            logs: CommandLogs::default(),
            latency: Latency::default(),
            slots: SlotCosts::default(),
        }
    }
}

impl Statistics {
    fn lane(&self, worker: usize) -> MutexGuard<'_, Counts> {
        self.lanes[worker % LANES].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command that waited and ends without having run again: the time is over, or it is `refused`.
    pub(crate) fn count_ended(&self, command: u16, is_refused: bool, counts_latency: bool) {
        let mut counts = self.lane(0);
        if counts.commands.is_empty() {
            counts.commands = vec![CommandCounts::default(); COMMANDS_COUNT];
        }
        counts.totals.commands += 1;
        let counts = &mut counts.commands[usize::from(command)];
        counts.calls += 1;
        counts.rejected += u64::from(is_refused);
        if counts_latency {
            counts.spans.get_or_insert_default().add(0);
        }
    }

    /// What was counted of each command, by its number.
    pub(crate) fn commands(&self) -> Vec<CommandCounts> {
        let mut sums = vec![CommandCounts::default(); COMMANDS_COUNT];
        for worker in 0..LANES {
            sums.iter_mut().zip(&self.lane(worker).commands).for_each(|(sum, counts)| sum.merge(counts));
        }
        sums
    }

    /// Sums over all commands.
    pub(crate) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        (0..LANES).for_each(|worker| sum.merge(self.lane(worker).totals));
        sum
    }

    /// Time in commands of each of so many workers, at least one, nanoseconds.
    pub(crate) fn active_nanos(&self, workers: usize) -> Vec<u64> {
        (0..workers.clamp(1, LANES)).map(|worker| self.lane(worker).totals.nanos).collect()
    }

    /// Counts from zero again.
    pub(crate) fn reset(&self) {
        (0..LANES).for_each(|worker| *self.lane(worker) = Counts::default());
        self.slots.reset(|_| true);
        self.forget_rates();
    }

    fn forget_rates(&self) {
        *self.rates() = Rates::default();
    }

    /// What happens a second.
    pub(crate) fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called about ten times a second.
    pub(crate) fn handle_tick(&self, now_us: i64) {
        let totals = self.totals();
        self.rates().sample(totals, now_us);
    }
}
