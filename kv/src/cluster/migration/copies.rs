//! Slots whose keys here are only copies, unless this node owns them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::SlotTable;
use crate::cluster::map::{Map, SlotRange};
use crate::command::run::access;
use crate::engine::Engine;
use crate::keyspace::{Lock, Slot};
use crate::settings::Events;
use crate::time::Now;

/// Keys that are removed at a time.
const KEYS_TURN: usize = 256;

/// Slots whose keys are noted as copies.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    is_any: AtomicBool,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    slots: SlotTable,
    /// Those among them that an earlier life of this process noted, or another node: it may have given leave to take them, of
    /// which this process knows nothing.
    inherited: SlotTable,
}

impl Copies {
    /// Whether there are any.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// All of them.
    pub(crate) fn table(&self) -> SlotTable {
        self.noted().slots.clone()
    }

    /// Slots are among them from now on, or are not.
    pub(crate) fn change(&self, slots: &SlotTable, are_copies: bool) {
        self.set(|noted| {
            noted.inherited.remove(slots);
            if are_copies { noted.slots.add(slots) } else { noted.slots.remove(slots) }
        });
    }

    /// The same, as a log says, or a primary.
    pub(crate) fn hear(&self, slots: &SlotTable, are_copies: bool) {
        self.set(|noted| {
            let Noted { slots: all, inherited } = noted;
            for table in [all, inherited] {
                if are_copies { table.add(slots) } else { table.remove(slots) }
            }
        });
    }

    /// These are all, as a dump says.
    pub(crate) fn replace(&self, slots: SlotTable) {
        self.set(|noted| *noted = Noted { inherited: slots.clone(), slots });
    }

    /// Those that this node owns by a map, and perhaps has given away in an earlier life.
    pub(crate) fn doubtful(&self, map: &Map) -> SlotTable {
        if !self.is_any() {
            return SlotTable::default();
        }
        let inherited = self.noted().inherited.clone();
        SlotTable::of(&SlotRange::gather(inherited.slots().filter(|slot| map.holds(*slot)).map(Slot::number)))
    }

    /// It is known again whose they are.
    pub(super) fn trust(&self, slots: &SlotTable) {
        self.set(|noted| noted.inherited.remove(slots));
    }

    fn set(&self, change: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted();
        change(&mut noted);
        self.is_any.store(!noted.slots.is_empty(), Ordering::Release);
    }

    /// As text: nothing if there are none.
    pub(crate) fn show(&self) -> String {
        if !self.is_any() {
            return String::new();
        }
        let ranges = self.noted().slots.ranges();
        ranges.iter().map(SlotRange::to_string).collect::<Vec<_>>().join(" ")
    }

    /// Those that a text names. What is none in it is passed over.
    pub(crate) fn read(text: &str) -> SlotTable {
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            SlotRange::new(first.parse().ok()?, last.parse().ok()?)
        };
        let ranges: Vec<SlotRange> = text.split_ascii_whitespace().filter_map(range).collect();
        SlotTable::of(&ranges)
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Removes some keys of a slot that another node owns, and tells the log and replicas; `tells` subscribers as well. Keys that come by a
    /// migration stay, unless it is the one that `begins`. Says whether none is left to remove.
    pub(super) fn drop_keys(&self, slot: Slot, tells: bool, begins: bool, now: Now) -> bool {
        let settings = self.settings();
        let clock = access(&settings, now);
        let mut keys = self.keyspace.lock(Lock::Slots(&[slot]), 0, now.unix_ms(), clock);
        // Whoever changes the map waits for this lock before it relies on the change.
        if self.map().is_none_or(|map| map.owner(slot).is_none() || map.holds(slot)) {
            return true;
        }
        // Its keys come under this lock, and not before the migration is known.
        if !begins && self.migration.has_under_way(slot) {
            return true;
        }
        let mut gone = Vec::new();
        for database in 0..keys.databases() {
            let mut cursor = 0;
            while gone.len() < KEYS_TURN {
                let visit = |record: crate::keyspace::Record<'_>| gone.push((database, record.key().into()));
                cursor = keys.shard(slot).scan_slot(database, slot.index(), cursor, KEYS_TURN, visit);
                if cursor == 0 {
                    break;
                }
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        gone.retain(|place: &(usize, Box<[u8]>)| seen.insert(place.clone()));
        for (database, name) in &gone {
            keys.select(*database);
            let key = keys.key(name);
            drop(keys.remove(key));
            self.waiting.changed(*database, name);
        }
        self.append_removed(&gone, settings.memory.deletes_later, now.unix_ms());
        gone.iter().for_each(|(_, name)| self.invalidate_gone(name));
        let is_over = (0..keys.databases()).all(|number| keys.shard(slot).keys_in_slot(number, slot.index()) == 0);
        drop(keys);
        if tells && settings.events.has(Events::GENERIC) {
            gone.iter().for_each(|(database, name)| self.publish_event(&settings, "del", *database, name));
        }
        is_over
    }
}
