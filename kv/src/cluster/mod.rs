//! The cluster, as one node's engine knows it: who owns which slot, where to send a client, and how to ask for changes.
//!
//! The engine decides nothing here. Whoever runs it gives it a [`Map`], a value, each time something has changed, and takes
//! [`Order`](control::Order)s through [`Control`]. An engine without a cluster has none of this: it owns every slot.
//!
//! In reading order: [`map`] (nodes, slots, one view of both), [`control`] (what clients may ask of the cluster), `route` (whether
//! a call may run here, and what a client is told if not), `moves` (slots on their way from one node to another, key by
//! key), `orders` (orders that are not done yet), [`migration`] (slots that go to another node whole).
//!
//! Words: what the rest of the program calls a server's engine is a *node* here, as clients call it, and a replica group a
//! *shard* where clients read it.
//!
//! Fencing
//! - A session looks at the map before a call runs, and again, at its version alone, once the call's keys are locked.
//! - [`Engine::set_map`] returns when no call runs any more that was let through by an earlier map. So whoever takes slots away
//!   from an engine knows that nothing is written to them afterwards.

pub mod control;
pub mod map;
pub mod migration;
mod moves;
pub(crate) mod orders;
pub(crate) mod route;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use ashlar_wire::time::Instant;

use crate::client::pause::Scope;
use crate::command::run;
use crate::engine::Engine;
use crate::keyspace::{Lock, Slot};
use crate::persist::journal::Written;
use crate::resp::Reply;
use crate::settings::{Settings, parameter};
use crate::time::Now;
use control::Control;
use map::{Map, Place};
pub(crate) use moves::{Move, Moves};
use orders::Orders;

/// What an engine knows of its cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    map: RwLock<Arc<Map>>,
    /// Grows with every map.
    version: AtomicU64,
    pub(crate) moves: Moves,
    pub(crate) control: Box<dyn Control>,
    pub(crate) orders: Orders,
}

impl Cluster {
    fn new(map: Map, control: Box<dyn Control>) -> Self {
        Self {
            map: RwLock::new(Arc::new(map)),
            version: AtomicU64::new(1),
            moves: Moves::default(),
            control,
            orders: Orders::default(),
        }
    }

    /// The present map.
    pub(crate) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Which map is the present one.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

/// The map as one client last looked at it.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    map: Option<Arc<Map>>,
    version: u64,
}

impl Sight {
    /// Looks at the present map.
    pub(crate) fn look(&mut self, cluster: &Cluster) {
        // The version first: a map that comes between the two is looked at again.
        self.version = cluster.version();
        self.map = Some(cluster.map());
    }

    /// What was seen.
    ///
    /// # Panics
    /// Nobody has looked.
    #[inline]
    pub(crate) fn map(&self) -> &Map {
        self.map.as_deref().expect("whoever asks has looked")
    }

    /// What was seen, if anything was.
    pub(crate) fn seen(&self) -> Option<&Map> {
        self.map.as_deref()
    }

    /// Whether the map is still the one that was looked at.
    #[inline]
    pub(crate) fn is_fresh(&self, cluster: &Cluster) -> bool {
        self.version == cluster.version() && self.map.is_some()
    }
}

/// What a node tells all others of itself, as its settings say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Announcement {
    /// Its address (`cluster-announce-ip`); empty for that which others see.
    pub host: String,
    /// The name of its machine (`cluster-announce-hostname`).
    pub hostname: String,
    /// What people call it (`cluster-announce-human-nodename`).
    pub nickname: String,
    /// Its port without TLS; 0 for none.
    pub port: u16,
    /// Its port with TLS; 0 for none.
    pub tls_port: u16,
    /// It stands in no ballot (`cluster-replica-no-failover`).
    pub never_stands: bool,
}

impl Announcement {
    /// Where clients reach the node, and other nodes at `bus_port`.
    #[must_use]
    pub fn place(&self, bus_port: u16) -> Place {
        Place {
            host: self.host.clone(),
            hostname: self.hostname.clone(),
            port: self.port,
            tls_port: self.tls_port,
            bus_port,
        }
    }
}

