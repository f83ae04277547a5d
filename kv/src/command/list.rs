//! Lists. What waits for one is in `list_wait`.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Key;
use crate::memory::packed::Digits;
use crate::resp::number::Decimal;
use crate::settings::Events;
use crate::value::list::{End, Fill, List, Side};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("lindex", lindex),
    ("linsert", linsert),
    ("llen", llen),
    ("lmove", lmove),
    ("lmpop", lmpop),
    ("lpop", |call| pop(call, End::Front)),
    ("lpos", lpos),
    ("lpush", |call| push(call, End::Front, false)),
    ("lpushx", |call| push(call, End::Front, true)),
    ("lrange", lrange),
    ("lrem", lrem),
    ("lset", lset),
    ("ltrim", ltrim),
    ("rpop", |call| pop(call, End::Back)),
    ("rpoplpush", |call| shift(call, End::Back, End::Front)),
    ("rpush", |call| push(call, End::Back, false)),
    ("rpushx", |call| push(call, End::Back, true)),
];

const RANK_ZERO: Error = Error::new(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the \
     end of the list",
);

const fn event_of_push(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}

const fn event_of_pop(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// The end that word `at` names.
pub(super) fn end_of(call: &Call<'_, '_>, at: usize) -> Result<End, Error> {
    match () {
        () if call.args.is(at, "LEFT") => Ok(End::Front),
        () if call.args.is(at, "RIGHT") => Ok(End::Back),
        () => Err(Error::SYNTAX),
    }
}

/// An integer that must not be the least of all, whose magnitude is none.
fn with_magnitude(call: &Call<'_, '_>, at: usize) -> Result<i64, Error> {
    let outside =
        || Error::text(format!("ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX));
    call.integer(at).and_then(|value| if value == i64::MIN { Err(outside()) } else { Ok(value) })
}

/// Elements have gone from a list: subscribers are told, and a list without elements goes.
fn removed(call: &mut Call<'_, '_>, key: Key<'_>, count: usize, event: &'static str) {
    call.changed_by(count, key, Events::LIST, event);
    if call.keys.remove_if_empty::<List>(key) {
        call.notify(Events::GENERIC, "del", key.bytes);
    }
}

fn push(call: &mut Call<'_, '_>, end: End, is_known: bool) -> Result<(), Error> {
    let (key, fill, elements) = (call.key(1), call.settings.list_fill, call.args.from(2));
    if is_known && call.keys.get_mut::<List>(key)?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let list = call.keys.get_or_insert(key, List::new)?;
    list.push_all(end, elements.clone(), fill);
    call.reply.count(list.len());
    call.changed_by(elements.len(), key, Events::LIST, event_of_push(end));
    Ok(())
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<(), Error> {
    let key = call.key(1);
    let count = match call.args.len() {
        2 => None,
        3 => Some(call.integer(2).ok().and_then(|count| usize::try_from(count).ok()).ok_or(Error::NOT_POSITIVE)?),
        _ => return Err(Error::wrong_number(event_of_pop(end))),
    };
    let fill = call.settings.list_fill;
    let Some(list) = call.keys.get_mut::<List>(key)? else {
        if count.is_some() {
            call.reply.null_array();
        } else {
            call.reply.null();
        }
        return Ok(());
    };
    let Some(count) = count else {
        let element = list.pop(end, fill).expect("no list that is there is empty");
        call.reply.bulk(&element);
        removed(call, key, 1, event_of_pop(end));
        return Ok(());
    };
    if count == 0 {
        call.reply.array(0);
    } else {
        take(call, key, end, count, fill)?;
    }
    Ok(())
}

/// Replies elements of an end of a list that is there, and removes them. Returns how many.
fn take(call: &mut Call<'_, '_>, key: Key<'_>, end: End, count_max: usize, fill: Fill) -> Result<usize, Error> {
    let list = call.keys.get_mut::<List>(key)?.expect("the list was just seen");
    let elements = list.ends(end, count_max);
    call.reply.array(elements.len());
    elements.for_each(|element| call.reply.bulk(element.bytes(&mut Digits::default())));
    let count = list.remove_end(end, count_max, fill);
    removed(call, key, count, event_of_pop(end));
    Ok(count)
}

fn llen(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let len = call.keys.get::<List>(key)?.map_or(0, List::len);
    call.reply.count(len);
    Ok(())
}

fn lindex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, index) = (call.key(1), call.integer(2));
    let found = match call.keys.get::<List>(key)? {
        Some(list) => list.get(index?),
        None => None,
    };
    match found {
        Some(element) => call.reply.bulk(element.bytes(&mut Digits::default())),
        None => call.reply.null(),
    }
    Ok(())
}

fn lset(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, index, fill) = (call.key(1), call.integer(2), call.settings.list_fill);
    let list = call.keys.get_mut::<List>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    if !list.set(index?, &call.args[3], fill) {
        return Err(Error::INDEX_OUT_OF_RANGE);
    }
    call.reply.ok();
    call.changed(key, Events::LIST, "lset");
    Ok(())
}

fn linsert(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let side = match () {
        () if call.args.is(2, "BEFORE") => Side::Before,
        () if call.args.is(2, "AFTER") => Side::After,
        () => return Err(Error::SYNTAX),
    };
    let fill = call.settings.list_fill;
    let Some(list) = call.keys.get_mut::<List>(key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    if list.insert(side, &call.args[3], &call.args[4], fill) {
        call.reply.count(list.len());
        call.changed(key, Events::LIST, "linsert");
    } else {
        call.reply.integer(-1);
    }
    Ok(())
}

fn lrange(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, start, stop) = (call.key(1), call.integer(2)?, call.integer(3)?);
    let Some(list) = call.keys.get::<List>(key)? else {
        call.reply.array(0);
        return Ok(());
    };
    let elements = list.range(start, stop);
    call.reply.array(elements.len());
    elements.for_each(|element| call.reply.bulk(element.bytes(&mut Digits::default())));
    Ok(())
}

fn ltrim(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, start, stop) = (call.key(1), call.integer(2)?, call.integer(3)?);
    let fill = call.settings.list_fill;
    if let Some(list) = call.keys.get_mut::<List>(key)? {
        let count = list.trim(start, stop, fill);
        removed(call, key, count, "ltrim");
    }
    call.reply.ok();
    Ok(())
}

