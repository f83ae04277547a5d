//! Commands that wait for a key, and transactions that watch one.
//!
//! A command that finds nothing is entered here while it still holds the shards of all its keys. Whoever changes a key asks
//! here, while it holds the key's shard, whether somebody waits for it; if so it serves those that wait, after letting go of
//! its own shards: it takes the only [`Turn`], and runs their commands again one after another in the order in which they
//! came.
//!
//! No wake-up is lost. A change of a key is made either before the command that waits had its shards, and then the command
//! has seen it, or after the command let go of them, and then the command is entered and whoever makes the change is told
//! of it: both look at [`Waiting`] under the lock of the same shard, which orders them. That waiter is tried again after the
//! change, because a turn begins after the change that it is for, and waits for the turn that is under way. A try that finds
//! nothing holds all shards of the command as well, so a change that it did not see comes after it, with a turn of its own.
//!
//! Nobody is served twice. Four may end a wait: a turn, the deadline, the client that leaves, and one that releases it. Each must [`Waiter::claim`]
//! it before it does anything, and of several only one gets it. Only one turn is under way at a time, so turns never
//! compete among themselves; a turn gives its claim back if it finds nothing, and a deadline that has met one comes again.
//! After a wait has ended its claim is never given back, and the next wait of the same client has a claim of its own.
//!
//! First come, first served holds among those that wait. A command that comes between a change and its turn may be faster
//! and take what was put there; those that wait then go on waiting.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_wire::time::Instant;

use crate::client::ClientId;
use crate::client::card::{Card, Marks};
use crate::cluster::control::Ticket;
use crate::command::run;
use crate::command::spec::{Flags, table};
use crate::engine::Engine;
use crate::error::Error;
use crate::keyspace::{Kind, Slot};
use crate::replicate::Copied;
use crate::resp::{Protocol, Reply, Request};

/// A database and a key in it.
pub(crate) type Place = (usize, Box<[u8]>);

/// What a command that found nothing waits for.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Any of these keys.
    pub(crate) keys: Vec<Box<[u8]>>,
    /// What makes it run again.
    pub(crate) awaited: Awaited,
    /// Until then; nothing is for ever.
    pub(crate) deadline: Option<Instant>,
    /// What runs again, if not the command as it came.
    pub(crate) request: Option<Request>,
    /// It waits for this, and not for a key. It does not run again: the goal makes its reply.
    pub(crate) goal: Option<Goal>,
}

impl Wait {
    /// Waits for no key, but for something else.
    pub(crate) fn until(goal: Goal, deadline: Option<Instant>) -> Self {
        let awaited = Awaited { kind: Kind::Stream, or_gone: false };
        Self { keys: Vec::new(), awaited, deadline, request: None, goal: Some(goal) }
    }
}

/// What a command waits for that waits for no key. When the time is over it replies what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Replicas or the log have what the client wrote.
    Copied(Copied),
    /// This node knows that the slot is another's.
    Given(Slot),
    /// The process was to end, and goes on.
    CalledOff,
    /// It is known what has become of an order to the cluster.
    Ordered(Ticket),
}

impl Goal {
    fn is_reached(&self, engine: &Engine) -> bool {
        match self {
            Self::Copied(copied) => copied.is_reached(&engine.replication),
            Self::Given(slot) => !engine.map().is_some_and(|map| map.holds(*slot)),
            Self::CalledOff => engine.wants_stop().is_none(),
            Self::Ordered(ticket) => engine.cluster().is_none_or(|cluster| cluster.orders.is_done(*ticket)),
        }
    }

    fn reply(&self, engine: &Engine, reply: &mut Reply) {
        match self {
            Self::Copied(copied) => reply.raw(&copied.reply(&engine.replication)),
            // Its new owner has it, and will be heard of.
            Self::Given(_) => reply.ok(),
            Self::CalledOff => reply.error("ERR Errors trying to SHUTDOWN. Check logs."),
            Self::Ordered(ticket) => match engine.cluster().map_or(Ok(()), |cluster| cluster.orders.take(*ticket)) {
                Ok(()) => reply.ok(),
                Err(why) => reply.error(&format!("ERR {why}")),
            },
        }
    }
}

