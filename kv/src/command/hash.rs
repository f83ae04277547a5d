//! Hashes. When their fields expire is in `hash_expiry`.

use super::call::{Call, Run};
use super::elements::{self, Scan, Wanted, bulk};
use crate::error::Error;
use crate::keyspace::Key;
use crate::resp::number::{Decimal, parse_i64};
use crate::resp::{Protocol, Reply, Request};
use crate::settings::Events;
use crate::value::extended::Extended;
use crate::value::hash::{Expiry, Field, Hash};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("hdel", hdel),
    ("hexists", hexists),
    ("hget", hget),
    ("hgetall", hgetall),
    ("hincrby", hincrby),
    ("hincrbyfloat", hincrbyfloat),
    ("hkeys", hkeys),
    ("hlen", hlen),
    ("hmget", hmget),
    ("hmset", hmset),
    ("hrandfield", hrandfield),
    ("hscan", hscan),
    ("hset", hset),
    ("hsetnx", hsetnx),
    ("hstrlen", hstrlen),
    ("hvals", hvals),
];

/// A hash has changed in so many ways.
pub(super) fn changed(call: &mut Call<'_, '_>, key: Key<'_>, event: &'static str, changes: usize) {
    call.changed(key, Events::HASH, event);
    call.effects.changes += u64::try_from(changes.saturating_sub(1)).unwrap_or(u64::MAX);
}

/// Takes the key out if its last field has gone.
pub(super) fn remove_if_empty(call: &mut Call<'_, '_>, key: Key<'_>) {
    if call.keys.remove_if_empty::<Hash>(key) {
        call.notify(Events::GENERIC, "del", key.bytes);
    }
}

/// What setting fields came to.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// Fields that were not there.
    pub(super) created: usize,
    /// Fields that had expired and were still kept.
    pub(super) overwritten: Vec<Box<[u8]>>,
}

/// Sets the fields and values from word `at` on. The hash is made if it is not there.
pub(super) fn set_fields(call: &mut Call<'_, '_>, key: Key<'_>, at: usize, expiry: Expiry) -> Result<Set, Error> {
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.hash);
    let now_ms = call.now.unix_ms();
    let hash = call.keys.get_or_insert(key, Hash::new)?;
    hash.prepare(call.args.from(at).map(<[u8]>::len), hash_key, limits);
    let mut done = Set::default();
    let mut words = call.args.from(at);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let has_expired = hash.next_expiry_ms().is_some_and(|at| at < now_ms)
            && hash.get(name, now_ms, hash_key).is_none()
            && hash.get(name, i64::MIN, hash_key).is_some();
        if has_expired {
            done.overwritten.push(name.into());
        }
        done.created += usize::from(hash.set(name, value, expiry, now_ms, hash_key, limits));
    }
    if hash.scheduled_ms().is_some() {
        call.keys.schedule_fields(key);
    }
    Ok(done)
}

/// Fields that had expired were taken for new: to subscribers they expire only now.
pub(super) fn tell_expired(call: &mut Call<'_, '_>, key: Key<'_>, done: &Set) {
    if !done.overwritten.is_empty() {
        call.keys.count_expired_fields(key, done.overwritten.len());
        call.notify(Events::HASH, "hexpired", key.bytes);
    }
}

fn hset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let created = set_all(call, "hset")?;
    call.reply.count(created);
    Ok(())
}

fn hmset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    set_all(call, "hmset")?;
    call.reply.ok();
    Ok(())
}

fn set_all(call: &mut Call<'_, '_>, name: &str) -> Result<usize, Error> {
    if !call.args.len().is_multiple_of(2) {
        return Err(Error::wrong_number(name));
    }
    let key = call.key(1);
    let done = set_fields(call, key, 2, Expiry::Never)?;
    tell_expired(call, key, &done);
    changed(call, key, "hset", call.args.len() / 2 - 1);
    Ok(done.created)
}

fn hsetnx(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let hash = call.keys.get_mut::<Hash>(key)?;
    let has_expiring = hash.as_ref().is_some_and(|hash| hash.expiring_len() > 0);
    if hash.is_some_and(|hash| hash.get(&call.args[2], now_ms, hash_key).is_some()) {
        call.reply.integer(0);
        return Ok(());
    }
    let done = set_fields(call, key, 2, Expiry::Never)?;
    tell_expired(call, key, &done);
    changed(call, key, "hset", 1);
    if has_expiring {
        // To a replica the field may not have expired yet.
        call.trace_as(|call| [b"HSET", key.bytes, &call.args[2], &call.args[3]].into_iter().collect());
    }
    call.reply.integer(1);
    Ok(())
}

/// Replies the value of a field, or nothing.
pub(super) fn reply_value(reply: &mut Reply, field: Option<Field<'_>>) {
    match field {
        Some(field) => bulk(reply, field.value),
        None => reply.null(),
    }
}

