//! All clients that there are.
//!
//! It is locked when a client comes or goes, and by commands about other clients; never by a command about keys.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::card::{Card, ClientClass, Figure, Marks};
use super::limits::ClientLimits;
use super::{ClientId, Farewell};
use crate::evict::clients::ClientBytes;

/// Parts that the clients are looked after in, one at a tick: each is looked at about once a second.
const ROUND_TICKS: usize = 10;

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    cards: Mutex<BTreeMap<ClientId, Arc<Card>>>,
    count: AtomicUsize,
    made: AtomicU64,
    /// Who was looked after last.
    tended: Mutex<Option<ClientId>>,
    pub(crate) counts: Counts,
    /// What all of them take.
    pub(crate) bytes: ClientBytes,
}

/// What became of clients so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Those that were let in.
    pub(crate) accepted: AtomicU64,
    /// Those that were turned away.
    pub(crate) rejected: AtomicU64,
    /// Those that did not fetch their replies.
    pub(crate) output_overflows: AtomicU64,
    /// Those that sent too much.
    pub(crate) input_overflows: AtomicU64,
}

impl Counts {
    /// One more.
    pub(crate) fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts from zero again.
    pub(crate) fn reset(&self) {
        for count in [&self.accepted, &self.rejected, &self.output_overflows, &self.input_overflows] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// Why a connection is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// There are as many clients as may be (`maxclients`).
    TooMany,
    /// It comes from another machine, and nothing protects the data (`protected-mode`).
    Protected,
}

impl Rejected {
    /// What the client is told before the connection ends.
    #[must_use]
    pub const fn reply(self) -> &'static [u8] {
        match self {
            Self::TooMany => b"-ERR max number of clients reached\r\n",
            Self::Protected => {
                b"-DENIED protected mode is on and the default user has no password, so only connections from this \
                  machine itself are accepted. Set a password: for a cluster of servers with `ashlar kv password`, \
                  otherwise with `CONFIG SET requirepass` from the machine itself or `requirepass` in the \
                  configuration. Where nobody but you can reach this port, `protected-mode no` accepts everybody.\r\n"
            }
        }
    }
}

impl Clients {
    /// A number that no client has had.
    pub(crate) fn next_id(&self) -> ClientId {
        ClientId(self.made.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Lets a client in.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn enter(&self, card: &Arc<Card>, limits: &ClientLimits) -> Result<(), Rejected> {
        let mut cards = self.cards();
        if cards.len() >= limits.clients_max {
            Counts::add(&self.counts.rejected);
            return Err(Rejected::TooMany);
        }
        Counts::add(&self.counts.accepted);
        cards.insert(card.id, Arc::clone(card));
        self.count.store(cards.len(), Ordering::Relaxed);
        Ok(())
    }

    /// A client is gone. Says whether it was there.
    pub(crate) fn leave(&self, client: ClientId) -> bool {
        let mut cards = self.cards();
        let was_there = cards.remove(&client).is_some();
        self.count.store(cards.len(), Ordering::Relaxed);
        was_there
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// One of them.
    pub(crate) fn get(&self, client: ClientId) -> Option<Arc<Card>> {
        self.cards().get(&client).cloned()
    }

    /// All of them, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<Card>> {
        self.cards().values().cloned().collect()
    }

    /// Ends a client: it is not listed any more, and its session is told.
    pub(crate) fn dismiss(&self, client: ClientId, why: Farewell) {
        let card = self.get(client);
        self.leave(client);
        if let Some(card) = card {
            card.mailbox.dismiss(why);
        }
    }

    /// The limits have changed.
    pub(crate) fn limit(&self, limits: &ClientLimits) {
        self.all().iter().for_each(|card| limit_output(card, limits));
    }

    /// Looks after some of the clients: those that are idle for too long, or do not fetch their replies, must go.
    pub(crate) fn handle_tick(&self, limits: &ClientLimits, now_ms: i64) {
        for card in self.next_part() {
            if is_too_idle(&card, limits, now_ms) {
                self.dismiss(card.id, Farewell::Dismissed);
            } else if is_too_slow(&card, limits, now_ms) {
                self.dismiss(card.id, Farewell::Overflow);
            }
        }
    }

    fn next_part(&self) -> Vec<Arc<Card>> {
        let mut tended = self.tended.lock().unwrap_or_else(PoisonError::into_inner);
        let cards = self.cards();
        let from = tended.map_or(Unbounded, Excluded);
        let part: Vec<_> = cards
            .range((from, Unbounded))
            .take(cards.len().div_ceil(ROUND_TICKS))
            .map(|(_, card)| Arc::clone(card))
            .collect();
        *tended = part.last().map(|card| card.id);
        part
    }

    fn cards(&self) -> MutexGuard<'_, BTreeMap<ClientId, Arc<Card>>> {
        self.cards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets at how many unfetched bytes a client is dismissed.
pub(crate) fn limit_output(card: &Card, limits: &ClientLimits) {
    let hard = limits.output.of(ClientClass::of(card.marks())).hard_bytes;
    let bytes_max = if hard == 0 { usize::MAX } else { usize::try_from(hard).unwrap_or(usize::MAX) };
    card.mailbox.set_bytes_max(bytes_max);
}

/// Whether a client has sent nothing for too long. Those that only listen or wait are let be.
fn is_too_idle(card: &Card, limits: &ClientLimits, now_ms: i64) -> bool {
    let marks = card.marks();
    let may_be_idle = [Marks::PUBSUB, Marks::BLOCKED, Marks::MONITOR, Marks::REPLICA, Marks::PRIMARY]
        .iter()
        .any(|mark| marks.has(*mark));
    limits.idle_s_max > 0 && !may_be_idle && card.idle_s(now_ms).unsigned_abs() > limits.idle_s_max
}

/// Whether a client's replies have been above the soft limit for too long.
fn is_too_slow(card: &Card, limits: &ClientLimits, now_ms: i64) -> bool {
    let limit = limits.output.of(ClientClass::of(card.marks()));
    let bytes = card.mailbox.bytes() as u64 + card.get(Figure::Behind);
    let is_above = limit.soft_bytes > 0 && bytes >= limit.soft_bytes;
    let since_ms = card.get(Figure::SoftSinceMs);
    let now_ms = now_ms.unsigned_abs();
    if !is_above || since_ms == 0 {
        card.set(Figure::SoftSinceMs, if is_above { now_ms } else { 0 });
        return false;
    }
    now_ms.saturating_sub(since_ms) / 1_000 > limit.soft_s
}
