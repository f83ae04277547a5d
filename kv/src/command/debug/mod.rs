//! `DEBUG`: what tests of the server from outside need. Allowed where `enable-debug-command` says so.
//!
//! What would end the process, or leak on purpose, is not here. Some subcommands are about mechanisms that do not exist here
//! (hash tables that are resized as a whole, forks, plain nodes); they are taken, so that a test goes on, and do nothing.

mod digest;
mod help;

use std::time::Duration;

use super::call::{Call, Run};
use super::config::is_allowed;
use super::generic::encoding_of;
use super::info::shown;
use super::spec::table::Command;
use crate::error::Error;
use crate::keyspace::{Expiry, Found, Kind};
use crate::persist::Load;
use crate::rdb::{Encoder, Value, export};
use crate::resp::{Args, Protocol};
use crate::settings::form;
use crate::value::list::List;
use crate::value::object::{Collection, Object};
use digest::Sum;

pub(super) const RUNS: &[(&str, Run)] = &[("debug", debug)];

/// The longest rest that `DEBUG SLEEP` takes.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);
/// Strings that `DEBUG STRINGMATCH-TEST` compares, and the longest of them.
const MATCHES: u32 = 100_000;
const MATCHED_BYTES_MAX: u64 = 30;
/// Keys and bytes that `DEBUG POPULATE` makes at most.
const POPULATE_MAX: i64 = 1 << 30;

type Act = fn(&mut Call<'_, '_>) -> Result<(), Error>;

/// The subcommands: name, numbers of words that they take, and what each does.
const SUBCOMMANDS: &[(&str, usize, usize, Act)] = &[
    ("help", 2, 2, help::write),
    ("sleep", 3, 3, sleep),
    ("set-active-expire", 3, 3, set_active_expire),
    ("pause-cron", 3, 3, pause_cron),
    ("set-disable-deny-scripts", 3, 3, set_disable_deny_scripts),
    ("object", 3, 4, object),
    ("listpack", 3, 3, listpack),
    ("quicklist", 3, 4, quicklist),
    ("digest", 2, 2, digest),
    ("digest-value", 2, usize::MAX, digest_value),
    ("reload", 2, usize::MAX, reload),
    ("loadaof", 2, 2, load_log),
    ("populate", 3, 5, populate),
    ("protocol", 3, 3, protocol),
    ("error", 3, 3, error),
    ("log", 3, 3, log),
    ("htstats", 3, 4, table_statistics),
    ("htstats-key", 3, 4, key_table_statistics),
    ("change-repl-id", 2, 2, change_replication_id),
    ("config-rewrite-force-all", 2, 2, rewrite_all),
    ("stringmatch-test", 2, 2, match_strings),
    ("quicklist-packed-threshold", 3, 3, packed_threshold),
    ("set-skip-checksum-validation", 3, 3, set_skip_checksums),
    ("replybuffer", 4, 4, reply_buffer),
    ("dict-resizing", 3, 3, nothing),
    ("hashtable-can-abort-shrink", 3, 3, nothing),
    ("pause-after-fork", 3, 3, nothing),
    ("aof-flush-sleep", 3, 3, nothing),
    ("replicate", 3, usize::MAX, replicate),
    ("restart", 2, 3, restart),
    ("crash-and-recover", 2, 3, restart),
];

fn debug(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if !is_allowed(call.settings, call.client, "enable-debug-command") {
        return Err(Error::new(
            "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
             local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
        ));
    }
    let words = call.args.len();
    let is_it = |name: &str, min: usize, max: usize| {
        (min..=max).contains(&words) && call.args[1].eq_ignore_ascii_case(name.as_bytes())
    };
    match SUBCOMMANDS.iter().find(|(name, min, max, _)| is_it(name, *min, *max)) {
        Some((_, _, _, act)) => act(call),
        None => Err(Error::wrong_subcommand("DEBUG", &call.args[1])),
    }
}

fn nothing(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.ok();
    Ok(())
}

fn object_of(found: Found<'_>) -> Option<&Object> {
    (found.kind() != Kind::String).then(|| found.object())
}

fn list_of(found: Found<'_>) -> Option<&List> {
    object_of(found).and_then(List::of)
}

