//! Clients that want to write to slots which are about to change hands, or perhaps already have, wait. So do those who ask a replica for
//! slots that it takes over from its primary: that one may send them here before this one serves them, and neither would in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use super::SlotTable;
use crate::client::{ClientId, Mailbox};
use crate::cluster::map::Name;
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
    /// From which node all slots are about to come, and until when that is waited for.
    expected: Option<(Name, Instant)>,
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

    /// The slots of this node are about to come here; until then it is waited for that.
    pub(crate) fn expect(&self, expected: Option<(Name, Instant)>) {
        self.change(|state| state.expected = expected);
    }

    /// Until when a request waits that would be sent to this owner of its slot; nothing if it does not wait.
    pub(crate) fn expected_until(&self, owner: Name, now: Instant) -> Option<Instant> {
        let expected = self.state().expected;
        expected.filter(|(from, until)| *from == owner && now < *until).map(|(_, until)| until)
    }

    /// Slots may have come: whoever waits looks again.
    pub(crate) fn look_again(&self) {
        if self.is_on() {
            self.change(|_| ());
        }
    }

    /// Whoever waits looks again.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let has_slots = !state.slots.is_empty() || !state.doubtful.is_empty();
        self.is_on.store(has_slots || state.expected.is_some(), Ordering::Release);
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
