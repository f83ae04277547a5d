//! After a command: what others get of it.

use crate::client::Client;
use crate::command::Effects;
use crate::command::run::{self, Frame, Ready};
use crate::engine::Engine;
use crate::keyspace::Keys;
use crate::resp::Reply;
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::{Place, Waiter};
use std::sync::Arc;

/// Keys that one look for expired ones takes in a shard, and how often it looks again where a quarter of them had.
const EXPIRY_TURN: usize = 64;
const EXPIRY_TURNS_MAX: usize = 256;
/// Commands served in a row for one change, before others get a turn to lock.
const SERVED_MAX: usize = 100_000;

impl Engine {
    /// Counts what a command did and tells subscribers, while its keys are still locked, so that all see one order.
    pub(crate) fn settle(
        &self,
        settings: &Settings,
        _now: Now,
        _ready: Ready,
        keys: &mut Keys<'_>,
        effects: &mut Effects,
    ) {
        for (database, key) in keys.expired.drain(..) {
            self.waiting.changed(database, &key);
            if settings.events.has(Events::EXPIRED) {
                self.publish_event(settings, "expired", database, &key);
            }
        }
        for event in effects.events.drain(..) {
            self.publish_event(settings, event.name, event.database, &event.key);
        }
        effects.changes = 0;
        effects.trace = crate::command::call::Trace::AsIs;
    }

    /// Tells whoever listens to events of keys.
    fn publish_event(&self, settings: &Settings, name: &str, database: usize, key: &[u8]) {
        if settings.events.has(Events::KEYSPACE) {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.pubsub.publish(&channel, name.as_bytes());
        }
        if settings.events.has(Events::KEYEVENT) {
            self.pubsub.publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }

    /// Looks for keys that have expired and takes them out, in every shard a few; in one where many have, more.
    ///
    /// To be called about ten times a second, by nobody who serves clients.
    pub fn handle_tick(&self, now: Now) {
        let settings = self.settings();
        for number in 0..self.keyspace.shards() {
            for _ in 0..EXPIRY_TURNS_MAX {
                let found = self.keyspace.shard(number).expire_some(now.unix_ms(), EXPIRY_TURN);
                for (database, key) in &found {
                    self.waiting.changed(*database, key);
                    if settings.events.has(Events::EXPIRED) {
                        self.publish_event(&settings, "expired", *database, key);
                    }
                }
                if found.len() < EXPIRY_TURN / 4 {
                    break;
                }
            }
        }
    }

    /// Serves commands that wait for keys which have changed, and those that their changes make ready.
    pub(crate) fn serve(&self, ready: Vec<Place>, settings: &Settings, now: Now) {
        let mut places = std::collections::VecDeque::from(ready);
        let mut served = 0;
        while let Some(place) = places.pop_front() {
            for waiter in self.waiting.waiters(&place) {
                if served == SERVED_MAX || !waiter.claim() {
                    continue;
                }
                if let Some(changed) = self.try_again(&waiter, settings, now) {
                    served += 1;
                    self.waiting.leave(&waiter);
                    places.extend(changed);
                }
            }
        }
    }

    /// Runs a waiting command again. If it found something its reply is delivered; returns what that made ready.
    fn try_again(&self, waiter: &Waiter, settings: &Settings, now: Now) -> Option<Vec<Place>> {
        let args = waiter.request.args();
        let mut client = Client::new(waiter.client, Arc::clone(&waiter.mailbox));
        (client.database, client.protocol, client.is_known) = (waiter.database, waiter.protocol, true);
        let (mut reply, mut effects) = (Reply::new(waiter.protocol), Effects::default());
        let ready = run::find(self, args).ok()?;
        let mut keys = run::lock(self, settings, ready, args, waiter.database, now);
        let frame = Frame { engine: self, settings, now, may_wait: true };
        run::run(&frame, ready, args, &mut client, &mut keys, &mut reply, &mut effects);
        let found = effects.wait.take().is_none();
        self.settle(settings, now, ready, &mut keys, &mut effects);
        if !found {
            // With the keys still locked: whoever changes them next finds it unclaimed.
            waiter.unclaim();
        }
        drop(keys);
        found.then(|| {
            waiter.mailbox.serve(reply.bytes());
            std::mem::take(&mut effects.ready)
        })
    }
}
