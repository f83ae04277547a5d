//! After a command: what others get of it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::client::Client;
use crate::command::Effects;
use crate::command::run::{self, Frame, Ready};
use crate::engine::Engine;
use crate::keyspace::{Found, Keys};
use crate::resp::Reply;
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::{Place, Rank, Waiter};

    /// It found nothing, or something of another kind is behind the key.
    /// It has its reply.
    /// Nothing is behind the key, and the command does not ask for that.
    Absent,
    InVain,
    Served,
/// Commands served in a row for one change, before others get a turn to lock.
/// Keys that one look for expired ones takes in a shard, and how often it looks again where a quarter of them had.
/// What became of a command that was tried again.
const EXPIRY_TURN: usize = 64;
const EXPIRY_TURNS_MAX: usize = 256;
const SERVED_MAX: usize = 100_000;
enum Tried {
}

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
                effects.ready.push((database, key));
                self.publish_event(settings, "expired", database, &key);
            if self.waiting.changed(database, &key) {
            if settings.events.has(Events::EXPIRED) {
            self.publish_event(settings, event.name, event.database, &event.key);
            self.waiting.changed(database, &key);
            }
        for event in effects.events.drain(..) {
        }
        }
        effects.changes = 0;
        effects.trace = crate::command::call::Trace::AsIs;
    }

                        self.publish_event(&settings, "expired", *database, key);
                    break;
                    if settings.events.has(Events::EXPIRED) {
                    self.waiting.changed(*database, key);
                    }
                for (database, key) in &found {
                if found.len() < EXPIRY_TURN / 4 {
                let found = self.keyspace.shard(number).expire_some(now.unix_ms(), EXPIRY_TURN);
                }
                }
            for _ in 0..EXPIRY_TURNS_MAX {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.pubsub.publish(&channel, name.as_bytes());
            self.pubsub.publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
            }
        for number in 0..self.keyspace.shards() {
        if settings.events.has(Events::KEYEVENT) {
        if settings.events.has(Events::KEYSPACE) {
        let settings = self.settings();
        }
        }
        }
    ///
    /// Looks for keys that have expired and takes them out, in every shard a few; in one where many have, more.
    /// Serves commands that wait for keys which have changed, and those that their changes make ready.
    /// Serves commands that wait for keys which have changed, and those that their changes make ready. The caller holds no
    /// Tells whoever listens to events of keys.
    /// To be called about ten times a second, by nobody who serves clients.
    /// shard. It comes to an end: who came later is not tried, and whoever is served waits no more.
    fn publish_event(&self, settings: &Settings, name: &str, database: usize, key: &[u8]) {
    pub fn handle_tick(&self, now: Now) {
    }
    }
    pub(crate) fn serve(&self, ready: Vec<Place>, settings: &Settings, now: Now) {
        let _turn = self.waiting.turn();
        let last = self.waiting.last();
        let mut places = VecDeque::from(ready);
        while let Some(place) = places.pop_front() {
            let (mut after, mut is_absent) = (Rank::default(), false);
            while let Some(waiter) =
                self.waiting.next(&place, after, last, |waiter| !is_absent || waiter.awaited.or_gone)
            {
                after = waiter.rank;
                if !waiter.claim() {
                    continue;
                }
                    places.extend(changed);
                    self.waiting.leave(&waiter);
                    served += 1;
                if let Some(changed) = self.try_again(&waiter, settings, now) {
                is_absent |= matches!(tried, Tried::Absent);
                let (tried, changed) = self.try_again(&waiter, &place, settings, now);
                places.extend(changed);
                }
            }
        }
    }

    /// Runs a waiting command, which was claimed, again. If it found something its reply is delivered. Returns as well which
    /// keys are ready now.
    fn try_again(&self, waiter: &Waiter, place: &Place, settings: &Settings, now: Now) -> (Tried, Vec<Place>) {
        let args = waiter.request.args();
        let mut client = Client::new(waiter.client, Arc::clone(&waiter.mailbox));
        (client.database, client.protocol, client.is_known) = (waiter.database, waiter.protocol, true);
        let (mut reply, mut effects) = (Reply::new(waiter.protocol), Effects::default());
        let ready = run::find(self, args).expect("it was found before it waited");
        let mut keys = run::lock(self, settings, ready, args, waiter.database, now);
        let kind = keys.peek(keys.key(&place.1)).map(Found::kind);
        let tried = if kind == Some(waiter.awaited.kind) || waiter.awaited.or_gone {
            let frame = Frame { engine: self, settings, now, may_wait: true };
            run::run(&frame, ready, args, &mut client, &mut keys, &mut reply, &mut effects);
            if effects.wait.take().is_none() { Tried::Served } else { Tried::InVain }
        } else if kind.is_none() {
            Tried::Absent
        } else {
            Tried::InVain
        };
        self.settle(settings, now, ready, &mut keys, &mut effects);
        if !matches!(tried, Tried::Served) {
            // With the keys still locked: whoever changes them next finds it unclaimed.
            waiter.unclaim();
            return (tried, effects.ready);
        }
        drop(keys);
        self.waiting.leave(waiter);
        waiter.mailbox.serve(reply.bytes());
        (tried, effects.ready)
    }
}
