//! Keys as such, whatever is behind them.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::{Found, Key, Kind, Record};
use crate::resp::number::parse_i64;
use crate::settings::Events;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("del", delete),
    ("unlink", |call| take_out(call, true)),
    ("exists", exists),
    ("touch", touch),
    ("type", kind),
    ("rename", rename),
    ("renamenx", renamenx),
    ("move", move_to),
    ("copy", copy),
    ("object|encoding", encoding),
    ("object|freq", freq),
    ("object|help", object_help),
    ("object|idletime", idletime),
    ("object|refcount", refcount),
];

/// The longest string that Valkey keeps beside its header, bytes: `embstr`.
const EMBEDDED_BYTES_MAX: usize = 44;

/// The first integer that is no more kept once for all keys, and how many keys such a value seems to have.
const SHARED_END: i64 = 10_000;
const SHARED_COUNT: i64 = i32::MAX as i64;

fn delete(call: &mut Call<'_, '_>) -> Result<(), Error> {
    take_out(call, call.settings.memory.deletes_later)
}

/// Takes keys out; large values are given back later if `is_lazy`.
fn take_out(call: &mut Call<'_, '_>, is_lazy: bool) -> Result<(), Error> {
    let mut count = 0;
    for word in call.args.from(1) {
        let key = call.keys.key(word);
        if let Some(removed) = call.keys.remove(key) {
            if let Some(object) = removed.object.filter(|_| is_lazy) {
                call.engine.memory.trash.throw(object);
            }
            call.changed(key, Events::GENERIC, "del");
            count += 1;
        }
    }
    call.reply.integer(count);
    Ok(())
}

fn exists(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = call.args.from(1).filter(|word| call.keys.looked_for(call.keys.key(word))).count();
    call.reply.count(count);
    Ok(())
}

fn touch(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = call.args.from(1).filter(|word| call.keys.read(call.keys.key(word)).is_some()).count();
    call.reply.count(count);
    Ok(())
}

fn kind(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let is_there = call.keys.looked_for(key);
    let name = call.keys.peek(key).filter(|_| is_there).map_or("none", |found| found.kind().name());
    call.reply.status(name);
    Ok(())
}

fn rename(call: &mut Call<'_, '_>) -> Result<(), Error> {
    give(call, true)?;
    call.reply.ok();
    Ok(())
}

fn renamenx(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_done = give(call, false)?;
    call.reply.integer(i64::from(is_done));
    Ok(())
}

/// Renames the first key to the second; `replaces` what is there. Says whether it did.
fn give(call: &mut Call<'_, '_>, replaces: bool) -> Result<bool, Error> {
    let (from, to) = (call.key(1), call.key(2));
    if !call.keys.contains(from) {
        return Err(Error::NO_SUCH_KEY);
    }
    let is_there = call.keys.contains(to);
    if is_there && !replaces {
        return Ok(false);
    }
    if from.bytes == to.bytes {
        return Ok(true);
    }
    call.keys.rename(from, to);
    call.changed(from, Events::GENERIC, "rename_from");
    call.changed(to, Events::GENERIC, "rename_to");
    Ok(true)
}

fn move_to(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let target = database_of(call, call.integer(2)?)?;
    let source = call.keys.database();
    if source == target {
        return Err(Error::SAME_OBJECT);
    }
    let is_done = call.keys.move_to(key, target);
    if is_done {
        call.changed(key, Events::GENERIC, "move_from");
        call.keys.select(target);
        call.changed(key, Events::GENERIC, "move_to");
        call.keys.select(source);
    }
    call.reply.integer(i64::from(is_done));
    Ok(())
}

/// The database that a client means by a number.
pub(super) fn database_of(call: &Call<'_, '_>, number: i64) -> Result<usize, Error> {
    // Valkey holds the number in 32 bits, and says so before it looks for the database.
    let out_of_range = || {
        let (least, most) = (i32::MIN, i32::MAX);
        Error::text(format!("ERR value is out of range, value must between {least} and {most}"))
    };
    let number = i32::try_from(number).map_err(|_| out_of_range())?;
    let database = usize::try_from(number).ok().filter(|database| *database < call.engine.keyspace.databases());
    database.ok_or(Error::new("ERR DB index is out of range"))
}

