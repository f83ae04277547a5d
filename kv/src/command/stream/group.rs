//! Groups of consumers, and what these have not acknowledged.

use super::{
    Call, Run, end_of, group_of, id_of, id_or_end, lossy, noted, reply_help, reply_id, start_of, wrong_subcommand,
};
use crate::error::Error;
use crate::keyspace::Key;
use crate::resp::number::parse_i64;
use crate::value::stream::{Stream, StreamId};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("xack", xack),
    ("xgroup|create", create),
    ("xgroup|createconsumer", create_consumer),
    ("xgroup|delconsumer", delete_consumer),
    ("xgroup|destroy", destroy),
    ("xgroup|help", help),
    ("xgroup|setid", set_id),
    ("xpending", xpending),
];

const HELP: &[&str] = &[
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];

fn help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    reply_help(call, HELP);
    Ok(())
}

const KEY_NEEDED: Error = Error::new(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to \
     create an empty stream automatically.",
);

/// The options of CREATE and SETID: whether the stream is made, and how many entries were read.
fn options(call: &Call<'_, '_>, creates: bool) -> Result<(bool, Option<u64>), Error> {
    let (mut makes, mut entries_read, mut at) = (false, None, 5);
    while at < call.args.len() {
        match () {
            () if creates && call.args.is(at, "MKSTREAM") => makes = true,
            () if call.args.is(at, "ENTRIESREAD") && at + 1 < call.args.len() => {
                at += 1;
                entries_read = match call.integer(at)? {
                    -1 => None,
                    read => {
                        let wrong = Error::new("ERR value for ENTRIESREAD must be positive or -1");
                        Some(u64::try_from(read).map_err(|_| wrong)?)
                    }
                };
            }
            () => return Err(wrong_subcommand(call)),
        }
        at += 1;
    }
    Ok((makes, entries_read))
}

fn no_group(call: &Call<'_, '_>) -> Error {
    let (key, name) = (lossy(&call.args[2]), lossy(&call.args[3]));
    Error::text(format!("NOGROUP No such consumer group '{name}' for key name '{key}'"))
}

/// The stream in word 2, which must be there, and have the group in word 3.
fn check_group(call: &mut Call<'_, '_>, key: Key<'_>) -> Result<(), Error> {
    let stream = call.keys.get_mut::<Stream>(key)?.ok_or(KEY_NEEDED)?;
    if stream.groups.contains_key(&call.args[3]) { Ok(()) } else { Err(no_group(call)) }
}

fn create(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let (makes, entries_read) = options(call, true)?;
    let last_id = call.keys.get_mut::<Stream>(key)?.map(|stream| stream.log.last_id());
    if last_id.is_none() && !makes {
        return Err(KEY_NEEDED);
    }
    if call.args.len() > 8 {
        return Err(wrong_subcommand(call));
    }
    let id = match &call.args[4] {
        b"$" => last_id.unwrap_or_default(),
        word => id_of(word, 0)?,
    };
    let stream = call.keys.get_or_insert(key, Stream::new)?;
    let is_new = stream.create_group(&call.args[3], id, entries_read);
    if last_id.is_none() {
        call.touched(key);
    }
    if !is_new {
        return Err(Error::new("BUSYGROUP Consumer Group name already exists"));
    }
    call.reply.ok();
    noted(call, key, "xgroup-create");
    Ok(())
}

fn set_id(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let (_, entries_read) = options(call, false)?;
    check_group(call, key)?;
    if call.args.len() > 7 {
        return Err(wrong_subcommand(call));
    }
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &call.args[3]);
    let (log, group) = found.expect("the group was just seen");
    let id = match &call.args[4] {
        b"$" => log.last_id(),
        word => id_or_end(word, 0)?,
    };
    group.set_id(id, entries_read);
    call.reply.ok();
    noted(call, key, "xgroup-setid");
    Ok(())
}

fn destroy(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let stream = call.keys.get_mut::<Stream>(key)?.ok_or(KEY_NEEDED)?;
    let was_there = stream.groups.remove(&call.args[3]).is_some();
    if was_there {
        noted(call, key, "xgroup-destroy");
        // Whoever waits for entries of the group has to know that it is gone.
        call.touched(key);
    }
    call.reply.integer(i64::from(was_there));
    Ok(())
}

