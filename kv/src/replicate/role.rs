//! Which part this server plays: a primary, or a replica that follows another server.
//!
//! The role changes while all shards are held, so that no command runs half as the one and half as the other. Each change begins a
//! new turn; the thread that keeps the link to the primary acts for one turn, and whatever it does for an older one comes to nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::relay::Point;
use crate::client::Client;
use crate::cluster::map::Name;
use crate::command::run::access;
use crate::engine::Engine;
use crate::keyspace::{Keys, Lock};
use crate::notify::Notify;
use crate::settings::Settings;
use crate::time::Now;

/// How much longer than the period of a primary's PINGs it may be silent before its replica's copy ages.
const SILENCE_SLACK: Duration = Duration::from_secs(2);

/// Where a primary is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// At an address, for plain connections.
    Address {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A server of the same cluster, which the program knows how to reach.
    Server {
        /// Which one.
        id: ServerId,
        /// The address that clients are told.
        host: String,
        /// Its port.
        port: u16,
    },
}

impl Upstream {
    /// Whether the connection itself proves who we are, so that no password is said.
    #[must_use]
    pub const fn proves_us(&self) -> bool {
        matches!(self, Self::Server { .. })
    }

    /// The address that clients are told.
    #[must_use]
    pub fn place(&self) -> (&str, u16) {
        match self {
            Self::Address { host, port } | Self::Server { host, port, .. } => (host, *port),
        }
    }
}

/// How far the link to the primary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LinkState {
    /// There is no primary.
    #[default]
    None,
    /// There is no connection.
    Connect,
    /// A connection is being made.
    Connecting,
    /// Both sides introduce themselves.
    Handshake,
    /// A dump is on its way, or being read.
    Sync,
    /// What the primary does is done here too.
    Connected,
}

impl LinkState {
    /// As ROLE tells it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Connect => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }
}

/// What is known of the link.
#[derive(Debug, Clone, Default)]
pub(crate) struct LinkView {
    pub(crate) upstream: Option<Upstream>,
    pub(crate) state: LinkState,
    /// Since when it is down, in seconds of the monotonic clock, if it was ever up.
    pub(crate) down_since_s: Option<i64>,
    /// When something last came, in seconds of the monotonic clock.
    pub(crate) heard_s: i64,
    /// Position behind what was read, of which the last part may not be applied yet.
    pub(crate) read: u64,
    /// Bytes of the dump, if known, and those that have come.
    pub(crate) dump: (u64, u64),
    /// The whole copy of a primary's data that came in this life of the process and is still here.
    pub(crate) copy: Option<WholeCopy>,
}

/// A whole copy of a primary's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WholeCopy {
    /// Of which shard, in a cluster.
    pub(crate) shard: Option<Name>,
    /// When something last came from the primary.
    pub(crate) heard: Instant,
}

/// What a replica has of its primary's data, for whoever decides whether it may become primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CopyStatus {
    /// No whole copy came in this life of the process.
    #[default]
    Missing,
    /// Whole, and the primary is heard.
    Current,
    /// Whole as of then: the primary was not heard since.
    Since(Instant),
}

/// How a replica's link to its primary is, for whoever has to choose among replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkStatus {
    /// What the primary does is done here too.
    pub is_up: bool,
    /// A dump is on its way, or being read.
    pub is_syncing: bool,
    /// When something last came from the primary, in seconds of the monotonic clock; 0 for never.
    pub heard_s: i64,
    /// Since when the link is down, in seconds of the monotonic clock, if it was up before.
    pub down_since_s: Option<i64>,
}

/// The role.
#[derive(Debug, Default)]
pub(crate) struct Role {
    turn: AtomicU64,
    is_replica: AtomicBool,
    is_linked: AtomicBool,
    view: Mutex<LinkView>,
    /// Wakes the task that keeps the link to the primary.
    changed: Notify,
}

/// What a promotion found, or would have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turned {
    /// Position of the stream at which the role changed.
    pub position: u64,
    /// What the history is called from there on.
    pub history: String,
    /// The data are those of the position. They are not where a dump from the primary was being read, or could not be.
    pub is_whole: bool,
}

