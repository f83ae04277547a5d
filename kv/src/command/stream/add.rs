//! Entries are added, trimmed and deleted.

use super::{Call, Run, end_of, id_of, noted, reply_entries, reply_id, start_of};
use crate::error::Error;
use crate::resp::Request;
use crate::settings::Events;
use crate::value::stream::{Keep, Log, NewId, NotAppended, NotSet, Stream, StreamId};

pub(in crate::command) const RUNS: &[(&str, Run)] = &[
    ("xadd", xadd),
    ("xdel", xdel),
    ("xlen", xlen),
    ("xrange", |call| range(call, false)),
    ("xrevrange", |call| range(call, true)),
    ("xsetid", xsetid),
    ("xtrim", xtrim),
];

/// Nodes that a rough trim removes at most unless LIMIT says otherwise.
const ROUGH_NODES_MAX: u64 = 100;
/// Entries that it removes at most, where nodes have no limit, and whatever theirs is.
const ROUGH_ENTRIES_DEFAULT: u64 = 10_000;
const ROUGH_ENTRIES_MAX: u64 = 1_000_000;

/// How a stream is trimmed.
#[derive(Debug, Clone, Copy)]
struct Trim {
    keep: Keep,
    is_rough: bool,
}

/// The words before the fields of XADD, and those of XTRIM.
#[derive(Debug)]
struct Options {
    makes: bool,
    trim: Option<Trim>,
    limit: Option<u64>,
    /// What a new entry is called, and the word that says it.
    id: Option<NewId>,
    at: usize,
}

impl Options {
    fn read(call: &Call<'_, '_>, adds: bool) -> Result<Self, Error> {
        let (args, mut at) = (call.args, 2);
        let mut options = Self { makes: true, trim: None, limit: None, id: None, at: args.len() };
        while at < args.len() {
            let has_value = at + 1 < args.len();
            match () {
                () if adds && args.is(at, "*") => {
                    (options.id, options.at) = (Some(NewId::Auto), at);
                    break;
                }
                () if has_value && args.is(at, "MAXLEN") => at = options.read_trim(call, at, true)?,
                () if has_value && args.is(at, "MINID") => at = options.read_trim(call, at, false)?,
                () if has_value && args.is(at, "LIMIT") => {
                    let limit = u64::try_from(call.integer(at + 1)?);
                    options.limit = Some(limit.map_err(|_| Error::new("ERR The LIMIT argument must be >= 0."))?);
                    at += 1;
                }
                () if adds && args.is(at, "NOMKSTREAM") => options.makes = false,
                () if adds => {
                    let id = NewId::parse(&args[at]).ok_or(super::INVALID_ID)?;
                    (options.id, options.at) = (Some(id), at);
                    break;
                }
                () => return Err(Error::SYNTAX),
            }
            at += 1;
        }
        options.check(adds)?;
        Ok(options)
    }

    /// Reads how to trim, from its name in word `at` on. Returns its last word.
    fn read_trim(&mut self, call: &Call<'_, '_>, at: usize, by_len: bool) -> Result<usize, Error> {
        if self.trim.is_some() {
            return Err(Error::new("ERR syntax error, MAXLEN and MINID options at the same time are not compatible"));
        }
        let has_mark = at + 2 < call.args.len() && (call.args.is(at + 1, "~") || call.args.is(at + 1, "="));
        let is_rough = has_mark && call.args.is(at + 1, "~");
        let at = if has_mark { at + 2 } else { at + 1 };
        let keep = if by_len {
            let len = u64::try_from(call.integer(at)?);
            Keep::Len(len.map_err(|_| Error::new("ERR The MAXLEN argument must be >= 0."))?)
        } else {
            Keep::From(id_of(&call.args[at], 0)?)
        };
        self.trim = Some(Trim { keep, is_rough });
        Ok(at)
    }

    fn check(&self, adds: bool) -> Result<(), Error> {
        let wrong = |text| Err(Error::new(text));
        match (self.trim, self.limit) {
            (None, Some(1..)) => wrong("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"),
            (None, _) if !adds => wrong("ERR syntax error, XTRIM must be called with a trimming strategy"),
            (trim, Some(_)) if !trim.is_some_and(|trim| trim.is_rough) => {
                wrong("ERR syntax error, LIMIT cannot be used without the special ~ option")
            }
            _ => Ok(()),
        }
    }

    /// Removes what is too much; how many entries that were.
    fn trim(&self, log: &mut Log, node_entries_max: u32) -> u64 {
        let Some(trim) = self.trim else { return 0 };
        let by_nodes = match ROUGH_NODES_MAX * u64::from(node_entries_max) {
            0 => ROUGH_ENTRIES_DEFAULT,
            entries => entries.min(ROUGH_ENTRIES_MAX),
        };
        let limit = if trim.is_rough { self.limit.unwrap_or(by_nodes) } else { 0 };
        log.trim(trim.keep, trim.is_rough, limit)
    }

    /// Words that keep so many entries, whatever a rough trim would keep where nodes have other limits.
    fn exactly(&self, words: &mut Request, len: u64) {
        if self.trim.is_some() {
            [&b"MAXLEN"[..], b"=", len.to_string().as_bytes()].into_iter().for_each(|word| words.push(word));
        }
    }
}

