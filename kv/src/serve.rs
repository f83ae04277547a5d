//! After a command: what others get of it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::client::Client;
use crate::command::Effects;
use crate::command::run::{self, Frame, Ready};
use crate::engine::Engine;
use crate::keyspace::{Found, Keys};
use crate::resp::Reply;
use crate::settings::Settings;
use crate::time::Now;
use crate::waiting::{Place, Rank, Waiter};

/// What became of a command that was tried again.
enum Tried {
    /// It has its reply.
    Served,
    /// It found nothing, or something of another kind is behind the key.
    InVain,
    /// Nothing is behind the key, and the command does not ask for that.
    Absent,
}

impl Engine {
    /// Counts what a command did and tells subscribers, while its keys are still locked, so that all see one order.
    pub(crate) fn settle(
        &self,
        _settings: &Settings,
        _now: Now,
        _ready: Ready,
        keys: &mut Keys<'_>,
        effects: &mut Effects,
    ) {
        for (database, key) in keys.expired.drain(..) {
            if self.waiting.changed(database, &key) {
                effects.ready.push((database, key));
            }
        }
        effects.events.clear();
        effects.changes = 0;
        effects.trace = crate::command::call::Trace::AsIs;
    }

    /// Serves commands that wait for keys which have changed, and those that their changes make ready. The caller holds no
    /// shard. It comes to an end: who came later is not tried, and whoever is served waits no more.
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
                let (tried, changed) = self.try_again(&waiter, &place, settings, now);
                places.extend(changed);
                is_absent |= matches!(tried, Tried::Absent);
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
