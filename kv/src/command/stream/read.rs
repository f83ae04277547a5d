//! XREAD and XREADGROUP: what comes after an id, of several streams, now or later.

use ashlar_wire::time::Instant;

use super::{Call, Run, claimed, group_id, id_of, lossy, new_consumer, noted, reply_entries, reply_entry, reply_id};
use crate::error::Error;
use crate::keyspace::{Key, Kind};
use crate::resp::number::parse_i64;
use crate::resp::{Protocol, Request};
use crate::value::stream::{Stream, StreamId};
use crate::waiting::{Awaited, Wait};

pub(in crate::command) const RUNS: &[(&str, Run)] =
    &[("xread", |call| read(call, false)), ("xreadgroup", |call| read(call, true))];

/// From where on a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// After this id; of a group: what its consumer has not acknowledged.
    Id(StreamId),
    /// What the group has not been given.
    New,
}

/// The words before the streams.
#[derive(Debug, Default)]
struct Options<'c> {
    /// At most so many entries of each stream.
    count: Option<usize>,
    /// It waits, until then or for ever.
    wait: Option<Option<Instant>>,
    /// The group and the consumer.
    group: Option<(&'c [u8], &'c [u8])>,
    is_forgotten: bool,
    /// The word of the first key.
    keys: usize,
    streams: usize,
}

