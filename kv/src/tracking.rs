//! Which clients have read which keys, and telling them when a key has changed (`CLIENT TRACKING`).
//!
//! A client that tracks either has its reads remembered, key by key, and is told once of the next change of each; or it names
//! prefixes and is told of every change below them. Keys are those of all databases together, as with Valkey.
//!
//! Remembering and telling happen while the key's shard is locked, so a client is told of every change that its read has not
//! seen. The table is cut into [`STRIPES`] by the key, so that clients on several cores seldom wait for each other. While
//! nobody tracks, a change costs one relaxed load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::ClientId;
use crate::client::card::{Card, Figure, Marks};
use crate::engine::Engine;
use crate::keyspace::Slot;
use crate::resp::{Protocol, Reply};

/// Parts of the table.
const STRIPES: usize = 64;
/// Keys that are forgotten at once when there are too many.
const FORGOTTEN_AT_ONCE_MAX: usize = 100;
/// Where clients that speak RESP2 hear of changes.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// How a client tracks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Who is told instead of the client itself.
    pub(crate) redirect: Option<ClientId>,
    /// Only keys that were read after `CLIENT CACHING YES`.
    pub(crate) opt_in: bool,
    /// Not those that were read after `CLIENT CACHING NO`.
    pub(crate) opt_out: bool,
    /// Not of its own changes.
    pub(crate) no_loop: bool,
    /// All keys below these; nothing where reads are remembered.
    pub(crate) prefixes: Option<BTreeSet<Box<[u8]>>>,
    /// `CLIENT CACHING` was said just before.
    pub(crate) is_caching_said: bool,
}

impl Mode {
    /// Whether the next read is to be remembered.
    pub(crate) fn remembers(&self) -> bool {
        self.prefixes.is_none() && (!self.opt_in || self.is_caching_said) && !(self.opt_out && self.is_caching_said)
    }
}

/// All clients that track, and what they have read.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// How many track: nearly always none, and then nobody locks.
    count: AtomicUsize,
    stripes: [Mutex<Stripe>; STRIPES],
    /// Keys that somebody has read.
    keys: AtomicUsize,
    /// Pairs of a key and a client that has read it.
    items: AtomicUsize,
    trackers: Mutex<Trackers>,
    /// Which stripe is asked to forget next.
    next: AtomicUsize,
}

/// Who has read what. Clients that do not track any more are forgotten with their keys.
type Stripe = BTreeMap<Box<[u8]>, BTreeSet<ClientId>>;

#[derive(Debug, Default)]
struct Trackers {
    clients: BTreeMap<ClientId, Tracker>,
    prefixes: BTreeMap<Box<[u8]>, BTreeSet<ClientId>>,
}

#[derive(Debug, Clone)]
struct Tracker {
    card: Arc<Card>,
    redirect: Option<ClientId>,
    no_loop: bool,
    is_broadcast: bool,
}

/// What clients are told.
#[derive(Debug, Clone, Copy)]
enum News<'n> {
    /// These keys have changed.
    Keys(&'n [&'n [u8]]),
    /// All keys have.
    Everything,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            stripes: std::array::from_fn(|_| Mutex::default()),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            trackers: Mutex::default(),
            next: AtomicUsize::new(0),
        }
    }
}