fn hget(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let field = call.keys.get::<Hash>(key)?.and_then(|hash| hash.get(&call.args[2], now_ms, hash_key));
    reply_value(call.reply, field);
    Ok(())
}

fn hmget(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, names, now_ms) = (call.key(1), call.args.from(2), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let hash = call.keys.get::<Hash>(key)?;
    call.reply.array(names.len());
    for name in names {
        reply_value(call.reply, hash.and_then(|hash| hash.get(name, now_ms, hash_key)));
    }
    Ok(())
}

fn hgetall(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash = call.keys.get::<Hash>(key)?;
    call.reply.map(hash.map_or(0, |hash| hash.live_len(now_ms)));
    for field in hash.into_iter().flat_map(|hash| hash.iter(now_ms)) {
        bulk(call.reply, field.name);
        bulk(call.reply, field.value);
    }
    Ok(())
}

fn hkeys(call: &mut Call<'_, '_>) -> Result<(), Error> {
    reply_all(call, |reply, field| bulk(reply, field.name))
}

fn hvals(call: &mut Call<'_, '_>) -> Result<(), Error> {
    reply_all(call, |reply, field| bulk(reply, field.value))
}

fn reply_all(call: &mut Call<'_, '_>, one: fn(&mut Reply, Field<'_>)) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash = call.keys.get::<Hash>(key)?;
    call.reply.array(hash.map_or(0, |hash| hash.live_len(now_ms)));
    hash.into_iter().flat_map(|hash| hash.iter(now_ms)).for_each(|field| one(call.reply, field));
    Ok(())
}

fn hlen(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    // With fields that have expired and are not taken out yet: counting them would take time.
    let len = call.keys.get::<Hash>(key)?.map_or(0, Hash::len);
    call.reply.count(len);
    Ok(())
}

fn hstrlen(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let field = call.keys.get::<Hash>(key)?.and_then(|hash| hash.get(&call.args[2], now_ms, hash_key));
    call.reply.count(field.map_or(0, |field| field.value.len()));
    Ok(())
}

fn hexists(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let field = call.keys.get::<Hash>(key)?.and_then(|hash| hash.get(&call.args[2], now_ms, hash_key));
    call.reply.integer(i64::from(field.is_some()));
    Ok(())
}

fn hdel(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let Some(hash) = call.keys.get_mut::<Hash>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    // Fields that have expired stay until replicas are told of them, for whom they have not: those must not be named here.
    let is_hidden =
        |hash: &Hash, name| hash.get(name, now_ms, hash_key).is_none() && hash.get(name, i64::MIN, hash_key).is_some();
    let hides = hash.scheduled_ms().is_some() && call.args.from(2).any(|name| is_hidden(hash, name));
    let mut told: Request = if hides { [b"HDEL", key.bytes].into_iter().collect() } else { Request::default() };
    let mut removed = 0;
    for name in call.args.from(2).filter(|name| hash.remove(name, now_ms, hash_key)) {
        removed += 1;
        if hides {
            told.push(name);
        }
    }
    if hash.scheduled_ms().is_some() {
        call.keys.schedule_fields(key);
    }
    if removed > 0 {
        changed(call, key, "hdel", removed);
        if hides {
            call.trace(vec![told]);
        }
        remove_if_empty(call, key);
    }
    call.reply.count(removed);
    Ok(())
}

/// A field whose number changes: what it was, when it expires, and whether any field of the hash expires.
struct Old {
    value: Option<Vec<u8>>,
    expiry_ms: Option<i64>,
    has_expiring: bool,
}

fn old_of(call: &mut Call<'_, '_>, key: Key<'_>) -> Result<Old, Error> {
    let now_ms = call.now.unix_ms();
    let hash_key = call.engine.keyspace.hash_key();
    let hash = call.keys.get_mut::<Hash>(key)?;
    let has_expiring = hash.as_ref().is_some_and(|hash| hash.expiring_len() > 0);
    let field = hash.and_then(|hash| hash.get(&call.args[2], now_ms, hash_key));
    let expiry_ms = field.and_then(|field| field.expiry_ms);
    Ok(Old { value: field.map(|field| field.value.to_vec()), expiry_ms, has_expiring })
}

/// Sets a field to its new number. Replicas are told the number, as they may differ in when the field expires.
fn set_number(call: &mut Call<'_, '_>, key: Key<'_>, text: &[u8], event: &'static str, old: &Old, is_exact: bool) {
    let (hash_key, limits, now_ms) = (call.engine.keyspace.hash_key(), &call.settings.hash, call.now.unix_ms());
    let name = call.args.get(2).expect("the arity was checked");
    let Ok(hash) = call.keys.get_or_insert(key, Hash::new) else { unreachable!("its kind was looked at before") };
    let has_expired = old.value.is_none() && hash.get(name, i64::MIN, hash_key).is_some();
    hash.set(name, text, Expiry::Kept, now_ms, hash_key, limits);
    if has_expired {
        call.keys.schedule_fields(key);
        tell_expired(call, key, &Set { created: 1, overwritten: vec![name.into()] });
    }
    changed(call, key, event, 1);
    if let Some(expiry_ms) = old.expiry_ms {
        let at = Decimal::new(expiry_ms);
        let words: [&[u8]; 8] = [b"HSETEX", key.bytes, b"PXAT", at.as_bytes(), b"FIELDS", b"1", name, text];
        call.trace_as(|_| words.into_iter().collect());
    } else if old.has_expiring || !is_exact {
        call.trace_as(|_| [b"HSET", key.bytes, name, text].into_iter().collect());
    }
}

fn hincrby(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, more) = (call.key(1), call.integer(3)?);
    let old = old_of(call, key)?;
    let value = match &old.value {
        None => 0,
        Some(text) => parse_i64(text).ok_or(Error::new("ERR hash value is not an integer"))?,
    };
    let new = value.checked_add(more).ok_or(Error::OVERFLOW)?;
    set_number(call, key, Decimal::new(new).as_bytes(), "hincrby", &old, true);
    call.reply.integer(new);
    Ok(())
}

