//! XINFO: what is known of a stream, its groups and their consumers.

use super::{Call, Run, lossy, reply_entries, reply_entry, reply_help, reply_id, wrong_subcommand};
use crate::error::Error;
use crate::resp::Reply;
use crate::value::stream::{Consumer, Group, Log, Stream, StreamId};

pub(in crate::command) const RUNS: &[(&str, Run)] =
    &[("xinfo|consumers", consumers), ("xinfo|groups", groups), ("xinfo|help", help), ("xinfo|stream", stream)];

/// Entries that FULL shows of each list unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 10;

const HELP: &[&str] = &[
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    reply_help(call, HELP);
    Ok(())
}

fn reply_number(reply: &mut Reply, number: u64) {
    reply.integer(number.cast_signed());
}

fn reply_named_id(reply: &mut Reply, name: &str, id: StreamId) {
    reply.bulk(name.as_bytes());
    reply_id(reply, id);
}

fn reply_named(reply: &mut Reply, name: &str, number: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(number);
}

fn count_of(len: usize) -> i64 {
    i64::try_from(len).expect("a count of things in memory")
}

fn reply_progress(reply: &mut Reply, group: &Group, log: &Log) {
    reply_named_id(reply, "last-delivered-id", group.last_id());
    reply.bulk(b"entries-read");
    match group.entries_read() {
        Some(read) => reply_number(reply, read),
        None => reply.null(),
    }
    reply.bulk(b"lag");
    match group.lag(log) {
        Some(lag) => reply.integer(lag),
        None => reply.null(),
    }
}

fn consumers(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(2), call.now.unix_ms());
    let stream = call.keys.get::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let Some(group) = stream.groups.get(&call.args[3]) else {
        let (key, name) = (lossy(key.bytes), lossy(&call.args[3]));
        return Err(Error::text(format!("NOGROUP No such consumer group '{name}' for key name '{key}'")));
    };
    let reply = &mut *call.reply;
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        reply_named(reply, "pending", count_of(consumer.pending().len()));
        reply_named(reply, "idle", (now_ms - consumer.seen_ms).max(0));
        reply_named(reply, "inactive", consumer.active_ms.map_or(-1, |at| now_ms - at));
    }
    Ok(())
}

fn groups(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let stream = call.keys.get::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let reply = &mut *call.reply;
    reply.array(stream.groups.len());
    for (name, group) in &stream.groups {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply_named(reply, "consumers", count_of(group.consumers().len()));
        reply_named(reply, "pending", count_of(group.pending_len()));
        reply_progress(reply, group, &stream.log);
    }
    Ok(())
}

fn stream(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, args) = (call.key(2), call.args);
    if call.keys.get::<Stream>(key)?.is_none() {
        return Err(Error::NO_SUCH_KEY);
    }
    let full = match args.len() {
        3 => None,
        4 if args.is(3, "FULL") => Some(COUNT_DEFAULT),
        6 if args.is(3, "FULL") && args.is(4, "COUNT") => {
            Some(usize::try_from(call.integer(5)?).unwrap_or(COUNT_DEFAULT))
        }
        _ => return Err(wrong_subcommand(call)),
    };
    let stream = call.keys.get::<Stream>(key)?.expect("the stream was just seen");
    let (reply, log) = (&mut *call.reply, &stream.log);
    reply.map(if full.is_some() { 9 } else { 10 });
    reply.bulk(b"length");
    reply_number(reply, log.len());
    reply_named(reply, "radix-tree-keys", count_of(log.nodes()));
    // There is no such tree; one of so many keys has at least so many nodes.
    reply_named(reply, "radix-tree-nodes", count_of(log.nodes() + 1));
    reply_named_id(reply, "last-generated-id", log.last_id());
    reply_named_id(reply, "max-deleted-entry-id", log.max_deleted_id());
    reply.bulk(b"entries-added");
    reply_number(reply, log.entries_added());
    reply_named_id(reply, "recorded-first-entry-id", log.first().map_or(StreamId::MIN, |entry| entry.id));
    let Some(count) = full else {
        reply_named(reply, "groups", count_of(stream.groups.len()));
        for (name, entry) in [("first-entry", log.first()), ("last-entry", log.last())] {
            reply.bulk(name.as_bytes());
            match entry {
                Some(entry) => reply_entry(reply, entry),
                None => reply.null(),
            }
        }
        return Ok(());
    };
    let count = if count == 0 { usize::MAX } else { count };
    reply.bulk(b"entries");
    reply_entries(reply, log.range(StreamId::MIN, StreamId::MAX), Some(count));
    reply.bulk(b"groups");
    reply.array(stream.groups.len());
    stream.groups.iter().for_each(|(name, group)| reply_group(reply, name, group, log, count));
    Ok(())
}

fn reply_group(reply: &mut Reply, name: &[u8], group: &Group, log: &Log, count: usize) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    reply_progress(reply, group, log);
    reply_named(reply, "pel-count", count_of(group.pending_len()));
    reply.bulk(b"pending");
    reply.array(group.pending_len().min(count));
    for (id, pending) in group.pending(StreamId::MIN, StreamId::MAX, None).take(count) {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.integer(pending.delivered_ms);
        reply_number(reply, pending.deliveries);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers().len());
    group.consumers().for_each(|consumer| reply_consumer(reply, group, consumer, count));
}

fn reply_consumer(reply: &mut Reply, group: &Group, consumer: &Consumer, count: usize) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    reply_named(reply, "seen-time", consumer.seen_ms);
    reply_named(reply, "active-time", consumer.active_ms.unwrap_or(-1));
    reply_named(reply, "pel-count", count_of(consumer.pending().len()));
    reply.bulk(b"pending");
    reply.array(consumer.pending().len().min(count));
    for id in consumer.pending().iter().take(count) {
        let pending = group.pending_of(*id).expect("what a consumer has, the group has");
        reply.array(3);
        reply_id(reply, *id);
        reply.integer(pending.delivered_ms);
        reply_number(reply, pending.deliveries);
    }
}
