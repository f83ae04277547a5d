//! After a command: what others get of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::acl::Context;
use crate::client::Client;
use crate::command::Effects;
use crate::command::run::{self, Frame};
use crate::engine::Engine;
use crate::keyspace::{Keys, Slot};
use crate::persist::journal::{Written, encode_request};
use crate::resp::Reply;
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::{Place, Rank, Waiter};

/// The command that takes a key out: at once, or what is behind it later.
pub(crate) const fn removal(later: bool) -> &'static [u8] {
    if later { b"UNLINK" } else { b"DEL" }
}

/// Writes down that keys are gone.
pub(crate) fn write_removed(removed: &[Place], later: bool, written: &mut Written) {
    for (database, key) in removed {
        written.push(*database, [removal(later), key].into_iter());
    }
}

/// Bytes that make several commands one transaction, in the stream for replicas.
const TRANSACTION_BYTES: usize = 15 + 14;

/// What became of a command that was tried again.
enum Tried {
    /// It has its reply.
    Served,
    /// A slow script holds its keys.
    Later,
    /// It found nothing, or something of another kind is behind the key.
    InVain,
    /// Nothing is behind the key, and the command does not ask for that.
    Absent,
}

impl Engine {
    /// Counts what a command did and tells subscribers, while its keys are still locked, so that all see one order.
    pub(crate) fn settle(&self, settings: &Settings, keys: &mut Keys<'_>, effects: &mut Effects) {
        self.settle_gone(settings, keys, effects);
        if !effects.written.is_empty() {
            self.append(&effects.written, !effects.is_scattered, keys.now_ms());
            effects.written.clear();
        }
        effects.take_noted(keys);
        for event in effects.events.drain(..) {
            self.publish_event(settings, event.name, event.database, &event.key);
        }
        if !effects.changed.is_empty() {
            self.broadcast(&effects.changed);
            effects.changed.clear();
        }
        if effects.changes > 0 && !keys.count_changes(effects.changes) {
            self.keyless_changes.fetch_add(effects.changes, Ordering::Relaxed);
        }
        effects.changes = 0;
    }

    /// How many changes commands have made.
    pub fn changes(&self) -> u64 {
        let keyless = self.keyless_changes.load(Ordering::Relaxed);
        (0..self.keyspace.shards()).fold(keyless, |sum, number| sum + self.keyspace.shard(number).counts.changes)
    }

    /// Tells the log and everybody of keys that were found to have expired.
    pub(crate) fn settle_gone(&self, settings: &Settings, keys: &mut Keys<'_>, effects: &mut Effects) {
        let gone = keys.take_untold();
        self.append_removed(&gone, settings.memory.expires_later, keys.now_ms());
        let is_tracked = self.tracking.is_on();
        for (database, key) in std::mem::take(&mut keys.expired) {
            if is_tracked {
                self.invalidate(&key, None);
                effects.changed.push((key.clone(), None));
            }
            if settings.events.has(Events::EXPIRED) {
                self.publish_event(settings, "expired", database, &key);
            }
            if self.waiting.changed(database, &key) {
                effects.ready.push((database, key));
            }
        }
        keys.forget_gone();
    }

    /// Counts what replicas will be sent of a command that is about a slot. To be called before the command is settled.
    pub(crate) fn count_stream(&self, slot: Slot, effects: &Effects) {
        if effects.written.is_empty() || !self.replication.is_on() || self.role.is_replica() {
            return;
        }
        let commands: usize = effects.written.runs().map(|(_, _, commands)| commands.len()).sum();
        let is_transaction = !effects.is_scattered && effects.written.commands() > 1;
        let frame = if is_transaction { TRANSACTION_BYTES } else { 0 };
        self.statistics.slots.add_out(slot, (commands + frame) * self.replication.replicas().len());
    }

    /// Tells the log and replicas that keys are gone which no command took out. Their shards must be locked. Each stands for
    /// itself.
    pub(crate) fn append_removed(&self, removed: &[Place], later: bool, now_ms: i64) {
        if removed.is_empty() || !self.is_heard() {
            return;
        }
        let mut written = Written::default();
        write_removed(removed, later, &mut written);
        self.append(&written, false, now_ms);
    }

    /// Tells whoever listens to events of keys.
    pub(crate) fn publish_event(&self, settings: &Settings, name: &str, database: usize, key: &[u8]) {
        if settings.events.has(Events::KEYSPACE) {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            self.pubsub.publish(&channel, name.as_bytes());
        }
        if settings.events.has(Events::KEYEVENT) {
            self.pubsub.publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
        }
    }

