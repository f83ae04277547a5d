//! Streams.
//!
//! [`add`] changes the entries, [`read`] shows them to whoever asks or waits, [`group`] has the groups of consumers and what
//! they have not acknowledged, [`claim`] gives that to other consumers, [`info`] tells of all of it. Here is what they share.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Key;
use crate::memory::packed::Digits;
use crate::resp::{Reply, Request};
use crate::settings::Events;
use crate::value::stream::{Entry, Group, Log, Pending, Stream, StreamId};

pub(super) mod add;
pub(super) mod claim;
pub(super) mod group;
pub(super) mod info;
pub(super) mod read;

const INVALID_ID: Error = Error::new("ERR Invalid stream ID specified as stream command argument");

/// The id in a word, with this number if it has none.
fn id_of(word: &[u8], seq_if_missing: u64) -> Result<StreamId, Error> {
    StreamId::parse(word, seq_if_missing).ok_or(INVALID_ID)
}

/// The same, or one of the ends: `-` and `+`.
fn id_or_end(word: &[u8], seq_if_missing: u64) -> Result<StreamId, Error> {
    match word {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => id_of(word, seq_if_missing),
    }
}

/// Where a range starts: an id, an end, or `(` and the id before.
fn start_of(word: &[u8]) -> Result<StreamId, Error> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => {
            id_of(rest, 0)?.next().ok_or(Error::new("ERR invalid start ID for the interval"))
        }
        _ => id_or_end(word, 0),
    }
}

/// Where a range ends: an id, an end, or `(` and the id after.
fn end_of(word: &[u8]) -> Result<StreamId, Error> {
    match word {
        [b'(', rest @ ..] if !rest.is_empty() => {
            id_of(rest, u64::MAX)?.previous().ok_or(Error::new("ERR invalid end ID for the interval"))
        }
        _ => id_or_end(word, u64::MAX),
    }
}

fn reply_id(reply: &mut Reply, id: StreamId) {
    reply.bulk(id.text().as_bytes());
}

fn reply_entry(reply: &mut Reply, entry: Entry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(2 * entry.fields.len());
    for (name, value) in entry.fields {
        reply.bulk(name.bytes(&mut Digits::default()));
        reply.bulk(value.bytes(&mut Digits::default()));
    }
}

/// Replies entries, up to a count if there is one.
fn reply_entries<'a>(reply: &mut Reply, entries: impl Iterator<Item = Entry<'a>>, count_max: Option<usize>) {
    let (mut count, later) = (0, reply.array_later());
    for entry in entries.take(count_max.unwrap_or(usize::MAX)) {
        reply_entry(reply, entry);
        count += 1;
    }
    reply.finish(later, count);
}

/// A change that neither wakes anybody nor makes a transaction fail.
fn noted(call: &mut Call<'_, '_>, key: Key<'_>, event: &'static str) {
    call.effects.changes += 1;
    call.notify(Events::STREAM, event, key.bytes);
}

/// The group that these words name, of a stream that is there.
fn group_of<'a>(stream: Option<&'a mut Stream>, name: &[u8]) -> Option<(&'a Log, &'a mut Group)> {
    let Stream { log, groups } = stream?;
    Some((log, groups.get_mut(name)?))
}

fn lossy(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// The command in these two words does not go like this.
fn wrong_subcommand(call: &Call<'_, '_>) -> Error {
    let (name, container) = (lossy(&call.args[1]), lossy(&call.args[0]).to_ascii_uppercase());
    Error::text(format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."))
}

/// Explains the subcommands.
fn reply_help(call: &mut Call<'_, '_>, lines: &[&str]) {
    call.reply.array(lines.len() + 3);
    let container = lossy(&call.args[0]).to_ascii_uppercase();
    call.reply.status(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| call.reply.status(line));
    call.reply.status("HELP");
    call.reply.status("    Print this help.");
}

/// What is sent on for an entry that a consumer has now: the same wherever it is done, and however often.
fn claimed(key: &[u8], name: &[u8], group: &Group, id: StreamId, pending: Pending) -> Request {
    let consumer = group.consumer(pending.consumer).name();
    let (at, count) = (pending.delivered_ms.to_string(), pending.deliveries.to_string());
    let (id, last) = (id.to_string(), group.last_id().to_string());
    let words: [&[u8]; 14] = [
        b"XCLAIM",
        key,
        name,
        consumer,
        b"0",
        id.as_bytes(),
        b"TIME",
        at.as_bytes(),
        b"RETRYCOUNT",
        count.as_bytes(),
        b"FORCE",
        b"JUSTID",
        b"LASTID",
        last.as_bytes(),
    ];
    words.into_iter().collect()
}

/// What is sent on for a consumer that is new.
fn new_consumer(key: &[u8], name: &[u8], consumer: &[u8]) -> Request {
    [&b"XGROUP"[..], b"CREATECONSUMER", key, name, consumer].into_iter().collect()
}

/// What is sent on for a group that has been given entries which are not pending.
fn group_id(key: &[u8], name: &[u8], group: &Group) -> Request {
    let last = group.last_id().to_string();
    let read = group.entries_read().map_or_else(|| "-1".to_owned(), |read| read.to_string());
    [&b"XGROUP"[..], b"SETID", key, name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()].into_iter().collect()
}
