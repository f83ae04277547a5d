//! When fields of hashes expire: what Valkey 9 has for it.

use super::call::{Call, Run};
use super::expire::When;
use super::hash::{changed, remove_if_empty, reply_value, set_fields, tell_expired};
use crate::error::Error;
use crate::keyspace::Key;
use crate::memory::hash_key::HashKey;
use crate::resp::Request;
use crate::resp::number::{Decimal, parse_i64};
use crate::settings::Events;
use crate::value::hash::{Expiry, Hash};

pub(super) const RUNS: &[(&str, Run)] = &[
    ("hexpire", |call| hexpire(call, true, false, "hexpire")),
    ("hpexpire", |call| hexpire(call, false, false, "hpexpire")),
    ("hexpireat", |call| hexpire(call, true, true, "hexpireat")),
    ("hpexpireat", |call| hexpire(call, false, true, "hpexpireat")),
    ("httl", |call| left(call, true, false)),
    ("hpttl", |call| left(call, false, false)),
    ("hexpiretime", |call| left(call, true, true)),
    ("hpexpiretime", |call| left(call, false, true)),
    ("hpersist", hpersist),
    ("hgetex", hgetex),
    ("hgetdel", hgetdel),
    ("hsetex", hsetex),
];

/// The event of fields that have expired.
const EXPIRED: &str = "hexpired";

/// What is replied for a field that is not there.
const NO_FIELD: i64 = -2;
/// What is replied for a field that does not expire.
const NO_EXPIRY: i64 = -1;

const WRONG_COUNT: Error = Error::new("ERR numfields should be greater than 0 and match the provided number of fields");

/// Whether word `at` is the number of the words behind it, each field taking so many.
fn is_count(call: &Call<'_, '_>, at: usize, words_each: i64) -> Result<bool, Error> {
    let count = call.integer(at)?;
    let words = i64::try_from(call.args.len() - at - 1).unwrap_or(i64::MAX);
    Ok(count > 0 && count.checked_mul(words_each) == Some(words))
}

/// Refuses a call without the word FIELDS where it has to stand, behind the key.
fn demand_fields(call: &Call<'_, '_>) -> Result<(), Error> {
    if call.args.is(2, "FIELDS") { Ok(()) } else { Err(Error::SYNTAX) }
}

/// Where the word FIELDS stands, from word `at` on. A number and a field follow it.
fn fields_at(call: &Call<'_, '_>, at: usize) -> Option<usize> {
    (at..call.args.len() - 1).find(|at| call.args.is(*at, "FIELDS"))
}

/// The point in time, Unix milliseconds, that a word means.
fn point_of(call: &Call<'_, '_>, word: &[u8], in_seconds: bool, is_point: bool, name: &str) -> Result<i64, Error> {
    let given = parse_i64(word).ok_or(Error::NOT_INTEGER)?;
    let invalid = || Error::invalid_expiry(name);
    if given < 0 {
        return Err(invalid());
    }
    let ms = if in_seconds { given.checked_mul(1_000).ok_or_else(invalid)? } else { given };
    if is_point { Ok(ms) } else { call.now.unix_ms().checked_add(ms).ok_or_else(invalid) }
}

/// What has become of one field, as HEXPIRE replies it. The time comes with whether it has passed.
fn expire_one(hash: &mut Hash, name: &[u8], at: (i64, bool), when: When, now_ms: i64, hash_key: &HashKey) -> i64 {
    let (at, has_passed) = at;
    let Some(field) = hash.get(name, now_ms, hash_key) else { return NO_FIELD };
    if !when.allows(field.expiry_ms, at) {
        return 0;
    }
    if has_passed {
        hash.remove(name, now_ms, hash_key);
        return 2;
    }
    hash.set_expiry(name, Some(at), now_ms, hash_key);
    1
}

