//! How much memory there is for data, and what goes when that is not enough.
//!
//! What is in use is the allocator's count, less what arenas keep for the next records and what waits for the log: keys that go
//! make the log longer, and must not make more keys go. Before a command runs, keys are taken out one by one until that is within
//! `maxmemory`. Each is chosen in one shard with nothing but that shard locked. Where none may go, commands that need memory are
//! refused.
//!
//! The work before one command is bounded (`maxmemory-eviction-tenacity`, here a number of keys, since no clock is read in
//! between); what is left is done by later commands and by the tick.

pub(crate) mod clients;
pub(crate) mod report;
mod trash;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::command::run::access;
use crate::engine::Engine;
use crate::keyspace::{Choice, Policy};
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::Place;
use trash::Trash;

/// Turns of the tick, each with as many keys as a command may take out.
const TICK_TURNS_MAX: usize = 64;
/// Keys that may go before one command for each step of the tenacity up to 10, and the least.
const KEYS_PER_STEP: u64 = 25;
const KEYS_MIN: u64 = 16;
/// From this tenacity on there is no bound.
const TENACITY_MAX: u32 = 100;

/// Whether there is memory for what a command adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is, or soon will be: more goes with the next commands.
    Enough,
    /// No key may go, and memory is full.
    None,
}

/// What the process knows of its allocator.
#[derive(Debug, Clone, Copy)]
pub struct Allocator {
    /// Bytes in use.
    pub live_bytes: fn() -> u64,
    /// Whether that is followed closely from now on, because keys go by it. What begins is ended before it begins again.
    pub follow: fn(bool),
    /// Bytes of the process that lie in memory.
    pub resident_bytes: fn() -> u64,
    /// Gives back to the operating system what is not in use.
    pub purge: fn(),
}

/// What is known of memory.
#[derive(Debug)]
pub(crate) struct Memory {
    allocator: OnceLock<Allocator>,
    /// Whether the allocator was told to be followed.
    follows: AtomicBool,
    /// Bytes in use before there was any key.
    start_bytes: AtomicU64,
    /// The most that was seen.
    peak_bytes: AtomicU64,
    /// Keys of each shard that may go, as of the last tick: how often it is drawn.
    weights: Box<[AtomicU32]>,
    pub(crate) counts: Counts,
    /// What waits to be dropped.
    pub(crate) trash: Trash,
    /// Since when memory has been over its limit, nanoseconds of monotonic time; 0 for not.
    full_since_ns: AtomicU64,
}

/// What went so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) keys: AtomicU64,
    pub(crate) clients: AtomicU64,
    /// How long memory was over its limit, until the last time that it was not.
    full_ns: AtomicU64,
}

impl Counts {
    /// Counts from zero again.
    pub(crate) fn reset(&self) {
        for count in [&self.keys, &self.clients, &self.full_ns] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Memory {
    /// Of an engine with so many shards.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            allocator: OnceLock::new(),
            follows: AtomicBool::new(false),
            start_bytes: AtomicU64::new(0),
            peak_bytes: AtomicU64::new(0),
            weights: (0..shards).map(|_| AtomicU32::new(0)).collect(),
            counts: Counts::default(),
            trash: Trash::default(),
            full_since_ns: AtomicU64::new(0),
        }
    }

    /// A shard, each as often as it has keys that may go.
    fn draw_shard(&self, draw: u64) -> usize {
        let weight = |weight: &AtomicU32| u64::from(weight.load(Ordering::Relaxed)) + 1;
        let total: u64 = self.weights.iter().map(weight).sum();
        let mut left = draw % total;
        let found = self.weights.iter().position(|known| {
            let weight = weight(known);
            let is_here = left < weight;
            left = left.saturating_sub(weight);
            is_here
        });
        found.expect("the weights sum up to their total")
    }

    /// Sees to it that the allocator is followed closely, or no longer.
    fn follow(&self, wants: bool) {
        if let Some(allocator) = self.allocator()
            && self.follows.swap(wants, Ordering::Relaxed) != wants
        {
            (allocator.follow)(wants);
        }
    }

    /// Memory is over its limit, or not.
    fn note_full(&self, is_full: bool, now: Now) {
        let since_ns = self.full_since_ns.load(Ordering::Relaxed);
        if is_full == (since_ns != 0) {
            return;
        }
        let now_ns = now.instant.as_nanos().max(1);
        self.full_since_ns.store(if is_full { now_ns } else { 0 }, Ordering::Relaxed);
        if !is_full {
            self.counts.full_ns.fetch_add(now_ns.saturating_sub(since_ns), Ordering::Relaxed);
        }
    }

