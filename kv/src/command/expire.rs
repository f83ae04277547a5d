//! When keys go away by themselves.

use super::call::{Call, Run};
use crate::error::Error;
use crate::keyspace::Key;
use crate::resp::number::Decimal;
use crate::settings::Events;

pub(super) const RUNS: &[(&str, Run)] = &[
    ("expire", |call| expire(call, true, false, "expire")),
    ("pexpire", |call| expire(call, false, false, "pexpire")),
    ("expireat", |call| expire(call, true, true, "expireat")),
    ("pexpireat", |call| expire(call, false, true, "pexpireat")),
    ("ttl", |call| left(call, true, false)),
    ("pttl", |call| left(call, false, false)),
    ("expiretime", |call| left(call, true, true)),
    ("pexpiretime", |call| left(call, false, true)),
    ("persist", persist),
];

/// Only then is an expiry set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct When {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl When {
    /// Reads the words from 3 up to `end`.
    ///
    /// # Errors
    /// One is unknown, or two exclude each other.
    pub(super) fn read(call: &Call<'_, '_>, end: usize) -> Result<Self, Error> {
        let mut when = Self::default();
        for at in 3..end {
            match () {
                () if call.args.is(at, "NX") => when.absent = true,
                () if call.args.is(at, "XX") => when.present = true,
                () if call.args.is(at, "GT") => when.greater = true,
                () if call.args.is(at, "LT") => when.less = true,
                () => {
                    let word = String::from_utf8_lossy(&call.args[at]).into_owned();
                    return Err(Error::text(format!("ERR Unsupported option {word}")));
                }
            }
        }
        if when.absent && (when.present || when.greater || when.less) {
            return Err(Error::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if when.greater && when.less {
            return Err(Error::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(when)
    }

    /// Whether a key that expires `before` may expire at `at` instead. Never is later than any time.
    pub(super) fn allows(self, before: Option<i64>, at: i64) -> bool {
        let is_refused = self.absent && before.is_some()
            || self.present && before.is_none()
            || self.greater && before.is_none_or(|before| at <= before)
            || self.less && before.is_some_and(|before| at >= before);
        !is_refused
    }
}

fn expire(call: &mut Call<'_, '_>, in_seconds: bool, is_point: bool, name: &str) -> Result<(), Error> {
    let key = call.key(1);
    let when = When::read(call, call.args.len())?;
    let given = call.integer(2)?;
    let invalid = || Error::invalid_expiry(name);
    let ms = if in_seconds { given.checked_mul(1_000).ok_or_else(invalid)? } else { given };
    let at = if is_point { ms } else { call.now.unix_ms().checked_add(ms).ok_or_else(invalid)? }.max(0);
    let Some(before) = call.keys.expiry(key) else {
        call.reply.integer(0);
        return Ok(());
    };
    let is_set = when.allows(before, at);
    if is_set {
        set(call, key, at);
    }
    call.reply.integer(i64::from(is_set));
    Ok(())
}

/// Lets a key that is there expire. A time that has passed takes it out at once.
fn set(call: &mut Call<'_, '_>, key: Key<'_>, at: i64) {
    if call.has_passed(at) {
        return call.expire_at_once(key);
    }
    call.keys.set_expiry(key, Some(at));
    call.changed(key, Events::GENERIC, "expire");
    call.trace_as(|call| {
        let at = Decimal::new(at);
        [b"PEXPIREAT", key.bytes, at.as_bytes()].into_iter().chain(call.args.from(3)).collect()
    });
}

fn left(call: &mut Call<'_, '_>, in_seconds: bool, is_point: bool) -> Result<(), Error> {
    let key = call.key(1);
    // Told as looked for, though not as used.
    let is_there = call.keys.looked_for(key);
    let answer = match call.keys.expiry(key).filter(|_| is_there) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let ms = if is_point { at } else { (at - call.now.unix_ms()).max(0) };
            if in_seconds { ms.saturating_add(500) / 1_000 } else { ms }
        }
    };
    call.reply.integer(answer);
    Ok(())
}

fn persist(call: &mut Call<'_, '_>) -> Result<(), Error> {
    let key = call.key(1);
    let expires = call.keys.expiry(key).flatten().is_some();
    if expires {
        call.keys.set_expiry(key, None);
        call.changed(key, Events::GENERIC, "persist");
    }
    call.reply.integer(i64::from(expires));
    Ok(())
}