fn hexpire(call: &mut Call<'_, '_>, in_seconds: bool, is_point: bool, name: &str) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    let fields = fields_at(call, 3).ok_or(WRONG_COUNT)?;
    let when = When::read(call, fields)?;
    if !is_count(call, fields + 1, 1)? {
        return Err(WRONG_COUNT);
    }
    let at = point_of(call, &call.args[2], in_seconds, is_point, name)?;
    let (names, has_passed) = (call.args.from(fields + 2), call.has_passed(at));
    let mut hash = call.keys.get_mut::<Hash>(key)?;
    let mut removal: Request = [b"HDEL", key.bytes].into_iter().collect();
    // Those that met the condition here: on a replica a field that has expired is still there, and would meet it too.
    let mut changed_fields = Vec::new();
    let mut expired = 0;
    call.reply.array(names.len());
    for name in names {
        let hash = hash.as_deref_mut();
        let done = hash.map_or(NO_FIELD, |hash| expire_one(hash, name, (at, has_passed), when, now_ms, hash_key));
        if done == 1 {
            changed_fields.push(name);
        }
        if done == 2 {
            expired += 1;
            removal.push(name);
        }
        call.reply.integer(done);
    }
    if expired > 0 {
        call.keys.count_expired_fields(key, expired);
        call.trace(vec![removal]);
        call.keys.schedule_fields(key);
        changed(call, key, "hexpired", expired + changed_fields.len());
        remove_if_empty(call, key);
    } else if !changed_fields.is_empty() {
        let mut instead: Request =
            [b"HPEXPIREAT", key.bytes, Decimal::new(at).as_bytes(), b"FIELDS"].into_iter().collect();
        instead.push(changed_fields.len().to_string().as_bytes());
        changed_fields.iter().for_each(|name| instead.push(name));
        call.trace(vec![instead]);
        call.keys.schedule_fields(key);
        changed(call, key, "hexpire", changed_fields.len());
    }
    Ok(())
}

fn left(call: &mut Call<'_, '_>, in_seconds: bool, is_point: bool) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    demand_fields(call)?;
    if !is_count(call, 3, 1)? {
        return Err(Error::SYNTAX);
    }
    let names = call.args.from(4);
    let hash = call.keys.get::<Hash>(key)?;
    call.reply.array(names.len());
    for name in names {
        let field = hash.and_then(|hash| hash.get(name, now_ms, hash_key));
        call.reply.integer(match field.map(|field| field.expiry_ms) {
            None => NO_FIELD,
            Some(None) => NO_EXPIRY,
            Some(Some(at)) => {
                let ms = if is_point { at } else { (at - now_ms).max(0) };
                if in_seconds { ms.saturating_add(500) / 1_000 } else { ms }
            }
        });
    }
    Ok(())
}

fn hpersist(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let (key, now_ms) = (call.key(1), call.now.unix_ms());
    let hash_key = call.engine.keyspace.hash_key();
    demand_fields(call)?;
    if !is_count(call, 3, 1)? {
        return Err(WRONG_COUNT);
    }
    let names = call.args.from(4);
    let mut hash = call.keys.get_mut::<Hash>(key)?;
    let mut changes = 0;
    call.reply.array(names.len());
    for name in names {
        let expiry = hash.as_ref().and_then(|hash| hash.get(name, now_ms, hash_key)).map(|field| field.expiry_ms);
        call.reply.integer(match (expiry, hash.as_deref_mut()) {
            (Some(Some(_)), Some(hash)) => {
                hash.set_expiry(name, None, now_ms, hash_key);
                changes += 1;
                1
            }
            (Some(_), _) => NO_EXPIRY,
            (None, _) => NO_FIELD,
        });
    }
    if changes > 0 {
        call.keys.schedule_fields(key);
        changed(call, key, "hpersist", changes);
    }
    Ok(())
}

/// When fields shall expire, as HGETEX and HSETEX are told. Any option may be said again; of a number the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Nothing was said.
    None,
    /// PERSIST, or KEEPTTL.
    Word,
    /// The word of the number, whether it is in seconds, and whether it is a point in time.
    Time(usize, bool, bool),
}

impl Wish {
    /// Reads one option at word `at`, if it is one about time; how many words it takes. `word` is the one without a number.
    fn read(&mut self, call: &Call<'_, '_>, at: usize, end: usize, word: &str) -> Result<usize, Error> {
        let is = |word| call.args.is(at, word);
        let (wish, words) = match () {
            () if is(word) => (Self::Word, 1),
            () if at + 1 < end && ["EX", "PX", "EXAT", "PXAT"].into_iter().any(is) => {
                (Self::Time(at + 1, is("EX") || is("EXAT"), is("EXAT") || is("PXAT")), 2)
            }
            () => return Err(Error::SYNTAX),
        };
        let is_again = match (*self, wish) {
            (Self::Time(_, in_seconds, is_point), Self::Time(_, seconds, point)) => {
                (in_seconds, is_point) == (seconds, point)
            }
            (before, now) => before == now,
        };
        if *self != Self::None && !is_again {
            return Err(Error::SYNTAX);
        }
        *self = wish;
        Ok(words)
    }

    /// The point in time, if there is one.
    fn point(self, call: &Call<'_, '_>, name: &str) -> Result<Option<i64>, Error> {
        let Self::Time(at, in_seconds, is_point) = self else { return Ok(None) };
        point_of(call, &call.args[at], in_seconds, is_point, name).map(Some)
    }
}

/// What HGETEX does to a field besides reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Persist,
    Expire(i64),
    Remove,
}

