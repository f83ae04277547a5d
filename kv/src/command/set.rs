//! Sets.

use super::call::{Call, Run};
use super::elements::{self, Scan, Wanted, bulk};
use crate::error::Error;
use crate::keyspace::{Expiry, Key, Keys};
use crate::resp::Request;
use crate::resp::number::parse_i64;
use crate::serve::removal;
use crate::settings::Events;
use crate::value::set::{self, Set};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("sadd", sadd),
    ("scard", scard),
    ("sdiff", sdiff),
    ("sdiffstore", sdiffstore),
    ("sinter", sinter),
    ("sintercard", sintercard),
    ("sinterstore", sinterstore),
    ("sismember", sismember),
    ("smembers", smembers),
    ("smismember", smismember),
    ("smove", smove),
    ("spop", spop),
    ("srandmember", srandmember),
    ("srem", srem),
    ("sscan", sscan),
    ("sunion", sunion),
    ("sunionstore", sunionstore),
];

/// A set has changed in so many ways.
fn changed(call: &mut Call<'_, '_>, key: Key<'_>, event: &'static str, changes: usize) {
    call.changed(key, Events::SET, event);
    call.effects.changes += u64::try_from(changes.saturating_sub(1)).unwrap_or(u64::MAX);
}

/// Takes the key out if its last member has gone.
fn remove_if_empty(call: &mut Call<'_, '_>, key: Key<'_>) {
    if call.keys.remove_if_empty::<Set>(key) {
        call.notify(Events::GENERIC, "del", key.bytes);
    }
}

fn sadd(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, members) = (call.key(1), call.args.from(2));
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.set);
    let count = members.len();
    let first = call.args.get(2).expect("the arity was checked");
    let set = call.keys.get_or_insert(key, || Set::new(first, count, limits))?;
    set.prepare(count, hash_key, limits);
    let added = members.filter(|member| set.add(member, hash_key, limits)).count();
    if added > 0 {
        changed(call, key, "sadd", added);
    }
    call.reply.count(added);
    Ok(())
}

fn srem(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let hash_key = call.engine.keyspace.hash_key();
    let removed = match call.keys.get_mut::<Set>(key)? {
        Some(set) => call.args.from(2).filter(|member| set.remove(member, hash_key)).count(),
        None => 0,
    };
    if removed > 0 {
        changed(call, key, "srem", removed);
        remove_if_empty(call, key);
    }
    call.reply.count(removed);
    Ok(())
}

fn smove(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (from, to) = (call.key(1), call.key(2));
    let member = call.args.get(3).expect("the arity was checked");
    let (hash_key, limits) = (call.engine.keyspace.hash_key(), &call.settings.set);
    let Some(source) = call.keys.get_mut::<Set>(from)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let is_there = source.contains(member, hash_key);
    call.keys.get_mut::<Set>(to)?;
    if !is_there || from.bytes == to.bytes {
        call.reply.integer(i64::from(is_there));
        return Ok(());
    }
    if let Some(source) = call.keys.get_mut::<Set>(from)? {
        source.remove(member, hash_key);
    }
    changed(call, from, "srem", 1);
    remove_if_empty(call, from);
    let target = call.keys.get_or_insert(to, || Set::new(member, 1, limits))?;
    if target.add(member, hash_key, limits) {
        changed(call, to, "sadd", 1);
    }
    call.reply.integer(1);
    Ok(())
}

fn sismember(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let hash_key = call.engine.keyspace.hash_key();
    let is_member = call.keys.get::<Set>(key)?.is_some_and(|set| set.contains(&call.args[2], hash_key));
    call.reply.integer(i64::from(is_member));
    Ok(())
}

fn smismember(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, members) = (call.key(1), call.args.from(2));
    let hash_key = call.engine.keyspace.hash_key();
    let set = call.keys.get::<Set>(key)?;
    call.reply.array(members.len());
    for member in members {
        call.reply.integer(i64::from(set.is_some_and(|set| set.contains(member, hash_key))));
    }
    Ok(())
}

fn scard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let len = call.keys.get::<Set>(key)?.map_or(0, Set::len);
    call.reply.count(len);
    Ok(())
}