impl Tracking {
    /// Whether anybody tracks.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// How many clients track, and of what is remembered: keys, pairs of key and client, prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let (keys, items) = (self.keys.load(Ordering::Relaxed), self.items.load(Ordering::Relaxed));
        [self.count.load(Ordering::Relaxed), keys, items, self.trackers().prefixes.len()]
    }

    /// A client tracks from now on, or in another way.
    pub(crate) fn begin(&self, card: &Arc<Card>, mode: &Mode) {
        let mut trackers = self.trackers();
        card.set(Figure::IsRedirectBroken, 0);
        let tracker = Tracker {
            card: Arc::clone(card),
            redirect: mode.redirect,
            no_loop: mode.no_loop,
            is_broadcast: mode.prefixes.is_some(),
        };
        trackers.clients.insert(card.id, tracker);
        for prefix in mode.prefixes.iter().flatten() {
            trackers.prefixes.entry(prefix.clone()).or_default().insert(card.id);
        }
        self.count.store(trackers.clients.len(), Ordering::Relaxed);
    }

    /// A client tracks no more. What it has read is forgotten when it changes.
    pub(crate) fn end(&self, client: ClientId) {
        let mut trackers = self.trackers();
        if let Some(tracker) = trackers.clients.remove(&client) {
            tracker.card.set(Figure::IsRedirectBroken, 0);
        }
        trackers.prefixes.retain(|_, clients| {
            clients.remove(&client);
            !clients.is_empty()
        });
        self.count.store(trackers.clients.len(), Ordering::Relaxed);
    }

    /// A client has read a key. Its shard is locked.
    pub(crate) fn remember(&self, key: &[u8], client: ClientId) {
        let mut stripe = self.stripe(stripe_of(key));
        if !stripe.contains_key(key) {
            stripe.insert(key.into(), BTreeSet::new());
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        if stripe.get_mut(key).is_some_and(|clients| clients.insert(client)) {
            self.items.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets who has read a key.
    fn forget(&self, key: &[u8]) -> BTreeSet<ClientId> {
        let clients = self.stripe(stripe_of(key)).remove(key).unwrap_or_default();
        if !clients.is_empty() {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.items.fetch_sub(clients.len(), Ordering::Relaxed);
        }
        clients
    }

    /// Some key of the next stripe that has any.
    fn some_key(&self) -> Option<Box<[u8]>> {
        (0..STRIPES).find_map(|_| {
            let number = self.next.fetch_add(1, Ordering::Relaxed) % STRIPES;
            self.stripe(number).keys().next().cloned()
        })
    }

    /// Those of these clients that are told of a change that `changer` made to a key which they have read.
    fn readers(&self, clients: &BTreeSet<ClientId>, changer: Option<ClientId>) -> Vec<Tracker> {
        let trackers = self.trackers();
        let found = clients.iter().filter_map(|client| trackers.clients.get(client));
        let is_told =
            |tracker: &&Tracker| !(tracker.is_broadcast || tracker.no_loop && changer == Some(tracker.card.id));
        found.filter(is_told).cloned().collect()
    }

    fn stripe(&self, number: usize) -> MutexGuard<'_, Stripe> {
        self.stripes[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trackers(&self) -> MutexGuard<'_, Trackers> {
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stripe_of(key: &[u8]) -> usize {
    Slot::of(key).index() % STRIPES
}

impl Engine {
    /// A key has changed: who has read it is told. Its shard is locked.
    pub(crate) fn invalidate(&self, key: &[u8], changer: Option<ClientId>) {
        let clients = self.tracking.forget(key);
        for tracker in self.tracking.readers(&clients, changer) {
            self.tell(&tracker, News::Keys(&[key]));
        }
    }

    /// Keys have changed, each by whom: who listens to a prefix of theirs is told, in one message for each prefix.
    pub(crate) fn broadcast(&self, changes: &[(Box<[u8]>, Option<ClientId>)]) {
        // Of several changes of one key the last holds.
        let changes: BTreeMap<&[u8], Option<ClientId>> = changes.iter().map(|(key, who)| (&**key, *who)).collect();
        let mut news = Vec::new();
        {
            let trackers = self.tracking.trackers();
            for (prefix, clients) in &trackers.prefixes {
                for tracker in clients.iter().filter_map(|client| trackers.clients.get(client)) {
                    let is_own = |who: Option<ClientId>| tracker.no_loop && who == Some(tracker.card.id);
                    let below = changes.iter().filter(|(key, who)| key.starts_with(prefix) && !is_own(**who));
                    let keys: Vec<&[u8]> = below.map(|(key, _)| *key).collect();
                    if !keys.is_empty() {
                        news.push((tracker.clone(), keys));
                    }
                }
            }
        }
        news.iter().for_each(|(tracker, keys)| self.tell(tracker, News::Keys(keys)));
    }

    /// A key is gone that nobody's command has changed: it has expired or was evicted. Its shard is locked.
    pub(crate) fn invalidate_gone(&self, key: &[u8]) {
        if self.tracking.is_on() {
            self.invalidate(key, None);
            self.broadcast(&[(key.into(), None)]);
        }
    }

    /// All keys have changed.
    pub(crate) fn invalidate_all(&self) {
        // Keys that somebody read who tracks no more are remembered still.
        if !self.tracking.is_on() && self.tracking.keys.load(Ordering::Relaxed) == 0 {
            return;
        }
        let trackers: Vec<Tracker> = self.tracking.trackers().clients.values().cloned().collect();
        for number in 0..STRIPES {
            let stripe = std::mem::take(&mut *self.tracking.stripe(number));
            self.tracking.keys.fetch_sub(stripe.len(), Ordering::Relaxed);
            self.tracking.items.fetch_sub(stripe.values().map(BTreeSet::len).sum(), Ordering::Relaxed);
        }
        trackers.iter().for_each(|tracker| self.tell(tracker, News::Everything));
    }

    /// Forgets keys until there are not more than `keys_max`, and tells who has read them as if they had changed.
    pub(crate) fn limit_tracking(&self, keys_max: usize) {
        for _ in 0..FORGOTTEN_AT_ONCE_MAX {
            if keys_max == 0 || self.tracking.keys.load(Ordering::Relaxed) <= keys_max {
                return;
            }
            let Some(key) = self.tracking.some_key() else { return };
            self.invalidate(&key, None);
        }
    }

    /// Tells a client, or whom it has named instead.
    fn tell(&self, tracker: &Tracker, news: News<'_>) {
        let own = &tracker.card.mailbox;
        let Some(redirect) = tracker.redirect else {
            if own.protocol() == Protocol::Resp3 {
                own.put(message(Protocol::Resp3, own.protocol(), news).bytes());
            }
            return;
        };
        let Some(other) = self.clients.get(redirect) else {
            tracker.card.set(Figure::IsRedirectBroken, 1);
            if own.protocol() == Protocol::Resp3 {
                let mut reply = Reply::new(Protocol::Resp3);
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(i64::try_from(redirect.0).unwrap_or(i64::MAX));
                own.put(reply.bytes());
            }
            return;
        };
        let protocol = other.mailbox.protocol();
        if protocol == Protocol::Resp3 || other.marks().has(Marks::PUBSUB) {
            other.mailbox.put(message(protocol, own.protocol(), news).bytes());
        }
    }
}

/// A message for a client that speaks `protocol`. What stands for everything is in the protocol of the client that tracks.
fn message(protocol: Protocol, tracker: Protocol, news: News<'_>) -> Reply {
    let mut reply = Reply::new(protocol);
    if protocol == Protocol::Resp3 {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(CHANNEL);
    }
    match news {
        News::Keys(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
        News::Everything => {
            reply.set_protocol(tracker);
            reply.null();
        }
    }
    reply
}
