//! Clients that want to write to slots which are about to change hands, or perhaps already have, wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SlotTable;
use crate::client::{ClientId, Mailbox};
use crate::keyspace::Slot;

/// Which slots nobody writes to, and who waits.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// That leave.
    slots: SlotTable,
    /// Of which it is not sure that they are here.
    doubtful: SlotTable,
    clients: BTreeMap<ClientId, Arc<Mailbox>>,
}

impl Hold {
    /// Whether anybody has to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Nobody begins to write to these slots. Who has begun has not ended yet: whoever needs that locks them once.
    pub(super) fn begin(&self, slots: &SlotTable) {
        self.change(|state| state.slots = slots.clone());
    }

    /// Who waits for slots that leave goes on.
    pub(super) fn end(&self) {
        self.change(|state| state.slots = SlotTable::default());
    }

    /// The same of slots of which it is not sure that they are here: these are all.
    pub(crate) fn doubt(&self, slots: SlotTable) {
        self.change(|state| state.doubtful = slots);
    }

    /// Whoever waits looks again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        self.is_on.store(!state.slots.is_empty() || !state.doubtful.is_empty(), Ordering::Release);
        state.clients.values().for_each(|mailbox| mailbox.nudge());
    }

    /// Whether a write has to wait that is about this slot, or, if about none, may be about any.
    pub(crate) fn covers(&self, slot: Option<Slot>) -> bool {
        self.is_on()
            && slot.is_none_or(|slot| {
                let state = self.state();
                state.slots.has(slot) || state.doubtful.has(slot)
            })
    }

    /// A client waits.
    pub(crate) fn enter(&self, client: ClientId, mailbox: &Arc<Mailbox>) {
        let mut state = self.state();
        state.clients.insert(client, Arc::clone(mailbox));
        if !self.is_on() {
            mailbox.nudge();
        }
    }

    /// A client waits no more.
    pub(crate) fn leave(&self, client: ClientId) {
        self.state().clients.remove(&client);
    }

    /// How many clients wait.
    pub(crate) fn clients(&self) -> usize {
        self.state().clients.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