fn smembers(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let set = call.keys.get::<Set>(key)?;
    call.reply.set(set.map_or(0, Set::len));
    set.into_iter().flat_map(Set::iter).for_each(|member| bulk(call.reply, member));
    Ok(())
}

fn spop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    match call.args.len() {
        2 => pop_one(call),
        3 => pop_many(call),
        _ => Err(Error::SYNTAX),
    }
}

fn pop_one(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, engine) = (call.key(1), call.engine);
    let set = call.keys.get_mut::<Set>(key)?;
    let Some(member) = set.and_then(|set| set.pop(engine.keyspace.hash_key(), || engine.draw())) else {
        call.reply.null();
        return Ok(());
    };
    call.reply.bulk(&member);
    changed(call, key, "spop", 1);
    call.trace_as(|_| [b"SREM", key.bytes, &member[..]].into_iter().collect());
    remove_if_empty(call, key);
    Ok(())
}

fn pop_many(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, engine) = (call.key(1), call.engine);
    let count = parse_i64(&call.args[2]).and_then(|count| usize::try_from(count).ok()).ok_or(Error::NOT_POSITIVE)?;
    let Some(set) = call.keys.get_mut::<Set>(key)?.filter(|_| count > 0) else {
        call.reply.set(0);
        return Ok(());
    };
    let popped = count.min(set.len());
    let is_all = popped == set.len();
    let mut removed: Request = [b"SREM", key.bytes].into_iter().collect();
    call.reply.set(popped);
    set.pop_many(
        count,
        engine.keyspace.hash_key(),
        &call.settings.set,
        || engine.draw(),
        |member| {
            bulk(call.reply, member);
            removed.push(&member.to_vec());
        },
    );
    changed(call, key, "spop", popped);
    let removal_of_all = || [removal(call.settings.memory.replaces_later), key.bytes].into_iter().collect();
    let instead = if is_all { removal_of_all() } else { removed };
    call.trace(vec![instead]);
    remove_if_empty(call, key);
    Ok(())
}

fn srandmember(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, engine) = (call.key(1), call.engine);
    let draw = || engine.draw();
    if call.args.len() > 3 {
        return Err(Error::SYNTAX);
    }
    if call.args.len() == 2 {
        match call.keys.get::<Set>(key)?.and_then(|set| set.random(draw)) {
            Some(member) => bulk(call.reply, member),
            None => call.reply.null(),
        }
        return Ok(());
    }
    let wanted = Wanted::read(call, 2)?.bounded()?;
    let set = call.keys.get::<Set>(key)?;
    let len = set.map_or(0, Set::len);
    match (wanted, set) {
        (Wanted::Distinct(count), Some(set)) => {
            call.reply.array(count.min(len));
            set.random_distinct(count, draw, |member| bulk(call.reply, member));
        }
        (Wanted::Repeated(count), Some(set)) => {
            call.reply.array(count);
            set.random_repeated(count, draw, |member| bulk(call.reply, member));
        }
        (_, None) => call.reply.array(0),
    }
    Ok(())
}

fn sscan(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, cursor) = (call.key(1), elements::cursor_of(call)?);
    let hash_key = call.engine.keyspace.hash_key();
    if call.keys.get::<Set>(key)?.is_none() {
        elements::scanned_nothing(call.reply);
        return Ok(());
    }
    let scan = Scan::read(call, false)?;
    let (Some(set), Some(place)) = (call.keys.view::<Set>(key), elements::place_of(cursor)) else {
        elements::scanned_nothing(call.reply);
        return Ok(());
    };
    let mut shown = Vec::new();
    let next = set.scan(place, scan.count, hash_key, |member| {
        if scan.shows(member) {
            shown.push(member);
        }
    });
    call.reply.array(2);
    call.reply.bulk_integer(i64::from(next));
    call.reply.array(shown.len());
    shown.into_iter().for_each(|member| bulk(call.reply, member));
    Ok(())
}

/// Those of the keys that have a set, in their order; nothing for others.
///
/// # Errors
/// One has a value of another kind.
fn keys_of_sets<'a>(
    call: &mut Call<'a, '_>,
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Option<Key<'a>>>, Error> {
    let mut found = Vec::new();
    for word in words {
        let key = call.keys.key(word);
        found.push(call.keys.get::<Set>(key)?.is_some().then_some(key));
    }
    Ok(found)
}

