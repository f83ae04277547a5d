//! All keys of a database, or of all databases.

use std::collections::BTreeSet;

use super::call::{Call, Run};
use super::generic::database_of;
use crate::error::Error;
use crate::glob;
use crate::keyspace::{Record, Slot};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("dbsize", dbsize),
    ("keys", keys),
    ("randomkey", randomkey),
    ("flushdb", flushdb),
    ("flushall", flushall),
    ("swapdb", swapdb),
];

/// How often a key that has expired is drawn before there is none.
const DRAWS_MAX: usize = 100;

/// Tells of a key whether it is shown to nobody, because it belongs to a slot that comes from another node.
pub(super) fn hidden(call: &Call<'_, '_>) -> impl Fn(&[u8]) -> bool + use<> {
    let slots: BTreeSet<u16> = call.engine.hidden().into_iter().map(Slot::number).collect();
    move |key| !slots.is_empty() && slots.contains(&Slot::of(key).number())
}

fn dbsize(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let database = call.keys.database();
    let count: usize = call.keys.shards().map(|shard| shard.keys(database)).sum();
    let hidden = call.engine.hidden();
    let unseen = hidden.iter().map(|slot| call.keys.shard(*slot).keys_in_slot(database, slot.index())).sum();
    call.reply.count(count.saturating_sub(unseen));
    Ok(())
}

fn keys(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (database, now_ms) = (call.keys.database(), call.keys.seen_ms());
    let pattern = &call.args[1];
    let is_hidden = hidden(call);
    let (mut count, later, reply) = (0, call.reply.array_later(), &mut *call.reply);
    for shard in call.keys.shards() {
        shard.each(database, |record| {
            if record.is_live(now_ms) && glob::matches(pattern, record.key(), false) && !is_hidden(record.key()) {
                reply.bulk(record.key());
                count += 1;
            }
        });
    }
    call.reply.finish(later, count);
    Ok(())
}

fn randomkey(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (database, now_ms, engine) = (call.keys.database(), call.keys.seen_ms(), call.engine);
    let (mut expired, is_hidden) = (None, hidden(call));
    for _ in 0..DRAWS_MAX {
        let total: usize = call.keys.shards().map(|shard| shard.keys(database)).sum();
        if total == 0 {
            break;
        }
        let mut left = usize::try_from(engine.draw() % u64::try_from(total).unwrap_or(1)).unwrap_or(0);
        let shard = call.keys.shards().find(|shard| {
            let count = shard.keys(database);
            let is_here = left < count;
            left = left.saturating_sub(count);
            is_here
        });
        let Some(shard) = shard else { continue };
        let Some(record) = shard.random(database, false, || engine.draw()) else { continue };
        if is_hidden(record.key()) {
            continue;
        }
        if record.is_live(now_ms) {
            call.reply.bulk(record.key());
            return Ok(());
        }
        // A key that has expired is gone with this look, unless nothing may change now.
        let name = record.key().to_vec();
        if !engine.pause.is_on() {
            call.keys.contains(call.keys.key(&name));
        }
        expired = Some(name);
    }
    if call.engine.migration.copies.is_any() && expired.is_none() {
        // Nearly all may be hidden.
        let mut found = None;
        let mut look = |record: Record<'_>| {
            if found.is_none() && record.is_live(now_ms) && !is_hidden(record.key()) {
                found = Some(record.key().to_vec());
            }
        };
        call.keys.shards().for_each(|shard| shard.each(database, &mut look));
        expired = found;
        if let Some(name) = &expired {
            call.reply.bulk(name);
            return Ok(());
        }
    }
    // During a pause they stay, and one that has expired is better than the word that there is none.
    match expired.filter(|_| engine.pause.is_on()) {
        Some(name) => call.reply.bulk(&name),
        None => call.reply.null(),
    }
    Ok(())
}

fn flushdb(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let database = call.keys.database();
    flush(call, &[database])
}

fn flushall(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let all: Vec<usize> = (0..call.engine.keyspace.databases()).collect();
    flush(call, &all)
}

fn flush(call: &mut Call<'_, '_>, databases: &[usize]) -> Result<(), Error> {
    if call.args.len() > 2 || call.args.len() == 2 && !call.args.is(1, "SYNC") && !call.args.is(1, "ASYNC") {
        return Err(Error::SYNTAX);
    }
    call.engine.end_migrations_flushed(call.now);
    for (database, name) in call.engine.waiting.watched(databases) {
        // Who watches a key that is not there sees no change.
        if is_there(call, database, &name) {
            call.engine.waiting.changed(database, &name);
        }
    }
    call.engine.invalidate_all();
    let is_lazy = call.args.is(1, "ASYNC") || call.args.len() == 1 && call.settings.memory.flushes_later;
    for number in 0..call.engine.keyspace.shards() {
        for database in databases {
            if let Some(flushed) = call.keys.shard_at(number).flush(*database).filter(|_| is_lazy) {
                call.engine.memory.trash.throw_all(flushed.keys, Box::new(flushed));
            }
        }
    }
    let found = call.engine.waiting.waited_for(databases);
    call.effects.ready.extend(found);
    call.effects.changes += 1;
    call.reply.ok();
    Ok(())
}

/// Whether a key lies there, expired or not.
fn is_there(call: &Call<'_, '_>, database: usize, name: &[u8]) -> bool {
    let key = call.keys.key(name);
    call.keys.shard(key.slot).find(database, key).is_some()
}

fn swapdb(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.engine.cluster().is_some() {
        return Err(Error::new("ERR SWAPDB is not allowed in cluster mode"));
    }
    let database = |at: usize, which: &str| {
        // Valkey holds the number in 32 bits.
        let number = call.integer(at).ok().filter(|number| i32::try_from(*number).is_ok());
        number.ok_or_else(|| Error::text(format!("ERR invalid {which} DB index")))
    };
    let (one, other) = (database(1, "first")?, database(2, "second")?);
    let (one, other) = (database_of(call, one)?, database_of(call, other)?);
    if one != other {
        let (present, watched) = (call.keys.database(), call.engine.waiting.watched(&[one, other]));
        for (database, name) in &watched {
            let was_there = is_there(call, *database, name);
            // What has expired is taken out first: it is as if it had not been there.
            let mut is_live = |database| {
                call.keys.select(database);
                call.keys.contains(call.keys.key(name))
            };
            let (_, comes) = (is_live(*database), is_live(if *database == one { other } else { one }));
            if was_there || comes {
                call.engine.waiting.changed(*database, name);
            }
        }
        call.keys.select(present);
        for number in 0..call.engine.keyspace.shards() {
            call.keys.shard_at(number).swap(one, other);
        }
        let found = call.engine.waiting.waited_for(&[one, other]);
        call.effects.ready.extend(found);
        call.effects.changes += 1;
    }
    call.reply.ok();
    Ok(())
}