fn xadd(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let options = Options::read(call, true)?;
    let pairs = call.args.from(options.at + 1);
    let Some(id) = options.id.filter(|_| pairs.len() > 0 && pairs.len().is_multiple_of(2)) else {
        return Err(Error::wrong_number("xadd"));
    };
    if id == NewId::Given(StreamId::MIN) {
        return Err(Error::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (key, limits) = (call.key(1), call.settings.stream);
    if !options.makes && call.keys.get_mut::<Stream>(key)?.is_none() {
        call.reply.null();
        return Ok(());
    }
    let now_ms = u64::try_from(call.now.unix_ms()).unwrap_or(0);
    let log = &mut call.keys.get_or_insert(key, Stream::new)?.log;
    if log.last_id() == StreamId::MAX {
        return Err(Error::new("ERR The stream has exhausted the last possible ID, unable to add more items"));
    }
    let given = log.append(id, now_ms, pairs.clone(), limits).map_err(|error| match error {
        NotAppended::NotGreater => {
            Error::new("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        }
        NotAppended::TooLarge => Error::new("ERR Elements are too large to be stored"),
    })?;
    let trimmed = options.trim(log, limits.entries_max);
    let is_rough = options.trim.is_some_and(|trim| trim.is_rough);
    let left = log.len();
    reply_id(call.reply, given);
    call.changed(key, Events::STREAM, "xadd");
    if trimmed > 0 {
        call.notify(Events::STREAM, "xtrim", key.bytes);
    }
    if !matches!(id, NewId::Given(_)) || is_rough {
        call.trace_as(|_| {
            let mut words: Request = [b"XADD", key.bytes].into_iter().collect();
            options.exactly(&mut words, left);
            words.push(given.text().as_bytes());
            pairs.for_each(|word| words.push(word));
            words
        });
    }
    Ok(())
}

fn xtrim(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let options = Options::read(call, false)?;
    let (key, entries_max) = (call.key(1), call.settings.stream.entries_max);
    let Some(stream) = call.keys.get_mut::<Stream>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let trimmed = options.trim(&mut stream.log, entries_max);
    let left = stream.log.len();
    let trimmed = usize::try_from(trimmed).expect("a count of entries in memory");
    call.reply.count(trimmed);
    if trimmed > 0 {
        call.changed_by(trimmed, key, Events::STREAM, "xtrim");
        if options.trim.is_some_and(|trim| trim.is_rough) {
            call.trace_as(|_| {
                let mut words: Request = [b"XTRIM", key.bytes].into_iter().collect();
                options.exactly(&mut words, left);
                words
            });
        }
    }
    Ok(())
}

fn xdel(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let Some(stream) = call.keys.get_mut::<Stream>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    let ids = call.args.from(2).map(|word| id_of(word, 0)).collect::<Result<Vec<_>, Error>>()?;
    let count = ids.into_iter().filter(|id| stream.log.delete(*id)).count();
    if count > 0 {
        call.changed_by(count, key, Events::STREAM, "xdel");
    }
    call.reply.count(count);
    Ok(())
}

fn xlen(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let len = call.keys.get::<Stream>(key)?.map_or(0, |stream| stream.log.len());
    call.reply.integer(i64::try_from(len).expect("a count of entries in memory"));
    Ok(())
}

fn range(call: &mut Call<'_, '_>, is_reversed: bool) -> Result<(), Error> {
    let (key, args) = (call.key(1), call.args);
    let (start, end) = if is_reversed { (3, 2) } else { (2, 3) };
    let (first, last) = (start_of(&args[start])?, end_of(&args[end])?);
    let mut count = None;
    for at in (4..args.len()).step_by(2) {
        if !args.is(at, "COUNT") || at + 1 == args.len() {
            return Err(Error::SYNTAX);
        }
        count = Some(usize::try_from(call.integer(at + 1)?).unwrap_or(0));
    }
    match call.keys.get::<Stream>(key)? {
        None => call.reply.array(0),
        Some(_) if count == Some(0) => call.reply.null_array(),
        Some(stream) if is_reversed => reply_entries(call.reply, stream.log.range(first, last).rev(), count),
        Some(stream) => reply_entries(call.reply, stream.log.range(first, last), count),
    }
    Ok(())
}

fn xsetid(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, args) = (call.key(1), call.args);
    let last_id = id_of(&args[2], 0)?;
    let (mut entries_added, mut max_deleted) = (None, None);
    for at in (3..args.len()).step_by(2) {
        let has_value = at + 1 < args.len();
        match () {
            () if has_value && args.is(at, "ENTRIESADDED") => {
                let added = u64::try_from(call.integer(at + 1)?);
                entries_added = Some(added.map_err(|_| Error::new("ERR entries_added must be positive"))?);
            }
            () if has_value && args.is(at, "MAXDELETEDID") => {
                let id = id_of(&args[at + 1], 0)?;
                if last_id < id {
                    let text = "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id";
                    return Err(Error::new(text));
                }
                max_deleted = Some(id);
            }
            () => return Err(Error::SYNTAX),
        }
    }
    let stream = call.keys.get_mut::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    stream.log.set_id(last_id, entries_added, max_deleted).map_err(|error| {
        Error::new(match error {
            NotSet::BelowDeleted => "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
            NotSet::BelowLast => "ERR The ID specified in XSETID is smaller than the target stream top item",
            NotSet::FewerAdded => "ERR The entries_added specified in XSETID is smaller than the target stream length",
        })
    })?;
    call.reply.ok();
    noted(call, key, "xsetid");
    Ok(())
}
