//! A group of consumers: who was given which entry and has not acknowledged it.
//!
//! What is pending is kept once for the group, by id, with the consumer that has it; each consumer has the ids that are
//! its own. Both hold the same pairs of id and consumer at all times. An entry may be deleted from the log while it is
//! pending.

use std::collections::{BTreeMap, BTreeSet};

use super::log::{Log, behind};
use super::node::Entry;
use super::{StreamId, tree_bytes};

/// How many pending entries [`Group::auto_claim`] looks at for each that it may claim.
const LOOKED_PER_CLAIM: usize = 10;

/// A consumer of a group, as long as it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsumerId(u32);

/// A consumer.
#[derive(Debug, Clone, Default)]
pub struct Consumer {
    name: Box<[u8]>,
    /// When it last asked for something, in milliseconds.
    pub seen_ms: i64,
    /// When it was last given something, in milliseconds.
    pub active_ms: Option<i64>,
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The ids of the entries that it has not acknowledged.
    #[must_use]
    pub const fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

/// An entry that was given to a consumer and has not been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Who has it.
    pub consumer: ConsumerId,
    /// When it was given last, in milliseconds.
    pub delivered_ms: i64,
    /// How often it was given.
    pub deliveries: u64,
}

/// How an entry is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// For whom.
    pub consumer: ConsumerId,
    /// Only what was given at least so long ago, in milliseconds; 0 is anything.
    pub idle_ms_min: i64,
    /// When it shall count as given; now, or what the claimer says.
    pub delivered_ms: i64,
    /// How often it shall count as given. Once more than before, if not given.
    pub deliveries: Option<u64>,
    /// Whether it is claimed where nobody has it.
    pub is_forced: bool,
    /// Whether it counts as given once more.
    pub is_delivery: bool,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The consumer has it now.
    Yes,
    /// It stays as it was.
    No,
    /// It was pending and is in the log no more: now it is not pending either.
    Gone,
}

/// What was claimed in one sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutoClaimed {
    /// What the consumer has now.
    pub claimed: Vec<StreamId>,
    /// What was pending and is in the log no more.
    pub gone: Vec<StreamId>,
    /// Where the next sweep shall start; the lowest id when this one came to the end.
    pub next: StreamId,
}

/// A group of consumers.
#[derive(Debug, Clone, Default)]
pub struct Group {
    last_id: StreamId,
    entries_read: Option<u64>,
    pending: BTreeMap<StreamId, Pending>,
    names: BTreeMap<Box<[u8]>, ConsumerId>,
    /// By number; those that are free are empty.
    consumers: Vec<Consumer>,
    free: Vec<ConsumerId>,
}