/// What must be behind a key for a command that waits for it to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Awaited {
    /// A value of this kind.
    pub(crate) kind: Kind,
    /// Or anything else: the command has to tell that the key is gone.
    pub(crate) or_gone: bool,
}

/// When a command began to wait, among all: who came first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Rank(u64);

/// A command that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) rank: Rank,
    pub(crate) awaited: Awaited,
    pub(crate) card: Arc<Card>,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) request: Arc<Request>,
    /// What makes its reply, if it waits for no key.
    pub(crate) goal: Option<Goal>,
    keys: Arc<[Box<[u8]>]>,
    /// Whoever sets it first may end the wait: a turn, the deadline, the client's leaving and [`Waiting::release`] compete.
    is_over: Arc<AtomicBool>,
    /// How it was to be released while a turn had the claim: 0 for not at all.
    wish: Arc<AtomicU8>,
}

/// What a client is told whose wait another client ends.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
/// What who waits is told when this server becomes a replica.
const ROLE_CHANGED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// How a wait ends that nobody serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Release {
    /// As if the time were over.
    TimeOver = 1,
    /// With an error.
    Error = 2,
    /// Without a reply: the client is gone.
    Gone = 3,
    /// With an error, since this server plays another part now. The client must go.
    RoleChanged = 4,
}

impl Waiter {
    /// Claims the right to serve it. At most one caller gets it.
    pub(crate) fn claim(&self) -> bool {
        !self.is_over.swap(true, Ordering::SeqCst)
    }

    /// Gives that right back. Says how the wait is to be released if that was wished meanwhile and the right is the caller's
    /// again.
    pub(crate) fn unclaim(&self) -> Option<Release> {
        self.is_over.store(false, Ordering::SeqCst);
        let wish = match self.wish.load(Ordering::SeqCst) {
            0 => return None,
            1 => Release::TimeOver,
            2 => Release::Error,
            4 => Release::RoleChanged,
            _ => Release::Gone,
        };
        self.claim().then_some(wish)
    }

    /// Whether it waits for what a replica can give too, and has said that it takes that; or for the end of the process, or for what
    /// becomes of an order, which may be the reason for which this server is a replica now.
    fn may_stay(&self) -> bool {
        if matches!(self.goal, Some(Goal::CalledOff | Goal::Ordered(_))) {
            return true;
        }
        let reads = table::find(&self.request.args()[0]).is_some_and(|found| !found.spec.flags.has(Flags::WRITE));
        self.goal.is_none() && reads && self.card.marks().has(Marks::READONLY)
    }

    /// The reply of a wait that nobody serves.
    fn leave_reply(&self, how: Release, engine: &Engine) {
        let mut reply = Reply::new(self.protocol);
        match how {
            Release::TimeOver => self.reply_in_vain(engine, &mut reply),
            Release::Error => self.refuse(&Error::new(UNBLOCKED), engine, &mut reply),
            Release::RoleChanged => self.refuse(&Error::new(ROLE_CHANGED), engine, &mut reply),
            Release::Gone => return,
        }
        self.card.mailbox.serve(reply.bytes());
        if how == Release::RoleChanged {
            self.card.mailbox.part();
        }
    }

    /// The reply when the time is over. The command is counted before anybody can see that it has ended.
    pub(crate) fn reply_in_vain(&self, engine: &Engine, reply: &mut Reply) {
        self.count(engine, false);
        match self.goal {
            Some(goal) => goal.reply(engine, reply),
            None => reply.null_array(),
        }
    }

    /// The reply of a command that waits no more, and was not tried again.
    fn refuse(&self, error: &Error, engine: &Engine, reply: &mut Reply) {
        self.count(engine, true);
        engine.count_error(error);
        reply.error(error.as_str());
    }

