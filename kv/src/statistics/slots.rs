//! What commands cost by the slot that they are about (`cluster-slot-stats-enabled`): for `CLUSTER SLOT-STATS`.
//!
//! While nobody wants it, nothing is counted and no room is taken. It is counted with single additions: two workers that are about one
//! slot meet there, as they do at its keys.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keyspace::Slot;
use crate::keyspace::slot::SLOTS;

/// What was counted of one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SlotCost {
    /// Time in commands, nanoseconds.
    pub(crate) nanos: u64,
    /// Bytes of requests.
    pub(crate) bytes_in: u64,
    /// Bytes of replies, of messages to subscribers of shard channels, and of what replicas are sent.
    pub(crate) bytes_out: u64,
}

#[derive(Debug, Default)]
struct Cell {
    nanos: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// The costs of all slots.
#[derive(Debug, Default)]
pub(crate) struct SlotCosts(OnceLock<Box<[Cell]>>);

impl SlotCosts {
    /// A slot has cost so much more.
    pub(crate) fn add(&self, slot: Slot, cost: SlotCost) {
        let cells = self.0.get_or_init(|| (0..SLOTS).map(|_| Cell::default()).collect());
        let cell = &cells[slot.index()];
        cell.nanos.fetch_add(cost.nanos, Ordering::Relaxed);
        cell.bytes_in.fetch_add(cost.bytes_in, Ordering::Relaxed);
        cell.bytes_out.fetch_add(cost.bytes_out, Ordering::Relaxed);
    }

    /// So many more bytes have left because of a slot.
    pub(crate) fn add_out(&self, slot: Slot, bytes: usize) {
        self.add(slot, SlotCost { bytes_out: bytes as u64, ..SlotCost::default() });
    }

    /// What a slot has cost.
    pub(crate) fn of(&self, slot: Slot) -> SlotCost {
        let Some(cells) = self.0.get() else { return SlotCost::default() };
        let cell = &cells[slot.index()];
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SlotCost { nanos: count(&cell.nanos), bytes_in: count(&cell.bytes_in), bytes_out: count(&cell.bytes_out) }
    }

    /// Counts slots that are chosen from zero again.
    pub(crate) fn reset(&self, is_chosen: impl Fn(Slot) -> bool) {
        let cells = self.0.get().map_or(&[][..], |cells| cells);
        for (cell, slot) in cells.iter().zip((0..SLOTS).filter_map(Slot::new)) {
            if is_chosen(slot) {
                [&cell.nanos, &cell.bytes_in, &cell.bytes_out]
                    .iter()
                    .for_each(|counter| counter.store(0, Ordering::Relaxed));
            }
        }
    }
}