impl<'c> Options<'c> {
    fn read(call: &Call<'c, '_>, of_group: bool) -> Result<Self, Error> {
        let (args, mut at, mut options) = (call.args, 1, Self::default());
        let only = |option: &str| {
            let text = format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.");
            if of_group { Ok(()) } else { Err(Error::text(text)) }
        };
        while at < args.len() && options.keys == 0 {
            let left = args.len() - at - 1;
            match () {
                () if left >= 1 && args.is(at, "BLOCK") => {
                    at += 1;
                    let wrong = || Error::new("ERR timeout is not an integer or out of range");
                    let ms = parse_i64(&args[at]).ok_or_else(wrong)?;
                    let ms = u64::try_from(ms).map_err(|_| Error::TIMEOUT_NEGATIVE)?;
                    options.wait = Some(call.deadline_in(ms)?);
                }
                () if left >= 1 && args.is(at, "COUNT") => {
                    at += 1;
                    options.count = usize::try_from(call.integer(at)?).ok().filter(|count| *count > 0);
                }
                () if left >= 1 && args.is(at, "STREAMS") => options.keys = at + 1,
                () if left >= 2 && args.is(at, "GROUP") => {
                    only("GROUP")?;
                    options.group = args.get(at + 1).zip(args.get(at + 2));
                    at += 2;
                }
                () if args.is(at, "NOACK") => {
                    only("NOACK")?;
                    options.is_forgotten = true;
                }
                () => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        let words = args.len() - options.keys;
        if options.keys > 0 && !words.is_multiple_of(2) {
            let (name, symbol) = if of_group { ("xreadgroup", '>') } else { ("xread", '$') };
            return Err(Error::text(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be specified.",
            )));
        }
        options.streams = words / 2;
        match options.group {
            _ if options.keys == 0 => Err(Error::SYNTAX),
            None if of_group => Err(Error::new("ERR Missing GROUP option for XREADGROUP")),
            _ => Ok(options),
        }
    }

    /// From where on a stream is read, as the word behind its key says.
    fn since(&self, call: &mut Call<'_, '_>, stream: usize) -> Result<Since, Error> {
        let (key, word) = (call.key(self.keys + stream), &call.args[self.keys + self.streams + stream]);
        let found = call.keys.get::<Stream>(key)?;
        if let Some((name, _)) = self.group
            && !found.is_some_and(|stream| stream.groups.contains_key(name))
        {
            return Err(Error::text(format!(
                "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option",
                lossy(key.bytes),
                lossy(name)
            )));
        }
        let last_id = found.map(|stream| stream.log.last_id());
        match word {
            b"$" | b"+" if self.group.is_some() => Err(Error::text(format!(
                "ERR The {} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                 consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID would just return \
                 an empty result set.",
                lossy(word)
            ))),
            b"$" => Ok(Since::Id(last_id.unwrap_or_default())),
            b"+" => Ok(Since::Id(last_id.and_then(StreamId::previous).unwrap_or_default())),
            b">" if self.group.is_none() => Err(Error::new(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
            )),
            b">" => Ok(Since::New),
            _ => id_of(word, 0).map(Since::Id),
        }
    }
}

fn read(call: &mut Call<'_, '_>, of_group: bool) -> Result<(), Error> {
    let options = Options::read(call, of_group)?;
    let since: Vec<Since> =
        (0..options.streams).map(|stream| options.since(call, stream)).collect::<Result<_, Error>>()?;
    let is_map = call.reply.protocol() == Protocol::Resp3;
    let later = if is_map { call.reply.map_later() } else { call.reply.array_later() };
    let (mut served, mut instead) = (0, Vec::new());
    for (stream, since) in since.iter().enumerate() {
        let key = call.key(options.keys + stream);
        let is_served = match options.group {
            Some((name, consumer)) => {
                let names = (name, consumer);
                read_group(call, key, names, *since, &options, &mut instead)?
            }
            None => read_log(call, key, *since, options.count)?,
        };
        served += usize::from(is_served);
    }
    if of_group {
        call.trace(instead);
    }
    if served > 0 {
        call.reply.finish(later, served);
        return Ok(());
    }
    match options.wait {
        Some(deadline) => wait(call, &options, &since, deadline),
        None => call.reply.null_array(),
    }
    Ok(())
}

/// The key of a stream, before what was read of it.
fn reply_key(call: &mut Call<'_, '_>, key: Key<'_>) {
    if call.reply.protocol() == Protocol::Resp2 {
        call.reply.array(2);
    }
    call.reply.bulk(key.bytes);
}

fn read_log(call: &mut Call<'_, '_>, key: Key<'_>, since: Since, count: Option<usize>) -> Result<bool, Error> {
    let Since::Id(id) = since else { return Ok(false) };
    let has_more = |stream: &Stream| stream.log.last().is_some_and(|last| last.id > id);
    if !call.keys.get::<Stream>(key)?.is_some_and(has_more) {
        return Ok(false);
    }
    reply_key(call, key);
    let stream = call.keys.get::<Stream>(key)?.expect("the stream was just seen");
    let first = id.next().expect("an entry has a greater id");
    reply_entries(call.reply, stream.log.range(first, StreamId::MAX), count);
    Ok(true)
}

/// Reads for a consumer. Says whether there was something to reply.
fn read_group(
    call: &mut Call<'_, '_>,
    key: Key<'_>,
    (name, consumer_name): (&[u8], &[u8]),
    since: Since,
    options: &Options<'_>,
    instead: &mut Vec<Request>,
) -> Result<bool, Error> {
    let now_ms = call.now.unix_ms();
    let Some((log, group)) = super::group_of(call.keys.get_mut::<Stream>(key)?, name) else { return Ok(false) };
    let is_new = group.find_consumer(consumer_name).is_none();
    let consumer = group.consumer_of(consumer_name, now_ms);
    group.consumer_mut(consumer).seen_ms = now_ms;
    let has_more = log.last().is_some_and(|last| last.id > group.last_id());
    if is_new {
        noted(call, key, "xgroup-createconsumer");
    }
    if since == Since::New && !has_more {
        instead.extend(is_new.then(|| new_consumer(key.bytes, name, consumer_name)));
        return Ok(false);
    }
    call.effects.changes += 1;
    reply_key(call, key);
    let reply = &mut *call.reply;
    let found = super::group_of(call.keys.get_mut::<Stream>(key)?, name);
    let (log, group) = found.expect("the group was just seen");
    let (mut count, later, count_max) = (0, reply.array_later(), options.count.unwrap_or(0));
    let before = instead.len();
    match since {
        Since::Id(id) => {
            // Nobody has the greatest id and waits for what follows it.
            let (first, mut given) = (id.next().unwrap_or(id), Vec::new());
            count = group.deliver_again(log, consumer, first, count_max, now_ms, |id, entry| match entry {
                Some(entry) => {
                    given.push(id);
                    reply_entry(reply, entry);
                }
                None => {
                    reply.array(2);
                    reply_id(reply, id);
                    reply.null_array();
                }
            });
            for id in given {
                let pending = group.pending_of(id).expect("it was just given again");
                instead.push(claimed(key.bytes, name, group, id, pending));
            }
        }
        Since::New => {
            let (keeps, mut given) = (!options.is_forgotten, Vec::new());
            count += group.deliver(log, consumer, count_max, keeps, now_ms, |entry| {
                given.push(entry.id);
                reply_entry(reply, entry);
            });
            for id in given.into_iter().filter(|_| keeps) {
                let pending = group.pending_of(id).expect("it was just given");
                instead.push(claimed(key.bytes, name, group, id, pending));
            }
        }
    }
    // A claim makes its consumer.
    if is_new && instead.len() == before {
        instead.push(new_consumer(key.bytes, name, consumer_name));
    }
    // Claims say which entries are pending and which was last, but not how many the group has read.
    if since == Since::New {
        instead.push(group_id(key.bytes, name, group));
    }
    reply.finish(later, count);
    Ok(true)
}

/// Waits for entries. What `$` means is settled now.
fn wait(call: &mut Call<'_, '_>, options: &Options<'_>, since: &[Since], deadline: Option<Instant>) {
    let keys = (options.keys..options.keys + options.streams).map(|at| call.args[at].into()).collect();
    let first = options.keys + options.streams;
    let mut request: Request = call.args.from(0).take(first).collect();
    for (word, since) in call.args.from(first).zip(since) {
        match since {
            Since::Id(id) if word == b"$" => request.push(id.to_string().as_bytes()),
            _ => request.push(word),
        }
    }
    let awaited = Awaited { kind: Kind::Stream, or_gone: options.group.is_some() };
    call.wait(Wait { keys, awaited, deadline, request: Some(request), goal: None });
}