fn value_of(found: Found<'_>) -> Value<'_> {
    object_of(found).map_or_else(|| Value::String(found.record().value()), Value::Object)
}

/// Whether the third word is a number that is not zero.
fn is_on(call: &Call<'_, '_>) -> bool {
    call.integer(2).is_ok_and(|value| value != 0)
}

fn sleep(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let seconds = std::str::from_utf8(&call.args[2]).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    call.engine.host.sleep(span.min(SLEEP_MAX));
    nothing(call)
}

fn set_active_expire(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.switches.keeps_expired.set(!is_on(call));
    nothing(call)
}

fn pause_cron(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.switches.rests.set(is_on(call));
    nothing(call)
}

fn set_disable_deny_scripts(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.switches.scripts_run_all.set(is_on(call));
    nothing(call)
}

fn set_skip_checksums(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.switches.ignores_checksums.set(is_on(call));
    nothing(call)
}

fn object(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_fast = call.args.is(3, "FAST");
    let (access, fill) = (call.keys.access(), call.settings.list_fill);
    let mut encoder = Encoder::new(call.settings.compresses, fill);
    let key = call.key(2);
    let found = call.keys.look(key).ok_or(Error::NO_SUCH_KEY)?;
    let (record, encoding) = (found.record(), encoding_of(found));
    let mut text = format!("Value at:{:p} refcount:1 encoding:{encoding}", record.key().as_ptr());
    if !is_fast {
        let mut written = Vec::new();
        encoder.value(value_of(found), &mut written);
        // The type that comes first is not part of the value.
        text += &format!(" serializedlength:{}", written.len() - 1);
    }
    let noted = record.access();
    text += &format!(" lru:{noted} lru_seconds_idle:{}", if access.counts_use { 0 } else { access.idle_s(noted) });
    text += &format!(" lfu_freq:{} lfu_access_time_minutes:{}", access.count(noted), noted >> 8);
    if let (Some(list), "quicklist") = (list_of(found), encoding) {
        let nodes = list.nodes().count();
        let hundredths = list.len() * 100 / nodes.max(1);
        text += &format!(" ql_nodes:{nodes} ql_avg_node:{}.{:02}", hundredths / 100, hundredths % 100);
        // Nodes are not compressed here; what is shown is what was asked for.
        let compressed = u8::from(shown(call, "list-compress-depth") != "0");
        text += &format!(" ql_listpack_max:{} ql_compressed:{compressed}", fill.0);
        if !is_fast {
            text += &format!(" ql_uncompressed_size:{}", list.nodes().map(|node| node.byte_len()).sum::<usize>());
        }
    }
    call.reply.status(&text);
    Ok(())
}

/// What tells how a value is kept goes to the log.
fn describe(call: &mut Call<'_, '_>, encoding: &str, wrong: &'static str, done: &str) -> Result<(), Error> {
    let key = call.key(2);
    let found = call.keys.peek(key).ok_or(Error::NO_SUCH_KEY)?;
    if encoding_of(found) != encoding {
        return Err(Error::new(wrong));
    }
    let nodes = list_of(found).map_or(1, |list| list.nodes().count());
    tracing::info!(key = %call.args[2].escape_ascii(), encoding, nodes, "asked how a value is kept");
    call.reply.status(done);
    Ok(())
}

fn listpack(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let wrong = "ERR Not a listpack encoded object.";
    describe(call, "listpack", wrong, "Listpack structure printed on stdout")
}

fn quicklist(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let wrong = "ERR Not a quicklist encoded object.";
    describe(call, "quicklist", wrong, "Quicklist structure printed on stdout")
}

fn digest(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let mut sum = Sum::default();
    let now_ms = call.now.unix_ms();
    for database in 0..call.engine.keyspace.databases() {
        if call.keys.shards().all(|shard| shard.keys(database) == 0) {
            continue;
        }
        sum.begin_database(database);
        for shard in call.keys.shards() {
            shard.each(database, |record| sum.add_entry(record, export::value_of(shard, record), now_ms));
        }
    }
    call.reply.status(&sum.text());
    Ok(())
}

fn digest_value(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(call.args.len() - 2);
    let now_ms = call.now.unix_ms();
    for at in 2..call.args.len() {
        let key = call.key(at);
        let mut sum = Sum::default();
        if let Some(found) = call.keys.peek(key) {
            sum.put(found.record(), value_of(found), now_ms);
        }
        call.reply.status(&sum.text());
    }
    Ok(())
}

fn reload(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (mut has_save, mut flushes, mut merges) = (true, true, false);
    for at in 2..call.args.len() {
        match () {
            () if call.args.is(at, "NOSAVE") => has_save = false,
            () if call.args.is(at, "NOFLUSH") => flushes = false,
            () if call.args.is(at, "MERGE") => merges = true,
            () => return Err(Error::new("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")),
        }
    }
    let failed = Error::new("ERR Error trying to load the RDB dump, check server logs.");
    if call.engine.saves.is_served() {
        return load(call, Load::Dump { is_saved: has_save, is_flushed: flushes, merges }, failed);
    }
    let is_empty = call.keys.shards().all(|shard| (0..call.engine.keyspace.databases()).all(|at| shard.keys(at) == 0))
        && call.engine.scripts.counts().0 == 0;
    // Everything that is there is written down first, so merging changes nothing, and without it everything is there twice.
    if !has_save || !flushes && !merges && !is_empty {
        return Err(failed);
    }
    let reloaded = export::reload(call.engine, call.keys, call.settings, call.now);
    reloaded.map_err(|error| {
        tracing::error!(%error, "the keys that were written down cannot be read");
        failed
    })?;
    nothing(call)
}

fn load_log(call: &mut Call<'_, '_>) -> Result<(), Error> {
    load(call, Load::Log, Error::new("ERR Error trying to load the AOF files, check server logs."))
}

/// Has the thread that writes files read them again. Nobody else is served meanwhile.
fn load(call: &mut Call<'_, '_>, load: Load, failed: Error) -> Result<(), Error> {
    if !call.engine.saves.is_served() {
        return Err(failed);
    }
    if !call.may_wait {
        return Err(Error::new("ERR Command not allowed inside a transaction"));
    }
    call.engine.saves.load_and_wait(load).map_err(|why| {
        tracing::error!(%why, "what is on files cannot be read");
        failed
    })?;
    nothing(call)
}

/// Whether these words of `DEBUG` have another thread read files, which needs all keys.
pub(super) fn reads_files(command: &Command, args: Args<'_>) -> bool {
    command.spec.name == "debug" && (args.is(1, "RELOAD") || args.is(1, "LOADAOF"))
}

fn replicate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let words: Vec<&[u8]> = call.args.from(2).collect();
    call.engine.replication.append_words(&words);
    nothing(call)
}