fn copy(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (from, to, source) = (call.key(1), call.key(2), call.keys.database());
    let (mut target, mut replaces, mut at) = (source, false, 3);
    while at < call.args.len() {
        if call.args.is(at, "REPLACE") {
            replaces = true;
        } else if call.args.is(at, "DB") && at + 1 < call.args.len() {
            at += 1;
            target = database_of(call, call.integer(at)?)?;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    if source == target && from.bytes == to.bytes {
        return Err(Error::SAME_OBJECT);
    }
    if call.keys.read(from).is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    call.keys.select(target);
    let is_there = call.keys.contains(to);
    call.keys.select(source);
    let is_done = (!is_there || replaces) && call.keys.copy(from, to, target);
    if is_done {
        call.keys.select(target);
        call.changed(to, Events::GENERIC, "copy_to");
        call.keys.select(source);
    }
    call.reply.integer(i64::from(is_done));
    Ok(())
}

/// What OBJECT can be asked; the texts are ours.
const OBJECT_HELP: [&str; 11] = [
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    The form in which the value of a key is kept.",
    "FREQ <key>",
    "    How often a key was used of late, on a logarithmic scale.",
    "IDLETIME <key>",
    "    Seconds since a key was last used.",
    "REFCOUNT <key>",
    "    How many share the value of a key.",
    "HELP",
    "    Print this help.",
];

fn object_help(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(OBJECT_HELP.len());
    OBJECT_HELP.iter().for_each(|line| call.reply.status(line));
    Ok(())
}

fn encoding(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let Some(found) = call.keys.peek(key) else {
        call.reply.null();
        return Ok(());
    };
    call.reply.bulk(encoding_of(found).as_bytes());
    Ok(())
}

/// What clients are told of how a value is kept.
pub(super) fn encoding_of(found: Found<'_>) -> &'static str {
    let record = found.record();
    match found.kind() {
        Kind::String if record.is_raw() => "raw",
        Kind::String if parse_i64(record.value()).is_some() => "int",
        Kind::String if record.value().len() <= EMBEDDED_BYTES_MAX => "embstr",
        Kind::String => "raw",
        _ => found.object().encoding(),
    }
}

/// When a key was used, without its being used now.
fn access_of(call: &mut Call<'_, '_>, key: Key<'_>) -> Option<u32> {
    call.keys.peek(key).map(|found| found.record().access())
}

fn idletime(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let Some(access) = access_of(call, key) else {
        call.reply.null();
        return Ok(());
    };
    if call.settings.policy.counts_use() {
        return Err(Error::new(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
             policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    call.reply.integer(i64::from(call.keys.access().idle_s(access)));
    Ok(())
}

fn freq(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let Some(access) = access_of(call, key) else {
        call.reply.null();
        return Ok(());
    };
    if !call.settings.policy.counts_use() {
        return Err(Error::new(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    call.reply.integer(i64::from(call.keys.access().count(access)));
    Ok(())
}

/// Whether Valkey keeps such a value once for all keys that have it. Here it takes no more than a reference would.
fn is_shared(record: Record<'_>) -> bool {
    let is_integer = record.kind() == Kind::String && !record.is_raw();
    is_integer && parse_i64(record.value()).is_some_and(|value| (0..SHARED_END).contains(&value))
}

fn refcount(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let settings = call.settings;
    let may_share = settings.memory_bytes_max == 0 || !settings.policy.goes_by_use();
    match call.keys.peek(key).map(Found::record) {
        Some(record) if may_share && is_shared(record) => call.reply.integer(SHARED_COUNT),
        Some(_) => call.reply.integer(1),
        None => call.reply.null(),
    }
    Ok(())
}