    /// How long memory has been over its limit in all, and this time.
    pub(crate) fn times_full(&self, now: Now) -> (Duration, Duration) {
        let since_ns = self.full_since_ns.load(Ordering::Relaxed);
        let present_ns = if since_ns == 0 { 0 } else { now.instant.as_nanos().saturating_sub(since_ns) };
        let all_ns = self.counts.full_ns.load(Ordering::Relaxed).saturating_add(present_ns);
        (Duration::from_nanos(all_ns), Duration::from_nanos(present_ns))
    }

    /// What the process knows of its allocator, if anything.
    pub(crate) fn allocator(&self) -> Option<&Allocator> {
        self.allocator.get()
    }

    /// Bytes in use before there was any key.
    pub(crate) fn start_bytes(&self) -> u64 {
        self.start_bytes.load(Ordering::Relaxed)
    }

    /// The peak is looked for from now on.
    pub(crate) fn forget_peak(&self) {
        self.peak_bytes.store(0, Ordering::Relaxed);
    }
}

/// Keys that may go before one command.
fn keys_max(tenacity: u32) -> u64 {
    if tenacity >= TENACITY_MAX {
        return u64::MAX;
    }
    // As Valkey's limit of time: in proportion up to ten, then 15% more with each step.
    let first = KEYS_PER_STEP * u64::from(tenacity.min(10));
    let keys = (10..tenacity.max(10)).fold(first, |keys, _| keys + keys * 15 / 100);
    keys.max(KEYS_MIN)
}

impl Engine {
    /// Says how the process counts the bytes that it has taken from its allocator. Without it only records are counted.
    pub fn count_memory_with(&self, allocator: Allocator) {
        self.memory.allocator.get_or_init(|| allocator);
        self.memory.start_bytes.store(self.used_memory(), Ordering::Relaxed);
    }

    /// Bytes in use (`used_memory`).
    #[inline]
    pub(crate) fn used_memory(&self) -> u64 {
        let gauge = self.keyspace.gauge();
        match self.memory.allocator.get() {
            Some(allocator) => (allocator.live_bytes)().saturating_sub(gauge.spare()),
            None => gauge.used(),
        }
    }

    /// The same; it may become the peak.
    pub(crate) fn used_memory_and_peak(&self) -> (u64, u64) {
        let used = self.used_memory();
        let before = self.memory.peak_bytes.fetch_max(used, Ordering::Relaxed);
        (used, before.max(used))
    }

    /// Bytes in use that make no key go: what waits for the log, and for replicas that are behind.
    pub(crate) fn uncounted_memory(&self) -> u64 {
        let journal = &self.journal;
        let log = journal.waiting_bytes();
        log + self.replication.excess_bytes()
    }

    /// Bytes above the limit.
    #[inline]
    pub(crate) fn excess_memory(&self, settings: &Settings) -> u64 {
        let (used, limit) = (self.used_memory(), settings.memory_bytes_max);
        if limit == 0 || used <= limit { 0 } else { used.saturating_sub(limit).saturating_sub(self.uncounted_memory()) }
    }

    /// Takes keys out until memory is within its limit, or as many as may go at a time. The caller holds no shard.
    #[inline]
    pub(crate) fn make_room(&self, settings: &Settings, now: Now) -> Room {
        if settings.memory_bytes_max == 0 || settings.replication.ignores_memory && self.role.is_replica() {
            return Room::Enough;
        }
        if self.excess_memory(settings) == 0 {
            self.memory.note_full(false, now);
            return Room::Enough;
        }
        if self.pause.is_on() {
            return Room::Enough;
        }
        self.evict(settings, now)
    }

    #[cold]
    fn evict(&self, settings: &Settings, now: Now) -> Room {
        let mut ready = Vec::new();
        let mut left = keys_max(settings.memory.tenacity);
        let room = loop {
            if self.excess_memory(settings) == 0 {
                self.memory.note_full(false, now);
                break Room::Enough;
            }
            self.memory.note_full(true, now);
            if left == 0 {
                break Room::Enough;
            }
            if !self.evict_one(settings, now, &mut ready) {
                break if self.pause.is_on() { Room::Enough } else { Room::None };
            }
            left -= 1;
        };
        if !ready.is_empty() {
            self.serve(ready, settings, now);
        }
        room
    }