impl Role {
    /// Whether this server follows another.
    #[inline]
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Acquire)
    }

    /// Whether what the primary does is done here too.
    #[inline]
    pub(crate) fn is_linked(&self) -> bool {
        self.is_linked.load(Ordering::Acquire)
    }

    /// Which turn it is.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// What is known of the link.
    pub(crate) fn view(&self) -> LinkView {
        self.lock().clone()
    }

    /// Changes what is known of the link, if it is still this turn.
    pub(crate) fn note(&self, turn: u64, change: impl FnOnce(&mut LinkView)) {
        let mut view = self.lock();
        if self.turn() == turn {
            change(&mut view);
            self.is_linked.store(view.state == LinkState::Connected, Ordering::Release);
        }
    }

    /// The link is gone.
    pub(super) fn note_down(&self, turn: u64, now_s: i64) {
        self.note(turn, |view| {
            if view.state == LinkState::Connected {
                view.down_since_s = Some(now_s);
            }
            view.state = LinkState::Connect;
        });
    }

    fn change(&self, upstream: Option<Upstream>) {
        let mut view = self.lock();
        self.is_replica.store(upstream.is_some(), Ordering::Release);
        self.is_linked.store(false, Ordering::Release);
        self.turn.fetch_add(1, Ordering::AcqRel);
        let state = if upstream.is_some() { LinkState::Connect } else { LinkState::None };
        // What a primary has is no copy; a replica keeps its own while it changes over to another primary.
        let copy = view.copy.filter(|_| view.upstream.is_some() && upstream.is_some());
        *view = LinkView { upstream, state, copy, ..LinkView::default() };
        drop(view);
        self.changed.notify();
    }

    /// Ready once the role has changed since this was last ready. One task asks.
    pub(super) fn poll_changed(&self, cx: &Context<'_>) -> Poll<()> {
        self.changed.poll_notified(cx)
    }

    fn lock(&self) -> MutexGuard<'_, LinkView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Follows another server from now on, or nobody any more. What was received whole before is applied before this
    /// returns, and the part of a transaction that came is dropped. As a primary it begins a history of its own there; those that
    /// followed the former one may go on with it up to that position.
    ///
    /// Where that is so already, nothing changes.
    pub fn follow(&self, upstream: Option<Upstream>, now: Now) -> Turned {
        self.rest.end();
        let mut following = self.following.lock();
        let clock = access(&self.settings(), now);
        let keys = self.keyspace.lock(Lock::Everything, 0, now.unix_ms(), clock);
        let turned = self.change_role(upstream, &keys, now);
        drop(keys);
        self.end_old_link(&mut following, now);
        turned
    }

    /// Whether clients are not to be given what is there, because it may be too old.
    #[inline]
    pub(crate) fn is_stale(&self, settings: &Settings) -> bool {
        !settings.replication.serves_stale && self.role.is_replica() && !self.role.is_linked()
    }

    /// Whether a client may not write here.
    #[inline]
    pub(crate) fn refuses_writes(&self, settings: &Settings, client: &Client) -> bool {
        self.role.is_replica() && settings.replication.is_read_only && !client.is_primary
    }

    /// Follows whom the settings say, from the start: what is on files was read, and nobody is served yet.
    pub fn follow_as_configured(&self, now: Now) {
        let configured = self.settings().replication.upstream.clone();
        if let Some((host, port)) = configured.split_once(' ') {
            let port = port.parse().expect("the form has checked it");
            self.follow(Some(Upstream::Address { host: host.to_owned(), port }), now);
        }
    }

    /// A dump that was read at the start has the data of this point.
    pub fn restore_point(&self, point: &Point, now: Now) {
        self.replication.restore(point, &self.identity, [self.draw(), self.draw()], now);
    }

    /// How the link to the primary is; nothing if nobody is followed.
    #[must_use]
    pub fn link_status(&self) -> Option<LinkStatus> {
        let LinkView { upstream, state, down_since_s, heard_s, .. } = self.role.view();
        let (is_up, is_syncing) = (state == LinkState::Connected, state == LinkState::Sync);
        upstream.map(|_| LinkStatus { is_up, is_syncing, heard_s, down_since_s })
    }

    /// What this replica has of its primary's data. A silence of up to `repl-ping-replica-period` and two seconds is none.
    #[must_use]
    pub fn copy_status(&self, now: Instant) -> CopyStatus {
        let shard = self.map().map(|map| map.own().shard);
        self.copy_status_in(shard, now)
    }

    /// What this server has of the data of a shard, if it follows its primary still.
    pub(super) fn copy_status_of(&self, shard: Name, now: Instant) -> CopyStatus {
        self.copy_status_in(Some(shard), now)
    }

    fn copy_status_in(&self, shard: Option<Name>, now: Instant) -> CopyStatus {
        let LinkView { state, copy, .. } = self.role.view();
        let Some(copy) = copy.filter(|copy| copy.shard == shard) else { return CopyStatus::Missing };
        let patience = Duration::from_secs(self.settings().replication.ping_s.unsigned_abs()) + SILENCE_SLACK;
        if state == LinkState::Connected && now.saturating_since(copy.heard) <= patience {
            return CopyStatus::Current;
        }
        CopyStatus::Since(copy.heard)
    }

    /// The point of a history that the data are at, if they are at one: a replica has it from its primary, a primary has one as
    /// long as it keeps a stream for replicas. As of some moment of the call.
    #[must_use]
    pub fn point(&self) -> Option<Point> {
        self.replication.point(&self.identity)
    }

    /// Keys came from elsewhere: the data are those of no point. Nobody is served yet.
    pub fn forget_point(&self) {
        self.replication.forget(self.role.turn());
    }

    /// Whom this server follows.
    #[must_use]
    pub fn upstream(&self) -> Option<Upstream> {
        self.role.view().upstream
    }

    /// The same for who holds all keys; what was received and is not applied yet is dropped.
    pub(crate) fn change_role(&self, upstream: Option<Upstream>, _all: &Keys<'_>, now: Now) -> Turned {
        let was_replica = self.role.is_replica();
        let becomes_replica = upstream.is_some();
        if upstream != self.upstream() {
            let shown = upstream.as_ref().map(Upstream::place).map(|(host, port)| format!("{host} {port}"));
            // Sessions look at the settings, and so at what they may do, before their next request.
            self.change_settings(|settings| settings.replication.upstream = shown.unwrap_or_default());
            self.role.change(upstream);
            let turn = self.role.turn();
            match (was_replica, becomes_replica) {
                (_, true) => self.replication.begin_relay(turn, &self.identity),
                _ => self.replication.end_relay(turn, &self.identity, [self.draw(), self.draw()], now),
            }
        }
        // In a cluster they are sent to where their keys are.
        if becomes_replica && !was_replica && !self.failover.is_on() && self.cluster().is_none() {
            self.waiting.release_all(self);
        }
        let (position, is_whole) = self.replication.whole();
        Turned { position, history: self.identity.history(), is_whole: is_whole || !was_replica }
    }
}