/// The sets of keys that were looked for before.
fn sets<'s>(keys: &'s Keys<'_>, found: &[Option<Key<'_>>]) -> Vec<&'s Set> {
    found.iter().flatten().filter_map(|key| keys.view(*key)).collect()
}

/// Keeps the result of an operation, and replies how many members it has.
fn store(call: &mut Call<'_, '_>, result: Option<Set>, event: &'static str) {
    let target = call.key(1);
    let result = result.filter(|result| !result.is_empty());
    call.reply.count(result.as_ref().map_or(0, Set::len));
    if let Some(result) = result {
        call.keys.put(target, result, Expiry::Never);
        call.changed(target, Events::SET, event);
    } else if call.keys.remove(target).is_some() {
        call.changed(target, Events::GENERIC, "del");
    }
}

fn reply_set(call: &mut Call<'_, '_>, result: &Set) {
    call.reply.set(result.len());
    result.iter().for_each(|member| bulk(call.reply, member));
}

fn sinter(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let keys = keys_of_sets(call, call.args.from(1))?;
    let hash_key = call.engine.keyspace.hash_key();
    if keys.contains(&None) {
        call.reply.set(0);
        return Ok(());
    }
    let mut common = Vec::new();
    set::intersection(&sets(call.keys, &keys), usize::MAX, hash_key, |member| common.push(member));
    call.reply.set(common.len());
    common.into_iter().for_each(|member| bulk(call.reply, member));
    Ok(())
}

fn sinterstore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let keys = keys_of_sets(call, call.args.from(2))?;
    let hash_key = call.engine.keyspace.hash_key();
    let is_empty = keys.contains(&None);
    let result = (!is_empty).then(|| set::intersection_of(&sets(call.keys, &keys), hash_key, &call.settings.set));
    store(call, result, "sinterstore");
    Ok(())
}

fn sintercard(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = parse_i64(&call.args[1]).and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Error::new("ERR numkeys should be greater than 0"))?;
    if count > call.args.len() - 2 {
        return Err(Error::new("ERR Number of keys can't be greater than number of args"));
    }
    let (mut limit, mut at) = (0, 2 + count);
    while at < call.args.len() {
        let value = call.args.get(at + 1).filter(|_| call.args.is(at, "LIMIT")).ok_or(Error::SYNTAX)?;
        let given = parse_i64(value).and_then(|limit| usize::try_from(limit).ok());
        limit = given.ok_or(Error::new("ERR LIMIT can't be negative"))?;
        at += 2;
    }
    let keys = keys_of_sets(call, call.args.from(2).take(count))?;
    let hash_key = call.engine.keyspace.hash_key();
    let limit = if limit == 0 { usize::MAX } else { limit };
    let found =
        if keys.contains(&None) { 0 } else { set::intersection(&sets(call.keys, &keys), limit, hash_key, |_| {}) };
    call.reply.count(found);
    Ok(())
}

fn union(call: &mut Call<'_, '_>, first: usize) -> Result<Set, Error> {
    let keys = keys_of_sets(call, call.args.from(first))?;
    Ok(set::union_of(&sets(call.keys, &keys), call.engine.keyspace.hash_key(), &call.settings.set))
}

fn sunion(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let result = union(call, 1)?;
    reply_set(call, &result);
    Ok(())
}

fn sunionstore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let result = union(call, 2)?;
    store(call, Some(result), "sunionstore");
    Ok(())
}

fn difference(call: &mut Call<'_, '_>, first: usize) -> Result<Option<Set>, Error> {
    let keys = keys_of_sets(call, call.args.from(first))?;
    if keys[0].is_none() {
        return Ok(None);
    }
    let sets = sets(call.keys, &keys);
    Ok(Some(set::difference_of(sets[0], &sets[1..], call.engine.keyspace.hash_key(), &call.settings.set)))
}

fn sdiff(call: &mut Call<'_, '_>) -> Result<(), Error> {
    match difference(call, 1)? {
        Some(result) => reply_set(call, &result),
        None => call.reply.set(0),
    }
    Ok(())
}

fn sdiffstore(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let result = difference(call, 2)?;
    store(call, result, "sdiffstore");
    Ok(())
}