fn lrem(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, count, fill) = (call.key(1), with_magnitude(call, 2)?, call.settings.list_fill);
    let gone = match call.keys.get_mut::<List>(key)? {
        Some(list) => list.remove(&call.args[3], count, fill),
        None => 0,
    };
    if gone > 0 {
        removed(call, key, gone, "lrem");
    }
    call.reply.count(gone);
    Ok(())
}

fn lpos(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let (mut rank, mut count, mut looked_max) = (1, None, 0);
    let not_negative = |at: usize, text| {
        let value = call.integer(at).ok().and_then(|value| usize::try_from(value).ok());
        value.ok_or(Error::new(text))
    };
    for at in (3..call.args.len()).step_by(2) {
        let has_value = at + 1 < call.args.len();
        match () {
            () if has_value && call.args.is(at, "RANK") => {
                rank = with_magnitude(call, at + 1)?;
                if rank == 0 {
                    return Err(RANK_ZERO);
                }
            }
            () if has_value && call.args.is(at, "COUNT") => {
                count = Some(not_negative(at + 1, "ERR COUNT can't be negative")?);
            }
            () if has_value && call.args.is(at, "MAXLEN") => {
                looked_max = not_negative(at + 1, "ERR MAXLEN can't be negative")?;
            }
            () => return Err(Error::SYNTAX),
        }
    }
    let list = call.keys.get::<List>(key)?;
    let mut found = list.into_iter().flat_map(|list| list.positions(&call.args[2], rank, looked_max));
    let Some(count) = count else {
        match found.next() {
            Some(position) => call.reply.count(position),
            None => call.reply.null(),
        }
        return Ok(());
    };
    let (mut shown, later) = (0, call.reply.array_later());
    for position in found.take(if count == 0 { usize::MAX } else { count }) {
        call.reply.count(position);
        shown += 1;
    }
    call.reply.finish(later, shown);
    Ok(())
}