    fn count(&self, engine: &Engine, is_refused: bool) {
        let ready = run::find(engine, self.request.args()).expect("it was found before it waited");
        let counts_latency = engine.settings().logs.counts_latency;
        engine.statistics.count_ended(ready.command.number, is_refused, counts_latency);
    }
}

/// A transaction that watches a key.
type Watcher = (ClientId, Arc<AtomicBool>);

/// All that wait and watch.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// How many keys are waited for or watched: nearly always none, and then nobody locks.
    count: AtomicUsize,
    /// How many wait for no key.
    goals: AtomicUsize,
    lists: Mutex<Lists>,
    turn: Mutex<()>,
}

/// The right to serve those that wait. It is taken without any shard, and shards are locked under it.
#[derive(Debug)]
pub(crate) struct Turn<'w> {
    _held: MutexGuard<'w, ()>,
}

#[derive(Debug, Default)]
struct Lists {
    /// The rank of the last that came.
    last: Rank,
    /// Of one place: by rank. None is empty.
    waiters: BTreeMap<Place, BTreeMap<Rank, Waiter>>,
    /// Those that wait for no key.
    goals: BTreeMap<Rank, Waiter>,
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

    /// Keys of these databases that somebody watches.
    pub(crate) fn watched(&self, databases: &[usize]) -> Vec<Place> {
        self.lists().watchers.keys().filter(|(database, _)| databases.contains(database)).cloned().collect()
    }

    /// Keys of these databases that somebody waits for.
    pub(crate) fn waited_for(&self, databases: &[usize]) -> Vec<Place> {
        self.lists().waiters.keys().filter(|(database, _)| databases.contains(database)).cloned().collect()
    }

    /// Enters a command that found nothing. The shards of all its keys are held.
    pub(crate) fn enter(
        &self,
        client: (Arc<Card>, Protocol),
        database: usize,
        request: Request,
        wait: &Wait,
    ) -> Waiter {
        let (card, protocol) = client;
        let (request, is_over, wish) = (Arc::new(request), Arc::default(), Arc::default());
        let mut lists = self.lists();
        lists.last = Rank(lists.last.0 + 1);
        let (rank, keys, awaited) = (lists.last, wait.keys.clone().into(), wait.awaited);
        let goal = wait.goal;
        let waiter = Waiter { rank, awaited, card, database, protocol, request, goal, keys, is_over, wish };
        if goal.is_some() {
            lists.goals.insert(rank, waiter.clone());
        }
        for key in &*waiter.keys {
            lists.waiters.entry((database, key.clone())).or_default().insert(rank, waiter.clone());
        }
        self.recount(&lists);
        waiter
    }

    /// Takes the right to serve. The caller holds no shard.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { _held: self.turn.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Who came last of all so far.
    pub(crate) fn last(&self) -> Rank {
        self.lists().last
    }

    /// Who of those that wait for a key, and that `is_wanted`, came first after one rank and until another.
    pub(crate) fn next(
        &self,
        place: &Place,
        after: Rank,
        until: Rank,
        is_wanted: impl Fn(&Waiter) -> bool,
    ) -> Option<Waiter> {
        let lists = self.lists();
        let mut waiters = lists.waiters.get(place)?.range((Excluded(after), Included(until)));
        waiters.find(|(_, waiter)| is_wanted(waiter)).map(|(_, waiter)| waiter.clone())
    }

