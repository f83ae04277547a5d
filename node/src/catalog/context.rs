//! What the parts of the catalog service have in common: the catalog once it has begun, who is alive, who departs, reports.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ashlar_catalog::raft::catalog::{Catalog, Error};
use ashlar_catalog::raft::host::{Host, Storage};
use ashlar_wire::id::ServerId;
use ashlar_wire::time::Instant;

use super::CatalogOptions;
use super::departures::Departures;
use super::host::Peers;
use super::notify::Notify;
use super::reports::Reports;
use super::shared::SharedQuestion;

/// A member of the bus, as the reconciler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Where it is reached.
    pub(super) address: String,
    /// Number of its zone.
    pub(super) zone: u32,
    /// It has not failed and has not left.
    pub(super) is_alive: bool,
    /// Since when that is so, as far as this server knows.
    pub(super) since: Instant,
}

/// The members of the bus.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    pub(super) seen: BTreeMap<ServerId, Seen>,
    /// Forgotten in this life of this server, and not back since.
    pub(super) forgotten: BTreeSet<ServerId>,
}

impl Members {
    /// The servers that are alive since so long.
    pub(super) fn alive_for(&self, span: Duration, now: Instant) -> BTreeSet<ServerId> {
        let is_alive = |seen: &Seen| seen.is_alive && seen.since + span <= now;
        self.seen.iter().filter(|(_, seen)| is_alive(seen)).map(|(id, _)| *id).collect()
    }

    pub(super) fn failed(&self) -> BTreeSet<ServerId> {
        self.seen.iter().filter(|(_, seen)| !seen.is_alive).map(|(id, _)| *id).collect()
    }

    /// Whether the server is known to have failed, or to have left, since so long.
    pub(super) fn is_gone_for(&self, server: ServerId, span: Duration, now: Instant) -> bool {
        self.seen.get(&server).is_some_and(|seen| !seen.is_alive && seen.since + span <= now)
    }
}

/// How the catalog of this server stands.
#[derive(Clone, Default)]
pub(super) enum Begun {
    /// It has not begun yet.
    #[default]
    NotYet,
    /// It runs, or has run and failed: it says so itself.
    Running(Catalog),
    /// It could not begin.
    Failed(Error),
}

/// The world and this server's place in it; set once, when the service starts.
pub(super) struct Place {
    pub(super) me: ServerId,
    pub(super) host: Arc<dyn Host>,
    pub(super) peers: Arc<dyn Peers>,
}

/// See the head of this file.
pub(super) struct CatalogContext {
    pub(super) options: CatalogOptions,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) place: OnceLock<Place>,
    begun: Mutex<Begun>,
    /// NotifyState when the catalog has begun, or could not, and when the service closes.
    pub(super) beginning: Notify,
    /// How far the log is decided.
    pub(super) catching_up: SharedQuestion,
    /// NotifyState when there is something for the reconciler.
    pub(super) news: Notify,
    members: Mutex<Members>,
    reports: Mutex<Reports>,
    departures: Mutex<Departures>,
    is_closed: AtomicBool,
    /// What this server knows is at least what was decided when it started.
    is_caught_up: AtomicBool,
    /// It has no log, and asks others whether there is a catalog.
    is_looking: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CatalogContext {
    pub(super) fn new(options: CatalogOptions, storage: Arc<dyn Storage>) -> Self {
        Self {
            options,
            storage,
            place: OnceLock::new(),
            begun: Mutex::default(),
            beginning: Notify::default(),
            catching_up: SharedQuestion::default(),
            news: Notify::default(),
            members: Mutex::default(),
            reports: Mutex::default(),
            departures: Mutex::default(),
            is_closed: AtomicBool::default(),
            is_caught_up: AtomicBool::default(),
            is_looking: AtomicBool::default(),
        }
    }

    pub(super) fn begun(&self) -> Begun {
        lock(&self.begun).clone()
    }

    pub(super) fn set_begun(&self, begun: Begun) {
        *lock(&self.begun) = begun;
        self.beginning.notify();
    }

    /// The catalog, if it has begun.
    pub(super) fn catalog(&self) -> Option<Catalog> {
        match self.begun() {
            Begun::Running(catalog) => Some(catalog),
            Begun::NotYet | Begun::Failed(_) => None,
        }
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    pub(super) fn reports(&self) -> MutexGuard<'_, Reports> {
        lock(&self.reports)
    }

    pub(super) fn departures(&self) -> MutexGuard<'_, Departures> {
        lock(&self.departures)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.news.notify();
        self.beginning.notify();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn set_caught_up(&self) {
        self.is_caught_up.store(true, Ordering::Release);
    }

    pub(super) fn is_caught_up(&self) -> bool {
        self.is_caught_up.load(Ordering::Acquire)
    }

    pub(super) fn set_looking(&self) {
        self.is_looking.store(true, Ordering::Release);
    }

    /// Whether this server has no log and asks others whether there is a catalog.
    pub(super) fn looks_for_catalog(&self) -> bool {
        self.is_looking.load(Ordering::Acquire)
    }
}