fn lmove(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (from, to) = (end_of(call, 3)?, end_of(call, 4)?);
    shift(call, from, to)
}

/// Moves an element of the list in word 1 to the one in word 2.
pub(super) fn shift(call: &mut Call<'_, '_>, from: End, to: End) -> Result<(), Error> {
    let (source, target, fill) = (call.key(1), call.key(2), call.settings.list_fill);
    if call.keys.get_mut::<List>(source)?.is_none() {
        call.reply.null();
        return Ok(());
    }
    call.keys.get_mut::<List>(target)?;
    let list = call.keys.get_mut::<List>(source)?.expect("the list was just seen");
    let element = if source.bytes == target.bytes { list.rotate(from, to, fill) } else { list.pop(from, fill) };
    let element = element.expect("no list that is there is empty");
    if source.bytes != target.bytes {
        call.keys.get_or_insert(target, List::new)?.push(to, &element, fill);
    }
    call.reply.bulk(&element);
    call.changed_by(0, target, Events::LIST, event_of_push(to));
    removed(call, source, 1, event_of_pop(from));
    Ok(())
}

fn lmpop(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (keys, end, count) = sources(call, 1)?;
    if !take_of_first(call, keys, end, count)? {
        call.reply.null_array();
    }
    Ok(())
}

/// The words of LMPOP from the count of keys on: the words that are keys, the end, and how many elements.
pub(super) fn sources(call: &Call<'_, '_>, at: usize) -> Result<(std::ops::Range<usize>, End, usize), Error> {
    let positive = |at: usize, text| {
        let value = call.integer(at).ok().and_then(|value| usize::try_from(value).ok());
        value.filter(|value| *value > 0).ok_or(Error::new(text))
    };
    let keys = positive(at, "ERR numkeys should be greater than 0")?;
    let at_end = keys.checked_add(at + 1).filter(|at| *at < call.args.len()).ok_or(Error::SYNTAX)?;
    let end = end_of(call, at_end)?;
    let count = match call.args.len() - at_end {
        1 => 1,
        3 if call.args.is(at_end + 1, "COUNT") => positive(at_end + 2, "ERR count should be greater than 0")?,
        more => {
            // The value of an option is looked at before what follows it.
            if more > 3 && call.args.is(at_end + 1, "COUNT") {
                positive(at_end + 2, "ERR count should be greater than 0")?;
            }
            return Err(Error::SYNTAX);
        }
    };
    Ok((at + 1..at_end, end, count))
}

/// The command that takes elements off an end, as the log and replicas get it.
pub(super) const fn pop_of(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    }
}

/// Replies elements of the first list that is there, and its key. The log and replicas get a pop of that list alone. Whether
/// there is a list.
pub(super) fn take_of_first(
    call: &mut Call<'_, '_>,
    keys: std::ops::Range<usize>,
    end: End,
    count_max: usize,
) -> Result<bool, Error> {
    let fill = call.settings.list_fill;
    for at in keys {
        let key = call.key(at);
        if call.keys.get_mut::<List>(key)?.is_some() {
            call.reply.array(2);
            call.reply.bulk(key.bytes);
            let count = take(call, key, end, count_max, fill)?;
            let count = Decimal::new(i64::try_from(count).expect("a count in memory fits 63 bits"));
            call.trace_as(|_| [pop_of(end), key.bytes, count.as_bytes()].into_iter().collect());
            return Ok(true);
        }
    }
    Ok(false)
}