fn create_consumer(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(2), call.now.unix_ms());
    check_group(call, key)?;
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &call.args[3]);
    let (_, group) = found.expect("the group was just seen");
    let is_new = group.create_consumer(&call.args[4], now_ms).is_some();
    if is_new {
        noted(call, key, "xgroup-createconsumer");
    }
    call.reply.integer(i64::from(is_new));
    Ok(())
}

fn delete_consumer(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    check_group(call, key)?;
    let found = group_of(call.keys.get_mut::<Stream>(key)?, &call.args[3]);
    let (_, group) = found.expect("the group was just seen");
    let pending = group.delete_consumer(&call.args[4]);
    if pending.is_some() {
        noted(call, key, "xgroup-delconsumer");
    }
    call.reply.count(pending.unwrap_or(0));
    Ok(())
}

fn xack(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let Some((_, group)) = group_of(call.keys.get_mut::<Stream>(key)?, &call.args[2]) else {
        call.reply.integer(0);
        return Ok(());
    };
    let ids = call.args.from(3).map(|word| id_of(word, 0)).collect::<Result<Vec<_>, Error>>()?;
    let count = ids.into_iter().filter(|id| group.acknowledge(*id)).count();
    call.effects.changes += u64::try_from(count).expect("a count of words");
    call.reply.count(count);
    Ok(())
}

/// Which pending entries XPENDING lists.
struct Listing<'c> {
    idle_ms_min: i64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<&'c [u8]>,
}

impl<'c> Listing<'c> {
    fn read(call: &Call<'c, '_>) -> Result<Self, Error> {
        let (args, mut at, mut idle_ms_min) = (call.args, 3, 0);
        if args.is(3, "IDLE") {
            idle_ms_min = parse_i64(&args[4]).ok_or(Error::NOT_INTEGER)?;
            if args.len() < 8 {
                return Err(Error::SYNTAX);
            }
            at = 5;
        }
        let count = usize::try_from(call.integer(at + 2)?).unwrap_or(0);
        let (first, last) = (start_of(&args[at])?, end_of(&args[at + 1])?);
        Ok(Self { idle_ms_min, first, last, count, consumer: args.get(at + 3) })
    }
}

fn xpending(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, args, now_ms) = (call.key(1), call.args, call.now.unix_ms());
    if args.len() != 3 && !(6..=9).contains(&args.len()) {
        return Err(Error::SYNTAX);
    }
    let listing = if args.len() == 3 { None } else { Some(Listing::read(call)?) };
    let found = call.keys.get::<Stream>(key)?.and_then(|stream| stream.groups.get(&args[2]));
    let Some(group) = found else {
        let (key, name) = (lossy(&args[1]), lossy(&args[2]));
        return Err(Error::text(format!("NOGROUP No such key '{key}' or consumer group '{name}'")));
    };
    let reply = &mut *call.reply;
    let Some(listing) = listing else {
        reply_summary(reply, group);
        return Ok(());
    };
    let consumer = listing.consumer.map(|name| group.find_consumer(name));
    if consumer == Some(None) {
        reply.array(0);
        return Ok(());
    }
    let is_idle = |delivered_ms: i64| listing.idle_ms_min == 0 || now_ms - delivered_ms >= listing.idle_ms_min;
    let pending = group.pending(listing.first, listing.last, consumer.flatten());
    let (mut count, later) = (0, reply.array_later());
    for (id, pending) in pending.filter(|(_, pending)| is_idle(pending.delivered_ms)).take(listing.count) {
        reply.array(4);
        reply_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.integer((now_ms - pending.delivered_ms).max(0));
        reply.integer(i64::try_from(pending.deliveries).unwrap_or(i64::MAX));
        count += 1;
    }
    reply.finish(later, count);
    Ok(())
}

/// How many entries are pending, from where to where, and how many each consumer has.
fn reply_summary(reply: &mut crate::resp::Reply, group: &crate::value::stream::Group) {
    let mut ids = group.pending(StreamId::MIN, StreamId::MAX, None).map(|(id, _)| id);
    let first = ids.next();
    let last = ids.next_back().or(first);
    reply.array(4);
    reply.count(group.pending_len());
    let Some((first, last)) = first.zip(last) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let (mut count, later) = (0, reply.array_later());
    for consumer in group.consumers().filter(|consumer| !consumer.pending().is_empty()) {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk(consumer.pending().len().to_string().as_bytes());
        count += 1;
    }
    reply.finish(later, count);
}