fn hincrbyfloat(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let more = Extended::parse(&call.args[3]).ok_or(Error::NOT_FLOAT)?;
    if more == Extended::Infinite {
        return Err(Error::new("ERR value is NaN or Infinity"));
    }
    let old = old_of(call, key)?;
    let value = Extended::parse(old.value.as_deref().unwrap_or(b"0"));
    let value = value.ok_or(Error::new("ERR hash value is not a float"))?;
    let Extended::Finite(new) = value.plus(more) else { return Err(Error::NOT_FINITE) };
    let text = new.text().into_bytes();
    set_number(call, key, &text, "hincrbyfloat", &old, false);
    call.reply.bulk(&text);
    Ok(())
}

fn hrandfield(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, engine, now_ms) = (call.key(1), call.engine, call.now.unix_ms());
    let draw = || engine.draw();
    if call.args.len() == 2 {
        match call
            .keys
            .get::<Hash>(key)?
            .and_then(|hash| if hash.is_empty() { None } else { hash.random(now_ms, draw) })
        {
            Some(field) => bulk(call.reply, field.name),
            None => call.reply.null(),
        }
        return Ok(());
    }
    let (wanted, with_values) = (Wanted::read(call, 2)?, call.args.len() > 3);
    if call.args.len() > 4 || with_values && !call.args.is(3, "WITHVALUES") {
        return Err(Error::SYNTAX);
    }
    if with_values && call.integer(2)?.unsigned_abs() > (i64::MAX / 2).unsigned_abs() {
        return Err(Error::OUT_OF_RANGE);
    }
    let wanted = wanted.bounded()?;
    let Some(hash) = call.keys.get::<Hash>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let (later, reply, mut shown) = (call.reply.array_later(), &mut *call.reply, 0);
    let is_nested = with_values && reply.protocol() == Protocol::Resp3;
    let show = |field: Field<'_>| {
        if is_nested {
            reply.array(2);
        }
        bulk(reply, field.name);
        if with_values {
            bulk(reply, field.value);
        }
        shown += if with_values && !is_nested { 2 } else { 1 };
    };
    match wanted {
        Wanted::Distinct(count) => hash.random_distinct(count, now_ms, draw, show),
        Wanted::Repeated(count) => hash.random_repeated(count, now_ms, draw, show),
    }
    call.reply.finish(later, shown);
    Ok(())
}

fn hscan(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, cursor, now_ms) = (call.key(1), elements::cursor_of(call)?, call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    if call.keys.get::<Hash>(key)?.is_none() {
        elements::scanned_nothing(call.reply);
        return Ok(());
    }
    let scan = Scan::read(call, true)?;
    let (Some(hash), Some(place)) = (call.keys.view::<Hash>(key), elements::place_of(cursor)) else {
        elements::scanned_nothing(call.reply);
        return Ok(());
    };
    let mut shown = Vec::new();
    let next = hash.scan(place, scan.count, now_ms, hash_key, |field| {
        if scan.shows(field.name) {
            shown.push(field);
        }
    });
    call.reply.array(2);
    call.reply.bulk_integer(i64::from(next));
    call.reply.array(shown.len() * if scan.names_only { 1 } else { 2 });
    for field in shown {
        bulk(call.reply, field.name);
        if !scan.names_only {
            bulk(call.reply, field.value);
        }
    }
    Ok(())
}
