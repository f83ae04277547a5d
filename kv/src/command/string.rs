//! Strings and the numbers in them.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::{Expiry, Key, Kind};
use crate::resp::Request;
use crate::resp::number::{Decimal, parse_i64};
use crate::settings::Events;
use crate::value::extended::Extended;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("append", append),
    ("decr", decr),
    ("decrby", decrby),
    ("delifeq", delifeq),
    ("get", get),
    ("getdel", getdel),
    ("getex", getex),
    ("getrange", getrange),
    ("getset", getset),
    ("incr", incr),
    ("incrby", incrby),
    ("incrbyfloat", incrbyfloat),
    ("mget", mget),
    ("mset", mset),
    ("msetex", msetex),
    ("msetnx", msetnx),
    ("psetex", psetex),
    ("set", set),
    ("setex", setex),
    ("setnx", setnx),
    ("setrange", setrange),
    ("strlen", strlen),
    ("substr", getrange),
];

/// What a key must be for it to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    None,
    Absent,
    Present,
    Equal(&'a [u8]),
}

/// Commands with options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Set,
    Msetex,
    Getex,
}

impl Of {
    const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Msetex => "msetex",
            Self::Getex => "getex",
        }
    }
}

/// What shall become of an expiry, as the word says it that asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Span {
    Keep,
    Persist,
    Seconds,
    Millis,
    SecondsPoint,
    MillisPoint,
}

impl Span {
    /// Each with its word.
    const WORDS: [(&'static str, Self); 6] = [
        ("KEEPTTL", Self::Keep),
        ("PERSIST", Self::Persist),
        ("EX", Self::Seconds),
        ("PX", Self::Millis),
        ("EXAT", Self::SecondsPoint),
        ("PXAT", Self::MillisPoint),
    ];

    const fn in_seconds(self) -> bool {
        matches!(self, Self::Seconds | Self::SecondsPoint)
    }

    const fn is_point(self) -> bool {
        matches!(self, Self::SecondsPoint | Self::MillisPoint)
    }

    /// Whether a number follows the word.
    const fn is_number(self) -> bool {
        !matches!(self, Self::Keep | Self::Persist)
    }
}

/// The options of SET, MSETEX and GETEX. Any may be said again; of those about the expiry the last number counts.
#[derive(Debug)]
struct Options<'a> {
    condition: Condition<'a>,
    gets: bool,
    /// What was said of the expiry, and where.
    span: Option<(Span, usize)>,
    expiry: Option<Expiry>,
}

impl<'a> Options<'a> {
    /// Reads options of a command from word `at` on.
    fn read(call: &Call<'a, '_>, at: usize, of: Of) -> Result<Self, Error> {
        let (of_set, may_compare) = (of != Of::Getex, of == Of::Set);
        let args = call.args;
        let mut options = Self { condition: Condition::None, gets: false, span: None, expiry: None };
        let mut at = at;
        while at < args.len() {
            let next = args.get(at + 1);
            let is = |word| args.is(at, word);
            let condition = options.condition;
            match next {
                _ if of_set && matches!(condition, Condition::None | Condition::Absent) && is("NX") => {
                    options.condition = Condition::Absent;
                }
                _ if of_set && matches!(condition, Condition::None | Condition::Present) && is("XX") => {
                    options.condition = Condition::Present;
                }
                Some(value) if may_compare && condition == Condition::None && is("IFEQ") => {
                    options.condition = Condition::Equal(value);
                    at += 1;
                }
                _ if may_compare && is("GET") => options.gets = true,
                _ => at += options.read_span(call, at, of)?,
            }
            at += 1;
        }
        options.expiry = match options.span {
            None => None,
            Some((Span::Keep, _)) => Some(Expiry::Keep),
            Some((Span::Persist, _)) => Some(Expiry::Never),
            Some((span, at)) => {
                let point = expiry_of(call, &args[at + 1], span.in_seconds(), span.is_point(), of.name())?;
                Some(Expiry::At(point))
            }
        };
        Ok(options)
    }

    /// Reads word `at`, if it is about the expiry. Returns how many words belong to it.
    fn read_span(&mut self, call: &Call<'_, '_>, at: usize, of: Of) -> Result<usize, Error> {
        let known = Span::WORDS.into_iter().find(|(word, _)| call.args.is(at, word)).map(|(_, span)| span);
        let known = known.filter(|span| match span {
            Span::Keep => of != Of::Getex,
            Span::Persist => of == Of::Getex,
            _ => at + 1 < call.args.len(),
        });
        let span = known.filter(|span| self.span.is_none_or(|(before, _)| before == *span)).ok_or(Error::SYNTAX)?;
        self.span = Some((span, at));
        Ok(usize::from(span.is_number()))
    }