    /// Looks after clients and memory, and for what has expired.
    ///
    /// To be called about ten times a second, and once a second while it rests, by nobody who serves clients.
    pub fn handle_tick(&self, now: Now) {
        let settings = self.settings();
        self.rest.review(now.instant, || self.has_due(&settings));
        self.pause.handle_tick(now.milliseconds());
        self.tend_failover(now);
        self.tend_quorum(now);
        self.statistics.handle_tick(now.unix_us);
        self.clients.handle_tick(&settings.clients, now.unix_ms());
        self.lines.handle_tick(now.instant);
        self.tend_clients(&settings);
        if self.is_loading() {
            return;
        }
        self.limit_tracking(settings.tracking_keys_max);
        self.tend_replicas(&settings, now);
        self.tend_memory(&settings, now);
        // What expires is the primary's to say.
        if self.role.is_replica() {
            return;
        }
        if self.pause.is_on() || self.switches.keeps_expired.is_on() || self.switches.rests.is_on() || settings.imports
        {
            return;
        }
        let begin = self.host.now();
        self.expire(&settings, now);
        let ms = u64::try_from(self.host.now().saturating_since(begin).as_millis()).unwrap_or(u64::MAX);
        if settings.logs.latency_ms > 0 && ms >= settings.logs.latency_ms {
            self.statistics.latency.note("expire-cycle", ms, now.unix_us.div_euclid(1_000_000));
        }
    }

    /// Whether something becomes due although nothing is asked for.
    fn has_due(&self, settings: &Settings) -> bool {
        let expires = |number| {
            // What a slow script holds is work.
            let shard = self.keyspace.shard_unless(number, self.scripts.running.slow());
            shard.is_none_or(|shard| shard.has_expiring())
        };
        self.is_loading()
            || self.pause.is_on()
            || self.failover.is_on()
            || settings.clients.idle_s_max > 0
            || self.excess_memory(settings) > 0
            || self.has_held_replies()
            || self.migration.is_going_on()
            || !self.role.is_replica() && (0..self.keyspace.shards()).any(expires)
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
                if matches!(tried, Tried::Later) {
                    places.push_front(place);
                    self.scripts.defer(std::mem::take(&mut places).into());
                    break;
                }
            }
            if places.is_empty() && !self.scripts.running.is_slow() {
                // The script may have ended before they were left for it.
                places.extend(self.scripts.take_deferred());
            }
        }
    }

    /// Runs a waiting command, which was claimed, again. If it found something its reply is delivered. Returns as well which
    /// keys are ready now.
    fn try_again(&self, waiter: &Waiter, place: &Place, settings: &Settings, now: Now) -> (Tried, Vec<Place>) {
        let args = waiter.request.args();
        let user = self.acl.user(&waiter.card.texts().user).unwrap_or_else(|| self.acl.default_user());
        let mut client = Client::again(Arc::clone(&waiter.card), user);
        (client.database, client.protocol) = (waiter.database, waiter.protocol);
        let (mut reply, mut effects) = (Reply::new(waiter.protocol), Effects::default());
        let ready = run::find(self, args).expect("it was found before it waited");
        let Some(mut keys) = run::lock(self, settings, ready, (args, None), waiter.database, now) else {
            if let Some(how) = waiter.unclaim() {
                self.waiting.end(waiter, how, self);
            }
            return (Tried::Later, Vec::new());
        };
        // What has expired since the change was made does not go for a look alone.
        let kind = keys.kind(keys.key(&place.1));
        let permitted = self.permit(&client, ready.command, args, Context::TopLevel, now.unix_ms());
        let tried = if kind.is_none() && !waiter.awaited.or_gone {
            Tried::Absent
        } else if let Err(denial) = permitted {
            // What its user may do has changed while it waited.
            reply.error(denial.error(&client.user.name, ready.command).as_str());
            Tried::Served
        } else if kind == Some(waiter.awaited.kind) || waiter.awaited.or_gone {
            // Time may have passed since: the command sees what is there now.
            let now = now.after(self.host.now().saturating_since(now.instant));
            keys.set_now(now.unix_ms());
            let frame = Frame { engine: self, settings, now, may_wait: true, is_script: false };
            client.meter.begin(self.host.now());
            if settings.logs.counts_slots {
                let mut request = Vec::new();
                encode_request(args.from(0), &mut request);
                client.slot = self.cluster().map(|_| Slot::of(&place.1));
                client.meter.request_bytes = request.len();
            }
            waiter.card.mailbox.hold();
            run::run(&frame, ready, args, &mut client, &mut keys, &mut reply, &mut effects);
            client.meter.flush(self, settings.logs.counts_latency);
            self.rest.end();
            if effects.wait.take().is_none() { Tried::Served } else { Tried::InVain }
        } else {
            Tried::InVain
        };
        if settings.logs.counts_slots
            && let Some(slot) = client.slot
        {
            self.count_stream(slot, &effects);
        }
        self.settle(settings, &mut keys, &mut effects);
        if !matches!(tried, Tried::Served) {
            waiter.card.mailbox.release();
            // With the keys still locked: whoever changes them next finds it unclaimed.
            let wish = waiter.unclaim();
            drop(keys);
            if let Some(how) = wish {
                self.waiting.end(waiter, how, self);
            }
            return (tried, effects.ready);
        }
        drop(keys);
        self.waiting.leave(waiter);
        waiter.card.mailbox.serve(reply.bytes());
        (tried, effects.ready)
    }
}
