//! After a command: what others get of it.

use crate::client::Client;
use crate::command::Effects;
use crate::command::run::{self, Frame, Ready};
use crate::engine::Engine;
use crate::keyspace::Keys;
use crate::resp::Reply;
use crate::settings::Settings;
use crate::time::Now;
use crate::waiting::{Place, Waiter};
use std::sync::Arc;

/// Commands served in a row for one change, before others get a turn to lock.
const SERVED_MAX: usize = 100_000;

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
            self.waiting.changed(database, &key);
        }
        effects.events.clear();
        effects.changes = 0;
        effects.trace = crate::command::call::Trace::AsIs;
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
                match self.try_again(&waiter, settings, now) {
                    Some(changed) => {
                        served += 1;
                        self.waiting.leave(&waiter);
                        places.extend(changed);
                    }
                    None => {}
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
