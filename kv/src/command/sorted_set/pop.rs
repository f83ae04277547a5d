//! Entries are taken from an end of the order, or waited for.

use std::ops::Range;

use ashlar_wire::time::Instant;

use super::{Call, Run, removed, reply_entries, reply_score};
use crate::error::Error;
use crate::keyspace::{Key, Kind};
use crate::memory::packed::Digits;
use crate::resp::number::{Decimal, parse_i64};
use crate::resp::{Protocol, Request};
use crate::value::zset::{Entry, ZSet};
use crate::waiting::{Awaited, Wait};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("bzmpop", bzmpop),
    ("bzpopmax", |call| wait_and_pop(call, true)),
    ("bzpopmin", |call| wait_and_pop(call, false)),
    ("zmpop", zmpop),
    ("zpopmax", |call| pop(call, true)),
    ("zpopmin", |call| pop(call, false)),
];

const fn event_of(is_greatest: bool) -> &'static str {
    if is_greatest { "zpopmax" } else { "zpopmin" }
}

/// What is sent on instead of a command that may take from one of several sets.
fn plain(key: &[u8], is_greatest: bool, count: Option<usize>) -> Request {
    let name: &[u8] = if is_greatest { b"ZPOPMAX" } else { b"ZPOPMIN" };
    let mut words: Request = [name, key].into_iter().collect();
    if let Some(count) = count {
        let count = i64::try_from(count).expect("a count in memory fits 63 bits");
        words.push(Decimal::new(count).as_bytes());
    }
    words
}

/// Removes entries of an end of a set that is there, after `show` was given them in their order. Returns how many.
fn take(
    call: &mut Call<'_, '_>,
    key: Key<'_>,
    is_greatest: bool,
    count_max: usize,
    show: impl FnOnce(&mut crate::resp::Reply, Vec<Entry<'_>>),
) -> Result<usize, Error> {
    let hash_key = call.engine.keyspace.hash_key();
    let set = call.keys.get_mut::<ZSet>(key)?.expect("the set was just seen");
    let ranks = set.ranks_at_end(is_greatest, count_max);
    let entries = set.range(ranks.clone());
    show(call.reply, if is_greatest { entries.rev().collect() } else { entries.collect() });
    let count = set.remove_range(ranks, hash_key);
    removed(call, key, count, event_of(is_greatest));
    Ok(count)
}

fn pop(call: &mut Call<'_, '_>, is_greatest: bool) -> Result<(), Error> {
    let key = call.key(1);
    let count = match call.args.len() {
        2 => None,
        3 => {
            let count = parse_i64(&call.args[2]).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or(Error::NOT_POSITIVE)?)
        }
        _ => return Err(Error::SYNTAX),
    };
    if call.keys.get_mut::<ZSet>(key)?.is_none() || count == Some(0) {
        call.reply.array(0);
        return Ok(());
    }
    take(call, key, is_greatest, count.unwrap_or(1), |reply, entries| {
        if count.is_some() || reply.protocol() == Protocol::Resp2 {
            reply_entries(reply, entries.into_iter(), true);
        } else {
            // One entry that was not counted is no list of entries.
            reply.array(2);
            for entry in entries {
                reply.bulk(entry.member.bytes(&mut Digits::default()));
                reply_score(reply, entry.score);
            }
        }
    })?;
    Ok(())
}

fn wait_and_pop(call: &mut Call<'_, '_>, is_greatest: bool) -> Result<(), Error> {
    let last = call.args.len() - 1;
    let deadline = call.deadline(last)?;
    for at in 1..last {
        let key = call.key(at);
        if call.keys.get_mut::<ZSet>(key)?.is_none() {
            continue;
        }
        take(call, key, is_greatest, 1, |reply, entries| {
            reply.array(3);
            reply.bulk(key.bytes);
            for entry in entries {
                reply.bulk(entry.member.bytes(&mut Digits::default()));
                reply_score(reply, entry.score);
            }
        })?;
        call.trace_as(|_| plain(key.bytes, is_greatest, None));
        return Ok(());
    }
    wait(call, 1..last, deadline);
    Ok(())
}

fn wait(call: &mut Call<'_, '_>, keys: Range<usize>, deadline: Option<Instant>) {
    let keys = keys.map(|at| call.args[at].into()).collect();
    let awaited = Awaited { kind: Kind::SortedSet, or_gone: false };
    call.wait(Wait { keys, awaited, deadline, request: None, goal: None });
}

/// The words of ZMPOP from the count of keys on: the words that are keys, the end, and how many entries.
fn sources(call: &Call<'_, '_>, at: usize) -> Result<(Range<usize>, bool, usize), Error> {
    let positive = |at: usize, text| {
        let value = call.integer(at).ok().and_then(|value| usize::try_from(value).ok());
        value.filter(|value| *value > 0).ok_or(Error::new(text))
    };
    let keys = positive(at, "ERR numkeys should be greater than 0")?;
    let at_end = keys.checked_add(at + 1).filter(|at| *at < call.args.len()).ok_or(Error::SYNTAX)?;
    let is_greatest = match () {
        () if call.args.is(at_end, "MIN") => false,
        () if call.args.is(at_end, "MAX") => true,
        () => return Err(Error::SYNTAX),
    };
    let more = call.args.len() - at_end - 1;
    let has_count = more > 1 && call.args.is(at_end + 1, "COUNT");
    let count = if has_count { positive(at_end + 2, "ERR count should be greater than 0")? } else { 1 };
    if more != if has_count { 2 } else { 0 } {
        return Err(Error::SYNTAX);
    }
    Ok((at + 1..at_end, is_greatest, count))
}

/// Replies entries of the first set that is there, and its key. Says whether there was one.
fn take_of_first(
    call: &mut Call<'_, '_>,
    keys: Range<usize>,
    is_greatest: bool,
    count_max: usize,
) -> Result<bool, Error> {
    for at in keys {
        let key = call.key(at);
        if call.keys.get_mut::<ZSet>(key)?.is_none() {
            continue;
        }
        let count = take(call, key, is_greatest, count_max, |reply, entries| {
            reply.array(2);
            reply.bulk(key.bytes);
            reply.array(entries.len());
            for entry in entries {
                reply.array(2);
                reply.bulk(entry.member.bytes(&mut Digits::default()));
                reply_score(reply, entry.score);
            }
        })?;
        call.trace_as(|_| plain(key.bytes, is_greatest, Some(count)));
        return Ok(true);
    }
    Ok(false)
}

fn zmpop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (keys, is_greatest, count) = sources(call, 1)?;
    if !take_of_first(call, keys, is_greatest, count)? {
        call.reply.null_array();
    }
    Ok(())
}

fn bzmpop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (keys, is_greatest, count) = sources(call, 2)?;
    let deadline = call.deadline(1)?;
    if !take_of_first(call, keys.clone(), is_greatest, count)? {
        wait(call, keys, deadline);
    }
    Ok(())
}