fn populate(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let number = |at: usize| {
        let value = call.integer(at)?;
        if (0..=POPULATE_MAX).contains(&value) { Ok(value) } else { Err(Error::NOT_POSITIVE) }
    };
    let count = number(2)?;
    let len = if call.args.len() == 5 { number(4)? } else { 0 };
    let len = usize::try_from(len).map_err(|_| Error::NOT_POSITIVE)?;
    let prefix = call.args.get(3).unwrap_or(b"key").to_vec();
    for at in 0..count {
        let name = [&prefix[..], format!(":{at}").as_bytes()].concat();
        let key = call.keys.key(&name);
        if call.keys.contains(key) {
            continue;
        }
        let mut value = format!("value:{at}").into_bytes();
        if len > 0 {
            value.resize(len, 0);
        }
        call.keys.put_string(key, &value, Expiry::Never);
        call.touched(key);
        call.effects.changes += 1;
    }
    nothing(call)
}

fn protocol(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let is_resp3 = call.reply.protocol() == Protocol::Resp3;
    let reply = &mut *call.reply;
    let numbers = |reply: &mut crate::resp::Reply| (0..3).for_each(|value| reply.integer(value));
    match call.args[2].to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12_345),
        b"double" => reply.double(b"3.141"),
        b"bignum" => reply.big_number(b"1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            numbers(reply);
        }
        b"set" => {
            reply.set(3);
            numbers(reply);
        }
        b"map" => {
            reply.map(3);
            for value in 0..3 {
                reply.integer(value);
                reply.boolean(value == 1);
            }
        }
        b"attrib" => {
            if is_resp3 {
                reply.raw(b"|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n");
            }
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !is_resp3 => return Err(Error::new("ERR RESP2 is not supported by this command")),
        b"push" => {
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
            reply.bulk(b"Some real reply following the push reply");
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        _ => {
            return Err(Error::new(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    }
    Ok(())
}

/// The reply itself, not counted as an error of ours.
fn error(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.error(&String::from_utf8_lossy(&call.args[2]));
    Ok(())
}

fn log(call: &mut Call<'_, '_>) -> Result<(), Error> {
    tracing::warn!("DEBUG LOG: {}", String::from_utf8_lossy(&call.args[2]));
    nothing(call)
}

fn table_statistics(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let database = usize::try_from(call.integer(2)?).ok();
    let database = database.filter(|number| *number < call.engine.keyspace.databases());
    let database = database.ok_or(Error::new("ERR Out of range database"))?;
    let (mut keys, mut expiring) = ((0, 0), (0, 0));
    for shard in call.keys.shards() {
        let places = shard.index_places(database);
        keys = (keys.0 + places.0, keys.1 + shard.keys(database));
        expiring = (expiring.0 + places.1, expiring.1 + shard.keys_expiring(database));
    }
    let part = |(places, entries): (usize, usize)| {
        format!("Hash table 0 stats (main hash table):\n table size: {places}\n number of entries: {entries}\n")
    };
    let text = format!("[Dictionary HT]\n{}[Expires HT]\n{}", part(keys), part(expiring));
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn key_table_statistics(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(2);
    let found = call.keys.peek(key).ok_or(Error::NO_SUCH_KEY)?;
    let elements = match (encoding_of(found), object_of(found)) {
        ("hashtable", Some(Object::Set(set))) => set.len(),
        ("hashtable", Some(Object::Hash(hash))) => hash.len(),
        ("skiplist", Some(Object::SortedSet(set))) => set.len(),
        _ => {
            return Err(Error::new("ERR The value stored at the specified key is not represented using an hash table"));
        }
    };
    let text = format!("Hash table 0 stats (main hash table):\n number of entries: {elements}\n");
    call.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

fn change_replication_id(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.engine.identity.change_history([call.engine.draw(), call.engine.draw()]);
    nothing(call)
}

fn rewrite_all(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let settings = call.settings;
    let rewritten = call.engine.host.rewrite(&|text| crate::settings::file::rewrite(text, settings, true));
    rewritten.map_err(|why| Error::text(format!("ERR CONFIG-REWRITE-FORCE-ALL failed: {why}")))?;
    nothing(call)
}

/// Compares strings with patterns that chance makes of few letters. It fails by not coming back.
fn match_strings(call: &mut Call<'_, '_>) -> Result<(), Error> {
    const LETTERS: &[u8; 8] = b"ab*?[]^\\";
    let text = || {
        let len = call.engine.draw() % MATCHED_BYTES_MAX;
        let letter = |_| LETTERS[usize::try_from(call.engine.draw() >> 61).unwrap_or(0)];
        (0..len).map(letter).collect::<Vec<u8>>()
    };
    let matched = (0..MATCHES).filter(|_| crate::glob::matches(&text(), &text(), false)).count();
    tracing::debug!(matched, "strings were compared with patterns");
    call.reply.status("Apparently the server did not crash: test passed");
    Ok(())
}

fn packed_threshold(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let bytes = form::bytes(&String::from_utf8_lossy(&call.args[2]));
    if bytes.is_none_or(|bytes| bytes > u64::from(u32::MAX)) {
        return Err(Error::new("ERR argument must be a memory value bigger than 1 and smaller than 4gb"));
    }
    nothing(call)
}

fn reply_buffer(call: &mut Call<'_, '_>) -> Result<(), Error> {
    match () {
        () if call.args.is(2, "RESIZING") || call.args.is(3, "NEVER") || call.args.is(3, "RESET") => {}
        () if call.args.is(2, "PEAK-RESET-TIME") => {
            call.integer(3)?;
        }
        () => return Err(Error::wrong_subcommand("DEBUG", &call.args[1])),
    }
    nothing(call)
}

/// Who runs the process restarts it.
fn restart(_call: &mut Call<'_, '_>) -> Result<(), Error> {
    Err(Error::new("ERR failed to restart the server. Check server logs."))
}