    /// Takes a command out whose wait has ended.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        let mut lists = self.lists();
        lists.goals.remove(&waiter.rank);
        for key in &*waiter.keys {
            let place = (waiter.database, key.clone());
            if let Some(waiters) = lists.waiters.get_mut(&place) {
                waiters.remove(&waiter.rank);
                if waiters.is_empty() {
                    lists.waiters.remove(&place);
                }
            }
        }
        self.recount(&lists);
    }

    /// Ends the wait of a client, or has it ended by the turn that is trying its command. Says whether the client waits.
    pub(crate) fn release(&self, client: ClientId, how: Release, engine: &Engine) -> bool {
        let waiter = {
            let lists = self.lists();
            let mut waiters = lists.waiters.values().flat_map(BTreeMap::values).chain(lists.goals.values());
            waiters.find(|waiter| waiter.card.id == client).cloned()
        };
        let Some(waiter) = waiter else { return false };
        waiter.wish.store(how as u8, Ordering::SeqCst);
        if waiter.claim() {
            self.end(&waiter, how, engine);
        }
        true
    }

    /// Ends the waits for a key that `verdict` refuses, with the error that it gives. It is shown the client's card, the first key and
    /// whether the command only reads. One whose command is being tried just now is left to that.
    pub(crate) fn refuse(&self, engine: &Engine, verdict: impl Fn(&Card, &[u8], bool) -> Option<Error>) {
        let waiters: BTreeMap<Rank, Waiter> = {
            let lists = self.lists();
            let waiters = lists.waiters.values().flat_map(BTreeMap::iter);
            waiters.map(|(rank, waiter)| (*rank, waiter.clone())).collect()
        };
        for waiter in waiters.values() {
            let Some(key) = waiter.keys.first() else { continue };
            let reads = table::find(&waiter.request.args()[0]).is_some_and(|found| !found.spec.flags.has(Flags::WRITE));
            let Some(error) = verdict(&waiter.card, key, reads) else { continue };
            if waiter.claim() {
                self.leave(waiter);
                let mut reply = Reply::new(waiter.protocol);
                waiter.refuse(&error, engine, &mut reply);
                waiter.card.mailbox.serve(reply.bytes());
            }
        }
    }

    /// Ends all waits: this server has become a replica.
    pub(crate) fn release_all(&self, engine: &Engine) {
        let clients: Vec<ClientId> = {
            let lists = self.lists();
            let waiters = lists.waiters.values().flat_map(BTreeMap::values).chain(lists.goals.values());
            // Who said READONLY, and only reads, may go on waiting.
            waiters.filter(|waiter| !waiter.may_stay()).map(|waiter| waiter.card.id).collect()
        };
        for client in clients {
            self.release(client, Release::RoleChanged, engine);
        }
    }

    /// Replicas, the log or the map have come further: serves those that waited for that.
    pub(crate) fn reached(&self, engine: &Engine) {
        if self.goals.load(Ordering::Acquire) == 0 {
            return;
        }
        let waiters: Vec<Waiter> = self.lists().goals.values().cloned().collect();
        for waiter in waiters {
            if waiter.goal.is_some_and(|goal| goal.is_reached(engine)) && waiter.claim() {
                self.end(&waiter, Release::TimeOver, engine);
            }
        }
    }

    /// Ends a wait that was claimed, without serving it.
    pub(crate) fn end(&self, waiter: &Waiter, how: Release, engine: &Engine) {
        self.leave(waiter);
        waiter.leave_reply(how, engine);
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

    /// Keys that are watched, that are waited for, and those of them that are waited for although nothing is behind them.
    pub(crate) fn places(&self) -> (usize, usize, usize) {
        let lists = self.lists();
        let or_gone = |waiters: &&BTreeMap<Rank, Waiter>| waiters.values().any(|waiter| waiter.awaited.or_gone);
        (lists.watchers.len(), lists.waiters.len(), lists.waiters.values().filter(or_gone).count())
    }

    /// Clients whose command waits.
    pub(crate) fn clients(&self) -> usize {
        let lists = self.lists();
        let waiters = lists.waiters.values().flat_map(BTreeMap::values).chain(lists.goals.values());
        let clients = waiters.map(|waiter| waiter.card.id);
        clients.collect::<std::collections::BTreeSet<_>>().len()
    }

    fn recount(&self, lists: &Lists) {
        self.goals.store(lists.goals.len(), Ordering::Release);
        self.count.store(lists.waiters.len() + lists.watchers.len(), Ordering::Release);
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