impl Change {
    /// Whether the field has changed.
    fn make(self, hash: &mut Hash, name: &[u8], now_ms: i64, hash_key: &HashKey) -> bool {
        match self {
            Self::Nothing => false,
            Self::Persist => {
                let expires = hash.get(name, now_ms, hash_key).is_some_and(|field| field.expiry_ms.is_some());
                expires && hash.set_expiry(name, None, now_ms, hash_key)
            }
            Self::Expire(at) => hash.set_expiry(name, Some(at), now_ms, hash_key),
            Self::Remove => hash.remove(name, now_ms, hash_key),
        }
    }
}

fn hgetex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let fields = fields_at(call, 2).ok_or(WRONG_COUNT)?;
    let (mut wish, mut at) = (Wish::None, 2);
    while at < fields {
        at += wish.read(call, at, fields, "PERSIST")?;
    }
    if !is_count(call, fields + 1, 1)? {
        return Err(WRONG_COUNT);
    }
    call.keys.get::<Hash>(key)?;
    let change = match wish.point(call, "hgetex")? {
        Some(at) if call.has_passed(at) => Change::Remove,
        Some(at) => Change::Expire(at),
        None if wish == Wish::Word => Change::Persist,
        None => Change::Nothing,
    };
    read_and_change(call, key, fields + 2, change, EXPIRED)
}

fn hgetdel(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    demand_fields(call)?;
    if !is_count(call, 3, 1)? {
        return Err(WRONG_COUNT);
    }
    read_and_change(call, key, 4, Change::Remove, "hdel")
}

/// Replies the values of the fields from word `at` on, and changes each.
fn read_and_change(
    call: &mut Call<'_, '_>,
    key: Key<'_>,
    at: usize,
    change: Change,
    removed: &'static str,
) -> Result<(), Error> {
    let (hash_key, now_ms, names) = (call.engine.keyspace.hash_key(), call.now.unix_ms(), call.args.from(at));
    let mut hash = call.keys.get_mut::<Hash>(key)?;
    let mut touched: Vec<&[u8]> = Vec::new();
    call.reply.array(names.len());
    for name in names {
        reply_value(call.reply, hash.as_ref().and_then(|hash| hash.get(name, now_ms, hash_key)));
        if hash.as_mut().is_some_and(|hash| change.make(hash, name, now_ms, hash_key)) {
            touched.push(name);
        }
    }
    if touched.is_empty() {
        return Ok(());
    }
    let count = Decimal::new(i64::try_from(touched.len()).unwrap_or(i64::MAX));
    let (event, mut instead): (_, Request) = match change {
        Change::Expire(at) => {
            let at = Decimal::new(at);
            let words: [&[u8]; 5] = [b"HPEXPIREAT", key.bytes, at.as_bytes(), b"FIELDS", count.as_bytes()];
            ("hexpire", words.into_iter().collect())
        }
        Change::Persist => ("hpersist", [b"HPERSIST", key.bytes, b"FIELDS", count.as_bytes()].into_iter().collect()),
        Change::Remove | Change::Nothing => (removed, [b"HDEL", key.bytes].into_iter().collect()),
    };
    touched.iter().for_each(|name| instead.push(name));
    call.trace(vec![instead]);
    call.keys.schedule_fields(key);
    if event == EXPIRED {
        call.keys.count_expired_fields(key, touched.len());
    }
    changed(call, key, event, touched.len());
    remove_if_empty(call, key);
    Ok(())
}

/// The options of HSETEX.
#[derive(Debug)]
struct Options {
    /// Whether the key must be there, or must not.
    key: Option<bool>,
    /// Whether all fields must be there, or none.
    fields: Option<bool>,
    wish: Wish,
}

impl Options {
    fn read(call: &Call<'_, '_>, end: usize) -> Result<Self, Error> {
        let mut options = Self { key: None, fields: None, wish: Wish::None };
        let mut at = 2;
        while at < end {
            let is = |word| call.args.is(at, word);
            at += match () {
                () if is("NX") || is("XX") => demand(&mut options.key, is("XX"))?,
                () if is("FNX") || is("FXX") => demand(&mut options.fields, is("FXX"))?,
                () => options.wish.read(call, at, end, "KEEPTTL")?,
            };
        }
        Ok(options)
    }

    /// Whether all fields are there that must be, and none that must not.
    fn has_fields(&self, hash: Option<&Hash>, call: &Call<'_, '_>, first: usize) -> bool {
        let (hash_key, now_ms) = (call.engine.keyspace.hash_key(), call.now.unix_ms());
        let has = |name: &[u8]| hash.is_some_and(|hash| hash.get(name, now_ms, hash_key).is_some());
        let mut names = call.args.from(first).step_by(2);
        self.fields.is_none_or(|wanted| names.all(|name| has(name) == wanted))
    }