    /// Whether the expiry was said as it is told to replicas and the log.
    fn is_exact(&self) -> bool {
        matches!(self.span, Some((Span::MillisPoint, _)))
    }
}

/// The point in time, Unix milliseconds, that a word means.
pub(super) fn expiry_of(
    call: &Call<'_, '_>,
    word: &[u8],
    in_seconds: bool,
    is_point: bool,
    command: &str,
) -> Result<i64, Error> {
    let value = parse_i64(word).ok_or(Error::NOT_INTEGER)?;
    let invalid = || Error::invalid_expiry(command);
    if value <= 0 {
        return Err(invalid());
    }
    let ms = if in_seconds { value.checked_mul(1_000).ok_or_else(invalid)? } else { value };
    if is_point { Ok(ms) } else { call.now.unix_ms().checked_add(ms).ok_or_else(invalid) }
}

fn get(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    match call.keys.string(key)? {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(())
}

fn set(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let value = call.args.get(2).expect("the arity was checked");
    if call.args.len() == 3 {
        write(call, key, value, Expiry::Never);
        call.reply.ok();
        return Ok(());
    }
    let options = Options::read(call, 3, Of::Set)?;
    set_with(call, key, value, &options)
}

fn set_with(call: &mut Call<'_, '_>, key: Key<'_>, value: &[u8], options: &Options<'_>) -> Result<(), Error> {
    let is_met = match options.condition {
        Condition::None => true,
        Condition::Absent => !call.keys.contains(key),
        Condition::Present => call.keys.contains(key),
        Condition::Equal(expected) => call.keys.string_for_change(key)? == Some(expected),
    };
    if options.gets {
        match call.keys.string(key)? {
            Some(old) => call.reply.bulk(old),
            None => call.reply.null(),
        }
    }
    if is_met {
        let expiry = options.expiry.unwrap_or(Expiry::Never);
        write(call, key, value, expiry);
        // With a time to live, `write` has said so. The conditions were met, and GET only asks for a reply.
        match expiry {
            // It came in the form in which the log and replicas get it.
            Expiry::At(at) if options.is_exact() && call.args.len() == 5 && !call.has_passed(at) => {
                call.trace_as(|call| call.args.from(0).collect());
            }
            Expiry::At(_) => {}
            Expiry::Keep => call.trace_as(|_| [b"SET", key.bytes, value, b"KEEPTTL"].into_iter().collect()),
            Expiry::Never => call.trace_as(|_| [b"SET", key.bytes, value].into_iter().collect()),
        }
    }
    match (options.gets, is_met) {
        (true, _) => {}
        (false, true) => call.reply.ok(),
        (false, false) => call.reply.null(),
    }
    Ok(())
}

/// Writes a string and tells of it. A point in time that has passed takes the key out instead.
fn write(call: &mut Call<'_, '_>, key: Key<'_>, value: &[u8], expiry: Expiry) {
    if let Expiry::At(at) = expiry
        && call.has_passed(at)
    {
        if call.keys.contains(key) {
            call.expire_at_once(key);
        }
        return;
    }
    call.keys.put_string(key, value, expiry);
    call.changed(key, Events::STRING, "set");
    if let Expiry::At(at) = expiry {
        call.notify(Events::GENERIC, "expire", key.bytes);
        let at = Decimal::new(at);
        call.trace_as(|_| [b"SET", key.bytes, value, b"PXAT", at.as_bytes()].into_iter().collect());
    }
}

fn setnx(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let is_new = !call.keys.contains(key);
    if is_new {
        let value = call.args.get(2).expect("the arity was checked");
        write(call, key, value, Expiry::Never);
    }
    call.reply.integer(i64::from(is_new));
    Ok(())
}

fn setex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    set_for(call, true, "setex")
}

fn psetex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    set_for(call, false, "psetex")
}

fn set_for(call: &mut Call<'_, '_>, in_seconds: bool, name: &str) -> Result<(), Error> {
    let (key, value) = (call.key(1), call.args.get(3).expect("the arity was checked"));
    let at = expiry_of(call, &call.args[2], in_seconds, false, name)?;
    write(call, key, value, Expiry::At(at));
    call.reply.ok();
    Ok(())
}

fn getset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, value) = (call.key(1), call.args.get(2).expect("the arity was checked"));
    match call.keys.string(key)? {
        Some(old) => call.reply.bulk(old),
        None => call.reply.null(),
    }
    write(call, key, value, Expiry::Never);
    call.trace_as(|_| [b"SET", key.bytes, value].into_iter().collect());
    Ok(())
}

