//! Keys, and fields of hashes, that expire although nobody looks for them.
//!
//! Of keys that expire some are looked at with every tick, in turn; in a shard where many of those had expired, more. Fields are
//! known in the order in which they expire, so that none is looked for in vain.

use crate::engine::Engine;
use crate::keyspace::Reaped;
use crate::persist::journal::Written;
use crate::serve::removal;
use crate::settings::{Events, Settings};
use crate::time::Now;
use crate::waiting::Place;

/// Keys that one look takes in a shard, and how often it looks again where a quarter of them had expired.
const KEYS_TURN: usize = 64;
const TURNS_MAX: usize = 256;
/// Fields of hashes that are taken out of a shard at a time.
const FIELDS_TURN: usize = 256;

/// That fields are gone, and perhaps their hash with them.
fn written_of(reaped: &Reaped, settings: &Settings) -> Written {
    let Reaped { database, name, fields, is_gone } = reaped;
    let mut written = Written::default();
    let words: Vec<&[u8]> = [&b"HDEL"[..], name].into_iter().chain(fields.iter().map(|field| &**field)).collect();
    written.push(*database, words.into_iter());
    if *is_gone {
        written.push(*database, [removal(settings.memory.expires_later), name].into_iter());
    }
    written
}

impl Engine {
    /// Takes out what has expired, in every shard some.
    pub(crate) fn expire(&self, settings: &Settings, now: Now) {
        for number in 0..self.keyspace.shards() {
            // What expires in slots that come from another node, that node says.
            if self.hides_in_shard(number) {
                continue;
            }
            for _ in 0..TURNS_MAX {
                if self.expire_fields(number, settings, now) < FIELDS_TURN {
                    break;
                }
            }
            for _ in 0..TURNS_MAX {
                if self.expire_keys(number, settings, now) < KEYS_TURN / 4 {
                    break;
                }
            }
        }
    }

    /// Takes keys out of one shard. Returns how many.
    fn expire_keys(&self, number: usize, settings: &Settings, now: Now) -> usize {
        // What a slow script holds is left for the next tick.
        let Some(mut shard) = self.keyspace.shard_unless(number, self.scripts.running.slow()) else { return 0 };
        let found = shard.expire_some(now.unix_ms(), KEYS_TURN);
        self.append_removed(&found, settings.memory.expires_later, now.unix_ms());
        found.iter().for_each(|(_, key)| self.invalidate_gone(key));
        drop(shard);
        if settings.events.has(Events::EXPIRED) {
            found.iter().for_each(|(database, key)| self.publish_event(settings, "expired", *database, key));
        }
        let count = found.len();
        self.serve_those(found, settings, now);
        count
    }

    /// Takes fields out of hashes of one shard. Returns how many.
    fn expire_fields(&self, number: usize, settings: &Settings, now: Now) -> usize {
        // What a slow script holds is left for the next tick.
        let Some(mut shard) = self.keyspace.shard_unless(number, self.scripts.running.slow()) else { return 0 };
        let reaped = shard.reap_fields(now.unix_ms(), FIELDS_TURN);
        let is_heard = self.is_heard();
        for reaped @ Reaped { database, name, is_gone, .. } in &reaped {
            if is_heard {
                // At the time 0 nothing has expired: whoever runs it again finds the fields that it deletes.
                self.append(&written_of(reaped, settings), true, 0);
            }
            self.invalidate_gone(name);
            self.tell_reaped(settings, *database, name, *is_gone);
        }
        drop(shard);
        let count = reaped.iter().map(|reaped| reaped.fields.len()).sum();
        self.serve_those(reaped.into_iter().map(|reaped| (reaped.database, reaped.name)).collect(), settings, now);
        count
    }

    /// Serves those that wait for keys which have changed.
    fn serve_those(&self, mut places: Vec<Place>, settings: &Settings, now: Now) {
        places.retain(|(database, key)| self.waiting.changed(*database, key));
        if !places.is_empty() {
            self.serve(places, settings, now);
        }
    }

    /// Tells subscribers that fields of a hash have expired, and that the key is gone if they were all.
    pub(crate) fn tell_reaped(&self, settings: &Settings, database: usize, key: &[u8], is_gone: bool) {
        if settings.events.has(Events::EXPIRED) {
            self.publish_event(settings, "hexpired", database, key);
        }
        if is_gone && settings.events.has(Events::GENERIC) {
            self.publish_event(settings, "del", database, key);
        }
    }
}