    /// Whether the command is told to replicas and the log in other words than it came.
    fn are_told_apart(&self) -> bool {
        let is_point = matches!(self.wish, Wish::Time(_, false, true));
        let has_time = matches!(self.wish, Wish::Time(..));
        self.key.is_some() || self.fields.is_some() || has_time && !is_point
    }
}

/// Notes that something must be there, or must not, unless the opposite was said; how many words that takes.
fn demand(demanded: &mut Option<bool>, wanted: bool) -> Result<usize, Error> {
    if demanded.is_some_and(|before| before != wanted) {
        return Err(Error::SYNTAX);
    }
    *demanded = Some(wanted);
    Ok(1)
}

fn hsetex(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let fields = fields_at(call, 2).ok_or(WRONG_COUNT)?;
    let options = Options::read(call, fields)?;
    if !is_count(call, fields + 1, 2)? {
        return Err(WRONG_COUNT);
    }
    let first = fields + 2;
    let is_there = call.keys.get_mut::<Hash>(key)?.is_some();
    let mut is_met = options.key.is_none_or(|wanted| wanted == is_there);
    let point = if is_met { options.wish.point(call, "hsetex")? } else { None };
    is_met = is_met && options.has_fields(call.keys.view(key), call, first);
    call.reply.integer(i64::from(is_met));
    if !is_met {
        return Ok(());
    }
    if point.is_some_and(|at| call.has_passed(at)) {
        return set_in_vain(call, key, first);
    }
    let expiry = match (point, options.wish) {
        (Some(at), _) => Expiry::At(at),
        (None, Wish::Word) => Expiry::Kept,
        (None, _) => Expiry::Never,
    };
    let done = set_fields(call, key, first, expiry)?;
    call.keys.schedule_fields(key);
    tell_expired(call, key, &done);
    changed(call, key, "hset", (call.args.len() - first) / 2);
    if point.is_some() {
        call.notify(Events::HASH, "hexpire", key.bytes);
    }
    let mut told = Vec::new();
    if expiry == Expiry::Kept && !done.overwritten.is_empty() {
        // To a replica they may not have expired yet, and would keep their expiry.
        let names = done.overwritten.iter().map(|name| &**name);
        told.push([b"HDEL", key.bytes].into_iter().chain(names).collect());
    }
    if options.are_told_apart() {
        told.push(exact(call, expiry, fields));
    } else if !told.is_empty() {
        told.push(call.args.from(0).collect());
    }
    if !told.is_empty() {
        call.trace(told);
    }
    Ok(())
}

/// HSETEX without conditions, with the point in time at which the fields expire. The word FIELDS is at `fields`.
fn exact(call: &Call<'_, '_>, expiry: Expiry, fields: usize) -> Request {
    let mut instead: Request = call.args.from(0).take(2).collect();
    match expiry {
        Expiry::At(at) => [b"PXAT", Decimal::new(at).as_bytes()].iter().for_each(|word| instead.push(word)),
        Expiry::Kept => instead.push(b"KEEPTTL"),
        Expiry::Never => {}
    }
    call.args.from(fields).for_each(|word| instead.push(word));
    instead
}

/// Sets fields that have expired already: they go if they were there.
fn set_in_vain(call: &mut Call<'_, '_>, key: Key<'_>, first: usize) -> Result<(), Error> {
    let (hash_key, was_there) = (call.engine.keyspace.hash_key(), call.keys.contains(key));
    let now_ms = call.now.unix_ms();
    let mut removal: Request = [b"HDEL", key.bytes].into_iter().collect();
    let mut removed = 0;
    if let Some(hash) = call.keys.get_mut::<Hash>(key)? {
        for name in call.args.from(first).step_by(2) {
            // One that had expired before stays for whoever tells replicas of it.
            if hash.remove(name, now_ms, hash_key) {
                removal.push(name);
                removed += 1;
            }
        }
    }
    call.keys.count_expired_fields(key, (call.args.len() - first) / 2);
    if !was_there {
        call.notify(Events::NEW, "new", key.bytes);
    }
    if removed > 0 {
        call.keys.schedule_fields(key);
        changed(call, key, "hset", removed);
        call.trace(vec![removal]);
    } else {
        call.notify(Events::HASH, "hset", key.bytes);
    }
    call.notify(Events::HASH, "hexpire", key.bytes);
    call.notify(Events::HASH, "hexpired", key.bytes);
    remove_if_empty(call, key);
    if !was_there {
        call.notify(Events::GENERIC, "del", key.bytes);
    }
    Ok(())
}