fn getdel(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let Some(value) = call.keys.string(key)? else {
        call.reply.null();
        return Ok(());
    };
    call.reply.bulk(value);
    call.keys.remove(key);
    call.changed(key, Events::GENERIC, "del");
    call.trace_as(|_| deletion(key));
    Ok(())
}

fn delifeq(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, expected) = (call.key(1), call.args.get(2));
    let is_equal = call.keys.string_for_change(key)? == expected;
    if is_equal {
        call.keys.remove(key);
        call.changed(key, Events::GENERIC, "del");
        call.trace_as(|_| deletion(key));
    }
    call.reply.integer(i64::from(is_equal));
    Ok(())
}

fn deletion(key: Key<'_>) -> Request {
    [b"DEL", key.bytes].into_iter().collect()
}

fn getex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let options = Options::read(call, 2, Of::Getex)?;
    let Some(value) = call.keys.string(key)? else {
        call.reply.null();
        return Ok(());
    };
    call.reply.bulk(value);
    match options.expiry {
        Some(Expiry::At(at)) if call.has_passed(at) => call.expire_at_once(key),
        Some(Expiry::At(at)) => {
            call.keys.set_expiry(key, Some(at));
            call.changed(key, Events::GENERIC, "expire");
            call.trace_as(|_| [b"PEXPIREAT", key.bytes, Decimal::new(at).as_bytes()].into_iter().collect());
        }
        Some(Expiry::Never) if call.keys.expiry(key).flatten().is_some() => {
            call.keys.set_expiry(key, None);
            call.changed(key, Events::GENERIC, "persist");
            call.trace_as(|_| [b"PERSIST", key.bytes].into_iter().collect());
        }
        _ => {}
    }
    Ok(())
}

fn mget(call: &mut Call<'_, '_>) -> Result<(), Error> {
    call.reply.array(call.args.len() - 1);
    for word in call.args.from(1) {
        match call.keys.read(call.keys.key(word)) {
            Some(found) if found.kind() == Kind::String => call.reply.bulk(found.record().value()),
            _ => call.reply.null(),
        }
    }
    Ok(())
}

fn mset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len().is_multiple_of(2) {
        return Err(Error::wrong_number("mset"));
    }
    write_pairs(call);
    call.reply.ok();
    Ok(())
}

fn msetnx(call: &mut Call<'_, '_>) -> Result<(), Error> {
    if call.args.len().is_multiple_of(2) {
        return Err(Error::wrong_number("msetnx"));
    }
    let is_any = call.args.from(1).step_by(2).any(|word| call.keys.contains(call.keys.key(word)));
    if !is_any {
        write_pairs(call);
    }
    call.reply.integer(i64::from(!is_any));
    Ok(())
}

fn msetex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let count = parse_i64(&call.args[1]).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(Error::new("ERR invalid numkeys value or out of range"))?;
    let end = count.checked_mul(2).and_then(|words| words.checked_add(2)).filter(|end| *end <= call.args.len());
    let end = end.ok_or(Error::SYNTAX)?;
    let options = Options::read(call, end, Of::Msetex)?;
    let mut names = call.args.from(2).take(2 * count).step_by(2);
    let is_met = match options.condition {
        Condition::Absent => !names.any(|word| call.keys.contains(call.keys.key(word))),
        Condition::Present => names.all(|word| call.keys.contains(call.keys.key(word))),
        _ => true,
    };
    call.reply.integer(i64::from(is_met));
    if !is_met {
        return Ok(());
    }
    let expiry = options.expiry.unwrap_or(Expiry::Never);
    for at in (2..end).step_by(2) {
        let (key, value) = (call.key(at), call.args.get(at + 1).expect("there are pairs"));
        call.keys.put_string(key, value, expiry);
        call.changed(key, Events::STRING, "set");
        if matches!(expiry, Expiry::At(_)) {
            call.notify(Events::GENERIC, "expire", key.bytes);
        }
    }
    if call.args.len() > end {
        // Without a condition, which may be met no more where this runs again, and with the point in time.
        call.trace_as(|call| {
            let mut told: Request = call.args.from(0).take(end).collect();
            match expiry {
                Expiry::At(at) => [b"PXAT", Decimal::new(at).as_bytes()].iter().for_each(|word| told.push(word)),
                Expiry::Keep => told.push(b"KEEPTTL"),
                Expiry::Never => {}
            }
            told
        });
    }
    Ok(())
}

