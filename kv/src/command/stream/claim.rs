//! XCLAIM and XAUTOCLAIM: what one consumer has not acknowledged is given to another.

use super::{
    Call, Run, claimed, group_id, group_of, id_of, lossy, new_consumer, noted, reply_entry, reply_id, start_of,
};
use crate::error::Error;
use crate::keyspace::Key;
use crate::resp::number::parse_i64;
use crate::resp::{Reply, Request};
use crate::value::stream::{Claim, Claimed, ConsumerId, Log, Stream, StreamId};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[("xautoclaim", xautoclaim), ("xclaim", xclaim)];

/// Entries that XAUTOCLAIM claims unless COUNT says otherwise, and at most.
const COUNT_DEFAULT: usize = 100;
const COUNT_MAX: i64 = i64::MAX / 16;

fn no_group(call: &Call<'_, '_>) -> Error {
    let (key, name) = (lossy(&call.args[1]), lossy(&call.args[2]));
    Error::text(format!("NOGROUP No such key '{key}' or consumer group '{name}'"))
}

/// The consumer in word 3 of a group that is there, made if need be, and seen now; `instead` tells that it is new.
fn consumer(call: &mut Call<'_, '_>, key: Key<'_>, instead: &mut Vec<Request>) -> Result<ConsumerId, Error> {
    let now_ms = call.now.unix_ms();
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &call.args[2]);
    let (_, group) = found.expect("the group was just seen");
    let is_new = group.find_consumer(&call.args[3]).is_none();
    let consumer = group.consumer_of(&call.args[3], now_ms);
    group.consumer_mut(consumer).seen_ms = now_ms;
    if is_new {
        noted(call, key, "xgroup-createconsumer");
        instead.push(new_consumer(key.bytes, &call.args[2], &call.args[3]));
    }
    Ok(consumer)
}

fn reply_claimed(reply: &mut Reply, log: &Log, id: StreamId, ids_only: bool) {
    match log.get(id) {
        Some(entry) if !ids_only => reply_entry(reply, entry),
        _ => reply_id(reply, id),
    }
}

/// The options of XCLAIM.
#[derive(Debug, Default)]
struct Options {
    is_forced: bool,
    ids_only: bool,
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    last_id: StreamId,
}

impl Options {
    fn read(call: &Call<'_, '_>, at: usize) -> Result<Self, Error> {
        let (args, mut at, mut options) = (call.args, at, Self::default());
        let number = |at: usize, name: &str| {
            let wrong = || Error::text(format!("ERR Invalid {name} option argument for XCLAIM"));
            parse_i64(&args[at]).ok_or_else(wrong)
        };
        while at < args.len() {
            let has_value = at + 1 < args.len();
            match () {
                () if args.is(at, "FORCE") => options.is_forced = true,
                () if args.is(at, "JUSTID") => options.ids_only = true,
                () if has_value && args.is(at, "IDLE") => {
                    at += 1;
                    options.delivered_ms = Some(call.now.unix_ms().saturating_sub(number(at, "IDLE")?));
                }
                () if has_value && args.is(at, "TIME") => {
                    at += 1;
                    options.delivered_ms = Some(number(at, "TIME")?);
                }
                () if has_value && args.is(at, "RETRYCOUNT") => {
                    at += 1;
                    options.deliveries = u64::try_from(number(at, "RETRYCOUNT")?).ok();
                }
                () if has_value && args.is(at, "LASTID") => {
                    at += 1;
                    options.last_id = id_of(&args[at], 0)?;
                }
                () => return Err(Error::text(format!("ERR Unrecognized XCLAIM option '{}'", lossy(&args[at])))),
            }
            at += 1;
        }
        Ok(options)
    }
}

