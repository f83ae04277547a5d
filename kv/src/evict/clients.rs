//! Clients that go because all of them together take more than they may (`maxmemory-clients`): the largest first.
//!
//! What a client takes is on its card: its session writes it there after each batch of requests. The sum is made up of changes, so
//! that nobody walks over all clients before it is known to be too much; the tick makes it up anew, with what others have
//! left in mailboxes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::client::card::{Card, Marks};
use crate::client::describe::memory;
use crate::client::{ClientId, Farewell};
use crate::engine::Engine;
use crate::settings::Settings;

/// Bytes that all clients take together.
#[derive(Debug, Default)]
pub(crate) struct ClientBytes(AtomicI64);

impl ClientBytes {
    /// A client takes more, or less.
    pub(crate) fn change(&self, from: u64, to: u64) {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.0.fetch_add(signed(to).saturating_sub(signed(from)), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn set(&self, bytes: u64) {
        self.0.store(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

impl Engine {
    /// Ends clients if they take too much. Says whether `client` is one of them.
    #[inline]
    pub(crate) fn limit_clients(&self, settings: &Settings, client: ClientId) -> bool {
        let limit = settings.memory.clients_bytes_max(settings.memory_bytes_max);
        limit.is_some_and(|limit| self.clients.bytes.get() > limit && self.evict_clients(limit).contains(&client))
    }

    /// The same, of what they take now.
    pub(crate) fn tend_clients(&self, settings: &Settings) {
        if let Some(limit) = settings.memory.clients_bytes_max(settings.memory_bytes_max) {
            self.evict_clients(limit);
        }
    }

    /// Ends clients until the rest take no more than `limit` bytes.
    #[cold]
    fn evict_clients(&self, limit: u64) -> Vec<ClientId> {
        let mut cards: Vec<(u64, Arc<Card>)> =
            self.clients.all().into_iter().map(|card| (memory(&card), card)).collect();
        let protected = [Marks::NO_EVICT, Marks::PRIMARY, Marks::REPLICA];
        cards.retain(|(_, card)| !protected.iter().any(|mark| card.marks().has(*mark)));
        let mut sum: u64 = cards.iter().map(|(bytes, _)| bytes).sum();
        let mut gone = Vec::new();
        if sum > limit {
            cards.sort_by_key(|(bytes, card)| (*bytes, card.id));
            while let Some((bytes, card)) = cards.pop().filter(|_| sum > limit) {
                sum -= bytes;
                gone.push(card.id);
                self.dismiss(card.id, Farewell::Dismissed);
                self.memory.counts.clients.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.clients.bytes.set(sum);
        gone
    }
}