fn write_pairs(call: &mut Call<'_, '_>) {
    for at in (1..call.args.len()).step_by(2) {
        let (key, value) = (call.key(at), call.args.get(at + 1).expect("there are pairs"));
        call.keys.put_string(key, value, Expiry::Never);
        call.changed(key, Events::STRING, "set");
    }
}

fn strlen(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let len = call.keys.string(key)?.map_or(0, <[u8]>::len);
    call.reply.count(len);
    Ok(())
}

/// Whether a string may become so long.
fn check_len(call: &Call<'_, '_>, len: Option<usize>) -> Result<usize, Error> {
    let max = usize::try_from(call.settings.word_bytes_max).unwrap_or(usize::MAX);
    len.filter(|len| *len <= max).ok_or(Error::STRING_TOO_LONG)
}

fn append(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, more) = (call.key(1), call.args.get(2).expect("the arity was checked"));
    let Some(old_len) = call.keys.string_for_change(key)?.map(<[u8]>::len) else {
        call.keys.put_string(key, more, Expiry::Never);
        call.changed(key, Events::STRING, "append");
        call.reply.count(more.len());
        return Ok(());
    };
    let len = check_len(call, old_len.checked_add(more.len()))?;
    call.keys.change_string(key, |_| len, |value| value[old_len..].copy_from_slice(more))?;
    call.changed(key, Events::STRING, "append");
    call.reply.count(len);
    Ok(())
}

fn setrange(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, patch) = (call.key(1), call.args.get(3).expect("the arity was checked"));
    let offset = call.integer(2)?;
    let offset = usize::try_from(offset).map_err(|_| Error::new("ERR offset is out of range"))?;
    let old_len = call.keys.string_for_change(key)?.map(<[u8]>::len);
    if patch.is_empty() {
        call.reply.count(old_len.unwrap_or(0));
        return Ok(());
    }
    let end = check_len(call, offset.checked_add(patch.len()))?;
    let len = call.keys.change_string(
        key,
        |old| old.max(end),
        |value| {
            value[offset..end].copy_from_slice(patch);
            value.len()
        },
    )?;
    call.changed(key, Events::STRING, "setrange");
    call.reply.count(len);
    Ok(())
}

fn getrange(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let value = call.keys.string(key)?.unwrap_or_default();
    call.reply.bulk(&value[bytes_between(start, end, value.len())]);
    Ok(())
}

/// The bytes that GETRANGE means: negative places count from the end, the last one is included.
fn bytes_between(start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |at: i64| if at < 0 { len.saturating_add(at).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    if start > end || len == 0 {
        return 0..0;
    }
    let small = |at: i64| usize::try_from(at).expect("it is within the string");
    small(start)..small(end) + 1
}

fn incr(call: &mut Call<'_, '_>) -> Result<(), Error> {
    add(call, 1)
}

fn decr(call: &mut Call<'_, '_>) -> Result<(), Error> {
    add(call, -1)
}

fn incrby(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let more = call.integer(2)?;
    add(call, more)
}

fn decrby(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let less = call.integer(2)?;
    let more = less.checked_neg().ok_or(Error::new("ERR decrement would overflow"))?;
    add(call, more)
}

fn add(call: &mut Call<'_, '_>, more: i64) -> Result<(), Error> {
    let key = call.key(1);
    let old = match call.keys.string_for_change(key)? {
        None => 0,
        Some(text) => parse_i64(text).ok_or(Error::NOT_INTEGER)?,
    };
    let new = old.checked_add(more).ok_or(Error::OVERFLOW)?;
    call.keys.put_string(key, Decimal::new(new).as_bytes(), Expiry::Keep);
    call.changed(key, Events::STRING, "incrby");
    call.reply.integer(new);
    Ok(())
}

fn incrbyfloat(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let old = call.keys.string_for_change(key)?.map(<[u8]>::to_vec);
    let old = Extended::parse(old.as_deref().unwrap_or(b"0")).ok_or(Error::NOT_FLOAT)?;
    let more = Extended::parse(&call.args[2]).ok_or(Error::NOT_FLOAT)?;
    let Extended::Finite(new) = old.plus(more) else { return Err(Error::NOT_FINITE) };
    let text = new.text().into_bytes();
    call.keys.put_string(key, &text, Expiry::Keep);
    call.changed(key, Events::STRING, "incrbyfloat");
    call.trace_as(|_| [b"SET", key.bytes, &text[..], b"KEEPTTL"].into_iter().collect());
    call.reply.bulk(&text);
    Ok(())
}