impl Group {
    /// A group that has been given everything up to an id, and so many entries, if that is known.
    #[must_use]
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self { last_id, entries_read, ..Self::default() }
    }

    /// The last id that was given to a consumer.
    #[must_use]
    pub const fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// How many entries were given to consumers, as if all from the first on had been, if that is known.
    #[must_use]
    pub const fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Sets what counts as given.
    pub const fn set_id(&mut self, last_id: StreamId, entries_read: Option<u64>) {
        self.last_id = last_id;
        self.entries_read = entries_read;
    }

    /// How many entries are still to be given, if that can be told.
    #[must_use]
    pub fn lag(&self, log: &Log) -> Option<i64> {
        if log.entries_added() == 0 {
            return Some(0);
        }
        let read = self.entries_read.filter(|_| !log.has_holes_from(self.last_id));
        let read = read.or_else(|| log.entries_until(self.last_id))?;
        Some(log.entries_added().wrapping_sub(read).cast_signed())
    }

    /// About how many bytes of memory are held.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        let names: usize = self.names.keys().map(|name| 2 * name.len() + size_of::<ConsumerId>()).sum();
        let pending = tree_bytes(self.pending.len(), size_of::<(StreamId, Pending)>() + size_of::<StreamId>());
        names + pending + self.consumers.capacity() * size_of::<Consumer>()
    }

    /// The consumer of a name.
    #[must_use]
    pub fn find_consumer(&self, name: &[u8]) -> Option<ConsumerId> {
        self.names.get(name).copied()
    }

    /// What is known of a consumer.
    ///
    /// # Panics
    /// When it was never one of this group.
    #[must_use]
    pub fn consumer(&self, id: ConsumerId) -> &Consumer {
        &self.consumers[id.0 as usize]
    }

    /// The same, to set its times.
    ///
    /// # Panics
    /// When it was never one of this group.
    pub fn consumer_mut(&mut self, id: ConsumerId) -> &mut Consumer {
        &mut self.consumers[id.0 as usize]
    }

    /// All consumers, by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.names.values().map(|id| self.consumer(*id))
    }

    /// Adds a consumer that is seen now. `None` if there is one of this name.
    pub fn create_consumer(&mut self, name: &[u8], now_ms: i64) -> Option<ConsumerId> {
        if self.names.contains_key(name) {
            return None;
        }
        let consumer = Consumer { name: name.into(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        let id = if let Some(id) = self.free.pop() {
            *self.consumer_mut(id) = consumer;
            id
        } else {
            let number = u32::try_from(self.consumers.len()).expect("a group has fewer than 2^32 consumers");
            self.consumers.push(consumer);
            ConsumerId(number)
        };
        self.names.insert(name.into(), id);
        Some(id)
    }

    /// The consumer of a name, which is added if there is none.
    pub fn consumer_of(&mut self, name: &[u8], now_ms: i64) -> ConsumerId {
        let created = self.create_consumer(name, now_ms);
        created.or_else(|| self.find_consumer(name)).expect("it was there or was added")
    }

    /// Removes a consumer, and what it has is no longer pending; how many entries that were. `None` if there is none.
    pub fn delete_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let id = self.names.remove(name)?;
        let consumer = std::mem::take(self.consumer_mut(id));
        for entry in &consumer.pending {
            self.pending.remove(entry);
        }
        self.free.push(id);
        Some(consumer.pending.len())
    }

    /// How many entries are pending.
    #[must_use]
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// An entry that is pending.
    #[must_use]
    pub fn pending_of(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// What is pending from one id to another, both within, for all or one consumer.
    pub fn pending(
        &self,
        first: StreamId,
        last: StreamId,
        of: Option<ConsumerId>,
    ) -> impl DoubleEndedIterator<Item = (StreamId, Pending)> {
        let is_range = first <= last;
        let all = (is_range && of.is_none()).then(|| self.pending.range(first..=last));
        let one = of.filter(|_| is_range).map(|id| self.consumer(id).pending.range(first..=last));
        let of_one = one.into_iter().flatten().filter_map(|id| self.pending.get_key_value(id));
        all.into_iter().flatten().chain(of_one).map(|(id, pending)| (*id, *pending))
    }

    /// Makes an entry pending, whoever had it: what a dump or the log of changes says.
    pub fn set_pending(&mut self, id: StreamId, pending: Pending) {
        if let Some(before) = self.pending.insert(id, pending) {
            self.consumer_mut(before.consumer).pending.remove(&id);
        }
        self.consumer_mut(pending.consumer).pending.insert(id);
    }

    /// An entry is no longer pending. False if it was not.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        self.consumer_mut(pending.consumer).pending.remove(&id);
        true
    }

    /// Gives a consumer the entries after the last that was given, up to a count if that is not 0; how many. They are
    /// pending from then on, but where nobody will acknowledge them.
    pub fn deliver<'a>(
        &mut self,
        log: &'a Log,
        consumer: ConsumerId,
        count_max: usize,
        is_acknowledged: bool,
        now_ms: i64,
        mut visit: impl FnMut(Entry<'a>),
    ) -> usize {
        let count_max = if count_max == 0 { usize::MAX } else { count_max };
        let mut count = 0;
        let first = log.first().map_or(StreamId::MAX, |entry| entry.id);
        for entry in log.after(self.last_id).take(count_max) {
            let is_counted = self.last_id >= first && !log.has_holes_from(self.last_id);
            self.entries_read = match self.entries_read {
                Some(read) if is_counted => Some(read.saturating_add(1)),
                _ => log.entries_until(entry.id),
            };
            self.last_id = entry.id;
            if is_acknowledged {
                self.set_pending(entry.id, Pending { consumer, delivered_ms: now_ms, deliveries: 1 });
                self.consumer_mut(consumer).active_ms = Some(now_ms);
            }
            visit(entry);
            count += 1;
        }
        count
    }

    /// Gives a consumer again what it has not acknowledged, from an id on, up to a count if that is not 0; how many. What
    /// is in the log no more is told by its id.
    pub fn deliver_again<'a>(
        &mut self,
        log: &'a Log,
        consumer: ConsumerId,
        first: StreamId,
        count_max: usize,
        now_ms: i64,
        mut visit: impl FnMut(StreamId, Option<Entry<'a>>),
    ) -> usize {
        let count_max = if count_max == 0 { usize::MAX } else { count_max };
        let mut count = 0;
        for id in self.consumers[consumer.0 as usize].pending.range(first..).take(count_max) {
            let entry = log.get(*id);
            if entry.is_some() {
                let pending = self.pending.get_mut(id).expect("what a consumer has, the group has");
                pending.delivered_ms = now_ms;
                pending.deliveries = pending.deliveries.saturating_add(1);
            }
            visit(*id, entry);
            count += 1;
        }
        count
    }

    /// Gives one entry to a consumer, whoever had it.
    pub fn claim(&mut self, log: &Log, id: StreamId, claim: Claim, now_ms: i64) -> Claimed {
        let before = self.pending_of(id);
        if log.get(id).is_none() {
            return if self.acknowledge(id) { Claimed::Gone } else { Claimed::No };
        }
        let deliveries = match before {
            None if !claim.is_forced => return Claimed::No,
            Some(before) if claim.idle_ms_min > 0 && now_ms - before.delivered_ms < claim.idle_ms_min => {
                return Claimed::No;
            }
            // One that nobody had counts as given once already.
            None => 1,
            Some(before) => before.deliveries,
        };
        let deliveries = claim.deliveries.unwrap_or(deliveries.saturating_add(u64::from(claim.is_delivery)));
        self.set_pending(id, Pending { consumer: claim.consumer, delivered_ms: claim.delivered_ms, deliveries });
        self.consumer_mut(claim.consumer).active_ms = Some(now_ms);
        Claimed::Yes
    }

    /// Claims pending entries from an id on, up to a count, of ten times as many that are looked at.
    pub fn auto_claim(
        &mut self,
        log: &Log,
        start: StreamId,
        count_max: usize,
        claim: Claim,
        now_ms: i64,
    ) -> AutoClaimed {
        let mut swept = AutoClaimed::default();
        let mut next = self.pending.range(start..).next().map(|(id, _)| *id);
        let mut looked_left = count_max.saturating_mul(LOOKED_PER_CLAIM);
        while let Some(id) = next
            && looked_left > 0
            && swept.claimed.len() + swept.gone.len() < count_max
        {
            looked_left -= 1;
            match self.claim(log, id, claim, now_ms) {
                Claimed::Yes => swept.claimed.push(id),
                Claimed::Gone => swept.gone.push(id),
                Claimed::No => {}
            }
            next = self.pending.range(behind(id)).next().map(|(id, _)| *id);
        }
        swept.next = next.unwrap_or_default();
        swept
    }
}

#[cfg(test)]
impl Group {
    /// Checks what the fields promise.
    pub(super) fn check(&self) {
        let of_consumers: usize = self.consumers().map(|consumer| consumer.pending.len()).sum();
        assert_eq!(of_consumers, self.pending.len());
        for (id, pending) in &self.pending {
            assert!(self.consumer(pending.consumer).pending.contains(id));
        }
        assert_eq!(self.names.len() + self.free.len(), self.consumers.len());
    }
}