    /// Takes one key out. Says whether there was one that may go.
    fn evict_one(&self, settings: &Settings, now: Now, ready: &mut Vec<Place>) -> bool {
        if settings.policy == Policy::NoEviction || settings.imports {
            return false;
        }
        let choice = Choice { policy: settings.policy, clock: access(settings, now), samples: settings.memory.samples };
        let (first, shards) = (self.memory.draw_shard(self.draw()), self.keyspace.shards());
        for number in (first..shards).chain(0..first) {
            // What comes from another node is not there yet.
            if self.hides_in_shard(number) {
                continue;
            }
            // Nothing goes while a slow script holds it.
            let Some(mut shard) = self.keyspace.shard_unless(number, self.scripts.running.slow()) else { return false };
            // A transaction that held it may have begun a pause.
            if self.pause.is_on() {
                return false;
            }
            let Some(evicted) = shard.evict(choice, || self.draw()) else { continue };
            let place = (evicted.database, evicted.name);
            self.append_removed(std::slice::from_ref(&place), settings.memory.evicts_later, now.unix_ms());
            self.invalidate_gone(&place.1);
            if settings.events.has(Events::EVICTED) {
                self.publish_event(settings, "evicted", place.0, &place.1);
            }
            drop(shard);
            drop(evicted.removed);
            self.memory.counts.keys.fetch_add(1, Ordering::Relaxed);
            if self.waiting.changed(place.0, &place.1) {
                ready.push(place);
            }
            return true;
        }
        false
    }

    /// Goes on where commands stopped, and looks how many keys each shard has. To be called with every tick.
    pub(crate) fn tend_memory(&self, settings: &Settings, now: Now) {
        self.memory.trash.empty();
        let (used, _) = self.used_memory_and_peak();
        self.memory.follow(settings.memory_bytes_max > 0 && used > settings.memory_bytes_max / 2);
        if settings.memory_bytes_max == 0 {
            self.memory.note_full(false, now);
            return;
        }
        if used > settings.memory_bytes_max / 2 {
            for (number, weight) in self.memory.weights.iter().enumerate() {
                let Some(mut shard) = self.keyspace.shard_unless(number, self.scripts.running.slow()) else { return };
                shard.weigh_exactly();
                let keys = shard.evictable(settings.policy);
                weight.store(u32::try_from(keys).unwrap_or(u32::MAX), Ordering::Relaxed);
            }
        }
        for _ in 0..TICK_TURNS_MAX {
            if self.make_room(settings, now) == Room::None || self.excess_memory(settings) == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_a_number_of_keys() {
        for (tenacity, keys) in [(0, 16), (1, 25), (10, 250), (11, 287), (100, u64::MAX)] {
            assert_eq!(keys_max(tenacity), keys, "{tenacity}");
        }
        assert!((1..=100).all(|tenacity| keys_max(tenacity) > keys_max(tenacity - 1)));
    }

    #[test]
    fn shards_are_drawn_by_their_keys() {
        let memory = Memory::new(4);
        [0, 99, 0, 298]
            .into_iter()
            .zip(&memory.weights)
            .for_each(|(keys, weight)| weight.store(keys, Ordering::Relaxed));
        let mut counts = [0; 4];
        (0..401).for_each(|draw| counts[memory.draw_shard(draw)] += 1);
        assert_eq!(counts, [1, 100, 1, 299]);
    }

    #[test]
    fn the_allocator_is_followed_once_for_each_engine_that_needs_it() {
        static FOLLOWERS: AtomicU32 = AtomicU32::new(0);
        let follow = |begins| {
            FOLLOWERS.fetch_add(if begins { 1 } else { u32::MAX }, Ordering::Relaxed);
        };
        let allocator = Allocator { live_bytes: || 0, follow, resident_bytes: || 0, purge: || {} };
        let memories = [Memory::new(1), Memory::new(1)];
        for memory in &memories {
            memory.follow(true);
            assert_eq!(FOLLOWERS.load(Ordering::Relaxed), 0, "there is no allocator yet");
            memory.allocator.get_or_init(|| allocator);
        }
        for (wants, followers) in [([false, false], 0), ([true, false], 1), ([true, true], 2), ([false, true], 1)] {
            for _ in 0..2 {
                memories.iter().zip(wants).for_each(|(memory, wants)| memory.follow(wants));
                assert_eq!(FOLLOWERS.load(Ordering::Relaxed), followers, "{wants:?}");
            }
        }
    }
}
