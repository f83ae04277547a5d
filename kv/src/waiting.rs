//! Commands that wait for a key, and transactions that watch one.
//!
//! A command that finds nothing is entered here while it still holds its shards, so no change is missed. Whoever changes a
//! key that somebody waits for serves those that wait, first come first served, after letting go of its own shards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use crate::client::{ClientId, Mailbox};
use crate::resp::{Protocol, Request};

/// A database and a key in it.
pub(crate) type Place = (usize, Box<[u8]>);

/// What a command that found nothing waits for.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Any of these keys.
    pub(crate) keys: Vec<Box<[u8]>>,
    /// Until then; nothing is for ever.
    pub(crate) deadline: Option<Instant>,
    /// What it replies when the time is over.
    pub(crate) in_vain: InVain,
}

/// What a command replies when it has waited in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InVain {
    Null,
    NullArray,
    Zero,
}

/// A command that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) client: ClientId,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) request: Arc<Request>,
    pub(crate) mailbox: Arc<Mailbox>,
    keys: Arc<[Box<[u8]>]>,
    /// Whoever sets it first may serve: another key, the deadline and the client's leaving compete.
    is_over: Arc<AtomicBool>,
}

impl Waiter {
    /// Claims the right to serve it. At most one caller gets it.
    pub(crate) fn claim(&self) -> bool {
        !self.is_over.swap(true, Ordering::AcqRel)
    }

    /// Gives that right back.
    pub(crate) fn unclaim(&self) {
        self.is_over.store(false, Ordering::Release);
    }
}

/// A transaction that watches a key.
type Watcher = (ClientId, Arc<AtomicBool>);

/// All that wait and watch.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// How many keys are waited for or watched: nearly always none, and then nobody locks.
    count: AtomicUsize,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    waiters: BTreeMap<Place, Vec<Waiter>>,
    watchers: BTreeMap<Place, Vec<Watcher>>,
}

impl Waiting {
    /// A key has changed: transactions that watch it will fail. Says whether commands wait for it.
    #[inline]
    pub(crate) fn changed(&self, database: usize, key: &[u8]) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let place = (database, key.into());
        let lists = self.lists();
        for (_, is_dirty) in lists.watchers.get(&place).into_iter().flatten() {
            is_dirty.store(true, Ordering::Release);
        }
        lists.waiters.contains_key(&place)
    }

    /// Everything in these databases has changed.
    pub(crate) fn changed_all(&self, databases: &[usize]) {
        let lists = self.lists();
        let watchers = lists.watchers.iter().filter(|((database, _), _)| databases.contains(database));
        watchers.flat_map(|(_, watchers)| watchers).for_each(|(_, is_dirty)| is_dirty.store(true, Ordering::Release));
    }

    /// Keys of these databases that somebody waits for.
    pub(crate) fn waited_for(&self, databases: &[usize]) -> Vec<Place> {
        self.lists().waiters.keys().filter(|(database, _)| databases.contains(database)).cloned().collect()
    }

    /// Enters a command that found nothing.
    pub(crate) fn enter(
        &self,
        client: (ClientId, Protocol, Arc<Mailbox>),
        database: usize,
        request: Request,
        keys: Vec<Box<[u8]>>,
    ) -> Waiter {
        let (client, protocol, mailbox) = client;
        let (request, is_over) = (Arc::new(request), Arc::default());
        let waiter = Waiter { client, database, protocol, request, mailbox, keys: keys.into(), is_over };
        let mut lists = self.lists();
        for key in &*waiter.keys {
            let waiters = lists.waiters.entry((database, key.clone())).or_default();
            if waiters.last().is_none_or(|last| last.client != client) {
                waiters.push(waiter.clone());
            }
        }
        self.recount(&lists);
        waiter
    }

    /// Those that wait for a key, in the order in which they came.
    pub(crate) fn waiters(&self, place: &Place) -> Vec<Waiter> {
        self.lists().waiters.get(place).cloned().unwrap_or_default()
    }

    /// Takes a command out that was served, or gave up.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let mut lists = self.lists();
        for key in &*waiter.keys {
            let place = (waiter.database, key.clone());
            if let Some(waiters) = lists.waiters.get_mut(&place) {
                waiters.retain(|other| !Arc::ptr_eq(&other.is_over, &waiter.is_over));
                if waiters.is_empty() {
                    lists.waiters.remove(&place);
                }
            }
        }
        self.recount(&lists);
    }

    /// A transaction watches a key from now on.
    pub(crate) fn watch(&self, client: ClientId, place: Place, is_dirty: Arc<AtomicBool>) {
        let mut lists = self.lists();
        lists.watchers.entry(place).or_default().push((client, is_dirty));
        self.recount(&lists);
    }

    /// A client watches these keys no more.
    pub(crate) fn unwatch(&self, client: ClientId, places: &[Place]) {
        let mut lists = self.lists();
        for place in places {
            if let Some(watchers) = lists.watchers.get_mut(place) {
                watchers.retain(|(other, _)| *other != client);
                if watchers.is_empty() {
                    lists.watchers.remove(place);
                }
            }
        }
        self.recount(&lists);
    }

    /// Clients whose command waits.
    pub(crate) fn clients(&self) -> usize {
        let lists = self.lists();
        let clients = lists.waiters.values().flatten().map(|waiter| waiter.client);
        clients.collect::<std::collections::BTreeSet<_>>().len()
    }

    fn recount(&self, lists: &Lists) {
        self.count.store(lists.waiters.len() + lists.watchers.len(), Ordering::Release);
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
