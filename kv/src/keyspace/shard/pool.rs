//! Which key of a shard goes next when memory is full.
//!
//! To know the best of all keys would take an order of all keys. Instead a few are drawn, and the best of what was drawn now and
//! before goes first (approximated LRU, as in Redis 3). What was drawn is kept by name, so that it does no harm when a key has
//! gone meanwhile; one that was used since is no candidate any more.
//!
//! Each shard has a pool of its own, so that nothing is shared: as slots spread keys evenly, the best of one shard is about as
//! good as the best of all.

use super::{Record, Removed, Shard};
use crate::keyspace::locked::Key;
use crate::keyspace::{AccessClock, Policy};
use crate::memory::index::{Index, below};

/// Candidates that are kept.
const POOL_MAX: usize = 16;
/// Keys with longer names are only candidates while none is kept, bytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// How often keys are drawn before there is nothing to evict. A second time is needed when all that was kept is stale.
const DRAWS_MAX: usize = 2;

/// How a key is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) policy: Policy,
    pub(crate) clock: AccessClock,
    /// Keys that are drawn at a time, of each database (`maxmemory-samples`).
    pub(crate) samples: usize,
}

impl Choice {
    /// The greater, the sooner a key goes; nothing if it must not.
    fn score(&self, record: Record<'_>) -> Option<u64> {
        let expiry = record.expiry();
        if self.policy.takes_expiring_only() && expiry.is_none() {
            return None;
        }
        Some(match self.policy {
            Policy::VolatileTtl => u64::MAX - expiry.map_or(0, |at| u64::try_from(at).unwrap_or(0)),
            policy if policy.counts_use() => u64::from(u8::MAX) - u64::from(self.clock.count(record.access()).min(255)),
            _ => u64::from(self.clock.idle_s(record.access())),
        })
    }
}

/// Candidates, the best of them last.
#[derive(Debug, Default)]
pub(super) struct Pool {
    policy: Policy,
    candidates: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    score: u64,
    database: usize,
    name: Box<[u8]>,
}

impl Pool {
    /// Keeps a key if it is better than the worst that is kept, or there is room.
    fn offer(&mut self, score: u64, database: usize, name: &[u8]) {
        let is_full = self.candidates.len() >= POOL_MAX;
        let is_long = name.len() > NAME_BYTES_MAX && !self.candidates.is_empty();
        if is_long || is_full && self.candidates.first().is_some_and(|worst| worst.score >= score) {
            return;
        }
        if self.candidates.iter().any(|known| known.database == database && *known.name == *name) {
            return;
        }
        if is_full {
            self.candidates.remove(0);
        }
        let at = self.candidates.partition_point(|known| known.score <= score);
        self.candidates.insert(at, Candidate { score, database, name: name.into() });
    }
}

/// A key that was taken out to make room.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) database: usize,
    pub(crate) name: Box<[u8]>,
    /// What was behind it, to be dropped without the lock.
    pub(crate) removed: Removed,
}

impl Shard {
    /// Keys of all databases that a policy may take.
    pub(crate) fn evictable(&self, policy: Policy) -> usize {
        let databases = self.databases.iter().flatten();
        if policy.takes_expiring_only() {
            databases.map(|database| database.expiring.len()).sum()
        } else {
            databases.map(|database| database.keys).sum()
        }
    }

    /// Takes out the key that should go next, if there is any that may. `draw` gives evenly spread numbers of 64 bits.
    pub(crate) fn evict(&mut self, choice: Choice, mut draw: impl FnMut() -> u64) -> Option<Evicted> {
        let (database, name) = match choice.policy {
            Policy::NoEviction => return None,
            Policy::AllRandom | Policy::VolatileRandom => self.draw_one(choice, &mut draw)?,
            _ => self.choose(choice, &mut draw)?,
        };
        let key = Key::new(&name, &self.hash_key);
        let removed = self.remove(database, key)?;
        self.weigh_exactly();
        Some(Evicted { database, name, removed })
    }

    /// Any key, from a database drawn first.
    fn draw_one(&self, choice: Choice, draw: &mut impl FnMut() -> u64) -> Option<(usize, Box<[u8]>)> {
        let (count, expiring) = (self.databases.len(), choice.policy.takes_expiring_only());
        let first = below(draw(), count);
        (first..first + count).find_map(|number| {
            let record = self.sample(number % count, expiring, draw)?;
            Some((number % count, record.key().into()))
        })
    }

    /// The best of some keys.
    fn choose(&mut self, choice: Choice, draw: &mut impl FnMut() -> u64) -> Option<(usize, Box<[u8]>)> {
        let mut pool = std::mem::take(&mut self.pool);
        if pool.policy != choice.policy {
            pool = Pool { policy: choice.policy, candidates: Vec::with_capacity(POOL_MAX) };
        }
        let mut found = None;
        for _ in 0..DRAWS_MAX {
            self.fill(&mut pool, choice, draw);
            found = self.best(&mut pool, choice);
            if found.is_some() {
                break;
            }
        }
        self.pool = pool;
        found
    }

    /// Draws keys of all databases.
    fn fill(&self, pool: &mut Pool, choice: Choice, draw: &mut impl FnMut() -> u64) {
        let expiring = choice.policy.takes_expiring_only();
        for database in 0..self.databases.len() {
            for _ in 0..choice.samples {
                let Some(record) = self.sample(database, expiring, draw) else { break };
                if let Some(score) = choice.score(record) {
                    pool.offer(score, database, record.key());
                }
            }
        }
    }

    /// The best that is still there and was not used since it was drawn.
    fn best(&self, pool: &mut Pool, choice: Choice) -> Option<(usize, Box<[u8]>)> {
        while let Some(Candidate { score, database, name }) = pool.candidates.pop() {
            let found = self.find(database, Key::new(&name, &self.hash_key));
            let now = found.and_then(|handle| choice.score(self.record(handle)));
            if now.is_some_and(|now| now >= score) {
                return Some((database, name));
            }
        }
        None
    }

    /// A key at random, of those that expire if `expiring`. Not all have quite the same chance: one behind slots without keys
    /// has a greater one.
    fn sample(&self, database: usize, expiring: bool, draw: &mut impl FnMut() -> u64) -> Option<Record<'_>> {
        let database = self.databases[database].as_ref()?;
        let index = if expiring {
            &database.expiring
        } else {
            let first = below(draw(), database.slots.len());
            let (before, from) = database.slots.split_at(first);
            let is_used = |index: &&Index| !index.is_empty();
            if database.slots_used == 0 { None } else { from.iter().chain(before).find(is_used) }?
        };
        index.random(draw).map(|handle| self.record(handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_kept() {
        let mut pool = Pool::default();
        for score in [5_u64, 900, 7, 30, 900, 2] {
            pool.offer(score, 0, format!("key:{score}").as_bytes());
        }
        let scores = |pool: &Pool| pool.candidates.iter().map(|known| known.score).collect::<Vec<_>>();
        assert_eq!(scores(&pool), [2, 5, 7, 30, 900], "no key is there twice");
        for score in 100..200 {
            pool.offer(score, 1, format!("key:{score}").as_bytes());
        }
        let mut expected: Vec<u64> = (185..200).collect();
        expected.push(900);
        assert_eq!(scores(&pool), expected);
        pool.offer(1_000, 1, &[b'x'; NAME_BYTES_MAX + 1]);
        assert_eq!(scores(&pool), expected, "a long name is not kept beside others");
    }
}