fn xclaim(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, args, now_ms) = (call.key(1), call.args, call.now.unix_ms());
    if group_of(call.keys.get_mut::<Stream>(key)?, &args[2]).is_none() {
        return Err(no_group(call));
    }
    let wrong = Error::new("ERR Invalid min-idle-time argument for XCLAIM");
    let idle_ms_min = parse_i64(&args[4]).ok_or(wrong)?.max(0);
    let ids: Vec<StreamId> = args.from(5).map_while(|word| StreamId::parse(word, 0)).collect();
    let options = Options::read(call, 5 + ids.len())?;
    let mut instead = Vec::new();
    let claim = Claim {
        consumer: consumer(call, key, &mut instead)?,
        idle_ms_min,
        // A primary has judged it already, and by its own clock.
        delivered_ms: options.delivered_ms.filter(|at| *at >= 0 && !call.has_yet_to_come(*at)).unwrap_or(now_ms),
        deliveries: options.deliveries,
        is_forced: options.is_forced,
        is_delivery: !options.ids_only,
    };
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &args[2]);
    let (log, group) = found.expect("the group was just seen");
    let moves = options.last_id > group.last_id();
    if moves {
        group.set_id(options.last_id, group.entries_read());
    }
    let (mut count, later) = (0, call.reply.array_later());
    for id in ids {
        let before = group.pending_of(id);
        match group.claim(log, id, claim, now_ms) {
            Claimed::Yes => {
                reply_claimed(call.reply, log, id, options.ids_only);
                count += 1;
                let pending = group.pending_of(id).expect("it was just claimed");
                instead.push(claimed(key.bytes, &args[2], group, id, pending));
            }
            Claimed::Gone => {
                let pending = before.expect("only what was pending can be gone");
                instead.push(claimed(key.bytes, &args[2], group, id, pending));
            }
            Claimed::No => {}
        }
    }
    if moves {
        instead.push(group_id(key.bytes, &args[2], group));
    }
    call.reply.finish(later, count);
    call.effects.changes += u64::try_from(instead.len()).expect("a count of words");
    call.trace(instead);
    Ok(())
}

fn xautoclaim(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, args, now_ms) = (call.key(1), call.args, call.now.unix_ms());
    let wrong = Error::new("ERR Invalid min-idle-time argument for XAUTOCLAIM");
    let idle_ms_min = parse_i64(&args[4]).ok_or(wrong)?.max(0);
    let start = start_of(&args[5])?;
    let (mut count, mut ids_only, mut at) = (COUNT_DEFAULT, false, 6);
    while at < args.len() {
        match () {
            () if args.is(at, "COUNT") && at + 1 < args.len() => {
                at += 1;
                let value = parse_i64(&args[at]).filter(|count| (1..=COUNT_MAX).contains(count));
                let value = value.and_then(|count| usize::try_from(count).ok());
                count = value.ok_or(Error::new("ERR COUNT must be > 0"))?;
            }
            () if args.is(at, "JUSTID") => ids_only = true,
            () => return Err(Error::SYNTAX),
        }
        at += 1;
    }
    if group_of(call.keys.get_mut::<Stream>(key)?, &args[2]).is_none() {
        return Err(no_group(call));
    }
    let mut instead = Vec::new();
    let claim = Claim {
        consumer: consumer(call, key, &mut instead)?,
        idle_ms_min,
        delivered_ms: now_ms,
        deliveries: None,
        is_forced: false,
        is_delivery: !ids_only,
    };
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &args[2]);
    let (log, group) = found.expect("the group was just seen");
    let swept = group.auto_claim(log, start, count, claim, now_ms);
    let reply = &mut *call.reply;
    reply.array(3);
    reply_id(reply, swept.next);
    reply.array(swept.claimed.len());
    swept.claimed.iter().for_each(|id| reply_claimed(reply, log, *id, ids_only));
    reply.array(swept.gone.len());
    swept.gone.iter().for_each(|id| reply_id(reply, *id));
    // Wherever it is done again, a claim of an entry that is gone makes it pending no more.
    let gone = crate::value::stream::Pending { consumer: claim.consumer, delivered_ms: now_ms, deliveries: 1 };
    let all = swept.claimed.iter().map(|id| (*id, group.pending_of(*id).expect("it was just claimed")));
    let all = all.chain(swept.gone.iter().map(|id| (*id, gone)));
    instead.extend(all.map(|(id, pending)| claimed(key.bytes, &args[2], group, id, pending)));
    call.effects.changes += u64::try_from(instead.len()).expect("a count of entries in memory");
    call.trace(instead);
    Ok(())
}
