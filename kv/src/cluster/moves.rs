//! Slots on their way from one node to another, key by key: what `CLUSTER SETSLOT` says of them at either end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::map::{Health, Map, Name};
use crate::keyspace::Slot;

/// What becomes of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// Its keys go to a node: those that are gone already are asked for there.
    To(Name),
    /// Its keys come from a node: who was sent on from there is served.
    From(Name),
}

/// All slots that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// How many: mostly none, and then nobody locks.
    count: AtomicUsize,
    slots: Mutex<BTreeMap<u16, Move>>,
    /// Slots of lost nodes that an operator has taken from them: this node may claim them.
    left: Mutex<BTreeSet<u16>>,
}

impl Moves {
    /// Whether any slot is on its way.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// What becomes of a slot, if it is on its way.
    #[inline]
    pub(crate) fn of(&self, slot: Slot) -> Option<Move> {
        if self.is_any() { self.slots().get(&slot.number()).copied() } else { None }
    }

    /// A slot is on its way from now on.
    pub(crate) fn begin(&self, slot: Slot, way: Move) {
        self.change(|slots| slots.insert(slot.number(), way));
    }

    /// A slot stays where it is.
    pub(crate) fn end(&self, slot: Slot) {
        self.change(|slots| slots.remove(&slot.number()));
    }

    /// Those that are on their way, by number.
    pub(crate) fn all(&self) -> Vec<(u16, Move)> {
        if self.is_any() { self.slots().iter().map(|(slot, way)| (*slot, *way)).collect() } else { Vec::new() }
    }

    /// A slot's owner is lost, and an operator has said that it is to have the slot no more.
    pub(crate) fn leave(&self, slot: Slot) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(slot.number());
    }

    /// Whether that was said of a slot, and its owner is lost still.
    pub(crate) fn is_left(&self, slot: Slot, map: &Map) -> bool {
        let is_lost = map.owner(slot).is_some_and(|owner| owner.health == Health::Failed);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.contains(&slot.number()) && (is_lost || !left.remove(&slot.number()))
    }

    /// Slots have other owners now: what has arrived, or has left, is not on its way any more, and neither is what has lost the
    /// node at the other end.
    pub(super) fn settle(&self, map: &Map) {
        if !self.is_any() {
            return;
        }
        self.change(|slots| {
            slots.retain(|number, way| {
                let slot = Slot::new(*number).expect("only slots are entered");
                match way {
                    Move::To(name) => map.serves(slot) && map.node(*name).is_some(),
                    Move::From(name) => !map.serves(slot) && map.node(*name).is_some(),
                }
            });
            None
        });
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u16, Move>) -> Option<Move>) {
        let mut slots = self.slots();
        change(&mut slots);
        self.count.store(slots.len(), Ordering::Release);
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u16, Move>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