impl Engine {
    /// The engine is a node of a cluster from now on: it serves the slots that a map gives it, and no others. To be called once,
    /// before anybody is served.
    ///
    /// # Panics
    /// It is one already.
    pub fn join_cluster(&self, map: Map, control: Box<dyn Control>) {
        let joined = self.cluster.set(Cluster::new(map, control));
        assert!(joined.is_ok(), "an engine joins one cluster");
    }

    /// Its cluster, if it is a node of one.
    #[inline]
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    /// What the engine knows of its cluster now, if it is a node of one.
    #[must_use]
    pub fn map(&self) -> Option<Arc<Map>> {
        self.cluster().map(Cluster::map)
    }

    /// The cluster is this from now on. When it returns, no call runs any more that an earlier map has let through, and clients
    /// that waited for keys of slots that are served elsewhere were sent there. Keys of slots that this node has given up stay
    /// until somebody removes them.
    ///
    /// # Panics
    /// The engine is no node of a cluster.
    pub fn set_map(&self, map: Map, now: Now) {
        let cluster = self.cluster().expect("it has joined a cluster");
        // Nobody writes to what may have been given away, from the first moment on in which it is served.
        self.migration.hold.doubt(self.migration.copies.doubtful(&map));
        let map = Arc::new(map);
        let before =
            std::mem::replace(&mut *cluster.map.write().unwrap_or_else(PoisonError::into_inner), Arc::clone(&map));
        cluster.version.fetch_add(1, Ordering::AcqRel);
        self.rest.end();
        self.migration.wake();
        cluster.moves.settle(&map);
        self.waiting.reached(self);
        let clock = run::access(&self.settings(), now);
        drop(self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock));
        if before.differs_in_service(&map) {
            self.send_away_waiters(cluster, &map);
            self.end_shard_subscriptions(&map);
            let owner = |map: &Map, slot| map.owner(slot).map(|node| node.name);
            self.statistics.slots.reset(|slot| owner(&before, slot) != owner(&map, slot));
        }
        self.migration.hold.look_again();
        self.migration.wake();
    }

    /// The slots of the primary that this node follows are about to come here: clients that would be sent to that one wait, until a map says
    /// that the slots are here or another's, or until this time. With `None`, they wait no more.
    pub fn expect_slots(&self, until: Option<Instant>) {
        let primary = self.map().and_then(|map| map.own().primary);
        self.migration.hold.expect(primary.zip(until));
    }

    /// Clients that wait for keys which are served elsewhere now are told where.
    fn send_away_waiters(&self, cluster: &Cluster, map: &Map) {
        self.waiting.refuse(self, |card, key, reads| {
            let verdict = route::of_waiting(cluster, map, Slot::of(key), reads);
            verdict.err().map(|astray| astray.error(map, &card.link, &self.settings()))
        });
    }

    /// Somebody has published a message at another node: subscribers get it, or those of a shard channel if `is_sharded`.
    pub fn hear(&self, channel: &[u8], message: &[u8], is_sharded: bool) {
        if is_sharded {
            self.hear_shard(&self.settings(), channel, message);
        } else {
            self.pubsub.publish(channel, message);
        }
    }

    /// Leaves a message for all who listen to a shard channel here. Returns how many that are.
    pub(crate) fn hear_shard(&self, settings: &Settings, channel: &[u8], message: &[u8]) -> usize {
        let (count, bytes) = self.pubsub.publish_shard(channel, message);
        if settings.logs.counts_slots && bytes > 0 && self.cluster().is_some() {
            self.statistics.slots.add_out(Slot::of(channel), bytes);
        }
        count
    }

    /// Whether any client subscribes to anything.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.pubsub.is_heard()
    }

    /// Subscriptions to shard channels end with the slots that they belong to.
    fn end_shard_subscriptions(&self, map: &Map) {
        for (name, subscribers) in self.pubsub.take_shard_channels(|name| !map.serves(Slot::of(name))) {
            for (mailbox, left) in subscribers {
                let mut reply = Reply::new(mailbox.protocol());
                reply.push(3);
                reply.bulk(b"sunsubscribe");
                reply.bulk(&name);
                reply.count(left);
                mailbox.put(reply.bytes());
            }
        }
    }

    /// What the settings say of this node.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        let text = |name: &str| self.setting(name);
        let port = |announced: &str, own: &str| {
            let number = |name: &str| text(name).parse::<u16>().ok().filter(|port| *port > 0);
            number(announced).or_else(|| number(own)).unwrap_or(0)
        };
        Announcement {
            host: text("cluster-announce-ip"),
            hostname: text("cluster-announce-hostname"),
            nickname: text("cluster-announce-human-nodename"),
            port: port("cluster-announce-port", "port"),
            tls_port: port("cluster-announce-tls-port", "tls-port"),
            never_stands: text("cluster-replica-no-failover") == "yes",
        }
    }

    /// Whether slots without an owner stop all service (`cluster-require-full-coverage`).
    #[must_use]
    pub fn needs_all_slots(&self) -> bool {
        self.setting("cluster-require-full-coverage") == "yes"
    }

    /// How long replicas may take to take over before the process ends.
    #[must_use]
    pub fn shutdown_timeout(&self) -> Duration {
        Duration::from_secs(self.setting("shutdown-timeout").parse().unwrap_or_default())
    }

    /// A parameter's text.
    fn setting(&self, name: &str) -> String {
        let found = parameter::find(name.as_bytes()).expect("the table has it");
        String::from_utf8_lossy(&found.show(&self.settings())).into_owned()
    }

    /// Nothing is written for so long, or until [`Engine::release_writes`]: clients wait. When this returns, no write is under way.
    pub fn hold_writes(&self, span: Duration, now: Now) {
        let span_ms = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        self.pause.begin(Scope::Writes, now.milliseconds().saturating_add(span_ms), now.milliseconds());
        self.rest.end();
        let clock = run::access(&self.settings(), now);
        drop(self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock));
    }

    /// Ends what [`Engine::hold_writes`] began.
    pub fn release_writes(&self) {
        self.pause.end();
    }

    /// How far the data go: the position in the stream of the shard. Nothing while they are not whole.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        let (position, is_whole) = self.replication.whole();
        (is_whole || !self.role.is_replica()).then_some(position)
    }

    /// Whether all replicas that follow the stream have said that they have it up to this position. They are asked if they have not: the
    /// question is a part of the stream, which the next primary need not have.
    #[must_use]
    pub fn is_replicated(&self, position: u64) -> bool {
        let has_all = self.replication.have_all(position);
        if !has_all {
            self.replication.ask();
        }
        has_all
    }

    /// Removes all keys, and tells the log and replicas.
    pub fn purge(&self, now: Now) {
        self.end_migrations_flushed(now);
        // Held until the log has it.
        let _keys = self.forget_keys(now);
        if self.is_heard() {
            let mut written = Written::default();
            written.push(0, [&b"FLUSHALL"[..]].into_iter());
            self.append(&written, false, now.unix_ms());
        }
    }

    /// Whether there are no keys at all.
    pub(crate) fn is_empty(&self) -> bool {
        let databases = self.keyspace.databases();
        (0..self.keyspace.shards()).all(|number| {
            let shard = self.keyspace.shard(number);
            (0..databases).all(|database| shard.keys(database) == 0)
        })
    }

    /// Whether any database has keys of a slot.
    pub(crate) fn has_keys_in(&self, slot: Slot) -> bool {
        let shard = self.keyspace.shard(self.keyspace.shard_of(slot));
        (0..self.keyspace.databases()).any(|database| shard.keys_in_slot(database, slot.index()) > 0)
    }
}
